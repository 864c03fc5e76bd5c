"""The problem that every guarantee starts from: operator and sensitivities, checked, of one set of areas.

``given_to`` brings the arguments into order on the host, ``state`` computes and counts what is wrong, and ``check``
raises the error that says where, when the numbers are known.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.entrance import in_order, is_concrete, refuse_single, require_float64
from fhjax.errors import InputError, Status
from fhjax.model.digest import refuse_foreign
from fhjax.privacy.coefficients import Coefficients, operator
from fhjax.privacy.defects import explain, refuse_sensitivities, sensitivities, wrong_sensitivities
from fhjax.privacy.sharded import coefficients_of_shards
from fhjax.records import AreaData, Array, FayHerriotFit, Labels, NumberedLabels, Posterior, record
from fhjax.sharding import is_sharded

#: How closely a posterior must agree with the data it is said to be of, relative, in every area.
SAME_MODEL = 1e-9


@record
class Problem:
    """What a guarantee is computed from; padded rows and rows that cannot be meant are made harmless."""

    C: Coefficients  # its status says whether the numbers mean anything
    delta: Array  # (m,) sensitivities, outcome units
    X: Array  # (m, p)
    mask: Array | None  # (m,)
    defects: Array  # how many rows have which of ``defects.DEFECTS``
    wrong_sensitivity: Array  # () how many
    disagreement: Array  # () largest relative difference from the posterior that was handed in
    disagreement_at: Array  # () its row


def prepare(
    data: AreaData, posterior: Posterior | FayHerriotFit, sensitivity: Any, beta_prior_precision: Any = None
) -> Problem:
    """The problem, checked.

    Raises:
        InputError: as :func:`fhjax.guarantees`; inside ``jit``, ``vmap`` and ``grad`` only for shapes.
    """
    require_float64()
    if is_sharded(data.sampling_variance):
        C, delta, X = coefficients_of_shards(data, posterior.model_variance, sensitivity, beta_prior_precision)
        worst, where = _disagreement(C, X, _claims(posterior, data))
        _refuse_another(worst, where)
        none = jnp.zeros((), int)
        return Problem(
            C=C, delta=delta, X=X, mask=data.mask, defects=none, wrong_sensitivity=none, disagreement=worst,
            disagreement_at=where,
        )  # fmt: skip
    arguments = given_to(data, posterior, sensitivity, beta_prior_precision)
    problem = state(*arguments)
    check(problem, arguments, data)
    return problem


def given_to(
    data: AreaData, posterior: Posterior | FayHerriotFit, sensitivity: Any, beta_prior_precision: Any
) -> tuple[Any, ...]:
    """The arguments of :func:`state`: in the order of the areas, of the right shapes, in double precision."""
    refuse_foreign(posterior, data, "those of the guarantee")
    m, p = data.num_areas, data.num_covariates
    refuse_single(data.sampling_variance, data.X)
    if data.mask is not None and is_concrete(data.mask) and np.ndim(sensitivity) == 1 and np.shape(sensitivity)[0] != m:
        mask = np.asarray(data.mask)
        if np.shape(sensitivity) == (int(mask.sum()),):  # one number an area, none for padding
            sensitivity = jnp.zeros(m).at[np.flatnonzero(mask)].set(jnp.asarray(sensitivity, dtype=float))
    delta = sensitivities(in_order(sensitivity, data.labels, "sensitivity"), m)
    P = None if beta_prior_precision is None else jnp.atleast_2d(jnp.asarray(beta_prior_precision, dtype=float))
    if P is not None and P.shape != (p, p):
        raise InputError(f"beta_prior_precision has shape {P.shape}; expected ({p}, {p}).")
    if P is None and m < p:
        raise InputError(f"{m:,} areas cannot determine {p:,} coefficients: drop covariates.")
    # A fit that remembers these very data need not be held against them.
    own = isinstance(posterior, FayHerriotFit) and posterior.fitted_to is data and P is None
    claims = None if own else _claims(posterior, data)
    s2 = jnp.asarray(posterior.model_variance, dtype=float)
    return data.sampling_variance, s2, data.X, delta, data.mask, P, claims


def _claims(posterior: Posterior | FayHerriotFit, data: AreaData) -> tuple[Array | None, ...]:
    """What the posterior says of covariance, shrinkage and variance: it must follow from these data."""
    m, p = data.num_areas, data.num_covariates
    covariance = posterior.beta_covariance
    if covariance.shape != (p, p):
        raise InputError(f"The posterior has {covariance.shape[0]} coefficients and the data {p} covariates.")
    if not isinstance(posterior, Posterior):
        return covariance, posterior.beta_covariance_root, None, None
    if data.mask is not None and is_concrete(data.mask) and not is_sharded(data.mask):
        mask = np.asarray(data.mask)
        if posterior.shrinkage.shape != (m,) and posterior.shrinkage.shape == (int(mask.sum()),):
            at = np.flatnonzero(mask)  # a posterior of the areas alone, for rows that are padded
            posterior = dataclasses.replace(
                posterior,
                shrinkage=jnp.zeros(m).at[at].set(posterior.shrinkage),
                variance=jnp.zeros(m).at[at].set(posterior.variance),
            )
    if posterior.shrinkage.shape != (m,):
        raise InputError(f"The posterior has {posterior.shrinkage.shape[0]:,} areas and the data {m:,}.")
    return covariance, posterior.beta_covariance_root, posterior.shrinkage, posterior.variance


@jax.jit
def state(
    psi: Array, s2: Array, X: Array, delta: Array, mask: Array | None, P: Array | None, claims: tuple | None
) -> Problem:
    """The problem as a pure function of arrays: nothing is raised, ``C.status`` says whether to believe it."""
    if mask is not None:
        psi, delta = jnp.where(mask, psi, 1.0), jnp.where(mask, delta, 0.0)
        X = jnp.where(mask[:, None], X, 0.0)
    C, defects = operator(psi, s2, X, P)
    X = jnp.where(jnp.isfinite(X), X, 0.0)
    wrong = wrong_sensitivities(delta)
    delta = jnp.where(wrong, 0.0, delta)
    if claims is None:
        worst, where = jnp.zeros(()), jnp.zeros((), int)
    else:
        worst, where = _disagreement(C, X, claims)
    bad = jnp.any(wrong) | ~(worst <= SAME_MODEL)
    status = jnp.where((C.status == Status.OK) & bad, int(Status.BAD_INPUT), C.status)
    return Problem(
        C=dataclasses.replace(C, status=status),
        delta=delta,
        X=X,
        mask=mask,
        defects=defects,
        wrong_sensitivity=jnp.sum(wrong),
        disagreement=worst,
        disagreement_at=where,
    )


def check(problem: Problem, arguments: tuple[Any, ...], data: AreaData) -> None:
    """Say what is wrong with the problem, if the numbers are known and something is.

    Raises:
        InputError: naming the areas, by the first thing that is wrong.
    """
    if not is_concrete(problem.C.status) or int(problem.C.status) == Status.OK:
        return
    psi, s2, X, delta, mask, P, _ = arguments
    labels = data.labels if data.labels is not None else NumberedLabels(data.num_areas)
    if mask is not None:
        rows = np.asarray(mask)
        labels = Labels([*labels, *("padding" for _ in range(data.num_areas - len(labels)))])
        psi, X = np.where(rows, psi, 1.0), np.where(rows[:, None], X, 0.0)
        delta = np.where(rows, delta, 0.0)
    if int(problem.wrong_sensitivity):
        refuse_sensitivities(delta, labels)
    explain(problem.defects, psi, s2, X, P, labels)
    _refuse_another(problem.disagreement, problem.disagreement_at)


def _refuse_another(worst: Array, where: Array) -> None:
    if not float(worst) <= SAME_MODEL:
        raise InputError(
            "The posterior was not computed from these sampling variances and covariates with this model variance: "
            f"its shrinkage or covariance differs by {float(worst):.2g}, relative, in row {int(where) + 1:,}, where "
            f"{SAME_MODEL:g} is allowed. Pass the posterior of these data, or its beta_prior_precision."
        )


@jax.jit
def _disagreement(C: Coefficients, X: Array, claims: tuple[Any, ...]) -> tuple[Array, Array]:
    """Largest relative difference in any area, and where: of B, of sigma^2, and of B s + B^2 x' A x from their A."""
    covariance, root, shrinkage, variance = claims
    s2 = C.model_variance
    used = jnp.any(X != 0.0, axis=1)
    # From the root where there is one: x' A x from A itself cancels when the covariates are nearly collinear.
    leverage = jnp.sum((X @ covariance) * X, axis=1) if root is None else jnp.sum((X @ root) ** 2, axis=1)
    B, ours = C.shrinkage, C.posterior_variance()
    theirs = B * s2 + B * B * leverage

    def relative(one: Array, other: Array, scale: Array) -> Array:
        difference = jnp.abs(one - other) / jnp.where(scale > 0.0, scale, 1.0)
        return jnp.where(used, jnp.where(jnp.isnan(difference), jnp.inf, difference), 0.0)

    worst = relative(theirs, ours, ours)
    if shrinkage is not None and variance is not None:
        worst = jnp.maximum(worst, relative(shrinkage, B, B))
        worst = jnp.maximum(worst, relative(variance, ours, ours))
    return jnp.max(worst), jnp.argmax(worst)
