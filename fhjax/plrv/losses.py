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

from fhjax.entrance import is_concrete, require_float64
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
        if data.mask is not None and not (is_concrete(data.mask) and np.all(np.asarray(data.mask))):
            raise InputError("Drop the rows that only pad the arrays (mask False) before their draws are checked.")
        psi, s2 = data.sampling_variance, jnp.asarray(model_variance, dtype=float)
        if is_concrete(psi) and (zero := np.asarray(psi) <= 0.0).any():
            labels = data.labels or Labels(range(data.num_areas))
            raise complain(
                "have a sampling variance of 0, so their draw is the direct estimate and its privacy loss infinite",
                labels.where(zero),
                "Leave them out of the release that is checked.",
            )
        self._numbers = _two_ways(data.y, psi, data.X, s2)

    def here(self) -> OwnPosterior:
        """The posterior of the data as they are."""
        return _posterior_of(self._numbers, self._numbers.y)

    def with_change(self, area: int | Array, change: Any) -> OwnPosterior:
        """The posterior after ``change`` (outcome units) of one area's direct estimate."""
        return _posterior_of(self._numbers, self._numbers.y.at[area].add(change))

    def each_with_its_own_change(self, area: Any, change: Any) -> OwnPosterior:
        """Marginal posteriors in which area i sees ``change[i]`` of area ``area[i]``'s direct estimate."""
        return _each_changed(self._numbers, jnp.asarray(area), jnp.asarray(change))


@record
class _Numbers:
    """What every posterior of one set of areas shares, made by QR decomposition and precision weighting."""

    y: Array  # (m,)
    X: Array  # (m, p)
    root: Array  # (m,) of psi + s2
    Q: Array  # (m, p) orthonormal basis of X / root
    inverse: Array  # (p, p), beta = inverse Q' (y / root)
    on_y: Array  # (m,) precision weights
    on_prediction: Array  # (m,)
    fixed: dict[str, Array]


@jax.jit
def _two_ways(y: Array, psi: Array, X: Array, s2: Array) -> _Numbers:
    root = jnp.sqrt(psi + s2)
    Q, R = jnp.linalg.qr(X / root[:, None])
    inverse = jnp.linalg.inv(R)
    spread = s2 > 0.0
    prior = jnp.where(spread, s2, 1.0)
    conditional = jnp.where(spread, 1.0 / (1.0 / psi + 1.0 / prior), 0.0)
    on_y = conditional / psi
    on_prediction = jnp.where(spread, conditional / prior, 1.0)
    factor = on_prediction[:, None] * (X @ inverse)
    whitened = jnp.where(spread, factor / jnp.sqrt(jnp.where(spread, conditional, 1.0))[:, None], X)
    basis, triangle = jnp.linalg.qr(whitened)
    fixed = {"independent": conditional, "factor": factor, "basis": basis, "triangle": triangle}
    return _Numbers(y=y, X=X, root=root, Q=Q, inverse=inverse, on_y=on_y, on_prediction=on_prediction, fixed=fixed)


@jax.jit
def _posterior_of(numbers: _Numbers, y: Array) -> OwnPosterior:
    beta = numbers.inverse @ (numbers.Q.T @ (y / numbers.root))
    mean = numbers.on_y * y + numbers.on_prediction * (numbers.X @ beta)
    return OwnPosterior(mean=mean, **numbers.fixed)


@jax.jit
def _each_changed(numbers: _Numbers, area: Array, change: Array) -> OwnPosterior:
    beta = numbers.inverse @ (numbers.Q.T @ (numbers.y / numbers.root))
    moved = beta + (numbers.Q[area] / numbers.root[area, None] * change[:, None]) @ numbers.inverse.T
    own = numbers.y + jnp.where(area == jnp.arange(numbers.y.shape[0]), change, 0.0)
    mean = numbers.on_y * own + numbers.on_prediction * jnp.sum(numbers.X * moved, axis=1)
    return OwnPosterior(mean=mean, **numbers.fixed)


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

    Examples:
        >>> import jax.numpy as jnp
        >>> from fhjax.model.fit import area_data
        >>> pair = Neighbours(area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5]), 4.0)
        >>> theta = pair.here().mean
        >>> [round(float(x), 5) for x in loss(log_density_areas, theta, pair.here(), pair.with_change(1, 0.2))]
        [3e-05, 0.03667, 3e-05, 3e-05]
    """
    return log_density(theta, here) - log_density(theta, there)


def privacy_losses(
    data: AreaData,
    model_variance: Any,
    *,
    key: Array,
    area: int | Array,
    change: Any,
    num_draws: int = 1,
    release: str = "correlated",
) -> Array:
    """Privacy losses (n,) of n posterior draws when ``change`` is added to one area's direct estimate.

    Args:
        data: m areas, none of them padding.
        model_variance: () held fixed, outcome units squared.
        key: a JAX key.
        area: index of the area whose unit changes.
        change: by how much its direct estimate does, outcome units; its sensitivity is the most.
        num_draws: how many draws n, made under ``data``.
        release: ``"correlated"``, one draw of the whole posterior, or ``"independent"``.

    Raises:
        InputError: an unknown release, padded rows, or an area with sampling variance 0, whose loss is infinite
            (inside ``jit`` it shows as a loss that is not finite).

    The losses have the law N(rho, 2 rho) with the rho that this change costs, at most that of ``joint_correlated`` or
    ``joint_independent``.

    Source: docs/derivations.md, section 12.

    Examples:
        >>> import jax
        >>> from fhjax.model.fit import area_data
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> privacy_losses(data, 4.0, key=jax.random.key(1), area=1, change=0.2, num_draws=3).shape
        (3,)
    """
    require_float64()
    if release not in ("correlated", "independent"):
        raise InputError(f"release is {release!r}; it is one of correlated, independent.")
    pair = Neighbours(data, model_variance)
    here, there = pair.here(), pair.with_change(area, change)
    noise, coefficients = jax.random.split(key)
    shape = (num_draws, data.num_areas)
    if release == "independent":
        theta = here.mean + jnp.sqrt(here.variance) * jax.random.normal(noise, shape)
        return _finite(loss(log_density_independent, theta, here, there))
    theta = here.mean + jnp.sqrt(here.independent) * jax.random.normal(noise, shape)
    theta = theta + jax.random.normal(coefficients, (num_draws, data.num_covariates)) @ here.factor.T
    return _finite(loss(log_density_correlated, theta, here, there))


def _finite(losses: Array) -> Array:
    return jnp.where(jnp.isnan(losses), jnp.inf, losses)
