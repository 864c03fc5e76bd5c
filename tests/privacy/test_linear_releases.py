"""Linear releases against the dense quadratic form, in every structured form and at the boundaries."""

import jax.numpy as jnp
import numpy as np
import pytest
from oracles import privacy_oracle as oracle
from privacy_problems import random_problem, records
from scipy import sparse

from fhjax.errors import InputError
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.guarantee import guarantees
from fhjax.privacy.linear import group_terms, linear_guarantee, matrix_terms, regional_guarantee, subset_guarantee
from fhjax.records import Labels


def dense_terms(L, psi, s2, X, delta, P=None):
    C, covariance = oracle.coefficient_matrix(psi, s2, X, P), oracle.posterior_covariance(psi, s2, X, P)
    scale = 1 / np.sqrt(np.diag(L @ covariance @ L.T))
    return oracle.linear_release(L * scale[:, None], C, covariance, delta)


@pytest.mark.parametrize("seed", range(12))
def test_structured_releases_equal_the_dense_form(seed):
    psi, s2, X, delta = random_problem(seed, m=40, spread=1.0, scale=(1.0, 0.05, 10.0)[seed % 3])
    rng = np.random.default_rng(seed)
    data, posterior = records(psi, s2, X)
    C = coefficients(psi, s2, X)
    group, weight = rng.integers(-1, 7, size=40), rng.uniform(0.1, 3, size=40)
    L = np.zeros((7, 40))
    L[group[group >= 0], np.flatnonzero(group >= 0)] = weight[group >= 0]
    expected = dense_terms(L, psi, s2, X, delta)
    np.testing.assert_allclose(matrix_terms(C, delta, L), expected, rtol=1e-9)
    terms = group_terms(C, jnp.asarray(delta), jnp.asarray(group), jnp.asarray(weight), 7)
    np.testing.assert_allclose(terms, expected, rtol=1e-9)
    names = [f"r{g}" if g >= 0 else None for g in group]
    regional = regional_guarantee(data, posterior, delta, names, weights=5.0 * weight)
    assert float(regional.rho) == pytest.approx(expected.max(), rel=1e-9)
    assert int(regional.worst_area) == expected.argmax()
    for matrix in (L, sparse.csc_array(L)):
        assert float(linear_guarantee(data, posterior, delta, matrix).rho) == pytest.approx(expected.max(), rel=1e-9)
    chosen = rng.random(40) < 0.5
    subset = subset_guarantee(data, posterior, delta, chosen)
    assert float(subset.rho) == pytest.approx(dense_terms(np.eye(40)[chosen], psi, s2, X, delta).max(), rel=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e6])
def test_releasing_everything_costs_the_correlated_joint_and_less_never_costs_more(scale):
    psi, s2, X, delta = random_problem(3, scale=scale)
    m = len(psi)
    data, posterior = records(psi, s2, X)
    joint = float(guarantees(data, posterior, delta).joint_correlated.rho)
    assert float(subset_guarantee(data, posterior, delta, np.ones(m, bool)).rho) == pytest.approx(joint, rel=1e-8)
    assert float(linear_guarantee(data, posterior, delta, np.eye(m)).rho) == pytest.approx(joint, rel=1e-8)
    rng = np.random.default_rng(0)
    for q in (1, 3, 10):
        assert float(linear_guarantee(data, posterior, delta, rng.normal(size=(q, m))).rho) <= joint * (1 + 1e-12)
        region = rng.integers(0, q, size=m)
        assert float(regional_guarantee(data, posterior, delta, region).rho) <= joint * (1 + 1e-12)


def test_one_area_is_paper_24():
    psi, s2, X, delta = random_problem(7)
    data, posterior = records(psi, s2, X)
    per_area = np.asarray(guarantees(data, posterior, delta).per_area_rho)
    for i in (0, 5, 11):
        mask = np.arange(len(psi)) == i
        assert float(subset_guarantee(data, posterior, delta, mask).rho) == pytest.approx(per_area[i], rel=1e-9)


