"""The values that flow, from a survey file to a privacy statement. Read top to bottom, they are the story.

``AreaSums`` -> ``DirectEstimates`` -> ``AreaData`` -> ``FayHerriotFit`` -> ``Posterior`` -> ``Guarantees`` ->
``Assessment``

Each is a frozen dataclass and a JAX pytree: numbers are leaves, names and options are static. The survey side
(``AreaSums``, ``DirectEstimates``) holds NumPy arrays because it comes out of an SQL engine; from ``AreaData`` on the
leaves are JAX arrays, float64. Shapes: m areas, p covariates (intercept included), R replicates.
What was released is kept apart from what it costs: a ``Posterior`` knows nothing of privacy.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
import numpy.typing as npt

Array = jax.Array
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field that is part of the record's structure, not of its numbers (names, methods, options)."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@typing.dataclass_transform(
    kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field, static)
)
def record(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass and a pytree whose ``static()`` fields are hashable metadata."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
    cls.__repr__ = _repr
    cls._repr_html_ = _repr_html  # pyright: ignore[reportAttributeAccessIssue]
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    meta = [field.name for field in fields if field.metadata.get("static")]
    data = [field.name for field in fields if not field.metadata.get("static")]
    return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=meta)


def _repr(self: Any) -> str:
    from .shown import short  # how a record looks needs pandas, which a record does not

    return short(self)


def _repr_html(self: Any) -> str:
    from .shown import html

    return html(self)


class AreaRows:
    """A record whose arrays have one number an area."""

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row an area and one column a field, indexed by the areas' labels."""
        from .shown import frame

        return frame(self)


class Labels(tuple):
    """Area labels: a tuple of text that remembers its hash, so that a million labels cost jit nothing per call."""

    _hash: int

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


class NumberedLabels:
    """Stands for labels "area 1", "area 2", ... that nobody gave: none is written down until a message needs it."""

    def __init__(self, num_areas: int, *, first: int = 0, prefix: str = ""):
        self.num_areas, self.first, self.prefix = num_areas, first, prefix

    def __len__(self) -> int:
        return self.num_areas

    def __getitem__(self, i: int) -> str:
        return f"{self.prefix}{self.first + i}"

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(self.num_areas))

    def where(self, mask: npt.ArrayLike) -> list[str]:
        """The labels at which a boolean mask is true."""
        return [self[int(i)] for i in np.flatnonzero(np.asarray(mask))]


@record
class StratumSums:
    """Taylor linearisation's table: one row for each pair (area, stratum) that has a record in the universe.

    Within a row every PSU has a centred total a = sum w (Y - centre) and a weight sum b = sum w, over its records in
    the area's universe. The rows hold their means and centred second moments over those PSUs; PSUs of the stratum
    without a record there have a = b = 0 and are counted by ``stratum_psus``. Any residual total sum w (Y - y) is
    a + (centre - y) b, so the table serves every estimate y, and no digits are lost because the centre is the area's
    own mean.
    """

    strata: Labels = static()  # (H,) names of the strata of the whole design
    stratum_psus: IntArray  # (H,) PSUs of each stratum in the whole design
    area: IntArray  # (q,) index of the area
    stratum: IntArray  # (q,) index of the stratum
    psus: IntArray  # (q,) PSUs of this stratum with at least one record in the area's universe
    centre: FloatArray  # (q,) the constant that Y was centred on, the same in all rows of an area
    mean_a: FloatArray  # (q,) mean over the psus of a
    mean_b: FloatArray  # (q,) mean over the psus of b
    moment_aa: FloatArray  # (q,) sum over the psus of (a - mean_a)**2
    moment_ab: FloatArray  # (q,)
    moment_bb: FloatArray  # (q,)
    psus_are_records: bool = static(default=False)  # no PSU was named: each record is its own

    def recentred(self, centre: Any) -> StratumSums:
        """The same table with Y centred on other constants, given one a row."""
        shift = self.centre - centre
        return dataclasses.replace(
            self,
            centre=centre,
            mean_a=self.mean_a + shift * self.mean_b,
            moment_aa=self.moment_aa + 2.0 * shift * self.moment_ab + shift**2 * self.moment_bb,
            moment_ab=self.moment_ab + shift * self.moment_bb,
        )


