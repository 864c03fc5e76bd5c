"""Dependent priors against dense inverses, and against the independent model they contain."""

import numpy as np
import pytest
from privacy_problems import random_problem, records
from scipy import sparse

from fhjax.errors import InputError
from fhjax.privacy.guarantee import guarantees
from fhjax.privacy.priors import (
    adjacency,
    ar1_precision,
    car_precision,
    posterior_variances,
    prior_guarantee,
    sar_precision,
)
from fhjax.records import Labels


def ring(m):
    return adjacency([[(i - 1) % m, (i + 1) % m] for i in range(m)])


def dense_variances(psi, Q, X=None):
    """The posterior covariance of (theta, beta), inverted whole."""
    Q = Q.toarray()
    K = Q + np.diag(1.0 / psi)
    if X is not None:
        K = np.block([[K, -Q @ X], [-(Q @ X).T, X.T @ Q @ X]])
    return np.diag(np.linalg.inv(K))[: len(psi)]


PRIORS = {
    "car": lambda m: car_precision(ring(m), 0.7, 0.9),
    "intrinsic": lambda m: car_precision(ring(m), 0.7),
    "sar": lambda m: sar_precision(ring(m), 0.7, -0.6),
    "ar1": lambda m: sparse.kron(sparse.eye_array(m // 5), ar1_precision(5, 0.7, 0.8)),
}


@pytest.mark.parametrize("m", [20, 600])
@pytest.mark.parametrize("name", PRIORS)
def test_dependent_priors_match_the_dense_inverse(name, m):
    rng = np.random.default_rng(m)
    psi, delta, Q = np.exp(rng.normal(size=m)), rng.uniform(0.1, 1, size=m), PRIORS[name](m)
    slope = rng.normal(size=(m, 1))
    for X in (None, slope if name == "intrinsic" else np.column_stack([np.ones(m), slope])):
        expected = dense_variances(psi, Q, X)
        np.testing.assert_allclose(posterior_variances(psi, Q, X), expected, rtol=1e-9)
        result = prior_guarantee(psi, Q, delta, X=X)
        terms = delta**2 * expected / (2 * psi**2)
        assert float(result.rho) == pytest.approx(terms.max(), rel=1e-9)
        assert int(result.worst_area) == terms.argmax()


def test_the_whole_draw_costs_what_its_worst_area_costs_under_dependence():
    rng = np.random.default_rng(1)
    psi, delta, Q = np.exp(rng.normal(size=15)), rng.uniform(0.1, 1, size=15), PRIORS["car"](15)
    covariance = np.linalg.inv(Q.toarray() + np.diag(1 / psi))
    shift = covariance / psi  # column k: the posterior mean's change per unit of y_k
    full = 0.5 * delta**2 * np.einsum("ik,ij,jk->k", shift, np.linalg.inv(covariance), shift)
    assert float(prior_guarantee(psi, Q, delta).rho) == pytest.approx(full.max(), rel=1e-10)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_independence_is_the_fay_herriot_model(seed):
    psi, s2, X, delta = random_problem(seed, scale=0.5)
    Q = sparse.eye_array(len(psi)) / s2
    joint = guarantees(*records(psi, s2, X), delta).joint_correlated
    result = prior_guarantee(psi, Q, delta, X=X)
    assert float(result.rho) == pytest.approx(float(joint.rho), rel=1e-8)
    assert int(result.worst_area) == int(joint.worst_area)


def test_known_and_unsurveyed_areas():
    psi, Q = np.array([1.0, 0.0, 2.0, np.inf, 1.0]), PRIORS["car"](5)
    tiny, huge = np.where(psi == 0, 1e-13, psi), 1e13
    expected = dense_variances(np.where(np.isinf(psi), huge, tiny), Q)
    np.testing.assert_allclose(posterior_variances(psi, Q), expected, rtol=1e-6, atol=1e-12)
    delta = np.full(5, 0.1)
    assert np.isinf(float(prior_guarantee(psi, Q, delta).rho))
    delta[1] = 0.0
    assert np.isfinite(float(prior_guarantee(psi, Q, delta).rho))
    assert float(posterior_variances([0.0, 0.0], np.eye(2))[0]) == 0.0


def test_sampling_variances_of_very_different_size_are_not_taken_for_missing_information():
    psi, Q = np.geomspace(1e-10, 1e10, 20), car_precision(ring(20), 1e9)
    np.testing.assert_allclose(posterior_variances(psi, Q), dense_variances(psi, Q), rtol=1e-6)


def test_what_nothing_determines_is_refused():
    Q = car_precision(ring(6), 1.0)
    with pytest.raises(InputError, match="improper and the data do not make up"):
        posterior_variances(np.full(6, np.inf), Q)
    assert posterior_variances([1.0] + [np.inf] * 5, Q)[0] == pytest.approx(1.0)
    with pytest.raises(InputError, match="drop the intercept"):
        posterior_variances(np.ones(6), Q, np.ones(6))
    with pytest.raises(InputError, match="not symmetric"):
        posterior_variances(np.ones(2), np.array([[1.0, 0.5], [0.0, 1.0]]))
    with pytest.raises(InputError, match="shape"):
        posterior_variances(np.ones(3), np.eye(2))
    with pytest.raises(InputError, match=r"negative or missing sampling variance"):
        posterior_variances([1.0, -1.0], np.eye(2))
    with pytest.raises(InputError, match="'b'"):
        prior_guarantee([1.0, 1.0], np.eye(2), [0.1, np.nan], labels=Labels("ab"))
    with pytest.raises(InputError, match="themselves or not in the list"):
        adjacency([[0], [5]])
    with pytest.raises(InputError, match="name them back"):
        adjacency([[1], []])
    for wrong in (lambda: car_precision(ring(4), -1.0), lambda: car_precision(ring(4), 1.0, 1.2)):
        with pytest.raises(InputError, match="prior"):
            wrong()
    with pytest.raises(InputError, match="SAR"):
        sar_precision(ring(4), 1.0, 1.0)
    with pytest.raises(InputError, match="AR"):
        ar1_precision(4, 1.0, 1.0)


def test_ar1_precision_is_the_inverse_of_the_stationary_covariance():
    for times in (1, 2, 6):
        lag = np.abs(np.subtract.outer(np.arange(times), np.arange(times)))
        covariance = 0.5 * 0.8**lag / (1 - 0.64)
        np.testing.assert_allclose(ar1_precision(times, 0.5, 0.8).toarray() @ covariance, np.eye(times), atol=1e-12)


def test_sentences_speak_of_the_priors_parameters():
    text = " ".join(prior_guarantee(np.ones(5), PRIORS["car"](5), 0.1).assumptions)
    assert "The parameters of the prior were estimated" in text
    assert "they are held equal" in text
    assert "model variance" not in text
