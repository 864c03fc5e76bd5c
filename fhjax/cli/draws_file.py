"""Files of draws as samplers write them: one column an area, one row an area, long, CmdStan, posterior and brms."""

from __future__ import annotations

import dataclasses
import gzip
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fhjax.errors import InputError, complain, first_few
from fhjax.records import Labels

#: A variable's element: theta[3], theta[AL], r_area[AL,Intercept], theta.3 (CmdStan).
_ELEMENT = re.compile(r"^(?P<stem>.*?)(?:\[(?P<inside>[^\]]*)\]|\.(?P<dotted>\d+))$")
#: Columns that samplers write beside the parameters.
_BOOKKEEPING = re.compile(r"(__$)|^\.?(chain|iteration|iter|draw|sample|replicate)$", re.IGNORECASE)
_DRAW = re.compile(r"^(value|draw|theta|V)?[ _.]?\d*$", re.IGNORECASE)
_DRAW_ID = ("draw", ".draw", "sample", "replicate", "iteration", ".iteration", "iter")


@dataclasses.dataclass(frozen=True)
class DrawsFile:
    """Draws (n, m) in the order of the labels, and how they were found in the file."""

    draws: np.ndarray
    said: str  # which columns were used and which were left out


def read_draws(
    path: str,
    labels: Labels,
    ignore: Sequence[str] = (),
    *,
    order: Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> DrawsFile:
    """The draws of a file, in the order of ``labels``.

    Args:
        path: CSV (lines that start with # are comments) or Parquet.
        labels: the areas of the area-level file that are used.
        ignore: columns that are no areas and no draws.
        order: all areas in the order of the area-level file's rows: what theta[1], theta[2], ... number.
        delimiter, decimal, encoding: how the text is written.

    Raises:
        InputError: no layout fits, an area has no draws, a value is no number.
    """
    table = _read(path, delimiter, decimal, encoding)
    unknown = [name for name in ignore if name not in table.columns]
    if unknown:
        raise complain(f"named by --ignore are not in {path}", unknown, "Correct their names.", noun="column")
    table = table.drop(columns=list(ignore))
    repeated = sorted(set(table.columns[table.columns.duplicated()]))
    if repeated:
        raise complain(f"appear twice in {path}", repeated, "One column for each area.", noun="column")
    if "area" in table.columns and "area" not in set(labels):
        areas: Any = table["area"].astype(str)
        found = _long(table, areas, path) if areas.duplicated().any() else _rows(table, areas, path)
    else:
        found = _columns(table, labels, order, path)
    wide, said = found
    known = set(labels)
    strangers = [name for name in wide.columns if name not in known and name not in set(order or ())]
    if strangers:
        raise complain(
            f"of {path} are no areas of the area-level file", strangers, "Name them in --ignore, or correct them.",
            noun="column",
        )  # fmt: skip
    missing = [label for label in labels if label not in set(wide.columns)]
    if missing:
        raise complain(f"have no draws in {path}", missing, "Audit draws of all areas of the area-level file.")
    try:
        draws = wide[list(labels)].to_numpy(dtype=float)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} holds a value that is no number ({error}).") from error
    return DrawsFile(draws, said)


def _read(path: str, delimiter: str | None, decimal: str | None, encoding: str | None) -> pd.DataFrame:
    try:
        if path.lower().endswith((".parquet", ".pq")):
            table = pd.read_parquet(path)
        else:
            opened: Any = gzip.open if path.lower().endswith(".gz") else open
            with opened(path, "rt", encoding=encoding or "utf-8-sig") as stream:
                lines = [line for line in stream if not line.startswith("#") and line.strip()]
            text = io.StringIO("".join(lines))
            mark = delimiter or max((",", ";", "\t"), key=lambda each: lines[0].count(each) if lines else 0)
            # Codes stay text and repeated names are not renamed: the header is data here.
            names = pd.read_csv(text, header=None, nrows=1, dtype=str, sep=mark, keep_default_na=False).iloc[0]
            text.seek(0)
            kinds: Any = {i: str for i, name in enumerate(names) if name == "area"}
            nothing: Any = {
                i: [] if i in kinds else ["", "NA", "NaN", "nan"] for i in range(len(names))
            }  # NA is an area
            table = pd.read_csv(
                text, header=None, skiprows=1, sep=mark, decimal=decimal or ".", dtype=kinds,
                na_values=nothing,
                keep_default_na=False,
            )  # fmt: skip
            table.columns = [str(name) for name in names]
    except (OSError, ValueError, ImportError, IndexError) as error:
        raise InputError(f"{path} cannot be read as a table of draws ({error}).") from error
    table.columns = [str(name) for name in table.columns]
    return table


def _said(layout: str, used: Sequence[str], left: Sequence[str]) -> str:
    kept = f"; left out: {first_few([name or '(no name)' for name in left])}" if left else ""
    return f"{layout}: {first_few(used, limit=3)} used{kept}."


