"""Sums over areas at memory speed.

XLA's CPU backend reads an array once for a *variadic* reduction along rows of moderate length, with the arithmetic of
every term fused into the loop; separate sums read it once each, and one reduction over everything is not vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.sharding import ROW

Array = jax.Array

#: Areas in a block of matrix products: a divisor of ROW with which twenty columns and their products stay in cache.
BLOCK = 2_000
#: Factors in [1, 2) that can be multiplied without overflow.
FACTORS = 1_000

LOG_2 = float(np.log(2.0))
_EXPONENT_BIAS, _MANTISSA_BITS = 1023, 52
_MANTISSA, _ONE = 0x000FFFFFFFFFFFFF, 0x3FF0000000000000


def to_rows(x: Array, fill: float = 0.0) -> Array:
    """(..., m) -> (..., rows, ROW), padded with ``fill``; arrays of at most one row stay as they are."""
    m = x.shape[-1]
    if m <= ROW:
        return x
    rows = -(-m // ROW)
    padded = rows * ROW - m
    if padded:
        x = jnp.concatenate([x, jnp.full((*x.shape[:-1], padded), fill, x.dtype)], axis=-1)
    return x.reshape(*x.shape[:-1], rows, ROW)


def in_blocks(function: Callable[..., Any], columns: Array, *vectors: Array) -> Any:
    """The sum over rows of ``function(columns[:, r], *(vector[r]))``, for columns (p, rows, ROW) or (p, n).

    A block of BLOCK areas stays in cache between the products that are made of it.
    """
    if columns.ndim == 2 or columns.shape[-1] % BLOCK:  # few areas, or a sample of many
        return function(columns.reshape(columns.shape[0], -1), *(vector.reshape(-1) for vector in vectors))
    columns = columns.reshape(columns.shape[0], -1, BLOCK)
    vectors = tuple(vector.reshape(-1, BLOCK) for vector in vectors)
    take = jax.lax.dynamic_index_in_dim

    def add(r: Array, total: Any) -> Any:
        part = function(take(columns, r, 1, False), *(take(vector, r, 0, False) for vector in vectors))
        return jax.tree.map(jnp.add, total, part)

    first = function(columns[:, 0], *(vector[0] for vector in vectors))
    return jax.lax.fori_loop(1, columns.shape[1], add, first)


@jax.custom_jvp
def joint_sums(terms: Sequence[Array]) -> Array:
    """(k,) Sum each of ``terms``, all (rows, ROW) or (n,), in one pass over what they are computed from."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    by_row = jax.lax.reduce(
        tuple(terms), zeros, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), _along(terms)
    )
    return _total(by_row)


@joint_sums.defjvp
def _joint_sums_jvp(primals, tangents):
    # A sum is linear; stated here because JAX has no derivative for reductions of several operands at once.
    (terms,), (dots,) = primals, tangents
    return joint_sums(terms), jnp.stack([jnp.sum(dot) for dot in dots])


def sums_and_largest(terms: Sequence[Array], bounded: Array) -> tuple[Array, Array]:
    """:func:`joint_sums` and the largest of ``bounded``. Not for differentiation."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)

    def combine(a, b):
        return (*(x + y for x, y in zip(a[:-1], b[:-1], strict=True)), jnp.maximum(a[-1], b[-1]))

    *sums, largest = jax.lax.reduce((*terms, bounded), (*zeros, jnp.array(-jnp.inf)), combine, _along([bounded]))
    return _total(sums), jnp.max(largest)


def joint_sums_and_log(terms: Sequence[Array], positive: Array) -> tuple[Array, Array]:
    """:func:`joint_sums` and the sum of the logarithms of ``positive`` as well; at most ``FACTORS`` in a row.

    Logarithms cost as much as a dozen products, so the binary mantissas are multiplied and the exponents added: one
    logarithm a row. Not for differentiation.
    """
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    mantissa, exponent = _parts(positive)

    def combine(a, b):
        return (*(x + y for x, y in zip(a[:-2], b[:-2], strict=True)), a[-2] * b[-2], a[-1] + b[-1])

    begin = (*zeros, jnp.ones(()), jnp.zeros((), jnp.int64))
    *sums, product, exponents = jax.lax.reduce((*terms, mantissa, exponent), begin, combine, _along([mantissa]))
    return _total(sums), _log(product, exponents, positive.shape[-1])


@jax.custom_jvp
def sum_log(positive: Array) -> Array:
    """Sum of the logarithms of ``positive``, in one pass and with one logarithm for ``FACTORS`` of them."""
    n = positive.shape[-1]
    if n > FACTORS and n % FACTORS == 0:
        positive, n = positive.reshape(-1, FACTORS), FACTORS
    total = jnp.zeros(())
    for begin in range(0, n, FACTORS):
        part = positive[..., begin : begin + FACTORS]
        total = total + joint_sums_and_log((), part)[1]
    return total


@sum_log.defjvp
def _sum_log_jvp(primals, tangents):
    (positive,), (dot,) = primals, tangents
    return sum_log(positive), jnp.sum(dot / positive)


def _along(terms: Sequence[Array]) -> tuple[int]:
    return (terms[0].ndim - 1,)


def _total(by_row: Sequence[Array]) -> Array:
    # Stacked before they are added: one small kernel instead of k, which is what compiling takes time for.
    stacked = jnp.stack(by_row) if by_row else jnp.zeros(0)
    return jnp.sum(stacked, axis=1) if stacked.ndim == 2 else stacked


def _parts(positive: Array) -> tuple[Array, Array]:
    """``positive`` as mantissa in [1, 2) and biased binary exponent."""
    bits = jax.lax.bitcast_convert_type(positive, jnp.int64)
    mantissa = jax.lax.bitcast_convert_type((bits & _MANTISSA) | _ONE, jnp.float64)
    return mantissa, bits >> _MANTISSA_BITS


def _log(product: Array, exponents: Array, n: int) -> Array:
    return jnp.sum(jnp.log(product)) + LOG_2 * jnp.sum(exponents - _EXPONENT_BIAS * n)
