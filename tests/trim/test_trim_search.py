"""The search: against closed forms, brute force, the counter-example to monotony, and rho recomputed from records."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import trim_oracle

from fhjax.caps.evaluate import Problem, Settings, evaluate, log_bounds
from fhjax.caps.plan import plan_trimming, trimming_problem
from fhjax.caps.rules import trim_weights
from fhjax.caps.search import estimates_on, first_grid, search_by_area, search_by_gradient, settle
from fhjax.caps.shares import realised_shares
from fhjax.errors import InputError
from fhjax.records import Labels, TrimmingSums
from fhjax.survey.arrays import trimming_sums_from_arrays

R = 8
MULTIPLES = np.full(R, 1.0 / R)


def random_survey(seed: int, m: int, n: int = 24):
    """m areas of n records with distinct weights, so that all problems have one shape, and BRR-like replicates."""
    rng = np.random.default_rng(seed)
    area = np.repeat(np.arange(m), n)
    w = np.exp(rng.normal(scale=rng.uniform(0.5, 1.2), size=m * n))
    p = np.clip(rng.normal(0.4, rng.uniform(0.03, 0.2), m), 0.1, 0.9)
    y = (rng.random(m * n) < p[area]).astype(float)
    for k in range(m):  # no constant outcome
        y[k * n], y[k * n + 1] = 0.0, 1.0
    replicates = w[:, None] * rng.choice([0.5, 1.5], (m * n, R)) * 1.0
    return w, y, area, replicates


def rho_from_records(w, y, area, replicates, trimmed, joint="correlated", X=None, fay=0.5):
    """The plain route, dense: realised weights -> estimates, replicate variances, REML, rho."""
    m = area.max() + 1
    factor = trimmed / w
    estimates, psi = np.empty(m), np.empty(m)
    for k in range(m):
        here = area == k
        estimates[k] = trim_oracle.estimate(trimmed[here], y[here])
        psi[k] = trim_oracle.replicate_variance(
            trimmed[here], replicates[here] * factor[here, None], y[here], MULTIPLES / (1 - fay) ** 2
        )
    X = np.ones((m, 1)) if X is None else X
    s2 = trim_oracle.reml(estimates, psi, X)
    return trim_oracle.rho_terms(psi, s2, X, realised_shares(trimmed, area), joint), s2, psi, estimates


def problem_of(seed: int, m: int, **options):
    survey = random_survey(seed, m)
    sums = trimming_sums_from_arrays(survey[2], *survey[:2], replicates=survey[3])
    return survey, trimming_problem(sums, replicate_multiples=MULTIPLES / 0.25, **options)


def test_gradient_route_lands_on_the_closed_form_when_variances_are_frozen() -> None:
    m = 4
    settings = Settings(objective="weights", frozen=True)

    def route(data: Problem, target):
        _, high = log_bounds(data)
        goal = jnp.full((1, 1), target)
        grid = first_grid(data)
        values = estimates_on(grid, data, settings=settings)
        x = settle(search_by_gradient(high[None], goal, data, settings=settings), goal, data, settings)
        x = search_by_area(x, goal, grid, values, data, settings, rounds=0)
        return settle(x, goal, data, settings)[0]

    compared = 0
    for seed in range(6):
        _, problem = problem_of(seed, m, variances="frozen", objective="weights", model_variance=0.004)
        target = float(problem.before.terms.max()) * np.random.default_rng(seed).uniform(0.2, 0.9)
        # A target no area can be kept from: at least twice what equal weights give.
        equal = evaluate(log_bounds(problem.data)[0], problem.data, problem.settings).terms.max()
        target = max(target, 2.0 * float(equal))
        plan = plan_trimming(problem, target_rho=target)
        assert plan.status in ("certified", "frozen_only")  # with the variances held
        untrimmed = np.exp(log_bounds(problem.data)[1])
        expected = np.where(np.isinf(plan.threshold), untrimmed, plan.threshold)
        np.testing.assert_allclose(np.exp(np.asarray(route(problem.data, target))), expected, rtol=1e-6)
        compared += int(np.sum(expected < 0.999 * untrimmed))
    assert compared > 9  # areas that were trimmed


@functools.partial(jax.jit, static_argnames=("settings", "points"))
def product_grid(data: Problem, settings: Settings, points: int):
    """(objective, rho) at every combination of ``points`` caps an area, each with a full refit."""
    low, high = log_bounds(data)
    axis = high + jnp.linspace(0.0, 1.0, points)[:, None] * (low - high)
    digits = jnp.asarray(np.indices((points,) * len(low)).reshape(len(low), -1).T)

    def one(row):
        evaluation = evaluate(jnp.take_along_axis(axis, row[None], axis=0)[0], data, settings)
        return evaluation.objective, evaluation.terms.max()

    return jax.lax.map(one, digits, batch_size=1024)


def brute_force(problem, target: float, points: int):
    """Best objective that meets the target, and the smallest rho, over the whole product grid."""
    objective, rho = (np.asarray(value) for value in product_grid(problem.data, problem.settings, points))
    feasible = rho <= target
    return (objective[feasible].min() if feasible.any() else np.inf), rho.min()


@pytest.mark.parametrize(
    ("m", "points", "seeds", "objective"), [(3, 24, range(3), "eblup"), (6, 6, range(2), "direct")]
)
def test_small_problems_against_brute_force(m, points, seeds, objective) -> None:
    compared = 0
    for seed in seeds:
        survey, problem = problem_of(100 + seed, m, objective=objective)
        before = float(problem.before.terms.max())
        for share in (0.7, 0.25):
            target = before * share
            best, least = brute_force(problem, target, points)
            plan = plan_trimming(problem, target_rho=target)
            if np.isfinite(best):
                assert plan.certified, (seed, share, least)
                assert plan.mse_after.mean() <= best * 1.01
            assert plan.certified or plan.smallest_rho <= least * 1.01
            trimmed = np.minimum(survey[0], plan.threshold[survey[2]])
            terms, *_ = rho_from_records(*survey, trimmed)
            if plan.certified:
                assert terms.max() <= target * (1 + 1e-6)
            compared += 1
    assert compared == 2 * len(seeds)


@pytest.mark.parametrize(
    ("redistribution", "joint"), [("none", "independent"), ("proportional", "correlated"), ("additive", "correlated")]
)
def test_plans_certify_from_the_realised_weights(redistribution, joint) -> None:
    survey, problem = problem_of(7, 3, redistribution=redistribution, joint=joint)
    target = 0.4 * float(problem.before.terms.max())
    plan = plan_trimming(problem, target_rho=target)
    assert plan.certified
    assert plan.rho_after <= target
    w, y, area, replicates = survey
    trimmed = trim_weights(w, plan.cap, area, redistribution=redistribution)
    np.testing.assert_allclose(
        trimmed, plan.scale[area] * (np.minimum(w, plan.threshold[area]) + plan.lift[area]), rtol=1e-9
    )
    if redistribution != "none":
        np.testing.assert_allclose(np.bincount(area, trimmed), np.bincount(area, w), rtol=1e-10)
    terms, s2, psi, estimates = rho_from_records(w, y, area, replicates, trimmed, joint)
    np.testing.assert_allclose(terms, plan.rho_area_after, rtol=1e-5)
    np.testing.assert_allclose(psi, plan.sampling_variance_after, rtol=1e-9)
    np.testing.assert_allclose(estimates, plan.y_after, rtol=1e-10)
    assert s2 == pytest.approx(plan.model_variance_after, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("mode", "redistribution"),
    [("mean", "none"), ("mean", "additive"), ("median", "none"), ("absolute", "proportional")],
)
def test_one_number_for_all_areas(mode, redistribution) -> None:
    survey, problem = problem_of(21, 3, mode=mode, redistribution=redistribution)
    w, y, area, replicates = survey
    target = 0.6 * float(problem.before.terms.max())
    plan = plan_trimming(problem, target_rho=target)
    assert plan.certified
    trimmed = plan.scale[area] * (np.minimum(w, plan.threshold[area]) + plan.lift[area])
    terms, *_ = rho_from_records(w, y, area, replicates, trimmed)
    assert terms.max() <= target * (1 + 1e-6)
    for k in range(3):
        if np.isfinite(plan.threshold[k]):
            unit = {"mean": trimmed[area == k].mean(), "median": np.median(w[area == k]), "absolute": 1.0}[mode]
            assert plan.cap[k] == pytest.approx(plan.multiple * unit, rel=1e-8)
            assert trimmed[area == k].max() == pytest.approx(plan.cap[k], rel=1e-10)


def crowd(m: int = 3000) -> TrimmingSums:
    """The counter-example's area, 50 weights of 10 and 50 of 1, among many large areas of equal weights."""
    big = 100_000
    area = np.concatenate([[0, 0], np.arange(1, m)])
    size = np.concatenate([[1.0, 10.0], np.ones(m - 1)])
    units = np.concatenate([[50, 50], np.full(m - 1, big)])
    return TrimmingSums(
        labels=Labels(range(m)),
        centre=np.full(m, 0.5),
        area=area,
        size=size,
        units=units,
        records=units,
        weight=units * size,
        weight_square=units * size**2,
        outcome=np.zeros(len(size)),
    )


