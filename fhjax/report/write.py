"""Write one report folder: a page, tables, figures, and what run made them."""

from __future__ import annotations

import dataclasses
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fhjax.files import Staging
from fhjax.records import Assessment
from fhjax.report import html
from fhjax.report.areas import DEFAULT_METHODS, area_table, check_methods, excluded_table
from fhjax.report.canvas import style
from fhjax.report.figures import Drawing, draw_all
from fhjax.report.numbers import json_safe
from fhjax.report.provenance import collect_provenance, finished
from fhjax.report.summary import summarise

DPI = 300
#: What a report folder holds beside its figures, and what an earlier report may have left in it.
RESULTS = ("report.html", "areas.csv", "excluded.csv", "summary.json", "run.json")
STALE = ("excluded.csv", "figures/figure*_*.*")


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
    pdf: bool = False,
) -> ReportFiles:
    """Write the folder ``out``: report.html, areas.csv, excluded.csv, summary.json, run.json and figures/.

    Args:
        assessment: an assessed survey, m areas.
        out: the folder; it is made if it does not exist, and files of an earlier report in it are replaced.
        provenance: what :func:`~fhjax.report.provenance.collect_provenance` returned; by default that of this call.
        title: heading of the page.
        epsilon_methods: ``simple`` (always shown), and also ``tight`` or ``exact``.
        pdf: write each figure as PDF too, for print; the fonts in them take a second a figure.

    Returns:
        The paths. ``excluded`` is None when no area was excluded.

    Raises:
        InputError: ``out`` is a file, or an epsilon method is unknown.

    The folder is internal: its numbers come from confidential data. areas.csv holds them unrounded, with ``inf`` for
    what cannot be certified and an empty field for what the input does not say; in summary.json infinity is the text
    ``"Infinity"`` and the unknown is null. On the page every rho and epsilon is rounded up.

    Examples:
        >>> import tempfile
        >>> import fhjax
        >>> survey = fhjax.open_survey(fhjax.example("nhanes0910_cholesterol"), area="race", weight="weight",
        ...     outcome="high_cholesterol = 1", strata="stratum", psu="psu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report(fhjax.assess(fhjax.direct_estimates(survey)), folder + "/report").page.name
        'report.html'
    """
    started = time.time()
    methods = check_methods(epsilon_methods)
    run = collect_provenance({}, [], started) if provenance is None else provenance
    inputs = [str(file["path"]) for file in run.get("files", ()) if isinstance(file, Mapping) and "path" in file]
    with Staging(inputs) as staging:
        folder = staging.folder(out, RESULTS, stale=STALE)
        table = area_table(assessment, methods)
        summary = summarise(assessment, table=table, epsilon_methods=methods)
        pictures, figures = _figures(folder / "figures", draw_all(assessment, table, summary), pdf=pdf)
        page = html.render(assessment, table, summary, pictures, provenance=run, title=title, epsilon_methods=methods)
        table.to_csv(folder / "areas.csv", index=False, encoding="utf-8", lineterminator="\n")
        if assessment.direct.excluded:
            path = folder / "excluded.csv"
            excluded_table(assessment).to_csv(path, index=False, encoding="utf-8", lineterminator="\n")
        _write_json(folder / "summary.json", summary)
        (folder / "report.html").write_text(page, encoding="utf-8")
        _write_json(folder / "run.json", finished(run))
    place = Path(out)
    return ReportFiles(
        folder=place,
        page=place / "report.html",
        areas=place / "areas.csv",
        excluded=place / "excluded.csv" if assessment.direct.excluded else None,
        summary=place / "summary.json",
        run=place / "run.json",
        figures=tuple(place / "figures" / name for name in figures),
    )


def _figures(folder: Path, drawings: Sequence[Drawing], *, pdf: bool) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Each figure as PNG, and as PDF where that is asked for: for the page, and by name."""
    folder.mkdir(exist_ok=True)
    pictures, paths = [], []
    with style():
        for drawing in drawings:
            drawing.figure.draw_without_rendering()  # settle the layout once, not once a file
            drawing.figure.set_layout_engine("none")
            png = io.BytesIO()
            drawing.figure.savefig(png, format="png", dpi=DPI)
            path = folder / f"{drawing.key}.png"
            path.write_bytes(png.getvalue())
            written = [path.name]
            if pdf:
                # Without dates, so that the same numbers give the same file.
                facts = {"CreationDate": None, "Title": drawing.title}
                drawing.figure.savefig(path.with_suffix(".pdf"), metadata=facts)
                written.append(path.with_suffix(".pdf").name)
            pictures.append({**html.figure_of(drawing, png.getvalue()), "files": written})
            paths += written
    return pictures, tuple(paths)


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(json_safe(content), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
