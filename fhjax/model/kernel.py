"""One fit as a pure function of arrays: the model variance and all that follows from it, with status codes."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from fhjax.errors import Status
from fhjax.model.basis import COLLINEAR, orthonormal_basis
from fhjax.model.likelihood import UNROLLED, Problem, inverse, sum_log_variance, weighted_sums
from fhjax.model.reductions import in_blocks, joint_sums, sums_and_largest, to_rows
from fhjax.model.solve import prasad_rao, solve, upper_bound, with_derivative
from fhjax.records import FayHerriotFit

Array = jax.Array

#: Least eigenvalue of the columns' correlations above which orthogonalising them gains nothing.
BENIGN = 1e-3
#: Up to this many areas it costs nothing to speak of.
LONG = 40_000


@partial(jax.jit, static_argnames="method")
def fit_kernel(
    y: Float[Array, " m"],
    sampling_variance: Float[Array, " m"],
    X: Float[Array, "m p"] | None,
    mask: Bool[Array, " m"] | None = None,
    *,
    method: str = "reml",
    tolerance: float | Float[Array, ""] = 1e-11,
    max_steps: int | Int[Array, ""] = 100,
    model_variance: Float[Array, ""] | None = None,
) -> FayHerriotFit:
    """One fit as a pure function of arrays, for ``jit``, ``vmap`` and ``grad``. Nothing is checked or raised.

    Args:
        y: (m,) direct estimates.
        sampling_variance: (m,) at least 0.
        X: (m, p), or None for an intercept alone, which is faster.
        mask: (m,) False where a row only pads the arrays; whatever it holds is ignored. None: all rows are areas.
        method: one of ``METHODS``, or ``"given"`` with ``model_variance``.

    Returns:
        A :class:`~fhjax.records.FayHerriotFit`; ``status`` says whether to believe it. Never NaN: infinity instead.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from fhjax.model.fit import fit_kernel
        >>> y = jnp.array([[1.0, 3.0, 2.0, 6.0], [1.0, 1.1, 0.9, 1.0]])
        >>> fits = jax.vmap(lambda y: fit_kernel(y, jnp.full(4, 0.5), None))(y)
        >>> fits.status.tolist()
        [0, 1]
    """
    problem, R, share = prepare(y, sampling_variance, X, mask)
    if method == "given":
        assert model_variance is not None
        s, steps, centre = model_variance / problem.scale, jnp.zeros((), jnp.int32), problem.offset
        status = jnp.where(jnp.isfinite(s), int(Status.OK), int(Status.NOT_FINITE))
    elif method == "pr":
        s, steps, centre = prasad_rao(problem), jnp.zeros((), jnp.int32), problem.offset
        status = jnp.where(s > 0, int(Status.OK), int(Status.AT_BOUNDARY))
    else:
        frozen = jax.lax.stop_gradient(problem)
        end, status = solve(frozen, method, jnp.asarray(tolerance), jnp.asarray(max_steps))
        s, steps, centre = with_derivative(method, end.s, end.centre, problem), end.steps, end.centre
    return conclude(problem, s, centre, steps, status, R, share, method)


def prepare(y: Array, psi: Array, X: Array | None, mask: Array | None) -> tuple[Problem, Array, Array]:
    """The problem, its columns Q spanning those of X = Q R, and the shares of ``orthonormal_basis``."""
    if mask is None:
        count, clean = jnp.array(float(y.shape[0])), psi
    else:
        count, clean = jnp.sum(mask, dtype=float), jnp.where(mask, psi, 0.0)
        y, psi = jnp.where(mask, y, 0.0), jnp.where(mask, psi, jnp.inf)
        X = None if X is None else jnp.where(mask[:, None], X, 0.0)
    (total,), largest = sums_and_largest([to_rows(jax.lax.stop_gradient(clean))], to_rows(jax.lax.stop_gradient(clean)))
    scale = jnp.where(total > 0, total / count, 1.0)
    root = jnp.sqrt(scale)
    rows, data = to_rows(y), jax.lax.stop_gradient(y)
    if X is None:
        Q, R, share = (None,), jnp.ones((1, 1)), jnp.ones(1)
        # From a pivot, so that a mean far from 0 costs the residual sum of squares no digits.
        distance = (to_rows(data) - data[0]) * (1.0 / root)
        distance = jnp.where(jnp.isfinite(to_rows(psi, jnp.inf)), distance, 0.0)
        total, squares = joint_sums([distance, distance * distance])
        offset = (data[0] / root + total / count)[None]
        rss = squares - total * total / count + 1e-12 * squares
    elif y.shape[0] <= LONG:
        flat, R, share = orthonormal_basis(X.T)
        offset = jax.lax.stop_gradient(flat) @ (data / root)
        residual = data / root - offset @ jax.lax.stop_gradient(flat)
        Q, rss = to_rows(flat), jnp.sum(residual * residual)
    else:
        Q, R, share, offset, rss = long_basis(X.T, to_rows(data / root))
    if not isinstance(Q, tuple) and len(Q) <= UNROLLED:
        Q = tuple(Q)
    high = upper_bound(rss, largest / scale, count - len(Q))
    return Problem(rows, to_rows(psi, jnp.inf), Q, count, scale, offset, high), R, share


def long_basis(Xt: Array, y: Array) -> tuple[Array, Array, Array, Array, Array]:
    """For many areas X itself is the basis where it is well conditioned.

    Returns Q in rows, R, the shares, and the least squares coefficients and residual sum of squares of y.
    """
    p = Xt.shape[0]
    G, _, _ = _products(jax.lax.stop_gradient(to_rows(Xt)), jnp.zeros_like(y))
    size = jnp.sqrt(jnp.diagonal(G))
    safe = jnp.where(size > 0, size, 1.0)
    least = jnp.linalg.eigvalsh(G / (safe[:, None] * safe))[0]
    benign = jnp.all(size > 0) & jnp.all(jnp.isfinite(size)) & (least > BENIGN)
    flat, R, share = jax.lax.cond(
        benign, lambda: (Xt / safe[:, None], jnp.diag(safe), jnp.ones(p)), lambda: orthonormal_basis(Xt)
    )
    Q = to_rows(flat)
    # Its Gram matrix need not be the identity, so least squares takes a solve.
    G, along, square = _products(jax.lax.stop_gradient(Q), y)
    # Of y itself, which is not less than of the residuals: it only bounds the search.
    return Q, R, share, inverse(G)[0] @ along, square


def _products(rows: Array, y: Array) -> tuple[Array, Array, Array]:
    """Q Q' (p, p), Q y (p,) and y y of Q in rows, in one pass: term by term for few columns, by products for many."""
    p = rows.shape[0]
    if p > UNROLLED:
        return in_blocks(lambda q, v: (q @ q.T, q @ v, v @ v), rows, y)
    pairs = [(i, j) for i in range(p) for j in range(i + 1)]
    place = np.array([[pairs.index((max(i, j), min(i, j))) for j in range(p)] for i in range(p)])
    sums = joint_sums([rows[i] * rows[j] for i, j in pairs] + [rows[i] * y for i in range(p)] + [y * y])
    return sums[place], sums[len(pairs) : -1], sums[-1]


