"""One compilation for each shape, and no m x m array."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from model_cases import random_areas

from fhjax.model.fit import area_data, fit, fit_kernel
from fhjax.model.posterior import area_numbers, posterior


def test_same_shape_compiles_once():
    for seed in range(3):
        y, psi, X = random_areas(seed, m=31, p=2)
        # Labels, values and tolerance differ; shapes do not.
        data = area_data(y, psi, X[:, 1:], labels=[f"{seed}-{i}" for i in range(31)])
        posterior(data, fit(data, tolerance=10.0 ** (-9 - seed), max_steps=50 + seed))
        if seed == 0:
            before = (fit_kernel._cache_size(), area_numbers._cache_size())
    assert (fit_kernel._cache_size(), area_numbers._cache_size()) == before


def test_memory_grows_with_m_times_p():
    m, p = 20_000, 4
    shapes = (jax.ShapeDtypeStruct((m,), jnp.float64), jax.ShapeDtypeStruct((m,), jnp.float64))
    X = jax.ShapeDtypeStruct((m, p), jnp.float64)
    compiled = fit_kernel.lower(*shapes, X).compile()
    allowed = 12 * m * p * 8
    assert compiled.memory_analysis().temp_size_in_bytes <= allowed
    result = jax.eval_shape(fit_kernel, *shapes, X)
    analysis = area_numbers.lower(*shapes, X, None, result).compile().memory_analysis()
    assert analysis.temp_size_in_bytes <= allowed
    assert np.square(m) * 8 > 100 * allowed  # what one m x m array would take
