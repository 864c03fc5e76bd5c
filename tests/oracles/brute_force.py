"""Every change of one privacy unit's answers, tried outright: what a sensitivity, a rho or a certificate must cover.

Loops over units and over the corners of their answers, with everything else recomputed from the records by the textbook
formulas; nothing here imports the package.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from . import survey_oracle, trim_oracle

AREAS, UNITS, REPLICATES = 4, 12, 8
SIZES = np.array([1, 2, 1, 3, 1, 1, 2, 1, 2, 1, 3, 1])  # records of each unit of an area; fixed, so that shapes are
FAY = 0.5
BOUNDS = {"yes_no": (0.0, 1.0), "count": (0.0, 3.0), "amount": (-1.0, 2.5)}


@dataclasses.dataclass(frozen=True)
class GeneratedSurvey:
    """Records of AREAS areas with UNITS households each; some outcomes are missing, all weights differ."""

    frame: pd.DataFrame  # id, area, hh, stratum, psu, w, r1.., y
    bounds: tuple[float, float]
    by_record: bool  # the privacy unit is the record, not the household

    @property
    def unit(self) -> np.ndarray:
        return np.arange(len(self.frame)) if self.by_record else self.frame["hh"].to_numpy()


def generated_survey(seed: int, outcome: str, *, by_record: bool) -> GeneratedSurvey:
    """One survey of a kind; kinds share their shapes."""
    rng = np.random.default_rng(seed)
    low, high = BOUNDS[outcome]
    unit = np.repeat(np.arange(AREAS * UNITS), np.tile(SIZES, AREAS))
    area = unit // UNITS
    n = len(unit)
    weight = np.exp(rng.normal(scale=rng.uniform(0.3, 1.4), size=n)) * 50.0
    level = np.clip(rng.normal(0.4, rng.uniform(0.02, 0.25), AREAS), 0.1, 0.9)
    y = {
        "yes_no": (rng.random(n) < level[area]).astype(float),
        "count": rng.binomial(3, level[area]).astype(float),
        "amount": low + (high - low) * rng.beta(4 * level[area], 4 * (1 - level[area])),
    }[outcome]
    first = np.searchsorted(area, np.arange(AREAS))
    y[first], y[first + 1] = low, high  # no area is constant
    y[first[:, None] + np.array([5, 13])] = np.nan
    half = rng.choice([1 - FAY, 1 + FAY], (AREAS * UNITS, REPLICATES))
    frame = pd.DataFrame({
        "id": np.arange(n), "area": [f"{k:02d}" for k in area], "hh": unit, "stratum": 1 + unit % 2, "psu": unit,
        "w": weight, "y": y,
    })  # fmt: skip
    for b in range(REPLICATES):
        frame[f"r{b + 1}"] = weight * half[unit, b]
    return GeneratedSurvey(frame, (low, high), by_record)


def estimates(frame: pd.DataFrame, weight: np.ndarray, y: np.ndarray) -> np.ndarray:
    area = frame["area"].to_numpy()
    seen = ~np.isnan(y)
    return np.array([survey_oracle.hajek(weight[seen & (area == k)], y[seen & (area == k)]) for k in np.unique(area)])


def variances(frame: pd.DataFrame, weight: np.ndarray, y: np.ndarray, design: str) -> np.ndarray:
    """(m,) design variances of weights that may have been trimmed: replicates follow record by record."""
    area = frame["area"].to_numpy()
    seen = ~np.isnan(y)
    found = []
    sizes = frame.groupby("stratum")["psu"].nunique().to_dict()
    factor = weight / frame["w"].to_numpy()
    for k in np.unique(area):
        here = seen & (area == k)
        if design == "taylor":
            stratum, psu = frame["stratum"].to_numpy()[here], frame["psu"].to_numpy()[here]
            found.append(trim_oracle.taylor(weight[here], y[here], stratum, psu, sizes))
        else:
            columns = np.column_stack([frame[f"r{b + 1}"] for b in range(REPLICATES)])
            multiples = np.full(REPLICATES, 1.0 / REPLICATES / (1 - FAY) ** 2)
            replicates = (columns * factor[:, None])[here]
            found.append(trim_oracle.replicate_variance(weight[here], replicates, y[here], multiples))
    return np.array(found)


def largest_changes(survey: GeneratedSurvey, weight: np.ndarray) -> np.ndarray:
    """(m,) the largest change of each estimate over all units, all answers they could have had, and all others."""
    frame, y = survey.frame, survey.frame["y"].to_numpy()
    area, unit = frame["area"].to_numpy(), survey.unit
    names = np.unique(area)
    largest = np.zeros(len(names))
    for one in np.unique(unit):
        rows = np.flatnonzero((unit == one) & ~np.isnan(y))
        others = [y]
        for corner in itertools.product(survey.bounds, repeat=len(rows)):
            changed = y.copy()
            changed[rows] = corner
            others.append(changed)
        inside = area == area[np.flatnonzero(unit == one)[0]]
        k = int(np.searchsorted(names, area[inside][0]))
        values = [estimates(frame[inside], weight[inside], other[inside])[0] for other in others]
        largest[k] = max(largest[k], max(values) - min(values))
    return largest


def true_rho(psi: np.ndarray, s2: float, change: np.ndarray) -> dict[str, np.ndarray]:
    """rho of each release: Rényi divergences of the two posteriors when one estimate moves by ``change[k]``.

    Posterior means from the estimates themselves (generalised least squares, shrinkage), once as they are and once
    moved; psi and the model variance are the same in both.
    """
    m = len(psi)
    X = np.ones((m, 1))
    _, covariance, shrinkage = trim_oracle.posterior(psi, s2, X)

    def means(y: np.ndarray) -> np.ndarray:
        precision = 1.0 / (psi + s2)
        beta = np.sum(precision * y) / np.sum(precision)
        return y - shrinkage * (y - beta) if s2 > 0.0 else np.full(m, beta)

    y = np.zeros(m)
    shifts = np.stack([means(y + change[k] * np.eye(m)[k]) - means(y) for k in range(m)])  # (moved area, area)
    own = shifts**2 / np.diag(covariance)
    joint = [shift @ np.linalg.pinv(covariance, hermitian=True) @ shift / 2.0 for shift in shifts]
    return {
        "per_area": own.max(axis=0) / 2.0,
        "independent": np.max(own.sum(axis=1) / 2.0),
        "correlated": np.max(joint),
    }


def model_variance(y: np.ndarray, psi: np.ndarray) -> float:
    """REML without covariates: the best of a grid, then the root of the restricted score beside it."""
    best = trim_oracle.reml(y, psi, np.ones((len(y), 1)))

    def score(s2: float) -> float:
        w = 1.0 / (psi + s2)
        residual = y - w @ y / w.sum()
        return (w * w) @ (residual * residual) - w.sum() + w @ w / w.sum()

    low, high = 0.99 * best, 1.01 * best
    return float(brentq(score, low, high, xtol=1e-300, rtol=1e-15)) if score(low) > 0.0 > score(high) else best
