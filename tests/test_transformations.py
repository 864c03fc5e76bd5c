"""Every public numeric function under jit, vmap and grad, and gradients of rho against finite differences."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fhjax
from fhjax.errors import Status

M, N, R = 12, 600, 8
RNG = np.random.default_rng(7)
X = RNG.normal(size=(M, 2))
PSI = RNG.uniform(0.5, 2.0, M)
Y = X @ [1.0, 0.5] + 1.2 * RNG.normal(size=M)
DELTA = RNG.uniform(0.1, 0.3, M)
DATA = fhjax.area_data(Y, PSI, X)
FIT = fhjax.fit(DATA)
KEY = jax.random.key(3)

AREA = np.sort(np.concatenate([np.arange(M), RNG.integers(0, M, N - M)]))
WEIGHT = RNG.uniform(1.0, 6.0, N)
OUTCOME = RNG.binomial(1, 0.3, N).astype(float)
REPLICATES = WEIGHT[:, None] * RNG.choice([0.5, 1.5], (N, R))
STRATUM, PSU = RNG.integers(0, 3, N), RNG.integers(0, 40, N)
PSU = PSU * 3 + STRATUM
SDR, TAYLOR = fhjax.Replicates("sdr"), fhjax.Taylor()


def posterior_of(y):
    data = fhjax.area_data(y, PSI, X)
    return fhjax.posterior(data, fhjax.fit(data))


def sums(weight, **design):
    return fhjax.sums_from_arrays(AREA, weight, OUTCOME, num_areas=M, **design)


def refitted(direct):
    """All guarantees of direct estimates: the whole way from records to rho."""
    data = fhjax.area_data(direct.y, direct.sampling_variance, mask=direct.usable)
    return fhjax.guarantees(data, fhjax.fit(data), direct.sensitivity)


# name -> function of one array, and where it is evaluated; every number that comes out is looked at
FUNCTIONS = {
    "area_data": (lambda y: fhjax.area_data(y, PSI, X).y, Y),
    "fit": (lambda y: fhjax.fit(fhjax.area_data(y, PSI, X)).model_variance, Y),
    "fit by ml": (lambda y: fhjax.fit(fhjax.area_data(y, PSI, X), method="ml").beta, Y),
    "fit_kernel": (lambda psi: fhjax.fit_kernel(jnp.asarray(Y), psi, jnp.asarray(X)).beta, PSI),
    "given": (lambda s: fhjax.given(DATA, s).beta, 1.3),
    "posterior": (lambda y: posterior_of(y).mean, Y),
    "posterior_covariance": (lambda y: fhjax.posterior_covariance(posterior_of(y)).diagonal(), Y),
    "coefficients": (lambda psi: fhjax.coefficients(psi, 1.1, X).own(), PSI),
    "largest_effects": (lambda psi: fhjax.largest_effects(fhjax.coefficients(psi, 1.1, X), DELTA).effect, PSI),
    "guarantees": (lambda delta: fhjax.guarantees(DATA, FIT, delta).joint_correlated.rho, DELTA),
    "guarantees, no search": (lambda delta: fhjax.guarantees(DATA, FIT, delta, search_work=0).per_area_rho, DELTA),
    "intercept_guarantees": (lambda psi: fhjax.intercept_guarantees(psi, 1.0, DELTA).per_area_rho, PSI),
    "per_area_rho": (lambda psi: fhjax.per_area_rho(psi, 1.1, X, DELTA), PSI),
    "joint_rho_correlated": (lambda psi: fhjax.joint_rho_correlated(psi, 1.1, X, DELTA), PSI),
    "joint_rho_independent": (lambda psi: fhjax.joint_rho_independent(psi, 1.1, X, DELTA), PSI),
    "subset_guarantee": (lambda delta: fhjax.subset_guarantee(DATA, FIT, delta, np.arange(M) < 4).rho, DELTA),
    "regional_guarantee": (lambda delta: fhjax.regional_guarantee(DATA, FIT, delta, list("aabbccddeeff")).rho, DELTA),
    "linear_guarantee": (lambda L: fhjax.linear_guarantee(DATA, FIT, DELTA, L).rho, RNG.normal(size=(3, M))),
    "composed": (lambda delta: fhjax.composed([fhjax.guarantees(DATA, FIT, delta).joint_independent],
                                              other=[fhjax.OtherSpending(name="table", rho=delta[0])]).rho, DELTA),
    "repeated": (lambda delta: fhjax.repeated(fhjax.guarantees(DATA, FIT, delta).joint_correlated, 3).rho, DELTA),
    "epsilon_simple": (lambda rho: fhjax.epsilon_simple(rho, 1e-5), 0.3),
    "epsilon_tight": (lambda rho: fhjax.epsilon_tight(rho, 1e-5), 0.3),
    "epsilon_exact": (lambda rho: fhjax.epsilon_exact(rho, 1e-5), 0.3),
    "delta_exact": (lambda rho: fhjax.delta_exact(rho, 1.0), 0.3),
    "delta_tight": (lambda rho: fhjax.delta_tight(rho, 1.0), 0.3),
    "rho_for_epsilon": (lambda eps: fhjax.rho_for_epsilon(eps, 1e-5), 1.0),
    "renyi_curve": (lambda rho: fhjax.renyi_curve(rho, 3.0), 0.3),
    "renyi_divergence": (lambda shift: fhjax.renyi_divergence(2.0, shift, 1.0, 1.5), 0.4),
    "optimal_order": (lambda rho: fhjax.optimal_order(rho, 1e-5), 0.3),
    "trade_off_curve": (lambda rho: fhjax.trade_off_curve(rho, 0.05), 0.3),
    "personal_risk": (lambda rho: fhjax.personal_risk(rho, 1e-5).best_guess, 0.3),
    "draws": (lambda y: fhjax.draws(posterior_of(y), key=KEY, num_draws=3), Y),
    "draws within bounds": (lambda y: fhjax.draws(posterior_of(y), key=KEY, bounds=(-9.0, 9.0), outside="clip"), Y),
    "privacy_losses": (lambda s: fhjax.privacy_losses(DATA, s, key=KEY, area=1, change=0.2, num_draws=4), 1.1),
    "privacy_losses, independent": (
        lambda s: fhjax.privacy_losses(DATA, s, key=KEY, area=1, change=0.2, release="independent"), 1.1),
    "hajek_sensitivity": (lambda w: fhjax.hajek_sensitivity(w, jnp.full(M, 100.0)), DELTA),
    "horvitz_thompson_sensitivity": (lambda w: fhjax.horvitz_thompson_sensitivity(w, jnp.full(M, 100.0)), DELTA),
    "sums_from_arrays": (lambda w: sums(w).weighted_outcome_sum, WEIGHT),
    "direct_estimates, records": (lambda w: fhjax.direct_estimates(sums(w)).sampling_variance, WEIGHT),
    "direct_estimates, strata and PSUs": (
        lambda w: fhjax.direct_estimates(sums(w, stratum=STRATUM, psu=PSU, num_strata=3)).sampling_variance, WEIGHT),
    "direct_estimates, replicates": (
        lambda w: fhjax.direct_estimates(sums(w, replicates=REPLICATES), variance=SDR).sampling_variance, WEIGHT),
    "records to rho": (lambda w: refitted(fhjax.direct_estimates(sums(w))).joint_correlated.rho, WEIGHT),
    "trim_weights": (lambda cap: fhjax.trim_weights(WEIGHT, cap, AREA), np.full(M, 4.03)),
    "equal_weight_rho": (lambda n: fhjax.equal_weight_rho(DATA, FIT, n), np.full(M, 40.0)),
}  # fmt: skip
WITHOUT_GRADIENT = {"draws within bounds"}  # redrawing and clipping are not smooth, only defined


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jit_vmap_and_grad(name: str) -> None:
    function, at = FUNCTIONS[name]
    at = jnp.asarray(at, dtype=float)
    plain = np.asarray(function(at))
    assert np.isfinite(plain).all()
    np.testing.assert_allclose(jax.jit(function)(at), plain, rtol=1e-9, atol=1e-12)
    batch = jax.jit(jax.vmap(function))(jnp.stack([at, 1.01 * at]))
    np.testing.assert_allclose(batch[0], plain, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(batch[1], function(1.01 * at), rtol=1e-9, atol=1e-12)
    if name in WITHOUT_GRADIENT:
        return
    # One direction: the gradient of all that comes out, against a central difference of fourth order.
    direction = jnp.asarray(np.random.default_rng(1).normal(size=at.shape))
    total = jax.jit(lambda x: jnp.sum(function(x)))
    slope = float(jnp.sum(jax.jit(jax.grad(total))(at) * direction))
    step = 3e-4 * float(jnp.min(jnp.abs(at)) if "cap" not in name else 1.0)
    near, far = (float(total(at + h * step * direction) - total(at - h * step * direction)) for h in (1.0, 2.0))
    difference = (8.0 * near - far) / (12.0 * step)
    assert slope == pytest.approx(difference, rel=1e-6, abs=1e-8 * max(1.0, abs(float(total(at)))))


RELEASES = {
    "per area": lambda result: result.per_area_rho[3],
    "correlated": lambda result: result.joint_correlated.rho,
    "independent": lambda result: result.joint_independent.rho,
    "sequential": lambda result: result.sequential.rho,
}


def test_gradients_of_rho_agree_with_finite_differences() -> None:
    """With respect to weights, sampling variances, the model variance and caps, to 1e-7 in every coordinate."""
    # In the middle of the widest gap between an area's larger weights: on a weight itself there is a kink.
    heavy = [np.sort(WEIGHT[k == AREA])[-8:] for k in range(M)]
    caps = jnp.asarray([w[(g := np.diff(w)).argmax()] + g.max() / 2 for w in heavy])

    def all_of(result):
        return jnp.stack([pick(result) for pick in RELEASES.values()])

    def of_variances(psi):
        data = fhjax.area_data(Y, psi, X)
        return all_of(fhjax.guarantees(data, fhjax.fit(data), DELTA))

    def of_weights(w):
        return all_of(refitted(fhjax.direct_estimates(sums(w))))

    functions = {
        "weights": (of_weights, jnp.asarray(WEIGHT), range(0, N, 97)),
        "sampling variances": (of_variances, jnp.asarray(PSI), range(M)),
        "model variance": (
            lambda s: all_of(fhjax.guarantees(DATA, fhjax.given(DATA, s), DELTA)), jnp.asarray(1.3), [()]),
        "caps": (lambda cap: of_weights(jnp.minimum(WEIGHT, cap[AREA])), caps, range(M)),
    }  # fmt: skip
    for name, (function, at, coordinates) in functions.items():
        function, gradients = jax.jit(function), jax.jit(jax.jacrev(function))(at)
        for release, gradient in zip(RELEASES, gradients, strict=True):
            assert float(jnp.max(jnp.abs(gradient))) > 0.0, (name, release)
        for i in coordinates:
            # of fourth order, with a step that keeps rounding and truncation below the tolerance
            h = 2e-4 * float(jnp.abs(at[i]))
            values = [np.asarray(function(at.at[i].add(k * h))) for k in (-2, -1, 1, 2)]
            difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
            for release, gradient, wanted in zip(RELEASES, gradients, difference, strict=True):
                scale = float(jnp.max(jnp.abs(gradient)))
                assert float(gradient[i]) == pytest.approx(wanted, abs=1e-7 * scale, rel=1e-6), (name, release, i)


def test_inside_a_transformation_bad_input_is_infinite_with_a_status_and_never_nan() -> None:
    """Outside, the same input raises: nothing is hidden, nothing aborts a batch."""

    def study(y, psi, X, delta):
        data = fhjax.area_data(y, psi, X)
        fit = fhjax.fit(data)
        return fhjax.guarantees(data, fit, delta), fhjax.posterior(data, fit), fit

    def one(y=Y, psi=PSI, X=X, delta=DELTA):
        return tuple(jnp.asarray(value, dtype=float) for value in (y, psi, X, delta))

    nan_at = lambda values, i, bad=np.nan: np.where(np.arange(len(values)) == i, bad, values)  # noqa: E731
    problems = {
        "good": one(),
        "missing estimate": one(y=nan_at(Y, 2)),
        "missing variance": one(psi=nan_at(PSI, 2)),
        "negative variance": one(psi=nan_at(PSI, 2, -1.0)),
        "infinite variance": one(psi=nan_at(PSI, 2, np.inf)),
        "missing covariate": one(X=np.where(np.arange(M)[:, None] == 1, np.nan, X)),
        "collinear covariates": one(X=np.column_stack([X[:, 0], 2.0 * X[:, 0]])),
        "negative sensitivity": one(delta=nan_at(DELTA, 2, -0.1)),
        "missing sensitivity": one(delta=nan_at(DELTA, 2)),
        "infinite sensitivity": one(delta=nan_at(DELTA, 2, np.inf)),
    }
    stacked = [jnp.stack(parts) for parts in zip(*problems.values(), strict=True)]
    results, posteriors, fits = jax.jit(jax.vmap(study))(*stacked)
    posteriors = dataclasses.replace(posteriors, X=jnp.zeros(()))  # handed through as it came, missing values and all
    for leaf in jax.tree.leaves((results, posteriors, fits)):
        assert not np.isnan(np.asarray(leaf, dtype=float)).any()
    for i, name in enumerate(problems):
        rho = np.asarray(results.per_area_rho[i])
        joints = [
            float(getattr(results, kind).rho[i]) for kind in ("joint_correlated", "joint_independent", "sequential")
        ]
        if name == "good":
            assert int(results.status[i]) == Status.OK
            assert np.isfinite([*rho, *joints]).all()
        else:
            assert int(results.status[i]) >= Status.NOT_CONVERGED, name
            assert np.isinf([*rho, *joints]).all(), name
            with pytest.raises((fhjax.InputError, fhjax.NumericalError)):
                study(*(np.asarray(part) for part in problems[name]))


def test_a_posterior_of_other_data_certifies_nothing_inside_jit() -> None:
    other = fhjax.area_data(Y, 0.9 * PSI, X)
    result = jax.jit(lambda delta: fhjax.guarantees(DATA, fhjax.posterior(other, fhjax.given(other, 1.0)), delta))(
        DELTA
    )
    assert int(result.status) == Status.BAD_INPUT
    assert np.isinf(result.per_area_rho).all()


def test_sums_inside_jit_cannot_say_no_but_do_not_certify() -> None:
    """An outcome outside the bounds, a bad weight, a unit in two areas: the sensitivity of the area is infinite."""
    unit = np.arange(N)
    for weight, outcome, ids in (
        (WEIGHT, np.where(np.arange(N) == 5, 2.0, OUTCOME), unit),
        (np.where(np.arange(N) == 5, -1.0, WEIGHT), OUTCOME, unit),
        (WEIGHT, OUTCOME, np.where(np.arange(N) == N - 1, 5, unit)),
    ):
        made = lambda w: fhjax.sums_from_arrays(AREA, w, outcome, num_areas=M, unit=ids)  # noqa: B023, E731
        direct = jax.jit(lambda w: fhjax.direct_estimates(made(w)))(weight)  # noqa: B023
        assert np.isinf(direct.sensitivity[AREA[5]])
        assert np.isfinite(direct.sensitivity).sum() >= M - 2
        with pytest.raises(fhjax.InputError):
            made(weight)


def test_arrays_inside_jit_give_the_estimates_of_the_same_records_outside() -> None:
    design = {"stratum": STRATUM, "psu": PSU, "unit": np.arange(N)}
    outside = fhjax.direct_estimates(sums(WEIGHT, **design))
    inside = jax.jit(lambda w: fhjax.direct_estimates(sums(w, num_strata=3, **design)))(WEIGHT)
    assert np.asarray(inside.usable).all()
    for name in ("y", "sampling_variance", "sensitivity", "degrees_of_freedom", "num_records"):
        np.testing.assert_allclose(getattr(inside, name), getattr(outside, name), rtol=1e-11)
