"""The headline numbers of an assessment as one dictionary: what summary.json holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fhjax.errors import Status
from fhjax.privacy.tradeoff import personal_risk
from fhjax.records import Assessment, ReleaseGuarantee
from fhjax.report.areas import DEFAULT_METHODS, area_table, check_methods, epsilon_column, epsilon_of, in_areas
from fhjax.report.assumptions import assumptions
from fhjax.report.numbers import quantile


def column(table: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    """A numeric column as floats, NaN where it is missing."""
    return table[name].to_numpy(dtype=np.float64, na_value=math.nan)


def has(table: pd.DataFrame, name: str) -> bool:
    """Whether a column says anything about any area."""
    return not bool(np.isnan(column(table, name)).all())


def ratio(upper: Any, lower: Any) -> npt.NDArray[np.float64]:
    """``upper / lower`` where both are finite and ``lower`` is positive, NaN elsewhere: a ratio for display."""
    upper, lower = np.asarray(upper, dtype=np.float64), np.asarray(lower, dtype=np.float64)
    usable = np.isfinite(upper) & np.isfinite(lower) & (lower > 0)
    return np.divide(upper, lower, out=np.full(np.broadcast(upper, lower).shape, np.nan), where=usable)


def total(values: Any) -> int | None:
    """The sum of counts by area, or None when the input did not say."""
    return None if values is None else int(np.asarray(values).sum())


def largest(values: npt.NDArray[np.float64]) -> float:
    """The largest value that is not missing; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else math.nan


def worst_label(assessment: Assessment, release: ReleaseGuarantee) -> str | None:
    """The label of the area that attains a release's rho, or None when no single area does."""
    index = int(release.worst_area)
    return assessment.direct.labels[index] if 0 <= index < len(assessment.direct.labels) else None


def releases(assessment: Assessment) -> dict[str, ReleaseGuarantee]:
    """The guarantees of the three ways to release all areas, in the order in which the report shows them."""
    guarantees = assessment.guarantees
    return {
        "joint_correlated": guarantees.joint_correlated,
        "joint_independent": guarantees.joint_independent,
        "sequential": guarantees.sequential,
    }


def summarise(
    assessment: Assessment, *, table: pd.DataFrame | None = None, epsilon_methods: Sequence[str] = DEFAULT_METHODS
) -> dict[str, Any]:
    """The headline numbers, unrounded, as plain Python values (infinite ones are ``float("inf")``).

    Args:
        assessment: an assessed survey, m areas.
        table: its per-area table, if it was made already.
        epsilon_methods: ``simple`` fills the plain epsilon keys; each further method adds a dictionary
            ``epsilon_METHOD`` with the same names.

    Returns:
        A dictionary with the keys of summary.json. rho in nats, variances in outcome units squared.
    """
    methods = check_methods(epsilon_methods)
    table = area_table(assessment, methods) if table is None else table
    direct, fit, guarantees = assessment.direct, assessment.fit, assessment.guarantees
    rho = column(table, "rho")
    worst = int(np.argmax(rho))
    rhos = {name: float(release.rho) for name, release in releases(assessment).items()}
    epsilons = {method: _epsilons(table, rhos, assessment, method) for method in methods}
    result: dict[str, Any] = {
        "num_areas": len(direct.labels),
        "num_excluded": len(direct.excluded),
        "num_records": total(direct.num_records),
        "num_missing_outcome": total(direct.num_missing),
        "num_filtered": direct.num_filtered,
        "privacy_unit": direct.privacy_unit,
        "outcome": direct.outcome,
        "outcome_range": direct.outcome_range,
        "outcome_bounds": None if direct.outcome_bounds is None else list(direct.outcome_bounds),
        "cautions": list(direct.cautions),
        "estimator": direct.estimator,
        "variance_method": direct.variance_method,
        "variance_source": direct.variance_source,
        "model_variance": float(fit.model_variance),
        "model_variance_se": float(fit.model_variance_se),
        "beta": dict(zip(fit.columns, np.asarray(fit.beta).tolist(), strict=True)),
        "method": fit.method,
        "status": Status(int(fit.status)).sentence,
        "steps": int(fit.steps),
        "log_likelihood": float(fit.log_likelihood),
        "restricted_log_likelihood": float(fit.restricted_log_likelihood),
        "aic": float(fit.aic),
        "bic": float(fit.bic),
        "shrinkage_median": quantile(table["shrinkage"], 0.5),
        "rho_median": quantile(rho, 0.5),
        "rho_max": float(rho[worst]),
        "rho_max_area": direct.labels[worst],
        "num_infinite_rho": int(np.isinf(rho).sum()),
        "rho_joint_independent": rhos["joint_independent"],
        "rho_joint_correlated": rhos["joint_correlated"],
        "rho_sequential": rhos["sequential"],
        "sequential_factor": float(ratio(rhos["sequential"], rhos["joint_independent"])),
        "conservative_ratio_median": quantile(ratio(column(table, "rho_conservative"), rho), 0.5),
        "conservative_note": guarantees.conservative_note,
        "equal_weight_factor_median": quantile(ratio(rho, column(table, "rho_equal_weight")), 0.5),
        "equal_weight_factor_refitted_median": quantile(ratio(rho, column(table, "rho_equal_weight_refitted")), 0.5),
        "largest_off_diagonal_ratio": largest(in_areas(assessment, guarantees.off_diagonal_ratio)),
        "other_areas_share_max": largest(column(table, "other_areas_share")),
        "num_settled_by_certificate": int(guarantees.num_settled_by_certificate),
        "num_settled_by_search": int(guarantees.num_settled_by_search),
        "delta": assessment.delta,
        "epsilon_method": "simple",
        **{f"epsilon_{name}": value for name, value in epsilons["simple"].items()},
        "neighbours": guarantees.neighbours,
        "assumptions": list(assumptions(assessment)),
        "drivers": _drivers(assessment),
        "model_variance_changes": variance_changes(assessment),
        "releases": {
            name: {"release": release.release, "rho": rhos[name], "worst_area": worst_label(assessment, release)}
            for name, release in releases(assessment).items()
        },
        "risk_to_one_unit": _risk(quantile(rho, 0.5), float(rho[worst]), rhos["joint_correlated"], assessment.delta),
        "flags": {name: int(np.sum(marked)) for name, marked in direct.flags.items()},
        "reading": "Internal: computed from confidential data. Unrounded: round rho and epsilon up to quote them. "
        'An infinite value is the text "Infinity"; an unknown one is null.',
    }
    result.update({f"epsilon_{method}": epsilons[method] for method in methods if method != "simple"})
    return result


