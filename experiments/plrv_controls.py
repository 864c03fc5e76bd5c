"""Controls of the privacy-loss check and of the audit, over 200 fixed seeds.

What must pass passes within the nominal level, and every planted fault is caught with at least the power stated for it
before the run. Writes ``experiments/results/plrv_controls.csv`` (a row a control) after every control, so that a run
that was stopped goes on where it was::

    python -m experiments.plrv_controls [--seeds 200] [--draws 100000] [--only NAME]

Exit code 1 when a control does not behave as stated.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import fhjax  # noqa: F401  (float64)
from fhjax.model.fit import area_data, given
from fhjax.model.posterior import posterior, posterior_covariance
from fhjax.plrv import faults
from fhjax.plrv.audit import audit
from fhjax.plrv.check import check, directions
from fhjax.plrv.fit_tests import variance_p_value, variance_test_power
from fhjax.plrv.losses import Neighbours
from fhjax.privacy.guarantee import guarantees
from fhjax.release.draws import draw_kernel

RESULTS = Path(__file__).parent / "results" / "plrv_controls.csv"
LEVEL, AREAS, MODEL_VARIANCE = 0.01, 12, 0.4
FIELDS = ("control", "kind", "test", "draws", "seeds", "stated", "refuted", "limit", "as_stated")


@dataclasses.dataclass(frozen=True)
class Control:
    """One control: what a seed gives, and how often it must or may be refuted."""

    name: str
    kind: str  # "true" or "fault"
    test: str
    stated: float  # level of a true claim, power against a fault
    run: Callable[[int], bool]
    draws: int


def problem():
    """Twelve areas with one covariate, fixed."""
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(AREAS), rng.normal(size=AREAS)])
    psi = 0.2 + rng.gamma(2.0, 0.3, size=AREAS)
    y = X @ np.array([1.0, 2.0]) + rng.normal(size=AREAS) * np.sqrt(psi + 0.5)
    data = area_data(y, psi, X=X, intercept=False)
    fitted = given(data, MODEL_VARIANCE)
    return data, fitted, guarantees(data, fitted, 0.3 * rng.uniform(0.2, 1.0, AREAS))


def controls(draws: int) -> list[Control]:
    data, fitted, claim = problem()
    post = posterior(data, fitted)
    num_tests = 27  # findings of a check of independent areas; Holm's first step divides the level by this
    each = LEVEL / num_tests

    few = min(draws, 20_000)  # enough for the power stated for the faults that the whole check must see

    def refuted(seed: int, *, sampler=draw_kernel, claimed=claim, independent=True, correlated=False) -> bool:
        result = check(data, fitted, claimed, key=jax.random.key(seed), num_draws=few, joint_draws=few, level=LEVEL,
                       sampler=sampler, independent=independent, correlated=correlated, tails=False)  # fmt: skip
        return result.refuted

    here = Neighbours(data, MODEL_VARIANCE).here()
    sd = np.sqrt(np.asarray(here.variance))

    def one_area(seed: int, sampler) -> bool:
        theta = sampler(post, jax.random.key(seed), jnp.arange(draws), "independent")
        z = (np.asarray(theta[:, 0]) - float(here.mean[0])) / sd[0]
        return bool(variance_p_value(np.sum(z**2), draws) <= LEVEL)

    zero = jnp.zeros(AREAS)
    same = dataclasses.replace(
        claim, per_area_rho=zero, sensitivity=zero,
        joint_independent=dataclasses.replace(claim.joint_independent, rho=jnp.asarray(0.0)),
        joint_correlated=dataclasses.replace(claim.joint_correlated, rho=jnp.asarray(0.0)),
    )  # fmt: skip
    effect = (1.0 - np.asarray(post.shrinkage)) * np.asarray(claim.sensitivity)
    wrong_rho = effect**2 / (2.0 * np.asarray(post.variance))
    wrong = dataclasses.replace(claim, per_area_rho=jnp.asarray(wrong_rho))
    coefficient_ratio = float(np.max(np.asarray(claim.per_area_rho) / wrong_rho))
    own = np.asarray(posterior_covariance(post).independent) / np.asarray(post.variance)

    def structure_power(drawn: str, said: str) -> float:
        W = directions(here, said)
        shared = np.asarray(here.factor) / np.sqrt(np.asarray(here.variance))[:, None]
        ratio = np.sum(W**2 * own[:, None], axis=0) + np.sum((shared.T @ W) ** 2, axis=0)
        ratio = ratio if drawn == "correlated" else np.sum(W**2, axis=0)
        return float(np.max(variance_test_power(ratio, few, each / (2 * len(ratio)))))

    def power(ratio: float, count: float, level: float = each) -> float:
        return float(variance_test_power(ratio, count, level))

    mean, S = np.asarray(post.mean), _dense(post)
    root = np.linalg.cholesky(S)

    def audited(seed: int, scale: float = 1.0, phi: float = 0.0, n: int = 4000) -> bool:
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(n, AREAS))
        for t in range(1, n if phi else 1):
            z[t] = phi * z[t - 1] + np.sqrt(1 - phi**2) * z[t]
        return audit(mean + scale * z @ root.T, data, MODEL_VARIANCE, claim, level=LEVEL).refuted

    whole, single = "whole check", "variance of one area at the 1 % level"
    repeats = AREAS * min(few, 2**14) ** 2 / 2**24
    return [
        Control("D = D'", "true", whole, LEVEL, lambda s: refuted(s, claimed=same, correlated=True), few),
        Control("the package's own draws", "true", whole, LEVEL, lambda s: refuted(s, correlated=True), few),
        Control("the package's own draws, one area", "true", single, LEVEL, lambda s: one_area(s, draw_kernel), draws),
        Control("sd 1 % too small in one area", "fault", single, power(0.99**2, draws, LEVEL),
                lambda s: one_area(s, faults.sd_too_small_in_one_area), draws),
        Control("sd 1 % too small in all areas", "fault", whole, power(0.99**2, few * AREAS),
                lambda s: refuted(s, sampler=faults.sd_too_small), few),
        Control("wrong c_ik (regression part forgotten)", "fault", whole, power(coefficient_ratio, few, each / AREAS),
                lambda s: refuted(s, claimed=wrong), few),
        Control("plug-in beta", "fault", whole, power(float(own.mean()), few * AREAS),
                lambda s: refuted(s, sampler=faults.without_coefficient_part), few),
        Control("one key for all areas", "fault", whole, power(float(AREAS), few, each / 14),
                lambda s: refuted(s, sampler=faults.one_key_for_all), few),
        Control("float32 normals", "fault", whole, 1.0 - float(np.exp(-repeats)),
                lambda s: refuted(s, sampler=faults.single_precision), few),
        Control("correlated instead of independent", "fault", whole, structure_power("correlated", "independent"),
                lambda s: refuted(s, sampler=faults.the_other_release), few),
        Control("independent instead of correlated", "fault", whole,
                structure_power("independent", "correlated"),
                lambda s: refuted(s, sampler=faults.the_other_release, independent=False, correlated=True),
                few),
        Control("posterior mean without noise", "fault", whole, 1.0,
                lambda s: refuted(s, sampler=faults.no_noise), few),
        Control("NumPy sampler", "true", "audit", LEVEL, audited, 4000),
        Control("Markov chain, autocorrelation 0.8", "true", "audit", LEVEL, lambda s: audited(s, phi=0.8), 4000),
        Control("NumPy sampler, sd 3 % too small", "fault", "audit", power(0.97**2, 4000 * AREAS, LEVEL / 10),
                lambda s: audited(s, scale=0.97), 4000),
    ]  # fmt: skip


def _dense(post) -> np.ndarray:
    return np.asarray(posterior_covariance(post).to_dense())


def limit(control: Control, seeds: int) -> int:
    """Most refutations of a true claim, fewest of a fault, that chance explains (probability 1e-3)."""
    if control.kind == "true":
        return int(stats.binom.ppf(0.999, seeds, control.stated))
    return int(stats.binom.ppf(0.001, seeds, min(control.stated, 1.0)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--only", help="run the controls whose name contains this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader(args.out.open(encoding="utf-8"))) if args.out.exists() else []
    for control in controls(args.draws):
        if args.only and args.only not in control.name:
            continue
        if any(row["control"] == control.name and int(row["seeds"]) == args.seeds for row in rows):
            continue
        caught = sum(control.run(seed) for seed in range(args.seeds))
        bound = limit(control, args.seeds)
        fine = caught <= bound if control.kind == "true" else caught >= bound
        rows.append(
            {
                "control": control.name, "kind": control.kind, "test": control.test, "draws": control.draws,
                "seeds": args.seeds, "stated": f"{control.stated:.4g}", "refuted": caught, "limit": bound,
                "as_stated": "yes" if fine else "NO",
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
        with args.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0 if all(row["as_stated"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
