"""zCDP parameters as functions of arrays, which compile, batch and differentiate.

A change eta of y moves the posterior mean by C eta and leaves its covariance alone, so a release of one Gaussian pair
costs rho = shift' covariance^-1 shift / 2. Worst cases over the area k whose unit changes are taken here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from fhjax.errors import Status
from fhjax.privacy.coefficients import Coefficients, coefficients, divide
from fhjax.privacy.defects import refuse_sensitivities, sensitivities, wrong_sensitivities
from fhjax.privacy.extremes import effects_kernel
from fhjax.records import Array, NumberedLabels


def _operator(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, prior_precision: Any
) -> tuple[Coefficients, Array]:
    """The operator and Delta; what cannot be meant raises outside transformations and becomes infinite inside."""
    C = coefficients(sampling_variance, model_variance, X, beta_prior_precision=prior_precision)
    delta = sensitivities(sensitivity, C.num_areas)
    refuse_sensitivities(delta, NumberedLabels(C.num_areas))
    return C, jnp.where(wrong_sensitivities(delta) | (C.status >= Status.NOT_CONVERGED), jnp.inf, delta)


def own_area_terms(coefficients: Coefficients, sensitivity: Float[Array, " m"]) -> Float[Array, " m"]:
    """Delta_i^2 c_ii / (2 psi_i) (m,): the own-area terms. Infinite where psi = 0 and Delta > 0."""
    return divide(sensitivity**2 * coefficients.own(), 2.0 * coefficients.sampling_variance)


def area_terms(coefficients: Coefficients, effect: Float[Array, " m"]) -> Float[Array, " m"]:
    """effect_i^2 / (2 sigma_i^2) (m,), paper (24) for the largest effects. 0 where nothing moves the area."""
    return divide(effect**2, 2.0 * coefficients.posterior_variance())


def independent_terms(
    coefficients: Coefficients, sensitivity: Float[Array, " m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """(Delta_k^2 / 2) sum_i c_ik^2 / sigma_i^2 and r_k (26), both (m,)."""
    own, others = coefficients.weighted_column_norms()
    # A public outcome (Delta = 0) costs nothing even where psi = 0.
    total = jnp.where(sensitivity == 0.0, 0.0, own + others)
    return 0.5 * sensitivity**2 * total, divide(others, own)


def per_area_rho(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, beta_prior_precision: Any = None
) -> Float[Array, " m"]:
    """rho of publishing one area's posterior draw, for each area (m,): max_k (c_ik Delta_k)^2 / (2 sigma_i^2).

    Args:
        sampling_variance: (m,) psi, outcome units squared.
        model_variance: sigma_v^2, outcome units squared.
        X: (m, p) covariates, with their column of ones where there is one.
        sensitivity: (m,) Delta, outcome units.
        beta_prior_precision: (p, p) or None for the flat prior.

    Exact for every p; the maximum over k is pruned by a certificate. Differentiable: the maximising k is held fixed,
    which is the gradient wherever the maximum is attained once. Neighbours: bounded, one unit's outcome replaced;
    variances are held fixed.

    Source: Das and Drechsler (2026), equation (24).

    Examples:
        >>> [round(float(r), 4) for r in per_area_rho([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3, [0.1, 0.1, 0.1])]
        [0.0034, 0.0034, 0.0013]
    """
    C, delta = _operator(sampling_variance, model_variance, X, sensitivity, beta_prior_precision)
    return rho_of_areas(C, delta)


def rho_of_areas(C: Coefficients, delta: Array) -> Array:
    """:func:`per_area_rho` from the operator; infinite everywhere where a sensitivity is."""
    unknown = jnp.any(jnp.isinf(delta))
    delta = jnp.where(unknown, 0.0, delta)
    effect = effects_kernel(C, delta, exact_off_diagonal=False).effect
    return jnp.where(unknown, jnp.inf, area_terms(C, effect))


def joint_rho_correlated(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, beta_prior_precision: Any = None
) -> Float[Array, ""]:
    """rho of publishing one draw of the whole correlated posterior: max_k Delta_k^2 sigma_k^2 / (2 psi_k^2), exact.

    Arguments as in :func:`per_area_rho`. The posterior likelihood ratio between two values of y_k depends on theta_k
    alone, so every area together costs what the worst area's own term costs.

    Source: docs/derivations.md, sections 4 to 8.

    Examples:
        >>> round(float(joint_rho_correlated([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3, [0.1, 0.1, 0.1])), 6)
        0.003438
    """
    C, delta = _operator(sampling_variance, model_variance, X, sensitivity, beta_prior_precision)
    return _largest(own_area_terms, C, delta)


def joint_rho_independent(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, beta_prior_precision: Any = None
) -> Float[Array, ""]:
    """rho of publishing a draw for every area, drawn independently: max_k (Delta_k^2 / 2) sum_i c_ik^2 / sigma_i^2.

    Arguments as in :func:`per_area_rho`. O(m p^2).

    Source: Das and Drechsler (2026), equation (25).

    Examples:
        >>> round(float(joint_rho_independent([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3, [0.1, 0.1, 0.1])), 6)
        0.004006
    """
    C, delta = _operator(sampling_variance, model_variance, X, sensitivity, beta_prior_precision)
    return _largest(lambda C, delta: independent_terms(C, delta)[0], C, delta)


def _largest(terms: Callable[[Coefficients, Array], Array], C: Coefficients, delta: Array) -> Array:
    unknown = jnp.any(jnp.isinf(delta))
    return jnp.where(unknown, jnp.inf, jnp.max(terms(C, jnp.where(unknown, 0.0, delta))))
