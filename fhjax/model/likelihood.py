"""The fitting criteria as functions of the model variance s alone, in O(m p^2) and O(m) memory.

With V = psi + s, w = 1/V, G_k = sum w^k q q', b_k = sum w^k q y and A = G_1^-1, everything the criteria need is

    r = y - q' A b_1,  y'P^2 y = sum w^2 r^2,  y'P^3 y = sum w^3 r^2 - d'A d with d = b_2 - G_2 A b_1,
    tr P = sum w - tr A G_2,  tr P^2 = sum w^2 - 2 tr A G_3 + tr A G_2 A G_2,

P = V^-1 - V^-1 X A X' V^-1 (Rao and Molina 2015, section 5.2 and 6.1). ``q`` spans the covariates' space.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fhjax.model.reductions import joint_sums

Array = jax.Array

#: Up to this many columns the sums are written out one by one and read the data once; beyond it, by matrix products.
UNROLLED = 6


class Problem(NamedTuple):
    """One fit in internal units (mean sampling variance 1), in rows for :func:`joint_sums`.

    Rows that are padding have ``live`` 0, y 0, Q 0 and psi 1. ``Q`` None means an intercept alone, a column of ones.
    """

    y: Array  # (rows, n)
    psi: Array  # (rows, n)
    Q: Array | None  # (p, rows, n)
    live: Array  # (rows, n) 1.0 for an area, 0.0 for padding

    @property
    def num_rows(self) -> int:
        """Areas and padding together."""
        return self.y.shape[-2] * self.y.shape[-1]

    def every(self, step: int) -> Problem:
        """A systematic sample of the areas, in one row."""
        thin = lambda x: x.reshape(*x.shape[:-2], 1, -1)[..., ::step]  # noqa: E731
        return Problem(thin(self.y), thin(self.psi), None if self.Q is None else thin(self.Q), thin(self.live))

    @property
    def num_columns(self) -> int:
        return 1 if self.Q is None else self.Q.shape[0]


class Powers(NamedTuple):
    """Sums with w^k for one k."""

    w: Array  # () sum w^k
    G: Array  # (p, p)
    b: Array  # (p,)
    yy: Array  # () sum w^k y^2


#: The least V, in mean sampling variances, of an area whose sampling variance is exactly 0: at s = 0 it would be 0 and
#: its weight infinite. Areas with a sampling variance above 0 keep theirs, however small.
SMALLEST_V = 1e-10


def marginal_variance(s: Array, psi: Array) -> Array:
    return jnp.where(psi == 0, jnp.maximum(s, SMALLEST_V), psi + s)


def weighted_sums(s: Array, problem: Problem, powers: tuple[int, ...]) -> list[Powers]:
    """The sums of the module's head for each power, from one pass over the data."""
    y, psi, Q, live = problem
    w = live / marginal_variance(s, psi)
    weights = {1: w, 2: w * w, 3: w * w * w}
    if Q is None:
        terms = [term for k in powers for term in (weights[k], weights[k] * y, weights[k] * y * y)]
        sums = joint_sums(terms)
        return [
            Powers(sums[3 * i], sums[3 * i].reshape(1, 1), sums[3 * i + 1].reshape(1), sums[3 * i + 2])
            for i in range(len(powers))
        ]
    p = Q.shape[0]
    if p > UNROLLED:
        flat, target = Q.reshape(p, -1), y.reshape(-1)
        result = []
        for k in powers:
            weight = weights[k].reshape(-1)
            weighted = flat * weight
            result.append(
                Powers(jnp.sum(weight), weighted @ flat.T, weighted @ target, jnp.sum(weight * target * target))
            )
        return result
    pairs = [(i, j) for i in range(p) for j in range(i + 1)]
    products = [Q[i] * Q[j] for i, j in pairs]
    terms = []
    for k in powers:
        wy = weights[k] * y
        terms += [weights[k], wy * y, *(Q[i] * wy for i in range(p)), *(weights[k] * qq for qq in products)]
    sums = joint_sums(terms)
    width = 2 + p + len(pairs)
    result = []
    for i in range(len(powers)):
        part = sums[i * width : (i + 1) * width]
        lower = {pair: part[2 + p + n] for n, pair in enumerate(pairs)}
        G = jnp.array([[lower[max(i, j), min(i, j)] for j in range(p)] for i in range(p)])
        result.append(Powers(part[0], G, jnp.array(part[2 : 2 + p]), part[1]))
    return result


