"""Which area moves area i the most: max_k |c_ik| Delta_k, in O(m) where a certificate suffices, streamed where not.

Away from the diagonal |c_ik| Delta_k = B_i |z_i . w_k| with w_k = z_k Delta_k / V_k. By Cauchy-Schwarz none exceeds
B_i |z_i| max_k |w_k|, so an area whose own effect c_ii Delta_i is at least that is settled without looking at others.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from fhjax.privacy.coefficients import Coefficients
from fhjax.privacy.sharded import off_diagonal_of_shards
from fhjax.records import Array, record, static
from fhjax.sharding import is_sharded

_ROWS, _COLUMNS = 256, 2048  # areas by candidates looked at together: 4 MiB
FULL_SEARCH_WORK = 4e9  # multiplications up to which every off-diagonal maximum is found exactly
_ROUNDING = 1e-12  # the bound is raised by this share before an area is called settled, or a search cut short


@record
class LargestEffects:
    """The largest |change of mu_i| from one privacy unit, area by area, and who causes it."""

    effect: Array  # (m,) max over all k of |c_ik| Delta_k, outcome units
    attained_by: Array  # (m,) the k that attains it; i itself on a tie
    off_diagonal: Array  # (m,) max over k != i of |c_ik| Delta_k; an upper bound where not exact
    off_diagonal_exact: bool = static(default=True)
    num_settled_by_certificate: Array  # ()
    num_settled_by_search: Array  # ()


def place_of_largest(values: Array) -> Array:
    """``argmax`` of (m,) values without NaN, by two reductions: XLA's own walks through them one by one on a CPU."""
    m = values.shape[0]
    # Computed once: two computations of the same number may differ in the last digit, and then none equals the largest.
    values = jax.lax.optimization_barrier(jax.lax.stop_gradient(values))
    return jnp.minimum(jnp.min(jnp.where(values == jnp.max(values), jnp.arange(m), m)), m - 1)


def two_largest(values: Array) -> tuple[Array, Array, Array]:
    """The largest of (m,) values, its index, and the largest of the rest (0 when there is none), in two passes."""
    first = place_of_largest(values)
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


