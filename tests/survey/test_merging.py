"""Sums of several files: what may be added gives the numbers of one survey, what may not is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.errors import InputError


def households(seed: int = 0, areas: int = 4, each: int = 12) -> pd.DataFrame:
    """Households of two, each its own PSU, with their weights and a yes/no answer."""
    rng = np.random.default_rng(seed)
    n = areas * each
    return pd.DataFrame({
        "area": np.repeat([f"a{k}" for k in range(areas)], each), "hh": np.arange(n) // 2,
        "w": rng.gamma(2.0, 20.0, n) + 1.0, "y": (rng.random(n) < 0.4).astype(int),
    })  # fmt: skip


def sums(frame: pd.DataFrame, *, mergeable: bool = True, **roles):
    roles = {"area": "area", "weight": "w", "outcome": "y = 1"} | roles
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fhjax.area_sums(fhjax.open_survey(frame, **roles), mergeable=mergeable)


def halves(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two files that share no household; every area is in both."""
    first = (frame["hh"] % 2 == 0).to_numpy()
    return frame[first], frame[~first]


@pytest.mark.parametrize("roles", [{"unit": "hh"}, {"unit": "hh", "psu": "hh"}, {"psu": "hh"}, {}])
def test_disjoint_files_give_the_numbers_of_one(roles) -> None:
    frame = households()
    one = fhjax.direct_estimates(sums(frame, **roles), variance=fhjax.Taylor())
    two = fhjax.direct_estimates(sum_of(halves(frame), roles), variance=fhjax.Taylor())
    for name in ("y", "sampling_variance", "sensitivity", "num_records", "max_unit_weight"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-12, err_msg=name)


def sum_of(parts, roles):
    first, second = (sums(part, **roles) for part in parts)
    return first + second


def test_a_household_in_two_files_is_refused_in_one_area_and_in_two() -> None:
    frame = households()
    split = np.arange(len(frame)) % 2 == 0  # every household has one record in each file
    with pytest.raises(InputError, match=r"24 privacy units have records in both files"):
        sum_of((frame[split], frame[~split]), {"unit": "hh"})
    first, second = halves(frame)
    moved = second.assign(hh=second["hh"].where(second["hh"] != second["hh"].iloc[-1], first["hh"].iloc[0]))
    with pytest.raises(InputError, match=r"1 privacy unit has records in both files, in one area or in two"):
        sum_of((first, moved), {"unit": "hh"})


def test_ids_are_the_same_as_text_and_as_numbers() -> None:
    frame = households()
    split = np.arange(len(frame)) % 2 == 0
    as_text = frame[~split].assign(hh=frame[~split]["hh"].astype(str))
    with pytest.raises(InputError, match="24 privacy units"):
        sum_of((frame[split], as_text), {"unit": "hh"})


def test_a_psu_in_two_files_is_refused() -> None:
    frame = households()
    split = np.arange(len(frame)) % 2 == 0
    with pytest.raises(InputError, match="24 PSUs have records in both files"):
        sum_of((frame[split], frame[~split]), {"psu": "hh"})


def test_units_of_which_nobody_knows_are_refused() -> None:
    first, second = halves(households())
    with pytest.raises(InputError, match=r"mergeable=True"):
        sums(first, unit="hh", mergeable=False) + sums(second, unit="hh")


def test_one_file_is_added_once(tmp_path) -> None:
    path = tmp_path / "survey.parquet"
    households().to_parquet(path)
    once = sums(path, unit="hh")
    with pytest.raises(InputError, match="same file"):
        once + sums(path, unit="hh")
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="same file"):
        sums(path) + sums(copy)


def test_files_that_were_read_differently_are_refused() -> None:
    first, second = halves(households())
    with pytest.raises(InputError, match="privacy unit"):
        sums(first, unit="hh") + sums(second)
    with pytest.raises(InputError, match="outcome"):
        sums(first) + sums(second, outcome="y = 0")
    with pytest.raises(InputError, match="upper outcome bound"):
        sums(first, outcome="y", bounds=(0, 1)) + sums(second, outcome="y", bounds=(0, 2))
