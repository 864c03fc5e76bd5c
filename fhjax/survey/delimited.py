"""CSV, TSV and their like: header, delimiter and encoding are settled first, then DuckDB streams what is needed, once.

Nothing is guessed row by row: with every column named and typed, a ragged line or a value that is not a number is an
error that says where, never a skipped row. The columns land in a temporary Parquet file, so that the passes that follow
(checks, sums) do not parse text again.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO

import duckdb

from fhjax.errors import InputError, first_few
from fhjax.survey.workspace import Wanted, Workspace, as_double, identifier, literal

_DELIMITERS = (",", ";", "\t", "|")
_DECIMAL_COMMA = re.compile(r"^\s*[-+]?[\d.]*,\d+\s*$")
_THOUSANDS = re.compile(r"^\s*[-+]?\d{1,3}(,\d{3})+(\.\d*)?\s*$")
_PIECE = 1 << 20
MISSING_NOTE = "In the text file, empty fields and the text NA count as missing."


class DelimitedFile:
    """One delimited text file: its header and delimiter, ready to be staged."""

    def __init__(
        self,
        path: Path,
        shown: str,
        work: Workspace,
        *,
        delimiter: str | None,
        decimal: str | None,
        encoding: str | None,
    ) -> None:
        if decimal not in (None, ".", ","):
            raise InputError(f"The decimal sign must be '.' or ',', not {decimal!r}.")
        if delimiter is not None and len(delimiter) != 1:
            raise InputError(f"The delimiter must be one character, not {delimiter!r}.")
        self.shown, self.work, self.decimal = shown, work, decimal or "."
        self.path = _as_utf8(path, shown, work, encoding)
        start = _first_line(self.path, shown)
        self.delimiter = delimiter or _guess_delimiter(start)
        self.columns = tuple(next(csv.reader(io.StringIO(start, newline=""), delimiter=self.delimiter), []))
        if not any(self.columns):
            raise InputError(f"The file {shown} is empty: it has no header line.")

    def stage(self, wanted: Sequence[Wanted]) -> Path:
        """The wanted columns as a temporary Parquet file: numbers as float64, codes and free columns as text.

        Raises
        ------
        InputError
            For text that is not UTF-8, ragged lines, or a number column that holds something else.
        """
        positions = {item.column: self.columns.index(item.column) for item in wanted}
        numbers = [item for item in wanted if item.kind == "number"]
        chosen = ", ".join(f"c{positions[item.column]} AS {identifier(item.column)}" for item in wanted)
        read = self._read({positions[item.column] for item in numbers})
        target = self.work.new_file(".parquet")
        try:
            # Small row groups: DuckDB holds one a thread in memory, 80 replicate columns wide.
            options = "FORMAT parquet, ROW_GROUP_SIZE 20480"
            self.work.execute(f"COPY (SELECT {chosen} FROM {read}) TO {literal(str(target))} ({options})")
        except duckdb.ConversionException as error:
            self._complain_about_numbers(numbers, positions)
            raise self._explain(error) from error
        except duckdb.Error as error:
            raise self._explain(error) from error
        return target

    def _read(self, numbers: Collection[int] = ()) -> str:
        """The file as an SQL table whose every column is named and typed, so that nothing is sniffed."""
        types = ", ".join(f"'c{i}': '{'DOUBLE' if i in numbers else 'VARCHAR'}'" for i in range(len(self.columns)))
        return (
            f"read_csv({literal(str(self.path))}, auto_detect = false, columns = {{{types}}}, header = true, "
            f"delim = {literal(self.delimiter)}, quote = '\"', escape = '\"', decimal_separator = '{self.decimal}', "
            "strict_mode = true, null_padding = false, nullstr = ['', 'NA'])"
        )

    def _complain_about_numbers(self, numbers: Sequence[Wanted], positions: dict[str, int]) -> None:
        """After a failed conversion: read as text, and name the first number column that is not numeric."""
        for item in numbers:
            cell = f"c{positions[item.column]}"
            bad = f"{cell} IS NOT NULL AND {as_double(cell, self.decimal)} IS NULL"
            counts = f"SELECT count(*) FILTER ({bad}), count(*) FROM {self._read()}"
            count, total = self.work.execute(counts).fetchone()
            if count:
                rows = self.work.execute(f"SELECT DISTINCT {cell} FROM {self._read()} WHERE {bad} LIMIT 5").fetchall()
                raise not_numeric(item.role, item.column, [row[0] for row in rows], count, total, self.decimal)

    def _explain(self, error: duckdb.Error) -> InputError:
        if "invalid unicode" in str(error).lower():
            return _not_utf8(self.shown)
        return InputError(f"The file {self.shown} cannot be read: {_first_lines(error)}")


def not_numeric(
    role: str, column: str, examples: Sequence[object], count: int, total: int, decimal: str | None = "."
) -> InputError:
    """The error for a column that must hold numbers and does not, with the way out its values suggest."""
    texts = [str(example) for example in examples]
    if decimal != "," and any(_THOUSANDS.match(text) for text in texts):
        way = (
            "If the comma separates thousands, write the numbers without it or as the expression "
            f"CAST(replace({column}, ',', '') AS DOUBLE); if it is the decimal sign, pass decimal=','."
        )
    elif decimal != "," and any(_DECIMAL_COMMA.match(text) for text in texts):
        way = "These look like decimal commas: pass decimal=','."
    elif role == "outcome":
        way = (
            "If it is a yes/no answer, make it an expression that is true or false, such as "
            f"{column} = {literal(texts[-1] if texts else 'Yes')}; otherwise correct the values, or make them numbers "
            "or missing with TRY_CAST(... AS DOUBLE)."
        )
    else:
        way = (
            "Correct the values, or make them numbers or missing with an SQL expression, e.g. TRY_CAST(... AS DOUBLE)."
        )
    return InputError(
        f"The {role} column {column!r} is not numeric in {count:,} of {total:,} rows, for example "
        f"{first_few(texts)}. {way}"
    )


def _not_utf8(shown: str) -> InputError:
    return InputError(
        f"The file {shown} is not UTF-8 text. If it was written on Windows pass encoding='cp1252', otherwise the name "
        "of its encoding. It is not guessed, since a wrong guess changes letters without a sign."
    )


def _first_lines(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])


def _binary(path: Path) -> BinaryIO:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _as_utf8(path: Path, shown: str, work: Workspace, encoding: str | None) -> Path:
    """The file itself when it is UTF-8, or a transcoded temporary copy, written in pieces."""
    try:
        name = codecs.lookup(encoding or "utf-8").name
    except LookupError as error:
        raise InputError(f"There is no encoding called {encoding!r}. Try 'cp1252' or 'utf-16'.") from error
    if name in ("utf-8", "utf-8-sig", "ascii"):
        return path
    target = work.new_file(".csv")
    try:
        with (
            io.TextIOWrapper(_binary(path), encoding=name, newline="") as source,
            target.open("w", encoding="utf-8", newline="") as sink,
        ):
            while piece := source.read(_PIECE):
                sink.write(piece)
    except UnicodeError as error:
        raise InputError(f"The file {shown} is not {encoding} text: {error}.") from error
    return target


def _first_line(path: Path, shown: str) -> str:
    """The header record and a little more, decoded."""
    try:
        with _binary(path) as stream:
            start = stream.read(_PIECE)
    except (OSError, EOFError) as error:
        raise InputError(f"The file {shown} cannot be unpacked: {error}.") from error
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InputError(f"The file {shown} is UTF-16 text. Pass encoding='utf-16'.")
    try:
        # The last line of the piece may be cut inside a letter.
        return start[: start.rfind(b"\n") + 1 or None].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(shown) from error


def _guess_delimiter(start: str) -> str:
    header = start.split("\n", 1)[0]
    widths = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in _DELIMITERS}
    return max(_DELIMITERS, key=lambda mark: widths[mark])
