"""What can be wrong with the numbers a guarantee starts from: counted by the kernel, put in words outside it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from fhjax.entrance import is_concrete, refuse_masked, refuse_single
from fhjax.errors import InputError, complain
from fhjax.records import Array, Labels, NumberedLabels

#: How many rows have each is a vector of this length; the last is filled in by whoever decomposes the covariates.
DEFECTS = ("model variance", "sampling variance", "covariate", "total variance", "prior", "collinear")
_COLLINEAR = "The covariates are collinear: drop the column that the others determine."


def defects_of(psi: Array, s2: Array, X: Array, P: Array | None) -> tuple[Array, Array, Array, Array | None, Array]:
    """The numbers, harmless where they cannot be meant, and how many rows have which of ``DEFECTS`` but the last."""
    wrong_s2 = ~(jnp.isfinite(s2) & (s2 >= 0.0))
    wrong_psi = ~(jnp.isfinite(psi) & (psi >= 0.0))
    wrong_X = ~jnp.all(jnp.isfinite(X), axis=1)
    s2, psi = jnp.where(wrong_s2, 1.0, s2), jnp.where(wrong_psi, 1.0, psi)
    X = jnp.where(wrong_X[:, None], 0.0, X)
    wrong_P = jnp.zeros((), bool)
    if P is not None:
        asymmetric = jnp.abs(P - P.T) > 1e-10 * jnp.abs(P)
        size = jnp.maximum(jnp.max(jnp.abs(P)), 1e-300)
        finite = jnp.all(jnp.isfinite(P))
        least = jnp.min(jnp.linalg.eigvalsh(jnp.where(finite, P, 0.0)))
        wrong_P = ~finite | jnp.any(asymmetric) | (least < -1e-10 * size)
        P = jnp.where(wrong_P, jnp.eye(P.shape[0]), P)
    found = jnp.stack([jnp.sum(wrong) for wrong in (wrong_s2, wrong_psi, wrong_X, psi + s2 == 0.0, wrong_P)])
    return jnp.where(psi + s2 == 0.0, 1.0, psi), s2, X, P, found


def explain(found: Array, psi: Any, s2: Any, X: Any, P: Array | None, labels: Labels | NumberedLabels) -> None:
    """Raise the error that says which rows have the first defect found, if there is one.

    Raises:
        InputError: naming the defect, the areas and the way out.
    """
    counts = dict(zip(DEFECTS, np.asarray(found).tolist(), strict=True))
    if not any(counts.values()):
        return
    variance, covariates = np.asarray(psi), np.asarray(X)

    def refuse(mask: Any, what: str, way_out: str = "Correct or drop them.") -> InputError:
        return complain(what, labels.where(mask), way_out)

    if counts["model variance"]:
        raise InputError(f"The model variance is {float(s2)!r}; it must be finite and not negative.")
    if counts["sampling variance"]:
        wrong = ~(np.isfinite(variance) & (variance >= 0.0))
        raise refuse(wrong, "have a negative or non-finite sampling variance")
    if counts["covariate"]:
        raise refuse(~np.isfinite(covariates).all(axis=1), "have a non-finite covariate")
    if counts["total variance"]:
        raise refuse(
            variance + float(s2) == 0.0,
            "have a sampling variance of 0 while the model variance is 0 too, so the regression must fit them exactly",
            "Exclude them or give them a sampling variance.",
        )
    if counts["prior"]:
        if np.isfinite(np.asarray(P)).all() and np.allclose(np.asarray(P), np.asarray(P).T, rtol=1e-10, atol=0.0):
            raise InputError("beta_prior_precision must not have negative eigenvalues.")
        raise InputError("beta_prior_precision must be a finite symmetric matrix.")
    raise InputError(_COLLINEAR)


def sensitivities(values: Any, num_areas: int) -> Array:
    """Delta (m,); one number serves all areas.

    Raises:
        InputError: single precision, masked values, or another shape.
    """
    refuse_single(values)
    refuse_masked(values, "sensitivity")
    delta = jnp.asarray(values, dtype=float)
    delta = jnp.broadcast_to(delta, (num_areas,)) if delta.ndim == 0 else delta
    if delta.shape != (num_areas,):
        raise InputError(f"sensitivity has shape {delta.shape}; expected one number for each of {num_areas:,} areas.")
    return delta


def wrong_sensitivities(delta: Any) -> Array:
    """(m,) where a sensitivity is no number of at least 0."""
    return ~(jnp.isfinite(delta) & (delta >= 0.0))


def refuse_sensitivities(delta: Any, labels: Labels | NumberedLabels) -> None:
    """Say which sensitivities are wrong, if they are known and some are.

    Raises:
        InputError: naming the areas.
    """
    wrong = wrong_sensitivities(delta)
    if is_concrete(wrong) and bool(jnp.any(wrong)):
        raise complain("have a negative or non-finite sensitivity", labels.where(wrong), "Correct or drop them.")
