"""A small problem that the privacy-loss tests share."""

from __future__ import annotations

import numpy as np
from oracles import plrv_oracle as oracle

from fhjax.model.fit import area_data, given
from fhjax.model.posterior import posterior as posterior_of
from fhjax.privacy.guarantee import guarantees


def problem(m: int = 12, p: int = 2, model_variance: float = 0.4):
    """Data, fit, posterior and guarantees of m areas."""
    y, psi, X = oracle.example(m, p)
    data = area_data(y, psi, X=X, intercept=False)
    fitted = given(data, model_variance)
    sensitivity = 0.3 * np.random.default_rng(1).uniform(0.2, 1.0, m)
    return data, fitted, posterior_of(data, fitted), guarantees(data, fitted, sensitivity)
