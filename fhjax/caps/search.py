"""The search for thresholds: every area for itself on a grid, then all together by gradients, always back to feasible.

rho need not fall as a cap falls, because a smaller design variance raises it, so no step bisects blindly. Given what
ties an area to the others (the model variance and the regression's covariance), its term of rho and its MSE depend on
its own threshold alone: a grid over all thresholds finds the basin, finer grids the point, and the ties are renewed
in between. Near a solution the ties hardly move, so the rounds end at thresholds that meet the target exactly.

Everything is batched: x is (b, m), log thresholds of b searches at once (several starts, or a path of targets), and
targets are (b, 1) or (b, m). Rounds run on the host over a few compiled steps, so that the full refit compiles once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fhjax.caps.evaluate import (
    Context,
    Evaluation,
    Problem,
    Settings,
    context_of,
    evaluate,
    local_estimates,
    local_terms,
    log_bounds,
)
from fhjax.records import Array

GRID = 64  # thresholds of the first grid, for every area
ZOOM = 9  # thresholds around the present one
MARGIN = 1e-9  # the search aims this share below the target, so that rounding cannot push rho above it

Values = tuple[Array, Array, Array]


class Found(NamedTuple):
    """Where searches ended: log thresholds (b, m), and the full evaluation there."""

    log_threshold: Array
    evaluation: Evaluation
    excess: Array  # (b,) largest log(rho term / target): not above 0 where the target is met


def excess_of(evaluation: Evaluation, target: Array) -> Array:
    """The largest log ratio of a term to its target, over the last axis."""
    ratio = jnp.maximum(evaluation.terms / target, 1e-300)
    return jnp.max(jnp.where(jnp.isnan(ratio), jnp.inf, jnp.log(ratio)), axis=-1)


@partial(jax.jit, static_argnames="settings")
def look(x: Array, problem: Problem, settings: Settings) -> tuple[Evaluation, Context]:
    """The full evaluation at every x (b, m), each with a refit, and the ties there."""

    def one(x: Array) -> tuple[Evaluation, Context]:
        evaluation = evaluate(x, problem, settings)
        return evaluation, context_of(evaluation, problem, settings)

    return jax.vmap(one)(x)


def found_at(x: Array, target: Array, problem: Problem, settings: Settings) -> Found:
    """The full evaluation at x (b, m) against targets (b, 1) or (b, m)."""
    evaluation, _ = look(x, problem, settings=settings)
    return Found(x, evaluation, excess_of(evaluation, target))


@jax.jit
def first_grid(problem: Problem) -> Array:
    """(GRID, m) log thresholds from the largest size to the smallest: half evenly in the log, half by rank of size."""
    low, high = log_bounds(problem)
    half = GRID // 2
    even = high + jnp.linspace(0.0, 1.0, half)[:, None] * (low - high)
    tables = problem.tables
    rank = jnp.linspace(0.0, 1.0, GRID - half)[:, None] ** 1.5  # denser among the large weights
    row = tables.first + jnp.clip(jnp.round((1.0 - rank) * (tables.rows - 1)), 0).astype(tables.first.dtype)
    size = tables.size[jnp.clip(row, 0, max(tables.size.shape[0] - 1, 0))]
    by_rank = jnp.clip(jnp.log(jnp.maximum(size, 1e-300)), low, high)
    return jnp.concatenate([even, by_rank])


@partial(jax.jit, static_argnames="settings")
def estimates_on(grid: Array, problem: Problem, settings: Settings) -> Values:
    """(psi, share, bias), each (G, m). Done once: targets and ties do not enter."""
    local = partial(local_estimates, problem=problem, settings=settings)
    return jax.lax.map(local, grid, batch_size=_together(problem))


def _together(problem: Problem) -> int:
    """How many threshold vectors are looked up together: at most about 32 MB of table rows."""
    return int(np.clip(4_000_000 // (problem.tables.num_areas * problem.tables.below.shape[1]), 1, GRID))


def choose(values: Values, aim: Array, context: Context, problem: Problem, settings: Settings) -> Array:
    """(m,) the row of least MSE among those that meet the aim; of least rho where none does."""
    terms, mse = local_terms(*values, context, problem, settings)
    terms = jnp.where(jnp.isfinite(terms), terms, jnp.inf)
    good = terms <= aim
    best = jnp.argmin(jnp.where(good, mse, jnp.inf), axis=0)
    return jnp.where(jnp.any(good, axis=0), best, jnp.argmin(terms, axis=0))


def pick(grid: Array, row: Array) -> Array:
    return jnp.take_along_axis(grid, row[None, :], axis=0)[0]


@partial(jax.jit, static_argnames="settings")
def grid_step(grid: Array, values: Values, aim: Array, context: Context, problem: Problem, settings: Settings) -> Array:
    """(b, m) every area's best threshold on the first grid, with the ties of each search."""

    def one(aim: Array, context: Context) -> Array:
        return pick(grid, choose(values, aim, context, problem, settings))

    return jax.vmap(one)(aim, context)


