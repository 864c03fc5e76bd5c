"""One process of the sharding tests: assess some problems on all devices and save the numbers of this host's areas.

    python sharding_worker.py OUT.npz PROBLEM,... [ADDRESS NUM_HOSTS HOST]

Set XLA_FLAGS=--xla_force_host_platform_device_count=N before. With several hosts each passes its own areas.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np

#: name -> (areas, covariates with the intercept, search_work: 0 searches only areas that the certificate leaves open)
PROBLEMS = {
    "intercept": (23_457, 1, 4e9),
    "covariates": (301, 3, 4e9),
    "many": (23_457, 2, 0.0),
}


def problem(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """y, sampling variance, covariates without the intercept, sensitivity."""
    m, p, _ = PROBLEMS[name]
    rng = np.random.default_rng(m + p)
    psi = rng.gamma(2.0, 0.5, m) * 10.0 ** rng.uniform(-1.0, 1.0, m)
    x = rng.normal(size=(m, p - 1))
    y = 5.0 + x.sum(axis=1) + rng.normal(size=m) * np.sqrt(psi + 0.8)
    # A few areas that many others cannot be settled against.
    sensitivity = 0.1 * np.sqrt(psi) * np.where(np.arange(m) % 97 == 5, 30.0, 1.0)
    return y, psi, x if p > 1 else None, sensitivity


def assess(data: Any, sensitivity: np.ndarray, search_work: float) -> dict[str, Any]:
    """The chain of public functions, the same for sharded and ordinary areas."""
    from fhjax.model.fit import fit
    from fhjax.model.posterior import posterior
    from fhjax.privacy.guarantee import guarantees

    fitted = fit(data)
    published = posterior(data, fitted)
    result = guarantees(data, published, sensitivity, search_work=search_work)
    return {"fit": fitted, "posterior": published, "guarantees": result}


def numbers(results: dict[str, Any], data: Any) -> dict[str, np.ndarray]:
    """Every leaf by name, for the areas on this host."""
    from fhjax.sharding import local_areas

    found: dict[str, np.ndarray] = {}
    for kind, record in results.items():
        for field in dataclasses.fields(record):
            value = getattr(local_areas(record, data), field.name)
            if hasattr(value, "rho"):
                found[f"{kind}.{field.name}.rho"] = np.asarray(value.rho)
                found[f"{kind}.{field.name}.worst_area"] = np.asarray(value.worst_area)
            elif isinstance(value, (np.ndarray, int, float)):
                found[f"{kind}.{field.name}"] = np.asarray(value)
    return found


def main(out: str, names: str, *hosts: str) -> None:
    import jax

    from fhjax.model.fit import area_data, fit
    from fhjax.sharding import is_sharded, join_hosts, shard_areas

    if hosts:
        join_hosts(hosts[0], int(hosts[1]), int(hosts[2]), timeout=30)
    saved = {"devices": np.asarray(jax.device_count())}
    for name in names.split(","):
        m, _, search_work = PROBLEMS[name]
        y, psi, x, sensitivity = problem(name)
        # Uneven parts, so that one host's block has padding in the middle of the rows.
        part = slice(0, m)
        if hosts:
            part = (slice(0, m * 3 // 8), slice(m * 3 // 8, m))[int(hosts[2])]
        whole = area_data(y[part], psi[part], None if x is None else x[part])
        data = shard_areas(whole, local=bool(hosts))
        before = jax.live_arrays()  # ``whole`` lies on one device
        results = assess(data, sensitivity[part], search_work)
        for key, value in numbers(results, data).items():
            saved[f"{name}/{key}"] = value
        if jax.device_count() > 1:
            known = {id(array) for array in before}
            large = [
                array for array in jax.live_arrays() if max(array.shape, default=0) >= m and id(array) not in known
            ]
            assert large, "no array of the size of the areas was left to look at"
            assert all(is_sharded(array) for array in large), "all areas lie on one device, or on every one"
        if name == "covariates":
            saved["unmasked"] = np.asarray(fit(dataclasses.replace(data, mask=None)).model_variance)
            saved["masked"] = np.asarray(results["fit"].model_variance)
            saved["complaint"] = np.asarray(complaint(data, results, sensitivity[part]))
        if name == "many":
            planted_gather(data.y)
    np.savez(out, **saved)


def planted_gather(values: Any) -> None:
    """What the test of collectives must find: a sort needs all areas in one place."""
    import jax
    import jax.numpy as jnp

    def planted(values: Any) -> Any:
        return jnp.sort(values)

    jax.block_until_ready(jax.jit(planted)(values))


def complaint(data: Any, results: dict[str, Any], sensitivity: np.ndarray) -> str:
    from fhjax.errors import InputError
    from fhjax.privacy.guarantee import guarantees

    try:
        guarantees(data, results["posterior"], np.where(np.arange(len(sensitivity)) == 7, -1.0, sensitivity))
    except InputError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
