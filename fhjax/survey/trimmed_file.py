"""The survey's own rows with trimmed weights beside the original ones, written out without holding them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa

from fhjax.errors import InputError
from fhjax.files import refuse_same, staged_file
from fhjax.records import TrimmingPlan
from fhjax.survey import checks
from fhjax.survey.codes import Coding, code
from fhjax.survey.evaluate import evaluate, number, wanted_columns
from fhjax.survey.formats import open_source
from fhjax.survey.missing import MissingCodes
from fhjax.survey.read import Survey
from fhjax.survey.roles import Role, as_names, parse_role, replicate_columns
from fhjax.survey.workspace import Wanted

SUFFIX = "_trimmed"


def trimmed_names(survey: Survey) -> tuple[str, tuple[str, ...]]:
    """The columns of the trimmed weight and of the trimmed replicate weights."""
    return "weight" + SUFFIX, tuple(name + SUFFIX for name in survey.roles.replicates)


def write_trimmed_weights(
    source: Any,
    out: str | Path,
    plan: TrimmingPlan,
    survey: Survey,
    *,
    area: str | Sequence[str],
    weight: str,
    outcome: str,
    where: str | Sequence[str] | None = None,
    unit: str | None = None,
    replicates: str | Sequence[str] | None = None,
    replicate_factors: bool = False,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Path:
    """Write every original row and column, with ``weight_trimmed`` and each replicate weight times the row's factor.

    Args:
        source: what the survey was opened from.
        out: the Parquet file.
        plan: the trimming plan.
        survey: the survey as it was opened; the options repeat how.

    The factor of a row is its unit's trimmed weight over its weight, (min(size, threshold) + lift) scale / size. Rows
    outside the universe (dropped by the filter, outcome missing, or in an area the plan does not have) keep their
    weights; the column ``in_universe`` tells. Original columns are never overwritten. The rows may come in
    another order.

    Raises:
        InputError: a column of the source already has one of the new names, or ``out`` is a file that is read.
    """
    refuse_same([file.path for file in survey.files], [out])
    origin = open_source(source, delimiter=delimiter, decimal=decimal, encoding=encoding)
    texts = {f"area_{i}": name for i, name in enumerate(as_names(area), 1)} | {"weight": weight, "y": outcome}
    texts |= {"unit": unit} if unit is not None else {}
    conditions = [f"where_{i}" for i, _ in enumerate(as_names(where), 1)]
    texts |= dict(zip(conditions, as_names(where), strict=True))
    parsed = {key: parse_role(text, origin.columns, key.split("_")[0]) for key, text in texts.items()}
    reps: tuple[str, ...] = ()
    if replicates:
        reps, _ = replicate_columns(replicates, origin.columns, parsed["weight"].inputs[0])
        parsed |= {f"rep_{i}": parse_role(name, origin.columns, "replicate weight") for i, name in enumerate(reps, 1)}
    new = {f"weight{SUFFIX}", "in_universe", *(name + SUFFIX for name in reps)}
    taken = sorted(new & set(origin.columns))
    if taken:
        raise InputError(f"The source already has the column {taken[0]!r}: was it trimmed before? Rename it.")

    table: Any = _with_roles(_WholeSource(origin), parsed, survey.missing)
    areas = [key for key in parsed if key.startswith("area_")]
    prefix = "fhjax_role_"
    # The codes as the survey reads them: 101.0 of a floating-point column is area 101 here too.
    label = checks.joined([code(table[prefix + key], survey.codings.get(key, Coding())) for key in areas])
    y: Any = number(table, prefix + "y", parsed["y"])
    if table[prefix + "y"].type().is_floating():
        y = ibis.ifelse(y.isnan(), ibis.null("float64"), y)
    w = number(table, prefix + "weight", parsed["weight"])
    kept = y.notnull()
    for condition in conditions:
        kept = kept & table[prefix + condition].fill_null(False)
    table = table.mutate(fhjax_label=label, fhjax_w=w, fhjax_kept=kept)
    if unit is not None:
        units = code(table[prefix + "unit"], survey.codings.get("unit", Coding()), keep_integers=True)
        table = table.mutate(fhjax_unit=units)
        counted = table.fhjax_kept.ifelse(table.fhjax_w, 0.0).sum().over(ibis.window(group_by="fhjax_unit"))
        table = table.mutate(fhjax_size=counted)
    else:
        table = table.mutate(fhjax_size=table.fhjax_w)
    caps: Any = ibis.memtable(
        pa.table(
            {
                "fhjax_area": list(plan.labels),
                "fhjax_threshold": np.where(np.isfinite(plan.threshold), plan.threshold, 1e300),
                "fhjax_scale": plan.scale,
                "fhjax_lift": plan.lift,
            }
        )
    )
    joined: Any = table.left_join(caps, table.fhjax_label == caps.fhjax_area)
    inside = joined.fhjax_kept & joined.fhjax_area.notnull()
    size, positive = joined.fhjax_size, joined.fhjax_size > 0.0
    lowered = (ibis.least(size, joined.fhjax_threshold) + joined.fhjax_lift) / positive.ifelse(size, 1.0)
    factor = inside.ifelse(joined.fhjax_scale * positive.ifelse(lowered, 1.0), 1.0)
    joined = joined.mutate(in_universe=inside, fhjax_factor=factor)
    columns = {name: joined[name] for name in origin.columns}
    columns |= {"in_universe": joined.in_universe, f"weight{SUFFIX}": joined.fhjax_w * joined.fhjax_factor}
    for i, name in enumerate(reps, 1):
        replicate = joined[f"{prefix}rep_{i}"].cast("float64")
        if replicate_factors:
            replicate = replicate * joined.fhjax_w
        columns[name + SUFFIX] = replicate * joined.fhjax_factor
    with staged_file(out) as path:
        joined.select(**columns).to_parquet(path)
    return Path(out)


class _WholeSource:
    """A source that hands over all its columns, those of roles typed as their roles want them."""

    def __init__(self, origin: Any) -> None:
        self.origin = origin
        self.columns = origin.columns

    def table(self, wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table:
        named = {one.column for one in wanted}
        others = [Wanted(name, "free", name) for name in self.columns if name not in named]
        return self.origin.table([*wanted, *others], codes)


def _with_roles(source: _WholeSource, parsed: dict[str, Role], codes: MissingCodes) -> ibis.Table:
    """All original columns and, beside them, the values of the roles under names that no user has."""
    whole = {f"column_{name}": Role(name, name, name, name, (name,)) for name in source.columns}
    roles = parsed | whole

    class Both:
        columns = source.columns

        @staticmethod
        def table(wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table:
            del wanted
            return source.table(wanted_columns(parsed), codes)

    values = evaluate(Both, roles, codes)  # pyright: ignore[reportArgumentType]
    return values.select(
        **{name: values[f"column_{name}"] for name in source.columns},
        **{f"fhjax_role_{key}": values[key] for key in parsed},
    )
