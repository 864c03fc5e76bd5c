"""The tables of the report: text cells, ready to be shown. Nothing is computed here beyond quantiles and ratios."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fhjax.records import FLAGS, Assessment
from fhjax.report.areas import in_areas
from fhjax.report.numbers import (
    MISSING,
    format_change,
    format_count,
    format_delta,
    format_number,
    format_up,
    mean,
    quantile,
)
from fhjax.report.summary import column, has, ratio, releases, variance_changes, worst_label

#: More rows than this make a page nobody reads; areas.csv has them all.
AREAS_SHOWN = 500
#: Columns of the per-area table and their headings; rho and epsilon are rounded up.
AREA_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "rho": ("ρ", format_up),
    "epsilon": ("ε", format_up),
    "epsilon_tight": ("ε tight", format_up),
    "epsilon_exact": ("ε exact", format_up),
    "rho_conservative": ("ρ conservative", format_up),
    "rho_equal_weight": ("ρ equal weights", format_up),
    "n": ("n", format_count),
    "weight_ratio": ("Weight ratio", format_number),
    "sensitivity": ("Sensitivity Δ", format_number),
    "deff": ("Design effect", format_number),
    "n_eff": ("Effective n", format_count),
    "n_missing": ("No outcome", format_count),
    "degrees_of_freedom": ("Degrees of freedom", format_count),
    "y": ("Direct estimate", lambda x: format_number(x, 4)),
    "se": ("Standard error", format_number),
    "shrinkage": ("Shrinkage B", format_number),
    "c_own": ("Own coefficient c_ii", format_number),
    "posterior_mean": ("Posterior mean", lambda x: format_number(x, 4)),
    "posterior_sd": ("Posterior s.d.", format_number),
}
#: What the short table of the most exposed areas shows of them.
EXPOSED_COLUMNS = (
    "rho", "epsilon", "epsilon_tight", "epsilon_exact", "rho_equal_weight", "n", "weight_ratio", "sensitivity",
    "degrees_of_freedom", "shrinkage",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Table:
    """One table of text cells; the first cell of a row is its heading."""

    key: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    text_columns: tuple[int, ...] = ()  # besides the first: columns of words, set left


def design_table(assessment: Assessment, table: pd.DataFrame) -> Table:
    """Areas, records and weights: what the guarantee is about (the paper's Table 1)."""
    direct = assessment.direct

    def by_area(name: str, values: npt.NDArray[np.float64], form: Callable[[float], str], whole: str = "") -> tuple:
        return (name, whole, *(form(quantile(values, q)) for q in (0.0, 0.5, 1.0)))

    def counts(name: str, values: Any) -> tuple:
        values = np.asarray([math.nan] if values is None else values, dtype=np.float64)
        return by_area(name, values, format_count, format_count(float(values.sum())))

    rows = [
        ("Areas", format_count(len(direct.labels)), "", "", ""),
        ("Areas excluded", format_count(len(direct.excluded)), "", "", ""),
        counts("Records with an observed outcome (n)", direct.num_records),
        counts("Records without one", direct.num_missing),
        ("Records removed by the filter", format_count(direct.num_filtered), "", "", ""),
        by_area("Weight ratio (largest / mean)", column(table, "weight_ratio"), format_number),
        by_area("Effective sample size (Kish)", column(table, "n_eff"), format_number),
        by_area("Design effect", column(table, "deff"), format_number),
        by_area("Degrees of freedom of the variance", column(table, "degrees_of_freedom"), format_count),
        by_area("Direct estimate", column(table, "y"), lambda x: format_number(x, 4)),
        by_area("Standard error", column(table, "se"), format_number),
        by_area("Sensitivity Δ", column(table, "sensitivity"), format_number),
        by_area("Shrinkage B", column(table, "shrinkage"), format_number),
    ]
    shown = tuple(row for row in rows if any(cell not in ("", MISSING) for cell in row[1:]))
    return Table("design", "Table 1. The survey by area", ("", "Total", "Minimum", "Median", "Maximum"), shown)


def rho_table(assessment: Assessment, table: pd.DataFrame) -> Table:
    """How rho and epsilon are spread over the areas (the paper's Tables 2 and S1)."""
    rows = [("ρ of one area's draw", *_spread(column(table, "rho"), format_up))]
    names = {"epsilon": "ε of one area's draw", "epsilon_tight": "ε, tight", "epsilon_exact": "ε, exact"}
    rows += [(names[name], *_spread(column(table, name), format_up)) for name in names if name in table]
    rows.append(("ρ, own-area term alone", *_spread(column(table, "rho_own_area"), format_up)))
    if assessment.guarantees.conservative_rho is not None:
        conservative = column(table, "rho_conservative")
        rows.append(("ρ, conservative", *_spread(conservative, format_up)))
        rows.append(("conservative / exact", *_spread(ratio(conservative, column(table, "rho")), format_number)))
    note = (
        f"Conservative bound: {assessment.guarantees.conservative_note}"
        if assessment.guarantees.conservative_note
        else ""
    )
    return Table("rho", "Tables 2 and S1. The cost of publishing one area", ("", *_SPREAD_HEADER), tuple(rows), note)


def risk_table(assessment: Assessment, summary: dict[str, Any]) -> Table:
    """What the same numbers mean for one privacy unit: how often the best attack is right, and how sure it can be."""
    risk = summary["risk_to_one_unit"]
    titles = {
        "median_area": "One area's draw, median area",
        "most_exposed_area": "One area's draw, most exposed area",
        "joint_correlated": "All areas, one draw of the joint posterior",
    }
    measures = ("best_guess", "advantage", "largest_posterior")
    rows = tuple((title, *(_chance(risk[name][measure]) for measure in measures)) for name, title in titles.items())
    unit = "person" if assessment.direct.privacy_unit == "record" else f"unit ({assessment.direct.privacy_unit})"
    note = (
        f"An attacker knows everything but which of two outcomes one {unit} has, and thinks them equally likely (50 %) "
        "before the release. After it the best guess is right as often as the first column says. The advantage is how "
        "much more often the best attack says yes when yes is true than when it is not. How sure the attacker can "
        f"become has no limit, but it stays below the last column except with probability δ = "
        f"{format_delta(summary['delta'])}."
    )
    header = ("", "Best guess is right", "Advantage", "Almost never surer than")
    return Table("risk", f"What it means for one {unit}", header, rows, note)


def _chance(probability: float) -> str:
    """A probability in percent, rounded up, but only certainty is called 100 %."""
    if 0.999 < probability < 1.0:
        return "> 99.9 %"
    return f"{format_up(100.0 * probability)} %"


def structure_table(assessment: Assessment, table: pd.DataFrame) -> Table:
    """How much areas move one another: why the own-area term decides."""
    guarantees = assessment.guarantees
    rows = (
        ("Own coefficient c_ii", *_spread(column(table, "c_own"), format_number)),
        (
            "Largest off-diagonal ratio",
            *_spread(in_areas(assessment, guarantees.off_diagonal_ratio).astype(np.float64), format_number),
        ),
        ("Share of other areas, r_k", *_spread(column(table, "other_areas_share"), format_number)),
    )
    note = (
        f"Which area moves an area's estimate most was settled by a bound for "
        f"{format_count(int(guarantees.num_settled_by_certificate))} areas and by a search over all areas for "
        f"{format_count(int(guarantees.num_settled_by_search))}."
    )
    if not guarantees.off_diagonal_exact:
        note += " Where no search was needed the off-diagonal ratio is an upper bound."
    return Table(
        "structure", "How one area's respondents move another area's estimate", ("", *_SPREAD_HEADER), rows, note
    )


def release_table(assessment: Assessment, summary: dict[str, Any]) -> Table:
    """The joint releases against the sum of all areas."""
    methods = ["epsilon_tight", "epsilon_exact"]
    extra = [method for method in methods if method in summary]
    heads = {"epsilon_tight": "ε tight", "epsilon_exact": "ε exact"}
    keys = {"joint_correlated": "joint_correlated", "joint_independent": "joint", "sequential": "sequential"}
    titles = {
        "joint_correlated": "All areas, one draw of the joint posterior",
        "joint_independent": "All areas, drawn independently",
        "sequential": "Sum of the areas' costs (sequential composition)",
    }
    joint = summary["rho_joint_independent"]
    rows = tuple(
        (
            titles[name],
            format_up(float(release.rho)),
            format_up(summary[f"epsilon_{keys[name]}"]),
            *(format_up(summary[method][keys[name]]) for method in extra),
            format_number(float(ratio(float(release.rho), joint))),
            worst_label(assessment, release) or MISSING,
        )
        for name, release in releases(assessment).items()
    )
    header = (
        "Release",
        "ρ",
        "ε",
        *(heads[method] for method in extra),
        "Relative to independent draws",
        "Decided by area",
    )
    note = "The sum is the cost only if the joint structure is ignored: the same releases, accounted for more crudely."
    return Table("releases", "The cost of publishing all areas", header, rows, note, text_columns=(len(header) - 1,))


def weights_table(assessment: Assessment, table: pd.DataFrame) -> Table | None:
    """What unequal weights cost: rho if all weights of an area were equal, and the factor between."""
    if assessment.equal_weight_rho is None:
        return None
    equal, rho = column(table, "rho_equal_weight"), column(table, "rho")
    rows = (
        ("ρ of one area's draw", *_spread(rho, format_up)),
        ("ρ if its weights were equal, variances held", *_spread(equal, format_up)),
        ("Factor, variances held", *_spread(ratio(rho, equal), format_number)),
    )
    note = "Equal weights: every record has its area's mean weight; the sampling variances are left as they are."
    if has(table, "rho_equal_weight_refitted"):
        refitted = column(table, "rho_equal_weight_refitted")
        rows += (
            ("ρ if its weights were equal, everything refitted", *_spread(refitted, format_up)),
            ("Factor, everything refitted", *_spread(ratio(rho, refitted), format_number)),
        )
        note = (
            "Equal weights: every record has its area's mean weight. With variances held, design and model "
            "variances are left as they are, which isolates the weights' part in the sensitivity; refitted, they "
            "are estimated anew from equal weights, which is what a survey with equal weights would cost."
        )
    return Table("weights", "The cost of unequal weights", ("", *_SPREAD_HEADER), rows, note)


def drivers_table(assessment: Assessment) -> Table | None:
    """Regressions of log rho on log sample size and log weight ratio, with 95 % intervals."""
    drivers = assessment.drivers
    if drivers is None:
        return None

    def slope(name: str, values: tuple[float, float, float]) -> tuple[str, ...]:
        low, estimate, high = (float(value) for value in values)
        return (name, _signed(estimate), f"{_signed(low)} to {_signed(high)}")

    rows = (
        slope("log n, alone", drivers.slope_log_n),
        slope("log weight ratio, at the same n", drivers.slope_log_ratio_joint),
        slope("log n, at the same weight ratio", drivers.slope_log_n_joint),
        ("Correlation of log n and log weight ratio", _signed(float(drivers.correlation_log_n_log_ratio)), ""),
        ("Correlation of log ρ and log weight ratio", _signed(float(drivers.correlation_log_rho_log_ratio)), ""),
    )
    note = f"Least squares of log ρ over {format_count(drivers.num_areas_used)} areas with a finite, positive ρ."
    return Table("drivers", "What makes an area's ρ large", ("Regressor", "Estimate", "95 % interval"), rows, note)


def variance_table(assessment: Assessment) -> Table | None:
    """How rho answers to a model variance that is off (the paper's Table S2)."""
    rows = tuple(
        (
            format_change(row["eta"]),
            *(format_change(row[name]) for name in ("min", "median", "max")),
        )
        for row in variance_changes(assessment)
    )
    if not rows:
        return None
    header = ("Model variance changed by", "Minimum", "Median", "Maximum")
    return Table("variance", "Table S2. Relative change of ρ when the model variance is changed", header, rows)


def fit_table(assessment: Assessment, summary: dict[str, Any]) -> Table:
    """The fitted model."""
    fit = assessment.fit
    errors = np.sqrt(np.maximum(np.diagonal(np.asarray(fit.beta_covariance)), 0.0))
    rows = [
        (
            "Model variance σ_v²",
            format_number(summary["model_variance"], 6),
            format_number(summary["model_variance_se"]),
        ),
        *(
            (f"Coefficient of {name}", format_number(value, 6), format_number(float(error)))
            for (name, value), error in zip(summary["beta"].items(), errors, strict=True)
        ),
        ("Log-likelihood", format_number(summary["log_likelihood"], 6).replace("-", "−"), ""),
        ("AIC", format_number(summary["aic"], 6).replace("-", "−"), ""),
        ("BIC", format_number(summary["bic"], 6).replace("-", "−"), ""),
    ]
    note = f"Fitted by {fit.method.upper() if len(fit.method) < 5 else fit.method}. {summary['status']}"
    return Table("fit", "The fitted Fay-Herriot model", ("", "Estimate", "Standard error"), tuple(rows), note)


def exposed_table(table: pd.DataFrame, count: int = 10) -> Table:
    """The areas with the largest rho."""
    return _area_rows(
        "exposed", f"The {min(count, len(table))} most exposed areas", table, count, columns=EXPOSED_COLUMNS
    )


def areas_table(table: pd.DataFrame) -> Table:
    """All areas, or the first :data:`AREAS_SHOWN` by rho."""
    title = f"All {len(table):,} areas" if len(table) <= AREAS_SHOWN else f"The {AREAS_SHOWN} areas with the largest ρ"
    note = "" if len(table) <= AREAS_SHOWN else f"areas.csv has all {len(table):,} areas, unrounded."
    return _area_rows("areas", title, table, AREAS_SHOWN, note)


def flags_table(assessment: Assessment) -> Table | None:
    """What each flag that occurs says, and where."""
    direct = assessment.direct
    raised = {name: direct.labels.where(marked) for name, marked in direct.flags.items() if np.any(marked)}
    if not raised:
        return None
    rows = tuple(
        (name, FLAGS.get(name, "").capitalize() or MISSING, format_count(len(areas)), _names(areas))
        for name, areas in raised.items()
    )
    return Table("flags", "Flagged areas", ("Flag", "Meaning", "Areas", "Which"), rows, text_columns=(1, 3))


def excluded_areas_table(assessment: Assessment) -> Table | None:
    """The areas that are not in the release, and why."""
    if not assessment.direct.excluded:
        return None
    title = "Areas that could not be used"
    return Table("excluded", title, ("Area", "Reason"), tuple(assessment.direct.excluded), text_columns=(1,))


def notation_table() -> Table:
    """The letters of the report and the columns of areas.csv."""
    return Table("notation", "Notation", ("Symbol", "In areas.csv", "Meaning"), NOTATION, text_columns=(1, 2))


NOTATION = (
    ("n", "n", "records of the area with an observed outcome"),
    ("w_max, w̄", "w_max, sum_w", "largest weight of one privacy unit, and mean weight; their ratio is weight_ratio"),
    ("y", "y", "direct survey estimate"),
    ("ψ", "sampling_variance", "design variance of y; se is its root"),
    ("σ_v²", "", "variance of the area effects in the Fay-Herriot model (model_variance in summary.json)"),
    ("B", "shrinkage", "ψ / (ψ + σ_v²), the weight on the model's prediction"),
    ("σ²", "posterior_variance", "variance of the area's draw; posterior_sd is its root"),
    ("Δ", "sensitivity", "largest change of y that one privacy unit can cause"),
    ("c_ii", "c_own", "how far the posterior mean moves when the area's own y moves by one"),
    ("ρ", "rho", "zero-concentrated differential privacy parameter of the area's draw; smaller is stronger"),
    ("ρ own-area", "rho_own_area", "the part of ρ that comes from the area's own records"),
    ("joint term", "joint_term_independent", "ρ of all independent draws for a change in this area's records"),
    ("r", "other_areas_share", "the part of the joint term that comes from other areas' draws, relative to its own"),
    (
        "ε, δ",
        "epsilon",
        "no outcome of the draw becomes more than exp(ε) times as probable, plus δ, when a neighbour's data are used",
    ),
)


_SPREAD_HEADER = ("Minimum", "25 %", "Median", "75 %", "90 %", "95 %", "Maximum", "Mean")


def _spread(values: npt.NDArray[np.float64], form: Callable[[float], str]) -> tuple[str, ...]:
    return (*(form(quantile(values, q)) for q in (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)), form(mean(values)))


def _area_rows(
    key: str, title: str, table: pd.DataFrame, count: int, note: str = "", columns: Iterable[str] = AREA_COLUMNS
) -> Table:
    """The ``count`` areas with the largest rho, in that order; columns that are missing everywhere are left out."""
    order = np.argsort(-column(table, "rho"), kind="stable")[:count]
    names = [name for name in columns if name in table and has(table, name)]
    values = {name: column(table, name)[order] for name in names}
    labels, flags = table["area"].to_numpy()[order], table["flags"].to_numpy()[order]
    with_flags = any(flags)
    rows = tuple(
        (
            str(labels[i]),
            *(AREA_COLUMNS[name][1](float(values[name][i])) for name in names),
            *((flags[i].replace(";", ", ").replace("_", " "),) if with_flags else ()),
        )
        for i in range(len(order))
    )
    header = ("Area", *(AREA_COLUMNS[name][0] for name in names), *(("Flags",) if with_flags else ()))
    return Table(key, title, header, rows, note, text_columns=(len(header) - 1,) if with_flags else ())


def _signed(x: float) -> str:
    """A number that may be negative, with a minus sign that does not break off."""
    return format_number(x).replace("-", "−")


def _names(areas: list[str], limit: int = 20) -> str:
    rest = len(areas) - limit
    return ", ".join(areas[:limit]) + (f" and {rest:,} more" if rest > 0 else "")
