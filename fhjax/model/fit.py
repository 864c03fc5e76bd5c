"""Fit the Fay-Herriot model: the model variance and what follows from it at once, with status codes and derivatives."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.entrance import is_concrete, require_float64
from fhjax.errors import InputError, NumericalError, Status
from fhjax.model.checks import area_data, from_direct
from fhjax.model.kernel import fit_kernel
from fhjax.model.large import fit_large
from fhjax.records import AreaData, FayHerriotFit
from fhjax.sharding import is_sharded

Array = jax.Array

__all__ = ["METHODS", "area_data", "fit", "fit_kernel", "from_direct", "given"]

METHODS = ("reml", "ml", "moment", "pr")


def fit(data: AreaData, *, method: str = "reml", tolerance: float = 1e-11, max_steps: int = 100) -> FayHerriotFit:
    """Estimate the model variance and the regression coefficients of a Fay-Herriot model.

    Args:
        data: m areas with direct estimates y (outcome units), sampling variances (outcome units squared) and X (m, p).
        method: ``"reml"`` (restricted maximum likelihood, the default), ``"ml"``, ``"moment"`` (Fay and Herriot) or
            ``"pr"`` (Prasad and Rao). All are truncated at 0; exactly 0 comes with status ``AT_BOUNDARY``.
        tolerance: relative size of the last Newton step.
        max_steps: most Newton steps; about six are usual.

    Raises:
        InputError: an unknown method, shapes that do not fit, or ``"ml"`` with a sampling variance of 0.
        NumericalError: no convergence, collinear covariates, or a value that is not finite. Inside ``jit``, ``vmap``
            or ``grad`` nothing is raised: read ``status``.

    Invariance: the units of y and of the columns of X change the result by units only. The derivative of
    ``model_variance`` in y, sampling variances and X is that of the root, and exactly 0 at the boundary.

    Source: docs/derivations.md, sections 1 and 14; Rao and Molina (2015), sections 5.2, 6.1.2; Prasad and Rao (1990).

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> round(float(fit(data).model_variance), 6)
        4.166667
    """
    require_float64()
    if method not in METHODS:
        raise InputError(f"Unknown method {method!r}. Choose one of {', '.join(METHODS)}.")
    _check_shapes(data)
    concrete = is_concrete(data)
    if concrete and method == "ml" and bool(jnp.any(data.sampling_variance == 0)):
        raise InputError(
            "The likelihood has no maximum when a sampling variance is 0: it grows without bound as the model variance "
            'goes to 0. Use method="reml" or "moment", or leave those areas out.'
        )
    if concrete and not is_sharded(data):
        result = fit_large(data, method, tolerance, max_steps)
        if result is not None:
            return _finished(result, data)
    intercept = concrete and data.X.shape[1] == 1 and _only_ones(data.X, data.mask)
    result = fit_kernel(
        data.y,
        data.sampling_variance,
        None if intercept else data.X,
        data.mask,
        method=method,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    return _finished(result, data)


def given(data: AreaData, model_variance: float | Array) -> FayHerriotFit:
    """The model with a model variance that is known from elsewhere: only the coefficients are estimated.

    Args:
        data: m areas.
        model_variance: () at least 0, outcome units squared.

    Raises:
        InputError: a negative, infinite or missing model variance.
        NumericalError: collinear covariates, or a value that is not finite.

    Source: docs/derivations.md, sections 1 and 14.

    Examples:
        >>> from fhjax.model.fit import area_data, given
        >>> round(float(given(area_data([1.0, 3.0, 2.0], [0.5, 0.5, 0.5]), 1.0).beta[0]), 6)
        2.0
    """
    require_float64()
    _check_shapes(data)
    if is_concrete(model_variance) and not (np.isfinite(model_variance) and model_variance >= 0):
        raise InputError(f"The model variance must be a number of at least 0, not {model_variance}.")
    result = fit_kernel(
        data.y, data.sampling_variance, data.X, data.mask, method="given", model_variance=jnp.asarray(model_variance)
    )
    return _finished(result, data)


def _check_shapes(data: AreaData) -> None:
    m = data.y.shape
    if len(m) != 1 or data.sampling_variance.shape != m or data.X.ndim != 2 or data.X.shape[0] != m[0]:
        raise InputError(
            f"One fit takes y (m,), sampling_variance (m,) and X (m, p), not {data.y.shape}, "
            f"{data.sampling_variance.shape} and {data.X.shape}. Use jax.vmap over fit_kernel for a batch."
        )
    if data.mask is not None and data.mask.shape != m:
        raise InputError(f"mask must have the shape of y, {m}, not {data.mask.shape}.")


def _only_ones(X: Array, mask: Array | None) -> bool:
    if is_sharded(X, mask):
        return bool(jnp.all((X[:, 0] == 1.0) | (False if mask is None else ~mask)))
    rows = np.asarray(X)[:, 0]
    return bool(np.all(rows == 1.0 if mask is None else rows[np.asarray(mask)] == 1.0))


def _finished(result: FayHerriotFit, data: AreaData) -> FayHerriotFit:
    if is_concrete(result):
        status = Status(int(result.status))
        if status.failed:
            raise NumericalError(status.sentence)
        result = dataclasses.replace(result, num_areas=int(result.num_areas))
    result = dataclasses.replace(result, columns=data.columns)
    if is_concrete(result, data):
        # A reference, not a hash: hashing ten million areas would cost as much as fitting them.
        object.__setattr__(result, "_fitted_to", data)
    return result
