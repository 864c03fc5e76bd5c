"""The estimate of the model variance against brute force, at its boundary, in hard cases, and its invariances."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from model_cases import random_areas
from oracles import model_oracle

from fhjax.errors import InputError, NumericalError, Status
from fhjax.model.fit import METHODS, area_data, fit, fit_kernel, given
from fhjax.model.large import LARGE
from fhjax.model.posterior import posterior, posterior_kernel
from fhjax.records import AreaData


def fitted(y, psi, X, method="reml", **options):
    return fit(area_data(y, psi, X, intercept=False), method=method, **options)


@pytest.mark.parametrize(("method", "p"), [("reml", 1), ("reml", 3), ("reml", 8), ("ml", 3), ("moment", 3), ("pr", 3)])
def test_brute_force_finds_the_same(method, p):
    for seed in range(4):
        y, psi, X = random_areas(seed, m=30, p=p, spread=[0.0, 0.3, 1.0, 30.0][seed])
        s = model_oracle.model_variance(y, psi, X, method)
        result = fitted(y, psi, X, method)
        np.testing.assert_allclose(result.model_variance, s, rtol=1e-9, atol=1e-11)
        _, _, beta, A = model_oracle.posterior(float(result.model_variance), y, psi, X)
        np.testing.assert_allclose(result.beta, beta, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(result.beta_covariance, A, rtol=1e-10, atol=1e-13)
        for restricted, value in ((False, result.log_likelihood), (True, result.restricted_log_likelihood)):
            want = model_oracle.log_likelihood(float(result.model_variance), y, psi, X, restricted)
            np.testing.assert_allclose(value, want, rtol=1e-11)


def two_humps(seed):
    """Two precise areas that agree and a few vague ones that do not: often a maximum at each scale."""
    rng = np.random.default_rng(seed)
    psi = np.concatenate([10.0 ** rng.uniform(-4, -2, 3), 10.0 ** rng.uniform(0, 2, 4)])
    y = np.concatenate([0.01 * rng.normal(size=3), 20.0 * rng.normal(size=4)])
    return y, psi, np.ones((7, 1))


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_the_highest_of_several_maxima_is_chosen(method):
    several = 0
    for seed in range(40):
        y, psi, X = two_humps(seed)
        grid = np.concatenate([[0.0], np.geomspace(1e-7, 1e5, 200)])
        values = [model_oracle.log_likelihood(s, y, psi, X, method == "reml") for s in grid]
        padded = np.concatenate([[-np.inf], values, [-np.inf]])
        peaks = np.sort(np.array(values)[(padded[1:-1] > padded[:-2]) & (padded[1:-1] > padded[2:])])
        several += len(peaks) > 1
        found = model_oracle.log_likelihood(
            float(fitted(y, psi, X, method).model_variance), y, psi, X, method == "reml"
        )
        assert found >= max(values) - 1e-9
    assert several >= 5


def test_zero_is_an_answer_and_everything_stays_finite():
    y, psi, X = random_areas(5, m=30, p=3, spread=0.0)
    for method in METHODS:
        result = fitted(y, 100.0 * psi, X, method)
        assert float(result.model_variance) == 0.0
        assert int(result.status) == Status.AT_BOUNDARY
        post = posterior(area_data(y, 100.0 * psi, X, intercept=False), result)
        for leaf in jax.tree.leaves((result, post)):
            assert np.all(np.isfinite(leaf))
        assert np.all(np.asarray(post.shrinkage) == 1.0)
        np.testing.assert_allclose(post.mean, X @ np.asarray(result.beta), rtol=1e-13)


HARD = np.random.default_rng(0)


def hard_cases():
    m = 30
    u, v, one = HARD.normal(size=m), HARD.normal(size=m), np.ones(m)
    psi = HARD.uniform(0.5, 2.0, m)
    y = 1.0 + u + HARD.normal(size=m) * np.sqrt(psi + 1.0)
    plain = np.stack([one, u], axis=1)
    wide = 10.0 * 10.0 ** HARD.uniform(-7.6, 0.0, m)
    yield "variance ratio 4e7", HARD.normal(size=m) * np.sqrt(wide + 1e-3), wide, np.stack([one, u, v], axis=1), 1e-11
    precise = np.where(np.arange(m) < 3, 1.0, 4e7)
    yield "three precise areas", HARD.normal(size=m) * np.sqrt(precise + 1e7), precise, plain, 1e-11
    vague = np.where(np.arange(m) == 3, 4e7, 1.0)
    yield "one vague area", HARD.normal(size=m) * np.sqrt(vague + 1.0), vague, plain, 1e-11
    outlier = y.copy()
    outlier[5] = 1e3
    yield "outlier", outlier, psi, plain, 1e-11
    yield "offset 1e8", y, psi, np.stack([one, 1e8 + u], axis=1), 1e-11
    yield "x 1e8", y, psi, np.stack([one, 1e8 * u], axis=1), 1e-11
    # The columns themselves, rounded to float64, determine the answer no better than condition times rounding.
    yield "condition 1e8", y, psi, np.stack([one, u, u + 1e-8 * v], axis=1), 1e-7
    # log det of V as a product would overflow: 30 variances of 1e300.
    yield "units 1e150", 1e150 * y, 1e300 * psi, plain, 1e-11


@pytest.mark.parametrize("case", list(hard_cases()), ids=lambda case: case[0])
def test_hard_cases_to_fifty_digits(case):
    _, y, psi, X, rtol = case
    result = fitted(y, psi, X)
    s, beta, A = model_oracle.reml_mp(y, psi, X, float(result.model_variance))
    np.testing.assert_allclose(result.model_variance, s, rtol=rtol)
    np.testing.assert_allclose(result.beta, beta, rtol=rtol)
    np.testing.assert_allclose(result.beta_covariance, A, rtol=10 * rtol, atol=10 * rtol * np.max(np.abs(A)))


@pytest.mark.parametrize("method", METHODS)
def test_units_and_order_change_nothing_else(method):
    y, psi, X = random_areas(7, m=30, p=3)
    base = fitted(y, psi, X, method)
    for c in (1e-6, 1e6):
        scaled = fitted(c * y, c * c * psi, X, method)
        np.testing.assert_allclose(scaled.model_variance, c * c * base.model_variance, rtol=1e-12)
        np.testing.assert_allclose(scaled.beta, c * base.beta, rtol=1e-12)
        np.testing.assert_allclose(scaled.log_likelihood, base.log_likelihood - 30 * np.log(c), rtol=1e-12)
    stretch = np.array([1.0, 1e8, 1e-8])
    stretched = fitted(y, psi, X * stretch, method)
    np.testing.assert_allclose(stretched.model_variance, base.model_variance, rtol=1e-12)
    np.testing.assert_allclose(stretched.beta * stretch, base.beta, rtol=1e-11)
    order = np.random.default_rng(1).permutation(30)
    shuffled = fitted(y[order], psi[order], X[order], method)
    np.testing.assert_allclose(shuffled.model_variance, base.model_variance, rtol=1e-12)
    np.testing.assert_allclose(
        fitted(y + X @ [1.0, 2.0, 3.0], psi, X, method).model_variance, base.model_variance, rtol=1e-11
    )


def test_padding_is_ignored_whatever_it_holds():
    y, psi, X = random_areas(8, m=30, p=3)
    mask = np.arange(30) % 7 != 2
    junk = lambda x: np.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, np.nan)  # noqa: E731
    padded = fit_kernel(junk(y), junk(psi), junk(X), jnp.asarray(mask))
    plain = fitted(y[mask], psi[mask], X[mask])
    for name in ("model_variance", "beta", "beta_covariance", "log_likelihood", "bic", "model_variance_se"):
        np.testing.assert_allclose(getattr(padded, name), getattr(plain, name), rtol=1e-11, atol=1e-13, err_msg=name)
    assert int(padded.num_areas) == mask.sum()
    post = posterior_kernel(junk(y), junk(psi), junk(X), jnp.asarray(mask), padded)
    direct = posterior(area_data(y[mask], psi[mask], X[mask], intercept=False), plain)
    np.testing.assert_allclose(post.mse[mask], direct.mse, rtol=1e-11)
    np.testing.assert_allclose(post.mean[mask], direct.mean, rtol=1e-11)
    assert np.all(np.isfinite(post.mse))


def test_a_batch_equals_single_fits_and_one_bad_problem_spoils_no_other():
    problems = [random_areas(seed, m=30, p=3, spread=1.0) for seed in range(5)]
    y, psi, X = (np.stack(parts) for parts in zip(*problems, strict=True))
    broken = y.copy()
    broken[2, 4] = np.inf
    flat = X.copy()
    flat[3, :, 2] = flat[3, :, 1]
    batch = jax.vmap(fit_kernel)(broken, psi, flat)
    assert batch.status.tolist() == [Status.OK, Status.OK, Status.NOT_FINITE, Status.SINGULAR, Status.OK]
    for leaf in jax.tree.leaves(batch):
        assert not np.any(np.isnan(leaf))
    for i in (0, 1, 4):
        np.testing.assert_allclose(batch.model_variance[i], fitted(y[i], psi[i], X[i]).model_variance, rtol=1e-12)


def test_a_million_rows_in_several_blocks_equal_one_block():
    """More than one row of the reduction, with a remainder; by the host loop and by the compiled one."""
    rng = np.random.default_rng(4)
    m = 63_456
    assert m > LARGE
    psi = rng.uniform(0.5, 2.0, m)
    y = 3.0 + rng.normal(size=m) * np.sqrt(psi + 0.7)
    alone = fitted(y, psi, np.ones((m, 1)))
    general = fit_kernel(y, psi, np.ones((m, 1)))
    np.testing.assert_allclose(alone.model_variance, general.model_variance, rtol=1e-11)
    np.testing.assert_allclose(alone.log_likelihood, general.log_likelihood, rtol=1e-11)
    w = 1.0 / (psi + float(alone.model_variance))
    beta = np.sum(w * y) / np.sum(w)
    np.testing.assert_allclose(alone.beta[0], beta, rtol=1e-12)
    score = np.sum(w**2 * (y - beta) ** 2) - np.sum(w) + np.sum(w**2) / np.sum(w)
    assert abs(score) < 1e-8 * np.sum(w)


def test_many_areas_with_a_covariate_and_padding_solve_the_equations():
    rng = np.random.default_rng(5)
    m = 70_000
    mask = rng.random(m) < 0.95
    X = np.stack([np.ones(m), rng.normal(size=m)], axis=1)
    psi = rng.uniform(0.5, 2.0, m)
    y = 1e3 + X[:, 1] + rng.normal(size=m) * np.sqrt(psi + 0.7)
    junk = AreaData(
        y=jnp.where(mask, y, jnp.nan),
        sampling_variance=jnp.where(mask, psi, -1.0),
        X=jnp.where(mask[:, None], X, jnp.inf),
        mask=jnp.asarray(mask),
    )
    result = fit(junk)
    y, psi, X = y[mask], psi[mask], X[mask]
    w = 1.0 / (psi + float(result.model_variance))
    G1, G2 = (X.T @ (weight[:, None] * X) for weight in (w, w**2))
    A = np.linalg.inv(G1)
    beta = A @ (X.T @ (w * y))
    score = np.sum(w**2 * (y - X @ beta) ** 2) - np.sum(w) + np.trace(A @ G2)
    assert abs(score) < 1e-9 * np.sum(w)
    assert int(result.status) == Status.OK
    assert int(result.num_areas) == mask.sum()
    np.testing.assert_allclose(result.beta, beta, rtol=1e-11)
    np.testing.assert_allclose(result.beta_covariance, A, rtol=1e-10)


def test_second_call_is_independent_of_the_first():
    y, psi, X = random_areas(9, m=30, p=3)
    first = fitted(y, psi, X)
    fitted(1e6 * y, psi, X)
    assert float(fitted(y, psi, X).model_variance) == float(first.model_variance)


def test_given_takes_the_variance_as_it_is():
    y, psi, X = random_areas(10, m=30, p=3)
    data = area_data(y, psi, X, intercept=False)
    result = given(data, 0.7)
    assert float(result.model_variance) == 0.7
    assert result.method == "given"
    np.testing.assert_allclose(result.beta, model_oracle.posterior(0.7, y, psi, X)[2], rtol=1e-11)
    assert posterior(data, result).mse is None
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="at least 0"):
            given(data, bad)


def test_failures_are_raised_in_words():
    y, psi, X = random_areas(11, m=30, p=3)
    data = area_data(y, psi, X, intercept=False)
    with pytest.raises(NumericalError, match="stopped before it converged"):
        fit(data, max_steps=1)
    with pytest.raises(InputError, match="Choose one of reml, ml, moment, pr"):
        fit(data, method="bayes")
    with pytest.raises(NumericalError, match="collinear"):
        fit(dataclasses.replace(data, X=jnp.ones((30, 3))))
    with pytest.raises(InputError, match="vmap"):
        fit(dataclasses.replace(data, y=jnp.ones((2, 30))))


@settings(max_examples=60, deadline=None)
@example(
    # Least squares coefficients are so far from the precise area that sums around them hold no digit of the score.
    [(0.0, 3538441.0), (0.0, 13673636.0), (0.0, 33734344.0), (0.0, 76510164.0), (2846.0, 1e-9), (0.0, 40509019.0)],
    "ml",
)
@example(
    # One area is so much more precise than the others that tr P P is all rounding.
    [(0.0, 15373281.0), (0.0, 15375141.0), (0.0, 18160078.0), (0.0, 136473968.0), (0.0, 302146957.0), (0.0, 0.0625)],
    "reml",
)
@for_all(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-9, 1e9)), min_size=6, max_size=6),
    st.sampled_from(["reml", "ml", "moment"]),
)
def test_finite_for_any_six_areas(areas, method):
    y, psi = (np.array(part) for part in zip(*areas, strict=True))
    data = area_data(y, psi)
    result = fit(data, method=method)
    for leaf in jax.tree.leaves((result, posterior(data, result))):
        assert np.all(np.isfinite(leaf))
    assert float(result.model_variance) >= 0.0
