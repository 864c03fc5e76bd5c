"""Design variances from replicate weights: which multiple of the squared deviations each method needs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from ..records import AreaSums, FloatArray

Method = Literal["sdr", "brr", "fay", "jk1", "jkn", "bootstrap"]

_NAMES = {
    "sdr": "successive difference replication",
    "brr": "balanced repeated replication",
    "fay": "Fay's balanced repeated replication",
    "jk1": "unstratified jackknife (JK1)",
    "jkn": "stratified jackknife (JKn)",
    "bootstrap": "bootstrap",
}


class ReplicateWarning(UserWarning):
    """The replicate weights do not look like the method that was named."""


@dataclasses.dataclass(frozen=True)
class Replicates:
    """Replicate weights and how to combine them: variance = scale * sum_b scales_b (y_b - centre)^2.

    Args:
        method: ``"sdr"`` (4/R, the American Community Survey), ``"brr"`` (1/R), ``"fay"`` (1/(R (1-f)^2)), ``"jk1"``
            ((R-1)/R), ``"jkn"`` (1, with ``scales`` by replicate) or ``"bootstrap"`` (1/(R-1), as R survey's
            ``subbootstrap``; its Canty-Davison ``bootstrap`` multiplies by n/(n-1): pass that ``scale``).
        fay: the coefficient f of Fay's method, 0 <= f < 1: replicate weights are f or 2 - f times the weight.
        center: ``"full"``, the full-sample estimate (the Census Bureau's formula, R survey's mse=TRUE), or
            ``"replicates"``, the mean of the replicate estimates.
        scale: replaces the method's multiple, for example for a finite population correction.
        scales: one multiple a replicate; needed by ``"jkn"``, where it is (n_h - 1)/n_h of the replicate's stratum.
        empty_area: what to do with an area that some replicate leaves without weight, so that its replicate estimate
            does not exist: ``"error"`` or ``"exclude"``.

    Raises:
        InputError: an option that contradicts the method.

    Source: Wolter (2007), chapters 3 to 5; Fay and Train (1995) for SDR; docs/derivations.md, section 3.

    Examples:
        >>> float(Replicates("sdr").multiples(80)[0])
        0.05
    """

    method: Method
    fay: float | None = None
    center: Literal["full", "replicates"] = "full"
    scale: float | None = None
    scales: Sequence[float] | FloatArray | None = None
    empty_area: Literal["error", "exclude"] = "error"

    def __post_init__(self) -> None:
        if self.method not in _NAMES:
            raise InputError(f"Unknown replicate method {self.method!r}. Choose one of {', '.join(_NAMES)}.")
        if self.center not in ("full", "replicates"):
            raise InputError(f"center must be 'full' or 'replicates', not {self.center!r}.")
        if self.empty_area not in ("error", "exclude"):
            raise InputError(f"empty_area must be 'error' or 'exclude', not {self.empty_area!r}.")
        if self.method == "fay":
            if self.fay is None or not 0.0 <= self.fay < 1.0:
                raise InputError(f"Fay's method needs its coefficient, 0 <= fay < 1, not {self.fay!r}.")
        elif self.fay is not None:
            raise InputError(f"A Fay coefficient was given for {_NAMES[self.method]}. Choose method='fay' or drop it.")
        if self.scale is not None and not (np.isfinite(self.scale) and self.scale > 0.0):
            raise InputError(f"scale must be a positive number, not {self.scale!r}.")
        if self.method == "jkn" and self.scales is None:
            raise InputError(
                "The stratified jackknife needs scales, one for each replicate: (n_h - 1)/n_h of the stratum whose PSU "
                "the replicate leaves out."
            )
        if self.scales is not None:
            scales = np.asarray(self.scales, dtype=float)
            object.__setattr__(self, "scales", tuple(scales.ravel().tolist()))  # comparable and hashable
            if scales.ndim != 1 or not np.all(np.isfinite(scales)) or np.any(scales < 0.0):
                raise InputError("scales must be non-negative numbers, one for each replicate.")

    def multiples(self, num_replicates: int) -> FloatArray:
        """(R,) multiples of the squared deviations; refuses a number of replicates that the method cannot have."""
        R = num_replicates
        if R < 2:
            raise InputError(f"A replicate variance needs at least 2 replicates; there are {R}.")
        if self.method in ("sdr", "brr", "fay") and R % 4 != 0 and R != 2:
            raise InputError(
                f"{_NAMES[self.method].capitalize()} rests on a Hadamard matrix, so the number of replicates is 2 or a "
                f"multiple of 4; there are {R}. Check the pattern of the replicate columns: it may catch the weight "
                "itself or a flag."
            )
        if self.scale is not None:
            scale = self.scale
        else:
            scale = {
                "sdr": 4.0 / R,
                "brr": 1.0 / R,
                "fay": 1.0 / (R * (1.0 - (self.fay or 0.0)) ** 2),
                "jk1": (R - 1.0) / R,
                "jkn": 1.0,
                "bootstrap": 1.0 / (R - 1.0),
            }[self.method]
        if self.scales is None:
            return np.full(R, scale)
        scales = np.asarray(self.scales, dtype=float)
        if scales.shape != (R,):
            raise InputError(f"There are {R} replicates but {scales.size} scales. Give one for each replicate.")
        return scale * scales

    @property
    def sentence(self) -> str:
        """How the report names the method."""
        fay = f" with coefficient {self.fay:g}" if self.fay is not None else ""
        centre = "the full-sample estimate" if self.center == "full" else "the mean of the replicate estimates"
        return f"{_NAMES[self.method]}{fay}, centred on {centre}"


def replicate_variance(estimate: Any, replicate_estimates: Any, method: Replicates) -> Any:
    """Variance of estimates from their replicates; NumPy or JAX arrays, any leading shape.

    Args:
        estimate: (..., ) full-sample estimates.
        replicate_estimates: (..., R) the same estimates with each set of replicate weights.
        method: how to combine them.

    Returns:
        (..., ) variances, squared units of the estimates.

    Raises:
        InputError: the number of replicates contradicts the method.

    Source: docs/derivations.md, section 3; Wolter (2007).

    Examples:
        >>> replicate_variance(np.array([1.0]), np.array([[0.9, 1.1, 0.9, 1.1]]), Replicates("brr")).round(12)
        array([0.01])
    """
    multiples = method.multiples(replicate_estimates.shape[-1])
    if method.center == "replicates":
        centre = replicate_estimates[..., multiples > 0.0].mean(axis=-1)
    else:
        centre = estimate
    return ((replicate_estimates - centre[..., None]) ** 2 * multiples).sum(axis=-1)


def warn_if_spread_contradicts(sums: AreaSums, method: Replicates) -> str | None:
    """Warn when the replicate weights spread too little or too much for the method named; the report repeats it.

    Every method makes sum_b multiple_b (w_b / w - 1)^2 about 1 for each record, because that is the variance it must
    give to a record drawn on its own: 1 for BRR, (1-f)^2 / (1-f)^2 for Fay, 4 times 1/4 for SDR, (R-1)/R times R/(R-1)
    for the jackknife. A wrong name is off by 4 (SDR for BRR or back) or by (1-f)^2.
    """
    if sums.replicate_deviations is None:
        return None
    ratio = float(method.multiples(sums.num_replicates) @ sums.replicate_deviations)
    if not 0.6 <= ratio <= 1.6:  # real files of the right method lie between 0.94 and 1.24
        sentence = (
            f"The replicate weights contradict the method named, {_NAMES[method.method]}: for a single record the "
            f"variance comes out as {ratio:.3g} times what it should be. Check the method, its coefficient and that "
            "the replicate columns are weights, not multipliers."
        )
        warnings.warn(sentence, ReplicateWarning, stacklevel=4)
        return sentence
    return None
