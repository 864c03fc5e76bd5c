"""The values of the roles over a source: columns and SQL expressions, and what they cannot digest, told in words."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import duckdb
import ibis
from ibis.common.exceptions import OperationNotDefinedError, UnsupportedOperationError

from fhjax.errors import InputError, Problems
from fhjax.survey import checks
from fhjax.survey.delimited import NotNumeric
from fhjax.survey.formats import Source
from fhjax.survey.missing import MissingCodes
from fhjax.survey.roles import Role
from fhjax.survey.workspace import Kind, Wanted, identifier


def word(key: str) -> str:
    """A role's key as the messages call it."""
    key = key.split("_")[0]
    return {"y": "outcome", "plain": "outcome", "where": "filter", "stratum": "strata", "psu": "PSU"}.get(key, key)


def wanted_columns(roles: dict[str, Role]) -> list[Wanted]:
    """The columns that the roles read, each once, and how: as text for codes, as numbers for weights."""
    kinds: dict[str, tuple[Kind, str]] = {}
    strength = {"code": 2, "number": 1, "free": 0}
    readers: dict[str, set[str]] = {}
    for key, role in roles.items():
        kind: Kind = "free"
        if key.startswith(("area", "text_")) or key in ("stratum", "psu", "unit"):
            kind = "code"
        elif role.column is not None and (key.startswith("rep_") or key == "weight" or key.startswith("number_")):
            kind = "number"
        for column in role.inputs:
            readers.setdefault(column, set()).add(key.split("_")[0])
            if column not in kinds or strength[kind] > strength[kinds[column][0]]:
                kinds[column] = (kind, role.name)
    answers = {"y", "plain", "where"}
    return [Wanted(column, kind, name, readers[column] <= answers) for column, (kind, name) in kinds.items()]


def evaluate(
    origin: Source,
    roles: dict[str, Role],
    codes: MissingCodes = MissingCodes(),  # noqa: B008
    problems: Problems | None = None,
) -> ibis.Table:
    """The values of the roles as columns named by their keys, with the types they come in; declared codes are null.

    With ``problems``, columns of a text file that must be numbers and are not are told there, and come as text.
    """
    wanted = wanted_columns(roles)
    try:
        table = origin.table(wanted, codes)
    except NotNumeric as error:
        if problems is None:
            raise
        problems.add(error)  # what else is wrong with the records is to be found in the same run
        text = [dataclasses.replace(one, kind="free") if one.column in error.columns else one for one in wanted]
        table = origin.table(text, codes)
    expressions = {key: role for key, role in roles.items() if role.column is None}
    if expressions:
        # One at a time first, so that an expression that cannot be evaluated is named. The alias must not be the name
        # of a table of the user's.
        view = table.alias("fhjax_records")
        added = {key: f"({role.guarded_sql}) AS {identifier('fhjax_' + key)}" for key, role in expressions.items()}
        problems = Problems()
        for key, sql in added.items():
            if key == "plain":
                continue
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
                problems.add(f"The {roles[key].name} {roles[key].text!r} cannot be evaluated: {why}{hint}")
        problems.raise_if_any()
        table = view.sql(f"SELECT *, {', '.join(added.values())} FROM fhjax_records", dialect="duckdb")
    return table.select(**{key: table[role.column or f"fhjax_{key}"] for key, role in roles.items()})


@contextlib.contextmanager
def engine_errors(names: dict[str, str]) -> Iterator[None]:
    """Turn a value that an expression cannot digest into an error in words."""
    try:
        yield
    except (OperationNotDefinedError, UnsupportedOperationError) as error:
        what = str(error).splitlines()[0]
        raise InputError(
            f"The table's backend cannot compute this ({what}). Hand over the records instead, for example "
            "table.to_pyarrow(), which are then summed in DuckDB."
        ) from error
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
