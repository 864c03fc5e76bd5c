"""The values that flow, from a survey file to a privacy statement. Read top to bottom, they are the story.

``AreaSums`` -> ``DirectEstimates`` -> ``AreaData`` -> ``FayHerriotFit`` -> ``Posterior`` -> ``Guarantees`` -> ``Assessment``

Each is a frozen dataclass and a JAX pytree: numbers are leaves, names and options are static. The survey side
(``AreaSums``, ``DirectEstimates``) holds NumPy arrays because it comes out of an SQL engine; from ``AreaData`` on the
leaves are JAX arrays, float64. Shapes: m areas, p covariates (intercept included), R replicates.
What was released is kept apart from what it costs: a ``Posterior`` knows nothing of privacy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

Array = jax.Array
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def static(**kwargs: Any) -> Any:
    """A field that is part of the record's structure, not of its numbers (names, methods, options)."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def record(cls):
    """Make ``cls`` a frozen dataclass and a pytree whose ``static()`` fields are hashable metadata."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
    fields = dataclasses.fields(cls)
    meta = [field.name for field in fields if field.metadata.get("static")]
    data = [field.name for field in fields if not field.metadata.get("static")]
    return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=meta)


class Labels(tuple):
    """Area labels: a tuple of text that remembers its hash, so that a million labels cost jit nothing per call."""

    def __new__(cls, labels: Iterable[object] = ()):
        self = super().__new__(cls, (str(label) for label in labels))
        self._hash = tuple.__hash__(self)
        return self

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, tuple) and tuple.__eq__(self, other))

    def __repr__(self) -> str:
        return f"Labels({len(self)} areas)"

    def where(self, mask: npt.ArrayLike) -> list[str]:
        """The labels at which a boolean mask is true."""
        return [self[i] for i in np.flatnonzero(np.asarray(mask))]


@record
class StratumSums:
    """Taylor linearisation's table: one row for each pair (area, stratum) that has a record in the universe.

    ``e`` is a PSU's residual total in an area, sum over its records of w (Y - y_area); the rows hold its sums over PSUs.
    PSUs without a record in the area contribute zeros and are counted by ``stratum_psus``.
    """

    area: IntArray  # (q,) index of the area
    stratum: Labels = static()  # (q,) name of the stratum
    psus: IntArray  # (q,) PSUs of this stratum with at least one record in the area's universe
    stratum_psus: IntArray  # (q,) PSUs of this stratum in the whole design
    residual_sum: FloatArray  # (q,) sum over PSUs of e
    residual_square_sum: FloatArray  # (q,) sum over PSUs of e**2
    design_psus: int = static()  # PSUs of the whole design
    design_strata: int = static()  # strata of the whole design
    # For single_psu="center": with T_h = sum over PSUs of e, the domain's grand mean over all PSUs of the design is used.


@record
class AreaSums:
    """Everything that leaves the data engine: sums by area. Nothing downstream sees a record.

    All numbers concern the universe (records with an observed outcome) unless said otherwise. ``+`` merges the sums of
    two files with disjoint records; a household must not be split across them.
    """

    labels: Labels = static()  # (m,)
    num_records: IntArray  # (m,) records in the universe
    num_missing: IntArray  # (m,) records of the area with a missing outcome (outside the universe)
    weight_sum: FloatArray  # (m,)
    weight_square_sum: FloatArray  # (m,)
    max_weight: FloatArray  # (m,) largest weight of one record
    max_unit_weight: FloatArray  # (m,) largest weight sum of one privacy unit (= max_weight when the unit is a record)
    weighted_outcome_sum: FloatArray  # (m,) sum of w Y
    weighted_square_sum: FloatArray  # (m,) sum of w (Y - y_area)**2, for the design effect
    outcome_min: FloatArray  # (m,)
    outcome_max: FloatArray  # (m,)
    replicate_weight_sums: FloatArray | None = None  # (m, R)
    replicate_outcome_sums: FloatArray | None = None  # (m, R) sum of w_b Y
    strata: StratumSums | None = None
    privacy_unit: str = static(default="record")  # "record", or the column that names the unit
    outcome_lower: float = static(default=0.0)  # declared bounds of one record's outcome
    outcome_upper: float = static(default=1.0)
    num_filtered: int = static(default=0)  # records of the file dropped by the filter, before the design
    design: tuple[str, ...] = static(default=())  # sentences: what was read, with which roles

    @property
    def outcome_range(self) -> float:
        """R = hi - lo, the largest change of one record's outcome."""
        return self.outcome_upper - self.outcome_lower


