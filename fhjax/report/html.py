"""The report as one page that needs nothing beside it: style and figures are inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from fhjax.records import Assessment
from fhjax.report import tables
from fhjax.report.areas import DEFAULT_METHODS, EPSILON_METHODS, check_methods
from fhjax.report.assumptions import assumptions
from fhjax.report.figures import Drawing
from fhjax.report.numbers import format_count, format_delta
from fhjax.report.statement import INTERNAL_NOTICE, statement

TITLE = "How much privacy does this release already carry?"
#: Which figure stands in which section.
_FIGURE_SECTIONS = {
    "figure1": "areas",
    "figure2": "weights",
    "figureS1": "areas",
    "figureS2": "weights",
    "figureS3": "variance",
}


def render(
    assessment: Assessment,
    table: pd.DataFrame,
    summary: dict[str, Any],
    figures: Sequence[Mapping[str, Any]],
    *,
    provenance: Mapping[str, Any],
    title: str | None = None,
    epsilon_methods: Sequence[str] = DEFAULT_METHODS,
) -> str:
    """The whole page as text.

    Args:
        assessment: an assessed survey.
        table: its per-area table.
        summary: its headline numbers.
        figures: of each figure its ``key``, ``title``, ``alt``, ``width`` (CSS pixels), ``png`` (base64) and ``files``.
        provenance: what :func:`~fhjax.report.provenance.collect_provenance` returned.
        title: heading of the page.
        epsilon_methods: which epsilons are shown.

    Returns:
        HTML with every value escaped (area labels are foreign text), without scripts and without external resources.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    by_section: dict[str, list[Mapping[str, str]]] = {"areas": [], "weights": [], "variance": []}
    for figure in figures:
        by_section[_FIGURE_SECTIONS[figure["key"].split("_")[0]]].append(figure)
    delta = format_delta(assessment.delta)
    conversions = [
        f"{'ε' if name == 'simple' else f'ε {name}'} is {EPSILON_METHODS[name]}"
        for name in check_methods(epsilon_methods)
    ]
    return environment.get_template("report.html").render(
        title=title or TITLE,
        notice=INTERNAL_NOTICE,
        statement=statement(assessment, summary),
        assumptions=assumptions(assessment),
        conversion=f"At δ = {delta}, {'; '.join(conversions)}.",
        design=assessment.direct.design,
        estimator=_estimator(assessment),
        subject=assessment.direct.subject,
        figures=by_section,
        design_table=tables.design_table(assessment, table),
        fit_table=tables.fit_table(assessment, summary),
        release_table=tables.release_table(assessment, summary),
        risk_table=tables.risk_table(assessment, summary),
        rho_table=tables.rho_table(assessment, table),
        structure_table=tables.structure_table(assessment, table),
        weights_table=tables.weights_table(assessment, table),
        drivers_table=tables.drivers_table(assessment),
        variance_table=tables.variance_table(assessment),
        exposed_table=tables.exposed_table(table),
        areas_table=tables.areas_table(table),
        flags_table=tables.flags_table(assessment),
        excluded_table=tables.excluded_areas_table(assessment),
        notation_table=tables.notation_table(),
        run=_run(provenance),
    )


def figure_of(drawing: Drawing, png: bytes) -> dict[str, str]:
    """A figure as the page wants it: the picture as base64 text, its text about as large as the page's."""
    width = round(float(drawing.figure.get_figwidth()) * 116)
    picture = base64.b64encode(png).decode("ascii")
    return {"key": drawing.key, "title": drawing.title, "alt": drawing.alt, "width": str(width), "png": picture}


def _estimator(assessment: Assessment) -> str:
    direct = assessment.direct
    names = {"hajek": "Hájek (weighted mean)", "ht": "Horvitz-Thompson", "given": "given in the input"}
    method = direct.variance_method if direct.variance_method != "given" else "given in the input"
    return f"Direct estimates: {names.get(direct.estimator, direct.estimator)}. Design variances: {method.rstrip('.')}."


def _run(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows of the run's table that fit a page; run.json has the rest."""
    versions = provenance.get("versions") or {}
    device = provenance.get("device") or {}
    rows = [
        ("Made", str(provenance.get("ended") or "")),
        (
            "Software",
            ", ".join(f"{name} {versions[name]}" for name in ("fhjax", "jax", "numpy", "python") if versions.get(name)),
        ),
        ("Device", f"{device['count']} × {device['kind']}" if device else ""),
        ("Commit", str((provenance.get("git") or {}).get("commit") or "")),
        ("Seed", "" if provenance.get("seed") is None else str(provenance["seed"])),
    ]
    rows += [
        (f"Input {i}", f"{Path(file['path']).name}, {format_count(file['bytes'])} bytes, SHA-256 {file['sha256']}")
        for i, file in enumerate(provenance.get("files") or [], start=1)
    ]
    return [row for row in rows if row[1]]
