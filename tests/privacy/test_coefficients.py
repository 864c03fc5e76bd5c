"""The operator of sensitivity coefficients against a dense matrix, exact references, and its own promises."""

import csv
import json

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from oracles import privacy_oracle as oracle
from privacy_problems import random_problem

from fhjax.errors import InputError, Status
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.rho import per_area_rho
from fhjax.records import Labels


def close(actual, expected, rtol=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(16))
def test_every_view_of_the_operator_agrees_with_the_dense_matrix(seed):
    psi, s2, X, _ = random_problem(seed)
    m = len(psi)
    P = None if seed % 3 else np.diag(np.geomspace(1e-3, 1e3, X.shape[1])) / psi.mean()
    C = coefficients(psi, s2, X, beta_prior_precision=P)
    dense = oracle.coefficient_matrix(psi, s2, X, P)
    close(C.to_dense(), dense)
    close(C.T.to_dense(), dense.T)
    close(C.own(), np.diag(dense))
    close(C.row(m - 1), dense[-1])
    close(C.column(2), dense[:, 2])
    close(C.T.row(2), dense[:, 2])
    close(C.block([3, 1, 3], [1, 0]), dense[np.ix_([3, 1, 3], [1, 0])])
    close(C.T.block([3, 1], [1, 0]), dense.T[np.ix_([3, 1], [1, 0])])
    close(C.pairs(jnp.array([0, 2, 5]), jnp.array([0, 5, 2])), dense[[0, 2, 5], [0, 5, 2]])
    v = np.random.default_rng(seed).normal(size=(m, 3))
    close(C @ v, dense @ v, 1e-9)
    close(C.T @ v[:, 0], dense.T @ v[:, 0], 1e-9)
    covariance = oracle.posterior_covariance(psi, s2, X, P)
    close(dense, covariance / psi[None, :], 1e-9)
    close(C.posterior_variance(), np.diag(covariance))
    own, others = C.weighted_column_norms()
    weighted = dense**2 / np.diag(covariance)[:, None]
    close(own, np.diag(weighted))
    close(others, np.where(np.eye(m, dtype=bool), 0.0, weighted).sum(axis=0), 1e-9)


