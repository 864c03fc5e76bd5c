"""The model variance: a coarse search for the highest basin, then Newton steps kept inside a bracket.

The restricted likelihood may have several local maxima and its slope at 0 may be negative although an interior
maximum is higher, so the basin is chosen by value before any step is taken. Kernels: they never raise.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fhjax.errors import Status
from fhjax.model.likelihood import Problem, criterion, estimating_function, inverse, recentred

Array = jax.Array

#: Points of the coarse search, geometric between a hundredth of the least sampling variance and the upper bound.
GRID = 16


#: The coarse search looks at no more than twice as many areas, evenly spaced; the steps that follow see all of them.
SEARCHED = 512
#: From this many areas on, the first steps are taken on one area in ``WARM_SHARE``.
WARM_FROM, WARM_SHARE = 60_000, 32


class Bracket(NamedTuple):
    """State of the iteration. ``low`` is -1 until the sign of the estimating function at 0 is known."""

    s: Array
    low: Array
    high: Array
    last_step: Array
    steps: Array
    done: Array


def upper_bound(problem: Problem) -> Array:
    """No root lies above: y'P^2 y <= RSS / s^2 and tr P >= (m - p) / (s + max psi)."""
    y, psi, Q, live = problem
    if Q is None:
        rss = jnp.sum(live * y * y)
    else:
        rss = jnp.sum(y * y)
    a = rss / (jnp.sum(live) - problem.num_columns)
    return jnp.maximum(0.5 * a + jnp.sqrt(0.25 * a * a + a * jnp.max(psi * live)), 1e-8) * 1.001


def start(problem: Problem, method: str) -> Bracket:
    """The basin with the largest criterion on a grid of s, with 0 among the candidates."""
    step = problem.num_rows // SEARCHED
    if step > 1:
        # A sample's basin: where it starts is worth keeping, its bracket is not.
        found = start(problem.every(step), method)
        return fresh(problem, found.s)
    psi, live = problem.psi, problem.live
    high = upper_bound(problem)
    least = jnp.min(jnp.where((live > 0) & (psi > 0), psi, jnp.inf))
    least = jnp.where(jnp.isfinite(least), least, 1.0)
    low = jnp.minimum(jnp.maximum(0.01 * least, 1e-14 * high), 0.5 * high)
    grid = jnp.concatenate([jnp.zeros(1), low * (high / low) ** jnp.linspace(0.0, 1.0, GRID)])
    values = jax.vmap(lambda s: criterion(s, problem, method))(grid)
    if method == "moment":
        # Decreasing in s: the last point above 0, and the next one.
        k = jnp.clip(jnp.sum(values > 0) - 1, 0, GRID - 1)
        below, above = grid[k], grid[k + 1]
        begin = jnp.where(k == 0, 0.0, 0.5 * (below + above))
    else:
        k = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))
        below, above = grid[jnp.maximum(k - 1, 0)], grid[jnp.minimum(k + 1, GRID)]
        begin = grid[k]
    below = jnp.where(k == 0, -1.0, below)
    zero = jnp.zeros((), jnp.int32)
    return Bracket(begin, below, above, jnp.array(jnp.inf), zero, zero > 0)


def fresh(problem: Problem, s: Array) -> Bracket:
    """A start at ``s`` with nothing known of the bracket."""
    high = upper_bound(problem)
    zero = jnp.zeros((), jnp.int32)
    return Bracket(jnp.minimum(s, 0.5 * high), jnp.array(-1.0), high, jnp.array(jnp.inf), zero, zero > 0)


