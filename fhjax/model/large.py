"""One fit of very many areas: a sample's fit as start, then a host loop over one compiled pass.

Nothing is written but results. Where a sample does not carry the model, or the covariates need a basis of their own,
this says so and leaves the fit to :func:`fhjax.model.kernel.fit_kernel`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.errors import Status
from fhjax.model.basis import COLLINEAR
from fhjax.model.kernel import BENIGN, conclude, prepare
from fhjax.model.likelihood import UNROLLED, Problem
from fhjax.model.reductions import ROW, sums_and_largest, to_rows
from fhjax.model.solve import Bracket, fresh, solve, status_of, step, upper_bound
from fhjax.records import AreaData, FayHerriotFit

Array = jax.Array

#: From this many areas on, the first steps are taken on one area in ``SHARE``, to this relative precision.
LARGE, SHARE, COARSE = 60_000, 32, 1e-3


class Raw(NamedTuple):
    """The data as they came, padded to whole rows."""

    y: Array  # (m,)
    psi: Array  # (m,) infinite in padding
    X: Array | None  # (m, p), None for an intercept alone
    mask: Array | None


class Scalars(NamedTuple):
    """What a :class:`Problem` has beside its data."""

    count: Array
    scale: Array
    offset: Array
    high: Array


def fit_large(data: AreaData, method: str, tolerance: float, max_steps: int) -> FayHerriotFit | None:
    """The fit of concrete ``data``, or None where this is not the way to find it."""
    y, psi, X, mask = data.y, data.sampling_variance, data.X, data.mask
    p = X.shape[1]
    if y.shape[0] < LARGE or p > UNROLLED or method not in ("reml", "ml", "moment"):
        return None
    sample = _coarse(y, psi, X, mask, method=method)
    if Status(int(sample.status)).failed or not _benign(sample.covariance):
        return None
    if y.shape[0] % ROW:
        y, psi, X, mask = _padded(y, psi, X, mask)
    raw = Raw(y, psi, X, mask)
    scalars, off_one = _overview(raw, sample.beta)
    ones = float(off_one) == 0.0
    if ones and p == 1:
        raw = raw._replace(X=None)
    state = fresh(sample.model_variance / scalars.scale, scalars.high, scalars.offset)
    options = {"method": method, "ones": ones}
    while not bool(state.done) and int(state.steps) < max_steps:
        state = _step(raw, scalars, state, tolerance, **options)
    result = _conclude(raw, scalars, state, **options)
    return result if _benign(result.beta_covariance) else None


def _benign(covariance: Array) -> bool:
    """Whether X' V^-1 X is far enough from singular for X to be its own basis, in units that do not overflow."""
    A = np.asarray(covariance)
    if not np.all(np.isfinite(A)):
        return False
    root = np.sqrt(np.diagonal(A))
    if not np.all((root > 1e-60) & (root < 1e60)):
        return False
    # Of A or of its inverse: the condition is much the same once each has ones on its diagonal.
    return bool(np.linalg.eigvalsh(A / np.outer(root, root))[0] > BENIGN)


class Start(NamedTuple):
    """The fit of a sample, in the user's units."""

    model_variance: Array
    beta: Array
    covariance: Array  # (p, p) proportional to (X'X)^-1
    status: Array


@partial(jax.jit, static_argnames="method")
def _coarse(y: Array, psi: Array, X: Array, mask: Array | None, *, method: str) -> Start:
    """The fit of one area in ``SHARE``, eight neighbours at a time, which share a line of the cache."""
    width = 8 * SHARE

    def thin(x: Array) -> Array:
        blocks = x.shape[0] // width
        return x[: blocks * width].reshape(blocks, width, *x.shape[1:])[:, :8].reshape(blocks * 8, *x.shape[1:])

    problem, R, share = prepare(thin(y), thin(psi), thin(X), None if mask is None else thin(mask))
    end, status = solve(problem, method, jnp.asarray(COARSE), jnp.asarray(100))
    inverse_R = jax.scipy.linalg.solve_triangular(R, jnp.eye(R.shape[0]))
    beta = jnp.sqrt(problem.scale) * inverse_R @ end.centre
    status = jnp.where(jnp.min(share) > COLLINEAR, status, int(Status.SINGULAR))
    return Start(problem.scale * end.s, beta, inverse_R @ inverse_R.T, status)


@jax.jit
def _padded(y: Array, psi: Array, X: Array, mask: Array | None) -> tuple[Array, Array, Array, Array | None]:
    more = -y.shape[0] % ROW
    fill = lambda x, value: jnp.concatenate([x, jnp.full((more, *x.shape[1:]), value, x.dtype)])  # noqa: E731
    return fill(y, 0.0), fill(psi, jnp.inf), fill(X, 1.0), None if mask is None else fill(mask, False)


@jax.jit
def _overview(raw: Raw, beta: Array) -> tuple[Scalars, Array]:
    """Units, bounds, and by how much the first column differs from ones."""
    y, psi = to_rows(raw.y), to_rows(raw.psi)
    live = jnp.isfinite(psi) if raw.mask is None else jnp.isfinite(psi) & to_rows(raw.mask, False)
    assert raw.X is not None
    clean = jnp.where(live, psi, 0.0)
    # Far from 0 squares lose digits, but not where they are taken from a value near all others.
    distance = jnp.where(live, y - raw.y[0], 0.0)
    off_one = jnp.where(live, jnp.abs(to_rows(raw.X[:, 0]) - 1.0), 0.0)
    (count, total, squares, off), largest = sums_and_largest(
        [jnp.where(live, 1.0, 0.0), clean, distance * distance, off_one], clean
    )
    scale = jnp.where(total > 0, total / count, 1.0)
    # Of y itself, which is not less than of the residuals: it only bounds the search.
    high = upper_bound(squares / scale, largest / scale, count - raw.X.shape[1])
    return Scalars(count, scale, beta / jnp.sqrt(scale), high), off


def _problem(raw: Raw, scalars: Scalars, ones: bool) -> Problem:
    y, psi = to_rows(raw.y), to_rows(raw.psi)
    columns = [] if raw.X is None else [raw.X.reshape(*y.shape, -1)[..., j] for j in range(raw.X.shape[1])]
    if raw.mask is not None:
        live = raw.mask.reshape(y.shape)
        y, psi = jnp.where(live, y, 0.0), jnp.where(live, psi, jnp.inf)
        columns = [jnp.where(live, column, 0.0) for column in columns]
    return Problem(y, psi, (None, *columns[1:]) if ones else tuple(columns), *scalars)


@partial(jax.jit, static_argnames=("method", "ones"))
def _step(raw: Raw, scalars: Scalars, state: Bracket, tolerance: float, *, method: str, ones: bool) -> Bracket:
    return step(_problem(raw, scalars, ones), state, method, jnp.asarray(tolerance))


@partial(jax.jit, static_argnames=("method", "ones"))
def _conclude(raw: Raw, scalars: Scalars, state: Bracket, *, method: str, ones: bool) -> FayHerriotFit:
    problem = _problem(raw, scalars, ones)
    p = problem.num_columns
    return conclude(problem, state.s, state.centre, state.steps, status_of(state), jnp.eye(p), jnp.ones(p), method)
