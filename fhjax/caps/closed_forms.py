"""Caps that meet a target exactly when the variances are held fixed: the constraint then separates by area.

With psi and sigma_v^2 fixed, rho depends on the weights through the sensitivities R t_k alone, and each bound is the
largest of terms that grow with one t_k. So every area has a largest admissible share t_k*, and the least trimming that
reaches it is a formula (see :mod:`fhjax.caps.shares`).
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

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

    Examples:
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
