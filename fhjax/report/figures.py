"""The figures of the report, each telling one thing; its title says the finding."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fhjax.records import Assessment
from fhjax.report.areas import epsilon_of, in_areas
from fhjax.report.canvas import (
    BLACK,
    BLUE,
    LIGHT,
    PALE,
    VERMILLION,
    ident_line,
    infinite_note,
    log_axis,
    name_points,
    new_figure,
    point_style,
    shorten,
    span,
    style,
    tick,
    titled,
)
from fhjax.report.numbers import format_change, format_count, format_delta, format_number, format_up, quantile
from fhjax.report.summary import column, has, ratio, variance_changes

#: Up to this many areas each is drawn by name instead of counted in a histogram.
FEW = 12
_HALVES, _TENTHS = np.arange(2, 20) / 2, np.arange(10, 100) / 10
#: From this many areas on a regression line says something.
ENOUGH = 10


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure with what a reader who cannot see it needs."""

    key: str  # file name without its ending
    title: str
    alt: str
    figure: Figure


def draw_all(assessment: Assessment, table: pd.DataFrame, summary: dict[str, Any]) -> list[Drawing]:
    """Every figure the assessment has the numbers for, in the report's order."""
    with style():
        drawings = [
            rho_distribution(assessment, table, summary),
            rho_against_design(assessment, table, summary),
            conservative_against_exact(table, summary),
            equal_weights_against_actual(table, summary),
            model_variance_effect(assessment),
        ]
        return [drawing for drawing in drawings if drawing is not None]


def rho_distribution(assessment: Assessment, table: pd.DataFrame, summary: dict[str, Any]) -> Drawing:
    """Figure 1: how rho is spread over the areas, with the median and the joint release."""
    rho = column(table, "rho")
    shown = rho[np.isfinite(rho) & (rho > 0)]
    median, joint = summary["rho_median"], summary["rho_joint_independent"]
    few = len(shown) <= FEW
    figure, (axes,) = new_figure(height=3.6 if not few else 2.4 + 0.2 * len(shown))
    marks = np.array([value for value in (median, joint) if math.isfinite(value) and value > 0])
    low, high = span(np.concatenate([shown, marks]))
    high *= (high / low) ** 0.2  # room for the name of the joint release
    axes.set_xlim(low, high)
    if few:
        order = np.argsort(np.where(np.isfinite(rho) & (rho > 0), rho, -np.inf))[len(rho) - len(shown) :]
        axes.scatter(rho[order], np.arange(len(order)), s=42, color=BLUE, zorder=3)
        axes.hlines(np.arange(len(order)), low, rho[order], color=LIGHT, linewidth=1)
        axes.set_yticks(np.arange(len(order)), [shorten(str(table["area"].iloc[i])) for i in order])
        axes.set_ylim(-0.7, len(order) - 0.3 + 1.4)
    else:
        bins = int(min(max(math.sqrt(len(shown)), 10), 45))
        edges = np.geomspace(shown.min(), max(shown.max(), shown.min() * 1.01), bins + 1)
        edges[0], edges[-1] = edges[0] * (1 - 1e-9), edges[-1] * (1 + 1e-9)
        counts, *_ = axes.hist(shown, bins=edges, color=BLUE, edgecolor="white", linewidth=0.4)
        axes.set_ylim(0, float(np.max(counts)) * 1.3)
        axes.set_ylabel("Number of areas")
    log_axis(axes, "x")
    axes.set_xlim(low, high)
    axes.set_xlabel("ρ of publishing one area's draw (zCDP, logarithmic)")
    crowded = _near(median, joint, low, high)
    _mark(axes, median, f"median area\nρ = {format_up(median)}", left=crowded, linestyle=(0, (5, 2)))
    _mark(
        axes,
        joint,
        f"all areas, drawn\nindependently\nρ = {format_up(joint)}",
        left=False,
        linestyle="solid",
        color=VERMILLION,
    )
    infinite_note(axes, rho)
    _epsilon_axis(axes, assessment.delta, low, high)
    count = format_count(len(rho))
    title = f"Median area: ρ = {format_up(median)}; all {count} areas, drawn independently: ρ = {format_up(joint)}"
    titled(axes, title, pad=10)
    alt = (
        f"Distribution of rho over {count} areas on a logarithmic axis, from {format_up(float(np.min(rho)))} to "
        f"{format_up(summary['rho_max'])}; median {format_up(median)}, all areas independently {format_up(joint)}."
    )
    return Drawing("figure1_rho_distribution", title, alt, figure)


