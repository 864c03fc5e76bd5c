"""The risk to a person: against the normal distribution in many digits, its own identities, and simulated attacks."""

import mpmath as mp
import numpy as np
import pytest
from oracles import conversion_oracle as oracle
from scipy.stats import norm

from fhjax.errors import InputError
from fhjax.privacy.conversion import delta_exact, epsilon_exact, epsilon_simple
from fhjax.privacy.tradeoff import (
    best_guess_probability,
    gaussian_mu,
    largest_posterior,
    membership_advantage,
    personal_risk,
    privacy_loss_quantile,
    trade_off_curve,
)
from fhjax.records import ReleaseGuarantee

RHOS = np.array([0, 1e-310, 1e-30, 1e-6, 0.048, 1.51, 195.0, 1e10, 1e300, 1.7e308, np.inf])


def not_a_pair(rho):
    return ReleaseGuarantee(
        rho=np.float64(rho), worst_area=-1, release="a rounded draw", neighbours="", assumptions=(), gaussian_pair=False
    )


def test_advantage_and_best_guess_are_normal_probabilities():
    with mp.workdps(40):
        for rho in (1e-12, 1e-4, 0.048, 1.51, 17.8):
            half = mp.sqrt(2 * mp.mpf(rho)) / 2
            advantage = 2 * oracle.normal_cdf(half) - 1
            assert float(membership_advantage(rho)) == pytest.approx(float(advantage), rel=1e-14)
            assert float(best_guess_probability(rho)) == pytest.approx(float(oracle.normal_cdf(half)), rel=1e-14)
    # the advantage is the delta at epsilon 0, by another route
    rho = np.array([1e-8, 0.3, 2.0, 40.0])
    np.testing.assert_allclose(membership_advantage(rho), delta_exact(rho, 0.0), rtol=1e-12)
    np.testing.assert_allclose(best_guess_probability(rho), (1 + membership_advantage(rho)) / 2, rtol=1e-14)


def test_best_guess_from_any_prior_is_the_best_threshold():
    rng = np.random.default_rng(1)
    threshold = np.linspace(-10, 10, 40001)
    for _ in range(20):
        rho, prior = rng.uniform(0.01, 4), rng.uniform(0.02, 0.98)
        mu = np.sqrt(2 * rho)
        # guess "moved" above the threshold
        right = prior * norm.sf(threshold - mu) + (1 - prior) * norm.cdf(threshold)
        ours = float(best_guess_probability(rho, prior=prior))
        assert right.max() <= ours + 1e-12
        assert ours == pytest.approx(max(right.max(), prior, 1 - prior), abs=1e-6)


def test_trade_off_curve_is_symmetric_convex_and_touches_the_exact_epsilon():
    alpha = np.linspace(0, 1, 201)
    for rho in (0.01, 0.5, 3.0):
        beta = np.asarray(trade_off_curve(rho, alpha))
        assert beta[0] == 1
        assert beta[-1] == 0
        assert (np.diff(beta) <= 0).all()
        assert (np.diff(beta, 2) >= -1e-12).all()
        inner = np.asarray(trade_off_curve(rho, beta[1:-1]))
        np.testing.assert_allclose(inner, alpha[1:-1], rtol=1e-9)
        for delta in (1e-3, 1e-8):
            line = 1 - delta - np.exp(float(epsilon_exact(rho, delta))) * alpha
            assert (beta >= line - 1e-12).all()
        assert 1 - (alpha + beta).min() == pytest.approx(float(membership_advantage(rho)), rel=1e-3)


def test_posterior_bound_is_exceeded_with_probability_delta():
    rng = np.random.default_rng(7)
    rho, delta, prior = 0.7, 0.02, 0.3
    mu = np.sqrt(2 * rho)
    seen = rng.normal(mu, 1, 400_000)  # the truth is the moved law
    odds = prior / (1 - prior) * np.exp(mu * seen - mu**2 / 2)
    bound = float(largest_posterior(rho, delta, prior=prior))
    exceeded = np.mean(odds / (1 + odds) > bound)
    assert exceeded == pytest.approx(delta, abs=5 * np.sqrt(delta / 400_000))


