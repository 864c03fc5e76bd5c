"""``fhjax trim`` on a real file: what it writes, and rho recomputed from the written weights by the plain route."""

from __future__ import annotations

import contextlib
import io
import json
import shlex

import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.cli.main import main
from fhjax.errors import InputError
from fhjax.survey.trimmed_file import write_trimmed_weights
from fhjax.trimming import trim

SOURCE = "example:nhanes0910_cholesterol"
ROLES = {"area": ["race", "age", "sex"], "outcome": "high_cholesterol = 1", "where": "age <> '0-19'"}
DESIGN = {"strata": "stratum", "psu": "psu"}
COMMAND = ["trim", SOURCE, "--area", "race,age,sex", "--weight", "weight", "--outcome", "high_cholesterol = 1",
           "--strata", "stratum", "--psu", "psu", "--where", "age <> '0-19'", "--quiet"]  # fmt: skip


def rho_of(path, **more):
    survey = fhjax.open_survey(str(path), weight="weight_trimmed", **ROLES, **DESIGN)
    return fhjax.assess(fhjax.direct_estimates(survey)).guarantees, survey


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("trim")
    options = ["--target-rho", "0.2", "--redistribution", "proportional", "--rules", "--out", str(out)]
    return main([*COMMAND, *options]), out


def test_the_plan_certifies_from_the_written_file(written) -> None:
    code, out = written
    assert code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["certified"] is True
    assert summary["infeasible_areas"] == []
    assert summary["rho_before"] > 0.2 >= summary["rho_after"]
    found, _ = rho_of(out / "weights.parquet")
    assert float(found.joint_correlated.rho) <= 0.2
    assert float(found.joint_correlated.rho) == pytest.approx(summary["rho_from_written_weights"], rel=1e-12)
    assert summary["rho_after"] == pytest.approx(summary["rho_from_written_weights"], rel=1e-8)


def test_the_weights_file_keeps_every_row_and_column(written) -> None:
    _, out = written
    rows = pd.read_parquet(out / "weights.parquet")
    original = pd.read_csv(fhjax.example("nhanes0910_cholesterol"))
    assert len(rows) == len(original) == 8591
    key = list(original.columns)
    np.testing.assert_array_equal(np.sort(rows.weight), np.sort(original.weight))
    assert set(rows.columns) == {*key, "weight_trimmed", "in_universe"}
    outside = rows[~rows.in_universe]
    np.testing.assert_array_equal(outside.weight_trimmed, outside.weight)
    inside = rows[rows.in_universe]
    assert inside.high_cholesterol.notna().all()
    assert (inside.age != "0-19").all()
    totals = inside.groupby(["race", "age", "sex"])[["weight", "weight_trimmed"]].sum()
    np.testing.assert_allclose(totals.weight_trimmed, totals.weight, rtol=1e-10)
    caps = pd.read_csv(out / "caps.csv")
    labels = inside.race + "|" + inside.age + "|" + inside.sex
    limit = labels.map(dict(zip(caps.area, caps.cap, strict=True)))
    assert np.all(inside.weight_trimmed <= limit * (1 + 1e-12))


def test_the_caps_table_adds_up(written) -> None:
    _, out = written
    caps = pd.read_csv(out / "caps.csv")
    rows = pd.read_parquet(out / "weights.parquet")
    rows = rows[rows.in_universe]
    rows["label"] = rows.race + "|" + rows.age + "|" + rows.sex
    for area, one in rows.groupby("label"):
        line = caps[caps.area == area].iloc[0]
        for when, w in (("before", one.weight), ("after", one.weight_trimmed)):
            assert line[f"max_over_mean_{when}"] == pytest.approx(w.max() / w.mean(), rel=1e-9)
            assert line[f"max_over_median_{when}"] == pytest.approx(w.max() / w.median(), rel=1e-9)
            assert line[f"n_eff_{when}"] == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-9)
            assert line[f"design_effect_{when}"] == pytest.approx(len(w) * (w**2).sum() / w.sum() ** 2, rel=1e-9)
            y = np.sum(w * one.high_cholesterol) / w.sum()
            assert line[f"y_{when}"] == pytest.approx(y, rel=1e-9)
        assert line.units == len(one)
    assert len(caps) == 24
    page = (out / "report.html").read_text()
    assert "The caps meet the target" in page
    assert "median + 6 IQR" in page
    assert "<script" not in page
    assert len(pd.read_csv(out / "rules.csv")) == 7


def test_a_target_out_of_reach_is_not_reported_as_met(tmp_path, capsys) -> None:
    code = main([*COMMAND, "--target-rho", "0.00001", "--variances", "frozen", "--out", str(tmp_path)])
    assert code == 2
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["certified"] is False
    assert len(summary["infeasible_areas"]) == 24
    assert summary["smallest_rho_found"] > 0.00001
    said = capsys.readouterr()
    assert "DOES NOT MEET" in said.out
    assert "NOT met" in said.err
    assert "NOT met" in (tmp_path / "report.html").read_text()


def test_targets_are_asked_for_once(tmp_path, capsys) -> None:
    for options in ([], ["--target-rho", "1", "--target-epsilon", "2", "--delta", "1e-5"], ["--target-epsilon", "2"]):
        assert main([*COMMAND, *options, "--out", str(tmp_path)]) == 2
    assert "Give one target" in capsys.readouterr().err


