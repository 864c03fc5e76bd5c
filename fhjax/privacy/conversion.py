"""From zCDP's rho to (epsilon, delta) and back: three conversions, each on its safe side.

``simple``  eps = rho + 2 sqrt(rho log(1/delta)). The paper's (6): reproducible, holds for every rho-zCDP release.
``tight``   the least epsilon that the improved Rényi conversion proves, holds for every rho-zCDP release.
``exact``   the true epsilon of a Gaussian pair: the smallest, and wrong for anything but a Gaussian pair with one fixed
            covariance (not for a discrete Gaussian, not for unequal covariances, not for full Bayes).

epsilon and delta are rounded up and rho is rounded down, by a bound on the rounding error (about 1e-14 of the value),
so what is reported is never more private than the truth. All arguments broadcast; everything is float64; the functions
can be jitted, vmapped and differentiated in rho, epsilon and delta. Values, not tracers, are checked: a negative or NaN
argument and a delta outside [0, 1) raise :class:`InputError`.

The (epsilon, delta) here speaks about the same neighbours as the rho it is made from: it adds no assumption of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.entrance import is_concrete, refuse_masked, require_float64
from fhjax.errors import InputError, complain
from fhjax.privacy import exact_conversion, tight_conversion
from fhjax.privacy.exact_conversion import LARGEST_RHO, TINY, UNIT
from fhjax.records import Array, ReleaseGuarantee

METHODS = ("simple", "tight", "exact")
ArrayLike = npt.ArrayLike | Array
Rho = ArrayLike | ReleaseGuarantee

_ROUND = 16.0


def checked(value: ArrayLike, name: str, *, below: float = np.inf, closed: bool = True, smallest: float = 0.0) -> Array:
    """A float64 array of numbers in [0, below], or [0, below) when not ``closed``; tracers pass unseen.

    ``smallest`` replaces positive numbers below it: XLA treats subnormal numbers as 0, the wrong side for rho.
    """
    require_float64()
    refuse_masked(value, name)
    if not is_concrete(value):
        return jnp.asarray(value, jnp.float64)
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or an array of numbers, not {value!r}.") from error
    with np.errstate(invalid="ignore"):
        bad = ~((numbers >= 0.0) & ((numbers <= below) if closed else (numbers < below)))
    if bad.any():
        interval = f"[0, {below:g}{']' if closed else ')'}"
        places = np.flatnonzero(np.atleast_1d(bad))
        labels = [f"{np.atleast_1d(numbers).flat[place]:g} at position {place}" for place in places]
        raise complain(f"of {name} outside {interval}", labels, f"{name} must lie in {interval}.", noun="value")
    if smallest > 0.0:
        numbers = np.where((numbers > 0.0) & (numbers < smallest), smallest, numbers)
    return jnp.asarray(numbers)


def checked_rho(rho: Rho) -> Array:
    """rho >= 0 as an array; inf is allowed and means that nothing is certified."""
    return checked(rho.rho if isinstance(rho, ReleaseGuarantee) else rho, "rho", smallest=TINY)


def checked_delta(delta: ArrayLike) -> Array:
    """0 <= delta < 1; a delta of 1 would promise nothing and is refused."""
    return checked(delta, "delta", below=1.0, closed=False)


def _together(first: Array, second: Array) -> tuple[Array, Array]:
    try:
        shape = np.broadcast_shapes(first.shape, second.shape)
    except ValueError as error:
        raise InputError(f"Shapes {first.shape} and {second.shape} do not broadcast to one another.") from error
    return jnp.broadcast_to(first, shape), jnp.broadcast_to(second, shape)


def _check_method(method: str, rho: Rho | None = None) -> None:
    if method not in METHODS:
        raise InputError(f"Unknown conversion method {method!r}: use one of {', '.join(METHODS)}.")
    if method != "exact" or rho is None:
        return
    if not isinstance(rho, ReleaseGuarantee):
        raise InputError(
            "The exact conversion holds only for a Gaussian pair, which a bare rho cannot show. Pass the release's "
            "ReleaseGuarantee, or call epsilon_exact if you know that the worst neighbours are one Gaussian pair; "
            "otherwise use method='tight'."
        )
    if not rho.gaussian_pair:
        raise InputError(
            f"The exact conversion is wrong for this release ({rho.release}): its worst neighbours are not one "
            "Gaussian pair with a fixed covariance. Use method='tight'."
        )


# --- kernels of the simple conversion -------------------------------------------------------------------------------


@jax.jit
def _epsilon_simple(rho: Array, delta: Array) -> Array:
    usable = (rho > 0.0) & (rho < jnp.inf) & (delta > 0.0) & (delta < 1.0)
    safe_rho, safe_delta = jnp.where(usable, rho, 1.0), jnp.where(usable, delta, 0.5)
    value = (safe_rho + 2.0 * jnp.sqrt(safe_rho) * jnp.sqrt(-jnp.log(safe_delta))) * (1.0 + _ROUND * UNIT)
    return jnp.where(usable, value, jnp.where((rho == 0.0) | (delta >= 1.0), 0.0, jnp.inf))


@jax.jit
def _rho_simple(epsilon: Array, delta: Array) -> Array:
    """sqrt(rho) = sqrt(L + eps) - sqrt(L), written without the cancellation and rounded down."""
    usable = (epsilon > 0.0) & (epsilon < jnp.inf) & (delta > 0.0) & (delta < 1.0)
    safe_epsilon, safe_delta = jnp.where(usable, epsilon, 1.0), jnp.where(usable, delta, 0.5)
    log_inverse = -jnp.log(safe_delta)
    root = safe_epsilon / (jnp.sqrt(log_inverse + safe_epsilon) + jnp.sqrt(log_inverse))
    # down by enough that epsilon, itself rounded up, comes back at most as large
    value = root * root * (1.0 - 5.0 * _ROUND * UNIT)
    return jnp.where(usable, value, jnp.where(epsilon == jnp.inf, jnp.inf, 0.0))


_epsilon_tight = jax.jit(tight_conversion.epsilon_kernel)
_epsilon_exact = jax.jit(exact_conversion.epsilon_kernel)
_log_delta_tight = jax.jit(tight_conversion.log_delta_kernel)
_log_delta_exact = jax.jit(exact_conversion.log_delta_kernel)
_KERNELS = {"simple": _epsilon_simple, "tight": _epsilon_tight, "exact": _epsilon_exact}


# --- rho -> epsilon -------------------------------------------------------------------------------------------------


def epsilon_simple(rho: Rho, delta: ArrayLike) -> Array:
    """epsilon = rho + 2 sqrt(rho log(1/delta)), rounded up: valid for every rho-zCDP release.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0; inf gives inf.
        delta: failure probability in [0, 1), broadcast against rho; 0 gives inf (and 0 where rho is 0).

    Raises: InputError for values outside these ranges.

    Guarantee: a rho-zCDP release is (epsilon, delta)-differentially private for the same neighbours.
    Source: the paper's (6); Bun and Steinke 2016, proposition 1.3.

    Examples:
        >>> round(float(epsilon_simple(1.51, 1e-7)), 2)
        11.38
    """
    return _epsilon_simple(*_together(checked_rho(rho), checked_delta(delta)))


def epsilon_tight(rho: Rho, delta: ArrayLike) -> Array:
    """The least epsilon of the improved Rényi conversion, rounded up: valid for every rho-zCDP release.

    Arguments, units, shapes, errors and guarantee as in :func:`epsilon_simple`.
    Source: Canonne, Kamath and Steinke 2020, at its best order; docs/derivations.md, section 10.

    Examples:
        >>> round(float(epsilon_tight(1.51, 1e-7)), 2)
        10.66
    """
    return _epsilon_tight(*_together(checked_rho(rho), checked_delta(delta)))


def epsilon_exact(rho: Rho, delta: ArrayLike) -> Array:
    """The true epsilon of a Gaussian pair, rounded up. **Valid for Gaussian pairs only.**

    Calling it states that the worst neighbours are one Gaussian pair with a fixed covariance: a released area, both
    joint releases, linear releases, several draws, and sums of such rho. A ``ReleaseGuarantee`` that says otherwise is
    refused; nothing can check a bare number.

    Arguments, units, shapes and errors as in :func:`epsilon_simple`.
    Source: Balle and Wang 2018, theorem 8; docs/derivations.md, section 10.

    Examples:
        >>> round(float(epsilon_exact(1.51, 1e-7)), 2)
        10.08
    """
    if isinstance(rho, ReleaseGuarantee):
        _check_method("exact", rho)
    return _epsilon_exact(*_together(checked_rho(rho), checked_delta(delta)))


def epsilon(rho: Rho, delta: ArrayLike, *, method: str = "simple") -> Array:
    """epsilon of a rho-zCDP release at a given delta, rounded up.

    Args:
        rho: zCDP parameter in nats (any shape, >= 0, inf allowed), or the :class:`ReleaseGuarantee` that holds it.
        delta: failure probability in [0, 1), broadcast against rho; 0 gives inf (and 0 where rho is 0).
        method: "simple" (the paper's), "tight", or "exact" (needs a ReleaseGuarantee whose ``gaussian_pair`` is true).

    Raises: InputError for values outside these ranges, for an unknown method, and for "exact" without a Gaussian pair.

    Guarantee: (epsilon, delta)-differential privacy for the neighbours and under the assumptions of the rho.
    Source: docs/derivations.md, section 10.

    Examples:
        >>> round(float(epsilon(0.048, 1e-7)), 2)
        1.81
    """
    _check_method(method, rho)
    return {"simple": epsilon_simple, "tight": epsilon_tight, "exact": epsilon_exact}[method](rho, delta)


# --- (rho, epsilon) -> delta ----------------------------------------------------------------------------------------


def _delta_from_log(log_delta: Array) -> Array:
    """exp, rounded up: never 0 for a release that spends something, and never above 1."""
    value = jnp.minimum(jnp.exp(log_delta) * (1.0 + 4.0 * UNIT), 1.0)
    return jnp.where(log_delta > -jnp.inf, jnp.maximum(value, TINY), 0.0)


def log_delta_exact(rho: Rho, epsilon: ArrayLike) -> Array:
    """log of the true delta(epsilon) of a Gaussian pair, rounded up; correct far below the smallest double.

    **Valid for Gaussian pairs only**, as :func:`epsilon_exact`.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0.
        epsilon: >= 0, broadcast against rho.

    Returns: log delta, -inf where delta is 0 (rho = 0, or epsilon = inf), 0 where rho is inf.
    Raises: InputError for negative or NaN values.
    Source: Balle and Wang 2018, theorem 8; docs/derivations.md, section 10.

    Examples:
        >>> round(float(log_delta_exact(1e-4, 1.0)), 3)
        -2513.195
    """
    if isinstance(rho, ReleaseGuarantee):
        _check_method("exact", rho)
    return _log_delta_exact(*_together(checked_rho(rho), checked(epsilon, "epsilon")))


def delta_exact(rho: Rho, epsilon: ArrayLike) -> Array:
    """The true delta(epsilon) of a Gaussian pair, rounded up (to the smallest normal double where it underflows).

    Arguments and validity as in :func:`log_delta_exact`.

    Examples:
        >>> round(float(delta_exact(0.5, 0.0)), 6)
        0.382925
    """
    return _delta_from_log(log_delta_exact(rho, epsilon))


def log_delta_tight(rho: Rho, epsilon: ArrayLike) -> Array:
    """log of the least delta that the improved Rényi conversion proves at ``epsilon``, for every rho-zCDP release.

    Arguments, returns and errors as in :func:`log_delta_exact`.
    Source: Canonne, Kamath and Steinke 2020, at its best order.

    Examples:
        >>> round(float(log_delta_tight(1.51, 10.557)), 2)
        -15.81
    """
    return _log_delta_tight(*_together(checked_rho(rho), checked(epsilon, "epsilon")))


def delta_tight(rho: Rho, epsilon: ArrayLike) -> Array:
    """The least delta that the improved Rényi conversion proves at ``epsilon``, rounded up, for every rho-zCDP release.

    Examples:
        >>> float(delta_tight(0.0, 1.0))
        0.0
    """
    return _delta_from_log(log_delta_tight(rho, epsilon))


# --- (epsilon, delta) -> rho ----------------------------------------------------------------------------------------


def _rounded_down(method: str, kernel: Callable, epsilon: Array, delta: Array) -> Array:
    """Shrink a solved rho until its own epsilon, rounded up, is at most the one asked for.

    The simple rho is valid for all methods; it is the answer should shrinking ever not succeed.
    """
    simple = _rho_simple(epsilon, delta)
    usable = (epsilon < jnp.inf) & (delta > 0.0) & (delta < 1.0)
    safe_epsilon, safe_delta = jnp.where(usable, epsilon, 1.0), jnp.where(usable, delta, 0.5)
    to_epsilon = _KERNELS[method]
    rho = jnp.maximum(kernel(safe_epsilon, safe_delta, jnp.where(usable, simple, 0.0)), simple)

    def shrink(step, rho):
        back, slope = jax.jvp(lambda r: to_epsilon(r, safe_delta), (rho,), (jnp.ones_like(rho),))
        excess = jnp.where(slope > 0.0, (back - safe_epsilon) / jnp.where(slope > 0.0, slope, 1.0), 0.0)
        # first Newton towards the safe side, then in growing steps of rounding size
        smaller = (rho - jnp.maximum(excess, 0.0)) * (1.0 - 4.0 * UNIT * 4.0**step)
        return jnp.where(back > safe_epsilon, jnp.maximum(smaller, simple), rho)

    rho = jax.lax.fori_loop(0, 6, shrink, rho)
    rho = jnp.where(to_epsilon(rho, safe_delta) <= safe_epsilon, rho, simple)
    return jnp.where(usable, rho, simple)


@jax.jit
def _rho_tight(epsilon: Array, delta: Array) -> Array:
    return _rounded_down("tight", lambda e, d, _: tight_conversion.rho_kernel(e, d), epsilon, delta)


@jax.jit
def _rho_exact(epsilon: Array, delta: Array) -> Array:
    return _rounded_down("exact", exact_conversion.rho_kernel, epsilon, delta)


_RHO_KERNELS = {"simple": _rho_simple, "tight": _rho_tight, "exact": _rho_exact}


def rho_for_epsilon(epsilon: ArrayLike, delta: ArrayLike, *, method: str = "simple") -> Array:
    """The largest rho whose epsilon at ``delta`` is at most ``epsilon``, rounded down: how much a budget may spend.

    Feeding the answer back gives at most the epsilon asked for. With method "exact" the caller states that the release
    to be calibrated has one Gaussian pair as its worst neighbours.

    Args:
        epsilon: budget, >= 0, any shape; inf gives inf.
        delta: failure probability in [0, 1), broadcast against epsilon; 0 gives 0.
        method: "simple", "tight" or "exact".

    Raises: InputError for values outside these ranges and for an unknown method.
    Source: the inverse of :func:`epsilon`; docs/derivations.md, section 10.

    Examples:
        >>> rho = rho_for_epsilon(1.0, 1e-6, method="tight")
        >>> bool(epsilon_tight(rho, 1e-6) <= 1.0)
        True
    """
    _check_method(method)
    epsilon, delta = _together(checked(epsilon, "epsilon"), checked_delta(delta))
    # a finite budget beyond the range of the conversions is rounded down into it
    epsilon = jnp.where(epsilon < jnp.inf, jnp.minimum(epsilon, 0.1 * LARGEST_RHO), epsilon)
    return _RHO_KERNELS[method](epsilon, delta)
