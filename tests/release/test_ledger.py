"""The ledger adds up what was released of one file; a release says what it could not add."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fhjax.cli.main import main
from fhjax.errors import InputError
from fhjax.release.ledger import charge, read_ledger, spent

pytest.importorskip("opendp")

ROLES = ["--area", "area", "--weight", "w", "--psu", "id", "--quiet"]


@pytest.fixture
def survey(tmp_path):
    rng = np.random.default_rng(1)
    n = 240
    frame = pd.DataFrame({
        "id": np.arange(n), "area": [f"a{i % 6}" for i in range(n)], "w": rng.gamma(2.0, 9.0, n) + 5.0,
        "poor": rng.choice(["yes", "no"], n, p=[0.3, 0.7]), "ill": rng.choice(["yes", "no"], n, p=[0.4, 0.6]),
    })  # fmt: skip
    frame.to_csv(tmp_path / "survey.csv", index=False)
    return tmp_path


def release(folder, outcome: str, name: str, *more: str, file: str = "survey.csv") -> tuple[float, dict]:
    areas = folder / f"{name}-areas.csv"
    assert main(["direct", str(folder / file), *ROLES, "--outcome", f"{outcome} = 'yes'", "--out", str(areas)]) == 0
    price = folder / f"{name}.json"
    argv = ["release", str(areas), "--model-variance", "0.002", "--delta", "1e-6", "--out", str(folder / f"{name}.csv"),
            "--guarantee", str(price), *more]  # fmt: skip
    assert main(argv) == 0
    found = json.loads(price.read_text())
    return found["rho"], found


def test_releases_of_one_file_add_up_by_outcome_and_over_all(survey, capsys) -> None:
    ledger = ["--ledger", str(survey / "ledger.jsonl")]
    first, _ = release(survey, "poor", "one", *ledger)
    second, _ = release(survey, "poor", "two", *ledger, "--draws", "3")
    third, found = release(survey, "ill", "three", *ledger)
    assert second == pytest.approx(3 * first, rel=1e-3)  # three draws, plus the lattice's share
    assert found["ledger"]["same_outcome"] == pytest.approx(third, rel=1e-12)
    assert found["ledger"]["all_outcomes"] == pytest.approx(first + second + third, rel=1e-12)
    assert found["ledger"]["releases"] == 3
    assert "in 3 releases" in capsys.readouterr().out
    entries = read_ledger(survey / "ledger.jsonl")
    assert [entry["outcome"] for entry in entries] == ["poor = 'yes'", "poor = 'yes'", "ill = 'yes'"]
    assert len({tuple(entry["sources"]) for entry in entries}) == 1


def test_another_file_does_not_count(survey) -> None:
    ledger = ["--ledger", str(survey / "ledger.jsonl")]
    release(survey, "poor", "one", *ledger)
    frame = pd.read_csv(survey / "survey.csv")
    frame.assign(w=frame["w"] + 1.0).to_csv(survey / "next-year.csv", index=False)
    rho, found = release(survey, "poor", "later", *ledger, file="next-year.csv")
    assert found["ledger"]["all_outcomes"] == pytest.approx(rho, rel=1e-12)


def test_without_a_ledger_the_command_says_that_releases_add_up(survey, capsys) -> None:
    release(survey, "poor", "one")
    assert "No ledger: a second release" in capsys.readouterr().out


def test_a_release_that_fails_after_the_entry_still_counts(survey, monkeypatch) -> None:
    import fhjax.release.publish as publish

    def broken(*_args, **_options):
        raise KeyboardInterrupt

    areas = survey / "areas.csv"
    assert main(["direct", str(survey / "survey.csv"), *ROLES, "--outcome", "ill = 'yes'", "--out", str(areas)]) == 0
    monkeypatch.setattr(publish, "noisy_integers", broken)
    argv = ["release", str(areas), "--model-variance", "0.002", "--delta", "1e-6", "--out", str(survey / "x.csv"),
            "--guarantee", str(survey / "x.json"), "--ledger", str(survey / "ledger.jsonl")]  # fmt: skip
    assert main(argv) == 130
    assert not (survey / "x.csv").exists()
    assert len(read_ledger(survey / "ledger.jsonl")) == 1


def test_refused_options_cost_nothing(survey) -> None:
    areas = survey / "areas.csv"
    assert main(["direct", str(survey / "survey.csv"), *ROLES, "--outcome", "ill = 'yes'", "--out", str(areas)]) == 0
    for more in (["--decimals", "16"], ["--decimals", "-1"], ["--clip", "0.5", "0.2"], ["--draws", "0"]):
        argv = ["release", str(areas), "--model-variance", "0.002", "--delta", "1e-6", "--out", str(survey / "x.csv"),
                "--guarantee", str(survey / "x.json"), "--ledger", str(survey / "ledger.jsonl"), *more]  # fmt: skip
        assert main(argv) == 2
        assert not (survey / "ledger.jsonl").exists()
        assert not (survey / "x.csv").exists()


@pytest.mark.parametrize(
    "line", ["not json", '{"rho": 1}', '{"sources": ["a"], "outcome": "y", "rho": -1}', '["rho"]', '{"rho": "NaN"}']
)
def test_a_ledger_that_cannot_be_added_up_is_refused(tmp_path, line: str) -> None:
    path = tmp_path / "ledger.jsonl"
    charge(path, sources=["a"], outcome="y", rho=0.25, unit="record", release="x")
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match="Line 2 of the ledger"):
        read_ledger(path)


def test_sums_are_those_of_shared_sources() -> None:
    entries = [
        {"sources": ["a", "b"], "outcome": "y", "rho": 0.1},
        {"sources": ["b"], "outcome": "z", "rho": 0.2},
        {"sources": ["c"], "outcome": "y", "rho": 0.4},
    ]
    assert spent(entries, ["b"], "y").same_outcome == 0.1
    assert spent(entries, ["b"], "y").all_outcomes == pytest.approx(0.3, rel=1e-15)
    assert spent(entries, ["c"], "y").releases == 1
    with pytest.raises(InputError, match="source of these estimates is not known"):
        charge("never-written.jsonl", sources=[], outcome="y", rho=0.1, unit="record", release="x")
