"""Sums by area of records held in arrays, such as a simulated sample: what the SQL engine gives, by segment sums.

The kernels are pure JAX with static shapes, so that a study can jit and vmap them over simulated samples.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ..entrance import refuse_masked, require_float64
from ..errors import InputError, complain
from ..records import AreaSums, Array, Labels, StratumSums
from .stratum_sums import WHOLE_DESIGN


class SegmentSums(NamedTuple):
    """Sums by area as the kernel returns them; the fields are those of :class:`fhjax.records.AreaSums`."""

    num_records: Array  # (m,)
    num_missing: Array  # (m,)
    weight_sum: Array  # (m,)
    weight_square_sum: Array  # (m,)
    max_weight: Array  # (m,)
    weighted_outcome_sum: Array  # (m,)
    weighted_square_sum: Array  # (m,)
    outcome_min: Array  # (m,)
    outcome_max: Array  # (m,)
    replicate_weight_sums: Array | None  # (m, R)
    replicate_outcome_sums: Array | None  # (m, R)


@functools.partial(jax.jit, static_argnames="num_areas")
def segment_sums(
    area_index: Array, weight: Array, y: Array, replicates: Array | None = None, *, num_areas: int
) -> SegmentSums:
    """Sums by area of n records; a NaN in y is a missing outcome.

    Args:
        area_index: (n,) integers in 0..num_areas - 1.
        weight: (n,) weights.
        y: (n,) outcomes.
        replicates: (n, R) replicate weights.
        num_areas: number of areas, m.
    """
    by_area = functools.partial(jax.ops.segment_sum, segment_ids=area_index, num_segments=num_areas)
    observed = ~jnp.isnan(y)
    w, value = jnp.where(observed, weight, 0.0), jnp.where(observed, y, 0.0)
    weight_sum, outcome_sum = by_area(w), by_area(w * value)
    mean = outcome_sum / jnp.where(weight_sum == 0.0, 1.0, weight_sum)
    largest = jax.ops.segment_max(w, area_index, num_segments=num_areas)
    replicate_sums = None if replicates is None else by_area(jnp.where(observed[:, None], replicates, 0.0))
    replicate_outcomes = None if replicates is None else by_area(replicates * value[:, None])
    return SegmentSums(
        num_records=by_area(observed.astype(jnp.int64)),
        num_missing=by_area((~observed).astype(jnp.int64)),
        weight_sum=weight_sum,
        weight_square_sum=by_area(w * w),
        max_weight=jnp.maximum(largest, 0.0),
        weighted_outcome_sum=outcome_sum,
        weighted_square_sum=by_area(w * (value - mean[area_index]) ** 2),
        outcome_min=jax.ops.segment_min(jnp.where(observed, y, jnp.inf), area_index, num_segments=num_areas),
        outcome_max=jax.ops.segment_max(jnp.where(observed, y, -jnp.inf), area_index, num_segments=num_areas),
        replicate_weight_sums=replicate_sums,
        replicate_outcome_sums=replicate_outcomes,
    )


@functools.partial(jax.jit, static_argnames=("num_cells", "num_rows"))
def segment_moments(
    cell_of_record: Array, row_of_cell: Array, weight: Array, deviation: Array, *, num_cells: int, num_rows: int
) -> tuple[Array, ...]:
    """PSU totals in cells (area, stratum, PSU), then their counts, means and centred moments in rows (area, stratum).

    ``deviation`` (n,) is Y minus its area's centre, NaN where the outcome is missing. Returns the fields psus, mean_a,
    mean_b, moment_aa, moment_ab, moment_bb of :class:`fhjax.records.StratumSums`, one entry a row; psus may be 0.
    """
    observed = ~jnp.isnan(deviation)
    w = jnp.where(observed, weight, 0.0)
    by_cell = functools.partial(jax.ops.segment_sum, segment_ids=cell_of_record, num_segments=num_cells)
    by_row = functools.partial(jax.ops.segment_sum, segment_ids=row_of_cell, num_segments=num_rows)
    a, b = by_cell(w * jnp.where(observed, deviation, 0.0)), by_cell(w)
    seen = by_cell(observed.astype(jnp.int64)) > 0
    psus = by_row(seen.astype(jnp.int64))
    count = jnp.maximum(psus, 1)
    mean_a, mean_b = by_row(a) / count, by_row(b) / count
    da, db = jnp.where(seen, a - mean_a[row_of_cell], 0.0), jnp.where(seen, b - mean_b[row_of_cell], 0.0)
    return psus, mean_a, mean_b, by_row(da * da), by_row(da * db), by_row(db * db)


def area_sums_from_arrays(
    area_index: npt.ArrayLike,
    weight: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    num_areas: int,
    replicates: npt.ArrayLike | None = None,
    stratum_index: npt.ArrayLike | None = None,
    psu_index: npt.ArrayLike | None = None,
    unit_index: npt.ArrayLike | None = None,
    labels: Iterable[object] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> AreaSums:
    """Sum records held in arrays by area: the same record as :func:`fhjax.area_sums` makes of a file.

    Args:
        area_index: (n,) integers in 0..num_areas - 1.
        weight: (n,) weights.
        y: (n,) outcomes; NaN is missing.
        num_areas: number of areas, m; areas without a record stay in the result.
        replicates: (n, R) replicate weights.
        stratum_index: (n,) integers naming the strata; without it the design is one stratum.
        psu_index: (n,) integers naming the PSUs, nested in strata; without it each record is its own.
        unit_index: (n,) integers naming the privacy units; without it the unit is the record.
        labels: (m,) names of the areas; their numbers, padded with zeros, by default.
        bounds: declared bounds of one record's outcome.

    Returns:
        The sums by area, with the sums by stratum that Taylor linearisation needs.

    Raises:
        InputError: lengths that differ, a negative weight, an area index outside 0..m - 1, an outcome outside the
            bounds, a privacy unit with records in two areas.

    Example:
        >>> area_sums_from_arrays([0, 0, 1], [1.0, 3.0, 2.0], [1.0, 0.0, 1.0], num_areas=2).weighted_outcome_sum
        array([1., 2.])
    """
    require_float64()
    for name, values in (("weight", weight), ("y", y), ("replicates", replicates)):
        refuse_masked(values, name)
    area = np.asarray(area_index, dtype=np.int64)
    w, outcome = np.asarray(weight, dtype=np.float64), np.asarray(y, dtype=np.float64)
    width = len(str(max(num_areas - 1, 0)))
    names = Labels(labels if labels is not None else (f"{i:0{width}d}" for i in range(num_areas)))
    if len(names) != num_areas:
        raise InputError(f"There are {num_areas} areas but {len(names)} labels.")
    indices = {"stratum_index": stratum_index, "psu_index": psu_index, "unit_index": unit_index}
    for name, values in {"weight": w, "y": outcome, **indices, "replicates": replicates}.items():
        if values is not None and np.shape(values)[0] != area.size:
            raise InputError(f"{name} has {np.shape(values)[0]} records but area_index has {area.size}.")
    if area.size == 0 or area.min() < 0 or area.max() >= num_areas:
        raise InputError(f"area_index must hold integers from 0 to {num_areas - 1}, for at least one record.")
    if not np.all(np.isfinite(w) & (w >= 0.0)) or np.any(np.isinf(outcome)):
        raise InputError("Weights must be finite and not negative, and outcomes finite or NaN where missing.")
    weights = None if replicates is None else np.asarray(replicates, dtype=np.float64)
    sums = {
        name: None if value is None else np.asarray(value)
        for name, value in segment_sums(area, w, outcome, weights, num_areas=num_areas)._asdict().items()  # pyright: ignore[reportArgumentType]
    }
    low, high = sums["outcome_min"], sums["outcome_max"]
    assert low is not None
    assert high is not None
    if np.any(outside := (low < bounds[0]) | (high > bounds[1])):
        raise complain(f"have an outcome outside the bounds {bounds}", names.where(outside), "Declare wider bounds.")
    centre = sums["weighted_outcome_sum"] / np.where(sums["weight_sum"] == 0.0, 1.0, sums["weight_sum"])  # pyright: ignore
    largest, most = sums["max_weight"], None
    if unit_index is not None:
        observed = ~np.isnan(outcome)
        largest, most = _largest_units(area, np.asarray(unit_index), np.where(observed, w, 0.0), observed, num_areas)
    deviations = None
    if weights is not None:
        deviations = np.sum((weights - w[:, None]) ** 2, axis=0) / max(float(np.sum(w**2)), np.finfo(float).tiny)
    return AreaSums(
        labels=names,
        **sums,  # pyright: ignore[reportArgumentType]
        max_unit_weight=largest,  # pyright: ignore[reportArgumentType]
        max_unit_records=most,
        replicate_deviations=deviations,
        strata=_stratum_sums(area, w, outcome, centre, stratum_index, psu_index),
        privacy_unit="record" if unit_index is None else "unit",
        outcome_lower=float(bounds[0]),
        outcome_upper=float(bounds[1]),
    )


def _largest_units(
    area: np.ndarray, unit: np.ndarray, weight: np.ndarray, observed: np.ndarray, num_areas: int
) -> tuple[np.ndarray, np.ndarray]:
    """Largest weight sum and most records of one privacy unit, by area."""
    names, index = np.unique(unit, return_inverse=True)
    first = np.full(len(names), -1, dtype=np.int64)
    first[index] = area
    if np.any(split := first[index] != area):
        raise complain("have records in two areas", np.unique(unit[split]).tolist(), "A unit belongs to one area.",
                       noun="privacy unit")  # fmt: skip
    largest, most = np.zeros(num_areas), np.zeros(num_areas, dtype=np.int64)
    np.maximum.at(largest, first, np.bincount(index, weights=weight))
    np.maximum.at(most, first, np.bincount(index[observed], minlength=len(names)))
    return largest, most


def _stratum_sums(
    area: np.ndarray, weight: np.ndarray, y: np.ndarray, centre: np.ndarray, stratum_index: Any, psu_index: Any
) -> StratumSums:
    n = area.size
    if stratum_index is None:
        names, stratum = np.array([WHOLE_DESIGN]), np.zeros(n, dtype=np.int64)
    else:
        names, stratum = np.unique(np.asarray(stratum_index), return_inverse=True)
    psu = np.arange(n) if psu_index is None else np.unique(np.asarray(psu_index), return_inverse=True)[1]
    nested = np.unique(stratum * (psu.max() + 1) + psu)
    rows, row_of_record = np.unique(area * len(names) + stratum, return_inverse=True)
    cells, cell_of_record = np.unique(row_of_record * (psu.max() + 1) + psu, return_inverse=True)
    moments = segment_moments(
        cell_of_record,
        cells // (psu.max() + 1),
        weight,  # pyright: ignore[reportArgumentType]
        y - centre[area],
        num_cells=len(cells),
        num_rows=len(rows),
    )
    psus, mean_a, mean_b, aa, ab, bb = (np.asarray(column) for column in moments)
    kept = psus > 0
    rows = rows[kept]
    order = np.argsort(names.astype(str))
    place = np.argsort(order)
    return StratumSums(
        strata=Labels(names[order].tolist()),
        stratum_psus=np.bincount(nested // (psu.max() + 1), minlength=len(names))[order],
        area=rows // len(names),
        stratum=place[rows % len(names)],
        psus=psus[kept],
        centre=centre[rows // len(names)],
        mean_a=mean_a[kept],
        mean_b=mean_b[kept],
        moment_aa=aa[kept],
        moment_ab=ab[kept],
        moment_bb=bb[kept],
        psus_are_records=psu_index is None,
    )
