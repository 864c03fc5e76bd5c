"""Rényi divergences of Gaussian pairs against the textbook formula in many digits and against numerical integrals."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from oracles import conversion_oracle as oracle
from scipy.integrate import quad
from scipy.stats import norm

from fhjax.errors import InputError
from fhjax.privacy.conversion import epsilon_tight
from fhjax.privacy.renyi import (
    epsilon_from_renyi,
    optimal_order,
    renyi_curve,
    renyi_divergence,
    renyi_divergence_multivariate,
)

ORDERS = (1.0, 1 + 1e-12, 1 + 1e-6, 1.01, 1.5, 2.0, 5.0, 32.0, 1e3, 1e8)
RATIOS = (1e-200, 1e-18, 1e-6, 0.01, 0.5, 0.9, 1 - 1e-7, 1.0, 1 + 1e-9, 1.001, 1.3, 3.0, 1e4)


def test_equal_variances_give_alpha_rho():
    shift, variance = jnp.linspace(0.1, 3.0, 7)[:, None], 2.0
    order = jnp.array([1.0, 2.0, 17.5])
    rho = shift**2 / (2 * variance)
    np.testing.assert_allclose(renyi_divergence(order, shift, variance), order * rho, rtol=1e-14)
    np.testing.assert_allclose(renyi_curve(rho, order), order * rho, rtol=1e-15)


def test_unequal_variances_against_the_textbook_formula():
    compared = infinite = 0
    for order in ORDERS:
        for ratio in RATIOS:
            for shift in (0.0, 1e-3, 2.0):
                ours = float(renyi_divergence(order, shift, ratio, 1.0))
                truth = oracle.renyi_gaussian(order, shift, ratio, 1.0)
                if truth == mp.inf:
                    assert ours == np.inf
                    infinite += 1
                else:
                    assert ours >= truth
                    # the mixed variance 1 - (alpha - 1)(ratio - 1) loses digits where it is small
                    mixed = abs(float(1 - (mp.mpf(order) - 1) * (mp.mpf(ratio) - 1)))
                    scale = 1 + (1 + abs((order - 1) * (ratio - 1))) / mixed
                    assert ours - truth <= 1e-14 * scale * truth
                compared += 1
    assert compared == len(ORDERS) * len(RATIOS) * 3
    assert infinite >= 20


def test_a_numerical_integral():
    for order, shift, variance in ((1.7, 0.6, 1.3), (4.0, -0.5, 0.7), (2.0, 1.0, 1.9)):
        p, q = norm(shift, variance**0.5), norm(0, 1)
        integral, _ = quad(lambda x, p=p, q=q, a=order: np.exp(a * p.logpdf(x) + (1 - a) * q.logpdf(x)), -60, 60)
        np.testing.assert_allclose(
            renyi_divergence(order, shift, variance, 1.0), np.log(integral) / (order - 1), rtol=1e-8
        )


def test_the_edge_of_the_mixed_variance_is_infinite():
    # variance 2 against 1: alpha + 2 (1 - alpha) is 0 at order 2
    assert np.isinf(renyi_divergence(2.0, 0.5, 2.0, 1.0))
    assert np.isinf(renyi_divergence(2.5, 0.5, 2.0, 1.0))
    assert np.isfinite(renyi_divergence(2.0 - 1e-9, 0.5, 2.0, 1.0))


def test_order_infinity():
    assert np.isinf(renyi_divergence(np.inf, 1.0, 1.0))
    assert np.isinf(renyi_divergence(np.inf, 1.0, 2.0, 1.0))
    assert float(renyi_divergence(np.inf, 0.0, 1.0)) == 0.0
    # the wider law covers the narrower: sup of the log ratio = shift^2 / (2 gap) + log of the scales
    truth = 1.0 / (2 * 0.5) + 0.5 * np.log(2.0)
    np.testing.assert_allclose(renyi_divergence(np.inf, 1.0, 0.5, 1.0), truth, rtol=1e-14)
    np.testing.assert_allclose(renyi_divergence(1e12, 1.0, 0.5, 1.0), truth, rtol=1e-9)
    assert np.isinf(renyi_curve(0.1, np.inf))
    assert float(renyi_curve(0.0, np.inf)) == 0.0


def test_constants():
    assert float(renyi_divergence(2.0, 0.0, 0.0, 0.0)) == 0.0
    assert np.isinf(renyi_divergence(2.0, 1.0, 0.0, 0.0))
    assert np.isinf(renyi_divergence(2.0, 0.0, 1.0, 0.0))
    assert np.isinf(renyi_divergence(2.0, 0.0, 0.0, 1.0))


def test_no_nan_over_extreme_arguments():
    order = np.array([1.0, 1 + 2.0**-52, 2.0, 1e10, 1e300, np.inf])
    variances = np.array([0.0, 1e-300, 1e-10, 1.0, 1e10, 1e300, np.inf])
    shifts = np.array([0.0, 1e-300, 1.0, 1e300])
    value = renyi_divergence(
        order[:, None, None, None],
        shifts[:, None, None],
        variances[:, None],
        variances,
    )
    assert value.shape == (6, 4, 7, 7)
    assert not np.isnan(value).any()
    assert (value >= 0).all()


def test_thousands_of_areas_and_many_orders_at_once_rise_with_the_order():
    rng = np.random.default_rng(1)
    order = np.concatenate([[1.0], 1 + np.geomspace(1e-9, 1e3, 60)])
    shift, variance, other = rng.normal(size=2000), rng.uniform(0.5, 2, 2000), rng.uniform(0.5, 2, 2000)
    curve = np.asarray(renyi_divergence(order, shift[:, None], variance[:, None], other[:, None]))
    assert curve.shape == (2000, 61)
    assert not np.isnan(curve).any()
    assert (curve[:, 1:] >= curve[:, :-1] * (1 - 1e-12)).all()
    assert (np.isfinite(curve[:, -1]) == (variance <= other)).mean() > 0.95


def test_several_dimensions_are_the_sum_over_axes_and_the_dense_formula():
    rng = np.random.default_rng(2)
    compared = 0
    for d in (1, 2, 4):
        for order in (1.0, 1.2, 2.0, 3.5):
            root, other_root = rng.normal(size=(d, d)), rng.normal(size=(d, d))
            covariance, other = root @ root.T / d + np.eye(d), other_root @ other_root.T / d + np.eye(d)
            shift = rng.normal(size=d)
            mixed = order * other + (1 - order) * covariance
            ours = float(renyi_divergence_multivariate(order, shift, covariance, other))
            if np.linalg.eigvalsh(mixed).min() <= 0:
                assert ours == np.inf
            elif order == 1.0:
                inverse = np.linalg.inv(other)
                truth = shift @ inverse @ shift + np.trace(inverse @ covariance) - d
                truth += np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1]
                np.testing.assert_allclose(ours, truth / 2, rtol=1e-11)
            else:
                logs = np.linalg.slogdet(mixed)[1] - order * np.linalg.slogdet(other)[1]
                logs -= (1 - order) * np.linalg.slogdet(covariance)[1]
                truth = order / 2 * shift @ np.linalg.solve(mixed, shift) + logs / (2 * (1 - order))
                np.testing.assert_allclose(ours, truth, rtol=1e-10)
            compared += 1
    assert compared == 12
    variance, other = np.array([0.5, 1.0, 1.2]), np.array([1.0, 1.0, 1.5])
    one_by_one = sum(renyi_divergence(1.5, s, v, o) for s, v, o in zip((1.0, -1.0, 0.2), variance, other, strict=True))
    together = renyi_divergence_multivariate(1.5, np.array([1.0, -1.0, 0.2]), np.diag(variance), np.diag(other))
    np.testing.assert_allclose(together, one_by_one, rtol=1e-13)


def test_a_batch_of_covariances_against_many_orders():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 1, 3, 3))
    covariance = root @ np.swapaxes(root, -1, -2) + np.eye(3)
    curve = renyi_divergence_multivariate(np.array([1.0, 2.0, 9.0]), rng.normal(size=(5, 1, 3)), covariance, covariance)
    assert curve.shape == (5, 3)
    np.testing.assert_allclose(curve, curve[:, :1] * np.array([1.0, 2.0, 9.0]), rtol=1e-10)


def test_a_curve_known_at_some_orders_gives_a_valid_epsilon():
    order = 1 + np.geomspace(1e-2, 1e3, 4000)
    for rho, delta in ((1.51, 1e-7), (0.048, 1e-7), (17.8, 1e-5)):
        ours, best = float(epsilon_from_renyi(order, rho * order, delta)), float(epsilon_tight(rho, delta))
        assert best * (1 - 1e-13) <= ours <= best * (1 + 1e-5)
        alone = float(epsilon_from_renyi([float(optimal_order(rho, delta))], [rho * optimal_order(rho, delta)], delta))
        assert alone == pytest.approx(best, rel=1e-12)
    rows = epsilon_from_renyi(order, np.stack([0.1 * order, order]), np.array([1e-5, 1e-5]))
    assert rows.shape == (2,)
    assert float(epsilon_from_renyi([1.0, 2.0, np.inf], [0.1, np.inf, np.inf], 1e-5)) == np.inf
    assert float(epsilon_from_renyi([1.0, 2.0], [0.1, 0.2], 0.0)) == np.inf


def test_derivatives_and_transformations():
    slope = jax.grad(renyi_divergence, 1)(2.0, 1.0, 1.0, 1.5)
    h = 1e-6
    across = (renyi_divergence(2.0, 1 + h, 1.0, 1.5) - renyi_divergence(2.0, 1 - h, 1.0, 1.5)) / (2 * h)
    np.testing.assert_allclose(slope, across, rtol=1e-7)
    by_variance = jax.grad(renyi_divergence, 2)(2.0, 1.0, 0.8, 1.5)
    across = (renyi_divergence(2.0, 1.0, 0.8 + h, 1.5) - renyi_divergence(2.0, 1.0, 0.8 - h, 1.5)) / (2 * h)
    np.testing.assert_allclose(by_variance, across, rtol=1e-6)
    assert not np.isnan(jax.grad(renyi_divergence, 2)(5.0, 1.0, 2.0, 1.0))
    assert not np.isnan(jax.grad(renyi_divergence, 2)(1.0, 1.0, 1.0, 1.0))


def test_refusals():
    with pytest.raises(InputError, match="at least 1"):
        renyi_divergence(0.5, 1.0, 1.0)
    with pytest.raises(InputError, match="variance"):
        renyi_divergence(2.0, 1.0, -1.0)
    with pytest.raises(InputError, match="shapes"):
        renyi_divergence_multivariate(2.0, np.ones(2), np.eye(3), np.eye(3))
    with pytest.raises(InputError, match="positive definite"):
        renyi_divergence_multivariate(2.0, np.ones(2), np.eye(2), np.ones((2, 2)))
    with pytest.raises(InputError, match="divergence"):
        epsilon_from_renyi([2.0], [-1.0], 1e-5)
