"""The conversions against 25-digit values computed elsewhere, and against the numbers printed in the paper."""

import csv

import mpmath as mp
import numpy as np
import pytest

from fhjax.privacy.conversion import (
    delta_exact,
    delta_tight,
    epsilon_exact,
    epsilon_simple,
    epsilon_tight,
    log_delta_exact,
    log_delta_tight,
    rho_for_epsilon,
)
from fhjax.privacy.renyi import optimal_order

KINDS = {"simple": epsilon_simple, "zcdp_opt_cks20": epsilon_tight, "exact_gaussian": epsilon_exact}
METHOD = {"simple": "simple", "zcdp_opt_cks20": "tight", "exact_gaussian": "exact"}


def rows(carried, name):
    with open(carried / "privacy" / name, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def epsilon_rows(carried):
    return rows(carried, "eps_mpmath.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_matches_all_golden_rows_from_above(epsilon_rows, kind):
    chosen = [row for row in epsilon_rows if row["kind"] == kind]
    assert len(chosen) == 40
    rho, delta = (np.array([float(row[name]) for row in chosen]) for name in ("rho", "delta"))
    ours = np.asarray(KINDS[kind](rho, delta))
    with mp.workdps(40):
        for value, row in zip(ours, chosen, strict=True):
            truth = mp.mpf(row["eps"])
            # the decimal inputs were rounded to doubles, which moves the truth by up to a few units of rounding
            assert abs(mp.mpf(value) - truth) <= mp.mpf("1e-11") * truth, row
            assert value >= float(truth) * (1 - 1e-15), row
            assert (value == 0) == (truth == 0), row


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_inverts_the_golden_rows(epsilon_rows, kind):
    chosen = [row for row in epsilon_rows if row["kind"] == kind and float(row["eps"]) > 0]
    assert len(chosen) == {"simple": 40, "zcdp_opt_cks20": 39, "exact_gaussian": 39}[kind]
    rho, delta, epsilon = (np.array([float(row[name]) for row in chosen]) for name in ("rho", "delta", "eps"))
    back = np.asarray(rho_for_epsilon(epsilon, delta, method=METHOD[kind]))
    assert (np.abs(back / rho - 1) <= 1e-11).all()
    assert (back <= rho).all()


def test_best_order_of_the_tight_conversion(epsilon_rows):
    chosen = [row for row in epsilon_rows if row["kind"] == "zcdp_opt_cks20"]
    compared = 0
    for row in chosen:
        truth = float(row["status"].removeprefix("alpha*=").split()[0])
        assert float(optimal_order(float(row["rho"]), float(row["delta"]))) == pytest.approx(truth, rel=1e-9)
        compared += 1
    assert compared == 40


@pytest.mark.parametrize(
    ("column", "of_delta", "of_log"),
    [("delta_exact", delta_exact, log_delta_exact), ("delta_cks20", delta_tight, log_delta_tight)],
)
def test_delta_profile(carried, column, of_delta, of_log):
    table = rows(carried, "delta_profile_mpmath.csv")
    assert len(table) == 150
    in_range = below_range = 0
    with mp.workdps(40):
        for row in table:
            rho, epsilon, truth = float(row["rho"]), float(row["eps"]), mp.mpf(row[column])
            log_truth = mp.log(truth)
            log_ours, ours = float(of_log(rho, epsilon)), float(of_delta(rho, epsilon))
            assert abs(log_ours - log_truth) <= 2e-14 * (1 + abs(log_truth)), row
            if truth > mp.mpf("1e-307"):
                assert abs(ours - truth) <= mp.mpf("1e-11") * truth, row
                in_range += 1
            else:
                assert 0 < ours <= 1e-307, row
                below_range += 1
    assert in_range + below_range == 150
    assert below_range >= 10


def test_delta_of_the_exact_epsilon_of_every_row(epsilon_rows):
    chosen = [row for row in epsilon_rows if row["kind"] == "exact_gaussian"]
    rho, delta = (np.array([float(row[name]) for row in chosen]) for name in ("rho", "delta"))
    reached = np.asarray(delta_exact(rho, epsilon_exact(rho, delta)))
    assert len(reached) == 40
    assert (reached <= delta * (1 + 2e-12)).all()


def test_the_numbers_in_the_paper_and_the_design():
    assert round(float(epsilon_simple(1.51, 1e-7)), 2) == 11.38
    assert round(float(epsilon_exact(1.51, 1e-7)), 2) == 10.08
    assert round(float(epsilon_simple(0.048, 1e-7)), 3) == 1.807
    assert round(float(epsilon_exact(0.048, 1e-7)), 3) == 1.486
    # Washington, delta 1e-5: the largest area, the joint and the sequential release
    assert [round(float(e), 1) for e in epsilon_simple([17.8, 49.6], 1e-5)] == [46.4, 97.4]
    assert round(float(epsilon_simple(0.188, 1e-5)), 2) == 3.13
