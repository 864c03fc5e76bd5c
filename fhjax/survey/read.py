"""A survey becomes one table with named roles: area, weight, y and, where given, stratum, psu, unit, replicates."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import ibis

from fhjax.errors import InputError
from fhjax.survey import checks
from fhjax.survey.formats import Source, open_source
from fhjax.survey.roles import Role, as_names, parse_role, replicate_columns
from fhjax.survey.workspace import Kind, SourceFile, Wanted, identifier

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
    bounds: tuple[float, float]  # of one record's outcome
    binary: bool  # the outcome takes only the values 0 and 1
    num_records: int  # after the filter, missing outcomes included
    num_filtered: int  # records the filter dropped
    num_missing_outcome: int
    files: tuple[SourceFile, ...] = ()  # empty for data frames and Ibis tables
    notes: tuple[str, ...] = ()  # sentences for the report: which columns, what was recoded


def open_survey(
    source: Any,
    *,
    area: str | Sequence[str],
    weight: str,
    outcome: str,
    where: str | None = None,
    strata: str | None = None,
    psu: str | None = None,
    replicates: str | Sequence[str] | None = None,
    unit: str | None = None,
    bounds: tuple[float, float] | None = None,
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
            DuckDB's dialect, such as ``"POVPIP < 100"``. Where an input of the outcome is missing the outcome is
            missing: outside the universe, never 0. ``where`` keeps the records for which it is true and drops the
            others before the design. ``unit`` names the privacy unit (household) when it is larger than a record.
        replicates: ``"PWGTP1..PWGTP80"``, ``"pwgtp*"`` or a list of columns.
        bounds: (lo, hi) of one record's outcome in outcome units, true for every possible respondent. Needed unless the
            outcome is a yes/no expression or a column of only 0 and 1, whose bounds are (0, 1).
        delimiter, decimal, encoding: For text files. The delimiter is found by itself; ``decimal=","`` and
            ``encoding="cp1252"`` must be said.

    Raises:
        InputError: For every kind of bad input: what, how many, where, and the way out.

    Example:
        >>> survey = open_survey("example:nhanes0910_cholesterol", area=["race", "age", "sex"], weight="weight",
        ...                      outcome="high_cholesterol", strata="stratum", psu="psu")
        >>> survey.num_records, survey.num_missing_outcome, survey.bounds
        (8591, 745, (0.0, 1.0))
    """
    bounds = _check_bounds(bounds)
    origin = open_source(source, delimiter=delimiter, decimal=decimal, encoding=encoding)
    texts = {f"area_{i}": name for i, name in enumerate(as_names(area), 1)}
    if not texts:
        raise InputError("Name at least one area column.")
    texts |= {"weight": weight, "y": outcome}
    texts |= {key: text for key, text in (("stratum", strata), ("psu", psu), ("unit", unit)) if text is not None}
    if where is not None:
        texts["where"] = where
    parsed = {key: parse_role(text, origin.columns, word(key)) for key, text in texts.items()}
    names = {key: role.text for key, role in parsed.items()}
    notes = [note for role in parsed.values() for note in role.notes]
    reps: tuple[str, ...] = ()
    if replicates:
        reps, rep_notes = replicate_columns(replicates, origin.columns, parsed["weight"].inputs[0])
        notes += rep_notes
    parsed |= {f"rep_{i}": parse_role(name, origin.columns, "replicate weight") for i, name in enumerate(reps, 1)}

    raw: Any = evaluate(origin, parsed)
    notes = [*origin.notes, *notes]
    num_filtered = 0
    if where is not None:
        if not raw["where"].type().is_boolean():
            raise InputError(f"The filter {where!r} must be true or false for a record, like 'AGEP >= 16'.")
        kept = raw.filter(raw["where"])
        with engine_errors(names):
            num_filtered = int(raw.count().to_pyarrow().as_py()) - int(kept.count().to_pyarrow().as_py())
        raw = kept
    areas = [key for key in parsed if key.startswith("area_")]
    with engine_errors(names):
        records, recoded = _typed(raw, parsed, areas)
        yes_no = raw["y"].type().is_boolean()
        shown_area = [names[key] for key in areas]
        summary = checks.check_records(records, areas, area=shown_area, names=names, bounds=bounds, replicates=reps)
        if "stratum" in parsed:
            checks.check_strata(records, names["stratum"])
        if reps:
            checks.check_replicates(records, reps, summary.num_records)
            if summary.num_zero_weights:
                recoded.append(
                    f"{summary.num_zero_weights:,} records have a main weight of zero but other replicate weights: "
                    "they count in the design variance."
                )
    binary = yes_no or summary.only_zero_one
    if bounds is None and not binary:
        raise InputError(
            f"The outcome {outcome!r} is not yes/no, so bounds=(lo, hi) must be declared: the least and the largest "
            f"value any respondent could have. In this file it runs from {summary.outcome_min:g} to "
            f"{summary.outcome_max:g}, but the data's own extremes are not bounds: they would give away the most "
            "extreme respondent and say nothing of a neighbouring data set. If these are codes of answers, make the "
            f"outcome an expression that is true or false, such as '{outcome} = 1'."
        )
    others = [key for key in records.columns if key not in areas]
    table = records.select(area=checks.joined([records[key] for key in areas]), **{key: records[key] for key in others})
    roles = Roles(tuple(shown_area), weight, outcome, where, strata, psu, reps, unit)
    return Survey(
        table=table,
        roles=roles,
        bounds=bounds or (0.0, 1.0),
        binary=binary,
        num_records=summary.num_records,
        num_filtered=num_filtered,
        num_missing_outcome=summary.num_missing_outcome,
        files=origin.files,
        notes=(*_design_notes(roles, summary, num_filtered), *dict.fromkeys([*notes, *recoded])),
    )


