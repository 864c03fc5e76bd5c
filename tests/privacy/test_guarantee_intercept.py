"""The fast intercept-only kernel says what the general operator says."""

import jax.numpy as jnp
import numpy as np
import pytest

from fhjax.errors import InputError
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.extremes import largest_effects
from fhjax.privacy.intercept import intercept_guarantees
from fhjax.privacy.rho import joint_rho_correlated, joint_rho_independent, own_area_terms, per_area_rho


def problem(m, seed, scale):
    rng = np.random.default_rng(seed)
    psi = np.exp(rng.normal(size=m))
    delta = np.exp(rng.normal(size=m))
    delta[rng.integers(m)] *= 300.0  # one area moves many others
    return psi, scale, delta


@pytest.mark.parametrize("scale", [0.0, 0.03, 2.0])
@pytest.mark.parametrize("m", [2, 900])
def test_fast_path_equals_the_dense_matrix(m, scale):
    """Written out from the definition, with nothing of the package in it."""
    psi, s2, delta = problem(m, seed=m, scale=scale)
    V = psi + s2
    B, A = psi / V, 1.0 / np.sum(1.0 / V)
    C = np.diag(1.0 - B) + B[:, None] * A / V
    variance = B * s2 + B**2 * A
    moves = np.abs(C) * delta
    area = moves.max(axis=1) ** 2 / (2 * variance)
    own = np.diag(moves) ** 2 / (2 * variance)
    others = np.where(np.eye(m, dtype=bool), 0.0, moves).max(axis=1)
    result = intercept_guarantees(psi, s2, delta)
    np.testing.assert_allclose(result.per_area_rho, area, rtol=1e-10)
    assert float(result.joint_correlated) == pytest.approx(own.max(), rel=1e-10)
    assert int(result.worst_area) == ((delta / V).argmax() if s2 == 0.0 else own.argmax())
    independent = (0.5 * delta**2 * np.sum(C**2 / variance[:, None], axis=0)).max()
    assert float(result.joint_independent) == pytest.approx(independent, rel=1e-9)
    assert float(result.largest_off_diagonal_ratio) == pytest.approx((others / np.diag(moves)).max(), rel=1e-10)


@pytest.mark.parametrize("scale", [0.0, 0.03, 2.0])
@pytest.mark.parametrize("m", [3_000, 20_000, 23_456])
def test_fast_path_equals_the_operator(m, scale):
    psi, s2, delta = problem(m, seed=m, scale=scale)
    ones = np.ones((m, 1))
    expected = np.asarray(per_area_rho(psi, s2, ones, delta))
    own = np.asarray(own_area_terms(coefficients(psi, s2, ones), jnp.asarray(delta)))
    effects = largest_effects(coefficients(psi, s2, ones), delta)
    ratio = np.asarray(effects.off_diagonal / (coefficients(psi, s2, ones).own() * delta)).max()
    for out in (None, jnp.zeros(m)):
        result = intercept_guarantees(psi, s2, delta, out=out)
        np.testing.assert_allclose(result.per_area_rho, expected, rtol=1e-11)
        assert float(result.sequential) == pytest.approx(expected.sum(), rel=1e-11)
        joint = float(joint_rho_correlated(psi, s2, ones, delta))
        assert float(result.joint_correlated) == pytest.approx(joint, rel=1e-11)
        assert int(result.worst_area) == own.argmax()
        independent = float(joint_rho_independent(psi, s2, ones, delta))
        assert float(result.joint_independent) == pytest.approx(independent, rel=1e-10)
        assert float(result.largest_off_diagonal_ratio) == pytest.approx(ratio, rel=1e-10)


def test_zero_variances_and_public_areas_are_never_nan():
    result = intercept_guarantees([0.0, 1.0, 2.0], 0.5, [0.1, 0.1, 0.1])
    assert np.isinf(np.asarray(result.per_area_rho)).tolist() == [True, False, False]
    assert np.isinf(float(result.joint_independent))
    assert int(result.worst_area) == 0
    result = intercept_guarantees([0.0, 1.0, 2.0], 0.5, [0.0, 0.1, 0.1])
    assert float(result.per_area_rho[0]) == 0.0
    assert np.isfinite(float(result.joint_independent))
    result = intercept_guarantees([1.0], 0.5, [0.1])
    assert float(result.largest_off_diagonal_ratio) == 0.0
    result = intercept_guarantees([1.0, 1.0], 0.5, [0.0, 0.0])
    assert float(result.joint_correlated) == 0.0
    assert not np.isnan(float(result.largest_off_diagonal_ratio))


def test_a_given_up_buffer_is_used():
    psi, s2, delta = problem(50_000, seed=0, scale=0.5)
    out = jnp.zeros(50_000)
    intercept_guarantees(psi, s2, delta, out=out)
    assert out.is_deleted()


def test_bad_input_is_refused():
    for psi, s2, delta in (([-1.0], 1.0, [1.0]), ([1.0], -1.0, [1.0]), ([1.0], 1.0, [np.inf]), ([np.nan], 1.0, [1.0])):
        with pytest.raises(InputError, match="finite and not negative"):
            intercept_guarantees(psi, s2, delta)
    with pytest.raises(InputError, match="shape"):
        intercept_guarantees([1.0, 1.0], 1.0, [1.0])
    with pytest.raises(InputError, match="float64"):
        intercept_guarantees(np.ones(2, np.float32), 1.0, [1.0, 1.0])
