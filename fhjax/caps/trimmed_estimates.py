"""Direct estimates of trimmed weights and their design variances, from the trimmed sums alone."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.caps.tables import CROSS_A, CROSS_B, OUTCOME, Tables, TrimmedSums, untrimmed_sums
from fhjax.errors import InputError
from fhjax.records import Array, TrimmingSums, record, static

Variance = Literal["replicates", "taylor", "weights"]


@record
class VarianceRule:
    """How a design variance comes from trimmed sums.

    "replicates" and "taylor" are exact: the same numbers as from the realised weights, because trimming multiplies
    every replicate weight by its record's factor, and the residual totals of PSUs are linear in the cap between sizes.
    "weights" is S^2 sum p^2, the variance of independent records with element variance S^2; with a public S^2 it does
    not touch outcomes.
    """

    kind: str = static()
    multiples: Array | None = None  # (R,) of the squared replicate deviations
    centred_on_mean: Array | None = None  # (R,) weights of the replicate mean that is the centre; None: full sample
    element_variance: Array | None = None  # () or (m,) S^2


class TrimmedEstimates(NamedTuple):
    """Leading shape (m,)."""

    shift: Array  # y* - y
    shift_variance: Array  # design variance of y* - y
    sampling_variance: Array  # infinite where it cannot be estimated
    share: Array  # t, the realised largest share of a unit
    weight: Array  # sum of the trimmed weights
    weight_square: Array


def variance_rule(
    sums: TrimmingSums,
    *,
    multiples: np.ndarray | None = None,
    center: str = "full",
    element_variance: npt.ArrayLike | None = None,
) -> VarianceRule:
    """The variance rule that the sums and options describe.

    Args:
        sums: what was read.
        multiples: (R,) of the squared replicate deviations, such as 4/80 for successive differences; None for Taylor
            linearisation.
        center: "full" or "replicates".
        element_variance: S^2, () or (m,), for S^2 sum p^2 in place of an estimated design variance.

    Raises:
        InputError: the sums do not hold what the rule needs.
    """
    if element_variance is not None:
        value = np.asarray(element_variance, dtype=float)
        if not np.all(np.isfinite(value) & (value > 0.0)):
            raise InputError("The element variance must be a positive number.")
        return VarianceRule(kind="weights", element_variance=jnp.broadcast_to(jnp.asarray(value), (sums.num_areas,)))
    if multiples is not None:
        if sums.num_replicates != len(multiples):
            raise InputError(f"There are {sums.num_replicates} replicate weights but {len(multiples)} multiples.")
        positive = np.asarray(multiples) > 0.0
        mean = positive / np.count_nonzero(positive) if center == "replicates" else None
        return VarianceRule(
            kind="replicates",
            multiples=jnp.asarray(multiples, dtype=float),
            centred_on_mean=None if mean is None else jnp.asarray(mean, dtype=float),
        )
    if sums.cluster_squares is None:
        raise InputError("These sums hold nothing by PSU: form them with taylor=True, or name the replicate method.")
    return VarianceRule(kind="taylor")


def trimmed_estimates(
    tables: Tables, trimmed: TrimmedSums, rule: VarianceRule, original: TrimmedSums | None = None
) -> TrimmedEstimates:
    """Estimates, their design variances and the variance of their shift, at trimmed sums."""
    if original is None:
        original = untrimmed_sums(tables)
    weight = trimmed.weight
    safe = jnp.where(weight > 0.0, weight, 1.0)
    shift = trimmed.linear[:, OUTCOME] / safe
    share = trimmed.largest / safe
    if rule.kind == "replicates":
        psi, of_shift = _by_replicates(tables, trimmed, original, rule, shift)
    elif rule.kind == "taylor":
        assert trimmed.clusters is not None
        assert original.clusters is not None
        a2, ab, b2 = trimmed.clusters[:, 0], trimmed.clusters[:, 1], trimmed.clusters[:, 2]
        e2 = jnp.maximum(a2 - shift * (2.0 * ab - shift * b2), 0.0)
        psi = e2 / safe**2
        before = original.weight
        cross = trimmed.linear[:, CROSS_A] - shift * trimmed.linear[:, CROSS_B]
        of_shift = psi + original.clusters[:, 0] / before**2 - 2.0 * cross / (safe * before)
        of_shift = jnp.maximum(of_shift, 0.0)
    else:
        assert rule.element_variance is not None
        psi = rule.element_variance * trimmed.weight_square / safe**2
        of_shift = jnp.zeros_like(psi)
    return TrimmedEstimates(
        shift=shift,
        shift_variance=of_shift,
        sampling_variance=psi,
        share=share,
        weight=weight,
        weight_square=trimmed.weight_square,
    )


def _by_replicates(
    tables: Tables, trimmed: TrimmedSums, original: TrimmedSums, rule: VarianceRule, shift: Array
) -> tuple[Array, Array]:
    R = tables.num_replicates
    assert rule.multiples is not None

    def means(sums: TrimmedSums) -> tuple[Array, Array]:
        weights, outcomes = sums.linear[:, 7 : 7 + R], sums.linear[:, 7 + R :]
        exists = weights > 0.0
        return jnp.where(exists, outcomes / jnp.where(exists, weights, 1.0), 0.0), jnp.all(exists, axis=1)

    after, defined = means(trimmed)
    before, _ = means(original)
    deviation, change = after - shift[:, None], after - before - shift[:, None]
    if rule.centred_on_mean is not None:
        deviation = after - (after @ rule.centred_on_mean)[:, None]
        change = (after - before) - ((after - before) @ rule.centred_on_mean)[:, None]
    psi = (deviation * deviation) @ rule.multiples
    return jnp.where(defined, psi, jnp.inf), (change * change) @ rule.multiples
