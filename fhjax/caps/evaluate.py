"""What a set of thresholds gives: estimates, a refitted model, every area's term of rho, and every area's MSE.

One pure function of the log thresholds, from table rows to rho. Gradients flow through the trimmed sums, the design
variances, REML and the guarantees; a batch of threshold vectors is a ``vmap``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fhjax.caps.tables import WEIGHT, Tables, TrimmedSums, lift_for_total, positions, trimmed_sums, untrimmed_sums
from fhjax.caps.trimmed_estimates import TrimmedEstimates, VarianceRule, trimmed_estimates
from fhjax.model.fit import fit_kernel
from fhjax.model.posterior import posterior_kernel
from fhjax.privacy.coefficients import Coefficients, divide, prediction_basis
from fhjax.privacy.rho import independent_terms, own_area_terms, per_area_rho
from fhjax.records import Array, FayHerriotFit

Objective = Literal["direct", "eblup", "draw", "weights"]
OBJECTIVES = ("direct", "eblup", "draw", "weights")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The choices that shape the computation."""

    joint: str = "correlated"  # "correlated", "independent" or "per_area"
    objective: str = "eblup"
    frozen: bool = False  # variances held at their untrimmed values
    method: str = "reml"  # or "given": the model variance is public
    additive: bool = False
    num_groups: int = 0  # 0: redistribution within the area
    intercept_only: bool = True


class Problem(NamedTuple):
    """The numbers of one trimming problem. m areas, p covariates."""

    tables: Tables
    rule: VarianceRule
    centre: Array  # (m,) untrimmed estimates
    X: Array  # (m, p)
    outcome_range: Array  # ()
    emphasis: Array  # (m,) omega, adds up to 1
    sampling_variance: Array  # (m,) untrimmed psi, used when frozen
    model_variance: Array  # () untrimmed sigma_v^2, used when frozen or public
    group: Array | None = None  # (m,) redistribution group of each area


class Evaluation(NamedTuple):
    terms: Array  # (m,) whose maximum is the joint rho (or rho of each area, for "per_area")
    mse: Array  # (m,) by the objective
    objective: Array  # () sum of emphasis times mse
    model_variance: Array
    estimates: TrimmedEstimates
    status: Array


class Context(NamedTuple):
    """What ties an area to the others, taken as fixed while every area looks for its own threshold."""

    model_variance: Array  # ()
    leverage: Array  # (m,) x' A x
    others: Array  # (m,) independent joint: x' A M A x less the area's own part
    g3_variance: Array  # () asymptotic variance of the model variance
    foreign_bias: Array  # (m,) what the other areas' shifts add to the posterior mean's bias


def sums_at(log_threshold: Array, problem: Problem, settings: Settings) -> tuple[TrimmedSums, Array | None]:
    """Trimmed sums, and the lift under additive redistribution."""
    threshold = jnp.exp(log_threshold)
    lift = None
    if settings.additive:
        lift = lift_for_total(problem.tables, threshold, problem.group, settings.num_groups or None)
    return trimmed_sums(problem.tables, threshold, lift), lift


def evaluate(log_threshold: Array, problem: Problem, settings: Settings) -> Evaluation:
    """Everything that the thresholds exp(log_threshold) (m,) give, after a full refit unless variances are frozen."""
    trimmed, lift = sums_at(log_threshold, problem, settings)
    estimates = trimmed_estimates(problem.tables, trimmed, problem.rule)
    psi, usable = safe_variance(estimates.sampling_variance, problem)
    if settings.frozen:
        psi, usable = problem.sampling_variance, jnp.ones(psi.shape, bool)
    fit = fitted(problem.centre + estimates.shift, psi, problem, settings)
    C = Coefficients(
        sampling_variance=psi,
        model_variance=fit.model_variance,
        basis=prediction_basis(problem.X, psi + fit.model_variance),
    )
    delta = problem.outcome_range * estimates.share
    if settings.joint == "independent":
        terms = independent_terms(C, delta)[0]
    elif settings.joint == "per_area":
        terms = per_area_rho(psi, fit.model_variance, problem.X, delta)
    else:
        terms = own_area_terms(C, delta)
    terms = jnp.where(usable, terms, jnp.inf)
    bias = bias_of(estimates, trimmed, lift, jnp.exp(log_threshold), problem, settings)
    if settings.objective in ("direct", "weights"):
        mse = bias**2 + psi
    else:
        posterior = posterior_kernel(problem.centre + estimates.shift, psi, problem.X, None, fit)
        assert posterior.mse is not None
        mse = posterior.mse + (C @ bias) ** 2
        if settings.objective == "draw":
            mse = mse + posterior.variance
    return Evaluation(
        terms=terms,
        mse=mse,
        objective=jnp.sum(problem.emphasis * mse),
        model_variance=fit.model_variance,
        estimates=estimates,
        status=fit.status,
    )


def fitted(y: Array, psi: Array, problem: Problem, settings: Settings) -> FayHerriotFit:
    """The model at trimmed estimates: refitted, or with the model variance as it was."""
    X = None if settings.intercept_only else problem.X
    if settings.frozen or settings.method == "given":
        fit = fit_kernel(y, psi, X, method="given", model_variance=problem.model_variance)
        # The model variance was estimated once, and what that costs stays in the MSE.
        return dataclasses.replace(fit, method="reml")
    return fit_kernel(y, psi, X, method=settings.method)


