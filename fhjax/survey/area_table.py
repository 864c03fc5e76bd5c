"""A table with one row an area, as codes and numbers: what covariates, populations and given estimates share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fhjax.errors import InputError, complain, first_few
from fhjax.records import FloatArray, Labels
from fhjax.survey import checks
from fhjax.survey.formats import open_source
from fhjax.survey.read import code, engine_errors, evaluate, number, word
from fhjax.survey.roles import as_names, parse_role
from fhjax.survey.workspace import SourceFile, to_frame


@dataclasses.dataclass(frozen=True)
class AreaTable:
    """Numbers by area, as read: one row an area, in the order of the labels."""

    labels: Labels
    values: dict[str, FloatArray]  # key -> (rows,), nan where the file has nothing
    texts: dict[str, tuple[str | None, ...]]  # optional text columns that the file has
    files: tuple[SourceFile, ...]
    notes: tuple[str, ...]


def read_area_table(
    source: Any,
    *,
    area: str | Sequence[str],
    numbers: dict[str, str],
    role: str | None = None,
    optional_texts: Sequence[str] = (),
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> AreaTable:
    """Read number columns (or SQL expressions) of a table with one row an area.

    ``numbers`` maps a key to the column or expression, as in ``{"sampling_variance": "se * se"}``. Area codes are text
    and joined by ``|`` when several columns hold them. Messages call the numbers ``role``, or by their keys.
    ``optional_texts`` are text columns that are read when the file has them.

    Raises:
        InputError: Unknown columns, text where a number is needed, blank, float-like or repeated area codes, no row.
    """
    origin = open_source(source, delimiter=delimiter, decimal=decimal, encoding=encoding)
    texts = {f"area_{i}": name for i, name in enumerate(as_names(area), 1)}
    if not texts:
        raise InputError("Name at least one area column.")
    roles = {key: parse_role(text, origin.columns, "area") for key, text in texts.items()}
    keys = {f"number_{i}": key for i, key in enumerate(numbers)}
    roles |= {
        inner: parse_role(numbers[key], origin.columns, role or key.replace("_", " ")) for inner, key in keys.items()
    }
    words = {f"text_{i}": name for i, name in enumerate(optional_texts) if name in origin.columns}
    roles |= {inner: parse_role(name, origin.columns, name.replace("_", " ")) for inner, name in words.items()}
    raw: Any = evaluate(origin, roles)
    names = {word(key): role.text for key, role in roles.items()}
    with engine_errors(names):
        kinds = {key: raw[key].type() for key in texts}
        floating = {key: ("area", text) for key, text in texts.items() if kinds[key].is_floating()}
        checks.check_whole(raw, floating)
        chosen = {key: code(raw, key) for key in texts} | {key: number(raw, key, roles[key]) for key in keys}
        chosen |= {inner: raw[inner].cast("string") for inner in words}
        frame = to_frame(raw.select(**chosen))
    if not len(frame):
        raise InputError("The table of areas has no rows.")
    frame["records"] = 1
    checks.check_codes(frame, list(texts), list(texts.values()), len(frame))
    joined = checks.joined([frame[key].astype(str) for key in texts])
    twice = joined[joined.duplicated()].unique()
    if len(twice):
        raise complain("occur more than once", list(twice), "Keep one row for each area.")
    # An engine promises no order of rows; the labels give one.
    order = np.argsort(joined.to_numpy(dtype=str), kind="stable")
    frame, joined = frame.iloc[order], joined.iloc[order]
    values = {key: frame[inner].to_numpy(dtype=np.float64, na_value=np.nan) for inner, key in keys.items()}
    found = {
        name: tuple(frame[inner].astype(object).where(frame[inner].notna(), None)) for inner, name in words.items()
    }
    return AreaTable(Labels(joined), values, found, origin.files, tuple(origin.notes))


def rows_of(table: AreaTable, labels: Sequence[str], what: str) -> npt.NDArray[np.intp]:
    """Where each label stands in the table."""
    position = pd.Index(table.labels).get_indexer(pd.Index([str(label) for label in labels]))
    missing = [str(label) for label, row in zip(labels, position, strict=True) if row < 0]
    if missing:
        raise complain(
            f"of the survey have no {what}",
            missing,
            f"Add them to the table, whose codes look like {first_few(table.labels[:3])}; codes are compared as text, "
            "with leading zeros.",
        )
    return position


def refuse_undefined(values: FloatArray, labels: Sequence[str], what: str) -> None:
    names = Labels(labels)
    missing = names.where(np.isnan(values))
    if missing:
        raise complain(f"have a missing value of {what}", missing, "Fill it in, or drop these areas.")
    infinite = names.where(np.isinf(values))
    if infinite:
        raise complain(f"have an infinite value of {what}", infinite, "Correct it.")
