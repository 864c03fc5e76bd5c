"""Which column plays which part: names, near names, replicate patterns, and SQL expressions over one record.

Pure text: nothing here reads a file or needs a data engine.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from fhjax.errors import InputError, first_few

_RANGE = re.compile(r"^(?P<stem>.*?)(?P<first>\d+)\s*(?:\.\.\.?|-|:)\s*(?P<stem2>.*?)(?P<last>\d+)$")
# What the regular expressions of other packages write where this one takes a star.
_STAR = re.compile(r"(\*|\[0-9\][+*]|\\d[+*])\$?$")


def near_names(name: str, columns: Iterable[str], limit: int = 3) -> list[str]:
    """Columns a person may have meant: same letters in another case first, then similar spellings.

    >>> near_names("pwgt", ["area", "PWGTP", "AGEP"])
    ['PWGTP']
    """
    columns = list(columns)
    same = [column for column in columns if column.lower() == name.lower()]
    by_lower = {column.lower(): column for column in columns}
    similar = [
        by_lower[close] for close in difflib.get_close_matches(name.lower(), list(by_lower), n=limit, cutoff=0.6)
    ]
    return list(dict.fromkeys(same + similar))[:limit]


def find_column(name: str, columns: Sequence[str], role: str) -> tuple[str, str | None]:
    """The column called ``name``: exactly, or by the only spelling that differs in case, which is then noted.

    Returns:
        The column as the data spell it, and a note (a sentence) when the spelling differs.

    Raises:
        InputError: When there is no such column (near names are suggested), when two are called exactly that, or when
            several differ only in case and none is exact.

    Example:
        >>> find_column("pwgtp", ["area", "PWGTP"], "weight")
        ('PWGTP', "The weight 'pwgtp' was read from the column spelled 'PWGTP'.")
    """
    exact = [column for column in columns if column == name]
    if len(exact) == 1:
        return name, None
    if len(exact) > 1:
        raise InputError(f"{len(exact)} columns are called {name!r} (the {role}). Rename all but one.")
    loose = [column for column in columns if column.lower() == name.lower()]
    if len(loose) == 1:
        return loose[0], f"The {role} {name!r} was read from the column spelled {loose[0]!r}."
    if loose:
        raise InputError(
            f"The {role} {name!r} matches {len(loose)} columns that differ only in case: {first_few(loose)}. "
            "Spell the one you mean exactly."
        )
    near = near_names(name, columns)
    hint = (
        f"Did you mean {' or '.join(map(repr, near))}?" if near else f"The columns are {first_few(columns, limit=12)}."
    )
    raise InputError(f"There is no column {name!r} for the {role}. {hint}")


@dataclasses.dataclass(frozen=True)
class Role:
    """One role: either a column of the data, or an SQL expression over the columns of one record."""

    name: str  # the role in words: "weight", "outcome", "area", ...
    text: str  # as the user wrote it
    column: str | None  # the column, when the role is a bare column
    sql: str  # DuckDB SQL with every column quoted and spelled as in the data
    inputs: tuple[str, ...]  # columns it reads
    notes: tuple[str, ...] = ()


def parse_role(text: str, columns: Sequence[str], role: str) -> Role:
    """A column name, or an SQL expression of the columns of one record such as ``POVPIP < 100``.

    Raises:
        InputError: When it is neither, names an unknown column, or looks at more than one record (aggregates, window
            functions, subqueries) or at chance (``random()``): an outcome must be a fact about one record alone.

    Example:
        >>> parse_role("povpip < 100", ["POVPIP"], "outcome").sql
        '"POVPIP" < 100'
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"The {role} must be a column name or an SQL expression, not {text!r}.")
    if text in columns:
        column, _ = find_column(text, columns, role)
        return Role(role, text, column, _quoted(column), (column,))
    try:
        statements = sqlglot.parse(text, dialect="duckdb")
    except SqlglotError as error:
        near = near_names(text, columns)
        hint = f" Did you mean the column {near[0]!r}?" if near else ""
        raise InputError(f"The {role} {text!r} is neither a column nor an SQL expression.{hint}") from error
    tree = statements[0] if len(statements) == 1 else None
    if tree is None or isinstance(tree, (exp.Query, exp.DDL, exp.DML, exp.Command, exp.Drop, exp.Alias)):
        raise InputError(f"The {role} {text!r} must be one SQL expression over the columns of a record.")
    if isinstance(tree, exp.Column):  # a bare name that is not exact
        column, note = find_column(text, columns, role)
        return Role(role, text, column, _quoted(column), (column,), (note,) if note else ())
    across = tree.find(exp.AggFunc, exp.Window, exp.Query, exp.Rand, exp.Uuid)
    if across is not None:
        raise InputError(
            f"The {role} {text!r} uses {across.sql(dialect='duckdb')!r}, which depends on more than one record or on "
            "chance. It must be a fact about one record alone."
        )
    inputs: dict[str, None] = {}
    notes = []
    for node in list(tree.find_all(exp.Column)):
        name = ".".join(part.name for part in node.parts)
        try:
            column, note = find_column(name, columns, role)
        except InputError as error:
            quoted = any(part.args.get("quoted") for part in node.parts)
            text_meant = quoted or not near_names(name, columns)
            hint = f" (If {name!r} is meant as text, put it in single quotes.)" if text_meant else ""
            raise InputError(f"{error}{hint}") from None
        inputs[column] = None
        if note and note not in notes:
            notes.append(note)
        node.replace(exp.column(column, quoted=True))
    if not inputs:
        raise InputError(f"The {role} {text!r} names no column: it would be the same for every record.")
    return Role(role, text, None, tree.sql(dialect="duckdb"), tuple(inputs), tuple(notes))


