"""Whatever holds the survey - files, a data frame, an Ibis table - as one Ibis table of the columns that are needed."""

from __future__ import annotations

import glob
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import duckdb
import ibis
import pandas as pd
import pyarrow as pa

from fhjax.errors import InputError, first_few
from fhjax.survey import labelled
from fhjax.survey.delimited import MISSING_NOTE, DelimitedFile
from fhjax.survey.example import example
from fhjax.survey.labelled import LabelledFile
from fhjax.survey.missing import MissingCodes, without_missing
from fhjax.survey.workspace import SourceFile, Wanted, Workspace, fingerprint, literal

_TEXT = (".csv", ".tsv", ".txt", ".tab", ".csv.gz", ".tsv.gz", ".txt.gz", ".tab.gz")
_PARQUET = (".parquet", ".pq")
_READABLE = (*_TEXT, *_PARQUET, *labelled.SUFFIXES)
_ACCEPTED = "CSV or TSV (plain, .gz or .zip), Parquet, SAS (.xpt, .sas7bdat), Stata (.dta), SPSS (.sav, .zsav)"
#: What to do with a file of another kind.
_OTHERS = {
    (".rds", ".rdata", ".rda"): "is an R file: in R, write it with arrow::write_parquet(x, 'survey.parquet')",
    (".xlsx", ".xls", ".ods"): "is a spreadsheet: save the sheet as CSV",
    (".dat", ".fwf", ".asc"): "may be fixed width: convert it with its layout, for example with pandas.read_fwf, to "
    "Parquet or CSV (a delimited file of this name is read after renaming it to .csv)",
    (".feather", ".arrow"): "is an Arrow file: pass pyarrow.feather.read_table(...), or write Parquet",
    (".json", ".jsonl"): "is JSON: write it as CSV or Parquet",
}
#: Backends that lack functions this package needs: their columns are read into the engine inside.
_READ_INTO_DUCKDB = ("sqlite", "mysql")


