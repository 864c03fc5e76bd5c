"""Plain loops over records: direct estimates and design variances as the textbooks write them."""

from __future__ import annotations

import numpy as np


def hajek(weight, y):
    return float(np.sum(weight * y) / np.sum(weight))


def psu_totals(weight, value, stratum, psu):
    """{stratum: {psu: total}} over the whole design; records outside the domain must carry value 0."""
    totals = {}
    for w, v, h, j in zip(weight, value, stratum, psu, strict=True):
        totals.setdefault(h, {}).setdefault(j, 0.0)
        totals[h][j] += w * v
    return totals


def with_replacement_variance(totals, single_psu="error"):
    """sum_h n_h/(n_h-1) sum_j (e_hj - mean_h)^2."""
    everything = [e for stratum in totals.values() for e in stratum.values()]
    grand = sum(everything) / len(everything)
    variance = 0.0
    for stratum in totals.values():
        e = np.array(list(stratum.values()))
        if len(e) > 1:
            variance += len(e) / (len(e) - 1) * np.sum((e - e.mean()) ** 2)
        elif single_psu == "center":
            variance += (e[0] - grand) ** 2
        elif single_psu == "error":
            raise ValueError("single PSU")
    return variance


def taylor(area, weight, y, stratum, psu, *, domain, single_psu="error", total=False):
    """(estimate, variance) of one area's weighted mean, or of its total; y is nan where missing."""
    inside = (area == domain) & ~np.isnan(y)
    filled = np.where(inside, np.nan_to_num(y), 0.0)
    if total:
        totals = psu_totals(weight, filled, stratum, psu)
        return float(np.sum(weight * filled)), with_replacement_variance(totals, single_psu)
    estimate = hajek(weight[inside], y[inside])
    residual = np.where(inside, filled - estimate, 0.0)
    totals = psu_totals(weight, residual, stratum, psu)
    return estimate, with_replacement_variance(totals, single_psu) / np.sum(weight[inside]) ** 2


def replicate(weight, y, replicates, multiples, *, center="full", total=False):
    """(estimate, variance) of one area from its records and their replicate weights (n, R)."""

    def estimate(w):
        return float(np.sum(w * y)) if total else float(np.sum(w * y) / np.sum(w))

    full = estimate(weight)
    each = np.array([estimate(replicates[:, b]) for b in range(replicates.shape[1])])
    centre = full if center == "full" else each.mean()
    return full, float(np.sum(multiples * (each - centre) ** 2))


def jackknife(weight, stratum, psu):
    """Leave-one-PSU-out replicate weights (n, R) and their multiples (n_h - 1)/n_h."""
    columns, multiples = [], []
    for h in sorted(set(stratum)):
        inside = stratum == h
        psus = sorted(set(psu[inside]))
        for j in psus:
            column = weight.copy()
            column[inside] *= len(psus) / (len(psus) - 1)
            column[inside & (psu == j)] = 0.0
            columns.append(column)
            multiples.append((len(psus) - 1) / len(psus))
    return np.stack(columns, axis=1), np.array(multiples)