def _quoted(column: str) -> str:
    return exp.to_identifier(column, quoted=True).sql(dialect="duckdb")


def as_names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def replicate_columns(
    pattern: str | Sequence[str], columns: Sequence[str], weight: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The replicate weight columns that a pattern means, in the order of their numbers, and notes about them.

    Args:
        pattern: ``"PWGTP1..PWGTP80"`` (or ``"PWGTP1-PWGTP80"``), ``"pwgtp*"`` (the name followed by a number; the main
            weight is never among them), ``"r1, r2, r3"`` or a list of names. The case given is tried first, then any
            case.
        columns: The columns of the data.
        weight: The main weight.

    Raises:
        InputError: No column fits, numbers are missing in between or occur twice, or the main weight is listed.

    Example:
        >>> replicate_columns("w*", ["w", "w1", "w2", "w10x"], "w")[0]
        ('w1', 'w2')
    """
    if not isinstance(pattern, str):
        return _listed(pattern, columns, weight), ()
    pattern = pattern.strip()
    names = [name.strip() for name in pattern.split(",") if name.strip()]
    if pattern in columns or len(names) > 1:
        return _listed([pattern] if pattern in columns else names, columns, weight), ()
    notes: list[str] = []
    star, span = _STAR.search(pattern), _RANGE.match(pattern)
    if star is not None:
        stem = pattern[: star.start()].lstrip("^")
        found = _run(stem, pattern, columns, weight)
    elif span is not None and span["stem"].lower() == span["stem2"].lower():
        stem, first, last = span["stem"], int(span["first"]), int(span["last"])
        if last < first:
            raise InputError(f"The replicate weights {pattern!r} run backwards, from {first} to {last}.")
        width = len(span["first"]) if span["first"].startswith("0") else 0
        found = _listed([f"{stem}{number:0{width}d}" for number in range(first, last + 1)], columns, weight)
        more = len(_numbered(stem, columns, weight)) - len(found)
        if more > 0:
            notes.append(f"{more} more columns {stem}* lie outside the replicate weights {pattern} and were not used.")
    elif any(mark in pattern for mark in "*?[]\\"):
        raise InputError(
            f"The replicate weights {pattern!r} are not a pattern this understands. Write 'NAME*', 'NAME1..NAME80' or "
            "the names separated by commas."
        )
    else:
        return _listed([pattern], columns, weight), ()
    if not found[0].startswith(stem):
        notes.append(f"The replicate weights {pattern} were read from columns spelled {found[0]} .. {found[-1]}.")
    return found, tuple(notes)


def _listed(names: Sequence[str], columns: Sequence[str], weight: str) -> tuple[str, ...]:
    lower = {column.lower() for column in columns}
    missing = [name for name in names if name.lower() not in lower]
    if len(missing) > 1:
        raise InputError(
            f"{len(missing)} of {len(names)} replicate weight columns are not in the data: {first_few(missing)}."
        )
    found = tuple(find_column(name, columns, "replicate weight")[0] for name in names)
    twice = [name for name in dict.fromkeys(found) if found.count(name) > 1]
    if twice:
        raise InputError(f"Replicate weights are listed more than once: {first_few(twice)}.")
    if weight in found:
        raise InputError(f"The main weight {weight!r} is listed among the replicate weights. Take it out of the list.")
    return found


def _numbered(stem: str, columns: Sequence[str], weight: str) -> list[tuple[int, str]]:
    """(number, column) of the columns ``stem`` + number: in any case, or in the exact case where numbers repeat."""
    any_case = sorted(
        (int(column[len(stem) :]), column)
        for column in columns
        if column.lower().startswith(stem.lower()) and column[len(stem) :].isdecimal() and column != weight
    )
    if len({number for number, _ in any_case}) == len(any_case):
        return any_case
    return [(number, column) for number, column in any_case if column.startswith(stem)]


def _run(stem: str, pattern: str, columns: Sequence[str], weight: str) -> tuple[str, ...]:
    """All columns of a stem, whose numbers must run without gap or repetition."""
    numbered = _numbered(stem, columns, weight)
    if not numbered:
        near = near_names(stem, [column for column in columns if column != weight])
        hint = f" Near names: {first_few(near)}." if near else ""
        raise InputError(
            f"No column fits the replicate weights {pattern!r}: a name that starts with {stem!r} and ends in a number, "
            f"the main weight aside.{hint}"
        )
    numbers = [number for number, _ in numbered]
    twice = [column for number, column in numbered if numbers.count(number) > 1]
    if twice:
        raise InputError(
            f"Several columns carry the same number among the replicate weights {pattern!r}: {first_few(twice)}. "
            "List the ones you mean by name."
        )
    gaps = sorted(set(range(min(numbers[0], 1), numbers[-1] + 1)) - set(numbers))
    if gaps:
        raise InputError(
            f"The replicate weights {pattern!r} are not complete: {len(numbers)} columns up to number {numbers[-1]}, "
            f"without {first_few(stem + str(gap) for gap in gaps)}. If that is meant, list them by name or as a range."
        )
    return tuple(column for _, column in numbered)
