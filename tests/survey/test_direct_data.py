"""Direct estimates of the real survey files against estimates made with pandas or R survey (12 printed digits)."""

from __future__ import annotations

import ibis
import numpy as np
import pandas as pd
import pytest
from survey_tables import engine, survey_from_frame, survey_from_table

from fhjax.errors import InputError
from fhjax.survey.direct import direct_estimates
from fhjax.survey.example import example
from fhjax.survey.sums import area_sums
from fhjax.survey.variance import Replicates, Taylor

RELATIVE = 1e-10


@pytest.fixture(scope="module")
def data(shared):
    return shared / "data"


def expected(path):
    return pd.read_csv(path, dtype={"area": str, "dom": str}).set_index("area").sort_index()


def check(direct, frame, variance_column, *, relative=RELATIVE):
    """All columns of a .direct.csv; returns how many areas were compared."""
    assert list(direct.labels) == list(frame.index)
    np.testing.assert_array_equal(direct.num_records, frame["n"])
    np.testing.assert_allclose(direct.weight_sum, frame["sum_w"], rtol=relative)
    np.testing.assert_allclose(direct.y, frame["y_hajek"], rtol=relative, atol=1e-14)
    np.testing.assert_allclose(direct.sampling_variance, frame[variance_column], rtol=relative, atol=1e-25)
    np.testing.assert_allclose(direct.kish_n_eff, frame["n_eff_kish"], rtol=relative)
    np.testing.assert_allclose(direct.weight_ratio, frame["w_max_over_mean"], rtol=relative)
    np.testing.assert_allclose(direct.sensitivity, frame["w_max_over_sum"], rtol=relative)
    return len(frame)


def test_acs_persons_whole_country(data):
    """3.4 million persons, households as PSUs within the area."""
    table = engine().read_parquet(data / "acs2024_us_persons.parquet")
    survey = survey_from_table(
        table, area="area", weight="PWGTP", outcome="poor", where="poor", strata="area", psu="hh"
    )
    assert check(direct_estimates(survey), expected(data / "acs2024_us_persons.poor.direct.csv"), "var_psu") == 1964


def test_acs_persons_without_the_filter_keeps_the_households_of_missing_outcomes(data):
    """Rows without an outcome keep their PSUs in the design: same estimates, variances that differ by n_h/(n_h - 1)."""
    table = engine().read_parquet(data / "acs2024_us_persons.parquet")
    roles = {"area": "area", "weight": "PWGTP", "outcome": "poor", "strata": "area", "psu": "hh"}
    direct = direct_estimates(survey_from_table(table.filter(table.area.startswith("53")), **roles))
    frame = expected(data / "acs2024_us_persons.poor.direct.csv")
    frame = frame[frame.index.str.startswith("53")]
    assert list(direct.labels) == list(frame.index)
    np.testing.assert_allclose(direct.y, frame["y_hajek"], rtol=RELATIVE)
    ratio = direct.sampling_variance / frame["var_psu"]
    assert np.all(np.abs(ratio - 1.0) < 1e-3)
    assert np.any(direct.num_missing > 0)


def test_acs_areas_without_any_outcome_are_listed(data):
    table = engine().read_parquet(data / "acs2024_us_persons.parquet")
    table = table.filter(table.area.left(2).isin(["06", "48", "53"]))
    survey = survey_from_table(table, area="area", weight="PWGTP", outcome="poor", strata="area", psu="hh")
    direct = direct_estimates(survey)
    assert len(direct.labels) == 61
    assert len(direct.excluded) == 2462 - 1964
    assert {(label[:2], reason) for label, reason in direct.excluded} == {
        ("06", "no observed outcome"),
        ("48", "no observed outcome"),
    }


