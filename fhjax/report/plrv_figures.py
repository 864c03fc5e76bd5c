"""Figures of a privacy-loss check: the law of the loss, the p-values of all areas, delta(epsilon), Rényi divergence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy import stats

from fhjax.plrv import tail, theory
from fhjax.plrv.check import ORDERS, CheckResult, Pass
from fhjax.plrv.fit_tests import EDGES
from fhjax.report.canvas import BLACK, BLUE, GREY, LIGHT, VERMILLION, log_axis, new_figure, style, titled


def draw_check(result: CheckResult) -> dict[str, Figure]:
    """All figures of a check by file name."""
    figures = {}
    with style():
        shown = [each for each in result.passes if each.areas is not None or each.joint is not None]
        if shown:
            figures["loss_law"] = loss_law(shown)
        areas = [each for each in result.passes if each.areas is not None and len(each.areas.variance) >= 5]
        if areas:
            figures["p_values"] = p_values(areas)
        if result.tail:
            figures["delta"] = delta_curves(result)
        joints = [each for each in result.passes if each.joint is not None and each.name.endswith("D to D'")]
        if joints:
            figures["renyi"] = renyi_curves(result, joints)
    return figures


def write_check_figures(result: CheckResult, folder: str | Path) -> list[Path]:
    """Save every figure as PNG and PDF."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with style():
        for name, figure in draw_check(result).items():
            for ending in ("png", "pdf"):
                path = folder / f"{name}.{ending}"
                figure.savefig(path, dpi=160, metadata={"CreationDate": None} if ending == "pdf" else None)
                written.append(path)
    return written


def _share(histogram: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.maximum(histogram / histogram.sum(), 0.0)


def loss_law(passes: list[Pass]) -> Figure:
    """Standardised losses against the normal density, on a logarithmic axis so that the tails show."""
    figure, (axes,) = new_figure()
    width = EDGES[1] - EDGES[0]
    centres = np.concatenate([[EDGES[0] - width / 2], (EDGES[1:] + EDGES[:-1]) / 2, [EDGES[-1] + width / 2]])
    grid = np.linspace(-6.5, 6.5, 400)
    axes.plot(grid, stats.norm.pdf(grid), color=BLACK, linewidth=1.0, label="claimed: standard normal")
    marks = ("o", "s", "^", "v", "D")
    colours = (BLUE, VERMILLION, GREY, BLUE, VERMILLION)
    lowest = 1.0
    for index, each in enumerate(passes):
        summary = each.summary.areas if each.areas is not None else each.summary.joint
        counts = np.asarray(summary.histogram).sum(axis=0)
        seen = counts > 0
        density = _share(counts) / width
        lowest = min(lowest, density[seen].min())
        what = "all areas" if each.areas is not None else "joint loss"
        axes.plot(centres[seen], density[seen], marks[index % 5], color=colours[index % 5], markersize=2.5,
                  markerfacecolor="none", label=f"{each.name} ({what})")  # fmt: skip
    axes.set_ylim(lowest / 3, 1.0)
    log_axis(axes, "y")
    axes.set_xlabel("(loss − ρ) / √(2ρ)")
    axes.set_ylabel("density")
    axes.legend(frameon=False, fontsize=7.5, loc="lower center")
    titled(axes, "Privacy losses of the draws and the claimed law")
    return figure


def p_values(passes: list[Pass]) -> Figure:
    """Sorted p-values of all areas against uniform quantiles: a true claim follows the diagonal."""
    figure, panels = new_figure(columns=len(passes), sharey=True)
    for axes, each in zip(panels, passes, strict=True):
        assert each.areas is not None
        axes.plot([0, 1], [0, 1], color=LIGHT, linewidth=1.0)
        for (name, p), colour, line in zip(
            each.areas.items(), (BLUE, VERMILLION, BLACK), ("-", "--", ":"), strict=True
        ):
            ordered = np.sort(p)
            axes.plot((np.arange(len(p)) + 0.5) / len(p), ordered, line, color=colour, linewidth=1.2, label=name)
        axes.set_xlabel(f"uniform quantile\n{each.name}")
    panels[0].set_ylabel("sorted p-values of the areas")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle("p-values of a true claim follow the diagonal", x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def delta_curves(result: CheckResult) -> Figure:
    """delta(epsilon) by importance sampling with 99 % intervals, beside the claim."""
    figure, panels = new_figure(columns=len(result.tail))
    for axes, (name, estimate) in zip(panels, result.tail.items(), strict=True):
        rho = float(result.areas_rho[result.worst_area]) if name == "area" else result.joint_rho[name]
        epsilons = result.epsilons[name]
        fine = np.linspace(epsilons[0], epsilons[-1], 200)
        axes.plot(fine, theory.delta_of(rho, fine), color=BLACK, linewidth=1.0, label="claimed")
        error = np.array([estimate.value - estimate.low, estimate.high - estimate.value])
        axes.errorbar(epsilons, estimate.value, np.maximum(error, 0.0), fmt="o", color=VERMILLION, markersize=3,
                      linewidth=1.0, label="Monte Carlo, 99 %")  # fmt: skip
        axes.set_ylim(max(estimate.value.min() / 3, 1e-300), 1.0)
        log_axis(axes, "y")
        axes.set_xlabel(f"ε\n{'worst area' if name == 'area' else 'joint, ' + name}")
    panels[0].set_ylabel("δ(ε)")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle("δ(ε) of the draws and of the claim", x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def renyi_curves(result: CheckResult, passes: list[Pass]) -> Figure:
    """Estimated Rényi divergences; orders that the draws cannot reach are hollow and prove nothing."""
    figure, panels = new_figure(columns=len(passes))
    for axes, each in zip(panels, passes, strict=True):
        rho = result.joint_rho[each.release]
        estimate, feasible = tail.renyi_estimate(each.summary.joint_loss, rho, ORDERS)
        axes.plot(ORDERS, theory.renyi_of(rho, ORDERS), color=BLACK, linewidth=1.0, label="claimed: αρ")
        axes.plot(ORDERS[feasible], estimate.value[feasible], "o", color=BLUE, markersize=4, label="estimated")
        if not feasible.all():
            axes.plot(ORDERS[~feasible], estimate.value[~feasible], "o", color=VERMILLION, markerfacecolor="none",
                      markersize=5, label="out of reach: biased low")  # fmt: skip
        axes.set_xlim(1.0, ORDERS[-1] * 1.2)
        axes.set_ylim(estimate.value.min() / 1.5, ORDERS[-1] * rho * 1.5)
        log_axis(axes, "x")
        log_axis(axes, "y")
        axes.set_xlabel(f"order α\njoint, {each.release}")
        axes.legend(frameon=False, fontsize=7.5)
    panels[0].set_ylabel("Rényi divergence")
    figure.suptitle("Rényi divergence of the joint release", x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure
