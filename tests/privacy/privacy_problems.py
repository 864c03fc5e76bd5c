"""Random Fay-Herriot problems for the privacy tests, awkward on purpose."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fhjax.records import AreaData, Posterior


def random_problem(seed, m=None, p=None, scale=None, spread=2.0):
    """(psi, model variance, X, Delta): psi and Delta log-normal, an intercept first, columns on different scales."""
    rng = np.random.default_rng(seed)
    m = (40, 40, 60, 40)[seed % 4] if m is None else m
    p = (1, 2, 8, 3)[seed % 4] if p is None else p
    psi = np.exp(spread * rng.normal(size=m)) * 10.0 ** rng.uniform(-6, 3)
    scale = rng.choice([0.0, 1e-6, 0.01, 1.0, 30.0, 1e6]) if scale is None else scale
    X = np.column_stack([np.ones(m), rng.normal(size=(m, p - 1)) * 10.0 ** rng.uniform(-3, 3, size=p - 1)])
    delta = np.sqrt(psi) * np.exp(rng.normal(size=m)) * 0.3
    return psi, float(scale * psi.mean()), X, delta


def records(psi, s2, X, P=None, **kwargs):
    """AreaData and a Posterior made with plain NumPy."""
    scaled = X / np.sqrt(psi + s2)[:, None]
    A = np.linalg.pinv(scaled) @ np.linalg.pinv(scaled).T if P is None else np.linalg.inv(scaled.T @ scaled + P)
    zeros = jnp.zeros(len(psi))
    B = np.where(psi + s2 > 0.0, psi / np.where(psi + s2 > 0.0, psi + s2, 1.0), 1.0)
    variance = B * s2 + B**2 * np.einsum("ij,jk,ik->i", X, A, X)
    data = AreaData(y=zeros, sampling_variance=jnp.asarray(psi), X=jnp.asarray(X), **kwargs)
    posterior = Posterior(
        mean=zeros,
        variance=jnp.asarray(variance),
        shrinkage=jnp.asarray(B),
        mse=None,
        model_variance=jnp.asarray(s2),
        beta=jnp.zeros(X.shape[1]),
        beta_covariance=jnp.asarray(A),
        X=jnp.asarray(X),
    )
    return data, posterior
