"""Posterior, mean squared errors and the covariance operator against dense matrices."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from model_cases import random_areas
from oracles import model_oracle

from fhjax.errors import InputError
from fhjax.model.fit import METHODS, area_data, fit
from fhjax.model.posterior import posterior, posterior_covariance


def case(seed, method="reml", p=3, spread=1.0):
    y, psi, X = random_areas(seed, m=30, p=p, spread=spread)
    data = area_data(y, psi, X, intercept=False)
    return y, psi, X, data, fit(data, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_dense_twin(method):
    y, psi, X, data, result = case(1, method)
    s = float(result.model_variance)
    mean, Sigma, _, _ = model_oracle.posterior(s, y, psi, X)
    post = posterior(data, result)
    np.testing.assert_allclose(post.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(post.variance, np.diag(Sigma), rtol=1e-12)
    np.testing.assert_allclose(post.mse, model_oracle.mse(s, y, psi, X, method), rtol=1e-11)
    np.testing.assert_allclose(posterior_covariance(post).to_dense(), Sigma, rtol=1e-11, atol=1e-14)


def test_covariance_operator_agrees_with_its_dense_form():
    _, _, _, data, result = case(2)
    operator = posterior_covariance(posterior(data, result))
    dense = np.asarray(operator.to_dense())
    assert operator.shape == dense.shape
    np.testing.assert_allclose(operator.diagonal(), np.diag(dense), rtol=1e-12)
    np.testing.assert_allclose(operator.diagonal(), posterior(data, result).variance, rtol=1e-12)
    v = np.random.default_rng(0).normal(size=(30, 4))
    np.testing.assert_allclose(operator.matvec(v), dense @ v, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(operator.matvec(v[:, 0]), dense @ v[:, 0], rtol=1e-11, atol=1e-13)
    index = np.array([4, 0, 4, 29])
    np.testing.assert_allclose(operator.rows(index), dense[index], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(operator.submatrix(index), dense[np.ix_(index, index)], rtol=1e-12, atol=1e-15)
    with pytest.raises(InputError, match="30 areas"):
        operator.to_dense(max_bytes=30 * 30 * 8 - 1)


def test_at_the_boundary_the_covariance_has_rank_p():
    y, psi, X = random_areas(3, m=30, p=3, spread=0.0)
    data = area_data(y, 100.0 * psi, X, intercept=False)
    dense = np.asarray(posterior_covariance(posterior(data, fit(data))).to_dense())
    assert np.linalg.matrix_rank(dense, tol=1e-10 * np.max(dense)) == 3


def test_zero_sampling_variance_is_kept_on_request():
    y, psi, X = random_areas(4, m=30, p=3)
    psi = np.where(np.arange(30) == 6, 0.0, psi)
    data = area_data(y, psi, X, intercept=False, allow_zero_variance=True)
    for method in ("reml", "moment", "pr"):
        result = fit(data, method=method)
        post = posterior(data, result)
        assert float(post.shrinkage[6]) == 0.0
        assert float(post.variance[6]) == 0.0
        assert float(post.mean[6]) == y[6]
        for leaf in (post.mean, post.variance, post.mse, result.beta):
            assert np.all(np.isfinite(leaf))


def test_ml_with_a_zero_sampling_variance_has_no_answer():
    y, psi, X = random_areas(4, m=30, p=3)
    data = area_data(y, np.where(np.arange(30) == 6, 0.0, psi), X, intercept=False, allow_zero_variance=True)
    with pytest.raises(InputError, match="no maximum"):
        fit(data, method="ml")


def test_zero_sampling_variance_with_zero_model_variance_stays_finite():
    y, psi, X = random_areas(4, m=30, p=3, spread=0.0)
    psi = np.where(np.arange(30) == 6, 0.0, 1000.0 * psi)
    y[6] = X[6] @ np.linalg.lstsq(X, y, rcond=None)[0]
    data = area_data(y, psi, X, intercept=False, allow_zero_variance=True)
    for method in ("reml", "moment", "pr"):
        result = fit(data, method=method)
        post = posterior(data, result)
        assert float(post.variance[6]) == 0.0
        for leaf in (post.mean, post.variance, post.mse, result.beta, result.log_likelihood):
            assert np.all(np.isfinite(leaf))


def test_gaussian_prior_on_the_coefficients():
    y, psi, X, data, result = case(5)
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    precision, centre = root @ root.T, rng.normal(size=3)
    want, Sigma, beta, A = model_oracle.posterior(float(result.model_variance), y, psi, X, centre, precision)
    post = posterior(data, result, prior_mean=centre, prior_precision=precision)
    np.testing.assert_allclose(post.mean, want, rtol=1e-11)
    np.testing.assert_allclose(post.variance, np.diag(Sigma), rtol=1e-11)
    np.testing.assert_allclose(post.beta, beta, rtol=1e-11)
    np.testing.assert_allclose(post.beta_covariance, A, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(posterior_covariance(post).to_dense(), Sigma, rtol=1e-10, atol=1e-14)
    assert post.mse is None
    flat = posterior(data, result, prior_precision=np.zeros((3, 3)))
    np.testing.assert_allclose(flat.mean, posterior(data, result).mean, rtol=1e-13)


def test_priors_that_cannot_be_meant_are_refused():
    _, _, _, data, result = case(6)
    for options, words in [
        ({"prior_mean": np.zeros(3)}, "needs prior_precision"),
        ({"prior_precision": np.eye(2)}, "shape"),
        ({"prior_precision": -np.eye(3)}, "positive semidefinite"),
        ({"prior_precision": np.diag([1.0, np.nan, 1.0])}, "finite"),
    ]:
        with pytest.raises(InputError, match=words):
            posterior(data, result, **options)
    with pytest.raises(InputError, match="fit these data first"):
        posterior(dataclasses.replace(data, X=jnp.ones((30, 1))), result)
