"""All guarantees of many areas: per area, both joints, the largest off-diagonal ratio."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import numpy_rivals
from benchmarks.registry import Contest, case
from fhjax.model.fit import area_data, given
from fhjax.model.posterior import posterior
from fhjax.privacy.guarantee import guarantees
from fhjax.privacy.intercept import intercept_guarantees

MODEL_VARIANCE = 0.02
SIZES = tuple(10**k for k in range(2, 8))


def problem(size: int, p: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sampling variances, sensitivities and covariates with the spread of a national survey."""
    rng = np.random.default_rng(size)
    psi = rng.gamma(2.0, 0.005, size) + 1e-4
    delta = rng.gamma(4.0, 0.002, size) + 1e-4
    X = np.column_stack([np.ones(size), rng.normal(size=(size, p - 1))])
    return psi, delta, X


@case(
    name="guarantees_fresh",
    what="fhjax.intercept_guarantees: all guarantees of the intercept-only model, into a fresh array",
    sizes=SIZES,
    targets={"numpy": 3.0, "numpy_blocked": 1.0},
    target_size=10**7,
)
def fresh(size: int, p: int) -> Contest:
    psi, delta, _ = problem(size)
    x, d = jnp.asarray(psi), jnp.asarray(delta)
    return Contest(lambda: intercept_guarantees(x, MODEL_VARIANCE, d), _rivals(psi, delta))


@case(
    name="guarantees_reused",
    what="fhjax.intercept_guarantees, into an array that is reused",
    sizes=SIZES,
    targets={"numpy": 4.0, "numpy_blocked": 1.0},
    target_size=10**7,
)
def reused(size: int, p: int) -> Contest:
    psi, delta, _ = problem(size)
    x, d = jnp.asarray(psi), jnp.asarray(delta)
    held = [jnp.zeros(size)]

    def ours():
        result = intercept_guarantees(x, MODEL_VARIANCE, d, out=held[0])
        held[0] = result.per_area_rho
        return result

    return Contest(ours, _rivals(psi, delta))


@case(
    name="guarantees_general",
    what="fhjax.guarantees: the record for any covariates, checks, certificate, search and sentences included",
    sizes=tuple(10**k for k in range(2, 7)),
    covariates=(1, 5, 20),
)
def general(size: int, p: int) -> Contest:
    psi, delta, X = problem(size, p)
    data = area_data(np.zeros(size), psi, X[:, 1:] if p > 1 else None)
    draw = jax.block_until_ready(posterior(data, given(data, MODEL_VARIANCE)))
    rivals = _rivals(psi, delta) if p == 1 else {}
    if size <= 4000:
        rivals["numpy_dense"] = lambda: numpy_rivals.guarantees_dense(psi, MODEL_VARIANCE, delta, X)
    return Contest(lambda: guarantees(data, draw, delta), rivals)


def _rivals(psi: np.ndarray, delta: np.ndarray) -> dict:
    out = np.empty_like(psi)
    return {
        "numpy": lambda: numpy_rivals.guarantees(psi, MODEL_VARIANCE, delta),
        "numpy_blocked": lambda: numpy_rivals.guarantees_blocked(psi, MODEL_VARIANCE, delta, out),
    }
