"""Which area moves area i the most: max_k |c_ik| Delta_k, in O(m) where a certificate suffices, streamed where not.

Away from the diagonal |c_ik| Delta_k = B_i |z_i . w_k| with w_k = z_k Delta_k / V_k. By Cauchy-Schwarz none exceeds
B_i |z_i| max_k |w_k|, so an area whose own effect c_ii Delta_i is at least that is settled without looking at others.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.model.fit import is_concrete
from fhjax.privacy.coefficients import Coefficients
from fhjax.privacy.sharded import off_diagonal_of_shards
from fhjax.records import Array, record, static
from fhjax.sharding import is_sharded

_ROWS, _COLUMNS = 256, 2048  # areas by candidates looked at together: 4 MiB
_FULL_SEARCH_WORK = 4e9  # multiplications up to which every off-diagonal maximum is found exactly
_ROUNDING = 1e-12  # the bound is raised by this share before an area is called settled, or a search cut short


@record
class LargestEffects:
    """The largest |change of mu_i| from one privacy unit, area by area, and who causes it."""

    effect: Array  # (m,) max over all k of |c_ik| Delta_k, outcome units
    attained_by: Array  # (m,) the k that attains it; i itself on a tie
    off_diagonal: Array  # (m,) max over k != i of |c_ik| Delta_k; an upper bound where not exact
    off_diagonal_exact: bool = static(default=True)
    num_settled_by_certificate: int = static(default=0)
    num_settled_by_search: int = static(default=0)


def two_largest(values: Array) -> tuple[Array, Array, Array]:
    """The largest of (m,) values, its index, and the largest of the rest (0 when there is none), in two passes."""
    first = jnp.argmax(values)
    return jnp.max(values), first, jnp.max(without(values, first, 0.0))


def without(values: Array, index: Array, fill: float) -> Array:
    """(m,) values with one replaced: a comparison, because an indexed update would gather areas of several devices."""
    return jnp.where(jnp.arange(values.shape[0]) == index, fill, values)


def other_factor(coefficients: Coefficients, sensitivity: Array) -> Array:
    """W (m, p), w_k = z_k Delta_k / V_k."""
    return coefficients.basis * (sensitivity / coefficients.total_variance)[:, None]


def norm_bound(coefficients: Coefficients, W: Array) -> Array:
    """B_i |z_i| max_{k != i} |w_k| (m,), an upper bound of the off-diagonal effects; exact when p = 1."""
    largest, where, second = two_largest(jnp.linalg.norm(W, axis=1))
    partner = jnp.where(jnp.arange(W.shape[0]) == where, second, largest)
    return coefficients.shrinkage * jnp.linalg.norm(coefficients.basis, axis=1) * partner


@jax.jit
def search(rows: Array, Z: Array, W: Array, threshold: Array) -> tuple[Array, Array]:
    """max_{k != i} |z_i . w_k| and its k for the areas i in ``rows`` (n,), where it exceeds ``threshold`` (n,).

    Candidates are visited by decreasing |w_k|, in blocks; a block of areas stops when what is left cannot raise any of
    its maxima. Rows that nothing exceeds keep their threshold and k = -1. Never more than 256 x 2048 numbers at once.
    """
    m, n = Z.shape[0], rows.shape[0]
    norms = jnp.linalg.norm(W, axis=1)
    order = jnp.argsort(-norms)
    width = min(_COLUMNS, m)
    num_blocks = -(-m // width)
    pad = num_blocks * width - m
    candidate = jnp.concatenate([order, jnp.full(pad, -1, order.dtype)]).reshape(num_blocks, width)
    vectors = jnp.where((candidate >= 0)[..., None], W[candidate], 0.0)
    ceiling = norms[candidate[:, 0]] * (1.0 + _ROUNDING)

    def one_block(block):
        row, z, start = block
        length = jnp.linalg.norm(z, axis=1)

        def go_on(state):
            step, best, _ = state
            left = ceiling[jnp.minimum(step, num_blocks - 1)]
            return (step < num_blocks) & jnp.any(length * left > best)

        def look(state):
            step, best, by = state
            inner = jnp.abs(z @ vectors[step].T)
            inner = jnp.where(candidate[step][None, :] == row[:, None], -1.0, inner)
            at = jnp.argmax(inner, axis=1)
            value = jnp.take_along_axis(inner, at[:, None], axis=1)[:, 0]
            better = value > best
            return step + 1, jnp.where(better, value, best), jnp.where(better, candidate[step][at], by)

        _, best, by = jax.lax.while_loop(go_on, look, (0, start, jnp.full(row.shape, -1, order.dtype)))
        return best, by

    height = min(_ROWS, n)
    fill = -(-n // height) * height - n
    row = jnp.concatenate([rows, jnp.zeros(fill, rows.dtype)])
    start = jnp.concatenate([threshold, jnp.full(fill, jnp.inf)])
    best, by = jax.lax.map(
        one_block,
        (row.reshape(-1, height), Z[row].reshape(-1, height, Z.shape[1]), start.reshape(-1, height)),
    )
    return best.reshape(-1)[:n], by.reshape(-1)[:n]


@functools.partial(jax.jit, static_argnames="exact_off_diagonal")
def _settle(coefficients: Coefficients, sensitivity: Array, exact_off_diagonal: bool):
    own = coefficients.own() * sensitivity
    W = other_factor(coefficients, sensitivity)
    bound = norm_bound(coefficients, W)
    settled = own >= bound * (1.0 + _ROUNDING)
    m, p = W.shape
    every = jnp.arange(m)
    if p == 1:
        _, where, _ = two_largest(jnp.abs(W[:, 0]))
        second = jnp.argmax(without(jnp.abs(W[:, 0]), where, -1.0))
        return own, bound, jnp.where(every == where, second, where), settled
    if exact_off_diagonal:
        value, by = search(every, coefficients.basis, W, jnp.zeros(m))
        return own, coefficients.shrinkage * value, by, settled
    return own, bound, jnp.full(m, -1, every.dtype), settled


@jax.jit
def _larger(own: Array, others: Array, by: Array) -> tuple[Array, Array]:
    """The larger effect and who causes it; the area itself on a tie."""
    return jnp.maximum(own, others), jnp.where((own >= others) | (by < 0), jnp.arange(own.shape[0]), by)


def largest_effects(coefficients: Coefficients, sensitivity: Array, *, search_work: float = _FULL_SEARCH_WORK):
    """max_k |c_ik| Delta_k for every area, the area that attains it, and the off-diagonal maxima.

    Args:
        coefficients: from :func:`fhjax.privacy.coefficients.coefficients`.
        sensitivity: (m,) Delta >= 0, outcome units.
        search_work: up to m * m * p of this size all off-diagonal maxima are searched, so all are exact. Above it only
            unsettled areas are, and ``off_diagonal`` of the others is an upper bound. ``effect`` is exact either way.

    Returns:
        LargestEffects, with the counts of areas settled by certificate and by search.

    Source: docs/derivations.md, sections 4 to 8. Exact in O(m) for p = 1.
    """
    m, p = coefficients.basis.shape
    sensitivity = jnp.asarray(sensitivity, dtype=float)
    exact = p == 1 or float(m) * m * p <= search_work
    if p > 1 and is_sharded(coefficients.basis):
        own, bound, _, settled = _settle(coefficients, sensitivity, False)
        W = other_factor(coefficients, sensitivity)
        others, by = off_diagonal_of_shards(coefficients, W, settled, exact)
        others = others if exact else jnp.where(settled, jnp.minimum(bound, own), others)
    else:
        own, others, by, settled = _settle(coefficients, sensitivity, exact)
    if not exact and not is_sharded(others) and is_concrete(others):
        # Only here is the number of searched areas known, which keeps the work at (unsettled areas) x m.
        rows = jnp.asarray(np.flatnonzero(~np.asarray(settled)))
        if rows.size:
            B = coefficients.shrinkage[rows]
            W = other_factor(coefficients, sensitivity)
            value, index = search(rows, coefficients.basis, W, jnp.zeros(rows.size))
            others, by = others.at[rows].set(B * value), by.at[rows].set(index)
        # A settled area is its own maximum whatever its bound says.
        others = jnp.where(settled, jnp.minimum(others, own), others)
    effect, attained_by = _larger(own, others, by)
    num_settled = int(jnp.sum(settled)) if is_concrete(settled) else 0
    return LargestEffects(
        effect=effect,
        attained_by=attained_by,
        off_diagonal=others,
        off_diagonal_exact=exact,
        num_settled_by_certificate=num_settled,
        num_settled_by_search=m - num_settled if is_concrete(settled) else 0,
    )
