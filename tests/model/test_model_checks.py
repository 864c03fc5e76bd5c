"""Every complaint about area-level input, by the names it gives."""

from __future__ import annotations

import numpy as np
import pytest
from model_cases import random_areas

from fhjax.errors import InputError
from fhjax.model.checks import area_data, from_direct
from fhjax.records import DirectEstimates, Labels

Y, PSI = [0.1, 0.2, 0.3, 0.4], [0.01, 0.02, 0.03, 0.04]
NAMES = ["Ash", "Birch", "Cedar", "Elm"]


def put(values, index, value):
    return [value if i in index else v for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((put(Y, [1, 3], np.nan), PSI), {}, "2 areas have a direct estimate .*'Birch', 'Elm'"),
        ((put(Y, [1], np.inf), PSI), {}, "1 area has a direct estimate .*'Birch'"),
        ((Y, put(PSI, [2], 0.0)), {}, "sampling variance of 0: 'Cedar'.*allow_zero_variance=True"),
        ((Y, put(PSI, [2], -1.0)), {}, "negative sampling variance: 'Cedar'"),
        ((Y, put(PSI, [2], np.nan)), {}, "sampling variance that is missing or infinite: 'Cedar'"),
        ((Y, put(PSI, [0], np.inf)), {}, "sampling variance that is missing or infinite: 'Ash'"),
        ((Y, put(PSI, [2], -1.0)), {"allow_zero_variance": True}, "negative sampling variance: 'Cedar'"),
        ((Y, PSI, [1.0, np.nan, 2.0, 3.0]), {}, "covariate that is missing or infinite: 'Birch'"),
        ((Y, PSI[:3]), {}, "y has 4 values and sampling_variance 3"),
        ((Y, PSI, [[1.0], [2.0]]), {}, "one row for each of the 4 areas"),
        (([Y], [PSI]), {}, "one dimension"),
        ((["a", "b", "c", "d"], PSI), {}, "y must hold numbers"),
        ((Y, PSI, [1.0, 1.0, 1.0, 1.0]), {"columns": ["one"]}, "'one' is constant and stands beside the intercept"),
        ((Y, PSI, [0.0, 0.0, 0.0, 0.0]), {"intercept": False}, "'x1' is 0 in all areas"),
        ((Y, PSI), {"intercept": False}, "no covariate and no intercept"),
        ((Y, PSI, [1.0, 2.0, 3.0, 4.0]), {"columns": ["a", "b"]}, "1 columns and columns has 2 names"),
        ((Y, PSI, [1.0, 2.0, 3.0, 4.0]), {"columns": ["(Intercept)"]}, "Column names are repeated"),
        ((Y, PSI), {"labels": ["Ash", "Birch", "Ash", "Elm"]}, "1 label appears? more than once: 'Ash'"),
        ((Y, PSI), {"labels": ["Ash"]}, "4 areas and 1 labels"),
        ((Y, PSI), {"variance_source": "guessed"}, "variance_source"),
        (([1.0], [1.0]), {"labels": ["Ash"]}, "1 area cannot carry 1 column"),
        ((Y, PSI, np.eye(4)[:, :3]), {}, "4 areas cannot carry 4 columns"),
    ],
)
def test_refused_in_words(arguments, options, words):
    with pytest.raises(InputError, match=words):
        area_data(*arguments, **{"labels": NAMES, **options})


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_collinear_columns_are_named_whatever_their_units(scale):
    _, _, X = random_areas(0, m=30, p=3)
    x = np.stack([X[:, 1], X[:, 2], scale * (X[:, 1] + 3.0 * X[:, 2] + 5.0)], axis=1)
    with pytest.raises(InputError, match="'total' is collinear with the columns before it"):
        area_data(X[:, 1], np.ones(30), x, columns=["young", "old", "total"])
    # Nearly collinear is the user's choice.
    x[:, 2] += scale * 1e-8 * np.random.default_rng(1).normal(size=30)
    assert area_data(X[:, 1], np.ones(30), x).num_covariates == 4


def test_complete_set_of_dummies_beside_the_intercept():
    groups = np.repeat(np.eye(3), 4, axis=0)
    with pytest.raises(InputError, match="'x3' is collinear"):
        area_data(np.arange(12.0), np.ones(12), groups)
    assert area_data(np.arange(12.0), np.ones(12), groups, intercept=False).num_covariates == 3


def test_whole_numbers_and_float32_become_float64():
    data = area_data(np.array([0, 1, 1]), np.float32([0.1, 0.2, 0.3]), np.array([1, 5, 2], dtype=np.int32))
    assert {str(data.y.dtype), str(data.sampling_variance.dtype), str(data.X.dtype)} == {"float64"}
    assert float(area_data([0.25, 0.75, 0.5], [1, 1, 1]).y[0]) == 0.25


def test_from_direct_keeps_labels_and_source():
    direct = DirectEstimates(
        labels=Labels(NAMES),
        y=np.array(Y),
        sampling_variance=np.array(PSI),
        sensitivity=np.ones(4),
        variance_source="public",
    )
    data = from_direct(direct, [1.0, 2.0, 4.0, 8.0], ["size"])
    assert (data.labels, data.columns, data.variance_source) == (Labels(NAMES), ("(Intercept)", "size"), "public")
