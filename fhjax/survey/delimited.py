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
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import duckdb

from fhjax.errors import InputError, Problems, first_few
from fhjax.survey.missing import MissingCodes, numbers_among
from fhjax.survey.workspace import Wanted, Workspace, as_double, identifier, literal

_DELIMITERS = (",", ";", "\t", "|")
_DECIMAL_COMMA = re.compile(r"^\s*[-+]?[\d.]*,\d+\s*$")
_THOUSANDS = re.compile(r"^\s*[-+]?\d{1,3}(,\d{3})+(\.\d*)?\s*$")
_PIECE = 1 << 20
MISSING_NOTE = (
    "In the text file, empty fields and the words NaN and NA count as missing; in codes (areas, strata, PSUs, "
    "units) only empty fields do."
)
_NUMBERS_AS_NAMES = re.compile(r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$")
_FIXED_WIDTH = 20  # a header without a delimiter that is at least this long, and as long as the lines below it


class NotNumeric(InputError):
    """Columns that must hold numbers and do not; ``columns`` names them, so that a reader can go on without them."""

    def __init__(self, message: str, columns: tuple[str, ...]) -> None:
        super().__init__(message)
        self.columns = columns


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
        if "\r" in start and "\n" not in start:  # line ends of an old Macintosh
            self.path = _with_line_feeds(self.path, work)
            start = start.replace("\r", "\n")
        self.delimiter = delimiter or _guess_delimiter(start)
        self.columns = tuple(next(csv.reader(io.StringIO(start, newline=""), delimiter=self.delimiter), []))
        if not any(self.columns):
            raise InputError(f"The file {shown} is empty: it has no header line.")
        _refuse_no_header(self.columns, start, shown)

    def stage(self, wanted: Sequence[Wanted], codes: MissingCodes) -> Path:
        """The wanted columns as a temporary Parquet file: numbers as float64, codes and free columns as text.

        Raises
        ------
        InputError
            For text that is not UTF-8, ragged lines, or a number column that holds something else.
        """
        positions = {item.column: self.columns.index(item.column) for item in wanted}
        numbers = [item for item in wanted if item.kind == "number"]
        cells = {item.column: self._cell(item, f"c{positions[item.column]}", codes) for item in wanted}
        if self.decimal == ",":
            self._refuse_thousands([item for item in wanted if item.kind != "code"], positions)
        chosen = ", ".join(
            f"{self._number(cells[item.column]) if item.kind == 'number' else cells[item.column]} "
            f"AS {identifier(item.column)}"
            for item in wanted
        )
        target = self.work.new_file(".parquet")
        try:
            # Small row groups: DuckDB holds one a thread in memory, 80 replicate columns wide.
            options = "FORMAT parquet, ROW_GROUP_SIZE 20480"
            self.work.execute(f"COPY (SELECT {chosen} FROM {self._read()}) TO {literal(str(target))} ({options})")
        except duckdb.ConversionException as error:
            self._complain_about_numbers(numbers, cells)
            raise self._explain(error) from error
        except duckdb.Error as error:
            raise self._explain(error) from error
        return target

    def _cell(self, item: Wanted, cell: str, codes: MissingCodes) -> str:
        """SQL of a cell, null where it says that there is no value."""
        words = list(codes.of(item.column, answer=item.answer))
        numbers = numbers_among(words)
        if item.kind != "code":
            words += ["", *codes.words(item.column)]
            if "NaN" in codes.words(item.column):
                words += ["nan", "NAN"]
        if not words:
            return cell
        listed = ", ".join(literal(word) for word in words)
        absent = f"trim({cell}) IN ({listed})"
        if numbers:
            absent += f" OR {as_double(cell, self.decimal)} IN ({', '.join(map(repr, numbers))})"
        return f"CASE WHEN {absent} THEN NULL ELSE {cell} END"

    def _number(self, cell: str) -> str:
        """SQL of a cell as a number; text that is none is an error."""
        return as_double(cell, self.decimal).replace("TRY_CAST", "CAST", 1)

    def _read(self) -> str:
        """The file as an SQL table whose every column is named and text, so that nothing is sniffed."""
        types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self.columns)))
        return (
            f"read_csv({literal(str(self.path))}, auto_detect = false, columns = {{{types}}}, header = true, "
            f"delim = {literal(self.delimiter)}, quote = '\"', escape = '\"', "
            "strict_mode = true, null_padding = false, nullstr = '')"
        )

    def _refuse_thousands(self, wanted: Sequence[Wanted], positions: dict[str, int]) -> None:
        """Decimal commas that can only be thousands separators: each before three digits, whole numbers beside."""
        if not wanted:
            return
        tests = []
        for item in wanted:
            cell = f"trim(c{positions[item.column]})"
            comma = f"contains({cell}, ',')"
            grouped = f"regexp_full_match({cell}, '[-+]?[1-9]\\d{{0,2}}(,\\d{{3}})+')"
            whole = f"regexp_full_match({cell}, '[-+]?\\d{{1,3}}')"
            tests += [f"bool_and({grouped}) FILTER ({comma})", f"coalesce(bool_or({whole}), false)"]
        try:
            found = self.work.execute(f"SELECT {', '.join(tests)} FROM {self._read()}").fetchone()
        except duckdb.Error as error:
            raise self._explain(error) from error
        for item, grouped, whole in zip(wanted, found[::2], found[1::2], strict=True):
            if grouped and whole:
                raise InputError(
                    f"In the {item.role} column {item.column!r} every comma stands before exactly three digits, and "
                    "whole numbers below 1,000 stand beside: the comma separates thousands and is no decimal sign. "
                    "Write the numbers without it (and without decimal=',')."
                )

    def _complain_about_numbers(self, numbers: Sequence[Wanted], cells: dict[str, str]) -> None:
        """After a failed conversion: read as text, and name the number columns that are not numeric."""
        problems, bad_columns = Problems(), []
        for item in numbers:
            cell = cells[item.column]
            bad = f"{cell} IS NOT NULL AND {as_double(cell, self.decimal)} IS NULL"
            counts = f"SELECT count(*) FILTER ({bad}), count(*) FROM {self._read()}"
            count, total = self.work.execute(counts).fetchone()
            if count:
                rows = self.work.execute(f"SELECT DISTINCT {cell} FROM {self._read()} WHERE {bad} LIMIT 5").fetchall()
                examples = sorted(str(row[0]) for row in rows)
                problems.add(not_numeric(item.role, item.column, examples, count, total, self.decimal))
                bad_columns.append(item.column)
        try:
            problems.raise_if_any()
        except InputError as error:
            raise NotNumeric(str(error), tuple(bad_columns)) from error

    def _explain(self, error: duckdb.Error) -> InputError:
        if "invalid unicode" in str(error).lower():
            return _not_utf8(self.shown)
        return InputError(f"The file {self.shown} cannot be read: {_without_data(error)}")


