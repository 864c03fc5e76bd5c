"""The frontier's ends and points, noise in place of trimming, and the classical rules, against dense code."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import trim_oracle

from fhjax.caps.classical import classical_thresholds, compare_rules
from fhjax.caps.frontier import frontier, noise_competitor
from fhjax.caps.plan import trimming_problem
from fhjax.caps.shares import realised_shares, sorted_sizes
from fhjax.errors import InputError
from fhjax.survey.arrays import trimming_sums_from_arrays

M, N, R = 12, 30, 8
MULTIPLES = np.full(R, 0.5)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(2)
    area = np.repeat(np.arange(M), N)
    w = np.exp(rng.normal(scale=0.9, size=M * N))
    y = (rng.random(M * N) < np.clip(rng.normal(0.4, 0.15, M), 0.15, 0.85)[area]).astype(float)
    y[::N], y[1::N] = 0.0, 1.0
    replicates = w[:, None] * rng.choice([0.5, 1.5], (M * N, R))
    problem = trimming_problem(
        trimming_sums_from_arrays(area, w, y, replicates=replicates), replicate_multiples=MULTIPLES
    )
    return (w, y, area, replicates), problem


def refit(w, y, area, replicates, trimmed):
    factor = trimmed / w
    psi, estimates = np.empty(M), np.empty(M)
    for k in range(M):
        here = area == k
        estimates[k] = trim_oracle.estimate(trimmed[here], y[here])
        psi[k] = trim_oracle.replicate_variance(
            trimmed[here], replicates[here] * factor[here, None], y[here], MULTIPLES
        )
    s2 = trim_oracle.reml(estimates, psi, np.ones((M, 1)))
    return psi, s2, trim_oracle.rho_terms(psi, s2, np.ones((M, 1)), realised_shares(trimmed, area)).max()


def noise_by_hand(psi, s2, share, rho):
    """g1 + g2 + 2 g3 with the noisy variances, g3 by 2 / sum V^-2."""
    noisy = psi + share**2 / (2 * rho)
    _, Sigma, _ = trim_oracle.posterior(noisy, s2, np.ones((M, 1)))
    V = noisy + s2
    return np.mean(np.diag(Sigma) + 2 * noisy**2 / V**3 * 2 / np.sum(1 / V**2))


def test_points_and_ends(case) -> None:
    survey, problem = case
    before = float(problem.before.terms.max())
    points = frontier(problem, [0.6 * before, 0.3 * before, 1e-9])
    assert points.met.tolist() == [True, True, True, False, True]
    assert points.rho[1] <= 0.6 * before
    assert points.rho[2] <= 0.3 * before
    psi, s2, rho = refit(*survey, survey[0])
    assert points.rho[0] == pytest.approx(rho, rel=1e-6)
    assert points.rho[0] == pytest.approx(before, rel=1e-12)
    _, s2_equal, rho_equal = refit(*survey, np.ones(M * N))
    assert points.rho[-1] == pytest.approx(rho_equal, rel=1e-5)
    assert points.model_variance[-1] == pytest.approx(s2_equal, rel=1e-4, abs=1e-9)
    assert points.design_effect[-1] == pytest.approx(1.0)
    assert points.bias[0] == pytest.approx(0.0, abs=1e-12)
    share = realised_shares(survey[0], survey[2])
    for value, rho in zip(points.noise_mse[:3], points.rho[:3], strict=True):
        assert value == pytest.approx(noise_by_hand(psi, s2, share, rho), rel=1e-5)
    with pytest.raises(InputError, match="positive numbers"):
        frontier(problem, [0.0])


def test_noise_fades_as_rho_grows(case) -> None:
    _, problem = case
    values = noise_competitor(problem, [0.01, 0.1, 1.0, 1e12])
    assert np.all(np.diff(values) < 0)
    assert values[-1] == pytest.approx(float(problem.before.objective), rel=1e-6)


def test_classical_rules(case) -> None:
    survey, problem = case
    w, _, area, _ = survey
    thresholds = classical_thresholds(sorted_sizes(w, area))
    for k in range(M):
        here = w[area == k]
        low, middle, high = np.quantile(here, [0.25, 0.5, 0.75])
        for name, value in (
            ("3.5 x median", 3.5 * middle),
            ("3 x mean", 3 * here.mean()),
            ("median + 6 IQR", middle + 6 * (high - low)),
            ("Tukey: Q3 + 3 IQR", high + 3 * (high - low)),
        ):
            assert thresholds[name][k] == pytest.approx(value, rel=1e-12)
    results = {result.rule: result for result in compare_rules(problem)}
    assert len(results) == 7
    for name in ("3.5 x median", "5 x mean", "Potter MSE"):
        trimmed = np.minimum(w, results[name].threshold[area])
        assert results[name].rho == pytest.approx(refit(*survey, trimmed)[2], rel=1e-5)
        assert results[name].units_trimmed == pytest.approx(np.mean(trimmed < w * (1 - 1e-12)))
