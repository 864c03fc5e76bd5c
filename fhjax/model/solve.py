"""The model variance: a search for the highest basin, then Newton steps kept inside a bracket.

The restricted likelihood may have several local maxima and its slope at 0 may be negative although an interior
maximum is higher, so the basins are found first; where there are several, the two that look highest are both climbed
and compared. Kernels: they never raise. Loops that few problems of a batch need do not run when none does.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fhjax.errors import Status
from fhjax.model.likelihood import Problem, centred, estimating_function, inverse, profile
from fhjax.model.reductions import FACTORS

Array = jax.Array

#: Grid points of the search are geometric, about this factor apart, between a hundredth of the least sampling variance
#: and the upper bound, but never more than ``GRID``.
APART, GRID = 4.0, 32
#: The search looks at all of up to ``FACTORS`` areas, and of more at this many or up to twice that, evenly spaced; the
#: steps that follow see all of them.
SEARCHED = 256


class Bracket(NamedTuple):
    """State of the iteration. ``low`` is -1 until the sign of the estimating function at 0 is known."""

    s: Array
    low: Array
    high: Array
    last_step: Array
    steps: Array
    done: Array
    centre: Array  # (p,) coefficients at the last s, around which the next sums are taken


class Basin(NamedTuple):
    """An interval of s that holds a maximum, about how high it is, and where to start."""

    height: Array
    s: Array
    low: Array
    high: Array
    centre: Array  # (p,) coefficients near there


def upper_bound(rss: Array, largest: Array, degrees: Array) -> Array:
    """No root lies above: y'P^2 y <= RSS / s^2 and tr P >= (m - p) / (s + max psi). RSS may be too large."""
    a = rss / jnp.maximum(degrees, 1.0)
    return jnp.maximum(0.5 * a + jnp.sqrt(0.25 * a * a + a * largest), 1e-8) * 1.001


def bracket(basin: Basin) -> Bracket:
    zero = jnp.zeros((), jnp.int32)
    return Bracket(basin.s, basin.low, basin.high, jnp.array(jnp.inf), zero, zero > 0, basin.centre)


def fresh(s: Array, high: Array, centre: Array) -> Bracket:
    """A start at ``s`` with nothing known of the bracket but that no root lies above ``high``."""
    zero = jnp.zeros((), jnp.int32)
    return Bracket(jnp.minimum(s, 0.5 * high), jnp.array(-1.0), high, jnp.array(jnp.inf), zero, zero > 0, centre)


def search(problem: Problem, method: str) -> tuple[Basin, Basin]:
    """The two highest basins, by the criterion's values and slopes on a grid; one that is not has height -inf."""
    high = problem.high
    psi = jnp.where(problem.psi > 0, problem.psi, jnp.inf)
    least = jnp.min(psi) / problem.scale
    least = jnp.where(jnp.isfinite(least), least, 1.0)
    first = jnp.minimum(jnp.maximum(0.01 * least, 1e-14 * high), 0.5 * high)
    points = jnp.clip(jnp.ceil(jnp.log(high / first) / jnp.log(APART)), 1, GRID - 1)
    ratio = (high / first) ** (1.0 / points)

    def looked(state):
        k, s0, height0, value0, centre, best, second = state
        # Point 0 is ``first``; those before are 0 itself, twice, because sums around far coefficients lose digits.
        s1 = jnp.where(k < 0, 0.0, first * ratio**k)
        height1, value1, centre = profile(s1, problem, centre, method)
        # Between the two, the slope in log s taken as straight; at 0, in s.
        wide = jnp.where(s0 > 0, jnp.log(ratio), 1.0)
        g0, g1 = jnp.where(s0 > 0, s0, s1) * value0, s1 * value1
        share = jnp.where(g0 > g1, g0 / (g0 - g1), 0.5)
        inner = jnp.where(s0 > 0, s0 * ratio**share, s1 * share)
        climb0, climb1 = height0 + 0.5 * wide * share * g0, height1 - 0.5 * wide * (1.0 - share) * g1
        inside = (k >= 0) & (value0 > 0) & (value1 <= 0)
        at_zero = (k == -1) & (value1 <= 0)
        height = jnp.where(at_zero, height1, 0.5 * (climb0 + climb1))
        height = jnp.where((inside | at_zero) & ~jnp.isnan(height), height, -jnp.inf)
        low = jnp.where(at_zero, -1.0, jnp.maximum(s0, 0.0))
        found = Basin(height, jnp.where(at_zero, 0.0, inner), low, jnp.where(at_zero, first, s1), centre)
        top, next_ = height > best.height, height > second.height
        second = jax.tree.map(lambda a, b, c: jnp.where(top, a, jnp.where(next_, b, c)), best, found, second)
        best = jax.tree.map(lambda a, b: jnp.where(top, a, b), found, best)
        return k + 1.0, s1, height1, value1, centre, best, second

    none = Basin(jnp.array(-jnp.inf), 0.5 * high, jnp.array(-1.0), high, problem.offset)
    begin = (jnp.array(-2.0), jnp.array(-1.0), jnp.array(-jnp.inf), jnp.array(-1.0), problem.offset, none, none)
    *_, best, second = jax.lax.while_loop(lambda state: state[0] <= points, looked, begin)
    return best, second


