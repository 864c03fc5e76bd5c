"""One number for all areas, a multiple of each area's mean or median weight or one absolute cap: a search on a line."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from fhjax.caps.evaluate import Problem, Settings, evaluate
from fhjax.caps.search import MARGIN, Found, excess_of
from fhjax.caps.tables import WEIGHT, Tables, thresholds_for_shares
from fhjax.records import Array

POINTS = 96  # multiples looked at together
ROUNDS = 7  # refinements of the grid, each to two of its intervals


def thresholds_for_number(
    tables: Tables, number: Array, unit: Array, *, mode: str, total_kept: bool, lifted: bool
) -> Array:
    """(m,) thresholds that one number means.

    Args:
        number: () kappa, or the absolute cap.
        unit: (m,) median weights for ``"median"``, ones otherwise.
        mode: ``"mean"``: kappa times each area's mean weight after trimming, so the largest share is kappa / n.
            ``"median"``: kappa times the original median. ``"absolute"``: the number itself.
        total_kept: caps concern the weights after what was cut off has been shared out.
        lifted: shared out additively.
    """
    if mode == "mean":
        return thresholds_for_shares(tables, number / jnp.maximum(tables.units, 1.0), lifted=lifted)
    if total_kept:
        total = tables.below[tables.base + tables.rows, WEIGHT]
        share = number * unit / jnp.where(total > 0.0, total, 1.0)
        return thresholds_for_shares(tables, share, lifted=lifted)
    return jnp.minimum(number * unit, tables.largest)


@partial(jax.jit, static_argnames=("settings", "mode", "total_kept"))
def search_on_line(
    target: Array, unit: Array, problem: Problem, settings: Settings, mode: str, total_kept: bool
) -> tuple[Found, Array]:
    """The number of least objective whose rho meets the target, by grids with a full refit at every point.

    rho need not fall with the number, so the whole range is looked at first. Without a feasible number the one of the
    smallest rho is returned, with a positive excess.
    """
    tables = problem.tables
    aim = target * (1.0 - MARGIN)
    thresholds = partial(
        thresholds_for_number, tables, unit=unit, mode=mode, total_kept=total_kept, lifted=settings.additive
    )
    n = jnp.maximum(tables.units, 1.0)
    used = tables.units > 0
    total = tables.below[tables.base + tables.rows, WEIGHT]
    share = tables.largest / jnp.where(total > 0.0, total, 1.0)
    if mode == "mean":
        top, bottom = jnp.max(jnp.where(used, n * share, 0.0)), jnp.asarray(1.0)
    else:
        scale = unit if mode == "median" else jnp.ones_like(n)
        top = jnp.max(jnp.where(used, tables.largest / scale, 0.0))
        # A total that is kept needs a cap of at least the mean weight in every area.
        if total_kept:
            bottom = jnp.max(jnp.where(used, total / n / scale, 0.0))
        else:
            bottom = jnp.min(jnp.where(used, tables.smallest / scale, jnp.inf))
    low, high = jnp.log(bottom), jnp.log(jnp.maximum(top, bottom)) + 1e-9

    def values(log_numbers):
        def one(log_number):
            evaluation = evaluate(jnp.log(thresholds(jnp.exp(log_number))), problem, settings)
            return evaluation.objective, excess_of(evaluation, aim)

        objective, excess = jax.lax.map(one, log_numbers)
        return jnp.where(excess <= 0.0, objective, 1e200 * (1.0 + jnp.clip(excess, 0.0, 1e6)))

    grid = jnp.linspace(low, high, POINTS)
    loss = values(grid)
    best, width = grid[jnp.argmin(loss)], (high - low) / (POINTS - 1)

    def refine(_, state):
        best, width = state
        near = jnp.concatenate([best[None], jnp.clip(best + width * jnp.linspace(-1.0, 1.0, 33), low, high)])
        return near[jnp.argmin(values(near))], width / 16.0

    best, _ = jax.lax.fori_loop(0, ROUNDS, refine, (best, width))
    x = jnp.log(thresholds(jnp.exp(best)))
    evaluation = jax.tree.map(lambda leaf: leaf[None], evaluate(x, problem, settings))
    return Found(x[None], evaluation, excess_of(evaluation, aim)), jnp.exp(best)