def test_acs_disability(data):
    table = engine().read_parquet(data / "acs2024_us_persons.parquet")
    survey = survey_from_table(table, area="area", weight="PWGTP", outcome="dis", strata="area", psu="hh")
    direct = direct_estimates(survey)
    assert len(direct.labels) == 2462
    assert direct.num_records.sum() == 3422888
    assert direct.weight_sum.sum() == 340110990
    assert (direct.num_records.min(), np.median(direct.num_records), direct.num_records.max()) == (343, 1315, 4377)
    overall = np.sum(direct.weight_sum * direct.y) / direct.weight_sum.sum()
    facts = [overall, np.median(direct.weight_ratio), direct.weight_ratio.max(), np.median(direct.sensitivity),
             direct.y.min(), np.median(direct.y), direct.y.max()]  # fmt: skip
    stated = [0.14109962, 7.18189, 32.99472, 0.0054831, 0.043429, 0.139969, 0.319257]
    np.testing.assert_allclose(facts, stated, rtol=2e-5)


def test_acs_washington(data):
    frame = pd.read_csv(data / "acs2024_wa_poverty.csv.gz", dtype={"area": str})
    survey = survey_from_frame(frame, area="area", weight="PWGTP", outcome="poor", strata="area", psu="SERIALNO",
                               unit="SERIALNO")  # fmt: skip
    direct = direct_estimates(survey)
    by_household = frame.groupby(["area", "SERIALNO"])["PWGTP"].sum().groupby("area").max()
    np.testing.assert_array_equal(direct.max_unit_weight, by_household.sort_index())
    largest_household = frame.groupby(["area", "SERIALNO"]).size().groupby("area").max()
    np.testing.assert_array_equal(direct.max_unit_records, largest_household.sort_index())
    wanted = expected(data / "acs2024_wa_poverty.direct.csv")
    np.testing.assert_allclose(direct.sampling_variance, wanted["var_psu"], rtol=RELATIVE)
    np.testing.assert_allclose(direct.sensitivity, by_household.sort_index() / wanted["sum_w"], rtol=1e-14)
    assert direct.privacy_unit == "SERIALNO"
    assert len(direct.labels) == 61


def test_simulated_replicates(data):
    table = engine().read_parquet(data / "acs2024_wa_poverty_SIMREP80.parquet")
    names = [f"PWGTP{b}" for b in range(1, 81)]
    survey = survey_from_table(table, area="area", weight="PWGTP", outcome="poor", strata="area", psu="hh",
                               replicates=names)  # fmt: skip
    sums, wanted = area_sums(survey), expected(data / "acs2024_wa_poverty_SIMREP80.direct.csv")
    assert check(direct_estimates(sums, variance=Replicates("sdr")), wanted, "var_rep") == 61
    assert check(direct_estimates(sums, variance=Taylor()), wanted, "var_psu") == 61


@pytest.mark.parametrize(("area", "count"), [("area", 5), ("area30", 30)])
def test_seattle(data, area, count):
    frame = pd.read_csv(data / "acs2016_seattle_rep80.csv.gz", dtype={"area": str, "SERIALNO": str})
    survey = survey_from_frame(frame, area=area, weight="PWGTP", outcome="nilf", psu="SERIALNO",
                               replicates=[f"pwgtp{b}" for b in range(1, 81)])  # fmt: skip
    sums, wanted = area_sums(survey), expected(data / f"acs2016_seattle_rep80.{area}.nilf.direct.csv")
    assert check(direct_estimates(sums, variance=Replicates("sdr")), wanted, "var_rep") == count
    assert check(direct_estimates(sums, variance=Taylor()), wanted, "var_psu") == count


def test_oregon_with_negative_replicate_weights(data):
    frame = pd.read_csv(data / "acs0610_oregon_puma600_rep80.csv.gz")
    names = [f"WGTP{b}" for b in range(1, 81)]
    assert (frame[names].to_numpy() < 0).sum() == 178
    survey = survey_from_frame(frame, area="area", weight="WGTP", outcome="foodstamps", replicates=names)
    direct = direct_estimates(survey, variance=Replicates("sdr"))
    assert check(direct, expected(data / "acs0610_oregon_puma600_rep80.direct.csv"), "var_rep") == 5


