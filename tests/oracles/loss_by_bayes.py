"""The privacy loss of a whole draw without any posterior, by Bayes' rule."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from fhjax.records import AreaData


def loss_by_bayes(data: AreaData, model_variance: Any, theta: Array, area: int, change: float) -> Array:
    """The loss of a whole correlated draw by Bayes' rule, without any posterior: (..., m) -> (...,).

    p(theta | y) / p(theta | y') = [f(y_k | theta_k) / f(y'_k | theta_k)] [p(y') / p(y)]: the prior of theta cancels,
    and with the flat prior on the coefficients p(y) is the restricted likelihood. It holds at a model variance of 0
    too, and shows why the draw of all areas costs what area k alone costs: nothing but theta_k is in it.
    """
    root = jnp.sqrt(data.sampling_variance + model_variance)
    Q, _ = jnp.linalg.qr(data.X / root[:, None])

    def restricted(values: Array) -> Array:
        e = values / root
        return -0.5 * (e @ e - jnp.sum((Q.T @ e) ** 2))

    other = data.y.at[area].add(change)
    theta_k = theta[..., area]
    likelihood = -0.5 * ((data.y[area] - theta_k) ** 2 - (other[area] - theta_k) ** 2) / data.sampling_variance[area]
    return likelihood - restricted(data.y) + restricted(other)
