"""A survey's records as sums over equal weights: what weight trimming needs, in one pass of the data engine.

The cluster sums for Taylor linearisation use window functions. When a cap falls past a record, the record moves from
the part of its PSU that keeps its weight to the part that is trimmed, and the PSU's products change by amounts that
depend only on what was passed before. Those amounts are summed by area and size; no step of a search sees a record.
"""

from __future__ import annotations

from typing import Any, Literal

import ibis
import numpy as np
import pyarrow as pa

from fhjax.errors import InputError, complain
from fhjax.records import FloatArray, Labels, TrimmingSums
from fhjax.survey.read import Survey
from fhjax.survey.stratum_sums import WHOLE_DESIGN

SinglePsu = Literal["error", "certainty", "center", "remove"]
LINEAR = ("aa", "ba", "ae", "abe", "be")
SQUARES = tuple(f"{pair}{power}" for pair in ("aa", "ab", "bb") for power in range(3))


def trimming_sums(
    survey: Survey, *, taylor: bool | None = None, single_psu: SinglePsu = "error", progress: Any = None
) -> TrimmingSums:
    """Sums by area and distinct weight (or weight sum of the privacy unit).

    Args:
        survey: an open survey.
        taylor: also form what Taylor linearisation needs; by default when there are no replicate weights.
        single_psu: what a stratum with one PSU contributes, as in :class:`fhjax.survey.variance.Taylor`.
        progress: called with a sentence before each pass over the records.

    Returns:
        One row for each area and distinct size. Areas without an observed outcome or without weight have no rows.

    Raises:
        InputError: no record has an observed outcome; a stratum with a single PSU under ``single_psu="error"``.

    Source: docs/trimming.md.
    """
    tell = progress or (lambda sentence: None)
    table: Any = survey.table
    replicates = [f"rep_{b}" for b in range(1, 1 + sum(column.startswith("rep_") for column in table.columns))]
    if taylor is None:
        taylor = not replicates
    universe: Any = table.filter(table.y.notnull())
    tell("Estimating every area.")
    means = _fetch(
        universe.group_by("area").agg(
            w=universe.weight.sum(), wy=(universe.weight * universe.y).sum(), n=universe.count()
        )
    )
    if len(means["area"]) == 0:
        raise InputError("No record has an observed outcome. Check the outcome and the filter.")
    order = np.argsort(means["area"].astype(str))
    labels = Labels(means["area"][order].tolist())
    weight_sum = means["w"][order].astype(float)
    centre = means["wy"][order].astype(float) / np.where(weight_sum > 0.0, weight_sum, 1.0)
    places: Any = ibis.memtable(
        pa.table({"place_area": list(labels), "place": np.arange(len(labels)), "centre": centre})
    )
    records: Any = universe.join(places, universe.area == places.place_area)
    size = records.weight
    if "unit" in records.columns:
        size = records.weight.sum().over(ibis.window(group_by="unit"))
    design_columns = [name for name in ("stratum", "psu") if name in records.columns]
    units = "unit" in records.columns
    records = records.select("place", "weight", "y", "centre", *design_columns, *replicates, size=size)
    increments: dict[str, Any] = {}
    if taylor:
        tell("Following every PSU as the cap falls, and summing by distinct weight.")
        records, increments = _with_clusters(records, table, single_psu)
    else:
        tell("Summing by distinct weight.")
    w, y = records.weight, records.y
    aggregates: dict[str, Any] = {
        "records": records.count(),
        "weight": w.sum(),
        "weight_square": (w * w).sum(),
        "outcome": (w * (y - records.centre)).sum(),
    }
    for name in replicates:
        aggregates |= {f"w_{name}": records[name].sum(), f"o_{name}": (records[name] * y).sum()}
    aggregates |= {name: value.sum() for name, value in increments.items()}
    rows = _fetch(records.group_by("place", "size").agg(**aggregates))
    sort = np.lexsort((rows["size"].astype(float), rows["place"]))
    area = rows["place"][sort].astype(np.int64)

    def number(name: str) -> FloatArray:
        return rows[name][sort].astype(float)

    def block(names: Any) -> FloatArray:
        return np.stack([number(name) for name in names], axis=1)

    replicate_weights = replicate_outcomes = None
    if replicates:
        replicate_weights = block(f"w_{name}" for name in replicates)
        replicate_outcomes = block(f"o_{name}" for name in replicates) - centre[area][:, None] * replicate_weights
    sizes, weight = number("size"), number("weight")
    num_records = rows["records"][sort].astype(np.int64)
    positive = sizes > 0.0
    num_units = np.rint(weight / np.where(positive, sizes, 1.0)).astype(np.int64) if units else num_records
    return TrimmingSums(
        labels=labels,
        centre=centre,
        area=area,
        size=sizes,
        units=np.where(positive, num_units, num_records),
        records=num_records,
        weight=weight,
        weight_square=number("weight_square"),
        outcome=number("outcome"),
        replicate_weights=replicate_weights,
        replicate_outcomes=replicate_outcomes,
        cluster_linear=block(LINEAR) if taylor else None,
        cluster_squares=block(SQUARES) if taylor else None,
        outcome_lower=float(survey.bounds[0]),
        outcome_upper=float(survey.bounds[1]),
        privacy_unit=survey.roles.unit or "record",
    )


