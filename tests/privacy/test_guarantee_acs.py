"""The real ACS 2024 file: the numbers of an independent NumPy run."""

import csv

import jax.numpy as jnp
import numpy as np
import pytest
from oracles.privacy_oracle import reml_intercept

from fhjax.privacy.guarantee import guarantees
from fhjax.records import AreaData, Posterior


def posterior_stand_in(psi, s2, X, P=None):
    information = X.T @ (X / (psi + s2)[:, None])
    A = np.linalg.inv(information if P is None else information + P)
    B = psi / (psi + s2)
    variance = B * s2 + B**2 * np.einsum("ij,jk,ik->i", X, A, X)
    return Posterior(
        mean=jnp.zeros(len(psi)), variance=jnp.asarray(variance), shrinkage=jnp.asarray(B), mse=None,
            model_variance=jnp.asarray(s2),
        beta=jnp.zeros(X.shape[1]), beta_covariance=jnp.asarray(A), X=jnp.asarray(X),
    )  # fmt: skip


@pytest.fixture(scope="module")
def acs(shared):
    with open(shared / "data" / "acs2024_us_persons.poor.direct.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1964
    return {
        name: np.array([float(row[name]) for row in rows]) for name in ("y_hajek", "var_psu", "w_max", "sum_w", "n")
    }


def test_acs_2024_reproduces_the_independent_run(acs):
    psi, delta = acs["var_psu"], acs["w_max"] / acs["sum_w"]
    s2 = reml_intercept(acs["y_hajek"], psi)
    assert s2 == pytest.approx(0.00267714, rel=2e-6)
    X = np.ones((len(psi), 1))
    data = AreaData(y=jnp.asarray(acs["y_hajek"]), sampling_variance=jnp.asarray(psi), X=jnp.asarray(X))
    result = guarantees(data, posterior_stand_in(psi, s2, X), delta)
    rho = np.asarray(result.per_area_rho)
    assert np.median(rho) == pytest.approx(0.0379406, abs=5e-8)
    assert rho.max() == pytest.approx(1.39655, abs=5e-6)
    assert float(result.joint_independent.rho) == pytest.approx(1.396552, abs=5e-7)
    assert float(result.joint_correlated.rho) == pytest.approx(1.396548, abs=5e-7)
    assert float(result.sequential.rho) == pytest.approx(123.697, abs=5e-4)
    assert result.conservative_kind == "own_sensitivity"
    assert np.median(np.asarray(result.conservative_rho) / rho) == pytest.approx(1.3057, abs=5e-5)
    assert result.num_settled_by_certificate == 1964
    assert result.num_settled_by_search == 0
