"""Prefix sums over an area's sorted weights, and every trimmed sum from them by one look-up.

A record of size s (its weight, or its unit's) carries the factor min(1, c/s). So sum_r x_r min(1, c/s_r) is the sum of
x over sizes below c plus c times the sum of x/s over the rest: two table rows. Sums of squares over PSUs are quadratic
in c between sizes: three. The number of records shows in the tables' length only, never in the work of a look-up.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.caps.shares import SortedSizes
from fhjax.records import Array, FloatArray, TrimmingSums, record, static

#: Columns of the linear table: weights, centred outcomes, then the five cluster columns, then the replicates.
WEIGHT, OUTCOME = 0, 1
CROSS_A, CROSS_B, LIFT_AA, LIFT_AB, LIFT_BB = range(2, 7)


@record
class Tables:
    """Prefix tables of m areas; area k's rows start at ``base[k]`` and are one more than its sizes."""

    base: Array  # (m,) int
    first: Array  # (m,) int, first row of ``size``
    rows: Array  # (m,) int, number of sizes
    size: Array  # (q,)
    smallest: Array  # (m,) smallest positive size
    largest: Array  # (m,)
    units: Array  # (m,) units with a positive size
    share_at: Array  # (q,) largest share when the threshold is this size, without and
    share_at_lifted: Array  # (q,) with additive redistribution within the area; both ascending within an area
    below: Array  # (q + m, L) sums over the sizes below the cap
    above: Array  # (q + m, L) sums over size of the rest
    squares: Array  # (q + m, 3) sums of w^2, w^2/s over the sizes below the cap, and of w^2/s^2 over those below
    squares_above: Array  # (q + m,) sums of w^2/s^2 over the rest
    clusters: Array | None  # (q + m, 9) coefficients of 1, c, c^2 in the sums over PSUs of A^2, A B, B^2
    num_replicates: int = static(default=0)

    @property
    def num_areas(self) -> int:
        return self.base.shape[0]


class TrimmedSums(NamedTuple):
    """What the trimmed weights of every area add up to. Leading shape (m,) throughout."""

    linear: Array  # (m, L)
    weight_square: Array  # (m,) sum of squared record weights
    clusters: Array | None  # (m, 3) sums over PSUs of A^2, A B, B^2
    largest: Array  # (m,) largest unit weight

    @property
    def weight(self) -> Array:
        return self.linear[:, WEIGHT]


def sizes_of(sums: TrimmingSums) -> SortedSizes:
    """The distinct positive sizes by area, as the closed forms want them."""
    positive = np.asarray(sums.size) > 0.0
    start = np.concatenate([[0], np.cumsum(np.bincount(sums.area[positive], minlength=sums.num_areas))])
    return SortedSizes(
        start=start.astype(np.int64),
        size=np.asarray(sums.size)[positive],
        count=np.asarray(sums.units)[positive].astype(float),
    )


