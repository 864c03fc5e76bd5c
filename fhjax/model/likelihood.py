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
import numpy as np

from fhjax.model.reductions import in_blocks, joint_sums, joint_sums_and_log, sum_log, to_rows

Array = jax.Array

#: Up to this many columns the sums are written out one by one and read the data once; beyond it, by matrix products.
UNROLLED = 6


class Problem(NamedTuple):
    """One fit, in rows for :func:`joint_sums`; s, sums and coefficients are in units of ``scale``.

    y and psi stay as they came, because every pass over them is cheaper than writing them once: the sums take
    y / sqrt(scale) less the fit at coefficients named ``centre``, and w = scale / (psi + scale s). A row of padding
    has psi = infinity, hence w = 0, and finite y and q. A column None is a column of ones. What is computed from y and
    psi in a loop is written so that something in it changes with each turn, or XLA would compute it ahead and store it.
    """

    y: Array  # (rows, ROW), or (m,) where one row is enough
    psi: Array  # like y
    Q: tuple[Array | None, ...] | Array  # p arrays like y, or above UNROLLED one with p first
    count: Array  # () areas, padding left out
    scale: Array  # () about the mean sampling variance
    offset: Array  # (p,) the first ``centre``: ordinary least squares, or better
    high: Array  # () no estimate lies above

    @property
    def num_rows(self) -> int:
        """Areas and padding together."""
        return self.y.size

    @property
    def num_columns(self) -> int:
        return len(self.Q)

    def every(self, step: int) -> Problem:
        """One in about ``step`` areas: eight neighbours at a time, which share a line of the cache.

        Taken within rows, of which each has some, so that devices that hold different rows exchange nothing.
        """
        n = self.y.shape[-1]
        width = min(8 * step, n)

        def thin(x: Array) -> Array:
            blocks = x[..., : n // width * width].reshape(*x.shape[:-1], n // width, width)
            return blocks[..., :8].reshape(*x.shape[:-1], -1)

        psi = thin(self.psi)
        return Problem(thin(self.y), psi, jax.tree.map(thin, self.Q), count_of(psi), self.scale, self.offset, self.high)


class Powers(NamedTuple):
    """Sums with w^k for one k."""

    w: Array  # () sum w^k
    G: Array  # (p, p)
    b: Array  # (p,)
    yy: Array  # () sum w^k y^2


#: The least V, in mean sampling variances, of an area whose sampling variance is exactly 0: at s = 0 it would be 0 and
#: its weight infinite. Areas with a sampling variance above 0 keep theirs, however small.
SMALLEST_V = 1e-10


def count_of(psi: Array) -> Array:
    """Areas that are not padding."""
    return jnp.sum(jnp.isfinite(psi), dtype=float)


def marginal_variance(s: Array, problem: Problem) -> Array:
    """V in the user's units; infinite in padding."""
    least = problem.scale * s
    V = problem.psi + least
    return jnp.where(least == V, jnp.maximum(V, problem.scale * SMALLEST_V), V)


def combination(coefficients: Array, problem: Problem) -> Array | float:
    """The regression prediction Q' coefficients, in rows; written out so that it fuses with what uses it."""
    if not isinstance(problem.Q, tuple):
        return jnp.tensordot(coefficients, problem.Q, axes=1)
    parts = [coefficients[j] if q is None else coefficients[j] * q for j, q in enumerate(problem.Q)]
    return sum(parts[1:], parts[0])


def centred(problem: Problem, centre: Array) -> Array:
    """y / sqrt(scale) less the fit at ``centre`` (p,)."""
    root = jnp.sqrt(problem.scale)
    return (problem.y - combination(root * centre, problem)) * (1.0 / root)


def weighted_sums(
    s: Array, problem: Problem, centre: Array, powers: tuple[int, ...], squares: tuple[int, ...] | None = None
) -> list[Powers]:
    """The sums of the module's head for each power, from one pass over the data; ``yy`` for the powers in ``squares``.

    They are those of y less its fit at ``centre``. The closer that is, the fewer digits cancel in what follows; no
    criterion depends on it.
    """
    if not isinstance(problem.Q, tuple):
        return _by_products(s, problem, centre, powers)
    terms = _terms(s, problem, centre, powers, powers if squares is None else squares)
    return _gathered(list(terms), joint_sums(list(terms.values())), problem.num_columns, powers)


def sums_and_log(s: Array, problem: Problem, centre: Array, powers: tuple[int, ...]) -> tuple[list[Powers], Array]:
    """:func:`weighted_sums` and log det V in one pass, for at most ``FACTORS`` rows. Not for differentiation."""
    if not isinstance(problem.Q, tuple):
        return _by_products(s, problem, centre, powers), sum_log_variance(s, problem)
    terms = _terms(s, problem, centre, powers, powers)
    sums, log_det = joint_sums_and_log(list(terms.values()), _relative_variance(s, problem))
    return _gathered(list(terms), sums, problem.num_columns, powers), log_det


def _weights(s: Array, problem: Problem) -> dict[int, Array]:
    w = problem.scale / marginal_variance(s, problem)
    return {1: w, 2: w * w, 3: w * w * w}


def _terms(
    s: Array, problem: Problem, centre: Array, powers: tuple[int, ...], squares: tuple[int, ...]
) -> dict[tuple, Array]:
    """What is summed: (k,) w^k, (k, "yy"), (k, i) w^k q_i y, (k, i, j) w^k q_i q_j; ones are not multiplied by."""
    y, weights = centred(problem, centre), _weights(s, problem)
    times = lambda a, q: a if q is None else a * q  # noqa: E731
    terms: dict[tuple, Array] = {}
    for k in powers:
        wy = weights[k] * y
        terms[k,] = weights[k]
        if k in squares:
            terms[k, "yy"] = wy * y
        for i, q in enumerate(problem.Q):
            terms[k, i] = times(wy, q)
            for j in range(i + 1):
                if q is not None or problem.Q[j] is not None:
                    terms[k, i, j] = times(times(weights[k], q), problem.Q[j])
    return terms


def _gathered(names: list[tuple], sums: Array, p: int, powers: tuple[int, ...]) -> list[Powers]:
    where = {name: i for i, name in enumerate(names)}
    result = []
    for k in powers:
        entry = lambda i, j, k=k: where.get((k, max(i, j), min(i, j)), where[k,])  # noqa: E731
        G = sums[np.array([[entry(i, j) for j in range(p)] for i in range(p)])]
        b = sums[np.array([where[k, i] for i in range(p)])]
        result.append(Powers(sums[where[k,]], G, b, sums[where[k, "yy"]] if (k, "yy") in where else jnp.zeros(())))
    return result


def _by_products(s: Array, problem: Problem, centre: Array, powers: tuple[int, ...]) -> list[Powers]:
    assert not isinstance(problem.Q, tuple)
    root = jnp.sqrt(problem.scale)

    def sums(q: Array, psi: Array, y: Array) -> list[Powers]:
        block = problem._replace(psi=psi)
        weights = _weights(s, block)
        y = (y - (root * centre) @ q) * (1.0 / root)
        weighted = jnp.concatenate([weights[k] * q for k in powers])
        G, b = weighted @ q.T, weighted @ y
        p = q.shape[0]
        return [
            Powers(jnp.sum(weights[k]), G[i * p : (i + 1) * p], b[i * p : (i + 1) * p], jnp.sum(weights[k] * y * y))
            for i, k in enumerate(powers)
        ]

    return in_blocks(sums, problem.Q, problem.psi, problem.y)


def inverse(G: Array) -> tuple[Array, Array]:
    """Inverse and log determinant of a symmetric positive definite (p, p) matrix, by a scaled Cholesky factor."""
    if G.shape[0] == 1:
        return 1.0 / G, jnp.log(G[0, 0])
    scale = jnp.sqrt(jnp.diagonal(G))
    L = jnp.linalg.cholesky(G / (scale[:, None] * scale))
    root = jax.scipy.linalg.solve_triangular(L, jnp.diag(1.0 / scale), lower=True)
    return root.T @ root, 2.0 * jnp.sum(jnp.log(jnp.diagonal(L))) + 2.0 * jnp.sum(jnp.log(scale))


class Equation(NamedTuple):
    """The function of s whose root is the estimate, with what a step needs."""

    value: Array  # ()
    slope: Array  # () its derivative in s
    step_slope: Array  # () of the same function times a positive one that makes it straighter; equal at the root
    centre: Array  # (p,) the coefficients at s


def estimating_function(s: Array, problem: Problem, centre: Array, method: str) -> Equation:
    """The function of s whose root is the estimate.

    Steps use the slope of value / g(s) with g chosen so that equal sampling variances make it linear: a step is then
    exact, and otherwise close to it. At the root the two slopes agree.
    """
    if method == "moment":
        one, two = weighted_sums(s, problem, centre, (1, 2))
        A, _ = inverse(one.G)
        gamma = A @ one.b
        degrees = problem.count - problem.num_columns
        # Fay and Herriot (1979): sum r^2 / V = m - p.
        distance = one.yy - one.b @ gamma
        slope = -(two.yy - 2.0 * gamma @ two.b + gamma @ two.G @ gamma)
        straighter = slope * degrees / jnp.where(distance > 0, distance, degrees)
        return Equation(distance - degrees, slope, straighter, centre + gamma)
    one, two, three = weighted_sums(s, problem, centre, (1, 2, 3), (2, 3))
    A, _ = inverse(one.G)
    gamma = A @ one.b
    d = two.b - two.G @ gamma
    yP2y = two.yy - 2.0 * gamma @ two.b + gamma @ two.G @ gamma
    yP3y = three.yy - 2.0 * gamma @ three.b + gamma @ three.G @ gamma - d @ A @ d
    if method == "ml":
        value, information = 0.5 * (yP2y - one.w), 0.5 * two.w
    else:
        AG2 = A @ two.G
        value = 0.5 * (yP2y - (one.w - jnp.trace(AG2)))
        information = 0.5 * (two.w - 2.0 * jnp.sum(A * three.G) + jnp.sum(AG2 * AG2.T))
    slope = information - yP3y
    # The information falls with s at the rate of sum w^3.
    return Equation(value, slope, slope + value * three.w / (0.5 * two.w), centre + gamma)


def reml_sums(y: Array, sampling_variance: Array, model_variance: Array | float) -> tuple[Powers, Powers, Powers]:
    """All that one REML step reads off the data of an intercept-only model, in one pass.

    Args:
        y: (m,) direct estimates.
        sampling_variance: (m,) outcome units squared.
        model_variance: () outcome units squared.

    Returns:
        The sums of w, wy; w^2, w^2 y, w^2 y^2; w^3, w^3 y, w^3 y^2 with w = 1 / (sampling + model variance).

    Source: docs/derivations.md, sections 1 and 14; Rao and Molina (2015), section 5.2.4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from fhjax.model.likelihood import reml_sums
        >>> float(reml_sums(jnp.array([1.0, 3.0]), jnp.array([0.5, 0.5]), 0.5)[0].w)
        2.0
    """
    rows, unknown = to_rows(y), jnp.zeros(())
    problem = Problem(rows, to_rows(sampling_variance, jnp.inf), (None,), unknown, jnp.ones(()), jnp.zeros(1), unknown)
    one, two, three = weighted_sums(jnp.asarray(model_variance, float), problem, jnp.zeros(1), (1, 2, 3), (2, 3))
    return one, two, three


def _relative_variance(s: Array, problem: Problem) -> Array:
    """V in units of ``scale``, 1 in padding."""
    V = marginal_variance(s, problem) * (1.0 / problem.scale)
    return jnp.where(jnp.isfinite(V), V, 1.0)


def sum_log_variance(s: Array, problem: Problem) -> Array:
    """log det V."""
    return sum_log(_relative_variance(s, problem))


def profile(s: Array, problem: Problem, centre: Array, method: str) -> tuple[Array, Array, Array]:
    """What the search looks at: the log likelihood up to a constant, the estimating function, the coefficients."""
    if method == "moment":
        (one,) = weighted_sums(s, problem, centre, (1,))
        A, _ = inverse(one.G)
        gamma = A @ one.b
        return jnp.zeros(()), one.yy - one.b @ gamma - (problem.count - problem.num_columns), centre + gamma
    (one, two), log_det_V = sums_and_log(s, problem, centre, (1, 2))
    A, log_det = inverse(one.G)
    gamma = A @ one.b
    yP2y = two.yy - 2.0 * gamma @ two.b + gamma @ two.G @ gamma
    trace = one.w - (jnp.trace(A @ two.G) if method == "reml" else 0.0)
    level = log_det_V + one.yy - one.b @ gamma + (log_det if method == "reml" else 0.0)
    return -0.5 * level, 0.5 * (yP2y - trace), centre + gamma
