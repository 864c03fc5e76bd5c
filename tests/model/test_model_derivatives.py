"""Derivatives of the estimate against finite differences (central, step 1e-5), and exactly 0 at the boundary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_cases import random_areas

from fhjax.model.fit import METHODS, area_data, fit, fit_kernel
from fhjax.model.posterior import posterior_kernel

STEP = 1e-5


def everything(y, psi, X, method):
    """One number that depends on all outputs."""
    result = fit_kernel(y, psi, X, method=method)
    post = posterior_kernel(y, psi, X, None, result)
    outputs = jnp.stack([result.model_variance, result.log_likelihood, result.model_variance_se, jnp.sum(result.beta)])
    return jnp.concatenate([outputs, post.mean[:3], post.mse[:3]])


@pytest.mark.parametrize("method", METHODS)
def test_directional_derivatives_of_all_outputs(method):
    y, psi, X = random_areas(1, m=30, p=3)
    rng = np.random.default_rng(0)
    dy, dpsi, dX = rng.normal(size=30), 0.1 * rng.normal(size=30), rng.normal(size=(30, 3))
    _, slope = jax.jvp(lambda *data: everything(*data, method), (y, psi, X), (dy, dpsi, dX))
    ahead = everything(y + STEP * dy, psi + STEP * dpsi, X + STEP * dX, method)
    behind = everything(y - STEP * dy, psi - STEP * dpsi, X - STEP * dX, method)
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * STEP), rtol=1e-7, atol=1e-8)


def test_gradient_under_jit_and_vmap_agrees_with_forward_mode():
    batch = [random_areas(seed, m=30, p=3) for seed in range(3)]
    y, psi, X = (jnp.stack([jnp.asarray(problem[i]) for problem in batch]) for i in range(3))
    variance = lambda *data: fit_kernel(*data).model_variance  # noqa: E731
    backward = jax.jit(jax.vmap(jax.grad(variance, argnums=(0, 1, 2))))(y, psi, X)
    for i in range(3):
        for part, (got, data) in enumerate(zip(backward, (y, psi, X), strict=True)):
            direction = jnp.cos(jnp.arange(data[i].size)).reshape(data[i].shape)
            zeros = [jnp.zeros_like(x[i]) for x in (y, psi, X)]
            zeros[part] = direction
            _, forward = jax.jvp(variance, (y[i], psi[i], X[i]), tuple(zeros))
            np.testing.assert_allclose(jnp.sum(got[i] * direction), forward, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_exactly_zero_at_the_boundary(method):
    y, psi, X = random_areas(2, m=30, p=3, spread=0.0)
    variance = lambda *data: fit_kernel(*data, method=method).model_variance  # noqa: E731
    value, slopes = jax.value_and_grad(variance, argnums=(0, 1, 2))(y, 100.0 * psi, X)
    assert float(value) == 0.0
    for slope in slopes:
        assert np.all(np.asarray(slope) == 0.0)


def test_second_derivative():
    y, psi, X = random_areas(3, m=30, p=3)
    direction = np.random.default_rng(1).normal(size=30)
    along = lambda t: fit_kernel(y + t * direction, psi, X).model_variance  # noqa: E731
    slope = jax.grad(along)
    curvature = jax.grad(slope)(0.0)
    np.testing.assert_allclose(curvature, (slope(STEP) - slope(-STEP)) / (2 * STEP), rtol=1e-6)


def test_fit_itself_can_be_differentiated():
    y, psi, X = random_areas(4, m=30, p=3)
    data = area_data(y, psi, X, intercept=False)
    gradient = jax.grad(lambda data: fit(data).model_variance, allow_int=True)(data)
    want = jax.grad(lambda y: fit_kernel(y, psi, X).model_variance)(jnp.asarray(y))
    np.testing.assert_allclose(gradient.y, want, rtol=1e-12)