def test_households_and_replicates_are_trimmed_in_the_file(tmp_path) -> None:
    rng = np.random.default_rng(4)
    n = 300
    data = pd.DataFrame({"id": np.arange(n), "area": rng.choice(["01", "02", "03"], n)})
    data["w"] = np.exp(rng.normal(size=n))
    data["hh"] = data.area + "-" + rng.integers(0, 60, n).astype(str)
    data["y"] = rng.integers(0, 2, n)
    for b in range(1, 9):
        data[f"w{b}"] = data.w * rng.choice([0.5, 1.5], n)
    options = {"area": "area", "weight": "w", "outcome": "y = 1", "unit": "hh", "replicates": "w*"}
    survey = fhjax.open_survey(data, psu="hh", **options)
    method = fhjax.Replicates("fay", fay=0.5)
    before = fhjax.assess(fhjax.direct_estimates(survey, variance=method)).guarantees.joint_correlated.rho
    target = 0.5 * float(before)
    plan = trim(survey, target_rho=target, variance=method, variances="frozen")
    path = write_trimmed_weights(data, tmp_path / "w.parquet", plan, survey, **options)
    rows = pd.read_parquet(path).sort_values("id")
    sums = rows.groupby(["area", "hh"])[["w", "weight_trimmed"]].sum()
    factor = (sums.weight_trimmed / sums.w).reindex(pd.MultiIndex.from_frame(rows[["area", "hh"]])).to_numpy()
    np.testing.assert_allclose(rows.weight_trimmed, rows.w * factor, rtol=1e-12)  # one factor a household
    for b in range(1, 9):
        np.testing.assert_allclose(rows[f"w{b}_trimmed"], rows[f"w{b}"] * factor, rtol=1e-12)
    largest = sums.weight_trimmed.groupby("area").max() / rows.groupby("area").weight_trimmed.sum()
    np.testing.assert_allclose(largest, plan.share_after, rtol=1e-10)
    with pytest.raises(InputError, match="already has the column"):
        write_trimmed_weights(rows, tmp_path / "again.parquet", plan, survey, **options)


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """A file with replicate weights, trimmed: the folder, what trim said, and the target."""
    folder = tmp_path_factory.mktemp("replicated")
    rng = np.random.default_rng(4)
    n = 12 * 30
    frame = pd.DataFrame({
        "PUMA": [f"{100 + i % 12:05d}" for i in range(n)], "PWGTP": np.exp(rng.normal(4.0, 0.8, n)).round(1),
        "poor": rng.choice(["yes", "no"], n, p=[0.3, 0.7]),
    })  # fmt: skip
    signs = rng.choice([-1.0, 1.0], (n, 80))
    replicates = pd.DataFrame(frame["PWGTP"].to_numpy()[:, None] * (1 + 0.4 * signs))
    frame[[f"PWGTP{b}" for b in range(1, 81)]] = replicates
    frame.to_parquet(folder / "survey.parquet")
    options = ["--area", "PUMA", "--weight", "PWGTP", "--outcome", "poor = 'yes'", "--replicates", "PWGTP1..PWGTP80",
               "--replicate-method", "sdr"]  # fmt: skip
    target = 0.6 * joint_rho(folder, str(folder / "survey.parquet"), *options)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(["trim", str(folder / "survey.parquet"), *options, "--target-rho", repr(target), "--quiet",
                     "--out", str(folder / "trimmed")])  # fmt: skip
    assert code == 0
    return folder, said.getvalue(), target


def joint_rho(folder, *argv: str) -> float:
    out = folder / "areas.csv"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["direct", *argv, "--quiet", "--out", str(out)]) == 0
    direct = fhjax.read_area_level(out, area="area", y="y", sampling_variance="sampling_variance",
                                   sensitivity="sensitivity")  # fmt: skip
    return float(fhjax.assess(direct, delta=1e-6).guarantees.joint_correlated.rho)


@pytest.mark.parametrize("pattern", ["PWGTP*_trimmed", "PWGTP1_trimmed..PWGTP80_trimmed", "pwgtp*_trimmed"])
def test_the_patterns_a_user_would_try_read_the_trimmed_replicates(replicated, pattern: str) -> None:
    folder, _, target = replicated
    rho = joint_rho(
        folder, str(folder / "trimmed" / "weights.parquet"), "--area", "PUMA", "--weight", "weight_trimmed",
        "--outcome", "poor = 'yes'", "--replicates", pattern, "--replicate-method", "sdr",
    )  # fmt: skip
    summary = json.loads((folder / "trimmed" / "summary.json").read_text())
    assert rho <= target
    assert rho == pytest.approx(summary["rho_from_written_weights"], rel=1e-12)


def test_the_command_that_trim_prints_gives_the_certified_rho(replicated, capsys) -> None:
    folder, said, target = replicated
    line = said[said.index("Read the trimmed weights with:") :].splitlines()[1].strip()
    words = shlex.split(line)
    assert words[:2] == ["fhjax", "report"]
    assert main([*words[1:], "--quiet"]) == 0
    report = json.loads((folder / "trimmed" / "trimmed-report" / "summary.json").read_text())
    summary = json.loads((folder / "trimmed" / "summary.json").read_text())
    assert summary["certified"] is True
    rho = report["releases"]["joint_correlated"]["rho"]
    assert rho <= target
    assert rho == pytest.approx(summary["rho_from_written_weights"], rel=1e-12)
