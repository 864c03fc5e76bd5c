"""The words of the report: a statement a disclosure board can paste, and one screen for the terminal."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from fhjax.records import FLAGS, Assessment
from fhjax.report.assumptions import assumptions, neighbours, unit_of
from fhjax.report.numbers import format_count, format_delta, format_number, format_percent, format_up
from fhjax.report.summary import summarise

#: Shown on top of every report: its numbers are themselves made from confidential data.
INTERNAL_NOTICE = (
    "The direct estimates, the sampling variances, the model variance, the mean squared errors and the values of ρ and "
    "ε in this document are computed from confidential data and carry no privacy guarantee of their own. What may "
    "leave the house is the draw, and what the assumptions below make public anyway."
)

#: Above this epsilon the (epsilon, delta) statement gives no practical protection, and the report says so.
NO_PROTECTION = 10


def statement(assessment: Assessment, summary: dict[str, Any] | None = None) -> tuple[str, ...]:
    """What the release guarantees and what it does not, as plain paragraphs.

    Args:
        assessment: an assessed survey.
        summary: its :func:`~fhjax.report.summary.summarise`, if it was made already.

    Returns:
        Paragraphs without markup. Every rho and epsilon in them is rounded up, so that quoting them stays on the safe
        side. They speak of bounded neighbours under :func:`~fhjax.report.assumptions.assumptions`.
    """
    summary = summarise(assessment) if summary is None else summary
    paragraphs = [
        _what(assessment, summary),
        _joint(assessment, summary),
        _meaning(assessment, summary),
        _independent(summary),
        _areas(assessment, summary),
        _limits(assessment),
    ]
    infinite = infinite_areas(assessment)
    if infinite:
        paragraphs.insert(1, infinite)
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def infinite_areas(assessment: Assessment) -> str:
    """Which areas have an infinite rho and why, or an empty text."""
    rho = np.asarray(assessment.guarantees.per_area_rho)
    mask = assessment.area_data.mask
    rho = rho if mask is None else rho[np.asarray(mask)]
    bad = np.flatnonzero(~np.isfinite(rho))
    direct = assessment.direct
    if bad.size == 0:
        return ""
    reasons: dict[str, list[str]] = {}
    for i in bad:
        if direct.sampling_variance[i] == 0:
            reason = "the sampling variance is 0, so the draw equals the direct estimate"
        elif not math.isfinite(float(direct.sensitivity[i])):
            reason = "the sensitivity is unbounded"
        else:
            reason = "the area's draw reveals an area with a sampling variance of 0, or a bound could not be computed"
        reasons.setdefault(reason, []).append(direct.labels[i])
    parts = [f"{_listed(labels)} ({reason})" for reason, labels in reasons.items()]
    count = "1 area" if bad.size == 1 else f"{bad.size:,} areas"
    return (
        f"No guarantee can be stated for {count}: {'; '.join(parts)}. Their ρ is infinite, and so is the ρ of every "
        "release that contains them. Leave them out of the release, or replace their sampling variance by one that is "
        "not 0."
    )


def _what(assessment: Assessment, summary: dict[str, Any]) -> str:
    records = summary["num_records"]
    source = f" from {_count(records, 'survey record')}" if records else ""
    subject = f" ({assessment.direct.subject})" if assessment.direct.subject else ""
    return (
        f"The release is one random draw of the small-area estimates{subject} of "
        f"{_count(summary['num_areas'], 'area')}, made{source} by sampling the posterior distribution of a "
        f"Fay-Herriot model once. The randomness of the draw hides part of what {unit_of(assessment)} contributed. "
        f"{_bounds(assessment)}This statement says how much, in the terms of zero-concentrated differential privacy "
        "(zCDP) and of (ε, δ)-differential privacy."
    )


def _bounds(assessment: Assessment) -> str:
    bounds = assessment.direct.outcome_bounds
    if bounds is None:
        return ""
    return f"One record's outcome lies between {bounds[0]:g} and {bounds[1]:g}, as declared or by its form. "


def _joint(assessment: Assessment, summary: dict[str, Any]) -> str:
    rho, epsilon = summary["rho_joint_correlated"], summary["epsilon_joint_correlated"]
    release = assessment.guarantees.joint_correlated
    if math.isinf(rho):
        return f"For publishing {_joint_release(release.release)} no finite ρ can be stated. {neighbours(assessment)}"
    better = summary.get("epsilon_exact", {}).get("joint_correlated", math.nan)
    exact = f" (by the exact conversion ε ≤ {format_up(better)})" if math.isfinite(better) else ""
    return (
        f"Publishing {_joint_release(release.release)} satisfies ρ-zCDP with ρ = {format_up(rho)}, which at "
        f"δ = {format_delta(assessment.delta)} is (ε, δ)-differential privacy with ε ≤ {format_up(epsilon)}{exact}. "
        f"{neighbours(assessment)}"
    )


def _meaning(assessment: Assessment, summary: dict[str, Any]) -> str:
    epsilon = summary["epsilon_joint_correlated"]
    if math.isinf(epsilon):
        return ""
    factor = math.exp(min(epsilon, 700.0))
    size = f"about {format_up(factor, 2)}" if factor < 1e6 else "more than a million"
    verdict = "Whether the value is small enough is a decision of policy, not of statistics."
    if epsilon > NO_PROTECTION:
        verdict = (
            f"An ε above {NO_PROTECTION} says next to nothing about what an attacker with much knowledge can learn of "
            "one unit: by itself it is no argument for the release. Look at the most exposed areas, trim weights, "
            "merge areas or leave some out."
        )
    return (
        "In words: take any two neighbouring data sets and any set of results. The probability that the release lies "
        f"in that set under one data set is at most exp(ε), here {size}, times its probability under the other, plus "
        f"at most δ = {format_delta(assessment.delta)}. Smaller is stronger. {verdict}"
    )


def _independent(summary: dict[str, Any]) -> str:
    rho, total = summary["rho_joint_independent"], summary["rho_sequential"]
    if math.isinf(rho) or math.isinf(total):
        return ""
    return (
        "If the areas are drawn independently of one another instead, publishing all of them satisfies ρ-zCDP with "
        f"ρ = {format_up(rho)} (ε ≤ {format_up(summary['epsilon_joint'])}). Adding up the areas' costs one by one "
        f"would give ρ = {format_up(total)} (ε ≤ {format_up(summary['epsilon_sequential'])}), "
        f"{format_number(summary['sequential_factor'])} times as much; that sum is a valid bound too, but it "
        "ignores that a privacy unit belongs to one area."
    )


def _areas(assessment: Assessment, summary: dict[str, Any]) -> str:
    worst = int(assessment.direct.labels.index(summary["rho_max_area"]))
    if math.isinf(summary["rho_max"]):
        return f"Taken alone, the median area's draw satisfies ρ-zCDP with ρ = {format_up(summary['rho_median'])}."
    details = []
    if assessment.direct.num_records is not None:
        details.append(_count(int(assessment.direct.num_records[worst]), "record"))
    weight_ratio = assessment.direct.weight_ratio
    if weight_ratio is not None:
        what = "weight" if assessment.direct.privacy_unit == "record" else "weight of one unit"
        details.append(f"largest {what} {format_number(float(weight_ratio[worst]))} times the mean weight of a record")
    known = f" ({', '.join(details)})" if details else ""
    return (
        f"Publishing the draw of one area alone costs ρ = {format_up(summary['rho_median'])} "
        f"(ε ≤ {format_up(summary['epsilon_median'])}) in the median area and ρ = {format_up(summary['rho_max'])} "
        f"(ε ≤ {format_up(summary['epsilon_max'])}) in the most exposed one, {summary['rho_max_area']}{known}."
    )


def _limits(assessment: Assessment) -> str:
    fixed = (
        "The sampling variances and the model variance are treated as fixed although they were estimated from the same "
        "data, so the guarantee covers the draw given these variances, not the variances themselves. "
        if assessment.direct.variance_source == "estimated"
        else ""
    )
    return (
        f"{fixed}The guarantee is for one draw: L independent draws from the same posterior multiply ρ by L. It does "
        "not cover publishing the posterior means, their mean squared errors, the direct estimates or this report, nor "
        "adjusting the draw to confidential totals. Rounding, clipping or tabulating the draw does not weaken it."
    )


def _joint_release(text: str) -> str:
    return text.strip().rstrip(".") or "one draw of all areas from the joint posterior"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _listed(labels: list[str], limit: int = 5) -> str:
    rest = len(labels) - limit
    return ", ".join(labels[:limit]) + (f" and {rest:,} more" if rest > 0 else "")


def text_summary(assessment: Assessment) -> str:
    """One screen of plain text for the terminal: at most 30 lines of at most 80 columns.

    Args:
        assessment: an assessed survey.

    Returns:
        The headline numbers; rho and epsilon are rounded up. Neighbours and assumptions are named or counted, and the
        report has them in full.
    """
    summary = summarise(assessment)
    lines = [
        "What this release already protects (internal: made from confidential data)",
        "",
        f"{'Areas':<10}{format_count(summary['num_areas'])}, excluded {format_count(summary['num_excluded'])}",
    ]
    if summary["num_records"] is not None:
        missing = summary["num_missing_outcome"]
        records = f"{'Records':<10}{format_count(summary['num_records'])}"
        if missing is not None:
            share = format_percent(missing / max(missing + summary["num_records"], 1))
            records += f", without an outcome {format_count(missing)} ({share})"
        lines.append(records)
    lines.append(
        f"{'Model':<10}{summary['method']}, variance {format_number(summary['model_variance'])}, "
        f"median shrinkage {format_number(summary['shrinkage_median'])}"
    )
    if not summary["status"].startswith("Converged"):
        lines += textwrap.wrap(summary["status"], 70, initial_indent=" " * 10, subsequent_indent=" " * 10)[:3]
    lines += ["", f"{'Publishing':<44}{'rho':>12}{'epsilon':>12}", "-" * 68]
    for name, rho, epsilon in (
        ("one area's draw, median area", "rho_median", "epsilon_median"),
        (f"one area's draw, worst: {summary['rho_max_area']}", "rho_max", "epsilon_max"),
        ("all areas, one draw of the joint posterior", "rho_joint_correlated", "epsilon_joint_correlated"),
        ("all areas, drawn independently", "rho_joint_independent", "epsilon_joint"),
        ("all areas, costs added up one by one", "rho_sequential", "epsilon_sequential"),
    ):
        lines.append(f"{_shorten(name, 43):<44}{_plain(summary[rho]):>12}{_plain(summary[epsilon]):>12}")
    lines.append("-" * 68)
    lines.append(f"epsilon at delta = {format_delta(assessment.delta)}; rho and epsilon are rounded up")
    factor = summary["equal_weight_factor_median"]
    if math.isfinite(factor):
        refitted = summary["equal_weight_factor_refitted_median"]
        both = f", {format_number(refitted)} (refitted)" if math.isfinite(refitted) else ""
        lines.append(f"Unequal weights: median rho times {format_number(factor)} (variances held){both}")
    if summary["num_infinite_rho"]:
        infinite = infinite_areas(assessment).replace("ρ", "rho")
        lines += textwrap.wrap(infinite, 80, max_lines=4, placeholder=" ...")
    for name, count in list(summary["flags"].items())[:4]:
        if count:
            lines.append(_shorten(f"{_count(count, 'area')}: {FLAGS.get(name, name)}", 80))
    lines += textwrap.wrap(neighbours(assessment).replace("ρ", "rho"), 80, max_lines=3, placeholder=" ...")
    lines.append(f"The numbers rest on {len(assumptions(assessment))} assumptions; report.html states them all.")
    return "\n".join(_shorten(line, 80) for line in lines[:30])


def _plain(value: float) -> str:
    return "infinite" if math.isinf(value) else format_up(value).replace("–", "-")


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
