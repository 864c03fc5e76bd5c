"""The sums of two files together, and what must hold before they may be added."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import InputError
from .records import AreaSums, FloatArray, IntArray, Labels, StratumSums


def merge_area_sums(one: AreaSums, two: AreaSums) -> AreaSums:
    """The sums of two files with disjoint records, units and PSUs; see :meth:`fhjax.records.AreaSums.__add__`.

    Raises:
        InputError: the files were read in different ways, are the same file, or share privacy units or PSUs, or nobody
            knows whether they do.
    """
    if one.num_replicates != two.num_replicates:
        raise InputError(
            f"The files to merge have {one.num_replicates} and {two.num_replicates} replicate weights. "
            "Read both with the same replicate columns."
        )
    for name, meaning in (
        ("privacy_unit", "privacy unit"),
        ("outcome_lower", "lower outcome bound"),
        ("outcome_upper", "upper outcome bound"),
        ("outcome", "outcome"),
    ):
        first, second = getattr(one, name), getattr(two, name)
        if first != second:
            raise InputError(f"The files to merge differ in the {meaning}: {first!r} and {second!r}. Declare the same.")
    if (one.strata is None) != (two.strata is None):
        raise InputError("Only one of the files to merge has sums by stratum. Read both with the same design columns.")

    same = sorted(set(one.sources) & set(two.sources))
    if same:
        raise InputError(
            f"The sums to merge come from the same file (SHA-256 {same[0][:12]}...): its records would count twice."
        )
    digests = _merged_digests(one, two)

    labels = Labels(sorted({*one.labels, *two.labels}))
    position = {label: i for i, label in enumerate(labels)}
    places = [np.array([position[label] for label in part.labels], dtype=np.int64) for part in (one, two)]

    def spread(name: str, fill: float = 0.0) -> list[Any]:
        """The field of both parts, laid out over the union of the areas."""
        wide = []
        for part, place in zip((one, two), places, strict=True):
            values = np.asarray(getattr(part, name))
            full = np.full((len(labels), *values.shape[1:]), fill, dtype=values.dtype)
            full[place] = values
            wide.append(full)
        return wide

    sums = {
        name: np.add(*spread(name))
        for name in ("num_records", "num_missing", "weight_sum", "weight_square_sum", "weighted_outcome_sum")
    }
    sums |= {name: np.maximum(*spread(name)) for name in ("max_weight", "max_unit_weight")}
    if one.max_unit_records is not None and two.max_unit_records is not None:
        sums["max_unit_records"] = np.maximum(*spread("max_unit_records"))
    if one.num_replicates:
        sums |= {name: np.add(*spread(name)) for name in ("replicate_weight_sums", "replicate_outcome_sums")}
        if one.replicate_deviations is not None and two.replicate_deviations is not None:
            sums["replicate_deviations"] = (one.replicate_deviations + two.replicate_deviations) / 2.0
    weights, outcomes = spread("weight_sum"), spread("weighted_outcome_sum")
    means = [outcome / np.where(weight == 0.0, 1.0, weight) for weight, outcome in zip(weights, outcomes, strict=True)]
    total = np.where(sums["weight_sum"] == 0.0, 1.0, sums["weight_sum"])
    between = weights[0] * weights[1] / total * (means[0] - means[1]) ** 2
    return AreaSums(
        labels=labels,
        **sums,
        weighted_square_sum=np.add(*spread("weighted_square_sum")) + between,
        outcome_min=np.minimum(*spread("outcome_min", np.inf)),
        outcome_max=np.maximum(*spread("outcome_max", -np.inf)),
        strata=None
        if one.strata is None or two.strata is None
        else _merge_strata((one.strata, two.strata), places, sums["weighted_outcome_sum"] / total),
        privacy_unit=one.privacy_unit,
        outcome_lower=one.outcome_lower,
        outcome_upper=one.outcome_upper,
        num_filtered=one.num_filtered + two.num_filtered,
        subject=one.subject if one.subject == two.subject else ", ".join(filter(None, (one.subject, two.subject))),
        design=tuple(dict.fromkeys((*one.design, *two.design))),
        cautions=tuple(dict.fromkeys((*one.cautions, *two.cautions))),
        outcome=one.outcome,
        sources=(*one.sources, *two.sources),
        id_digests=digests,
    )


def _merged_digests(one: AreaSums, two: AreaSums) -> dict[str, Any] | None:
    """The digests of the ids of both files, none of which they share.

    Raises:
        InputError: a unit or PSU is in both files, or the sums cannot tell.
    """
    for what in ("privacy unit", "PSU"):
        ids = [None if part.id_digests is None else part.id_digests.get(what) for part in (one, two)]
        if ids[0] is None or ids[1] is None:
            if what == "PSU" or one.privacy_unit == "record":  # a shared PSU is the caller's care; a shared unit is not
                continue
            raise InputError(
                f"The sums name a {what} ({one.privacy_unit}), and nobody knows here whether one has records in both "
                "files: its weights would count apart. Make both with area_sums(survey, mergeable=True), which "
                "keeps digests of the ids, or read the files together as parts of one survey."
            )
        shared = np.intersect1d(ids[0], ids[1])
        if shared.size:
            raise InputError(
                f"{shared.size:,} {what}{'s' * (shared.size > 1)} {'have' if shared.size > 1 else 'has'} records in "
                "both files, in one area or in two: merging sums would understate the sensitivity and the variance. "
                "Read the files together as parts of one survey."
            )
    if one.id_digests is None or two.id_digests is None:
        return None
    return {
        what: np.union1d(one.id_digests[what], two.id_digests[what])
        for what in one.id_digests.keys() & two.id_digests.keys()
    }


def _merge_strata(parts: tuple[StratumSums, StratumSums], places: list[IntArray], centre: FloatArray) -> StratumSums:
    """Merge by the pairwise update of means and second moments (Chan, Golub and LeVeque 1983)."""
    if parts[0].psus_are_records != parts[1].psus_are_records:
        raise InputError("Only one of the files to merge names a PSU column. Read both with the same design columns.")
    strata = Labels(sorted({*parts[0].strata, *parts[1].strata}))
    position = {label: h for h, label in enumerate(strata)}
    stratum_psus = np.zeros(len(strata), dtype=np.int64)
    keys, rows = [], []
    for part, place in zip(parts, places, strict=True):
        stratum_place = np.array([position[label] for label in part.strata], dtype=np.int64)
        stratum_psus[stratum_place] += part.stratum_psus
        area = place[part.area]
        keys.append(area * max(len(strata), 1) + stratum_place[part.stratum])
        rows.append(part.recentred(centre[area]))
    union, index = np.unique(np.concatenate(keys), return_inverse=True)
    here = [index[: len(keys[0])], index[len(keys[0]) :]]

    def spread(name: str) -> list[Any]:
        wide = []
        for row, place in zip(rows, here, strict=True):
            full = np.zeros(len(union), dtype=np.asarray(getattr(row, name)).dtype)
            full[place] = getattr(row, name)
            wide.append(full)
        return wide

    count, mean_a, mean_b = spread("psus"), spread("mean_a"), spread("mean_b")
    total = count[0] + count[1]
    step_a, step_b, pairs = mean_a[1] - mean_a[0], mean_b[1] - mean_b[0], count[0] * count[1] / total
    area = union // max(len(strata), 1)
    return StratumSums(
        strata=strata,
        stratum_psus=stratum_psus,
        area=area,
        stratum=union % max(len(strata), 1),
        psus=total,
        centre=centre[area],
        mean_a=mean_a[0] + step_a * count[1] / total,
        mean_b=mean_b[0] + step_b * count[1] / total,
        moment_aa=np.add(*spread("moment_aa")) + pairs * step_a**2,
        moment_ab=np.add(*spread("moment_ab")) + pairs * step_a * step_b,
        moment_bb=np.add(*spread("moment_bb")) + pairs * step_b**2,
        psus_are_records=parts[0].psus_are_records,
    )