@pytest.mark.parametrize(("area", "count"), [("area", 10), ("area20", 20)])
def test_residential_energy_fay(data, area, count):
    table = engine().read_parquet(data / "recs2015_brr96.parquet")
    survey = survey_from_table(table, area=area, weight="NWEIGHT", outcome="ac",
                               replicates=[f"BRRWT{b}" for b in range(1, 97)])  # fmt: skip
    direct = direct_estimates(survey, variance=Replicates("fay", fay=0.5), zero_variance="keep")
    assert check(direct, expected(data / f"recs2015_brr96.{area}.ac.direct.csv"), "var_rep") == count


@pytest.mark.parametrize(
    ("name", "outcome", "prefix", "method", "count"),
    [
        ("nhanes2_brr32", "highbp", "brr_", Replicates("brr"), 24),
        ("nhanes2_fay32", "diabetes", "fay_", Replicates("fay", fay=0.3), 8),
    ],
)
def test_nhanes2(data, name, outcome, prefix, method, count):
    frame = pd.read_csv(data / f"{name}.csv.gz", dtype={"area": str})
    survey = survey_from_frame(frame, area="area", weight="finalwgt", outcome=outcome,
                               replicates=[f"{prefix}{b}" for b in range(1, 33)])  # fmt: skip
    direct = direct_estimates(survey, variance=method)
    assert check(direct, expected(data / f"{name}.{outcome}.direct.csv"), "var_rep") == count


def test_behavioral_risk_factors_substrata(data):
    """91 substrata that answered: twelve have nobody with the condition, one of them a single respondent."""
    frame = pd.read_csv(data / "brfss2016_wa_scd.csv.gz", dtype={"STSTR": str, "stratum_geo": str})
    wanted = expected(data / "brfss2016_wa_scd.STSTR.direct.csv")
    survey = survey_from_frame(frame, area="STSTR", weight="LLCPWT", outcome="scd", where="scd", strata="STSTR")
    sums = area_sums(survey)
    with pytest.raises(InputError, match=r"1 stratum ha(s|ve) a single PSU"):
        direct_estimates(sums)
    method = Taylor(single_psu="certainty")
    with pytest.raises(InputError, match="12 areas have a design variance of 0"):
        direct_estimates(sums, variance=method)
    keep = direct_estimates(sums, variance=method, zero_variance="keep")
    assert check(keep, wanted.fillna({"var_psu": 0.0}), "var_psu") == 91
    assert keep.flags["zero_variance"].sum() == 12
    assert keep.flags["single_record"].sum() == 1
    assert keep.flags["constant_outcome"].sum() == 12
    assert np.array_equal(keep.flags["low_degrees_of_freedom"], wanted["n"] <= 3)
    fewer = direct_estimates(sums, variance=method, zero_variance="exclude")
    assert len(fewer.labels) == 79
    assert len(fewer.excluded) == 12
    assert {reason for _, reason in fewer.excluded} == {"zero design variance"}
    modelled = direct_estimates(sums, variance=method, zero_variance="gvf")
    assert np.all(modelled.sampling_variance > 0.0)
    assert np.array_equal(modelled.flags["generalised_variance"], keep.flags["zero_variance"])
    same = ~modelled.flags["generalised_variance"]
    np.testing.assert_array_equal(modelled.sampling_variance[same], keep.sampling_variance[same])

    everybody = survey_from_frame(frame, area="STSTR", weight="LLCPWT", outcome="scd", strata="STSTR")
    listed = direct_estimates(everybody, variance=method, zero_variance="keep")
    assert len(listed.labels) == 91
    assert [reason for _, reason in listed.excluded] == ["no observed outcome"]
    assert listed.flags["missing_outcomes"].any()


