"""Fit the Fay-Herriot model: the model variance and what follows from it at once, with status codes and derivatives."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fhjax.errors import InputError, NumericalError, Status
from fhjax.model.basis import COLLINEAR, orthonormal_basis
from fhjax.model.checks import area_data, from_direct
from fhjax.model.likelihood import UNROLLED, Problem, combination, inverse, recentred, sum_log_variance, weighted_sums
from fhjax.model.reductions import ROW, joint_sums, to_rows
from fhjax.model.solve import prasad_rao, solve, with_derivative
from fhjax.records import AreaData, FayHerriotFit

Array = jax.Array

__all__ = ["METHODS", "area_data", "fit", "fit_kernel", "from_direct", "given"]

#: Least eigenvalue of the columns' correlations above which orthogonalising them gains nothing.
BENIGN = 1e-3

METHODS = ("reml", "ml", "moment", "pr")


def is_concrete(*values: object) -> bool:
    """Whether the numbers are known now, so that they can be checked and an error can be raised."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


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

    Source: MATHS section 3; Rao and Molina (2015), sections 5.2, 6.1.2; Prasad and Rao (1990).

    Example:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> round(float(fit(data).model_variance), 6)
        4.166667
    """
    if method not in METHODS:
        raise InputError(f"Unknown method {method!r}. Choose one of {', '.join(METHODS)}.")
    _check_shapes(data)
    concrete = is_concrete(data)
    if concrete and method == "ml" and bool(np.any(np.asarray(data.sampling_variance) == 0)):
        raise InputError(
            "The likelihood has no maximum when a sampling variance is 0: it grows without bound as the model variance "
            'goes to 0. Use method="reml" or "moment", or leave those areas out.'
        )
    intercept = concrete and data.mask is None and data.X.shape[1] == 1 and bool(np.all(np.asarray(data.X) == 1.0))
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

    Source: MATHS section 3.

    Example:
        >>> from fhjax.model.fit import area_data, given
        >>> round(float(given(area_data([1.0, 3.0, 2.0], [0.5, 0.5, 0.5]), 1.0).beta[0]), 6)
        2.0
    """
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


def _finished(result: FayHerriotFit, data: AreaData) -> FayHerriotFit:
    if is_concrete(result):
        status = Status(int(result.status))
        if status.failed:
            raise NumericalError(status.sentence)
        result = dataclasses.replace(result, num_areas=int(result.num_areas))
    return dataclasses.replace(result, columns=data.columns)


@partial(jax.jit, static_argnames="method")
def fit_kernel(
    y: Array,
    sampling_variance: Array,
    X: Array | None,
    mask: Array | None = None,
    *,
    method: str = "reml",
    tolerance: float | Array = 1e-11,
    max_steps: int | Array = 100,
    model_variance: Array | None = None,
) -> FayHerriotFit:
    """One fit as a pure function of arrays, for ``jit``, ``vmap`` and ``grad``. Nothing is checked or raised.

    Args:
        y: (m,) direct estimates.
        sampling_variance: (m,) at least 0.
        X: (m, p), or None for an intercept alone, which is faster.
        mask: (m,) False where a row only pads the arrays; whatever it holds is ignored. None: all rows are areas.
        method: one of ``METHODS``, or ``"given"`` with ``model_variance``.

    Returns:
        A :class:`~fhjax.records.FayHerriotFit`; ``status`` says whether to believe it. Never NaN: infinity instead.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fhjax.model.fit import fit_kernel
        >>> y = jnp.array([[1.0, 3.0, 2.0, 6.0], [1.0, 1.1, 0.9, 1.0]])
        >>> fits = jax.vmap(lambda y: fit_kernel(y, jnp.full(4, 0.5), None))(y)
        >>> fits.status.tolist()
        [0, 1]
    """
    problem, scale, offset, R, share = prepare(y, sampling_variance, X, mask)
    if method == "given":
        assert model_variance is not None
        s, steps = model_variance / scale, jnp.zeros((), jnp.int32)
        status = jnp.where(jnp.isfinite(s), int(Status.OK), int(Status.NOT_FINITE))
    elif method == "pr":
        s, steps = prasad_rao(problem), jnp.zeros((), jnp.int32)
        status = jnp.where(s > 0, int(Status.OK), int(Status.AT_BOUNDARY))
    else:
        frozen = jax.lax.stop_gradient(problem)
        s, steps, status = solve(frozen, method, jnp.asarray(tolerance), jnp.asarray(max_steps))
        s = with_derivative(method, s, problem)
    return conclude(problem, s, steps, status, scale, offset, R, share, method)