def word(key: str) -> str:
    """A role's key as the messages call it."""
    return {"y": "outcome", "where": "filter", "stratum": "strata", "psu": "PSU"}.get(key, key.split("_")[0])


def wanted_columns(roles: dict[str, Role]) -> list[Wanted]:
    """The columns that the roles read, each once, and how: as text for codes, as numbers for weights."""
    kinds: dict[str, tuple[Kind, str]] = {}
    strength = {"code": 2, "number": 1, "free": 0}
    for key, role in roles.items():
        kind: Kind = "free"
        if key.startswith(("area", "text_")) or key in ("stratum", "psu", "unit"):
            kind = "code"
        elif role.column is not None and (key.startswith("rep_") or key == "weight" or key.startswith("number_")):
            kind = "number"
        for column in role.inputs:
            if column not in kinds or strength[kind] > strength[kinds[column][0]]:
                kinds[column] = (kind, role.name)
    return [Wanted(column, kind, name) for column, (kind, name) in kinds.items()]


def evaluate(origin: Source, roles: dict[str, Role]) -> ibis.Table:
    """The values of the roles as columns named by their keys, with the types they come in."""
    table = origin.table(wanted_columns(roles))
    expressions = {key: role for key, role in roles.items() if role.column is None}
    if expressions:
        # One at a time first, so that an expression that cannot be evaluated is named. The alias must not be the name
        # of a table of the user's.
        view = table.alias("fhjax_records")
        added = {key: f"({role.sql}) AS {identifier('fhjax_' + key)}" for key, role in expressions.items()}
        for key, sql in added.items():
            try:
                view.sql(f"SELECT {sql} FROM fhjax_records", dialect="duckdb").schema()
            except Exception as error:  # each backend has its own exceptions for SQL it cannot type
                why = str(error).splitlines()[0].rstrip(".") + "."
                hint = (
                    " Codes are text here: compare them with text in single quotes, as in area = '001', or make them "
                    "numbers with CAST(... AS BIGINT)."
                    if "VARCHAR" in why
                    else ""
                )
                raise InputError(
                    f"The {roles[key].name} {roles[key].text!r} cannot be evaluated: {why}{hint}"
                ) from error
        table = view.sql(f"SELECT *, {', '.join(added.values())} FROM fhjax_records", dialect="duckdb")
    return table.select(**{key: table[role.column or f"fhjax_{key}"] for key, role in roles.items()})


