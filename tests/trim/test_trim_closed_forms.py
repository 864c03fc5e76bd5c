"""Caps with the variances held fixed: the three-area oracle of the derivation, random problems against dense code."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import trim_oracle
from oracles.closed_form_caps import frozen_caps, frozen_terms, shares_under, smallest_rho, thresholds_of_multiple

from fhjax.caps.closed_forms import admissible_shares
from fhjax.caps.shares import realised_shares, sorted_sizes
from fhjax.errors import InputError

WEIGHTS = np.r_[10, np.ones(39), 30, 20, 10, np.full(57, 2.0), np.ones(100)]
AREA = np.r_[np.zeros(40), np.ones(60), np.full(100, 2)].astype(int)
PSI, MODEL, X = np.array([0.004, 0.003, 0.0025]), 0.001, np.ones((3, 1))
SIZES = sorted_sizes(WEIGHTS, AREA)


def deff(w):
    return len(w) * np.sum(w**2) / np.sum(w) ** 2


def trimmed_by(thresholds):
    return np.minimum(WEIGHTS, thresholds[AREA])


def test_before_trimming() -> None:
    t = realised_shares(WEIGHTS, AREA)
    np.testing.assert_allclose(frozen_terms(PSI, MODEL, X, t), [2.17345, 2.50126, 0.0112621], rtol=5e-6)
    assert frozen_terms(PSI, MODEL, X, t, joint="independent").max() == pytest.approx(3.78101, rel=3e-6)
    assert [round(deff(WEIGHTS[k == AREA]), 3) for k in range(3)] == [2.316, 3.226, 1.0]


@pytest.mark.parametrize(
    ("joint", "caps"), [("correlated", [1.245760, 2.998222]), ("independent", [1.004525, 2.403200])]
)
def test_a_cap_for_each_area(joint, caps) -> None:
    shares = admissible_shares(PSI, MODEL, X, 0.05, joint=joint)
    result = frozen_caps(SIZES, shares)
    np.testing.assert_allclose(result.threshold[:2], caps, rtol=5e-7)
    assert np.isinf(result.threshold[2])
    w = trimmed_by(result.threshold)
    terms = trim_oracle.rho_terms(PSI, MODEL, X, realised_shares(w, AREA), joint)
    np.testing.assert_allclose(terms[:2], 0.05, rtol=1e-10)
    assert terms[2] < 0.05
    assert [int(np.sum(w[k == AREA] < WEIGHTS[k == AREA])) for k in range(3)] == [1, 3, 0]
    if joint == "correlated":
        assert [round(deff(w[k == AREA]), 4) for k in range(2)] == [1.0015, 1.0113]


def test_one_multiple_of_the_mean() -> None:
    result = frozen_caps(SIZES, admissible_shares(PSI, MODEL, X, 0.05), mode="mean")
    assert result.multiple == pytest.approx(1.238153, rel=5e-7)
    w = trimmed_by(result.threshold)
    for k in range(2):  # the cap is that multiple of the mean of the trimmed weights
        assert result.threshold[k] == pytest.approx(result.multiple * w[k == AREA].mean(), rel=1e-12)
    assert trim_oracle.rho_terms(PSI, MODEL, X, realised_shares(w, AREA)).max() == pytest.approx(0.05, rel=1e-10)
    # With the mean of the original weights in its place the realised share is larger than meant.
    naive = np.minimum(WEIGHTS[AREA == 0], result.multiple * WEIGHTS[AREA == 0].mean())
    assert realised_shares(naive)[0] == pytest.approx(0.0374, abs=5e-5)
    assert realised_shares(w, AREA)[0] == pytest.approx(0.0310, abs=5e-5)


@pytest.mark.parametrize("mode", ["mean", "median", "absolute"])
@pytest.mark.parametrize("total_kept", [False, True])
def test_one_number_is_the_largest_that_meets_the_target(mode, total_kept) -> None:

    result = frozen_caps(SIZES, admissible_shares(PSI, MODEL, X, 0.05), mode=mode, total_kept=total_kept)
    rho = frozen_terms(PSI, MODEL, X, shares_under(SIZES, result.threshold)).max()
    assert rho == pytest.approx(0.05, rel=1e-10)
    more = thresholds_of_multiple(SIZES, result.multiple * 1.001, mode=mode, total_kept=total_kept)
    assert frozen_terms(PSI, MODEL, X, shares_under(SIZES, more)).max() > 0.05


def test_infeasible_areas_are_named_with_the_rho_they_reach() -> None:
    shares = admissible_shares(PSI, MODEL, X, 0.005)
    result = frozen_caps(SIZES, shares)
    # sqrt(2 .005) psi / sigma = .0098, .0077, .0067: below 1/40, 1/60 and 1/100.
    assert result.infeasible.tolist() == [True, True, True]
    np.testing.assert_allclose(result.share, [1 / 40, 1 / 60, 1 / 100], rtol=1e-12)
    t = realised_shares(WEIGHTS, AREA)
    reach = smallest_rho(frozen_terms(PSI, MODEL, X, t), t, SIZES)
    np.testing.assert_allclose(reach, trim_oracle.rho_terms(PSI, MODEL, X, [1 / 40, 1 / 60, 1 / 100]), rtol=1e-10)


def random_problem(rng, m):
    area = np.repeat(np.arange(m), rng.integers(2, 40, m))
    w = np.exp(rng.normal(scale=rng.uniform(0.2, 1.2), size=len(area)))
    if rng.random() < 0.5:
        w = np.ceil(3 * w)
    psi, s2 = np.exp(rng.normal(-6, 1, m)), np.exp(rng.normal(-6, 1.5))
    p = int(rng.integers(1, min(3, m) + 1))
    return w, area, psi, s2, np.column_stack([np.ones(m), rng.normal(size=(m, p - 1))])


def test_random_problems_against_dense_code() -> None:
    rng = np.random.default_rng(11)
    for _ in range(100):
        m = int(rng.integers(2, 9))
        w, area, psi, s2, X = random_problem(rng, m)
        sizes = sorted_sizes(w, area)
        outcome_range = rng.uniform(0.5, 5.0)
        joint = rng.choice(["correlated", "independent"])
        t = realised_shares(w, area)
        rho = trim_oracle.rho_terms(psi, s2, X, outcome_range * t, joint).max()
        target = rho * rng.uniform(0.05, 1.2)
        shares = admissible_shares(psi, s2, X, target, outcome_range=outcome_range, joint=joint)
        result = frozen_caps(sizes, shares)
        realised = realised_shares(np.minimum(w, result.threshold[area]), area)
        terms = trim_oracle.rho_terms(psi, s2, X, outcome_range * realised, joint)
        for k in range(m):
            if result.infeasible[k]:
                assert realised[k] == pytest.approx(1 / np.sum(area == k), rel=1e-12)
                assert terms[k] > target
            elif np.isinf(result.threshold[k]):
                assert terms[k] <= target * (1 + 1e-10)
            else:
                assert terms[k] == pytest.approx(target, rel=1e-10)


def test_a_target_for_each_area_bounds_what_every_area_does_to_it() -> None:
    rng = np.random.default_rng(12)
    for _ in range(30):
        w, area, psi, s2, X = random_problem(rng, 6)
        before = trim_oracle.per_area_rho(psi, s2, X, realised_shares(w, area))
        target = before * rng.uniform(0.3, 1.0, 6)
        result = frozen_caps(sorted_sizes(w, area), admissible_shares(psi, s2, X, target))
        after = trim_oracle.per_area_rho(psi, s2, X, realised_shares(np.minimum(w, result.threshold[area]), area))
        if not result.infeasible.any():
            assert np.all(after <= target * (1 + 1e-10))


def test_a_common_target_per_area_is_the_correlated_joint() -> None:
    w, area, psi, s2, X = random_problem(np.random.default_rng(13), 5)
    common = admissible_shares(psi, s2, X, np.full(5, 0.02))
    np.testing.assert_allclose(common, admissible_shares(psi, s2, X, 0.02), rtol=1e-12)
    t = realised_shares(w, area)
    assert trim_oracle.per_area_rho(psi, s2, X, t).max() == pytest.approx(trim_oracle.rho_terms(psi, s2, X, t).max())


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InputError, match="target rho must be a positive"):
        admissible_shares(PSI, MODEL, X, 0.0)
    with pytest.raises(InputError, match=r"1 area has a sampling variance of 0|sampling variance of 0.*'1'"):
        admissible_shares([0.1, 0.0, 0.1], MODEL, X, 0.1)
    with pytest.raises(InputError, match="'correlated' or 'independent'"):
        admissible_shares(PSI, MODEL, X, 0.1, joint="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mode must be one of"):
        frozen_caps(SIZES, np.ones(3), mode="each")  # type: ignore[arg-type]
