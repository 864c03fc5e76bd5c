"""Caps that meet a target exactly when variances are held fixed, in closed form: what the search is held against."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.caps.closed_forms import MODES, Joint, Mode
from fhjax.caps.shares import SortedSizes, sorted_sizes
from fhjax.errors import InputError, complain
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.rho import independent_terms, own_area_terms
from fhjax.records import FloatArray, Labels


def shares_at_sizes(sizes: SortedSizes) -> FloatArray:
    """(q,) the share that results from trimming an area at each of its sizes: size / sum min(w, size)."""
    mass = sizes.count * sizes.size
    above = np.repeat(sizes.num_units, np.diff(sizes.start)) - sizes.prefix(sizes.count)
    return sizes.size / (sizes.prefix(mass) + sizes.size * above)


def caps_for_shares(sizes: SortedSizes, share: FloatArray) -> FloatArray:
    """(m,) the largest caps that bring each area's share down to ``share``; infinity where nothing needs trimming.

    A share below 1/n cannot be reached: there the cap is the smallest size, at which all weights are equal.
    """
    at = shares_at_sizes(sizes)
    wanted = np.repeat(share, np.diff(sizes.start))
    # The share grows with the cap, so the rows below the wanted share are an area's first ones.
    j = sizes.per_area((at < wanted).astype(float)).astype(np.int64)
    rows = np.diff(sizes.start)
    row = sizes.start[:-1] + np.minimum(j, np.maximum(rows - 1, 0))
    mass = sizes.count * sizes.size
    prefix_mass, prefix_count = sizes.prefix(mass), sizes.prefix(sizes.count)
    safe = np.minimum(row, max(len(mass) - 1, 0))
    below_mass = prefix_mass[safe] - mass[safe]
    above = sizes.num_units - (prefix_count[safe] - sizes.count[safe])
    # t = c / (S + c j): c = t S / (1 - t j), with S the sum of the weights that stay and j the units that are trimmed.
    keep = 1.0 - share * above
    cap = np.where(below_mass > 0.0, share * below_mass / np.where(keep > 0.0, keep, 1.0), sizes.smallest)
    cap = np.where(j == 0, sizes.smallest, np.minimum(cap, sizes.size[safe]))
    return np.where((j >= rows) | (share >= _untrimmed(sizes)), np.inf, cap)


def _untrimmed(sizes: SortedSizes) -> FloatArray:
    total = sizes.total
    return np.where(total > 0.0, sizes.largest / np.where(total > 0.0, total, 1.0), 0.0)


def least_trimming_caps(
    weights: npt.ArrayLike,
    share: npt.ArrayLike,
    area: npt.ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
) -> FloatArray:
    """The largest cap of each area whose trimmed weights min(w, cap) have no share above ``share``.

    Args:
        weights: (n,) weights of the privacy units.
        share: (m,) or one number, the wanted largest share, above 0.
        area: (n,) area index of each weight; None for one area.
        labels: names of the areas, for messages.

    Returns:
        (m,) caps; infinity where the area needs no trimming.

    Raises:
        InputError: a share below 1/n, which no trimming reaches: with equal weights every share is 1/n.

    Source: c = t S_j / (1 - j t), S_j the sum of all but the j largest weights (docs/trimming.md).

    Example:
        >>> least_trimming_caps([1.0, 1.0, 1.0, 10.0], 0.4).round(12).tolist()
        [2.0]
    """
    sizes = sorted_sizes(weights, area)
    t = np.broadcast_to(np.asarray(share, dtype=float), (sizes.num_areas,))
    if np.any(~(t > 0.0)):
        raise InputError("The wanted shares must be positive numbers.")
    names = Labels(range(sizes.num_areas) if labels is None else labels)
    n = sizes.num_units
    short = (n > 0) & (t * n < 1.0 - 1e-12)
    if short.any():
        raise complain(
            "cannot reach the wanted share by trimming, because it lies below 1 / (number of units)",
            names.where(short),
            "Even equal weights give 1/n: ask for a larger share, or pool small areas.",
        )
    return caps_for_shares(sizes, t)


@dataclasses.dataclass(frozen=True)
class FrozenCaps:
    """Caps under fixed variances. ``threshold`` is in the scale of the original weights: min(w, threshold)."""

    threshold: FloatArray  # (m,) infinity where an area is not trimmed
    share: FloatArray  # (m,) realised largest share
    admissible: FloatArray  # (m,) t*
    infeasible: npt.NDArray[np.bool_]  # (m,) t* < 1/n: trimming cannot get there
    multiple: float | None  # kappa, or the absolute cap, where one number rules all areas; infinity = nothing to trim


def frozen_caps(
    sizes: SortedSizes, admissible: FloatArray, *, mode: Mode = "area", total_kept: bool = False
) -> FrozenCaps:
    """The least trimming under admissible shares: a cap per area, or one number for all areas.

    Args:
        sizes: the units' weights by area.
        admissible: (m,) t*, from :func:`admissible_shares`.
        mode: ``"area"``: a cap for each area. ``"mean"``: one multiple of each area's mean weight after trimming (the
            mean before as well, if the total is kept). ``"median"``: one multiple of each area's median original
            weight. ``"absolute"``: one cap for all weights.
        total_kept: proportional redistribution within the area, so that caps concern the rescaled weights.

    An area that cannot reach its share gets equal weights under ``"area"``. Under the other modes one number must serve
    all areas, and it is the one that the feasible areas need.

    Source: docs/trimming.md: t_k = kappa / n_k, so kappa* = min_k n_k t_k*, feasible where kappa* >= 1.
    """
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, not {mode!r}.")
    n = sizes.num_units
    infeasible = (n > 0) & (admissible * n < 1.0 - 1e-12)
    before = np.where(n > 0, sizes.largest / np.where(sizes.total > 0, sizes.total, 1.0), 0.0)
    wanted = np.where(infeasible, 1.0 / np.maximum(n, 1.0), admissible)
    if mode == "area":
        threshold = caps_for_shares(sizes, wanted)
        return FrozenCaps(threshold, shares_under(sizes, threshold), admissible, infeasible, None)
    needs = before > wanted
    unit = _unit(sizes, mode, total_kept)
    if mode == "mean" or total_kept:
        level = np.where(needs, wanted / unit, np.inf)
    else:
        level = np.where(needs, caps_for_shares(sizes, wanted) / unit, np.inf)
    multiple = float(np.min(level)) if len(level) else np.inf
    threshold = thresholds_of_multiple(sizes, multiple, mode=mode, total_kept=total_kept)
    return FrozenCaps(threshold, shares_under(sizes, threshold), admissible, infeasible, multiple)


def _unit(sizes: SortedSizes, mode: str, total_kept: bool) -> FloatArray:
    """What the multiple multiplies: a share where shares are ruled, a weight where thresholds are."""
    positive = np.maximum(sizes.num_units, 1.0)
    if mode == "mean":
        return 1.0 / positive
    weight = np.maximum(sizes.quantile(0.5), np.finfo(float).tiny) if mode == "median" else np.ones(sizes.num_areas)
    return weight / np.where(sizes.total > 0, sizes.total, 1.0) if total_kept else weight


def thresholds_of_multiple(sizes: SortedSizes, multiple: float, *, mode: Mode, total_kept: bool = False) -> FloatArray:
    """(m,) thresholds that one multiple means: see :func:`frozen_caps`. Equal weights where it asks for less."""
    if not np.isfinite(multiple):
        return np.full(sizes.num_areas, np.inf)
    unit = _unit(sizes, mode, total_kept)
    if mode == "mean" or total_kept:
        share = multiple * unit
        return caps_for_shares(sizes, np.maximum(share, 1.0 / np.maximum(sizes.num_units, 1.0)))
    threshold = multiple * unit
    return np.where(threshold >= sizes.largest, np.inf, threshold)


def shares_under(sizes: SortedSizes, threshold: FloatArray) -> FloatArray:
    """(m,) realised largest share of min(w, threshold)."""
    cap = np.minimum(threshold, sizes.largest)
    rows = np.repeat(cap, np.diff(sizes.start))
    total = sizes.per_area(sizes.count * np.minimum(sizes.size, rows))
    return np.where(total > 0.0, cap / np.where(total > 0.0, total, 1.0), 0.0)


def smallest_rho(rho: npt.ArrayLike, share: FloatArray, sizes: SortedSizes) -> FloatArray:
    """(m,) each area's term of rho if its weights were equal, variances held fixed: rho (1 / (n t))^2."""
    n_share = np.maximum(sizes.num_units, 1.0) * share
    return np.asarray(rho, dtype=float) / np.where(n_share > 0.0, n_share, 1.0) ** 2


def frozen_terms(
    sampling_variance: Any, model_variance: Any, X: Any, sensitivity: Any, *, joint: Joint = "correlated"
) -> FloatArray:
    """(m,) the terms whose maximum is the joint rho."""
    C = coefficients(sampling_variance, model_variance, X)
    delta = jnp.asarray(sensitivity, dtype=float)
    return np.asarray(own_area_terms(C, delta) if joint == "correlated" else independent_terms(C, delta)[0])
