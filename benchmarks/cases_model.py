"""The model: fits of one large problem and of many small ones, against NumPy and against the packages that do it.

Both sides stop at the same relative step, 1e-11, each by its own algorithm. NumPy does nothing else: no search for
other maxima, no bracket, no covariance of the coefficients, no likelihood.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import numpy_rivals
from benchmarks.registry import Contest, case
from benchmarks.timing import Thunk
from fhjax.model.fit import fit, fit_kernel
from fhjax.model.likelihood import reml_sums as sums_here
from fhjax.model.posterior import posterior
from fhjax.records import AreaData

#: Relative size of the last step, the default of ``fit``.
TOLERANCE = 1e-11
#: The packages need m x m matrices, or minutes.
LARGEST_FOR_PACKAGES = 2_000


def areas(m: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, sampling variances between 0.5 and 2, and X with an intercept; the model variance is 0.7."""
    rng = np.random.default_rng(seed)
    psi = rng.uniform(0.5, 2.0, m)
    X = np.concatenate([np.ones((m, 1)), rng.normal(size=(m, p - 1))], axis=1)
    return X @ np.ones(p) + rng.normal(size=m) * np.sqrt(psi + 0.7), psi, X


@case(
    name="reml_fit",
    what="REML, EBLUP and MSE of one problem",
    sizes=(100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    covariates=(1, 5, 20),
    targets={"numpy": 5.0, "numpy_blocked": 1.0, "svy-sae": 50.0},
    target_size=1_000_000,
    target_p=5,
)
def reml_fit(size: int, p: int) -> Contest:
    if size * p > 5 * 10**7:
        raise MemoryError(f"{size:,} areas with {p} covariates take {8e-9 * size * p:.1f} GB a copy")
    y, psi, X = areas(size, p)
    data = AreaData(y=jnp.asarray(y), sampling_variance=jnp.asarray(psi), X=jnp.asarray(X))

    def ours() -> object:
        result = fit(data)
        return result, posterior(data, result)

    rivals: dict[str, Thunk] = {
        "numpy": lambda: numpy_rivals.reml_fit(y, psi, X, tolerance=TOLERANCE, blocked=False),
        "numpy_blocked": lambda: numpy_rivals.reml_fit(y, psi, X, tolerance=TOLERANCE, blocked=True),
    }
    return Contest(ours, rivals, packages(y, psi, X) if size <= LARGEST_FOR_PACKAGES else {})


@case(
    name="reml_sums",
    what="all sums over the areas of one REML step, intercept only (two more than NumPy's six)",
    sizes=(10_000, 100_000, 1_000_000, 10_000_000),
    targets={"numpy": 10.0, "numpy_blocked": 1.0},
    target_size=10_000_000,
)
def reml_sums(size: int, p: int) -> Contest:
    y, psi, _ = areas(size, 1)
    here = jax.jit(sums_here)
    device = jnp.asarray(y), jnp.asarray(psi)
    return Contest(
        lambda: here(*device, 0.7),
        {
            "numpy": partial(numpy_rivals.reml_sums, y, psi, 0.7),
            "numpy_blocked": partial(numpy_rivals.reml_sums_blocked, y, psi, 0.7),
        },
    )


@case(
    name="fits_of_50",
    what="a REML fit of each of many problems of 50 areas, in one vmap",
    sizes=(100, 1_000, 10_000),
    targets={"numpy loop": 20.0},
    target_size=1_000,
)
def fits_of_50(size: int, p: int) -> Contest:
    return many_fits(size, 50)


@case(
    name="fits_of_2462",
    what="a REML fit of each of many problems of 2,462 areas, in one vmap",
    sizes=(100, 1_000),
    targets={"numpy loop": 4.0},
    target_size=1_000,
)
def fits_of_2462(size: int, p: int) -> Contest:
    return many_fits(size, 2_462)


def many_fits(problems: int, m: int) -> Contest:
    """Each problem has its own y and variances."""
    y, psi, _ = areas(problems * m, 1)
    y, psi = y.reshape(problems, m), psi.reshape(problems, m)
    device = jnp.asarray(y), jnp.asarray(psi)
    ours = jax.jit(jax.vmap(lambda y, psi: fit_kernel(y, psi, None)))

    def loop() -> list[float]:
        return [numpy_rivals.reml_fit_intercept(y[i], psi[i], tolerance=TOLERANCE) for i in range(problems)]

    return Contest(lambda: ours(*device), {"numpy loop": loop})


def packages(y: np.ndarray, psi: np.ndarray, X: np.ndarray) -> dict[str, Thunk]:
    """Fits by the packages that are installed, each as its documentation has it."""
    makers: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Thunk]] = {
        "samplics": _samplics,
        "saePy": _saepy,
        "svy-sae": _svy_sae,
    }
    found: dict[str, Thunk] = {}
    for name, maker in makers.items():
        try:
            thunk = maker(y, psi, X)
            thunk()
        except (ImportError, AttributeError):
            # Not installed, or a placeholder that holds no model.
            continue
        found[name] = thunk
    return found


def _samplics(y: np.ndarray, psi: np.ndarray, X: np.ndarray) -> Thunk:
    module = importlib.import_module("samplics.sae")
    area, standard_error = np.arange(len(y)), np.sqrt(psi)

    def run() -> object:
        model = module.EblupAreaModel()
        model.fit(y, X, area, standard_error, intercept=False, tol=TOLERANCE)
        model.predict(X, area, intercept=False)
        return model.area_mse

    return run


def _saepy(y: np.ndarray, psi: np.ndarray, X: np.ndarray) -> Thunk:
    mse_fh = importlib.import_module("saePy.mseFH").mseFH
    pandas = importlib.import_module("pandas")
    names = [f"x{j}" for j in range(1, X.shape[1])]
    frame = pandas.DataFrame({"y": y, "variance": psi, **{name: X[:, j + 1] for j, name in enumerate(names)}})
    formula = "y ~ " + (" + ".join(names) or "1")
    return lambda: mse_fh(formula, "variance", PRECISION=TOLERANCE, data=frame)


def _svy_sae(y: np.ndarray, psi: np.ndarray, X: np.ndarray) -> Thunk:
    # What PyPI carries under this name at the time of writing is empty: then there is no such attribute.
    area_level = importlib.import_module("svy_sae").AreaLevel
    return lambda: area_level(y=y, variance=psi, X=X).fit(method="reml")
