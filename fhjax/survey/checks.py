"""Bad input, found by one aggregate query over the records and told by area. Nothing is repaired here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from fhjax.errors import InputError, Problems, first_few
from fhjax.survey.delimited import not_numeric
from fhjax.survey.workspace import to_frame


@dataclasses.dataclass(frozen=True)
class Summary:
    """What the checks saw on their way."""

    num_records: int
    num_missing_outcome: int
    outcome_min: float
    outcome_max: float
    only_zero_one: bool
    num_zero_weights: int = 0  # accepted ones: the main weight is zero, some replicate weight is not


def joined(parts: Sequence[Any]) -> Any:
    """Area codes of several columns as one, joined by ``|`` (Ibis columns or text)."""
    label = parts[0]
    for part in parts[1:]:
        label = label + "|" + part
    return label


def by_area(table: Any, parts: Sequence[str], bounds: tuple[float, float] | None) -> Any:
    """The one query: for each area, how many records break which rule."""
    weight, y = table["weight"], table["y"]
    counts: dict[str, Any] = {
        "records": table.count(),
        "weight_missing": (weight.isnull() | weight.isnan()).sum(),
        "weight_infinite": weight.isinf().sum(),
        "weight_negative": (weight < 0).sum(),
        "weight_zero": (weight == 0).sum(),
        "outcome_missing": y.isnull().sum(),
        "outcome_infinite": y.isinf().sum(),
        "outcome_not_01": ((y != 0) & (y != 1)).sum(),
    }
    if bounds is not None:
        counts["outcome_outside"] = ((y < bounds[0]) | (y > bounds[1])).sum()
    for role in ("stratum", "psu", "unit"):
        if role in table.columns:
            counts[f"{role}_missing"] = missing(table[role]).sum()
    extremes = {"outcome_min": y.min(), "outcome_max": y.max()}
    frame = to_frame(table.group_by(list(parts)).aggregate(**counts, **extremes))
    for name in counts:
        frame[name] = frame[name].fillna(0).astype("int64")
    return frame.sort_values(list(parts), ignore_index=True)


def missing(column: Any) -> Any:
    """Null, or text without a visible character."""
    return column.isnull() | (column.strip() == "") if column.type().is_string() else column.isnull()


def check_records(
    table: Any,
    parts: Sequence[str],
    *,
    area: Sequence[str],
    names: dict[str, str],
    bounds: tuple[float, float] | None,
    replicates: Sequence[str] = (),
    problems: Problems,
) -> Summary:
    """Look at all records and add every kind of bad input to ``problems``.

    Args:
        table: Records with the columns ``parts`` (text, one for each area column), weight, y and, where given, stratum,
            psu, unit and rep_1, rep_2, ...
        area, names: What the user calls the area columns, and the other roles.
        bounds: Declared bounds of the outcome, or None when none were declared.
        problems: Gathers blank codes; missing, infinite, negative or zero weights; missing strata, PSUs or units; no
            observed outcome; outcomes outside the declared bounds.

    Raises:
        InputError: No record.
    """
    frame = by_area(table, parts, bounds)
    total = int(frame["records"].sum()) if len(frame) else 0
    if total == 0:
        raise InputError("There is no record: the file has no rows, or the filter dropped them all.")
    check_codes(frame, parts, area, total, problems)
    labels = joined([frame[part].astype(str) for part in parts])

    def refuse(column: str, what: str, way_out: str) -> None:
        bad = frame[column] > 0
        count = int(frame.loc[bad, column].sum())
        if count:
            where = "area" if bad.sum() == 1 else f"{int(bad.sum()):,} areas:"
            verb = "has" if count == 1 else "have"
            listed = first_few(list(labels[bad]))
            problems.add(f"{count:,} of {total:,} records {verb} {what}, in {where} {listed}. {way_out}")

    weight = names["weight"]
    drop = f"Correct them, or drop the records with a filter (where={weight + ' > 0'!r})."
    refuse("weight_missing", f"a missing weight ({weight})", drop)
    refuse("weight_negative", f"a negative weight ({weight})", drop)
    num_zero = int(frame["weight_zero"].sum())
    if num_zero and replicates:
        # Rounded weights (ACS) can be zero for a record that counts in some replicates: it belongs to the design.
        frame = _zero_throughout(table, parts, frame, len(replicates))
        num_zero -= int(frame["weight_zero"].sum())
    refuse("weight_zero", f"a weight of zero ({weight})" + " and in all replicates" * bool(replicates), drop)
    refuse("weight_infinite", f"an infinite weight ({weight})", "Correct them.")
    for role, word in (("stratum", "stratum"), ("psu", "PSU"), ("unit", "privacy unit")):
        if role in names:
            way = f"Every record needs one; a filter (where={names[role] + ' IS NOT NULL'!r}) drops those without."
            refuse(f"{role}_missing", f"no {word} ({names[role]})", way)
    unseen = int(frame["outcome_missing"].sum())
    if unseen == total:
        problems.add(
            f"The outcome {names['y']!r} is missing in all {total:,} records, so nothing can be estimated. "
            "Check the column, or the columns its expression reads."
        )
    refuse("outcome_infinite", f"an infinite outcome ({names['y']})", "Correct them.")
    low, high = float(frame["outcome_min"].min()), float(frame["outcome_max"].max())
    if bounds is not None:
        refuse(
            "outcome_outside",
            f"an outcome ({names['y']}) outside the declared bounds {bounds[0]:g} to {bounds[1]:g}",
            f"The outcomes run from {low:g} to {high:g}. Declare bounds that hold for every possible respondent, or "
            "limit the outcome yourself in its expression; it is never clipped silently.",
        )
    return Summary(total, unseen, low, high, int(frame["outcome_not_01"].sum()) == 0, num_zero)


def _zero_throughout(table: Any, parts: Sequence[str], frame: Any, replicates: int) -> Any:
    """``frame`` with weight_zero counting only records whose replicate weights are all zero too."""
    zero = table.filter([table["weight"] == 0, *(table[f"rep_{i}"] == 0 for i in range(1, replicates + 1))])
    counts = to_frame(zero.group_by(list(parts)).aggregate(weight_zero=zero.count()))
    merged = frame.drop(columns="weight_zero").merge(counts, on=list(parts), how="left")
    merged["weight_zero"] = merged["weight_zero"].fillna(0).astype("int64")
    return merged


def check_codes(frame: Any, parts: Sequence[str], area: Sequence[str], total: int, problems: Problems) -> None:
    """Blank area codes, and codes that hold the sign which joins several area columns."""
    for part, name in zip(parts, area, strict=True):
        codes = frame[part]
        blank = codes.isna() | (codes.astype("string").fillna("").str.strip() == "")
        if blank.any():
            count = int(frame.loc[blank, "records"].sum())
            verb = "has" if count == 1 else "have"
            problems.add(
                f"{count:,} of {total:,} records {verb} no area code ({name}). Every record belongs to an area; a "
                f"filter (where={name + ' IS NOT NULL'!r}, or trim({name}) <> '' for blanks) drops those without."
            )
        if len(parts) > 1 and (bars := codes[codes.str.contains("|", regex=False).fillna(False)]).size:
            problems.add(
                f"{bars.nunique()} codes of the area column {name!r} contain '|', which joins the codes of several "
                f"area columns: {first_few(sorted(set(bars)))}. Replace it with an expression such as "
                f"replace({name}, '|', '/')."
            )


def check_replicates(table: Any, replicates: Sequence[str], num_records: int) -> None:
    """Refuse missing or infinite replicate weights. Zero and negative ones are legal (the ACS has both)."""
    sums = {}
    for i in range(1, len(replicates) + 1):
        column = table[f"rep_{i}"]
        # A NaN or an infinity makes the sum one, which is cheaper than asking each value.
        sums[f"count_{i}"], sums[f"sum_{i}"] = column.count(), column.sum()
    row = to_frame(table.aggregate(**sums)).iloc[0]
    absent = {
        name: num_records - int(row[f"count_{i}"])
        for i, name in enumerate(replicates, 1)
        if int(row[f"count_{i}"]) < num_records
    }
    if absent:
        raise InputError(
            f"{len(absent)} of {len(replicates)} replicate weight columns "
            f"{'has' if len(absent) == 1 else 'have'} missing values "
            f"({sum(absent.values()):,} in all): {first_few(absent)}. A missing replicate weight is not a zero: "
            "correct them, or leave the records out with a filter."
        )
    strange = [name for i, name in enumerate(replicates, 1) if not math.isfinite(float(row[f"sum_{i}"]))]
    if strange:
        raise InputError(
            f"{len(strange)} of {len(replicates)} replicate weight columns "
            f"{'holds' if len(strange) == 1 else 'hold'} undefined or infinite values: "
            f"{first_few(strange)}. Correct them."
        )


def refuse_text(table: Any, column: str, role: str, shown: str) -> None:
    """The error for a text column where numbers are needed, with the values that are not numbers."""
    frame = to_frame(table.group_by(column).aggregate(records=table.count()))
    total = int(frame["records"].sum())
    frame = frame[frame[column].notna()]
    bad = ~frame[column].map(_is_number).astype(bool)
    if bad.any():
        count = int(frame.loc[bad, "records"].sum())
        raise not_numeric(role, shown, sorted(frame.loc[bad, column])[:5], count, total)
    raise InputError(
        f"The {role} column {shown!r} holds numbers stored as text. Use the expression CAST({shown} AS DOUBLE)."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
