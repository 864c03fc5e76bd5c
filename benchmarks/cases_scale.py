"""Ten million areas: what the whole chain of public functions takes in memory."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.registry import Contest, case
from fhjax.model.fit import area_data, fit
from fhjax.model.posterior import posterior
from fhjax.privacy.guarantee import guarantees


@case(
    name="scale_memory",
    what="fit, posterior and all guarantees as records, for peak_mib: at most 4,096 at 10^7 areas",
    sizes=(10**5, 10**6, 10**7),
)
def scale_memory(size: int, p: int) -> Contest:
    rng = np.random.default_rng(0)
    sampling_variance = 0.05 + rng.gamma(2.0, 0.5, size)
    y = rng.normal(size=size) * np.sqrt(1.0 + sampling_variance)
    sensitivity = jnp.asarray(0.1 * np.sqrt(sampling_variance))
    data = area_data(y, sampling_variance)

    def chain() -> Any:
        fitted = fit(data)
        published = posterior(data, fitted)
        result = guarantees(data, published, sensitivity)
        return published.mse, result.per_area_rho, result.joint_independent.rho, result.off_diagonal_ratio

    return Contest(chain)
