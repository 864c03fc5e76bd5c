"""An Assessment of estimates that a test makes up: the real fit, guarantees and sentences, without a survey file."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pandas as pd

import fhjax
from fhjax.errors import Status
from fhjax.privacy.what_if import drivers, equal_weight_rho, model_variance_changes
from fhjax.records import AreaData, Assessment, DirectEstimates, Labels

NEIGHBOURS = "bounded neighbours: two data sets that differ in the outcome of one record, replaced by any other"


def assessment_of(
    labels,
    y,
    psi,
    *,
    n=None,
    sum_w=None,
    w_max=None,
    model_variance=0.002,
    delta=1e-5,
    flags=None,
    excluded=(),
    num_missing=None,
    etas=(-0.5, -0.1, 0.1, 0.5),
    sensitivity=None,
) -> Assessment:
    """An assessment of m areas with an intercept and a given model variance."""
    y, psi = np.asarray(y, float), np.asarray(psi, float)
    m = len(y)
    labels = Labels(labels)
    if n is not None:
        n, sum_w, w_max = np.asarray(n, np.int64), np.asarray(sum_w, float), np.asarray(w_max, float)
        sensitivity = w_max / sum_w
    sensitivity = np.asarray(sensitivity, float)
    direct = DirectEstimates(
        labels=labels,
        y=y,
        sampling_variance=psi,
        sensitivity=sensitivity,
        num_records=n,
        weight_sum=sum_w,
        max_unit_weight=w_max,
        kish_n_eff=None if n is None else n / 1.8,
        design_effect=None if n is None else np.full(m, 1.7),
        degrees_of_freedom=None if n is None else np.maximum(n - 1.0, 1.0),
        flags=flags or {},
        excluded=tuple(excluded),
        num_missing=num_missing,
        estimator="given" if n is None else "hajek",
        variance_method="Taylor linearisation",
        design=("Read 1 file.", "Weights from column 'weight'."),
    )
    # Not area_data, which refuses the single area and the zero variances that a report must survive.
    data = AreaData(
        y=jnp.asarray(y),
        sampling_variance=jnp.asarray(psi),
        X=jnp.ones((m, 1)),
        labels=labels,
    )
    fit = fhjax.given(data, model_variance)
    status = Status.OK if model_variance > 0 else Status.AT_BOUNDARY
    fit = dataclasses.replace(
        fit, method="reml", model_variance_se=jnp.asarray(model_variance / 5), steps=jnp.asarray(5),
        status=jnp.asarray(int(status)),
    )  # fmt: skip
    posterior = fhjax.posterior(data, fit)
    guarantees = fhjax.guarantees(data, posterior, sensitivity)
    return Assessment(
        direct=direct,
        area_data=data,
        fit=fit,
        posterior=posterior,
        guarantees=guarantees,
        equal_weight_rho=None if n is None else equal_weight_rho(data, posterior, n),
        drivers=None if n is None else drivers(guarantees.per_area_rho, n, w_max * n / sum_w),
        model_variance_changes=model_variance_changes(data, posterior, sensitivity, etas=etas),
        delta=delta,
    )


def cholesterol() -> Assessment:
    """24 areas (race, age, sex) of the carried survey; the design variance treats records as drawn with replacement."""
    from importlib.resources import files

    with (files("fhjax") / "data" / "nhanes0910_cholesterol.csv.gz").open("rb") as stream:
        records = pd.read_csv(stream, compression="gzip")
    records = records.dropna(subset=["high_cholesterol"])
    rows, excluded = [], []
    for key, part in records.groupby(["race", "age", "sex"], sort=True):
        w, outcome = part["weight"].to_numpy(float), part["high_cholesterol"].to_numpy(float)
        y = w @ outcome / w.sum()
        psi = len(w) / max(len(w) - 1, 1) * np.sum((w * (outcome - y)) ** 2) / w.sum() ** 2
        label = "|".join(map(str, key))
        if psi > 0:
            rows.append((label, y, psi, len(w), w.sum(), w.max()))
        else:
            excluded.append((label, "the design variance is 0"))
    label, y, psi, n, sum_w, w_max = map(list, zip(*rows, strict=True))
    flags = {"low_degrees_of_freedom": np.array(n) < 150, "single_record": np.zeros(len(n), bool)}
    missing = np.arange(len(n))
    return assessment_of(
        label,
        y,
        psi,
        n=n,
        sum_w=sum_w,
        w_max=w_max,
        flags=flags,
        excluded=excluded,
        num_missing=missing,
        model_variance=0.004,
    )


def made_up(m: int, *, seed: int = 1, infinite: int = 0, **options) -> Assessment:
    """m areas drawn at random; the first ``infinite`` of them have a sampling variance of 0."""
    rng = np.random.default_rng(seed)
    n = np.exp(rng.normal(6.5, 0.7, m)).astype(int) + 20
    w_ratio = np.exp(rng.normal(1.6, 0.4, m)) + 1
    y = rng.uniform(0.05, 0.3, m)
    psi = y * (1 - y) / n * 1.8
    psi[:infinite] = 0.0
    flags = {"zero_variance": psi == 0}
    labels = options.pop("labels", [f"area {i + 1}" for i in range(m)])
    return assessment_of(labels, y, psi, n=n, sum_w=n * 50.0, w_max=50.0 * w_ratio, flags=flags, **options)