def build_tables(sums: TrimmingSums) -> Tables:
    """Prefix tables from the sums by distinct size: done once, then the records are out of sight."""
    m, area = sums.num_areas, np.asarray(sums.area)
    rows = np.bincount(area, minlength=m)
    first = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    base = first[:-1] + np.arange(m)
    size = np.asarray(sums.size)
    safe = np.where(size > 0.0, size, np.inf)
    columns = [np.asarray(sums.weight)[:, None], np.asarray(sums.outcome)[:, None]]
    if sums.cluster_linear is not None:
        columns.append(np.asarray(sums.cluster_linear))
    else:
        columns.append(np.zeros((len(size), 5)))
    if sums.replicate_weights is not None and sums.replicate_outcomes is not None:
        columns += [np.asarray(sums.replicate_weights), np.asarray(sums.replicate_outcomes)]
    x = np.concatenate(columns, axis=1)
    w2 = np.asarray(sums.weight_square)[:, None]
    squares = np.concatenate([w2, w2 / safe[:, None], w2 / safe[:, None] ** 2], axis=1)
    clusters = None
    if sums.cluster_squares is not None:
        steps = np.asarray(sums.cluster_squares)
        clusters = np.concatenate([_prefix(steps, first)])
        # The trimmed part's products end at 0 where nothing is trimmed any more: add them up from that end.
        clusters[:, 2::3] = _suffix(-steps[:, 2::3], first)
        clusters[base + rows, 1::3] = 0.0
        clusters = jnp.asarray(clusters)
    sizes = sizes_of(sums)
    below, above = _prefix(x, first), _suffix(x / safe[:, None], first)
    at = np.arange(len(size)) + area  # the table row at which this size and larger ones are trimmed
    total, units = np.bincount(area, np.asarray(sums.weight), m)[area], sizes.num_units[area]
    kept = below[at, WEIGHT] + size * above[at, WEIGHT]
    share_at = np.divide(size, kept, out=np.zeros_like(size), where=kept > 0.0)
    raised = size + (total - kept) / np.maximum(units, 1.0)
    share_at_lifted = np.divide(raised, total, out=np.zeros_like(size), where=(total > 0.0) & (size > 0.0))
    return Tables(
        base=jnp.asarray(base),
        first=jnp.asarray(first[:-1]),
        rows=jnp.asarray(rows),
        size=jnp.asarray(size),
        smallest=jnp.asarray(sizes.smallest),
        largest=jnp.asarray(sizes.largest),
        units=jnp.asarray(sizes.num_units),
        share_at=jnp.asarray(share_at),
        share_at_lifted=jnp.asarray(share_at_lifted),
        below=jnp.asarray(below),
        above=jnp.asarray(above),
        squares=jnp.asarray(_prefix(squares, first)),
        squares_above=jnp.asarray(_suffix(squares[:, 2:], first)[:, 0]),
        clusters=clusters,
        num_replicates=sums.num_replicates,
    )


def _prefix(values: FloatArray, first: np.ndarray) -> FloatArray:
    """(q + m, L): in each area a row of zeros, then running sums from its smallest size up."""
    m = len(first) - 1
    result = np.zeros((len(values) + m, values.shape[1]))
    for k in range(m):  # area by area, so that no area's digits are lost in another's total
        np.cumsum(values[first[k] : first[k + 1]], axis=0, out=result[first[k] + k + 1 : first[k + 1] + k + 1])
    return result


def _suffix(values: FloatArray, first: np.ndarray) -> FloatArray:
    """(q + m, L): in each area running sums from its largest size down, then a row of zeros."""
    m = len(first) - 1
    result = np.zeros((len(values) + m, values.shape[1]))
    for k in range(m):
        part = values[first[k] : first[k + 1]]
        np.cumsum(part[::-1], axis=0, out=result[first[k] + k : first[k + 1] + k][::-1])
    return result


def positions(tables: Tables, threshold: Array) -> Array:
    """(m,) how many sizes of each area lie strictly below its threshold.

    Strictly, so that derivatives at a size are those of trimming further: at the largest size they point the way.
    """
    return _count_below(tables, tables.size, threshold)


def _count_below(tables: Tables, values: Array, bound: Array) -> Array:
    """(m,) how many of each area's ascending ``values`` (q,) lie strictly below its bound, by bisection."""
    low = jnp.zeros_like(tables.rows)
    high = tables.rows
    last = max(values.shape[0] - 1, 0)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        less = values[jnp.minimum(tables.first + middle, last)] < bound
        open_ = low < high
        return jnp.where(open_ & less, middle + 1, low), jnp.where(open_ & ~less, middle, high)

    steps = int(np.ceil(np.log2(values.shape[0] + 2))) + 1
    low, _ = jax.lax.fori_loop(0, steps, halve, (low, high))
    return low


