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

    def parquet(self, paths: Sequence[Path]) -> ibis.Table:
        """Parquet files with the same columns as one table, read in place."""
        self._count += 1
        name = f"source{self._count}"
        files = ", ".join(literal(str(path)) for path in paths)
        self.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{files}], union_by_name = true)")
        return self.backend.table(name)

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


def literal(text: str) -> str:
    """Text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
