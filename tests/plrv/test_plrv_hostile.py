"""Draws that are none, or not what they seem: refused or refuted, and a false alarm is put to the test once more."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from plrv.plrv_problems import problem

import fhjax
from fhjax.cli.main import main
from fhjax.errors import InputError
from fhjax.release.draws import draw_kernel

S2 = 0.4


def drawn(num_draws: int, seed: int = 3) -> np.ndarray:
    *_, posterior, _ = problem()
    return np.asarray(fhjax.draws(posterior, key=jax.random.key(seed), num_draws=num_draws))


def audited(theta, **options):
    data, _, _, claim = problem()
    return fhjax.audit(theta, data, S2, claim, **options)


@pytest.mark.parametrize("theta", [np.empty((0, 12)), np.empty(0), []])
def test_no_draws_are_refused(theta) -> None:
    with pytest.raises(InputError, match="no draws to audit"):
        audited(theta)


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_a_draw_that_is_no_number_names_its_area(hole: float) -> None:
    theta = drawn(20).copy()
    theta[3, 7] = hole
    with pytest.raises(InputError, match="1 area has a missing or infinite draw: '7'"):
        audited(theta)
    with pytest.raises(InputError, match="mask"):
        audited(np.ma.masked_invalid(theta))


def test_a_sampler_with_holes_is_refused_with_their_number() -> None:
    data, fitted, _, claim = problem()

    def holes(posterior, key, which, release):
        return draw_kernel(posterior, key, which, release).at[::500, 2].set(jnp.nan)

    with pytest.raises(InputError, match=r"returned \d[\d,]* values that are missing or infinite"):
        fhjax.check(data, fitted, claim, key=jax.random.key(1), num_draws=2000, sampler=holes, tails=False)


def test_a_sampler_of_the_wrong_shape_is_refused() -> None:
    data, fitted, _, claim = problem()

    def short(posterior, key, which, release):
        return draw_kernel(posterior, key, which, release)[:, :-1]

    with pytest.raises(InputError, match="returned draws of shape"):
        fhjax.check(data, fitted, claim, key=jax.random.key(1), num_draws=2000, sampler=short, tails=False)


def test_the_direct_estimates_handed_in_as_draws_are_refuted() -> None:
    y = np.asarray(problem()[0].y)
    for theta in (y[None], np.tile(y, (5, 1))):
        result = audited(theta)
        assert result.refuted
        assert any("direct estimates" in reason.name for reason in result.reasons)


def test_draws_around_the_direct_estimates_are_refuted() -> None:
    data, _, posterior, _ = problem()
    toward = drawn(200) + 0.5 * (np.asarray(data.y) - np.asarray(posterior.mean))
    assert audited(toward).refuted


@pytest.mark.parametrize("kind", ["antithetic", "stratified", "shifted grid"])
def test_draws_that_depend_on_one_another_negatively_are_refuted(kind: str) -> None:
    _, _, posterior, _ = problem()
    mean, theta = np.asarray(posterior.mean), drawn(200)
    if kind == "antithetic":
        theta = np.concatenate([theta, 2.0 * mean - theta])[np.argsort(np.tile(np.arange(200), 2), kind="stable")]
    elif kind == "stratified":
        theta = theta - theta.mean(axis=0) + mean
    else:  # quasi-random: every area's values are the quantiles, shuffled
        rng = np.random.default_rng(2)
        from scipy import stats

        grid = stats.norm.ppf((np.arange(200) + 0.5) / 200)
        sd = np.sqrt(np.asarray(posterior.variance))
        theta = mean + np.stack([rng.permutation(grid) for _ in mean], axis=1) * sd
    result = audited(theta)
    assert result.refuted, result.findings


def test_independent_draws_of_every_number_pass() -> None:
    for n in (1, 2, 40, 400):
        assert not audited(drawn(n, seed=n)).refuted


def test_rho_of_one_draw_and_of_all_are_both_printed(tmp_path, capsys) -> None:
    data, _, _, claim = problem()
    areas, draws = tmp_path / "areas.csv", tmp_path / "draws.csv"
    names = [f"a{i:02d}" for i in range(12)]
    table = pd.DataFrame({"area": names, "y": np.asarray(data.y),
                          "sampling_variance": np.asarray(data.sampling_variance),
                          "sensitivity": np.asarray(claim.sensitivity), "x": np.asarray(data.X)[:, 1]})  # fmt: skip
    table.to_csv(areas, index=False, float_format="%.17g")
    pd.DataFrame(drawn(7), columns=names).to_csv(draws, index=False, float_format="%.17g")
    options = ["--model-variance", str(S2), "--covariates", str(areas), "--x", "x"]
    assert main(["audit", str(draws), "--area-level", str(areas), *options]) == 0
    said = capsys.readouterr().out
    one = float(claim.joint_correlated.rho)
    assert "one draw" in said
    assert "7 draws" in said
    assert f"{7 * one:.4g}"[:4] in said


def test_an_unlucky_run_is_repeated_once_with_a_fresh_stream_and_more_draws() -> None:
    data, fitted, _, claim = problem()
    cleared = 0
    for seed in range(6):
        # At this level every other true claim is refuted by one run.
        result = fhjax.check(data, fitted, claim, key=jax.random.key(seed), num_draws=1000, level=0.5, tails=False)
        assert bool(result.first_reasons) == (result.num_draws == 4000)
        cleared += bool(result.first_reasons) and not result.refuted
    assert cleared > 0


def test_a_plain_fault_is_not_repeated() -> None:
    data, fitted, _, claim = problem()

    def narrow(posterior, key, which, release):
        return posterior.mean + 0.8 * (draw_kernel(posterior, key, which, release) - posterior.mean)

    result = fhjax.check(data, fitted, claim, key=jax.random.key(1), num_draws=2000, sampler=narrow, tails=False)
    assert result.refuted
    assert not result.first_reasons
    assert result.num_draws == 2000
