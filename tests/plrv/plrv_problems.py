"""Small problems and planted faults that the privacy-loss tests share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from oracles import plrv_oracle as oracle

from fhjax.model.fit import area_data, given
from fhjax.model.posterior import covariance
from fhjax.model.posterior import posterior as posterior_of
from fhjax.privacy.guarantee import guarantees
from fhjax.release.draws import draw_kernel


def problem(m: int = 12, p: int = 2, model_variance: float = 0.4):
    """Data, fit, posterior and guarantees of m areas."""
    y, psi, X = oracle.example(m, p)
    data = area_data(y, psi, X=X, intercept=False)
    fitted = given(data, model_variance)
    sensitivity = 0.3 * np.random.default_rng(1).uniform(0.2, 1.0, m)
    return data, fitted, posterior_of(data, fitted), guarantees(data, fitted, sensitivity)


def sd_too_small(posterior, key, which, release):
    """Noise 1 % too small in every area."""
    return posterior.mean + 0.99 * (draw_kernel(posterior, key, which, release) - posterior.mean)


def without_coefficient_part(posterior, key, which, release):
    """The regression coefficients plugged in: only g1 of the variance is drawn."""
    scale = jnp.sqrt(covariance(posterior).independent / posterior.variance)
    return posterior.mean + scale * (draw_kernel(posterior, key, which, "independent") - posterior.mean)


def one_key_for_all(posterior, key, which, release):
    """Every area uses the same stream."""
    z = jax.vmap(lambda index: jax.random.normal(jax.random.fold_in(key, index)))(which)
    return posterior.mean + jnp.sqrt(posterior.variance) * z[:, None]


def single_precision(posterior, key, which, release):
    """Normal numbers of 32 bits."""
    m = posterior.mean.shape[0]
    z = jax.vmap(lambda index: jax.random.normal(jax.random.fold_in(key, index), (m,), jnp.float32))(which)
    return posterior.mean + jnp.sqrt(posterior.variance) * z.astype(float)


def the_other_release(posterior, key, which, release):
    """Correlated instead of independent, and the reverse."""
    return draw_kernel(posterior, key, which, "independent" if release == "correlated" else "correlated")


def no_noise(posterior, key, which, release):
    """The posterior mean itself."""
    return jnp.broadcast_to(posterior.mean, (which.shape[0], posterior.mean.shape[0]))
