"""A check passes what is true and refutes every planted fault (200 seeds: experiments/plrv_controls.py)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plrv.plrv_problems import problem

from fhjax.errors import InputError
from fhjax.plrv import faults
from fhjax.plrv.check import check
from fhjax.plrv.streaming import chunk_rows, stream_kernel

DRAWS = 20_000


@pytest.fixture(scope="module")
def true_result():
    data, fitted, _, claim = problem()
    return check(data, fitted, claim, key=jax.random.key(11), num_draws=DRAWS)


def names(result) -> str:
    return " | ".join(finding.name for finding in result.reasons)


def test_the_packages_own_draws_pass(true_result) -> None:
    assert not true_result.refuted, true_result.reasons
    assert len(true_result.findings) > 30
    assert [each.name for each in true_result.passes] == [
        "independent, D to D'", "independent, D' to D", "areas, D' to D", "correlated, D to D'", "correlated, D' to D",
    ]  # fmt: skip
    for each in true_result.passes:
        assert int(each.summary.joint_loss.count) == DRAWS
        assert np.asarray(each.summary.areas.histogram).sum(axis=1).tolist() == [DRAWS] * len(each.summary.areas.total)


def test_equal_data_sets_cost_nothing_and_pass() -> None:
    """D = D': a sensitivity of 0 everywhere."""
    data, fitted, _, claim = problem()
    zero = jnp.zeros(data.num_areas)
    same = dataclasses.replace(
        claim, per_area_rho=zero, sensitivity=zero,
        joint_independent=dataclasses.replace(claim.joint_independent, rho=jnp.asarray(0.0)),
        joint_correlated=dataclasses.replace(claim.joint_correlated, rho=jnp.asarray(0.0)),
    )  # fmt: skip
    result = check(data, fitted, same, key=jax.random.key(12), num_draws=DRAWS)
    assert not result.refuted
    assert not result.live.any()
    for each in result.passes:
        loss = each.summary.joint_loss
        assert int(loss.exceed.sum()) == 0
        np.testing.assert_allclose(loss.renyi_sum, DRAWS, rtol=1e-9)


@pytest.mark.parametrize(
    ("sampler", "release", "reason"),
    [
        (faults.sd_too_small, "independent", "variance of all areas together"),
        (faults.one_key_for_all, "independent", "covariance between areas"),
        (faults.single_precision, "independent", "repeated values"),
        (faults.the_other_release, "independent", "covariance between areas"),
        (faults.the_other_release, "correlated", "covariance between areas"),
        (faults.without_coefficient_part, "independent", "variance of all areas together"),
        (faults.no_noise, "independent", "variance"),
    ],
)
def test_planted_faults_in_the_sampler_are_caught(sampler, release: str, reason: str) -> None:
    data, fitted, _, claim = problem()
    result = check(data, fitted, claim, key=jax.random.key(13), num_draws=DRAWS, sampler=sampler,
                   independent=release == "independent", correlated=release == "correlated")  # fmt: skip
    assert result.refuted
    assert reason in names(result)


def test_a_wrong_coefficient_is_caught() -> None:
    """A claim made with c_ii = 1 - B_i, without what the area's own data do to the regression."""
    data, fitted, posterior, claim = problem()
    forgotten = 1.0 - np.asarray(posterior.shrinkage)
    effect = forgotten * np.asarray(claim.sensitivity)
    wrong = dataclasses.replace(claim, per_area_rho=jnp.asarray(effect**2 / (2 * np.asarray(posterior.variance))))
    result = check(data, fitted, wrong, key=jax.random.key(14), num_draws=DRAWS, correlated=False)
    assert result.refuted
    assert "areas, D to D': variance" in names(result)
    assert "mean" in names(result)


def test_memory_does_not_grow_with_the_number_of_draws() -> None:
    """10^9 draws compile to a loop whose temporaries are those of one chunk, far below 2 GiB."""
    data, fitted, _, claim = problem()
    seen = {}

    def spy(summarise, arguments, num_draws, width, values):
        seen.update(chunk=summarise, arguments=arguments)
        raise KeyboardInterrupt

    import fhjax.plrv.check as module

    original, module.stream = module.stream, spy
    try:
        with pytest.raises(KeyboardInterrupt):
            check(data, fitted, claim, key=jax.random.key(1), num_draws=1000)
    finally:
        module.stream = original
    rows = chunk_rows(10**9 // 12, 12)
    memory = (
        stream_kernel.lower(seen["chunk"], seen["arguments"], rows, 10**9 // 12 // rows).compile().memory_analysis()
    )
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 2**28


def test_the_size_of_a_chunk_changes_no_number(true_result) -> None:
    data, fitted, _, claim = problem()
    other = check(data, fitted, claim, key=jax.random.key(11), num_draws=DRAWS, correlated=False, tails=False,
                  chunk_values=12 * 3000)  # fmt: skip
    for one, two in zip(true_result.passes[:3], other.passes, strict=True):
        np.testing.assert_array_equal(one.summary.areas.histogram, two.summary.areas.histogram)
        np.testing.assert_allclose(one.summary.areas.square_total, two.summary.areas.square_total, rtol=1e-12)
        np.testing.assert_allclose(one.summary.joint_loss.renyi_sum, two.summary.joint_loss.renyi_sum, rtol=1e-12)


def test_refusals() -> None:
    data, fitted, _, claim = problem()
    with pytest.raises(InputError, match="at least 1,000"):
        check(data, fitted, claim, key=jax.random.key(1), num_draws=10)
    infinite = dataclasses.replace(claim, per_area_rho=claim.per_area_rho.at[0].set(jnp.inf))
    with pytest.raises(InputError, match="infinite"):
        check(data, fitted, infinite, key=jax.random.key(1))
