"""Sensitivity coefficients and the largest effects of areas that lie on several devices.

The sums of the other modules partition by themselves. Two steps do not: the orthogonal decomposition of the covariates
and the search by decreasing |w_k|. Here each device does them for its own areas, and only p x p factors and blocks of
candidates of a fixed size travel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from fhjax.errors import InputError
from fhjax.privacy.coefficients import Coefficients, prediction_basis
from fhjax.records import AreaData, Array
from fhjax.sharding import AREAS, mesh_of, refuse_rows, shard_values

_ROWS, _COLUMNS = 256, 2048  # as in extremes: areas by candidates looked at together
_ROUNDING = 1e-12
_HERE, _EVERYWHERE = PartitionSpec(AREAS), PartitionSpec()


def coefficients_of_shards(
    data: AreaData, model_variance: Array, sensitivity: Any, beta_prior_precision: Any = None
) -> tuple[Coefficients, Array, Array]:
    """The operator, the sensitivities and the covariates of sharded areas, checked; padded rows are made harmless.

    Raises:
        InputError: as :func:`fhjax.privacy.coefficients.coefficients`; on every host alike.
    """
    assert data.mask is not None
    if getattr(sensitivity, "dtype", None) == np.float32:
        raise InputError("Privacy numbers need float64: single precision understates rho. Convert with astype(float).")
    delta = shard_values(np.asarray(sensitivity, dtype=float) if np.ndim(sensitivity) == 0 else sensitivity, data)
    P = None if beta_prior_precision is None else jnp.atleast_2d(jnp.asarray(beta_prior_precision, dtype=float))
    psi, X, delta = _harmless(data.sampling_variance, data.X, delta, data.mask)
    s2 = jnp.asarray(model_variance, dtype=float)
    _check(psi, X, delta, s2, P, data)
    if X.shape[1] == 1:
        basis = prediction_basis(X, psi + s2, P)
    else:
        basis, least = _sharded_basis(X, psi + s2, P)
        if P is None and not float(least) >= 64 * np.finfo(float).eps:
            raise InputError("The covariates are collinear: drop the column that the others determine.")
    if not bool(jnp.all(jnp.isfinite(basis))):
        raise InputError("The covariates are collinear: drop the column that the others determine.")
    return Coefficients(sampling_variance=psi, model_variance=s2, basis=basis), delta, X


@jax.jit
def _harmless(psi: Array, X: Array, delta: Array, mask: Array) -> tuple[Array, Array, Array]:
    return jnp.where(mask, psi, 1.0), jnp.where(mask[:, None], X, 0.0), jnp.where(mask, delta, 0.0)


def _check(psi: Array, X: Array, delta: Array, s2: Array, P: Array | None, data: AreaData) -> None:
    def refuse(bad: Array, what: str, way_out: str = "Correct or drop them.") -> None:
        refuse_rows(bad, data, what, way_out)

    if not (np.isfinite(s2) and s2 >= 0.0):
        raise InputError(f"The model variance is {float(s2)!r}; it must be finite and not negative.")
    refuse(~(jnp.isfinite(delta) & (delta >= 0.0)), "have a negative or non-finite sensitivity")
    refuse(~(jnp.isfinite(psi) & (psi >= 0.0)), "have a negative or non-finite sampling variance")
    refuse(~jnp.all(jnp.isfinite(X), axis=1), "have a non-finite covariate")
    refuse(
        psi + s2 == 0.0,
        "have a sampling variance of 0 while the model variance is 0 too, so the regression must fit them exactly",
        "Exclude them or give them a sampling variance.",
    )
    if P is not None:
        matrix = np.asarray(P)
        if matrix.shape != (X.shape[1],) * 2:
            raise InputError(f"beta_prior_precision has shape {matrix.shape}; expected {(X.shape[1],) * 2}.")
        if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-10, atol=0.0):
            raise InputError("beta_prior_precision must be a finite symmetric matrix.")
        if np.linalg.eigvalsh(matrix).min() < -1e-10 * max(np.abs(matrix).max(), 1e-300):
            raise InputError("beta_prior_precision must not have negative eigenvalues.")


def _sharded_basis(X: Array, total_variance: Array, P: Array | None) -> tuple[Array, Array]:
    """Z of :func:`prediction_basis`, its triangular factor found block by block; and how far from collinear."""
    function = jax.shard_map(
        _basis_here,
        mesh=mesh_of(X),
        in_specs=(_HERE, _HERE, _EVERYWHERE),
        out_specs=(_HERE, _EVERYWHERE),
        check_vma=False,
    )
    return jax.jit(function)(X, total_variance, P)


def _basis_here(X: Array, total_variance: Array, P: Array | None) -> tuple[Array, Array]:
    root = jnp.sqrt(total_variance)[:, None]
    rows = X / root
    # Columns of length 1, so that the factor's diagonal tells collinearity whatever their units.
    length = jnp.sqrt(jax.lax.psum(jnp.sum(rows * rows, axis=0), AREAS))
    length = jnp.where(length > 0.0, length, 1.0)
    triangle = jnp.linalg.qr(rows / length, mode="r")
    triangles = jax.lax.all_gather(triangle, AREAS).reshape(-1, X.shape[1])
    R = jnp.linalg.qr(triangles, mode="r")
    least = jnp.min(jnp.abs(jnp.diagonal(R)))
    if P is not None:
        values, vectors = jnp.linalg.eigh(P)
        prior = jnp.sqrt(jnp.maximum(values, 0.0))[:, None] * vectors.T / length
        R = jnp.linalg.qr(jnp.concatenate([R, prior]), mode="r")
    R = R * length
    Z = jax.scipy.linalg.solve_triangular(R, X.T, trans=1).T
    scaled = Z / root
    gram = jax.lax.psum(scaled.T @ scaled, AREAS)
    if P is not None:
        half = jax.scipy.linalg.solve_triangular(R, P, trans=1)
        gram = gram + jax.scipy.linalg.solve_triangular(R, half.T, trans=1)
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(gram), Z.T, lower=True).T, least


def sharded_search(Z: Array, W: Array, threshold: Array) -> tuple[Array, Array]:
    """:func:`fhjax.privacy.extremes.search` for all areas, Z, W (m, p) and ``threshold`` (m,) sharded.

    Every device sorts its own candidates by |w_k|; in each round all devices hand round their next few, until no area
    anywhere can gain. A threshold of infinity excuses an area.
    """
    function = jax.shard_map(
        partial(_search_here, devices=mesh_of(Z).size),
        mesh=mesh_of(Z),
        in_specs=(_HERE, _HERE, _HERE),
        out_specs=(_HERE, _HERE),
        check_vma=False,
    )
    return jax.jit(function)(Z, W, threshold)


def _search_here(Z: Array, W: Array, threshold: Array, devices: int) -> tuple[Array, Array]:
    n, p = Z.shape
    first = jax.lax.axis_index(AREAS) * n
    norms = jnp.linalg.norm(W, axis=1)
    order = jnp.argsort(-norms)
    width = min(max(_COLUMNS // devices, 1), n)
    rounds = -(-n // width)
    local = jnp.concatenate([order, jnp.full(rounds * width - n, -1, order.dtype)]).reshape(rounds, width)
    ceiling = jax.lax.pmax(norms[local[:, 0]], AREAS) * (1.0 + _ROUNDING)

    height = min(_ROWS, n)
    fill = -(-n // height) * height - n

    def blocked(x: Array, value: float) -> Array:
        padded = jnp.concatenate([x, jnp.full((fill, *x.shape[1:]), value, x.dtype)])
        return padded.reshape(-1, height, *x.shape[1:])

    row, z, start = blocked(first + jnp.arange(n), -2), blocked(Z, 0.0), blocked(threshold, jnp.inf)
    length = jnp.linalg.norm(z, axis=2)

    def anyone(step: Array, best: Array) -> Array:
        gains = jnp.any(length * ceiling[jnp.minimum(step, rounds - 1)] > best)
        return (step < rounds) & (jax.lax.pmax(gains.astype(jnp.int32), AREAS) > 0)

    def look(state: Any) -> Any:
        step, best, by, _ = state
        mine = local[step]
        vectors = jnp.where((mine >= 0)[:, None], W[mine], 0.0)
        vectors = jax.lax.all_gather(vectors, AREAS).reshape(-1, p)
        candidate = jax.lax.all_gather(jnp.where(mine >= 0, first + mine, -1), AREAS).reshape(-1)

        def one_block(block: Any) -> tuple[Array, Array]:
            row, z, length, best, by = block

            def compare() -> tuple[Array, Array]:
                inner = jnp.abs(z @ vectors.T)
                inner = jnp.where(candidate[None, :] == row[:, None], -1.0, inner)
                at = jnp.argmax(inner, axis=1)
                value = jnp.take_along_axis(inner, at[:, None], axis=1)[:, 0]
                better = value > best
                return jnp.where(better, value, best), jnp.where(better, candidate[at], by)

            return jax.lax.cond(jnp.any(length * ceiling[step] > best), compare, lambda: (best, by))

        best, by = jax.lax.map(one_block, (row, z, length, best, by))
        return step + 1, best, by, anyone(step + 1, best)

    by = jnp.full(row.shape, -1, row.dtype)
    zero = jnp.zeros((), jnp.int32)
    _, best, by, _ = jax.lax.while_loop(lambda state: state[3], look, (zero, start, by, anyone(zero, start)))
    return best.reshape(-1)[:n], by.reshape(-1)[:n]


def off_diagonal_of_shards(C: Coefficients, W: Array, settled: Array, exact: bool) -> tuple[Array, Array]:
    """B_i max_{k != i} |z_i . w_k| and its k; without ``exact`` only in the areas not ``settled``, else -infinity."""
    excused = jnp.zeros_like(settled) if exact else settled
    value, by = sharded_search(C.basis, W, jnp.where(excused, jnp.inf, 0.0))
    return jnp.where(excused, -jnp.inf, C.shrinkage * value), by
