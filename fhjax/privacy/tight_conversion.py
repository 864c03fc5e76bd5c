"""The best (epsilon, delta) that rho-zCDP alone implies by the improved Rényi conversion: kernels.

For every order alpha = 1 + b > 1 (Canonne, Kamath and Steinke 2020; docs/derivations.md, section 10)

    eps(b) = rho (1 + b) + (L - log1p b) / b - log1p(1/b),        L = log(1/delta)

is a valid epsilon, so an order that is slightly off costs a little and breaks nothing. The best order solves
rho b^2 + log1p b = L. In s = log1p b the left side is convex and increasing, so Newton's method from the right of the
root converges from that side; b = sqrt(L / rho) and b = 1/delta - 1 are both to its right.
Read backwards, rho(b) = [eps - (L - log1p b)/b + log1p(1/b)] / (1 + b) is a valid rho for every b, and likewise delta.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fhjax.privacy.exact_conversion import LARGEST_RHO, SMALLEST_RHO, TINY, UNIT, largest_epsilon
from fhjax.records import Array

_ROUND = 8.0
_NEWTON_STEPS = 8
_BRACKETED_STEPS = 40


def best_order(rho: Array, log_inverse: Array) -> tuple[Array, Array]:
    """b = alpha - 1 of the best order and log1p(b), for 0 < rho <= LARGEST_RHO and 0 < log(1/delta) < inf."""
    start = jnp.minimum(jnp.log1p(jnp.sqrt(log_inverse) / jnp.sqrt(rho)), log_inverse)

    def step(_, s):
        b = jnp.expm1(s)
        # (rho b) b and not rho b^2: b reaches 1e300
        excess = rho * b * b + s - log_inverse
        return s - excess / (2.0 * rho * b * (b + 1.0) + 1.0)

    s = jax.lax.fori_loop(0, _NEWTON_STEPS, step, start)
    return jnp.expm1(s), s


def _epsilon_and_slopes(rho: Array, delta: Array) -> tuple[Array, Array, Array]:
    log_inverse = -jnp.log(delta)
    usable = (rho > 0.0) & (rho <= LARGEST_RHO) & (log_inverse > 0.0) & (log_inverse < jnp.inf)
    safe_rho = jnp.maximum(jnp.where(usable, rho, 1.0), SMALLEST_RHO)
    safe_log = jnp.where(usable, log_inverse, 1.0)
    b, s = best_order(safe_rho, safe_log)
    gain = jnp.log1p(1.0 / b)
    value = safe_rho + safe_rho * b + (safe_log - s) / b - gain
    margin = _ROUND * UNIT * (safe_rho + safe_rho * b + (safe_log + s) / b + gain)
    value = value + margin
    usable_and_positive = usable & (value > 0.0)
    otherwise = jnp.where((rho == 0.0) | (delta >= 1.0), 0.0, jnp.inf)
    # the order is optimal, so only the explicit rho and delta move epsilon (envelope theorem)
    return (
        jnp.where(usable, jnp.maximum(value, 0.0), otherwise),
        jnp.where(usable_and_positive, 1.0 + b, 0.0),
        jnp.where(usable_and_positive, -1.0 / b / jnp.where(usable, delta, 1.0), 0.0),
    )


@jax.custom_jvp
def epsilon_kernel(rho: Array, delta: Array) -> Array:
    """epsilon rounded up; arguments of one shape, rho >= 0 (inf allowed), delta >= 0."""
    return _epsilon_and_slopes(rho, delta)[0]


@epsilon_kernel.defjvp
def _(primals, tangents):
    value, by_rho, by_delta = _epsilon_and_slopes(*primals)
    return value, by_rho * tangents[0] + by_delta * tangents[1]


def _bracketed_newton(function, low: Array, high: Array) -> Array:
    """Root of an increasing function given with its slope: Newton steps, halving whenever one leaves the bracket."""

    def step(_, state):
        low, high, u = state
        value, slope = function(u)
        low, high = jnp.where(value <= 0.0, u, low), jnp.where(value >= 0.0, u, high)
        newton = u - value / slope
        inside = (newton >= low) & (newton <= high)
        return low, high, jnp.where(inside, newton, 0.5 * (low + high))

    return jax.lax.fori_loop(0, _BRACKETED_STEPS, step, (low, high, 0.5 * (low + high)))[2]


def _log_delta_and_slopes(rho: Array, epsilon: Array) -> tuple[Array, Array, Array]:
    usable = (rho > 0.0) & (rho <= LARGEST_RHO) & (epsilon < jnp.inf)
    safe_rho = jnp.maximum(jnp.where(usable, rho, 1.0), SMALLEST_RHO)
    safe_epsilon = largest_epsilon(safe_rho, jnp.where(usable, epsilon, 1.0))
    distance = safe_epsilon - safe_rho
    # stationary order: 2 rho b = (eps - rho) + log1p(1/b), where log1p(1/b) <= log 2 once b >= 1
    top = jnp.maximum(1.0, 0.5 * (jnp.maximum(distance, 0.0) + 0.7) / safe_rho)
    # and log b >= -log1p(1/b) >= distance - 2 rho top, its difference taken by hand
    low = jnp.minimum(distance - 2.0 * safe_rho, jnp.minimum(distance, 0.0) - 0.7)

    def mismatch(u):
        # the logarithms of two positive sides: nearly straight in u, whichever term rules
        b, gain = jnp.exp(u), jnp.logaddexp(0.0, -u)
        left, right = 2.0 * safe_rho * b + jnp.maximum(-distance, 0.0), gain + jnp.maximum(distance, 0.0)
        slope = 2.0 * safe_rho * b / left + 1.0 / (1.0 + b) / right
        return jnp.log(left) - jnp.log(right), slope

    u = _bracketed_newton(mismatch, low, jnp.log(top))
    b = jnp.exp(u)
    # b log1p(1/b), which tends to 0 with b
    gain = b * jnp.logaddexp(0.0, -u)
    value = b * (safe_rho * b - distance) - gain - jnp.log1p(b)
    margin = _ROUND * UNIT * (b * (jnp.abs(distance) + safe_rho * b) + gain + jnp.log1p(b))
    value = jnp.minimum(value + margin, 0.0)
    otherwise = jnp.where((rho == 0.0) | (rho <= LARGEST_RHO), -jnp.inf, 0.0)
    return (
        jnp.where(usable, value, otherwise),
        jnp.where(usable, b * (1.0 + b), 0.0),
        jnp.where(usable, -b, 0.0),
    )


@jax.custom_jvp
def log_delta_kernel(rho: Array, epsilon: Array) -> Array:
    """log delta rounded up; arguments of one shape, both >= 0 (inf allowed)."""
    return _log_delta_and_slopes(rho, epsilon)[0]


@log_delta_kernel.defjvp
def _(primals, tangents):
    value, by_rho, by_epsilon = _log_delta_and_slopes(*primals)
    return value, by_rho * tangents[0] + by_epsilon * tangents[1]


def rho_kernel(epsilon: Array, delta: Array) -> Array:
    """The largest rho with tight epsilon at most ``epsilon``, before rounding. Finite epsilon >= 0, 0 < delta < 1.

    Both stationary equations together leave (L - log1p b)(1 + 2b)/b^2 = eps + log1p(1/b), whose left side grows faster
    in 1/b; any b gives a valid rho, so the root need only be good.
    """
    log_inverse = -jnp.log(delta)
    # At b = L / (1 + sqrt(1 + 2 L eps)) the left side is still the larger; at b = 1/delta - 1 it is 0.
    low = jnp.log(log_inverse) - jnp.log1p(jnp.sqrt(1.0 + 2.0 * log_inverse * epsilon))
    high = log_inverse + jnp.log(-jnp.expm1(-log_inverse))

    def mismatch(u):
        b = jnp.exp(u)
        gain = jnp.logaddexp(0.0, -u)
        left = jnp.maximum(log_inverse - jnp.log1p(b), TINY)
        value = jnp.log(epsilon + gain) - jnp.log(left) - jnp.log1p(2.0 * b) + 2.0 * u
        slope = 2.0 + b / (1.0 + b) / left - 2.0 * b / (1.0 + 2.0 * b) - 1.0 / (1.0 + b) / (epsilon + gain)
        return value, slope

    u = _bracketed_newton(mismatch, low, jnp.maximum(high, low))
    b = jnp.exp(u)
    numerator = epsilon - (log_inverse - jnp.log1p(b)) / b + jnp.logaddexp(0.0, -u)
    return jnp.maximum(numerator, 0.0) / (1.0 + b)


@jax.jit
def epsilon_of_curve(order: Array, divergence: Array, delta: Array) -> Array:
    """Smallest epsilon over the last axis of a Rényi curve, rounded up. Orders 1 and inf prove nothing."""
    usable = (order > 1.0) & (order < jnp.inf)
    b = jnp.where(usable, order, 2.0) - 1.0
    log_inverse = -jnp.log(delta)[..., None]
    gain = jnp.log1p(1.0 / b)
    value = divergence + (log_inverse - jnp.log1p(b)) / b - gain
    margin = _ROUND * UNIT * (divergence + (log_inverse + jnp.log1p(b)) / b + gain)
    finite = usable & jnp.isfinite(divergence) & jnp.isfinite(log_inverse)
    return jnp.maximum(jnp.min(jnp.where(finite, value + margin, jnp.inf), axis=-1), 0.0)
