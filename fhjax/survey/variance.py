"""Design variance of direct estimates: one question, answered by replicate weights or by Taylor linearisation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..entrance import is_concrete, namespace
from ..errors import InputError, complain
from ..records import AreaSums, Array
from .replicates import Replicates, ReplicateWarning, replicate_variance, warn_if_spread_contradicts
from .taylor import Taylor, taylor_variance

__all__ = [
    "DesignVariance",
    "ReplicateWarning",
    "Replicates",
    "Taylor",
    "choose_method",
    "design_variance",
    "method_sentence",
    "replicate_variance",
    "taylor_variance",
]


@dataclasses.dataclass(frozen=True)
class DesignVariance:
    """Design variances of all areas, and which areas have none."""

    variance: Any  # (m,) outcome units squared
    degrees_of_freedom: Any  # (m,)
    undefined: Any  # (m,) some replicate leaves the area without weight
    doubts: tuple[str, ...] = ()  # sentences for the report


def choose_method(sums: AreaSums, method: Replicates | Taylor | None) -> Replicates | Taylor:
    """The method named, or Taylor linearisation where nothing else is possible."""
    if not (method is None or isinstance(method, Replicates | Taylor)):
        raise InputError(f"variance must be Replicates('sdr'), or another method, or Taylor(), not {method!r}.")
    if isinstance(method, Replicates):
        if not sums.num_replicates:
            raise InputError("The survey has no replicate weights. Name their columns, or use Taylor().")
        return method
    if method is None and sums.num_replicates:
        raise InputError(
            f"The survey has {sums.num_replicates} replicate weights: say how they were made, for example "
            "variance=Replicates('sdr') for the American Community Survey, or variance=Taylor() to leave them aside."
        )
    return Taylor() if method is None else method


def method_sentence(sums: AreaSums, method: Replicates | Taylor) -> str:
    """How the report names the method, as it was applied to these sums."""
    return method.sentence if isinstance(method, Replicates) else method.sentence(sums.strata)


def design_variance(sums: AreaSums, method: Replicates | Taylor, *, estimate: Any, population: Any) -> DesignVariance:
    """Design variance of the direct estimates of all areas.

    Args:
        sums: sums by area.
        method: replicate weights or Taylor linearisation.
        estimate: (m,) the direct estimates; ignored where an area has no universe.
        population: (m,) known population sizes for Horvitz-Thompson means; None for Hájek means.

    Returns:
        Variances, degrees of freedom and the areas without a variance. For replicates the degrees of freedom are
        min(R - 1, n - 1), an upper bound: the sums do not tell how many replicates are independent in an area.

    Raises:
        InputError: an area without weight in a replicate, a single PSU, a number of replicates that contradicts the
            method.
    """
    xp = namespace(sums, estimate, population)
    used = sums.num_records > 0
    doubts: tuple[str, ...] = ()
    if isinstance(method, Taylor):
        variance, degrees = taylor_variance(
            sums,
            method,
            estimate=estimate if population is None else None,
            denominator=sums.weight_sum if population is None else population,
        )
        undefined = xp.zeros(len(used), dtype=bool)
    else:
        doubt = None if not is_concrete(sums.replicate_deviations) else warn_if_spread_contradicts(sums, method)
        doubts = () if doubt is None else (doubt,)
        variance, undefined = _by_replicates(sums, method, estimate, population, used)
        degrees = xp.minimum(sums.num_replicates - 1.0, sums.num_records - 1.0)
    return DesignVariance(_without_rounding_noise(sums, variance, estimate, population), degrees, undefined, doubts)


def _by_replicates(
    sums: AreaSums,
    method: Replicates,
    estimate: Any,
    population: Any,
    used: Any,
) -> tuple[Array, Array]:
    assert sums.replicate_weight_sums is not None
    assert sums.replicate_outcome_sums is not None
    xp = namespace(sums, estimate, population)
    undefined = xp.zeros(len(used), dtype=bool)
    if population is None:
        empty = sums.replicate_weight_sums <= 0.0
        undefined = used & xp.any(empty, axis=1)
        if is_concrete(undefined) and np.any(undefined) and method.empty_area == "error":
            raise complain(
                "have a replicate whose weights sum to zero or less, so that its estimate does not exist",
                sums.labels.where(np.asarray(undefined)),
                "Pool small areas, choose Replicates(..., empty_area='exclude'), or use Taylor().",
            )
        denominator = xp.where(empty, 1.0, sums.replicate_weight_sums)
    else:
        denominator = xp.where(population > 0.0, population, 1.0)[:, None]
    variance = replicate_variance(estimate, sums.replicate_outcome_sums / denominator, method)
    return xp.where(used, variance, 0.0), undefined


def _without_rounding_noise(sums: AreaSums, variance: Any, estimate: Any, population: Any) -> Array:
    """Variances that are zero but for the rounding of the sums become exactly zero, so that the zero rule sees them."""
    xp = namespace(sums, variance, estimate, population)
    spread = xp.where(sums.num_records > 0, sums.outcome_max - sums.outcome_min, 0.0)
    scale = xp.maximum(xp.abs(xp.where(sums.num_records > 0, estimate, 0.0)), spread)
    zero = variance <= (1e-13 * scale) ** 2
    if population is None:
        zero = zero | (spread == 0.0)  # all outcomes equal: so are all replicates of a weighted mean
    return xp.where(zero, 0.0, variance)
