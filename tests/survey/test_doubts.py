"""What a file or an option makes doubtful is said with counts, as a warning and in the report's assumptions."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.cli.main import main
from fhjax.errors import DataWarning, InputError

N, AREAS = 120, 6


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    place = np.arange(N)
    income = rng.gamma(2.0, 150.0, N).round(3)
    weight = rng.gamma(2.0, 30.0, N).round(3) + 1.0
    table = pd.DataFrame({
        "area": [f"a{k}" for k in place % AREAS], "w": weight, "income": income,
        "hh": [f"h{i // 12}-{i % AREAS}" for i in place], "stratum": 1 + place // 60,
    })  # fmt: skip
    for b in range(1, 9):
        table[f"r{b}"] = weight * np.where(rng.random(N) < 0.5, 0.5, 1.5)
    return table


def warned(frame: pd.DataFrame, **roles) -> tuple[fhjax.records.AreaSums, list[str]]:
    roles = {"area": "area", "weight": "w", "outcome": "income < 300"} | roles
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        survey = fhjax.open_survey(frame, **roles)
    return survey, [str(one.message) for one in caught if one.category is DataWarning]


@pytest.mark.parametrize(
    ("roles", "word"),
    [
        ({"where": "income > 10"}, "filter"),
        ({"weight": "w * (CASE WHEN income > 100 THEN 2 ELSE 1 END)"}, "weight"),
        ({"area": "CASE WHEN income > 250 THEN 'rich' ELSE 'poor' END"}, "area"),
        ({"unit": "hh || CAST(income > 250 AS VARCHAR)"}, "unit"),
        ({"strata": "CAST(income > 250 AS VARCHAR)"}, "strata"),
    ],
)
def test_roles_that_read_what_the_outcome_reads(frame, roles, word) -> None:
    survey, said = warned(frame, **roles)
    sentence = next(text for text in said if f"The {word} " in text)
    assert "reads income, which the outcome" in sentence
    assert "public and fixed" in sentence
    direct = fhjax.direct_estimates(survey, variance=fhjax.Taylor("center"), zero_variance="keep")
    if len(direct.labels) > 2:
        assert sentence in fhjax.assess(direct).guarantees.joint_correlated.assumptions


def test_roles_of_other_columns_are_no_doubt(frame) -> None:
    _, said = warned(frame, where="w > 2", psu="hh", unit="hh", strata="stratum")
    assert not [text for text in said if "which the outcome" in text]


def test_half_a_set_of_replicates(frame) -> None:
    survey, said = warned(frame, replicates="r1..r4")
    assert any(text.startswith("4 more columns look like replicate weights") and "r5 to r8" in text for text in said)
    direct = fhjax.direct_estimates(survey, variance=fhjax.Replicates("brr"))
    assert any("4 more columns" in text for text in direct.cautions)
    _, said = warned(frame, replicates="r1..r8")
    assert not any("more columns" in text for text in said)


def test_psus_across_areas_name_the_largest_share(frame) -> None:
    crossing = frame.assign(place=[f"p{i // 20}" for i in range(N)])
    crossing.loc[crossing["area"] == "a0", "place"] = "own"  # of this area alone
    _, said = warned(crossing, psu="place")
    sentence = next(text for text in said if "records in several areas" in text)
    assert sentence.startswith("6 of 7 PSUs (place)")
    assert "100%" in sentence
    assert "'a0'" not in sentence
    _, said = warned(crossing, psu="hh")
    assert not any("several areas" in text for text in said)


def test_several_records_of_a_small_psu_while_one_record_is_protected(frame) -> None:
    _, said = warned(frame, psu="hh")
    sentence = next(text for text in said if "The privacy unit is one record" in text)
    assert "60 of 60 PSUs (hh) hold several, up to 2" in sentence
    _, said = warned(frame, psu="hh", unit="hh")
    assert not any("The privacy unit is one record" in text for text in said)
    wide = pd.concat([frame] * 10, ignore_index=True)
    wide["w"] += np.arange(len(wide)) * 1e-3
    _, said = warned(wide, psu="stratum")
    assert not any("The privacy unit is one record" in text for text in said)


def test_repeated_records_are_counted(frame) -> None:
    twice = pd.concat([frame, frame.iloc[:7]], ignore_index=True)
    for roles in ({"psu": "hh"}, {"unit": "hh"}, {"replicates": "r1..r8"}):
        _, said = warned(twice, **roles)
        assert any("7 of 127 records repeat another" in text for text in said)
        _, said = warned(frame, **roles)
        assert not any("repeat another" in text for text in said)


def test_a_design_that_was_forgotten_is_said_in_header_assumptions_and_on_stderr(frame, tmp_path, capsys) -> None:
    path, out = tmp_path / "survey.csv", tmp_path / "report"
    frame.to_csv(path, index=False)
    argv = ["report", str(path), "--area", "area", "--weight", "w", "--outcome", "income < 300", "--out", str(out)]
    assert main([*argv, "--quiet"]) == 0
    said = capsys.readouterr().err
    page = (out / "report.html").read_text(encoding="utf-8")
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert "records as their own PSUs, no strata" in said
    assert "Taylor linearisation, records as their own PSUs, no strata" in page
    assert "PSUs within strata" not in page
    assert any("records as their own PSUs, no strata" in text for text in summary["cautions"])
    assert any("records as their own PSUs, no strata" in text for text in summary["assumptions"])


def test_factors_by_their_few_values(frame) -> None:
    """Factors with mean 1 beside weights of mean near 1: only their few values tell."""
    rng = np.random.default_rng(8)
    light = frame.assign(w=frame["w"] / frame["w"].mean())
    for b in range(1, 9):
        light[f"r{b}"] = rng.choice([0.5, 1.5], N)
    survey, _ = warned(light, replicates="r1..r8")
    with pytest.raises(InputError, match=r"2 different values.*replicate_factors=True"):
        fhjax.area_sums(survey)
    survey, _ = warned(light, replicates="r1..r8", replicate_factors=True)
    assert fhjax.area_sums(survey).num_replicates == 8
    equal = light.assign(w=1.0)  # equal weights have few values themselves: nothing tells, and nothing is wrong
    survey, _ = warned(equal, replicates="r1..r8")
    assert fhjax.area_sums(survey).num_replicates == 8


def test_the_records_that_are_left_are_shown_for_the_outcome_and_each_condition(frame) -> None:
    holes = frame.assign(
        income=frame["income"].where(frame.index % 10 != 0),
        age=np.where(np.arange(N) % 4 == 0, np.nan, np.arange(N) % 90),
    )
    survey, _ = warned(holes, where=["age >= 10", "w > 0"])
    notes = " ".join(survey.notes)
    kept = int((holes["age"] >= 10).sum())
    seen = int(((holes["age"] >= 10) & holes["income"].notna()).sum())
    young = int((holes["age"] < 10).sum()) + 30
    assert f"The filter age >= 10 dropped {young} records before the design, 30 of them because a column" in notes
    assert "The filter w > 0 dropped 0 records before the design." in notes
    assert f"Together the 2 conditions dropped {N - kept} of {N} records." in notes
    assert f"observed in {seen} of {kept} records; the others are outside the universe" in notes


@pytest.mark.parametrize(
    ("codes", "count"),
    [("7,9", 20), (["7", "9"], 20), ({"income": [7, 9]}, 20), ({None: ["7", "9"]}, 20),
     (["7", "income=9"], 10)],  # a column's own list stands instead of the general one
)  # fmt: skip
def test_declared_codes_are_missing_and_said(frame, codes, count: int) -> None:
    coded = np.where(frame.index % 12 == 0, 7.0, np.where(frame.index % 12 == 1, 9.0, frame["income"].round() + 10.0))
    survey, _ = warned(frame.assign(income=coded), missing=codes)
    assert survey.num_missing_outcome == count
    assert any("count as missing" in note for note in survey.notes)
