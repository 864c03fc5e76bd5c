"""Sums by area, computed where the records are: an SQL engine reached through Ibis (DuckDB unless told otherwise).

Written for one scan of a wide table: replicate sums are plain SUMs grouped by the outcome (or by whether it is
observed), because filters inside or before the aggregation cost up to fifteen times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
from pandas.util import hash_array

from ..errors import InputError, complain
from ..records import AreaSums, FloatArray, Labels
from .read import Survey
from .stratum_sums import stratum_sums

#: The mean of all replicate weights lies this close to the mean weight under every method.
FACTOR_RATIO = (0.5, 2.0)
#: Replicate weights with so few values, beside a weight with many, are factors.
FEW_VALUES = 12
#: Records looked at to tell replicate methods apart; the identity that is checked holds record by record.
SPREAD_SAMPLE = 5_000

Progress = Callable[[str], Any]


def area_sums(
    survey: Survey, *, taylor: bool | None = None, mergeable: bool = False, progress: Progress | None = None
) -> AreaSums:
    """Sum a survey by area; only these sums leave the engine.

    Args:
        survey: table of records with named roles.
        taylor: also form the sums by area and stratum that Taylor linearisation needs. By default they are formed when
            the survey names strata or PSUs, or has no replicate weights.
        mergeable: keep 64-bit digests of the ids of privacy units and PSUs, so that ``+`` can see whether two files
            share any. They are derived from confidential ids: keep them inside.
        progress: called with a sentence before each pass over the records.

    Returns:
        The sums of all areas that occur in the table, in sorted order of their labels, areas without any observed
        outcome included. ``+`` merges the sums of files with disjoint records.

    Raises:
        InputError: an outcome outside the declared bounds, a privacy unit with records in two areas, no records,
            replicate columns whose sums are far from the weight's.

    Neighbours: the largest unit weight is that of the privacy unit, the record or the column named as ``unit``.

    Examples:
        >>> import fhjax
        >>> survey = fhjax.open_survey(fhjax.example("nhanes0910_cholesterol"), area="race", weight="weight",
        ...                            outcome="high_cholesterol = 1", strata="stratum", psu="psu")
        >>> fhjax.area_sums(survey).labels
        Labels(4 areas)
    """
    tell = progress or (lambda sentence: None)
    table = survey.table
    replicates = [f"rep_{b}" for b in range(1, 1 + sum(column.startswith("rep_") for column in table.columns))]
    if taylor is None:
        taylor = not replicates or "stratum" in table.columns or "psu" in table.columns
    tell("Summing weights and outcomes by area.")
    discrete = bool(survey.binary)
    groups = _fetch(_grouped_sums(table, replicates, discrete=discrete))
    if len(groups["area"]) == 0:
        raise InputError("The survey has no records. Check the filter and the file.")
    sums = _assemble(groups, replicates, discrete=discrete)
    _check_bounds(sums, survey.bounds)
    centre = sums["weighted_outcome_sum"] / np.where(sums["weight_sum"] == 0.0, 1.0, sums["weight_sum"])
    centres = ibis.memtable(pa.table({"centre_area": list(sums["labels"]), "centre": centre}))
    if not discrete:
        tell("Summing squares around each area's mean.")
        sums["weighted_square_sum"] = _square_sums(table, centres, sums["labels"])
    if replicates:
        tell("Comparing the replicate weights with the weights.")
        sums["replicate_deviations"], values, few = _replicate_deviations(table, replicates)
        _refuse_factors(sums, values, few, survey.roles.replicates or replicates)
    if "unit" in table.columns:
        tell("Summing weights by privacy unit.")
        sums |= _largest_units(table, sums["labels"], survey.roles.unit or "unit")
    if taylor:
        tell("Summing residuals by stratum and primary sampling unit.")
        sums["strata"] = stratum_sums(table, centres, sums["labels"])
    return AreaSums(
        **sums,
        privacy_unit=survey.roles.unit or "record",
        outcome_lower=float(survey.bounds[0]),
        outcome_upper=float(survey.bounds[1]),
        num_filtered=int(survey.num_filtered),
        subject=_subject(survey),
        design=tuple(survey.notes),
        cautions=tuple(survey.cautions),
        outcome=survey.roles.outcome,
        sources=tuple(file.sha256 for file in survey.files),
        id_digests=_id_digests(table) if mergeable else None,
    )


def _id_digests(table: Any) -> dict[str, np.ndarray]:
    """Sorted 64-bit digests of the ids of privacy units and of PSUs within strata; text and numbers alike as text."""
    found = {}
    if "unit" in table.columns:
        ids = table.select(id=table.unit.cast("string")).distinct()
        found["privacy unit"] = _digests(_fetch(ids)["id"])
    if "psu" in table.columns:
        psu = table.psu.cast("string")
        key = table.stratum + "|" + psu if "stratum" in table.columns else psu
        found["PSU"] = _digests(_fetch(table.select(id=key).distinct())["id"])
    return found


def _digests(ids: np.ndarray) -> np.ndarray:
    return np.sort(
        hash_array(  # pyright: ignore[reportCallIssue]
            ids.astype(object), categorize=False
        )
    )


def _subject(survey: Survey) -> str:
    """What is estimated, where, from which file: "'poor' by area from survey.parquet, where age > 15"."""
    roles = survey.roles
    files = ", ".join(PurePath(file.path).name for file in survey.files[:3])
    more = f" and {len(survey.files) - 3:,} more" if len(survey.files) > 3 else ""
    source = f" from {files}{more}" if files else ""
    where = f", where {roles.where}" if roles.where else ""
    return f"{roles.outcome!r} by {', '.join(roles.area)}{source}{where}"


def _fetch(expression: Any) -> dict[str, np.ndarray]:
    """Run an aggregation and return its columns as arrays: text and missing numbers as Python objects and NaN."""
    table = expression.to_pyarrow()
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _grouped_sums(table: Any, replicates: list[str], *, discrete: bool) -> Any:
    """Sums by area and outcome value, or by area and whether the outcome is observed."""
    y = table.y
    key = y if discrete else y.notnull()
    aggregates: dict[str, Any] = {
        "records": table.count(),
        "weights": table.weight.sum(),
        "weight_squares": (table.weight * table.weight).sum(),
        "weight_max": table.weight.max(),
    }
    aggregates |= {f"w_{name}": table[name].sum() for name in replicates}
    if not discrete:
        aggregates |= {"outcomes": (table.weight * y).sum(), "y_min": y.min(), "y_max": y.max()}
        aggregates |= {f"wy_{name}": (table[name] * y).sum() for name in replicates}
    return table.group_by(area=table.area, key=key).agg(**aggregates)


def _assemble(groups: dict[str, np.ndarray], replicates: list[str], *, discrete: bool) -> dict[str, Any]:
    names, area = np.unique(groups["area"].astype(str), return_inverse=True)
    labels = Labels(names.tolist())
    m = len(labels)
    if discrete:
        value = groups["key"].astype(float)
        observed = ~np.isnan(value)
        y_min = y_max = value[observed]
    else:
        observed = groups["key"].astype(bool)
        value = np.ones(len(observed))
        y_min, y_max = groups["y_min"][observed].astype(float), groups["y_max"][observed].astype(float)
    here = area[observed]

    def total(values: np.ndarray, where: np.ndarray = observed) -> np.ndarray:
        return np.bincount(area[where], weights=values[where].astype(float), minlength=m)

    weights = groups["weights"].astype(float)
    outcomes = weights * np.nan_to_num(value) if discrete else groups["outcomes"].astype(float)
    max_weight = np.zeros(m)
    np.maximum.at(max_weight, here, groups["weight_max"][observed].astype(float))
    low, high = np.full(m, np.inf), np.full(m, -np.inf)
    np.minimum.at(low, here, y_min)
    np.maximum.at(high, here, y_max)
    sums: dict[str, Any] = {
        "labels": labels,
        "num_records": total(groups["records"]).astype(np.int64),
        "num_missing": total(groups["records"], ~observed).astype(np.int64),
        "weight_sum": total(weights),
        "weight_square_sum": total(groups["weight_squares"]),
        "max_weight": max_weight,
        "max_unit_weight": max_weight,
        "weighted_outcome_sum": total(outcomes),
        "outcome_min": low,
        "outcome_max": high,
    }
    if discrete:
        mean = sums["weighted_outcome_sum"] / np.where(sums["weight_sum"] == 0.0, 1.0, sums["weight_sum"])
        sums["weighted_square_sum"] = total(weights * (np.nan_to_num(value) - mean[area]) ** 2)
    if replicates:
        columns = [groups[f"w_{name}"].astype(float) for name in replicates]
        sums["replicate_weight_sums"] = np.stack([total(column) for column in columns], axis=1)
        if discrete:
            columns = [np.nan_to_num(value) * column for column in columns]
        else:
            columns = [groups[f"wy_{name}"].astype(float) for name in replicates]
        sums["replicate_outcome_sums"] = np.stack([total(column) for column in columns], axis=1)
    return sums


def _check_bounds(sums: dict[str, Any], bounds: tuple[float, float]) -> None:
    outside = (sums["outcome_min"] < bounds[0]) | (sums["outcome_max"] > bounds[1])
    if np.any(outside):
        raise complain(
            f"have an outcome outside the declared bounds [{bounds[0]:g}, {bounds[1]:g}]",
            sums["labels"].where(outside),
            "Declare bounds that hold for every possible answer; values are never clipped silently.",
        )


def _in_label_order(labels: Labels, area: np.ndarray, values: np.ndarray) -> FloatArray:
    position = {label: i for i, label in enumerate(labels)}
    ordered = np.zeros(len(labels))
    ordered[[position[name] for name in area]] = np.nan_to_num(values.astype(float))
    return ordered


def _square_sums(table: Any, centres: Any, labels: Labels) -> FloatArray:
    joined = table.select("area", "weight", "y").join(centres, table.area == centres.centre_area)
    deviation = joined.y - joined.centre
    rows = _fetch(joined.group_by("area").agg(squares=(joined.weight * deviation * deviation).sum()))
    return _in_label_order(labels, rows["area"], rows["squares"])


def _replicate_deviations(table: Any, replicates: list[str]) -> tuple[FloatArray | None, int, int]:
    """How far replicate weights lie from the weight; the values that weight and first replicate have, in a sample."""
    sample = table.select("weight", *replicates).limit(SPREAD_SAMPLE)
    squares = {name: ((sample[name] - sample.weight) * (sample[name] - sample.weight)).sum() for name in replicates}
    counts = {"values": sample.weight.nunique(), "few": sample[replicates[0]].nunique()}
    row = _fetch(sample.aggregate(base=(sample.weight * sample.weight).sum(), **squares, **counts))
    base = float(row["base"][0])
    deviations = np.array([float(row[name][0]) for name in replicates]) / base if base > 0.0 else None
    return deviations, int(row["values"][0]), int(row["few"][0])


def _refuse_factors(sums: dict[str, Any], weights: int, values: int, shown: Sequence[str]) -> None:
    """Factors to multiply the weight by, taken for weights: their mean is far from the weight's, or they are few."""
    total = float(sums["weight_sum"].sum())
    ratio = float(sums["replicate_weight_sums"].sum(axis=0).mean()) / total if total > 0.0 else 1.0
    far = not FACTOR_RATIO[0] <= ratio <= FACTOR_RATIO[1]
    if far or (values <= FEW_VALUES and weights > 4 * FEW_VALUES):
        why = (
            f"their mean is {ratio:.3g} times the mean weight" if far else
            f"they have {values} different values where the weight has {weights:,}"
        )  # fmt: skip
        raise InputError(
            f"The replicate columns {shown[0]} to {shown[-1]} do not look like weights: {why}. If they are factors by "
            "which the weight is multiplied, pass replicate_factors=True; otherwise check the pattern, or rescale them."
        )


def _largest_units(table: Any, labels: Labels, column: str) -> dict[str, Any]:
    """Largest weight sum and most records of one privacy unit by area; a unit in two areas is refused."""
    units = table.group_by(unit=table.unit).agg(
        area=table.area.min(),
        last=table.area.max(),
        weights=table.y.notnull().ifelse(table.weight, 0.0).sum(),
        records=table.y.count(),
    )
    split = units.area != units["last"]
    rows = _fetch(
        units.group_by("area").agg(
            weights=units.weights.max(), records=units.records.max(), split=split.cast("int64").sum()
        )
    )
    if count := int(rows["split"].sum()):
        first = _fetch(units.filter(split).order_by("unit").limit(5).select("unit"))["unit"].tolist()
        raise InputError(
            complain("have records in two areas", first + [""] * (count - len(first)), "", noun="privacy unit").args[0]
            + f"A unit belongs to one area: the guarantee counts it once. If the ids in column {column!r} start again "
            "in every area, combine them with the area."
        )
    return {
        "max_unit_weight": _in_label_order(labels, rows["area"], rows["weights"]),
        "max_unit_records": _in_label_order(labels, rows["area"], rows["records"]).astype(np.int64),
    }
