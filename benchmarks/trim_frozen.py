"""1,000 random problems with frozen variances: how far the optax route lands from the closed form.

Run with ``python -m benchmarks.trim_frozen [count]``; exit code 1 when a cap is off by more than 1e-6.
"""

from __future__ import annotations

import sys

import jax.numpy as jnp
import numpy as np

from fhjax.caps.evaluate import log_bounds
from fhjax.caps.plan import plan_trimming, trimming_problem
from fhjax.caps.search import estimates_on, first_grid, look, search_by_area, search_by_gradient, settle
from fhjax.survey.arrays import trimming_sums_from_arrays

TOLERANCE = 1e-6


def one(seed: int, areas: int = 4, records: int = 24) -> tuple[float, int]:
    """(largest relative difference of caps, areas trimmed) for one random problem."""
    rng = np.random.default_rng(seed)
    area = np.repeat(np.arange(areas), records)
    w = np.exp(rng.normal(scale=rng.uniform(0.5, 1.2), size=len(area)))
    y = (rng.random(len(area)) < 0.4).astype(float)
    y[::records], y[1::records] = 0.0, 1.0
    replicates = w[:, None] * rng.choice([0.5, 1.5], (len(area), 8))
    problem = trimming_problem(
        trimming_sums_from_arrays(area, w, y, replicates=replicates),
        replicate_multiples=np.full(8, 0.5),
        variances="frozen",
        objective="weights",
        model_variance=float(np.exp(rng.normal(-5.5, 1.0))),
    )
    low, high = log_bounds(problem.data)
    equal = float(look(low[None], problem.data, settings=problem.settings)[0].terms.max())
    target = max(float(problem.before.terms.max()) * rng.uniform(0.1, 0.9), 1.2 * equal)
    plan = plan_trimming(problem, target_rho=target)
    goal, grid = jnp.full((1, 1), target), first_grid(problem.data)
    values = estimates_on(grid, problem.data, settings=problem.settings)
    x = search_by_gradient(high[None], goal, problem.data, settings=problem.settings)
    x = settle(x, goal, problem.data, problem.settings)
    x = search_by_area(x, goal, grid, values, problem.data, problem.settings, rounds=0)
    caps = np.exp(np.asarray(settle(x, goal, problem.data, problem.settings)[0]))
    top = np.exp(np.asarray(high))
    expected = np.where(np.isinf(plan.threshold), top, plan.threshold)
    return float(np.max(np.abs(caps / expected - 1.0))), int(np.sum(expected < 0.999 * top))


def main(count: int) -> int:
    worst, trimmed, off = 0.0, 0, 0
    for seed in range(count):
        difference, areas = one(seed)
        worst, trimmed, off = max(worst, difference), trimmed + areas, off + (difference > TOLERANCE)
        if (seed + 1) % 100 == 0:
            print(f"{seed + 1} problems, {trimmed} trimmed areas, worst {worst:.2e}, {off} off", flush=True)
    print(f"{count} problems, {trimmed} trimmed areas, largest relative difference of caps {worst:.2e}, {off} off")
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