def thresholds_for_shares(tables: Tables, share: Array, *, lifted: bool = False) -> Array:
    """(m,) the largest thresholds under which no unit's share exceeds ``share``; at most the largest size.

    ``lifted``: additive redistribution within the area. A share below 1/n gives equal weights, the nearest there is.
    """
    values = tables.share_at_lifted if lifted else tables.share_at
    # The rows whose share is reached before the wanted one stay untrimmed.
    j = jnp.minimum(_count_below(tables, values, share), tables.rows)
    at = tables.base + j
    kept, trimmed = tables.below[at, WEIGHT], tables.above[at, WEIGHT]
    if lifted:
        # (c + (W - kept - c trimmed) / n) / W = t
        total = tables.below[tables.base + tables.rows, WEIGHT]
        n = jnp.maximum(tables.units, 1.0)
        slope = 1.0 - trimmed / n
        c = jnp.where(slope > 0.0, (share * total - (total - kept) / n) / jnp.where(slope > 0.0, slope, 1.0), jnp.inf)
    else:
        slope = 1.0 - share * trimmed
        c = jnp.where(slope > 0.0, share * kept / jnp.where(slope > 0.0, slope, 1.0), jnp.inf)
    c = jnp.where(j >= tables.rows, tables.largest, c)
    return jnp.clip(c, tables.smallest, tables.largest)


def trimmed_sums(tables: Tables, threshold: Array, lift: Array | None = None) -> TrimmedSums:
    """All sums at weights min(s, threshold) + lift in each area, differentiable in both.

    Args:
        tables: from :func:`build_tables`.
        threshold: (m,) positive; at or above the largest size nothing is trimmed.
        lift: (m,) what every unit gets beside, for additive redistribution; None for none.
    """
    c = jnp.minimum(threshold, tables.largest)
    at = tables.base + positions(tables, jax.lax.stop_gradient(c))
    below, above = tables.below[at], tables.above[at]
    linear = below + c[:, None] * above
    squares, squares_above = tables.squares[at], tables.squares_above[at]
    weight_square = squares[:, 0] + c * c * squares_above
    clusters = None
    if tables.clusters is not None:
        table = tables.clusters[at]
        clusters = table[:, 0::3] + c[:, None] * (table[:, 1::3] + c[:, None] * table[:, 2::3])
    largest = c
    if lift is not None:
        rate = tables.above[tables.base]  # sums of x / s over all sizes: what one unit of lift adds
        if clusters is not None:
            one = 2.0 * lift * linear[:, LIFT_AA] + lift**2 * rate[:, LIFT_AA]
            two = lift * linear[:, LIFT_AB] + 0.5 * lift**2 * rate[:, LIFT_AB]
            three = 2.0 * lift * linear[:, LIFT_BB] + lift**2 * rate[:, LIFT_BB]
            clusters = clusters + jnp.stack([one, two, three], axis=1)
        linear = linear + lift[:, None] * rate
        raised = c + lift
        weight_square = squares[:, 0] + 2.0 * lift * squares[:, 1] + lift**2 * squares[:, 2] + raised**2 * squares_above
        largest = raised
    return TrimmedSums(linear=linear, weight_square=weight_square, clusters=clusters, largest=largest)


def untrimmed_sums(tables: Tables) -> TrimmedSums:
    """The sums before any trimming."""
    return trimmed_sums(tables, tables.largest)


def lift_for_total(
    tables: Tables, threshold: Array, group: Array | None = None, num_groups: int | None = None
) -> Array:
    """(m,) the equal amount for every unit that gives back what the thresholds cut off, within areas or groups."""
    c = jnp.minimum(threshold, tables.largest)
    at = tables.base + positions(tables, jax.lax.stop_gradient(c))
    total = tables.below[tables.base + tables.rows, WEIGHT]
    cut = total - (tables.below[at, WEIGHT] + c * tables.above[at, WEIGHT])
    units = tables.units
    if group is not None:
        cut = jax.ops.segment_sum(cut, group, num_segments=num_groups)[group]
        units = jax.ops.segment_sum(units, group, num_segments=num_groups)[group]
    return cut / jnp.maximum(units, 1.0)