def test_rho_need_not_fall_with_the_cap() -> None:
    problem = trimming_problem(crowd(), objective="weights", element_variance=0.25, model_variance=1e-4)
    _, high = log_bounds(problem.data)
    compiled = jax.jit(evaluate, static_argnames="settings")
    rho = []
    for cap in (10, 5, 3, 2, 1.5, 1.2, 1):
        rho.append(float(compiled(high.at[0].set(np.log(cap)), problem.data, settings=problem.settings).terms[0]))
    np.testing.assert_allclose(1000 * np.array(rho), [0.927, 1.036, 1.116, 1.112, 1.026, 0.901, 0.769], atol=1.1e-3)
    # Between the untrimmed rho and the peak a small step down in the cap makes matters worse; the answer is far away.
    plan = plan_trimming(problem, target_rho=0.0009)
    assert plan.status == "frozen_only"  # these sums hold nothing that a report could estimate variances from
    assert 1.19 < plan.threshold[0] < 1.2
    assert plan.rho_after == pytest.approx(0.0009, rel=1e-6)
    # Just above the untrimmed rho hardly anything may be trimmed: most caps would break the target.
    slight = plan_trimming(problem, target_rho=0.00095)
    assert slight.status == "frozen_only"
    assert slight.threshold[0] > 9.0
    # A target below what equal weights give cannot be met, and says so.
    beyond = plan_trimming(problem, target_rho=0.0007)
    assert beyond.status == "not_met"
    assert beyond.infeasible_areas == ("0",)
    assert beyond.smallest_rho == pytest.approx(0.000769, rel=2e-3)
    assert "NOT met" in beyond.statements[-1]


