"""Rényi divergence curves of Gaussian pairs, stable from order 1 to infinity.

D_alpha(P || Q) of P = N(shift, variance) against Q = N(0, other_variance). With equal variances it is alpha rho, rho =
shift^2 / (2 variance): the whole of zCDP. With unequal ones write x = variance / other_variance - 1 and s = alpha - 1;
the mixed variance is other_variance (1 - s x), and where that is not positive the divergence is infinite. Otherwise

    D_alpha = alpha shift^2 / (2 other_variance (1 - s x)) + (x^2 / 2) [s l(-s x) + l(x)],   l(y) = (y - log1p y) / y^2

which is the textbook formula with its cancellations done by hand: it tends to the Kullback-Leibler divergence at order
1 and to 0 as fast as it should when the variances agree. In several dimensions the second covariance is whitened and
the first diagonalised, and the terms of the axes add.

Results are rounded up, and a mixed variance that is 0 to rounding counts as not positive.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.entrance import is_concrete
from fhjax.errors import InputError
from fhjax.privacy import tight_conversion
from fhjax.privacy.conversion import ArrayLike, Rho, checked, checked_delta, checked_rho
from fhjax.privacy.exact_conversion import LARGEST_RHO, SMALLEST_RHO, TINY, UNIT
from fhjax.records import Array

_ROUND = 16.0
_SERIES_TERMS = 17  # z^2 <= 1/9 for |y| <= 1/2


def _checked_order(order: ArrayLike) -> Array:
    if not is_concrete(order):
        return jnp.asarray(order)
    if np.any(np.asarray(order) < 1.0):
        raise InputError("Rényi orders must be at least 1: privacy is not measured by smaller ones.")
    return checked(order, "order")


def _log1p_remainder(y: Array, log1p_y: Array) -> Array:
    """l(y) = (y - log1p y) / y^2 for y > -1, positive, 1/2 at 0; without cancellation."""
    small = jnp.abs(y) <= 0.5
    inner = jnp.where(small, y, 0.0)
    z = inner / (2.0 + inner)  # log1p y = 2 atanh z
    square = z * z
    series = jnp.zeros_like(z)
    for term in range(_SERIES_TERMS, -1, -1):
        series = 1.0 / (2 * term + 3) + square * series
    outer = jnp.where(small, 1.0, y)
    # (1 / y) (1 - log1p(y) / y): y^2 would overflow first
    direct = (1.0 - log1p_y / outer) / outer
    return jnp.where(small, 0.5 * (1.0 - z) - 0.5 * z * (1.0 - z) ** 2 * series, direct)


def _pair(order: Array, scaled_shift_square: Array, x: Array, log_ratio: Array) -> Array:
    """Divergence of one axis: ``scaled_shift_square`` = shift^2 / other variance, ``x`` = variance ratio - 1.

    ``log_ratio`` comes apart from x, which is -1 for every ratio below 1e-16; it is -inf for no positive ratio.
    """
    finite_order = order < jnp.inf
    s = jnp.where(finite_order, order - 1.0, 0.0)
    # the mixed variance over the other one, rounded down so that both parts are rounded up
    product = s * x
    product = product + 4.0 * UNIT * (1.0 + jnp.abs(product))
    certified = (product < 1.0) & jnp.isfinite(scaled_shift_square) & jnp.isfinite(x) & jnp.isfinite(log_ratio)
    product = jnp.where(certified, product, 0.0)
    safe_x, safe_log = jnp.where(certified, x, 0.0), jnp.where(certified, log_ratio, 0.0)
    square = jnp.where(certified, scaled_shift_square, 0.0)
    location = 0.5 * (1.0 + s) * square / (1.0 - product)
    # x (x s l): s x^2 l(-s x) stays in range where s alone would not
    scale = (
        0.5
        * safe_x
        * ((safe_x * s) * _log1p_remainder(-product, jnp.log1p(-product)) + safe_x * _log1p_remainder(safe_x, safe_log))
    )
    value = jnp.where(certified, (location + scale) * (1.0 + _ROUND * UNIT), jnp.inf)
    # At order inf: infinite, unless the second law is the wider one and covers the first's tails.
    wider = (x < 0.0) & jnp.isfinite(log_ratio) & jnp.isfinite(scaled_shift_square)
    gap = jnp.where(wider, -x, 1.0)
    limit = (0.5 * jnp.where(wider, scaled_shift_square, 0.0) / gap - 0.5 * jnp.where(wider, log_ratio, 0.0)) * (
        1.0 + _ROUND * UNIT
    )
    limit = jnp.where((x == 0.0) & (scaled_shift_square == 0.0), 0.0, jnp.where(wider, limit, jnp.inf))
    return jnp.where(finite_order, value, limit)


@jax.jit
def _univariate(order: Array, shift: Array, variance: Array, other: Array) -> Array:
    positive = (variance > 0.0) & (other > 0.0)
    safe_variance, safe_other = jnp.where(positive, variance, 1.0), jnp.where(positive, other, 1.0)
    x = (safe_variance - safe_other) / safe_other
    ratio = safe_variance / safe_other
    log_ratio = jnp.where(ratio > TINY, jnp.log(jnp.maximum(ratio, TINY)), -jnp.inf)
    value = _pair(order, shift * (shift / safe_other), x, log_ratio)
    # two constants: equal ones cannot be told apart, different ones always
    constants = (variance == 0.0) & (other == 0.0) & (shift == 0.0)
    return jnp.where(positive, value, jnp.where(constants, 0.0, jnp.inf))


def renyi_curve(rho: Rho, order: ArrayLike) -> Array:
    """alpha rho: the Rényi divergence that rho-zCDP allows at each order, and attains for a Gaussian pair.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0.
        order: alpha >= 1, broadcast against rho; inf gives inf unless rho is 0.

    Raises: InputError for values outside these ranges.
    Source: docs/derivations.md, sections 4 to 8; Bun and Steinke 2016.

    Examples:
        >>> [float(d) for d in renyi_curve(0.5, [1.0, 2.0, 10.0])]
        [0.5, 1.0, 5.0]
    """
    rho, order = checked_rho(rho), _checked_order(order)
    return jnp.where(rho > 0.0, jnp.where(rho > 0.0, rho, 1.0) * order, 0.0)


def renyi_divergence(
    order: ArrayLike, shift: ArrayLike, variance: ArrayLike, other_variance: ArrayLike | None = None
) -> Array:
    """D_alpha(N(shift, variance) || N(0, other_variance)), rounded up; arguments broadcast.

    Args:
        order: alpha >= 1; 1 is the Kullback-Leibler divergence, inf the largest log ratio of the densities.
        shift: difference of the means, any sign, outcome units.
        variance, other_variance: >= 0, outcome units squared; the second defaults to the first.

    Returns: nats; inf where the mixed variance alpha other + (1 - alpha) variance is not positive, or only one of the
    laws is a constant.
    Raises: InputError for an order below 1 and for negative or NaN variances.
    Source: Gil, Alajaji and Linder 2013, table 2, rearranged as in the module's docstring.

    Examples:
        >>> float(renyi_divergence(2.0, 1.0, 2.0, 1.0))
        inf
        >>> round(float(renyi_divergence(1.0, 0.0, 2.0, 1.0)), 6)
        0.153426
    """
    variance = checked(variance, "variance")
    other = variance if other_variance is None else checked(other_variance, "other_variance")
    if is_concrete(shift):
        shift = checked(np.abs(np.asarray(shift, dtype=np.float64)), "the absolute shift")
    return _univariate(_checked_order(order), shift, variance, other)


@jax.jit
def _multivariate(order: Array, shift: Array, covariance: Array, other: Array) -> tuple[Array, Array]:
    factor = jnp.linalg.cholesky(other)
    dims = shift.shape[-1]
    usable = jnp.all(jnp.isfinite(factor), axis=(-1, -2))
    factor = jnp.where(usable[..., None, None], factor, jnp.eye(dims))
    solve = jax.scipy.linalg.solve_triangular
    batch = jnp.broadcast_shapes(shift.shape[:-1], covariance.shape[:-2], other.shape[:-2])
    factor = jnp.broadcast_to(factor, (*batch, dims, dims))
    # the difference of the covariances and not the covariance: its eigenvalues are the x of the axes
    difference = jnp.broadcast_to(covariance - other, (*batch, dims, dims))
    half = solve(factor, difference, lower=True)
    whitened = solve(factor, jnp.swapaxes(half, -1, -2), lower=True)
    x, axes = jnp.linalg.eigh(0.5 * (whitened + jnp.swapaxes(whitened, -1, -2)))
    moved = solve(factor, jnp.broadcast_to(shift, (*batch, dims))[..., None], lower=True)[..., 0]
    coordinates = jnp.einsum("...ij,...i->...j", axes, moved)
    log_ratio = jnp.where(x > -1.0, jnp.log1p(jnp.maximum(x, -1.0 + UNIT)), -jnp.inf)
    terms = _pair(order[..., None], coordinates**2, x, log_ratio)
    usable = jnp.broadcast_to(usable, batch)
    return jnp.where(usable, jnp.sum(terms, axis=-1) * (1.0 + dims * UNIT), jnp.inf), usable


def renyi_divergence_multivariate(
    order: ArrayLike, shift: ArrayLike, covariance: ArrayLike, other_covariance: ArrayLike
) -> Array:
    """D_alpha(N(shift, covariance) || N(0, other_covariance)) for small dense covariances.

    Args:
        order: alpha >= 1, broadcast against the leading axes of the rest.
        shift: (..., d) difference of the means.
        covariance, other_covariance: (..., d, d), symmetric; the second positive definite.

    Returns: (...) nats; inf where the mixed covariance is not positive definite. Accurate to rounding times the
    condition number of ``other_covariance``.
    Raises: InputError for an order below 1, for shapes that do not fit, and for a second covariance that is not
    positive definite.
    Source: Gil, Alajaji and Linder 2013, table 2, in the coordinates that diagonalise both covariances.

    Examples:
        >>> eye = jnp.eye(2)
        >>> round(float(renyi_divergence_multivariate(3.0, jnp.ones(2), eye, eye)), 6)
        3.0
    """
    shift, covariance, other = (jnp.asarray(v, jnp.float64) for v in (shift, covariance, other_covariance))
    dims = shift.shape[-1] if shift.ndim else 0
    if dims == 0 or covariance.shape[-2:] != (dims, dims) or other.shape[-2:] != (dims, dims):
        raise InputError(
            f"A shift of d numbers needs two d x d covariances; the shapes are {shift.shape}, {covariance.shape} and "
            f"{other.shape}."
        )
    value, usable = _multivariate(_checked_order(order), shift, covariance, other)
    if is_concrete(usable) and not bool(jnp.all(usable)):
        raise InputError(
            f"{int(jnp.sum(~usable))} of the second covariances are not positive definite. Leave out the outputs that "
            "are fixed combinations of the others."
        )
    return value


@jax.jit
def _optimal_order(rho: Array, delta: Array) -> Array:
    log_inverse = -jnp.log(delta)
    usable = (rho > 0.0) & (rho < jnp.inf) & (log_inverse > 0.0) & (log_inverse < jnp.inf)
    b, _ = tight_conversion.best_order(
        jnp.clip(jnp.where(usable, rho, 1.0), SMALLEST_RHO, LARGEST_RHO), jnp.where(usable, log_inverse, 1.0)
    )
    # rho = 0: the objective falls until b = 1/delta - 1; delta = 0: only the order inf could prove anything
    limit = jnp.where(rho == jnp.inf, 1.0, jnp.where(delta > 0.0, 1.0 / jnp.maximum(delta, TINY), jnp.inf))
    return jnp.where(usable, 1.0 + b, limit)


def optimal_order(rho: Rho, delta: ArrayLike) -> Array:
    """The order alpha > 1 at which :func:`~fhjax.privacy.conversion.epsilon_tight` attains its infimum.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0.
        delta: in [0, 1), broadcast against rho.

    Raises: InputError for values outside these ranges.
    Source: rho b^2 + log1p(b) = log(1/delta), b = alpha - 1; docs/derivations.md, section 10.

    Examples:
        >>> round(float(optimal_order(1.51, 1e-7)), 4)
        4.1203
    """
    return _optimal_order(*jnp.broadcast_arrays(checked_rho(rho), checked_delta(delta)))


def epsilon_from_renyi(order: ArrayLike, divergence: ArrayLike, delta: ArrayLike) -> Array:
    """The least epsilon that a Rényi curve, known at some orders, proves at ``delta``; rounded up.

    For releases that are not Gaussian pairs: unequal variances, full Bayes. A coarse grid of orders is loose, never
    wrong; compare the attained order with the grid's ends before trusting its tightness.

    Args:
        order: (..., k) orders; those not above 1 or infinite are skipped.
        divergence: (..., k) bounds on D_alpha in nats, in both directions; inf is skipped.
        delta: (...) in [0, 1).

    Returns: (...) epsilon; inf when no order proves anything.
    Raises: InputError for negative or NaN divergences, orders below 1 and delta outside [0, 1).
    Source: Canonne, Kamath and Steinke 2020.

    Examples:
        >>> order = jnp.linspace(1.5, 20.0, 400)
        >>> bool(epsilon_from_renyi(order, 1.51 * order, 1e-7) < 10.66)
        True
    """
    order, divergence, delta = _checked_order(order), checked(divergence, "divergence"), checked_delta(delta)
    return tight_conversion.epsilon_of_curve(order, divergence, delta)