@record
class DirectEstimates:
    """Direct survey estimates with their design variances, one row an area that can be used.

    Areas that cannot (no observed outcome, or a zero variance under ``zero_variance="exclude"``) are in ``excluded``
    with the reason, so that none is ever lost.
    """

    labels: Labels = static()  # (m,)
    y: FloatArray  # (m,) direct estimate, outcome units
    sampling_variance: FloatArray  # (m,) design variance psi, outcome units squared
    sensitivity: FloatArray  # (m,) largest |change of y| from one privacy unit, outcome units
    num_records: IntArray | None = None  # (m,)
    weight_sum: FloatArray | None = None  # (m,)
    max_unit_weight: FloatArray | None = None  # (m,)
    kish_n_eff: FloatArray | None = None  # (m,) (sum w)^2 / sum w^2
    design_effect: FloatArray | None = None  # (m,) sampling variance / simple random sampling variance
    degrees_of_freedom: FloatArray | None = None  # (m,) of the area's design variance
    # name of a flag -> (m,) booleans; the names are keys of FLAGS
    flags: dict[str, npt.NDArray[np.bool_]] = dataclasses.field(default_factory=dict)
    excluded: tuple[tuple[str, str], ...] = static(default=())  # (label, reason)
    num_missing: IntArray | None = None  # (m,)
    outcome_range: float = static(default=1.0)  # nan when only the sensitivity was given
    privacy_unit: str = static(default="record")
    estimator: str = static(default="hajek")  # "hajek", "ht" or "given"
    variance_method: str = static(default="given")  # a sentence fragment for the report
    variance_source: str = static(default="estimated")  # "estimated" from the same confidential data, or "public"
    num_filtered: int = static(default=0)
    design: tuple[str, ...] = static(default=())

    @property
    def weight_ratio(self) -> FloatArray | None:
        """w_max / w_bar by area; 1 means equal weights."""
        if self.max_unit_weight is None or self.weight_sum is None or self.num_records is None:
            return None
        return self.max_unit_weight * self.num_records / self.weight_sum


#: What each flag of an area says to the reader of the report.
FLAGS = {
    "zero_variance": "the design variance is 0, so the guarantee is infinite",
    "generalised_variance": "the design variance was 0 and replaced by a generalised variance function",
    "low_degrees_of_freedom": "the design variance rests on at most 2 degrees of freedom; rho goes with its inverse square",
    "constant_outcome": "all records of the area have the same outcome",
    "single_record": "the area has one record",
    "missing_outcomes": "more than 10 % of the area's records have no observed outcome",
}


@record
class AreaData:
    """What the Fay-Herriot model sees: y, sampling variances and covariates of m areas.

    ``mask`` is False for rows that only pad an array to a convenient length; None means that all rows are areas.
    """

    y: Array  # (m,)
    sampling_variance: Array  # (m,)
    X: Array  # (m, p)
    mask: Array | None = None  # (m,) bool
    labels: Labels | None = static(default=None)
    columns: tuple[str, ...] = static(default=("(Intercept)",))
    variance_source: str = static(default="estimated")

    @property
    def num_areas(self) -> int:
        return self.y.shape[0]

    @property
    def num_covariates(self) -> int:
        return self.X.shape[1]


@record
class FayHerriotFit:
    """A fitted Fay-Herriot model: y = X beta + v + e, v ~ N(0, model_variance), e ~ N(0, sampling_variance)."""

    model_variance: Array  # () sigma_v^2 >= 0, outcome units squared
    model_variance_se: Array  # () asymptotic standard error
    beta: Array  # (p,)
    beta_covariance: Array  # (p, p) A = (X' V^-1 X)^-1
    log_likelihood: Array  # () of the ML criterion at the estimate (R sae's convention for AIC and BIC)
    restricted_log_likelihood: Array  # ()
    steps: Array  # () iterations used
    status: Array  # () a Status code
    num_areas: int = static()
    method: str = static(default="reml")  # "reml", "ml", "moment", "pr" or "given"
    columns: tuple[str, ...] = static(default=("(Intercept)",))

    @property
    def beta_se(self) -> Array:
        return jax.numpy.sqrt(jax.numpy.diagonal(self.beta_covariance))

    @property
    def aic(self) -> Array:
        """-2 loglik + 2 (p + 1)."""
        return -2.0 * self.log_likelihood + 2.0 * (self.beta.shape[0] + 1)

    @property
    def bic(self) -> Array:
        """-2 loglik + (p + 1) log m."""
        return -2.0 * self.log_likelihood + (self.beta.shape[0] + 1) * float(np.log(self.num_areas))


