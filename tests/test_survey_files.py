"""Real survey files through ``fhjax report``: their direct estimates to 1e-9, and a report or a clear error for each.

The expected estimates were made with plain pandas or R survey 4.1.1 (12 printed digits) and lie beside the files.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fhjax.cli.main import main

SDR = ("--replicate-method", "sdr")
BRFSS = ("--weight", "LLCPWT", "--outcome", "scd = 1", "--strata", "STSTR", "--where", "scd IS NOT NULL")
SEATTLE = ("acs2016_seattle_rep80.csv.gz", "--weight", "PWGTP")
RECS = ("recs2015_brr96.parquet", "--weight", "NWEIGHT", "--outcome", "ac = 1", "--replicates", "BRRWT*",
        "--replicate-method", "fay", "--fay", "0.5")  # fmt: skip

# name -> (options after `fhjax report`, file of expected estimates, its variance column, areas compared)
REPORTS = {
    "seattle": ((*SEATTLE, "--area", "area", "--outcome", "nilf = 1", "--replicates", "pwgtp*", *SDR),
                "acs2016_seattle_rep80.area.nilf.direct.csv", "var_rep", 5),
    "seattle by age": ((*SEATTLE, "--area", "area30", "--outcome", "ESR = 6", "--replicates", "PWGTP1..PWGTP80", *SDR),
                       "acs2016_seattle_rep80.area30.nilf.direct.csv", "var_rep", 30),
    "washington households": (("acs2015_wa_households_rep80.parquet", "--area", "least(NP, 8)", "--weight", "WGTP",
                               "--outcome", "TEN IN (3, 4)", "--where", "TEN IS NOT NULL AND WGTP > 0",
                               "--replicates", "wgtp*", *SDR),
                              "acs2015_wa_households_rep80.direct.csv", "var_rep", 8),
    "oregon": (("acs0610_oregon_puma600_rep80.csv.gz", "--area", "area", "--weight", "WGTP", "--outcome",
        "foodstamps = 1",
                "--replicates", "WGTP*", *SDR),
               "acs0610_oregon_puma600_rep80.direct.csv", "var_rep", 5),
    "energy": ((*RECS, "--area", "area"), "recs2015_brr96.area.ac.direct.csv", "var_rep", 10),
    "energy by place": ((*RECS, "--area", "area20"), "recs2015_brr96.area20.ac.direct.csv", "var_rep", 20),
    "blood pressure": (("nhanes2_brr32.csv.gz", "--area", "area", "--weight", "finalwgt", "--outcome", "highbp = 1",
                        "--replicates", "brr_1..brr_32", "--replicate-method", "brr"),
                       "nhanes2_brr32.highbp.direct.csv", "var_rep", 24),
    "diabetes": (("nhanes2_fay32.csv.gz", "--area", "area", "--weight", "finalwgt", "--outcome", "diabetes = 1",
                  "--replicates", "fay_*", "--replicate-method", "fay", "--fay", "0.3"),
                 "nhanes2_fay32.diabetes.direct.csv", "var_rep", 8),
    "cholesterol, zero kept": (("nhanes0910_cholesterol.csv.gz", "--area", "race,age,sex", "--weight", "weight",
                                "--outcome", "high_cholesterol = 1", "--strata", "stratum", "--psu", "psu",
                                "--zero-variance", "keep"),
                               "nhanes0910_cholesterol.direct.csv", "var", 32),
    "smoking strata": (("brfss2016_wa_scd.csv.gz", "--area", "stratum_geo", *BRFSS, "--single-psu", "certainty"),
                       "brfss2016_wa_scd.stratum_geo.direct.csv", "var_psu", 53),
    "substrata, zero excluded": (("brfss2016_wa_scd.csv.gz", "--area", "STSTR", *BRFSS, "--single-psu", "certainty",
                                  "--zero-variance", "exclude"),
                                 "brfss2016_wa_scd.STSTR.direct.csv", "var_psu", 79),
    "washington poverty": (("acs2024_wa_poverty.csv.gz", "--area", "area", "--weight", "PWGTP", "--outcome", "poor = 1",
                            "--strata", "area", "--psu", "SERIALNO"),
                           "acs2024_wa_poverty.direct.csv", "var_psu", 61),
    "simulated replicates": (("acs2024_wa_poverty_SIMREP80.parquet", "--area", "area", "--weight", "PWGTP",
                              "--outcome", "poor = 1", "--replicates", "PWGTP*", *SDR),
                             "acs2024_wa_poverty_SIMREP80.direct.csv", "var_rep", 61),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_coarse_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are at stake here; drawing all figures in print quality would take most of the time."""
    from fhjax.report import write

    draw_all = write.draw_all
    monkeypatch.setattr(write, "DPI", 40)
    monkeypatch.setattr(write, "draw_all", lambda *args: draw_all(*args)[:1])


#: A report takes seconds, most of them compilation, so only these are made whole: a small number of areas, the full
#: Taylor design with an infinite rho, and excluded areas.
WHOLE = ("washington households", "cholesterol, zero kept", "substrata, zero excluded")


def run(verb: str, shared: Path, out: Path, options: tuple[str, ...]) -> int:
    file, *rest = options
    return main([verb, str(shared / "data" / file), *rest, "--out", str(out), "--quiet"])


