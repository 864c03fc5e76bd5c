"""Data for the model's tests: the reference data sets, read where they lie, and random areas."""

from __future__ import annotations

import csv

import numpy as np

from fhjax.model.checks import area_data


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def numbers(values):
    return np.array(values, dtype=float)


def reference_data(shared):
    """Name in exact_mp.json -> AreaData."""
    folder = shared / "golden" / "fay_herriot"
    milk, noisy, silc = (read(folder / name) for name in ("milk.csv", "milk_var10.csv", "eusilcA_combined.csv"))
    major = np.array(milk["MajorArea"])
    dummies = np.stack([major == level for level in "234"], axis=1).astype(float)
    income, income_variance = numbers(silc["Mean"]), numbers(silc["Var_Mean"])
    return {
        "milk_intercept": area_data(numbers(milk["yi"]), numbers(milk["vardir"])),
        "milk_majorarea": area_data(numbers(milk["yi"]), numbers(milk["vardir"]), dummies),
        "milk_var10_intercept": area_data(numbers(noisy["yi"]), numbers(noisy["vardir"])),
        "eusilcA": area_data(
            income, income_variance, np.stack([numbers(silc["cash"]), numbers(silc["self_empl"])], axis=1)
        ),
        "eusilcA_intercept": area_data(income, income_variance),
    }


def random_areas(seed, m=30, p=3, spread=1.0):
    """y, sampling variances and X with an intercept; the model variance is ``spread`` times about 1."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([np.ones((m, 1)), rng.normal(size=(m, p - 1))], axis=1)
    psi = np.exp(rng.normal(0.0, 0.7, m))
    y = X @ rng.normal(size=p) + rng.normal(size=m) * np.sqrt(psi + spread)
    return y, psi, X