def inverse(G: Array) -> tuple[Array, Array]:
    """Inverse and log determinant of a symmetric positive definite (p, p) matrix, by a scaled Cholesky factor."""
    if G.shape[0] == 1:
        return 1.0 / G, jnp.log(G[0, 0])
    scale = jnp.sqrt(jnp.diagonal(G))
    L = jnp.linalg.cholesky(G / (scale[:, None] * scale))
    root = jax.scipy.linalg.solve_triangular(L, jnp.diag(1.0 / scale), lower=True)
    return root.T @ root, 2.0 * jnp.sum(jnp.log(jnp.diagonal(L))) + 2.0 * jnp.sum(jnp.log(scale))


def recentred(s: Array, problem: Problem) -> tuple[Problem, Array]:
    """The problem with y less its fit at ``s``, and that fit's coefficients (p,), a constant to derivatives.

    Every criterion is unchanged by it, but its sums no longer lose digits to a y that lies far from the fit.
    """
    (one,) = weighted_sums(s, problem, (1,))
    centre = jax.lax.stop_gradient(inverse(one.G)[0] @ one.b)
    return problem._replace(y=problem.y - combination(centre, problem)), centre


def combination(coefficients: Array, problem: Problem) -> Array:
    """The regression prediction Q' coefficients, in rows; written out so that it fuses with what uses it."""
    if problem.Q is None:
        return coefficients[0] * problem.live
    if problem.num_columns > UNROLLED:
        return jnp.tensordot(coefficients, problem.Q, axes=1)
    return sum((coefficients[j] * problem.Q[j] for j in range(1, problem.num_columns)), coefficients[0] * problem.Q[0])


def estimating_function(s: Array, problem: Problem, method: str) -> tuple[Array, Array]:
    """The function of s whose root is the estimate, and its derivative in s."""
    if method == "moment":
        one, two = weighted_sums(s, problem, (1, 2))
        A, _ = inverse(one.G)
        gamma = A @ one.b
        degrees = jnp.sum(problem.live) - problem.num_columns
        # Fay and Herriot (1979): sum r^2 / V = m - p.
        return one.yy - one.b @ gamma - degrees, -(two.yy - 2.0 * gamma @ two.b + gamma @ two.G @ gamma)
    one, two, three = weighted_sums(s, problem, (1, 2, 3))
    A, _ = inverse(one.G)
    gamma = A @ one.b
    d = two.b - two.G @ gamma
    yP2y = two.yy - 2.0 * gamma @ two.b + gamma @ two.G @ gamma
    yP3y = three.yy - 2.0 * gamma @ three.b + gamma @ three.G @ gamma - d @ A @ d
    if method == "ml":
        return 0.5 * (yP2y - one.w), 0.5 * two.w - yP3y
    AG2 = A @ two.G
    trP = one.w - jnp.trace(AG2)
    trP2 = two.w - 2.0 * jnp.sum(A * three.G) + jnp.sum(AG2 * AG2.T)
    return 0.5 * (yP2y - trP), 0.5 * trP2 - yP3y


#: Variances multiplied together before one logarithm is taken, which costs as much as a dozen products.
LOG_GROUP = 8


def sum_log_variance(s: Array, problem: Problem) -> Array:
    """log det V, as a sum of logarithms of short products that neither over- nor underflow."""
    unit = 1.0 + s
    # Relative to 1 + s each factor is between psi and 1; the clip binds at factors no data have.
    share = jnp.clip(marginal_variance(s, problem.psi) / unit, 1e-35, 1e35)
    share = jnp.where(problem.live > 0, share, 1.0).reshape(-1)
    rest = -share.shape[0] % LOG_GROUP
    share = jnp.concatenate([share, jnp.ones(rest)]) if rest else share
    groups = share.reshape(LOG_GROUP, -1)
    product = groups[0]
    for i in range(1, LOG_GROUP):
        product = product * groups[i]
    return jnp.sum(jnp.log(product)) + jnp.sum(problem.live) * jnp.log(unit)


def criterion(s: Array, problem: Problem, method: str) -> Array:
    """What the search compares between grid points: the log likelihood, up to a constant, or the moment equation."""
    (one,) = weighted_sums(s, problem, (1,))
    A, log_det = inverse(one.G)
    fit = one.yy - one.b @ A @ one.b
    if method == "moment":
        return fit - (jnp.sum(problem.live) - problem.num_columns)
    return -0.5 * (sum_log_variance(s, problem) + fit + (log_det if method == "reml" else 0.0))
