"""Does the privacy loss behave as the guarantee says? Draws from the package, losses from densities coded apart.

For every area and its worst neighbour, for the joint release of independently drawn areas and for one draw of the
correlated posterior, in both directions: draws are made by the implementation under test, their losses are computed
from the two posteriors of :mod:`fhjax.plrv.losses`, and (L - rho) / sqrt(2 rho) must be standard normal.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.entrance import require_float64
from fhjax.errors import InputError
from fhjax.model.fit import given
from fhjax.model.posterior import posterior as posterior_of
from fhjax.plrv import findings, losses, tail, theory
from fhjax.plrv.findings import Finding, SeriesTests
from fhjax.plrv.losses import Neighbours, OwnPosterior
from fhjax.plrv.streaming import CHUNK_VALUES, LossSummary, SeriesSummary, stream, summarise_losses, summarise_series
from fhjax.privacy.coefficients import coefficients
from fhjax.records import AreaData, Array, FayHerriotFit, Guarantees, Labels, Posterior, record
from fhjax.release.draws import draw_kernel

#: ``(posterior, key, which, release) -> (n, m)``: what is put to the test.
Sampler = Callable[[Posterior, Array, Array, str], Array]

ORDERS = np.array([1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0])
_NUM_EPSILONS = 12
_REPETITION = 4  # times the draws, when a refutation is repeated
_BEYOND_CHANCE = 1e-4  # of the level: a refutation this clear is not repeated
_MAX_TAIL_AREAS = 20_000
_REPEAT_DRAWS, _REPEAT_AREAS = 2**14, 16


@record
class PassSummary:
    """What one pass over the draws keeps."""

    areas: SeriesSummary  # standardised losses of every area
    directions: SeriesSummary  # standardised residuals, projected
    joint: SeriesSummary  # standardised joint loss, one series
    joint_loss: LossSummary
    worst_loss: LossSummary  # of the area with the largest rho
    broken: Array  # () values of the sampler that are not finite


@record
class PassArguments:
    """What the draws of one pass are made from, and what their losses are measured against."""

    posterior: Posterior  # of the implementation under test, the law the draws are made from
    key: Array
    here: OwnPosterior
    areas_there: OwnPosterior  # every area's worst neighbour
    joint_there: OwnPosterior  # the joint's worst neighbour
    areas_rho: Array  # (m,) claimed
    joint_rho: Array  # () claimed
    directions: Array  # (m, q) unit variance under the claimed law
    worst_area: Array
    orders: Array
    joint_epsilons: Array
    worst_epsilons: Array


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass with its tests, for tables and figures."""

    name: str
    release: str
    summary: PassSummary
    areas: SeriesTests | None
    joint: SeriesTests | None


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What a check found. ``refuted`` means that the claim cannot hold; its absence is not a proof."""

    refuted: bool
    reasons: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    passes: tuple[Pass, ...]
    level: float
    num_draws: int
    labels: Labels
    areas_rho: npt.NDArray[np.float64]
    joint_rho: dict[str, float]
    worst_area: int
    epsilons: dict[str, npt.NDArray[np.float64]]  # by release, and "area" for the worst area
    tail: dict[str, tail.Estimate]  # importance sampled, at the same epsilons
    # What a first run with fewer draws refuted, when this is its repetition with a fresh stream; else empty
    first_reasons: tuple[Finding, ...] = ()

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """(m,) areas whose release costs something."""
        return self.areas_rho > 0.0


@functools.cache
def _chunk(sampler: Sampler, release: str, with_areas: bool):
    """The function that summarises one chunk; cached so that it is compiled once for each sampler."""
    joint_density = losses.log_density_independent if release == "independent" else losses.log_density_correlated

    def summarise(arguments: PassArguments, which: Array) -> PassSummary:
        theta = sampler(arguments.posterior, arguments.key, which, release)
        here = arguments.here
        expected = (which.shape[0], here.mean.shape[0])
        if theta.shape != expected:
            raise InputError(f"The sampler returned draws of shape {theta.shape}, not {expected}.")
        residual = (theta - here.mean) / jnp.sqrt(here.variance)
        directions = summarise_series(residual @ arguments.directions)
        if with_areas:
            loss = losses.loss(losses.log_density_areas, theta, here, arguments.areas_there)
            standard = (loss - arguments.areas_rho) / jnp.sqrt(2.0 * arguments.areas_rho)
            areas = summarise_series(jnp.where(arguments.areas_rho > 0.0, standard, 0.0))
            worst = loss[:, arguments.worst_area]
        else:
            areas = summarise_series(jnp.zeros((theta.shape[0], 1)))
            worst = jnp.zeros(theta.shape[0])
        joint = losses.loss(joint_density, theta, here, arguments.joint_there)
        rho = arguments.joint_rho
        standard_joint = jnp.where(rho > 0.0, (joint - rho) / jnp.sqrt(2.0 * jnp.where(rho > 0.0, rho, 1.0)), 0.0)
        return PassSummary(
            areas=areas,
            directions=directions,
            joint=summarise_series(standard_joint[:, None]),
            joint_loss=summarise_losses(joint, rho, arguments.orders, arguments.joint_epsilons),
            worst_loss=summarise_losses(
                worst, arguments.areas_rho[arguments.worst_area], arguments.orders, arguments.worst_epsilons
            ),
            broken=jnp.sum(~jnp.isfinite(theta)),
        )

    return summarise


def check(
    data: AreaData,
    fit: FayHerriotFit | Posterior,
    guarantees: Guarantees,
    *,
    key: Array,
    num_draws: int = 100_000,
    joint_draws: int | None = None,
    level: float = 0.01,
    sampler: Sampler = draw_kernel,
    independent: bool = True,
    correlated: bool = True,
    tails: bool = True,
    chunk_values: int = CHUNK_VALUES,
) -> CheckResult:
    """Put a sampler and its guarantee to the test by the law of the privacy loss.

    Args:
        data: m areas, none with sampling variance 0.
        fit: the fit or posterior whose model variance is used.
        guarantees: what is claimed: rho of every area and of both joint releases.
        key: a JAX key.
        num_draws: draws of every area in each direction.
        joint_draws: draws of the joint releases in each direction; None: as many.
        level: probability of refuting a true claim, over all tests together.
        sampler: what is tested, ``(posterior, key, which, release) -> (n, m)``; by default the package's own draws.
        independent: test the areas one by one and the joint release of independently drawn areas.
        correlated: test one draw of the whole posterior.
        tails: estimate delta(epsilon) by importance sampling too, for figures; no test rests on it.
        chunk_values: draws times areas held at once; more suits a GPU. The draws do not depend on it.

    A claim that one run refutes narrowly is put to the test once more, with a fresh stream of the key and four times
    the
    draws, and is refuted only if that run refutes it too: a true claim is refuted with probability at most ``level``,
    about ``level`` squared, and an unlucky seed is not the end of it. What is refuted beyond chance (a p-value of
    ``level`` times 1e-4) is not repeated.

    Returns:
        A :class:`CheckResult`. ``refuted`` is False when the claim survived, which proves nothing; how small a fault
        would have been seen is :func:`fhjax.plrv.fit_tests.variance_test_power`.

    Raises:
        InputError: a claimed rho that is infinite, an area with sampling variance 0, or fewer than 1,000 draws.

    Memory does not grow with ``num_draws``: only moments, histograms and tail sums are kept.

    Source: docs/derivations.md, section 12; Das and Drechsler (2026), Theorem 1.

    Examples:
        >>> import jax
        >>> import fhjax
        >>> data = fhjax.area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> fit = fhjax.fit(data)
        >>> result = fhjax.guarantees(data, fit, [0.02, 0.03, 0.02, 0.05])
        >>> check(data, fit, result, key=jax.random.key(1), num_draws=2000, tails=False).refuted
        False
    """
    require_float64()
    joint_draws = num_draws if joint_draws is None else joint_draws
    fewest = min(num_draws, joint_draws)
    if fewest < 1000:
        raise InputError(
            f"A check needs at least 1,000 draws, not {fewest:,}: below that its tests of fit are not exact."
        )
    if not (independent or correlated):
        raise InputError("There is nothing to check: say independent=True, correlated=True or both.")
    options = {"level": level, "sampler": sampler, "independent": independent, "correlated": correlated, "tails": tails,
               "chunk_values": chunk_values}  # fmt: skip
    first = _check_once(data, fit, guarantees, key=key, num_draws=num_draws, joint_draws=joint_draws, **options)
    if not first.refuted or min(reason.p_value for reason in first.reasons) <= level * _BEYOND_CHANCE:
        return first
    again = _check_once(
        data, fit, guarantees, key=jax.random.fold_in(key, 1000), num_draws=_REPETITION * num_draws,
        joint_draws=_REPETITION * joint_draws, **options,
    )  # fmt: skip
    return dataclasses.replace(again, first_reasons=first.reasons)


def _check_once(
    data: AreaData,
    fit: FayHerriotFit | Posterior,
    guarantees: Guarantees,
    *,
    key: Array,
    num_draws: int,
    joint_draws: int,
    level: float,
    sampler: Sampler,
    independent: bool,
    correlated: bool,
    tails: bool,
    chunk_values: int,
) -> CheckResult:
    """One run of :func:`check`."""
    labels = data.labels or Labels(range(data.num_areas))
    model_variance = fit.model_variance
    pair = Neighbours(data, model_variance)
    posterior = posterior_of(data, given(data, model_variance))
    areas_rho = np.asarray(guarantees.per_area_rho, dtype=float)
    if not np.isfinite(areas_rho).all():
        raise InputError(
            "The claimed rho of some area is infinite: there is no law of the loss to check. Leave it out."
        )

    here, partner = pair.here(), np.asarray(guarantees.attained_by)
    sensitivity = np.asarray(guarantees.sensitivity, dtype=float)
    change = sensitivity[partner]
    areas_there = pair.each_with_its_own_change(partner, change)
    C = coefficients(data.sampling_variance, model_variance, data.X)
    shift = C.pairs(jnp.arange(data.num_areas), jnp.asarray(partner)) * change
    posterior_areas_there = dataclasses.replace(posterior, mean=posterior.mean + shift)
    worst = int(np.argmax(areas_rho))
    streams = iter(range(1, 10))

    base = PassArguments(
        posterior=posterior,
        key=key,
        here=here,
        areas_there=areas_there,
        joint_there=areas_there,
        areas_rho=jnp.asarray(areas_rho),
        joint_rho=jnp.asarray(0.0),
        directions=jnp.asarray(directions(here, "independent")),
        worst_area=jnp.asarray(worst),
        orders=jnp.asarray(ORDERS),
        joint_epsilons=jnp.asarray(epsilon_grid(1.0)),
        worst_epsilons=jnp.asarray(epsilon_grid(areas_rho[worst])),
    )

    def run(name: str, release: str, arguments: PassArguments, n: int, *, areas: bool, joint: bool) -> Pass:
        arguments = dataclasses.replace(arguments, key=jax.random.fold_in(key, next(streams)))
        summary = stream(_chunk(sampler, release, areas), arguments, n, data.num_areas, chunk_values)
        summary = jax.tree.map(np.asarray, summary)
        if int(summary.broken):
            raise InputError(
                f"The sampler returned {int(summary.broken):,} values that are missing or infinite ({name}): they "
                "are no draws, and nothing can be said of the others."
            )
        return Pass(
            name=name,
            release=release,
            summary=summary,
            areas=findings.series_tests(summary.areas, areas_rho > 0.0) if areas else None,
            joint=findings.series_tests(summary.joint) if joint and float(arguments.joint_rho) > 0.0 else None,
        )

    passes: list[Pass] = []
    epsilons = {"area": epsilon_grid(areas_rho[worst])}
    curves: dict[str, tail.Estimate] = {}
    joint_rho: dict[str, float] = {}
    found: list[Finding] = []
    tail_key = jax.random.fold_in(key, 100)
    if tails and independent and areas_rho[worst] > 0.0:
        curves["area"] = tail.tail_delta(
            here, areas_there, epsilons["area"], key=tail_key, release="independent", area=worst
        )
    for release, wanted in (("independent", independent), ("correlated", correlated)):
        if not wanted:
            continue
        claim = getattr(guarantees, f"joint_{release}")
        rho, k = float(claim.rho), int(claim.worst_area)
        joint_rho[release] = rho
        epsilons[release] = epsilon_grid(rho)
        joint_there = pair.with_change(k, sensitivity[k])
        posterior_there = _posterior_with_change(data, model_variance, k, sensitivity[k])
        forth = dataclasses.replace(
            base,
            joint_there=joint_there,
            joint_rho=jnp.asarray(rho),
            joint_epsilons=jnp.asarray(epsilons[release]),
            directions=jnp.asarray(directions(here, release)),
        )
        back = dataclasses.replace(
            forth, posterior=posterior_there, here=joint_there, joint_there=here, areas_there=joint_there
        )
        with_areas = release == "independent"
        if with_areas:
            areas_back = dataclasses.replace(
                forth, posterior=posterior_areas_there, here=areas_there, areas_there=here, joint_there=here
            )
            there = run("areas, D' to D", release, areas_back, num_draws, areas=True, joint=False)
        n = num_draws if with_areas else joint_draws
        one = run(f"{release}, D to D'", release, forth, n, areas=with_areas, joint=True)
        two = run(f"{release}, D' to D", release, back, joint_draws, areas=False, joint=True)
        passes += [one, two]
        if with_areas:
            passes.append(there)
            found += _area_findings("areas, D to D'", one, areas_rho, labels, level)
            found += _area_findings("areas, D' to D", there, areas_rho, labels, level)
            found.append(_repeats(sampler, posterior, key, release, num_draws))
        found += _joint_findings(one, two, rho, epsilons[release])
        if tails and rho > 0.0 and data.num_areas <= _MAX_TAIL_AREAS:
            few = min(4_000, max(500, 2**22 // data.num_areas))
            curves[release] = tail.tail_delta(
                here, joint_there, epsilons[release], key=tail_key, num_draws=few, release=release
            )
    refuted, reasons = findings.verdict(found, level)
    return CheckResult(
        refuted=refuted,
        reasons=reasons,
        findings=tuple(found),
        passes=tuple(passes),
        level=level,
        num_draws=num_draws,
        labels=labels,
        areas_rho=areas_rho,
        joint_rho=joint_rho,
        worst_area=worst,
        epsilons=epsilons,
        tail=curves,
    )


def epsilon_grid(rho: float) -> npt.NDArray[np.float64]:
    """Epsilons up to four standard deviations above the mean loss, where delta is looked at.

    They start a rounding error above 0, so that losses that are 0 do not count as exceeding it.
    """
    return np.linspace(1e-9, max(1e-9, rho + 4.0 * np.sqrt(2.0 * rho)), _NUM_EPSILONS)


def directions(posterior: OwnPosterior, release: str, num_random: int = 4) -> npt.NDArray[np.float64]:
    """Directions (m, q) that tell the correlated from the independent law, scaled to unit variance under ``release``.

    The leading directions of the shared part of the correlation matrix, the sum of all areas, and random signs.
    """
    sd = np.sqrt(np.asarray(posterior.variance))
    shared = np.asarray(posterior.factor) / sd[:, None]
    own = np.asarray(posterior.independent) / sd**2
    left, _, _ = np.linalg.svd(shared, full_matrices=False)
    m = len(sd)
    signs = np.random.default_rng(20260101).choice([-1.0, 1.0], size=(m, num_random))
    W = np.column_stack([left[:, :8], np.ones(m), signs])
    if release == "independent":
        return W / np.sqrt(np.sum(W**2, axis=0))
    variance = np.sum(W**2 * own[:, None], axis=0) + np.sum((shared.T @ W) ** 2, axis=0)
    keep = variance > 1e-9 * np.sum(W**2, axis=0)  # at a model variance of 0 most directions do not move at all
    return W[:, keep] / np.sqrt(variance[keep])


def _posterior_with_change(data: AreaData, model_variance: Any, area: int, change: float) -> Posterior:
    moved = dataclasses.replace(data, y=jnp.asarray(data.y).at[area].add(change))
    return posterior_of(moved, given(moved, model_variance))


def _area_findings(what: str, one: Pass, rho: npt.NDArray[np.float64], labels: Labels, level: float) -> list[Finding]:
    live = rho > 0.0
    assert one.areas is not None
    found = findings.series_findings(what, one.areas, labels.where(live), independent=True, level=level)
    found.append(findings.pooled_variance_finding(what, one.summary.areas, live))
    found.append(findings.tail_finding(what, one.summary.areas, live))
    return found


def _joint_findings(
    one: Pass, two: Pass, rho: float, epsilons: npt.NDArray[np.float64], level: float = 1e-4
) -> list[Finding]:
    """Tests of the joint loss in both directions, of the directions, and the refutation of delta."""
    found = []
    for each in (one, two):
        if each.joint is not None:
            for name, p in each.joint.items():
                found.append(Finding(f"{each.name}: {name} of the joint loss", float(p[0])))
        tests = findings.series_tests(each.summary.directions)
        p = np.concatenate([tests.variance, tests.mean])
        found.append(
            Finding(
                f"{each.name}: covariance between areas",
                float(np.min(len(p) * p, initial=1.0)),
                f"{len(tests.variance)} directions, smallest variance p-value {tests.variance.min():.2g}",
            )
        )
    claimed = theory.delta_of(rho, epsilons)
    for a, b in ((one, two), (two, one)):
        x, y = a.summary.joint_loss, b.summary.joint_loss
        bound = tail.delta_lower_bound(x.exceed, int(x.count), y.recede, int(y.count), epsilons, level)
        over = bound > claimed
        detail = "no lower confidence bound of delta exceeds the claim"
        if over.any():
            j = int(np.argmax(bound - claimed))
            detail = f"delta({epsilons[j]:.3g}) is at least {bound[j]:.3g}, claimed {claimed[j]:.3g}"
        found.append(Finding(f"{a.name}: Clopper-Pearson bound of delta", 0.0 if over.any() else 1.0, detail))
    return found


def _repeats(sampler: Sampler, posterior: Posterior, key: Array, release: str, num_draws: int) -> Finding:
    n, m = min(num_draws, _REPEAT_DRAWS), posterior.mean.shape[0]
    rows = max(1, 2**22 // m)
    parts = []
    for first in range(0, n, rows):
        which = jnp.arange(first, min(first + rows, n))
        parts.append(np.asarray(sampler(posterior, jax.random.fold_in(key, 99), which, release)[:, :_REPEAT_AREAS]))
    return findings.repeated_values_finding(f"areas, {release}", np.concatenate(parts))
