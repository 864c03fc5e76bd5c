"""What a release of posterior draws costs: per area, jointly in two ways, and composed one after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.entrance import in_order, refuse_masked, require_float64
from fhjax.errors import InputError, complain
from fhjax.model.digest import refuse_foreign
from fhjax.privacy.coefficients import Coefficients, coefficients, divide
from fhjax.privacy.extremes import LargestEffects, largest_effects
from fhjax.privacy.rho import (
    area_terms,
    independent_terms,
    joint_rho_correlated,
    joint_rho_independent,
    own_area_terms,
    per_area_rho,
)
from fhjax.privacy.sharded import coefficients_of_shards
from fhjax.records import (
    AreaData,
    Array,
    FayHerriotFit,
    FloatArray,
    Guarantees,
    Labels,
    NumberedLabels,
    Posterior,
    ReleaseGuarantee,
)
from fhjax.sharding import is_sharded

__all__ = ["guarantees", "joint_rho_correlated", "joint_rho_independent", "neighbours_sentence", "per_area_rho"]

_UNIVERSE = (
    "The universe, the weights, the list of areas and the covariates are public and fixed: a neighbouring data set "
    "changes outcomes, not who is in the file, nor which outcomes are observed."
)
_ONE_AREA = "Sampling errors are independent between areas, and a privacy unit lies in one area."
_BOUNDS = "Every outcome lies within its declared bounds."
_SAMPLING_INVARIANT = (
    "The sampling variances were estimated from the same confidential data and are treated as invariants: they are "
    "held equal for neighbouring data sets, so what they reveal is not covered by this guarantee."
)
_MODEL_INVARIANT = (
    "The model variance was estimated from the same confidential data and is treated as an invariant: it is held equal "
    "for neighbouring data sets, so what it reveals is not covered by this guarantee."
)
_AT_ZERO = (
    "The model variance is exactly 0, so the joint draw lies on the regression surface, which shows it. For a "
    "neighbouring data set it may be estimated above 0, and a draw then lies elsewhere: without the invariant no "
    "finite rho holds."
)
GAUSSIAN_PRIOR = (
    "The area means have a Gaussian prior that, given its variances, does not depend on the confidential outcomes."
)


def neighbours_sentence(privacy_unit: str = "record") -> str:
    """Which two data sets every number compares."""
    if privacy_unit == "record":
        return "bounded neighbours: two data sets that differ in the outcome of one record, replaced by any other"
    return (
        f"bounded neighbours: two data sets that differ in the outcomes of one privacy unit ({privacy_unit}: all its "
        "records), replaced by any others"
    )


def guarantees(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    sensitivity: Any,
    *,
    privacy_unit: str = "record",
    outcome_bounds: tuple[float, float] | None = None,
    cautions: tuple[str, ...] = (),
    model_variance_source: str | None = None,
    beta_prior_precision: Any = None,
    search_work: float = 4e9,
) -> Guarantees:
    """All privacy guarantees of a Fay-Herriot release, in zCDP's rho.

    Args:
        data: the areas, with sampling variances (m,) and covariates (m, p). Padded rows (mask False) get rho 0.
        posterior: the posterior or the fit; only its model variance is used. Its shrinkage, covariances and covariates
            are held against ``data``, area by area to 1e-9: it must be of these very data.
        sensitivity: (m,) Delta, the largest |change of y| from one privacy unit, outcome units. A labelled Series is
            put in the order of the areas.
        privacy_unit: "record", or the name of the column that names the unit.
        outcome_bounds: (lo, hi) of one record's outcome that the sensitivities were made with, to be printed.
        cautions: sentences about the data that a reader must judge, printed among the assumptions.
        model_variance_source: "estimated" or "public". By default "public" for a fit whose model variance was given
            and "estimated" otherwise.
        beta_prior_precision: (p, p) precision of a proper Gaussian prior on the coefficients; None for the flat prior.
        search_work: see :func:`fhjax.privacy.extremes.largest_effects`.

    Returns:
        Guarantees. An area with sampling variance 0 has rho infinity, as has the joint; no number is NaN.

    Raises:
        InputError: for a sensitivity that is negative, missing or of the wrong length, collinear covariates, or a
            posterior that was not computed from ``data``.

    Guarantee: rho-zCDP for the stated release. Neighbours: bounded, one unit's outcomes replaced. Assumptions: the
    sentences in ``assumptions``, above all that the variances are invariants unless they are public.

    Source: Das and Drechsler (2026), equations (24) to (26); docs/derivations.md, sections 4 to 8.

    Example:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> result = guarantees(data, fit(data), [0.02, 0.03, 0.02, 0.05])
        >>> bool(result.per_area_rho.max() <= result.joint_correlated.rho <= result.joint_independent.rho)
        True
    """
    require_float64()
    C, delta, X = prepare(data, posterior, sensitivity, beta_prior_precision)
    assumptions = release_assumptions(data, posterior, model_variance_source, outcome_bounds, cautions)
    effects = largest_effects(C, delta, search_work=search_work)
    if data.mask is not None:
        # Padding is settled at once; it is not an area.
        count = effects.num_settled_by_certificate - (data.num_areas - int(jnp.sum(data.mask)))
        effects = dataclasses.replace(effects, num_settled_by_certificate=count)
    return assemble(C, delta, effects, neighbours_sentence(privacy_unit), assumptions, data.labels, X)


def prepare(
    data: AreaData, posterior: Posterior | FayHerriotFit, sensitivity: Any, beta_prior_precision: Any = None
) -> tuple[Coefficients, Array, FloatArray | Array]:
    """The operator, the sensitivities and the covariates, checked; padded rows are made harmless."""
    if is_sharded(data.sampling_variance):
        C, delta, X = coefficients_of_shards(data, posterior.model_variance, sensitivity, beta_prior_precision)
        _check_same_model(C, X, posterior)
        return C, delta, X
    refuse_foreign(posterior, data, "those of the guarantee")
    labels = data.labels if data.labels is not None else NumberedLabels(data.num_areas)
    if len(labels) < data.num_areas and data.mask is not None:
        labels = Labels([*labels, *("padding" for _ in range(data.num_areas - len(labels)))])
    psi, X = np.asarray(data.sampling_variance, dtype=float), np.asarray(data.X, dtype=float)
    if data.mask is not None and np.ndim(sensitivity) == 1 and np.shape(sensitivity) == np.shape(data.mask):
        sensitivity = np.where(np.asarray(data.mask), np.asarray(sensitivity), 0)  # whatever a padded row holds
    elif data.mask is not None and np.shape(sensitivity) == (int(np.sum(np.asarray(data.mask))),):
        given, sensitivity = np.asarray(sensitivity), np.zeros(data.num_areas)  # one number an area, none for padding
        sensitivity[np.asarray(data.mask)] = given
    delta = checked_sensitivity(in_order(sensitivity, data.labels, "sensitivity"), labels)
    if data.mask is not None:
        mask = np.asarray(data.mask)
        psi, X, delta = np.where(mask, psi, 1.0), np.where(mask[:, None], X, 0.0), np.where(mask, delta, 0.0)
    C = coefficients(psi, posterior.model_variance, X, beta_prior_precision=beta_prior_precision, labels=labels)
    _check_same_model(C, X, posterior, data.mask)
    return C, jnp.asarray(delta), X


def release_assumptions(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    model_variance_source: str | None = None,
    outcome_bounds: tuple[float, float] | None = None,
    cautions: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The sentences for these data; a model variance is public only where it was given or is said to be."""
    if model_variance_source is None:
        given = isinstance(posterior, FayHerriotFit) and posterior.method == "given"
        model_variance_source = "public" if given else "estimated"
    sentences = assumption_sentences(data.variance_source, model_variance_source, outcome_bounds)
    if float(posterior.model_variance) == 0.0:
        sentences = (*sentences, _AT_ZERO)
    return (*sentences, *cautions)


