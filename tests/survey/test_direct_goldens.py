"""Direct estimates against R survey: Taylor linearisation, jackknife, BRR, Fay and successive differences."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from oracles.survey_oracle import jackknife
from survey_tables import survey_from_frame

from fhjax.survey.direct import direct_estimates
from fhjax.survey.sums import area_sums
from fhjax.survey.variance import Replicates, Taylor

RELATIVE = 1e-9
ZERO = 1e-20  # R survey leaves rounding noise where the variance is zero


@pytest.fixture(scope="module")
def golden(shared):
    def load(name):
        return json.loads((shared / "golden" / "survey" / f"survey_{name}.json").read_text())

    return load


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "golden" / "survey"


def compare(golden, key, frame, method, *, by, R=None, strata=None, psu=None, outcome, weight, binary, bounds,
            exclude=()):  # fmt: skip
    """Compare mean and total, overall and by area; returns how many pairs (estimate, variance) were compared."""
    frame = frame.assign(everything="all")
    compared = 0
    replicates = [f"rw{b}" for b in range(1, R + 1)] if R else []
    for area, suffix in (("everything", "overall"), (by, "by")):
        survey = survey_from_frame(frame, area=area, weight=weight, outcome=outcome, strata=strata, psu=psu,
                                   replicates=replicates, bounds=bounds, binary=binary)  # fmt: skip
        sums = area_sums(survey)
        for kind in ("mean", "total"):
            record = golden[f"{key}/overall_{kind}" if suffix == "overall" else f"{key}/{kind}_by"]
            options = {"estimator": "ht", "population": 1.0} if kind == "total" else {}
            ours = direct_estimates(sums, variance=method, zero_variance="keep", **options)
            labels = ["all"] if suffix == "overall" else [str(name) for name in record["domain"]]
            est, var = np.atleast_1d(record["est"]), np.atleast_1d(np.array(record["var"], dtype=float))
            for label, e, v in zip(labels, est, var, strict=True):
                if label not in ours.labels:
                    assert label in exclude or label in dict(ours.excluded), label
                    continue
                i = ours.labels.index(label)
                np.testing.assert_allclose(ours.y[i], e, rtol=RELATIVE, atol=1e-12)
                np.testing.assert_allclose(ours.sampling_variance[i], v, rtol=RELATIVE, atol=ZERO)
                assert ours.flags["zero_variance"][i] == (ours.sampling_variance[i] == 0.0)
                compared += 1
            if suffix == "overall" and isinstance(method, Taylor):
                assert ours.degrees_of_freedom[0] == record["degf"]
    return compared


API = {"outcome": "api00", "weight": "pw", "binary": False, "bounds": (0.0, 1000.0)}


def test_api_taylor(golden, folder):
    record = golden("api")
    strat, clus = pd.read_csv(folder / "apistrat.csv"), pd.read_csv(folder / "apiclus1.csv")
    assert compare(record, "apistrat/taylor_nofpc", strat, Taylor(), by="cname", strata="stype", **API) == 2 + 2 * 40
    assert compare(record, "apiclus1/taylor_nofpc", clus, Taylor(), by="stype", psu="dnum", **API) == 2 + 2 * 3
    assert compare(record, "apiclus1/taylor_nofpc_cname", clus, Taylor(), by="cname", psu="dnum", **API) == 2 + 2 * 11


@pytest.mark.parametrize(("suffix", "center"), [("", "replicates"), ("_mse", "full")])
def test_api_jackknife(golden, folder, suffix, center):
    record = golden("api")
    scales = record["rep_scales"]
    clus, strat = pd.read_csv(folder / "apiclus1.csv"), pd.read_csv(folder / "apistrat.csv")
    weights = pd.read_csv(folder / "apiclus1_JK1_fpc_repweights.csv")
    assert (weights["cds"] == clus["cds"]).all()
    clus = pd.concat([clus, weights.drop(columns=["cds", "pw"])], axis=1)
    for key, scale in (("fpc", scales["apiclus1_JK1_fpc"]["scale"]), ("nofpc", None)):
        method = Replicates("jk1", center=center, scale=scale)
        assert compare(record, f"apiclus1/JK1_{key}{suffix}", clus, method, by="stype", R=15, **API) == 2 + 2 * 3

    weights = pd.read_csv(folder / "apistrat_JKn_fpc_repweights.csv")
    assert (weights["cds"] == strat["cds"]).all()
    fpc = pd.concat([strat, weights.drop(columns=["cds", "pw"])], axis=1)
    rscales = np.array(scales["apistrat_JKn_fpc"]["rscales"], dtype=float)
    method = Replicates("jkn", center=center, scales=rscales, empty_area="exclude")
    means = compare(record, f"apistrat/JKn_fpc{suffix}", fpc, method, by="cname", R=200, **API)
    # R drops the replicates that leave a county without weight; here those counties are listed instead.
    assert means == 2 + 40 + 27

    columns, multiples = jackknife(strat["pw"].to_numpy(float), strat["stype"].to_numpy(), np.arange(len(strat)))
    nofpc = pd.concat([strat, pd.DataFrame(columns, columns=[f"rw{b}" for b in range(1, 201)])], axis=1)
    method = Replicates("jkn", center=center, scales=multiples, empty_area="exclude")
    assert compare(record, f"apistrat/JKn_nofpc{suffix}", nofpc, method, by="cname", R=200, **API) == 2 + 40 + 27


NHANES = {"outcome": "HI_CHOL", "weight": "WTMEC2YR", "binary": True, "bounds": (0.0, 1.0)}


def nhanes_frame(folder):
    frame = pd.read_csv(folder / "nhanes_2psu.csv")
    return frame.assign(SDMVSTRA=frame["SDMVSTRA"].astype(str))


def test_nhanes_taylor(golden, folder):
    count = compare(golden("nhanes"), "nhanes2psu/taylor", nhanes_frame(folder), Taylor(), by="dom",
                    strata="SDMVSTRA", psu="SDMVPSU", **NHANES)  # fmt: skip
    assert count == 2 + 2 * 8


@pytest.mark.parametrize(("suffix", "center"), [("", "replicates"), ("_mse", "full")])
def test_nhanes_replicates(golden, folder, suffix, center):
    record, frame = golden("nhanes"), nhanes_frame(folder)
    brr = pd.read_csv(folder / "nhanes2psu_BRR_repweights.csv").drop(columns=["row", "pw"])
    fay3 = pd.read_csv(folder / "nhanes2psu_Fay.3_repweights.csv").drop(columns=["row", "pw"])
    half = (brr + frame["WTMEC2YR"].to_numpy()[:, None]) / 2.0
    jkn, multiples = jackknife(
        frame["WTMEC2YR"].to_numpy(float), frame["SDMVSTRA"].to_numpy(), frame["SDMVPSU"].to_numpy()
    )
    jkn = pd.DataFrame(jkn, columns=[f"rw{b}" for b in range(1, 29)])
    assert list(multiples) == record["scales/JKn"]["rscales"]
    for key, weights, method in (
        ("BRR", brr, Replicates("brr", center=center)),
        ("Fay.3", fay3, Replicates("fay", fay=0.3, center=center)),
        ("Fay.5", half, Replicates("fay", fay=0.5, center=center)),
        ("JKn", jkn, Replicates("jkn", scales=multiples, center=center)),
    ):
        joined = pd.concat([frame, weights], axis=1)
        count = compare(record, f"nhanes2psu/{key}{suffix}", joined, method, by="dom", R=weights.shape[1], **NHANES)
        assert count == 2 + 2 * 8


@pytest.mark.parametrize(("suffix", "center"), [("centred", "replicates"), ("mse", "full")])
@pytest.mark.parametrize("outcome", ["y", "pov"])
def test_successive_differences(carried, suffix, center, outcome):
    record = json.loads((carried / "survey" / "survey_sdr.json").read_text())
    frame = pd.read_csv(carried / "survey" / "sdr_micro.csv.gz", dtype={"area": str, "serial": str})
    frame = frame.rename(columns={f"pwgtp{b}": f"rw{b}" for b in range(1, 81)})
    renamed = {f"{key}": value for key, value in record.items()}
    options = {"outcome": outcome, "weight": "pwgtp", "binary": outcome == "pov", "bounds": (-100.0, 100.0)}
    method = Replicates("sdr", center=center)
    key = f"sdr/successive-difference_{suffix}/{outcome}"
    assert compare(renamed, key, frame, method, by="area", R=80, **options) == 2 + 2 * 25