def test_dependent_rows_cost_nothing_more():
    psi, s2, X, delta = random_problem(3)
    data, posterior = records(psi, s2, X)
    L = np.random.default_rng(1).normal(size=(3, len(psi)))
    once = float(linear_guarantee(data, posterior, delta, L).rho)
    again = float(linear_guarantee(data, posterior, delta, np.vstack([L, L[0], L[1] - 2.0 * L[2]])).rho)
    assert again == pytest.approx(once, rel=1e-9)


def test_a_nearly_noiseless_difference_is_not_lost():
    # theta_1 and theta_1 + 1e-9 theta_2 tell theta_1 and theta_2; a truncated pseudo-inverse would report theta_1 only.
    psi, s2, X = np.array([1.0, 1.0, 1.0]), 1.0, np.ones((3, 1))
    delta = np.array([0.1, 5.0, 0.1])
    data, posterior = records(psi, s2, X)
    both = float(subset_guarantee(data, posterior, delta, [True, True, False]).rho)
    L = np.array([[1.0, 0.0, 0.0], [1.0, 1e-9, 0.0]])
    assert float(linear_guarantee(data, posterior, delta, L).rho) == pytest.approx(both, rel=1e-5)


def test_areas_without_sampling_variance_are_infinite_only_where_they_show():
    psi, s2, X = np.array([0.0, 0.0, 1.0, 2.0]), 0.5, np.ones((4, 1))
    data, posterior = records(psi, s2, X, labels=Labels("abcd"))
    delta = np.full(4, 0.1)
    assert np.isinf(float(subset_guarantee(data, posterior, delta, ["a", "c"]).rho))
    assert np.isfinite(float(subset_guarantee(data, posterior, delta, ["c", "d"]).rho))
    assert np.isinf(float(regional_guarantee(data, posterior, delta, ["x", "x", "y", "y"]).rho))
    mixed = regional_guarantee(data, posterior, delta, ["x", "y", "x", "y"])
    assert np.isfinite(float(mixed.rho))
    L = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    C, covariance = (np.asarray(part) for part in (coefficients(psi, s2, X).to_dense(), np.zeros((4, 4))))
    B = psi / (psi + s2)
    A = 1 / np.sum(1 / (psi + s2))
    covariance = np.diag(B * s2) + A * np.outer(B, B)
    expected = oracle.linear_release(L, C, covariance, delta).max()
    assert float(mixed.rho) == pytest.approx(expected, rel=1e-10)
    assert float(linear_guarantee(data, posterior, delta, L).rho) == pytest.approx(expected, rel=1e-10)
    for matrix in (np.eye(4)[[0, 2]], np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])):
        assert np.isinf(float(linear_guarantee(data, posterior, delta, matrix).rho))


def test_bad_releases_are_refused():
    psi, s2, X, delta = random_problem(1, m=6)
    data, posterior = records(psi, s2, X, labels=Labels("abcdef"))
    with pytest.raises(InputError, match=r"1 area (is|are) not in the data: 'z'"):
        subset_guarantee(data, posterior, delta, ["a", "z"])
    with pytest.raises(InputError, match="at least one area"):
        subset_guarantee(data, posterior, delta, np.zeros(6, bool))
    with pytest.raises(InputError, match="No area lies in a region"):
        regional_guarantee(data, posterior, delta, [None] * 6)
    with pytest.raises(InputError, match="6 areas"):
        regional_guarantee(data, posterior, delta, ["x"] * 5)
    with pytest.raises(InputError, match="finite"):
        regional_guarantee(data, posterior, delta, ["x"] * 6, weights=[np.nan] * 6)
    with pytest.raises(InputError, match="L has 5 columns"):
        linear_guarantee(data, posterior, delta, np.ones((1, 5)))
    with pytest.raises(InputError, match="not finite"):
        linear_guarantee(data, posterior, delta, np.full((1, 6), np.inf))
    with pytest.raises(InputError, match="max_bytes=10"):
        linear_guarantee(data, posterior, delta, np.ones((1, 6)), max_bytes=10)
