"""What a trimming plan did, for people: a table of caps, a summary, the frontier drawn, and one self-contained page."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fhjax.records import TrimmingPlan
from fhjax.report.canvas import new_figure, style
from fhjax.report.statement import INTERNAL_NOTICE

_RULES = {
    "none": "dropped",
    "proportional": "shared out in proportion until no weight exceeds its cap",
    "additive": "shared out in equal parts until no weight exceeds its cap",
}
_OBJECTIVES = {
    "direct": "the mean squared error of direct estimates",
    "eblup": "the mean squared error of small-area estimates",
    "draw": "the mean squared error of released draws",
    "weights": "the largest shift that the weights allow, whatever the outcomes",
}


def caps_table(plan: TrimmingPlan) -> pd.DataFrame:
    """One row an area: the cap, what it cut, and every number before and after."""
    removed = np.divide(
        plan.weight_removed, plan.weight_before, out=np.zeros(len(plan.labels)), where=plan.weight_before > 0
    )
    return pd.DataFrame(
        {
            "area": list(plan.labels),
            "cap": plan.cap,
            "threshold": plan.threshold,
            "scale": plan.scale,
            "lift": plan.lift,
            "units": plan.units,
            "units_trimmed": plan.units_trimmed,
            "share_trimmed": plan.units_trimmed / np.maximum(plan.units, 1),
            "weight_removed": plan.weight_removed,
            "share_of_weight_removed": removed,
            "max_over_mean_before": plan.max_over_mean_before,
            "max_over_mean_after": plan.max_over_mean_after,
            "max_over_median_before": _ratio(plan.share_before * plan.weight_before, plan.median_before),
            "max_over_median_after": _ratio(_largest_after(plan), plan.median_after),
            "design_effect_before": plan.design_effect_before,
            "design_effect_after": plan.design_effect_after,
            "n_eff_before": plan.kish_n_eff_before,
            "n_eff_after": plan.kish_n_eff_after,
            "y_before": plan.y_before,
            "y_after": plan.y_after,
            "shift": plan.y_after - plan.y_before,
            "shift_se": np.sqrt(plan.shift_variance),
            "se_before": np.sqrt(plan.sampling_variance_before),
            "se_after": np.sqrt(plan.sampling_variance_after),
            "mse_before": plan.mse_before,
            "mse_after": plan.mse_after,
            "rho_before": plan.rho_area_before,
            "rho_after": plan.rho_area_after,
        }
    )


def _largest_after(plan: TrimmingPlan) -> np.ndarray:
    largest = plan.share_before * plan.weight_before
    return plan.scale * (np.minimum(largest, plan.threshold) + plan.lift)


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.full(len(top), np.inf), where=bottom > 0)


def plan_summary(plan: TrimmingPlan) -> dict[str, Any]:
    """The headline numbers as plain values."""
    target = np.asarray(plan.target_rho)
    return {
        "target_rho": float(target) if target.ndim == 0 else target.tolist(),
        "rho_before": plan.rho_before,
        "rho_after": plan.rho_after,
        "rho_after_variances_frozen": plan.rho_after_frozen,
        "rho_after_variances_reestimated": plan.rho_after_reestimated,
        "status": plan.status,
        "certified": plan.certified,
        "rho_by_the_route_of_the_report": plan.rho_report,
        "rho_from_written_weights": plan.rho_written,
        "infeasible_areas": list(plan.infeasible_areas),
        "smallest_rho_found": plan.smallest_rho,
        "mse_before": float(np.mean(plan.mse_before)),
        "mse_after": float(np.mean(plan.mse_after)),
        "root_mean_square_shift": float(np.sqrt(np.mean((plan.y_after - plan.y_before) ** 2))),
        "units": int(plan.units.sum()),
        "units_trimmed": int(plan.units_trimmed.sum()),
        "areas": len(plan.labels),
        "areas_trimmed": int(np.count_nonzero(plan.units_trimmed)),
        "share_of_weight_removed": float(plan.weight_removed.sum() / plan.weight_before.sum()),
        "design_effect_before": float(np.mean(plan.design_effect_before)),
        "design_effect_after": float(np.mean(plan.design_effect_after)),
        "model_variance_before": plan.model_variance_before,
        "model_variance_after": plan.model_variance_after,
        "multiple": plan.multiple,
        "joint": plan.joint,
        "mode": plan.mode,
        "redistribution": plan.redistribution,
        "variances": plan.variances,
        "objective": plan.objective,
        "privacy_unit": plan.privacy_unit,
        "statements": list(plan.statements),
    }


def plan_text(plan: TrimmingPlan) -> str:
    """A few lines for the terminal."""
    goal = np.asarray(plan.target_rho)
    head = {
        "certified": "MEETS",
        "frozen_only": "DOES NOT MEET (only with variances held or given)",
    }.get(plan.status, "DOES NOT MEET")
    after = plan.rho_report if plan.rho_written is None else plan.rho_written
    held = f" ({plan.rho_after:.6g} with the plan's own variances)" if plan.status == "frozen_only" else ""
    lines = [
        f"This plan {head} the target rho {float(goal.max()):.6g}: {plan.rho_before:.6g} before, "
        f"{after:.6g} after{held}.",
        f"{int(plan.units_trimmed.sum()):,} of {int(plan.units.sum()):,} weights are trimmed in "
        f"{int(np.count_nonzero(plan.units_trimmed)):,} of {len(plan.labels):,} areas. "
        f"Mean squared error: {np.mean(plan.mse_before):.4g} before, {np.mean(plan.mse_after):.4g} after.",
    ]
    if not plan.certified and plan.infeasible_areas:
        shown = ", ".join(plan.infeasible_areas[:5])
        more = f" and {len(plan.infeasible_areas) - 5:,} more" if len(plan.infeasible_areas) > 5 else ""
        lines.append(f"In the way: {shown}{more}. The smallest rho found is {plan.smallest_rho:.6g}.")
    return "\n".join(lines)


def draw_frontier(points: Any) -> bytes:
    """PNG of the frontier: accuracy against rho, for draws after trimming and for noise on direct estimates."""
    with style():
        figure, (axes,) = new_figure()
        order = np.argsort(points.rho)
        rho = points.rho[order]
        axes.plot(rho, np.sqrt(points.mse_of_draw[order]), marker="o", markersize=3, label="trimmed, one draw released")
        axes.plot(rho, np.sqrt(points.noise_mse[order]), linestyle="--", label="untrimmed, noise on direct estimates")
        for name, index in (("untrimmed", 0), ("equal weights", len(points.rho) - 1)):
            axes.annotate(name, (points.rho[index], float(np.sqrt(points.mse_of_draw[index]))), fontsize=7)
        axes.set_xscale("log")
        axes.set_xlabel("rho of the joint release")
        axes.set_ylabel("root mean squared error")
        axes.legend()
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=200)
    return picture.getvalue()


def frontier_table(points: Any) -> pd.DataFrame:
    """One row a point of the frontier."""
    names = ("target", "rho", "met", "mse", "mse_of_draw", "noise_mse", "bias", "design_effect", "units_trimmed",
             "model_variance")  # fmt: skip
    return pd.DataFrame({name: getattr(points, name) for name in names})


def rules_table(results: Sequence[Any]) -> pd.DataFrame:
    """One row a classical rule."""
    names = ("rule", "rho", "mse", "bias", "units_trimmed")
    return pd.DataFrame({name: [getattr(result, name) for result in results] for name in names})


def trimming_page(
    plan: TrimmingPlan, *, frontier: Any = None, rules: Sequence[Any] = (), title: str | None = None
) -> str:
    """One HTML page without scripts or external resources; every foreign text escaped."""
    css = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    heading = html.escape(title or "Weight trimming to a target rho")
    target = float(np.asarray(plan.target_rho).max())
    after = plan.rho_report if plan.rho_written is None else plan.rho_written
    if plan.certified:
        source = "trimmed weights" if plan.rho_written is None else "written weights"
        verdict = (
            f"The caps meet the target: rho is {plan.rho_before:.6g} before trimming and {after:.6g} after, "
            f"recomputed by a full refit from the {source}; the target was {target:.6g}."
        )
    elif plan.status == "frozen_only":
        verdict = (
            f"The target rho {target:.6g} is NOT met by the release: rho is {after:.6g} after trimming, recomputed "
            f"by a full refit. With the variances held or given it would be {plan.rho_after:.6g}."
        )
    else:
        verdict = (
            f"The target rho {target:.6g} is NOT met. rho is {plan.rho_before:.6g} before trimming and "
            f"{after:.6g} after; the smallest that trimming was found to reach is {plan.smallest_rho:.6g}."
        )
    how = (
        f"Cut weight is {_RULES[plan.redistribution]}. The caps make {_OBJECTIVES[plan.objective]} least. "
        f"With the design and model variances held as before trimming rho would be {plan.rho_after_frozen:.6g}, "
        f"re-estimated after trimming it is {plan.rho_after_reestimated:.6g}."
    )
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{heading}</title><style>{css}</style></head><body>',
        '<div class="notice" role="note"><p><strong>Internal document.</strong> ',
        f"{html.escape(INTERNAL_NOTICE)}</p></div>",
        f"<header><h1>{heading}</h1></header><main>",
        '<section id="trimming"><h2>Statement</h2>',
        f"<p>{html.escape(verdict)}</p><p>{html.escape(how)}</p>",
        *(f"<p>{html.escape(sentence)}</p>" for sentence in plan.statements),
    ]
    if plan.infeasible_areas:
        names = ", ".join(plan.infeasible_areas)
        parts.append(f"<p>Areas above the target: {html.escape(names)}.</p>")
    parts += ["</section>", _section("Caps", caps_table(plan))]
    if len(rules):
        parts.append(_section("Classical rules under the same refit", rules_table(rules)))
    if frontier is not None:
        picture = base64.b64encode(draw_frontier(frontier)).decode("ascii")
        cross = frontier.crossover()
        sentence = (
            "At none of these points is a draw after trimming more accurate than noise on the direct estimates."
            if cross is None
            else f"The largest of these rho at which a draw after trimming is more accurate than noise: {cross:.4g}."
        )
        parts.append(
            f'<section id="frontier"><h2>Frontier</h2><p>{html.escape(sentence)}</p>'
            f'<img alt="Accuracy against rho" width="780" src="data:image/png;base64,{picture}"></section>'
        )
        parts.append(_section("Points of the frontier", frontier_table(frontier)))
    parts.append("</main></body></html>")
    return "\n".join(parts)


def _section(heading: str, table: pd.DataFrame) -> str:
    body = table.to_html(index=False, escape=True, border=0, float_format=lambda value: f"{value:.5g}")
    return f'<section><h2>{html.escape(heading)}</h2><div class="scroll" tabindex="0">{body}</div></section>'
