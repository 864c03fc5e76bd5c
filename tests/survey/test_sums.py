"""Sums by area: the engine against plain pandas, against segment sums in JAX, and against itself in pieces."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
from survey_tables import random_frame, survey_from_frame

from fhjax.errors import InputError
from fhjax.records import AreaSums
from fhjax.survey.arrays import record_sums, sums_from_arrays
from fhjax.survey.direct import direct_estimates
from fhjax.survey.sums import area_sums
from fhjax.survey.variance import Replicates, Taylor

ROLES = {"area": "area", "weight": "w", "outcome": "y", "bounds": (-1e6, 1e6)}


TEXTS = ("design", "subject", "replicate_deviations", "privacy_unit", "cautions", "outcome", "sources", "id_digests")


def agree(one: AreaSums, two: AreaSums, *, relative=1e-12, skip=TEXTS):
    """Every number of two sums, to rounding of the largest entry of its field; returns the fields compared."""
    assert one.labels == two.labels
    compared = 0
    for field in dataclasses.fields(one):
        first, second = getattr(one, field.name), getattr(two, field.name)
        if field.name in (*skip, "labels", "strata") or first is None:
            assert field.name in skip or (first is None) == (second is None) or field.name in ("labels", "strata")
            continue
        close(first, second, relative, field.name)
        compared += 1
    assert (one.strata is None) == (two.strata is None)
    if one.strata is not None:
        first, second = one.strata, two.strata
        assert first.strata == second.strata
        for name in ("stratum_psus", "area", "stratum", "psus"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        centre = first.centre
        second = second.recentred(centre)
        scale = np.max(np.abs(first.mean_b)) * np.maximum(1.0, np.max(np.abs(one.outcome_max[one.num_records > 0])))
        np.testing.assert_allclose(first.mean_a, second.mean_a, rtol=relative, atol=relative * scale)
        for name in ("mean_b", "moment_aa", "moment_ab", "moment_bb"):
            close(getattr(first, name), getattr(second, name), relative, name)
            compared += 1
    return compared


def close(first, second, relative, name):
    first, second = np.asarray(first), np.asarray(second)
    finite = np.abs(first[np.isfinite(first)])
    scale = finite.max() if finite.size else 1.0
    np.testing.assert_allclose(first, second, rtol=relative, atol=relative * scale, err_msg=name)


def pandas_sums(frame):
    seen = frame[frame["y"].notna()].copy()
    seen["wy"] = seen["w"] * seen["y"]
    groups = seen.groupby("area")
    mean = groups["wy"].sum() / groups["w"].sum()
    seen["ss"] = seen["w"] * (seen["y"] - seen["area"].map(mean)) ** 2
    return groups, mean, seen.groupby("area")["ss"].sum()


@pytest.mark.parametrize("binary", [True, False])
def test_engine_against_pandas(binary):
    frame = random_frame(1, replicates=4, binary=binary)
    names = [f"r{b}" for b in range(1, 5)]
    sums = area_sums(survey_from_frame(frame, **ROLES, replicates=names, binary=binary))
    groups, mean, squares = pandas_sums(frame)
    assert list(sums.labels) == sorted(frame["area"].unique())
    np.testing.assert_array_equal(sums.num_records, groups.size())
    np.testing.assert_array_equal(sums.num_missing, frame.groupby("area")["y"].apply(lambda y: y.isna().sum()))
    np.testing.assert_allclose(sums.weight_sum, groups["w"].sum(), rtol=1e-13)
    np.testing.assert_allclose(sums.weight_square_sum, groups["w"].apply(lambda w: (w**2).sum()), rtol=1e-13)
    np.testing.assert_array_equal(sums.max_weight, groups["w"].max())
    np.testing.assert_array_equal(sums.max_unit_weight, groups["w"].max())
    np.testing.assert_allclose(sums.weighted_outcome_sum / sums.weight_sum, mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(sums.weighted_square_sum, squares, rtol=1e-12)
    np.testing.assert_array_equal(sums.outcome_min, groups["y"].min())
    np.testing.assert_array_equal(sums.outcome_max, groups["y"].max())
    seen = frame[frame["y"].notna()]
    by_area = seen[names].groupby(seen["area"]).sum()
    np.testing.assert_allclose(sums.replicate_weight_sums, by_area, rtol=1e-12)
    by_area = seen[names].mul(seen["y"], axis=0).groupby(seen["area"]).sum()
    np.testing.assert_allclose(sums.replicate_outcome_sums, by_area, rtol=1e-12, atol=1e-10)
    assert sums.strata is None
    assert sums.num_replicates == 4


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("design", [(), ("h",), ("j",), ("h", "j")], ids=lambda names: "+".join(names) or "records")
def test_engine_and_segment_sums_agree(binary, design):
    frame = random_frame(2, replicates=4, binary=binary)
    frame["u"] = frame["area"] + "_" + (np.arange(len(frame)) // 3 % 50).astype(str)
    names = [f"r{b}" for b in range(1, 5)]
    roles = {"strata": "h" if "h" in design else None, "psu": "j" if "j" in design else None, "unit": "u"}
    one = area_sums(survey_from_frame(frame, **ROLES, **roles, replicates=names, binary=binary), taylor=True)
    labels, area = np.unique(frame["area"], return_inverse=True)
    two = sums_from_arrays(
        area,
        frame["w"],
        frame["y"],
        num_areas=len(labels),
        labels=labels,
        replicates=frame[names],
        stratum=frame["h"] if "h" in design else None,
        psu=frame["j"] if "j" in design else None,
        unit=frame["u"],
        bounds=(-1e6, 1e6),
    )
    assert agree(one, two) >= 17
    np.testing.assert_allclose(one.replicate_deviations, two.replicate_deviations, rtol=1e-12)


def test_segment_sums_under_vmap_and_jit():
    rng = np.random.default_rng(3)
    area, weight, y = rng.integers(0, 4, 50), rng.random(50), rng.random((3, 50))
    batch = jax.vmap(lambda row: record_sums(area, weight, row, num_areas=4)["weighted_outcome_sum"])(y)
    alone = [record_sums(area, weight, row, num_areas=4)["weighted_outcome_sum"] for row in y]
    np.testing.assert_allclose(batch, np.stack(alone), rtol=1e-14)
    gradient = jax.grad(lambda row: record_sums(area, weight, row, num_areas=4)["weighted_square_sum"].sum())(y[0])
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("binary", [True, False])
def test_split_file_merged_is_the_whole_file(seed, binary):
    frame = random_frame(seed, replicates=4, binary=binary)
    names = [f"r{b}" for b in range(1, 5)]
    frame.loc[frame["area"] == "03", "y"] = np.nan  # an area without universe
    roles = {**ROLES, "strata": "h", "psu": "j", "replicates": names, "binary": binary}
    whole = area_sums(survey_from_frame(frame, **roles))
    # PSUs stay together: split by PSU number, which also splits every stratum and every area.
    parts = [frame[frame["j"] == j] for j in range(6)]
    pieces = [area_sums(survey_from_frame(part, **roles)) for part in parts]
    left = pieces[0]
    for piece in pieces[1:]:
        left = left + piece
    right = pieces[5]
    for piece in reversed(pieces[:5]):
        right = piece + right
    assert agree(whole, left) >= 17
    assert agree(whole, right) >= 17
    one, two = (direct_estimates(sums, variance=Taylor(), zero_variance="keep") for sums in (whole, left))
    np.testing.assert_allclose(one.sampling_variance, two.sampling_variance, rtol=1e-11)


def test_a_psu_split_across_files_is_not_the_whole_file():
    """The condition that the merge states is needed: half a PSU counts as a PSU of its own."""
    frame = random_frame(3)
    roles = {**ROLES, "strata": "h", "psu": "j"}
    whole = area_sums(survey_from_frame(frame, **roles))
    odd = np.arange(len(frame)) % 2 == 1
    merged = area_sums(survey_from_frame(frame[odd], **roles)) + area_sums(survey_from_frame(frame[~odd], **roles))
    np.testing.assert_allclose(whole.weighted_outcome_sum, merged.weighted_outcome_sum, rtol=1e-12)
    one, two = direct_estimates(whole).sampling_variance, direct_estimates(merged).sampling_variance
    assert np.max(np.abs(one / two - 1.0)) > 0.01


def test_totals_keep_their_digits_when_only_the_outcome_varies():
    """Equal PSU weights and a mean of 10,000 standard deviations: the variance of the total is all in the residuals."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"area": "A", "w": 3.0, "j": np.repeat(np.arange(40), 5), "y": 1e4 + rng.normal(size=200)})
    sums = area_sums(survey_from_frame(frame, **ROLES, psu="j", binary=False))
    direct = direct_estimates(sums, estimator="ht", population=600.0)
    totals = 3.0 * (frame["y"].to_numpy() - 1e4).reshape(40, 5).sum(axis=1)
    np.testing.assert_allclose(direct.sampling_variance[0], 40 * totals.var(ddof=1) / 600.0**2, rtol=1e-10)


