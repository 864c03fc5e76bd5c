"""delta(epsilon) and Rényi divergence by Monte Carlo, with intervals, and the refutation of a claimed delta.

An estimate from draws refutes a claim or fails to; it never proves one.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy import stats

from fhjax.plrv.losses import OwnPosterior, log_density_correlated, log_density_independent
from fhjax.plrv.streaming import LossSummary
from fhjax.plrv.theory import order_is_feasible
from fhjax.records import Array, record

Floats = npt.NDArray[np.float64]


@record
class Estimate:
    """Monte Carlo estimates with their 99 % normal intervals."""

    value: Floats
    low: Floats
    high: Floats


def delta_estimate(summary: LossSummary, confidence: float = 0.99) -> Estimate:
    """delta(epsilon) = E[(1 - e^{eps - L})_+] at the summary's epsilons, plain Monte Carlo.

    The interval is normal where at least 30 draws exceed epsilon; elsewhere it reaches from 0 to the Clopper-Pearson
    upper limit of P(L > eps), which bounds delta.
    """
    n = int(summary.count)
    value = np.asarray(summary.tail_sum) / n
    error = np.sqrt(np.maximum(np.asarray(summary.tail_square_sum) / n - value**2, 0.0) / n)
    z = stats.norm.ppf(0.5 + confidence / 2)
    exceed = np.asarray(summary.exceed)
    upper = clopper_pearson_upper(exceed, n, (1 - confidence) / 2)
    few = exceed < 30
    low = np.where(few, 0.0, np.maximum(value - z * error, 0.0))
    return Estimate(value=value, low=low, high=np.where(few, upper, value + z * error))


def tail_delta(
    here: OwnPosterior,
    there: OwnPosterior,
    epsilons: Any,
    *,
    key: Array,
    num_draws: int = 20_000,
    release: str = "correlated",
    area: int | None = None,
    confidence: float = 0.99,
) -> Estimate:
    """delta(epsilon) by importance sampling, good far in the tail: at 1e-7 and at 1e-100.

    Draws come from the posterior moved along the shift between both data sets until the mean loss is epsilon, and are
    weighted by the ratio of densities.

    Args:
        here: posterior under D.
        there: posterior under D'.
        epsilons: (e,) at least 0.
        key: a JAX key.
        num_draws: draws for each epsilon.
        release: ``"correlated"`` or ``"independent"``, for all areas.
        area: one area instead of all.
        confidence: of the normal intervals.

    Source: importance sampling by an exponential tilt (Siegmund 1976); the tilt of a Gaussian is a Gaussian.
    """
    if area is not None:
        here, there, release = _one_area(here, area), _one_area(there, area), "independent"
    value, error = _tail_kernel(here, there, jnp.atleast_1d(jnp.asarray(epsilons)), key, num_draws, release)
    value, half = np.asarray(value), stats.norm.ppf(0.5 + confidence / 2) * np.asarray(error)
    return Estimate(value=value, low=np.maximum(value - half, 0.0), high=value + half)


@functools.partial(jax.jit, static_argnames=("num_draws", "release"))
def _tail_kernel(here: OwnPosterior, there: OwnPosterior, epsilons: Array, key: Array, num_draws: int, release: str):
    density = log_density_independent if release == "independent" else log_density_correlated
    step = here.mean - there.mean
    # The mean of the loss under N(mean + t step, S) is (1/2 + t) d^2: a line in t that two points fix.
    base = density(here.mean, here) - density(here.mean, there)
    slope = density(here.mean + step, here) - density(here.mean + step, there) - base
    noise = _noise(here, key, num_draws, release)

    def one(epsilon: Array) -> tuple[Array, Array]:
        moved = dataclasses.replace(here, mean=here.mean + jnp.maximum(0.0, (epsilon - base) / slope) * step)
        theta = moved.mean + noise
        log_here = density(theta, here)
        over = log_here - density(theta, there) - epsilon
        # In log space: far in the tail both densities underflow, their ratio does not.
        terms = jnp.exp(log_here - density(theta, moved)) * -jnp.expm1(-jnp.maximum(over, 0.0))
        return jnp.mean(terms), jnp.std(terms) / jnp.sqrt(num_draws)

    return jax.lax.map(one, epsilons)


def _one_area(posterior: OwnPosterior, area: int) -> OwnPosterior:
    variance = posterior.variance[area : area + 1]
    return OwnPosterior(
        mean=posterior.mean[area : area + 1],
        independent=variance,
        factor=jnp.zeros((1, 1)),
        basis=jnp.zeros((1, 1)),
        triangle=jnp.zeros((1, 1)),
    )


def _noise(posterior: OwnPosterior, key: Array, n: int, release: str) -> Array:
    m, p = posterior.factor.shape
    one, two = jax.random.split(key)
    z = jax.random.normal(one, (n, m))
    if release == "independent":
        return jnp.sqrt(posterior.variance) * z
    return jnp.sqrt(posterior.independent) * z + jax.random.normal(two, (n, p)) @ posterior.factor.T


def renyi_estimate(
    summary: LossSummary, rho: float, orders: Any, confidence: float = 0.99
) -> tuple[Estimate, npt.NDArray[np.bool_]]:
    """Plug-in Rényi divergences at ``orders`` with intervals by the delta method, and which orders n draws can reach.

    Where the second value is False the estimate is NOT evidence: it is biased toward looking safe.
    """
    n = int(summary.count)
    orders = np.asarray(orders, dtype=float)
    mean = np.asarray(summary.renyi_sum) / n
    error = np.sqrt(np.maximum(np.asarray(summary.renyi_square_sum) / n - mean**2, 0.0) / n)
    value = rho + np.log(mean) / (orders - 1.0)
    half = stats.norm.ppf(0.5 + confidence / 2) * error / mean / (orders - 1.0)
    return Estimate(value=value, low=value - half, high=value + half), order_is_feasible(rho, orders, n)


def clopper_pearson_lower(successes: Any, trials: int, level: float) -> Floats:
    """One-sided lower confidence limit of a probability, at confidence 1 - ``level``.

    Examples:
        >>> float(clopper_pearson_lower(10, 10, 0.05).round(4))
        0.7411
    """
    k = np.asarray(successes, dtype=float)
    return np.where(k > 0, stats.beta.ppf(level, np.maximum(k, 1e-300), trials - k + 1), 0.0)


def clopper_pearson_upper(successes: Any, trials: int, level: float) -> Floats:
    """One-sided upper confidence limit of a probability, at confidence 1 - ``level``."""
    k = np.asarray(successes, dtype=float)
    return np.where(k < trials, stats.beta.ppf(1 - level, k + 1, np.maximum(trials - k, 1e-300)), 1.0)


def delta_lower_bound(
    exceed_here: Any, num_here: int, exceed_there: Any, num_there: int, epsilons: Any, level: float = 0.01
) -> Floats:
    """Lower confidence bound of delta(epsilon) from the events "loss above epsilon", counted under D and under D'.

    P_D(E) - e^eps P_D'(E) is at most delta(eps) for every event E. Clopper-Pearson limits at ``level`` / 2 / (number of
    epsilons) each, so all bounds hold together with probability 1 - ``level``. A bound above the claimed delta refutes
    the claim; one below it proves nothing.

    Examples:
        >>> float(delta_lower_bound([1000], 1000, [0], 1000, [1.0]).round(3)[0])
        0.98
    """
    epsilons = np.atleast_1d(np.asarray(epsilons, dtype=float))
    share = level / 2 / len(epsilons)
    low = clopper_pearson_lower(exceed_here, num_here, share)
    high = clopper_pearson_upper(exceed_there, num_there, share)
    return np.maximum(low - np.exp(np.minimum(epsilons, 700.0)) * high, 0.0)
