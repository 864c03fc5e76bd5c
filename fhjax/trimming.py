"""A survey's weights trimmed to a target rho: the records' sums, the search and the plan, in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fhjax.assessment import model_data
from fhjax.caps.certificate import joint_terms
from fhjax.caps.plan import TrimmingProblem, plan_trimming, trimming_problem
from fhjax.errors import InputError
from fhjax.model.fit import fit, given
from fhjax.privacy.conversion import rho_for_epsilon
from fhjax.privacy.guarantee import guarantees
from fhjax.records import DirectEstimates, Labels, TrimmingPlan, TrimmingSums
from fhjax.survey.direct import direct_estimates
from fhjax.survey.read import Survey
from fhjax.survey.sorted_weights import trimming_sums
from fhjax.survey.variance import Replicates, Taylor


def trim(
    survey: Survey,
    *,
    target_rho: float | npt.ArrayLike | None = None,
    target_epsilon: float | None = None,
    delta: float | None = None,
    variance: Replicates | Taylor | None = None,
    zero_variance: str = "error",
    **options: Any,
) -> TrimmingPlan:
    """The weight caps with which one draw from the posterior costs at most a target rho.

    Args:
        survey: an open survey.
        target_rho: target of the joint release; or (m,), one for each area's own release, in label order.
        target_epsilon: instead, an epsilon at ``delta``, by the simple conversion rho + 2 sqrt(rho log(1/delta)).
        delta: of the conversion.
        variance: how design variances are estimated; needed with replicate weights.
        zero_variance: ``"error"`` or ``"exclude"`` areas whose design variance is 0.
        options: those of :func:`fhjax.caps.plan.plan_trimming`.

    Returns:
        A :class:`~fhjax.records.TrimmingPlan`; look at ``certified`` first.

    Raises:
        InputError: no or two targets, options that contradict each other, what the survey cannot give.

    Neighbours: bounded, one privacy unit's outcomes replaced; weights and caps fixed. Source: docs/trimming.md.

    Examples:
        >>> import fhjax
        >>> survey = fhjax.open_survey("example:nhanes0910_cholesterol", area=["race", "age", "sex"], weight="weight",
        ...     outcome="high_cholesterol = 1", strata="stratum", psu="psu", where="age <> '0-19'")
        >>> plan = trim(survey, target_rho=0.2)
        >>> plan.certified, bool(plan.rho_before > 0.2 >= plan.rho_report)
        (True, True)
    """
    target = target_of(target_rho, target_epsilon, delta)
    problem = problem_of(
        survey, variance=variance, zero_variance=zero_variance, per_area_targets=np.ndim(target) == 1, **options
    )
    return plan_trimming(problem, target_rho=target)


def certified_from_file(
    plan: TrimmingPlan,
    direct: DirectEstimates,
    *,
    X: npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    method: str = "reml",
    model_variance: float | None = None,
) -> TrimmingPlan:
    """The plan with its certificate recomputed from the weights that were written, by the route of the report.

    Args:
        plan: a plan of :func:`trim`.
        direct: direct estimates of the written file with its trimmed weights, read as any survey is.
        X, columns, method: as in :func:`fhjax.assess`.
        model_variance: a public model variance that a release would be given; its rho must be within the target too.

    Returns:
        The plan with ``rho_written``, and ``certified`` only if that does not exceed the target either.

    Raises:
        InputError: the written file has other areas than the plan.
    """
    if tuple(direct.labels) != tuple(plan.labels):
        raise InputError("The written file has other areas than the plan.")
    data = model_data(direct, X=X, columns=columns)
    fits = [fit(data, method=method)] + ([] if model_variance is None else [given(data, model_variance)])
    terms = np.max([joint_terms(guarantees(data, one, direct.sensitivity), plan.joint) for one in fits], axis=0)
    within = bool(np.all(terms <= plan.target_rho))
    written = float(np.max(terms))
    status, statements = plan.status, plan.statements
    if plan.certified and not within:
        status = "not_met"
        goal = f"{float(np.max(plan.target_rho)):.6g}"
        note = f"Recomputed from the written weights rho is {written:.17g}, above the target {goal}: not certified."
        statements = (*statements, note)
    return dataclasses.replace(plan, status=status, rho_written=written, statements=statements)


def target_of(rho: Any, epsilon: float | None, delta: float | None) -> Any:
    """The target rho that was asked for."""
    if (rho is None) == (epsilon is None):
        raise InputError("Give one target: target_rho, or target_epsilon with delta.")
    if epsilon is None:
        return rho
    if delta is None:
        raise InputError("target_epsilon needs the delta at which it is meant.")
    return float(rho_for_epsilon(epsilon, delta))


def problem_of(
    survey: Survey,
    *,
    variance: Replicates | Taylor | None = None,
    zero_variance: str = "error",
    direct: DirectEstimates | None = None,
    progress: Any = None,
    **options: Any,
) -> TrimmingProblem:
    """The trimming problem of a survey: its sums by distinct weight, restricted to the areas that can be estimated."""
    if zero_variance not in ("error", "exclude"):
        raise InputError(
            "Trimming needs each area's own design variance: zero_variance must be 'error' or 'exclude' here."
        )
    if direct is None:
        direct = direct_estimates(survey, variance=variance, zero_variance=zero_variance)  # pyright: ignore[reportArgumentType]
    taylor = not isinstance(variance, Replicates)
    single_psu = variance.single_psu if isinstance(variance, Taylor) else "error"
    sums = trimming_sums(survey, taylor=taylor, single_psu=single_psu, progress=progress)
    sums = restricted(sums, direct.labels)
    if isinstance(variance, Replicates):
        options |= {"replicate_multiples": variance.multiples(sums.num_replicates), "center": variance.center}
    return trimming_problem(sums, **options)


def restricted(sums: TrimmingSums, labels: Labels) -> TrimmingSums:
    """The sums of the named areas only, in their order (which is that of the labels)."""
    if tuple(labels) == tuple(sums.labels):
        return sums
    place = {label: i for i, label in enumerate(labels)}
    new = np.array([place.get(label, -1) for label in sums.labels])
    rows = new[sums.area] >= 0
    order = np.lexsort((sums.size[rows], new[sums.area[rows]]))

    def pick(values: Any) -> Any:
        return None if values is None else values[rows][order]

    kept = [i for i, k in enumerate(new) if k >= 0]
    per_row = ("size", "units", "records", "weight", "weight_square", "outcome", "replicate_weights",
               "replicate_outcomes", "cluster_linear", "cluster_squares")  # fmt: skip
    return dataclasses.replace(
        sums,
        labels=Labels(sums.labels[i] for i in kept),
        centre=sums.centre[kept],
        area=new[sums.area[rows]][order],
        **{name: pick(getattr(sums, name)) for name in per_row},
    )