@record
class AreaSums(AreaRows):
    """Everything that leaves the data engine: sums by area. Nothing downstream sees a record.

    All numbers concern the universe (records with an observed outcome) unless said otherwise. ``+`` merges the sums of
    two files with disjoint records; a household or PSU must not be split across them. Sums that name a privacy unit are
    merged only if both carry digests of its ids (``area_sums(survey, mergeable=True)``) and these are disjoint.
    """

    labels: Labels = static()  # (m,)
    num_records: IntArray  # (m,) records in the universe
    num_missing: IntArray  # (m,) records of the area with a missing outcome (outside the universe)
    weight_sum: FloatArray  # (m,)
    weight_square_sum: FloatArray  # (m,)
    max_weight: FloatArray  # (m,) largest weight of one record
    max_unit_weight: FloatArray  # (m,) largest weight sum of one privacy unit (= max_weight when the unit is a record)
    max_unit_records: IntArray | None = None  # (m,) most records of one privacy unit; None when the unit is a record
    weighted_outcome_sum: FloatArray  # (m,) sum of w Y
    weighted_square_sum: FloatArray  # (m,) sum of w (Y - y_area)**2, for the design effect
    outcome_min: FloatArray  # (m,) +inf in an area without universe
    outcome_max: FloatArray  # (m,) -inf in an area without universe
    replicate_weight_sums: FloatArray | None = None  # (m, R)
    replicate_outcome_sums: FloatArray | None = None  # (m, R) sum of w_b Y
    # (R,) sum of (w_b - w)**2 over a sample of records, relative to their sum of w**2: tells replicate methods apart
    replicate_deviations: FloatArray | None = None
    strata: StratumSums | None = None
    privacy_unit: str = static(default="record")  # "record", or the column that names the unit
    outcome_lower: float = static(default=0.0)  # declared bounds of one record's outcome
    outcome_upper: float = static(default=1.0)
    num_filtered: int = static(default=0)  # records of the file dropped by the filter, before the design
    subject: str = static(default="")  # what is estimated, where, from which file: "'poor' by area from survey.parquet"
    design: tuple[str, ...] = static(default=())  # sentences: what was read, with which roles
    cautions: tuple[str, ...] = static(default=())  # sentences: what a person must judge
    outcome: str = static(default="")  # as the user wrote it
    sources: tuple[str, ...] = static(default=())  # SHA-256 of the files that were read
    # name of the column -> sorted digests of its ids, of the privacy unit and the PSU: whether two files share any
    id_digests: dict[str, npt.NDArray[np.uint64]] | None = None

    @property
    def outcome_range(self) -> float:
        """R = hi - lo, the largest change of one record's outcome."""
        return self.outcome_upper - self.outcome_lower

    @property
    def num_replicates(self) -> int:
        return 0 if self.replicate_weight_sums is None else self.replicate_weight_sums.shape[1]

    def __add__(self, other: AreaSums) -> AreaSums:
        """The sums of both files together; labels are the sorted union."""
        if not isinstance(other, AreaSums):
            return NotImplemented
        from .merging import merge_area_sums  # the rules of merging know the record, not the other way round

        return merge_area_sums(self, other)


@record
class TrimmingSums:
    """What weight trimming needs of the records: one row for each distinct size of each area, sorted by (area, size).

    A record's size is its weight, or the weight sum of its privacy unit; trimming at a cap c multiplies its weight by
    min(1, c / size). Every sum over an area's records is then a sum of these rows up to c plus c times a sum of rows
    divided by their sizes. With Y centred on the area's untrimmed estimate no digits are lost in small variances. All
    numbers concern the universe. Rows of files with disjoint units may be put one below the other.
    """

    labels: Labels = static()  # (m,)
    centre: FloatArray  # (m,) the untrimmed estimate, on which Y is centred
    area: IntArray  # (q,) index of the area
    size: FloatArray  # (q,) ascending within an area
    units: IntArray  # (q,) privacy units of this size
    records: IntArray  # (q,)
    weight: FloatArray  # (q,) sum of w
    weight_square: FloatArray  # (q,) sum of w**2
    outcome: FloatArray  # (q,) sum of w (Y - centre)
    replicate_weights: FloatArray | None = None  # (q, R) sums of the replicate weights
    replicate_outcomes: FloatArray | None = None  # (q, R) sums of w_b (Y - centre)
    # (q, 5) and (q, 9), see fhjax.caps.tables: what Taylor linearisation over strata and PSUs needs
    cluster_linear: FloatArray | None = None
    cluster_squares: FloatArray | None = None
    outcome_lower: float = static(default=0.0)
    outcome_upper: float = static(default=1.0)
    privacy_unit: str = static(default="record")

    @property
    def num_areas(self) -> int:
        return len(self.labels)

    @property
    def num_replicates(self) -> int:
        return 0 if self.replicate_weights is None else self.replicate_weights.shape[1]

    @property
    def outcome_range(self) -> float:
        return self.outcome_upper - self.outcome_lower


