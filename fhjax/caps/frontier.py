"""rho against accuracy: trimming over a path of targets, its two ends, and noise on the direct estimates instead."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.caps.evaluate import log_bounds
from fhjax.caps.plan import TrimmingProblem
from fhjax.caps.search import estimates_on, first_grid, look, search
from fhjax.caps.tables import sizes_of
from fhjax.errors import InputError
from fhjax.model.fit import fit_kernel
from fhjax.model.posterior import posterior_kernel
from fhjax.records import FloatArray


@dataclasses.dataclass(frozen=True)
class Frontier:
    """One row a point, averages over areas by their emphasis. Points whose target was not met have ``met`` False."""

    target: FloatArray  # (t,) infinity for the untrimmed end, 0 for equal weights
    rho: FloatArray  # (t,) joint rho after trimming and refit
    met: npt.NDArray[np.bool_]  # (t,)
    mse: FloatArray  # (t,) mean MSE by the problem's objective
    mse_of_draw: FloatArray  # (t,) mean MSE of released draws
    bias: FloatArray  # (t,) root mean square of the shifts, their sampling noise taken off
    design_effect: FloatArray  # (t,) mean Kish design effect
    units_trimmed: FloatArray  # (t,) share of units
    model_variance: FloatArray  # (t,)
    noise_mse: FloatArray  # (t,) mean MSE of EBLUPs from noisy direct estimates at the same rho
    objective: str

    def crossover(self) -> float | None:
        """The largest rho among the points at which trimming's draws are more accurate than added noise, if any."""
        better = self.met & (self.mse_of_draw <= self.noise_mse)
        return float(self.rho[better].max()) if better.any() else None


def noise_competitor(problem: TrimmingProblem, rho: npt.ArrayLike) -> FloatArray:
    """Mean MSE of small-area estimates from direct estimates with Gaussian noise, at joint rho (t,).

    The Gaussian mechanism on the untrimmed Hájek estimates has variance Delta_k^2 / (2 rho); areas are disjoint, so rho
    is the joint one. Smoothing by Fay-Herriot with sampling variance psi_k + Delta_k^2 / (2 rho) is post-processing if
    psi and the model variance are not confidential, which is the same invariance that posterior draws assume. Noise is
    unbiased and the release is the smoothed estimate itself, without a draw.

    Source: docs/trimming.md.
    """
    data = problem.data
    psi = data.sampling_variance
    delta = data.outcome_range * problem.before.estimates.share
    s = problem.before.model_variance

    @jax.jit
    @jax.vmap
    def mean_mse(rho: jax.Array) -> jax.Array:
        noisy = psi + delta**2 / (2.0 * rho)
        fit = fit_kernel(data.centre, noisy, data.X, method="given", model_variance=s)
        fit = dataclasses.replace(fit, method="reml")
        posterior = posterior_kernel(data.centre, noisy, data.X, None, fit)
        assert posterior.mse is not None
        return jnp.sum(data.emphasis * posterior.mse)

    values = jnp.asarray(rho, dtype=float)
    return np.asarray(mean_mse(jnp.where(jnp.isfinite(values) & (values > 0.0), values, 1e-300)))


def frontier(problem: TrimmingProblem, targets: npt.ArrayLike | None = None, *, points: int = 20) -> Frontier:
    """Trimming's best points over a path of joint targets, searched together, with the two ends.

    Args:
        problem: a problem with a cap for each area and a joint target.
        targets: (t,) targets; by default ``points`` of them, geometric between the ends.

    Raises:
        InputError: another mode than a cap for each area, or a target that is not positive.
    """
    if problem.mode != "area" or problem.settings.joint == "per_area":
        raise InputError("The frontier is drawn for a cap in each area and a joint target.")
    data, settings = problem.data, problem.settings
    low, high = log_bounds(data)
    ends, _ = look(jnp.stack([low, high]), data, settings=settings)
    equal, untrimmed = (float(jnp.max(ends.terms[i])) for i in range(2))
    if targets is None:
        bottom = min(equal, 0.2 * untrimmed) if equal > 0.0 else 0.01 * untrimmed
        path = np.geomspace(untrimmed, bottom, points)
    else:
        path = np.asarray(targets, dtype=float).ravel()
        if not np.all(np.isfinite(path) & (path > 0.0)):
            raise InputError("Targets must be positive numbers.")
    grid = first_grid(data)
    values = estimates_on(grid, data, settings=settings)
    goals = jnp.asarray(path)[:, None]
    found = search(jnp.broadcast_to(high, (len(path), len(high))), goals, grid, values, data, settings)
    objective = np.stack([np.asarray(one.evaluation.objective) for one in found])
    excess = np.stack([np.asarray(one.excess) for one in found])
    order = np.where(excess <= 0.0, objective, 1e200 * (1.0 + np.clip(excess, 0.0, 1e6)))
    best = order.argmin(axis=0)
    x = np.stack([np.asarray(found[b].log_threshold[i]) for i, b in enumerate(best)])
    x = np.concatenate([np.asarray(high)[None], x, np.asarray(low)[None]])
    draws = dataclasses.replace(settings, objective="draw")
    evaluation, _ = look(jnp.asarray(x), data, settings=settings)
    of_draw, _ = look(jnp.asarray(x), data, settings=draws)
    rho = np.asarray(evaluation.terms).max(axis=1)
    emphasis = np.asarray(data.emphasis)
    shift, noise = np.asarray(evaluation.estimates.shift), np.asarray(evaluation.estimates.shift_variance)
    records = np.bincount(problem.sums.area, weights=problem.sums.records, minlength=len(emphasis))
    kish = np.asarray(evaluation.estimates.weight) ** 2 / np.asarray(evaluation.estimates.weight_square)
    sizes = sizes_of(problem.sums)
    rows = np.repeat(np.exp(x), np.diff(sizes.start), axis=1)
    trimmed = (sizes.count * (sizes.size > rows * (1.0 + 1e-15))).sum(axis=1) / sizes.count.sum()
    target = np.concatenate([[np.inf], path, [0.0]])
    return Frontier(
        target=target,
        rho=rho,
        met=np.concatenate([[True], rho[1:-1] <= path, [True]]),
        mse=np.asarray(evaluation.objective),
        mse_of_draw=np.asarray(of_draw.objective),
        bias=np.sqrt(np.sum(emphasis * np.maximum(shift**2 - noise, 0.0), axis=1)),
        design_effect=np.sum(emphasis * records / kish, axis=1),
        units_trimmed=trimmed,
        model_variance=np.asarray(evaluation.model_variance),
        noise_mse=noise_competitor(problem, rho),
        objective=problem.objective,
    )
