"""The conversions against mpmath at random points of the whole range, each on its safe side."""

import random

import mpmath as mp
import numpy as np
import pytest
from oracles import conversion_oracle as oracle

from fhjax.privacy.conversion import (
    epsilon_exact,
    epsilon_simple,
    epsilon_tight,
    log_delta_exact,
    log_delta_tight,
    rho_for_epsilon,
)

TRUTH = {
    "simple": oracle.epsilon_simple,
    "tight": lambda rho, delta: max(oracle.epsilon_tight(rho, delta)[0], mp.mpf(0)),
    "exact": oracle.epsilon_exact,
}
OURS = {"simple": epsilon_simple, "tight": epsilon_tight, "exact": epsilon_exact}
COUNT = 80


def points(seed, count=COUNT):
    """rho over 22 decades; delta half over 300 decades, half over the 12 that are used."""
    draw = random.Random(seed)
    rho = [10 ** draw.uniform(-12, 10) for _ in range(count)]
    delta = [10 ** draw.uniform(-300 if i % 2 else -12, -0.302) for i in range(count)]
    return rho, delta


def near_zero_epsilon():
    """delta a little below delta(0), where epsilon leaves 0 and its relative condition is unbounded."""
    rho, delta = [], []
    for r in (1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0):
        with mp.workdps(40):
            start = mp.exp(oracle.log_delta_exact(r, 0))
            for k in (1, 3, 6, 10):
                rho.append(r)
                delta.append(float(start * (1 - mp.mpf(10) ** -k)))
    return rho, delta


@pytest.mark.parametrize("method", OURS)
def test_epsilon_over_the_whole_range(method):
    rho, delta = points(1)
    ours = np.asarray(OURS[method](rho, delta))
    compared = positive = 0
    with mp.workdps(50):
        for r, d, value in zip(rho, delta, ours, strict=True):
            truth = TRUTH[method](r, d)
            assert value >= truth, (r, d)
            assert mp.mpf(float(value)) - truth <= mp.mpf("1e-11") * truth, (r, d)
            compared += 1
            positive += truth > 0
    assert compared == COUNT
    assert positive >= 60


def test_exact_epsilon_where_it_leaves_zero():
    rho, delta = near_zero_epsilon()
    ours = np.asarray(epsilon_exact(rho, delta))
    compared = 0
    with mp.workdps(50):
        for r, d, value in zip(rho, delta, ours, strict=True):
            truth = oracle.epsilon_exact(r, d)
            assert value >= truth, (r, d)
            # absolute, in units of the numbers it is the difference of
            assert value - truth <= 3e-14 * (np.sqrt(2 * r) + r), (r, d)
            compared += 1
    assert compared == 24


def test_exact_epsilon_at_large_delta():
    # the first two meet XLA's log1p near -0.41, which is 1e-14 off there
    rho = np.array([1.3701655568901345, 1.36, 2.0, 30.0, 1e3, 1e6])
    delta = np.array([0.5917265436593059, 0.59, 0.6, 0.9, 1 - 1e-6, 1 - 1e-13])
    for r, d in zip(rho, delta, strict=True):
        value, truth = float(epsilon_exact(r, d)), oracle.epsilon_exact(r, d)
        assert truth <= value <= truth + mp.mpf("1e-14") * (mp.sqrt(2 * r) + truth)


@pytest.mark.parametrize(
    ("ours", "truth"), [(log_delta_exact, oracle.log_delta_exact), (log_delta_tight, oracle.delta_tight)]
)
def test_log_delta_over_the_whole_range(ours, truth):
    rho, delta = points(2, 60)
    epsilon = np.asarray(epsilon_simple(rho, delta)) * np.tile([0.2, 0.8, 1.0, 2.0], 15)
    values = np.asarray(ours(rho, epsilon))
    compared = 0
    with mp.workdps(50):
        for r, e, value in zip(rho, epsilon, values, strict=True):
            exact = truth(r, float(e))
            assert value >= exact, (r, e)
            # log delta near 0 (delta near 1) keeps an absolute error only in the tight conversion
            assert mp.mpf(float(value)) - exact <= mp.mpf("1e-14") * (1 + abs(exact)), (r, e)
            compared += 1
    assert compared == 60


@pytest.mark.parametrize("method", OURS)
def test_calibration_is_safe_and_accurate(method):
    draw = random.Random(3)
    _, delta = points(4, 40)
    epsilon = [10 ** draw.uniform(-3, 6) for _ in delta]
    rho = np.asarray(rho_for_epsilon(epsilon, delta, method=method))
    compared = 0
    with mp.workdps(50):
        for r, e, d in zip(rho, epsilon, delta, strict=True):
            assert r > 0
            spent = TRUTH[method](float(r), d)
            assert spent <= e, (e, d)
            # not lower than it must be: a relative 1e-11 more of rho breaks the budget
            assert TRUTH[method](mp.mpf(float(r)) * (1 + mp.mpf("1e-11")), d) > e, (e, d)
            compared += 1
    assert compared == 40


def test_any_order_bounds_the_tight_epsilon():
    rho, delta = points(5, 30)
    ours = np.asarray(epsilon_tight(rho, delta))
    with mp.workdps(50):
        for r, d, value in zip(rho, delta, ours, strict=True):
            b = oracle.epsilon_tight(r, d)[1]
            for factor in ("0.5", "0.999", "1.001", "2"):
                assert value <= max(oracle.epsilon_at_order(r, d, b * mp.mpf(factor)), 0) * (1 + mp.mpf("1e-13"))
