"""Claims against every change of one unit: a few surveys here, 200 in experiments/brute_force.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from oracles import brute_force as truth

sys.path.insert(0, str(Path(__file__).parent.parent))
from experiments import brute_force

# One survey for each: variances held, a public model variance, a share of the cap by the mean.
SURVEYS = (1, 13, 27)


@pytest.mark.parametrize("number", SURVEYS)
def test_no_claim_lies_below_the_truth(number: int) -> None:
    rows = pd.DataFrame(brute_force.rows_of(number)).set_index("claim")
    assert {"sensitivity", "rho of each area", "rho of the written weights"} <= set(rows.index)
    assert (rows["below"] == 0).all(), rows
    # A bound that is never near the truth would be no use: the claims of a release are exact.
    assert rows.loc["sensitivity", "least_ratio"] == pytest.approx(1.0, abs=1e-9)


def test_a_sensitivity_that_forgets_the_household_is_seen() -> None:
    survey = truth.generated_survey(5, "count", by_record=False)
    weight = survey.frame["w"].to_numpy()
    change = truth.largest_changes(survey, weight)
    by_record = truth.largest_changes(truth.generated_survey(5, "count", by_record=True), weight)
    assert np.all(by_record <= change)
    assert np.any(by_record < 0.9 * change)


def test_the_committed_table_has_no_claim_below_the_truth() -> None:
    table = pd.read_csv(brute_force.RESULTS)
    assert table["survey"].nunique() == 200
    assert table["below"].sum() == 0
