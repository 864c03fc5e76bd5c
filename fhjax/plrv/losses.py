"""Log densities of the posterior under two neighbouring data sets, and the privacy loss of a draw.

Coded apart from ``fhjax.model`` and ``fhjax.privacy``: the posterior is made here by a QR decomposition and by
precision weighting, never from the sensitivity coefficients, so that a wrong coefficient, mean or variance there shows
up as a privacy loss that does not have the law claimed for it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.errors import InputError, complain
from fhjax.records import AreaData, Array, Labels, record

_LOG_2PI = math.log(2.0 * math.pi)


@record
class OwnPosterior:
    """N(mean, diag(independent) + factor factor') of the area means, as this room computes it from y."""

    mean: Array  # (m,) outcome units
    independent: Array  # (m,) variance given the regression coefficients
    factor: Array  # (m, p)
    # (m, p) thin orthonormal basis and (p, p) triangle of factor / sqrt(independent), or of X when independent is 0
    basis: Array
    triangle: Array

    @property
    def variance(self) -> Array:
        """(m,) marginal posterior variances."""
        return self.independent + jnp.sum(self.factor**2, axis=1)


class Neighbours:
    """The posteriors of data sets that differ from ``data`` in one area's direct estimate.

    Args:
        data: m areas.
        model_variance: () held fixed, outcome units squared.

    Raises:
        InputError: an area with sampling variance 0, whose guarantee is infinite, so that there is no law to check.
    """

    def __init__(self, data: AreaData, model_variance: Any) -> None:
        if data.mask is not None and not np.all(np.asarray(data.mask)):
            raise InputError("Drop the rows that only pad the arrays (mask False) before their draws are checked.")
        self.y, self.psi = np.asarray(data.y, dtype=float), np.asarray(data.sampling_variance, dtype=float)
        self.X, self.s2 = np.asarray(data.X, dtype=float), float(model_variance)
        zero = self.psi <= 0.0
        if zero.any():
            labels = data.labels or Labels(range(len(self.y)))
            raise complain(
                "have a sampling variance of 0, so their draw is the direct estimate and its privacy loss infinite",
                labels.where(zero),
                "Leave them out of the release that is checked.",
            )
        root = np.sqrt(self.psi + self.s2)
        self._Q, R = np.linalg.qr(self.X / root[:, None])
        self._root = root
        self._inverse = np.linalg.inv(R)  # (p, p), beta = inverse Q' (y / root)
        if self.s2 > 0.0:
            conditional = 1.0 / (1.0 / self.psi + 1.0 / self.s2)
            self._on_y, self._on_prediction = conditional / self.psi, conditional / self.s2
        else:
            conditional, self._on_y = np.zeros_like(self.psi), np.zeros_like(self.psi)
            self._on_prediction = np.ones_like(self.psi)
        factor = self._on_prediction[:, None] * (self.X @ self._inverse)
        whitened = factor / np.sqrt(conditional)[:, None] if self.s2 > 0.0 else self.X
        basis, triangle = np.linalg.qr(whitened)
        self._fixed = {
            "independent": jnp.asarray(conditional),
            "factor": jnp.asarray(factor),
            "basis": jnp.asarray(basis),
            "triangle": jnp.asarray(triangle),
        }

    def _mean(self, y: np.ndarray) -> np.ndarray:
        beta = self._inverse @ (self._Q.T @ (y / self._root))
        return self._on_y * y + self._on_prediction * (self.X @ beta)

    def here(self) -> OwnPosterior:
        """The posterior of the data as they are."""
        return OwnPosterior(mean=jnp.asarray(self._mean(self.y)), **self._fixed)

    def with_change(self, area: int, change: float) -> OwnPosterior:
        """The posterior after ``change`` (outcome units) of one area's direct estimate."""
        y = self.y.copy()
        y[area] += change
        return OwnPosterior(mean=jnp.asarray(self._mean(y)), **self._fixed)

    def each_with_its_own_change(self, area: np.ndarray, change: np.ndarray) -> OwnPosterior:
        """Marginal posteriors in which area i sees ``change[i]`` of area ``area[i]``'s direct estimate."""
        area = np.asarray(area)
        beta = self._inverse @ (self._Q.T @ (self.y / self._root))
        moved = beta + (self._Q[area] / self._root[area, None] * np.asarray(change)[:, None]) @ self._inverse.T
        own = self.y + np.where(area == np.arange(len(self.y)), change, 0.0)
        mean = self._on_y * own + self._on_prediction * np.sum(self.X * moved, axis=1)
        return OwnPosterior(mean=jnp.asarray(mean), **self._fixed)


def log_density_areas(theta: Array, posterior: OwnPosterior) -> Array:
    """Log density of every area's draw under its marginal posterior: (..., m) -> (..., m)."""
    variance = posterior.variance
    return -0.5 * ((theta - posterior.mean) ** 2 / variance + jnp.log(variance) + _LOG_2PI)


def log_density_independent(theta: Array, posterior: OwnPosterior) -> Array:
    """Log density of draws (..., m) whose areas were drawn independently: (...,)."""
    return jnp.sum(log_density_areas(theta, posterior), axis=-1)


def log_density_correlated(theta: Array, posterior: OwnPosterior) -> Array:
    """Log density of draws (..., m) of the whole posterior, through its factors: (...,). O(m p) a draw.

    With D = diag(independent) and F = factor, D^-1/2 F = Q T: r' Sigma^-1 r = |e|^2 - w' (I - (I + T T')^-1) w for
    e = D^-1/2 r and w = Q' e. Where the model variance is 0 the draw lives on the regression surface; the density is
    that of its p coefficients in the basis of X.
    """
    r = theta - posterior.mean
    p = posterior.factor.shape[1]
    inner = jnp.eye(p) + posterior.triangle @ posterior.triangle.T
    cholesky = jnp.linalg.cholesky(inner)
    degenerate = jnp.all(posterior.independent == 0.0)
    safe = jnp.where(degenerate, 1.0, posterior.independent)
    e = r / jnp.sqrt(safe)
    w = e @ posterior.basis
    half = jax.scipy.linalg.solve_triangular(cholesky, jnp.swapaxes(jnp.atleast_2d(w), 0, 1), lower=True)
    explained = jnp.sum(w * w, axis=-1) - jnp.sum(half * half, axis=0).reshape(w.shape[:-1])
    logdet = jnp.sum(jnp.log(safe)) + 2.0 * jnp.sum(jnp.log(jnp.diagonal(cholesky)))
    regular = -0.5 * (jnp.sum(e * e, axis=-1) - explained + logdet + r.shape[-1] * _LOG_2PI)
    # On the surface r = X b with X = basis triangle, so w = triangle b; and factor = X root gives b's covariance.
    S = (posterior.basis.T @ posterior.factor) @ (posterior.basis.T @ posterior.factor).T
    root = jnp.linalg.cholesky(jnp.where(degenerate, S, jnp.eye(p)))
    flat = r @ posterior.basis
    z = jax.scipy.linalg.solve_triangular(root, jnp.swapaxes(jnp.atleast_2d(flat), 0, 1), lower=True)
    square = jnp.sum(z * z, axis=0).reshape(flat.shape[:-1])
    surface = -0.5 * (square + 2.0 * jnp.sum(jnp.log(jnp.diagonal(root))) + p * _LOG_2PI)
    return jnp.where(degenerate, surface, regular)


def log_density_linear(values: Array, weights: Array, posterior: OwnPosterior, release: str) -> Array:
    """Log density of published combinations ``weights @ theta`` (..., q), dense in q: (...,).

    The combinations must be linearly independent; ``release`` says how theta was drawn.
    """
    if release == "independent":
        S = (weights * posterior.variance) @ weights.T
    else:
        half = weights @ posterior.factor
        S = (weights * posterior.independent) @ weights.T + half @ half.T
    r = values - weights @ posterior.mean
    root = jnp.linalg.cholesky(S)
    z = jax.scipy.linalg.solve_triangular(root, jnp.swapaxes(jnp.atleast_2d(r), 0, 1), lower=True)
    square = jnp.sum(z * z, axis=0).reshape(r.shape[:-1])
    return -0.5 * (square + 2.0 * jnp.sum(jnp.log(jnp.diagonal(root))) + r.shape[-1] * _LOG_2PI)


def loss(log_density, theta: Array, here: OwnPosterior, there: OwnPosterior) -> Array:
    """The privacy loss log p(theta | D) - log p(theta | D') of draws made under D.

    Args:
        log_density: one of the functions above.
        theta: (..., m) draws.
        here: the posterior under D, the data set the draws were made from.
        there: the posterior under its neighbour D'.

    The law it must have is N(rho, 2 rho) with rho = d^2 / 2 (docs/derivations.md, section 12), in both directions:
    exchange the two posteriors for draws made under D'.

    Example:
        >>> import jax.numpy as jnp
        >>> from fhjax.model.fit import area_data
        >>> pair = Neighbours(area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5]), 4.0)
        >>> theta = pair.here().mean
        >>> [round(float(x), 5) for x in loss(log_density_areas, theta, pair.here(), pair.with_change(1, 0.2))]
        [3e-05, 0.03667, 3e-05, 3e-05]
    """
    return log_density(theta, here) - log_density(theta, there)


def loss_by_bayes(data: AreaData, model_variance: Any, theta: Array, area: int, change: float) -> Array:
    """The loss of a whole correlated draw by Bayes' rule, without any posterior: (..., m) -> (...,).

    p(theta | y) / p(theta | y') = [f(y_k | theta_k) / f(y'_k | theta_k)] [p(y') / p(y)]: the prior of theta cancels,
    and with the flat prior on the coefficients p(y) is the restricted likelihood. It holds at a model variance of 0
    too, and shows why the draw of all areas costs what area k alone costs: nothing but theta_k is in it.
    """
    y, psi, X = (np.asarray(value, dtype=float) for value in (data.y, data.sampling_variance, data.X))
    root = np.sqrt(psi + float(model_variance))
    Q, _ = np.linalg.qr(X / root[:, None])

    def restricted(values: np.ndarray) -> float:
        e = values / root
        return -0.5 * (float(e @ e) - float(np.sum((Q.T @ e) ** 2)))

    other = y.copy()
    other[area] += change
    theta_k = theta[..., area]
    likelihood = -0.5 * ((y[area] - theta_k) ** 2 - (other[area] - theta_k) ** 2) / psi[area]
    return likelihood - restricted(y) + restricted(other)