def rho_against_design(assessment: Assessment, table: pd.DataFrame, summary: dict[str, Any]) -> Drawing | None:
    """Figure 2: rho against the sample size and against the weight ratio."""
    drivers = assessment.drivers
    if drivers is not None and drivers.num_areas_used < ENOUGH:
        drivers = None
    rho = column(table, "rho")
    panels: list[tuple[str, str, float | None, str]] = []
    if has(table, "n"):
        slope = None if drivers is None else drivers.slope_log_n
        panels.append(("n", "Records in the area, n", *_slope(slope, "slope")))
    if has(table, "weight_ratio"):
        slope = None if drivers is None else drivers.slope_log_ratio_joint
        panels.append(("weight_ratio", "Largest weight / mean weight", *_slope(slope, "slope at the same n")))
    if not panels:
        panels.append(("sampling_variance", "Sampling variance ψ (outcome units squared)", None, ""))
    figure, axes_list = new_figure(height=3.6, columns=len(panels), sharey=True)
    for axes, (name, label, slope, words) in zip(axes_list, panels, strict=True):
        x = column(table, name)
        usable = np.isfinite(rho) & (rho > 0) & np.isfinite(x) & (x > 0)
        axes.scatter(x[usable], rho[usable], **point_style(int(usable.sum())))
        axes.set_xlim(*span(x[usable]))
        axes.set_ylim(*span(rho[usable], 0.1))
        log_axis(axes, "x")
        if axes is axes_list[0]:
            log_axis(axes, "y")
            axes.set_ylabel("ρ of one area's draw")
        axes.set_xlabel(label)
        if slope is not None and math.isfinite(slope) and usable.sum() > 2:
            _line(axes, x[usable], rho[usable], slope)
            axes.set_title(words, fontsize=8.5, fontweight="normal")
    title = _design_title(assessment)
    heading = textwrap.fill(title, 76)
    figure.suptitle(heading, x=0.01, ha="left", fontsize=10, fontweight="bold")
    infinite_note(axes_list[-1], rho)
    for axes, (name, *_) in zip(axes_list, panels, strict=True):
        x = column(table, name)
        usable = np.isfinite(rho) & (rho > 0) & np.isfinite(x) & (x > 0)
        top = np.flatnonzero(usable)[np.argsort(-rho[usable])][:6]
        name_points(figure, axes, x, rho, top.tolist(), [str(table["area"].iloc[i]) for i in top])
    alt = f"Scatter of rho against {' and against '.join(panel[1].lower() for panel in panels)}, one point an area."
    return Drawing("figure2_rho_against_design", title, alt, figure)


def conservative_against_exact(table: pd.DataFrame, summary: dict[str, Any]) -> Drawing | None:
    """Figure S1: what the bound without coefficients gives away."""
    if not has(table, "rho_conservative"):
        return None
    factor = summary["conservative_ratio_median"]
    title = f"The conservative bound is {format_number(factor)} times the exact ρ in the median area"
    return _pair(
        table,
        "rho_conservative",
        "Conservative bound on ρ",
        title,
        "figureS1_conservative",
        "no difference",
        "conservative bound",
    )


