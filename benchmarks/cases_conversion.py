"""From rho to epsilon, for many areas at once, beside the libraries that do it one at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Contest, case
from fhjax.privacy.conversion import epsilon_exact, epsilon_tight

DELTA = 1e-7
#: Rivals convert one rho at a time; they are timed on this many and their time is scaled up in proportion.
SAMPLE = 200


def _rho(size: int) -> np.ndarray:
    return np.random.default_rng(0).lognormal(-3.0, 1.5, size)


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@case(
    name="epsilon_exact",
    what="exact epsilon of a Gaussian pair for many rhos",
    sizes=(10**3, 10**5, 10**6),
    targets={"dp-accounting": 1500.0},
    target_size=10**5,
)
def exact(size: int, p: int) -> Contest:
    rho = jnp.asarray(_rho(size))
    slow: dict[str, Callable] = {}
    sample = [float(value) for value in _rho(size)[:SAMPLE]]
    if installed("dp_accounting"):
        import dp_accounting

        slow["dp-accounting"] = lambda: [dp_accounting.get_epsilon_gaussian((2 * r) ** -0.5, DELTA) for r in sample]
    if installed("autodp"):
        from autodp.mechanism_zoo import ExactGaussianMechanism

        slow["autodp"] = lambda: [ExactGaussianMechanism((2 * r) ** -0.5).get_approxDP(DELTA) for r in sample]
    return Contest(lambda: epsilon_exact(rho, DELTA), slow_rivals=slow, slow_scale=size / min(SAMPLE, size))


@case(name="epsilon_tight", what="optimal zCDP epsilon for many rhos", sizes=(10**3, 10**5, 10**6))
def tight(size: int, p: int) -> Contest:
    rho = jnp.asarray(_rho(size))
    slow: dict[str, Callable] = {}
    if installed("opendp"):
        slow["opendp"] = lambda: [_opendp_epsilon(float(value)) for value in _rho(size)[:SAMPLE]]
    return Contest(lambda: epsilon_tight(rho, DELTA), slow_rivals=slow, slow_scale=size / min(SAMPLE, size))


def _opendp_epsilon(rho: float) -> float:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    measurement = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=(2 * rho) ** -0.5))
    return measurement.map(1.0).epsilon(DELTA)
