"""Fits and posteriors against 40-digit references and against R."""

from __future__ import annotations

import json

import numpy as np
import pytest
from model_cases import numbers, reference_data

from fhjax.errors import Status
from fhjax.model.fit import fit
from fhjax.model.posterior import posterior

METHOD = {"REML": "reml", "ML": "ml", "FH": "moment"}


@pytest.fixture(scope="module")
def cases(shared):
    return reference_data(shared)


@pytest.fixture(scope="module")
def exact(shared):
    return json.loads((shared / "golden" / "fay_herriot" / "exact_mp.json").read_text())


def agree(actual, expected, rtol, what):
    expected = numbers(expected)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=0.0, err_msg=what)
    return expected.size


def test_every_number_of_the_40_digit_references(cases, exact):
    compared = 0
    for name, data in cases.items():
        for label, method in METHOD.items():
            want = exact[name][label]
            result = fit(data, method=method)
            post = posterior(data, result)
            pairs = {
                "sigma2_v": result.model_variance,
                "beta": result.beta,
                "se": result.beta_se,
                "loglik_ml": result.log_likelihood,
                "loglik_reml": result.restricted_log_likelihood,
                "AIC": result.aic,
                "BIC": result.bic,
                "B": post.shrinkage,
                "theta_hat": post.mean,
                "g1": post.shrinkage * post.model_variance,
                "mse_prasad_rao": post.mse,
            }
            for key, value in pairs.items():
                compared += agree(value, want[key], 1e-12, f"{name} {label} {key}")
            g1, g2, g3 = (numbers(want[key]) for key in ("g1", "g2", "g3"))
            compared += agree(post.variance, g1 + g2, 1e-12, f"{name} {label} g1 + g2")
            if method == "reml":
                compared += agree(post.mse, g1 + g2 + 2 * g3, 1e-12, f"{name} g1 + g2 + 2 g3")
            boundary = float(want["sigma2_v"]) == 0.0
            assert int(result.status) == (Status.AT_BOUNDARY if boundary else Status.OK)
            assert not boundary or float(result.model_variance) == 0.0
    assert compared == 5207


def test_r_where_it_converged_tightly(cases, shared):
    """R sae at PRECISION 1e-13, base R uniroot, metafor REML, ML and Hedges (= Prasad-Rao)."""
    files = {
        "milk_intercept": "milk_fh_intercept",
        "milk_majorarea": "milk_fh_majorarea",
        "milk_var10_intercept": "milk_var10_fh_intercept",
        "eusilcA": "eusilcA_fh",
        "eusilcA_intercept": "eusilcA_fh_intercept",
    }
    compared = 0
    for name, file in files.items():
        reference = json.loads((shared / "golden" / "fay_herriot" / f"{file}.json").read_text())
        data = cases[name]
        for label, method in METHOD.items():
            result = fit(data, method=method)
            post = posterior(data, result)
            sae, base = reference[f"sae_{label}_tight"], reference[f"exact_{label}"]
            if sae.get("sigma2_v") is not None:
                for key, value in {
                    "sigma2_v": result.model_variance,
                    "beta": result.beta,
                    "se": result.beta_se,
                    "loglik": result.log_likelihood,
                    "AIC": result.aic,
                    "BIC": result.bic,
                    "eblup": post.mean,
                    "mse": post.mse,
                }.items():
                    compared += agree(value, sae[key], 1e-8, f"{name} sae {label} {key}")
            for key, value in {"sigma2_v": result.model_variance, "beta": result.beta, "eblup": post.mean}.items():
                compared += agree(value, base[key], 1e-8, f"{name} uniroot {label} {key}")
        for label, method in {"metafor_REML": "reml", "metafor_ML": "ml", "metafor_HE": "pr"}.items():
            result = fit(data, method=method)
            compared += agree(result.model_variance, reference[label]["tau2"], 1e-8, f"{name} {label}")
            if method != "pr":
                compared += agree(result.model_variance_se, reference[label]["se_tau2"], 1e-8, f"{name} {label} se")
    assert compared == 2767


def test_a_planted_fault_is_seen(cases, exact):
    """The comparison is sharp: the MSE of another method does not pass for this one."""
    data = cases["milk_intercept"]
    wrong = posterior(data, fit(data, method="ml")).mse
    with pytest.raises(AssertionError):
        agree(wrong, exact["milk_intercept"]["REML"]["mse_prasad_rao"], 1e-12, "planted")
