"""The tests of fit: their level, their power, and how many are joined."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fhjax.plrv import fit_tests

BINS = np.concatenate([[-np.inf], fit_tests.EDGES, [np.inf]])


def test_weighted_chi_square_tail_is_the_known_one() -> None:
    x = np.array([0.5, 2.0, 6.0, 12.0, 19.0])  # six equal weights: a chi-square
    np.testing.assert_allclose(fit_tests.weighted_chi2_sf(x, np.ones(6)), stats.chi2.sf(x, 6), rtol=1e-4)
    assert fit_tests.weighted_chi2_sf(np.array([40.0]), np.array([1.0, 0.3]))[0] < 1e-8
    # Critical values of the Anderson-Darling limit law (Stephens 1974; Marsaglia and Marsaglia 2004).
    eigenvalues = fit_tests._anderson_darling_constants()[2]
    np.testing.assert_allclose(
        fit_tests.weighted_chi2_sf(np.array([1.933, 2.492, 3.857]), eigenvalues), [0.10, 0.05, 0.0103], rtol=0.01
    )


def test_p_values_of_true_claims_are_uniform_and_a_wrong_one_is_seen() -> None:
    rng = np.random.default_rng(3)
    n, s = 4000, 500
    z = rng.normal(size=(s, n))
    histogram = np.stack([np.histogram(row, BINS)[0] for row in z])
    assert (histogram.sum(axis=1) == n).all()
    for p in (
        fit_tests.variance_p_value((z**2).sum(axis=1), n),
        fit_tests.mean_p_value(z.sum(axis=1), n),
        fit_tests.anderson_darling_p_value(histogram),
    ):
        assert fit_tests.uniformity_p_value(p) > 1e-3
    # A uniform law of the same mean and variance escapes moments, not Anderson-Darling.
    flat = rng.uniform(-np.sqrt(3), np.sqrt(3), size=n)
    assert fit_tests.mean_p_value(flat.sum(), n) > 1e-3
    assert fit_tests.anderson_darling_p_value(np.histogram(flat, BINS)[0])[0] < 1e-9


def test_the_power_to_see_a_standard_deviation_one_percent_off() -> None:
    n = 100_000
    stated = float(fit_tests.variance_test_power(0.99**2, n))
    assert 0.97 < stated < 0.975
    assert float(fit_tests.variance_test_power(1.0, n)) == pytest.approx(0.01, abs=1e-9)
    # By simulation: a chi-square is all the test sees.
    square = 0.99**2 * np.random.default_rng(4).chisquare(n, size=4000)
    seen = (fit_tests.variance_p_value(square, n) < 0.01).mean()
    assert abs(seen - stated) < 5 * np.sqrt(stated * (1 - stated) / 4000)


def test_holm_keeps_the_family_and_benjamini_hochberg_finds_more() -> None:
    rng = np.random.default_rng(5)
    p = rng.uniform(size=(400, 1000))
    false = np.mean([fit_tests.holm(row).min() <= 0.05 for row in p])
    assert false < stats.binom.ppf(0.9999, 400, 0.05) / 400
    p[:, :100] = stats.norm.sf(rng.normal(3.0, 1.0, size=(400, 100)))
    adjusted = np.stack([fit_tests.benjamini_hochberg(row) for row in p])
    rejected = adjusted <= 0.1
    share = (rejected[:, 100:].sum(axis=1) / np.maximum(rejected.sum(axis=1), 1)).mean()
    assert share < 0.1
    assert rejected[:, :100].sum() > sum((fit_tests.holm(row)[:100] <= 0.1).sum() for row in p)


def test_uniformity_sees_what_no_single_area_shows() -> None:
    rng = np.random.default_rng(6)
    n, areas = 20_000, 2_000
    square = 0.99**2 * rng.chisquare(n, size=areas)
    p = fit_tests.variance_p_value(square, n)
    assert fit_tests.holm(p).min() > 1e-4
    assert fit_tests.uniformity_p_value(p) < 1e-9
    assert fit_tests.uniformity_p_value(np.full(50, 0.37)) < 1e-9  # one key for all areas