def test_behavioral_risk_factors_geographic_strata(data):
    frame = pd.read_csv(data / "brfss2016_wa_scd.csv.gz", dtype={"STSTR": str, "stratum_geo": str})
    survey = survey_from_frame(frame, area="stratum_geo", weight="LLCPWT", outcome="scd", where="scd", strata="STSTR")
    direct = direct_estimates(survey, variance=Taylor(single_psu="certainty"))
    assert check(direct, expected(data / "brfss2016_wa_scd.stratum_geo.direct.csv"), "var_psu") == 53


def test_nhanes_domains_over_the_whole_design(carried):
    frame = pd.read_csv(example("nhanes0910_cholesterol"))
    frame = frame.assign(domain=frame["race"] + "|" + frame["age"] + "|" + frame["sex"])
    wanted = pd.read_csv(carried / "survey" / "nhanes0910_cholesterol.direct.csv").set_index("dom").sort_index()
    survey = survey_from_frame(frame, area="domain", weight="weight", outcome="high_cholesterol", strata="stratum",
                               psu="psu")  # fmt: skip
    direct = direct_estimates(survey, zero_variance="keep")
    assert list(direct.labels) == list(wanted.index)
    np.testing.assert_array_equal(direct.num_records, wanted["n"])
    np.testing.assert_allclose(direct.y, wanted["y"], rtol=RELATIVE)
    np.testing.assert_allclose(direct.sampling_variance, wanted["var"], rtol=RELATIVE)
    assert [label for label, flag in zip(direct.labels, direct.flags["zero_variance"], strict=True) if flag] == [
        "Other|0-19|female"
    ]
    assert len(direct.labels) == 32


def test_household_rents(data):
    table = engine().read_parquet(data / "acs2015_wa_households_rep80.parquet")
    table = table.filter(table.TEN.notnull() & (table.WGTP > 0))
    table = table.mutate(size=table.NP.clip(upper=8).cast("string"), rent=table.TEN.isin([3, 4]).cast("int8"))
    survey = survey_from_table(table, area="size", weight="WGTP", outcome="rent",
                               replicates=[f"wgtp{b}" for b in range(1, 81)])  # fmt: skip
    direct = direct_estimates(survey, variance=Replicates("sdr"))
    assert check(direct, expected(data / "acs2015_wa_households_rep80.direct.csv"), "var_rep") == 8


def test_census_bureau_totals_and_standard_errors(data):
    """All official totals: Horvitz-Thompson with N = 1 over one area; a record outside the class has outcome 0."""
    official = pd.read_csv(data / "acs2015_wa_households_rep80.official.csv")
    table = engine().read_parquet(data / "acs2015_wa_households_rep80.parquet")
    table = table.filter(table.WGTP > 0)
    tenure, vacancy = table.TEN, table.VACS
    conditions = [
        table.WGTP > 0,
        tenure.notnull(),
        tenure.isin([1, 2]),
        tenure.isin([3, 4]),
        *(tenure == code for code in (1, 2, 3, 4)),
        vacancy.notnull(),
        vacancy == 1,
        vacancy == 3,
        vacancy.isin([2, 4, 5, 6, 7]),
    ]
    assert len(conditions) == len(official)
    compared = 0
    for condition, row in zip(conditions, official.itertuples(), strict=True):
        marked = table.mutate(state=ibis.literal("WA"), member=condition.fill_null(False).cast("int8"))
        survey = survey_from_table(marked, area="state", weight="WGTP", outcome="member",
                                   replicates=[f"wgtp{b}" for b in range(1, 81)])  # fmt: skip
        direct = direct_estimates(survey, estimator="ht", population={"WA": 1.0}, variance=Replicates("sdr"))
        assert direct.y[0] == row.pums_est_15
        standard_error = np.sqrt(direct.sampling_variance[0])
        assert round(standard_error) == row.pums_se_15
        np.testing.assert_allclose(standard_error, row.our_se_sdr, rtol=1e-12)
        assert round(1.645 * standard_error) == row.pums_moe_15
        compared += 1
    assert compared == 12
