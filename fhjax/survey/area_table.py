"""A table with one row an area, as codes and numbers: what covariates, populations and given estimates share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fhjax.errors import InputError, Problems, complain, first_few
from fhjax.records import FloatArray, Labels
from fhjax.survey import checks
from fhjax.survey.codes import code, decide
from fhjax.survey.evaluate import engine_errors, evaluate, number, word
from fhjax.survey.formats import open_source
from fhjax.survey.missing import Declared, missing_codes
from fhjax.survey.roles import as_names, parse_role
from fhjax.survey.workspace import SourceFile, to_frame


@dataclasses.dataclass(frozen=True)
class AreaTable:
    """Numbers by area, as read: one row an area, in the order of the labels."""

    labels: Labels
    values: dict[str, FloatArray]  # key -> (rows,), nan where the file has nothing
    texts: dict[str, tuple[str | None, ...]]  # optional text columns that the file has
    others: dict[str, FloatArray]  # optional number columns that the file has
    inputs: dict[str, dict[str, FloatArray]]  # key -> the number columns its expression reads, when asked for
    files: tuple[SourceFile, ...]
    notes: tuple[str, ...]


def read_area_table(
    source: Any,
    *,
    area: str | Sequence[str],
    numbers: dict[str, str],
    role: str | None = None,
    optional_texts: Sequence[str] = (),
    optional_numbers: Sequence[str] = (),
    inputs: Sequence[str] = (),
    missing: Declared = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> AreaTable:
    """Read number columns (or SQL expressions) of a table with one row an area.

    ``numbers`` maps a key to the column or expression, as in ``{"sampling_variance": "se * se"}``. Area codes are text
    and joined by ``|`` when several columns hold them. Messages call the numbers ``role``, or by their keys.
    ``optional_texts`` and ``optional_numbers`` are columns that are read when the file has them. ``missing`` as in
    :func:`fhjax.survey.read.open_survey`; codes without a column hold in none of these tables' columns. ``inputs``
    names keys of ``numbers`` whose numeric input
    columns are handed over too, for checks that an expression would hide from.

    Raises:
        InputError: Unknown columns, text where a number is needed, blank, float-like or repeated area codes, no row.
    """
    origin = open_source(source, delimiter=delimiter, decimal=decimal, encoding=encoding)
    texts = {f"area_{i}": name for i, name in enumerate(as_names(area), 1)}
    if not texts:
        raise InputError("Name at least one area column.")
    problems, roles = Problems(), {}
    keys = {f"number_{i}": key for i, key in enumerate(numbers)}
    for inner, (text, what) in (
        {key: (text, "area") for key, text in texts.items()}
        | {inner: (numbers[key], role or key.replace("_", " ")) for inner, key in keys.items()}
    ).items():
        with problems.caught():
            roles[inner] = parse_role(text, origin.columns, what)
    problems.raise_if_any()
    words = {f"text_{i}": name for i, name in enumerate(optional_texts) if name in origin.columns}
    more = {f"number_other_{i}": name for i, name in enumerate(optional_numbers) if name in origin.columns}
    read = dict.fromkeys(column for inner, key in keys.items() if key in inputs for column in roles[inner].inputs)
    seen = {f"seen_{i}": column for i, column in enumerate(read)}
    roles |= {
        inner: parse_role(name, origin.columns, name.replace("_", " ")) for inner, name in (words | more | seen).items()
    }
    raw: Any = evaluate(origin, roles, missing_codes(missing, origin.columns))
    names = {word(key): role.text for key, role in roles.items()}
    with engine_errors(names):
        codings, notes, cautions = decide(raw, {key: roles[key] for key in texts}, dict.fromkeys(texts, "area"))
        chosen = {key: code(raw[key], codings[key]) for key in texts}
        for inner in (*keys, *more):
            with problems.caught():
                chosen[inner] = number(raw, inner, roles[inner])
        problems.raise_if_any()
        chosen |= {inner: raw[inner].cast("string") for inner in words}
        seen = {inner: column for inner, column in seen.items() if raw[inner].type().is_numeric()}
        chosen |= {inner: raw[inner].cast("float64") for inner in seen}
        frame = to_frame(raw.select(**chosen))
    if not len(frame):
        raise InputError("The table of areas has no rows.")
    frame["records"] = 1
    checks.check_codes(frame, list(texts), list(texts.values()), len(frame), problems)
    problems.raise_if_any()
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
    others = {name: frame[inner].to_numpy(dtype=np.float64, na_value=np.nan) for inner, name in more.items()}
    noted = (*origin.notes, *(note for note in notes if "no leading zeros" not in note), *cautions)
    cells = {name: frame[inner].to_numpy(dtype=np.float64, na_value=np.nan) for inner, name in seen.items()}
    reads = {
        key: {name: cells[name] for name in roles[inner].inputs if name in cells}
        for inner, key in keys.items() if key in inputs
    }  # fmt: skip
    return AreaTable(Labels(joined), values, found, others, reads, origin.files, noted)


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