def assumption_sentences(
    variance_source: str, model_variance_source: str, outcome_bounds: tuple[float, float] | None = None
) -> tuple[str, ...]:
    """The sentences a reader must accept for the numbers to hold."""
    for name, source in (("variance_source", variance_source), ("model_variance_source", model_variance_source)):
        if source not in ("estimated", "public"):
            raise InputError(f"{name} is {source!r}; say 'estimated' (from the same confidential data) or 'public'.")
    bounds = _BOUNDS
    if outcome_bounds is not None:
        bounds = f"Every outcome lies within its declared bounds, {outcome_bounds[0]:g} to {outcome_bounds[1]:g}."
    sentences = [_UNIVERSE, bounds, _ONE_AREA]
    if variance_source == "estimated":
        sentences.append(_SAMPLING_INVARIANT)
    if model_variance_source == "estimated":
        sentences.append(_MODEL_INVARIANT)
    return tuple(sentences)


def assemble(
    C: Coefficients,
    delta: Array,
    effects: LargestEffects,
    neighbours: str,
    assumptions: tuple[str, ...],
    labels: Labels | None,
    X: Any,
) -> Guarantees:
    """The record, from the operator and the largest effects."""
    own, area, terms, share, ratio = _numbers(C, delta, effects.effect, effects.off_diagonal)
    conservative, kind, note = conservative_bound(C, delta, effects, area, X)

    def release(rho: Array, worst: Array | int, what: str, *more: str) -> ReleaseGuarantee:
        return ReleaseGuarantee(
            rho=rho,
            worst_area=jnp.asarray(worst),
            release=what,
            neighbours=neighbours,
            assumptions=(*assumptions, *more),
        )

    return Guarantees(
        per_area_rho=area,
        own_area_rho=own,
        conservative_rho=conservative,
        conservative_note=note,
        conservative_kind=kind,
        own_coefficient=C.own(),
        off_diagonal_ratio=ratio,
        off_diagonal_exact=effects.off_diagonal_exact,
        attained_by=effects.attained_by,
        joint_independent_terms=terms,
        other_areas_share=share,
        joint_independent=release(
            jnp.max(terms), jnp.argmax(terms), "one posterior draw for every area, the areas drawn independently"
        ),
        joint_correlated=release(
            jnp.max(own), jnp.argmax(own), "one draw of all areas from their correlated posterior", GAUSSIAN_PRIOR
        ),
        sequential=release(jnp.sum(area), -1, "one posterior draw for every area, counted one release after the other"),
        sensitivity=delta,
        num_settled_by_certificate=effects.num_settled_by_certificate,
        num_settled_by_search=effects.num_settled_by_search,
        neighbours=neighbours,
        assumptions=assumptions,
        labels=labels,
    )


