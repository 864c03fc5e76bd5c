"""From sums by area to direct estimates: Hájek or Horvitz-Thompson means, their variances and sensitivities."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ..entrance import is_concrete, namespace
from ..errors import DataWarning, InputError, complain
from ..records import AreaSums, DirectEstimates, FloatArray, Labels
from .generalised import generalised_variance
from .read import Survey
from .sensitivity import hajek_sensitivity, horvitz_thompson_sensitivity
from .sums import area_sums
from .variance import DesignVariance, Replicates, Taylor, choose_method, design_variance, method_sentence

ZeroVariance = Literal["error", "exclude", "gvf", "keep"]

#: A share of missing outcomes above this is flagged.
MISSING_SHARE = 0.10
#: A design variance that rests on fewer cases than this is flagged.
FEW_CASES = 10


def direct_estimates(
    survey: Survey | AreaSums,
    *,
    estimator: Literal["hajek", "ht"] = "hajek",
    population: Mapping[str, float] | npt.ArrayLike | None = None,
    variance: Replicates | Taylor | None = None,
    zero_variance: ZeroVariance = "error",
    variance_source: Literal["estimated", "public"] = "estimated",
    progress: Any = None,
) -> DirectEstimates:
    """Direct estimates of all areas with their design variances and sensitivities.

    Args:
        survey: an open survey, or its sums by area.
        estimator: ``"hajek"``, the weighted mean sum w Y / sum w, or ``"ht"``, sum w Y / N with known N.
        population: N for ``"ht"``: by label, one number for all areas, or one an area in label order. N = 1 turns means
            into totals.
        variance: how the variance is estimated. Must be named where there are replicate weights; else Taylor().
        zero_variance: what to do with areas whose variance is zero, which would make their guarantee infinite:
            ``"error"`` refuses and names them; ``"exclude"`` moves them to ``excluded``; ``"gvf"`` replaces the
            variance by :func:`generalised_variance`; ``"keep"`` keeps zero. The last two are flagged.
        variance_source: ``"public"`` if the variances are known without these records; printed on the report.
        progress: called with a sentence before each pass over the records.

    Returns:
        One row for each area with an observed outcome. ``design_effect`` is the variance over that of a simple random
        sample with replacement of the same n, S^2 / (n - 1) with S^2 = sum w (Y - y)^2 / sum w; infinite where S^2 is
        zero or n is 1, because it does not exist there.

    Raises:
        InputError: no area can be used; zero variances under ``"error"``; replicate weights without a method.

    Inside ``jit``, ``vmap`` and ``grad`` sums from :func:`fhjax.sums_from_arrays` give all areas, ``usable`` says which
    can be fitted, and areas whose variance is zero stay unless ``zero_variance="exclude"``.

    Neighbours: one privacy unit's outcomes replaced within the declared bounds; weights and universe fixed. The
    sensitivity is R max_unit_weight / sum w (Hájek) or R max_unit_weight / N (Horvitz-Thompson).

    Source: docs/derivations.md, section 3; Das and Drechsler (2026), section 2.

    Examples:
        >>> import fhjax
        >>> survey = fhjax.open_survey(fhjax.example("nhanes0910_cholesterol"), area="race", weight="weight",
        ...                            outcome="high_cholesterol = 1", strata="stratum", psu="psu")
        >>> fhjax.direct_estimates(survey).y.shape
        (4,)
    """
    _check_choice("estimator", estimator, ("hajek", "ht"))
    _check_choice("zero_variance", zero_variance, ("error", "exclude", "gvf", "keep"))
    _check_choice("variance_source", variance_source, ("estimated", "public"))
    if (estimator == "ht") != (population is not None):
        raise InputError("estimator='ht' needs population=, the known number of people by area, and nothing else does.")
    if isinstance(survey, AreaSums):
        sums = survey
    else:
        taylor = None if variance is None else isinstance(variance, Taylor)
        sums = area_sums(survey, taylor=taylor, progress=progress)
    method = choose_method(sums, variance)
    sizes = None if population is None else _population(sums.labels, population)

    positive_weight = sums.weight_sum > 0.0
    denominator = namespace(sums).where(positive_weight, sums.weight_sum, 1.0) if sizes is None else sizes
    y = sums.weighted_outcome_sum / denominator
    design = design_variance(sums, method, estimate=y, population=sizes)
    sensitivity = hajek_sensitivity if sizes is None else horvitz_thompson_sensitivity
    if not is_concrete(sums):
        if zero_variance == "gvf":
            raise InputError("A generalised variance function looks at all areas first; it does not work inside jit.")
        usable = positive_weight & (sums.num_records > 0) & ~design.undefined & jnp.isfinite(design.variance)
        usable = usable & (design.variance > 0.0) if zero_variance == "exclude" else usable
        unit_shares = sensitivity(sums.max_unit_weight, denominator, sums.outcome_range)
        sentence = method_sentence(sums, method)
        return _inside_jit(sums, y, design, unit_shares, usable, estimator, sentence, variance_source)

    forgotten = _no_design(sums, method)
    for sentence in forgotten:
        warnings.warn(sentence, DataWarning, stacklevel=2)
    n = sums.num_records
    reasons = _reasons(sums, design.undefined)
    kept = np.array([reason is None for reason in reasons])
    zero = kept & (design.variance <= 0.0)
    psi = design.variance
    if np.any(zero):
        if zero_variance == "error":
            raise complain(
                "have a design variance of 0",
                sums.labels.where(zero),
                "All outcomes are equal or one PSU holds the whole area, and the guarantee would be infinite. Choose "
                "zero_variance='exclude', 'gvf' (a generalised variance function) or 'keep', or pool areas.",
            )
        if zero_variance == "exclude":
            reasons = ["zero design variance" if zero[i] else reason for i, reason in enumerate(reasons)]
            kept &= ~zero
        elif zero_variance == "gvf":
            element = sums.weighted_square_sum / np.where(positive_weight, sums.weight_sum, 1.0)
            psi = psi.copy()
            psi[kept] = generalised_variance(psi[kept], element[kept], n[kept], sums.weight_sum[kept])
    excluded = tuple((label, reason) for label, reason in zip(sums.labels, reasons, strict=True) if reason is not None)
    if not np.any(kept):
        raise InputError(f"No area can be used: {excluded[0][1]} in {excluded[0][0]!r} and in all others.")

    constant = sums.outcome_min == sums.outcome_max
    flags = {
        "zero_variance": zero & (zero_variance == "keep"),
        "generalised_variance": zero & (zero_variance == "gvf"),
        "low_degrees_of_freedom": design.degrees_of_freedom <= 2.0,
        "constant_outcome": constant,
        "single_record": n == 1,
        "few_cases": few_cases(y, psi, sums.outcome_lower, sums.outcome_upper),
        "missing_outcomes": sums.num_missing > MISSING_SHARE * (n + sums.num_missing),
    }
    gvf = " with a generalised variance function where it is 0" if np.any(flags["generalised_variance"]) else ""
    return DirectEstimates(
        labels=Labels(label for label, keep in zip(sums.labels, kept, strict=True) if keep),
        y=y[kept],
        sampling_variance=psi[kept],
        sensitivity=np.asarray(sensitivity(sums.max_unit_weight[kept], denominator[kept], sums.outcome_range)),
        num_records=n[kept],
        weight_sum=sums.weight_sum[kept],
        max_unit_weight=sums.max_unit_weight[kept],
        max_unit_records=None if sums.max_unit_records is None else sums.max_unit_records[kept],
        kish_n_eff=sums.weight_sum[kept] ** 2 / sums.weight_square_sum[kept],
        design_effect=_design_effect(sums, psi, sizes)[kept],
        degrees_of_freedom=design.degrees_of_freedom[kept],
        flags={name: flag[kept] for name, flag in flags.items()},
        excluded=excluded,
        num_missing=sums.num_missing[kept],
        outcome_range=sums.outcome_range,
        outcome_bounds=(sums.outcome_lower, sums.outcome_upper),
        outcome=sums.outcome,
        sources=sums.sources,
        cautions=(*sums.cautions, *forgotten),
        privacy_unit=sums.privacy_unit,
        estimator=estimator,
        variance_method=method_sentence(sums, method) + gvf,
        variance_source=variance_source,
        num_filtered=sums.num_filtered,
        subject=sums.subject,
        design=(*sums.design, *design.doubts),
    )


def _inside_jit(
    sums: AreaSums,
    y: Any,
    design: DesignVariance,
    sensitivity: Any,
    usable: Any,
    estimator: str,
    variance_method: str,
    variance_source: str,
) -> DirectEstimates:
    """Direct estimates inside a transformation: all areas stay, ``usable`` says which can be fitted."""
    arrays: dict[str, Any] = {
        "y": jnp.where(usable, y, 0.0),
        "sampling_variance": jnp.where(usable, design.variance, 1.0),
        "sensitivity": jnp.where(usable, sensitivity, 0.0),
        "usable": usable,
    }
    return DirectEstimates(
        labels=sums.labels,
        **arrays,
        num_records=sums.num_records,
        weight_sum=sums.weight_sum,
        max_unit_weight=sums.max_unit_weight,
        max_unit_records=sums.max_unit_records,
        degrees_of_freedom=design.degrees_of_freedom,
        num_missing=sums.num_missing,
        outcome_range=sums.outcome_range,
        outcome_bounds=(sums.outcome_lower, sums.outcome_upper),
        privacy_unit=sums.privacy_unit,
        estimator=estimator,
        variance_method=variance_method,
        variance_source=variance_source,
    )


def equal_weight_estimates(
    survey: Survey, direct: DirectEstimates, *, variance: Replicates | Taylor | None = None
) -> DirectEstimates | None:
    """The direct estimates that the same records would give if all had the same weight.

    Args:
        survey: the open survey behind ``direct``.
        direct: its direct estimates.
        variance: the variance method of ``direct``.

    Returns:
        Estimates of the areas of ``direct``, with design variances estimated anew: every positive weight becomes 1 and
        every replicate weight its multiple of the weight. None where they do not exist for the same areas. For
        comparison only: it is not an estimate that anybody publishes.
    """
    table: Any = survey.table
    safe = (table.weight > 0.0).ifelse(table.weight, 1.0)
    replicates = {name: table[name] / safe for name in table.columns if name.startswith("rep_")}
    equal = table.mutate(**replicates, weight=(table.weight > 0.0).ifelse(1.0, 0.0))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say of the file was said of its own weights
            found = direct_estimates(
                dataclasses.replace(survey, table=equal, notes=(), cautions=()), variance=variance, zero_variance="keep"
            )
    except InputError:
        return None
    place = {label: i for i, label in enumerate(found.labels)}
    if any(label not in place for label in direct.labels):
        return None
    rows = np.array([place[label] for label in direct.labels])
    return dataclasses.replace(
        found,
        labels=direct.labels,
        **{
            name: None if getattr(found, name) is None else getattr(found, name)[rows]
            for name in ("y", "sampling_variance", "sensitivity", "num_records", "weight_sum", "max_unit_weight",
                         "max_unit_records", "kish_n_eff", "design_effect", "degrees_of_freedom", "num_missing")
        },
        flags={name: flag[rows] for name, flag in found.flags.items()},
    )  # fmt: skip


def few_cases(y: FloatArray, psi: FloatArray, lower: float, upper: float) -> npt.NDArray[np.bool_]:
    """Areas (m,) whose variance is as large, for the distance to the nearer bound, as with fewer than FEW_CASES cases.

    A share p from n equal weights with k = n p cases has the relative variance (1 - p) / k, about 1 / k. An estimate
    outside the bounds (a Horvitz-Thompson mean or total can be) is not judged.
    """
    nearest = np.minimum(y - lower, upper - y)
    return (nearest > 0.0) & (FEW_CASES * psi > nearest**2)


def _no_design(sums: AreaSums, method: Replicates | Taylor) -> tuple[str, ...]:
    """What to say where nobody named a design: the variances are those of independent records."""
    strata = sums.strata
    if isinstance(method, Replicates) or strata is None or not strata.psus_are_records or len(strata.strata) > 1:
        return ()
    return (
        "No strata, PSUs or replicate weights were named: the design variances take records as their own PSUs, no "
        "strata. If the sample was drawn in strata or clusters they are wrong, and rho goes with their inverse "
        "square.",
    )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def _reasons(sums: AreaSums, undefined: npt.NDArray[np.bool_]) -> list[str | None]:
    """Why each area cannot be used; None where it can."""
    reasons: list[str | None] = [None] * len(sums.labels)
    for mask, reason in (
        (undefined, "a replicate leaves it without weight"),
        (sums.weight_sum <= 0.0, "no positive weight"),
        (sums.num_records == 0, "no observed outcome"),
    ):
        for i in np.flatnonzero(mask):
            reasons[i] = reason
    return reasons


def _design_effect(sums: AreaSums, psi: FloatArray, sizes: FloatArray | None) -> FloatArray:
    n = np.maximum(sums.num_records, 1)
    weight_sum = np.where(sums.weight_sum > 0.0, sums.weight_sum, 1.0)
    simple = sums.weighted_square_sum / weight_sum / np.maximum(n - 1, 1)
    if sizes is not None:
        simple = simple * (weight_sum / sizes) ** 2  # the variance of the total of a simple random sample, over N
    exists = (simple > 0.0) & (sums.num_records > 1)
    return np.where(exists, psi / np.where(exists, simple, 1.0), np.inf)


def _population(labels: Labels, population: Mapping[str, float] | npt.ArrayLike) -> FloatArray:
    if isinstance(population, Mapping):
        missing = [label for label in labels if label not in population]
        if missing:
            raise complain("have no population size", missing, "Add them, or drop these areas by the filter.")
        sizes = np.array([float(population[label]) for label in labels])
    else:
        sizes = np.asarray(population, dtype=float)
        if sizes.ndim == 0:
            sizes = np.full(len(labels), float(sizes))
        if sizes.shape != (len(labels),):
            raise InputError(f"There are {len(labels)} areas but population has shape {sizes.shape}.")
    wrong = ~(np.isfinite(sizes) & (sizes > 0.0))
    if np.any(wrong):
        raise complain("have a population size that is not a positive number", labels.where(wrong), "Correct it.")
    return sizes