def advance(state: Bracket, value: Array, slope: Array, centre: Array, tolerance: Array) -> Bracket:
    """One safeguarded Newton step from the estimating function at ``state.s`` (decreasing through its root)."""
    s, low, high, last, steps, _, _ = state
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
    # Steps shrink quadratically: the next one is known to be small before it is taken, which saves a pass.
    ahead = jnp.maximum(step / jnp.where(new > 0, new, 1.0), 2.0 * (step / last) ** 2) * step
    ahead = jnp.where(jnp.isfinite(last) & (step <= 0.1 * last), ahead, step)
    small = inside & (new > 0) & ((step <= tolerance * new) | (ahead <= 0.1 * tolerance * new))
    done = at_zero | small | stalled | closed | (value == 0) & (s > 0) | jnp.isnan(new)
    return Bracket(new, low, high, step, steps + 1, done, centre)


def solve(problem: Problem, method: str, tolerance: Array, max_steps: Array) -> tuple[Bracket, Array]:
    """The root and its status by compiled loops: for batches and derivatives."""
    if problem.num_rows > FACTORS:
        # A sample's basin: where it starts is worth keeping, its bracket is not.
        sample = problem.every(problem.num_rows // SEARCHED)
        best, _ = search(sample, method)
        end = iterate(problem, fresh(best.s, problem.high, best.centre), method, tolerance, max_steps)
        return end, status_of(end)
    best, second = search(problem, method)
    if method == "moment":
        end = iterate(problem, bracket(best), method, tolerance, max_steps)
        return end, status_of(end)

    def climb(state):
        turn, top, height = state
        basin = jax.tree.map(lambda a, b: jnp.where(turn == 0, a, b), best, second)
        end = iterate(problem, bracket(basin), method, tolerance, max_steps)
        reached, _, _ = profile(end.s, problem, end.centre, method)
        better = (turn == 0) | (end.done & (reached > height))
        top = jax.tree.map(lambda a, b: jnp.where(better, a, b), end, top)
        return turn + 1, top, jnp.where(better, reached, height)

    candidates = jnp.where(second.height > -jnp.inf, 2, 1)
    begin = (jnp.zeros((), jnp.int32), bracket(best), jnp.array(-jnp.inf))
    _, end, _ = jax.lax.while_loop(lambda state: state[0] < candidates, climb, begin)
    return end, status_of(end)


def iterate(problem: Problem, begin: Bracket, method: str, tolerance: Array, max_steps: Array) -> Bracket:
    """Steps until one is small enough."""
    return jax.lax.while_loop(
        lambda state: ~state.done & (state.steps < max_steps),
        lambda state: step(problem, state, method, tolerance),
        begin,
    )


def step(problem: Problem, state: Bracket, method: str, tolerance: Array) -> Bracket:
    """One pass over the data and the step that follows from it."""
    equation = estimating_function(state.s, problem, state.centre, method)
    return advance(state, equation.value, equation.step_slope, equation.centre, tolerance)


def status_of(end: Bracket) -> Array:
    code = jnp.where(end.done, jnp.where(end.s > 0, int(Status.OK), int(Status.AT_BOUNDARY)), int(Status.NOT_CONVERGED))
    return jnp.where(jnp.isfinite(end.s), code, int(Status.NOT_FINITE)).astype(jnp.int32)


def prasad_rao(problem: Problem) -> Array:
    """Prasad and Rao (1990): (RSS - sum psi (1 - h_ii)) / (m - p) by least squares, truncated at 0."""
    live = jnp.isfinite(problem.psi)
    y = jnp.where(live, centred(problem, problem.offset), 0.0)
    psi = jnp.where(live, problem.psi / problem.scale, 0.0)
    one = jnp.where(live, 1.0, 0.0)
    Q = jnp.stack([one if q is None else q for q in problem.Q])
    flat = Q.reshape(Q.shape[0], -1)
    A, _ = inverse(flat @ flat.T)
    leverage = jnp.sum(Q * jnp.tensordot(A, Q, axes=1), axis=0)
    residual = y - jnp.tensordot(A @ (flat @ y.reshape(-1)), Q, axes=1)
    excess = jnp.sum(residual * residual) - jnp.sum(psi * (1.0 - leverage))
    return jnp.maximum(excess / (problem.count - problem.num_columns), 0.0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def with_derivative(method: str, s: Array, centre: Array, problem: Problem) -> Array:
    """``s`` itself, with the derivative of the root of the estimating function and exactly 0 where s is 0."""
    return s


@with_derivative.defjvp
def _with_derivative_jvp(method, primals, tangents):
    s, centre, problem = primals
    *_, dots = tangents
    # Through with_derivative again, so that second derivatives are right as well.
    root = with_derivative(method, s, centre, problem)

    def value_and_slope(data):
        equation = estimating_function(root, data, centre, method)
        return equation.value, equation.slope

    (_, slope), (change, _) = jax.jvp(value_and_slope, (problem,), (dots,))
    inside = s > 0
    return root, jnp.where(inside, -change / jnp.where(inside, slope, -1.0), 0.0)
