"""What is known of the areas from elsewhere: covariates, population sizes, and plain lists of numbers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fhjax.errors import InputError, complain, first_few
from fhjax.records import FloatArray, Labels
from fhjax.survey.area_level import read_area_level
from fhjax.survey.area_table import read_area_table, refuse_undefined, rows_of
from fhjax.survey.roles import as_names
from fhjax.survey.workspace import SourceFile

__all__ = ["Covariates", "read_area_level", "read_covariates", "read_numbers", "read_population"]


@dataclasses.dataclass(frozen=True, eq=False)
class Covariates:
    """Covariates of m areas, without the intercept, which the model adds; unpacks as ``X, columns``."""

    X: FloatArray  # (m, p)
    columns: tuple[str, ...]  # (p,)
    extra_areas: tuple[str, ...] = ()  # areas of the table that the survey does not have; not used
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.columns))


def read_covariates(
    source: Any,
    *,
    area: str | Sequence[str],
    columns: str | Sequence[str],
    labels: Sequence[str],
    **options: Any,
) -> Covariates:
    """Area covariates in the order of the survey's areas.

    Args:
        source: As in :func:`fhjax.survey.read.open_survey`.
        area: The column (or columns) of area codes, text like the survey's.
        columns: Covariate columns or SQL expressions, e.g. ``["share_rent", "ln(pop)"]``.
        labels: The m areas, in the order wanted.
        options: ``delimiter``, ``decimal``, ``encoding`` of a text file.

    Returns:
        Covariates: Unpacks as ``X, columns``.

    Raises:
        InputError: Repeated areas, areas without covariates, missing or infinite values, text, or a constant column,
            which the model's intercept already is. Collinearity is judged by the model.

    Examples:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"area": ["02", "01", "03"], "rent": [0.5, 0.25, 1.0]})
        >>> found = read_covariates(table, area="area", columns="rent", labels=["01", "02"])
        >>> found.X.tolist(), found.columns, found.extra_areas
        ([[0.25], [0.5]], ('rent',), ('03',))
    """
    names = as_names(columns)
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise InputError(f"Covariates are listed more than once: {first_few(repeated)}.")
    if not names:
        raise InputError("No covariate is named: name a column, or leave the covariates out for an intercept alone.")
    table = read_area_table(source, area=area, numbers={name: name for name in names}, role="covariate", **options)
    rows = rows_of(table, labels, "covariates")
    X = np.column_stack([table.values[name][rows] for name in names])
    for j, name in enumerate(names):
        refuse_undefined(X[:, j], labels, f"the covariate {name!r}")
        if len(rows) > 1 and np.all(X[:, j] == X[0, j]):
            raise InputError(
                f"The covariate {name!r} is {X[0, j]:g} in every area, which is what the model's intercept already "
                "says. Drop the column."
            )
    known = set(labels)
    extra = tuple(label for label in table.labels if label not in known)
    notes = list(table.notes)
    if extra:
        notes.append(f"{len(extra):,} areas of the covariate table are not in the survey: {first_few(extra)}.")
    return Covariates(X=X, columns=names, extra_areas=extra, files=table.files, notes=tuple(notes))


def read_population(
    source: Any, *, area: str | Sequence[str], column: str, labels: Sequence[str] | None = None, **options: Any
) -> dict[str, float]:
    """Known population sizes N_i, in persons, by area label: what Horvitz-Thompson means divide by.

    With ``labels`` only those areas are returned, in that order; otherwise all, in label order.

    Raises:
        InputError: Repeated areas, areas of ``labels`` without a row, sizes that are missing, infinite or not above 0.

    Examples:
        >>> import pandas as pd
        >>> read_population(pd.DataFrame({"area": ["a", "b"], "N": [10, 20]}), area="area", column="N")
        {'a': 10.0, 'b': 20.0}
    """
    table = read_area_table(source, area=area, numbers={"population": column}, **options)
    wanted = table.labels if labels is None else Labels(labels)
    sizes = table.values["population"][rows_of(table, wanted, "population")]
    refuse_undefined(sizes, wanted, f"the population {column!r}")
    low = wanted.where(sizes <= 0)
    if low:
        raise complain(f"have a population ({column}) of 0 or less", low, "Correct it, or drop these areas.")
    return dict(zip(wanted, sizes.tolist(), strict=True))


def read_numbers(source: Any) -> FloatArray:
    """Numbers from a text file with one a row (a first line of words is a header), or from a sequence.

    Raises:
        InputError: No number, or a row that is not one finite number (its line is named).

    Examples:
        >>> read_numbers([0.5, 0.25]).tolist()
        [0.5, 0.25]
    """
    if isinstance(source, (str, os.PathLike)):
        try:
            with open(source, encoding="utf-8-sig") as stream:
                lines = [(i, line.strip().strip('"')) for i, line in enumerate(stream, 1) if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The file of numbers {os.fspath(source)!r} cannot be read: {error}.") from error
        if lines and _number_or_none(lines[0][1]) is None and any(letter.isalpha() for letter in lines[0][1]):
            lines = lines[1:]
        rows = [(f"line {i}: {text}", _number_or_none(text)) for i, text in lines]
    else:
        rows = [(f"number {i}: {value}", _number_or_none(value)) for i, value in enumerate(source, 1)]
    bad = [shown for shown, value in rows if value is None]
    if bad:
        raise complain("are not one finite number", bad, "Write one number a row, with a decimal point.", noun="row")
    if not rows:
        raise InputError("There are no numbers to read.")
    return np.array([value for _, value in rows], dtype=np.float64)


def _number_or_none(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
