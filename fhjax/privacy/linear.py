"""What it costs to publish linear functions L theta of one posterior draw: some areas, regional means, any L.

The worst unit sits in some area k, released or not: rho = max_k Delta_k^2 (L c_k)' (L Sigma L')^+ (L c_k) / 2. With
Sigma = N N' and c_k = N n_k / psi_k (n_k the k-th row of N) this is the squared length of the projection of
n_k Delta_k / psi_k on the rows of L N, so no inverse is formed that could hide a direction with little noise.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from fhjax.errors import InputError, complain
from fhjax.privacy.coefficients import Coefficients
from fhjax.privacy.guarantee import GAUSSIAN_PRIOR, neighbours_sentence, prepare, release_assumptions
from fhjax.records import AreaData, Array, FayHerriotFit, FloatArray, Labels, Posterior, ReleaseGuarantee

_DEPENDENT = 1e-14  # singular values below this share of the largest are exact linear dependence of L's rows


def subset_guarantee(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    sensitivity: Any,
    areas: Sequence[Any] | Any,
    *,
    privacy_unit: str = "record",
    model_variance_source: str | None = None,
    beta_prior_precision: Any = None,
) -> ReleaseGuarantee:
    """zCDP cost of publishing one correlated draw of some areas only; units of the other areas count too.

    Args:
        data, posterior, sensitivity and options: as in :func:`fhjax.privacy.guarantee.guarantees`.
        areas: labels of the published areas, or a boolean mask (m,).

    Raises:
        InputError: for an unknown label or an empty choice.

    Source: docs/derivations.md, sections 4 to 8. O(m p^2).

    Example:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016], labels=["a", "b", "c", "d"])
        >>> part = subset_guarantee(data, fit(data), [0.02, 0.03, 0.02, 0.05], ["a", "c"])
        >>> part.release
        'one correlated posterior draw of 2 of 4 areas'
    """
    labels = data.labels if data.labels is not None else Labels(range(data.num_areas))
    chosen = np.asarray(areas)
    if chosen.dtype != bool:
        wanted = {str(area) for area in np.atleast_1d(chosen)}
        unknown = sorted(wanted.difference(labels))
        if unknown:
            raise complain("are not in the data", unknown, "Use labels of the area file.")
        chosen = np.array([label in wanted for label in labels])
    if chosen.shape != (data.num_areas,) or not chosen.any():
        raise InputError("Choose at least one area to publish, by label or by a mask with one entry an area.")
    group = np.where(chosen, np.cumsum(chosen) - 1, -1)
    C, delta, _ = prepare(data, posterior, sensitivity, beta_prior_precision)
    terms = group_terms(C, delta, jnp.asarray(group), jnp.ones(data.num_areas), int(chosen.sum()))
    what = f"one correlated posterior draw of {int(chosen.sum()):,} of {data.num_areas:,} areas"
    return _release(terms, what, data, posterior, privacy_unit, model_variance_source)


def regional_guarantee(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    sensitivity: Any,
    region: Sequence[Any],
    *,
    weights: Any = None,
    privacy_unit: str = "record",
    model_variance_source: str | None = None,
    beta_prior_precision: Any = None,
) -> ReleaseGuarantee:
    """zCDP cost of publishing regional means of one correlated posterior draw.

    Args:
        data, posterior, sensitivity and options: as in :func:`fhjax.privacy.guarantee.guarantees`.
        region: (m,) the region of each area; None or an empty text for areas outside every region.
        weights: (m,) public weights of the areas in their region's mean (population sizes), default equal. Their scale
            within a region does not matter.

    Raises:
        InputError: for wrong lengths, weights that are not finite, or no region at all.

    Source: docs/derivations.md, sections 4 to 8. O(m p^2), nothing m x m.

    Example:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016], labels=["a", "b", "c", "d"])
        >>> means = regional_guarantee(data, fit(data), [0.02, 0.03, 0.02, 0.05], ["north", "north", "south", "south"])
        >>> whole = subset_guarantee(data, fit(data), [0.02, 0.03, 0.02, 0.05], ["a", "b", "c", "d"])
        >>> bool(means.rho < whole.rho)
        True
    """
    names = ["" if name is None else str(name) for name in region]
    if len(names) != data.num_areas:
        raise InputError(f"region has {len(names):,} entries; expected one for each of {data.num_areas:,} areas.")
    found = sorted({name for name in names if name})
    if not found:
        raise InputError("No area lies in a region: nothing would be published.")
    position = {name: g for g, name in enumerate(found)}
    group = np.array([position.get(name, -1) for name in names])
    a = np.ones(data.num_areas) if weights is None else np.asarray(weights, dtype=float)
    if a.shape != (data.num_areas,) or not np.isfinite(a).all():
        raise InputError("weights must be finite, one for each area.")
    scale = np.zeros(len(found))
    np.maximum.at(scale, group[group >= 0], np.abs(a[group >= 0]))
    a = np.where(group >= 0, a / np.where(scale > 0, scale, 1.0)[group], 0.0)
    C, delta, _ = prepare(data, posterior, sensitivity, beta_prior_precision)
    terms = group_terms(C, delta, jnp.asarray(group), jnp.asarray(a), len(found))
    what = f"the means of {len(found):,} regions in one correlated posterior draw"
    return _release(terms, what, data, posterior, privacy_unit, model_variance_source)


def linear_guarantee(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    sensitivity: Any,
    L: Any,
    *,
    privacy_unit: str = "record",
    model_variance_source: str | None = None,
    beta_prior_precision: Any = None,
    max_bytes: int = 2**30,
) -> ReleaseGuarantee:
    """zCDP cost of publishing L theta for one correlated posterior draw, for any matrix L.

    Args:
        data, posterior, sensitivity and options: as in :func:`fhjax.privacy.guarantee.guarantees`.
        L: (q, m) public, an array or a SciPy sparse matrix. Rows may depend on each other.
        max_bytes: refuse if L N, (q, m + p), would take more. Use :func:`subset_guarantee` or
            :func:`regional_guarantee` for releases of that form.

    Raises:
        InputError: for a wrong shape, numbers that are not finite, or a problem above ``max_bytes``.

    Source: docs/derivations.md, sections 4 to 8. O(q^2 m) time, O(q m) memory.

    Example:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016], labels=["a", "b", "c", "d"])
        >>> difference = linear_guarantee(data, fit(data), [0.02, 0.03, 0.02, 0.05], [[1.0, -1.0, 0.0, 0.0]])
        >>> int(difference.worst_area)
        1
    """
    C, delta, _ = prepare(data, posterior, sensitivity, beta_prior_precision)
    matrix = L if sparse.issparse(L) else np.atleast_2d(np.asarray(L, dtype=float))
    q, m = np.shape(matrix)
    if m != data.num_areas:
        raise InputError(f"L has {m:,} columns; expected one for each of {data.num_areas:,} areas.")
    if 8 * q * (m + data.num_covariates) > max_bytes:
        raise InputError(
            f"A release of {q:,} linear functions of {m:,} areas needs more than max_bytes={max_bytes:,}. Use "
            "subset_guarantee or regional_guarantee if it has that form, or the joint guarantee, which bounds it."
        )
    dense = np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix, dtype=float)  # pyright: ignore
    if not np.isfinite(dense).all():
        raise InputError("L has entries that are not finite.")
    terms = matrix_terms(C, np.asarray(delta), dense)
    what = f"{q:,} linear functions of the areas in one correlated posterior draw"
    return _release(jnp.asarray(terms), what, data, posterior, privacy_unit, model_variance_source)


def _release(terms: Array, what: str, data: AreaData, posterior: Any, unit: str, source: str | None):
    return ReleaseGuarantee(
        rho=jnp.max(terms),
        worst_area=jnp.argmax(terms),
        release=what,
        neighbours=neighbours_sentence(unit),
        assumptions=(*release_assumptions(data, posterior, source), GAUSSIAN_PRIOR),
    )


@functools.partial(jax.jit, static_argnames="num_groups")
def group_terms(C: Coefficients, delta: Array, group: Array, weight: Array, num_groups: int) -> Array:
    """rho (m,) if area k's unit changes, for L_g = sum over group g of weight times theta; group -1 is not released.

    L Sigma L' = diag(d) + U U' with U (groups, p), inverted by Woodbury's identity.
    """
    weight = jnp.where(group >= 0, weight, 0.0)
    B, V, Z, s2 = C.shrinkage, C.total_variance, C.basis, C.model_variance
    p = Z.shape[1]
    inside = group >= 0
    index = jnp.where(inside, group, num_groups)  # segment num_groups is dropped

    def total(values: Array) -> Array:
        return jax.ops.segment_sum(values, index, num_groups + 1)[:num_groups]

    U = total((weight * B)[:, None] * Z)
    d = s2 * total(weight**2 * B)
    alpha = jnp.where(inside, weight * C.direct_weight, 0.0)
    t = Z / V[:, None]
    noiseless = (d == 0.0) & (s2 > 0.0)  # every sampling variance of the group is 0, so U is 0 there too
    safe = jnp.where(d > 0.0, d, 1.0)
    scaled = jnp.where((d > 0.0)[:, None], U / jnp.sqrt(safe)[:, None], 0.0)
    G = scaled.T @ scaled

    def noisy():
        values, vectors = jnp.linalg.eigh(G)
        values = jnp.maximum(values, 0.0)
        return vectors, values / (1.0 + values), 1.0 / (1.0 + values)

    def predicted_only():  # sigma_v^2 = 0: G (I + G)^-1 becomes the projection on the rows of U
        rows = jnp.concatenate([U / jnp.maximum(jnp.linalg.norm(U, axis=1, keepdims=True), 1e-300), jnp.zeros((p, p))])
        _, size, right = jnp.linalg.svd(jnp.linalg.qr(rows, mode="r"))
        return right.T, jnp.where(size > _DEPENDENT * size[0], 1.0, 0.0), jnp.zeros(p)

    vectors, filled, inverse = jax.lax.cond(s2 > 0.0, noisy, predicted_only)
    own = jnp.where(inside, index, 0)
    u = (U @ vectors)[own]
    turned = t @ vectors
    at = jnp.where(d > 0.0, 1.0 / safe, 0.0)[own]
    single = jnp.maximum(at - at**2 * jnp.sum(u * inverse * u, axis=1), 0.0)
    cross = at * jnp.sum(u * inverse * turned, axis=1)
    quadratic = alpha**2 * single + 2.0 * alpha * cross + jnp.sum(turned * filled * turned, axis=1)
    exposed = inside & noiseless[own] & (alpha != 0.0) & (delta > 0.0)
    return jnp.where(exposed, jnp.inf, 0.5 * delta**2 * jnp.maximum(quadratic, 0.0))


def matrix_terms(C: Coefficients, delta: FloatArray, L: FloatArray) -> FloatArray:
    """rho (m,) if area k's unit changes, for a dense L (q, m), by projection on the rows of L N."""
    psi, B, V, Z = (np.asarray(part) for part in (C.sampling_variance, C.shrinkage, C.total_variance, C.basis))
    m = len(psi)
    noise = np.sqrt(B * float(C.model_variance))
    F = np.concatenate([L * noise, L @ (B[:, None] * Z)], axis=1)
    norms = np.linalg.norm(F, axis=1)
    # Functions without noise, up to the rounding of their own sum: harmless only if no unit moves them.
    silent = norms <= _DEPENDENT * (np.abs(L) @ np.sqrt(noise**2 + B**2 * np.sum(Z**2, axis=1)))
    F = F[~silent] / norms[~silent, None]
    left, size, Q = np.linalg.svd(F, full_matrices=False)
    kept = size > _DEPENDENT * size.max(initial=0.0)
    left, size, Q = left[:, kept], size[kept], Q[kept]
    t = Z / V[:, None]
    # c_k = (1 - B_k) e_k + B Z t_k. The second part is N (0, t_k); the first is N (e_k noise_k / psi_k) if psi_k > 0.
    local = np.where(psi > 0.0, np.sqrt(float(C.model_variance) / (V * np.where(psi > 0.0, psi, 1.0))), 0.0)
    projected = Q[:, :m] * local + Q[:, m:] @ t.T
    terms = 0.5 * delta**2 * np.sum(projected**2, axis=0)
    for k in np.flatnonzero((psi == 0.0) & (delta > 0.0)):
        column = L[:, k]
        rest = column[~silent] / norms[~silent]
        inner = left.T @ rest
        outside = np.linalg.norm(rest - left @ inner) > 1e-10 * np.linalg.norm(rest)
        if outside or np.any(column[silent] != 0.0):
            terms[k] = np.inf
        else:
            terms[k] = 0.5 * delta[k] ** 2 * np.sum((inner / size + Q[:, m:] @ t[k]) ** 2)
    return terms