@record
class TrimmingPlan(AreaRows):
    """Weight caps for a target rho, what they cost, and whether the target is met. Shapes (m,) unless said otherwise.

    A unit's trimmed weight is scale * (min(size, threshold) + lift), which never exceeds ``cap``.
    """

    labels: Labels = static()
    threshold: FloatArray  # in the scale of the original weights; infinity where nothing is trimmed
    scale: FloatArray  # common factor of an area under proportional redistribution, else 1
    lift: FloatArray  # what every unit gets under additive redistribution, else 0
    cap: FloatArray  # largest weight after redistribution; infinity where nothing is trimmed
    multiple: float | None = static(default=None)  # the one number that rules all areas, when one does
    target_rho: FloatArray  # () or (m,)
    rho_before: float = static()
    rho_after: float = static()  # with the plan's variances
    rho_after_frozen: float = static()  # with the variances held at their untrimmed values
    rho_after_reestimated: float = static()  # after a full refit of direct estimates, variances and model
    smallest_rho: float = static()  # the smallest that trimming was found to reach
    # "certified": rho of the realised weights by the route of the report, everything re-estimated, is within the
    # target;
    # "frozen_only": it is so only with the variances held; "not_met": not even then
    status: str = static()
    rho_report: float = static()  # of the realised weights, by the route of the report: a full refit
    rho_written: float | None = static(default=None)  # the same, from the file that was written; None before writing
    infeasible_areas: tuple[str, ...] = static(default=())
    units: IntArray
    units_trimmed: IntArray
    weight_before: FloatArray
    weight_removed: FloatArray  # cut off by the caps, before any redistribution
    share_before: FloatArray  # largest share of one unit
    share_after: FloatArray
    median_before: FloatArray  # median unit weight
    median_after: FloatArray
    kish_n_eff_before: FloatArray
    kish_n_eff_after: FloatArray
    num_records: IntArray
    y_before: FloatArray
    y_after: FloatArray
    shift_variance: FloatArray  # design variance of y_after - y_before
    sampling_variance_before: FloatArray
    sampling_variance_after: FloatArray
    mse_before: FloatArray  # by the objective
    mse_after: FloatArray
    rho_area_before: FloatArray  # each area's term of the joint rho, or its own rho
    rho_area_after: FloatArray
    model_variance_before: float = static()
    model_variance_after: float = static()
    joint: str = static(default="correlated")
    mode: str = static(default="area")
    redistribution: str = static(default="none")
    variances: str = static(default="reestimated")
    objective: str = static(default="eblup")
    outcome_range: float = static(default=1.0)
    privacy_unit: str = static(default="record")
    statements: tuple[str, ...] = static(default=())  # complete sentences: what the caps depended on, what holds

    @property
    def certified(self) -> bool:
        """Whether the release that the trimmed weights lead to costs no more than the target."""
        return self.status == "certified"

    @property
    def max_over_mean_before(self) -> FloatArray:
        return self.share_before * self.units

    @property
    def max_over_mean_after(self) -> FloatArray:
        return self.share_after * self.units

    @property
    def design_effect_before(self) -> FloatArray:
        """Kish's 1 + CV^2 of the record weights."""
        return self.num_records / self.kish_n_eff_before

    @property
    def design_effect_after(self) -> FloatArray:
        return self.num_records / self.kish_n_eff_after