def equal_weights_against_actual(table: pd.DataFrame, summary: dict[str, Any]) -> Drawing | None:
    """Figure S2: what the areas would cost if all their weights were equal."""
    if not has(table, "rho_equal_weight"):
        return None
    factor = summary["equal_weight_factor_median"]
    refitted = summary["equal_weight_factor_refitted_median"]
    both = f"; all refitted, by {format_number(refitted)}" if math.isfinite(refitted) else ""
    title = f"With variances held, unequal weights multiply the median area's ρ by {format_number(factor)}{both}"
    return _pair(
        table, "rho_equal_weight", "ρ if weights were equal, variances held", title, "figureS2_equal_weights",
        "no difference", "rho with equal weights",
    )  # fmt: skip


def model_variance_effect(assessment: Assessment) -> Drawing | None:
    """Figure S3: the relative change of rho when the model variance is changed."""
    rows = [row for row in variance_changes(assessment) if row["areas"]]
    if not rows:
        return None
    figure, (axes,) = new_figure(height=1.5 + 0.42 * len(rows))
    for place, row in enumerate(rows):
        change = in_areas(assessment, assessment.model_variance_changes[row["eta"]]).astype(np.float64)
        change = 100.0 * change[np.isfinite(change)]
        if len(change) <= FEW:
            axes.scatter(change, np.full(len(change), place), s=28, facecolor="white", edgecolor=BLUE, zorder=3)
            axes.plot([change.min(), change.max()], [place, place], color=BLUE, linewidth=1)
        else:
            low, *middle_half, high = (quantile(change, q) for q in (0.0, 0.25, 0.75, 1.0))
            _box(axes, place, low, middle_half[0], quantile(change, 0.5), middle_half[1], high)
        middle = f"median {format_change(row['median'])}"
        axes.annotate(
            middle, (1.01, place), xycoords=("axes fraction", "data"), va="center", ha="left", fontsize=8.5, color=BLACK
        )
    axes.axvline(0.0, color=BLACK, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(rows)), [f"{format_change(row['eta'])}" for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_ylabel("Change of σ_v²", labelpad=8)
    key = " (box: middle half of the areas, whiskers: all)" if any(row["areas"] > FEW for row in rows) else ""
    axes.set_xlabel(f"Relative change of an area's ρ, %{key}")
    size = min(abs(row["eta"]) for row in rows)
    worst = max(max(abs(row["min"]), abs(row["max"])) for row in rows if abs(abs(row["eta"]) - size) < 1e-9)
    off, most = format_number(100 * size, 2), format_up(100 * worst, 2)
    title = f"A model variance that is {off} % off moves no area's ρ by more than {most} %"
    titled(axes, title)
    alt = (
        "Box plot of the relative change of rho for "
        + ", ".join(format_change(row["eta"]) for row in rows)
        + " of the model variance."
    )
    return Drawing("figureS3_model_variance", title, alt, figure)


def _box(axes: Axes, place: float, low: float, first: float, middle: float, third: float, high: float) -> None:
    """A lying box: the middle half, the median, and whiskers to the extremes."""
    axes.hlines(place, low, high, color=BLACK, linewidth=0.8)
    axes.vlines([low, high], place - 0.12, place + 0.12, color=BLACK, linewidth=0.8)
    axes.barh(place, third - first, left=first, height=0.5, color=PALE, edgecolor=BLACK, linewidth=0.8, zorder=2)
    axes.vlines(middle, place - 0.25, place + 0.25, color=BLACK, linewidth=2.0, zorder=3)


def _pair(table: pd.DataFrame, name: str, label: str, title: str, key: str, line: str, words: str) -> Drawing:
    """One rho against another with the line where both are equal; the same scale on both axes."""
    rho, other = column(table, "rho"), column(table, name)
    usable = np.isfinite(rho) & (rho > 0) & np.isfinite(other) & (other > 0)
    figure, (axes,) = new_figure(width=5.2, height=4.3)
    x, y = rho[usable], other[usable]
    axes.set_xlim(*span(x, 0.08))
    axes.set_ylim(*span(np.concatenate([y, x]), 0.08))
    axes.scatter(x, y, **point_style(int(usable.sum())), zorder=2)
    log_axis(axes, "x")
    log_axis(axes, "y")
    ident_line(axes, line, above=bool(np.median(y) < np.median(x)) if len(x) else True)
    axes.set_xlabel("ρ of one area's draw")
    axes.set_ylabel(label)
    titled(axes, title, 52)
    factor = np.abs(np.log(ratio(y, x)))
    infinite_note(axes, rho)
    order = np.argsort(-factor)[:6]
    labels = table["area"].to_numpy()[usable]
    name_points(figure, axes, x, y, order.tolist(), [str(labels[i]) for i in order])
    return Drawing(key, title, f"Scatter of the {words} against the exact rho, one point an area. {title}.", figure)


def _mark(axes: Axes, x: float, text: str, *, left: bool, linestyle: Any, color: str = BLACK) -> None:
    """A vertical line with its name at the top, left or right of it."""
    if not (math.isfinite(x) and x > 0):
        return
    axes.axvline(x, color=color, linestyle=linestyle, linewidth=1.4, zorder=4)
    axes.annotate(
        text,
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, -3),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=8.5,
        bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        zorder=5,
    )


