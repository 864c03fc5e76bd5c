"""Samplers with a planted fault, each one that has been met in practice: a check that passes them is worth nothing.

All have the signature of :data:`fhjax.plrv.check.Sampler`, ``(posterior, key, which, release) -> (n, m)``.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from fhjax.model.posterior import posterior_covariance
from fhjax.records import Array, Posterior
from fhjax.release.draws import draw_kernel

_sampler = functools.partial(jax.jit, static_argnums=3)


@_sampler
def sd_too_small(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """Noise 1 % too small in every area."""
    return posterior.mean + 0.99 * (draw_kernel(posterior, key, which, release) - posterior.mean)


@_sampler
def sd_too_small_in_one_area(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """Noise 1 % too small in the first area alone."""
    scale = jnp.ones_like(posterior.mean).at[0].set(0.99)
    return posterior.mean + scale * (draw_kernel(posterior, key, which, release) - posterior.mean)


@_sampler
def without_coefficient_part(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """The regression coefficients plugged in: the variance lacks what their uncertainty adds."""
    scale = jnp.sqrt(posterior_covariance(posterior).independent / posterior.variance)
    return posterior.mean + scale * (draw_kernel(posterior, key, which, "independent") - posterior.mean)


@_sampler
def one_key_for_all(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """Every area draws from the same stream, so all get the same normal number."""
    z = jax.vmap(lambda index: jax.random.normal(jax.random.fold_in(key, index)))(which)
    return posterior.mean + jnp.sqrt(posterior.variance) * z[:, None]


@_sampler
def single_precision(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """Normal numbers of 32 bits: 2^23 different values, none beyond 5.4 standard deviations."""
    m = posterior.mean.shape[0]
    z = jax.vmap(lambda index: jax.random.normal(jax.random.fold_in(key, index), (m,), jnp.float32))(which)
    return posterior.mean + jnp.sqrt(posterior.variance) * z.astype(float)


@_sampler
def the_other_release(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """Correlated instead of independent, and the reverse."""
    return draw_kernel(posterior, key, which, "independent" if release == "correlated" else "correlated")


@_sampler
def no_noise(posterior: Posterior, key: Array, which: Array, release: str) -> Array:
    """The posterior mean itself."""
    return jnp.broadcast_to(posterior.mean, (which.shape[0], posterior.mean.shape[0]))
