"""Write one report folder: a page, tables, figures, and what run made them."""

from __future__ import annotations

import dataclasses
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fhjax.errors import InputError
from fhjax.records import Assessment
from fhjax.report import html
from fhjax.report.areas import DEFAULT_METHODS, area_table, check_methods, excluded_table
from fhjax.report.canvas import style
from fhjax.report.figures import Drawing, draw_all
from fhjax.report.numbers import json_safe
from fhjax.report.provenance import collect_provenance, finished
from fhjax.report.summary import summarise

DPI = 300


@dataclasses.dataclass(frozen=True)
class ReportFiles:
    """Where everything was written."""

    folder: Path
    page: Path
    areas: Path
    excluded: Path | None
    summary: Path
    run: Path
    figures: tuple[Path, ...]


def write_report(
    assessment: Assessment,
    out: str | Path,
    *,
    provenance: Mapping[str, Any] | None = None,
    title: str | None = None,
    epsilon_methods: Sequence[str] = DEFAULT_METHODS,
) -> ReportFiles:
    """Write the folder ``out``: report.html, areas.csv, excluded.csv, summary.json, run.json and figures/.

    Args:
        assessment: an assessed survey, m areas.
        out: the folder; it is made if it does not exist, and files of an earlier report in it are replaced.
        provenance: what :func:`~fhjax.report.provenance.collect_provenance` returned; by default that of this call.
        title: heading of the page.
        epsilon_methods: ``simple`` (always shown), and also ``tight`` or ``exact``.

    Returns:
        The paths. ``excluded`` is None when no area was excluded.

    Raises:
        InputError: ``out`` is a file, or an epsilon method is unknown.

    The folder is internal: its numbers come from confidential data. areas.csv holds them unrounded, with ``inf`` for
    what cannot be certified and an empty field for what the input does not say; in summary.json infinity is the text
    ``"Infinity"`` and the unknown is null. On the page every rho and epsilon is rounded up.
    """
    started = time.time()
    methods = check_methods(epsilon_methods)
    folder = _folder(out)
    table = area_table(assessment, methods)
    summary = summarise(assessment, table=table, epsilon_methods=methods)
    drawings = draw_all(assessment, table, summary)
    pictures, figures = _figures(folder / "figures", drawings)
    run = collect_provenance({}, [], started) if provenance is None else provenance
    page = html.render(assessment, table, summary, pictures, provenance=run, title=title, epsilon_methods=methods)

    table.to_csv(folder / "areas.csv", index=False, encoding="utf-8", lineterminator="\n")
    excluded = folder / "excluded.csv"
    excluded.unlink(missing_ok=True)
    if assessment.direct.excluded:
        excluded_table(assessment).to_csv(excluded, index=False, encoding="utf-8", lineterminator="\n")
    _write_json(folder / "summary.json", summary)
    (folder / "report.html").write_text(page, encoding="utf-8")
    _write_json(folder / "run.json", finished(run))  # last: a folder with run.json is complete
    return ReportFiles(
        folder=folder,
        page=folder / "report.html",
        areas=folder / "areas.csv",
        excluded=excluded if assessment.direct.excluded else None,
        summary=folder / "summary.json",
        run=folder / "run.json",
        figures=figures,
    )


def _folder(out: str | Path) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"The report needs a folder, but {str(folder)!r} is a file. Name another place.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").unlink(missing_ok=True)
    return folder


def _figures(folder: Path, drawings: Sequence[Drawing]) -> tuple[list[dict[str, str]], tuple[Path, ...]]:
    """Each figure as PNG and PDF; figures of an earlier report that this one does not have are removed."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("figure*_*.*"):
        old.unlink()
    pictures, paths = [], []
    with style():
        for drawing in drawings:
            drawing.figure.draw_without_rendering()  # settle the layout once, not once a file
            drawing.figure.set_layout_engine("none")
            png = io.BytesIO()
            drawing.figure.savefig(png, format="png", dpi=DPI)
            path = folder / f"{drawing.key}.png"
            path.write_bytes(png.getvalue())
            # Without dates, so that the same numbers give the same file.
            drawing.figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None, "Title": drawing.title})
            paths += [path, path.with_suffix(".pdf")]
            pictures.append(html.figure_of(drawing, png.getvalue()))
    return pictures, tuple(paths)


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(json_safe(content), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
