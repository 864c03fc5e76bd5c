"""An Assessment made with plain NumPy (intercept-only formulas), so that the report is tested apart from the model."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fhjax.errors import Status
from fhjax.records import (
    AreaData,
    Assessment,
    DirectEstimates,
    Drivers,
    FayHerriotFit,
    Guarantees,
    Labels,
    Posterior,
    ReleaseGuarantee,
)

NEIGHBOURS = "bounded neighbours: two data sets that differ in the outcome of one record, replaced by any other"
ASSUMPTIONS = (
    "The universe, the weights, the list of areas and the covariates are public and fixed.",
    "Every outcome lies within its declared bounds.",
    "Sampling errors are independent between areas, and a privacy unit lies in one area.",
    "The sampling variances and the model variance are treated as invariants.",
)


def numbers(psi, s2, delta):
    """Posterior variance, shrinkage, largest effect, own coefficient, independent terms for an intercept-only model."""
    psi, delta = np.asarray(psi, float), np.asarray(delta, float)
    total = psi + s2
    B = psi / total
    A = 1.0 / np.sum(1.0 / total)
    C = np.diag(1 - B) + B[:, None] * A / total[None, :] if len(psi) <= 3000 else None
    variance = B * s2 + B**2 * A
    own = (1 - B) + B * A / total
    effect = np.abs(C) * delta[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(variance > 0, effect.max(axis=1) ** 2 / (2 * variance), np.inf)
        own_rho = np.where(variance > 0, (own * delta) ** 2 / (2 * variance), np.inf)
        term_own = np.where(variance > 0, own**2 / variance, np.inf)
        others = (C - np.diag(own)) ** 2
        term_others = np.where(variance[:, None] > 0, others / np.where(variance > 0, variance, 1.0)[:, None], 0.0).sum(
            axis=0
        )
    terms = delta**2 / 2 * (term_own + term_others)
    off = (effect - np.diag(np.diag(effect))).max(axis=1) / (own * delta)
    share = np.where(np.isfinite(term_own), term_others / term_own, 0.0)
    return variance, B, rho, own, own_rho, terms, off, share, effect.argmax(axis=1), A


def slopes(y, *columns):
    """Least squares with an intercept: (low, estimate, high) of each slope."""
    X = np.column_stack([np.ones(len(y)), *columns])
    beta, *_ = np.linalg.lstsq(X, y, rcond=None)
    residual = y - X @ beta
    variance = residual @ residual / max(len(y) - X.shape[1], 1) * np.linalg.pinv(X.T @ X)
    error = 1.96 * np.sqrt(np.diag(variance))
    return [(float(b - e), float(b), float(b + e)) for b, e in zip(beta, error, strict=True)][1:]


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
    conservative=True,
    etas=(-0.5, -0.1, 0.1, 0.5),
    assumptions=ASSUMPTIONS,
    sensitivity=None,
) -> Assessment:
    """An assessment of m areas with an intercept-only model and a given model variance."""
    y, psi = np.asarray(y, float), np.asarray(psi, float)
    m = len(y)
    labels = Labels(labels)
    if n is not None:
        n, sum_w, w_max = np.asarray(n, np.int64), np.asarray(sum_w, float), np.asarray(w_max, float)
        sensitivity = w_max / sum_w
    sensitivity = np.asarray(sensitivity, float)
    s2 = model_variance
    variance, B, rho, own, own_rho, terms, off, share, attained, A = numbers(psi, s2, sensitivity)
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
    beta = float(np.sum(y / (psi + s2)) / np.sum(1 / (psi + s2)))
    release = {"neighbours": NEIGHBOURS, "assumptions": assumptions}
    guarantees = Guarantees(
        per_area_rho=rho,
        own_area_rho=own_rho,
        conservative_rho=np.where(variance > 0, sensitivity**2 / (2 * np.where(variance > 0, variance, 1)), np.inf)
        if conservative
        else None,
        conservative_note="It needs no coefficients."
        if conservative
        else "No valid bound without coefficients is known here.",
        own_coefficient=own,
        off_diagonal_ratio=off,
        attained_by=attained,
        joint_independent_terms=terms,
        other_areas_share=share,
        joint_independent=ReleaseGuarantee(
            rho=np.max(terms),
            worst_area=np.argmax(terms),
            release="one draw of each area, drawn independently",
            **release,
        ),
        joint_correlated=ReleaseGuarantee(
            rho=np.max(own_rho),
            worst_area=np.argmax(own_rho),
            release="one draw of all areas from their correlated posterior",
            **release,
        ),
        sequential=ReleaseGuarantee(rho=np.sum(rho), worst_area=np.asarray(-1), release="areas one by one", **release),
        sensitivity=sensitivity,
        num_settled_by_certificate=m,
        neighbours=NEIGHBOURS,
        assumptions=assumptions,
        labels=labels,
    )
    equal = drivers = None
    if n is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            equal = np.where(variance > 0, (own / n) ** 2 / (2 * np.where(variance > 0, variance, 1)), np.inf)
        use = np.isfinite(rho) & (rho > 0)
        log_rho, log_n, log_ratio = np.log(rho[use]), np.log(n[use]), np.log((w_max * n / sum_w)[use])
        both = slopes(log_rho, log_ratio, log_n)
        with np.errstate(invalid="ignore"):  # equal rho in all areas have no correlation: NaN, shown as a dash
            correlations = np.corrcoef(np.stack([log_n, log_ratio, log_rho]))
        drivers = Drivers(
            slope_log_n=slopes(log_rho, log_n)[0],
            slope_log_ratio_joint=both[0],
            slope_log_n_joint=both[1],
            correlation_log_n_log_ratio=float(correlations[0, 1]),
            correlation_log_rho_log_ratio=float(correlations[2, 1]),
            num_areas_used=int(use.sum()),
        )
    changes = {}
    for eta in etas:
        other = numbers(psi, s2 * (1 + eta), sensitivity)[2]
        with np.errstate(invalid="ignore"):
            changes[eta] = np.where(np.isfinite(rho), other / rho - 1, 0.0)
    return Assessment(
        direct=direct,
        area_data=AreaData(y=y, sampling_variance=psi, X=np.ones((m, 1)), labels=labels),
        fit=FayHerriotFit(
            model_variance=np.asarray(s2),
            model_variance_se=np.asarray(s2 / 5),
            beta=np.array([beta]),
            beta_covariance=np.array([[A]]),
            log_likelihood=np.asarray(12.5),
            restricted_log_likelihood=np.asarray(11.5),
            steps=np.asarray(5),
            status=np.asarray(int(Status.OK if s2 > 0 else Status.AT_BOUNDARY)),
            num_areas=m,
        ),
        posterior=Posterior(
            mean=(1 - B) * y + B * beta,
            variance=variance,
            shrinkage=B,
            mse=variance * 1.01,
            model_variance=np.asarray(s2),
            beta=np.array([beta]),
            beta_covariance=np.array([[A]]),
            X=np.ones((m, 1)),
        ),
        guarantees=guarantees,
        equal_weight_rho=equal,
        drivers=drivers,
        model_variance_changes=changes,
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
