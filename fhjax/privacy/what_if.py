"""What moves rho: equal weights, another model variance, and the regressions that tell weights from sample sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special  # scipy.stats alone would take a third of a second to load

from fhjax.entrance import is_concrete
from fhjax.errors import InputError, Status, complain
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.problem import Problem, prepare
from fhjax.privacy.rho import rho_of_areas
from fhjax.records import AreaData, Array, Drivers, FayHerriotFit, FloatArray, Labels, Posterior, record, static

ETAS = (-0.5, -0.25, -0.1, 0.1, 0.25, 0.5)


@jax.jit
def _rho(problem: Problem, model_variance: Array, beta_prior_precision: Array | None) -> Array:
    C = coefficients(problem.C.sampling_variance, model_variance, problem.X, beta_prior_precision=beta_prior_precision)
    failed = (problem.C.status >= Status.NOT_CONVERGED) | (C.status >= Status.NOT_CONVERGED)
    return jnp.where(failed, jnp.inf, rho_of_areas(C, problem.delta))


def equal_weight_rho(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    num_units: Any,
    *,
    outcome_range: float = 1.0,
    beta_prior_precision: Any = None,
) -> Array:
    """Per-area rho (m,) if all weights of an area were equal, Delta = R / n, sampling variances held fixed.

    Args:
        data, posterior: as in :func:`fhjax.privacy.guarantee.guarantees`.
        num_units: (m,) records in each area, or privacy units where the unit is larger and units are of equal weight.
        outcome_range: R, outcome units.
        beta_prior_precision: (p, p) or None.

    Raises:
        InputError: for an area without units.

    It separates what unequal weights cost from what the sample size costs; it is not a guarantee of any release.

    Source: Das and Drechsler (2026), section 5.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> equal_weight_rho(data, fit(data), [400, 150, 420, 90]).shape
        (4,)
    """
    n = jnp.asarray(num_units, dtype=float)
    if is_concrete(n) and not np.all(n > 0):
        labels = data.labels if data.labels is not None else Labels(range(data.num_areas))
        raise complain("have no records", labels.where(~(n > 0)), "Exclude them.")
    delta = outcome_range / jnp.where(n > 0, n, 0.0)  # without units it is infinite, and so is every rho
    problem = prepare(data, posterior, delta, beta_prior_precision)
    return _rho(problem, problem.C.model_variance, beta_prior_precision)


def area_rho(data: AreaData, posterior: Posterior | FayHerriotFit, sensitivity: Any) -> Array:
    """Per-area rho (m,) and nothing else of :func:`fhjax.guarantees`, by the program that the what-ifs share."""
    problem = prepare(data, posterior, sensitivity)
    return _rho(problem, problem.C.model_variance, None)


def model_variance_changes(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    sensitivity: Any,
    *,
    etas: Sequence[float] = ETAS,
    beta_prior_precision: Any = None,
) -> dict[float, Array]:
    """eta -> relative change (m,) of per-area rho when the model variance is multiplied by 1 + eta, psi held fixed.

    Args:
        data, posterior, sensitivity: as in :func:`fhjax.privacy.guarantee.guarantees`.
        etas: relative changes of the model variance, each above -1 (or -1 where no sampling variance is 0).
        beta_prior_precision: (p, p) or None.

    An area whose rho is 0 or infinite on both sides changes by 0.

    Raises:
        InputError: for an eta below -1.

    Source: Das and Drechsler (2026), section 5.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> sorted(model_variance_changes(data, fit(data), [0.02, 0.03, 0.02, 0.05], etas=(-0.1, 0.1)))
        [-0.1, 0.1]
    """
    if any(not eta >= -1.0 for eta in etas):
        raise InputError(f"The model variance cannot become negative: etas {tuple(etas)} must all be at least -1.")
    problem = prepare(data, posterior, sensitivity, beta_prior_precision)
    s2 = problem.C.model_variance
    before = _rho(problem, s2, beta_prior_precision)
    return {float(eta): relative_change(before, _rho(problem, s2 * (1.0 + eta), beta_prior_precision)) for eta in etas}


def relative_change(before: Array, after: Array) -> Array:
    """after / before - 1, with 0 where both are 0 or both infinite."""
    same = before == after
    usual = ~same & (before > 0.0) & jnp.isfinite(before)
    change = after / jnp.where(usual, before, 1.0) - 1.0
    # From 0 to something is an infinite change; from infinity to a number is a fall by 100 %.
    return jnp.where(same, 0.0, jnp.where(usual, change, jnp.where(before == 0.0, jnp.inf, -1.0)))


def drivers(rho: Any, num_records: Any, weight_ratio: Any) -> Drivers | None:
    """What drives rho across areas: least squares of log rho on log n, and on log weight ratio and log n together.

    Args:
        rho: (m,) per-area rho. Areas where it is 0 or infinite are left out; ``num_areas_used`` says how many remain.
        num_records: (m,) records of each area.
        weight_ratio: (m,) largest over mean weight.

    Returns:
        Drivers, slopes as (low, estimate, high) with 95 % t intervals; None with fewer than 5 usable areas. A slope
        that the data cannot tell (all areas of one size, or equal weights) is (-infinity, 0, infinity).

    Source: Das and Drechsler (2026), section 5; the usual OLS formulas.

    Examples:
        >>> n = [100.0, 200.0, 300.0, 450.0, 600.0, 900.0]
        >>> round(drivers([10.0 / size for size in n], n, [2.0, 3.0, 2.0, 4.0, 2.5, 3.0]).slope_log_n[1], 6)
        -1.0
    """
    rho, n, ratio = (np.asarray(values, dtype=float) for values in (rho, num_records, weight_ratio))
    if not rho.shape == n.shape == ratio.shape:
        raise InputError(
            f"rho has shape {rho.shape}, num_records {n.shape}, weight_ratio {ratio.shape}; give one an area."
        )
    used = np.isfinite(rho) & (rho > 0) & np.isfinite(n) & (n > 0) & np.isfinite(ratio) & (ratio > 0)
    if used.sum() < 5:
        return None
    log_rho, log_n, log_ratio = np.log(rho[used]), np.log(n[used]), np.log(ratio[used])
    alone = _slopes(log_rho, log_n)
    joint = _slopes(log_rho, log_ratio, log_n)
    return Drivers(
        slope_log_n=alone[0],
        slope_log_ratio_joint=joint[0],
        slope_log_n_joint=joint[1],
        correlation_log_n_log_ratio=_correlation(log_n, log_ratio),
        correlation_log_rho_log_ratio=_correlation(log_rho, log_ratio),
        num_areas_used=int(used.sum()),
    )


def _slopes(y: FloatArray, *columns: FloatArray) -> list[tuple[float, float, float]]:
    """OLS slopes with an intercept, (low, estimate, high) at 95 %."""
    design = np.column_stack([column - column.mean() for column in columns])
    response = y - y.mean()
    scale = np.linalg.norm(design, axis=0)
    size = [max(float(np.abs(column).max()), 1.0) * np.sqrt(len(y)) for column in columns]
    unknown = (-np.inf, 0.0, np.inf)
    if (scale <= 1e-12 * np.array(size)).any() or np.linalg.cond(design / scale) > 1e10:
        return [unknown] * len(columns)
    coefficients, *_ = np.linalg.lstsq(design / scale, response, rcond=None)
    freedom = len(y) - len(columns) - 1
    residual = response - design / scale @ coefficients
    covariance = np.linalg.inv((design / scale).T @ (design / scale)) * (residual @ residual) / freedom
    half = special.stdtrit(freedom, 0.975) * np.sqrt(np.diag(covariance))
    estimate = coefficients / scale
    return [(float(b - h), float(b), float(b + h)) for b, h in zip(estimate, half / scale, strict=True)]


def _correlation(a: FloatArray, b: FloatArray) -> float:
    """Pearson's correlation, 0 where one side is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(np.clip(a @ b / size, -1.0, 1.0)) if size > 1e-24 * len(a) else 0.0