@record
class Posterior:
    """Posterior of the area means theta given y and the variances: N(mean, covariance).

    The covariance is kept as a diagonal plus a rank-p part and never built (see ``model.posterior.covariance``):
    Sigma_ij = delta_ij B_i sigma_v^2 + B_i B_j x_i' A x_j.
    """

    mean: Array  # (m,) the EBLUP
    variance: Array  # (m,) sigma_i^2, the diagonal of the covariance
    shrinkage: Array  # (m,) B_i = psi_i / (psi_i + sigma_v^2)
    mse: Array | None  # (m,) Prasad-Rao mean squared error estimate g1 + g2 + 2 g3; None when method is "given"
    model_variance: Array  # ()
    beta: Array  # (p,)
    beta_covariance: Array  # (p, p)
    X: Array  # (m, p)


@record
class ReleaseGuarantee:
    """What one release costs: zCDP with parameter ``rho``, for stated neighbours and under stated assumptions."""

    rho: Array  # () or inf when nothing can be certified
    worst_area: Array  # () index of the area that attains it; -1 when no single area does
    release: str = static()  # what is published, as a sentence fragment
    neighbours: str = static()  # which two data sets are compared
    assumptions: tuple[str, ...] = static()  # complete sentences
    gaussian_pair: bool = static(default=True)  # worst neighbours are one Gaussian pair: exact conversion is allowed


@record
class Guarantees:
    """All guarantees of MATHS section 5 for one set of areas. rho in nats; shapes (m,) unless said otherwise."""

    per_area_rho: Array  # releasing one area's draw, paper (24)
    own_area_rho: Array  # the own-area term c_ii^2 Delta_i^2 / (2 sigma_i^2)
    conservative_rho: Array | None  # a bound without c_ik, or None where no valid one exists
    conservative_note: str = static()  # which bound it is, or why there is none
    conservative_kind: str = static(default="none")  # "own_sensitivity", "largest_sensitivity" or "none"
    own_coefficient: Array  # c_ii
    off_diagonal_ratio: Array  # max_{k != i} |c_ik| Delta_k / (c_ii Delta_i)
    attained_by: Array  # index k that attains max_k |c_ik| Delta_k
    joint_independent_terms: Array  # (Delta_k^2 / 2) sum_i c_ik^2 / sigma_i^2
    other_areas_share: Array  # r_k, paper (26)
    joint_independent: ReleaseGuarantee  # paper (25)
    joint_correlated: ReleaseGuarantee  # one draw of the whole posterior
    sequential: ReleaseGuarantee  # sum of per_area_rho
    sensitivity: Array
    num_settled_by_certificate: int = static(default=0)  # areas whose maximum needed no search over k
    num_settled_by_search: int = static(default=0)
    off_diagonal_exact: bool = static(default=True)  # False: off_diagonal_ratio holds upper bounds in settled areas
    neighbours: str = static(default="")
    assumptions: tuple[str, ...] = static(default=())
    labels: Labels | None = static(default=None)


@record
class Drivers:
    """What drives rho across areas: ordinary least squares of log rho, slopes with 95 % intervals (low, estimate, high)."""

    slope_log_n: tuple[float, float, float]  # log rho on log n alone
    slope_log_ratio_joint: tuple[float, float, float]  # log rho on log ratio and log n: the ratio's slope
    slope_log_n_joint: tuple[float, float, float]  # ... and the sample size's
    correlation_log_n_log_ratio: float
    correlation_log_rho_log_ratio: float
    num_areas_used: int = static(default=0)


@record
class Assessment:
    """One survey file assessed: everything the report shows. Made by :func:`fhjax.assess`."""

    direct: DirectEstimates
    area_data: AreaData
    fit: FayHerriotFit
    posterior: Posterior
    guarantees: Guarantees
    equal_weight_rho: Array | None  # (m,) per-area rho if all weights of an area were equal, psi held fixed
    drivers: Drivers | None
    # eta -> (m,) relative change of per_area_rho when the model variance is multiplied by 1 + eta
    model_variance_changes: dict[float, Array]
    delta: float = static()


def field_names(record_type: type) -> Iterator[str]:
    """The names of a record's fields, in order."""
    return (field.name for field in dataclasses.fields(record_type))
