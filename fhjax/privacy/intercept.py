"""Every guarantee of the intercept-only model for millions of areas, at the speed of memory.

With V = psi + sigma_v^2, S = sum 1/V and q = sigma_v^2 V + psi / S one has sigma^2 = psi q / V^2 and c_kk = q / V^2, so
the own-area term is (Delta/V)^2 q / (2 psi), and the others follow with few divisions. Each jitted step below reads its
inputs once and keeps no intermediate array: sharing V or q between the steps would write them out, which costs more
than to compute them again. Reductions run along rows of 10,000 areas, which XLA turns into vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.entrance import is_concrete
from fhjax.errors import InputError, Status
from fhjax.privacy.coefficients import Coefficients, coefficients, divide
from fhjax.privacy.defects import wrong_sensitivities
from fhjax.privacy.extremes import largest_effects
from fhjax.privacy.rho import area_terms, independent_terms, own_area_terms
from fhjax.records import Array, record
from fhjax.sharding import ROW


@record
class InterceptGuarantees:
    """The guarantees of all areas under the intercept-only model; rho in nats, as in ``Guarantees``."""

    per_area_rho: Array  # (m,) paper (24)
    joint_correlated: Array  # ()
    joint_independent: Array  # () paper (25)
    sequential: Array  # ()
    worst_area: Array  # () index of the largest own-area term, the cost of the correlated joint
    largest_off_diagonal_ratio: Array  # () max over i of max_{k != i} |c_ik| Delta_k / (c_ii Delta_i)


def _reduce(values: Callable, combine: Callable, start: tuple[float, ...], *arrays: Array) -> tuple[Array, ...]:
    """Reduce each of ``values(*arrays)`` by rows of 10,000, in one pass; the last, shorter row comes last."""
    m = arrays[0].shape[0]
    main = m // ROW * ROW
    first = tuple(jnp.asarray(value) for value in start)
    head = jax.lax.reduce(tuple(values(*(a[:main].reshape(-1, ROW) for a in arrays))), first, combine, (1,))
    tail = jax.lax.reduce(tuple(values(*(a[main:].reshape(1, -1) for a in arrays))), first, combine, (1,))
    return tuple(jnp.concatenate(pair) for pair in zip(head, tail, strict=True))


def _row(row: Array, *arrays: Array) -> tuple[Array, ...]:
    """The row again: the areas' indices (10,000,), -1 past the end, and the arrays there."""
    m = arrays[0].shape[0]
    index = row * ROW + jnp.arange(ROW)
    clipped = jnp.minimum(index, m - 1)
    return jnp.where(index < m, index, -1), *(a[clipped] for a in arrays)


def _sum_and_max(a: Any, b: Any) -> tuple[Array, Array]:
    return a[0] + b[0], jax.lax.max(a[1], b[1])


def _two_max(a: Any, b: Any) -> tuple[Array, Array]:
    return jax.lax.max(a[0], b[0]), jax.lax.max(a[1], b[1])


@jax.jit
def _range(psi: Array, delta: Array) -> tuple[Array, Array]:
    low, high = _reduce(lambda p, d: (-jax.lax.min(p, d), p + d), _two_max, (-jnp.inf, -jnp.inf), psi, delta)
    return -jnp.max(low), jnp.max(high)


@jax.jit
def _precision(psi: Array, s2: Array, delta: Array) -> tuple[Array, Array, Array, Array]:
    """S, and the largest Delta/V, its area, and the largest of the rest."""

    def values(p: Array, d: Array) -> tuple[Array, Array]:
        r = 1.0 / (p + s2)
        return r, d * r

    sums, peaks = _reduce(values, _sum_and_max, (0.0, -jnp.inf), psi, delta)
    row = jnp.argmax(peaks)
    index, p, d = _row(row, psi, delta)
    reach = jnp.where(index >= 0, d / (p + s2), -1.0)
    at = jnp.argmax(reach)
    rest = jnp.maximum(jnp.max(reach.at[at].set(0.0)), jnp.max(peaks.at[row].set(0.0)))
    return jnp.sum(sums), peaks[row], index[at], jnp.maximum(rest, 0.0)


@jax.jit
def _predictor_noise(psi: Array, s2: Array, S: Array) -> Array:
    """M = sum B^2 / sigma^2 = sum psi / q."""
    (sums,) = _reduce(lambda p: (p / (s2 * (p + s2) + p / S),), lambda a, b: (a[0] + b[0],), (0.0,), psi)
    return jnp.sum(sums)


def _area_rho(psi: Array, s2: Array, delta: Array, S: Array, peak: Array) -> Array:
    # The area that attains the peak may use it for itself: its own effect is larger still.
    V = psi + s2
    q = s2 * V + psi / S
    a = delta / V
    return jax.lax.max(a * a * q / (2.0 * psi), psi * (peak * peak / (2.0 * S * S)) / q)


_fresh = jax.jit(_area_rho)
_into = jax.jit(lambda out, *args: _area_rho(*args), donate_argnums=0, keep_unused=True)


@jax.jit
def _totals(rho: Array) -> tuple[Array, Array, Array]:
    sums, peaks = _reduce(lambda r: (r, r), _sum_and_max, (0.0, -jnp.inf), rho)
    row = jnp.argmax(peaks)
    index, values = _row(row, rho)
    return jnp.sum(sums), peaks[row], index[jnp.argmax(jnp.where(index >= 0, values, -1.0))]