def safe_variance(psi: Array, problem: Problem) -> tuple[Array, Array]:
    """psi with a harmless stand-in where it is 0 or cannot be estimated, and where it can be used."""
    usable = jnp.isfinite(psi) & (psi > 0.0)
    return jnp.where(usable, psi, jnp.maximum(problem.sampling_variance, 1e-300)), usable


def bias_of(
    estimates: TrimmedEstimates,
    trimmed: TrimmedSums,
    lift: Array | None,
    threshold: Array,
    problem: Problem,
    settings: Settings,
) -> Array:
    """(m,) the shift with its sampling noise taken off, or the largest shift that the weights allow."""
    if settings.objective == "weights":
        return largest_shift(problem.tables, trimmed, lift, threshold) * problem.outcome_range
    return denoised(estimates.shift, estimates.shift_variance)


def denoised(shift: Array, variance: Array) -> Array:
    """b with b^2 reduced by its variance, not below 0: a noisy shift's square overstates the square of the bias."""
    square = shift * shift
    real = square > variance
    kept = jnp.where(real, 1.0 - variance / jnp.where(real, square, 1.0), 1.0)
    return jnp.where(real, shift * jnp.sqrt(kept), 0.0)


def largest_shift(tables: Tables, trimmed: TrimmedSums, lift: Array | None, threshold: Array) -> Array:
    """(m,) half the sum of |p* - p|: times the outcome range, no outcomes can shift the estimate further."""
    c = jnp.minimum(threshold, tables.largest)
    a = jnp.zeros_like(c) if lift is None else lift
    before = tables.below[tables.base + tables.rows, WEIGHT]
    after = trimmed.weight
    # A record gains share while its factor exceeds after / before, that is below this size.
    gaining = jax.lax.stop_gradient((c + a) * before / after)
    at = tables.base + positions(tables, jax.lax.stop_gradient(c))
    end = tables.base + positions(tables, gaining)
    above_c, above_end = tables.above[at, WEIGHT], tables.above[end, WEIGHT]
    everyone = tables.above[tables.base, WEIGHT]
    mass = tables.below[at, WEIGHT] + c * (above_c - above_end) + a * (everyone - above_end)
    return jnp.maximum(mass / after - tables.below[end, WEIGHT] / before, 0.0)


def context_of(evaluation: Evaluation, problem: Problem, settings: Settings) -> Context:
    """The context at an evaluated point: there, the local formulas give exactly the evaluation's numbers."""
    psi, _ = safe_variance(evaluation.estimates.sampling_variance, problem)
    psi = problem.sampling_variance if settings.frozen else psi
    s = evaluation.model_variance
    V = psi + s
    Z = prediction_basis(problem.X, V)
    squared = jnp.sum(Z * Z, axis=1)
    B = psi / V
    u = divide(B, s + B * squared)
    M = (Z * u[:, None]).T @ Z
    own = s / V + B * squared / V
    bias = denoised(evaluation.estimates.shift, evaluation.estimates.shift_variance)
    C = Coefficients(sampling_variance=psi, model_variance=s, basis=Z)
    return Context(
        model_variance=s,
        leverage=squared,
        others=jnp.maximum(jnp.sum((Z @ M) * Z, axis=1) - u * squared**2, 0.0),
        g3_variance=2.0 / jnp.sum(1.0 / V**2),
        foreign_bias=C @ bias - own * bias,
    )


def local_terms(
    psi: Array, share: Array, bias: Array, context: Context, problem: Problem, settings: Settings
) -> tuple[Array, Array]:
    """Every area's term of rho and MSE, shape (..., m), with the others as in the context."""
    s = context.model_variance
    V = psi + s
    B = psi / V
    own = s / V + B * context.leverage / V
    delta = problem.outcome_range * share
    scale = own / psi
    if settings.joint == "independent":
        scale = scale + context.others / V**2
    terms = 0.5 * delta**2 * scale
    if settings.objective in ("direct", "weights"):
        return terms, psi + bias**2
    variance = psi * own
    mse = variance + 2.0 * B * B / V * context.g3_variance + (own * bias + context.foreign_bias) ** 2
    return terms, mse + variance if settings.objective == "draw" else mse


def local_estimates(log_threshold: Array, problem: Problem, settings: Settings) -> tuple[Array, Array, Array]:
    """(psi, share, bias) of every area at its own threshold; psi is infinite where it cannot be used."""
    trimmed, lift = sums_at(log_threshold, problem, settings)
    estimates = trimmed_estimates(problem.tables, trimmed, problem.rule)
    bias = bias_of(estimates, trimmed, lift, jnp.exp(log_threshold), problem, settings)
    if settings.frozen:
        return problem.sampling_variance, estimates.share, bias
    psi, usable = safe_variance(estimates.sampling_variance, problem)
    return psi, jnp.where(usable, estimates.share, jnp.inf), bias


def untrimmed(problem: Problem) -> TrimmedSums:
    return untrimmed_sums(problem.tables)


def log_bounds(problem: Problem) -> tuple[Array, Array]:
    """(m,) log thresholds at which all weights are equal, and at which none is trimmed."""
    smallest = jnp.where(problem.tables.smallest > 0.0, problem.tables.smallest, 1.0)
    largest = jnp.where(problem.tables.largest > 0.0, problem.tables.largest, 1.0)
    return jnp.log(smallest), jnp.log(largest)


Arguments = Any
