"""From zCDP's rho to (epsilon, delta)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fhjax.errors import InputError
from fhjax.records import Array, ReleaseGuarantee

METHODS = ("simple", "tight", "exact")


def epsilon_simple(rho, delta) -> Array:
    """epsilon = rho + 2 sqrt(rho log(1/delta)), paper (6), rounded up."""
    rho, delta = jnp.broadcast_arrays(jnp.asarray(rho, float), jnp.asarray(delta, float))
    positive = rho > 0
    safe = jnp.where(positive, rho, 1.0)
    value = (safe + 2.0 * jnp.sqrt(safe) * jnp.sqrt(-jnp.log(delta))) * (1.0 + 16 * np.finfo(float).eps)
    return jnp.where(positive, value, 0.0)


def epsilon(rho, delta, *, method: str = "simple") -> Array:
    """(epsilon, delta) of a rho-zCDP release; ``rho`` may be a :class:`ReleaseGuarantee`."""
    if isinstance(rho, ReleaseGuarantee):
        rho = rho.rho
    if method != "simple":
        raise InputError(f"method {method!r} is not one of {METHODS}")
    return epsilon_simple(rho, delta)
