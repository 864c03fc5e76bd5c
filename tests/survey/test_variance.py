"""Design variances against plain loops, and every option that contradicts itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from oracles import survey_oracle as oracle
from survey_tables import random_frame, survey_from_frame

from fhjax.errors import InputError
from fhjax.survey.direct import direct_estimates
from fhjax.survey.sums import area_sums
from fhjax.survey.variance import Replicates, ReplicateWarning, Taylor, replicate_variance

ROLES = {"area": "area", "weight": "w", "outcome": "y", "bounds": (-1e6, 1e6)}


@pytest.mark.parametrize("design", [(), ("h",), ("j",), ("h", "j")], ids=lambda names: "+".join(names) or "records")
@pytest.mark.parametrize("binary", [True, False])
def test_taylor_against_loops(design, binary):
    frame = random_frame(11, n=250, binary=binary)
    stratum = (frame["h"] if "h" in design else pd.Series("", index=frame.index)).to_numpy()
    psu = (frame["j"] if "j" in design else pd.Series(range(len(frame)))).to_numpy()
    survey = survey_from_frame(frame, **ROLES, strata="h" if "h" in design else None,
                               psu="j" if "j" in design else None, binary=binary)  # fmt: skip
    sums = area_sums(survey)
    mean, total = direct_estimates(sums), direct_estimates(sums, estimator="ht", population=2.0)
    columns = frame["area"].to_numpy(), frame["w"].to_numpy(), frame["y"].to_numpy(), stratum, psu
    compared = 0
    for i, label in enumerate(mean.labels):
        estimate, variance = oracle.taylor(*columns, domain=label)
        np.testing.assert_allclose([mean.y[i], mean.sampling_variance[i]], [estimate, variance], rtol=1e-11)
        estimate, variance = oracle.taylor(*columns, domain=label, total=True)
        np.testing.assert_allclose([total.y[i], total.sampling_variance[i]], [estimate / 2, variance / 4], rtol=1e-11)
        inside = (columns[0] == label) & ~np.isnan(columns[2])
        pairs = set(zip(stratum[inside], psu[inside], strict=True))
        assert mean.degrees_of_freedom[i] == len(pairs) - len(set(stratum[inside]))
        compared += 1
    assert compared == 7


def lonely_frame():
    """Strata s0..s4 with several PSUs, s5 with one PSU that reaches two areas, s6 with one of no observed outcome."""
    frame = random_frame(12, n=200)
    extra = pd.DataFrame({"area": ["00", "01", "01", "02"], "w": [40.0, 30.0, 20.0, 9.0], "h": ["s5", "s5", "s5", "s6"],
                          "j": [0, 0, 0, 0], "y": [1.0, 0.0, 1.0, np.nan]})  # fmt: skip
    return pd.concat([frame, extra], ignore_index=True)


def test_single_psu_is_refused_by_name():
    sums = area_sums(survey_from_frame(lonely_frame(), **ROLES, strata="h", psu="j"))
    with pytest.raises(InputError, match=r"1 stratum ha(s|ve) a single PSU.*'s5'.*center"):
        direct_estimates(sums)
    one = lonely_frame().assign(j=1)
    with pytest.raises(InputError, match="design has a single PSU"):
        direct_estimates(survey_from_frame(one, **ROLES, psu="j"))


@pytest.mark.parametrize("policy", ["certainty", "center", "remove"])
@pytest.mark.parametrize("total", [False, True])
def test_single_psu_policies_against_loops(policy, total):
    frame = lonely_frame()
    sums = area_sums(survey_from_frame(frame, **ROLES, strata="h", psu="j"))
    options = {"estimator": "ht", "population": 1.0} if total else {}
    direct = direct_estimates(sums, variance=Taylor(single_psu=policy), **options)
    columns = [frame[name].to_numpy() for name in ("area", "w", "y", "h", "j")]
    for i, label in enumerate(direct.labels):
        _, variance = oracle.taylor(*columns, domain=label, single_psu=policy, total=total)
        np.testing.assert_allclose(direct.sampling_variance[i], variance, rtol=1e-11)
    assert len(direct.labels) == 7
    lonely = direct_estimates(sums, variance=Taylor(single_psu="remove"), **options).degrees_of_freedom
    kept = direct_estimates(sums, variance=Taylor(single_psu="certainty"), **options).degrees_of_freedom
    np.testing.assert_array_equal(lonely, kept)  # one PSU less, one stratum less


@pytest.mark.filterwarnings("ignore::fhjax.survey.variance.ReplicateWarning")
@pytest.mark.parametrize("center", ["full", "replicates"])
@pytest.mark.parametrize("total", [False, True])
def test_replicates_against_loops(center, total):
    frame = random_frame(13, replicates=8, binary=False)
    names = [f"r{b}" for b in range(1, 9)]
    sums = area_sums(survey_from_frame(frame, **ROLES, replicates=names, binary=False))
    options = {"estimator": "ht", "population": 1.0} if total else {}
    compared = 0
    for method, multiples in (
        (Replicates("sdr", center=center), np.full(8, 4 / 8)),
        (Replicates("brr", center=center), np.full(8, 1 / 8)),
        (Replicates("fay", fay=0.3, center=center), np.full(8, 1 / (8 * 0.49))),
        (Replicates("jk1", center=center), np.full(8, 7 / 8)),
        (Replicates("jkn", scales=np.linspace(0.4, 0.9, 8), center=center), np.linspace(0.4, 0.9, 8)),
        (Replicates("bootstrap", center=center), np.full(8, 1 / 7)),
        (Replicates("bootstrap", scale=0.2, scales=np.ones(8), center=center), np.full(8, 0.2)),
    ):
        direct = direct_estimates(sums, variance=method, **options)
        for i, label in enumerate(direct.labels):
            seen = frame[(frame["area"] == label) & frame["y"].notna()]
            columns = seen["w"].to_numpy(), seen["y"].to_numpy(), seen[names].to_numpy()
            estimate, variance = oracle.replicate(*columns, multiples, center=center, total=total)
            np.testing.assert_allclose([direct.y[i], direct.sampling_variance[i]], [estimate, variance], rtol=1e-11)
            compared += 1
    assert compared == 7 * 7


def test_replicate_variance_of_jax_arrays():
    key = jax.random.key(0)
    y = jax.random.normal(key, (3, 5, 8))
    full = y.mean(-1)
    method = Replicates("fay", fay=0.5)
    one = jax.jit(jax.vmap(lambda f, r: replicate_variance(f, r, method)))(full, y)
    np.testing.assert_allclose(one, replicate_variance(np.asarray(full), np.asarray(y), method), rtol=1e-13)
    assert isinstance(one, jnp.ndarray)


def test_a_replicate_without_weight_in_an_area():
    frame = random_frame(14, replicates=4)
    names = ["r1", "r2", "r3", "r4"]
    frame.loc[frame["area"] == "02", "r3"] = 0.0
    frame.loc[frame["area"] == "05", "r4"] = -1.0
    survey = survey_from_frame(frame, **ROLES, replicates=names)
    with pytest.raises(InputError, match=r"2 areas have a replicate whose weights sum to zero or less.*'02', '05'"):
        direct_estimates(survey, variance=Replicates("fay", fay=0.3))
    direct = direct_estimates(survey, variance=Replicates("fay", fay=0.3, empty_area="exclude"))
    assert direct.excluded == (
        ("02", "a replicate leaves it without weight"),
        ("05", "a replicate leaves it without weight"),
    )
    # A total needs no denominator.
    total = direct_estimates(survey, estimator="ht", population=100.0, variance=Replicates("fay", fay=0.3))
    assert len(total.labels) == 7
    assert np.all(np.isfinite(total.sampling_variance))


def spread_survey(kind, R=16, n=60):
    rng = np.random.default_rng(15)
    w = rng.gamma(2.0, 10.0, n)
    sign = rng.choice([-1.0, 1.0], (n, R, 2))
    if kind == "brr":
        factor = 1.0 + sign[..., 0]
    elif kind == "fay":
        factor = 1.0 + 0.5 * sign[..., 0]
    elif kind == "sdr":
        factor = 1.0 + 2.0**-1.5 * (sign[..., 0] - sign[..., 1])
    elif kind == "jk1":
        factor = np.where(np.arange(n)[:, None] % R == np.arange(R), 0.0, R / (R - 1))
    else:
        factor = rng.multinomial(n, np.full(n, 1 / n), R).T.astype(float)
    frame = pd.DataFrame({"area": "A", "w": w, "y": rng.integers(0, 2, n).astype(float)})
    for b in range(R):
        frame[f"r{b}"] = w * factor[:, b]
    return area_sums(survey_from_frame(frame, **ROLES, replicates=[f"r{b}" for b in range(R)]))


METHODS = {
    "brr": Replicates("brr"),
    "fay": Replicates("fay", fay=0.5),
    "sdr": Replicates("sdr"),
    "jk1": Replicates("jk1"),
    "bootstrap": Replicates("bootstrap"),
}


@pytest.mark.parametrize("made", METHODS)
@pytest.mark.parametrize("named", METHODS)
def test_the_spread_of_the_weights_tells_a_wrong_method(made, named, recwarn):
    sums = spread_survey(made)
    direct_estimates(sums, variance=METHODS[named])
    warned = [w for w in recwarn.list if issubclass(w.category, ReplicateWarning)]
    # Half-sample and bootstrap weights spread alike and are combined alike (1/R, 1/(R-1)); so do Fay .5 and SDR (4/R).
    alike = ({"brr", "bootstrap"}, {"fay", "sdr"})
    same = made == named or any({made, named} <= pair for pair in alike)
    assert len(warned) == (0 if same else 1)
    if warned:
        text = str(warned[0].message)
        assert "contradict the method named" in text
        assert "times what it should be" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "brrr"}, "Unknown replicate method 'brrr'"),
        ({"method": "fay"}, "needs its coefficient"),
        ({"method": "fay", "fay": 1.0}, "needs its coefficient"),
        ({"method": "brr", "fay": 0.5}, "Fay coefficient was given for balanced"),
        ({"method": "jkn"}, "needs scales"),
        ({"method": "sdr", "scale": 0.0}, "positive number"),
        ({"method": "sdr", "scale": float("nan")}, "positive number"),
        ({"method": "jkn", "scales": [0.5, -0.5]}, "non-negative"),
        ({"method": "sdr", "center": "mean"}, "center must be"),
        ({"method": "sdr", "empty_area": "drop"}, "empty_area must be"),
    ],
)
def test_options_that_contradict_themselves(options, message):
    with pytest.raises(InputError, match=message):
        Replicates(**options)


@pytest.mark.parametrize(
    ("method", "count", "message"),
    [
        (Replicates("sdr"), 81, "multiple of 4; there are 81"),
        (Replicates("brr"), 30, "multiple of 4; there are 30"),
        (Replicates("jk1"), 1, "at least 2 replicates"),
        (Replicates("jkn", scales=[0.5, 0.5]), 3, "3 replicates but 2 scales"),
    ],
)
def test_numbers_of_replicates_that_contradict_the_method(method, count, message):
    with pytest.raises(InputError, match=message):
        method.multiples(count)


def test_unknown_single_psu_policy():
    with pytest.raises(InputError, match="single_psu must be"):
        Taylor(single_psu="average")


def test_the_method_must_be_named_where_there_are_replicates():
    frame = random_frame(16, replicates=4)
    survey = survey_from_frame(frame, **ROLES, replicates=["r1", "r2", "r3", "r4"])
    with pytest.raises(InputError, match="4 replicate weights: say how they were made"):
        direct_estimates(survey)
    with pytest.raises(InputError, match="none by stratum"):
        direct_estimates(area_sums(survey), variance=Taylor())
    assert direct_estimates(survey, variance=Taylor()).variance_method.startswith("Taylor")
    with pytest.raises(InputError, match="no replicate weights"):
        direct_estimates(survey_from_frame(frame, **ROLES), variance=Replicates("sdr"))