@record
class DirectEstimates(AreaRows):
    """Direct survey estimates with their design variances, one row an area that can be used.

    Areas that cannot (no observed outcome, or a zero variance under ``zero_variance="exclude"``) are in ``excluded``
    with the reason, so that none is ever lost.
    """

    labels: Labels = static()  # (m,)
    y: FloatArray  # (m,) direct estimate, outcome units
    sampling_variance: FloatArray  # (m,) design variance psi, outcome units squared
    sensitivity: FloatArray  # (m,) largest |change of y| from one privacy unit, outcome units
    # (m,) made inside jit, where no area can be left out: which can be fitted. None: all of them
    usable: npt.NDArray[np.bool_] | None = None
    num_records: IntArray | None = None  # (m,)
    weight_sum: FloatArray | None = None  # (m,)
    max_unit_weight: FloatArray | None = None  # (m,)
    max_unit_records: IntArray | None = None  # (m,) most records of one privacy unit; None when the unit is a record
    kish_n_eff: FloatArray | None = None  # (m,) (sum w)^2 / sum w^2
    design_effect: FloatArray | None = None  # (m,) sampling variance / simple random sampling variance
    degrees_of_freedom: FloatArray | None = None  # (m,) of the area's design variance
    # name of a flag -> (m,) booleans; the names are keys of FLAGS
    flags: dict[str, npt.NDArray[np.bool_]] = dataclasses.field(default_factory=dict)
    excluded: tuple[tuple[str, str], ...] = static(default=())  # (label, reason)
    num_missing: IntArray | None = None  # (m,)
    outcome_range: float = static(default=1.0)  # nan when only the sensitivity was given
    outcome_bounds: tuple[float, float] | None = static(default=None)  # (lo, hi) of one record; None when not known
    outcome: str = static(default="")  # what was estimated, as the user wrote it
    sources: tuple[str, ...] = static(default=())  # SHA-256 of the survey's files, where they are known
    cautions: tuple[str, ...] = static(default=())  # sentences: what a person must judge
    privacy_unit: str = static(default="record")
    estimator: str = static(default="hajek")  # "hajek", "ht" or "given"
    variance_method: str = static(default="given")  # a sentence fragment for the report
    variance_source: str = static(default="estimated")  # "estimated" from the same confidential data, or "public"
    num_filtered: int = static(default=0)
    subject: str = static(default="")  # as in AreaSums
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
    "low_degrees_of_freedom": (
        "the design variance rests on at most 2 degrees of freedom; rho goes with its inverse square"
    ),
    "constant_outcome": "all records of the area have the same outcome",
    "single_record": "the area has one record",
    "few_cases": (
        "the standard error is as large as with fewer than 10 cases (for the distance to the nearer bound of the "
        "outcome), so the design variance is itself uncertain; rho goes with its inverse square"
    ),
    "missing_outcomes": "more than 10 % of the area's records have no observed outcome",
}


@record
class AreaData(AreaRows):
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
    num_areas: int | Array  # () areas that are not padding
    beta_covariance_root: Array | None = (
        None  # (p, p) U with A = U U', for x_i' A x_i = |U' x_i|^2 without cancellation
    )
    method: str = static(default="reml")  # "reml", "ml", "moment", "pr" or "given"
    columns: tuple[str, ...] = static(default=("(Intercept)",))

    @property
    def fitted_to(self) -> AreaData | None:
        """The data that were fitted; None after ``jit``, ``vmap`` or ``replace``, which keep numbers only."""
        return self.__dict__.get("_fitted_to")

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
        return -2.0 * self.log_likelihood + (self.beta.shape[0] + 1) * jax.numpy.log(
            jax.numpy.asarray(self.num_areas, float)
        )


