"""The additive rule of trimming round by round, as it is usually stated: the closed form is held against it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fhjax.caps.shares import checked
from fhjax.errors import InputError
from fhjax.records import FloatArray


def additive_rounds(
    weights: npt.ArrayLike, *, upper: float, lower: float = 0.0, strict: bool = True, max_rounds: int = 1000
) -> FloatArray:
    """R survey's trimWeights on one group, with its lower bound and its non-strict form, for comparison.

    One round sets weights outside [lower, upper] to the bound and shares the difference equally among all the others. A
    non-strict call stops there, and the shares may lift weights above ``upper``. A strict call repeats.

    Args:
        weights: (n,) positive weights.
        upper: largest weight allowed.
        lower: smallest weight allowed.
        strict: repeat until no weight lies outside.

    Raises:
        InputError: bounds that cannot hold the total, or no weight inside them to take the shares.

    Source: Lumley, R package survey 4.5, trimWeights.

    Example:
        >>> additive_rounds([1.0, 2.0, 3.0, 4.0, 20.0], upper=7.0, strict=False).tolist()
        [4.25, 5.25, 6.25, 7.25, 7.0]
    """
    w, _, _ = checked(weights, None)
    if not 0.0 <= lower < upper:
        raise InputError(f"The bounds must satisfy 0 <= lower < upper, not {lower!r} and {upper!r}.")
    if strict and not lower * len(w) <= w.sum() * (1 + 1e-12) <= upper * len(w) * (1 + 2e-12):
        raise InputError("The total cannot be kept: the mean weight lies outside the bounds.")
    held = np.zeros(len(w), dtype=bool)  # at a bound: such weights take no further shares
    for _ in range(max_rounds if strict else 1):
        outside = (w < lower) | (w > upper)
        if not outside.any():
            break
        held |= outside
        bounded = np.clip(w, lower, upper)
        if held.all():
            if abs(np.sum(w - bounded)) <= 1e-12 * np.sum(w):
                return bounded
            raise InputError("Every weight lies outside the bounds: none is left to take what is cut off.")
        bounded[~held] += np.sum(w - bounded) / np.count_nonzero(~held)
        w = bounded
    return w