def least_information(s: Array, problem: Problem) -> Array:
    """tr P P is at least (m - p) / (s + max psi)^2."""
    largest = jnp.max(jnp.where(jnp.isfinite(problem.psi), problem.psi, 0.0)) / problem.scale
    return (problem.count - problem.num_columns) / (s + largest) ** 2


def conclude(
    problem: Problem, s: Array, centre: Array, steps: Array, status: Array, R: Array, share: Array, method: str
) -> FayHerriotFit:
    """Everything that follows from the model variance ``s``, back in the user's units."""
    p, count, scale = problem.num_columns, problem.count, problem.scale
    centre = jax.lax.stop_gradient(centre)
    one, two, three = weighted_sums(s, problem, centre, (1, 2, 3), (1,))
    A, log_det = inverse(one.G)
    gamma = A @ one.b
    log_v = sum_log_variance(s, problem)
    distance = one.yy - one.b @ gamma
    AG2 = A @ two.G
    if method == "reml":
        information = two.w - 2.0 * jnp.sum(A * three.G) + jnp.sum(AG2 * AG2.T)
        # One area far more precise than all others leaves nothing of tr P P but rounding. The m - p eigenvalues of P
        # are at least 1 / (s + max psi): the standard error is then too large, never undefined.
        information = 0.5 * jax.lax.cond(
            information > 1e-12 * two.w, lambda: information, lambda: least_information(s, problem)
        )
        variance = 1.0 / information
    elif method == "ml":
        variance = 2.0 / two.w
    elif method == "moment":
        variance = 2.0 * count / one.w**2
    elif method == "pr":
        live = jnp.isfinite(problem.psi)
        variance = 2.0 * jnp.sum(jnp.where(live, problem.psi / scale + s, 0.0) ** 2) / count**2
    else:
        variance = jnp.zeros_like(s)
    inverse_R = jax.scipy.linalg.solve_triangular(R, jnp.eye(p))
    root = jnp.sqrt(scale) * inverse_R @ jnp.linalg.cholesky(0.5 * (A + A.T))
    log_2pi = float(np.log(2.0 * np.pi))
    ml = -0.5 * (count * (log_2pi + jnp.log(scale)) + log_v + distance)
    log_det_X = log_det + 2.0 * jnp.sum(jnp.log(jnp.diagonal(R))) - p * jnp.log(scale)
    beta = jnp.sqrt(scale) * inverse_R @ (gamma + centre)
    values = (
        scale * s,
        scale * jnp.sqrt(variance),
        beta,
        root @ root.T,
        ml,
        ml + 0.5 * (p * log_2pi - log_det_X),
        root,
    )
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in values]))
    status = jnp.where(finite, status, int(Status.NOT_FINITE))
    status = jnp.where(jnp.min(share) > COLLINEAR, status, int(Status.SINGULAR)).astype(jnp.int32)
    values = [jnp.where(jnp.isnan(value), jnp.inf, value) for value in values]
    return FayHerriotFit(
        model_variance=values[0],
        model_variance_se=values[1],
        beta=values[2],
        beta_covariance=values[3],
        log_likelihood=values[4],
        restricted_log_likelihood=values[5],
        beta_covariance_root=values[6],
        steps=steps,
        status=status,
        num_areas=count.astype(jnp.int32),
        method=method,
        columns=tuple(f"x{j}" for j in range(p)),
    )
