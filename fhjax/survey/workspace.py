"""One DuckDB connection and one temporary folder for each survey; both end with the last table that uses them."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import ibis

Kind = Literal["code", "number", "free"]


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """One file that was read: enough to tell later whether it is still the same."""

    path: str
    size: int  # bytes
    sha256: str


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A column to be read: a code stays text, a number must be one, a free column takes the type it looks like."""

    column: str
    kind: Kind
    role: str  # in words, for messages: "weight", "area", ...
    answer: bool = False  # only the outcome or the filter reads it, so codes declared as missing for answers hold


class Workspace:
    """A private DuckDB connection whose temporary files are deleted when nothing uses it any more, or at exit."""

    def __init__(self) -> None:
        self.backend: Any = ibis.duckdb.connect()
        self._folder = tempfile.TemporaryDirectory(prefix="fhjax-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        # Ibis tables hold the backend, so the folder lives exactly as long as a table that reads from it.
        self.backend._fhjax_folder = self._folder
        self.execute(f"SET temp_directory = {literal(str(self.folder / 'spill'))}")
        self.execute("SET autoinstall_known_extensions = false")
        self.execute("SET preserve_insertion_order = false")
        self._count = 0

    def execute(self, sql: str) -> Any:
        """Run SQL on the raw connection."""
        return self.backend.con.execute(sql)

    def new_file(self, suffix: str) -> Path:
        """A path in the temporary folder that is not in use."""
        self._count += 1
        return self.folder / f"part{self._count:04d}{suffix}"

    def parquet(self, paths: Sequence[Path], free: Sequence[str] = (), decimal: str = ".") -> ibis.Table:
        """Parquet files with the same columns as one table, read in place.

        Text columns in ``free`` take the type that all their values have: true/false, whole numbers, numbers; or they
        stay text, as do codes with leading zeros and whole numbers too long for a float64.
        """
        self._count += 1
        name = f"source{self._count}"
        read = f"read_parquet([{', '.join(literal(str(path)) for path in paths)}], union_by_name = true)"
        types = {row[0]: row[1] for row in self.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()}
        free = [column for column in free if types[column] == "VARCHAR"]
        casts = []
        for column, cast in zip(free, self._casts(read, free, decimal), strict=True):
            casts += [f"{cast} AS {identifier(column)}"] if cast else []
        replace = f" REPLACE ({', '.join(casts)})" if casts else ""
        self.execute(f"CREATE TEMP VIEW {name} AS SELECT *{replace} FROM {read}")
        return self.backend.table(name)

    def _casts(self, read: str, columns: Sequence[str], decimal: str) -> list[str | None]:
        """For each text column the SQL that gives it the type of all its values, or None when that is text."""
        if not columns:
            return []
        tests = []
        for column in map(identifier, columns):
            value = as_double(column, decimal)
            long_or_code = f"regexp_matches({column}, '^[-+]?(0\\d|\\d{{16}})')"
            tests += [
                f"bool_and(lower({column}) IN ('true', 'false'))",
                f"bool_and({value} IS NOT NULL AND NOT {long_or_code}) FILTER ({column} IS NOT NULL)",
                f"bool_and({value} = floor({value}) AND isfinite({value}))",
            ]
        found = self.execute(f"SELECT {', '.join(tests)} FROM {read}").fetchone()
        casts: list[str | None] = []
        for i, column in enumerate(map(identifier, columns)):
            flag, numeric, whole = found[3 * i : 3 * i + 3]
            if flag:
                casts.append(f"CAST({column} AS BOOLEAN)")
            elif numeric is False:
                casts.append(None)
            else:
                value = as_double(column, decimal)
                casts.append(f"CAST({value} AS BIGINT)" if whole else value)
        return casts

    def arrow(self, data: Any) -> ibis.Table:
        """An Arrow table, without a copy."""
        self._count += 1
        name = f"source{self._count}"
        self.backend.con.register(name, data)
        return self.backend.table(name)


def to_frame(expression: Any) -> Any:
    """The result of an Ibis query as a data frame, by way of Arrow (Ibis' own way warns under pandas 3)."""
    return expression.to_pyarrow().to_pandas()


def fingerprint(path: Path, shown: str) -> SourceFile:
    """Size and SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return SourceFile(shown, path.stat().st_size, digest)


def as_double(column: str, decimal: str) -> str:
    """SQL for the number a text holds, null when it holds none. The other sign than the decimal is never accepted."""
    return f"TRY_CAST(translate({column}, '.,', '?.') AS DOUBLE)" if decimal == "," else f"TRY_CAST({column} AS DOUBLE)"


def literal(text: str) -> str:
    """Text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
