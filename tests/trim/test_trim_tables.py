"""Trimmed sums from prefix tables against sums over records: estimates, both design variances, lifts, slopes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from oracles import trim_oracle

import fhjax
from fhjax.caps.tables import build_tables, lift_for_total, sizes_of, trimmed_sums, untrimmed_sums
from fhjax.caps.trimmed_estimates import trimmed_estimates, variance_rule
from fhjax.errors import InputError
from fhjax.survey.sorted_weights import trimming_sums

AREAS = "abcde"
MULTIPLES = np.full(6, 1 / 6)


def records(rng, n=400):
    data = pd.DataFrame(
        {
            "area": rng.choice(list(AREAS), n),
            "stratum": rng.integers(0, 4, n),
            "psu": rng.integers(0, 12, n),
            "weight": np.round(np.exp(rng.normal(size=n)) * 3, 1) + 0.1,  # with ties
            "y": rng.normal(size=n),
        }
    )
    data.loc[rng.random(n) < 0.05, "y"] = np.nan
    data.loc[rng.random(n) < 0.03, "weight"] = 0.0
    for b in range(6):
        data[f"r{b + 1}"] = np.where(data.weight > 0, data.weight * rng.choice([0.5, 1.5], n), 2.0)
    return data


@pytest.fixture(scope="module")
def case():
    data = records(np.random.default_rng(1))
    survey = fhjax.open_survey(
        data,
        area="area",
        weight="weight",
        outcome="y",
        bounds=(-10, 10),
        strata="stratum",
        psu="psu",
        replicates="r1..r6",
    )
    sums = trimming_sums(survey, taylor=True)
    return data, survey, sums, build_tables(sums)


def test_every_trimmed_number_is_that_of_the_records(case) -> None:
    data, _, sums, tables = case
    design = data.groupby("stratum").psu.nunique().to_dict()
    universe = data[data.y.notna()]
    taylor, replicates = variance_rule(sums), variance_rule(sums, multiples=MULTIPLES)
    around_mean = variance_rule(sums, multiples=MULTIPLES, center="replicates")
    rng = np.random.default_rng(2)
    compared = 0
    for trial in range(8):
        caps = np.exp(rng.normal(1, 0.7, 5))
        if trial % 2:  # exactly at a weight
            caps = np.array([rng.choice(universe.weight[(universe.area == a) & (universe.weight > 0)]) for a in AREAS])
        for lifted in (False, True):
            lift = lift_for_total(tables, jnp.asarray(caps)) if lifted else None
            trimmed = trimmed_sums(tables, jnp.asarray(caps), lift)
            one, two = (trimmed_estimates(tables, trimmed, rule) for rule in (taylor, replicates))
            three = trimmed_estimates(tables, trimmed, around_mean)
            for k, area in enumerate(AREAS):
                here = universe[universe.area == area]
                w, y = here.weight.to_numpy(), here.y.to_numpy()
                positive = w > 0
                extra = np.sum(w - np.minimum(w, caps[k])) / positive.sum() if lifted else 0.0
                x = np.where(positive, np.minimum(w, caps[k]) + extra, 0.0)
                factor = np.where(positive, x / np.where(positive, w, 1.0), 1.0)
                stratum, psu = here.stratum.to_numpy(), here.psu.to_numpy()
                R = here[[f"r{b + 1}" for b in range(6)]].to_numpy() * factor[:, None]
                change = x * (y - trim_oracle.estimate(x, y)) / x.sum() - w * (y - trim_oracle.estimate(w, y)) / w.sum()
                shifted = sum(
                    n / (n - 1) * np.sum((e - e.mean()) ** 2)
                    for h, n in design.items()
                    for e in [np.array([change[(stratum == h) & (psu == j)].sum() for j in range(12)])[:n]]
                )
                psi = trim_oracle.taylor(x, y, stratum, psu, design)
                for got, expected in (
                    (sums.centre[k] + one.shift[k], trim_oracle.estimate(x, y)),
                    (one.share[k], trim_oracle.share(x)),
                    (one.weight[k], x.sum()),
                    (one.weight_square[k], np.sum(x**2)),
                    (one.sampling_variance[k], psi),
                    (one.shift_variance[k] + psi, shifted + psi),
                    (two.sampling_variance[k], trim_oracle.replicate_variance(x, R, y, MULTIPLES)),
                    (three.sampling_variance[k], trim_oracle.replicate_variance(x, R, y, MULTIPLES, "replicates")),
                ):
                    assert float(got) == pytest.approx(expected, rel=1e-10, abs=1e-12)
                    compared += 1
    assert compared == 8 * 2 * 5 * 8


def test_untrimmed_sums_are_the_direct_estimates(case) -> None:
    _, survey, sums, tables = case
    before = trimmed_estimates(tables, untrimmed_sums(tables), variance_rule(sums))
    direct = fhjax.direct_estimates(survey, variance=fhjax.Taylor())
    np.testing.assert_allclose(before.sampling_variance, direct.sampling_variance, rtol=1e-12)
    np.testing.assert_allclose(sums.outcome_range * before.share, direct.sensitivity, rtol=1e-12)
    np.testing.assert_allclose(sums.centre, direct.y, rtol=1e-12)
    assert np.max(np.abs(np.asarray(before.shift))) < 1e-14
    assert np.max(np.asarray(before.shift_variance)) < 1e-14


def test_households_are_trimmed_by_their_weight_sum() -> None:
    data = pd.DataFrame(
        {
            "area": list("aaaaaabbb"),
            "hh": [1, 1, 2, 3, 3, 4, 5, 5, 6],
            "weight": [3.0, 5.0, 2.0, 1.0, 1.0, 4.0, 2.0, 2.0, 1.0],
            "y": [1, 0, 1, 1, 0, 0, 1, 1, 0],
        }
    )
    survey = fhjax.open_survey(data, area="area", weight="weight", outcome="y", bounds=(0, 1), psu="hh", unit="hh")
    sums = trimming_sums(survey)
    assert sums.size.tolist() == [2.0, 4.0, 8.0, 1.0, 4.0]
    assert sums.units.tolist() == [2, 1, 1, 1, 1]
    tables = build_tables(sums)
    trimmed = trimmed_estimates(tables, trimmed_sums(tables, jnp.array([4.0, 9.0])), variance_rule(sums))
    w = np.array([1.5, 2.5, 2, 1, 1, 4])  # the household of weight 8 is brought to 4
    assert float(trimmed.share[0]) == pytest.approx(4 / w.sum())
    assert float(sums.centre[0] + trimmed.shift[0]) == pytest.approx(np.sum(w * data.y[:6]) / w.sum())
    np.testing.assert_allclose(trimmed.share[1], 4 / 5)


def test_slopes_are_those_of_the_sums(case) -> None:
    _, _, sums, tables = case
    rule = variance_rule(sums, multiples=MULTIPLES)

    def numbers(log_caps):
        estimates = trimmed_estimates(tables, trimmed_sums(tables, jnp.exp(log_caps)), rule)
        return jnp.stack([estimates.shift, estimates.sampling_variance, estimates.share])

    x = jnp.log(jnp.array([3.03, 5.07, 2.22, 4.44, 3.33]))  # between sizes
    slopes = jax.jacfwd(numbers)(x)
    h = 1e-6
    for k in range(5):
        step = h * (jnp.arange(5) == k)
        np.testing.assert_allclose(
            slopes[:, :, k], (numbers(x + step) - numbers(x - step)) / (2 * h), rtol=1e-7, atol=1e-9
        )
    # At the largest weight the slope is that of trimming, not 0: a search that starts untrimmed can move.
    top = jax.jacfwd(lambda c: trimmed_estimates(tables, trimmed_sums(tables, c), rule).share)(tables.largest)
    assert np.all(np.diag(np.asarray(top)) > 0)


def test_the_tables_of_an_area_do_not_see_the_others(case) -> None:
    _, _, sums, tables = case
    sizes = sizes_of(sums)
    assert sizes.num_areas == 5
    np.testing.assert_allclose(sizes.total, tables.below[tables.base + tables.rows, 0], rtol=1e-13)
    moved = trimmed_sums(tables, jnp.array([1.0, 9e9, 9e9, 9e9, 9e9])).linear
    np.testing.assert_array_equal(moved[1:], untrimmed_sums(tables).linear[1:])


def test_variance_rules_say_what_they_lack(case) -> None:
    _, survey, sums, _ = case
    with pytest.raises(InputError, match="6 replicate weights but 5 multiples"):
        variance_rule(sums, multiples=np.ones(5))
    with pytest.raises(InputError, match="nothing by PSU"):
        variance_rule(trimming_sums(survey, taylor=False))
    with pytest.raises(InputError, match="positive number"):
        variance_rule(sums, element_variance=-1.0)


def test_a_single_psu_follows_the_policy() -> None:
    data = records(np.random.default_rng(8), 120)
    data = data[data.weight > 0]
    data.loc[data.stratum == 3, "psu"] = 1
    survey = fhjax.open_survey(
        data, area="area", weight="weight", outcome="y", bounds=(-10, 10), strata="stratum", psu="psu"
    )
    with pytest.raises(InputError, match="single PSU"):
        trimming_sums(survey)
    for policy in ("center", "certainty", "remove"):
        sums = trimming_sums(survey, single_psu=policy)
        tables = build_tables(sums)
        got = trimmed_estimates(tables, untrimmed_sums(tables), variance_rule(sums)).sampling_variance
        direct = fhjax.direct_estimates(survey, variance=fhjax.Taylor(single_psu=policy))
        np.testing.assert_allclose(got, direct.sampling_variance, rtol=1e-11)
