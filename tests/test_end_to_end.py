"""The main job, whole: survey file in, privacy report out, from the command line and from Python."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import fhjax
from fhjax.cli.main import main

EXAMPLE = [
    "example:nhanes0910_cholesterol", "--area", "race,age,sex", "--weight", "weight", "--outcome",
        "high_cholesterol = 1",
    "--strata", "stratum", "--psu", "psu", "--where", "age <> '0-19'",
]  # fmt: skip

#: Columns and keys that scripts rely on.
AREA_COLUMNS = {
    "area", "n", "sum_w", "w_max", "weight_ratio", "y", "sampling_variance", "shrinkage", "posterior_mean",
    "posterior_variance", "sensitivity", "c_own", "rho", "rho_conservative", "epsilon",
}  # fmt: skip
SUMMARY_KEYS = {
    "num_areas", "num_records", "model_variance", "beta", "rho_median", "rho_max", "rho_joint_independent",
    "rho_joint_correlated", "rho_sequential", "conservative_ratio_median", "equal_weight_factor_median",
    "largest_off_diagonal_ratio", "epsilon_joint", "delta", "assumptions",
}  # fmt: skip


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("nhanes") / "report"
    assert main(["report", *EXAMPLE, "--out", str(out), "--quiet"]) == 0
    return out


def test_the_folder_is_complete(report: Path) -> None:
    rows = read_rows(report / "areas.csv")
    assert len(rows) == 24
    assert rows[0].keys() >= AREA_COLUMNS
    summary = json.loads((report / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["num_areas"] == 24
    run = json.loads((report / "run.json").read_text())
    assert run["files"][0]["sha256"]
    assert "INTERNAL" in (report / "report.html").read_text().upper()
    assert len(list((report / "figures").glob("*.png"))) == 5


def test_the_numbers_are_those_of_a_dense_computation(report: Path) -> None:
    """Everything downstream of the direct estimates again, in dense NumPy."""
    rows = read_rows(report / "areas.csv")
    summary = json.loads((report / "summary.json").read_text())
    y, psi, delta = (np.array([float(row[name]) for row in rows]) for name in ("y", "sampling_variance", "sensitivity"))
    s2 = summary["model_variance"]
    V = np.diag(psi + s2)
    X = np.ones((len(y), 1))
    P = np.linalg.inv(V) - np.linalg.inv(V) @ X @ np.linalg.inv(X.T @ np.linalg.inv(V) @ X) @ X.T @ np.linalg.inv(V)
    score = -0.5 * np.trace(P) + 0.5 * y @ P @ P @ y
    assert abs(score) < 1e-6 * np.trace(P)  # the REML equation holds at the reported model variance

    precision = np.diag(1 / psi) + (np.eye(len(y)) - np.ones_like(V) / len(y)) / s2
    sigma = np.linalg.inv(precision)
    c = sigma / psi
    per_area = (np.abs(c) * delta).max(axis=1) ** 2 / (2 * np.diag(sigma))
    independent = (delta**2 / 2 * (c**2 / np.diag(sigma)[:, None]).sum(axis=0)).max()
    correlated = (delta**2 * np.diag(sigma) / (2 * psi**2)).max()
    np.testing.assert_allclose([float(row["rho"]) for row in rows], per_area, rtol=1e-10)
    np.testing.assert_allclose([float(row["c_own"]) for row in rows], np.diag(c), rtol=1e-10)
    np.testing.assert_allclose([float(row["posterior_mean"]) for row in rows], c @ y, rtol=1e-10)
    np.testing.assert_allclose([float(row["posterior_variance"]) for row in rows], np.diag(sigma), rtol=1e-10)
    assert summary["rho_joint_independent"] == pytest.approx(independent, rel=1e-10)
    assert summary["rho_joint_correlated"] == pytest.approx(correlated, rel=1e-10)
    assert summary["rho_sequential"] == pytest.approx(per_area.sum(), rel=1e-10)


def test_python_gives_the_same_numbers(report: Path) -> None:
    survey = fhjax.open_survey(
        fhjax.example("nhanes0910_cholesterol"),
        area=["race", "age", "sex"],
        weight="weight",
        outcome="high_cholesterol = 1",
        strata="stratum",
        psu="psu",
        where="age <> '0-19'",
    )
    assessment = fhjax.assess(fhjax.direct_estimates(survey))
    summary = json.loads((report / "summary.json").read_text())
    assert float(assessment.guarantees.joint_correlated.rho) == pytest.approx(
        summary["rho_joint_correlated"], rel=1e-12
    )
    assert assessment.delta == summary["delta"] == 1e-4


def test_the_steps_one_at_a_time_agree(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    direct, fit, out = tmp_path / "direct.csv", tmp_path / "fit.json", tmp_path / "guarantee.csv"
    summary = tmp_path / "guarantee.json"
    assert main(["direct", *EXAMPLE, "--out", str(direct), "--quiet"]) == 0
    assert main(["fit", str(direct), "--out", str(fit)]) == 0
    assert main(["guarantee", str(direct), "--fit", str(fit), "--delta", "1e-4", "--out", str(out),
                 "--summary", str(summary)]) == 0  # fmt: skip
    whole = json.loads((report / "summary.json").read_text())
    releases = json.loads(summary.read_text())["releases"]
    assert releases[0]["rho"] == pytest.approx(whole["rho_joint_correlated"], rel=1e-10)
    assert releases[1]["rho"] == pytest.approx(whole["rho_joint_independent"], rel=1e-10)
    in_steps = [float(row["rho"]) for row in read_rows(out)]
    np.testing.assert_allclose(in_steps, [float(row["rho"]) for row in read_rows(report / "areas.csv")], rtol=1e-10)
    assert "rho" in capsys.readouterr().out


def test_area_level_report_gives_the_same_guarantees(report: Path, tmp_path: Path) -> None:
    direct = tmp_path / "direct.csv"
    assert main(["direct", *EXAMPLE, "--out", str(direct), "--quiet"]) == 0
    out = tmp_path / "report"
    assert main(["report", str(direct), "--area-level", "--area", "area", "--n", "n", "--max-weight", "w_max",
                 "--weight-total", "sum_w", "--out", str(out), "--quiet"]) == 0  # fmt: skip
    again, whole = (json.loads((folder / "summary.json").read_text()) for folder in (out, report))
    for key in ("rho_median", "rho_joint_independent", "rho_joint_correlated", "equal_weight_factor_median", "delta"):
        assert again[key] == pytest.approx(whole[key], rel=1e-9), key


def test_acs_2024_at_full_scale(shared: Path, tmp_path: Path) -> None:
    """3.42 million persons: the numbers of the independent plain-NumPy run."""
    out = tmp_path / "acs"
    assert main(["report", str(shared / "data" / "acs2024_us_persons.parquet"), "--area", "area", "--weight", "PWGTP",
                 "--outcome", "poor = 1", "--where", "poor IS NOT NULL", "--strata", "area", "--psu", "hh",
                 "--delta", "1e-7", "--out", str(out), "--quiet"]) == 0  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())
    assert summary["num_areas"] == 1964
    assert summary["num_records"] == 2_611_012
    assert summary["model_variance"] == pytest.approx(0.00267714, abs=5e-9)
    assert summary["rho_median"] == pytest.approx(0.0379406, abs=5e-8)
    assert summary["rho_max"] == pytest.approx(1.39655, abs=5e-6)
    assert summary["rho_joint_independent"] == pytest.approx(1.396552, abs=5e-7)
    assert summary["rho_joint_correlated"] == pytest.approx(1.396548, abs=5e-7)
    assert summary["rho_sequential"] == pytest.approx(123.697, abs=5e-4)
    assert summary["conservative_ratio_median"] == pytest.approx(1.3057, abs=5e-5)
    assert summary["equal_weight_factor_median"] == pytest.approx(51.80, abs=5e-3)

    expected = {row["area"]: row for row in read_rows(shared / "data" / "acs2024_us_persons.poor.direct.csv")}
    rows = read_rows(out / "areas.csv")
    assert {row["area"] for row in rows} == expected.keys()
    for ours, theirs in (("y", "y_hajek"), ("sampling_variance", "var_psu"), ("n", "n"), ("w_max", "w_max")):
        np.testing.assert_allclose(
            [float(row[ours]) for row in rows], [float(expected[row["area"]][theirs]) for row in rows], rtol=1e-10
        )
