"""Linear releases: the guarantee of regional means against the law of their loss."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from plrv.plrv_problems import problem

from fhjax.errors import InputError
from fhjax.plrv.linear import check_linear
from fhjax.privacy.linear import linear_guarantee

WEIGHTS = np.kron(np.eye(3), np.full((1, 4), 0.25))  # twelve areas in three regions
KEY = jax.random.key(3)


def test_regional_means_pass_and_a_wrong_rho_does_not() -> None:
    data, fitted, _, claim = problem()
    own = linear_guarantee(data, fitted, claim.sensitivity, WEIGHTS)
    result = check_linear(data, fitted, own, claim.sensitivity, WEIGHTS, key=KEY, num_draws=20_000)
    assert not result.refuted, result.reasons
    assert len(result.findings) == 8
    assert result.rho < float(claim.joint_correlated.rho)
    wrong = dataclasses.replace(own, rho=0.9 * own.rho)
    assert check_linear(data, fitted, wrong, claim.sensitivity, WEIGHTS, key=KEY, num_draws=20_000).refuted


def test_refusals() -> None:
    data, fitted, _, claim = problem()
    own = linear_guarantee(data, fitted, claim.sensitivity, WEIGHTS)
    for change, words in (
        ({"num_draws": 10}, "1,000"),
        ({"weights": WEIGHTS[[0, 0]]}, "depend"),
        ({"claim": dataclasses.replace(own, rho=0.0 * own.rho)}, "no law"),
    ):
        arguments = {"claim": own, "weights": WEIGHTS, "num_draws": 20_000} | change
        with pytest.raises(InputError, match=words):
            check_linear(data, fitted, arguments.pop("claim"), claim.sensitivity, arguments.pop("weights"), key=KEY,
                         **arguments)  # fmt: skip
