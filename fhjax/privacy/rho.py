"""zCDP parameters as pure array functions: they compile, batch and differentiate; nothing here looks at values.

A change eta of y moves the posterior mean by C eta and leaves its covariance alone, so a release of one Gaussian pair
costs rho = shift' covariance^-1 shift / 2. Worst cases over the area k whose unit changes are taken here.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fhjax.privacy.coefficients import Coefficients, divide, prediction_basis
from fhjax.privacy.extremes import norm_bound, other_factor, search, two_largest, without
from fhjax.records import Array


def _operator(sampling_variance: Any, model_variance: Any, X: Any, prior_precision: Any) -> Coefficients:
    psi, s2, X = (jnp.asarray(value, dtype=float) for value in (sampling_variance, model_variance, X))
    P = None if prior_precision is None else jnp.asarray(prior_precision, dtype=float)
    return Coefficients(sampling_variance=psi, model_variance=s2, basis=prediction_basis(X, psi + s2, P))


def own_area_terms(coefficients: Coefficients, sensitivity: Array) -> Array:
    """Delta_i^2 c_ii / (2 psi_i) (m,): the own-area terms. Infinite where psi = 0 and Delta > 0."""
    return divide(sensitivity**2 * coefficients.own(), 2.0 * coefficients.sampling_variance)


def area_terms(coefficients: Coefficients, effect: Array) -> Array:
    """effect_i^2 / (2 sigma_i^2) (m,), paper (24) for the largest effects. 0 where nothing moves the area."""
    return divide(effect**2, 2.0 * coefficients.posterior_variance())


def independent_terms(coefficients: Coefficients, sensitivity: Array) -> tuple[Array, Array]:
    """(Delta_k^2 / 2) sum_i c_ik^2 / sigma_i^2 and r_k (26), both (m,)."""
    own, others = coefficients.weighted_column_norms()
    # A public outcome (Delta = 0) costs nothing even where psi = 0.
    total = jnp.where(sensitivity == 0.0, 0.0, own + others)
    return 0.5 * sensitivity**2 * total, divide(others, own)


def per_area_rho(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, beta_prior_precision: Any = None
) -> Array:
    """rho of publishing one area's posterior draw, for each area (m,): max_k (c_ik Delta_k)^2 / (2 sigma_i^2).

    Args:
        sampling_variance: (m,) psi, outcome units squared.
        model_variance: sigma_v^2, outcome units squared.
        X: (m, p) covariates.
        sensitivity: (m,) Delta, outcome units.
        beta_prior_precision: (p, p) or None for the flat prior.

    Exact for every p; the maximum over k is pruned by a certificate. Differentiable: the maximising k is held fixed,
    which is the gradient wherever the maximum is attained once. Neighbours: bounded, one unit's outcome replaced;
    variances are held fixed.

    Source: Das and Drechsler (2026), equation (24).

    Example:
        >>> [round(float(r), 4) for r in per_area_rho([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3, [0.1, 0.1, 0.1])]
        [0.0034, 0.0034, 0.0013]
    """
    C = _operator(sampling_variance, model_variance, X, beta_prior_precision)
    delta = jnp.asarray(sensitivity, dtype=float)
    fixed_C, fixed_delta = jax.lax.stop_gradient((C, delta))
    W = other_factor(fixed_C, fixed_delta)
    own = fixed_C.own() * fixed_delta
    every = jnp.arange(delta.shape[0])
    if W.shape[1] == 1:
        _, first, _ = two_largest(jnp.abs(W[:, 0]))
        second = jnp.argmax(without(jnp.abs(W[:, 0]), first, -1.0))
        k = jnp.where(every == first, second, first)
    else:
        need = own < norm_bound(fixed_C, W) * (1.0 + 1e-12)
        start = jnp.where(need, divide(own, fixed_C.shrinkage), jnp.inf)
        k = jax.lax.cond(
            jnp.any(need),
            lambda: search(every, fixed_C.basis, W, start)[1],
            lambda: jnp.full(every.shape, -1, every.dtype),
        )
    k = jnp.where(k < 0, every, k)
    effect = jnp.maximum(C.own() * delta, jnp.abs(C.pairs(every, k)) * delta[k])
    return area_terms(C, effect)


def joint_rho_correlated(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, beta_prior_precision: Any = None
) -> Array:
    """rho of publishing one draw of the whole correlated posterior: max_k Delta_k^2 sigma_k^2 / (2 psi_k^2), exact.

    Arguments as in :func:`per_area_rho`. The posterior likelihood ratio between two values of y_k depends on theta_k
    alone, so every area together costs what the worst area's own term costs.

    Source: docs/derivations.md, sections 4 to 8.

    Example:
        >>> round(float(joint_rho_correlated([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3, [0.1, 0.1, 0.1])), 6)
        0.003438
    """
    C = _operator(sampling_variance, model_variance, X, beta_prior_precision)
    return jnp.max(own_area_terms(C, jnp.asarray(sensitivity, dtype=float)))


def joint_rho_independent(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, beta_prior_precision: Any = None
) -> Array:
    """rho of publishing a draw for every area, drawn independently: max_k (Delta_k^2 / 2) sum_i c_ik^2 / sigma_i^2.

    Arguments as in :func:`per_area_rho`. O(m p^2).

    Source: Das and Drechsler (2026), equation (25).

    Example:
        >>> round(float(joint_rho_independent([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3, [0.1, 0.1, 0.1])), 6)
        0.004006
    """
    C = _operator(sampling_variance, model_variance, X, beta_prior_precision)
    return jnp.max(independent_terms(C, jnp.asarray(sensitivity, dtype=float))[0])
