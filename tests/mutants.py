"""Forty planted faults of one line each, and whether the tests notice: ``python -m tests.mutants``.

Each fault is put into a copy of the package, and the tests that should notice run there until one fails. A fault that
survives says that a line could be wrong without anybody knowing. Not part of the suite: it takes about ten minutes.
The last result is kept in tests/golden/mutants.csv. One survives: the second orthogonalisation of a linear release costs
less than the problem's own rounding where rows are nearly dependent, so no number shows it; it stays because a release of
many nearly dependent rows would add such errors up.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "tests" / "golden" / "mutants.csv"


class Mutant(NamedTuple):
    what: str
    file: str  # below fhjax/
    right: str
    wrong: str
    tests: str  # files below tests/, by blanks


MUTANTS = [
    # formulas
    Mutant(
        "own coefficient without the leverage",
        "privacy/coefficients.py",
        "return self.direct_weight + self.shrinkage * leverage",
        "return self.direct_weight + 0.0 * leverage",
        "privacy/test_coefficients.py",
    ),
    Mutant(
        "posterior variance without c_ii",
        "privacy/coefficients.py",
        "return self.sampling_variance * self.own()",
        "return self.sampling_variance * self.direct_weight",
        "privacy/test_coefficients.py privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "per-area rho without the half",
        "privacy/rho.py",
        "return divide(effect**2, 2.0 * coefficients.posterior_variance())",
        "return divide(effect**2, 1.0 * coefficients.posterior_variance())",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "own term with the posterior variance",
        "privacy/rho.py",
        "return divide(sensitivity**2 * coefficients.own(), 2.0 * coefficients.sampling_variance)",
        "return divide(sensitivity**2 * coefficients.own(), 2.0 * coefficients.total_variance)",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "independent joint without the other areas",
        "privacy/rho.py",
        "total = jnp.where(sensitivity == 0.0, 0.0, own + others)",
        "total = jnp.where(sensitivity == 0.0, 0.0, own)",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "independent joint counts the own area twice",
        "privacy/coefficients.py",
        "others = jnp.maximum(everyone - u * squared * squared, 0.0) / (V * V)",
        "others = jnp.maximum(everyone, 0.0) / (V * V)",
        "privacy/test_coefficients.py privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "REML as ML",
        "model/likelihood.py",
        "value = 0.5 * (yP2y - (one.w - jnp.trace(AG2)))",
        "value = 0.5 * (yP2y - one.w)",
        "model/test_model_golden.py model/test_model_fit.py",
    ),
    Mutant(
        "shrinkage the wrong way round",
        "model/posterior.py",
        "B = psi / jnp.where(V > 0, V, 1.0)\n    columns",
        "B = s / jnp.where(V > 0, V, 1.0)\n    columns",
        "model/test_model_posterior.py",
    ),
    Mutant(
        "MSE with g3 once",
        "model/posterior.py",
        "return 2.0 * variance * unit * unit, bias * unit",
        "return variance * unit * unit, bias * unit",
        "model/test_model_golden.py model/test_model_posterior.py",
    ),
    Mutant(
        "posterior covariance without its rank",
        "model/posterior.py",
        "return self.independent + jnp.sum(self.factor * self.factor, axis=1)",
        "return self.independent",
        "model/test_model_posterior.py",
    ),
    Mutant(
        "simple epsilon without the 2",
        "privacy/conversion.py",
        "value = (safe_rho + 2.0 * jnp.sqrt(safe_rho)",
        "value = (safe_rho + jnp.sqrt(safe_rho)",
        "privacy/test_conversion_golden.py",
    ),
    Mutant(
        "composition forgets the factor 4",
        "privacy/composition.py",
        "return 4.0 * rho",
        "return 2.0 * rho",
        "privacy/test_what_if_and_sensitivity.py",
    ),
    Mutant(
        "repeated draws free of charge",
        "privacy/composition.py",
        "rho=guarantee.rho * int(draws)",
        "rho=guarantee.rho",
        "privacy/test_what_if_and_sensitivity.py",
    ),
    Mutant(
        "Taylor with n instead of n - 1",
        "survey/taylor.py",
        "squares * design_psus / xp.maximum(design_psus - 1, 1)",
        "squares * design_psus / xp.maximum(design_psus, 1)",
        "survey/test_variance.py",
    ),
    Mutant(
        "zeros of absent PSUs forgotten",
        "survey/taylor.py",
        "zeros = (design_psus - rows.psus).astype(float)",
        "zeros = (rows.psus - rows.psus).astype(float)",
        "survey/test_variance.py",
    ),
    Mutant("SDR with 2 / R", "survey/replicates.py", '"sdr": 4.0 / R', '"sdr": 2.0 / R', "survey/test_variance.py"),
    Mutant(
        "sensitivity without the range",
        "survey/sensitivity.py",
        "return xp.where(wrong, xp.inf, R * largest / xp.where(wrong, 1.0, total))",
        "return xp.where(wrong, xp.inf, largest / xp.where(wrong, 1.0, total))",
        "privacy/test_what_if_and_sensitivity.py survey/test_direct.py",
    ),
    Mutant(
        "unit weights by record",
        "survey/arrays.py",
        "largest = jax.ops.segment_max(total[rank], area, num_segments=num_areas)",
        "largest = jax.ops.segment_max(weight, area, num_segments=num_areas)",
        "survey/test_sums.py",
    ),
    Mutant(
        "merged maxima added",
        "merging.py",
        'for name in ("max_weight", "max_unit_weight")}',
        'for name in ("max_weight", "max_weight")}',
        "survey/test_sums.py survey/test_merging.py",
    ),
    Mutant(
        "linear release without its second orthogonalisation",
        "privacy/linear.py",
        "rest = rest - second @ Q",
        "rest = rest - 0.0 * second @ Q",
        "privacy/test_linear_releases.py",
    ),
    Mutant(
        "lattice without its price",
        "release/lattice.py",
        "moved = d + math.sqrt(num_coordinates) * (1.0 / steps + 2.0 * computation_error)",
        "moved = d",
        "release/test_release_publish.py",
    ),
    # comparisons
    Mutant(
        "certificate that settles too easily",
        "privacy/extremes.py",
        "settled = fixed_own >= bound * (1.0 + _ROUNDING)",
        "settled = fixed_own >= 0.5 * bound",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "search that stops early",
        "privacy/extremes.py",
        "return (step < num_blocks) & jnp.any(length * left > best)",
        "return (step < 1) & jnp.any(length * left > best)",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "a posterior of other data passes at 5 %",
        "privacy/problem.py",
        "SAME_MODEL = 1e-9",
        "SAME_MODEL = 5e-2",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "negative sensitivities pass",
        "privacy/defects.py",
        "return ~(jnp.isfinite(delta) & (delta >= 0.0))",
        "return ~jnp.isfinite(delta)",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "collinear covariates pass",
        "privacy/coefficients.py",
        "_COLLINEAR = 64 *",
        "_COLLINEAR = 0 *",
        "privacy/test_coefficients.py",
    ),
    Mutant(
        "a failed problem is finite inside jit",
        "privacy/guarantee.py",
        "failed = problem.C.status >= Status.NOT_CONVERGED",
        "failed = problem.C.status >= 99",
        "test_transformations.py",
    ),
    Mutant(
        "the conservative bound where it is none",
        "privacy/guarantee.py",
        "exceeding = jnp.sum(effect > delta * (1.0 + 1e-12))",
        "exceeding = jnp.sum(effect > 2.0 * delta)",
        "privacy/test_guarantee_properties.py",
    ),
    Mutant(
        "outcomes outside their bounds pass",
        "survey/arrays.py",
        "if np.any(outside := (low < bounds[0]) | (high > bounds[1])):",
        "if np.any(outside := (low < bounds[0])):",
        "survey/test_sums.py",
    ),
    Mutant(
        "certified with the variances held",
        "caps/plan.py",
        'status = "certified" if np.all(reported <= target)',
        'status = "certified" if met',
        "trim/test_trim_search.py trim/test_trim_cli.py",
    ),
    Mutant(
        "Holm without its factor",
        "plrv/fit_tests.py",
        "np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])",
        "np.maximum.accumulate(p[order])",
        "plrv/test_plrv_fit_tests.py",
    ),
    # rounding directions
    Mutant(
        "epsilon rounded to nearest",
        "report/numbers.py",
        "return _text(x, digits, ROUND_CEILING)",
        "return _text(x, digits, ROUND_HALF_EVEN)",
        "report/test_report_statement.py report/test_report_write.py",
    ),
    Mutant(
        "simple epsilon rounded down",
        "privacy/conversion.py",
        "jnp.sqrt(-jnp.log(safe_delta))) * (1.0 + _ROUND * UNIT)",
        "jnp.sqrt(-jnp.log(safe_delta))) * (1.0 - _ROUND * UNIT)",
        "privacy/test_conversion_properties.py privacy/test_conversion_mpmath.py",
    ),
    Mutant(
        "rho for epsilon rounded up",
        "privacy/conversion.py",
        "value = root * root * (1.0 - 5.0 * _ROUND * UNIT)",
        "value = root * root * (1.0 + 5.0 * _ROUND * UNIT)",
        "privacy/test_conversion_properties.py",
    ),
    Mutant(
        "Rényi divergence rounded down",
        "privacy/renyi.py",
        "value = jnp.where(certified, (location + scale) * (1.0 + _ROUND * UNIT), jnp.inf)",
        "value = jnp.where(certified, (location + scale) * (1.0 - _ROUND * UNIT), jnp.inf)",
        "privacy/test_renyi.py",
    ),
    Mutant(
        "tight margin the wrong way",
        "privacy/tight_conversion.py",
        "margin = _ROUND * UNIT * (safe_rho + safe_rho * b",
        "margin = -_ROUND * UNIT * (safe_rho + safe_rho * b",
        "privacy/test_conversion_mpmath.py privacy/test_conversion_properties.py",
    ),
    # roles
    Mutant(
        "the weight among its replicates",
        "survey/roles.py",
        "if column not in used and column != weight and",
        "if column not in used and",
        "survey/test_survey_roles.py survey/test_read.py",
    ),
    Mutant(
        "missing becomes 0",
        "survey/roles.py",
        'return f"CASE WHEN {absent} THEN NULL ELSE ({self.sql}) END"',
        'return f"CASE WHEN {absent} THEN 0 ELSE ({self.sql}) END"',
        "survey/test_read.py test_cases.py",
    ),
    Mutant(
        "a list of missing codes forgotten",
        "survey/missing.py",
        "return self.everywhere if answer else ()",
        "return ()",
        "survey/test_read.py test_cases.py survey/test_doubts.py",
    ),
    Mutant(
        "estimated variances called public",
        "privacy/assumptions.py",
        'if variance_source == "estimated":',
        'if variance_source == "public":',
        "privacy/test_guarantee_properties.py",
    ),
]


def prepared(folder: Path) -> Path:
    """A copy of all that the tests read."""
    checkout = folder / "checkout"
    ignore = shutil.ignore_patterns("__pycache__", ".git", ".venv", "*.egg-info", "results")
    shutil.copytree(ROOT, checkout, ignore=ignore)
    return checkout


def tried(mutant: Mutant, folder: Path) -> str:
    """ "caught by TEST", or "SURVIVED"."""
    with tempfile.TemporaryDirectory(dir=folder) as here:
        checkout = prepared(Path(here))
        path = checkout / "fhjax" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.right) != 1:
            raise SystemExit(f"{mutant.what}: the line is there {text.count(mutant.right)} times, not once.")
        path.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        shared = os.environ.get("FHJAX_SHARED", str(ROOT.parent / "shared"))
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *(f"tests/{name}" for name in mutant.tests.split())],
            cwd=checkout, env=os.environ | {"FHJAX_SHARED": shared}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if run.returncode == 0 or not failed:
        return "SURVIVED"
    return "caught by " + failed[0].split(" - ")[0].removeprefix("FAILED ").removeprefix("ERROR ").removeprefix(
        "tests/"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only the mutants whose description holds one of these words")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)
    chosen = [mutant for mutant in MUTANTS if not args.words or any(word in mutant.what for word in args.words)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.workers) as pool:
        rows = []
        for mutant, result in zip(chosen, pool.map(lambda one: tried(one, Path(folder)), chosen), strict=True):
            rows.append((mutant.what, mutant.file, result))
            print(f"{len(rows):3}/{len(chosen)}  {mutant.what}: {result}", flush=True)
    survived = sum(result == "SURVIVED" for *_, result in rows)
    if not args.words:
        with RESULT.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([("fault", "file", "result"), *rows])
    print(f"{len(rows) - survived} of {len(rows)} caught.")
    return int(survived > 2)


if __name__ == "__main__":
    sys.exit(main())