def _search_some(needed: Array, Z: Array, W: Array) -> Array:
    """The k of :func:`search` for the areas that need it, -1 for the others: only their blocks are looked at."""
    m = needed.shape[0]
    height = min(_ROWS, m)
    num_blocks = -(-m // height)
    place = jnp.where(needed, jnp.cumsum(needed) - 1, num_blocks * height)
    rows = jnp.full(num_blocks * height, -1).at[place].set(jnp.arange(m), mode="drop").reshape(num_blocks, height)

    def look(state: tuple[Array, Array]) -> tuple[Array, Array]:
        step, by = state
        row = rows[step]
        _, found = search(row, Z, W, jnp.where(row >= 0, 0.0, jnp.inf))
        return step + 1, by.at[jnp.where(row >= 0, row, m)].set(found.astype(by.dtype), mode="drop")

    count = -(-jnp.sum(needed) // height)
    _, by = jax.lax.while_loop(lambda state: state[0] < count, look, (jnp.zeros((), count.dtype), jnp.full(m, -1)))
    return by


@functools.partial(jax.jit, static_argnames="exact_off_diagonal")
def effects_kernel(
    coefficients: Coefficients,
    sensitivity: Float[Array, " m"],
    mask: Bool[Array, " m"] | None = None,
    *,
    exact_off_diagonal: bool,
) -> LargestEffects:
    """:func:`largest_effects` as a pure function of arrays.

    Differentiable: the k that attains a maximum is held fixed, which is the gradient wherever one k attains it alone.
    """
    m, p = coefficients.basis.shape
    every = jnp.arange(m)
    own = coefficients.own() * sensitivity
    if p == 1:
        reach = jnp.abs(coefficients.basis[:, 0]) * sensitivity / coefficients.total_variance
        largest, first, second = two_largest(reach)
        runner_up = place_of_largest(without(jax.lax.stop_gradient(reach), first, -1.0))
        by = jnp.where(every == first, runner_up, first)
        partner = jnp.where(every == first, second, largest)
        others = coefficients.shrinkage * jnp.abs(coefficients.basis[:, 0]) * partner
        return _effects(own, others, by, own >= others * (1.0 + _ROUNDING), mask, True)
    fixed_own, fixed_C, fixed_delta = jax.lax.stop_gradient((own, coefficients, sensitivity))
    W = other_factor(fixed_C, fixed_delta)
    bound = norm_bound(fixed_C, W)
    settled = fixed_own >= bound * (1.0 + _ROUNDING)
    if exact_off_diagonal:
        by = search(every, fixed_C.basis, W, jnp.zeros(m))[1]
    else:
        by = jax.lax.cond(
            jnp.all(settled),
            lambda: jnp.full(m, -1),
            lambda: _search_some(~settled, fixed_C.basis, W),
        )
    k = jnp.maximum(by, 0)
    others = jnp.where(by >= 0, jnp.abs(coefficients.pairs(every, k)) * sensitivity[k], 0.0)
    if not exact_off_diagonal:
        # A settled area is its own maximum whatever its bound says.
        others = jnp.where(settled, jnp.minimum(bound, own), others)
    return _effects(own, others, by, settled, mask, exact_off_diagonal)


def _effects(own: Array, others: Array, by: Array, settled: Array, mask: Array | None, exact: bool) -> LargestEffects:
    areas = jnp.ones_like(settled) if mask is None else mask
    return LargestEffects(
        effect=jnp.maximum(own, others),
        attained_by=jnp.where((own >= others) | (by < 0), jnp.arange(own.shape[0]), by),  # itself on a tie
        off_diagonal=others,
        off_diagonal_exact=exact,
        num_settled_by_certificate=jnp.sum(settled & areas),
        num_settled_by_search=jnp.sum(~settled & areas),
    )


def search_everything(num_areas: int, num_covariates: int, search_work: float) -> bool:
    """Whether the search over all pairs of areas is cheap enough to make every off-diagonal maximum exact."""
    return num_covariates == 1 or float(num_areas) ** 2 * num_covariates <= search_work


def largest_effects(
    coefficients: Coefficients,
    sensitivity: Array,
    *,
    mask: Array | None = None,
    search_work: float = FULL_SEARCH_WORK,
) -> LargestEffects:
    """max_k |c_ik| Delta_k for every area, the area that attains it, and the off-diagonal maxima.

    Args:
        coefficients: from :func:`fhjax.coefficients`.
        sensitivity: (m,) Delta >= 0, outcome units.
        mask: (m,) False for padding, which is not counted.
        search_work: up to m * m * p of this size all off-diagonal maxima are searched, so all are exact. Above it only
            unsettled areas are, and ``off_diagonal`` of the others is an upper bound. ``effect`` is exact either way.

    Returns:
        LargestEffects, with the counts of areas settled by certificate and by search.

    Source: docs/derivations.md, sections 4 to 8. Exact in O(m) for p = 1.

    Examples:
        >>> import fhjax
        >>> C = fhjax.coefficients([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3)
        >>> largest_effects(C, [0.1, 0.1, 0.5]).attained_by.tolist()
        [0, 1, 2]
    """
    m, p = coefficients.basis.shape
    sensitivity = jnp.asarray(sensitivity, dtype=float)
    exact = search_everything(m, p, search_work)
    if p > 1 and is_sharded(coefficients.basis):
        own, bound, W, settled = _certificate(coefficients, sensitivity)
        others, by = off_diagonal_of_shards(coefficients, W, settled, exact)
        others = others if exact else jnp.where(settled, jnp.minimum(bound, own), others)
        return _effects_of_shards(own, others, by, settled, mask, exact)
    return effects_kernel(coefficients, sensitivity, mask, exact_off_diagonal=exact)


@jax.jit
def _certificate(coefficients: Coefficients, sensitivity: Array) -> tuple[Array, Array, Array, Array]:
    own = coefficients.own() * sensitivity
    W = other_factor(coefficients, sensitivity)
    bound = norm_bound(coefficients, W)
    return own, bound, W, own >= bound * (1.0 + _ROUNDING)


_effects_of_shards = jax.jit(_effects, static_argnames="exact")
