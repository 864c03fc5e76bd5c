"""The check of :mod:`fhjax.plrv.check` for published linear functions of one draw: regional means, any L."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fhjax.errors import InputError
from fhjax.model.fit import given
from fhjax.model.posterior import posterior as posterior_of
from fhjax.plrv import findings, losses, tail, theory
from fhjax.plrv.check import ORDERS, Sampler, epsilon_grid
from fhjax.plrv.findings import Finding
from fhjax.plrv.losses import Neighbours, OwnPosterior
from fhjax.plrv.streaming import LossSummary, SeriesSummary, stream, summarise_losses, summarise_series
from fhjax.records import AreaData, Array, FayHerriotFit, Posterior, ReleaseGuarantee, record
from fhjax.release.draws import draw_kernel


@dataclasses.dataclass(frozen=True)
class LinearCheck:
    """What a check of a linear release found."""

    refuted: bool
    reasons: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    rho: float


@record
class _Arguments:
    posterior: Posterior
    key: Array
    here: OwnPosterior
    there: OwnPosterior
    weights: Array
    rho: Array
    orders: Array
    epsilons: Array


@record
class _Summary:
    loss: SeriesSummary
    tails: LossSummary


@functools.cache
def _chunk(sampler: Sampler, release: str):
    def summarise(a: _Arguments, which: Array) -> _Summary:
        published = sampler(a.posterior, a.key, which, release) @ a.weights.T
        density = functools.partial(losses.log_density_linear, weights=a.weights, release=release)
        loss = density(published, posterior=a.here) - density(published, posterior=a.there)
        standard = (loss - a.rho) / jnp.sqrt(2.0 * a.rho)
        return _Summary(
            loss=summarise_series(standard[:, None]), tails=summarise_losses(loss, a.rho, a.orders, a.epsilons)
        )

    return summarise


def check_linear(
    data: AreaData,
    fit: FayHerriotFit | Posterior,
    claim: ReleaseGuarantee,
    sensitivity: Any,
    weights: Any,
    *,
    key: Array,
    num_draws: int = 100_000,
    release: str = "correlated",
    level: float = 0.01,
    sampler: Sampler = draw_kernel,
) -> LinearCheck:
    """Put the claimed rho of a linear release to the test by the law of its privacy loss, in both directions.

    Args:
        data: m areas, none with sampling variance 0.
        fit: the fit or posterior whose model variance is used.
        claim: what is claimed, as :func:`fhjax.privacy.linear.linear_guarantee` makes it; its worst area changes.
        sensitivity: (m,) outcome units.
        weights: (q, m) linearly independent rows; weights theta is published.
        key: a JAX key.
        num_draws: draws in each direction.
        release: how theta is drawn, ``"correlated"`` or ``"independent"``.
        level: probability of refuting a true claim.
        sampler: what is tested.

    Raises:
        InputError: fewer than 1,000 draws, dependent rows, or a claim that is 0 or infinite.

    Source: docs/derivations.md, sections 8 and 12.

    Examples:
        >>> import jax
        >>> import fhjax
        >>> data = fhjax.area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> fit = fhjax.fit(data)
        >>> delta, difference = [0.02, 0.03, 0.02, 0.05], [[1.0, -1.0, 0.0, 0.0]]
        >>> claim = fhjax.linear_guarantee(data, fit, delta, difference)
        >>> check_linear(data, fit, claim, delta, difference, key=jax.random.key(1), num_draws=2000).refuted
        False
    """
    rho, k = float(claim.rho), int(claim.worst_area)
    matrix = np.atleast_2d(np.asarray(weights, dtype=float))
    if num_draws < 1000:
        raise InputError(f"A check needs at least 1,000 draws, not {num_draws:,}.")
    if not (np.isfinite(rho) and rho > 0.0):
        raise InputError(f"The claimed rho is {rho}: there is no law of the loss to check.")
    if np.linalg.matrix_rank(matrix) < len(matrix):
        raise InputError("Some rows of weights depend on others, so they publish nothing new: drop them.")
    pair = Neighbours(data, fit.model_variance)
    change = float(np.broadcast_to(np.asarray(sensitivity, dtype=float), (data.num_areas,))[k])
    moved = dataclasses.replace(data, y=jnp.asarray(data.y).at[k].add(change))
    ends = [
        (posterior_of(each, given(each, fit.model_variance)), own)
        for each, own in ((data, pair.here()), (moved, pair.with_change(k, change)))
    ]
    found, summaries = [], []
    for number, ((posterior, here), (_, there)) in enumerate(zip(ends, ends[::-1], strict=True)):
        arguments = _Arguments(
            posterior=posterior,
            key=jax.random.fold_in(key, number),
            here=here,
            there=there,
            weights=jnp.asarray(matrix),
            rho=jnp.asarray(rho),
            orders=jnp.asarray(ORDERS),
            epsilons=jnp.asarray(epsilon_grid(rho)),
        )
        summary = stream(_chunk(sampler, release), arguments, num_draws, data.num_areas)
        direction = ("D to D'", "D' to D")[number]
        for name, p in findings.series_tests(summary.loss).items():
            found.append(Finding(f"linear release, {direction}: {name} of the loss", float(p[0])))
        summaries.append(summary.tails)
    epsilons = epsilon_grid(rho)
    for x, y in (summaries, summaries[::-1]):
        bound = tail.delta_lower_bound(x.exceed, num_draws, y.recede, num_draws, epsilons, 1e-4)
        over = bool(np.any(bound > theory.delta_of(rho, epsilons)))
        found.append(Finding("linear release: Clopper-Pearson bound of delta", 0.0 if over else 1.0))
    refuted, reasons = findings.verdict(found, level)
    return LinearCheck(refuted=refuted, reasons=reasons, findings=tuple(found), rho=rho)
