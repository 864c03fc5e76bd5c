"""How far one privacy unit can move an area's direct estimate: the largest |change of y_k|, in outcome units."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..entrance import is_concrete, namespace
from ..errors import InputError, complain
from ..records import Array, FloatArray, Labels


def hajek_sensitivity(
    max_unit_weight: Any, weight_sum: Any, outcome_range: Any = 1.0, *, labels: Labels | None = None
) -> Array:
    """Delta = R w_max / sum(w) of the Hájek mean (m,), outcome units.

    Args:
        max_unit_weight: (m,) the largest weight of one privacy unit: of one record, or the largest sum of the weights
            of one household.
        weight_sum: (m,) sum of the weights.
        outcome_range: R = hi - lo of the declared bounds, or (m,) ranges.
        labels: names of the areas, for messages.

    Raises:
        InputError: for an area without positive weights, a largest weight above the sum, or a range that is not a
            positive number. Inside ``jit``, ``vmap`` and ``grad`` such a sensitivity is infinite instead.

    Neighbours: bounded, the outcomes of one unit replaced; weights and universe are public and fixed.

    Source: Das and Drechsler (2026), section 3; docs/derivations.md, section 3 for units larger than a record.

    Examples:
        >>> hajek_sensitivity([10.0, 30.0], [100.0, 100.0]).tolist()
        [0.1, 0.3]
    """
    return _share(max_unit_weight, weight_sum, outcome_range, labels, "sum of weights")


def horvitz_thompson_sensitivity(
    max_unit_weight: Any, population: Any, outcome_range: Any = 1.0, *, labels: Labels | None = None
) -> Array:
    """Delta = R w_max / N of the Horvitz-Thompson mean with known population sizes N (m,), outcome units.

    Arguments, Raises and Neighbours as in :func:`hajek_sensitivity`, with ``population`` (m,) in place of the sum of
    weights; a weight may exceed N.

    Source: docs/derivations.md, section 3.

    Examples:
        >>> horvitz_thompson_sensitivity([10.0], [80.0], 4.0).tolist()
        [0.5]
    """
    return _share(max_unit_weight, population, outcome_range, labels, "population size", may_exceed=True)


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

    Examples:
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
    largest: Any, total: Any, outcome_range: Any, labels: Labels | None, name: str, may_exceed: bool = False
) -> Array:
    xp = namespace(largest, total, outcome_range)
    largest, total, R = (xp.asarray(value, dtype=float) for value in (largest, total, outcome_range))
    if largest.ndim != 1 or largest.shape != total.shape or R.shape not in ((), total.shape):
        raise InputError(
            f"The largest weights have shape {largest.shape}, the {name} {total.shape}, the range {R.shape}."
        )
    bad = ~(xp.isfinite(total) & (total > 0.0) & xp.isfinite(largest) & (largest > 0.0))
    over = xp.zeros_like(bad) if may_exceed else largest > total * (1.0 + 1e-9)
    wide = xp.isfinite(R) & (R > 0.0)
    if is_concrete(bad, over, wide):
        if not np.all(wide):
            raise InputError(
                "The outcome range must be finite and positive; for given sensitivities pass them directly."
            )
        names = labels if labels is not None else Labels(range(len(total)))
        if np.any(bad):
            raise complain(f"have no positive, finite largest weight or {name}", names.where(bad), "Exclude them.")
        if np.any(over):
            raise complain(
                f"have a largest unit weight above their {name}", names.where(over), "Check for negative weights."
            )
    wrong = bad | over | ~wide
    return xp.where(wrong, xp.inf, R * largest / xp.where(wrong, 1.0, total))