class Source(Protocol):
    """A place to read from: its column names at once, the needed columns as a table later."""

    columns: tuple[str, ...]
    files: tuple[SourceFile, ...]
    notes: list[str]

    def table(self, wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table: ...


class ParquetFile:
    """One Parquet file, read in place."""

    def __init__(self, path: Path, shown: str, work: Workspace) -> None:
        self.path, self.shown = path, shown
        try:
            found = work.execute(f"DESCRIBE SELECT * FROM read_parquet({literal(str(path))})").fetchall()
        except duckdb.Error as error:
            raise InputError(
                f"The file {shown} is not a readable Parquet file: {str(error).splitlines()[0]}"
            ) from error
        self.columns = tuple(row[0] for row in found)

        self.kinds = {row[0]: _broad(row[1]) for row in found}

    def stage(self, wanted: Sequence[Wanted], codes: MissingCodes) -> Path:
        return self.path


class FileSource:
    """One file or several part files with the same columns."""

    def __init__(
        self, paths: Sequence[str], *, delimiter: str | None, decimal: str | None, encoding: str | None
    ) -> None:
        self._work = Workspace()
        self._decimal = decimal or "."
        self.notes: list[str] = []
        options = {"delimiter": delimiter, "decimal": decimal, "encoding": encoding}
        files, parts = [], []
        for shown in paths:
            path = _existing(shown)
            files.append(fingerprint(path, shown))
            parts.extend(self._open(path, shown, **options))
        self._parts: list[DelimitedFile | LabelledFile | ParquetFile] = parts
        self.files = tuple(files)
        self.columns = parts[0].columns
        if any(isinstance(part, DelimitedFile) for part in parts):
            self.notes.append(MISSING_NOTE)
        else:
            given = [f"--{name}" for name, value in options.items() if value is not None]
            if isinstance(parts[0], LabelledFile) and "--encoding" in given:
                given.remove("--encoding")
            self.idle_options = tuple(given)

    idle_options: tuple[str, ...] = ()  # options for text that these files have no use for

    def table(self, wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table:
        for part in self._parts[1:]:
            missing = [item.column for item in wanted if item.column not in part.columns]
            if missing:
                raise InputError(
                    f"The part file {part.shown} lacks {len(missing)} of the {len(wanted)} columns needed: "
                    f"{first_few(missing)}. Part files must have the same columns."
                )
        for part in self._parts:
            _refuse_twins(part.columns, wanted, part.shown)
            labels = {item.column for item in wanted} & set(getattr(part, "labelled_columns", ()))
            if labels:
                self.notes.append(f"Value labels were not used, only the codes: {first_few(sorted(labels))}.")
        _refuse_mixed_types(self._parts, wanted)
        staged = [part.stage(wanted, codes) for part in self._parts]
        text = any(isinstance(part, DelimitedFile) for part in self._parts)
        free = [item.column for item in wanted if item.kind == "free"] if text else []
        return _with_nulls(self._work.parquet(staged, free, self._decimal), wanted, codes)

    def _open(self, path: Path, shown: str, **options: Any) -> Iterator[DelimitedFile | LabelledFile | ParquetFile]:
        suffix = _suffix(path.name)
        if suffix == ".zip":
            for member, extracted in self._unpack(path, shown):
                yield from self._open(extracted, f"{shown} ({member})", **options)
        elif suffix in _PARQUET:
            yield ParquetFile(path, shown, self._work)
        elif suffix in labelled.SUFFIXES:
            yield LabelledFile(path, shown, suffix, self._work, encoding=options["encoding"])
        elif suffix in _TEXT:
            yield DelimitedFile(path, shown, self._work, **options)
        else:
            advice = next((f" This one {text}." for endings, text in _OTHERS.items() if suffix in endings), "")
            raise InputError(f"The file {shown} has no ending that says what it is. Accepted are {_ACCEPTED}.{advice}")

    def _unpack(self, path: Path, shown: str) -> Iterator[tuple[str, Path]]:
        """The data members of a zip file, unpacked to the temporary folder; all CSV members count as part files."""
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise InputError(f"The file {shown} is not a readable zip file: {error}.") from error
        with archive:
            members = [name for name in archive.namelist() if not name.endswith("/") and "__MACOSX" not in name]
            # A read-me is often a .txt, so a .txt counts only when nothing else does; CDC's names end in a space.
            by_suffix = {name: _suffix(name.strip()) for name in members}
            chosen = [
                name for name in members if by_suffix[name] in _READABLE and not by_suffix[name].startswith(".txt")
            ]
            chosen = chosen or [name for name in members if by_suffix[name] in _TEXT]
            if not chosen:
                raise InputError(
                    f"The zip file {shown} holds no data file, only {first_few(members)}. Accepted: {_ACCEPTED}."
                )
            if len({_family(by_suffix[name]) for name in chosen}) > 1:
                raise InputError(
                    f"The zip file {shown} holds data files of different kinds: {first_few(chosen)}. "
                    "Unpack the one you mean."
                )
            passed = [name for name in members if name not in chosen]
            used = f"Read from {os.path.basename(shown)}: {', '.join(chosen)}"
            self.notes.append(f"{used}; passed over: {', '.join(passed)}." if passed else f"{used}.")
            for name in chosen:
                target = self._work.new_file(by_suffix[name])
                with archive.open(name) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                yield name.strip(), target


class FrameSource:
    """A pandas DataFrame, an Arrow table, or anything that offers itself as an Arrow stream."""

    def __init__(self, data: Any) -> None:
        self._data = data
        names = data.column_names if isinstance(data, pa.Table) else list(data.columns)
        self.columns = tuple(str(name) for name in names)
        self.files: tuple[SourceFile, ...] = ()
        self.notes: list[str] = []
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise InputError(f"{len(twice)} column names occur more than once in the data frame: {first_few(twice)}.")

    def table(self, wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table:
        _refuse_twins(self.columns, wanted, "the data frame")
        names = [item.column for item in wanted]
        if isinstance(self._data, pd.DataFrame):
            arrow = pa.table(
                [_series_to_arrow(self._data, self.columns.index(name), name) for name in names], names=names
            )
        else:
            arrow = pa.table(self._data).select(names)
        return _with_nulls(Workspace().arrow(arrow), wanted, codes)


class IbisSource:
    """An Ibis table of any backend; the work is done where it lives."""

    def __init__(self, table: ibis.Table) -> None:
        self._table = table
        self.columns = tuple(table.columns)
        self.files: tuple[SourceFile, ...] = ()
        self.notes: list[str] = []

    def table(self, wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table:
        _refuse_twins(self.columns, wanted, "the table")
        table = self._table.select([item.column for item in wanted])
        name = getattr(_backend(self._table), "name", "")
        if name in _READ_INTO_DUCKDB:
            self.notes.append(f"The columns were read from {name} into DuckDB, where the sums are made.")
            table = Workspace().arrow(table.to_pyarrow())
        return _with_nulls(table, wanted, codes)


def open_source(
    source: Any, *, delimiter: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> Source:
    """Find out what ``source`` is.

    Args:
        source: A path, ``"example:NAME"``, a glob such as ``"part*.csv"``, a list of these; a pandas DataFrame or Arrow
            table; or an Ibis table of any backend.

    Raises:
        InputError: When it is none of these, a file does not exist or has an unknown ending, or a data frame repeats a
            column name.
    """
    if isinstance(source, ibis.Table):
        return IbisSource(source)
    if isinstance(source, (pd.DataFrame, pa.Table)) or hasattr(source, "__arrow_c_stream__"):
        return FrameSource(source)
    entries = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, (str, os.PathLike)) for entry in entries):
        raise InputError(
            "A survey is read from a path, a list of paths, a data frame or an Ibis table, not "
            f"{type(source).__name__}."
        )
    paths = [path for entry in entries for path in _expand(os.fspath(entry))]
    if not paths:
        raise InputError("The list of files is empty.")
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise InputError(f"The same file is listed more than once: {first_few(twice)}.")
    return FileSource(paths, delimiter=delimiter, decimal=decimal, encoding=encoding)


def _backend(table: ibis.Table) -> Any:
    try:
        return table.get_backend()
    except Exception:  # a table without data of its own has none; Ibis then uses its default
        return None


def _broad(kind: object) -> str:
    """Text, a number, or something else: what must be the same in all part files."""
    name = str(kind).upper()
    if name.startswith(("VARCHAR", "STRING", "TEXT", "LARGE_STRING")):
        return "text"
    if any(word in name for word in ("INT", "DOUBLE", "FLOAT", "DECIMAL")):
        return "numbers"
    return name.lower()


def _refuse_mixed_types(parts: Sequence[DelimitedFile | LabelledFile | ParquetFile], wanted: Sequence[Wanted]) -> None:
    """A column is text in one part file and numbers in another: 03 and 3 would become two areas."""
    for item in wanted:
        seen: dict[str, str] = {}
        for part in parts:
            kinds = getattr(part, "kinds", None)
            if kinds is None and item.kind != "code":  # numbers of a text file are found by their looks
                continue
            seen.setdefault("text" if kinds is None else kinds[item.column], part.shown)
        seen.pop("null", None)
        if len(seen) > 1:
            where = " and ".join(f"{kind} in {shown}" for kind, shown in seen.items())
            raise InputError(
                f"The {item.role} column {item.column!r} holds {where}. Give it one type in all part files"
                + (", as text if the codes have leading zeros." if item.kind == "code" else ".")
            )


def _with_nulls(table: Any, wanted: Sequence[Wanted], codes: MissingCodes) -> ibis.Table:
    """NaN and declared codes as null, so that no comparison takes them for a large number."""
    changed = {}
    for item in wanted:
        column = table[item.column]
        declared = codes.of(item.column, answer=item.answer)
        # Weights are asked for NaN where they are checked, so that 80 columns are not rewritten here.
        if declared or (item.kind == "free" and column.type().is_floating()):
            changed[item.column] = without_missing(column, declared)
    return table.mutate(**changed) if changed else table


def _expand(entry: str) -> list[str]:
    if entry.startswith("example:") or Path(entry).exists() or not glob.has_magic(entry):
        return [entry]
    found = sorted(glob.glob(entry, recursive=True))
    if not found:
        raise InputError(f"No file fits the pattern {entry!r}.")
    return found


def _existing(shown: str) -> Path:
    path = example(shown.removeprefix("example:")) if shown.startswith("example:") else Path(shown)
    if path.is_dir():
        raise InputError(f"{shown} is a folder. Name its files, for example {str(path / '*.parquet')!r}.")
    if not path.is_file():
        raise InputError(f"There is no file {shown}.")
    if path.stat().st_size == 0:
        raise InputError(f"The file {shown} is empty.")
    return path


def _suffix(name: str) -> str:
    name = name.lower().rstrip()  # CDC's own file names end in a blank
    return "".join(Path(name).suffixes[-2:]) if name.endswith(".gz") else Path(name).suffix


def _family(suffix: str) -> str:
    return "text" if suffix in _TEXT else suffix


def _refuse_twins(columns: Sequence[str], wanted: Sequence[Wanted], shown: str) -> None:
    """Columns that repeat, or that SQL could not tell apart because it ignores case."""
    names = [item.column for item in wanted]
    twice = [name for name in names if columns.count(name) > 1]
    if twice:
        raise InputError(f"{len(twice)} column names occur more than once in {shown}: {first_few(twice)}.")
    lower = [name.lower() for name in names]
    clash = [name for name in names if lower.count(name.lower()) > 1]
    if clash:
        raise InputError(f"Columns needed from {shown} differ only in case: {first_few(clash)}. Rename one of them.")


def _series_to_arrow(frame: pd.DataFrame, position: int, name: str) -> pa.Array:
    series = frame.iloc[:, position]
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype if not series.isna().any() else object)
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"The column {name!r} of the data frame mixes types: {error}. Give it one type, e.g. with astype(str)."
        ) from error