@jax.jit
def _maxima(psi: Array, s2: Array, delta: Array, S: Array, M: Array, peak: Array, where: Array, rest: Array):
    """The independent joint, and the largest off-diagonal ratio."""

    def ratio(p: Array, d: Array) -> Array:
        V = p + s2
        return p * V / ((s2 * V + p / S) * d)

    def values(p: Array, d: Array) -> tuple[Array, Array]:
        V = p + s2
        q = s2 * V + p / S
        a = d / V
        return a * a * (q / p + (M - p / q) / (S * S)), p * V / (q * d)

    joint, ratios = _reduce(values, _two_max, (-jnp.inf, -jnp.inf), psi, delta)
    # The area of the peak is compared with the largest of the rest, so its row is looked at again.
    row = where // ROW
    index, p, d = _row(row, psi, delta)
    again = jnp.max(jnp.where((index >= 0) & (index != where), ratio(p, d), 0.0))
    others = jnp.max(ratios.at[row].set(again))
    return 0.5 * jnp.max(joint), jnp.maximum(others * peak / S, ratio(psi[where], delta[where]) * rest / S)


def intercept_guarantees(
    sampling_variance: Any,
    model_variance: Any,
    sensitivity: Any,
    *,
    out: Array | None = None,
    check: bool = True,
) -> InterceptGuarantees:
    """Per-area rho, both joints, their sum and the off-diagonal maximum for the intercept-only model with a flat prior.

    Args:
        sampling_variance: (m,) psi, outcome units squared; float64.
        model_variance: sigma_v^2.
        sensitivity: (m,) Delta, outcome units; float64.
        out: a JAX array (m,) that is given up and becomes ``per_area_rho``: it saves the first touch of new memory. It
            must not be used afterwards.
        check: look for negative or missing numbers first (one more pass over the inputs).

    Returns:
        InterceptGuarantees, equal to those of :func:`fhjax.privacy.guarantee.guarantees`.

    Raises:
        InputError: for wrong shapes, single precision, and with ``check`` for negative or non-finite numbers. Inside
            ``jit``, ``vmap`` and ``grad`` such numbers make every rho infinite instead.

    Neighbours and assumptions: as in :func:`fhjax.privacy.guarantee.guarantees`.

    Source: Das and Drechsler (2026), Proposition 1 and equations (24), (25); docs/derivations.md, sections 4 to 8.

    Examples:
        >>> result = intercept_guarantees([1.0, 1.0, 2.0], 1.0, [0.1, 0.1, 0.1])
        >>> round(float(result.joint_correlated), 6)
        0.003438
    """
    for value in (sampling_variance, sensitivity, out):
        if getattr(value, "dtype", np.dtype(float)) == np.float32:
            raise InputError("Privacy numbers need float64: single precision understates rho.")
    psi, s2, delta = (jnp.asarray(value, dtype=float) for value in (sampling_variance, model_variance, sensitivity))
    if psi.ndim != 1 or psi.shape != delta.shape or psi.shape[0] == 0 or (out is not None and out.shape != psi.shape):
        raise InputError(
            f"sampling_variance has shape {psi.shape} and sensitivity {delta.shape}; expected (m,) for all."
        )
    if not is_concrete(psi, s2, delta):
        return _inside_jit(psi, s2, delta)
    if check:
        low, high = _range(psi, delta)
        if not (low >= 0.0 and jnp.isfinite(high) and s2 >= 0.0 and jnp.isfinite(s2)):
            raise InputError("Variances and sensitivities must be finite and not negative.")
    S, peak, where, rest = _precision(psi, s2, delta)
    M = _predictor_noise(psi, s2, S)
    rho = _fresh(psi, s2, delta, S, peak) if out is None else _into(out, psi, s2, delta, S, peak)
    total, worst, area = _totals(rho)
    joint, ratio = _maxima(psi, s2, delta, S, M, peak, where, rest)
    scalars = np.array([total, worst, joint, ratio])
    if np.isnan(scalars).any():
        return _general(coefficients(psi, s2, jnp.ones_like(psi)), delta)
    return InterceptGuarantees(
        per_area_rho=rho,
        joint_correlated=worst,
        joint_independent=joint,
        sequential=total,
        # With sigma_v^2 = 0 every area's draw is the same and all tie; the peak is the one whose unit moves them.
        worst_area=jnp.where(s2 == 0.0, where, area),
        largest_off_diagonal_ratio=ratio,
    )


def _inside_jit(psi: Array, s2: Array, delta: Array) -> InterceptGuarantees:
    C = coefficients(psi, s2, jnp.ones_like(psi))
    wrong = (C.status >= Status.NOT_CONVERGED) | jnp.any(wrong_sensitivities(delta))
    result = _general(C, jnp.where(wrong, 0.0, delta))
    return jax.tree.map(lambda values: jnp.where(wrong & (values.dtype == float), jnp.inf, values), result)


def _general(C: Coefficients, delta: Array) -> InterceptGuarantees:
    """The same through the operator, where 0 / 0 occurs (psi = 0 with Delta = 0, or nothing that moves anything)."""
    effects = largest_effects(C, delta)
    own = own_area_terms(C, delta)
    area = jnp.maximum(area_terms(C, effects.effect), own)
    return InterceptGuarantees(
        per_area_rho=area,
        joint_correlated=jnp.max(own),
        joint_independent=jnp.max(independent_terms(C, delta)[0]),
        sequential=jnp.sum(area),
        worst_area=jnp.argmax(own),
        largest_off_diagonal_ratio=jnp.max(divide(effects.off_diagonal, C.own() * delta)),
    )
