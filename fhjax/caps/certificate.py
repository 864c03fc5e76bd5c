"""What a plan costs, by the public fit and guarantees: with the plan's variances, and as the report would."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from fhjax.caps.evaluate import Evaluation, Problem, Settings, sums_at
from fhjax.caps.tables import TrimmedSums
from fhjax.caps.trimmed_estimates import trimmed_estimates
from fhjax.errors import NumericalError
from fhjax.model.fit import area_data, fit, given
from fhjax.privacy.guarantee import guarantees
from fhjax.records import FloatArray, Guarantees

if TYPE_CHECKING:
    from fhjax.caps.plan import TrimmingProblem


def joint_terms(result: Guarantees, joint: str) -> FloatArray:
    """(m,) every area's term of a joint rho, whose maximum it is; or its own rho, for ``"per_area"``."""
    fields = {"independent": "joint_independent_terms", "per_area": "per_area_rho", "correlated": "own_area_rho"}
    return np.asarray(getattr(result, fields[joint]))


@partial(jax.jit, static_argnames="settings")
def _trimmed(x: jax.Array, data: Problem, settings: Settings) -> tuple[TrimmedSums, jax.Array | None]:
    return sums_at(x, data, settings)


def recomputed_rho(problem: TrimmingProblem, evaluation: Evaluation, *, frozen: bool) -> FloatArray:
    """(m,) every area's term of rho by the public fit and guarantees, from the trimmed estimates alone."""
    estimates = evaluation.estimates
    psi = np.asarray(problem.data.sampling_variance if frozen else estimates.sampling_variance)
    if not np.all(np.isfinite(psi)):
        return np.full(len(psi), np.inf)
    y = np.asarray(problem.data.centre) + np.asarray(estimates.shift)
    data = area_data(y, psi, np.asarray(problem.data.X), labels=problem.labels, intercept=False)
    known = frozen or problem.settings.method == "given"
    fitted = given(data, problem.data.model_variance) if known else fit(data, method=problem.settings.method)
    result = guarantees(data, fitted, float(problem.data.outcome_range) * np.asarray(estimates.share))
    return joint_terms(result, problem.settings.joint)


def report_rho(problem: TrimmingProblem, log_threshold: jax.Array) -> FloatArray:
    """(m,) every area's term of rho as a report or a release would state it for the trimmed weights: nothing held.

    With a given model variance, the larger of the two routes: estimated anew as by the report, and given as to a
    release. Infinite where the sums hold no design variance to estimate, or where the fit fails.
    """
    m = len(problem.labels)
    if problem.report_rule is None:
        return np.full(m, np.inf)
    trimmed, _ = _trimmed(log_threshold, problem.data, settings=problem.settings)
    estimates = trimmed_estimates(problem.data.tables, trimmed, problem.report_rule)
    psi = np.asarray(estimates.sampling_variance)
    if not np.all(np.isfinite(psi) & (psi > 0.0)):
        return np.full(m, np.inf)
    y = np.asarray(problem.data.centre) + np.asarray(estimates.shift)
    data = area_data(y, psi, np.asarray(problem.data.X), labels=problem.labels, intercept=False)
    try:
        fits = [fit(data, method=problem.report_method)]
    except NumericalError:
        return np.full(m, np.inf)
    if problem.settings.method == "given":
        fits.append(given(data, problem.data.model_variance))
    sensitivity = float(problem.data.outcome_range) * np.asarray(estimates.share)
    return np.max(
        [joint_terms(guarantees(data, fitted, sensitivity), problem.settings.joint) for fitted in fits], axis=0
    )
