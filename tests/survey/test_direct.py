"""Direct estimates: estimators, sensitivities, flags, and the rule for zero variances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from survey_tables import random_frame, survey_from_frame

from fhjax.errors import InputError
from fhjax.records import FLAGS
from fhjax.survey.direct import direct_estimates
from fhjax.survey.generalised import generalised_variance
from fhjax.survey.sums import area_sums
from fhjax.survey.variance import Replicates

ROLES = {"area": "area", "weight": "w", "outcome": "y"}


def troubled_frame():
    """Ordinary areas, and one of a single record, one all 0, one all 1, one unobserved, one half unobserved."""
    frame = random_frame(21)
    extra = (
        [("one", 5.0, 1.0)] + [("zero", 4.0 + i, 0.0) for i in range(6)] + [("ones", 4.0 + i, 1.0) for i in range(3)]
    )
    extra += [("unseen", 3.0, np.nan)] * 2 + [("half", 2.0 + i, [0.0, 1.0, np.nan][i % 3]) for i in range(12)]
    return pd.concat([frame, pd.DataFrame(extra, columns=["area", "w", "y"])], ignore_index=True)


def test_sensitivity_is_attained_by_the_heaviest_record():
    """Replace the outcome of each record by each bound: no change exceeds the sensitivity, and one reaches it."""
    frame = random_frame(22, n=24, areas=3)
    for estimator, population in (("hajek", None), ("ht", 500.0)):
        base = direct_estimates(survey_from_frame(frame, **ROLES), estimator=estimator, population=population)
        largest = np.zeros(3)
        for i in np.flatnonzero(frame["y"].notna()):
            changed = frame.copy()
            changed.loc[i, "y"] = 1.0 - frame.loc[i, "y"]
            other = direct_estimates(
                survey_from_frame(changed, **ROLES), estimator=estimator, population=population, zero_variance="keep"
            )
            largest = np.maximum(largest, np.abs(other.y - base.y))
        np.testing.assert_allclose(largest, base.sensitivity, rtol=1e-12)


def test_horvitz_thompson_by_label_number_or_array():
    sums = area_sums(survey_from_frame(random_frame(23), **ROLES))
    sizes = {label: 1000.0 + i for i, label in enumerate(sums.labels)}
    by_label = direct_estimates(sums, estimator="ht", population={**sizes, "elsewhere": 5.0})
    by_array = direct_estimates(sums, estimator="ht", population=list(sizes.values()))
    np.testing.assert_array_equal(by_label.y, by_array.y)
    np.testing.assert_allclose(by_label.y, sums.weighted_outcome_sum / np.array(list(sizes.values())), rtol=1e-15)
    np.testing.assert_allclose(by_label.sensitivity, sums.max_weight / np.array(list(sizes.values())), rtol=1e-15)
    assert by_label.estimator == "ht"


def test_flags_and_exclusions():
    direct = direct_estimates(survey_from_frame(troubled_frame(), **ROLES), zero_variance="keep")
    assert set(direct.flags) == set(FLAGS)
    named = {name: set(direct.labels.where(flag)) for name, flag in direct.flags.items()}
    assert named["zero_variance"] == {"one", "zero", "ones"}
    assert named["constant_outcome"] == {"one", "zero", "ones"}
    assert named["single_record"] == {"one"}
    assert named["generalised_variance"] == set()
    assert named["low_degrees_of_freedom"] == {"one", "ones"}
    assert "half" in named["missing_outcomes"]
    assert "zero" not in named["missing_outcomes"]
    assert direct.excluded == (("unseen", "no observed outcome"),)
    for name in ("y", "sampling_variance", "sensitivity", "kish_n_eff", "design_effect", "degrees_of_freedom"):
        assert not np.any(np.isnan(getattr(direct, name))), name


def test_zero_variances_are_an_error_unless_a_rule_is_chosen():
    sums = area_sums(survey_from_frame(troubled_frame(), **ROLES))
    with pytest.raises(InputError, match=r"3 areas have a design variance of 0: 'one', 'ones', 'zero'.*exclude.*gvf"):
        direct_estimates(sums)
    fewer = direct_estimates(sums, zero_variance="exclude")
    assert set(fewer.excluded) == {
        ("one", "zero design variance"),
        ("ones", "zero design variance"),
        ("zero", "zero design variance"),
        ("unseen", "no observed outcome"),
    }
    assert np.all(fewer.sampling_variance > 0.0)
    modelled = direct_estimates(sums, zero_variance="gvf")
    at = {label: i for i, label in enumerate(modelled.labels)}
    psi = modelled.sampling_variance
    assert psi[at["one"]] > psi[at["ones"]] > psi[at["zero"]] > 0.0  # 1, 3 and 6 records
    assert set(modelled.labels.where(modelled.flags["generalised_variance"])) == {"one", "ones", "zero"}
    assert "generalised variance function" in modelled.variance_method
    assert len(modelled.labels) + len(modelled.excluded) == len(sums.labels)


def test_generalised_variance_recovers_its_own_model():
    rng = np.random.default_rng(24)
    n = rng.integers(20, 2000, 300)
    element = rng.uniform(0.05, 0.25, 300)
    psi = 1.7 * element * n**-0.9
    with_gaps = np.where(np.arange(300) < 10, 0.0, psi)
    filled = generalised_variance(with_gaps, element, n, np.ones(300))
    pooled = element.mean()
    np.testing.assert_array_equal(filled[10:], psi[10:])
    expected = 1.7 * n[:10] ** -0.9 * ((n[:10] - 1) * element[:10] + pooled) / n[:10]
    np.testing.assert_allclose(filled[:10], expected, rtol=1e-10)


def test_generalised_variance_needs_one_area_with_a_variance():
    with pytest.raises(InputError, match="No area has a positive design variance"):
        generalised_variance(np.zeros(2), np.zeros(2), np.array([3, 4]), np.ones(2))


def test_simple_random_sampling_has_design_effect_one():
    rng = np.random.default_rng(25)
    frame = pd.DataFrame({"area": "A", "w": 7.0, "y": rng.integers(0, 2, 200).astype(float)})
    direct = direct_estimates(survey_from_frame(frame, **ROLES))
    np.testing.assert_allclose(direct.design_effect, 1.0, rtol=1e-12)
    np.testing.assert_allclose(direct.kish_n_eff, 200.0, rtol=1e-12)
    np.testing.assert_allclose(direct.weight_ratio, 1.0, rtol=1e-12)


def test_rounding_noise_is_a_zero_variance():
    """One PSU holds the whole area: its residuals sum to zero but for rounding, here and with replicate weights."""
    frame = random_frame(26, replicates=4)
    frame["y"] += 0.1
    frame.loc[frame["area"] == "03", "y"] = 0.7
    frame.loc[frame["area"] == "04", ["h", "j"]] = ["s9", 1]
    extra = pd.DataFrame({"area": ["00"], "w": [1.0], "y": [0.1], "h": ["s9"], "j": [2]})
    extra = extra.assign(**dict.fromkeys(["r1", "r2", "r3", "r4"], 1.0))
    frame = pd.concat([frame, extra], ignore_index=True)
    survey = survey_from_frame(frame, **ROLES, bounds=(0.0, 2.0), strata="h", psu="j", binary=False)
    with pytest.raises(InputError, match=r"2 areas have a design variance of 0: '03', '04'"):
        direct_estimates(survey)
    survey = survey_from_frame(frame, **ROLES, bounds=(0.0, 2.0), replicates=["r1", "r2", "r3", "r4"], binary=False)
    with pytest.raises(InputError, match=r"1 area ha(s|ve) a design variance of 0: '03'"):
        direct_estimates(survey, variance=Replicates("fay", fay=0.3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "greg"}, "estimator must be one of"),
        ({"zero_variance": "ignore"}, "zero_variance must be one of"),
        ({"variance_source": "rumour"}, "variance_source must be one of"),
        ({"estimator": "ht"}, "needs population"),
        ({"population": 5.0}, "needs population"),
        ({"estimator": "ht", "population": [1.0, 2.0]}, "7 areas but population has shape"),
        ({"estimator": "ht", "population": {"00": 5.0}}, "6 areas have no population size: '01'"),
        ({"estimator": "ht", "population": -1.0}, "7 areas have a population size that is not a positive number"),
    ],
)
def test_options_that_cannot_be_meant(options, message):
    sums = area_sums(survey_from_frame(random_frame(27), **ROLES))
    with pytest.raises(InputError, match=message):
        direct_estimates(sums, **options)


def test_no_area_left():
    frame = random_frame(28).assign(y=np.nan)
    with pytest.raises(InputError, match="No area can be used: no observed outcome"):
        direct_estimates(survey_from_frame(frame, **ROLES))


def test_what_is_handed_on():
    frame = random_frame(29)
    survey = survey_from_frame(frame, **ROLES, bounds=(0.0, 4.0), binary=False)
    direct = direct_estimates(survey, variance_source="public")
    assert direct.outcome_range == 4.0
    assert direct.variance_source == "public"
    assert direct.privacy_unit == "record"
    np.testing.assert_array_equal(direct.sensitivity, 4.0 * direct.max_unit_weight / direct.weight_sum)
