"""Shares, least-trimming caps and the three ways to redistribute, to hand-made oracles, brute force and R survey."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import trim_oracle
from oracles.additive_rounds import additive_rounds
from oracles.closed_form_caps import least_trimming_caps

from fhjax.caps.rules import trim_weights
from fhjax.caps.shares import realised_shares, sorted_sizes
from fhjax.errors import InputError

WEIGHTS = st.lists(
    st.one_of(st.floats(0.01, 100.0), st.sampled_from([0.0, 1.0, 1.0, 2.0, 5.0])), min_size=1, max_size=30
).filter(lambda w: sum(w) > 0)


@pytest.mark.parametrize(
    ("weights", "share", "cap"),
    [
        ([1, 1, 1, 10], 0.5, 3.0),
        ([1, 1, 1, 10], 0.4, 2.0),
        ([1, 2, 3, 4, 20], 0.3, 30 / 7),
        ([1, 2, 3, 4, 20], 0.25, 3.0),
        ([5, 5, 5, 50, 50], 0.3, 11.25),
    ],
)
def test_caps_of_the_worked_examples(weights, share, cap) -> None:
    assert least_trimming_caps(weights, share)[0] == pytest.approx(cap, rel=1e-12)
    assert realised_shares(np.minimum(weights, cap))[0] == pytest.approx(share, rel=1e-12)


@given(WEIGHTS, st.floats(0.0, 1.0))
@settings(max_examples=300, deadline=None)
def test_the_cap_reaches_the_share_with_the_least_trimming(weights, position) -> None:
    w = np.array(weights)
    n = np.count_nonzero(w)
    low, high = 1.0 / n, realised_shares(w)[0]
    share = low + position * (high - low)
    cap = least_trimming_caps(w, share)[0]
    assert realised_shares(np.minimum(w, cap))[0] <= share * (1 + 1e-12)
    expected = trim_oracle.least_cap(w, share)
    # A larger cap would break the share (the bisection ends below the largest admissible cap).
    assert cap >= min(expected, w.max()) * (1 - 1e-9)


def test_caps_of_many_areas_are_the_caps_of_each() -> None:
    rng = np.random.default_rng(0)
    area = rng.integers(0, 40, 2000)
    w = np.round(np.exp(rng.normal(size=2000)) * 4)  # ties, and zero weights
    w[np.isin(area, [7])] = 3.0  # equal weights
    n = np.bincount(area, weights=w > 0)
    share = np.maximum(1.0 / n, rng.uniform(0.2, 1.2, 40) * realised_shares(w, area))
    caps = least_trimming_caps(w, share, area)
    for k in range(40):
        assert caps[k] == least_trimming_caps(w[area == k], share[k])[0]
        assert caps[k] == pytest.approx(trim_oracle.least_cap(w[area == k], share[k]), rel=1e-9)
    assert np.isinf(caps[7])


def test_special_areas() -> None:
    assert np.isinf(least_trimming_caps([3.0], 1.0)[0])  # one record: its share is 1 whatever its weight
    assert np.isinf(least_trimming_caps([2.0, 2.0, 2.0], 1 / 3)[0])  # equal weights need nothing
    assert least_trimming_caps([0.0, 1.0, 2.0], 0.5)[0] == pytest.approx(1.0)  # a zero weight does not count
    assert least_trimming_caps([1.0, 4.0, 4.0, 4.0], 0.25)[0] == pytest.approx(1.0)  # ties at the top
    sizes = sorted_sizes([1.0, 2.0], [0, 2], 4)
    assert sizes.num_units.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_a_share_below_one_over_n_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"1 area cannot reach the wanted share.*'01003'"):
        least_trimming_caps([1.0, 2.0, 3.0, 1.0], [0.9, 0.3], [0, 0, 1, 1], labels=("01001", "01003"))


def test_bad_weights_are_refused() -> None:
    with pytest.raises(InputError, match=r"1 weight is negative|1 weight.*'row 1'"):
        realised_shares([1.0, -1.0])
    with pytest.raises(InputError, match="one-dimensional"):
        realised_shares([[1.0]])
    with pytest.raises(InputError, match="positive number"):
        trim_weights([1.0, 2.0], 0.0)


@given(WEIGHTS, st.floats(1.0, 5.0), st.sampled_from(["proportional", "additive"]))
@settings(max_examples=300, deadline=None)
def test_redistribution_is_the_limit_of_its_rounds(weights, ratio, rule) -> None:
    w = np.array(weights)
    cap = w.sum() / np.count_nonzero(w) * ratio
    trimmed = trim_weights(w, cap, redistribution=rule)
    assert trimmed.max() <= cap * (1 + 1e-12)
    assert trimmed.sum() == pytest.approx(w.sum(), rel=1e-12)
    np.testing.assert_allclose(trimmed, trim_oracle.iterated(w, cap, rule), rtol=1e-9, atol=1e-12)
    assert np.all(trimmed[w == 0] == 0)


def test_proportional_redistribution_is_the_no_redistribution_family() -> None:
    w = np.array([1.0, 2.0, 3.0, 4.0, 20.0])
    kept = trim_weights(w, 0.3 * w.sum(), redistribution="proportional")
    np.testing.assert_allclose(kept, [2.1, 4.2, 6.3, 8.4, 9.0], rtol=1e-12)
    dropped = trim_weights(w, least_trimming_caps(w, 0.3))
    np.testing.assert_allclose(kept / kept.sum(), dropped / dropped.sum(), rtol=1e-12)


def test_additive_sharing_is_trimming_lower_and_lifting_everyone() -> None:
    w = np.array([1.0, 2.0, 3.0, 4.0, 20.0])
    trimmed = trim_weights(w, 7.0, redistribution="additive")
    a = trim_oracle.additive_threshold(w, 7.0)
    np.testing.assert_allclose(trimmed, np.minimum(w, 7.0 - a) + a, rtol=1e-12)


def test_groups_wider_than_areas_keep_their_total() -> None:
    rng = np.random.default_rng(3)
    area = np.repeat(np.arange(6), 20)
    group = area // 3
    w = np.exp(rng.normal(size=120))
    caps = rng.uniform(1.5, 3.0, 6)
    for rule in ("proportional", "additive"):
        trimmed = trim_weights(w, caps, area, redistribution=rule, group=group)
        assert np.all(trimmed <= caps[area] * (1 + 1e-12))
        np.testing.assert_allclose(np.bincount(group, trimmed), np.bincount(group, w), rtol=1e-12)
        free = trimmed < caps[area] * (1 - 1e-9)
        change = trimmed / w if rule == "proportional" else trimmed - w
        for g in range(2):
            assert np.ptp(change[free & (group == g)]) < 1e-9


def test_a_cap_below_the_mean_cannot_keep_the_total() -> None:
    with pytest.raises(InputError, match=r"cannot keep their total.*'b'"):
        trim_weights([1.0, 3.0, 1.0, 3.0], [4.0, 1.9], [0, 0, 1, 1], redistribution="additive", labels=("a", "b"))
    np.testing.assert_allclose(trim_weights([1.0, 3.0], 2.0, redistribution="proportional"), [2.0, 2.0])


GOLDENS = {
    "apistrat/upper40": ("apistrat", {"upper": 40, "strict": False}),
    "apistrat/upper40_strict": ("apistrat", {"upper": 40}),
    "apistrat/upper40_lower16": ("apistrat", {"upper": 40, "lower": 16, "strict": False}),
    "apistrat/upper40_lower16_strict": ("apistrat", {"upper": 40, "lower": 16}),
    "sdr_micro/upper3.5median_lower10": ("sdr_micro", {"upper": 188.895, "lower": 10, "strict": False}),
    "sdr_micro/upper3.5median_lower10_strict": ("sdr_micro", {"upper": 188.895, "lower": 10}),
}


def test_additive_rule_is_r_surveys(shared) -> None:
    folder = shared / "golden" / "survey"
    goldens = json.loads((folder / "survey_trim.json").read_text())
    compared = 0
    for name, (file, options) in GOLDENS.items():
        with open(folder / f"{file}.csv", encoding="utf-8") as lines:
            w = np.array([float(row["pw" if file == "apistrat" else "pwgtp"]) for row in csv.DictReader(lines)])
        trimmed = additive_rounds(w, **options)
        np.testing.assert_allclose(trimmed, goldens[name]["weights"], rtol=1e-11)
        assert trimmed.sum() == pytest.approx(goldens[name]["sum"], rel=1e-11)
        if options.get("strict", True) and "lower" not in options:
            np.testing.assert_allclose(
                trim_weights(w, options["upper"], redistribution="additive"), trimmed, rtol=1e-11
            )
        compared += 1
    assert compared == 6
    loose = additive_rounds([1.0, 2.0, 3.0, 4.0, 20.0], upper=7.0, strict=False)
    assert loose.max() == 7.25  # the peer's own breach, kept for comparison


def test_additive_rounds_say_why_they_cannot() -> None:
    with pytest.raises(InputError, match="mean weight lies outside"):
        additive_rounds([1.0, 3.0], upper=1.5)
    with pytest.raises(InputError, match="0 <= lower < upper"):
        additive_rounds([1.0, 3.0], upper=1.5, lower=2.0)
    np.testing.assert_allclose(additive_rounds([1.0, 3.0, 5.0], upper=3.0), 3.0)


def test_quantiles_are_numpys() -> None:
    rng = np.random.default_rng(5)
    area = rng.integers(0, 9, 200)
    w = np.round(np.exp(rng.normal(size=200)), 1) + 0.1
    sizes = sorted_sizes(w, area, 9)
    for p in (0.0, 0.25, 0.5, 0.75, 1.0):
        np.testing.assert_allclose(sizes.quantile(p), [np.quantile(w[area == k], p) for k in range(9)], rtol=1e-12)
