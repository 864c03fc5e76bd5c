"""An orthonormal basis of the covariates, so that the p x p systems of the fit are harmless whatever the units of X."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array

#: A column whose part outside the others' span is below this share of its length is collinear.
COLLINEAR = 1e-12


def orthonormal_basis(Xt: Array) -> tuple[Array, Array, Array]:
    """Gram-Schmidt, twice: ``Xt`` (p, m) = R' Q with Q (p, m) of orthonormal rows and R (p, p) upper triangular.

    Returns ``(Q, R, share)``, ``share`` (p,) being the part of each column's length that the earlier ones leave.
    Twice is enough: orthogonal to rounding for any condition below 1e15. Column by column, so that a constant column's
    share is removed by exact subtraction and large offsets (x + 1e8) cost no digits.
    """
    p = Xt.shape[0]
    rows: list[Array] = []
    R = [[jnp.zeros((), Xt.dtype)] * p for _ in range(p)]
    shares = []
    for j in range(p):
        column = Xt[j]
        # First by a power of two, which is exact, because squares of 1e200 would overflow.
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(column)))
        size = jnp.where(largest > 0, jnp.ldexp(jnp.ones(()), jnp.frexp(largest)[1]), 1.0)
        v = column / size
        length = jnp.sqrt(jnp.sum(v * v))
        for _ in range(2):
            for i, q in enumerate(rows):
                along = jnp.sum(q * v)
                v = v - along * q
                R[i][j] = R[i][j] + along * size
        rest = jnp.sqrt(jnp.sum(v * v))
        shares.append(rest / jnp.where(length > 0, length, 1.0))
        safe = jnp.where(rest > 0, rest, 1.0)
        rows.append(v / safe)
        R[j][j] = safe * size
    return jnp.stack(rows), jnp.array(R), jnp.stack(shares)