def _near(x: float, other: float, low: float, high: float) -> bool:
    """Whether two places on a logarithmic axis leave no room for a name between them."""
    return math.isfinite(other) and abs(math.log(other / x)) < 0.25 * math.log(high / low) if x > 0 < other else False


def _epsilon_axis(axes: Axes, delta: float, low: float, high: float) -> None:
    """A second axis on top that reads rho as epsilon."""
    grid = np.geomspace(low, high, 400)
    epsilon = epsilon_of(grid, delta)
    values: list[float] = []
    for digits in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0), _HALVES, _TENTHS):
        nice = [digit * 10.0**power for power in range(-9, 9) for digit in digits]
        values = [value for value in nice if epsilon[0] <= value <= epsilon[-1]]
        if len(values) >= 4:
            break
    values = values[:: max(1, math.ceil(len(values) / 10))]
    places = np.exp(np.interp(values, epsilon, np.log(grid)))
    top = axes.twiny()
    top.set_xscale("log")
    top.set_xlim(low, high)
    top.spines["top"].set_visible(True)
    top.set_xticks(places, [tick(value) for value in values])
    top.set_xticks([], minor=True)
    top.set_xlabel(f"the same as ε at δ = {format_delta(delta)}", fontsize=8.5)


def _slope(interval: tuple[float, float, float] | None, words: str) -> tuple[float | None, str]:
    if interval is None:
        return None, ""
    low, estimate, high = (format_number(float(value), 2).replace("-", "−") for value in interval)
    return float(interval[1]), f"{words}: {estimate} (95 %: {low} to {high})"


def _line(axes: Axes, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], slope: float) -> None:
    """The regression line through the centre of the points."""
    ends = np.array([x.min(), x.max()])
    height = np.exp(np.log(y).mean() + slope * (np.log(ends) - np.log(x).mean()))
    axes.plot(ends, height, color=BLACK, linewidth=1.5, zorder=4)


def _design_title(assessment: Assessment) -> str:
    drivers = assessment.drivers
    if drivers is None or drivers.num_areas_used < ENOUGH:
        return "ρ by area against the design"
    low, estimate, _ = (float(value) for value in drivers.slope_log_ratio_joint)
    if low > 0:
        more = format_number(100 * (1.1**estimate - 1), 2)
        return f"Unequal weights go with larger ρ: 10 % more weight ratio, {more} % more ρ"
    if drivers.slope_log_n[2] < 0:
        return "Larger samples go with smaller ρ; the weight ratio adds nothing certain"
    return "Neither the sample size nor the weight ratio alone tells ρ"


__all__ = ["FEW", "Drawing", "draw_all"]
