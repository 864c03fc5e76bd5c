"""How much one unit weighs in its area, and the least trimming that brings that share down to a given value.

A Hájek mean moves by at most R t when one unit's outcome changes, t being the unit's share of the area's weights. t is
always the realised one, largest weight over sum, never a nominal cap over a nominal total.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from fhjax.errors import InputError, complain
from fhjax.records import FloatArray, IntArray


@dataclasses.dataclass(frozen=True)
class SortedSizes:
    """The distinct sizes (weights, or weight sums of units) of m areas, ascending within each area.

    Sizes of 0 are left out: they can neither be trimmed nor carry any part of the estimate.
    """

    start: IntArray  # (m + 1,) rows of area k are start[k]:start[k + 1]
    size: FloatArray  # (q,)
    count: FloatArray  # (q,) units that have the size

    @property
    def num_areas(self) -> int:
        return len(self.start) - 1

    @property
    def area(self) -> IntArray:
        """(q,) the area of each row."""
        return np.repeat(np.arange(self.num_areas), np.diff(self.start))

    def per_area(self, values: FloatArray) -> FloatArray:
        return np.bincount(self.area, weights=values, minlength=self.num_areas).astype(np.float64)

    @property
    def num_units(self) -> FloatArray:
        return self.per_area(self.count)

    @property
    def total(self) -> FloatArray:
        return self.per_area(self.count * self.size)

    def _at_end(self, offset: int) -> FloatArray:
        filled = np.diff(self.start) > 0
        rows = np.where(filled, self.start[:-1] if offset == 0 else self.start[1:] - 1, 0)
        return np.where(filled, self.size[rows] if len(self.size) else 0.0, 0.0)

    @property
    def largest(self) -> FloatArray:
        return self._at_end(-1)

    @property
    def smallest(self) -> FloatArray:
        return self._at_end(0)

    def prefix(self, values: FloatArray) -> FloatArray:
        """(q,) running sums within each area, the row itself included."""
        running = np.cumsum(values)
        before = np.concatenate([[0.0], running])[self.start[:-1]]
        return running - np.repeat(before, np.diff(self.start))

    def quantile(self, probability: float) -> FloatArray:
        """(m,) quantile of an area's unit sizes: linear between order statistics (R's type 7, NumPy's default)."""
        upto = self.prefix(self.count)
        position = probability * np.maximum(self.num_units - 1.0, 0.0)
        low = np.floor(position)

        def order_statistic(rank: FloatArray) -> FloatArray:
            before = upto <= np.repeat(rank, np.diff(self.start))
            row = self.start[:-1] + self.per_area(before.astype(float)).astype(np.int64)
            row = np.minimum(row, np.maximum(self.start[1:] - 1, 0))
            return self.size[np.minimum(row, max(len(self.size) - 1, 0))] if len(self.size) else np.zeros(len(rank))

        first = order_statistic(low)
        second = order_statistic(np.minimum(low + 1.0, np.maximum(self.num_units - 1.0, 0.0)))
        return np.where(self.num_units > 0, first + (position - low) * (second - first), 0.0)


def sorted_sizes(
    weights: npt.ArrayLike, area: npt.ArrayLike | None = None, num_areas: int | None = None
) -> SortedSizes:
    """Distinct positive weights by area.

    Args:
        weights: (n,) weights, one a unit, at least 0 and finite.
        area: (n,) area index 0..m-1 of each weight; None puts all in one area.
        num_areas: m, when the last areas may be empty.

    Raises:
        InputError: a negative or non-finite weight, or lengths that differ.
    """
    weights, area, m = checked(weights, area, num_areas)
    positive = weights > 0.0
    weights, area = weights[positive], area[positive]
    order = np.lexsort((weights, area))
    weights, area = weights[order], area[order]
    new = np.ones(len(weights), dtype=bool)
    new[1:] = (weights[1:] != weights[:-1]) | (area[1:] != area[:-1])
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(weights))).astype(float)
    start = np.concatenate([[0], np.cumsum(np.bincount(area[first], minlength=m))]).astype(np.int64)
    return SortedSizes(start=start, size=weights[first], count=count)


def checked(
    weights: npt.ArrayLike, area: npt.ArrayLike | None, num_areas: int | None = None
) -> tuple[FloatArray, IntArray, int]:
    """Weights and area indices as arrays, refused where they cannot be meant."""
    values = np.asarray(weights, dtype=float)
    if values.ndim != 1:
        raise InputError(f"weights must be one-dimensional, one a unit, not of shape {values.shape}.")
    bad = ~(np.isfinite(values) & (values >= 0.0))
    if bad.any():
        raise complain(
            "are negative, missing or infinite",
            [f"row {i}" for i in np.flatnonzero(bad)],
            "Correct them.",
            noun="weight",
        )
    index = np.zeros(len(values), dtype=np.int64) if area is None else np.asarray(area, dtype=np.int64)
    if index.shape != values.shape:
        raise InputError(f"There are {len(values):,} weights and {index.size:,} area indices.")
    least = 1 if area is None else (int(index.max()) + 1 if len(index) else 0)
    if len(index) and index.min() < 0:
        raise InputError("Area indices must be 0, 1, ..., m - 1.")
    m = least if num_areas is None else num_areas
    if m < least:
        raise InputError(f"There are {m} areas but an area index of {least - 1}.")
    return values, index, m


def realised_shares(weights: npt.ArrayLike, area: npt.ArrayLike | None = None) -> FloatArray:
    """The largest weight of each area over the area's sum of weights (m,): t, and R t is the sensitivity.

    Args:
        weights: (n,) weights of the privacy units.
        area: (n,) area index of each; None for one area.

    Returns:
        (m,) shares between 1/n and 1; 0 in an area without weight.

    Source: docs/derivations.md, section 3.

    Examples:
        >>> realised_shares([1.0, 2.0, 3.0, 4.0, 20.0]).round(6).tolist()
        [0.666667]
    """
    values, index, m = checked(weights, area)
    largest = np.zeros(m)
    np.maximum.at(largest, index, values)
    total = np.bincount(index, weights=values, minlength=m)
    return np.where(total > 0.0, largest / np.where(total > 0.0, total, 1.0), 0.0)