@record
class RecordLoss:
    """How a release's cost is spread over respondents: quantiles of the per-unit rho."""

    levels: tuple[float, ...] = static()
    quantiles: FloatArray  # rho at each level
    mean: float
    share_below_tenth: float  # share of units whose rho is under a tenth of the largest
    num_units: int = static(default=0)


def record_loss_summary(share: Any, area: Any, own_area_rho: Any, levels: Sequence[float] = (0.5, 0.9, 0.99, 1.0)):
    """Quantiles over respondents of their own rho, (w / w_max)^2 times their area's own term.

    Args:
        share: (n,) from :func:`fhjax.privacy.sensitivity.record_loss_share`.
        area: (n,) index of each unit's area.
        own_area_rho: (m,) own-area terms, which are also the terms of the correlated joint.
        levels: quantile levels.

    Returns:
        RecordLoss. Internal: it describes individual respondents' losses and rests on confidential variances.

    Source: docs/derivations.md, section 3.

    Examples:
        >>> import fhjax
        >>> share = fhjax.record_loss_share([1.0, 2.0, 4.0], [0, 0, 1], [2.0, 4.0])
        >>> record_loss_summary(share, [0, 0, 1], [0.5, 0.1]).quantiles.tolist()
        [0.125, 0.5, 0.5, 0.5]
    """
    share = np.asarray(share, dtype=float)
    own = np.asarray(own_area_rho, dtype=float)[np.asarray(area)]
    # A share of 0 costs nothing even in an area whose rho is infinite.
    loss = np.where(share > 0.0, np.where(share > 0.0, share, 1.0) * own, 0.0)
    ordered = np.sort(loss)
    rank = np.clip(np.ceil(np.asarray(levels) * len(ordered)).astype(int) - 1, 0, len(ordered) - 1)
    return RecordLoss(
        levels=tuple(levels),
        quantiles=ordered[rank],
        mean=float(np.mean(loss)),
        share_below_tenth=float(np.mean(loss < 0.1 * ordered[-1])),
        num_units=len(loss),
    )
