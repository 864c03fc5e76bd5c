"""Derivatives of the guarantees from weights through sums, variances and REML to rho, against finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fhjax.model.fit import fit_kernel
from fhjax.privacy.rho import joint_rho_correlated, joint_rho_independent, per_area_rho

AREAS, RECORDS = 6, 40
GUARANTEES = {
    "per area": lambda *args: jnp.sum(per_area_rho(*args) * jnp.arange(1.0, AREAS + 1)),
    "joint, correlated": joint_rho_correlated,
    "joint, independent": joint_rho_independent,
}


def sample(spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and outcomes (areas, records); ``spread`` is the standard deviation of the area means."""
    rng = np.random.default_rng(7)
    weight = rng.gamma(2.0, 1.0, (AREAS, RECORDS)) + 0.5
    outcome = rng.normal(size=(AREAS, RECORDS)) + spread * np.linspace(-1.5, 1.5, AREAS)[:, None]
    return weight, outcome


def area_level(log_weight: jax.Array, outcome: np.ndarray) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Hájek means, their with-replacement variances, and sensitivities with range 1."""
    weight = jnp.exp(log_weight)
    share = weight / weight.sum(axis=1, keepdims=True)
    y = (share * outcome).sum(axis=1)
    psi = RECORDS / (RECORDS - 1) * ((share * (outcome - y[:, None])) ** 2).sum(axis=1)
    return y, psi, share.max(axis=1)


def through_reml(log_weight: jax.Array, outcome: np.ndarray, guarantee) -> jax.Array:
    y, psi, delta = area_level(log_weight, outcome)
    model_variance = fit_kernel(y, psi, None).model_variance
    return guarantee(psi, model_variance, jnp.ones((AREAS, 1)), delta)


@pytest.mark.parametrize("name", GUARANTEES)
def test_weights_to_rho_through_reml(name: str) -> None:
    weight, outcome = sample(spread=0.6)
    at = jnp.log(jnp.asarray(weight))
    y, psi, _ = area_level(at, outcome)
    assert float(fit_kernel(y, psi, None).model_variance) > 0.01  # inside, so that REML has a say
    function = jax.jit(lambda value: through_reml(value, outcome, GUARANTEES[name]))
    gradient = np.asarray(jax.grad(function)(at))
    step = 1e-5
    checked = 0
    for area in range(AREAS):
        for record in (int(np.argmax(weight[area])), 0, 1):
            change = np.zeros_like(weight)
            change[area, record] = step
            slope = float(function(at + change) - function(at - change)) / (2 * step)
            assert gradient[area, record] == pytest.approx(slope, rel=1e-6, abs=1e-8 * np.abs(gradient).max())
            checked += 1
    assert checked == 3 * AREAS


@pytest.mark.parametrize("name", GUARANTEES)
def test_at_the_boundary_reml_adds_nothing_to_the_derivative(name: str) -> None:
    """Where the model variance is exactly 0 it stays 0 nearby, so the derivative is that with 0 held fixed."""
    weight, outcome = sample(spread=0.0)
    outcome = outcome - outcome.mean(axis=1, keepdims=True)  # areas that do not differ
    at = jnp.log(jnp.asarray(weight))
    y, psi, _ = area_level(at, outcome)
    assert float(fit_kernel(y, psi, None).model_variance) == 0.0

    def held(log_weight: jax.Array) -> jax.Array:
        _, psi, delta = area_level(log_weight, outcome)
        return GUARANTEES[name](psi, jnp.asarray(0.0), jnp.ones((AREAS, 1)), delta)

    through = jax.grad(lambda value: through_reml(value, outcome, GUARANTEES[name]))(at)
    np.testing.assert_allclose(through, jax.grad(held)(at), rtol=1e-12, atol=1e-15)
    assert np.all(np.isfinite(through))
    assert np.abs(through).max() > 0.0

    def fitted(outcomes: jax.Array) -> jax.Array:
        y, psi, _ = area_level(at, outcomes)
        return fit_kernel(y, psi, None).model_variance

    assert np.all(np.asarray(jax.grad(fitted)(jnp.asarray(outcome))) == 0.0)
