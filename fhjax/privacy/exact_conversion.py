"""The exact (epsilon, delta) of one Gaussian pair: kernels, in log space, vectorised by broadcasting.

N(0, 1) against N(mu, 1) with mu = sqrt(2 rho) has delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle
and Wang 2018; docs/derivations.md, section 10). With a = eps/mu - mu/2 and b = a + mu the density identity
e^eps phi(b) = phi(a) turns this into phi(a) (R(a) - R(b)), R the Mills ratio, so that

    log delta = -a^2/2 - log sqrt(2 pi) + log mu + log chord,    chord = (R(a) - R(b)) / mu          for a >= -1/2
    log delta = log1p(-phi(a) (R(-a) + R(b)))                                                      for a < -1/2

and nothing cancels (below -1/2, mu exceeds 1 because eps >= 0 means a >= -mu/2). log delta is concave in a, hence
Newton's method from the right of the root stays on its right: every iterate is a valid upper bound on epsilon.

Everything is solved for a, because eps = rho + mu a is then found to the accuracy of a at any rho. Rounding outward
uses ``_ROUND`` times (the unit roundoff times the condition of each step); against mpmath the errors seen are below 2
of these 8 units.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfinv, ndtri

from fhjax.privacy.normal_tails import LOG_SQRT_TWO_PI, SQRT_TWO_PI, mills_chord
from fhjax.records import Array

UNIT = float(np.finfo(np.float64).eps) / 2
TINY = float(np.finfo(np.float64).tiny)
LARGEST_RHO = 1e300  # beyond it mu^2 leaves the range of doubles, and the answer is infinity
SMALLEST_RHO = 1e-280  # below it intermediate products would underflow: smaller rho are rounded up to it
_ROUND = 8.0
_SWITCH = -0.5
_NEWTON_STEPS = 8


def _log_delta(mu: Array, a: Array, half_square: Array) -> tuple[Array, Array, Array]:
    """log delta, its derivative with respect to a at fixed mu, and R(a + mu). Finite for finite arguments."""
    near = a >= _SWITCH
    # one chord serves both forms: from a to b, or from -a to b, whose end values give R(-a) = R(b) + step chord
    step = jnp.where(near, mu, mu + 2.0 * a)
    chord, tail = mills_chord(jnp.where(near, a, -a), step)
    # an underflow of the product is rounded up; half_square is then astronomically larger
    upper = jnp.minimum(jnp.log(jnp.maximum(mu * chord, TINY)) - half_square - LOG_SQRT_TWO_PI, 0.0)
    density = jnp.exp(-half_square) / SQRT_TWO_PI
    complement = jnp.minimum(density * (2.0 * tail + step * chord), 1.0 - UNIT)
    slope = -tail * jnp.where(near, 1.0 / chord, mu * density / (1.0 - complement))
    # XLA's log1p is off by up to 240 units of rounding between -0.42 and -0.35, where log itself loses 5
    below = jnp.where(complement > 0.25, jnp.log(1.0 - complement), jnp.log1p(-complement))
    return jnp.where(near, upper, below), slope, tail


def _upper_bound_of_a(log_delta: Array) -> Array:
    """The a with Phi(-a) = delta; inf where delta is too small for the inverse of Phi."""
    above_half = log_delta > -0.69
    smaller_side = jnp.where(above_half, -jnp.expm1(log_delta), jnp.exp(log_delta))
    a = jnp.where(above_half, 1.0, -1.0) * ndtri(jnp.maximum(smaller_side, TINY))
    return jnp.where(a > 37.0, jnp.inf, a)


def _solve(rho: Array, log_delta: Array) -> tuple[Array, Array, Array]:
    """epsilon rounded up, its slopes in rho and log delta. Needs 0 < rho <= LARGEST_RHO and finite log delta < 0."""
    mu = jnp.sqrt(2.0 * rho)
    half = 0.5 * mu
    # delta(0) = 2 Phi(mu/2) - 1 may be below delta already
    log_delta_zero, _, _ = _log_delta(mu, -half, 0.5 * half * half)
    # To the right of the root: delta < Phi(-a), and delta < mu phi(a) for a > 0.
    from_tail = _upper_bound_of_a(log_delta)
    from_density = jnp.sqrt(2.0 * jnp.maximum(jnp.minimum(jnp.log(mu) - LOG_SQRT_TWO_PI, -0.5) - log_delta, 0.0))
    a = jnp.minimum(from_tail, from_density)
    a = jnp.maximum(a, -half)

    def step(_, a):
        value, slope, _ = _log_delta(mu, a, 0.5 * a * a)
        return jnp.maximum(a - (value - log_delta) / slope, -half)

    a = jax.lax.fori_loop(0, _NEWTON_STEPS, step, a)
    _, slope, tail = _log_delta(mu, a, 0.5 * a * a)
    # log1p keeps a relative error, the sum of logarithms an absolute one
    error_of_a = jnp.where(a >= _SWITCH, 4.0 + a * a - log_delta, (4.0 + a * a) * -log_delta) / -slope
    margin = _ROUND * UNIT * (rho + mu * jnp.abs(a) + mu * error_of_a)
    epsilon = jnp.maximum(rho + mu * a + margin, 0.0)
    positive = log_delta_zero > log_delta
    zero = jnp.zeros_like(epsilon)
    return (
        jnp.where(positive, epsilon, zero),
        jnp.where(positive, 1.0 / (mu * tail), zero),
        jnp.where(positive, mu / slope, zero),
    )


def largest_epsilon(rho: Array, epsilon: Array) -> Array:
    """epsilon, cut where log delta would leave the range of doubles: a smaller epsilon has the larger delta."""
    return jnp.minimum(epsilon, rho + 1e150 * jnp.sqrt(rho))


def _usable(rho: Array, log_delta: Array) -> tuple[Array, Array, Array]:
    """Where the equations mean something, and arguments that are harmless elsewhere."""
    usable = (rho > 0.0) & (rho <= LARGEST_RHO) & (log_delta < 0.0) & (log_delta > -jnp.inf)
    safe_rho = jnp.maximum(jnp.where(usable, rho, 1.0), SMALLEST_RHO)
    return usable, safe_rho, jnp.where(usable, log_delta, -1.0)


def _epsilon_and_slopes(rho: Array, delta: Array) -> tuple[Array, Array, Array]:
    log_delta = jnp.log(delta)
    usable, safe_rho, safe_log_delta = _usable(rho, log_delta)
    epsilon, by_rho, by_log_delta = _solve(safe_rho, safe_log_delta)
    # nothing spent or everything allowed: 0. No finite epsilon exists at delta = 0, nor for an uncertified rho.
    otherwise = jnp.where((rho == 0.0) | (delta >= 1.0), 0.0, jnp.inf)
    by_delta = by_log_delta / jnp.where(usable, delta, 1.0)
    return (
        jnp.where(usable, epsilon, otherwise),
        jnp.where(usable, by_rho, 0.0),
        jnp.where(usable, by_delta, 0.0),
    )


@jax.custom_jvp
def epsilon_kernel(rho: Array, delta: Array) -> Array:
    """epsilon rounded up; arguments of one shape, rho >= 0 (inf allowed), delta >= 0."""
    return _epsilon_and_slopes(rho, delta)[0]


@epsilon_kernel.defjvp
def _(primals, tangents):
    value, by_rho, by_delta = _epsilon_and_slopes(*primals)
    return value, by_rho * tangents[0] + by_delta * tangents[1]


def _log_delta_and_slopes(rho: Array, epsilon: Array) -> tuple[Array, Array, Array]:
    usable = (rho > 0.0) & (rho <= LARGEST_RHO) & (epsilon < jnp.inf)
    safe_rho = jnp.maximum(jnp.where(usable, rho, 1.0), SMALLEST_RHO)
    safe_epsilon = largest_epsilon(safe_rho, jnp.where(usable, epsilon, 1.0))
    mu = jnp.sqrt(2.0 * safe_rho)
    # eps - rho is rounded once, so a and its square keep their relative accuracy at any rho
    distance = safe_epsilon - safe_rho
    a = distance / mu
    half_square = (0.25 * distance / safe_rho) * distance
    value, slope, tail = _log_delta(mu, a, half_square)
    # relative rounding where log delta is near 0 (delta near 1), absolute elsewhere
    size = jnp.where(a >= _SWITCH, 4.0 + half_square - value, -value * (4.0 + half_square))
    value = jnp.minimum(value + _ROUND * UNIT * size, 0.0)
    otherwise = jnp.where((rho == 0.0) | (rho <= LARGEST_RHO), -jnp.inf, 0.0)
    by_epsilon = slope / mu
    # d delta / d mu = phi(a), and -d delta / d eps = phi(a) R(b)
    by_rho = -by_epsilon / (mu * tail)
    return (
        jnp.where(usable, value, otherwise),
        jnp.where(usable, by_rho, 0.0),
        jnp.where(usable, by_epsilon, 0.0),
    )


@jax.custom_jvp
def log_delta_kernel(rho: Array, epsilon: Array) -> Array:
    """log delta rounded up; arguments of one shape, both >= 0 (inf allowed)."""
    return _log_delta_and_slopes(rho, epsilon)[0]


@log_delta_kernel.defjvp
def _(primals, tangents):
    value, by_rho, by_epsilon = _log_delta_and_slopes(*primals)
    return value, by_rho * tangents[0] + by_epsilon * tangents[1]


def rho_kernel(epsilon: Array, delta: Array, lower: Array) -> Array:
    """The largest rho with delta(epsilon) at most ``delta``, before rounding; ``lower`` is a valid smaller one.

    Newton in u = log mu from the left: log delta is concave and increasing in u, so the iterates stay on the safe side.
    Arguments of one shape, finite, 0 < delta < 1.
    """
    log_delta = jnp.log(delta)
    # delta(eps) <= delta(0) = erf(mu / sqrt(8)) gives the second valid start, the better one when epsilon is small
    # and delta <= Phi(-a), eps = mu a + mu^2/2 the third, the better one when delta is large
    a = _upper_bound_of_a(log_delta)
    root = jnp.sqrt(a * a + 2.0 * epsilon)
    from_tail = jnp.where(a > 0.0, 2.0 * epsilon / jnp.where(a > 0.0, root + a, 1.0), root - a)
    mu = jnp.maximum(np.sqrt(8.0) * erfinv(delta), jnp.where(jnp.isfinite(a), from_tail, 0.0)) * (1.0 - 1e-12)
    mu = jnp.maximum(mu, jnp.sqrt(2.0 * lower))
    start = jnp.log(jnp.maximum(mu, 2.0 * jnp.sqrt(TINY)))

    def step(_, u):
        mu = jnp.exp(u)
        rho = 0.5 * mu * mu
        distance = epsilon - rho
        a = distance / mu
        value, slope, tail = _log_delta(mu, a, (0.25 * distance / rho) * distance)
        rise = -slope / tail  # d log delta / d log mu = mu phi(a) / delta
        return jnp.maximum(u + (log_delta - value) / rise, start)

    u = jax.lax.fori_loop(0, 24, step, start)
    return 0.5 * jnp.exp(2.0 * u)
