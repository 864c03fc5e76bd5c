"""Dense NumPy and mpmath answers for draws, privacy losses and discrete releases. Imports nothing from the package."""

from __future__ import annotations

import functools

import mpmath
import numpy as np


def example(m: int, p: int, seed: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y (m,), sampling variances (m,) and covariates (m, p) of a small problem."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(m), *(rng.normal(size=m) for _ in range(p - 1))])
    psi = 0.2 + rng.gamma(2.0, 0.3, size=m)
    y = X @ (1.0 + np.arange(p)) + rng.normal(size=m) * np.sqrt(psi + 0.5)
    return y, psi, X


def posterior(y: np.ndarray, psi: np.ndarray, s2: float, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (m,) and dense covariance (m, m) of the area means, by conditioning without any shortcut.

    theta = X beta + v with a flat prior on beta: beta | y by generalised least squares, then theta | beta, y.
    """
    V = psi + s2
    A = np.linalg.inv((X / V[:, None]).T @ X)
    beta = A @ X.T @ (y / V)
    B = psi / V
    mean = (1 - B) * y + B * (X @ beta)
    spread = (B[:, None] * X) @ A @ (B[:, None] * X).T
    return mean, np.diag(B * s2) + spread


def log_density(theta: np.ndarray, mean: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Log density of N(mean, S) at the rows of theta, dense."""
    r = np.atleast_2d(theta) - mean
    _, logdet = np.linalg.slogdet(S)
    return -0.5 * (len(mean) * np.log(2 * np.pi) + logdet + np.einsum("ni,ij,nj->n", r, np.linalg.inv(S), r))


def discrete_gaussian_weights(scale: float, reach: int) -> list:
    """exp(-k^2 / (2 scale^2)) for k = -reach .. reach, to 50 digits."""
    with mpmath.workdps(50):
        return [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(scale) ** 2)) for k in range(-reach, reach + 1)]


@functools.cache
def discrete_renyi(scale: float, shift: int, alpha: float) -> float:
    """Rényi divergence of order alpha between the discrete Gaussian and itself moved by ``shift``, by summation."""
    reach = int(15 * scale) + abs(shift) * int(alpha + 2) + 20  # e^-112 is left out
    with mpmath.workdps(50):
        s2 = mpmath.mpf(scale) ** 2
        Z = mpmath.fsum(discrete_gaussian_weights(scale, reach))
        a = mpmath.mpf(alpha)
        total = mpmath.fsum(
            mpmath.exp((-a * mpmath.mpf(k - shift) ** 2 - (1 - a) * mpmath.mpf(k) ** 2) / (2 * s2))
            for k in range(-reach, reach + 1)
        )
        return float(mpmath.log(total / Z) / (a - 1))


def gaussian_delta(rho: float, epsilon: float) -> float:
    """delta(epsilon) of a Gaussian pair with rho, to 50 digits."""
    with mpmath.workdps(50):
        mu = mpmath.sqrt(2 * mpmath.mpf(rho))
        e = mpmath.mpf(epsilon)
        return float(mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu))