def advance(state: Bracket, value: Array, slope: Array, tolerance: Array) -> Bracket:
    """One safeguarded Newton step from the estimating function at ``state.s`` (decreasing through its root)."""
    s, low, high, last, steps, _ = state
    at_zero = (s <= 0) & (value <= 0)
    low = jnp.where(value > 0, s, low)
    high = jnp.where(value > 0, high, s)
    newton = s - value / jnp.where(slope < 0, slope, -1.0)
    # A step below 0 asks for the sign at 0 once, by going there.
    newton = jnp.where((low < 0) & (newton <= 0), 0.0, newton)
    inside = (slope < 0) & (newton <= high) & jnp.where(low < 0, newton >= 0, newton >= low)
    floor = jnp.maximum(low, 0.0)
    middle = jnp.where(floor > 0, jnp.sqrt(floor * high), 0.25 * high)
    middle = jnp.where(high < 4.0 * floor, 0.5 * (floor + high), middle)
    new = jnp.where(at_zero, 0.0, jnp.where(inside, newton, middle))
    step = jnp.abs(new - s)
    # Rounding in the sums ends the progress of the steps before they vanish: that is convergence too.
    stalled = (step >= 0.5 * last) & (step <= 1e-7 * new) & inside
    # And the bracket may close on that rounding with the last step just outside.
    closed = (low > 0) & (high - low <= 1e-9 * high)
    small = inside & (step <= tolerance * jnp.maximum(new, 1e-12)) & (new > 0)
    return Bracket(new, low, high, step, steps + 1, at_zero | small | stalled | closed | (value == 0) & (s > 0))


def solve(problem: Problem, method: str, tolerance: Array, max_steps: Array) -> tuple[Array, Array, Array]:
    """``(s, steps, status)`` by one compiled loop: for batches and derivatives."""
    begin = start(problem, method)
    if problem.num_rows >= WARM_FROM:
        warm, _ = recentred(begin.s, problem.every(WARM_SHARE))
        found = iterate(warm, fresh(warm, begin.s), method, jnp.asarray(1e-3), max_steps)
        begin = begin._replace(s=jnp.minimum(found.s, begin.high))
    problem, _ = recentred(begin.s, problem)
    end = iterate(problem, begin, method, tolerance, max_steps)
    return end.s, end.steps, status_of(end.s, end.done)


def iterate(problem: Problem, begin: Bracket, method: str, tolerance: Array, max_steps: Array) -> Bracket:
    def body(state: Bracket) -> Bracket:
        value, slope = estimating_function(state.s, problem, method)
        return advance(state, value, slope, tolerance)

    return jax.lax.while_loop(lambda state: ~state.done & (state.steps < max_steps), body, begin)


def status_of(s: Array, done: Array) -> Array:
    code = jnp.where(done, jnp.where(s > 0, int(Status.OK), int(Status.AT_BOUNDARY)), int(Status.NOT_CONVERGED))
    return jnp.where(jnp.isfinite(s), code, int(Status.NOT_FINITE)).astype(jnp.int32)


def prasad_rao(problem: Problem) -> Array:
    """Prasad and Rao (1990): (RSS - sum psi (1 - h_ii)) / (m - p) by least squares, truncated at 0."""
    y, psi, Q, live = problem
    count = jnp.sum(live)
    if Q is None:
        centred = live * (y - jnp.sum(y * live) / count)
        leverage = live / count
        rss = jnp.sum(centred * centred)
    else:
        flat = Q.reshape(Q.shape[0], -1)
        A, _ = inverse(flat @ flat.T)
        leverage = jnp.sum(Q * jnp.tensordot(A, Q, axes=1), axis=0)
        residual = y - jnp.tensordot(A @ (flat @ y.reshape(-1)), Q, axes=1)
        rss = jnp.sum(residual * residual)
    return jnp.maximum((rss - jnp.sum(live * psi * (1.0 - leverage))) / (count - problem.num_columns), 0.0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def with_derivative(method: str, s: Array, problem: Problem) -> Array:
    """``s`` itself, with the derivative of the root of the estimating function and exactly 0 where s is 0."""
    return s


@with_derivative.defjvp
def _with_derivative_jvp(method, primals, tangents):
    s, problem = primals
    _, dots = tangents
    # Through with_derivative again, so that second derivatives are right as well.
    root = with_derivative(method, s, problem)
    (_, slope), (change, _) = jax.jvp(lambda data: estimating_function(root, data, method), (problem,), (dots,))
    inside = s > 0
    return root, jnp.where(inside, -change / jnp.where(inside, slope, -1.0), 0.0)
