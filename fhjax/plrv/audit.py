"""An audit of anybody's draws: do they have the mean and covariance the guarantee assumes, and what do they support?

Nothing is known of the sampler, only its draws and the area-level data. An audit refutes a claim or fails to; draws
that pass are consistent with the guarantee, they do not carry it as a proof.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import stats

from fhjax.entrance import refuse_masked, require_float64
from fhjax.errors import InputError, complain
from fhjax.plrv import fit_tests, mcmc
from fhjax.plrv.check import directions
from fhjax.plrv.findings import Finding, verdict
from fhjax.plrv.losses import Neighbours, OwnPosterior
from fhjax.records import AreaData, Array, FayHerriotFit, Guarantees, Labels, Posterior

Floats = npt.NDArray[np.float64]

STRUCTURES = ("independent", "correlated")
_FEW = 100  # effective draws below which the sentence about few draws is printed


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """What an audit found. ``refuted`` means the draws are not what the guarantee assumes."""

    refuted: bool
    reasons: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    structure: str  # "independent", "correlated", "either" (cannot be told apart) or "neither"
    structure_p_values: dict[str, float]
    level: float
    num_draws: int
    labels: Labels
    autocorrelated: bool
    effective_draws: Floats  # (m,) for the mean
    mean_shift: Floats  # (m,) mean of the draws less the posterior mean, in posterior standard deviations
    variance_ratio: Floats  # (m,) observed / claimed
    variance_low: Floats  # (m,) simultaneous lower confidence limit of that ratio
    variance_high: Floats  # (m,)
    rho_claimed: dict[str, float]  # "largest area", "joint independent", "joint correlated"
    rho_compatible: dict[str, tuple[float, float]]  # the same at both confidence limits of the variances
    unseen: tuple[str, ...]


def audit(
    draws: npt.ArrayLike,
    data: AreaData,
    fit: FayHerriotFit | Posterior | Array | float,
    guarantees: Guarantees,
    *,
    release: str | None = None,
    level: float = 0.01,
) -> AuditResult:
    """Audit draws of the area means made by any sampler.

    Args:
        draws: (n, m) in the order of ``data``; n = 1 is allowed and says little.
        data: m areas, none with sampling variance 0.
        fit: the fit or the posterior that the draws should have been made from, or its model variance, outcome units
            squared.
        guarantees: what is claimed of such draws.
        release: ``"independent"`` or ``"correlated"``, how the areas are said to be drawn together; None finds out, and
            refutes only draws that are neither.
        level: probability of refuting true draws, over all tests together.

    Returns:
        An :class:`AuditResult`.

    Raises:
        InputError: draws that are not finite or do not match the areas, or an area with sampling variance 0.

    Draws with positive autocorrelation (MCMC) are judged by their effective sample sizes; the p-values are then
    approximate. Draws that depend on one another negatively (antithetic pairs, stratified or quasi-random ones) are
    refuted: their mean is closer to the posterior mean than that of as many independent draws, and publishing them
    gives away more than their number times rho.

    Source: docs/derivations.md, sections 1 and 12.

    Examples:
        >>> import jax
        >>> import fhjax
        >>> data = fhjax.area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> fit = fhjax.fit(data)
        >>> result = fhjax.guarantees(data, fit, [0.02, 0.03, 0.02, 0.05])
        >>> drawn = fhjax.draws(fhjax.posterior(data, fit), key=jax.random.key(1), num_draws=200)
        >>> audit(drawn, data, fit, result).refuted
        False
    """
    require_float64()
    refuse_masked(draws, "draws")
    labels = data.labels or Labels(range(data.num_areas))
    theta = np.atleast_2d(np.asarray(draws, dtype=float))
    if theta.shape[0] == 0 or theta.size == 0:
        raise InputError("There are no draws to audit.")
    if theta.ndim != 2 or theta.shape[1] != data.num_areas:
        raise InputError(
            f"The draws have shape {theta.shape}; expected one column for each of {data.num_areas:,} areas."
        )
    bad = ~np.isfinite(theta).all(axis=0)
    if bad.any():
        raise complain("have a missing or infinite draw", labels.where(bad), "Correct the file of draws.")
    if release is not None and release not in STRUCTURES:
        raise InputError(f"release is {release!r}; it is one of {', '.join(STRUCTURES)}.")
    posterior = Neighbours(data, getattr(fit, "model_variance", fit)).here()
    sd = np.sqrt(np.asarray(posterior.variance))
    z = (theta - np.asarray(posterior.mean)) / sd
    n, m = z.shape

    together, apart = mcmc.autocorrelation_p_values(z, _independent_areas(posterior))
    autocorrelated = together < 0.001
    size_mean = mcmc.effective_sample_size(z) if autocorrelated else np.full(m, float(n))
    size_square = mcmc.effective_sample_size(z**2) if autocorrelated else np.full(m, float(n))
    thin = int(np.ceil(1.5 * n / np.median(size_mean))) if autocorrelated else 1

    shift, ratio = z.mean(axis=0), np.mean(z**2, axis=0)
    tests = {
        "mean": fit_tests.mean_p_value(shift * size_mean, size_mean),
        "variance": fit_tests.variance_p_value(ratio * size_square, size_square),
    }
    if len(z[::thin]) >= 5:
        tests["Anderson-Darling"] = anderson_darling(z[::thin])
    found = []
    for name, p in tests.items():
        adjusted = fit_tests.holm(p)
        worst = int(np.argmin(adjusted))
        detail = f"smallest in {labels[worst]}; {(adjusted <= level).sum():,} of {m:,} rejected by Holm"
        found.append(Finding(f"areas one by one: {name}", float(adjusted[worst]), detail))
    repeated = _repeated(theta, sd)
    if repeated is not None:
        found.append(repeated)
    if n >= mcmc._FEWEST:
        found.append(Finding("dependence of the draws", apart, "one-sided: neighbouring draws lie on opposite sides"))
    found.append(_mean_of_all(z, posterior))
    found += _of_the_data(theta, z, data, posterior)

    structure_p, power = {}, 0.0
    for structure in STRUCTURES:
        structure_p[structure], seen = _structure(z, posterior, structure, autocorrelated)
        power = max(power, seen)
    fits = [structure for structure in STRUCTURES if structure_p[structure] > level / (len(found) + 1)]
    name = {0: "neither", 1: fits[0] if fits else "", 2: "either"}[len(fits)]
    if release is None:
        p = max(structure_p.values())
        found.append(Finding("covariance between areas, independent or correlated", p, f"consistent with: {name}"))
    else:
        found.append(Finding(f"covariance between areas, {release}", structure_p[release], f"consistent with: {name}"))

    refuted, reasons = verdict(found, level)
    share = level / (2.0 * m)
    low = ratio * size_square / stats.chi2.isf(share, size_square)
    high = ratio * size_square / np.maximum(stats.chi2.ppf(share, size_square), 1e-300)
    claimed, compatible = _supported(guarantees, low, high)
    return AuditResult(
        refuted=refuted,
        reasons=reasons,
        findings=tuple(found),
        structure=name,
        structure_p_values=structure_p,
        level=level,
        num_draws=n,
        labels=labels,
        autocorrelated=autocorrelated,
        effective_draws=size_mean,
        mean_shift=shift,
        variance_ratio=ratio,
        variance_low=low,
        variance_high=high,
        rho_claimed=claimed,
        rho_compatible=compatible,
        unseen=_unseen(n, float(np.median(size_square)), m, level, power, name, autocorrelated),
    )


def _independent_areas(posterior: OwnPosterior) -> float:
    """How many independent areas m correlated ones are worth in a mean of squares: m^2 over the sum of squared
    correlations of the correlated draw."""
    variance = np.asarray(posterior.variance)
    shared = np.asarray(posterior.factor) / np.sqrt(variance)[:, None]
    own = np.asarray(posterior.independent) / variance
    squares = float(np.sum((shared.T @ shared) ** 2) + np.sum(own**2 + 2.0 * own * np.sum(shared**2, axis=1)))
    return len(variance) ** 2 / squares


def _mean_of_all(z: Floats, posterior: OwnPosterior) -> Finding:
    """The mean of all draws is as far from the posterior mean as that of n independent draws, not closer.

    Positive autocorrelation makes it farther, which the tests of each area see; only "closer" is tested here, under
    both structures, of which the better fit counts.
    """
    n = z.shape[0]
    centre = np.sqrt(n) * z.mean(axis=0, keepdims=True)
    p = []
    for structure in STRUCTURES:
        square, freedom = _mahalanobis(centre, posterior, structure)
        p.append(float(stats.chi2.cdf(square[0], freedom)))
    return Finding("mean of all draws", max(p), "one-sided: too close to the posterior mean for independent draws")


def _of_the_data(theta: Floats, z: Floats, data: AreaData, posterior: OwnPosterior) -> list[Finding]:
    """Draws that are, or follow, the direct estimates themselves."""
    y, sd = np.asarray(data.y, dtype=float), np.sqrt(np.asarray(posterior.variance))
    n = len(theta)
    unit = np.maximum(_unit(theta), np.abs(y) * 2.0**-48)
    equal = int(np.sum(np.abs(theta - y) <= 0.51 * unit))
    expected = float(np.sum(n * np.minimum(1.02 * unit / (np.sqrt(2.0 * np.pi) * sd), 1.0)))
    p = float(stats.poisson.sf(equal - 1, 1.5 * expected + 1e-6)) if equal else 1.0
    found = [Finding("values equal to the direct estimates", p, f"{equal:,} values, {expected:.3g} expected")]
    toward = (y - np.asarray(posterior.mean)) / sd
    if np.any(toward != 0.0):
        W = (toward / np.linalg.norm(toward))[:, None]
        size = float(np.min(mcmc.effective_sample_size(z @ W))) if n >= mcmc._FEWEST else float(n)
        score = float(np.mean(z @ W)) * np.sqrt(size)
        spread = np.sqrt(max(float(_variances(W, posterior, structure)[0]) for structure in STRUCTURES))
        found.append(Finding("pull toward the direct estimates", float(2.0 * stats.norm.sf(abs(score) / spread)), ""))
    return found


def _unit(theta: Floats) -> Floats:
    """(m,) the spacing of the numbers that the draws are written with: digits after the point, float32, or float64."""
    size = np.abs(theta).max(axis=0)
    unit = np.maximum(size * 2.0**-48, 0.0)
    sample = theta[: min(len(theta), 1000)]
    if np.array_equal(sample.astype(np.float32).astype(float), sample):
        unit = np.maximum(unit, size * 2.0**-23)
    for digits in range(13):
        if np.all(np.abs(sample - np.round(sample, digits)) <= 1e-14 * np.maximum(np.abs(sample), 1e-300)):
            return np.maximum(unit, 10.0**-digits)
    return unit


def anderson_darling(z: Floats) -> Floats:
    """p-values of the Anderson-Darling test of N(0, 1) for every column of (n, s), parameters known."""
    n = z.shape[0]
    ordered = np.sort(z, axis=0)
    weight = (2 * np.arange(1, n + 1) - 1)[:, None]
    statistic = -n - np.mean(weight * (stats.norm.logcdf(ordered) + stats.norm.logsf(ordered[::-1])), axis=0)
    j = np.arange(1, 200)
    return fit_tests.weighted_chi2_sf(statistic, 1.0 / (j * (j + 1.0)))


def _structure(z: Floats, posterior: OwnPosterior, structure: str, autocorrelated: bool) -> tuple[float, float]:
    """p-value of one covariance between areas, and the power with which its directions tell it from the other."""
    n = z.shape[0]
    W = directions(posterior, structure)
    projected = z @ W
    size = mcmc.effective_sample_size(projected**2) if autocorrelated else np.full(W.shape[1], float(n))
    p = fit_tests.variance_p_value(np.mean(projected**2, axis=0) * size, size)
    square, freedom = _mahalanobis(z, posterior, structure)
    size_all = float(mcmc.effective_sample_size(square[:, None])[0]) if autocorrelated else float(n)
    whole = float(fit_tests.variance_p_value(np.mean(square) * size_all, freedom * size_all))
    other = "correlated" if structure == "independent" else "independent"
    ratio = _variances(W, posterior, other)
    power = fit_tests.variance_test_power(ratio, np.maximum(size, 1.0), 0.01 / len(ratio))
    combined = np.concatenate([fit_tests.holm(p), [whole]])
    return float(min(1.0, 2.0 * min(combined[:-1].min(), combined[-1]))), float(np.max(power))


def _variances(W: Floats, posterior: OwnPosterior, structure: str) -> Floats:
    """Variance of z W under a structure, z with unit variances."""
    if structure == "independent":
        return np.sum(W**2, axis=0)
    variance = np.asarray(posterior.variance)
    shared = np.asarray(posterior.factor) / np.sqrt(variance)[:, None]
    return np.sum(W**2 * (np.asarray(posterior.independent) / variance)[:, None], axis=0) + np.sum(
        (shared.T @ W) ** 2, axis=0
    )


def _mahalanobis(z: Floats, posterior: OwnPosterior, structure: str) -> tuple[Floats, int]:
    """r' S^-1 r of every draw (n,), through the factors, and its degrees of freedom."""
    m = z.shape[1]
    if structure == "independent":
        return np.sum(z**2, axis=1), m
    sd, own = np.sqrt(np.asarray(posterior.variance)), np.asarray(posterior.independent)
    basis, triangle = np.asarray(posterior.basis), np.asarray(posterior.triangle)
    r = z * sd
    p = basis.shape[1]
    if np.all(own == 0.0):  # on the regression surface: what is off it is infinitely unlikely
        flat = r @ basis
        off = np.sum((r - flat @ basis.T) ** 2, axis=1) > 1e-12 * np.sum(r**2, axis=1)
        root = basis.T @ np.asarray(posterior.factor)
        return np.where(off, np.inf, np.sum(np.linalg.solve(root, flat.T) ** 2, axis=0)), p
    e = r / np.sqrt(own)
    w = e @ basis
    inner = np.linalg.inv(np.eye(p) + triangle @ triangle.T)
    return np.sum(e**2, axis=1) - np.sum(w**2, axis=1) + np.einsum("ni,ij,nj->n", w, inner, w), m


