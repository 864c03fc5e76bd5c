"""Sums by area of records held in arrays, such as a simulated sample: what the SQL engine makes of a file.

The kernels have static shapes, so that a study can jit, vmap and differentiate them over simulated samples.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from ..entrance import is_concrete, refuse_masked, require_float64
from ..errors import InputError, complain
from ..records import AreaSums, Array, Labels, StratumSums, TrimmingSums
from .stratum_sums import WHOLE_DESIGN


def sums_from_arrays(
    area: npt.ArrayLike,
    weight: npt.ArrayLike,
    outcome: npt.ArrayLike,
    *,
    num_areas: int | None = None,
    replicates: npt.ArrayLike | None = None,
    stratum: npt.ArrayLike | None = None,
    psu: npt.ArrayLike | None = None,
    unit: npt.ArrayLike | None = None,
    num_strata: int | None = None,
    labels: Iterable[object] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> AreaSums:
    """Sum records held in arrays by area: the same record as :func:`fhjax.area_sums` makes of a file.

    Args:
        area: (n,) integers in 0..m - 1.
        weight: (n,) weights.
        outcome: (n,) outcomes; NaN is missing.
        num_areas: number of areas m; areas without a record stay in the result. By default one more than the largest
            of ``area``; inside ``jit`` it must be said.
        replicates: (n, R) replicate weights.
        stratum: (n,) integers naming the strata; without it the design is one stratum.
        psu: (n,) integers naming the PSUs, nested in strata; without it each record is its own.
        unit: (n,) integers naming the privacy units; without it the unit is the record.
        num_strata: number of strata, which inside ``jit`` must be said where ``stratum`` is given.
        labels: (m,) names of the areas; their numbers, padded with zeros, by default.
        bounds: declared bounds of one record's outcome.

    Returns:
        The sums by area, with the sums by stratum that Taylor linearisation needs.

    Raises:
        InputError: lengths that differ, a negative weight, an area outside 0..m - 1, an outcome outside the bounds, a
            privacy unit with records in two areas. Inside ``jit``, ``vmap`` and ``grad`` only shapes are checked: an
            outcome outside the bounds, a bad weight or a divided unit then makes the area's largest unit weight
            infinite, and so its rho.

    Examples:
        >>> sums_from_arrays([0, 0, 1], [1.0, 3.0, 2.0], [1.0, 0.0, 1.0]).weighted_outcome_sum
        array([1., 2.])
    """
    require_float64()
    for name, values in (("weight", weight), ("outcome", outcome), ("replicates", replicates)):
        refuse_masked(values, name)
    concrete = is_concrete(area, weight, outcome, replicates, stratum, psu, unit)
    indices = {"stratum": stratum, "psu": psu, "unit": unit}
    for name, values in {"weight": weight, "outcome": outcome, **indices, "replicates": replicates}.items():
        if values is not None and np.shape(values)[0] != np.shape(area)[0]:
            raise InputError(f"{name} has {np.shape(values)[0]} records but area has {np.shape(area)[0]}.")
    names = None if labels is None else Labels(labels)
    if concrete:
        m = _checked(area, weight, outcome, num_areas if names is None or num_areas is not None else len(names))
        indices = {
            name: None if v is None else np.unique(np.asarray(v), return_inverse=True) for name, v in indices.items()
        }
        strata = [WHOLE_DESIGN] if indices["stratum"] is None else [str(name) for name in indices["stratum"][0]]
        stratum, psu, unit = (None if v is None else v[1] for v in indices.values())
    else:
        m = num_areas if names is None else len(names)
        if m is None or (stratum is not None and num_strata is None):
            raise InputError("Inside jit, vmap and grad say num_areas=, and num_strata= where there are strata.")
        strata = [WHOLE_DESIGN] if num_strata is None else [str(h) for h in range(num_strata)]
    names = names if names is not None else Labels(f"{i:0{len(str(max(m - 1, 0)))}d}" for i in range(m))
    if len(names) != m:
        raise InputError(f"There are {m} areas but {len(names)} labels.")
    sums, split = _everything(
        jnp.asarray(area), jnp.asarray(weight, dtype=float), jnp.asarray(outcome, dtype=float),
        None if replicates is None else jnp.asarray(replicates, dtype=float), stratum, psu, unit,
        tuple(map(float, bounds)), num_areas=m, strata=Labels(strata),
    )  # fmt: skip
    result = AreaSums(
        labels=names,
        **sums,
        privacy_unit="record" if unit is None else "unit",
        outcome_lower=float(bounds[0]),
        outcome_upper=float(bounds[1]),
    )
    return result if not concrete else _known(result, np.asarray(split), indices["unit"], bounds)


def _checked(area: Any, weight: Any, outcome: Any, num_areas: int | None) -> int:
    index, w, y = np.asarray(area), np.asarray(weight, dtype=float), np.asarray(outcome, dtype=float)
    m = num_areas if num_areas is not None else int(index.max()) + 1 if index.size else 0
    if index.size == 0 or index.min() < 0 or index.max() >= m:
        raise InputError(f"area must hold integers from 0 to {m - 1}, for at least one record.")
    if not np.all(np.isfinite(w) & (w >= 0.0)) or np.any(np.isinf(y)):
        raise InputError("Weights must be finite and not negative, and outcomes finite or NaN where missing.")
    return m


def _known(sums: AreaSums, split: np.ndarray, unit: Any, bounds: tuple[float, float]) -> AreaSums:
    """The sums as NumPy arrays, refused where the numbers cannot be meant, without rows that only filled a shape.

    Raises:
        InputError: an outcome outside the bounds, or a unit in two areas.
    """
    low, high = np.asarray(sums.outcome_min), np.asarray(sums.outcome_max)
    if np.any(outside := (low < bounds[0]) | (high > bounds[1])):
        raise complain(
            f"have an outcome outside the bounds {bounds}", sums.labels.where(outside), "Declare wider bounds."
        )
    if np.any(split):
        raise complain(
            "have records in two areas",
            unit[0][np.unique(unit[1][split])].tolist(),
            "A unit belongs to one area.",
            noun="privacy unit",
        )
    sums = jax.tree.map(np.asarray, sums)
    assert sums.strata is not None
    kept = sums.strata.psus > 0
    by_row = ("area", "stratum", "psus", "centre", "mean_a", "mean_b", "moment_aa", "moment_ab", "moment_bb")
    rows = {name: getattr(sums.strata, name)[kept] for name in by_row}
    return dataclasses.replace(sums, strata=dataclasses.replace(sums.strata, **rows))


@functools.partial(jax.jit, static_argnames=("num_areas", "strata"))
def _everything(
    area: Array,
    weight: Array,
    y: Array,
    replicates: Array | None,
    stratum: Array | None,
    psu: Array | None,
    unit: Array | None,
    bounds: tuple[Array, Array],
    *,
    num_areas: int,
    strata: Labels,
) -> tuple[dict[str, Any], Array]:
    """All fields of the sums that are numbers, and which records belong to a unit that lies in two areas."""
    sums: dict[str, Any] = record_sums(area, weight, y, replicates, num_areas=num_areas)
    observed = ~jnp.isnan(y)
    largest, most, split = sums["max_weight"], None, jnp.zeros(area.shape, bool)
    if unit is not None:
        largest, most, split = _units(area, unit, jnp.where(observed, weight, 0.0), observed, num_areas)
    wrong = split | ~(jnp.isfinite(weight) & (weight >= 0.0)) | (observed & ((y < bounds[0]) | (y > bounds[1])))
    hurt = jax.ops.segment_max(wrong.astype(jnp.int32), area, num_segments=num_areas) > 0
    deviations = None
    if replicates is not None:
        tiny = float(np.finfo(float).tiny)
        deviations = jnp.sum((replicates - weight[:, None]) ** 2, axis=0) / jnp.maximum(jnp.sum(weight**2), tiny)
    centre = sums["weighted_outcome_sum"] / jnp.where(sums["weight_sum"] == 0.0, 1.0, sums["weight_sum"])
    return {
        **sums,
        "max_unit_weight": jnp.where(hurt, jnp.inf, largest),
        "max_unit_records": most,
        "replicate_deviations": deviations,
        "strata": _stratum_sums(area, weight, y, centre, stratum, psu, strata),
    }, split


@functools.partial(jax.jit, static_argnames="num_areas")
def record_sums(
    area_index: Int[Array, " n"],
    weight: Float[Array, " n"],
    y: Float[Array, " n"],
    replicates: Float[Array, "n R"] | None = None,
    *,
    num_areas: int,
) -> dict[str, Array | None]:
    """Sums by area of n records, by the names of :class:`fhjax.records.AreaSums`; NaN in y is a missing outcome."""
    by_area = functools.partial(jax.ops.segment_sum, segment_ids=area_index, num_segments=num_areas)
    observed = ~jnp.isnan(y)
    w, value = jnp.where(observed, weight, 0.0), jnp.where(observed, y, 0.0)
    weight_sum, outcome_sum = by_area(w), by_area(w * value)
    mean = outcome_sum / jnp.where(weight_sum == 0.0, 1.0, weight_sum)
    largest = jax.ops.segment_max(w, area_index, num_segments=num_areas)
    replicate_sums = None if replicates is None else by_area(jnp.where(observed[:, None], replicates, 0.0))
    replicate_outcomes = None if replicates is None else by_area(replicates * value[:, None])
    return dict(
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


def _ranks(*keys: Array) -> Array:
    """(n,) the rank of each record's combination of keys among those that occur, from 0: at most n of them."""
    order = jnp.lexsort(keys[::-1])
    changed = jnp.zeros(order.shape, bool)
    for key in keys:
        values = key[order]
        changed = changed | jnp.concatenate([jnp.zeros(1, bool), values[1:] != values[:-1]])
    return jnp.zeros_like(order).at[order].set(jnp.cumsum(changed))


