"""The shapes and dtypes in the kernels' signatures are what goes in and what comes out."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

import fhjax
from fhjax.model.kernel import fit_kernel
from fhjax.model.posterior import posterior_kernel
from fhjax.privacy.coefficients import checked_basis, operator
from fhjax.privacy.extremes import effects_kernel
from fhjax.privacy.linear import group_terms, matrix_terms, orthonormal_rows
from fhjax.privacy.rho import area_terms, independent_terms, own_area_terms
from fhjax.release.draws import draw_kernel
from fhjax.survey.arrays import record_sums

M, P = 7, 2
y = jnp.arange(7.0) ** 2
psi, delta = jnp.full(M, 0.5), jnp.full(M, 0.1)
X = jnp.stack([jnp.ones(M), jnp.sin(jnp.arange(7.0))], axis=1)
mask, place = jnp.ones(M, bool), jnp.zeros(M, int)
scalar = jnp.asarray(1.0)
fit = fhjax.fit(fhjax.area_data(y, psi, X[:, 1]))
posterior = fhjax.posterior(fhjax.area_data(y, psi, X[:, 1]), fit)
C = fhjax.coefficients(psi, 1.0, X)

# kernel -> its arguments in order, and options
KERNELS: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {
    fit_kernel: ((y, psi, X, mask), {}),
    posterior_kernel: ((y, psi, X, mask, fit), {}),
    checked_basis: ((X, psi, jnp.eye(P)), {}),
    operator: ((psi, scalar, X, jnp.eye(P)), {}),
    effects_kernel: ((C, delta, mask), {"exact_off_diagonal": True}),
    own_area_terms: ((C, delta), {}),
    area_terms: ((C, delta), {}),
    independent_terms: ((C, delta), {}),
    group_terms: ((C, delta, place, delta), {"num_groups": 1}),
    matrix_terms: ((C, delta, X.T), {}),
    orthonormal_rows: ((X.T,), {}),
    draw_kernel: ((posterior, jax.random.key(1), jnp.arange(3), "correlated"), {}),
    record_sums: ((place, psi, y, X), {"num_areas": 2}),
}


def checking(kernel: Any) -> Any:
    return jaxtyped(inspect.unwrap(kernel), typechecker=beartype)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_a_kernel_takes_and_gives_what_its_signature_says(kernel: Any) -> None:
    arguments, options = KERNELS[kernel]
    checking(kernel)(*arguments, **options)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_a_signature_refuses_other_shapes_and_dtypes(kernel: Any) -> None:
    arguments, options = KERNELS[kernel]
    call = partial(checking(kernel), **options)
    arrays = [i for i, value in enumerate(arguments) if isinstance(value, jax.Array) and value.ndim]
    assert arrays
    for i in arrays:
        for wrong in (arguments[i][None], arguments[i].astype(complex)):
            with pytest.raises(TypeCheckError):
                call(*(wrong if j == i else value for j, value in enumerate(arguments)))
