"""What the files between the steps of the command line hold: tables with one row an area, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fhjax.privacy.conversion import epsilon, epsilon_simple
from fhjax.records import AreaData, DirectEstimates, FayHerriotFit, Guarantees, Posterior, ReleaseGuarantee


def direct_table(direct: DirectEstimates) -> pd.DataFrame:
    """Direct estimates as a table, under the column names that ``fhjax fit`` reads."""

    columns = {
        "area": list(direct.labels),
        "n": direct.num_records,
        "sum_w": direct.weight_sum,
        "w_max": direct.max_unit_weight,
        "deff": direct.design_effect,
        "n_eff": direct.kish_n_eff,
        "degrees_of_freedom": direct.degrees_of_freedom,
        "y": direct.y,
        "sampling_variance": direct.sampling_variance,
        "sensitivity": direct.sensitivity,
        "privacy_unit": [direct.privacy_unit] * len(direct.labels),
        "outcome": [direct.outcome] * len(direct.labels) if direct.outcome else None,
        "outcome_lower": None if direct.outcome_bounds is None else [direct.outcome_bounds[0]] * len(direct.labels),
        "outcome_upper": None if direct.outcome_bounds is None else [direct.outcome_bounds[1]] * len(direct.labels),
        "source": [";".join(direct.sources)] * len(direct.labels) if direct.sources else None,
        "cautions": ["\n".join(direct.cautions)] * len(direct.labels) if direct.cautions else None,
    }
    table = pd.DataFrame({name: values for name, values in columns.items() if values is not None})
    table["flags"] = [";".join(flag for flag, mask in direct.flags.items() if mask[i]) for i in range(len(table))]
    return table


def fit_values(fitted: FayHerriotFit, data_digest: Mapping[str, str]) -> dict[str, object]:
    """A fit as plain values: what `fhjax guarantee` needs (hashes of its data too), and what a reader wants to see."""

    return {
        "method": fitted.method,
        "num_areas": fitted.num_areas,
        "model_variance": float(fitted.model_variance),
        "model_variance_se": _finite(fitted.model_variance_se),
        "columns": list(fitted.columns),
        "beta": np.asarray(fitted.beta).tolist(),
        "beta_se": np.asarray(fitted.beta_se).tolist(),
        "log_likelihood": _finite(fitted.log_likelihood),
        "restricted_log_likelihood": _finite(fitted.restricted_log_likelihood),
        "aic": _finite(fitted.aic),
        "bic": _finite(fitted.bic),
        "status": int(fitted.status),
        "data_digest": dict(data_digest),
    }


def estimates_table(data: AreaData, posterior: Posterior) -> pd.DataFrame:
    """Small-area estimates, one row an area."""

    return pd.DataFrame(
        {
            "area": list(data.labels or range(data.num_areas)),
            "y": np.asarray(data.y),
            "sampling_variance": np.asarray(data.sampling_variance),
            "shrinkage": np.asarray(posterior.shrinkage),
            "posterior_mean": np.asarray(posterior.mean),
            "posterior_variance": np.asarray(posterior.variance),
            "mse": np.asarray(posterior.mse),
        }
    )


def guarantees_table(data: AreaData, result: Guarantees, delta: float) -> pd.DataFrame:
    """Guarantees as a table, one row an area."""

    return pd.DataFrame(
        {
            "area": list(data.labels or range(data.num_areas)),
            "sensitivity": np.asarray(result.sensitivity),
            "c_own": np.asarray(result.own_coefficient),
            "rho": np.asarray(result.per_area_rho),
            "rho_own_area": np.asarray(result.own_area_rho),
            "epsilon": np.asarray(epsilon_simple(result.per_area_rho, delta)),
            "delta": delta,
            "joint_term_independent": np.asarray(result.joint_independent_terms),
            "other_areas_share": np.asarray(result.other_areas_share),
        }
    )


def release_values(release: ReleaseGuarantee, delta: float) -> dict[str, object]:
    """One release's cost as plain values; an infinite number is written as text, JSON has no sign for it."""

    numbers = {"rho": float(release.rho), "epsilon": float(epsilon_simple(release.rho, delta))}
    return {
        "release": release.release,
        **{name: value if np.isfinite(value) else "Infinity" for name, value in numbers.items()},
        "neighbours": release.neighbours,
        "assumptions": list(release.assumptions),
    }


def guarantee_values(made, delta: float) -> dict[str, Any]:
    """The guarantee of a release as plain values; neither noise nor posterior mean is among them."""
    rho = float(made.guarantee.rho)
    return {
        "notice": "Internal: rho and epsilon are computed from confidential data. What may be published is the draw.",
        "release": made.guarantee.release,
        "rho": rho,
        "rho_real_numbers": len(made.values) * made.price.rho_real,
        "epsilon": float(epsilon(rho, delta, method="tight")),
        "delta": delta,
        "epsilon_method": "tight",
        "draws": len(made.values),
        "lattice": {
            "steps_per_posterior_sd": made.price.steps,
            "coordinates": made.price.num_coordinates,
            "computation_error_sd": made.price.computation_error,
            "relative_increase_of_rho": made.price.spacing_share,
        },
        "decimals": made.decimals,
        "neighbours": made.guarantee.neighbours,
        "assumptions": list(made.guarantee.assumptions),
    }


def _finite(value) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
