"""fhjax: how much privacy does a Fay-Herriot release already carry?

Survey file -> direct estimates -> Fay-Herriot fit -> posterior -> privacy guarantees -> report::

    import fhjax

    survey = fhjax.open_survey(fhjax.example("nhanes0910_cholesterol"), area=["race", "age", "sex"], weight="weight",
                               outcome="high_cholesterol = 1", strata="stratum", psu="psu", where="age <> '0-19'")
    direct = fhjax.direct_estimates(survey)
    assessment = fhjax.assess(direct, delta=1e-5)
    fhjax.write_report(assessment, "nhanes-report")

Importing turns on float64 in JAX and loads neither JAX nor the table engine nor the plotting library: the public names
below are imported when first used.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

# float32 understated rho in 91-100 % of areas on two of three scales tried, and a scoped switch loses the dtype in the
# caller's next operation: so the switch is thrown once, here. JAX reads the variable when it is imported, which takes a
# second that `fhjax --help` need not wait for.
os.environ["JAX_ENABLE_X64"] = "1"
if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)

__version__ = "0.1.0"

# public name -> module that holds it
_PUBLIC = {
    "example": "fhjax.survey.example",
    "open_survey": "fhjax.survey.read",
    "area_sums": "fhjax.survey.sums",
    "Replicates": "fhjax.survey.variance",
    "Taylor": "fhjax.survey.variance",
    "direct_estimates": "fhjax.survey.direct",
    "read_area_level": "fhjax.survey.area_level",
    "read_covariates": "fhjax.survey.covariates",
    "read_population": "fhjax.survey.covariates",
    "area_data": "fhjax.model.fit",
    "fit": "fhjax.model.fit",
    "given": "fhjax.model.fit",
    "posterior": "fhjax.model.posterior",
    "Coefficients": "fhjax.privacy.coefficients",
    "guarantees": "fhjax.privacy.guarantee",
    "intercept_guarantees": "fhjax.privacy.intercept",
    "per_area_rho": "fhjax.privacy.rho",
    "joint_rho_correlated": "fhjax.privacy.rho",
    "joint_rho_independent": "fhjax.privacy.rho",
    "subset_guarantee": "fhjax.privacy.linear",
    "regional_guarantee": "fhjax.privacy.linear",
    "linear_guarantee": "fhjax.privacy.linear",
    "composed": "fhjax.privacy.composition",
    "repeated": "fhjax.privacy.composition",
    "OtherSpending": "fhjax.privacy.composition",
    "epsilon": "fhjax.privacy.conversion",
    "epsilon_exact": "fhjax.privacy.conversion",
    "epsilon_simple": "fhjax.privacy.conversion",
    "epsilon_tight": "fhjax.privacy.conversion",
    "delta_exact": "fhjax.privacy.conversion",
    "rho_for_epsilon": "fhjax.privacy.conversion",
    "personal_risk": "fhjax.privacy.tradeoff",
    "trim": "fhjax.trimming",
    "plan_trimming": "fhjax.caps.plan",
    "draws": "fhjax.release.draws",
    "publish": "fhjax.release.publish",
    "check": "fhjax.plrv.check",
    "audit": "fhjax.plrv.audit",
    "area_mesh": "fhjax.sharding",
    "join_hosts": "fhjax.sharding",
    "local_areas": "fhjax.sharding",
    "shard_areas": "fhjax.sharding",
    "assess": "fhjax.assessment",
    "write_report": "fhjax.report.write",
    "AreaData": "fhjax.records",
    "AreaSums": "fhjax.records",
    "Assessment": "fhjax.records",
    "DirectEstimates": "fhjax.records",
    "FayHerriotFit": "fhjax.records",
    "Guarantees": "fhjax.records",
    "Posterior": "fhjax.records",
    "ReleaseGuarantee": "fhjax.records",
    "TrimmingPlan": "fhjax.records",
    "TrimmingSums": "fhjax.records",
    "sums_from_arrays": "fhjax.survey.arrays",
    "trimming_sums_from_arrays": "fhjax.survey.arrays",
    "hajek_sensitivity": "fhjax.survey.sensitivity",
    "horvitz_thompson_sensitivity": "fhjax.survey.sensitivity",
    "record_loss_share": "fhjax.survey.sensitivity",
    "record_loss_summary": "fhjax.privacy.what_if",
    "equal_weight_rho": "fhjax.privacy.what_if",
    "model_variance_changes": "fhjax.privacy.what_if",
    "fit_kernel": "fhjax.model.kernel",
    "posterior_kernel": "fhjax.model.posterior",
    "posterior_covariance": "fhjax.model.posterior",
    "coefficients": "fhjax.privacy.coefficients",
    "largest_effects": "fhjax.privacy.extremes",
    "write_dense": "fhjax.privacy.dense_output",
    "renyi_curve": "fhjax.privacy.renyi",
    "renyi_divergence": "fhjax.privacy.renyi",
    "renyi_divergence_multivariate": "fhjax.privacy.renyi",
    "optimal_order": "fhjax.privacy.renyi",
    "epsilon_from_renyi": "fhjax.privacy.renyi",
    "delta_tight": "fhjax.privacy.conversion",
    "trade_off_curve": "fhjax.privacy.tradeoff",
    "adjacency": "fhjax.privacy.priors",
    "car_precision": "fhjax.privacy.priors",
    "sar_precision": "fhjax.privacy.priors",
    "ar1_precision": "fhjax.privacy.priors",
    "prior_guarantee": "fhjax.privacy.priors",
    "trim_weights": "fhjax.caps.rules",
    "privacy_losses": "fhjax.plrv.losses",
    "check_linear": "fhjax.plrv.linear",
    "InputError": "fhjax.errors",
    "NumericalError": "fhjax.errors",
    "Status": "fhjax.errors",
}

__all__ = sorted(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        near = difflib.get_close_matches(name, _PUBLIC, n=3)
        hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise AttributeError(f"module 'fhjax' has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_PUBLIC])


if TYPE_CHECKING:
    from fhjax.assessment import assess
    from fhjax.caps.plan import plan_trimming
    from fhjax.caps.rules import trim_weights
    from fhjax.errors import InputError, NumericalError, Status
    from fhjax.model.fit import area_data, fit, given
    from fhjax.model.kernel import fit_kernel
    from fhjax.model.posterior import posterior, posterior_covariance, posterior_kernel
    from fhjax.plrv.audit import audit
    from fhjax.plrv.check import check
    from fhjax.plrv.linear import check_linear
    from fhjax.plrv.losses import privacy_losses
    from fhjax.privacy.coefficients import Coefficients, coefficients
    from fhjax.privacy.composition import OtherSpending, composed, repeated
    from fhjax.privacy.conversion import (
        delta_exact,
        delta_tight,
        epsilon,
        epsilon_exact,
        epsilon_simple,
        epsilon_tight,
        rho_for_epsilon,
    )
    from fhjax.privacy.dense_output import write_dense
    from fhjax.privacy.extremes import largest_effects
    from fhjax.privacy.guarantee import guarantees
    from fhjax.privacy.intercept import intercept_guarantees
    from fhjax.privacy.linear import linear_guarantee, regional_guarantee, subset_guarantee
    from fhjax.privacy.priors import adjacency, ar1_precision, car_precision, prior_guarantee, sar_precision
    from fhjax.privacy.renyi import (
        epsilon_from_renyi,
        optimal_order,
        renyi_curve,
        renyi_divergence,
        renyi_divergence_multivariate,
    )
    from fhjax.privacy.rho import joint_rho_correlated, joint_rho_independent, per_area_rho
    from fhjax.privacy.tradeoff import personal_risk, trade_off_curve
    from fhjax.privacy.what_if import equal_weight_rho, model_variance_changes, record_loss_summary
    from fhjax.records import (
        AreaData,
        AreaSums,
        Assessment,
        DirectEstimates,
        FayHerriotFit,
        Guarantees,
        Posterior,
        ReleaseGuarantee,
        TrimmingPlan,
        TrimmingSums,
    )
    from fhjax.release.draws import draws
    from fhjax.release.publish import publish
    from fhjax.report.write import write_report
    from fhjax.sharding import area_mesh, join_hosts, local_areas, shard_areas
    from fhjax.survey.area_level import read_area_level
    from fhjax.survey.arrays import sums_from_arrays, trimming_sums_from_arrays
    from fhjax.survey.covariates import read_covariates, read_population
    from fhjax.survey.direct import direct_estimates
    from fhjax.survey.example import example
    from fhjax.survey.read import open_survey
    from fhjax.survey.sensitivity import hajek_sensitivity, horvitz_thompson_sensitivity, record_loss_share
    from fhjax.survey.sums import area_sums
    from fhjax.survey.variance import Replicates, Taylor
    from fhjax.trimming import trim