@jax.jit
def _numbers(C: Coefficients, delta: Array, effect: Array, off_diagonal: Array):
    own = own_area_terms(C, delta)
    area = jnp.maximum(area_terms(C, effect), own)  # equal where k = i attains it, but for the last digit
    return own, area, *independent_terms(C, delta), divide(off_diagonal, C.own() * delta)


def conservative_bound(
    C: Coefficients, delta: Array, effects: LargestEffects, area: Array, X: Any
) -> tuple[Array | None, str, str]:
    """A simpler bound of (24), only where it is one: the numbers, the kind, and a sentence.

    "own_sensitivity": Delta_i^2 / (2 sigma_i^2), a bound exactly where no area moves area i by more than Delta_i.
    "largest_sensitivity": S_y^2 / (2 sigma_i^2) with S_y the largest Delta, a bound where no |c_ik| exceeds 1: the
    intercept-only model and constant sampling variances. Otherwise "none", and no number.
    """
    variance = C.posterior_variance()
    exceeding, same_covariate, same_variance = _coincidences(X, C.sampling_variance, effects.effect, delta)
    reached = int(exceeding)
    violated = (
        f"in {reached:,} {'area' if reached == 1 else 'areas'} a unit of another area moves the posterior mean by "
        "more than the area's own sensitivity"
    )
    if reached == 0:
        note = (
            "Δ_i² / (2 σ_i²), the bound that needs no coefficients; it holds here because no area's unit "
            "moves the posterior mean of area i by more than Δ_i."
        )
        return jnp.maximum(_squared_over(delta, variance), area), "own_sensitivity", note
    intercept_only = X.shape[1] == 1 and bool(same_covariate)
    if intercept_only or bool(same_variance):
        why = "the model has an intercept only" if intercept_only else "all sampling variances are equal"
        note = (
            f"S² / (2 σ_i²) with S the largest sensitivity of all areas, which is a bound because {why}. "
            f"Δ_i² / (2 σ_i²) is none here: {violated}."
        )
        return jnp.maximum(_squared_over(jnp.max(delta), variance), area), "largest_sensitivity", note
    note = (
        f"No bound without coefficients holds here: {violated}, and with covariates and unequal sampling variances a "
        "coefficient can exceed 1."
    )
    return None, "none", note


@jax.jit
def _coincidences(X: Array, psi: Array, effect: Array, delta: Array) -> tuple[Array, Array, Array]:
    """How many areas are moved by more than their own sensitivity; is the first covariate, is psi the same in all?"""
    used = jnp.any(X != 0.0, axis=1)

    def same(values: Array) -> Array:
        return ~(jnp.min(jnp.where(used, values, jnp.inf)) < jnp.max(jnp.where(used, values, -jnp.inf)))

    return jnp.sum(effect > delta * (1.0 + 1e-12)), same(X[:, 0]), same(psi)


