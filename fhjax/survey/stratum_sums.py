"""Sums by area and stratum for Taylor linearisation: one pass over the records, then one over the PSU totals."""

from __future__ import annotations

from typing import Any

import ibis
import numpy as np

from ..records import Labels, StratumSums

#: What the one stratum of a design without strata is called.
WHOLE_DESIGN = ""


def stratum_sums(table: Any, centres: Any, labels: Labels) -> StratumSums:
    """Means and centred second moments of PSU totals by area and stratum (see :class:`fhjax.records.StratumSums`).

    ``centres`` has the columns centre_area and centre. Without a stratum column the design is one stratum; without a
    PSU column each record is its own PSU. PSU names are nested in strata. PSUs whose outcomes are all missing count in
    ``stratum_psus``: they were drawn, they only have nothing to add.
    """
    columns = [name for name in ("area", "weight", "y", "stratum", "psu") if name in table.columns]
    records = table.select(*columns)
    if "stratum" not in columns:
        records = records.mutate(stratum=ibis.literal(WHOLE_DESIGN))
    joined = records.join(centres, records.area == centres.centre_area)
    a = joined.weight * (joined.y - joined.centre)
    b = joined.y.notnull().ifelse(joined.weight, 0.0)
    if "psu" in columns:
        # Rows without an observed outcome stay in until here: dropping them first would cost a second scan.
        psus = joined.group_by("area", "stratum", "psu").agg(a=a.sum(), b=b.sum(), observed=joined.y.count())
        totals = psus.filter(psus.observed > 0)
        distinct = records.select("stratum", "psu").distinct()
        design = distinct.group_by("stratum").agg(psus=distinct.count())
    else:
        totals = joined.select("area", "stratum", "y", a=a, b=b)
        totals = totals.filter(totals.y.notnull())
        design = records.group_by("stratum").agg(psus=records.count())
    rows = totals.group_by("area", "stratum").agg(
        psus=totals.count(),
        mean_a=totals.a.mean(),
        mean_b=totals.b.mean(),
        aa=totals.a.var(how="pop"),
        ab=totals.a.cov(totals.b, how="pop"),
        bb=totals.b.var(how="pop"),
        centre_area=totals.area.min(),
    )
    fetched = _columns(rows.join(centres, "centre_area").drop("centre_area"))
    counts = _columns(design)
    names = counts["stratum"].astype(str)
    order = np.argsort(names)
    strata = Labels(names[order].tolist())
    area_index = {label: i for i, label in enumerate(labels)}
    stratum_index = {label: h for h, label in enumerate(strata)}
    area = np.array([area_index[name] for name in fetched["area"]], dtype=np.int64)
    stratum = np.array([stratum_index[str(name)] for name in fetched["stratum"]], dtype=np.int64)
    sort = np.lexsort((stratum, area))
    psus = fetched["psus"][sort].astype(np.int64)

    def number(name: str) -> np.ndarray:
        return np.nan_to_num(fetched[name][sort].astype(float))

    return StratumSums(
        strata=strata,
        stratum_psus=counts["psus"][order].astype(np.int64),
        area=area[sort],
        stratum=stratum[sort],
        psus=psus,
        centre=number("centre"),
        mean_a=number("mean_a"),
        mean_b=number("mean_b"),
        moment_aa=number("aa") * psus,
        moment_ab=number("ab") * psus,
        moment_bb=number("bb") * psus,
        psus_are_records="psu" not in columns,
    )


def _columns(expression: Any) -> dict[str, Any]:
    table = expression.to_pyarrow()
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
