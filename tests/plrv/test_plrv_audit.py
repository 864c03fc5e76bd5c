"""Audits of draws by independent NumPy samplers: true ones pass, faulty ones do not, few draws are called few."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from oracles import plrv_oracle as oracle
from plrv.plrv_problems import problem

from fhjax.cli.main import main
from fhjax.errors import InputError
from fhjax.plrv import mcmc
from fhjax.plrv.audit import audit, smallest_visible_error

S2 = 0.4


@pytest.fixture(scope="module")
def case():
    data, _, _, claim = problem(m=12)
    mean, S = oracle.posterior(np.asarray(data.y), np.asarray(data.sampling_variance), S2, np.asarray(data.X))
    return data, claim, mean, S


def sample(mean, S, n, seed, structure="correlated", scale=1.0):
    """Plain NumPy: a dense Cholesky factor, nothing of the package."""
    z = np.random.default_rng(seed).normal(size=(n, len(mean)))
    root = np.linalg.cholesky(S) if structure == "correlated" else np.diag(np.sqrt(np.diag(S)))
    return mean + scale * z @ root.T


@pytest.mark.parametrize("structure", ["correlated", "independent"])
def test_draws_of_an_independent_sampler_pass_and_their_structure_is_found(case, structure: str) -> None:
    data, claim, mean, S = case
    result = audit(sample(mean, S, 20_000, 1, structure), data, S2, claim)
    assert not result.refuted, result.reasons
    assert result.structure == structure
    assert not result.autocorrelated
    low, high = result.rho_compatible[f"joint {structure}"]
    assert low < result.rho_claimed[f"joint {structure}"] < high
    said = audit(sample(mean, S, 20_000, 1, structure), data, S2, claim, release=structure)
    assert not said.refuted


def test_true_draws_are_refuted_no_more_often_than_the_level(case) -> None:
    data, claim, mean, S = case
    refuted = sum(audit(sample(mean, S, 500, seed), data, S2, claim, level=0.05).refuted for seed in range(60))
    assert refuted <= 9  # a binomial of 60 and 0.05 exceeds this with probability 1e-3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda mean, S: sample(mean, S, 50_000, 2, scale=0.98), "variance"),
        (lambda mean, S: sample(mean + 0.05 * np.sqrt(np.diag(S)), S, 20_000, 3), "mean"),
        (lambda mean, S: np.tile(mean, (1000, 1)), "variance"),
        (lambda mean, S: mean + np.random.default_rng(4).normal(size=(5000, 1)) * np.sqrt(np.diag(S)), "covariance"),
        (
            lambda mean, S: mean + np.random.default_rng(5).laplace(size=(5000, 12)) * np.sqrt(np.diag(S) / 2),
            "Anderson",
        ),
        (lambda mean, S: np.repeat(sample(mean, S, 500, 6)[None], 4, axis=0).reshape(-1, 12), "repeated"),
    ],
    ids=["sd 2 % too small", "mean", "no noise", "one key", "Laplace noise", "the same draws again"],
)
def test_faulty_samplers_are_refused(case, fault, reason: str) -> None:
    data, claim, mean, S = case
    result = audit(fault(mean, S), data, S2, claim)
    assert result.refuted
    assert any(reason in finding.name for finding in result.reasons)


def test_the_other_structure_is_refused_when_one_is_said(case) -> None:
    data, claim, mean, S = case
    for drawn, said in (("independent", "correlated"), ("correlated", "independent")):
        result = audit(sample(mean, S, 20_000, 7, drawn), data, S2, claim, release=said)
        assert result.refuted
        assert "covariance" in result.reasons[0].name


def chain(mean, S, n, seed, phi, scale=1.0):
    """An autoregressive chain whose stationary law is the posterior."""
    rng = np.random.default_rng(seed)
    z = np.empty((n, len(mean)))
    z[0] = rng.normal(size=len(mean))
    for t in range(1, n):
        z[t] = phi * z[t - 1] + np.sqrt(1 - phi**2) * rng.normal(size=len(mean))
    return mean + scale * z @ np.linalg.cholesky(S).T


def test_markov_chains_are_judged_by_their_effective_size(case) -> None:
    data, claim, mean, S = case
    refuted = 0
    for seed in range(6):
        result = audit(chain(mean, S, 4000, seed, 0.8), data, S2, claim)
        refuted += result.refuted
        assert result.autocorrelated
        assert 200 < np.median(result.effective_draws) < 800  # 4000 (1 - .8) / (1 + .8) = 444
    assert refuted == 0
    # Taken as independent the same draws would be refused: 9 times too small a standard error.
    assert audit(chain(mean, S, 4000, 9, 0.8, scale=0.8), data, S2, claim).refuted


def test_effective_sample_size_of_a_known_chain() -> None:
    rng = np.random.default_rng(8)
    for phi in (0.0, 0.5, 0.9):
        z = np.zeros((20_000, 3))
        for t in range(1, len(z)):
            z[t] = phi * z[t - 1] + rng.normal(size=3)
        want = len(z) * (1 - phi) / (1 + phi)
        assert np.abs(mcmc.effective_sample_size(z) / want - 1).max() < 0.25
    assert mcmc.effective_sample_size(np.ones((100, 1)))[0] >= 1.0


@pytest.mark.parametrize("n", [1, 2, 8, 40])
def test_few_draws_say_what_they_could_not_show(case, n: int) -> None:
    data, claim, mean, S = case
    result = audit(sample(mean, S, n, 10), data, S2, claim)
    assert not result.refuted
    text = " ".join(result.unseen)
    assert "little power" in text
    assert "autocorrelation cannot be estimated" in text
    for low, high in result.rho_compatible.values():
        assert 0.0 <= low < high
        assert np.isfinite(high)
    # The posterior mean itself is caught even in a single row.
    assert audit(np.tile(mean, (n, 1)), data, S2, claim).refuted


def test_rounded_and_single_precision_files_may_repeat_values(case) -> None:
    data, claim, mean, S = case
    theta = sample(mean, S, 5000, 11)
    for stored in (np.round(theta, 3), theta.astype(np.float32)):
        result = audit(stored, data, S2, claim)
        assert not result.refuted, result.reasons
    assert "repeats" in next(finding for finding in result.findings if finding.name == "repeated values").detail


def test_the_smallest_visible_error() -> None:
    assert 0.0085 < smallest_visible_error(100_000, 0.01) < 0.0088
    assert smallest_visible_error(2, 1e-6) > 0.9


def test_a_model_variance_of_zero() -> None:
    data, _, _, claim = problem(m=12, model_variance=0.0)
    mean, S = oracle.posterior(np.asarray(data.y), np.asarray(data.sampling_variance), 0.0, np.asarray(data.X))
    values, vectors = np.linalg.eigh(S)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    theta = mean + np.random.default_rng(12).normal(size=(5000, 12)) @ root.T
    X = np.asarray(data.X)
    theta = np.linalg.lstsq(X, theta.T, rcond=None)[0].T @ X.T
    result = audit(theta, data, 0.0, claim)
    assert not result.refuted, result.reasons
    assert result.structure == "correlated"


def test_refusals(case) -> None:
    data, claim, mean, S = case
    with pytest.raises(InputError, match="12 areas"):
        audit(np.zeros((5, 3)), data, S2, claim)
    theta = sample(mean, S, 5, 1)
    theta[2, 4] = np.nan
    named = dataclasses.replace(data)
    with pytest.raises(InputError, match="missing or infinite"):
        audit(theta, named, S2, claim)
    with pytest.raises(InputError, match="both"):
        audit(sample(mean, S, 5, 1), data, S2, claim, release="both")


def write_files(tmp_path, data, claim, theta, names=None):
    labels = [f"{i:03d}" for i in range(len(data.y))]
    rows = zip(labels, np.asarray(data.y), np.asarray(data.sampling_variance), np.asarray(claim.sensitivity),
               np.asarray(data.X)[:, 1], strict=True)  # fmt: skip
    table = "area,y,sampling_variance,sensitivity,x1\n" + "".join(
        f"{a},{float(y)!r},{float(v)!r},{float(s)!r},{float(x)!r}\n" for a, y, v, s, x in rows
    )
    areas, draws = tmp_path / "areas.csv", tmp_path / "draws.csv"
    areas.write_text(table, encoding="utf-8")
    order = np.random.default_rng(1).permutation(len(labels))  # columns in another order than the rows
    names = [labels[i] for i in order] if names is None else names
    lines = [",".join(names)] + [",".join(repr(float(x)) for x in row[order]) for row in theta]
    draws.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [
        str(draws),
        "--area-level",
        str(areas),
        "--model-variance",
        str(S2),
        "--covariates",
        str(areas),
        "--x",
        "x1",
    ]


def test_through_the_command_line(case, tmp_path, capsys) -> None:
    data, claim, mean, S = case
    out = tmp_path / "audit.json"
    good = write_files(tmp_path, data, claim, sample(mean, S, 2000, 13))
    assert main(["audit", *good, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    for word in (
        "Not refuted",
        "effective" if "autocorrelated" in text else "2,000 draws",
        "rho, largest area",
        "Not seen",
    ):
        assert word in text
    found = json.loads(out.read_text())
    assert found["refuted"] is False
    assert len(found["areas"]) == 12
    bad = write_files(tmp_path, data, claim, sample(mean, S, 2000, 13, scale=0.9))
    assert main(["audit", *bad, "--out", str(out)]) == 1
    assert "REFUTED" in capsys.readouterr().out
    assert json.loads(out.read_text())["reasons"]
    stranger = write_files(tmp_path, data, claim, sample(mean, S, 20, 13), names=[f"{i:03d}" for i in range(1, 13)])
    assert main(["audit", *stranger]) == 2
    assert "012" in capsys.readouterr().err
