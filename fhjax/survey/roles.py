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

_RANGE = re.compile(
    r"^(?P<stem>.*?)(?P<first>\d+)(?P<tail>[^\d.:-]*)\s*(?:\.\.\.?|-|:)\s*(?P<stem2>.*?)(?P<last>\d+)(?P<tail2>[^\d]*)$"
)
# What the regular expressions of other packages write where this one takes a star.
_STAR = re.compile(r"(\*|\[0-9\][+*]|\\d[+*])(?P<tail>[^*\\\[\]]*?)\$?$")


def near_names(name: str, columns: Iterable[str], limit: int = 3) -> list[str]:
    """Columns a person may have meant: same letters in another case first, then similar spellings.

    Examples:
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

    Examples:
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
    # SQL of what it reads (columns, casts that may fail) without which the expression could still give a value, though
    # it does not test whether that is missing.
    unguarded: tuple[str, ...] = ()
    # What its values lie between whatever the data are: (0, 1) of a comparison, the least and the largest literal of a
    # CASE. None when only the data could tell.
    static_bounds: tuple[float, float] | None = None

    @property
    def guarded_sql(self) -> str:
        """The expression, missing wherever a column it reads without testing is missing."""
        if not self.unguarded:
            return self.sql
        absent = " OR ".join(f"{read} IS NULL" for read in self.unguarded)
        return f"CASE WHEN {absent} THEN NULL ELSE ({self.sql}) END"


def parse_role(text: str, columns: Sequence[str], role: str) -> Role:
    """A column name, or an SQL expression of the columns of one record such as ``POVPIP < 100``.

    Raises:
        InputError: When it is neither, names an unknown column, or looks at more than one record (aggregates, window
            functions, subqueries) or at chance (``random()``): an outcome must be a fact about one record alone.

    Examples:
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
    return Role(
        role,
        text,
        None,
        tree.sql(dialect="duckdb"),
        tuple(inputs),
        tuple(notes),
        unguarded=_unguarded(tree, tuple(inputs)),
        static_bounds=_static_bounds(tree),
    )


#: Expressions that are missing where one of their inputs is: nothing needs to be guarded.
_STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Paren, exp.Neg, exp.Not, exp.Between, exp.Cast, exp.EQ,
    exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.DataType,
)  # fmt: skip
#: Expressions that ask whether something is missing: the columns in them are the author's own business.
_TESTS = (exp.Coalesce, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nvl2)


