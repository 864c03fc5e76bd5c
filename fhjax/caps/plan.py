"""From a target rho to a trimming plan: problem, search, certificate, and what the methodologist wants to know."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.caps.certificate import recomputed_rho, report_rho
from fhjax.caps.closed_forms import JOINTS, MODES, admissible_shares
from fhjax.caps.evaluate import OBJECTIVES, Evaluation, Problem, Settings, log_bounds, sums_at
from fhjax.caps.one_number import search_on_line
from fhjax.caps.rules import REDISTRIBUTIONS
from fhjax.caps.search import (
    GRID,
    Found,
    best_of,
    estimates_on,
    first_grid,
    found_at,
    look,
    search,
    search_by_area,
    search_by_coordinate,
    settle,
    starts_from_all,
)
from fhjax.caps.tables import Tables, TrimmedSums, build_tables, sizes_of, thresholds_for_shares, untrimmed_sums
from fhjax.caps.trimmed_estimates import TrimmedEstimates, VarianceRule, trimmed_estimates, variance_rule
from fhjax.entrance import require_float64
from fhjax.errors import InputError, Status, complain
from fhjax.model.fit import fit, given
from fhjax.records import AreaData, FloatArray, Labels, TrimmingPlan, TrimmingSums

Joint = Literal["correlated", "independent"]
Mode = Literal["area", "mean", "median", "absolute"]
Redistribution = Literal["none", "proportional", "additive"]
Variances = Literal["frozen", "reestimated"]
Objective = Literal["direct", "eblup", "draw", "weights"]

#: Up to this many areas every area is searched with a full refit at each point; above, the ties between areas are weak.
FEW_AREAS = 10
#: Combinations of thresholds that are tried outright with very few areas.
COMBINATIONS = 40_000

_bounds = jax.jit(log_bounds)


@jax.jit
def _original(tables: Tables, rule: VarianceRule) -> tuple[TrimmedEstimates, TrimmedSums]:
    sums = untrimmed_sums(tables)
    return trimmed_estimates(tables, sums, rule, sums), sums


def _at(x: jax.Array, problem: Problem, settings: Settings) -> Evaluation:
    # Twice the same point, because searches run from two starts: one compilation serves all.
    evaluation, _ = look(jnp.stack([x, x]), problem, settings=settings)
    return jax.tree.map(lambda leaf: leaf[0], evaluation)


@partial(jax.jit, static_argnames="settings")
def _lift(x: jax.Array, data: Problem, settings: Settings) -> jax.Array:
    _, lift = sums_at(x, data, settings)
    return jnp.zeros_like(x) if lift is None else lift


@partial(jax.jit, static_argnames="lifted")
def _thresholds(tables: Tables, share: jax.Array, lifted: bool) -> jax.Array:
    return jnp.log(thresholds_for_shares(tables, share, lifted=lifted))


@dataclasses.dataclass(frozen=True)
class TrimmingProblem:
    """A trimming problem ready to be solved: made once by :func:`trimming_problem`, solved for many targets."""

    labels: Labels
    sums: TrimmingSums
    data: Problem
    settings: Settings
    joint: str
    mode: str
    redistribution: str
    objective: str
    before: Evaluation
    report_rule: VarianceRule | None  # estimated design variances, as the report has them; None: the sums hold none
    report_method: str = "reml"  # how the report estimates the model variance

    @property
    def variances(self) -> str:
        return "frozen" if self.settings.frozen else "reestimated"


def trimming_problem(
    sums: TrimmingSums,
    *,
    X: npt.ArrayLike | None = None,
    joint: Joint = "correlated",
    mode: Mode = "area",
    redistribution: Redistribution = "none",
    group: npt.ArrayLike | None = None,
    variances: Variances = "reestimated",
    objective: Objective = "eblup",
    method: str = "reml",
    replicate_multiples: npt.ArrayLike | None = None,
    center: str = "full",
    element_variance: float | npt.ArrayLike | None = None,
    model_variance: float | None = None,
    emphasis: npt.ArrayLike | None = None,
    per_area_targets: bool = False,
) -> TrimmingProblem:
    """Arguments as in :func:`plan_trimming`."""
    require_float64()
    _check(joint=(joint, JOINTS), mode=(mode, MODES), redistribution=(redistribution, REDISTRIBUTIONS),
           variances=(variances, ("frozen", "reestimated")), objective=(objective, OBJECTIVES))  # fmt: skip
    sums, X_used, emphasis_used, group_used = _usable(sums, X, emphasis, group)
    if objective == "weights":
        if model_variance is None:
            raise InputError(
                "objective='weights' must not touch outcomes, so the model variance must be a public number: give "
                "model_variance, for example last year's published one."
            )
        # Without another public number, the largest that the outcome's range allows.
        element_variance = sums.outcome_range**2 / 4.0 if element_variance is None else element_variance
    if group_used is not None and redistribution == "none":
        raise InputError("A group is where trimmed weight is shared out: choose a redistribution, or no group.")
    if group_used is not None and mode != "area":
        raise InputError("Groups wider than areas go with a cap for each area (mode='area').")
    multiples = None if replicate_multiples is None else np.asarray(replicate_multiples, dtype=float)
    rule = variance_rule(sums, multiples=multiples, center=center, element_variance=element_variance)
    estimable = multiples is not None or sums.cluster_squares is not None
    report_rule = variance_rule(sums, multiples=multiples, center=center) if estimable else None
    tables = build_tables(sums)
    original, _ = _original(tables, rule)
    psi = np.asarray(original.sampling_variance)
    bad = ~(np.isfinite(psi) & (psi > 0.0))
    if bad.any():
        raise complain(
            "have no positive design variance before trimming",
            sums.labels.where(bad),
            "Their guarantee is infinite whatever the weights: leave them out, or pool areas.",
        )
    known = model_variance is not None
    data = AreaData(y=jnp.asarray(sums.centre), sampling_variance=jnp.asarray(psi), X=jnp.asarray(X_used),
                    labels=sums.labels, columns=tuple(f"x{j}" for j in range(X_used.shape[1])))  # fmt: skip
    fitted = given(data, model_variance) if model_variance is not None else fit(data, method=method)
    weights = emphasis_used / emphasis_used.sum()
    settings = Settings(
        joint="per_area" if per_area_targets else joint,
        objective=objective,
        frozen=variances == "frozen",
        method="given" if known else method,
        additive=redistribution == "additive",
        num_groups=0 if group_used is None else int(group_used.max()) + 1,
        intercept_only=bool(np.all(X_used == 1.0) and X_used.shape[1] == 1),
    )
    problem = Problem(
        tables=tables,
        rule=rule,
        centre=jnp.asarray(sums.centre),
        X=jnp.asarray(X_used),
        outcome_range=jnp.asarray(float(sums.outcome_range)),
        emphasis=jnp.asarray(weights),
        sampling_variance=jnp.asarray(psi),
        model_variance=jnp.asarray(fitted.model_variance),
        group=None if group_used is None else jnp.asarray(group_used),
    )
    before = _at(_bounds(problem)[1], problem, settings)
    return TrimmingProblem(
        sums.labels, sums, problem, settings, joint, mode, redistribution, objective, before, report_rule, method
    )


def plan_trimming(
    sums: TrimmingSums | TrimmingProblem,
    *,
    target_rho: float | npt.ArrayLike,
    **options: Any,
) -> TrimmingPlan:
    """Weight caps whose release meets a target rho at the least estimated mean squared error.

    Args:
        sums: a survey's sums by distinct weight, or a problem made of them by :func:`trimming_problem`.
        target_rho: the target of the joint release; or (m,), one for publishing each area's draw, in label order.
        X: (m, p) public covariates, intercept included; None: an intercept.
        joint: ``"correlated"``, one draw of the whole posterior, or ``"independent"``, the areas drawn independently.
        mode: ``"area"``: a cap for each area; ``"mean"``, ``"median"``: one multiple of each area's mean weight after
            trimming, or median original weight; ``"absolute"``: one cap.
        redistribution: ``"none"``, ``"proportional"`` or ``"additive"`` (equal shares until none exceeds its cap).
        group: (m,) redistribution group of each area; None: within the area.
        variances: ``"reestimated"``: direct estimates, design variances and the model are refitted to the trimmed
            weights. ``"frozen"``: design and model variances stay as they were, and the caps are closed forms.
        objective: the estimated MSE of ``"direct"`` estimates, of ``"eblup"`` s, of released draws (``"draw"``); or
            ``"weights"``, the largest shift that the weights allow, which looks at no outcome.
        method: how the model variance is estimated.
        replicate_multiples: (R,) multiples of the squared replicate deviations; None: Taylor linearisation.
        center: what replicate deviations are taken from, ``"full"`` or ``"replicates"``.
        element_variance: public S^2, for design variances S^2 sum p^2; with ``"weights"`` R^2/4 unless given.
        model_variance: a public model variance, not re-estimated.
        emphasis: (m,) importance of each area's MSE; None: all the same.

    Returns:
        A :class:`~fhjax.records.TrimmingPlan`. ``certified`` is true only if ``rho_report``, recomputed from the
        trimmed
        weights by the route of the report (estimates, design variances, a fresh fit), does not exceed the target. A
        plan
        that meets it only with variances held or given has the status ``"frozen_only"`` and is not certified. Where the
        target cannot be met, ``infeasible_areas`` names the areas, ``smallest_rho`` is what trimming was found to
        reach, and the caps are those of least rho for these areas.

    Raises:
        InputError: options that contradict each other, a target that is not positive, areas without a variance.

    Neighbours: bounded, one privacy unit's outcome replaced; weights, caps, design and model variances fixed. Caps that
    were chosen by outcomes or estimated variances are invariants: the guarantee holds conditionally on them.

    Source: docs/trimming.md.

    Examples:
        >>> import numpy as np
        >>> import fhjax
        >>> rng = np.random.default_rng(1)
        >>> weight, outcome = rng.lognormal(0.0, 1.0, 120), rng.integers(0, 2, 120)
        >>> replicates = weight[:, None] * rng.choice([0.5, 1.5], (120, 8))
        >>> sums = fhjax.trimming_sums_from_arrays(np.arange(120) % 6, weight, outcome, replicates=replicates)
        >>> plan = plan_trimming(sums, target_rho=0.2, replicate_multiples=np.full(8, 4 / 8))
        >>> plan.certified, plan.rho_before > 1.2
        (True, True)
    """
    target = np.asarray(target_rho, dtype=float)
    if not np.all(np.isfinite(target) & (target > 0.0)):
        raise InputError("The target rho must be a positive number.")
    if isinstance(sums, TrimmingProblem):
        if options:
            raise InputError("The options belong to trimming_problem(), which has been called already.")
        problem = sums
    else:
        problem = trimming_problem(sums, per_area_targets=target.ndim == 1, **options)
    if target.ndim == 1 and target.shape != (len(problem.labels),):
        raise InputError(f"There are {len(problem.labels):,} areas but {target.size:,} targets.")
    if (target.ndim == 1) != (problem.settings.joint == "per_area"):
        raise InputError("A target for each area needs a problem made with per_area_targets=True.")
    wanted = jnp.asarray(target)
    found, number = solve(problem, wanted)
    return describe(problem, found, target, number)


def solve(problem: TrimmingProblem, target: jax.Array) -> tuple[Found, float | None]:
    """The best thresholds for a target, and the one number behind them if there is one."""
    data, settings = problem.data, problem.settings
    if problem.mode != "area":
        unit = np.ones(len(problem.labels))
        if problem.mode == "median":
            unit = sizes_of(problem.sums).quantile(0.5)
        total_kept = problem.redistribution != "none"
        found, number = search_on_line(
            target, jnp.asarray(unit), data, settings, mode=problem.mode, total_kept=total_kept
        )
        return found, float(number)
    if settings.frozen and settings.num_groups == 0:
        return frozen_solution(problem, target), None
    grid = first_grid(data)
    values = estimates_on(grid, data, settings=settings)
    goals = _goals(target)
    starts = _starts(problem, target)
    found = search(starts, jnp.repeat(goals, len(starts), axis=0), grid, values, data, settings)
    m = len(problem.labels)
    if m > FEW_AREAS:
        return best_of(found), None

    def by_coordinate(start: jax.Array) -> Found:
        each = jnp.repeat(goals, len(start), axis=0)
        return found_at(search_by_coordinate(start, each, grid, data, settings=settings), each, data, settings)

    starts = jnp.concatenate([starts, *(one.log_threshold for one in found[:2])])
    points = min(int(COMBINATIONS ** (1.0 / m)), GRID // 2)
    if points >= 3:
        starts = jnp.concatenate([starts, starts_from_all(goals[0], grid, data, settings=settings, points=points)])
    best = best_of([*found, by_coordinate(starts)])
    again = jnp.repeat(best.log_threshold, len(goals) * 2, axis=0)
    found = search(again, jnp.repeat(goals, 2, axis=0), grid, values, data, settings)
    return best_of([best, *found]), None


def _starts(problem: TrimmingProblem, target: jax.Array) -> jax.Array:
    """(2, m) nothing trimmed, and the closed-form caps of fixed variances."""
    _, high = _bounds(problem.data)
    return jnp.stack([high, _closed_form(problem, target)])


def _closed_form(problem: TrimmingProblem, target: jax.Array) -> jax.Array:
    data = problem.data
    goal = np.asarray(target)
    shares = admissible_shares(
        np.asarray(data.sampling_variance),
        float(data.model_variance),
        np.asarray(data.X),
        goal,
        outcome_range=float(data.outcome_range),
        joint=problem.joint,  # type: ignore[arg-type]
        labels=problem.labels,
    )
    return _thresholds(data.tables, jnp.asarray(shares), lifted=problem.settings.additive)


def frozen_solution(problem: TrimmingProblem, target: jax.Array) -> Found:
    """The least trimming that meets the target when variances are held: exact, no search."""
    x = _closed_form(problem, target * (1.0 - 1e-13))
    return found_at(x[None], _goals(target), problem.data, problem.settings)


def _goals(target: jax.Array) -> jax.Array:
    """(1, 1) or (1, m)."""
    return jnp.reshape(target, (1, -1))


def least_rho(problem: TrimmingProblem, target: jax.Array) -> Found:
    """The smallest rho that trimming was found to reach, on the way down from the untrimmed one."""
    data, settings = problem.data, problem.settings
    if settings.frozen and settings.num_groups == 0:
        return frozen_solution(problem, target)
    low, high = _bounds(data)
    grid = first_grid(data)
    values = estimates_on(grid, data, settings=settings)
    goals = _goals(target)
    top = float(jnp.max(problem.before.terms / target))
    rungs = np.concatenate([[1e-300], np.geomspace(1e-4, 1.0, 15)])
    ladder = goals * jnp.maximum(jnp.asarray(rungs * top)[:, None], 1e-300)
    start = jnp.broadcast_to(low, (len(rungs), len(low))).at[0].set(high)
    x = search_by_area(start, ladder, grid, values, data, settings)
    x = jnp.concatenate([x.at[-1].set(low), settle(x, ladder, data, settings)])
    found = found_at(x, goals, data, settings)
    best = int(jnp.argmin(found.excess))
    return jax.tree.map(lambda leaf: leaf[best : best + 1], found)


def describe(problem: TrimmingProblem, found: Found, target: FloatArray, number: float | None) -> TrimmingPlan:
    """The plan at thresholds, certified or not, with everything that is reported."""
    settings, data, sums = problem.settings, problem.data, problem.sums
    least = None
    if float(found.excess[0]) > 0.0:
        least = least_rho(problem, jnp.asarray(target)) if problem.mode == "area" else found
        if problem.mode == "area":
            found = _feasible_part(problem, found, least, target)
    x, evaluation = found.log_threshold[0], jax.tree.map(lambda leaf: leaf[0], found.evaluation)
    after = recomputed_rho(problem, evaluation, frozen=settings.frozen)
    met = bool(np.all(after <= target)) and not Status(int(evaluation.status)).failed
    reported = report_rho(problem, x)
    status = "certified" if np.all(reported <= target) else "frozen_only" if met else "not_met"
    names: tuple[str, ...] = ()
    smallest = float(np.max(after))
    if status == "not_met":
        source = np.asarray((least or found).evaluation.terms[0])
        names = tuple(problem.labels.where(source > target))
        smallest = float(min(np.max(source), smallest))
    _, original = _original(data.tables, data.rule)
    lifts = np.asarray(_lift(x, data, settings=settings))
    sizes = sizes_of(sums)
    threshold = np.exp(np.asarray(x))
    untouched = threshold >= sizes.largest * (1.0 - 1e-15)
    scale = _scales(problem, original, evaluation.estimates)
    rows = np.repeat(threshold, np.diff(sizes.start))
    count = sizes.per_area(sizes.count * (sizes.size > rows * (1.0 + 1e-15)))
    removed = sizes.per_area(sizes.count * np.maximum(sizes.size - rows, 0.0))
    before_median = sizes.quantile(0.5)
    kish = [np.asarray(one.weight) ** 2 / np.asarray(one.weight_square) for one in (original, evaluation.estimates)]
    other = recomputed_rho(problem, evaluation, frozen=not settings.frozen)
    return TrimmingPlan(
        labels=problem.labels,
        threshold=np.where(untouched, np.inf, threshold),
        scale=scale,
        lift=lifts,
        cap=np.where(untouched & (lifts == 0.0) & (scale == 1.0), np.inf, scale * (threshold + lifts)),
        multiple=number,
        target_rho=target,
        rho_before=float(np.max(problem.before.terms)),
        rho_after=float(np.max(after)),
        rho_after_frozen=float(np.max(after if settings.frozen else other)),
        rho_after_reestimated=float(np.max(other if settings.frozen else after)),
        smallest_rho=smallest,
        status=status,
        rho_report=float(np.max(reported)),
        infeasible_areas=names,
        units=sizes.num_units.astype(np.int64),
        units_trimmed=count.astype(np.int64),
        weight_before=np.asarray(original.weight),
        weight_removed=removed,
        share_before=np.asarray(problem.before.estimates.share),
        share_after=np.asarray(evaluation.estimates.share),
        median_before=before_median,
        median_after=scale * (np.minimum(before_median, threshold) + lifts),
        kish_n_eff_before=kish[0],
        kish_n_eff_after=kish[1],
        num_records=np.bincount(sums.area, weights=sums.records, minlength=len(threshold)).astype(np.int64),
        y_before=np.asarray(data.centre),
        y_after=np.asarray(data.centre + evaluation.estimates.shift),
        shift_variance=np.asarray(evaluation.estimates.shift_variance),
        sampling_variance_before=np.asarray(problem.before.estimates.sampling_variance),
        sampling_variance_after=np.asarray(evaluation.estimates.sampling_variance),
        mse_before=np.asarray(problem.before.mse),
        mse_after=np.asarray(evaluation.mse),
        rho_area_before=np.asarray(problem.before.terms),
        rho_area_after=after,
        model_variance_before=float(problem.before.model_variance),
        model_variance_after=float(evaluation.model_variance),
        joint=settings.joint,
        mode=problem.mode,
        redistribution=problem.redistribution,
        variances=problem.variances,
        objective=problem.objective,
        outcome_range=float(sums.outcome_range),
        privacy_unit=sums.privacy_unit,
        statements=statements(problem, status, names, smallest, target, float(np.max(after)), float(np.max(reported))),
    )


def _feasible_part(problem: TrimmingProblem, found: Found, least: Found, target: FloatArray) -> Found:
    """Areas that can meet the target do; the others are trimmed to their least rho."""
    beyond = np.asarray(least.evaluation.terms[0]) > target
    goal = np.where(beyond, np.asarray(least.evaluation.terms[0]) * (1.0 + 1e-6), target)
    x = jnp.where(jnp.asarray(beyond), least.log_threshold, found.log_threshold)
    x = settle(x, _goals(jnp.asarray(goal)), problem.data, problem.settings)
    return found_at(x, _goals(jnp.asarray(target)), problem.data, problem.settings)


def _scales(problem: TrimmingProblem, original: Any, trimmed: Any) -> FloatArray:
    if problem.redistribution != "proportional":
        return np.ones(len(problem.labels))
    before, after = np.asarray(original.weight), np.asarray(trimmed.weight)
    if problem.data.group is not None:
        group = np.asarray(problem.data.group)
        before, after = np.bincount(group, before)[group], np.bincount(group, after)[group]
    return np.where(after == before, 1.0, before / after)


def statements(
    problem: TrimmingProblem,
    status: str,
    names: tuple[str, ...],
    smallest: float,
    target: FloatArray,
    held: float,
    reported: float,
) -> tuple[str, ...]:
    """What a reader must know beside the numbers."""
    sentences = []
    if problem.objective == "weights":
        sentences.append(
            "The caps depend on the weights and on public numbers only, not on any outcome. The variances behind rho "
            "are those public numbers."
        )
    elif problem.settings.frozen:
        sentences.append(
            "The caps were computed from sampling variances that were estimated from confidential outcomes. The "
            "guarantee holds conditionally on the caps, which are treated as invariants like the variances."
        )
    else:
        sentences.append(
            "The caps were chosen by looking at confidential outcomes: estimates, their variances and shifts. The "
            "guarantee holds conditionally on the caps, which are treated as invariants like the variances."
        )
    kept = {"none": "is not kept", "proportional": "is kept", "additive": "is kept"}[problem.redistribution]
    sentences.append(
        f"The weights' total {kept}; calibration to other totals is undone by trimming and was not repeated."
    )
    goal = f"{float(np.max(target)):.6g}"
    if status == "frozen_only":
        sentences.append(held_only(goal, held, reported))
    elif status == "not_met":
        which = f" {len(names):,} areas stand in the way." if names else ""
        sentences.append(
            f"The target rho {goal} is NOT met: the smallest rho that trimming was found to reach is "
            f"{smallest:.6g}.{which}"
        )
    return tuple(sentences)


def held_only(goal: str, held: float, reported: float) -> str:
    """The sentence of a plan that meets its target only with variances that nobody will use."""
    return (
        f"The target rho {goal} is NOT met by the release: rho is {held:.6g} only with the plan's own variances "
        "(held as before trimming, or given); by the route of the report, which estimates them anew from the "
        f"trimmed weights, it is {reported:.6g}."
    )


def _usable(
    sums: TrimmingSums, X: Any, emphasis: Any, group: Any
) -> tuple[TrimmingSums, FloatArray, FloatArray, npt.NDArray[np.int64] | None]:
    m = sums.num_areas
    present = np.bincount(sums.area, weights=sums.size > 0.0, minlength=m) > 0
    if not present.all():
        raise complain(
            "have no unit with a positive weight",
            sums.labels.where(~present),
            "Drop them: nothing can be trimmed there.",
        )
    matrix = np.ones((m, 1)) if X is None else np.asarray(X, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != m or not np.all(np.isfinite(matrix)):
        raise InputError(f"X must be a finite array of shape ({m}, p), not of shape {matrix.shape}.")
    weights = np.ones(m) if emphasis is None else np.asarray(emphasis, dtype=float)
    if weights.shape != (m,) or np.any(~(weights >= 0.0)) or weights.sum() <= 0.0:
        raise InputError(f"emphasis must hold {m} numbers, none negative and not all 0.")
    groups = None
    if group is not None:
        _, groups = np.unique(np.asarray(group), return_inverse=True)
        if groups.shape != (m,):
            raise InputError(f"group must name one group for each of {m} areas.")
    return sums, matrix, weights, groups


def _check(**choices: tuple[str, tuple[str, ...]]) -> None:
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}.")


__all__ = ["TrimmingProblem", "describe", "plan_trimming", "solve", "trimming_problem"]