def _repeated(theta: Floats, sd: Floats) -> Finding | None:
    """Values that come back more often than the file's number of digits explains; runs of equal rows are one draw."""
    changed = np.ones(len(theta), dtype=bool)
    changed[1:] = np.any(theta[1:] != theta[:-1], axis=1)  # a rejected Metropolis step repeats the row
    kept = theta[changed]
    n = len(kept)
    if n < 2:
        return None
    repeats = int((np.diff(np.sort(kept, axis=0), axis=0) == 0.0).sum())
    unit = _unit(kept)
    expected = float(np.sum(n * (n - 1) / 2 * np.minimum(unit / (2.0 * np.sqrt(np.pi) * sd), 1.0)))
    p = float(stats.poisson.sf(repeats - 1, 1.5 * expected + 1e-6)) if repeats else 1.0
    return Finding("repeated values", p, f"{repeats:,} repeats, {expected:.3g} expected from the digits of the file")


def _supported(guarantees: Guarantees, low: Floats, high: Floats) -> tuple[dict, dict]:
    """What rho the variances of the draws support: rho goes with 1 / variance."""
    rho = np.asarray(guarantees.per_area_rho)
    claimed = {"largest area": float(rho.max())}
    compatible = {"largest area": _bounds(rho, low, high)}
    for structure in STRUCTURES:
        release = getattr(guarantees, f"joint_{structure}")
        terms = np.asarray(
            guarantees.joint_independent_terms if structure == "independent" else guarantees.own_area_rho
        )
        claimed[f"joint {structure}"] = float(release.rho)
        compatible[f"joint {structure}"] = _bounds(terms, low, high)
    return claimed, compatible