def _squared_over(change: Array, variance: Array) -> Array:
    positive = variance > 0.0
    return jnp.where(
        change == 0.0, 0.0, jnp.where(positive, change**2 / (2.0 * jnp.where(positive, variance, 1.0)), jnp.inf)
    )


def checked_sensitivity(sensitivity: Any, labels: Labels | NumberedLabels) -> np.ndarray:
    """Delta (m,), checked; one number serves all areas."""
    if getattr(sensitivity, "dtype", None) == np.float32:
        raise InputError("Privacy numbers need float64: single precision understates rho. Convert with astype(float).")
    refuse_masked(sensitivity, "sensitivity")
    delta = np.asarray(sensitivity, dtype=float)
    if delta.ndim == 0:
        delta = np.full(len(labels), float(delta))
    if delta.shape != (len(labels),):
        raise InputError(f"sensitivity has shape {delta.shape}; expected one number for each of {len(labels):,} areas.")
    bad = ~(np.isfinite(delta) & (delta >= 0.0))
    if bad.any():
        raise complain("have a negative or non-finite sensitivity", labels.where(bad), "Correct or drop them.")
    return delta


#: How closely a posterior must agree with the data it is said to be of, relative, in every area.
SAME_MODEL = 1e-9


def _check_same_model(C: Coefficients, X: Any, posterior: Posterior | FayHerriotFit, mask: Any = None) -> None:
    """The posterior must be of these data: shrinkage and posterior variance of every area, from its own numbers."""
    covariance = posterior.beta_covariance
    if covariance.shape != (X.shape[1],) * 2:
        raise InputError(f"The posterior has {covariance.shape[0]} coefficients and the data {X.shape[1]} covariates.")
    if isinstance(posterior, Posterior):
        if mask is not None and posterior.shrinkage.shape == (int(np.sum(mask)),):
            spread = np.zeros((2, len(mask)))  # a posterior of the areas alone, for rows that are padded
            spread[:, np.asarray(mask)] = np.asarray(posterior.shrinkage), np.asarray(posterior.variance)
            posterior = dataclasses.replace(
                posterior, shrinkage=jnp.asarray(spread[0]), variance=jnp.asarray(spread[1])
            )
        if posterior.shrinkage.shape != C.sampling_variance.shape:
            raise InputError(
                f"The posterior has {posterior.shrinkage.shape[0]:,} areas and the data "
                f"{C.sampling_variance.shape[0]:,}."
            )
        shrinkage, variance = posterior.shrinkage, posterior.variance
    else:
        shrinkage = variance = None
    worst, where = _disagreement(
        C, jnp.asarray(X), covariance, posterior.beta_covariance_root, posterior.model_variance, shrinkage, variance
    )
    if not float(worst) <= SAME_MODEL:
        raise InputError(
            "The posterior was not computed from these sampling variances and covariates with this model variance: "
            f"its shrinkage or covariance differs by {float(worst):.2g}, relative, in row {int(where) + 1:,}, where "
            f"{SAME_MODEL:g} is allowed. Pass the posterior of these data, or its beta_prior_precision."
        )


@jax.jit
def _disagreement(
    C: Coefficients, X: Array, covariance: Array, root: Array | None, model_variance: Array, shrinkage: Array | None,
    variance: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Largest relative difference in any area, and where: of B, of sigma^2, and of B s + B^2 x' A x from their A."""
    psi = C.sampling_variance
    used = jnp.any(X != 0.0, axis=1)
    total = psi + model_variance
    B = psi / jnp.where(total > 0.0, total, 1.0)
    # From the root where there is one: x' A x from A itself cancels when the covariates are nearly collinear.
    leverage = jnp.sum((X @ covariance) * X, axis=1) if root is None else jnp.sum((X @ root) ** 2, axis=1)
    ours = C.posterior_variance()
    theirs = B * model_variance + B * B * leverage

    def relative(one: Array, other: Array, scale: Array) -> Array:
        difference = jnp.abs(one - other) / jnp.where(scale > 0.0, scale, 1.0)
        return jnp.where(used, jnp.where(jnp.isnan(difference), jnp.inf, difference), 0.0)

    worst = relative(theirs, ours, ours)
    if shrinkage is not None and variance is not None:
        worst = jnp.maximum(worst, relative(shrinkage, B, B))
        worst = jnp.maximum(worst, relative(variance, ours, ours))
    return jnp.max(worst), jnp.argmax(worst)
