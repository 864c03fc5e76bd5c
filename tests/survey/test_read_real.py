"""Real survey files, whole and messy: counts and weighted sums as plain pandas or R survey has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fhjax.errors import InputError
from fhjax.survey.read import Survey, open_survey


def by_area(survey: Survey) -> pd.DataFrame:
    """n, sum of weights and weighted mean over the universe, by area."""
    table = survey.table.filter(survey.table.y.notnull())
    found = table.group_by("area").aggregate(
        n=table.count(), sum_w=table.weight.sum(), w_max=table.weight.max(), wy=(table.weight * table.y).sum()
    )
    frame = found.to_pyarrow().to_pandas().set_index("area").sort_index()
    return frame.assign(y=frame["wy"] / frame["sum_w"])


# file, direct estimates to match, number of areas compared, roles
CASES = [
    (
        "acs2024_us_persons.parquet",
        "acs2024_us_persons.poor",
        1964,
        {"area": "area", "outcome": "poor", "bounds": (0, 1), "unit": "hh"},
    ),
    (
        "acs2024_wa_poverty.csv.gz",
        "acs2024_wa_poverty",
        61,
        {"area": "area", "outcome": "poor = 1", "unit": "SERIALNO"},
    ),
    (
        "acs2024_wa_poverty_SIMREP80.parquet",
        "acs2024_wa_poverty_SIMREP80",
        61,
        {"area": "area", "outcome": "poor", "bounds": (0, 1), "unit": "hh", "replicates": "PWGTP1..PWGTP80"},
    ),
    (
        "acs2016_seattle_rep80.csv.gz",
        "acs2016_seattle_rep80.area30.nilf",
        30,
        {"area": "area30", "outcome": "ESR = 6", "unit": "SERIALNO", "replicates": "PWGTP*"},
    ),
    (
        "acs2016_seattle_rep80.csv.gz",
        "acs2016_seattle_rep80.area.nilf",
        5,
        {"area": "area", "outcome": "nilf", "bounds": (0, 1), "replicates": "pwgtp1-pwgtp80"},
    ),
    (
        "acs2015_wa_households_rep80.parquet",
        "acs2015_wa_households_rep80",
        8,
        {
            "area": "least(NP, 8)",
            "weight": "WGTP",
            "outcome": "TEN IN (3, 4)",
            "where": "WGTP > 0",
            "replicates": "wgtp*",
        },
    ),
    (
        "acs0610_oregon_puma600_rep80.csv.gz",
        "acs0610_oregon_puma600_rep80",
        5,
        {"area": "area", "weight": "WGTP", "outcome": "foodstamps", "bounds": (0, 1), "replicates": "WGTP*"},
    ),
    (
        "recs2015_brr96.parquet",
        "recs2015_brr96.area20.ac",
        20,
        {"area": "area20", "weight": "NWEIGHT", "outcome": "ac", "bounds": (0, 1), "replicates": "BRRWT*"},
    ),
    (
        "nhanes2_brr32.csv.gz",
        "nhanes2_brr32.highbp",
        24,
        {"area": "area", "weight": "finalwgt", "outcome": "highbp", "bounds": (0, 1), "replicates": "brr_*"},
    ),
    (
        "nhanes2_fay32.csv.gz",
        "nhanes2_fay32.diabetes",
        8,
        {"area": "area", "weight": "finalwgt", "outcome": "diabetes", "bounds": (0, 1), "replicates": "fay_*"},
    ),
    (
        "brfss2016_wa_scd.csv.gz",
        "brfss2016_wa_scd.STSTR",
        91,
        {"area": "STSTR", "weight": "LLCPWT", "outcome": "scd", "bounds": (0, 1)},
    ),
    (
        "brfss2016_wa_scd.csv.gz",
        "brfss2016_wa_scd.stratum_geo",
        53,
        {"area": "substr(STSTR, 1, 5)", "weight": "LLCPWT", "outcome": "scd", "bounds": (0, 1), "strata": "STSTR"},
    ),
]


@pytest.mark.parametrize(("file", "direct", "areas", "roles"), CASES, ids=[case[1] for case in CASES])
def test_sums_by_area(shared: Path, file: str, direct: str, areas: int, roles: dict) -> None:
    survey = open_survey(shared / "data" / file, **{"weight": "PWGTP", **roles})
    found = by_area(survey)
    expected = pd.read_csv(shared / "data" / f"{direct}.direct.csv", dtype={"area": str}).set_index("area").sort_index()
    assert list(found.index) == list(expected.index)
    assert len(found) == areas
    np.testing.assert_array_equal(found["n"], expected["n"])
    np.testing.assert_allclose(found["sum_w"], expected["sum_w"], rtol=1e-9)
    np.testing.assert_allclose(found["w_max"], expected["w_max"], rtol=1e-9)
    np.testing.assert_allclose(found["y"], expected["y_hajek"], rtol=1e-7, atol=1e-9)
    assert survey.bounds == (0.0, 1.0)
    assert survey.binary
    assert len(survey.roles.replicates) in (0, 32, 80, 96)


def test_the_example_against_r(carried: Path) -> None:
    survey = open_survey(
        "example:nhanes0910_cholesterol",
        area=["race", "age", "sex"],
        weight="weight",
        outcome="high_cholesterol = 1",
        bounds=(0, 1),
        strata="stratum",
        psu="psu",
    )
    found = by_area(survey)
    expected = pd.read_csv(carried / "survey" / "nhanes0910_cholesterol.direct.csv").set_index("dom").sort_index()
    assert list(found.index) == list(expected.index)
    assert len(found) == 32
    np.testing.assert_array_equal(found["n"], expected["n"])
    np.testing.assert_allclose(found["sum_w"], expected["sum"], rtol=1e-12)
    np.testing.assert_allclose(found["w_max"], expected["max"], rtol=1e-12)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-12, atol=1e-15)


def test_the_untouched_households_with_repeated_records(shared: Path) -> None:
    path = shared / "data" / "messy" / "02_acs_oregon_seed_households.csv.gz"
    roles = {"area": "PUMA", "weight": "WGTP", "outcome": "FS = 1"}
    with pytest.raises(InputError, match=r"2 of 4,841 records have a weight of zero \(WGTP\), in area '600'"):
        open_survey(path, **roles)
    survey = open_survey(path, **roles, replicates="WGTP*", unit="SERIALNO")
    assert survey.num_records == 4841  # repeated records cannot be told from twins: they are left alone
    assert column(survey, "area") == {"600"}
    assert len(survey.roles.replicates) == 80


def column(survey: Survey, name: str) -> set:
    return set(survey.table[name].to_pyarrow().unique().to_pylist())


def test_true_zeros_of_a_transport_file(shared: Path) -> None:
    path = shared / "data" / "messy" / "01_nhanes_DEMO_I.XPT"
    roles = {
        "area": "RIDRETH1",
        "weight": "WTMEC2YR",
        "outcome": "RIAGENDR = 2",
        "strata": "SDMVSTRA",
        "psu": "SDMVPSU",
    }
    with pytest.raises(InputError, match=r"427 of 9,971 records have a weight of zero \(WTMEC2YR\)"):
        open_survey(path, **roles)  # pandas reads 5.4e-79 here
    survey = open_survey(path, **roles, where="WTMEC2YR > 0")
    assert (survey.num_records, survey.num_filtered) == (9544, 427)
    assert column(survey, "area") == set("12345")
    assert column(survey, "psu") == {1, 2}
    assert column(survey, "stratum") == {str(code) for code in range(119, 134)}
    poverty = open_survey(path, **{**roles, "outcome": "INDFMPIR"}, where="WTMEC2YR > 0", bounds=(0, 5))
    assert poverty.table.y.min().to_pyarrow().as_py() == 0.0
    assert poverty.num_missing_outcome > 0


def test_codes_that_were_once_floats(shared: Path) -> None:
    path = shared / "data" / "messy" / "04_brfss_wa_2016_float_codes.csv.gz"
    roles = {"weight": "cog_wt_raw", "outcome": "cog_mem_d_num", "bounds": (0, 1)}
    survey = open_survey(path, area="x_ststr", **roles)  # 531011.0 is read as Parquet's floating-point codes are
    assert any("written as 101.0" in note for note in survey.notes)
    same = open_survey(path, area="CAST(CAST(x_ststr AS DOUBLE) AS BIGINT)", **roles)
    assert column(survey, "area") == column(same, "area")
    expected = pd.read_csv(shared / "data" / "brfss2016_wa_scd.STSTR.direct.csv", dtype={"area": str}).set_index("area")
    found = by_area(survey)
    assert len(found) == 91
    np.testing.assert_array_equal(found["n"], expected["n"].sort_index())
    assert len(column(survey, "area")) == 92  # one of them without a case, and not lost


@pytest.mark.parametrize("suffix", ["dta", "sav", "xpt"])
def test_one_survey_in_three_packages(shared: Path, suffix: str) -> None:
    path = shared / "data" / "messy" / f"14_acs2024_wy.{suffix}"
    survey = open_survey(path, area="area", weight="PWGTP", outcome="POVPIP < 100", unit="SERIALNO")
    assert survey.num_records == 6020
    assert column(survey, "area") == {"5600100", "5600200", "5600300", "5600400", "5600500"}
    same = open_survey(path, area=["STATE", "PUMA"], weight="PWGTP", outcome="poor", bounds=(0, 1))
    np.testing.assert_allclose(by_area(same)["y"], by_area(survey)["y"], rtol=1e-12)


def test_windows_letters_and_decimal_commas(shared: Path) -> None:
    path = shared / "data" / "messy" / "15_county_income_cp1252_semicolon.csv"
    roles = {"area": "area", "weight": "pop", "outcome": "unemp", "bounds": (0, 1)}
    with pytest.raises(InputError, match="not UTF-8 text"):
        open_survey(path, **roles)
    with pytest.raises(InputError, match=r"outcome column 'unemp' is not numeric in 175 of 175 rows.*decimal=','"):
        open_survey(path, **roles, encoding="cp1252")
    survey = open_survey(path, **{**roles, "area": "county_name"}, encoding="cp1252", decimal=",")
    assert survey.num_records == 175
    assert "Doña Ana County" in column(survey, "area")