def test_areas_that_cannot_be_helped_are_named() -> None:
    rng = np.random.default_rng(5)
    w = np.concatenate([np.full(4, 2.0), [1.0], np.exp(rng.normal(size=60))])
    area = np.concatenate([np.zeros(4), [1], np.full(60, 2)]).astype(int)
    y = rng.random(65)
    sums = trimming_sums_from_arrays(area, w, y, labels=["equal", "one", "many"])
    options = {"element_variance": 0.05, "model_variance": 0.01}
    frozen = plan_trimming(sums, target_rho=0.2, variances="frozen", **options)
    assert not frozen.certified
    assert frozen.infeasible_areas == ("equal", "one")
    assert np.isinf(frozen.threshold[0])
    assert np.isinf(frozen.threshold[1])
    refitted = plan_trimming(sums, target_rho=0.2, **options)
    assert refitted.infeasible_areas == ("equal", "one")
    assert refitted.rho_area_after[2] <= 0.2  # the area that can meet the target does
    assert refitted.rho_after > 0.2
    assert refitted.smallest_rho == pytest.approx(refitted.rho_after, rel=1e-6)


def test_a_target_for_each_area() -> None:
    survey, _ = problem_of(31, 3)
    sums = trimming_sums_from_arrays(survey[2], *survey[:2], replicates=survey[3])
    problem = trimming_problem(sums, replicate_multiples=MULTIPLES / 0.25, per_area_targets=True)
    target = np.asarray(problem.before.terms) * [0.5, 0.8, 0.6]
    plan = plan_trimming(problem, target_rho=target)
    assert plan.certified
    trimmed = np.minimum(survey[0], plan.threshold[survey[2]])
    _, s2, psi, _ = rho_from_records(*survey, trimmed)
    rho = trim_oracle.per_area_rho(psi, s2, np.ones((3, 1)), realised_shares(trimmed, survey[2]))
    assert np.all(rho <= target * (1 + 1e-5))


