"""All guarantees against the dense formulas, and every inequality that is claimed, as a one-sided test."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import privacy_oracle as oracle
from privacy_problems import random_problem, records

import fhjax
from fhjax.errors import InputError
from fhjax.privacy.coefficients import coefficients, prediction_basis
from fhjax.privacy.extremes import largest_effects
from fhjax.privacy.guarantee import guarantees
from fhjax.privacy.rho import joint_rho_correlated, joint_rho_independent, per_area_rho
from fhjax.records import FayHerriotFit, Labels


@pytest.mark.parametrize("seed", range(24))
def test_all_guarantees_match_the_dense_formulas(seed):
    psi, s2, X, delta = random_problem(seed)
    P = np.eye(X.shape[1]) / psi.mean() if seed % 5 == 0 else None
    data, posterior = records(psi, s2, X, P)
    result = guarantees(data, posterior, delta, beta_prior_precision=P)
    C, covariance = oracle.coefficient_matrix(psi, s2, X, P), oracle.posterior_covariance(psi, s2, X, P)
    variance = np.diag(covariance)
    expected, reach = oracle.per_area(C, variance, delta)
    np.testing.assert_allclose(result.per_area_rho, expected, rtol=1e-9)
    np.testing.assert_allclose(result.own_area_rho, np.diag(C) ** 2 * delta**2 / (2 * variance), rtol=1e-9)
    terms = oracle.joint_independent_terms(C, variance, delta)
    np.testing.assert_allclose(result.joint_independent_terms, terms, rtol=1e-9)
    assert float(result.joint_independent.rho) == pytest.approx(terms.max(), rel=1e-9)
    assert int(result.joint_independent.worst_area) == terms.argmax()
    assert float(result.sequential.rho) == pytest.approx(expected.sum(), rel=1e-9)
    off = np.where(np.eye(len(psi), dtype=bool), 0.0, reach).max(axis=1)
    np.testing.assert_allclose(result.off_diagonal_ratio, off / np.diag(reach), rtol=1e-8)
    assert result.off_diagonal_exact
    attained = reach[np.arange(len(psi)), np.asarray(result.attained_by)]
    np.testing.assert_allclose(attained, reach.max(axis=1), rtol=1e-10)
    weighted = C**2 / variance[:, None]
    share = np.where(np.eye(len(psi), dtype=bool), 0.0, weighted).sum(axis=0) / np.diag(weighted)
    np.testing.assert_allclose(result.other_areas_share, share, rtol=1e-8, atol=1e-300)
    assert result.num_settled_by_certificate + result.num_settled_by_search == len(psi)
    if s2 > 0 and psi.max() / s2 < 1e4:
        dense = oracle.joint_correlated(C, covariance, delta).max()
        assert float(result.joint_correlated.rho) == pytest.approx(dense, rel=1e-7)
    # The orders that always hold.
    joint = float(result.joint_correlated.rho)
    assert expected.max() <= joint * (1 + 1e-10)
    assert joint <= float(result.joint_independent.rho) * (1 + 1e-10)
    assert (np.asarray(result.own_area_rho) <= delta**2 / (2 * variance) * (1 + 1e-10)).all()
    assert (np.asarray(result.own_coefficient) <= 1 + 1e-12).all()
    assert int(result.num_moved_by_others) == (reach.max(axis=1) > delta * (1 + 1e-9)).sum()
    if result.conservative_rho is not None:
        assert (np.asarray(result.conservative_rho) >= np.asarray(result.per_area_rho)).all()
    else:
        assert (reach.max(axis=1) > delta).any()
        assert X.shape[1] > 1
    if X.shape[1] == 1:
        assert result.conservative_rho is not None
        B = psi / (psi + s2)
        off_diagonal = np.where(np.eye(len(psi), dtype=bool), 0.0, np.abs(C))
        assert (off_diagonal <= B[:, None] * (1 + 1e-12)).all()
        assert (expected <= delta.max() ** 2 / (2 * variance) * (1 + 1e-10)).all()
    # The kernels say the same.
    for kernel, value in (
        (per_area_rho, result.per_area_rho),
        (joint_rho_correlated, result.joint_correlated.rho),
        (joint_rho_independent, result.joint_independent.rho),
    ):
        again = jax.jit(kernel)(psi, s2, X, delta, beta_prior_precision=P)
        np.testing.assert_allclose(again, value, rtol=1e-10)


def test_own_sensitivity_is_not_printed_where_it_is_no_bound():
    data, posterior = records(np.array([4.0, 0.01, 4.0]), 0.05, np.ones((3, 1)))
    result = guarantees(data, posterior, [0.1, 1.0, 0.1])
    assert float(result.per_area_rho[0]) == pytest.approx(4.33, abs=0.005)
    own_bound = 0.1**2 / (2 * float(coefficients([4.0, 0.01, 4.0], 0.05, np.ones(3)).posterior_variance()[0]))
    assert own_bound == pytest.approx(0.047, abs=0.0005)
    assert result.conservative_kind == "largest_sensitivity"
    assert "in 2 areas" in result.conservative_note
    assert (np.asarray(result.conservative_rho) >= np.asarray(result.per_area_rho)).all()
    assert int(result.attained_by[0]) == 1


def test_no_bound_is_printed_where_a_coefficient_exceeds_one():
    psi, X = np.array([0.01, 4.0]), np.array([[1.0], [10.0]])
    C = coefficients(psi, 0.02, X)
    assert float(C.to_dense()[1, 0]) == pytest.approx(5.70, abs=0.005)
    data, posterior = records(psi, 0.02, X)
    result = guarantees(data, posterior, [0.1, 0.1])
    variance = np.asarray(C.posterior_variance())
    assert float(result.per_area_rho[1]) > 0.1**2 / (2 * variance[1])
    assert result.conservative_rho is None
    assert result.conservative_kind == "none"
    assert "in 1 area " in result.conservative_note
    # The same covariates with equal sampling variances: S_y bounds again.
    data, posterior = records(np.array([4.0, 4.0]), 0.02, X)
    result = guarantees(data, posterior, [0.001, 1.0])
    assert result.conservative_kind == "largest_sensitivity"
    assert (np.asarray(result.conservative_rho) >= np.asarray(result.per_area_rho)).all()


def random_batch(size, m, p, seed):
    rng = np.random.default_rng(seed)
    psi = np.exp(2.5 * rng.normal(size=(size, m)))
    s2 = np.exp(3.0 * rng.normal(size=size)) * (rng.random(size) > 0.1)
    X = rng.normal(size=(size, m, p))
    X[:, :, 0] = 1.0
    return psi, s2, X, np.exp(1.5 * rng.normal(size=(size, m)))


@pytest.mark.parametrize(("size", "m", "p"), [(60_000, 4, 2), (30_000, 6, 3), (30_000, 5, 1)])
def test_the_certificate_never_settles_wrongly(size, m, p):
    psi, s2, X, delta = random_batch(size, m, p, seed=m)
    basis = np.asarray(jax.vmap(prediction_basis)(X, psi + s2[:, None]))
    V = psi + s2[:, None]
    inner = np.einsum("nip,nkp->nik", basis, basis)
    C = psi[:, :, None] / V[:, :, None] * inner / V[:, None, :] + (s2[:, None] / V)[:, :, None] * np.eye(m)
    reach = np.abs(C) * delta[:, None, :]
    own = np.einsum("nii->ni", reach)

    def bound(psi, s2, basis, delta):
        from fhjax.privacy.coefficients import Coefficients
        from fhjax.privacy.extremes import norm_bound, other_factor

        C = Coefficients(sampling_variance=psi, model_variance=s2, basis=basis)
        return norm_bound(C, other_factor(C, delta))

    settled = own >= np.asarray(jax.vmap(bound)(psi, s2, basis, delta)) * (1 + 1e-12)
    assert 0.05 < settled.mean() < 0.999
    assert (own[settled] >= reach.max(axis=2)[settled] * (1 - 1e-14)).all()
    # A certificate that forgot the factor B would be caught here.
    careless = own >= np.asarray(jax.vmap(bound)(psi, s2, basis, delta)) * 0.5
    assert (own[careless] < reach.max(axis=2)[careless]).any()


def test_batches_of_small_problems_equal_brute_force():
    psi, s2, X, delta = random_batch(2000, 12, 3, seed=1)
    rho = np.asarray(jax.jit(jax.vmap(per_area_rho))(psi, s2, X, delta))
    checked = 0
    for n in range(0, 2000, 40):
        C = oracle.coefficient_matrix(psi[n], s2[n], X[n])
        expected, _ = oracle.per_area(C, psi[n] * np.diag(C), delta[n])
        np.testing.assert_allclose(rho[n], expected, rtol=1e-8)
        checked += 1
    assert checked == 50


def test_limited_search_gives_the_same_maxima_and_upper_bounds_off_the_diagonal():
    psi, s2, X, delta = random_problem(1, m=3000, p=4, scale=0.3)
    C = coefficients(psi, s2, X)
    full, limited = largest_effects(C, delta), largest_effects(C, delta, search_work=0.0)
    assert full.off_diagonal_exact
    assert not limited.off_diagonal_exact
    assert 0 < limited.num_settled_by_search < 3000
    np.testing.assert_array_equal(full.effect, limited.effect)
    np.testing.assert_array_equal(full.attained_by, limited.attained_by)
    assert (np.asarray(limited.off_diagonal) >= np.asarray(full.off_diagonal) * (1 - 1e-14)).all()
    reach = np.abs(np.asarray(C.to_dense())) * delta
    np.testing.assert_allclose(full.effect, reach.max(axis=1), rtol=1e-9)


positive = st.floats(1e-12, 1e12)


@settings(max_examples=100, deadline=None)
@given(
    psi=st.lists(st.one_of(st.just(0.0), positive), min_size=4, max_size=4),
    s2=st.one_of(st.just(0.0), positive),
    delta=st.lists(st.one_of(st.just(0.0), positive), min_size=4, max_size=4),
    slope=st.lists(st.sampled_from([-3.0, 0.0, 1.0, 1.0 + 1e-7, 1e6]), min_size=4, max_size=4),
)
def test_nothing_is_ever_nan(psi, s2, delta, slope):
    psi = np.array(psi)
    for X in (np.ones((4, 1)), np.array(slope)[:, None], np.column_stack([np.ones(4), slope])):
        try:
            C = coefficients(psi, s2, X)
        except InputError:
            continue
        A = np.linalg.pinv(X / np.sqrt(psi + s2)[:, None])
        data, posterior = records(psi, s2, X)
        posterior = FayHerriotFit(
            **{name: jnp.zeros(()) for name in ("model_variance_se", "log_likelihood", "restricted_log_likelihood")},
            steps=jnp.zeros(()), status=jnp.zeros(()), model_variance=jnp.asarray(s2), beta=jnp.zeros(X.shape[1]),
            beta_covariance=jnp.asarray(A @ A.T), num_areas=4,
        )  # fmt: skip
        try:
            result = guarantees(data, posterior, delta)
        except InputError:  # A computed from nearly collinear covariates has no digit left to compare
            continue
        leaves = jax.tree_util.tree_leaves(result)
        assert len(leaves) >= 14
        for leaf in leaves:
            assert not np.isnan(np.asarray(leaf)).any()
        exposed = (psi == 0.0) & (np.array(delta) > 0.0)
        assert np.isinf(np.asarray(result.own_area_rho)[exposed]).all()
        assert not np.isnan(np.asarray(C.to_dense())).any()


def test_a_zero_sampling_variance_makes_its_area_and_the_joint_infinite_and_no_other():
    data, posterior = records(np.array([1.0, 0.0, 2.0, 1.5]), 0.5, np.ones((4, 1)))
    result = guarantees(data, posterior, [0.1] * 4)
    assert np.isinf(np.asarray(result.per_area_rho)).tolist() == [False, True, False, False]
    for release in (result.joint_independent, result.joint_correlated):
        assert np.isinf(float(release.rho))
        assert int(release.worst_area) == 1
    assert np.isinf(float(result.sequential.rho))
    public = guarantees(data, posterior, [0.1, 0.0, 0.1, 0.1])  # nobody can change the area's outcome
    assert float(public.per_area_rho[1]) == 0.0
    assert np.isfinite(float(public.joint_independent.rho))


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_padded_rows_change_nothing(scale):
    psi, s2, X, delta = random_problem(1, scale=scale)
    data, posterior = records(psi, s2, X)
    plain = guarantees(data, posterior, delta)
    pad = lambda a, value: np.concatenate([a, np.full((20, *a.shape[1:]), value)])  # noqa: E731
    mask = jnp.arange(60) < 40
    padded, _ = records(pad(psi, np.nan), s2, pad(X, np.nan), P=np.eye(2), mask=mask)
    result = guarantees(padded, posterior, pad(delta, 7.0))
    np.testing.assert_allclose(result.per_area_rho[:40], plain.per_area_rho, rtol=1e-12)
    np.testing.assert_allclose(result.off_diagonal_ratio[:40], plain.off_diagonal_ratio, rtol=1e-10)
    assert np.asarray(result.per_area_rho[40:]).tolist() == [0.0] * 20
    assert float(result.joint_independent.rho) == pytest.approx(float(plain.joint_independent.rho), rel=1e-12)
    assert result.conservative_kind == plain.conservative_kind


def test_units_of_the_outcome_and_of_the_covariates_change_nothing():
    psi, s2, X, delta = random_problem(3)
    base = guarantees(*records(psi, s2, X), delta)
    for unit in (1e-6, 1e6):
        scaled = guarantees(*records(psi * unit**2, s2 * unit**2, X * [1.0, 1e8, 1e-5]), delta * unit)
        np.testing.assert_allclose(scaled.per_area_rho, base.per_area_rho, rtol=1e-9)
        assert float(scaled.joint_independent.rho) == pytest.approx(float(base.joint_independent.rho), rel=1e-9)


@functools.cache
def log_sum(kernel):
    """sum log kernel as a compiled function of log psi, the model variance, log weights; one compilation a shape."""

    def value(log_psi, s2, log_weights, unit, X):
        w = jnp.exp(log_weights)
        sensitivity = unit * jnp.max(w, axis=1) / jnp.sum(w, axis=1)
        return jnp.sum(jnp.log(kernel(jnp.exp(log_psi), s2 * jnp.mean(unit**2), X, sensitivity)))

    return jax.jit(value), jax.jit(jax.grad(value, argnums=(0, 1, 2)))


@pytest.mark.parametrize("scale", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("kernel", [per_area_rho, joint_rho_correlated, joint_rho_independent])
@pytest.mark.parametrize("p", [1, 3])
def test_gradients_match_differences(kernel, p, scale):
    psi, _, X, _ = random_problem(11, m=9, p=p, spread=0.6)
    rng = np.random.default_rng(0)
    at = [np.log(psi), np.array(scale), np.log(rng.uniform(1, 20, size=(9, 5)))]
    value, gradient = log_sum(kernel)
    unit, step = np.sqrt(psi), 1e-5
    for which, slope in enumerate(gradient(*at, unit, X)):
        direction = rng.normal(size=np.shape(at[which]))
        points = [(1 / 12, -2), (-2 / 3, -1), (2 / 3, 1), (-1 / 12, 2)]
        if which == 1 and scale == 0.0:  # one-sided: the model variance cannot be negative
            direction, points = np.array(1.0), [(-11 / 6, 0), (3, 1), (-3 / 2, 2), (1 / 3, 3)]
        numeric = 0.0
        for factor, steps in points:
            moved = list(at)
            moved[which] = at[which] + steps * step * direction
            numeric += factor * float(value(*moved, unit, X)) / step
        assert float(np.sum(np.asarray(slope) * direction)) == pytest.approx(numeric, rel=2e-7, abs=2e-7)


def test_one_compilation_a_shape_and_memory_linear_in_areas():
    kernel = jax.jit(lambda *args: (per_area_rho(*args), joint_rho_correlated(*args), joint_rho_independent(*args)))
    for seed in range(3):
        psi, s2, X, delta = random_problem(seed, m=30, p=3, scale=1.0)
        kernel(psi, s2, X, delta)
    assert kernel._cache_size() == 1
    m, p = 16_000, 8
    psi, s2, X, delta = random_problem(0, m=m, p=p, scale=1.0)
    analysis = kernel.lower(psi, s2, X, delta).compile().memory_analysis()
    # The blocked search works on 256 x 2048 numbers at a time, whatever m.
    assert 0 < analysis.temp_size_in_bytes <= 12 * m * p * 8 + 3 * 256 * 2048 * 8


def test_assumptions_follow_the_sources_of_the_variances():
    psi, s2, X, delta = random_problem(0)
    data, posterior = records(psi, s2, X)
    result = guarantees(data, posterior, delta, privacy_unit="SERIALNO")
    text = " ".join(result.assumptions)
    assert "sampling variances were estimated" in text
    assert "model variance was estimated" in text
    assert "bounded neighbours" in result.neighbours
    assert "SERIALNO" in result.joint_correlated.neighbours
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in result.joint_correlated.assumptions)
    data, posterior = records(psi, s2, X, variance_source="public")
    text = " ".join(guarantees(data, posterior, delta).assumptions)
    assert "sampling variances were" not in text
    assert "model variance was" in text
    text = " ".join(guarantees(data, posterior, delta, model_variance_source="public").assumptions)
    assert "invariant" not in text
    with pytest.raises(InputError, match="model_variance_source is 'secret'"):
        guarantees(data, posterior, delta, model_variance_source="secret")


def test_bad_sensitivities_and_foreign_posteriors_are_refused():
    psi, s2, X, delta = random_problem(1, m=6)
    data, posterior = records(psi, s2, X, labels=Labels("abcdef"))
    for value in (-1.0, np.nan, np.inf):
        wrong = delta.copy()
        wrong[2] = value
        with pytest.raises(InputError, match=r"1 area ha(s|ve) a negative or non-finite sensitivity: 'c'"):
            guarantees(data, posterior, wrong)
    with pytest.raises(InputError, match="expected one number for each of 6 areas"):
        guarantees(data, posterior, delta[:5])
    with pytest.raises(InputError, match="float64"):
        guarantees(data, posterior, delta.astype(np.float32))


def _one(values, factor, at=2):
    return np.where(np.arange(len(values)) == at, factor * values, values)


@pytest.mark.parametrize("as_fit", [False, True], ids=["posterior", "fit"])
@pytest.mark.parametrize(
    "other",
    {
        "three times the variances": lambda psi, s2, X: (psi * 3.0, s2, X),
        "a tenth off": lambda psi, s2, X: (psi * 0.9, s2, X),
        "one area a millionth off": lambda psi, s2, X: (_one(psi, 1.0 + 1e-6), s2, X),
        "the model variance a millionth off": lambda psi, s2, X: (psi, s2 * (1.0 + 1e-6), X),
        "one covariate a hundredth off": lambda psi, s2, X: (psi, s2, _one(X.ravel(), 1.01, 4).reshape(X.shape)),
    }.items(),
    ids=lambda item: item[0],
)  # fmt: skip
def test_a_posterior_of_other_data_is_refused_however_close(other, as_fit):
    """Its numbers are its own, its model variance that of these data, as if somebody had mixed up two files."""
    psi, s2, X, delta = random_problem(1, m=6, scale=0.7)
    data, posterior = records(psi, s2, X)
    foreign_data, foreign = records(*other[1](psi, s2, X))
    if as_fit:
        foreign = dataclasses.replace(
            fhjax.given(foreign_data, foreign.model_variance), num_areas=6
        )  # forgets its data
    # Where the model variance is what differs, the posterior says so itself and is one of these data: not foreign.
    claimed = dataclasses.replace(foreign, model_variance=posterior.model_variance)
    with pytest.raises(InputError, match="not computed from these"):
        guarantees(data, claimed, delta)
    guarantees(data, posterior, delta)


@pytest.mark.parametrize("search_work", [0.0, 4e9])
def test_the_search_goes_on_past_the_longest_candidates(search_work):
    """Two groups that share no coefficient: for the second, whoever moves it most comes after all of the first."""
    m, first = 3_000, 2_500
    second = np.arange(m) >= first
    X = np.column_stack([~second, second]).astype(float)
    delta = np.where(second, 1e-3, 1.0)
    delta[first] = 5e-3  # moves its whole group more than they move themselves
    C = coefficients(np.full(m, 4.0), 0.001, X)
    found = largest_effects(C, delta, search_work=search_work)
    inner = 4.0 / 4.001 * 1.0 / (m - first)  # B_i x_i' A x_k / V_k within the group
    np.testing.assert_allclose(np.asarray(found.effect)[first + 1 :], inner * 5e-3, rtol=1e-10)
    assert (np.asarray(found.attained_by)[first + 1 :] == first).all()