def compare(table: Path, expected_file: Path, variance: str, count: int) -> pd.DataFrame:
    """The table of one row an area, after its estimates and variances were compared with the expected ones."""
    areas = pd.read_csv(table, dtype={"area": str}).set_index("area")
    expected = pd.read_csv(expected_file, dtype={"area": str, "dom": str})
    expected = expected.rename(columns={"dom": "area", "y": "y_hajek"}).set_index("area").loc[areas.index]
    assert len(areas) == count
    np.testing.assert_allclose(areas["y"], expected["y_hajek"], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(areas["sampling_variance"], expected[variance], rtol=1e-9, atol=1e-25)
    return areas


@pytest.mark.parametrize("name", [name for name in REPORTS if name not in WHOLE])
def test_a_real_file_gives_its_published_estimates(name: str, shared: Path, tmp_path: Path) -> None:
    options, expected_file, variance, count = REPORTS[name]
    assert run("direct", shared, tmp_path / "direct.csv", options) == 0
    compare(tmp_path / "direct.csv", shared / "data" / expected_file, variance, count)


@pytest.mark.parametrize("name", WHOLE)
def test_a_real_file_gives_a_report_without_a_hole(name: str, shared: Path, tmp_path: Path) -> None:
    options, expected_file, variance, count = REPORTS[name]
    assert run("report", shared, tmp_path, options) == 0
    areas = compare(tmp_path / "areas.csv", shared / "data" / expected_file, variance, count)
    numbers = areas.drop(columns="flags").to_numpy(dtype=float)
    assert not np.isnan(numbers).any()
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["num_areas"] == count
    zero = areas["sampling_variance"] == 0
    assert list(np.isinf(areas["rho"])) == list(zero)
    assert (summary["rho_joint_correlated"] == "Infinity") is bool(zero.any())
    unknown = {key for key, value in summary.items() if value is None}
    assert unknown == ({"sequential_factor"} if zero.any() else set())
    assert (tmp_path / "excluded.csv").exists() is bool(summary["num_excluded"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("brfss2016_wa_scd.csv.gz", "--area", "stratum_geo", *BRFSS),
         ["1 stratum has a single PSU", "'531262'", "--single-psu center"]),
        (("brfss2016_wa_scd.csv.gz", "--area", "STSTR", *BRFSS, "--single-psu", "certainty"),
         ["12 areas have a design variance of 0", "'531072'", "7 more", "--zero-variance exclude"]),
        (("nhanes0910_cholesterol.csv.gz", "--area", "race,age,sex", "--weight", "weight", "--outcome",
          "high_cholesterol = 1", "--strata", "stratum", "--psu", "psu"),
         ["1 area has a design variance of 0: 'Other|0-19|female'"]),
        (("messy/01_nhanes_DEMO_I.XPT", "--area", "RIDRETH3", "--weight", "WTMEC2YR", "--outcome", "DMDHHSIZ >= 5"),
         ["427 of 9,971 records have a weight of zero", "--where 'WTMEC2YR > 0'"]),
        (("messy/04_brfss_wa_2016_float_codes.csv.gz", "--area", "x_ststr", "--weight", "cog_wt_raw", "--outcome",
          "cog_mem_d_num"), ["'cog_mem_d_num' is a number", "--bounds LO HI"]),
        (("messy/02_acs_oregon_seed_households.csv.gz", "--area", "PUMA", "--weight", "WGTP", "--outcome", "FS = 1",
          "--where", "WGTP > 0"), ["1 area", "'600'", "at least 2 areas"]),
        (("messy/15_county_income_cp1252_semicolon.csv", "--area-level", "--area", "area", "--y",
          "median_household_income", "--sampling-variance", "se * se", "--sensitivity", "se"),
         ["not UTF-8", "--encoding cp1252"]),
        (("messy/15_county_income_cp1252_semicolon.csv", "--area-level", "--area", "area", "--y",
          "median_household_income", "--sampling-variance", "se * se", "--sensitivity", "se", "--encoding", "cp1252"),
         ["decimal commas", "--decimal ,"]),
        (("messy/15_county_income_cp1252_semicolon.csv", "--area-level", "--area", "area", "--y",
          "median_household_income", "--sampling-variance", "se * se", "--sensitivity", "se", "--encoding", "cp1252",
          "--decimal", ","), ["1 area has a missing value", "'35011'"]),
    ],
)  # fmt: skip
def test_a_real_file_that_cannot_be_meant_is_refused_in_words(
    options: tuple[str, ...], words: list[str], shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", shared, tmp_path / "out", options) == 2
    said = capsys.readouterr().err
    for word in words:
        assert word in said
    assert not (tmp_path / "out").exists()


def test_three_statistical_packages_write_the_same_survey(shared: Path, tmp_path: Path) -> None:
    roles = ("--area", "area", "--weight", "PWGTP", "--outcome", "POVPIP < 100", "--unit", "SERIALNO",
             "--psu", "SERIALNO", "--strata", "area", "--quiet")  # fmt: skip
    tables = []
    for suffix in ("dta", "sav", "xpt"):
        file, out = shared / "data" / "messy" / f"14_acs2024_wy.{suffix}", tmp_path / f"{suffix}.csv"
        assert main(["direct", str(file), *roles, "--out", str(out)]) == 0
        tables.append(pd.read_csv(out, dtype={"area": str}).drop(columns="source"))  # the hash of each file is its own
    assert list(tables[0]["area"]) == ["5600100", "5600200", "5600300", "5600400", "5600500"]
    assert tables[0]["n"].sum() == 6020
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], rtol=1e-12)
