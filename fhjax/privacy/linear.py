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
from jaxtyping import Bool, Float, Int
from scipy import sparse

from fhjax.entrance import is_concrete
from fhjax.errors import InputError, Status, complain
from fhjax.privacy.assumptions import GAUSSIAN_PRIOR, neighbours_sentence, release_assumptions
from fhjax.privacy.coefficients import Coefficients
from fhjax.privacy.problem import Problem, prepare
from fhjax.records import AreaData, Array, FayHerriotFit, Labels, Posterior, ReleaseGuarantee

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

    Examples:
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
    problem = prepare(data, posterior, sensitivity, beta_prior_precision)
    terms = group_terms(problem.C, problem.delta, jnp.asarray(group), jnp.ones(data.num_areas), int(chosen.sum()))
    what = f"one correlated posterior draw of {int(chosen.sum()):,} of {data.num_areas:,} areas"
    return _release(problem, terms, what, data, posterior, privacy_unit, model_variance_source)


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

    Examples:
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
    a = jnp.ones(data.num_areas) if weights is None else jnp.asarray(weights, dtype=float)
    if a.shape != (data.num_areas,) or (is_concrete(a) and not np.isfinite(a).all()):
        raise InputError("weights must be finite, one for each area.")
    inside = group >= 0
    scale = jnp.zeros(len(found)).at[group[inside]].max(jax.lax.stop_gradient(jnp.abs(a[inside])))
    a = jnp.where(inside, a / jnp.where(scale > 0, scale, 1.0)[np.maximum(group, 0)], 0.0)
    problem = prepare(data, posterior, sensitivity, beta_prior_precision)
    terms = group_terms(problem.C, problem.delta, jnp.asarray(group), a, len(found))
    # Weights that are not numbers describe no release, so nothing is certified.
    terms = jnp.where(jnp.all(jnp.isfinite(a)), terms, jnp.inf)
    what = f"the means of {len(found):,} regions in one correlated posterior draw"
    return _release(problem, terms, what, data, posterior, privacy_unit, model_variance_source)


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

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> data = area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016], labels=["a", "b", "c", "d"])
        >>> difference = linear_guarantee(data, fit(data), [0.02, 0.03, 0.02, 0.05], [[1.0, -1.0, 0.0, 0.0]])
        >>> int(difference.worst_area)
        1
    """
    matrix: Any = L if sparse.issparse(L) else jnp.atleast_2d(jnp.asarray(L, dtype=float))
    q, m = np.shape(matrix)
    if m != data.num_areas:
        raise InputError(f"L has {m:,} columns; expected one for each of {data.num_areas:,} areas.")
    if 8 * q * (m + data.num_covariates) > max_bytes:
        raise InputError(
            f"A release of {q:,} linear functions of {m:,} areas needs more than max_bytes={max_bytes:,}. Use "
            "subset_guarantee or regional_guarantee if it has that form, or the joint guarantee, which bounds it."
        )
    dense = jnp.asarray(matrix.toarray(), dtype=float) if sparse.issparse(matrix) else matrix
    if is_concrete(dense) and not np.isfinite(dense).all():
        raise InputError("L has entries that are not finite.")
    problem = prepare(data, posterior, sensitivity, beta_prior_precision)
    finite = jnp.all(jnp.isfinite(dense))
    terms = matrix_terms(problem.C, problem.delta, jnp.where(finite, dense, 0.0))
    what = f"{q:,} linear functions of the areas in one correlated posterior draw"
    terms = jnp.where(finite, terms, jnp.inf)
    return _release(problem, terms, what, data, posterior, privacy_unit, model_variance_source)


def _release(
    problem: Problem, terms: Array, what: str, data: AreaData, posterior: Any, unit: str, source: str | None
) -> ReleaseGuarantee:
    return ReleaseGuarantee(
        rho=jnp.where(problem.C.status == Status.OK, jnp.max(terms), jnp.inf),
        worst_area=jnp.argmax(terms),
        release=what,
        neighbours=neighbours_sentence(unit),
        assumptions=(*release_assumptions(data, posterior, source), GAUSSIAN_PRIOR),
    )


@functools.partial(jax.jit, static_argnames="num_groups")
def group_terms(
    C: Coefficients, delta: Float[Array, " m"], group: Int[Array, " m"], weight: Float[Array, " m"], num_groups: int
) -> Float[Array, " m"]:
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


def orthonormal_rows(
    F: Float[Array, "q n"],
) -> tuple[Float[Array, "q n"], Float[Array, "q q"], Bool[Array, " q"]]:
    """Q (q, n), T (q, q) and which rows of F are independent of the ones before: F = T Q, T lower triangular.

    Gram-Schmidt, twice, on rows of length 1 or 0. A dependent row has a row of zeros in Q, and so on the diagonal.
    """
    q = F.shape[0]

    def add(state: tuple[Array, Array, Array], j: Array) -> tuple[tuple[Array, Array, Array], None]:
        Q, T, independent = state
        first = Q @ F[j]
        rest = F[j] - first @ Q
        second = Q @ rest
        rest = rest - second @ Q
        square = rest @ rest
        new = square > _DEPENDENT**2
        size = jnp.sqrt(jnp.where(new, square, 1.0))
        Q = Q.at[j].set(jnp.where(new, rest / size, 0.0))
        T = T.at[j].set(first + second).at[j, j].set(jnp.where(new, size, 0.0))
        return (Q, T, independent.at[j].set(new)), None

    start = jnp.zeros_like(F), jnp.zeros((q, q)), jnp.zeros(q, bool)
    return jax.lax.scan(add, start, jnp.arange(q))[0]


@jax.jit
def matrix_terms(C: Coefficients, delta: Float[Array, " m"], L: Float[Array, "q m"]) -> Float[Array, " m"]:
    """rho (m,) if area k's unit changes, for a dense L (q, m), by projection on the rows of L N."""
    psi, B, V, Z = C.sampling_variance, C.shrinkage, C.total_variance, C.basis
    m = psi.shape[0]
    noise = jnp.sqrt(jnp.where(B * C.model_variance > 0.0, B * C.model_variance, 1.0))
    noise = jnp.where(B * C.model_variance > 0.0, noise, 0.0)
    F = jnp.concatenate([L * noise, L @ (B[:, None] * Z)], axis=1)
    square = jnp.sum(F * F, axis=1)
    largest = jax.lax.stop_gradient(jnp.abs(L) @ jnp.sqrt(noise**2 + B**2 * jnp.sum(Z**2, axis=1)))
    # Functions without noise, up to the rounding of their own sum: harmless only if no unit moves them.
    silent = (square <= (_DEPENDENT * largest) ** 2) | (square == 0.0)
    norms = jnp.sqrt(jnp.where(silent, 1.0, square))
    F = jnp.where(silent[:, None], 0.0, F / norms[:, None])
    Q, T, independent = orthonormal_rows(F)
    t = Z / V[:, None]
    # c_k = (1 - B_k) e_k + B Z t_k. The second part is N (0, t_k); the first is N (e_k noise_k / psi_k) if psi_k > 0.
    known = psi == 0.0
    local = C.model_variance / (V * jnp.where(known, 1.0, psi))
    local = jnp.where(known | (local == 0.0), 0.0, jnp.sqrt(jnp.where(local > 0.0, local, 1.0)))
    predicted = Q[:, m:] @ t.T
    projected = Q[:, :m] * local + predicted
    terms = 0.5 * delta**2 * jnp.sum(projected**2, axis=0)

    def noiseless(terms: Array) -> Array:
        """An area with psi = 0 adds no noise of its own: its column of L must be made by the noise of the others."""
        column = jnp.where(silent[:, None], 0.0, L / norms[:, None])
        # A dependent row asks for nothing: a row of the identity, and 0 on the other side.
        triangle = jnp.where(independent[:, None], T, jnp.eye(T.shape[0]))
        made = jax.scipy.linalg.solve_triangular(triangle, jnp.where(independent[:, None], column, 0.0), lower=True)
        rest = column - T @ made
        outside = jnp.linalg.norm(rest, axis=0) > 1e-10 * jnp.linalg.norm(column, axis=0)
        outside = outside | jnp.any(silent[:, None] & (L != 0.0), axis=0)
        finite = 0.5 * delta**2 * jnp.sum((made + predicted) ** 2, axis=0)
        return jnp.where(known & (delta > 0.0), jnp.where(outside, jnp.inf, finite), terms)

    return jax.lax.cond(jnp.any(known & (delta > 0.0)), noiseless, lambda terms: terms, terms)
