"""One step of the search for caps: its time must not depend on how many records the areas have."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Contest, case
from fhjax.caps.evaluate import log_bounds
from fhjax.caps.plan import trimming_problem
from fhjax.caps.search import look
from fhjax.survey.arrays import trimming_sums_from_arrays

REPLICATES = 80
RECORDS = 200  # an area; the rival has a tenth of them


def step(areas: int, records: int):
    """A full evaluation of one vector of caps, replicate variances and REML refit included."""
    rng = np.random.default_rng(1)
    area = np.repeat(np.arange(areas), records)
    w = np.exp(rng.normal(size=len(area)))
    y = (rng.random(len(area)) < np.clip(rng.normal(0.3, 0.1, areas), 0.1, 0.9)[area]).astype(float)
    y[::records], y[1::records] = 0.0, 1.0
    replicates = w[:, None] * rng.choice([0.5, 1.5], (len(area), REPLICATES))
    sums = trimming_sums_from_arrays(area, w, y, replicates=replicates)
    problem = trimming_problem(sums, replicate_multiples=np.full(REPLICATES, 4.0 / REPLICATES))
    low, high = log_bounds(problem.data)
    x = jnp.stack([0.7 * high + 0.3 * low])
    run = partial(look, x, problem.data, settings=problem.settings)
    return lambda: jax.block_until_ready(run())


@case(
    name="trim_step",
    what=f"one step of the search for caps, {REPLICATES} replicates, {RECORDS} records an area",
    sizes=(60, 500),
    targets={"the same step on a tenth of the records": 1.0 / 1.2},
    target_size=500,
)
def trim_step(size: int, p: int) -> Contest:
    return Contest(step(size, RECORDS), {"the same step on a tenth of the records": step(size, RECORDS // 10)})
