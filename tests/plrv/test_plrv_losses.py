"""Log densities and losses against dense algebra, Bayes' rule and the law they must have."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import plrv_oracle as oracle
from oracles.loss_by_bayes import loss_by_bayes
from plrv.plrv_problems import problem

from fhjax.errors import InputError
from fhjax.model.fit import area_data
from fhjax.plrv import losses
from fhjax.release.draws import draws

KEY = jax.random.key(5)


def test_the_posterior_coded_here_is_the_dense_one_and_the_packages() -> None:
    for s2 in (0.4, 0.0):
        data, _, posterior, _ = problem(model_variance=s2)
        mean, S = oracle.posterior(np.asarray(data.y), np.asarray(data.sampling_variance), s2, np.asarray(data.X))
        here = losses.Neighbours(data, s2).here()
        for got, want in ((here.mean, mean), (here.variance, np.diag(S)), (here.mean, posterior.mean),
                          (here.variance, posterior.variance)):  # fmt: skip
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_log_densities_are_the_dense_ones() -> None:
    data, _, posterior, _ = problem()
    mean, S = oracle.posterior(np.asarray(data.y), np.asarray(data.sampling_variance), 0.4, np.asarray(data.X))
    theta = draws(posterior, key=KEY, num_draws=4)
    here = losses.Neighbours(data, 0.4).here()
    np.testing.assert_allclose(
        losses.log_density_correlated(theta, here), oracle.log_density(np.asarray(theta), mean, S), rtol=1e-12
    )
    np.testing.assert_allclose(
        losses.log_density_independent(theta, here),
        oracle.log_density(np.asarray(theta), mean, np.diag(np.diag(S))),
        rtol=1e-12,
    )
    weights = np.array([[1.0] * 6 + [0.0] * 6, [0.0] * 6 + [1.0 / 6] * 6])
    for release, covariance in (("correlated", S), ("independent", np.diag(np.diag(S)))):
        np.testing.assert_allclose(
            losses.log_density_linear(theta @ weights.T, jnp.asarray(weights), here, release),
            oracle.log_density(np.asarray(theta) @ weights.T, weights @ mean, weights @ covariance @ weights.T),
            rtol=1e-12,
        )


@pytest.mark.parametrize("s2", [0.4, 0.0])
def test_the_loss_of_a_correlated_draw_is_what_bayes_rule_says(s2: float) -> None:
    data, _, posterior, _ = problem(model_variance=s2)
    theta = draws(posterior, key=KEY, num_draws=6)
    pair = losses.Neighbours(data, s2)
    got = losses.loss(losses.log_density_correlated, theta, pair.here(), pair.with_change(3, 0.25))
    np.testing.assert_allclose(got, loss_by_bayes(data, s2, theta, 3, 0.25), rtol=1e-9, atol=1e-12)
    # So the loss does not change when the other areas of the draw do.
    if s2 > 0.0:
        other = theta.at[:, jnp.array([0, 7])].add(1.0)
        moved = losses.loss(losses.log_density_correlated, other, pair.here(), pair.with_change(3, 0.25))
        np.testing.assert_allclose(moved, got, rtol=1e-9, atol=1e-12)


def test_the_mean_loss_is_rho_for_every_kind_of_release() -> None:
    """E L = shift' S^-1 shift / 2, exactly: the loss at the posterior mean, by area and jointly."""
    data, _, _, claim = problem()
    pair = losses.Neighbours(data, 0.4)
    here = pair.here()
    partner = np.asarray(claim.attained_by)
    change = np.asarray(claim.sensitivity)[partner]
    areas = losses.loss(losses.log_density_areas, here.mean, here, pair.each_with_its_own_change(partner, change))
    np.testing.assert_allclose(areas, claim.per_area_rho, rtol=1e-9)
    for density, release in (
        (losses.log_density_independent, claim.joint_independent),
        (losses.log_density_correlated, claim.joint_correlated),
    ):
        k = int(release.worst_area)
        joint = losses.loss(density, here.mean, here, pair.with_change(k, float(claim.sensitivity[k])))
        np.testing.assert_allclose(joint, release.rho, rtol=1e-9)


def test_a_sampling_variance_of_zero_is_refused_by_name() -> None:
    data = area_data([1.0, 2.0, 3.0, 4.0], [0.5, 0.0, 0.5, 0.5], labels=["a", "b", "c", "d"],
                     allow_zero_variance=True)  # fmt: skip
    with pytest.raises(InputError, match="'b'"):
        losses.Neighbours(data, 1.0)