def test_merging_files_of_different_areas_takes_the_union_in_order():
    frame = random_frame(5)
    whole = area_sums(survey_from_frame(frame, **ROLES, strata="area"))
    even = frame["area"].isin(["00", "02", "04", "06"])
    one = area_sums(survey_from_frame(frame[~even], **ROLES, strata="area"))
    two = area_sums(survey_from_frame(frame[even], **ROLES, strata="area"))
    assert agree(whole, one + two, relative=1e-14) >= 15
    assert agree(one + two, two + one, relative=1e-14) >= 15


def test_merging_what_does_not_belong_together_is_refused():
    frame = random_frame(6, replicates=4)
    plain = area_sums(survey_from_frame(frame, **ROLES))
    replicated = area_sums(survey_from_frame(frame, **ROLES, replicates=["r1", "r2", "r3", "r4"]))
    fewer = area_sums(survey_from_frame(frame, **ROLES, replicates=["r1", "r2"]))
    with pytest.raises(InputError, match="4 and 2 replicate weights"):
        replicated + fewer
    with pytest.raises(InputError, match="0 and 4 replicate weights"):
        plain + replicated
    other = area_sums(survey_from_frame(frame, **{**ROLES, "bounds": (0.0, 1.0)}))
    with pytest.raises(InputError, match="lower outcome bound"):
        plain + other
    clustered = area_sums(survey_from_frame(frame, **ROLES, psu="j"))
    with pytest.raises(InputError, match="names a PSU column"):
        plain + clustered
    with pytest.raises(TypeError):
        plain + 1