def _unguarded(tree: exp.Expression, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """What the expression reads and neither passes on when it is missing nor tests for it."""
    if all(isinstance(node, _STRICT) for node in tree.walk()):
        return ()
    tests = [
        *tree.find_all(*_TESTS),
        *(node for node in tree.find_all(exp.Is) if isinstance(node.expression, exp.Null)),
    ]
    tested = {column.name for test in tests for column in test.find_all(exp.Column)}
    reads = [_quoted(column) for column in inputs if column not in tested]
    for cast in tree.find_all(exp.TryCast):
        if not {column.name for column in cast.find_all(exp.Column)} & tested:
            reads.append(cast.sql(dialect="duckdb"))
    return tuple(dict.fromkeys(reads))


def _static_bounds(tree: exp.Expression) -> tuple[float, float] | None:
    """The least and largest value that an expression can have, read off its text alone."""
    if isinstance(tree, (exp.Paren, exp.Cast, exp.TryCast)):
        whole = not isinstance(tree, exp.Cast) or tree.to.is_type(*exp.DataType.NUMERIC_TYPES, "boolean")
        return _static_bounds(tree.this) if whole else None
    if isinstance(tree, exp.Neg):
        inner = _static_bounds(tree.this)
        return None if inner is None else (-inner[1], -inner[0])
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return float(tree.this), float(tree.this)
    if isinstance(tree, (exp.Predicate, exp.Boolean, exp.Not, exp.And, exp.Or, exp.In, exp.Between)) and not isinstance(
        tree, (exp.Case, exp.If)
    ):
        return 0.0, 1.0
    if isinstance(tree, exp.Coalesce):
        branches = [tree.this, *tree.expressions]
    elif isinstance(tree, exp.Case):
        branches = [branch.args.get("true") for branch in tree.args.get("ifs", [])] + [tree.args.get("default")]
    elif isinstance(tree, exp.If):
        branches = [tree.args.get("true"), tree.args.get("false")]
    else:
        return None
    found = [_static_bounds(branch) for branch in branches if branch is not None and not isinstance(branch, exp.Null)]
    known = [bounds for bounds in found if bounds is not None]
    if not known or len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


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
            weight is never among them), either with an ending after the number (``"PWGTP*_trimmed"``), ``"r1, r2, r3"``
            or a list of names. The case given is tried first, then any case.
        columns: The columns of the data.
        weight: The main weight.

    Raises:
        InputError: No column fits, numbers are missing in between or occur twice, or the main weight is listed.

    Examples:
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
        stem, tail = pattern[: star.start()].lstrip("^"), star["tail"]
        found = _run(stem, tail, pattern, columns, weight)
    elif (
        span is not None
        and span["stem"].lower() == span["stem2"].lower()
        and span["tail"].lower() == span["tail2"].lower()
    ):
        stem, tail, first, last = span["stem"], span["tail"], int(span["first"]), int(span["last"])
        if last < first:
            raise InputError(f"The replicate weights {pattern!r} run backwards, from {first} to {last}.")
        width = len(span["first"]) if span["first"].startswith("0") else 0
        found = _listed([f"{stem}{number:0{width}d}{tail}" for number in range(first, last + 1)], columns, weight)
        more = len(_numbered(stem, columns, weight, tail)) - len(found)
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


def _numbered(stem: str, columns: Sequence[str], weight: str, tail: str = "") -> list[tuple[int, str]]:
    """(number, column) of the columns stem + number + tail: in any case, or in the exact case where numbers repeat."""

    def middle(column: str) -> str:
        fits = column.lower().startswith(stem.lower()) and column.lower().endswith(tail.lower())
        return column[len(stem) : len(column) - len(tail)] if fits else ""

    any_case = sorted((int(middle(name)), name) for name in columns if middle(name).isdecimal() and name != weight)
    if len({number for number, _ in any_case}) == len(any_case):
        return any_case
    return [(number, name) for number, name in any_case if name.startswith(stem) and name.endswith(tail)]


def left_out(found: Sequence[str], columns: Sequence[str], weight: str) -> tuple[str, ...]:
    """Columns that look like more replicates of the same set: the same name with other numbers."""
    shapes = {_NUMBER.sub("#", name, count=1) for name in found if _NUMBER.search(name)}
    if len(shapes) != 1:
        return ()
    used = set(found)
    return tuple(
        column
        for column in columns
        if column not in used and column != weight and _NUMBER.search(column)
        and _NUMBER.sub("#", column, count=1) in shapes
    )  # fmt: skip


_NUMBER = re.compile(r"\d+(?=\D*$)")


def _run(stem: str, tail: str, pattern: str, columns: Sequence[str], weight: str) -> tuple[str, ...]:
    """All columns of a stem, whose numbers must run without gap or repetition."""
    numbered = _numbered(stem, columns, weight, tail)
    if not numbered:
        near = near_names(stem, [column for column in columns if column != weight])
        hint = f" Near names: {first_few(near)}." if near else ""
        ending = f" and {tail!r}" if tail else ""
        raise InputError(
            f"No column fits the replicate weights {pattern!r}: a name that starts with {stem!r} and ends in a "
            f"number{ending}, the main weight aside.{hint}"
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
            f"without {first_few(stem + str(gap) + tail for gap in gaps)}. If that is meant, list them by name or as a "
            "range."
        )
    return tuple(column for _, column in numbered)