def test_the_exact_epsilon_would_not_bound_the_posterior():
    """Why the posterior uses the loss's quantile: the loss exceeds the exact epsilon more often than delta."""
    rho, delta = 0.7, 1e-3
    exact = float(epsilon_exact(rho, delta))
    assert norm.sf((exact - rho) / np.sqrt(2 * rho)) > 3 * delta
    quantile = float(privacy_loss_quantile(rho, delta))
    assert norm.sf((quantile - rho) / np.sqrt(2 * rho)) == pytest.approx(delta, rel=1e-10)
    assert exact < quantile < float(epsilon_simple(rho, delta))


def test_any_zcdp_release_gets_wider_bounds():
    for rho in (1e-6, 0.048, 1.51, 30.0):
        release = not_a_pair(rho)
        wide, exact = personal_risk(release, 1e-5), personal_risk(rho, 1e-5)
        assert not wide.gaussian_pair
        assert exact.gaussian_pair
        assert float(wide.advantage) >= float(exact.advantage)
        assert float(wide.best_guess) >= float(exact.best_guess)
        assert float(wide.largest_posterior) >= float(exact.largest_posterior)
        assert float(privacy_loss_quantile(release, 1e-5)) == float(epsilon_simple(rho, 1e-5))
    # randomised response with log odds e has advantage tanh(e/2) and divergence e tanh(e/2) at order 1: no smaller rho
    e = np.linspace(0.01, 8, 200)
    rho = e * np.tanh(e / 2)
    assert (np.asarray(membership_advantage(rho, gaussian_pair=False)) >= np.tanh(e / 2) - 1e-12).all()
    with pytest.raises(InputError, match="a rounded draw"):
        membership_advantage(not_a_pair(1.0), gaussian_pair=True)
    with pytest.raises(InputError, match="a rounded draw"):
        trade_off_curve(not_a_pair(1.0), 0.05)


def test_ends_and_no_nan():
    for pair in (True, False):
        advantage = np.asarray(membership_advantage(RHOS, gaussian_pair=pair))
        assert (np.diff(advantage) >= 0).all()
        assert advantage[0] == 0
        assert advantage[-1] == 1
        for prior in (1e-9, 0.3, 0.5, 1 - 1e-9):
            guess = np.asarray(best_guess_probability(RHOS, prior=prior, gaussian_pair=pair))
            assert (np.diff(guess) >= -1e-15).all()
            assert guess[0] == max(prior, 1 - prior)
            assert guess[-1] == 1
            for delta in (0.0, 1e-300, 1e-5, 0.4):
                posterior = np.asarray(largest_posterior(RHOS, delta, prior=prior, gaussian_pair=pair))
                assert not np.isnan(posterior).any()
                assert (np.diff(posterior) >= 0).all()
                assert posterior[0] == pytest.approx(prior, rel=1e-12)
                assert posterior[-1] == 1
    assert not np.isnan(np.asarray(trade_off_curve(RHOS[:, None], np.array([0, 1e-300, 0.5, 1 - 1e-16, 1])))).any()
    assert (np.asarray(trade_off_curve(np.inf, np.array([0, 0.5, 1]))) == 0).all()
    np.testing.assert_allclose(gaussian_mu(RHOS[2:-2]), np.sqrt(2 * RHOS[2:-2]), rtol=1e-15)


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, np.nan])
def test_priors_that_leave_nothing_to_learn_are_refused(prior):
    with pytest.raises(InputError, match="prior"):
        best_guess_probability(1.0, prior=prior)
    with pytest.raises(InputError, match="prior"):
        largest_posterior(1.0, 1e-5, prior=prior)
