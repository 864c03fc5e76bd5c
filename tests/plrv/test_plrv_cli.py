"""``fhjax check`` through the command line: files, figures and exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from plrv.plrv_problems import problem

from fhjax.cli.main import main


@pytest.fixture
def areas(tmp_path):
    data, _, _, claim = problem()
    rows = zip(np.asarray(data.y), np.asarray(data.sampling_variance), np.asarray(claim.sensitivity),
               np.asarray(data.X)[:, 1], strict=True)  # fmt: skip
    path = tmp_path / "areas.csv"
    path.write_text(
        "area,y,sampling_variance,sensitivity,x1\n"
        + "".join(f"{i:03d}," + ",".join(repr(float(v)) for v in row) + "\n" for i, row in enumerate(rows)),
        encoding="utf-8",
    )
    return [str(path), "--model-variance", "0.4", "--covariates", str(path), "--x", "x1", "--draws", "20000", "--quiet"]


def test_a_true_claim_passes_and_everything_is_written(areas, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert main(["check", *areas, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    for word in ("Not refuted", "no proof", "out of reach", "power"):
        assert word in text
    found = json.loads((out / "check.json").read_text())
    assert found["refuted"] is False
    assert len(found["findings"]) > 30
    for release in ("independent", "correlated"):
        values = found["releases"][release]
        assert values["mean_loss"] == pytest.approx(values["rho_claimed"], abs=0.02)
        assert {row["feasible"] for row in values["renyi"]} == {True, False}
        for row in values["delta"]:
            assert row["low"] * 0.8 <= row["claimed"] <= row["high"] * 1.2
    names = {path.name for path in (out / "figures").iterdir()}
    assert names == {f"{name}.{end}" for name in ("loss_law", "p_values", "delta", "renyi") for end in ("png", "pdf")}


def test_a_wrong_claim_exits_with_1_and_a_broken_one_with_2(areas, tmp_path, capsys) -> None:
    _, _, _, claim = problem()
    rho = 0.9 * np.asarray(claim.per_area_rho)
    path = tmp_path / "claim.csv"
    path.write_text("area,rho\n" + "".join(f"{i:03d},{float(r)!r}\n" for i, r in enumerate(rho)), encoding="utf-8")
    assert main(["check", *areas, "--claim", str(path), "--release", "independent"]) == 1
    assert "REFUTED" in capsys.readouterr().out
    path.write_text("area,rho\n000,0.1\n", encoding="utf-8")
    assert main(["check", *areas, "--claim", str(path)]) == 2
    assert "'001'" in capsys.readouterr().err
