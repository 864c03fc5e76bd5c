"""Tables with one row an area: covariates, populations, given direct estimates, lists of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fhjax.errors import InputError
from fhjax.survey.covariates import read_area_level, read_covariates, read_numbers, read_population

LABELS = ("01", "02", "10")


def table(**columns) -> pd.DataFrame:
    frame = pd.DataFrame({"area": ["10", "02", "01", "99"], "rent": [0.1, 0.2, 0.3, 0.4], "pop": [10, 20, 30, 40]})
    return frame.assign(**columns)


def test_rows_follow_the_survey_and_extra_areas_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    table().to_csv(path, index=False)
    for source in (table(), path):
        found = read_covariates(source, area="area", columns=["rent", "pop"], labels=LABELS)
        X, columns = found
        np.testing.assert_array_equal(X, [[0.3, 30], [0.2, 20], [0.1, 10]])
        assert columns == ("rent", "pop")
        assert found.extra_areas == ("99",)
        assert found.notes[-1] == "1 areas of the covariate table are not in the survey: '99'."
    assert found.files[0].path == str(path)
    X, columns = read_covariates(table(), area="area", columns="ln(pop)", labels=LABELS)
    np.testing.assert_allclose(X[:, 0], np.log([30, 20, 10]))


def test_several_area_columns_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("state;puma;x\n53;00100;0,5\n53;00200;1,5\n")
    labels = ["53|00200", "53|00100"]
    X, _ = read_covariates(path, area=["state", "puma"], columns="x", labels=labels, decimal=",")
    assert X[:, 0].tolist() == [1.5, 0.5]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (table(area=["10", "10", "01", "02"]), {}, r"1 area occurs more than once: '10'\. Keep one row"),
        (
            table(area=["10", "2", "1", "99"]),
            {},
            r"2 areas of the survey have no covariates: '01', '02'.*leading zeros",
        ),
        (table(rent=[0.1, None, 0.3, 0.4]), {}, r"1 area has a missing value of the covariate 'rent': '02'"),
        (table(rent=[0.1, np.inf, 0.3, 0.4]), {}, r"1 area has an infinite value of the covariate 'rent': '02'"),
        (table(rent=["low", "high", "low", "low"]), {}, r"covariate column 'rent' is not numeric in 4 of 4 rows"),
        (table(rent=1.0), {}, r"covariate 'rent' is 1 in every area, which is what the model's intercept"),
        (table(), {"columns": ["rent", "rents"]}, r"no column 'rents' for the covariate\. Did you mean 'rent'"),
        (table(), {"columns": ["rent", "rent"]}, r"listed more than once: 'rent'"),
        (table(), {"columns": []}, "No covariate is named"),
        (table(area=["10.0", "2.0", "01", "9.0"]), {}, r"3 area codes in 'area' \(3 records\) look like numbers"),
        (table(area=["10", None, "01", "02"]), {}, r"1 of 4 records has no area code"),
        (table().iloc[:0], {}, "no rows"),
    ],
)
def test_covariates_that_cannot_be_meant(frame, options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_covariates(frame, **{"area": "area", "columns": "rent", "labels": LABELS, **options})


def test_a_missing_value_in_an_extra_area_does_not_matter() -> None:
    X, _ = read_covariates(table(rent=[0.1, 0.2, 0.3, None]), area="area", columns="rent", labels=LABELS)
    assert np.isfinite(X).all()


def test_population() -> None:
    found = read_population(table(), area="area", column="pop")
    assert list(found.items()) == [("01", 30.0), ("02", 20.0), ("10", 10.0), ("99", 40.0)]
    assert list(read_population(table(), area="area", column="pop", labels=LABELS)) == list(LABELS)
    for column, message in (
        ([10, 0, 30, 40], r"1 area has a population \(pop\) of 0 or less: '02'"),
        ([10, None, 30, 40], r"1 area has a missing value of the population 'pop': '02'"),
    ):
        with pytest.raises(InputError, match=message):
            read_population(table(pop=column), area="area", column="pop")
    with pytest.raises(InputError, match="1 area of the survey have no population: '77'"):
        read_population(table(), area="area", column="pop", labels=["01", "77"])
    with pytest.raises(InputError, match=r"occurs? more than once"):
        read_population(table(area="01"), area="area", column="pop")


GIVEN = {"area": "area", "y": "y", "sampling_variance": "v", "max_weight": "wmax", "weight_total": "w"}


def given(**columns) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "area": ["b", "a"],
            "y": [0.1, 0.2],
            "v": [1e-4, 4e-4],
            "wmax": [5, 9],
            "w": [500, 300],
            "n": [50, 40],
            "d": [1, 2],
        }
    )
    return frame.assign(**columns)


def test_given_direct_estimates() -> None:
    direct = read_area_level(given(), **GIVEN, n="n", outcome_range=2.0, variance_source="public")
    assert tuple(direct.labels) == ("a", "b")
    np.testing.assert_allclose(direct.sensitivity, [0.06, 0.02])
    np.testing.assert_array_equal(direct.num_records, [40, 50])
    np.testing.assert_allclose(direct.weight_ratio, [1.2, 0.5])
    assert (direct.estimator, direct.outcome_range, direct.variance_source) == ("given", 2.0, "public")
    assert direct.excluded == ()
    assert direct.flags == {}

    from_sensitivity = read_area_level(given(), area="area", y="y", sampling_variance="v", sensitivity="d")
    np.testing.assert_array_equal(from_sensitivity.sensitivity, [2, 1])
    assert np.isnan(from_sensitivity.outcome_range)
    assert from_sensitivity.weight_sum is None

    from_errors = read_area_level(given(se=[0.01, 0.02]), **{**GIVEN, "sampling_variance": "se * se"})
    np.testing.assert_allclose(from_errors.sampling_variance, [4e-4, 1e-4])


def test_zero_sampling_variances() -> None:
    frame = given(v=[0.0, 4e-4])
    with pytest.raises(InputError, match=r"1 area has a sampling variance of 0: 'b'.*zero_variance='exclude'"):
        read_area_level(frame, **GIVEN)
    without = read_area_level(frame, **GIVEN, zero_variance="exclude")
    assert tuple(without.labels) == ("a",)
    assert without.sensitivity.shape == (1,)
    assert without.excluded == (("b", "the sampling variance is 0"),)
    kept = read_area_level(frame, **GIVEN, zero_variance="keep")
    assert kept.flags["zero_variance"].tolist() == [False, True]
    with pytest.raises(InputError, match="No area is left"):
        read_area_level(given(v=0.0), **GIVEN, zero_variance="exclude")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"v": [1e-4, None]}, {}, r"1 area has a missing value of sampling variance 'v': 'a'"),
        ({"v": [1e-4, np.inf]}, {}, r"1 area has an infinite value of sampling variance 'v': 'a'"),
        ({"v": [1e-4, -1.0]}, {}, r"1 area has a negative sampling variance \(v\): 'a'"),
        ({"y": [None, 0.1]}, {}, r"1 area has a missing value of y 'y': 'b'"),
        ({"area": ["a", "a"]}, {}, r"1 area occurs more than once: 'a'"),
        ({"w": [0, 1]}, {}, r"1 area has a weight total \(w\) of 0 or less: 'b'"),
        ({"wmax": [5, 301]}, {}, r"1 area has a largest weight above their sum of weights: 'a'"),
        ({}, {"weight_total": None}, "sensitivity of an estimate cannot be known from its variance"),
        ({}, {"outcome_range": 0.0}, "outcome_range must be positive"),
        ({}, {"zero_variance": "drop"}, "zero_variance must be 'error', 'exclude' or 'keep'"),
        ({}, {"variance_source": "secret"}, "variance_source must be"),
        ({}, {"sampling_variance": "vv"}, r"no column 'vv' for the sampling variance\. Did you mean 'v'"),
    ],
)
def test_given_estimates_that_cannot_be_meant(columns, options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_area_level(given(**columns), **{**GIVEN, **options})


def test_numbers_one_a_row(tmp_path: Path) -> None:
    path = tmp_path / "scales.txt"
    path.write_text("scale\n0.5\n\n0.25\n 1e-3 \n")
    assert read_numbers(path).tolist() == [0.5, 0.25, 1e-3]
    path.write_text("0.5\n0.25")
    assert read_numbers(str(path)).tolist() == [0.5, 0.25]
    path.write_text("0.5\n0,25\n0.1,0.2\nnan\n")
    with pytest.raises(
        InputError, match=r"3 rows are not one finite number: 'line 2: 0,25', 'line 3: 0\.1,0\.2', 'line 4"
    ):
        read_numbers(path)
    path.write_text("\n")
    with pytest.raises(InputError, match="no numbers to read"):
        read_numbers(path)
    with pytest.raises(InputError, match=r"none\.txt' cannot be read"):
        read_numbers(tmp_path / "none.txt")
    with pytest.raises(InputError, match="1 row is not one finite number: 'number 2: x'"):
        read_numbers([1, "x"])
