"""The per-area table: one row an area, every number the assessment holds about it, in one fixed order of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fhjax.errors import InputError
from fhjax.privacy import conversion
from fhjax.records import Assessment

#: The columns of areas.csv, in order. ``epsilon`` uses the simple formula; other methods come right after it.
COLUMNS = (
    "area",
    "n",
    "n_missing",
    "sum_w",
    "w_max",
    "weight_ratio",
    "deff",
    "n_eff",
    "degrees_of_freedom",
    "y",
    "se",
    "sampling_variance",
    "shrinkage",
    "posterior_mean",
    "posterior_sd",
    "posterior_variance",
    "mse",
    "sensitivity",
    "c_own",
    "rho",
    "rho_own_area",
    "rho_conservative",
    "rho_equal_weight",
    "rho_equal_weight_refitted",
    "epsilon",
    "delta",
    "joint_term_independent",
    "other_areas_share",
    "flags",
)
#: Ways to turn rho into epsilon, and how a reader is told which one it was.
EPSILON_METHODS = {
    "simple": "ρ + 2 √(ρ log(1/δ))",
    "tight": "the improved conversion from Rényi divergences at the best order",
    "exact": "the exact privacy curve of a pair of Gaussian distributions",
}
#: What a report shows unless it is asked for less: the paper's formula first, then what the same rho allows to say.
DEFAULT_METHODS = ("simple", "tight", "exact")


def epsilon_of(rho: npt.ArrayLike, delta: float, method: str = "simple") -> npt.NDArray[np.float64]:
    """Epsilon for each rho (nats) at ``delta``; an infinite rho has an infinite epsilon under every method."""
    rho = np.asarray(rho, dtype=np.float64)
    finite = np.isfinite(rho)
    function: Callable[..., Any] = getattr(conversion, f"epsilon_{method}")
    epsilon = np.asarray(function(np.where(finite, rho, 0.0), delta), dtype=np.float64)
    return np.where(finite, epsilon, np.inf)


def check_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """The epsilon methods asked for, ``simple`` always among them and first; an unknown name is refused."""
    methods = (methods,) if isinstance(methods, str) else tuple(methods)
    unknown = [method for method in methods if method not in EPSILON_METHODS]
    if unknown:
        raise InputError(f"Unknown epsilon method {unknown[0]!r}. Choose from {', '.join(EPSILON_METHODS)}.")
    return ("simple", *(method for method in dict.fromkeys(methods) if method != "simple"))


def epsilon_column(method: str) -> str:
    """The column of areas.csv that holds epsilon by ``method``."""
    return "epsilon" if method == "simple" else f"epsilon_{method}"


def in_areas(assessment: Assessment, values: Any) -> npt.NDArray[Any]:
    """A vector of the model side as NumPy, without the rows that only pad it."""
    values = np.asarray(values)
    mask = assessment.area_data.mask
    return values if mask is None else values[np.asarray(mask)]


def flags_of(assessment: Assessment) -> list[str]:
    """The flags of each area, joined by semicolons; empty where there is none."""
    direct = assessment.direct
    names = [name for name, marked in direct.flags.items() if np.any(marked)]
    if not names:
        return [""] * len(direct.labels)
    marks = np.stack([np.asarray(direct.flags[name], dtype=bool) for name in names], axis=1)
    return [";".join(name for name, on in zip(names, row, strict=True) if on) for row in marks]


def area_table(assessment: Assessment, epsilon_methods: Sequence[str] = DEFAULT_METHODS) -> pd.DataFrame:
    """One row an area with the columns of :data:`COLUMNS`; what the input does not say is missing (NaN).

    Args:
        assessment: an assessed survey, m areas.
        epsilon_methods: which epsilon columns to make; ``simple`` is always there.

    Returns:
        A DataFrame of m rows in the order of ``assessment.direct.labels``, unrounded. An infinite rho stays infinite.

    Raises:
        InputError: an epsilon method is unknown.
    """
    methods = check_methods(epsilon_methods)
    direct, posterior, guarantees = assessment.direct, assessment.posterior, assessment.guarantees
    size = len(direct.labels)

    def known(values: Any) -> npt.NDArray[np.float64]:
        return np.full(size, np.nan) if values is None else np.asarray(values, dtype=np.float64)

    def modelled(values: Any) -> npt.NDArray[np.float64]:
        return np.full(size, np.nan) if values is None else in_areas(assessment, values).astype(np.float64)

    variance = modelled(posterior.variance)
    rho = modelled(guarantees.per_area_rho)
    columns: dict[str, Any] = {
        "area": list(direct.labels),
        "n": pd.array([pd.NA] * size if direct.num_records is None else direct.num_records, dtype="Int64"),
        "n_missing": pd.array([pd.NA] * size if direct.num_missing is None else direct.num_missing, dtype="Int64"),
        "sum_w": known(direct.weight_sum),
        "w_max": known(direct.max_unit_weight),
        "weight_ratio": known(direct.weight_ratio),
        "deff": known(direct.design_effect),
        "n_eff": known(direct.kish_n_eff),
        "degrees_of_freedom": known(direct.degrees_of_freedom),
        "y": known(direct.y),
        "se": np.sqrt(known(direct.sampling_variance)),
        "sampling_variance": known(direct.sampling_variance),
        "shrinkage": modelled(posterior.shrinkage),
        "posterior_mean": modelled(posterior.mean),
        "posterior_sd": np.sqrt(np.maximum(variance, 0.0)),
        "posterior_variance": variance,
        "mse": modelled(posterior.mse),
        "sensitivity": known(direct.sensitivity),
        "c_own": modelled(guarantees.own_coefficient),
        "rho": rho,
        "rho_own_area": modelled(guarantees.own_area_rho),
        "rho_conservative": modelled(guarantees.conservative_rho),
        "rho_equal_weight": modelled(assessment.equal_weight_rho),
        "rho_equal_weight_refitted": modelled(assessment.equal_weight_refitted_rho),
    }
    for method in methods:
        columns[epsilon_column(method)] = epsilon_of(rho, assessment.delta, method)
    columns["delta"] = assessment.delta
    columns["joint_term_independent"] = modelled(guarantees.joint_independent_terms)
    columns["other_areas_share"] = modelled(guarantees.other_areas_share)
    columns["flags"] = flags_of(assessment)
    return pd.DataFrame(columns)


def excluded_table(assessment: Assessment) -> pd.DataFrame:
    """The areas that could not be used, with the reason of each."""
    return pd.DataFrame(list(assessment.direct.excluded), columns=["area", "reason"])
