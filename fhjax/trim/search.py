"""The search for thresholds: every area for itself on a grid, then all together by gradients, always back to feasible.

rho need not fall as a cap falls, because a smaller design variance raises it, so no step bisects blindly. Given what
ties an area to the others (the model variance and the regression's covariance), its term of rho and its MSE depend on
its own threshold alone: a grid over all thresholds finds the basin, finer grids the point, and the ties are renewed
in between. Near a solution the ties hardly move, so the rounds end at thresholds that meet the target exactly.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fhjax.records import Array
from fhjax.trim.evaluate import (
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

GRID = 64  # thresholds of the first grid, for every area
ZOOM = 9  # thresholds around the present one
MARGIN = 1e-9  # the search aims this share below the target, so that rounding cannot push rho above it


class Found(NamedTuple):
    """Where a search ended: log thresholds (m,), and the full evaluation there."""

    log_threshold: Array
    evaluation: Evaluation
    excess: Array  # () largest log(rho term / target): not above 0 where the target is met


def excess_of(evaluation: Evaluation, target: Array) -> Array:
    """() the largest log ratio of a term to its target."""
    ratio = evaluation.terms / target
    return jnp.max(jnp.log(jnp.maximum(ratio, 1e-300)))


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
def estimates_on(grid: Array, problem: Problem, settings: Settings) -> tuple[Array, Array, Array]:
    """(psi, share, bias), each (G, m), one grid row at a time when together they would take much memory."""
    local = partial(local_estimates, problem=problem, settings=settings)
    if grid.size * problem.tables.below.shape[1] > 4_000_000:
        return jax.lax.map(local, grid)
    return jax.vmap(local)(grid)


def choose(
    values: tuple[Array, Array, Array], aim: Array, context: Context, problem: Problem, settings: Settings
) -> Array:
    """(m,) the row of least MSE among those that meet the aim; of least rho where none does."""
    terms, mse = local_terms(*values, context, problem, settings)
    terms = jnp.where(jnp.isfinite(terms), terms, jnp.inf)
    good = terms <= aim
    best = jnp.argmin(jnp.where(good, mse, jnp.inf), axis=0)
    return jnp.where(jnp.any(good, axis=0), best, jnp.argmin(terms, axis=0))


def pick(grid: Array, row: Array) -> Array:
    return jnp.take_along_axis(grid, row[None, :], axis=0)[0]


@partial(jax.jit, static_argnames=("settings", "rounds"))
def search_by_area(
    start: Array,
    target: Array,
    grid: Array,
    values: tuple[Array, Array, Array],
    problem: Problem,
    settings: Settings,
    rounds: int = 6,
    reach: float | Array = 1.0,
) -> Array:
    """(m,) log thresholds: alternate between the ties and every area's own best threshold, then zoom in.

    Args:
        start: (m,) log thresholds whose ties come first.
        target: () or (m,) what no term of rho may exceed.
        grid: (G, m) from :func:`first_grid`, and ``values`` from :func:`estimates_on`.
        rounds: alternations on the first grid; 0 only zooms in around ``start``.
        reach: width of the first zoom, in steps of the first grid.
    """
    low, high = log_bounds(problem)
    aim = target * (1.0 - MARGIN)
    offsets = jnp.linspace(-1.0, 1.0, ZOOM)[:, None]
    spread = reach * jnp.maximum((high - low) / (GRID // 2 - 1), 1e-12)

    def step(r, x):
        context = context_of(evaluate(x, problem, settings), problem, settings)
        near = jnp.clip(x + spread * 0.3 ** (r - rounds) * offsets, low, high)
        near = near.at[ZOOM // 2].set(x)
        zoomed = pick(near, choose(estimates_on(near, problem, settings), aim, context, problem, settings))
        return jnp.where(r < rounds, pick(grid, choose(values, aim, context, problem, settings)), zoomed)

    # 0.3^18 of a grid step is below 1e-10; the last rounds only follow the ties.
    return jax.lax.fori_loop(0, rounds + 18, step, start)


@partial(jax.jit, static_argnames="settings")
def settle(x: Array, target: Array, problem: Problem, settings: Settings) -> Array:
    """(m,) log thresholds near x at which no area exceeds its target, as far as there are any.

    The nearest threshold that meets the target with the ties at x, again and again: the ties hardly change.
    """
    low, high = log_bounds(problem)
    aim = target * (1.0 - MARGIN)
    steps = jnp.geomspace(1e-10, 0.3, 24)
    offsets = jnp.concatenate([-steps, jnp.zeros(1), steps])[:, None]

    def step(_, x):
        evaluation = evaluate(x, problem, settings)
        context = context_of(evaluation, problem, settings)
        near = jnp.clip(x + offsets, low, high)
        terms, _ = local_terms(*estimates_on(near, problem, settings), context, problem, settings)
        good = terms <= aim
        # Trimming less only if that is how rho falls.
        distance = jnp.where(good, jnp.abs(near - x) + 1e-14 * (near > x), jnp.inf)
        nearest = jnp.where(jnp.any(good, axis=0), jnp.argmin(distance, axis=0), jnp.argmin(terms, axis=0))
        end = pick(near, nearest)

        def halve(_, bounds):
            outside, inside = bounds
            middle = 0.5 * (outside + inside)
            terms, _ = local_terms(*local_estimates(middle, problem, settings), context, problem, settings)
            return jnp.where(terms <= aim, outside, middle), jnp.where(terms <= aim, middle, inside)

        _, end = jax.lax.fori_loop(0, 30, halve, (x, end))
        return jnp.where(evaluation.terms <= aim, x, end)

    return jax.lax.fori_loop(0, 6, step, x)


@partial(jax.jit, static_argnames=("settings", "outer", "inner"))
def search_by_gradient(
    start: Array, target: Array, problem: Problem, settings: Settings, outer: int = 6, inner: int = 40
) -> Array:
    """(m,) log thresholds that minimise the objective by an augmented Lagrangian with Adam (optax), all areas at once.

    The constraints are log(term / target) <= 0, one an area. Gradients see how one area's cap moves the model variance
    and with it every other area. The result is to be settled: a penalty alone leaves areas above the target.
    """
    low, high = log_bounds(problem)
    m = start.shape[0]

    def lagrangian(x: Array, multiplier: Array, stiffness: Array, reference: Array) -> tuple[Array, tuple[Array, Array]]:
        evaluation = evaluate(jnp.clip(x, low, high), problem, settings)
        g = jnp.log(jnp.where(jnp.isfinite(evaluation.terms), evaluation.terms, 1e30) / (target * (1.0 - MARGIN)))
        push = jnp.maximum(multiplier + stiffness * g, 0.0)
        value = m * evaluation.objective / reference + jnp.sum(push**2 - multiplier**2) / (2.0 * stiffness)
        return value, (g, evaluation.objective)

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

    scale = jnp.sum(problem.emphasis * problem.sampling_variance)
    state = (start, optimiser.init(start), jnp.zeros(m), jnp.asarray(10.0), scale)
    return jax.lax.fori_loop(0, total, step, state)[0]


@partial(jax.jit, static_argnames="settings")
def found_at(x: Array, target: Array, problem: Problem, settings: Settings) -> Found:
    """The full evaluation at x against the target."""
    evaluation = evaluate(x, problem, settings)
    return Found(x, evaluation, excess_of(evaluation, target))


@partial(jax.jit, static_argnames=("settings", "sweeps"))
def search_by_coordinate(
    start: Array, target: Array, grid: Array, problem: Problem, settings: Settings, sweeps: int = 3
) -> Array:
    """(m,) log thresholds: one area at a time over its whole grid with a full refit at every point, for few areas.

    With a handful of areas each one's cap moves the model variance, so the ties may not be taken as fixed.
    """
    low, high = log_bounds(problem)
    m = start.shape[0]
    offsets = jnp.linspace(-1.0, 1.0, ZOOM)
    spread = jnp.maximum((high - low) / (GRID // 2 - 1), 1e-12)

    def step(i, x):
        k = i % m
        near = x[k] + spread[k] * 0.3 ** jnp.arange(6)[:, None] * offsets
        candidates = jnp.clip(jnp.concatenate([x[k][None], grid[:, k], near.reshape(-1)]), low[k], high[k])
        points = jnp.where(jnp.arange(m) == k, candidates[:, None], x)
        loss = _loss(points, target, problem, settings)
        return points[jnp.argmin(loss)]

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

    def combination(index):
        digits = (index[:, None] // points ** jnp.arange(m)) % points
        return jnp.take_along_axis(coarse, digits, axis=0)

    loss = jax.lax.map(lambda index: _loss(combination(index), target, problem, settings), number).reshape(-1)
    best = jnp.argsort(loss)[:keep]
    return combination(number.reshape(-1)[best])


def _loss(points: Array, target: Array, problem: Problem, settings: Settings) -> Array:
    """(N,) objective where the target is met; far above every objective, by the excess, where not."""

    def one(x):
        evaluation = evaluate(x, problem, settings)
        return evaluation.objective, excess_of(evaluation, target * (1.0 - MARGIN))

    objective, excess = jax.vmap(one)(points)
    excess = jnp.where(jnp.isnan(excess), jnp.inf, excess)
    return jnp.where(excess <= 0.0, objective, 1e200 * (1.0 + jnp.clip(excess, 0.0, 1e6)))


def better(one: Found, two: Found) -> Array:
    """Whether ``two`` is to be preferred: it meets the target where ``one`` does not, or costs less."""
    meets_one, meets_two = one.excess <= 0.0, two.excess <= 0.0
    both = meets_one & meets_two
    neither = ~meets_one & ~meets_two
    return (
        (meets_two & ~meets_one)
        | (both & (two.evaluation.objective < one.evaluation.objective))
        | (neither & (two.excess < one.excess))
    )


def best_of(found: list[Found]) -> Found:
    """The best of several searches; concrete numbers only."""
    best = found[0]
    for other in found[1:]:
        if bool(better(best, other)):
            best = other
    return best

