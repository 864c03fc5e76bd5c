"""delta(epsilon), Rényi estimates and refutation, against 50-digit values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from oracles import plrv_oracle as oracle
from plrv.plrv_problems import problem
from scipy import stats

from fhjax.plrv import tail, theory
from fhjax.plrv.losses import Neighbours
from fhjax.plrv.streaming import summarise_losses


def losses_of(rho: float, n: int, seed: int) -> jax.Array:
    return rho + np.sqrt(2 * rho) * jnp.asarray(np.random.default_rng(seed).normal(size=n))


def test_delta_in_log_space_is_the_exact_one() -> None:
    cases = [(rho, eps) for rho in (1e-3, 0.048, 1.51, 17.8) for eps in (0.0, 0.1, 1.0, 5.0, 20.0)]
    got = theory.delta_of(*np.array(cases).T)
    want = np.array([oracle.gaussian_delta(*case) for case in cases])
    assert len(want) == 20
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=0.0)
    assert theory.delta_of(0.0, 1.0) == 0.0


def test_importance_sampling_reaches_far_into_the_tail() -> None:
    data, _, _, claim = problem()
    pair = Neighbours(data, 0.4)
    for release in ("correlated", "independent"):
        guarantee = getattr(claim, f"joint_{release}")
        rho, k = float(guarantee.rho), int(guarantee.worst_area)
        there = pair.with_change(k, float(claim.sensitivity[k]))
        epsilons = np.array([0.0, rho, rho + 4 * np.sqrt(2 * rho), rho + 12 * np.sqrt(2 * rho)])
        got = tail.tail_delta(pair.here(), there, epsilons, key=jax.random.key(1), num_draws=4000, release=release)
        want = theory.delta_of(rho, epsilons)
        assert want[-1] < 1e-30
        half = (got.high - got.low) / 2
        assert (np.abs(got.value - want) < 2 * half).all()  # 2 x 2.58 standard errors
        assert (half < 0.2 * want).all()


def test_plain_delta_and_its_interval() -> None:
    rho, n = 0.5, 50_000
    epsilons = np.array([0.0, 1.0, 3.0, 9.0])
    summary = summarise_losses(losses_of(rho, n, 1), jnp.asarray(rho), jnp.array([2.0]), jnp.asarray(epsilons))
    got = tail.delta_estimate(summary)
    want = theory.delta_of(rho, epsilons)
    assert (np.abs(got.value - want)[:3] < (got.high - got.low)[:3]).all()  # 5.2 standard errors
    assert got.low[-1] == 0.0
    assert 0.0 < got.high[-1] < 2e-4  # nothing seen is not zero


def test_renyi_estimates_say_which_orders_they_can_reach() -> None:
    rho, n = 1.51, 1_000_000
    orders = np.array([1.5, 2.0, 10.0])
    summary = summarise_losses(losses_of(rho, n, 2), jnp.asarray(rho), jnp.asarray(orders), jnp.array([0.0]))
    got, feasible = tail.renyi_estimate(summary, rho, orders)
    assert feasible.tolist() == [True, True, False]
    want = theory.renyi_of(rho, orders)
    assert (np.abs(got.value - want)[:2] < 0.02 * want[:2]).all()
    # The plug-in estimate at an infeasible order looks far safer than it is: 44 % too low or so.
    assert -0.6 < got.value[2] / want[2] - 1 < -0.3
    assert not theory.order_is_feasible(1.51, 10.0, 10**6)
    assert theory.order_is_feasible(0.048, 10.0, 10**6)


def test_clopper_pearson_covers() -> None:
    trials, p = 200, 0.03
    k = np.arange(trials + 1)
    weight = stats.binom.pmf(k, trials, p)
    assert weight[tail.clopper_pearson_lower(k, trials, 0.05) > p].sum() <= 0.05
    assert weight[tail.clopper_pearson_upper(k, trials, 0.05) < p].sum() <= 0.05
    assert tail.clopper_pearson_lower(0, trials, 0.05) == 0.0
    assert tail.clopper_pearson_upper(trials, trials, 0.05) == 1.0


def test_the_lower_bound_refutes_a_wrong_claim_and_spares_a_true_one() -> None:
    rho, n = 1.0, 100_000
    epsilons = np.array([0.0, 1.0, 2.0, 4.0])
    orders = jnp.array([2.0])
    one = summarise_losses(losses_of(rho, n, 3), jnp.asarray(rho), orders, jnp.asarray(epsilons))
    two = summarise_losses(losses_of(rho, n, 4), jnp.asarray(rho), orders, jnp.asarray(epsilons))
    bound = tail.delta_lower_bound(one.exceed, n, two.recede, n, epsilons, 1e-4)
    assert (bound <= theory.delta_of(rho, epsilons)).all()
    assert (bound > theory.delta_of(0.8 * rho, epsilons)).any()
