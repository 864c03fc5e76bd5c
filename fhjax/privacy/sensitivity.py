"""How far one privacy unit can move an area's direct estimate: the largest |change of y_k|, in outcome units."""

from __future__ import annotations

from typing import Any

import numpy as np

from fhjax.errors import InputError, complain
from fhjax.records import AreaSums, FloatArray, Labels


def outcome_range(lower: float, upper: float) -> float:
    """R = upper - lower, the largest change of one record's outcome.

    Raises:
        InputError: unless both bounds are finite and lower < upper.

    Example:
        >>> outcome_range(0.0, 1.0)
        1.0
    """
    if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise InputError(
            f"The outcome bounds are [{lower}, {upper}]. A guarantee needs finite bounds, lower below upper, declared "
            "before looking at the data."
        )
    return float(upper) - float(lower)


def check_outcomes(
    outcome_min: Any, outcome_max: Any, lower: float, upper: float, labels: Labels | None = None
) -> None:
    """Refuse outcomes outside the declared bounds: the sensitivity would be wrong. They are never clipped silently.

    Args:
        outcome_min, outcome_max: (m,) smallest and largest outcome seen in each area; an area without records has
            +infinity and -infinity.
        lower, upper: the declared bounds.
        labels: names of the areas, for the message.

    Raises:
        InputError: naming the areas with an outcome outside the bounds, or one that is missing.
    """
    low, high = np.asarray(outcome_min, dtype=float), np.asarray(outcome_max, dtype=float)
    outcome_range(lower, upper)
    outside = (low < lower) | (high > upper) | np.isnan(low) | np.isnan(high)
    if outside.any():
        raise complain(
            f"have outcomes outside the declared bounds [{lower:g}, {upper:g}]",
            (labels if labels is not None else Labels(range(len(low)))).where(outside),
            "Declare bounds that hold, or clip the outcome yourself before the survey is read.",
        )


def hajek_sensitivity(
    max_unit_weight: Any, weight_sum: Any, outcome_range: float = 1.0, *, labels: Labels | None = None
) -> FloatArray:
    """Delta = R w_max / sum(w) of the Hájek mean (m,), outcome units.

    Args:
        max_unit_weight: (m,) the largest weight of one privacy unit: of one record, or the largest sum of the weights
            of one household.
        weight_sum: (m,) sum of the weights.
        outcome_range: R, or (m,) ranges.
        labels: names of the areas, for messages.

    Raises:
        InputError: for an area without positive weights, or a largest weight above the sum.

    Neighbours: bounded, the outcomes of one unit replaced; weights and universe are public and fixed.

    Source: Das and Drechsler (2026), section 3; docs/derivations.md, section 3 for units larger than a record.

    Example:
        >>> hajek_sensitivity([10.0, 30.0], [100.0, 100.0]).tolist()
        [0.1, 0.3]
    """
    largest, total = np.asarray(max_unit_weight, dtype=float), np.asarray(weight_sum, dtype=float)
    return _share(largest, total, outcome_range, labels, "sum of weights")


def horvitz_thompson_sensitivity(
    max_unit_weight: Any, population: Any, outcome_range: float = 1.0, *, labels: Labels | None = None
) -> FloatArray:
    """Delta = R w_max / N of the Horvitz-Thompson mean with known population sizes N (m,), outcome units.

    Arguments, Raises and Neighbours as in :func:`hajek_sensitivity`, with ``population`` (m,) in place of the sum of
    weights; a weight may exceed N.

    Source: docs/derivations.md, section 3.

    Example:
        >>> horvitz_thompson_sensitivity([10.0], [80.0], 4.0).tolist()
        [0.5]
    """
    largest, size = np.asarray(max_unit_weight, dtype=float), np.asarray(population, dtype=float)
    return _share(largest, size, outcome_range, labels, "population size", may_exceed=True)


def sums_sensitivity(sums: AreaSums, *, estimator: str = "hajek", population: Any = None) -> FloatArray:
    """The sensitivity (m,) of the direct estimates made from sums by area, for the privacy unit recorded there.

    Raises:
        InputError: for outcomes outside the declared bounds, an unknown estimator, or "ht" without population sizes.

    Source: docs/derivations.md, section 3.
    """
    check_outcomes(sums.outcome_min, sums.outcome_max, sums.outcome_lower, sums.outcome_upper, sums.labels)
    width = outcome_range(sums.outcome_lower, sums.outcome_upper)
    if estimator == "hajek":
        return hajek_sensitivity(sums.max_unit_weight, sums.weight_sum, width, labels=sums.labels)
    if estimator == "ht":
        if population is None:
            raise InputError("The Horvitz-Thompson mean needs the areas' population sizes: pass population=.")
        return horvitz_thompson_sensitivity(sums.max_unit_weight, population, width, labels=sums.labels)
    raise InputError(f"Unknown estimator {estimator!r}; use 'hajek' or 'ht'.")


def record_loss_share(weight: Any, area: Any, max_unit_weight: Any) -> FloatArray:
    """Each privacy unit's own share (w / w_max)^2 of its area's loss, one number a unit, in 0..1.

    Multiply it by the area's own-area rho, or by its term of the correlated joint, to get what a release costs this
    respondent. It does not apply to the rho of paper (24) in an area whose maximum another area attains.

    Args:
        weight: (n,) weights of the units (records, or sums over households).
        area: (n,) index of each unit's area.
        max_unit_weight: (m,) the areas' largest unit weights.

    Raises:
        InputError: for a weight that is negative, not finite, or above its area's largest.

    Source: docs/derivations.md, section 3.

    Example:
        >>> record_loss_share([1.0, 2.0, 4.0], [0, 0, 1], [2.0, 4.0]).tolist()
        [0.25, 1.0, 1.0]
    """
    w, largest = np.asarray(weight, dtype=float), np.asarray(max_unit_weight, dtype=float)[np.asarray(area)]
    bad = ~(np.isfinite(w) & (w >= 0.0) & (w <= largest * (1.0 + 1e-12)))
    if bad.any():
        raise complain(
            "have a weight that is negative, not finite, or above the largest weight of its area",
            np.flatnonzero(bad).tolist(),
            "Pass the weights the sums were made from.",
            noun="record",
        )
    return np.where(largest > 0.0, np.minimum(w / np.where(largest > 0.0, largest, 1.0), 1.0), 0.0) ** 2


def _share(
    largest: FloatArray, total: FloatArray, R: Any, labels: Labels | None, name: str, may_exceed: bool = False
) -> FloatArray:
    largest, total = np.atleast_1d(largest), np.atleast_1d(total)
    R = np.asarray(R, dtype=float)
    if largest.shape != total.shape or R.shape not in ((), total.shape):
        raise InputError(
            f"The largest weights have shape {largest.shape}, the {name} {total.shape}, the range {R.shape}."
        )
    if not (np.isfinite(R).all() and (R > 0.0).all()):
        raise InputError("The outcome range must be finite and positive; for given sensitivities pass them directly.")
    labels = labels if labels is not None else Labels(range(len(total)))
    bad = ~(np.isfinite(total) & (total > 0.0) & np.isfinite(largest) & (largest > 0.0))
    if bad.any():
        raise complain(f"have no positive, finite largest weight or {name}", labels.where(bad), "Exclude them.")
    over = largest > total * (1.0 + 1e-9)
    if over.any() and not may_exceed:
        raise complain(
            f"have a largest unit weight above their {name}", labels.where(over), "Check for negative weights."
        )
    return R * largest / total