def _fetch(expression: ibis.Table) -> dict[str, np.ndarray]:
    table = expression.to_pyarrow()
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _with_clusters(records: Any, design: Any, single_psu: str) -> tuple[Any, dict[str, Any]]:
    """The records with what their clusters held before them, and each record's increments to the clusters' products.

    Twice: over PSUs with factor n/(n-1), and over whole strata with factor -1/(n-1), because
    n/(n-1) sum (e - mean)^2 = n/(n-1) sum e^2 - (sum e)^2 / (n-1).
    """
    one_stratum = "stratum" not in records.columns
    if one_stratum:
        records = records.mutate(stratum=ibis.literal(WHOLE_DESIGN))
        design = design.mutate(stratum=ibis.literal(WHOLE_DESIGN))
    counted = design.select("stratum", "psu").distinct() if "psu" in design.columns else design
    counts = _fetch(counted.group_by("stratum").agg(psus=counted.count()))
    n = counts["psus"].astype(float)
    alone = n == 1.0
    if single_psu == "error" and alone.any():
        raise complain(
            "have a single PSU, so their variance cannot be estimated",
            [str(name) for name in counts["stratum"][alone]],
            "Merge each with a similar stratum, or choose single_psu='center', 'certainty' or 'remove'.",
            noun="strata" if np.count_nonzero(alone) > 1 else "stratum",
        )
    # A lone PSU under "center" counts as its squared distance from the mean of all PSUs, which is 0 for residuals.
    inner = np.where(alone, 1.0 if single_psu == "center" else 0.0, n / np.maximum(n - 1.0, 1.0))
    outer = np.where(alone, 0.0, -1.0 / np.maximum(n - 1.0, 1.0))
    factors: Any = ibis.memtable(
        pa.table({"factor_stratum": counts["stratum"].astype(str), "inner": inner, "outer": outer})
    )
    records = records.join(factors, records.stratum == factors.factor_stratum)
    positive = records["size"] > 0.0
    size = positive.ifelse(records["size"], 1.0)
    a, b = records.weight * (records.y - records.centre), records.weight
    records = records.mutate(a=a, b=b, p=positive.ifelse(a / size, 0.0), q=positive.ifelse(b / size, 0.0))
    by_psu = ["place", "stratum", "psu"] if "psu" in records.columns else None
    windows = _before(records, by_psu, "in")
    if not one_stratum:
        windows |= _before(records, ["place", "stratum"], "out")
    records = records.mutate(**windows)
    increments = _increments(records, records.inner, "in")
    # Without strata an area's residuals add up to 0 in its one stratum, before and after trimming.
    if not one_stratum:
        outer = _increments(records, records.outer, "out")
        increments = {name: value + outer[name] for name, value in increments.items()}
    return records, increments


def _before(records: Any, keys: list[str] | None, tag: str) -> dict[str, Any]:
    """What a cluster's kept part (a, b) and trimmed part (p, q) sum to before the record, and its totals."""
    a, b, p, q = records.a, records.b, records.p, records.q
    if keys is None:  # every record is its own cluster
        zero = ibis.literal(0.0)
        return {
            f"a_{tag}": zero,
            f"b_{tag}": zero,
            f"p_{tag}": p,
            f"q_{tag}": q,
            f"at_{tag}": a,
            f"pt_{tag}": p,
            f"qt_{tag}": q,
        }
    whole = ibis.window(group_by=keys)
    # Equal sizes may come in any order: the increments of a size add up to the same.
    upto = ibis.window(group_by=keys, order_by="size", rows=(None, 0))
    totals = {name: records[name].sum().over(whole) for name in ("a", "p", "q")}
    return {
        f"a_{tag}": a.sum().over(upto) - a,
        f"b_{tag}": b.sum().over(upto) - b,
        f"p_{tag}": totals["p"] - p.sum().over(upto) + p,
        f"q_{tag}": totals["q"] - q.sum().over(upto) + q,
        f"at_{tag}": totals["a"],
        f"pt_{tag}": totals["p"],
        f"qt_{tag}": totals["q"],
    }


def _increments(t: Any, f: Any, tag: str) -> dict[str, Any]:
    """By how much the products of a cluster change when the cap rises past a record.

    Before, (a, b) sum the kept part and (p, q) the trimmed part per unit of the cap; after, the record's a and b have
    joined the kept part and its p and q have left the trimmed part. A cluster's A(c) = a + c p and B(c) = b + c q, so
    A^2 has the coefficients a^2, 2 a p and p^2 of the powers of c.
    """
    a, b, p, q = t.a, t.b, t.p, t.q
    a0, b0, p0, q0 = t[f"a_{tag}"], t[f"b_{tag}"], t[f"p_{tag}"], t[f"q_{tag}"]
    a_total, p_total, q_total = t[f"at_{tag}"], t[f"pt_{tag}"], t[f"qt_{tag}"]
    a1, b1, p1, q1 = a0 + a, b0 + b, p0 - p, q0 - q
    return {
        "aa": f * a * a_total,
        "ba": f * b * a_total,
        "ae": f * a * p_total,
        "abe": f * (a * q_total + b * p_total),
        "be": f * b * q_total,
        "aa0": f * a * (a0 + a1),
        "aa1": f * 2.0 * (a1 * p1 - a0 * p0),
        "aa2": -f * p * (p0 + p1),
        "ab0": f * (a1 * b1 - a0 * b0),
        "ab1": f * (a1 * q1 + b1 * p1 - a0 * q0 - b0 * p0),
        "ab2": f * (p1 * q1 - p0 * q0),
        "bb0": f * b * (b0 + b1),
        "bb1": f * 2.0 * (b1 * q1 - b0 * q0),
        "bb2": -f * q * (q0 + q1),
    }