@pytest.mark.parametrize("model", ["milk_intercept", "milk_majorarea"])
def test_milk_coefficients_match_forty_digits(shared, model):
    golden = json.loads((shared / "golden" / "fay_herriot" / "exact_mp.json").read_text())[model]
    with open(shared / "golden" / "fay_herriot" / "milk.csv") as file:
        rows = list(csv.DictReader(file))
    psi = np.array([float(row["SD"]) ** 2 for row in rows])
    major = np.array([int(row["MajorArea"]) for row in rows])
    dummies = np.column_stack([major == level for level in (2, 3, 4)]).astype(float)
    X = np.ones((43, 1)) if model == "milk_intercept" else np.column_stack([np.ones(43), dummies])
    expected = np.array(golden["c_ik_REML"], dtype=float)
    assert expected.shape == (43, 43)
    C = coefficients(psi, float(golden["REML"]["sigma2_v"]), X)
    np.testing.assert_allclose(C.to_dense(), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("closeness", [1e-2, 1e-4, 1e-6, 1e-8])
def test_near_collinear_covariates_lose_no_more_digits_than_their_condition(closeness):
    rng = np.random.default_rng(7)
    m = 14
    psi, s2 = np.exp(rng.normal(size=m)), 0.4
    a = rng.normal(size=m)
    X = np.column_stack([np.ones(m), a, 3.0 * a + 2.0 + closeness * rng.normal(size=m)])
    with mpmath.workdps(60):
        M = mpmath.matrix(X.tolist())
        V = [mpmath.mpf(float(v)) + mpmath.mpf(s2) for v in psi]
        scaled = mpmath.matrix(m, 3)
        for i in range(m):
            for j in range(3):
                scaled[i, j] = M[i, j] / V[i]
        H = M * mpmath.inverse(M.T * scaled) * scaled.T
        h = np.array([[float(H[i, k]) for k in range(m)] for i in range(m)])
    expected = np.diag(s2 / (psi + s2)) + (psi / (psi + s2))[:, None] * h
    condition = np.linalg.cond(X)
    error = np.abs(np.asarray(coefficients(psi, s2, X).to_dense()) - expected).max()
    assert error < 20 * np.finfo(float).eps * condition  # A itself would lose the square of it


def test_own_coefficients_never_exceed_one_and_column_form_holds_at_the_boundary():
    for seed in range(20):
        psi, _, X, _ = random_problem(seed)
        C = coefficients(psi, 0.0, X)
        own = np.asarray(C.own())
        assert np.isfinite(own).all()
        assert (own <= 1.0 + 1e-12).all()
        assert np.sum(own) == pytest.approx(X.shape[1], rel=1e-9)  # the trace of a projection


def test_zero_sampling_variance_keeps_everything_finite_but_its_own_norm():
    C = coefficients([0.0, 1.0, 2.0], 0.5, np.ones(3))
    dense = np.asarray(C.to_dense())
    assert dense[0].tolist() == [1.0, 0.0, 0.0]
    own, others = (np.asarray(part) for part in C.weighted_column_norms())
    assert np.isinf(own[0])
    assert np.isfinite(own[1:]).all()
    assert np.isfinite(others).all()
    assert others[0] == pytest.approx((dense[1:, 0] ** 2 / np.asarray(C.posterior_variance())[1:]).sum(), rel=1e-13)


def test_memory_is_linear_in_areas():
    m, p = 16_000, 5
    rng = np.random.default_rng(0)
    X, psi, v = rng.normal(size=(m, p)), rng.uniform(1, 2, m), rng.normal(size=m)

    def everything(psi, X, v):
        C = coefficients(psi, 0.3, X)
        return C.own(), *C.weighted_column_norms(), C @ v, C.T @ v

    analysis = jax.jit(everything).lower(psi, X, v).compile().memory_analysis()
    assert 0 < analysis.temp_size_in_bytes <= 12 * m * p * 8


def test_dense_form_refuses_above_its_limit():
    C = coefficients(np.ones(2000), 1.0, np.ones(2000))
    with pytest.raises(InputError, match=r"2,000 areas takes 32,000,000 bytes.*write_dense"):
        C.to_dense(max_bytes=10_000_000)


@pytest.mark.parametrize(
    ("psi", "s2", "X", "message"),
    [
        ([1.0, -1.0], 1.0, np.ones(2), r"1 area ha(s|ve) a negative .*'b'"),
        ([1.0, np.nan], 1.0, np.ones(2), r"'b'"),
        ([1.0, 1.0], 1.0, np.array([[1.0], [np.inf]]), r"non-finite covariate.*'b'"),
        ([1.0, 0.0], 0.0, np.ones(2), r"model variance is 0 too.*'b'"),
        ([1.0, 1.0], -0.1, np.ones(2), r"model variance is -0.1"),
        ([1.0, 1.0], np.nan, np.ones(2), r"model variance is nan"),
        ([1.0, 1.0], 1.0, np.ones((2, 3)), r"2 areas cannot determine 3"),
        ([1.0, 1.0], 1.0, np.ones((2, 2)), r"collinear"),
        ([1.0, 1.0], 1.0, np.zeros((2, 1)), r"collinear"),
        ([1.0, 1.0], 1.0, np.ones((3, 1)), r"shape"),
    ],
)
def test_bad_input_is_named(psi, s2, X, message):
    with pytest.raises(InputError, match=message):
        coefficients(psi, s2, X, labels=Labels("ab"))


def test_single_precision_is_refused():
    with pytest.raises(InputError, match="float64"):
        coefficients(np.ones(3, np.float32), 1.0, np.ones(3))


def test_a_proper_prior_makes_the_coefficients_posterior_covariance_over_psi():
    rng = np.random.default_rng(3)
    X, psi = rng.normal(size=(12, 3)), rng.uniform(0.5, 2, 12)
    P = np.diag([2.0, 0.0, 5.0])  # flat in one direction
    dense = np.asarray(coefficients(psi, 0.7, X, beta_prior_precision=P).to_dense())
    # Bayes from the definition: precision of (theta, beta) given y, beta integrated out by inversion of the whole.
    joint = np.block([[np.diag(1 / psi + 1 / 0.7), -X / 0.7], [-X.T / 0.7, X.T @ X / 0.7 + P]])
    covariance = np.linalg.inv(joint)[:12, :12]
    np.testing.assert_allclose(dense, covariance / psi[None, :], rtol=1e-10, atol=1e-13)


def test_collinear_covariates_are_refused_and_have_a_status_inside_jit():
    x = np.random.default_rng(2).normal(size=20)
    X = np.column_stack([np.ones(20), x, 1e3 * x - 7.0])
    with pytest.raises(InputError, match="collinear"):
        coefficients(np.ones(20), 1.0, X)
    inside = jax.jit(lambda X: coefficients(np.ones(20), 1.0, X))(X)
    assert int(inside.status) == Status.SINGULAR
    assert np.isfinite(np.asarray(inside.own())).all()
    assert np.isinf(jax.jit(lambda X: per_area_rho(np.ones(20), 1.0, X, 0.1))(X)).all()
    nearly = X + np.column_stack([np.zeros((20, 2)), 1e-6 * np.random.default_rng(3).normal(size=20)])
    assert int(coefficients(np.ones(20), 1.0, nearly).status) == Status.OK
