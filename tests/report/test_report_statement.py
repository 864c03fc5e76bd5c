"""The words: what they claim, with which numbers, and that they fit a screen."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
from report_stand_in import NEIGHBOURS, cholesterol, made_up

from fhjax.report import statement, text_summary
from fhjax.report.numbers import format_up
from fhjax.report.summary import summarise


def test_the_statement_gives_rho_epsilon_delta_and_neighbours() -> None:
    assessment = cholesterol()
    summary = summarise(assessment)
    text = " ".join(statement(assessment))
    assert f"ρ-zCDP with ρ = {format_up(summary['rho_joint_correlated'])}" in text
    assert f"ε ≤ {format_up(summary['epsilon_joint_correlated'])}" in text
    assert "δ = 1e-5" in text
    assert NEIGHBOURS in text
    assert summary["rho_max_area"] in text
    assert "L independent draws from the same posterior multiply ρ by L" in text
    assert "does not cover publishing the posterior means" in text


def test_quoted_privacy_numbers_are_never_below_the_values() -> None:
    """Twenty values of rho: to nearest, about half of the quoted numbers would be too small."""
    assessment = made_up(5)
    correlated = assessment.guarantees.joint_correlated
    checked = 0
    for rho in np.geomspace(0.0123456789, 23.456789, 20):
        release = dataclasses.replace(correlated, rho=rho)
        changed = dataclasses.replace(
            assessment, guarantees=dataclasses.replace(assessment.guarantees, joint_correlated=release)
        )
        epsilon = rho + 2 * math.sqrt(rho * math.log(1 / assessment.delta))
        quoted = re.search(r"with ρ = ([\d.]+), .* with ε ≤ ([\d.]+) \(by", statement(changed)[1])
        screen = re.search(r"joint posterior +([\d.]+) +([\d.]+)", text_summary(changed))
        for found in (quoted, screen):
            assert found is not None
            assert rho <= float(found[1]) <= rho * 1.01
            assert epsilon <= float(found[2]) <= epsilon * 1.01
            checked += 1
    assert checked == 40


def test_every_epsilon_of_the_statement_is_rounded_up() -> None:
    for seed in range(6):
        summary = summarise(assessment := made_up(9, seed=seed))
        quoted = [float(found) for found in re.findall(r"ε ≤ ([\d.]+\d)", " ".join(statement(assessment)))]
        names = ("joint_correlated", "joint", "sequential", "median", "max")
        exact = [summary[f"epsilon_{name}"] for name in names]
        exact.insert(1, summary["epsilon_exact"]["joint_correlated"])
        assert len(quoted) == 6
        assert all(shown >= value for shown, value in zip(quoted, exact, strict=True))


def test_invariants_are_mentioned_only_when_variances_were_estimated() -> None:
    assessment = cholesterol()
    public = dataclasses.replace(
        assessment, direct=dataclasses.replace(assessment.direct, variance_source="public", privacy_unit="household")
    )
    assert "treated as fixed although" in " ".join(statement(assessment))
    assert "treated as fixed although" not in " ".join(statement(public))
    assert "all records that share one value of 'household'" in " ".join(statement(public))


def test_an_infinite_joint_is_said_and_no_epsilon_is_quoted_for_it() -> None:
    text = " ".join(statement(made_up(30, infinite=2)))
    assert "No guarantee can be stated for 2 areas: area 1, area 2 (the sampling variance is 0" in text
    assert "no finite ρ can be stated" in text
    assert "ε ≤ ∞" not in text


@pytest.mark.parametrize(
    "case", [cholesterol, lambda: made_up(3), lambda: made_up(40, infinite=7, excluded=[("x", "y")])]
)
def test_the_summary_fits_a_screen(case) -> None:
    assessment = case()
    lines = text_summary(assessment).splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert "nan" not in text_summary(assessment).lower()
    assert f"delta = {1e-5:.0e}".replace("e-05", "e-5") in text_summary(assessment)
    assert "assumptions; report.html states them all" in lines[-1]


def test_an_estimate_at_the_boundary_is_explained() -> None:
    text = text_summary(made_up(30, model_variance=0.0))
    assert "exactly 0" in text
    assert len(text.splitlines()) <= 30
