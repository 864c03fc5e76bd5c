"""Summaries of privacy losses that never hold more than one chunk of draws: moments, histograms, tail sums.

A *series* is one stream of standardised losses: an area's, or the joint's. What is kept of it does not grow with the
number of draws, so 10^9 of them take the memory of one chunk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fhjax.plrv.fit_tests import EDGES
from fhjax.records import Array, record

_BINS = len(EDGES) + 1
_WIDTH = float(EDGES[1] - EDGES[0])
CHUNK_VALUES = 2**20  # draws x areas held at once: 8 MiB, which stays in a processor's cache


@record
class SeriesSummary:
    """What is kept of s series of n standardised values each."""

    count: Array  # () n
    total: Array  # (s,) sum of the values
    square_total: Array  # (s,) sum of their squares
    histogram: Array  # (s, bins) counts between EDGES

    def __add__(self, other: SeriesSummary) -> SeriesSummary:
        return jax.tree.map(jnp.add, self, other)


@record
class LossSummary:
    """What is kept of one series of n losses, beyond its standardised moments, at fixed orders and epsilons."""

    count: Array  # ()
    renyi_sum: Array  # (a,) sum of e^{(alpha - 1)(L - rho)}
    renyi_square_sum: Array  # (a,) sum of its square
    tail_sum: Array  # (e,) sum of (1 - e^{eps - L})_+
    tail_square_sum: Array  # (e,)
    exceed: Array  # (e,) how many L > eps
    recede: Array  # (e,) how many L < -eps: the same event seen from the other data set

    def __add__(self, other: LossSummary) -> LossSummary:
        return jax.tree.map(jnp.add, self, other)


def summarise_series(values: Array) -> SeriesSummary:
    """Summary of a chunk of standardised values (n, s)."""
    n, s = values.shape
    bins = jnp.clip(jnp.floor((values - EDGES[0]) / _WIDTH) + 1.0, 0, _BINS - 1).astype(jnp.int32)
    flat = (bins + _BINS * jnp.arange(s, dtype=jnp.int32)).ravel()
    histogram = jnp.zeros(s * _BINS, jnp.int32).at[flat].add(1, mode="promise_in_bounds")
    return SeriesSummary(
        count=jnp.asarray(n),
        total=jnp.sum(values, axis=0),
        square_total=jnp.sum(values * values, axis=0),
        histogram=histogram.reshape(s, _BINS).astype(jnp.int64),
    )


def summarise_losses(losses: Array, rho: Array, orders: Array, epsilons: Array) -> LossSummary:
    """Summary of a chunk of losses (n,) of one release whose claimed rho centres the exponents."""
    power = jnp.exp((orders - 1.0) * (losses[:, None] - rho))
    over = losses[:, None] - epsilons
    tail = -jnp.expm1(-jnp.maximum(over, 0.0))
    return LossSummary(
        count=jnp.asarray(losses.shape[0]),
        renyi_sum=jnp.sum(power, axis=0),
        renyi_square_sum=jnp.sum(power * power, axis=0),
        tail_sum=jnp.sum(tail, axis=0),
        tail_square_sum=jnp.sum(tail * tail, axis=0),
        exceed=jnp.sum(over > 0.0, axis=0),
        recede=jnp.sum(losses[:, None] < -epsilons, axis=0),
    )


def chunk_rows(num_draws: int, width: int, values: int = CHUNK_VALUES) -> int:
    """How many draws of ``width`` numbers are made at once: a divisor of ``num_draws`` if one is near the limit, so
    that no second loop for a shorter last chunk is compiled."""
    limit = max(1, min(num_draws, values // max(width, 1)))
    return next((rows for rows in range(limit, limit // 2, -1) if num_draws % rows == 0), limit)


def stream(
    summarise_chunk: Callable[..., Any], arguments: Any, num_draws: int, width: int, values: int = CHUNK_VALUES
) -> Any:
    """Add the summaries of all draws 0 .. num_draws - 1, one chunk at a time, in one compiled loop.

    Args:
        summarise_chunk: ``(arguments, which) -> summary`` with ``which`` (n,) the indices of the draws in the chunk; a
            pure function defined at module level, so that it is compiled once. The summary is a pytree that adds.
        arguments: what it needs, a pytree.
        num_draws: how many draws.
        width: numbers in one draw, which sets the chunk.
        values: numbers made at once; no result depends on it but for the order of additions.

    Returns:
        The sum of the summaries.
    """
    rows = chunk_rows(num_draws, width, values)
    whole, rest = divmod(num_draws, rows)
    result = stream_kernel(summarise_chunk, arguments, rows, whole)
    if rest:
        tail = stream_kernel(summarise_chunk, arguments, rest, 1, first=whole * rows)
        result = jax.tree.map(jnp.add, result, tail)
    return result


@functools.partial(jax.jit, static_argnums=(0, 2, 3), static_argnames="first")
def stream_kernel(summarise_chunk, arguments, rows: int, num_chunks: int, first: int = 0):
    """The compiled loop over ``num_chunks`` chunks of ``rows`` draws."""
    shape = jax.eval_shape(summarise_chunk, arguments, jnp.arange(rows))
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)

    def step(total, index):
        chunk = summarise_chunk(arguments, first + index * rows + jnp.arange(rows))
        return jax.tree.map(jnp.add, total, chunk), None

    return jax.lax.scan(step, start, jnp.arange(num_chunks))[0]
