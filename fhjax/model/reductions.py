"""Sums over areas at memory speed.

XLA's CPU backend reads an array once for a *variadic* reduction along rows of moderate length, with the arithmetic of
every term fused into the loop; separate sums read it once each, and one reduction over everything is not vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Array = jax.Array

#: Elements in a row: long enough to hide the loop's start, short enough that a row of each operand stays in cache.
ROW = 10_000


def to_rows(x: Array, fill: float = 0.0) -> Array:
    """(..., m) -> (..., rows, ROW), padded with ``fill``; arrays of at most one row keep their length."""
    m = x.shape[-1]
    if m <= ROW:
        return x[..., None, :]
    rows = -(-m // ROW)
    padded = rows * ROW - m
    if padded:
        x = jnp.concatenate([x, jnp.full((*x.shape[:-1], padded), fill, x.dtype)], axis=-1)
    return x.reshape(*x.shape[:-1], rows, ROW)


@jax.custom_jvp
def joint_sums(terms: Sequence[Array]) -> tuple[Array, ...]:
    """Sum each of the equally shaped ``terms`` (rows, ROW), all in one pass over the memory they are computed from."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    by_row = jax.lax.reduce(tuple(terms), zeros, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), (1,))
    return tuple(jnp.sum(row) for row in by_row)


@joint_sums.defjvp
def _joint_sums_jvp(primals, tangents):
    # A sum is linear; stated here because JAX has no derivative for reductions of several operands at once.
    (terms,), (dots,) = primals, tangents
    return joint_sums(terms), tuple(jnp.sum(dot) for dot in dots)