def test_order_of_records_and_scale_of_weights():
    frame = random_frame(7, replicates=4, binary=False)
    names = [f"r{b}" for b in range(1, 5)]
    roles = {**ROLES, "strata": "h", "psu": "j", "replicates": names, "binary": False}
    shuffled = frame.sample(frac=1.0, random_state=1)
    assert agree(area_sums(survey_from_frame(frame, **roles)), area_sums(survey_from_frame(shuffled, **roles))) >= 17
    scaled = frame.copy()
    scaled[["w", *names]] *= 1e5
    for method in (Taylor(), Replicates("fay", fay=0.3)):
        one, two = (
            direct_estimates(area_sums(survey_from_frame(part, **roles)), variance=method) for part in (frame, scaled)
        )
        for name in ("y", "sampling_variance", "sensitivity", "kish_n_eff", "design_effect"):
            np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-11, err_msg=name)


def test_squares_keep_their_digits_far_from_zero():
    """Mean 10,000 standard deviations from 0: sums of squares around the area's mean, Taylor variance and merging."""
    frame = random_frame(8, binary=False)
    far = frame.assign(y=frame["y"] + 1e4)
    roles = {**ROLES, "strata": "h", "psu": "j", "binary": False}
    near_sums, far_sums = (area_sums(survey_from_frame(part, **roles)) for part in (frame, far))
    np.testing.assert_allclose(near_sums.weighted_square_sum, far_sums.weighted_square_sum, rtol=1e-10)
    one, two = (direct_estimates(sums) for sums in (near_sums, far_sums))
    np.testing.assert_allclose(one.sampling_variance, two.sampling_variance, rtol=1e-10)
    pieces = [area_sums(survey_from_frame(far[far["j"] % 2 == part], **roles)) for part in (0, 1)]
    np.testing.assert_allclose(
        direct_estimates(pieces[0] + pieces[1]).sampling_variance, two.sampling_variance, rtol=1e-10
    )


