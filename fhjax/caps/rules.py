"""Weights under a cap: what is cut off is dropped, or shared out proportionally or equally until none exceeds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.caps.shares import checked
from fhjax.entrance import is_concrete
from fhjax.errors import InputError, complain
from fhjax.records import FloatArray, IntArray, Labels

Redistribution = Literal["none", "proportional", "additive"]
REDISTRIBUTIONS = ("none", "proportional", "additive")


def trim_weights(
    weights: npt.ArrayLike,
    cap: npt.ArrayLike,
    area: npt.ArrayLike | None = None,
    *,
    redistribution: Redistribution = "none",
    group: npt.ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> Any:
    """Cap the weights of each area; the total of each group is kept unless ``redistribution="none"``.

    Args:
        weights: (n,) weights of the units. A weight of 0 stays 0 and takes no share.
        cap: (m,) or one number, the largest weight allowed *after* redistribution; infinity trims nothing by itself.
        area: (n,) area index of each weight; None for one area.
        redistribution: ``"none"`` gives min(w, cap). ``"proportional"`` multiplies the weights below the cap by a
            common factor, again and again until no weight exceeds its cap: the limit is min(g w, cap). ``"additive"``
            gives all of them the same amount, again and again: the limit is min(w + a, cap), R survey's strict rule.
        group: (n,) index of the group within which what is cut off is shared; None takes the area.
        labels: names of the groups (areas), for messages.

    Returns:
        (n,) trimmed weights. No weight exceeds its cap by more than rounding.

    Raises:
        InputError: a cap that is not positive; a group whose caps add up to less than its total, so that the total
            cannot be kept (a cap below the mean weight); a redistribution inside ``jit``, ``vmap`` or ``grad``.

    Source: docs/trimming.md; R package survey, trimWeights(strict = TRUE), for the additive rule.

    Examples:
        >>> trim_weights([1.0, 2.0, 3.0, 4.0, 20.0], 9.0, redistribution="proportional").round(6).tolist()
        [2.1, 4.2, 6.3, 8.4, 9.0]
        >>> trim_weights([1.0, 2.0, 3.0, 4.0, 20.0], 7.0, redistribution="additive").round(6).tolist()
        [4.333333, 5.333333, 6.333333, 7.0, 7.0]
    """
    if redistribution not in REDISTRIBUTIONS:
        raise InputError(f"redistribution must be one of {', '.join(REDISTRIBUTIONS)}, not {redistribution!r}.")
    if not is_concrete(weights, cap, area):
        if redistribution != "none":
            raise InputError("Inside jit, vmap and grad only redistribution='none' can be computed.")
        limit = jnp.asarray(cap, dtype=float)
        limit = limit[area] if area is not None and limit.ndim else limit
        # A cap that cannot be meant removes nothing, so that the weights only cost more than they should.
        return jnp.minimum(jnp.asarray(weights), jnp.where(limit > 0.0, limit, jnp.inf))
    values, index, m = checked(weights, area)
    caps = np.broadcast_to(np.asarray(cap, dtype=float), (m,))[index]
    if np.any(~(caps > 0.0)):
        raise InputError("A cap must be a positive number (infinity for no cap).")
    if redistribution == "none":
        return np.minimum(values, caps)
    if group is None:
        groups, count = index, m
    else:
        _, groups, count = checked(values, group)
    positive = values > 0.0
    result = values.copy()
    result[positive] = _shared_out(
        values[positive], caps[positive], groups[positive], count, redistribution == "additive", labels
    )
    return result


def _shared_out(
    w: FloatArray, cap: FloatArray, group: IntArray, num_groups: int, additive: bool, labels: Sequence[str] | None
) -> FloatArray:
    """min(g w, cap) or min(w + a, cap) with the total of each group unchanged: a piecewise linear equation, solved."""
    total = np.bincount(group, weights=w, minlength=num_groups)
    untouched = np.bincount(group, weights=(w > cap).astype(float), minlength=num_groups) == 0
    room = np.bincount(group, weights=np.where(np.isfinite(cap), cap, np.inf), minlength=num_groups)
    short = room < total * (1.0 - 1e-12)
    if short.any():
        names = Labels(range(num_groups) if labels is None else labels)
        raise complain(
            "cannot keep their total under the caps, which lie below the mean weight",
            names.where(short),
            "Raise the caps, redistribute within larger groups, or choose redistribution='none'.",
        )
    # A unit reaches its cap at level (amount added, or factor) `reach`; the sum of the group is linear in between.
    reach = cap - w if additive else cap / w
    order = np.lexsort((reach, group))
    start = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=num_groups))])[:-1]
    g, r, weight, ceiling = group[order], reach[order], w[order], np.where(np.isfinite(cap), cap, 0.0)[order]
    slope = np.ones(len(w)) if additive else weight
    capped = _running(ceiling, start, g)  # sum of the caps of the units that reached them, this one included
    fixed = _running(weight, start, g)
    sloped = _running(slope, start, g)
    all_slope = np.bincount(group, weights=w if not additive else np.ones(len(w)), minlength=num_groups)
    # Level at which the group's total is kept, if exactly the units up to and including this row are capped.
    left = all_slope[g] - sloped
    needed = total[g] - capped - (np.where(additive, total[g] - fixed, 0.0) if additive else 0.0)
    next_reach = np.append(r[1:], np.inf)
    next_reach[np.append(g[1:] != g[:-1], True)] = np.inf
    level = np.where(left > 0.0, needed / np.where(left > 0.0, left, 1.0), r)
    # The first row whose level does not pass the next unit's reach is the solution.
    good = np.isfinite(r) & (level <= next_reach * (1.0 + 1e-15) + 1e-300)
    neutral = 0.0 if additive else 1.0
    answer = np.full(num_groups, neutral)
    rows = np.flatnonzero(good)
    first = np.unique(g[rows], return_index=True)
    answer[first[0]] = level[rows[first[1]]]
    answer = np.where(untouched, neutral, np.maximum(answer, neutral))
    raised = w + answer[group] if additive else w * answer[group]
    return np.where(untouched[group], w, np.minimum(raised, cap))


def _running(values: FloatArray, start: IntArray, group: IntArray) -> FloatArray:
    running = np.cumsum(values)
    before = np.concatenate([[0.0], running])[start]
    return running - before[group]
