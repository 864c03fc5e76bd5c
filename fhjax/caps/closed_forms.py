"""Caps that meet a target exactly when the variances are held fixed: the constraint then separates by area.

With psi and sigma_v^2 fixed, rho depends on the weights through the sensitivities R t_k alone, and each bound is the
largest of terms that grow with one t_k. So every area has a largest admissible share t_k*, and the least trimming that
reaches it is a formula (see :mod:`fhjax.caps.shares`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.caps.shares import SortedSizes, caps_for_shares
from fhjax.errors import InputError, complain
from fhjax.privacy.coefficients import Coefficients, coefficients
from fhjax.privacy.rho import independent_terms, own_area_terms
from fhjax.records import FloatArray, Labels

Joint = Literal["correlated", "independent"]
Mode = Literal["area", "mean", "median", "absolute"]
JOINTS = ("correlated", "independent")
MODES = ("area", "mean", "median", "absolute")
_BLOCK = 512  # rows of the coefficient matrix looked at together


def admissible_shares(
    sampling_variance: npt.ArrayLike,
    model_variance: npt.ArrayLike,
    X: npt.ArrayLike,
    target_rho: npt.ArrayLike,
    *,
    outcome_range: float = 1.0,
    joint: Joint = "correlated",
    labels: Labels | None = None,
) -> FloatArray:
    """The largest share t_k* that one unit of each area may have under the target, variances held fixed.

    Args:
        sampling_variance: (m,) psi > 0, outcome units squared.
        model_variance: sigma_v^2, outcome units squared.
        X: (m, p) covariates.
        target_rho: one number, the target of the joint release; or (m,), a target for publishing each area's draw.
        outcome_range: R, outcome units.
        joint: ``"correlated"`` (one draw of the whole posterior) or ``"independent"`` (the areas drawn independently).
            Not used with a target for each area.

    Returns:
        (m,) shares. For one common target per area they are those of the correlated joint: |Sigma_ik| <=
        sigma_i sigma_k makes the own-area terms the largest.

    Raises:
        InputError: a target that is not positive, or a sampling variance of 0.

    Neighbours: bounded, one unit's outcome replaced; weights, psi and sigma_v^2 fixed. Source: docs/trimming.md:
    t_k = sqrt(2 rho) psi_k / (R sigma_k), and t_k = sqrt(2 rho / a_k) / R with a_k = sum_i c_ik^2 / sigma_i^2.

    Example:
        >>> admissible_shares([0.004, 0.003, 0.0025], 0.001, [[1.0]] * 3, 0.05).round(6).tolist()
        [0.030954, 0.024377, 0.02107]
    """
    if joint not in JOINTS:
        raise InputError(f"joint must be 'correlated' or 'independent', not {joint!r}.")
    target = np.asarray(target_rho, dtype=float)
    if not np.all(np.isfinite(target) & (target > 0.0)):
        raise InputError("The target rho must be a positive number.")
    if not outcome_range > 0.0:
        raise InputError(f"The outcome range is {outcome_range!r}: it must be a positive number.")
    C = coefficients(sampling_variance, model_variance, X, labels=labels)
    psi = np.asarray(C.sampling_variance)
    names = labels if labels is not None else Labels(range(len(psi)))
    if np.any(psi == 0.0):
        raise complain(
            "have a sampling variance of 0, so that no weights make their rho finite",
            names.where(psi == 0.0),
            "Leave them out, or use a generalised variance function.",
        )
    ones = jnp.ones(len(psi))
    if target.ndim == 1 and len(np.unique(target)) > 1:
        effect = _largest_effect_on_any(C, target)
        return 1.0 / (outcome_range * effect)
    common = float(target) if target.ndim == 0 else float(target[0])
    unit = own_area_terms(C, ones) if joint == "correlated" or target.ndim == 1 else independent_terms(C, ones)[0]
    return np.sqrt(common / np.asarray(unit)) / outcome_range


def _largest_effect_on_any(C: Coefficients, target: FloatArray) -> FloatArray:
    """max_i |c_ik| / (sigma_i sqrt(2 rho_i)) for each k (m,), in blocks of rows."""
    if target.shape != (C.num_areas,):
        raise InputError(f"There are {C.num_areas:,} areas but {target.size:,} targets.")
    sigma = np.sqrt(np.asarray(C.posterior_variance()))
    worst = np.zeros(C.num_areas)
    every = np.arange(C.num_areas)
    for begin in range(0, C.num_areas, _BLOCK):
        rows = every[begin : begin + _BLOCK]
        scale = sigma[rows] * np.sqrt(2.0 * target[rows])
        worst = np.maximum(worst, np.max(np.abs(np.asarray(C.block(rows, every))) / scale[:, None], axis=0))
    return worst


@dataclasses.dataclass(frozen=True)
class FrozenCaps:
    """Caps under fixed variances. ``threshold`` is in the scale of the original weights: min(w, threshold)."""

    threshold: FloatArray  # (m,) infinity where an area is not trimmed
    share: FloatArray  # (m,) realised largest share
    admissible: FloatArray  # (m,) t*
    infeasible: npt.NDArray[np.bool_]  # (m,) t* < 1/n: trimming cannot get there
    multiple: float | None  # kappa, or the absolute cap, where one number rules all areas; infinity = nothing to trim


def frozen_caps(
    sizes: SortedSizes, admissible: FloatArray, *, mode: Mode = "area", total_kept: bool = False
) -> FrozenCaps:
    """The least trimming under admissible shares: a cap per area, or one number for all areas.

    Args:
        sizes: the units' weights by area.
        admissible: (m,) t*, from :func:`admissible_shares`.
        mode: ``"area"``: a cap for each area. ``"mean"``: one multiple of each area's mean weight after trimming (the
            mean before as well, if the total is kept). ``"median"``: one multiple of each area's median original
            weight. ``"absolute"``: one cap for all weights.
        total_kept: proportional redistribution within the area, so that caps concern the rescaled weights.

    An area that cannot reach its share gets equal weights under ``"area"``. Under the other modes one number must serve
    all areas, and it is the one that the feasible areas need.

    Source: docs/trimming.md: t_k = kappa / n_k, so kappa* = min_k n_k t_k*, feasible where kappa* >= 1.
    """
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, not {mode!r}.")
    n = sizes.num_units
    infeasible = (n > 0) & (admissible * n < 1.0 - 1e-12)
    before = np.where(n > 0, sizes.largest / np.where(sizes.total > 0, sizes.total, 1.0), 0.0)
    wanted = np.where(infeasible, 1.0 / np.maximum(n, 1.0), admissible)
    if mode == "area":
        threshold = caps_for_shares(sizes, wanted)
        return FrozenCaps(threshold, shares_under(sizes, threshold), admissible, infeasible, None)
    needs = before > wanted
    unit = _unit(sizes, mode, total_kept)
    if mode == "mean" or total_kept:
        level = np.where(needs, wanted / unit, np.inf)
    else:
        level = np.where(needs, caps_for_shares(sizes, wanted) / unit, np.inf)
    multiple = float(np.min(level)) if len(level) else np.inf
    threshold = thresholds_of_multiple(sizes, multiple, mode=mode, total_kept=total_kept)
    return FrozenCaps(threshold, shares_under(sizes, threshold), admissible, infeasible, multiple)


def _unit(sizes: SortedSizes, mode: str, total_kept: bool) -> FloatArray:
    """What the multiple multiplies: a share where shares are ruled, a weight where thresholds are."""
    positive = np.maximum(sizes.num_units, 1.0)
    if mode == "mean":
        return 1.0 / positive
    weight = np.maximum(sizes.quantile(0.5), np.finfo(float).tiny) if mode == "median" else np.ones(sizes.num_areas)
    return weight / np.where(sizes.total > 0, sizes.total, 1.0) if total_kept else weight


def thresholds_of_multiple(sizes: SortedSizes, multiple: float, *, mode: Mode, total_kept: bool = False) -> FloatArray:
    """(m,) thresholds that one multiple means: see :func:`frozen_caps`. Equal weights where it asks for less."""
    if not np.isfinite(multiple):
        return np.full(sizes.num_areas, np.inf)
    unit = _unit(sizes, mode, total_kept)
    if mode == "mean" or total_kept:
        share = multiple * unit
        return caps_for_shares(sizes, np.maximum(share, 1.0 / np.maximum(sizes.num_units, 1.0)))
    threshold = multiple * unit
    return np.where(threshold >= sizes.largest, np.inf, threshold)


def shares_under(sizes: SortedSizes, threshold: FloatArray) -> FloatArray:
    """(m,) realised largest share of min(w, threshold)."""
    cap = np.minimum(threshold, sizes.largest)
    rows = np.repeat(cap, np.diff(sizes.start))
    total = sizes.per_area(sizes.count * np.minimum(sizes.size, rows))
    return np.where(total > 0.0, cap / np.where(total > 0.0, total, 1.0), 0.0)


def smallest_rho(rho: npt.ArrayLike, share: FloatArray, sizes: SortedSizes) -> FloatArray:
    """(m,) each area's term of rho if its weights were equal, variances held fixed: rho (1 / (n t))^2."""
    n_share = np.maximum(sizes.num_units, 1.0) * share
    return np.asarray(rho, dtype=float) / np.where(n_share > 0.0, n_share, 1.0) ** 2


def frozen_terms(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, joint: Joint = "correlated"
) -> FloatArray:
    """(m,) the terms whose maximum is the joint rho."""
    C = coefficients(sampling_variance, model_variance, X)
    delta = jnp.asarray(sensitivity, dtype=float)
    return np.asarray(own_area_terms(C, delta) if joint == "correlated" else independent_terms(C, delta)[0])
