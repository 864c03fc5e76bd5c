"""Sensitivity coefficients c_ik = d mu_i / d y_k: how area k's direct estimate moves area i's posterior mean.

The m x m matrix C = diag(1 - B) + (B X A)(X / V)' is a diagonal plus rank p. It is kept as its factors and every
question is answered from them, in O(m p^2) time and O(m p) memory, unless the answer itself is larger.

The factor ``basis`` is Z with Z Z' = X A X', found by an orthogonal decomposition rather than from A, because A loses
twice as many digits as X does when the covariates are nearly collinear.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from fhjax.entrance import is_concrete, refuse_single, require_float64
from fhjax.errors import InputError, Status
from fhjax.privacy.defects import defects_of, explain
from fhjax.records import Array, Labels, NumberedLabels, record, static

_MAX_DENSE_BYTES = 2**30
_COLLINEAR = 64 * float(np.finfo(float).eps)


def divide(numerator: Array, denominator: Array) -> Array:
    """a / b for a, b >= 0 with 0 / 0 = 0 and a / 0 = infinity, differentiable wherever it is finite."""
    zero = numerator == 0.0
    safe = jnp.where(zero, 1.0, denominator)
    return jnp.where(zero, 0.0, numerator) / safe


def prediction_basis(X: Array, total_variance: Array, prior_precision: Array | None = None) -> Array:
    """Z of :func:`checked_basis` for covariates that are known to determine their coefficients."""
    return checked_basis(X, total_variance, prior_precision)[0]


@jax.jit
def checked_basis(
    X: Float[Array, "m p"], total_variance: Float[Array, " m"], prior_precision: Float[Array, "p p"] | None = None
) -> tuple[Float[Array, "m p"], Bool[Array, ""]]:
    """Z (m, p) with Z Z' = X A X', A = (X' V^-1 X + P)^-1, accurate row by row; and whether A exists (else Z is 0).

    A triangular factor R of V^-1/2 X only conditions the problem: with Z0 = X R^-1 the Gram matrix Z0' V^-1 Z0 is the
    identity up to rounding, so its Cholesky factor is harmless, and any R gives the same Z Z'. R can therefore be
    treated as a constant by differentiation.
    """
    root = jnp.sqrt(total_variance)[:, None]
    if X.shape[1] == 1:
        information = jnp.sum(jnp.square(X / root))
        if prior_precision is not None:
            information = information + prior_precision[0, 0]
        determined = (information > 0.0) & jnp.isfinite(information)
        return jnp.where(determined, X / jnp.sqrt(jnp.where(determined, information, 1.0)), 0.0), determined
    rows = X / root
    if prior_precision is not None:
        values, vectors = jnp.linalg.eigh(prior_precision)
        rows = jnp.concatenate([rows, jnp.sqrt(jnp.maximum(values, 0.0))[:, None] * vectors.T])
    R = jax.lax.stop_gradient(jnp.linalg.qr(jax.lax.stop_gradient(rows), mode="r"))
    # What the earlier columns leave of each, relative: 0 when they determine it.
    left = jnp.abs(jnp.diagonal(R))
    determined = jnp.all(left >= _COLLINEAR * jnp.linalg.norm(R, axis=0)) & jnp.all(left > 0.0)
    R = jnp.where(determined, R, jnp.eye(R.shape[0]))
    Z = jax.scipy.linalg.solve_triangular(R, X.T, trans=1).T
    scaled = Z / root
    gram = scaled.T @ scaled
    if prior_precision is not None:
        half = jax.scipy.linalg.solve_triangular(R, prior_precision, trans=1)
        gram = gram + jax.scipy.linalg.solve_triangular(R, half.T, trans=1)
    gram = jnp.where(determined, gram, jnp.eye(gram.shape[0]))
    Z = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(gram), Z.T, lower=True).T
    determined = determined & jnp.all(jnp.isfinite(Z))
    return jnp.where(determined, Z, 0.0), determined


@record
class Coefficients:
    """The matrix C of sensitivity coefficients as an operator; made by :func:`coefficients`.

    ``C @ y`` is the posterior mean (flat prior on beta), ``C.T @ u`` its transpose, and C = Sigma / psi by columns.
    Nothing here is ever m x m except :meth:`to_dense`.

    ``status`` is a failure where the input could not be meant, which only happens inside ``jit``, ``vmap`` and ``grad``
    (outside, an error is raised): the numbers are then finite and mean nothing.

    Source: Das and Drechsler (2026), Proposition 1 for the intercept-only model; docs/derivations.md, section 2
    for any X and psi.
    """

    sampling_variance: Array  # (m,) psi, outcome units squared
    model_variance: Array  # () sigma_v^2
    basis: Array  # (m, p) Z with Z Z' = X A X'
    status: Array | int = int(Status.OK)  # () a Status code
    transposed: bool = static(default=False)

    @property
    def num_areas(self) -> int:
        return self.basis.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_areas, self.num_areas

    @property
    def total_variance(self) -> Array:
        """V (m,)."""
        return self.sampling_variance + self.model_variance

    @property
    def shrinkage(self) -> Array:
        """B (m,), the weight on the regression prediction."""
        return self.sampling_variance / self.total_variance

    @property
    def direct_weight(self) -> Array:
        """1 - B (m,), without cancellation."""
        return self.model_variance / self.total_variance

    @property
    def T(self) -> Coefficients:
        return Coefficients(
            sampling_variance=self.sampling_variance,
            model_variance=self.model_variance,
            basis=self.basis,
            status=self.status,
            transposed=not self.transposed,
        )

    @jax.jit
    def own(self) -> Array:
        """The diagonal c_ii (m,), never above 1."""
        V = self.total_variance
        leverage = jnp.sum(self.basis * self.basis, axis=1) / V
        return self.direct_weight + self.shrinkage * leverage

    @jax.jit
    def posterior_variance(self) -> Array:
        """sigma_i^2 = psi_i c_ii (m,), outcome units squared."""
        return self.sampling_variance * self.own()

    @jax.jit
    def __matmul__(self, other: Array) -> Array:
        """C @ other for a vector (m,) or a matrix (m, q), in O(m p) per column."""
        other = jnp.asarray(other)
        left, right = self.shrinkage[:, None] * self.basis, self.basis / self.total_variance[:, None]
        if self.transposed:
            left, right = right, left
        weight = self.direct_weight if other.ndim == 1 else self.direct_weight[:, None]
        return weight * other + left @ (right.T @ other)

    def block(self, rows: Any, columns: Any) -> Array:
        """c_ik for i in ``rows`` and k in ``columns``, as an array (len(rows), len(columns))."""
        return self._block(jnp.atleast_1d(jnp.asarray(rows)), jnp.atleast_1d(jnp.asarray(columns)))

    @jax.jit
    def _block(self, rows: Array, columns: Array) -> Array:
        i, k = (columns, rows) if self.transposed else (rows, columns)
        V = self.total_variance
        part = (self.shrinkage[i, None] * self.basis[i]) @ (self.basis[k] / V[k, None]).T
        part = part + jnp.where(i[:, None] == k[None, :], self.direct_weight[i][:, None], 0.0)
        return part.T if self.transposed else part

    def row(self, i: int | Array) -> Array:
        """c_ik for all k (m,): what moves area i."""
        return self.block(i, jnp.arange(self.num_areas))[0]

    def column(self, k: int | Array) -> Array:
        """c_ik for all i (m,): what area k moves."""
        return self.block(jnp.arange(self.num_areas), k)[:, 0]

    @jax.jit
    def pairs(self, rows: Array, columns: Array) -> Array:
        """c_ik for the pairs (rows[j], columns[j]) (n,)."""
        i, k = (columns, rows) if self.transposed else (rows, columns)
        inner = jnp.sum(self.basis[i] * self.basis[k], axis=1)
        return jnp.where(i == k, self.direct_weight[i], 0.0) + self.shrinkage[i] * inner / self.total_variance[k]

    def _noise_weight(self, squared: Array) -> Array:
        """B^2 / sigma^2 with one B cancelled; 0 for an area that the covariates do not reach at sigma_v^2 = 0."""
        B = self.shrinkage
        spread = self.model_variance + B * squared
        return jnp.where(spread > 0.0, B, 0.0) / jnp.where(spread > 0.0, spread, 1.0)

    @jax.jit
    def weighted_column_norms(self) -> tuple[Array, Array]:
        """Two vectors (m,): c_kk^2 / sigma_k^2, and the sum over i != k of c_ik^2 / sigma_i^2.

        Their sum is what area k adds to a joint release of independently drawn areas. O(m p^2). The first is infinite
        where the sampling variance is 0; an area without posterior variance adds nothing to the other areas' sums.
        """
        V, Z = self.total_variance, self.basis
        squared = jnp.sum(Z * Z, axis=1)
        u = self._noise_weight(squared)
        if Z.shape[1] == 1:
            everyone = jnp.sum(u * squared) * squared
        else:
            M = (Z * u[:, None]).T @ Z
            everyone = jnp.sum((Z @ M) * Z, axis=1)
        others = jnp.maximum(everyone - u * squared * squared, 0.0) / (V * V)
        return divide(self.own(), self.sampling_variance), others

    def to_dense(self, max_bytes: int = _MAX_DENSE_BYTES) -> Array:
        """The m x m matrix, for tests and small problems.

        Raises:
            InputError: if it would take more than ``max_bytes``.
        """
        size = 8 * self.num_areas**2
        if size > max_bytes:
            raise InputError(
                f"The dense coefficient matrix of {self.num_areas:,} areas takes {size:,} bytes, more than "
                f"max_bytes={max_bytes:,}. Ask for row(), column() or block(), or write it to a file with "
                "fhjax.write_dense()."
            )
        every = jnp.arange(self.num_areas)
        return self.block(every, every)


def coefficients(
    sampling_variance: Any,
    model_variance: Any,
    X: Any,
    *,
    beta_prior_precision: Any = None,
    labels: Labels | NumberedLabels | None = None,
) -> Coefficients:
    """The operator of sensitivity coefficients c_ik for a Fay-Herriot posterior.

    Args:
        sampling_variance: (m,) psi >= 0, outcome units squared.
        model_variance: sigma_v^2 >= 0, outcome units squared. At 0 every coefficient stays finite.
        X: (m, p) covariates, public, with their column of ones where there is one; a vector (m,) is one column.
        beta_prior_precision: (p, p) precision of a proper Gaussian prior on the regression coefficients, or None for
            the flat prior.
        labels: names of the areas, for messages.

    Raises:
        InputError: for shapes that do not match, negative or non-finite numbers, an area with
            sampling_variance + model_variance = 0, or collinear covariates.

    Source: docs/derivations.md, section 2.

    Examples:
        >>> C = coefficients([1.0, 1.0, 2.0], 1.0, [[1.0], [1.0], [1.0]])
        >>> [round(float(c), 4) for c in C.row(0)]
        [0.6875, 0.1875, 0.125]
    """
    require_float64()
    refuse_single(sampling_variance, X)
    psi, s2 = jnp.asarray(sampling_variance, dtype=float), jnp.asarray(model_variance, dtype=float)
    X = jnp.asarray(X, dtype=float)
    X = X[:, None] if X.ndim == 1 else X
    P = None if beta_prior_precision is None else jnp.atleast_2d(jnp.asarray(beta_prior_precision, dtype=float))
    if psi.ndim != 1 or X.ndim != 2 or X.shape[0] != psi.shape[0]:
        raise InputError(f"sampling_variance has shape {psi.shape} and X {X.shape}; expected (m,) and (m, p).")
    if P is not None and P.shape != (X.shape[1],) * 2:
        raise InputError(f"beta_prior_precision has shape {P.shape}; expected ({X.shape[1]}, {X.shape[1]}).")
    if P is None and X.shape[0] < X.shape[1]:
        raise InputError(f"{X.shape[0]:,} areas cannot determine {X.shape[1]:,} coefficients: drop covariates.")
    C, defects = operator(psi, s2, X, P)
    if is_concrete(defects):
        explain(defects, psi, s2, X, P, labels if labels is not None else NumberedLabels(len(psi)))
    return C


@jax.jit
def operator(
    sampling_variance: Float[Array, " m"],
    model_variance: Float[Array, ""],
    X: Float[Array, "m p"],
    prior_precision: Float[Array, "p p"] | None,
) -> tuple[Coefficients, Int[Array, " defects"]]:
    """The operator as a pure function of arrays, and how many rows have which defect (see ``defects.DEFECTS``).

    Rows with a defect are replaced by harmless ones, so that nothing is NaN; ``status`` then says BAD_INPUT.
    """
    psi, s2, X, P, found = defects_of(sampling_variance, model_variance, X, prior_precision)
    V = psi + s2
    Z, determined = checked_basis(X, jnp.where(V > 0.0, V, 1.0), P)
    bad = jnp.any(found > 0)
    status = jnp.where(bad, int(Status.BAD_INPUT), jnp.where(determined, int(Status.OK), int(Status.SINGULAR)))
    found = jnp.append(found, ~determined & ~bad)
    return Coefficients(sampling_variance=psi, model_variance=s2, basis=Z, status=status), found
