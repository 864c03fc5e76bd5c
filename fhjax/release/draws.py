"""Posterior draws of the area means from a JAX key: for simulation, checks and studies.

A draw that leaves the house is made by :mod:`fhjax.release.publish` instead: a key can be guessed or logged, and the
last digits of a floating-point normal number tell more than the theory says.

Streams are named by ``fold_in``: first what is drawn, then the index of the draw, then the attempt. So neither the
number of draws asked for at once nor the number of devices changes a number.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from fhjax.entrance import is_concrete, require_float64
from fhjax.errors import InputError, NumericalError
from fhjax.model.posterior import PosteriorCovariance, posterior_covariance
from fhjax.records import Array, Posterior

RELEASES = ("correlated", "independent")
_AREA_STREAM, _COEFFICIENT_STREAM = 1, 2
_MAX_UNROLLED = 16  # covariates up to which the factor is applied column by column, which fuses into one pass


def draws(
    posterior: Posterior,
    *,
    key: Array,
    num_draws: int = 1,
    release: str = "correlated",
    areas: npt.ArrayLike | None = None,
    bounds: tuple[float, float] | None = None,
    outside: str = "redraw",
    first_draw: int = 0,
    max_tries: int = 10_000,
) -> Array:
    """Draws of the area means from their posterior.

    Args:
        posterior: of m areas, in outcome units.
        key: a JAX key. Two calls with the same key give the same draws.
        num_draws: how many draws n. Publishing n of them multiplies rho by n.
        release: ``"correlated"``: each draw is one draw of the whole posterior, the coefficients integrated out.
            ``"independent"``: every area is drawn on its own from its marginal posterior.
        areas: indices of the areas wanted, in this order; their draws are those of a call for all areas.
        bounds: (lo, hi) that the published means must lie in, or None.
        outside: ``"redraw"``: a draw with any wanted area outside the bounds is made again until all are inside.
            ``"clip"``: values are moved to the nearest bound, which is post-processing.
        first_draw: index of the first draw, so that ``n`` draws can be made in parts.
        max_tries: attempts at one draw before giving up.

    Returns:
        (n, m) draws, or (n, number of ``areas``).

    Raises:
        InputError: an unknown option, or an area index out of range.
        NumericalError: after ``max_tries`` attempts some area was still outside. Inside ``jit``, ``vmap`` and ``grad``
            such a draw is infinite instead.

    Guarantee: the rho of the release (``joint_correlated`` or ``joint_independent``), times n. Redrawing keeps it: it
    conditions a Gaussian on a convex set, which makes every variance of the tilted laws smaller (Brascamp-Lieb), hence
    every Rényi divergence. The pair is then no longer Gaussian, so the exact conversion to epsilon no longer applies.
    How many attempts a draw took must not be published.

    Source: docs/derivations.md, sections 1 and 7.

    Examples:
        >>> import jax
        >>> from fhjax.model.fit import area_data, fit
        >>> from fhjax.model.posterior import posterior
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> draws(posterior(data, fit(data)), key=jax.random.key(1), num_draws=3).shape
        (3, 4)
    """
    require_float64()
    if release not in RELEASES:
        raise InputError(f"release is {release!r}; it is one of {', '.join(RELEASES)}.")
    if outside not in ("redraw", "clip"):
        raise InputError(f"outside is {outside!r}; it is 'redraw' or 'clip'.")
    if num_draws < 1:
        raise InputError(f"num_draws is {num_draws!r}; ask for at least one draw.")
    if bounds is not None and not bounds[0] < bounds[1]:
        raise InputError(f"bounds are {bounds!r}; the lower must be below the upper.")
    m = posterior.mean.shape[0]
    index = None if areas is None else _checked_areas(areas, m)
    which = first_draw + jnp.arange(num_draws)
    if bounds is None or outside == "clip":
        theta = draw_kernel(posterior, key, which, release)
        theta = theta if index is None else theta[:, index]
        return theta if bounds is None else jnp.clip(theta, *bounds)
    wanted = jnp.ones(m, bool) if index is None else jnp.zeros(m, bool).at[index].set(True)
    theta, failed = _redraw(posterior, key, which, release, wanted, bounds[0], bounds[1], max_tries)
    if not is_concrete(failed):
        # Nobody can be told inside a transformation: what is outside must not look like a draw.
        theta = jnp.where(failed[:, None], jnp.inf, theta)
    elif bool(jnp.any(failed)):
        way = "draw the areas independently, " if release == "correlated" else ""
        raise NumericalError(
            f"After {max_tries:,} attempts at least one area was still outside [{bounds[0]:g}, {bounds[1]:g}]. Widen "
            f"the bounds, {way}or use outside='clip'."
        )
    return theta if index is None else theta[:, index]


@functools.partial(jax.jit, static_argnames="release")
def draw_kernel(posterior: Posterior, key: Array, which: Int[Array, " n"], release: str) -> Float[Array, "n m"]:
    """The draws with the indices ``which`` (n,), as a pure function (n, m)."""
    scale, factor = _scale_and_factor(posterior, release)
    keys = _streams(key)
    return jax.vmap(lambda index: _one(posterior.mean, scale, factor, _next(keys, index)))(which)


def _scale_and_factor(posterior: Posterior, release: str) -> tuple[Array, Array | None]:
    if release == "independent":
        return jnp.sqrt(posterior.variance), None
    operator: PosteriorCovariance = posterior_covariance(posterior)
    return jnp.sqrt(operator.independent), operator.factor


def _one(mean: Array, scale: Array, factor: Array | None, keys: tuple[Array, Array]) -> Array:
    """mean + scale z + factor u: one draw (m,). At a model variance of 0 scale is 0: X times a draw of beta."""
    theta = mean + scale * jax.random.normal(keys[0], mean.shape, mean.dtype)
    if factor is None:
        return theta
    u = jax.random.normal(keys[1], (factor.shape[1],), mean.dtype)
    if factor.shape[1] > _MAX_UNROLLED:
        return theta + factor @ u
    for j in range(factor.shape[1]):
        theta = theta + u[j] * factor[:, j]
    return theta


def _streams(key: Array) -> tuple[Array, Array]:
    return jax.random.fold_in(key, _AREA_STREAM), jax.random.fold_in(key, _COEFFICIENT_STREAM)


def _next(keys: tuple[Array, Array], index: int | Array) -> tuple[Array, Array]:
    return jax.random.fold_in(keys[0], index), jax.random.fold_in(keys[1], index)


@functools.partial(jax.jit, static_argnames="release")
def _redraw(posterior, key, which, release, wanted, low, high, max_tries):
    """Draws conditioned on every wanted area being inside; and which of them gave up."""
    scale, factor = _scale_and_factor(posterior, release)
    keys = _streams(key)

    def inside(theta):
        return ((theta >= low) & (theta <= high)) | ~wanted

    def one(index):
        mine = _next(keys, index)

        def again(state):
            attempt, theta = state
            return (attempt < max_tries) & ~jnp.all(inside(theta))

        def attempt_again(state):
            attempt, theta = state
            fresh = _one(posterior.mean, scale, factor, _next(mine, attempt))
            if factor is None:
                # The areas are independent and the set is a box, so redrawing only those outside has the same law.
                fresh = jnp.where(inside(theta), theta, fresh)
            return attempt + 1, fresh

        first = _one(posterior.mean, scale, factor, mine)
        _, theta = jax.lax.while_loop(again, attempt_again, (jnp.asarray(1), first))
        return theta, ~jnp.all(inside(theta))

    return jax.lax.map(one, which)


def _checked_areas(areas: npt.ArrayLike, m: int) -> Array:
    index = np.atleast_1d(np.asarray(areas))
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
        raise InputError("areas must be a list of whole numbers, the indices of the areas wanted.")
    wrong = index[(index < 0) | (index >= m)]
    if wrong.size:
        raise InputError(f"areas names index {int(wrong[0])}, but there are {m:,} areas, numbered from 0 to {m - 1:,}.")
    return jnp.asarray(index)