def prepare(y: Array, psi: Array, X: Array | None, mask: Array | None) -> tuple[Problem, Array, Array, Array, Array]:
    """To internal units: mean sampling variance 1, orthonormal covariates, y less its least squares fit ``offset``."""
    if mask is None:
        live = jnp.ones_like(y)
    else:
        live = mask.astype(y.dtype)
        y, psi = jnp.where(mask, y, 0.0), jnp.where(mask, psi, 0.0)
        X = None if X is None else jnp.where(mask[:, None], X, 0.0)
    count = jnp.sum(live)
    mean_variance = jnp.sum(psi) / count
    scale = jax.lax.stop_gradient(jnp.where(mean_variance > 0, mean_variance, 1.0))
    y, psi = y / jnp.sqrt(scale), psi / scale
    if X is None:
        Q, R, share = None, jnp.ones((1, 1)), jnp.ones(1)
        offset = jax.lax.stop_gradient(jnp.sum(y) / count)[None]
        y = live * (y - offset[0])
    else:
        Q, R, share = basis(X.T)
        if y.shape[0] > ROW:
            Q = to_rows(Q)
            # Its Gram matrix need not be the identity, so least squares takes a solve.
            everywhere = Problem(to_rows(y), jnp.ones_like(to_rows(y)), Q, to_rows(live))
            (plain,) = weighted_sums(jnp.zeros(()), everywhere, (1,))
            offset = jax.lax.stop_gradient(inverse(plain.G)[0] @ plain.b)
            y = (everywhere.y - combination(offset, everywhere)).reshape(-1)[: y.shape[0]]
        else:
            offset = jax.lax.stop_gradient(Q @ y)
            y = y - offset @ Q
            Q = to_rows(Q)
    return Problem(to_rows(y), to_rows(psi, 1.0), Q, to_rows(live)), scale, offset, R, share


def basis(Xt: Array) -> tuple[Array, Array, Array]:
    """A basis of the covariates' space: orthonormal, or, for many areas, X itself where it is well conditioned."""
    p, m = Xt.shape
    if m <= ROW or p > UNROLLED:
        return orthonormal_basis(Xt)
    rows = to_rows(Xt)
    pairs = [(i, j) for i in range(p) for j in range(i + 1)]
    sums = dict(zip(pairs, joint_sums([rows[i] * rows[j] for i, j in pairs]), strict=True))
    G = jax.lax.stop_gradient(jnp.array([[sums[max(i, j), min(i, j)] for j in range(p)] for i in range(p)]))
    size = jnp.sqrt(jnp.diagonal(G))
    safe = jnp.where(size > 0, size, 1.0)
    least = jnp.linalg.eigvalsh(G / (safe[:, None] * safe))[0]
    benign = jnp.all(size > 0) & jnp.all(jnp.isfinite(size)) & (least > BENIGN)
    return jax.lax.cond(
        benign, lambda: (Xt / safe[:, None], jnp.diag(safe), jnp.ones(p)), lambda: orthonormal_basis(Xt)
    )


def conclude(
    problem: Problem,
    s: Array,
    steps: Array,
    status: Array,
    scale: Array,
    offset: Array,
    R: Array,
    share: Array,
    method: str,
) -> FayHerriotFit:
    """Everything that follows from the model variance ``s``, back in the user's units."""
    p, count = problem.num_columns, jnp.sum(problem.live)
    problem, centre = recentred(s, problem)
    one, two, three = weighted_sums(s, problem, (1, 2, 3))
    A, log_det = inverse(one.G)
    gamma = A @ one.b
    log_v = sum_log_variance(s, problem)
    distance = one.yy - one.b @ gamma
    AG2 = A @ two.G
    if method == "reml":
        information = 0.5 * (two.w - 2.0 * jnp.sum(A * three.G) + jnp.sum(AG2 * AG2.T))
        variance = 1.0 / information
    elif method == "ml":
        variance = 2.0 / two.w
    elif method == "moment":
        variance = 2.0 * count / one.w**2
    elif method == "pr":
        variance = 2.0 * jnp.sum(problem.live * (problem.psi + s) ** 2) / count**2
    else:
        variance = jnp.zeros_like(s)
    inverse_R = jax.scipy.linalg.solve_triangular(R, jnp.eye(p))
    root = jnp.sqrt(scale) * inverse_R @ jnp.linalg.cholesky(0.5 * (A + A.T))
    log_2pi = float(np.log(2.0 * np.pi))
    ml = -0.5 * (count * (log_2pi + jnp.log(scale)) + log_v + distance)
    log_det_X = log_det + 2.0 * jnp.sum(jnp.log(jnp.diagonal(R))) - p * jnp.log(scale)
    beta = jnp.sqrt(scale) * inverse_R @ (gamma + centre + offset)
    values = (
        scale * s,
        scale * jnp.sqrt(variance),
        beta,
        root @ root.T,
        ml,
        ml + 0.5 * (p * log_2pi - log_det_X),
        root,
    )
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in values]))
    status = jnp.where(finite, status, int(Status.NOT_FINITE))
    status = jnp.where(jnp.min(share) > COLLINEAR, status, int(Status.SINGULAR)).astype(jnp.int32)
    values = [jnp.where(jnp.isnan(value), jnp.inf, value) for value in values]
    return FayHerriotFit(
        model_variance=values[0],
        model_variance_se=values[1],
        beta=values[2],
        beta_covariance=values[3],
        log_likelihood=values[4],
        restricted_log_likelihood=values[5],
        beta_covariance_root=values[6],
        steps=steps,
        status=status,
        num_areas=count.astype(jnp.int32),
        method=method,
        columns=tuple(f"x{j}" for j in range(p)),
    )