def _rows(table: pd.DataFrame, areas: pd.Series, path: str) -> tuple[pd.DataFrame, str]:
    """One row an area, one column a draw, as `fhjax release` writes it."""
    others = [name for name in table.columns if name != "area"]
    used = [name for name in others if _DRAW.match(name) and name.strip()]
    if not used:
        numbered = [name for name in others if re.search(r"\d+$", name)]
        stems = {re.sub(r"\d+$", "", name) for name in numbered}
        used = numbered if len(stems) == 1 else others if len(others) == 1 else []
    if not used:
        raise InputError(
            f"{path} has one row an area, but none of its columns is called value, draw_1, draw_2, ...: "
            f"{first_few(others)}. Rename the columns of draws so, or name the others in --ignore."
        )
    wide = table[used].T
    wide.columns = list(areas)
    return wide, _said("One row an area", used, [name for name in others if name not in used])


def _long(table: pd.DataFrame, areas: pd.Series, path: str) -> tuple[pd.DataFrame, str]:
    """One row a draw of an area: the columns area, draw and a value."""
    ids = [name for name in table.columns if name.lower() in _DRAW_ID]
    chains = [name for name in table.columns if name.lower() in ("chain", ".chain")]
    values = [name for name in table.columns if name not in (*ids, *chains, "area") and not _BOOKKEEPING.search(name)]
    values = [name for name in values if pd.api.types.is_numeric_dtype(table[name])] if len(values) > 1 else values
    draw = next((name for name in (".draw", "draw") if name in ids), ids[0] if ids else None)
    if draw is None or len(values) != 1:
        raise InputError(
            f"{path} repeats its areas, so it is read as long: it needs a column draw and one column of values, and "
            f"has {first_few(list(table.columns), limit=8)}. Rename them, or name the others in --ignore."
        )
    keys = [draw] if draw in (".draw", "draw") else [*chains, draw]
    long = pd.DataFrame({"area": areas, "value": table[values[0]], **{f"key{i}": table[k] for i, k in enumerate(keys)}})
    names = [f"key{i}" for i in range(len(keys))]
    if long.duplicated(["area", *names]).any():
        raise InputError(f"{path} has several rows for one area and draw. One value for each area in each draw.")
    wide = long.pivot(index=names, columns="area", values="value")
    if wide.isna().any().any():
        raise InputError(f"{path} lacks the value of some area in some draw. Every draw needs every area.")
    left = [name for name in table.columns if name not in ("area", *keys, values[0])]
    return wide, _said("One row an area and draw", [*keys, "area", values[0]], left)


def _columns(table: pd.DataFrame, labels: Labels, order: Sequence[str] | None, path: str) -> tuple[pd.DataFrame, str]:
    """One row a draw, one column an area: by its label, or as the element of a variable."""
    known = set(labels) | set(order or ())
    direct = [name for name in table.columns if name in known]
    left = [name for name in table.columns if name not in known and (_BOOKKEEPING.search(name) or name.strip() == "")]
    rest = [name for name in table.columns if name not in known and name not in left]
    if not direct and rest:
        elements = {name: match for name in rest if (match := _ELEMENT.match(name))}
        stems: dict[str, list[str]] = {}
        for name, match in elements.items():
            stems.setdefault(match["stem"], []).append(name)
        fits = {stem: renamed for stem, each in stems.items() if (renamed := _renamed(each, elements, known, order))}
        whole = {stem: names for stem, names in fits.items() if set(labels) <= set(names.values())}
        if len(whole) > 1:
            raise InputError(
                f"{len(whole)} variables of {path} have an element for every area: {first_few(sorted(whole))}. Name "
                "the columns of the others in --ignore."
            )
        if whole:
            ((stem, names),) = whole.items()
            left = [name for name in table.columns if name not in names]
            wide: Any = table[list(names)].set_axis(list(names.values()), axis=1)
            return wide, _said(f"One column an element of {stem}", list(names), left)
    kept: Any = table[[name for name in table.columns if name not in left]]
    return kept, _said("One column an area", direct, left)


def _renamed(names: Sequence[str], elements: dict, known: set[str], order: Sequence[str] | None) -> dict[str, str]:
    """Column -> area, by the label in brackets, or by the number of the area-level file's row."""
    inside = {name: (elements[name]["inside"] or elements[name]["dotted"] or "").strip() for name in names}
    first = {name: text.split(",")[0].strip().strip("\"'") for name, text in inside.items()}
    numbers = all(text.isdecimal() for text in first.values())
    if numbers and order is not None:
        # Stan and its kin number from 1 in the order of the data; labels that happen to be numbers agree or not.
        found = {name: order[int(text) - 1] for name, text in first.items() if 1 <= int(text) <= len(order)}
        return found if len(set(found.values())) == len(found) else {}
    if set(first.values()) & known:
        return {name: text for name, text in first.items() if text in known}
    return {}


def order_of_rows(paths: Sequence[str], area: Sequence[str], *, delimiter: str | None = None) -> list[str] | None:
    """The areas of an area-level file in the order of its rows; None where that cannot be told."""
    if len(paths) != 1 or not Path(paths[0]).is_file():
        return None
    try:
        if paths[0].lower().endswith((".parquet", ".pq")):
            table = pd.read_parquet(paths[0], columns=list(area))
        else:
            table = pd.read_csv(
                paths[0], usecols=list(area), dtype=str, keep_default_na=False, sep=delimiter, engine="python",
                encoding="utf-8-sig",
            )  # fmt: skip
    except (OSError, ValueError, ImportError):
        return None
    return list(table[list(area)].astype(str).agg("|".join, axis=1))
