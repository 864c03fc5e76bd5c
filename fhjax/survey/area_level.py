"""Direct estimates that somebody already has, with their design variances: checked and made a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fhjax.errors import InputError, complain, first_few
from fhjax.records import DirectEstimates, Labels
from fhjax.survey.area_table import read_area_table, refuse_undefined


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
    outcome_range: float = 1.0,
    zero_variance: str = "error",
    variance_source: str = "estimated",
    privacy_unit: str | None = None,
    **options: Any,
) -> DirectEstimates:
    """Direct estimates and design variances that somebody already has, one row an area; returned in label order.

    Args:
        source, area: As in :func:`fhjax.survey.read.open_survey`.
        y, sampling_variance: Columns or SQL expressions: the estimate in outcome units and its design variance in
            squared units. From standard errors write ``"se * se"``.
        sensitivity: Largest change of y from one privacy unit, in outcome units. If not given it is ``outcome_range *
            max_weight / weight_total`` (docs/derivations.md, section 3).
        max_weight, weight_total: Largest weight of one privacy unit in the area, and the area's sum of weights.
        n: Records of the area, for the report.
        outcome_range: R = hi - lo of one respondent's outcome, in outcome units.
        zero_variance: What to do with a design variance of 0: ``"error"``, ``"exclude"`` the area (named in
            ``excluded``), or ``"keep"`` it, whose guarantee is infinite.
        variance_source: ``"estimated"`` from the same confidential data, or ``"public"``.
        privacy_unit: What the sensitivity protects: ``"record"``, or the name of a larger unit such as a household.
            None takes it from the column ``privacy_unit`` where the table has one, as ``fhjax direct`` writes it, else
            ``"record"``.

    Raises:
        InputError: Repeated areas; missing, infinite or negative numbers, by area; neither a sensitivity nor both
            weights; estimates that spread over more than the outcome range.

    Example:
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
    if sensitivity is None and not from_weights:
        raise InputError(
            "The sensitivity of an estimate cannot be known from its variance. Give a column sensitivity, or both "
            "max_weight (the largest weight in the area) and weight_total (the sum of its weights)."
        )
    if not (np.isfinite(outcome_range) and outcome_range > 0):
        raise InputError(f"outcome_range must be positive and finite, not {outcome_range!r}.")
    given = {
        "y": y,
        "sampling_variance": sampling_variance,
        "sensitivity": sensitivity,
        "max_weight": max_weight,
        "weight_total": weight_total,
        "n": n,
    }
    numbers = {key: text for key, text in given.items() if text is not None}
    table = read_area_table(source, area=area, numbers=numbers, optional_texts=("privacy_unit",), **options)
    labels, values = table.labels, dict(table.values)
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
    if from_weights and sensitivity is None:
        _refuse_narrow_range(values["y"], outcome_range, y)
    if sensitivity is None:
        values["sensitivity"] = outcome_range * values["max_weight"] / values["weight_total"]
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
    how = f"is {sensitivity}" if sensitivity is not None else f"is {outcome_range:g} * {max_weight} / {weight_total}"
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
        outcome_range=float(outcome_range) if from_weights else float("nan"),
        privacy_unit=privacy_unit or _privacy_unit(table.texts.get("privacy_unit", ())),
        estimator="given",
        variance_method="given",
        variance_source=variance_source,
        design=(
            f"Direct estimates ({y}) and their design variances ({sampling_variance}) were given, not computed here.",
            f"The sensitivity of an area's estimate {how}.",
            *table.notes,
        ),
    )


def _refuse_narrow_range(estimates: npt.NDArray[np.float64], outcome_range: float, y: str) -> None:
    """Means of outcomes within [lo, hi] cannot differ by more than hi - lo, nor a yes/no mean leave [0, 1]."""
    low, high = float(estimates.min()), float(estimates.max())
    outside = outcome_range == 1.0 and (low < 0.0 or high > 1.0)
    if outside or high - low > outcome_range * (1.0 + 1e-9):
        raise InputError(
            f"The estimates {y!r} run from {low:g} to {high:g}, which an outcome of range {outcome_range:g} cannot "
            "give, so the sensitivity would be understated. Declare bounds=(lo, hi), the least and the largest value "
            "any respondent could have, or give the sensitivity itself."
        )


def _privacy_unit(column: Sequence[str | None]) -> str:
    units = {unit or "record" for unit in column} or {"record"}
    if len(units) > 1:
        raise InputError(
            f"The column privacy_unit names several units: {first_few(sorted(units))}. One report protects one unit."
        )
    return units.pop()