@partial(jax.jit, static_argnames="settings")
def zoom_step(x: Array, width: Array, aim: Array, context: Context, problem: Problem, settings: Settings) -> Array:
    """(b, m) every area's best threshold within ``width`` (m,) of x, with the ties at x."""
    low, high = log_bounds(problem)
    offsets = jnp.linspace(-1.0, 1.0, ZOOM)[:, None]

    def one(arguments: tuple[Array, Array, Context]) -> Array:
        x, aim, context = arguments
        near = jnp.clip(x + width * offsets, low, high).at[ZOOM // 2].set(x)
        values = jax.vmap(partial(local_estimates, problem=problem, settings=settings))(near)
        return pick(near, choose(values, aim, context, problem, settings))

    return jax.lax.map(one, (x, aim, context))


@partial(jax.jit, static_argnames="settings")
def settle_step(x: Array, terms: Array, aim: Array, context: Context, problem: Problem, settings: Settings) -> Array:
    """(b, m) the nearest threshold that meets the aim with the ties at x, for areas whose term exceeds it."""
    low, high = log_bounds(problem)
    steps = jnp.geomspace(1e-10, 0.3, 16)
    offsets = jnp.concatenate([-steps, jnp.zeros(1), steps])[:, None]
    local = partial(local_estimates, problem=problem, settings=settings)

    def one(arguments: tuple[Array, Array, Array, Context]) -> Array:
        x, terms, aim, context = arguments
        near = jnp.clip(x + offsets, low, high)
        psi, share, bias = jax.lax.map(local, near)
        there, _ = local_terms(psi, share, bias, context, problem, settings)
        good = there <= aim
        # Trimming less only if that is how rho falls.
        distance = jnp.where(good, jnp.abs(near - x) + 1e-14 * (near > x), jnp.inf)
        nearest = jnp.where(jnp.any(good, axis=0), jnp.argmin(distance, axis=0), jnp.argmin(there, axis=0))

        def halve(_, bounds):
            outside, inside = bounds
            middle = 0.5 * (outside + inside)
            meets = local_terms(*local(middle), context, problem, settings)[0] <= aim
            return jnp.where(meets, outside, middle), jnp.where(meets, middle, inside)

        _, end = jax.lax.fori_loop(0, 30, halve, (x, pick(near, nearest)))
        return jnp.where(terms <= aim, x, end)

    return jax.lax.map(one, (x, terms, aim, context))


def _aims(x: Array, target: Array) -> Array:
    return jnp.broadcast_to(target, x.shape) * (1.0 - MARGIN)


def search_by_area(
    start: Array, target: Array, grid: Array, values: Values, problem: Problem, settings: Settings, *, rounds: int = 6
) -> Array:
    """(b, m) log thresholds: alternate between the ties and every area's own best threshold, then zoom in.

    Args:
        start: (b, m) log thresholds whose ties come first.
        target: (b, 1) or (b, m) what no term of rho may exceed.
        grid: (G, m) from :func:`first_grid`, and ``values`` from :func:`estimates_on`.
        rounds: alternations on the first grid; 0 only zooms in around ``start``.
    """
    low, high = log_bounds(problem)
    width = jnp.maximum((high - low) / (GRID // 2 - 1), 1e-12)
    x, aim = start, _aims(start, target)
    for _ in range(rounds):
        _, context = look(x, problem, settings=settings)
        x = grid_step(grid, values, aim, context, problem, settings=settings)
    for r in range(18):  # 0.3^17 of a grid step is below 1e-9; the last rounds only follow the ties
        _, context = look(x, problem, settings=settings)
        x = zoom_step(x, width * 0.3**r, aim, context, problem, settings=settings)
    return x


def settle(x: Array, target: Array, problem: Problem, settings: Settings) -> Array:
    """(b, m) log thresholds near x at which no area exceeds its target, as far as there are any.

    The nearest threshold that meets the target with the ties at x, again and again: the ties hardly change.
    """
    aim = _aims(x, target)
    for _ in range(8):
        evaluation, context = look(x, problem, settings=settings)
        if bool(jnp.all(evaluation.terms <= aim)):
            break
        x = settle_step(x, evaluation.terms, aim, context, problem, settings=settings)
    return x


@partial(jax.jit, static_argnames=("settings", "outer", "inner"))
def search_by_gradient(
    start: Array, target: Array, problem: Problem, settings: Settings, outer: int = 6, inner: int = 40
) -> Array:
    """(b, m) log thresholds of least objective by an augmented Lagrangian with Adam (optax), all areas at once.

    The constraints are log(term / target) <= 0, one an area. Gradients see how one area's cap moves the model variance
    and with it every other area. The result is to be settled: a penalty alone leaves areas above the target.
    """
    low, high = log_bounds(problem)
    b, m = start.shape
    aim = _aims(start, target)

    def lagrangian(
        x: Array, multiplier: Array, stiffness: Array, reference: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        evaluation = jax.vmap(partial(evaluate, problem=problem, settings=settings))(jnp.clip(x, low, high))
        g = jnp.log(jnp.where(jnp.isfinite(evaluation.terms), evaluation.terms, 1e30) / aim)
        push = jnp.maximum(multiplier + stiffness * g, 0.0)
        value = m * evaluation.objective / reference + jnp.sum(push**2 - multiplier**2, axis=1) / (2.0 * stiffness)
        return jnp.sum(value), (g, evaluation.objective)

    gradient = jax.grad(lagrangian, has_aux=True)
    total = outer * inner
    optimiser = optax.adam(optax.exponential_decay(0.03, total, 1e-3))

    def step(i, state):
        x, opt_state, multiplier, stiffness, reference = state
        slope, (g, objective) = gradient(x, multiplier, stiffness, reference)
        reference = jnp.where(i == 0, objective, reference)
        slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
        update, opt_state = optimiser.update(slope, opt_state)
        renew = (i + 1) % inner == 0
        multiplier = jnp.where(renew, jnp.maximum(multiplier + stiffness * g, 0.0), multiplier)
        stiffness = jnp.where(renew, 1.5 * stiffness, stiffness)
        return jnp.clip(x + update, low, high), opt_state, multiplier, stiffness, reference

    scale = jnp.full(b, jnp.sum(problem.emphasis * problem.sampling_variance))
    state = (start, optimiser.init(start), jnp.zeros((b, m)), jnp.asarray(10.0), scale)
    return jax.lax.fori_loop(0, total, step, state)[0]


def search(
    start: Array, target: Array, grid: Array, values: Values, problem: Problem, settings: Settings
) -> list[Found]:
    """Both searches from the starts (b, m), each settled onto its target; every answer with its full evaluation."""

    def settled(x: Array) -> Found:
        return found_at(settle(x, target, problem, settings), target, problem, settings)

    by_area = settled(search_by_area(start, target, grid, values, problem, settings))
    by_gradient = settled(search_by_gradient(by_area.log_threshold, target, problem, settings=settings))
    zoomed = search_by_area(by_gradient.log_threshold, target, grid, values, problem, settings, rounds=0)
    return [by_area, by_gradient, settled(zoomed)]


def best_of(found: list[Found]) -> Found:
    """One search (b = 1): of all answers the cheapest that meets its target, or the one nearest to it."""
    answers = [jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], one) for one in found for i in range(len(one.excess))]
    return min(answers, key=rank)


def rank(answer: Found) -> tuple[bool, float]:
    """Sorts answers of one search: those that meet the target first, by cost; then by excess."""
    excess = float(answer.excess[0])
    meets = excess <= 0.0
    return (not meets, float(answer.evaluation.objective[0]) if meets else excess)


@partial(jax.jit, static_argnames=("settings", "sweeps"))
def search_by_coordinate(
    start: Array, target: Array, grid: Array, problem: Problem, settings: Settings, sweeps: int = 3
) -> Array:
    """(b, m) log thresholds: one area at a time over its whole grid with a full refit at every point, for few areas.

    With a handful of areas each one's cap moves the model variance, so the ties may not be taken as fixed.
    """
    low, high = log_bounds(problem)
    m = start.shape[1]
    offsets = jnp.linspace(-1.0, 1.0, ZOOM)
    spread = jnp.maximum((high - low) / (GRID // 2 - 1), 1e-12)
    aim = _aims(start, target)

    def step(i, x):
        k = i % m

        def one(x: Array, aim: Array) -> Array:
            near = x[k] + spread[k] * 0.3 ** jnp.arange(6)[:, None] * offsets
            candidates = jnp.clip(jnp.concatenate([x[k][None], grid[:, k], near.reshape(-1)]), low[k], high[k])
            points = jnp.where(jnp.arange(m) == k, candidates[:, None], x)
            return points[jnp.argmin(_loss(points, aim, problem, settings))]

        return jax.vmap(one)(x, aim)

    return jax.lax.fori_loop(0, sweeps * m, step, start)


@partial(jax.jit, static_argnames=("settings", "keep", "points"))
def starts_from_all(
    target: Array, grid: Array, problem: Problem, settings: Settings, points: int, keep: int = 6
) -> Array:
    """(keep, m) the best of all combinations of ``points`` thresholds an area, each with a full refit."""
    m = grid.shape[1]
    row = jnp.round(jnp.linspace(0, GRID // 2 - 1, points)).astype(int)
    coarse = grid[row]  # (points, m)
    total = points**m
    chunk = 1024
    number = jnp.arange(-(-total // chunk) * chunk).reshape(-1, chunk) % total
    aim = jnp.broadcast_to(target, (m,)) * (1.0 - MARGIN)

    def combination(index):
        digits = (index[:, None] // points ** jnp.arange(m)) % points
        return jnp.take_along_axis(coarse, digits, axis=0)

    loss = jax.lax.map(lambda index: _loss(combination(index), aim, problem, settings), number).reshape(-1)
    return combination(number.reshape(-1)[jnp.argsort(loss)[:keep]])


def _loss(points: Array, aim: Array, problem: Problem, settings: Settings) -> Array:
    """(N,) objective where the aim is met; far above every objective, by the excess, where not."""
    evaluation = jax.vmap(partial(evaluate, problem=problem, settings=settings))(points)
    excess = excess_of(evaluation, aim)
    return jnp.where(excess <= 0.0, evaluation.objective, 1e200 * (1.0 + jnp.clip(excess, 0.0, 1e6)))
