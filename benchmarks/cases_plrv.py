"""Posterior draws beside raw normal numbers, correlated beside independent, and the whole check at the ACS's size."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Contest, case
from fhjax.model.fit import area_data, given
from fhjax.model.posterior import posterior
from fhjax.plrv.check import check
from fhjax.privacy.guarantee import guarantees
from fhjax.release.draws import draw_kernel

KEY = jax.random.key(20260101)
MODEL_VARIANCE = 0.0027


def problem(size: int, p: int):
    """Areas that look like the ACS's: sampling variances around 4e-4, an eighth of the model variance."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(size), *(rng.normal(size=size) for _ in range(p - 1))])
    psi = rng.lognormal(np.log(4e-4), 0.5, size)
    y = 0.13 + X[:, 1:].sum(axis=1) * 0.01 + rng.normal(size=size) * np.sqrt(psi + MODEL_VARIANCE)
    data = area_data(y, psi, X=X, intercept=False)
    return data, given(data, MODEL_VARIANCE), rng.lognormal(np.log(5e-3), 0.4, size)


@functools.partial(jax.jit, static_argnums=(1, 2))
def raw_normals(key: jax.Array, count: int, size: int) -> jax.Array:
    return jax.random.normal(key, (count, size))


def _number(size: int) -> int:
    return max(1, 5_000_000 // size)


@case(
    name="draws_independent",
    what="independent posterior draws; the rival is jax.random.normal alone",
    sizes=(2_462, 10**6),
    targets={"raw normals": 0.8},
    target_size=2_462,
)
def independent(size: int, p: int) -> Contest:
    data, fitted, _ = problem(size, p)
    post, which = posterior(data, fitted), jnp.arange(_number(size))
    return Contest(
        lambda: draw_kernel(post, KEY, which, "independent"),
        {"raw normals": lambda: raw_normals(KEY, len(which), size)},
    )


@case(
    name="draws_correlated",
    what="draws of the whole posterior through its factors; the rival draws the areas independently",
    sizes=(10**6,),
    covariates=(5,),
    targets={"independent draws": 1.0 / 3.0},
    target_size=10**6,
    target_p=5,
)
def correlated(size: int, p: int) -> Contest:
    data, fitted, _ = problem(size, p)
    post, which = posterior(data, fitted), jnp.arange(_number(size))
    return Contest(
        lambda: draw_kernel(post, KEY, which, "correlated"),
        {"independent draws": lambda: draw_kernel(post, KEY, which, "independent")},
    )


@case(
    name="plrv_check",
    what="the whole check: 10^5 draws of every area in each direction and of both joint releases",
    sizes=(2_462,),
)
def whole_check(size: int, p: int) -> Contest:
    data, fitted, sensitivity = problem(size, p)
    claim = guarantees(data, fitted, sensitivity)
    return Contest(lambda: check(data, fitted, claim, key=KEY, num_draws=100_000, joint_draws=20_000).refuted)
