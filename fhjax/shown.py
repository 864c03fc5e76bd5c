"""How a record looks: on one line, in a notebook, and as a table with one row an area."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import Any

import numpy as np
import pandas as pd

_ROWS_IN_NOTEBOOK = 10
_TEXT = 60


def short(record: Any) -> str:
    """``AreaData(y: 24, X: 24 x 1, columns: '(Intercept)')``: names and shapes, never a million numbers.

    Examples:
        >>> import fhjax
        >>> fhjax.area_data([0.2, 0.1, 0.3], [0.01, 0.02, 0.01], labels=["a", "b", "c"])
        AreaData(y: 3, sampling_variance: 3, X: 3 x 1, labels: 3, columns: 1, variance_source: 'estimated')
    """
    parts = (f"{name}: {text}" for name, text in _described(record))
    return f"{type(record).__name__}({', '.join(parts)})"


def html(record: Any) -> str:
    """The record for a notebook: its areas as a table where it has some, else its fields."""
    if hasattr(record, "to_frame"):
        table = record.to_frame()
        count = f"{len(table):,} area{'' if len(table) == 1 else 's'}"
        shown = table.head(_ROWS_IN_NOTEBOOK).to_html(border=0)
        return f"<p><b>{type(record).__name__}</b>, {count}, the first {min(len(table), _ROWS_IN_NOTEBOOK)}:</p>{shown}"
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _described(record))
    return f"<p><b>{type(record).__name__}</b></p><table>{rows}</table>"


def frame(record: Any) -> pd.DataFrame:
    """The fields that hold one number an area as columns; the index are the labels where there are some.

    Examples:
        >>> import fhjax
        >>> data = fhjax.area_data([0.2, 0.1, 0.3], [0.01, 0.02, 0.01], labels=["a", "b", "c"])
        >>> list(data.to_frame().columns)
        ['y', 'sampling_variance', '(Intercept)']
    """
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    labels = values.pop("labels", None)
    arrays = {name: value for name, value in values.items() if hasattr(value, "shape") and value.ndim}
    m = len(labels) if labels is not None else next(iter(arrays.values())).shape[0]
    table: dict[str, Any] = {}
    for name, value in arrays.items():
        if value.shape == (m,):
            table[name] = np.asarray(value)
        elif name == "X" and value.shape[0] == m:
            names = values.get("columns") or tuple(f"x{j}" for j in range(value.shape[1]))
            table.update({names[j]: np.asarray(value[:, j]) for j in range(value.shape[1])})
    index = pd.Index(list(labels), name="area") if labels is not None and len(labels) == m else None
    return pd.DataFrame(table, index=index)


def _described(record: Any) -> list[tuple[str, str]]:
    found = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is None or (isinstance(value, str | tuple | dict) and not value):
            continue
        found.append((field.name, _one(value)))
    return found


def _one(value: Any) -> str:
    if hasattr(value, "shape"):
        if value.shape:
            return " x ".join(str(size) for size in value.shape)
        try:
            return f"{np.asarray(value).item():.6g}"
        except Exception:  # a tracer has no value
            return str(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _TEXT else value[:_TEXT] + "...")
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    if isinstance(value, tuple | dict):
        return str(len(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