def test_gradients_reach_from_caps_to_rho_through_the_refit() -> None:
    _, problem = problem_of(41, 4, joint="independent", objective="draw")
    low, high = log_bounds(problem.data)
    x = 0.6 * high + 0.4 * low + 1e-3

    def numbers(x):
        evaluation = evaluate(x, problem.data, problem.settings)
        return jnp.concatenate([evaluation.terms, evaluation.objective[None], evaluation.model_variance[None]])

    slopes = np.asarray(jax.jacrev(numbers)(x))
    h = 1e-6
    for k in range(4):
        step = h * (jnp.arange(4) == k)
        difference = (numbers(x + step) - numbers(x - step)) / (2 * h)
        np.testing.assert_allclose(slopes[:, k], difference, rtol=2e-6, atol=1e-10)
    assert np.abs(slopes[-1]).min() > 0  # every cap moves the model variance


def test_contradictions_are_refused() -> None:
    w, y, area, replicates = random_survey(1, 2)
    sums = trimming_sums_from_arrays(area, w, y, replicates=replicates)
    options = {"replicate_multiples": MULTIPLES}
    for change, message in (
        ({"target_rho": -1.0}, "target rho must be a positive"),
        ({"target_rho": 1.0, "mode": "each"}, "mode must be one of"),
        ({"target_rho": 1.0, "objective": "weights"}, "public number"),
        ({"target_rho": 1.0, "group": [0, 0]}, "choose a redistribution"),
        ({"target_rho": 1.0, "group": [0, 0], "redistribution": "additive", "mode": "mean"}, "cap for each area"),
        ({"target_rho": [1.0, 1.0, 1.0]}, "2 areas but 3 targets"),
        ({"target_rho": 1.0, "X": np.ones(3)}, "X must be a finite array"),
        ({"target_rho": 1.0, "emphasis": [1.0, -1.0]}, "emphasis"),
    ):
        with pytest.raises(InputError, match=message):
            plan_trimming(sums, **{**options, **change})
    constant = trimming_sums_from_arrays(area, w, np.ones_like(y), replicates=replicates)
    with pytest.raises(InputError, match=r"2 areas have no positive design variance.*'0', '1'"):
        plan_trimming(constant, target_rho=1.0, **options)


@pytest.mark.parametrize("redistribution", ["proportional", "additive"])
def test_groups_wider_than_areas(redistribution) -> None:
    group = np.array([0, 0, 1])
    survey, problem = problem_of(51, 3, redistribution=redistribution, group=group, variances="frozen")
    w, _, area, _ = survey
    target = 0.5 * float(problem.before.terms.max())
    plan = plan_trimming(problem, target_rho=target)
    assert plan.certified
    trimmed = plan.scale[area] * (np.minimum(w, plan.threshold[area]) + plan.lift[area])
    np.testing.assert_allclose(np.bincount(group[area], trimmed), np.bincount(group[area], w), rtol=1e-10)
    np.testing.assert_allclose(realised_shares(trimmed, area), plan.share_after, rtol=1e-9)
    assert np.all(trimmed <= plan.cap[area] * (1 + 1e-12))
    s2 = float(problem.data.model_variance)
    terms = trim_oracle.rho_terms(plan.sampling_variance_before, s2, np.ones((3, 1)), plan.share_after)
    assert terms.max() <= target * (1 + 1e-9)
