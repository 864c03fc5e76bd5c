"""Trimming sums from plain arrays, for those who have no survey file: replicate weights or no design at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fhjax.caps.shares import checked
from fhjax.errors import InputError, complain
from fhjax.records import Labels, TrimmingSums


def sums_from_arrays(
    weights: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    area: npt.ArrayLike,
    *,
    replicates: npt.ArrayLike | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    labels: Sequence[str] | None = None,
) -> TrimmingSums:
    """Sums by area and distinct weight from one array element a record.

    Args:
        weights: (n,) weights, at least 0.
        outcomes: (n,) outcomes within ``bounds``.
        area: (n,) area index 0..m-1.
        replicates: (n, R) replicate weights; None when a variance rule without them is used.
        bounds: declared bounds of one record's outcome.
        labels: (m,) names of the areas.

    Raises:
        InputError: lengths that differ, bad weights, outcomes outside the bounds. For strata and PSUs open a survey.

    Example:
        >>> sums_from_arrays([1.0, 1.0, 3.0], [0.0, 1.0, 1.0], [0, 0, 0]).size.tolist()
        [1.0, 3.0]
    """
    w, index, m = checked(weights, area, None if labels is None else len(labels))
    y = np.asarray(outcomes, dtype=float)
    names = Labels(range(m) if labels is None else labels)
    if y.shape != w.shape:
        raise InputError(f"There are {len(w):,} weights and {y.size:,} outcomes.")
    outside = ~((y >= bounds[0]) & (y <= bounds[1]))
    if outside.any():
        raise complain(
            f"have an outcome outside the declared bounds [{bounds[0]:g}, {bounds[1]:g}]",
            names.where(np.bincount(index[outside], minlength=m) > 0),
            "Declare bounds that hold for every possible answer.",
        )
    total = np.bincount(index, w, m)
    centre = np.bincount(index, w * y, m) / np.where(total > 0.0, total, 1.0)
    order = np.lexsort((w, index))
    w, y, index = w[order], y[order], index[order]
    new = np.ones(len(w), dtype=bool)
    new[1:] = (w[1:] != w[:-1]) | (index[1:] != index[:-1])
    first = np.flatnonzero(new)

    def add(values):
        return np.add.reduceat(values, first, axis=0)

    deviation = y - centre[index]
    rep_weights = rep_outcomes = None
    if replicates is not None:
        rep = np.asarray(replicates, dtype=float)
        if rep.ndim != 2 or len(rep) != len(w):
            raise InputError(f"replicates must have one row for each of {len(w):,} records, not shape {rep.shape}.")
        rep = rep[order]
        rep_weights, rep_outcomes = add(rep), add(rep * deviation[:, None])
    count = add(np.ones(len(w), dtype=np.int64))
    return TrimmingSums(
        labels=names,
        centre=centre,
        area=index[first],
        size=w[first],
        units=count,
        records=count,
        weight=add(w),
        weight_square=add(w * w),
        outcome=add(w * deviation),
        replicate_weights=rep_weights,
        replicate_outcomes=rep_outcomes,
        outcome_lower=float(bounds[0]),
        outcome_upper=float(bounds[1]),
    )
