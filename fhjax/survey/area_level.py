"""Direct estimates that somebody already has, with their design variances: checked and made a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fhjax.errors import InputError, complain, first_few
from fhjax.records import DirectEstimates, Labels
from fhjax.survey.area_table import AreaTable, read_area_table, refuse_undefined


def read_area_level(
    source: Any,
    *,
    area: str | Sequence[str],
    y: str,
    sampling_variance: str,
    sensitivity: str | None = None,
    max_weight: str | None = None,
    weight_total: str | None = None,
    n: str | None = None,
    outcome_range: float | None = None,
    bounds: tuple[float, float] | None = None,
    zero_variance: str = "error",
    variance_source: str = "estimated",
    privacy_unit: str | None = None,
    need_sensitivity: bool = True,
    delta: float | None = None,
    **options: Any,
) -> DirectEstimates:
    """Direct estimates and design variances that somebody already has, one row an area; returned in label order.

    Args:
        source, area: As in :func:`fhjax.survey.read.open_survey`.
        y, sampling_variance: Columns or SQL expressions: the estimate in outcome units and its design variance in
            squared units. From standard errors write ``"se * se"``.
        sensitivity: Largest change of y from one privacy unit, in outcome units. If not given it is ``(hi - lo) *
            max_weight / weight_total`` (docs/derivations.md, section 3). A table that has a column ``sensitivity`` of
            its own is never read with a smaller one.
        max_weight, weight_total: Largest weight of one privacy unit in the area, and the area's sum of weights.
        n: Records of the area, for the report.
        outcome_range: R = hi - lo of one respondent's outcome, in outcome units, where only that is known.
        bounds: (lo, hi) of one respondent's outcome, in outcome units. None takes them from the columns
            ``outcome_lower`` and ``outcome_upper`` where the table has them, as ``fhjax direct`` writes them, else
            (0, 1) where sensitivities follow from weights.
        zero_variance: What to do with a design variance of 0: ``"error"``, ``"exclude"`` the area (named in
            ``excluded``), or ``"keep"`` it, whose guarantee is infinite.
        variance_source: ``"estimated"`` from the same confidential data, or ``"public"``.
        privacy_unit: What the sensitivity protects: ``"record"``, or the name of a larger unit such as a household.
            None takes it from the column ``privacy_unit`` where the table has one, as ``fhjax direct`` writes it, else
            ``"record"``. Another unit than the table's is refused: its sensitivities are for the table's.
        need_sensitivity: False reads estimates for a fit alone; sensitivities that are not there are then NaN.
        delta: The delta at which guarantees will be stated. Another than that of the table's column ``delta``, as
            ``fhjax guarantee`` writes it, is refused: its epsilons are for the table's.

    Raises:
        InputError: Repeated areas; missing, infinite or negative numbers, by area; neither a sensitivity nor both
            weights; estimates that spread over more than the outcome range, lie outside the bounds or are absurd
            beside the rest; annotation codes of the Census Bureau in place of numbers; a unit, bounds or a sensitivity
            that contradict the table's own.

    Examples:
        >>> import pandas as pd
        >>> columns = {"area": ["a", "b"], "y": [0.1, 0.2], "v": [1e-4, 4e-4], "wmax": [5, 9], "w": [500, 300]}
        >>> direct = read_area_level(pd.DataFrame(columns), area="area", y="y", sampling_variance="v",
        ...                          max_weight="wmax", weight_total="w")
        >>> direct.sensitivity.tolist()
        [0.01, 0.03]
    """
    if zero_variance == "gvf":
        raise InputError(
            "zero_variance='gvf' needs the records: a generalised variance function cannot be fitted to given direct "
            "estimates. Choose 'exclude' or 'keep', or give these areas a variance."
        )
    if zero_variance not in ("error", "exclude", "keep"):
        raise InputError(f"zero_variance must be 'error', 'exclude' or 'keep', not {zero_variance!r}.")
    if variance_source not in ("estimated", "public"):
        raise InputError(f"variance_source must be 'estimated' or 'public', not {variance_source!r}.")
    from_weights = max_weight is not None and weight_total is not None
    if sensitivity is None and not from_weights and need_sensitivity:
        raise InputError(
            "The sensitivity of an estimate cannot be known from its variance. Give a column sensitivity, or both "
            "max_weight (the largest weight in the area) and weight_total (the sum of its weights)."
        )
    if outcome_range is not None and not (np.isfinite(outcome_range) and outcome_range > 0):
        raise InputError(f"outcome_range must be positive and finite, not {outcome_range!r}.")
    bounds = None if bounds is None else (float(bounds[0]), float(bounds[1]))
    if bounds is not None and not (np.isfinite(bounds).all() and bounds[0] < bounds[1]):
        raise InputError(f"The bounds must be finite with lo < hi, not {bounds!r}.")
    if bounds is not None and outcome_range is not None:
        raise InputError("bounds and outcome_range say the same thing twice. Give the bounds.")
    given = {
        "y": y,
        "sampling_variance": sampling_variance,
        "sensitivity": sensitivity,
        "max_weight": max_weight,
        "weight_total": weight_total,
        "n": n,
    }
    numbers = {key: text for key, text in given.items() if text is not None}
    own_texts = ("privacy_unit", "outcome", "source", "cautions")
    own_numbers = ("sensitivity", "outcome_lower", "outcome_upper", "delta")
    table = read_area_table(
        source, area=area, numbers=numbers, optional_texts=own_texts, optional_numbers=own_numbers,
        inputs=sorted({*numbers} & {"sampling_variance", "y"}), **options,
    )  # fmt: skip
    labels, values = table.labels, dict(table.values)
    unit = _one_text(table.texts, "privacy_unit") or "record"
    if privacy_unit is not None and "privacy_unit" in table.texts and privacy_unit != unit:
        raise InputError(
            f"The table's sensitivities protect one {unit} (its column privacy_unit), not one {privacy_unit}. Make the "
            f"estimates anew with `fhjax direct --unit {privacy_unit}`, or leave the unit out."
        )
    own_bounds = _own_bounds(table.others)
    if bounds is not None and own_bounds is not None and bounds != own_bounds:
        raise InputError(
            f"The table's estimates were made with outcomes between {own_bounds[0]:g} and {own_bounds[1]:g} (its "
            f"columns outcome_lower and outcome_upper), not {bounds[0]:g} and {bounds[1]:g}. Make them anew with "
            "these bounds, or leave the bounds out."
        )
    _refuse_other_delta(delta, table.others.get("delta"))
    _refuse_annotations(table, labels, numbers)
    for key, text in numbers.items():
        refuse_undefined(values[key], labels, f"{key.replace('_', ' ')} {text!r}")
    negative = labels.where(values["sampling_variance"] < 0)
    if negative:
        raise complain(f"have a negative sampling variance ({sampling_variance})", negative, "Correct it.")
    for key in ("sensitivity", "max_weight", "weight_total", "n"):
        low = labels.where(values[key] <= 0) if key in values else []
        if low:
            what = {"n": "number of records"}.get(key, key.replace("_", " "))
            raise complain(f"have a {what} ({numbers[key]}) of 0 or less", low, "Correct it.")
    if n is not None and (broken := labels.where(values["n"] != np.rint(values["n"]))):
        raise complain(
            f"have a number of records ({n}) that is not whole", broken, "Give the count, not an effective sample size."
        )
    if from_weights and (above := labels.where(values["max_weight"] > values["weight_total"])):
        raise complain("have a largest weight above their sum of weights", above, "The columns may be exchanged.")
    if outcome_range is not None and own_bounds is not None and outcome_range != own_bounds[1] - own_bounds[0]:
        raise InputError(
            f"The table's outcomes range over {own_bounds[1] - own_bounds[0]:g} (its columns outcome_lower and "
            f"outcome_upper), not {outcome_range:g}."
        )
    used_bounds = bounds or own_bounds
    if used_bounds is not None:
        outcome_range = used_bounds[1] - used_bounds[0]
        _refuse_outside(values["y"], labels, used_bounds, y)
    else:
        if from_weights and sensitivity is None and outcome_range in (None, 1.0):
            used_bounds, outcome_range = (0.0, 1.0), 1.0  # nobody said otherwise: a yes/no outcome
        outcome_range = float("nan") if outcome_range is None else outcome_range
        _refuse_narrow_range(values["y"], outcome_range, used_bounds, y)
    _refuse_absurd(values["y"], labels, y)
    if sensitivity is None:
        if from_weights:
            values["sensitivity"] = outcome_range * values["max_weight"] / values["weight_total"]
        else:
            values["sensitivity"] = np.full(len(labels), np.nan)
    _refuse_smaller(values["sensitivity"], table.others.get("sensitivity"), labels)
    zero = values["sampling_variance"] == 0
    if zero.any() and zero_variance == "error":
        raise complain(
            "have a sampling variance of 0",
            labels.where(zero),
            "Pass zero_variance='exclude' to leave them out, or 'keep' to have them with an infinite guarantee.",
        )
    keep = ~zero if zero_variance == "exclude" else np.ones(len(labels), dtype=bool)
    if not keep.any():
        raise InputError("No area is left: every sampling variance is 0.")
    excluded = tuple((label, "the sampling variance is 0") for label in labels.where(~keep))
    values = {key: value[keep] for key, value in values.items()}
    flags = {"zero_variance": zero[keep]} if zero[keep].any() else {}
    if sensitivity is not None:
        how = f"is {sensitivity}"
    else:
        how = f"is {outcome_range:g} * {max_weight} / {weight_total}" if from_weights else "was not given"
    return DirectEstimates(
        labels=Labels(labels.where(keep)),
        y=values["y"],
        sampling_variance=values["sampling_variance"],
        sensitivity=values["sensitivity"],
        num_records=None if n is None else np.rint(values["n"]).astype(np.int64),
        weight_sum=values.get("weight_total"),
        max_unit_weight=values.get("max_weight"),
        flags=flags,
        excluded=excluded,
        outcome_range=outcome_range,
        outcome_bounds=used_bounds,
        outcome=_one_text(table.texts, "outcome") or y,
        sources=tuple(filter(None, (_one_text(table.texts, "source") or "").split(";")))
        or tuple(file.sha256 for file in table.files),
        cautions=tuple(filter(None, (_one_text(table.texts, "cautions") or "").split("\n"))),
        privacy_unit=privacy_unit or unit,
        estimator="given",
        variance_method="given",
        variance_source=variance_source,
        design=(
            f"Direct estimates ({y}) and their design variances ({sampling_variance}) were given, not computed here.",
            f"The sensitivity of an area's estimate {how}.",
            *table.notes,
        ),
    )


def _refuse_outside(estimates: npt.NDArray[np.float64], labels: Labels, bounds: tuple[float, float], y: str) -> None:
    """Means of outcomes within declared bounds lie there too."""
    low, high = bounds
    slack = 1e-9 * (high - low)
    outside = labels.where((estimates < low - slack) | (estimates > high + slack))
    if outside:
        raise complain(
            f"have an estimate ({y}) outside the declared bounds {low:g} to {high:g}", outside,
            "A mean of outcomes within the bounds cannot lie there: correct the estimate, or declare bounds that hold.",
        )  # fmt: skip


def _refuse_narrow_range(
    estimates: npt.NDArray[np.float64], outcome_range: float, bounds: tuple[float, float] | None, y: str
) -> None:
    """Means of outcomes within [lo, hi] cannot differ by more than hi - lo, nor a yes/no mean leave [0, 1]."""
    low, high = float(estimates.min()), float(estimates.max())
    slack = 1e-9 * outcome_range
    outside = bounds is not None and (low < bounds[0] - slack or high > bounds[1] + slack)
    if outside or high - low > outcome_range + slack:
        raise InputError(
            f"The estimates {y!r} run from {low:g} to {high:g}, which an outcome of range {outcome_range:g} cannot "
            "give, so the sensitivity would be understated. Declare bounds=(lo, hi), the least and the largest value "
            "any respondent could have, or give the sensitivity itself."
        )


#: How many times the middle half of the estimates (and the median's size) an estimate may lie from their median.
ABSURD = 1e4


def _refuse_absurd(estimates: npt.NDArray[np.float64], labels: Labels, y: str) -> None:
    """An estimate thousands of times farther from the median than the others: a code or a slip, not an area."""
    if len(estimates) < 3:
        return
    low, middle, high = np.quantile(estimates, [0.25, 0.5, 0.75])
    reach = ABSURD * max(high - low, abs(middle), np.finfo(float).tiny)
    absurd = labels.where(np.abs(estimates - middle) > reach)
    if absurd and (high > low or middle != 0.0):
        raise complain(
            f"have an estimate ({y}) that is absurd beside the others, which lie around {middle:g}", absurd,
            "If it is a code for a missing estimate, declare it (missing={...}) and leave the area out; else "
            "correct it.",
        )  # fmt: skip


#: What the Census Bureau writes in estimate and margin-of-error columns instead of a number.
ANNOTATIONS = (-999999999.0, -888888888.0, -666666666.0, -555555555.0, -333333333.0, -222222222.0)


def _refuse_annotations(table: AreaTable, labels: Labels, numbers: dict[str, str]) -> None:
    """Codes and negative standard errors, also where an expression squares them into harmless-looking variances."""
    for role, columns in table.inputs.items():
        for column, cells in columns.items():
            coded = np.isin(cells, ANNOTATIONS)
            if coded.any():
                found = first_few(sorted({f"{value:.0f}" for value in cells[coded]}))
                raise complain(
                    f"hold the annotation code {found} in the column {column!r}", labels.where(coded),
                    "It stands for an estimate or margin of error that was not published: leave these areas out.",
                )  # fmt: skip
            if role == "sampling_variance" and numbers[role] != column and (cells < 0.0).any():
                raise complain(
                    f"have a negative value in the column {column!r}, which {numbers[role]!r} reads",
                    labels.where(cells < 0.0),
                    "A standard error or margin of error is never negative; negative codes such as -9 say that "
                    "there is none. Leave these areas out.",
                )


def _refuse_smaller(used: npt.NDArray[np.float64], own: npt.NDArray[np.float64] | None, labels: Labels) -> None:
    if own is None:
        return
    below = labels.where(used < own * (1.0 - 1e-9))
    if below:
        i = labels.index(below[0])
        raise complain(
            "have a sensitivity below the table's own column sensitivity", below,
            f"In {below[0]!r} it is {used[i]:.6g} against {own[i]:.6g}. Use the table's own (leave the weights, "
            "bounds or expression out), or drop that column if it is wrong.",
        )  # fmt: skip


def _refuse_other_delta(delta: float | None, own: npt.NDArray[np.float64] | None) -> None:
    if delta is None or own is None:
        return
    others = sorted({float(value) for value in own if value != delta and not np.isnan(value)})
    if others:
        raise InputError(
            f"The table states its guarantees at delta {' and '.join(f'{value:g}' for value in others[:5])} (its "
            f"column delta), not at {delta:g}. Two epsilons of one release at two deltas must not stand side by side: "
            "use the table's, or drop that column."
        )


def _own_bounds(others: dict[str, npt.NDArray[np.float64]]) -> tuple[float, float] | None:
    if not {"outcome_lower", "outcome_upper"} <= set(others):
        return None
    low, high = others["outcome_lower"], others["outcome_upper"]
    if np.isnan(low).all() and np.isnan(high).all():
        return None
    if not (np.all(low == low[0]) and np.all(high == high[0]) and low[0] < high[0]):
        raise InputError(
            "The columns outcome_lower and outcome_upper must hold the same bounds, lo < hi, in every area."
        )
    return float(low[0]), float(high[0])


def _one_text(texts: dict[str, tuple[str | None, ...]], name: str) -> str | None:
    """The text that a column holds in every row."""
    values = {value or "" for value in texts.get(name, ())} or {""}
    if len(values) > 1:
        what = "several units" if name == "privacy_unit" else "different texts"
        raise InputError(
            f"The column {name} names {what}: {first_few(sorted(values))}. One report protects one unit and is of one "
            "outcome."
        )
    return values.pop() or None