def variance_changes(assessment: Assessment) -> list[dict[str, float]]:
    """For each eta: the median, smallest and largest relative change of rho, the model variance times 1 + eta."""
    rows = []
    for eta in sorted(assessment.model_variance_changes):
        change = in_areas(assessment, assessment.model_variance_changes[eta]).astype(np.float64)
        change = change[np.isfinite(change)]
        low, high = (float(change.min()), float(change.max())) if change.size else (math.nan, math.nan)
        rows.append({"eta": float(eta), "median": quantile(change, 0.5), "min": low, "max": high, "areas": change.size})
    return rows


def _epsilons(table: pd.DataFrame, rhos: dict[str, float], assessment: Assessment, method: str) -> dict[str, float]:
    by_area = column(table, epsilon_column(method))
    values = {"median": quantile(by_area, 0.5), "max": largest(by_area)}
    for name, key in (("joint_independent", "joint"), ("joint_correlated", "joint_correlated"), ("sequential",) * 2):
        usable = method != "exact" or releases(assessment)[name].gaussian_pair
        values[key] = float(epsilon_of(rhos[name], assessment.delta, method)) if usable else math.nan
    return values


def _risk(median: float, worst: float, joint: float, delta: float) -> dict[str, Any]:
    """What an attacker with even odds gains: of the median area's draw, the most exposed one's, and the joint draw."""
    risk = personal_risk(np.array([median, worst, joint]), delta, prior=0.5)
    measures = {
        "best_guess": risk.best_guess,
        "advantage": risk.advantage,
        "largest_posterior": risk.largest_posterior,
    }
    found: dict[str, Any] = {"prior": 0.5, "except_with_probability": delta}
    for i, name in enumerate(("median_area", "most_exposed_area", "joint_correlated")):
        found[name] = {measure: float(np.asarray(values)[i]) for measure, values in measures.items()}
    return found


def _drivers(assessment: Assessment) -> dict[str, Any] | None:
    drivers = assessment.drivers
    if drivers is None:
        return None
    low_estimate_high = {
        name: dict(zip(("low", "estimate", "high"), map(float, getattr(drivers, name)), strict=True))
        for name in ("slope_log_n", "slope_log_ratio_joint", "slope_log_n_joint")
    }
    return {
        **low_estimate_high,
        "correlation_log_n_log_ratio": float(drivers.correlation_log_n_log_ratio),
        "correlation_log_rho_log_ratio": float(drivers.correlation_log_rho_log_ratio),
        "num_areas_used": drivers.num_areas_used,
    }