@contextlib.contextmanager
def engine_errors(names: dict[str, str]) -> Iterator[None]:
    """Turn a value that an expression cannot digest into an error in words."""
    try:
        yield
    except duckdb.Error as error:
        shown = ", ".join(f"{word(key)} {text!r}" for key, text in names.items() if not key.startswith("rep_"))
        raise InputError(
            f"An expression met a value it cannot work with: {str(error).splitlines()[0]} (Roles: {shown}.) Correct "
            "the value or use TRY_CAST; for decimal commas pass decimal=','."
        ) from error


def number(table: Any, key: str, role: Role) -> Any:
    """A column as float64; text is refused with examples."""
    column = table[key]
    kind = column.type()
    if kind.is_boolean():
        return column.cast("int8").cast("float64")
    if kind.is_string():
        checks.refuse_text(table, key, role.name, role.text)
    if not kind.is_numeric() and not kind.is_null():
        raise InputError(f"The {role.name} {role.text!r} is of type {kind}, where a number is needed.")
    return column.cast("float64")


def code(table: Any, key: str, *, keep_integers: bool = False) -> Any:
    """A column of codes as text; integers stay integers where that is asked for."""
    column = table[key]
    kind = column.type()
    if kind.is_floating():
        column = ibis.ifelse(column.isnan(), ibis.null("float64"), column).cast("int64")
    elif kind.is_decimal():
        column = column.cast("int64")
    if keep_integers and column.type().is_integer():
        return column
    return column if kind.is_string() else column.cast("string")


def _typed(raw: Any, parsed: dict[str, Role], areas: Sequence[str]) -> tuple[ibis.Table, list[str]]:
    """Codes as text, numbers as float64, missing outcomes as null; and notes on what that changed."""
    codes = [*areas, *(key for key in ("stratum", "psu", "unit") if key in parsed)]
    kinds = {key: raw[key].type() for key in codes}
    checks.check_whole(
        raw,
        {key: (word(key), parsed[key].text) for key, kind in kinds.items() if kind.is_floating() or kind.is_decimal()},
    )
    notes = []
    for key, kind in kinds.items():
        if kind.is_floating() or kind.is_decimal():
            notes.append(
                f"The {word(key)} codes {parsed[key].text!r} are stored as floating point; whole numbers are used."
            )
        elif kind.is_integer() and key in areas:
            notes.append(f"The area codes {parsed[key].text!r} are stored as numbers, so they have no leading zeros.")
    values = {key: code(raw, key, keep_integers=key in ("psu", "unit")) for key in codes}
    values["weight"] = number(raw, "weight", parsed["weight"])
    y = number(raw, "y", parsed["y"])
    # NaN is how NumPy writes a missing outcome; SQL would count it as a value.
    values["y"] = ibis.ifelse(y.isnan(), ibis.null("float64"), y) if raw["y"].type().is_floating() else y
    values |= {key: number(raw, key, role) for key, role in parsed.items() if key.startswith("rep_")}
    return raw.select(**values), notes


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


def _design_notes(roles: Roles, summary: checks.Summary, num_filtered: int) -> list[str]:
    notes = [f"Areas are the codes of {' and '.join(roles.area)}; the weight is {roles.weight}."]
    seen = summary.num_records - summary.num_missing_outcome
    notes.append(
        f"The outcome is {roles.outcome}, observed in {seen:,} of {summary.num_records:,} records; the others are "
        "outside the universe, never counted as 0."
    )
    if roles.where is not None:
        notes.append(f"The filter {roles.where} dropped {num_filtered:,} records before the design.")
    design = [(roles.strata, "strata"), (roles.psu, "PSUs"), (roles.unit, "privacy units")]
    notes += [f"The {what} are given by {text}." for text, what in design if text]
    if roles.replicates:
        notes.append(
            f"There are {len(roles.replicates)} replicate weights, {roles.replicates[0]} to {roles.replicates[-1]}."
        )
    return notes