def _units(area: Array, unit: Array, weight: Array, observed: Array, num_areas: int) -> tuple[Array, Array, Array]:
    """Largest weight sum and most records of one privacy unit by area; and the records of units in two areas."""
    n = area.shape[0]
    rank = _ranks(unit)
    by_unit = functools.partial(jax.ops.segment_sum, segment_ids=rank, num_segments=n)
    total, count = by_unit(weight), by_unit(observed.astype(jnp.int64))
    first = jax.ops.segment_min(area, rank, num_segments=n)
    last = jax.ops.segment_max(area, rank, num_segments=n)
    split = (first != last)[rank]
    largest = jax.ops.segment_max(total[rank], area, num_segments=num_areas)
    most = jax.ops.segment_max(count[rank], area, num_segments=num_areas)
    return jnp.maximum(largest, 0.0), jnp.maximum(most, 0), split


def _stratum_sums(
    area: Array, weight: Array, y: Array, centre: Array, stratum: Array | None, psu: Array | None, strata: Labels
) -> StratumSums:
    """PSU totals in cells (area, stratum, PSU), then their means and centred moments in rows (area, stratum).

    Cells and rows are numbered by rank, so that their shapes do not depend on the values; the last of them are empty.
    """
    n, m = area.shape[0], centre.shape[0]
    one = stratum is None
    h = jnp.zeros(n, jnp.int64) if stratum is None else jnp.asarray(stratum, dtype=jnp.int64)
    row, num_rows = (area, m) if one else (_ranks(area, h), n)
    cell = jnp.arange(n) if psu is None else _ranks(area, h, jnp.asarray(psu))
    by_cell = functools.partial(jax.ops.segment_sum, segment_ids=cell, num_segments=n)
    row_of_cell = jax.ops.segment_max(row, cell, num_segments=n) if psu is not None else row
    row_of_cell = jnp.clip(row_of_cell, 0, num_rows - 1)
    by_row = functools.partial(jax.ops.segment_sum, segment_ids=row_of_cell, num_segments=num_rows)
    observed = ~jnp.isnan(y)
    deviation = jnp.where(observed, jnp.where(observed, y, 0.0) - centre[area], 0.0)
    w = jnp.where(observed, weight, 0.0)
    a, b = by_cell(w * deviation), by_cell(w)
    seen = by_cell(observed.astype(jnp.int64)) > 0
    psus = by_row(seen.astype(jnp.int64))
    count = jnp.maximum(psus, 1)
    mean_a, mean_b = by_row(a) / count, by_row(b) / count
    da, db = jnp.where(seen, a - mean_a[row_of_cell], 0.0), jnp.where(seen, b - mean_b[row_of_cell], 0.0)
    if psu is None:
        design = jax.ops.segment_sum(jnp.ones(n, jnp.int64), h, num_segments=len(strata))
    else:
        rank = _ranks(h, jnp.asarray(psu))
        of_psu = jax.ops.segment_min(h, rank, num_segments=n)
        exists = jax.ops.segment_sum(jnp.ones(n, jnp.int64), rank, num_segments=n) > 0
        place = jnp.where(exists, of_psu, len(strata))
        design = jax.ops.segment_sum(jnp.ones(n, jnp.int64), place, num_segments=len(strata) + 1)[:-1]
    area_of_row = jnp.arange(m) if one else jax.ops.segment_max(area, row, num_segments=num_rows)
    stratum_of_row = jnp.zeros(m, jnp.int64) if one else jax.ops.segment_max(h, row, num_segments=num_rows)
    area_of_row = jnp.clip(area_of_row, 0, m - 1)
    rows: dict[str, Any] = {
        "stratum_psus": design,
        "area": area_of_row,
        "stratum": jnp.clip(stratum_of_row, 0, len(strata) - 1),
        "psus": psus,
        "centre": centre[area_of_row],
        "mean_a": mean_a,
        "mean_b": mean_b,
        "moment_aa": by_row(da * da),
        "moment_ab": by_row(da * db),
        "moment_bb": by_row(db * db),
    }
    return StratumSums(strata=strata, **rows, psus_are_records=psu is None)


