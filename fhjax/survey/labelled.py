"""SAS, Stata and SPSS files through pyreadstat, piece by piece into a temporary Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyreadstat

from fhjax.errors import InputError
from fhjax.survey.missing import MissingCodes
from fhjax.survey.workspace import Wanted, Workspace

_READERS = {
    ".xpt": pyreadstat.read_xport,
    ".sas7bdat": pyreadstat.read_sas7bdat,
    ".dta": pyreadstat.read_dta,
    ".sav": pyreadstat.read_sav,
    ".zsav": pyreadstat.read_sav,
}
SUFFIXES = tuple(_READERS)
_CHUNK_CELLS = 4_000_000
_INTEGERS = ("int8", "int16", "int32", "loffset")


class LabelledFile:
    """One SAS, Stata or SPSS file. Codes are read, not their labels; true zeros of XPT files stay zeros."""

    def __init__(self, path: Path, shown: str, suffix: str, work: Workspace, *, encoding: str | None) -> None:
        self.path, self.shown, self.work = path, shown, work
        self._reader = _READERS[suffix]
        self._options: dict[str, Any] = {"encoding": encoding} if encoding else {}
        try:
            _, self._meta = self._reader(str(path), metadataonly=True, **self._options)
        except Exception as error:
            raise self._unreadable(error) from error
        self.columns = tuple(self._meta.column_names)

    @property
    def labelled_columns(self) -> tuple[str, ...]:
        """Columns with value labels, of which the codes are used."""
        return tuple(self._meta.variable_value_labels)

    @property
    def kinds(self) -> dict[str, str]:
        """Text or numbers, by column."""
        types = self._meta.readstat_variable_types
        return {name: "text" if types[name] == "string" else "numbers" for name in self.columns}

    def stage(self, wanted: Sequence[Wanted], codes: MissingCodes) -> Path:
        """The wanted columns as a temporary Parquet file."""
        names = [item.column for item in wanted]
        schema = pa.schema([(name, self._arrow_type(name)) for name in names])
        target = self.work.new_file(".parquet")
        chunk = max(10_000, _CHUNK_CELLS // len(names))
        with pq.ParquetWriter(target, schema) as writer:
            offset = 0
            while True:
                try:
                    frame, _ = self._reader(
                        str(self.path),
                        usecols=names,
                        row_offset=offset,
                        row_limit=chunk,
                        disable_datetime_conversion=True,
                        **self._options,
                    )
                except Exception as error:
                    raise self._unreadable(error) from error
                if len(frame):
                    writer.write_table(
                        pa.table(
                            [pa.array(frame[name], type=schema.field(name).type, from_pandas=True) for name in names],
                            schema=schema,
                        )
                    )
                if len(frame) < chunk:
                    return target
                offset += chunk

    def _arrow_type(self, name: str) -> pa.DataType:
        kind = self._meta.readstat_variable_types[name]
        if kind == "string":
            return pa.string()
        return pa.int64() if kind in _INTEGERS else pa.float64()

    def _unreadable(self, error: Exception) -> InputError:
        hint = "" if self._options else " If it holds letters in an older encoding, pass encoding='cp1252'."
        return InputError(f"The file {self.shown} cannot be read: {error}.{hint}")
