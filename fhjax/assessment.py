"""One set of direct estimates, assessed: fit, posterior, guarantees and what drives them, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fhjax.errors import InputError, NumericalError
from fhjax.model.fit import fit as fit_model
from fhjax.model.fit import from_direct
from fhjax.model.posterior import posterior as posterior_of
from fhjax.privacy.guarantee import guarantees
from fhjax.privacy.what_if import area_rho, drivers, equal_weight_rho, model_variance_changes
from fhjax.records import (
    AreaData,
    Array,
    Assessment,
    DirectEstimates,
    Drivers,
    FayHerriotFit,
    Guarantees,
    Posterior,
)


def assess(
    direct: DirectEstimates,
    *,
    X: npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    method: str = "reml",
    delta: float | None = None,
    equal_weights: DirectEstimates | None = None,
) -> Assessment:
    """Fit the Fay-Herriot model to direct estimates and state what releasing posterior draws costs.

    Args:
        direct: direct estimates of m areas with design variances and sensitivities.
        X: (m, p) public covariates in the order of ``direct.labels``, without the intercept, which is added; None fits
            an intercept only.
        columns: names of the p columns of ``X``.
        method: how the model variance is estimated: ``"reml"``, ``"ml"``, ``"moment"`` or ``"pr"``.
        delta: the delta at which rho is translated into epsilon, strictly between 0 and 1; None takes the largest
            power of ten that is not above 1 / records (1e-7 for three million records, 1e-5 for twenty thousand).
        equal_weights: the estimates that equal weights would give, from
            :func:`fhjax.survey.direct.equal_weight_estimates`, to say what unequal weights cost once variances follow.

    Returns:
        An :class:`~fhjax.records.Assessment`: everything the report shows.

    Raises:
        InputError: the estimates cannot be fitted (fewer areas than columns, collinear covariates, a zero sampling
            variance that was not explicitly kept), or delta is not in (0, 1).
        NumericalError: the fit did not converge.

    The guarantees hold for bounded neighbours (one privacy unit's outcome replaced) under the assumptions listed in
    ``assessment.guarantees.assumptions``.

    Source: Das and Drechsler (2026), equations (24) to (26), and docs/derivations.md.

    Examples:
        >>> import fhjax
        >>> survey = fhjax.open_survey(fhjax.example("nhanes0910_cholesterol"), area=["race", "age", "sex"],
        ...     weight="weight", outcome="high_cholesterol = 1", strata="stratum", psu="psu", where="age <> '0-19'")
        >>> assessment = fhjax.assess(fhjax.direct_estimates(survey), delta=1e-5)
        >>> assessment.area_data.num_areas
        24
    """
    if not isinstance(direct, DirectEstimates):
        raise InputError(
            f"assess takes direct estimates, not {type(direct).__name__}: direct_estimates(survey) makes them, and "
            "read_area_level(table, ...) reads them."
        )
    delta = checked_delta(delta, direct)
    data = model_data(direct, X=X, columns=columns)
    fitted = fit_model(data, method=method)
    posterior = posterior_of(data, fitted)
    result = guarantees_of(direct, data, posterior)
    return Assessment(
        direct=direct,
        area_data=data,
        fit=fitted,
        posterior=posterior,
        guarantees=result,
        equal_weight_rho=_equal_weight_rho(direct, data, posterior),
        equal_weight_refitted_rho=_refitted(equal_weights, direct, X, columns, method),
        drivers=_drivers(direct, result.per_area_rho),
        model_variance_changes=model_variance_changes(data, posterior, direct.sensitivity),
        delta=delta,
    )


def model_data(
    direct: DirectEstimates, *, X: npt.ArrayLike | None = None, columns: Sequence[str] | None = None
) -> AreaData:
    """What the model sees of direct estimates and covariates.

    Args:
        direct, X, columns: as in :func:`assess`.

    Returns:
        The area-level data, with an intercept. Areas whose zero variance was kept by ``zero_variance="keep"`` pass.

    Raises:
        InputError: only one area, or as :func:`fhjax.model.checks.area_data`.
    """
    if len(direct.labels) == 1:
        raise InputError(
            f"Only 1 area can be used: {direct.labels[0]!r}. A small-area model lends strength from one area to "
            "another, so it needs at least 2 areas. Check the area column, the filter and the excluded areas."
        )
    return from_direct(direct, X=X, columns=columns)


def guarantees_of(
    direct: DirectEstimates,
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    *,
    model_variance_source: str | None = None,
) -> Guarantees:
    """:func:`fhjax.guarantees` with all that direct estimates know: sensitivities, unit, bounds, cautions."""
    return guarantees(
        data,
        posterior,
        direct.sensitivity,
        privacy_unit=direct.privacy_unit,
        outcome_bounds=direct.outcome_bounds,
        cautions=direct.cautions,
        model_variance_source=model_variance_source,
    )


def checked_delta(delta: float | None, direct: DirectEstimates) -> float:
    """The delta that was asked for, if it is a probability above 0 and below 1, or the default."""
    if delta is None:
        delta = default_delta(direct)
    if isinstance(delta, str) or not 0.0 < delta < 1.0:
        raise InputError(
            f"delta must lie strictly between 0 and 1, got {delta!r}. A common choice is below 1 / records."
        )
    return float(delta)


def default_delta(direct: DirectEstimates) -> float:
    """The largest power of ten that is not above 1 / records: the convention behind the paper's 1e-7 and 1e-5."""
    if direct.num_records is None:
        raise InputError("delta has no default here, because the number of records is not known: give delta, or n.")
    records = int(np.sum(direct.num_records))
    exponent = len(str(records - 1)) if records > 1 else 1
    return float(f"1e-{exponent}")


def _equal_weight_rho(direct: DirectEstimates, data: AreaData, posterior: Posterior) -> Array | None:
    """With equal weights a unit of k records moves an area of n records by R k / n: n / k such units."""
    largest_unit = 1 if direct.privacy_unit == "record" else direct.max_unit_records
    if direct.num_records is None or largest_unit is None or not np.isfinite(direct.outcome_range):
        return None
    return equal_weight_rho(data, posterior, direct.num_records / largest_unit, outcome_range=direct.outcome_range)


def _refitted(
    equal: DirectEstimates | None, direct: DirectEstimates, X: npt.ArrayLike | None, columns: Any, method: str
) -> Array | None:
    """Per-area rho of the whole route run again with equal weights; None where that has no answer."""
    if equal is None:
        return None
    if tuple(equal.labels) != tuple(direct.labels):
        raise InputError("equal_weights must be estimates of the same areas, in the same order, as direct.")
    data = model_data(equal, X=X, columns=columns)
    try:
        fitted = fit_model(data, method=method)
    except (InputError, NumericalError):  # what cannot be fitted has no comparison; the release itself was fitted
        return None
    return area_rho(data, posterior_of(data, fitted), equal.sensitivity)


def _drivers(direct: DirectEstimates, rho: Array) -> Drivers | None:
    ratio = direct.weight_ratio
    if ratio is None or direct.num_records is None:
        return None
    return drivers(rho, direct.num_records, ratio)
