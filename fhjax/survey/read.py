"""A survey becomes one table with named roles: area, weight, y and, where given, stratum, psu, unit, replicates."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import ibis

from fhjax.errors import DataWarning, InputError, Problems
from fhjax.survey import checks, doubts
from fhjax.survey.codes import Coding, code, decide
from fhjax.survey.delimited import NotNumeric
from fhjax.survey.evaluate import engine_errors, evaluate, number, word
from fhjax.survey.formats import open_source
from fhjax.survey.missing import Declared, MissingCodes, missing_codes
from fhjax.survey.roles import Role, as_names, left_out, parse_role, replicate_columns
from fhjax.survey.workspace import SourceFile

__all__ = ["Roles", "SourceFile", "Survey", "open_survey"]


@dataclasses.dataclass(frozen=True)
class Roles:
    """Which column, or SQL expression of columns, plays which part."""

    area: tuple[str, ...]
    weight: str
    outcome: str
    where: str | None = None
    strata: str | None = None
    psu: str | None = None
    replicates: tuple[str, ...] = ()
    unit: str | None = None


@dataclasses.dataclass(frozen=True)
class Survey:
    """A survey as a table of records with named roles, checked, not yet summed.

    ``table`` has the columns area (string), weight (float64), y (float64, null where the outcome is missing) and, where
    given, stratum (string), psu and unit (text or integers), rep_1 .. rep_R (float64). Temporary files behind it live
    as long as the table.
    """

    table: ibis.Table
    roles: Roles
    bounds: tuple[float, float]  # of one record's outcome: declared, or those that its expression has by itself
    binary: bool  # the outcome takes only the values 0 and 1 in this file: how sums are formed, never a bound
    num_records: int  # after the filter, missing outcomes included
    num_filtered: int  # records the filter dropped
    num_missing_outcome: int
    files: tuple[SourceFile, ...] = ()  # empty for data frames and Ibis tables
    notes: tuple[str, ...] = ()  # sentences for the report: which columns, what was recoded
    cautions: tuple[str, ...] = ()  # what a person must judge: said as warnings, and among the report's assumptions
    codings: Mapping[str, Coding] = dataclasses.field(default_factory=dict)  # how each column of codes became text
    missing: MissingCodes = dataclasses.field(default_factory=MissingCodes)


def open_survey(
    source: Any,
    *,
    area: str | Sequence[str],
    weight: str,
    outcome: str,
    where: str | Sequence[str] | None = None,
    strata: str | None = None,
    psu: str | None = None,
    replicates: str | Sequence[str] | None = None,
    replicate_factors: bool = False,
    unit: str | None = None,
    bounds: tuple[float, float] | None = None,
    missing: Declared = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Survey:
    """Open survey microdata, give its columns their roles, and refuse what cannot be meant.

    Args:
        source: A path, a glob, ``"example:NAME"`` or a list of these (part files): CSV or TSV (plain, ``.gz``,
            ``.zip``), Parquet, SAS, Stata, SPSS; a pandas DataFrame or Arrow table; or an Ibis table of any backend,
            where the work is then done. Files may be larger than memory; text is staged once in the temporary folder
            (``TMPDIR``) and deleted with the survey.
        area: One or several columns of area codes; several are joined by ``|``. Codes stay text, with their leading
            zeros.
        weight, outcome, where, strata, psu, unit: Column names, or SQL expressions of the columns of one record in
            DuckDB's dialect, such as ``"POVPIP < 100"``. Where a column that the outcome reads is missing the outcome
            is missing: outside the universe, never 0, unless its expression tests for missing values itself
            (``IS NULL``, ``COALESCE``). ``where`` keeps the records for which it is true and drops the others before
            the design; of several conditions all must be true. ``unit`` names the privacy unit (household) when it is
            larger than a record.
        replicates: ``"PWGTP1..PWGTP80"``, ``"pwgtp*"`` or a list of columns.
        replicate_factors: the replicate columns hold factors by which the weight is multiplied, not weights.
        bounds: (lo, hi) of one record's outcome in outcome units, true for every possible respondent. Needed for every
            number, a column of only 0 and 1 too: the data cannot tell what another respondent could answer. Booleans
            and comparisons have (0, 1) by themselves, a CASE of literals its least and largest.
        missing: codes that mean no answer: ``"7,9,-9"`` in the columns that only the outcome and the filter read,
            ``"income=99999998"`` in a column, where that list stands instead of the general one; a list of these, or a
            mapping from columns to codes.
        delimiter, decimal, encoding: For text files. The delimiter is found by itself; ``decimal=","`` and
            ``encoding="cp1252"`` must be said.

    Raises:
        InputError: For every kind of bad input: what, how many, where, and the way out.

    Examples:
        >>> survey = open_survey("example:nhanes0910_cholesterol", area=["race", "age", "sex"], weight="weight",
        ...                      outcome="high_cholesterol = 1", strata="stratum", psu="psu")
        >>> survey.num_records, survey.num_missing_outcome, survey.bounds
        (8591, 745, (0.0, 1.0))
    """
    problems = Problems()
    with problems.caught():
        bounds = _check_bounds(bounds)
    origin = open_source(source, delimiter=delimiter, decimal=decimal, encoding=encoding)
    conditions = as_names(where)
    texts = {f"area_{i}": name for i, name in enumerate(as_names(area), 1)}
    if not texts:
        problems.add("Name at least one area column.")
    texts |= {"weight": weight, "y": outcome}
    texts |= {key: text for key, text in (("stratum", strata), ("psu", psu), ("unit", unit)) if text is not None}
    texts |= {f"where_{i}": text for i, text in enumerate(conditions, 1)}
    parsed: dict[str, Role] = {}
    for key, text in texts.items():
        with problems.caught():
            parsed[key] = parse_role(text, origin.columns, word(key))
    codes = MissingCodes()
    with problems.caught():
        codes = missing_codes(missing, origin.columns)
    reps: tuple[str, ...] = ()
    notes = [note for role in parsed.values() for note in role.notes]
    cautions: list[str] = []
    if replicates and "weight" in parsed:
        main = parsed["weight"].inputs[0]
        with problems.caught():
            reps, rep_notes = replicate_columns(replicates, origin.columns, main)
            notes += rep_notes
            cautions += _half_a_set(reps, left_out(reps, origin.columns, main))
    elif replicate_factors:
        problems.add("replicate_factors needs replicates, the columns that hold the factors.")
    for key, role in parsed.items():
        if key in ("psu", "unit", "stratum") or key.startswith("area_"):
            _refuse_a_weight(key, role, parsed.get("weight"), reps, problems)
    problems.raise_if_any()
    names = {key: role.text for key, role in parsed.items()}
    parsed |= {f"rep_{i}": parse_role(name, origin.columns, "replicate weight") for i, name in enumerate(reps, 1)}
    if parsed["y"].unguarded:
        parsed["plain"] = dataclasses.replace(parsed["y"], unguarded=())

    raw: Any = evaluate(origin, parsed, codes, problems)
    notes = [*origin.notes, *notes, *codes.notes()]
    cautions += _outcome_readers(parsed)
    num_filtered, filter_notes = 0, []
    if conditions:
        with engine_errors(names):
            raw, num_filtered, filter_notes = _filtered(raw, {key: parsed[key] for key in parsed if "where_" in key})
    areas = [key for key in parsed if key.startswith("area_")]
    with engine_errors(names):
        records, codings, recoded, odd = _typed(raw, parsed, areas, factors=replicate_factors, problems=problems)
        sound = not problems.found  # else placeholders stand for columns that cannot be read
        cautions += odd
        yes_no = raw["y"].type().is_boolean()
        shown_area = [names[key] for key in areas]
        summary = checks.check_records(
            records, areas, area=shown_area, names=names, bounds=bounds, replicates=reps, problems=problems
        )
        if reps:
            with problems.caught():
                checks.check_replicates(records, reps, summary.num_records)
            if summary.num_zero_weights:
                recoded.append(
                    f"{summary.num_zero_weights:,} records have a main weight of zero but other replicate weights: "
                    "they count in the design variance."
                )
        if "plain" in parsed and (unknown := _made_of_missing(raw)):
            recoded.append(
                f"In {unknown:,} records the outcome {outcome} would have a value although a column that it reads is "
                "missing; they count as missing. Test for missing values (IS NULL, COALESCE) if that is not meant."
            )
    bounds = bounds or ((0.0, 1.0) if yes_no else _own_bounds(parsed["y"]))
    if bounds is None and sound:
        problems.add(_bounds_needed(outcome, summary))
    problems.raise_if_any()
    assert bounds is not None
    others = [key for key in records.columns if key not in areas]
    table = records.select(area=checks.joined([records[key] for key in areas]), **{key: records[key] for key in others})
    filter_text = " AND ".join(f"({text})" for text in conditions) if len(conditions) > 1 else "".join(conditions)
    roles = Roles(tuple(shown_area), weight, outcome, filter_text or None, strata, psu, reps, unit)
    with engine_errors(names):
        cautions += doubts.of_records(table, roles, summary.num_records)
    for sentence in cautions:
        warnings.warn(sentence, DataWarning, stacklevel=2)
    return Survey(
        table=table,
        roles=roles,
        bounds=bounds,
        binary=yes_no or summary.only_zero_one,
        num_records=summary.num_records,
        num_filtered=num_filtered,
        num_missing_outcome=summary.num_missing_outcome,
        files=origin.files,
        notes=(*_design_notes(roles, summary, bounds), *filter_notes, *dict.fromkeys([*notes, *recoded])),
        cautions=tuple(cautions),
        codings=codings,
        missing=codes,
    )


def _half_a_set(used: Sequence[str], more: Sequence[str]) -> list[str]:
    if not more:
        return []
    return [
        f"{len(more):,} more columns look like replicate weights of the same set and are not used: {more[0]}"
        + (f" to {more[-1]}" if len(more) > 1 else "")
        + f". A method's factor holds for the whole set; with {len(used):,} of its replicates variances can be far off."
    ]


def _refuse_a_weight(key: str, role: Role, weight: Role | None, reps: Sequence[str], problems: Problems) -> None:
    if role.column is not None and weight is not None and role.column == weight.column:
        problems.add(f"The {word(key)} {role.text!r} is the weight: name the column that tells {word(key)}s apart.")
    elif role.column is not None and role.column in reps:
        problems.add(f"The {word(key)} {role.text!r} is one of the replicate weights.")


def _outcome_readers(parsed: Mapping[str, Role]) -> list[str]:
    """Roles that must be public and fixed, but read a column that the outcome reads."""
    outcome = parsed["y"]
    said = []
    for key, role in parsed.items():
        shared = [column for column in role.inputs if column in outcome.inputs]
        if shared and key not in ("y", "plain") and not key.startswith("rep_"):
            said.append(
                f"The {word(key)} {role.text!r} reads {' and '.join(shared)}, which the outcome {outcome.text!r} reads "
                f"too. The guarantee takes the {word(key)} as public and fixed; here it changes with confidential "
                "answers, and what it gives away is not covered."
            )
    return said


def _filtered(raw: Any, conditions: Mapping[str, Role]) -> tuple[Any, int, list[str]]:
    """The records for which every condition is true, how many were dropped, and what each condition did."""
    problems = Problems()
    for key, role in conditions.items():
        if not raw[key].type().is_boolean():
            problems.add(f"The filter {role.text!r} must be true or false for a record, like 'AGEP >= 16'.")
    problems.raise_if_any()
    keys = list(conditions)
    every: Any = raw[keys[0]]
    for key in keys[1:]:
        every = every & raw[key]
    asked: dict[str, Any] = {"all": raw.count(), "kept": every.sum()}
    for key in conditions:
        asked |= {f"false_{key}": (~raw[key]).sum(), f"unknown_{key}": raw[key].isnull().sum()}
    row = raw.aggregate(**asked).to_pyarrow().to_pylist()[0]
    dropped = int(row["all"]) - int(row["kept"] or 0)
    notes = []
    for key, role in conditions.items():
        false, unknown = int(row[f"false_{key}"] or 0), int(row[f"unknown_{key}"] or 0)
        why = f", {unknown:,} of them because a column that it reads is missing" if unknown else ""
        notes.append(f"The filter {role.text} dropped {false + unknown:,} records before the design{why}.")
    if len(conditions) > 1:
        notes.append(f"Together the {len(conditions)} conditions dropped {dropped:,} of {int(row['all']):,} records.")
    return raw.filter(every), dropped, notes


def _made_of_missing(raw: Any) -> int:
    return int(
        raw.aggregate(n=(raw["plain"].notnull() & raw["y"].isnull()).sum()).to_pyarrow().to_pylist()[0]["n"] or 0
    )


def _own_bounds(outcome: Role) -> tuple[float, float] | None:
    """What the expression alone says of its values, when they differ."""
    bounds = outcome.static_bounds
    return bounds if bounds is not None and bounds[0] < bounds[1] else None


def _bounds_needed(outcome: str, summary: checks.Summary) -> str:
    name = outcome if " " not in outcome else f"({outcome})"
    return (
        f"The outcome {outcome!r} is a number, so bounds=(lo, hi) must be declared: the least and the largest value "
        f"any respondent could have. In this file it runs from {summary.outcome_min:g} to {summary.outcome_max:g}, "
        "but the data's own extremes are not bounds: they would give away the most extreme respondent and say "
        "nothing of a neighbouring data set. If these are codes of answers, make the outcome an expression that is "
        f"true or false, such as '{name} = 1'."
    )


def _typed(
    raw: Any, parsed: dict[str, Role], areas: Sequence[str], *, factors: bool, problems: Problems
) -> tuple[ibis.Table, dict[str, Coding], list[str], list[str]]:
    """Codes as text, numbers as float64, missing outcomes as null; how codes became text; notes; what to judge.

    A column that cannot be read is a problem, and a harmless number in its place lets the other checks go on.
    """
    unread = {column for error in problems.found if isinstance(error, NotNumeric) for column in error.columns}
    keys = [*areas, *(key for key in ("stratum", "psu", "unit") if key in parsed)]
    codings: dict[str, Coding] = dict.fromkeys(keys, Coding())
    notes: list[str] = []
    cautions: list[str] = []
    with problems.caught():
        codings, notes, cautions = decide(raw, {key: parsed[key] for key in keys}, {key: word(key) for key in keys})
    values = {key: code(raw[key], codings[key], keep_integers=key in ("psu", "unit")) for key in keys}
    for key, role in parsed.items():
        if key in ("weight", "y") or key.startswith("rep_"):
            values[key] = ibis.literal(0.0 if key == "y" else 1.0)
            if role.column not in unread:
                with problems.caught():
                    values[key] = number(raw, key, role)
    # NaN is how NumPy writes a missing outcome; SQL would count it as a value.
    if raw["y"].type().is_floating():
        values["y"] = ibis.ifelse(values["y"].isnan(), ibis.null("float64"), values["y"])
    if factors:
        values |= {key: values[key] * values["weight"] for key in values if key.startswith("rep_")}
        notes.append("The replicate columns hold factors, by which the weight was multiplied.")
    return raw.select(**values), codings, notes, cautions


def _check_bounds(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    if bounds is None:
        return None
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise InputError(f"The bounds must be two numbers (lo, hi), not {bounds!r}.") from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"The bounds must be finite with lo < hi, not ({low:g}, {high:g}).")
    return low, high


def _design_notes(roles: Roles, summary: checks.Summary, bounds: tuple[float, float]) -> list[str]:
    notes = [f"Areas are the codes of {' and '.join(roles.area)}; the weight is {roles.weight}."]
    seen = summary.num_records - summary.num_missing_outcome
    notes.append(
        f"The outcome is {roles.outcome}, observed in {seen:,} of {summary.num_records:,} records; the others are "
        f"outside the universe, never counted as 0. One record's outcome lies between {bounds[0]:g} and {bounds[1]:g}."
    )
    design = [(roles.strata, "strata"), (roles.psu, "PSUs"), (roles.unit, "privacy units")]
    notes += [f"The {what} are given by {text}." for text, what in design if text]
    if roles.replicates:
        notes.append(
            f"There are {len(roles.replicates)} replicate weights, {roles.replicates[0]} to {roles.replicates[-1]}."
        )
    return notes
