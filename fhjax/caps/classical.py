"""The thresholds that agencies use, none of which knows about privacy: for comparison, each with the rho it gives."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from fhjax.caps.evaluate import log_bounds
from fhjax.caps.plan import TrimmingProblem
from fhjax.caps.search import estimates_on, first_grid, look
from fhjax.caps.shares import SortedSizes
from fhjax.caps.tables import sizes_of
from fhjax.records import FloatArray


@dataclasses.dataclass(frozen=True)
class RuleResult:
    """What one rule gives."""

    rule: str
    threshold: FloatArray  # (m,)
    rho: float
    mse: float  # mean, by the problem's objective
    bias: float  # root mean square shift, sampling noise taken off
    units_trimmed: float  # share of units


def classical_thresholds(sizes: SortedSizes) -> dict[str, FloatArray]:
    """(m,) thresholds of each rule, from the unweighted distribution of an area's weights.

    Source: the rules as survey documentation states them; Tukey's outer fence for "Q3 + 3 IQR".
    """
    median, first, third = (sizes.quantile(p) for p in (0.5, 0.25, 0.75))
    mean = sizes.total / np.maximum(sizes.num_units, 1.0)
    spread = third - first
    return {
        "3.5 x median": 3.5 * median,
        "4.5 x median": 4.5 * median,
        "3 x mean": 3.0 * mean,
        "5 x mean": 5.0 * mean,
        "median + 6 IQR": median + 6.0 * spread,
        "Tukey: Q3 + 3 IQR": third + 3.0 * spread,
    }


def potter_thresholds(problem: TrimmingProblem) -> FloatArray:
    """(m,) on a grid, the threshold of least estimated MSE of each area's direct estimate.

    Source: Potter (1988): trimming levels compared by squared shift, its variance taken off, plus design variance.
    """
    settings = dataclasses.replace(problem.settings, objective="direct", frozen=False)
    grid = first_grid(problem.data)
    psi, share, bias = estimates_on(grid, problem.data, settings=settings)
    mse = np.where(np.isfinite(np.asarray(share)), np.asarray(psi + bias**2), np.inf)
    return np.exp(np.take_along_axis(np.asarray(grid), mse.argmin(axis=0)[None], axis=0)[0])


def compare_rules(problem: TrimmingProblem) -> list[RuleResult]:
    """Every classical rule under the same refit and the same report, without redistribution of the cut weight.

    Thresholds at or below an area's smallest weight mean equal weights.
    """
    sizes = sizes_of(problem.sums)
    rules = classical_thresholds(sizes) | {"Potter MSE": potter_thresholds(problem)}
    low, high = log_bounds(problem.data)
    thresholds = np.stack(list(rules.values()))
    x = jnp.clip(jnp.log(jnp.maximum(jnp.asarray(thresholds), 1e-300)), low, high)
    evaluation, _ = look(x, problem.data, settings=problem.settings)
    emphasis = np.asarray(problem.data.emphasis)
    results = []
    for i, name in enumerate(rules):
        shift = np.asarray(evaluation.estimates.shift[i])
        noise = np.asarray(evaluation.estimates.shift_variance[i])
        over = sizes.size > np.repeat(np.exp(np.asarray(x[i])), np.diff(sizes.start)) * (1.0 + 1e-15)
        results.append(
            RuleResult(
                rule=name,
                threshold=thresholds[i],
                rho=float(jnp.max(evaluation.terms[i])),
                mse=float(evaluation.objective[i]),
                bias=float(np.sqrt(np.sum(emphasis * np.maximum(shift**2 - noise, 0.0)))),
                units_trimmed=float(np.sum(sizes.count * over) / sizes.count.sum()),
            )
        )
    return results
