"""What the theory says of the privacy loss of a Gaussian pair: its moments, delta(epsilon), Rényi divergence.

The pair is N(mu, S) against N(mu + shift, S); all depends on rho = shift' S^-1 shift / 2 alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]


def loss_moments(rho: Any) -> tuple[Floats, Floats]:
    """Mean rho and variance 2 rho of the loss of a draw made under the data set in the numerator.

    Exchanging the data sets leaves the law of log p_own / p_other unchanged.

    Source: docs/derivations.md, section 12; Das and Drechsler (2026), Theorem 1.

    Examples:
        >>> [float(moment) for moment in loss_moments(0.5)]
        [0.5, 1.0]
    """
    rho = np.asarray(rho, dtype=float)
    return rho, 2.0 * rho


def delta_of(rho: Any, epsilon: Any) -> Floats:
    """delta(epsilon) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) with mu = sqrt(2 rho), in log space.

    Args:
        rho: nats, at least 0.
        epsilon: at least 0, broadcast against rho.

    Source: Balle and Wang (2018), Theorem 8.

    Examples:
        >>> float(delta_of(0.5, 0.0).round(6))
        0.382925
    """
    rho, epsilon = np.broadcast_arrays(np.asarray(rho, dtype=float), np.asarray(epsilon, dtype=float))
    mu = np.sqrt(2.0 * np.where(rho > 0.0, rho, 1.0))
    first = special.log_ndtr(mu / 2.0 - epsilon / mu)
    second = epsilon + special.log_ndtr(-mu / 2.0 - epsilon / mu)
    value = -np.exp(first) * np.expm1(np.minimum(second - first, 0.0))
    return np.where(rho > 0.0, value, 0.0)


def renyi_of(rho: Any, order: Any) -> Floats:
    """D_alpha = alpha rho for every order alpha > 1, nats."""
    return np.asarray(order, dtype=float) * np.asarray(rho, dtype=float)


def order_is_feasible(rho: Any, order: Any, num_draws: int) -> npt.NDArray[np.bool_]:
    """Whether n draws can estimate D_alpha: (alpha - 1)^2 2 rho < log n - 4.

    The plug-in estimate averages e^{(alpha - 1) L}, whose mass lies (alpha - 1) 2 rho above the mean of L: beyond what
    n draws reach it misses the mass and is biased downward, which looks safer than it is (44 % too low at alpha 10,
    rho 1.51 and a million draws).

    Examples:
        >>> bool(order_is_feasible(1.51, 2.0, 10**6)), bool(order_is_feasible(1.51, 10.0, 10**6))
        (True, False)
    """
    return (np.asarray(order, dtype=float) - 1.0) ** 2 * 2.0 * np.asarray(rho, dtype=float) < np.log(num_draws) - 4.0