def _bounds(rho: Floats, low: Floats, high: Floats) -> tuple[float, float]:
    """The largest rho at the upper and at the lower limits of the variances; infinite for draws without any noise."""
    smallest = np.finfo(float).tiny
    at_most, at_least = np.maximum(high, smallest), np.maximum(low, 1e-300)
    return float(np.max(np.where(high > 0.0, rho / at_most, np.inf))), float(np.max(rho / at_least))


def smallest_visible_error(count: float, level: float, power: float = 0.9) -> float:
    """The smallest relative error of a standard deviation (too small) that ``count`` draws show with ``power``; 1 when
    none does.

    Examples:
        >>> round(smallest_visible_error(100_000, 0.01), 4)
        0.0086
    """

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        seen = float(fit_tests.variance_test_power((1.0 - middle) ** 2, count, level)) >= power
        low, high = (low, middle) if seen else (middle, high)
    return high


def _unseen(n: int, size: float, m: int, level: float, power: float, structure: str, autocorrelated: bool) -> tuple:
    """What these draws could not show, in sentences."""
    said = []
    if size < _FEW:
        said.append(f"There are only {size:,.0f} effective draws of an area: this audit has little power.")
    if n < mcmc._FEWEST:
        said.append(f"With {n:,} draws autocorrelation cannot be estimated; the draws were taken as independent.")
    one, family = smallest_visible_error(size, level / m), smallest_visible_error(size * m, level)
    said.append(
        f"A standard deviation of a single area too small by less than {100 * one:.2g} % would have been missed "
        f"with probability above 10 %{' (any error at all)' if one >= 1.0 else ''}."
    )
    if not autocorrelated:
        said.append(f"An error common to all standard deviations below {100 * family:.2g} % would have been missed.")
    said.append(
        f"Nothing was seen of events rarer than about 1 in {max(size, 1.0):,.0f} in one area: not the far tails."
    )
    if structure == "either":
        said.append(
            "The draws could not tell independent from correlated areas apart"
            + (f" (power {power:.2f})" if power < 0.9 else "")
            + ": quote the larger of both joint rhos."
        )
    said.append(
        "No audit of numbers sees how they were made: a seed that is known or used twice, floating-point leaks in the "
        "last digits, draws that were chosen among several, or anything else that was published."
    )
    return tuple(said)
