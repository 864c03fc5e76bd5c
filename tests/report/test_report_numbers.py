"""Rounding to the safe side, quantiles with infinities, and JSON without surprises."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fhjax.report.numbers import format_delta, format_number, format_up, json_safe, mean, quantile, round_up

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, st.integers(1, 17))
def test_round_up_is_never_below(x: float, digits: int) -> None:
    assert round_up(x, digits) >= x


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 12))
def test_round_up_is_close(x: float, digits: int) -> None:
    assert round_up(x, digits) <= x * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


@given(st.floats(min_value=0, allow_infinity=False), st.integers(1, 6))
def test_what_is_printed_is_never_below(x: float, digits: int) -> None:
    text = format_up(x, digits).replace(",", "")
    assert float(text) >= x
    assert Decimal(text) >= Decimal(repr(x))


def test_rounding_to_nearest_would_fail_here() -> None:
    # 1.3999... to three digits: nearest goes down from 1.4049
    assert format_number(1.4049) == "1.40"
    assert format_up(1.4049) == "1.41"
    assert round_up(9.991, 3) == 10.0
    assert format_up(9.991) == "10.0"
    assert (round_up(1.4), round_up(0.1), round_up(3.2e-9)) == (1.4, 0.1, 3.2e-9)  # a number of few digits stays


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "–"),
        (None, "–"),
        (1249.0, "1,250"),
        (3.2e-9, "3.20e-9"),
    ],
)
def test_formats(x: float | None, text: str) -> None:
    assert format_up(x) == text


def test_delta_is_printed_without_padding() -> None:
    assert [format_delta(x) for x in (1e-7, 2.5e-10, 0.01)] == ["1e-7", "2.5e-10", "1e-2"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_quantile_agrees_with_numpy_on_finite_values(values: list[float], q: float) -> None:
    assert quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-6)


def test_quantiles_with_infinities_are_never_undefined() -> None:
    values = [1.0, 2.0, math.inf, math.inf]
    assert [quantile(values, q) for q in (0.0, 1 / 3, 0.5, 0.75, 1.0)] == [1.0, 2.0, math.inf, math.inf, math.inf]
    assert quantile([1.0, math.nan, 3.0], 0.5) == 2.0
    assert math.isnan(quantile([], 0.5))
    assert mean([1.0, math.inf]) == math.inf


def test_json_has_text_for_infinity_and_null_for_the_undefined() -> None:
    content = {
        "a": np.float64("inf"),
        "b": np.array([1.0, np.nan]),
        "c": -math.inf,
        "d": np.int64(3),
        "e": (True, None),
    }
    text = json.dumps(json_safe(content), allow_nan=False)
    assert json.loads(text) == {"a": "Infinity", "b": [1.0, None], "c": "-Infinity", "d": 3, "e": [True, None]}
    assert float(json.loads(text)["a"]) == math.inf