def test_household_as_the_privacy_unit():
    frame = pd.DataFrame(
        {
            "area": ["A", "A", "A", "B", "B"],
            "w": [1.0, 2.0, 2.5, 4.0, 8.0],
            "y": [1.0, 0.0, 1.0, 0.0, np.nan],
            "hh": ["1", "1", "2", "3", "3"],
        }
    )
    sums = area_sums(survey_from_frame(frame, **ROLES, unit="hh"))
    np.testing.assert_array_equal(sums.max_unit_weight, [3.0, 4.0])  # a missing outcome has no weight to move
    np.testing.assert_array_equal(sums.max_unit_records, [2, 1])
    np.testing.assert_array_equal(sums.max_weight, [2.5, 4.0])
    assert sums.privacy_unit == "hh"


def test_a_unit_in_two_areas_is_refused():
    frame = pd.DataFrame({"area": list("AB") * 7, "w": 1.0, "y": 1.0, "hh": [f"h{i // 2}" for i in range(14)]})
    with pytest.raises(
        InputError, match=r"7 privacy units have records in two areas: 'h0', 'h1', 'h2', 'h3', 'h4' and 2"
    ):
        area_sums(survey_from_frame(frame, **ROLES, unit="hh"))
    with pytest.raises(InputError, match=r"7 privacy units have records in two areas"):
        sums_from_arrays([0, 1] * 7, np.ones(14), np.ones(14), num_areas=2, unit=np.arange(14) // 2)


def test_outcomes_outside_the_declared_bounds_are_refused():
    frame = random_frame(9, binary=False)
    with pytest.raises(InputError, match=r"7 areas have an outcome outside the declared bounds \[0, 1\]: '00'"):
        area_sums(survey_from_frame(frame, **{**ROLES, "bounds": (0.0, 1.0)}, binary=False))
    with pytest.raises(InputError, match="outside the bounds"):
        sums_from_arrays([0], [1.0], [2.0], num_areas=1)


def test_an_empty_survey_is_refused():
    with pytest.raises(InputError, match="no records"):
        area_sums(survey_from_frame(random_frame(1).iloc[:0], **ROLES))


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="weight has 1 records but area has 2"):
        sums_from_arrays([0, 1], [1.0], [1.0, 0.0], num_areas=2)
    with pytest.raises(InputError, match="integers from 0 to 1"):
        sums_from_arrays([0, 2], [1.0, 1.0], [1.0, 0.0], num_areas=2)
    with pytest.raises(InputError, match="not negative"):
        sums_from_arrays([0, 1], [1.0, -1.0], [1.0, 0.0], num_areas=2)
    with pytest.raises(InputError, match="2 areas but 1 labels"):
        sums_from_arrays([0, 1], [1.0, 1.0], [1.0, 0.0], num_areas=2, labels=["A"])


def test_progress_is_told_before_each_pass():
    told = []
    frame = random_frame(1, replicates=4, binary=False)
    area_sums(
        survey_from_frame(frame.assign(u=np.arange(len(frame))), **ROLES, strata="h", psu="j", unit="u", binary=False,
                          replicates=["r1", "r2", "r3", "r4"]),
        progress=told.append,
    )  # fmt: skip
    assert len(told) == 5
    assert all(sentence.endswith(".") for sentence in told)
