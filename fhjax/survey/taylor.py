"""Design variances by Taylor linearisation: with-replacement primary sampling units within strata, areas as domains."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import numpy as np

from ..entrance import is_concrete, namespace
from ..errors import InputError, complain
from ..records import AreaSums, Array, StratumSums
from .stratum_sums import WHOLE_DESIGN

SinglePsu = Literal["error", "certainty", "center", "remove"]


@dataclasses.dataclass(frozen=True)
class Taylor:
    """Taylor linearisation of the direct estimate over the whole design.

    Args:
        single_psu: what a stratum with a single PSU in the whole design contributes. ``"error"`` refuses and names the
            strata; ``"certainty"`` nothing, as if the PSU had been taken with certainty; ``"center"`` the squared
            distance of its total from the mean total over all PSUs of the design; ``"remove"`` nothing, the stratum is
            left out of the variance and of the degrees of freedom.

    Source: Särndal, Swensson and Wretman (1992), section 5.7 and 4.5; docs/derivations.md, section 3.

    Examples:
        >>> Taylor(single_psu="center").single_psu
        'center'
    """

    single_psu: SinglePsu = "error"

    def __post_init__(self) -> None:
        if self.single_psu not in ("error", "certainty", "center", "remove"):
            raise InputError(f"single_psu must be 'error', 'certainty', 'center' or 'remove', not {self.single_psu!r}.")

    def sentence(self, strata: StratumSums | None) -> str:
        """How the report names the method for the design that was read: never a stratum or PSU that nobody named."""
        policy = {
            "error": "",
            "certainty": "; strata with one PSU counted as taken with certainty",
            "center": "; strata with one PSU centred on the mean of all PSUs",
            "remove": "; strata with one PSU left out",
        }[self.single_psu]
        if strata is None:
            return "Taylor linearisation"
        stratified, clustered = tuple(strata.strata) != (WHOLE_DESIGN,), not strata.psus_are_records
        psus = "with-replacement PSUs" if clustered else "records as their own PSUs"
        design = f"{psus} within strata{policy}" if stratified else f"{psus}, no strata"
        return f"Taylor linearisation, {design}"


def taylor_variance(sums: AreaSums, method: Taylor, *, estimate: Any, denominator: Any) -> tuple[Array, Array]:
    """Design variance and its degrees of freedom by area.

    With e_hj the total of PSU j of stratum h over its records in the area, zero for a PSU without one, the variance is
    sum_h n_h / (n_h - 1) sum_j (e_hj - mean_h)^2 / denominator^2, over all n_h PSUs of the design.

    Args:
        sums: sums by area with ``strata``.
        method: the single-PSU policy.
        estimate: (m,) Hájek means, so that e sums w (Y - estimate); None for a total, where e sums w Y.
        denominator: (m,) weight sums for a Hájek mean, population sizes for a Horvitz-Thompson mean.

    Returns:
        (m,) variances, outcome units squared; (m,) degrees of freedom: PSUs minus strata with a record of the area's
        universe.

    Raises:
        InputError: the sums hold no strata; a stratum with a single PSU under ``single_psu="error"`` (inside ``jit``
            the variance of its areas is infinite instead).

    Source: Särndal, Swensson and Wretman (1992), result 5.7.1 and section 10.3 (domains).
    """
    strata = sums.strata
    if strata is None:
        raise InputError("These sums hold none by stratum: call area_sums(..., taylor=True) for Taylor linearisation.")
    design_psus = strata.stratum_psus[strata.stratum]
    single = design_psus == 1
    if method.single_psu == "error" and is_concrete(single) and np.any(single):
        _refuse_single(strata, np.asarray(single))
    xp = namespace(sums, estimate, denominator)
    target = xp.zeros(len(sums.labels)) if estimate is None else xp.where(sums.num_records > 0, estimate, 0.0)
    return _combined(sums, strata, method, target, denominator)


def _combined(
    sums: AreaSums, strata: StratumSums, method: Taylor, target: Any, denominator: Any
) -> tuple[Array, Array]:
    m, xp = len(sums.labels), namespace(sums, target, denominator)

    def by_area(values: Any) -> Any:
        if xp is np:
            return np.bincount(strata.area, weights=values, minlength=m)
        return jax.ops.segment_sum(values, strata.area, num_segments=m)

    design_psus = strata.stratum_psus[strata.stratum]
    single = design_psus == 1
    rows = strata.recentred(target[strata.area])
    # The PSUs without a record in the area are zeros: add them to the moments by the pairwise update.
    zeros = (design_psus - rows.psus).astype(float)
    squares = rows.moment_aa + rows.psus * zeros / xp.maximum(design_psus, 1) * rows.mean_a**2
    # What a stratum with one PSU adds is not known under "error"; inside jit nobody can be told.
    alone = xp.inf if method.single_psu == "error" else 0.0
    present = rows.psus > 0
    terms = xp.where(single & present, alone, squares * design_psus / xp.maximum(design_psus - 1, 1))
    extra = xp.zeros(m)
    if method.single_psu == "center":
        totals = by_area(rows.psus * rows.mean_a)
        grand = totals / xp.maximum(xp.sum(strata.stratum_psus), 1)
        terms = xp.where(single & present, (rows.mean_a - grand[strata.area]) ** 2, terms)
        # A single-PSU stratum without a record of the area lies at zero, that far from the grand mean.
        lonely = xp.sum(strata.stratum_psus == 1)
        extra = (lonely - by_area((single & present).astype(float))) * grand**2
    counted = present & ~single if method.single_psu == "remove" else present
    degrees = by_area(xp.where(counted, rows.psus - 1.0, 0.0))
    safe = xp.where(denominator > 0.0, denominator, 1.0)
    return (by_area(terms) + extra) / safe**2, degrees


def _refuse_single(strata: StratumSums, single: np.ndarray) -> None:
    names = [strata.strata[h] for h in np.unique(strata.stratum[single])]
    if strata.strata == (WHOLE_DESIGN,):
        raise InputError("The design has a single PSU: it gives no design variance.")
    raise complain(
        "have a single PSU, which gives no variance",
        names,
        "Merge each with a similar stratum, or choose Taylor(single_psu='center'), 'certainty' or 'remove'.",
        noun="stratum",
    )
