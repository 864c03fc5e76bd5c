"""Draws of the posterior: their law, their streams, and that nothing is m x m."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import plrv_oracle as oracle
from plrv.plrv_problems import problem as make

from fhjax.errors import InputError, NumericalError
from fhjax.release.draws import draw_kernel, draws

KEY = jax.random.key(20260101)


def problem(model_variance: float = 0.4):
    data, _, posterior, _ = make(model_variance=model_variance)
    return data, posterior


@pytest.mark.parametrize("model_variance", [0.4, 0.0])
@pytest.mark.parametrize("release", ["correlated", "independent"])
def test_draws_have_the_mean_and_covariance_of_the_dense_posterior(release: str, model_variance: float) -> None:
    data, posterior = problem(model_variance)
    mean, S = oracle.posterior(
        np.asarray(data.y), np.asarray(data.sampling_variance), model_variance, np.asarray(data.X)
    )
    if release == "independent":
        S = np.diag(np.diag(S))
    n = 200_000
    theta = np.asarray(draws(posterior, key=KEY, num_draws=n, release=release)) - mean
    sd = np.sqrt(np.diag(S))
    assert np.abs(theta.mean(axis=0)).max() < 5 * (sd / np.sqrt(n)).max()
    # Five standard errors of a sample covariance of Gaussians with known mean.
    error = np.sqrt((np.outer(sd, sd) ** 2 + S**2) / n)
    got = theta.T @ theta / n
    assert (np.abs(got - S) < 5 * error).all()
    # The planted fault: the covariance without its coefficient part is told apart.
    wrong = np.diag(np.asarray(posterior.shrinkage) * model_variance)
    assert (np.abs(got - wrong) > 5 * error).any()


def test_at_model_variance_zero_a_correlated_draw_is_a_regression_surface() -> None:
    data, posterior = problem(0.0)
    theta = np.asarray(draws(posterior, key=KEY, num_draws=4))
    fitted = np.linalg.lstsq(np.asarray(data.X), theta.T, rcond=None)
    assert np.allclose(np.asarray(data.X) @ fitted[0], theta.T, atol=1e-12)
    assert np.isfinite(theta).all()


@pytest.mark.parametrize("release", ["correlated", "independent"])
def test_parts_and_subsets_give_the_same_numbers(release: str) -> None:
    _, posterior = problem()
    every = draws(posterior, key=KEY, num_draws=7, release=release)
    parts = [draws(posterior, key=KEY, num_draws=n, release=release, first_draw=first) for first, n in ((0, 3), (3, 4))]
    np.testing.assert_allclose(np.concatenate(parts), every, rtol=1e-14)
    some = draws(posterior, key=KEY, num_draws=7, release=release, areas=[4, 1])
    np.testing.assert_allclose(some, every[:, jnp.array([4, 1])], rtol=1e-14)
    assert not np.allclose(draws(posterior, key=jax.random.key(2), num_draws=7, release=release), every)


def test_areas_do_not_share_a_stream_and_draws_do_not_repeat() -> None:
    _, posterior = problem()
    theta = np.asarray(draws(posterior, key=KEY, num_draws=50, release="independent"))
    z = (theta - np.asarray(posterior.mean)) / np.sqrt(np.asarray(posterior.variance))
    assert len(np.unique(np.round(z, 12))) == z.size


def test_the_key_must_be_given_by_name() -> None:
    _, posterior = problem()
    with pytest.raises(TypeError):
        draws(posterior)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        draws(posterior, KEY)  # type: ignore[misc]


def test_redrawing_gives_the_truncated_law_and_clipping_moves_values() -> None:
    _, posterior = problem()
    mean, sd = np.asarray(posterior.mean), np.sqrt(np.asarray(posterior.variance))
    low, high = float(mean.min() - sd.max()), float(mean.max() + sd.max())
    n = 20_000
    free = np.asarray(draws(posterior, key=KEY, num_draws=n))
    kept = free[((free >= low) & (free <= high)).all(axis=1)]
    assert 0.2 < len(kept) / n < 0.95
    redrawn = np.asarray(draws(posterior, key=KEY, num_draws=n, bounds=(low, high)))
    assert ((redrawn >= low) & (redrawn <= high)).all()
    gap = np.abs(redrawn.mean(axis=0) - kept.mean(axis=0)) / np.sqrt(kept.var(axis=0) * (1 / n + 1 / len(kept)))
    assert gap.max() < 5
    alone = np.asarray(draws(posterior, key=KEY, num_draws=n, bounds=(low, high), release="independent"))
    assert ((alone >= low) & (alone <= high)).all()
    np.testing.assert_array_equal(draws(posterior, key=KEY, num_draws=9, bounds=(low, high), outside="clip"),
                                  np.clip(free[:9], low, high))  # fmt: skip


def test_only_the_wanted_areas_must_be_inside() -> None:
    _, posterior = problem()
    i = int(np.argmax(np.asarray(posterior.mean)))
    bounds = (float(posterior.mean[i]) - 0.1, float(posterior.mean[i]) + 0.1)
    theta = np.asarray(draws(posterior, key=KEY, num_draws=20, bounds=bounds, areas=[i]))
    assert theta.shape == (20, 1)
    assert ((theta >= bounds[0]) & (theta <= bounds[1])).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"release": "both"}, ["both", "correlated"]),
        ({"outside": "drop"}, ["drop", "redraw"]),
        ({"num_draws": 0}, ["0", "one draw"]),
        ({"bounds": (1.0, 0.0)}, ["lower", "upper"]),
        ({"areas": [99]}, ["99", "12 areas"]),
        ({"areas": [0.5]}, ["whole numbers"]),
    ],
)
def test_refusals(options: dict, words: list[str]) -> None:
    _, posterior = problem()
    with pytest.raises(InputError) as stop:
        draws(posterior, key=KEY, **options)
    for word in words:
        assert word in str(stop.value)


def test_bounds_that_cannot_be_met_end_with_a_sentence() -> None:
    _, posterior = problem()
    with pytest.raises(NumericalError, match="After 5 attempts"):
        draws(posterior, key=KEY, bounds=(1e6, 1e6 + 1), max_tries=5)


def test_a_million_areas_need_no_square_array() -> None:
    m, p = 1_000_000, 5
    _, posterior = problem()
    shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float64)  # noqa: E731
    big = dataclasses.replace(
        posterior, mean=shape(m), variance=shape(m), shrinkage=shape(m), mse=None, X=shape(m, p), beta=shape(p),
        beta_covariance=shape(p, p), beta_covariance_root=shape(p, p),
    )  # fmt: skip
    compiled = draw_kernel.lower(big, KEY, jnp.arange(1), "correlated").compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 200 * m
