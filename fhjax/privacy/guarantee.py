"""What a release of posterior draws costs: per area, jointly in two ways, and composed one after the other.

Three steps: :mod:`fhjax.privacy.problem` checks what is handed in, ``_numbers`` computes on arrays, and the sentences
of :mod:`fhjax.privacy.assumptions` are put beside the numbers.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from fhjax.entrance import require_float64
from fhjax.errors import Status
from fhjax.privacy.assumptions import GAUSSIAN_PRIOR, neighbours_sentence, release_assumptions
from fhjax.privacy.coefficients import divide
from fhjax.privacy.extremes import (
    FULL_SEARCH_WORK,
    LargestEffects,
    effects_kernel,
    largest_effects,
    place_of_largest,
    search_everything,
)
from fhjax.privacy.problem import Problem, check, given_to, prepare, state
from fhjax.privacy.rho import area_terms, independent_terms, own_area_terms
from fhjax.records import AreaData, Array, FayHerriotFit, Guarantees, Posterior, ReleaseGuarantee
from fhjax.sharding import is_sharded

__all__ = ["guarantees"]


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
    search_work: float = FULL_SEARCH_WORK,
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
        Guarantees. An area with sampling variance 0 has rho infinity, as has the joint; no number is NaN. Inside
        ``jit``, ``vmap`` and ``grad`` nothing is raised for what the numbers are: ``status`` says BAD_INPUT or
        SINGULAR, and every rho is infinite. Gradients hold the area that attains a maximum fixed.

    Raises:
        InputError: for a sensitivity that is negative, missing or of the wrong length, collinear covariates, or a
            posterior that was not computed from ``data``.

    Guarantee: rho-zCDP for the stated release. Neighbours: bounded, one unit's outcomes replaced. Assumptions: the
    sentences in ``assumptions``, above all that the variances are invariants unless they are public.

    Source: Das and Drechsler (2026), equations (24) to (26); docs/derivations.md, sections 4 to 8.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> result = guarantees(data, fit(data), [0.02, 0.03, 0.02, 0.05])
        >>> bool(result.per_area_rho.max() <= result.joint_correlated.rho <= result.joint_independent.rho)
        True
    """
    require_float64()
    exact = search_everything(data.num_areas, data.num_covariates, search_work)
    if is_sharded(data.sampling_variance):
        problem = prepare(data, posterior, sensitivity, beta_prior_precision)
        effects = largest_effects(problem.C, problem.delta, mask=problem.mask, search_work=search_work)
        numbers = _numbers(problem, effects)
    else:
        arguments = given_to(data, posterior, sensitivity, beta_prior_precision)
        problem, numbers = _kernel(*arguments, exact_off_diagonal=exact)
        check(problem, arguments, data)
    return _assemble(
        {**numbers, "off_diagonal_exact": exact},
        problem.C.status,
        neighbours_sentence(privacy_unit),
        release_assumptions(data, posterior, model_variance_source, outcome_bounds, cautions),
        data,
    )


@functools.partial(jax.jit, static_argnames="exact_off_diagonal")
def _kernel(*arguments: Any, exact_off_diagonal: bool) -> tuple[Problem, dict[str, Any]]:
    """All numbers in one compiled program, from what :func:`fhjax.privacy.problem.given_to` gathers."""
    problem = state(*arguments)
    effects = effects_kernel(problem.C, problem.delta, problem.mask, exact_off_diagonal=exact_off_diagonal)
    return problem, _numbers(problem, effects)


@jax.jit
def _numbers(problem: Problem, effects: LargestEffects) -> dict[str, Any]:
    """The numbers of :class:`Guarantees` by name; every rho is infinite where the problem could not be stated."""
    C, delta = problem.C, problem.delta
    own = own_area_terms(C, delta)
    area = jnp.maximum(area_terms(C, effects.effect), own)  # equal where k = i attains it, but for the last digit
    terms, share = independent_terms(C, delta)
    failed = problem.C.status >= Status.NOT_CONVERGED
    # A row of padding costs nothing even then.
    unknown = failed if problem.mask is None else failed & problem.mask
    own, area, terms = (jnp.where(unknown, jnp.inf, rho) for rho in (own, area, terms))
    bound, code, moved = conservative_bound(problem, effects.effect, area)
    return {
        "per_area_rho": area,
        "own_area_rho": own,
        "conservative_bound": jnp.where(unknown, jnp.inf, bound),
        "conservative_code": code,
        "num_moved_by_others": moved,
        "own_coefficient": C.own(),
        "off_diagonal_ratio": divide(effects.off_diagonal, C.own() * delta),
        "attained_by": effects.attained_by,
        "joint_independent_terms": terms,
        "other_areas_share": share,
        "num_settled_by_certificate": effects.num_settled_by_certificate,
        "num_settled_by_search": effects.num_settled_by_search,
        "sensitivity": delta,
        "joints": (jnp.max(terms), place_of_largest(terms), jnp.max(own), place_of_largest(own), jnp.sum(area)),
    }


def conservative_bound(problem: Problem, effect: Array, area_rho: Array) -> tuple[Array, Array, Array]:
    """A simpler bound (m,) of (24), only where it is one; its code; and the areas moved by more than their own Delta.

    Delta_i^2 / (2 sigma_i^2) is a bound exactly where no area moves area i by more than Delta_i. S^2 / (2 sigma_i^2)
    with S the largest Delta is one where no |c_ik| exceeds 1: the intercept-only model and constant sampling variances.
    """
    C, delta = problem.C, problem.delta
    used = jnp.any(problem.X != 0.0, axis=1)

    def same(values: Array) -> Array:
        return ~(jnp.min(jnp.where(used, values, jnp.inf)) < jnp.max(jnp.where(used, values, -jnp.inf)))

    exceeding = jnp.sum(effect > delta * (1.0 + 1e-12))
    intercept_only = same(problem.X[:, 0]) if problem.X.shape[1] == 1 else jnp.zeros((), bool)
    code = jnp.where(exceeding == 0, 1, jnp.where(intercept_only, 2, jnp.where(same(C.sampling_variance), 3, 0)))
    change = jnp.where(code == 1, delta, jnp.max(delta))
    variance = C.posterior_variance()
    positive = variance > 0.0
    bound = jnp.where(positive, change**2 / (2.0 * jnp.where(positive, variance, 1.0)), jnp.inf)
    bound = jnp.maximum(jnp.where(change == 0.0, 0.0, bound), area_rho)
    return jnp.where(code == 0, jnp.inf, bound), code, exceeding


def _assemble(
    numbers: dict[str, Any], status: Array | int, neighbours: str, assumptions: tuple[str, ...], data: AreaData
) -> Guarantees:
    """The record, with the sentences beside the numbers."""
    independent, worst_independent, correlated, worst_correlated, total = numbers.pop("joints")

    def release(rho: Array, worst: Array | int, what: str, *more: str) -> ReleaseGuarantee:
        return ReleaseGuarantee(
            rho=rho,
            worst_area=jnp.asarray(worst),
            release=what,
            neighbours=neighbours,
            assumptions=(*assumptions, *more),
        )

    return Guarantees(
        **numbers,
        joint_independent=release(
            independent, worst_independent, "one posterior draw for every area, the areas drawn independently"
        ),
        joint_correlated=release(
            correlated, worst_correlated, "one draw of all areas from their correlated posterior", GAUSSIAN_PRIOR
        ),
        sequential=release(total, -1, "one posterior draw for every area, counted one release after the other"),
        status=jnp.asarray(status),
        neighbours=neighbours,
        assumptions=assumptions,
        labels=data.labels,
    )