@record
class Posterior(AreaRows):
    """Posterior of the area means theta given y and the variances: N(mean, covariance).

    The covariance is kept as a diagonal plus a rank-p part and never built (see :func:`fhjax.posterior_covariance`):
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
    beta_covariance_root: Array | None = None  # (p, p) U with A = U U'


@record
class ReleaseGuarantee:
    """What one release costs: zCDP with parameter ``rho``, for stated neighbours and under stated assumptions."""

    rho: Array  # () or inf when nothing can be certified
    worst_area: Array  # () index of the area that attains it; -1 when no single area does
    release: str = static()  # what is published, as a sentence fragment
    neighbours: str = static()  # which two data sets are compared
    assumptions: tuple[str, ...] = static()  # complete sentences
    gaussian_pair: bool = static(default=True)  # worst neighbours are one Gaussian pair: exact conversion is allowed

    def __str__(self) -> str:
        """The number never without what it compares and assumes."""
        lines = [f"{self.release}: {float(self.rho):.6g}-zCDP", f"  {self.neighbours}"]
        return "\n".join([*lines, *(f"  - {sentence}" for sentence in self.assumptions)])


#: Code -> name and sentence of the bound that needs no coefficients.
CONSERVATIVE_KINDS = (
    (
        "none",
        "No bound without coefficients holds here: {violated}, and with covariates and unequal sampling variances a "
        "coefficient can exceed 1.",
    ),
    (
        "own_sensitivity",
        "Δ_i² / (2 σ_i²), the bound that needs no coefficients; it holds here because no area's unit moves the "
        "posterior mean of area i by more than Δ_i.",
    ),
    (
        "largest_sensitivity",
        "S² / (2 σ_i²) with S the largest sensitivity of all areas, which is a bound because the model has an "
        "intercept only. Δ_i² / (2 σ_i²) is none here: {violated}.",
    ),
    (
        "largest_sensitivity",
        "S² / (2 σ_i²) with S the largest sensitivity of all areas, which is a bound because all sampling variances "
        "are equal. Δ_i² / (2 σ_i²) is none here: {violated}.",
    ),
)


@record
class Guarantees(AreaRows):
    """All guarantees of one set of areas (docs/derivations.md, sections 4 to 8). rho in nats, shapes (m,)."""

    per_area_rho: Array  # releasing one area's draw, paper (24)
    own_area_rho: Array  # the own-area term c_ii^2 Delta_i^2 / (2 sigma_i^2)
    conservative_bound: Array  # a bound without c_ik; infinity where no valid one exists
    conservative_code: Array  # () index into CONSERVATIVE_KINDS: which bound it is
    num_moved_by_others: Array  # () areas whose posterior mean a unit elsewhere moves by more than their own Delta
    own_coefficient: Array  # c_ii
    off_diagonal_ratio: Array  # max_{k != i} |c_ik| Delta_k / (c_ii Delta_i)
    attained_by: Array  # index k that attains max_k |c_ik| Delta_k
    joint_independent_terms: Array  # (Delta_k^2 / 2) sum_i c_ik^2 / sigma_i^2
    other_areas_share: Array  # r_k, paper (26)
    joint_independent: ReleaseGuarantee  # paper (25)
    joint_correlated: ReleaseGuarantee  # one draw of the whole posterior
    sequential: ReleaseGuarantee  # sum of per_area_rho
    sensitivity: Array
    num_settled_by_certificate: Array  # () areas whose maximum needed no search over k
    num_settled_by_search: Array  # ()
    status: Array  # () a Status code; where it is a failure every rho is infinite
    off_diagonal_exact: bool = static(default=True)  # False: off_diagonal_ratio holds upper bounds in settled areas
    neighbours: str = static(default="")
    assumptions: tuple[str, ...] = static(default=())
    labels: Labels | None = static(default=None)

    @property
    def conservative_kind(self) -> str:
        """Which bound ``conservative_rho`` is: "own_sensitivity", "largest_sensitivity" or "none"."""
        return CONSERVATIVE_KINDS[int(self.conservative_code)][0]

    @property
    def conservative_rho(self) -> Array | None:
        """(m,) a bound of ``per_area_rho`` without coefficients; None where no valid one exists."""
        return None if self.conservative_kind == "none" else self.conservative_bound

    @property
    def conservative_note(self) -> str:
        """Which bound it is and why it is one, or why there is none: a complete sentence."""
        count = int(self.num_moved_by_others)
        return CONSERVATIVE_KINDS[int(self.conservative_code)][1].format(
            violated=f"in {count:,} {'area' if count == 1 else 'areas'} a unit of another area moves the posterior "
            "mean by more than the area's own sensitivity"
        )

    def __str__(self) -> str:
        """The headline numbers, unrounded to six digits, with what they compare and assume."""
        rho = np.asarray(self.per_area_rho)
        lines = [
            f"{rho.shape[-1]:,} areas, rho (zCDP):",
            f"  one area's draw: median {np.median(rho):.6g}, largest {rho.max():.6g}",
            *(f"  {release.release}: {float(release.rho):.6g}" for release in self._releases()),
            f"  {self.neighbours}",
            *(f"  - {sentence}" for sentence in self.joint_correlated.assumptions),
        ]
        return "\n".join(lines)

    def _releases(self) -> tuple[ReleaseGuarantee, ...]:
        return self.joint_correlated, self.joint_independent, self.sequential


@record
class Drivers:
    """What drives rho across areas: least squares of log rho, slopes with 95 % intervals (low, estimate, high)."""

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
    equal_weight_rho: Array | None  # (m,) per-area rho if all weights of an area were equal, variances held fixed
    # (m,) the same with design variances and model estimated anew from equal weights; None where records are not at
    # hand
    equal_weight_refitted_rho: Array | None = None
    drivers: Drivers | None
    # eta -> (m,) relative change of per_area_rho when the model variance is multiplied by 1 + eta
    model_variance_changes: dict[float, Array]
    delta: float = static()