def trimming_sums_from_arrays(
    area: npt.ArrayLike,
    weight: npt.ArrayLike,
    outcome: npt.ArrayLike,
    *,
    num_areas: int | None = None,
    replicates: npt.ArrayLike | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    labels: Iterable[object] | None = None,
) -> TrimmingSums:
    """Sums by area and distinct weight from one array element a record: what weight trimming needs.

    Args:
        area: (n,) integers in 0..m - 1.
        weight: (n,) weights, at least 0.
        outcome: (n,) outcomes within ``bounds``.
        num_areas: number of areas m; by default one more than the largest of ``area``.
        replicates: (n, R) replicate weights; None when a variance rule without them is used.
        bounds: declared bounds of one record's outcome.
        labels: (m,) names of the areas.

    Raises:
        InputError: lengths that differ, bad weights, outcomes outside the bounds. For strata and PSUs open a survey.

    Examples:
        >>> trimming_sums_from_arrays([0, 0, 0], [1.0, 1.0, 3.0], [0.0, 1.0, 1.0]).size.tolist()
        [1.0, 3.0]
    """
    names = None if labels is None else Labels(labels)
    m = _checked(area, weight, outcome, num_areas if names is None or num_areas is not None else len(names))
    names = Labels(range(m)) if names is None else names
    index, w, y = np.asarray(area), np.asarray(weight, dtype=float), np.asarray(outcome, dtype=float)
    if not index.shape == w.shape == y.shape or len(names) != m:
        raise InputError(f"There are {w.size:,} weights, {y.size:,} outcomes, {index.size:,} area indices.")
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
