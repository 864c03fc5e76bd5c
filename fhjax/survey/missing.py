"""Which values say that there is none: blanks, the words of the default list, and the codes that a user declares."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import ibis

from fhjax.errors import InputError
from fhjax.survey.roles import find_column

#: Words of a text file that count as missing where a number or an answer is read. Codes are text: there they are codes.
DEFAULT_WORDS = ("NA", "NaN")
_BY_COLUMN = re.compile(r"^\s*(?P<column>[^=<>!]+?)\s*=(?P<codes>.*)$")

Declared = str | Sequence[str] | Mapping[str | None, Sequence[Any]] | None


@dataclasses.dataclass(frozen=True)
class MissingCodes:
    """The codes that were declared as missing.

    ``everywhere`` holds in the columns that only the outcome and the filter read: a 9 is an answer there and may be an
    area elsewhere. ``by_column`` holds in the column it names, whatever reads it, and stands instead of the default
    words there.
    """

    everywhere: tuple[str, ...] = ()
    by_column: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def of(self, column: str, *, answer: bool) -> tuple[str, ...]:
        """The declared codes of one column."""
        if column in self.by_column:
            return self.by_column[column]
        return self.everywhere if answer else ()

    def words(self, column: str) -> tuple[str, ...]:
        """The default words that hold in one column of a text file."""
        return () if column in self.by_column else DEFAULT_WORDS

    def notes(self) -> list[str]:
        said = []
        if self.everywhere:
            said.append(
                f"In the columns that the outcome and the filter read, {', '.join(self.everywhere)} count as missing."
            )
        said += [
            f"In {column}, {', '.join(codes)} count as missing." if codes else f"In {column} no word counts as missing."
            for column, codes in self.by_column.items()
        ]
        return said


def missing_codes(declared: Declared, columns: Sequence[str]) -> MissingCodes:
    """What ``missing=`` or ``--na`` declares: ``"7,9,-9"``, ``"income=99999998"``, a list of these, or a mapping.

    Raises:
        InputError: a column that is not in the data, or a list without a code.

    Examples:
        >>> missing_codes(["7,9", "income=-1,-2"], ["income", "y"])
        MissingCodes(everywhere=('7', '9'), by_column={'income': ('-1', '-2')})
    """
    if declared is None:
        return MissingCodes()
    everywhere: list[str] = []
    by_column: dict[str, tuple[str, ...]] = {}
    if isinstance(declared, Mapping):
        pieces = [(column, [str(code).strip() for code in _several(codes)]) for column, codes in declared.items()]
    else:
        pieces = []
        for text in [declared] if isinstance(declared, str) else declared:
            named = _BY_COLUMN.match(str(text))
            codes = (named["codes"] if named else str(text)).split(",")
            pieces.append((named["column"] if named else None, [code.strip() for code in codes if code.strip()]))
    for column, codes in pieces:
        if column is not None:
            name, _ = find_column(column, columns, "missing codes (na)")
            by_column[name] = (*by_column.get(name, ()), *codes)
        elif not codes:
            raise InputError("The list of missing codes is empty. Name codes such as '7,9', or a column: 'income=-9'.")
        else:
            everywhere += codes
    return MissingCodes(tuple(dict.fromkeys(everywhere)), by_column)


def _several(codes: Any) -> Sequence[Any]:
    return [codes] if isinstance(codes, str | int | float) else codes


def numbers_among(codes: Sequence[str]) -> list[float]:
    """Those codes that are numbers: -9 is also -9.0, in whatever type the column comes."""
    found = []
    for code in codes:
        try:
            found.append(float(code))
        except ValueError:
            continue
    return [number for number in found if number == number]


def without_missing(column: Any, codes: Sequence[str]) -> Any:
    """An Ibis column with null where it holds a declared code or, among floating-point numbers, NaN."""
    kind = column.type()
    if kind.is_floating():
        column = ibis.ifelse(column.isnan(), ibis.null(kind), column)
    if not codes:
        return column
    if kind.is_string():
        return ibis.ifelse(column.strip().isin(list(codes)), ibis.null(kind), column)
    numbers = numbers_among(codes)
    if kind.is_numeric() and numbers:
        return ibis.ifelse(column.cast("float64").isin(numbers), ibis.null(kind), column)
    return column