def not_numeric(
    role: str, column: str, examples: Sequence[object], count: int, total: int, decimal: str | None = "."
) -> InputError:
    """The error for a column that must hold numbers and does not, with the way out its values suggest."""
    texts = [str(example) for example in examples]
    name = column if re.fullmatch(r"[A-Za-z_]\w*", column) else identifier(column)
    if decimal != "," and texts and all(_THOUSANDS.match(text) for text in texts):
        way = (
            "The comma separates thousands: write the numbers without it, or as the expression "
            f"CAST(replace({name}, ',', '') AS DOUBLE)."
        )
        if count == total:  # no plain whole number stands beside: it may as well be three decimals
            way += " If it is the decimal sign, pass decimal=','."
    elif decimal != "," and any(_DECIMAL_COMMA.match(text) for text in texts):
        way = "These look like decimal commas: pass decimal=','."
    elif role == "outcome":
        # In an expression the column is text where any of its values is, so this holds beside numbers too.
        way = (
            "If it is a yes/no answer, make it an expression that is true or false, such as "
            f"{name} = {literal(texts[-1] if texts else 'Yes')}; codes that mean no answer are declared as missing "
            f"(na={column}=...); otherwise make them numbers with TRY_CAST({name} AS DOUBLE)."
        )
    else:
        way = f"Correct the values, or make them numbers or missing with the expression TRY_CAST({name} AS DOUBLE)."
    return InputError(
        f"The {role} column {column!r} is not numeric in {count:,} of {total:,} rows, for example "
        f"{first_few(texts)}. {way}"
    )


def _not_utf8(shown: str) -> InputError:
    return InputError(
        f"The file {shown} is not UTF-8 text. If it was written on Windows pass encoding='cp1252', otherwise the name "
        "of its encoding. It is not guessed, since a wrong guess changes letters without a sign."
    )


def _without_data(error: Exception) -> str:
    """What the engine says, without the line of the file: a respondent's record is not for the screen."""
    text = str(error)
    line = re.search(r"Line: ?(\d+)", text)
    width = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    where = f"Line: {line[1]}. " if line else ""
    if width:
        return (
            f"{where}It has {int(width[2]):,} fields where the header has {int(width[1]):,}. Correct the line, or pass "
            "the delimiter if it was not found."
        )
    first = next((part for part in text.splitlines() if part.strip()), type(error).__name__)
    first = re.sub(r'"[^"]*"|\'[^\']*\'', "...", first).rstrip(".")
    return f"{where}{first}."


def _refuse_no_header(columns: Sequence[str], start: str, shown: str) -> None:
    """A first line that is data, said without showing it."""
    lines = start.split("\n")
    widths = {len(line.rstrip("\r")) for line in lines[:-1] if line.strip()}
    if len(columns) == 1 and len(lines) > 2 and len(widths) == 1 and min(widths) >= _FIXED_WIDTH:
        raise InputError(
            f"The file {shown} has no delimiter and lines of one length ({min(widths)} characters): it looks like "
            "fixed width. Convert it with its layout first, for example with pandas.read_fwf or R's "
            "readr::read_fwf, and write Parquet or CSV."
        )
    named = [name for name in columns if name.strip()]
    numbers = [name for name in named if _NUMBERS_AS_NAMES.match(name)]
    # Years may be names; fractions, and the same number twice, may not.
    if 2 * len(numbers) > len(named) > 1 and (len(set(numbers)) < len(numbers) or any("." in name for name in numbers)):
        raise InputError(
            f"The first line of {shown} looks like data, not like column names. Add a header line with one name a "
            "column."
        )


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


def _with_line_feeds(path: Path, work: Workspace) -> Path:
    target = work.new_file(".csv")
    with (
        io.TextIOWrapper(_binary(path), encoding="utf-8-sig", newline=None) as source,
        target.open("w", encoding="utf-8", newline="") as sink,
    ):
        while piece := source.read(_PIECE):
            sink.write(piece)
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
