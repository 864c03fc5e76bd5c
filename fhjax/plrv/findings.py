"""One verdict from many tests: each family of tests becomes a finding, and Holm's rule joins the findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fhjax.plrv import fit_tests
from fhjax.plrv.streaming import SeriesSummary


@dataclasses.dataclass(frozen=True)
class Finding:
    """One family of tests, judged together."""

    name: str
    p_value: float  # adjusted within the family
    detail: str = ""


def verdict(findings: Sequence[Finding], level: float) -> tuple[bool, tuple[Finding, ...]]:
    """Whether any finding refutes at ``level`` under Holm's rule over all of them, and which ones do.

    Examples:
        >>> verdict([Finding("mean", 0.2), Finding("variance", 1e-9)], 0.01)[1]
        (Finding(name='variance', p_value=1e-09, detail=''),)
    """
    adjusted = fit_tests.holm([finding.p_value for finding in findings])
    bad = tuple(finding for finding, p in zip(findings, adjusted, strict=True) if p <= level)
    return bool(bad), bad


@dataclasses.dataclass(frozen=True)
class SeriesTests:
    """p-values of the three tests of fit for every series (s,)."""

    variance: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    anderson_darling: npt.NDArray[np.float64]

    def items(self):
        return (("variance", self.variance), ("mean", self.mean), ("Anderson-Darling", self.anderson_darling))


def series_tests(summary: SeriesSummary, live: npt.NDArray[np.bool_] | None = None) -> SeriesTests:
    """The three tests for each series; those outside ``live`` are left out."""
    n = int(summary.count)
    keep = slice(None) if live is None else live
    return SeriesTests(
        variance=fit_tests.variance_p_value(np.asarray(summary.square_total)[keep], n),
        mean=fit_tests.mean_p_value(np.asarray(summary.total)[keep], n),
        anderson_darling=fit_tests.anderson_darling_p_value(np.asarray(summary.histogram)[keep]),
    )


def series_findings(
    what: str, tests: SeriesTests, labels: Sequence[str], *, independent: bool, level: float = 0.01
) -> list[Finding]:
    """Findings of one pass over all areas: the smallest Holm-adjusted p-value, and the uniformity of all of them.

    ``independent``: the series are independent, so the p-values must look uniform.
    """
    found = []
    for name, p in tests.items():
        if len(p) == 0:
            continue
        adjusted = fit_tests.holm(p)
        worst = int(np.argmin(adjusted))
        rejected = int((adjusted <= level).sum())
        discovered = int((fit_tests.benjamini_hochberg(p) <= level).sum())
        detail = f"smallest in {labels[worst]}; {rejected:,} of {len(p):,} rejected by Holm, {discovered:,} by BH"
        found.append(Finding(f"{what}: {name}", float(adjusted[worst]), detail))
        if independent and len(p) >= 5:
            uniform = fit_tests.uniformity_p_value(p)
            found.append(Finding(f"{what}: uniformity of the {name} p-values", uniform, f"over {len(p):,} areas"))
    return found


def pooled_variance_finding(what: str, summary: SeriesSummary, live: Any) -> Finding:
    """All independent series together: sees a common fault in the variance that no single area shows."""
    square = np.asarray(summary.square_total)[live]
    count = int(summary.count) * len(square)
    ratio = float(square.sum()) / count if count else 1.0
    p = float(fit_tests.variance_p_value(square.sum(), count)) if count else 1.0
    return Finding(
        f"{what}: variance of all areas together", p, f"observed / claimed {ratio:.5f} over {count:,} losses"
    )


def tail_finding(what: str, summary: SeriesSummary, live: Any) -> Finding:
    """How many standardised values lie beyond the farthest edge at which at least 5 are expected, at most 5.5."""
    histogram = np.asarray(summary.histogram)[live].sum(axis=0)
    n = histogram.sum()
    edges = fit_tests.EDGES[(fit_tests.EDGES >= 2.0) & (fit_tests.EDGES <= 5.5)]
    expected = 2.0 * stats.norm.sf(edges) * n
    enough = np.flatnonzero(expected >= 5.0)
    if not len(enough):
        return Finding(f"{what}: far tails", 1.0, "too few draws to see them")
    edge = edges[enough[-1]]
    inner = np.abs(fit_tests.EDGES) <= edge
    first, last = np.flatnonzero(inner)[[0, -1]]
    seen = int(histogram[: first + 1].sum() + histogram[last + 1 :].sum())
    rate = float(expected[enough[-1]])
    p = min(1.0, 2.0 * min(stats.poisson.cdf(seen, rate), stats.poisson.sf(seen - 1, rate)))
    return Finding(f"{what}: far tails", float(p), f"{seen:,} beyond {edge:g} standard deviations, {rate:.1f} expected")


def repeated_values_finding(what: str, draws: npt.NDArray[np.float64]) -> Finding:
    """Values that occur twice in the draws (n, s) of a series: a continuous law never repeats, float32 normals do.

    n draws of a generator with 2^23 different values repeat n^2 / 2^24 times.
    """
    ordered = np.sort(draws, axis=0)
    # A constant series has no noise at all; the variance test says so.
    repeats = int((np.diff(ordered, axis=0) == 0.0).sum())
    pairs = draws.shape[1] * draws.shape[0] * (draws.shape[0] - 1) / 2
    expected = pairs * 2.0**-48  # pairs of 52-bit uniforms, with room for the unequal spacing of normals
    p = float(stats.poisson.sf(repeats - 1, expected)) if repeats else 1.0
    return Finding(f"{what}: repeated values", p, f"{repeats:,} among {draws.size:,} draws")
