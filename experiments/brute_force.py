"""No claimed sensitivity, rho or trimming certificate lies below the truth: every change of every unit is tried.

Each generated survey is written to a file and goes the whole way, ``fhjax`` reading, fitting, trimming and writing, and
beside it the textbook formulas run over every change of one privacy unit's answers (``tests/oracles``). Writes
``experiments/results/brute_force.csv``, a row a survey and claim, with the ratio of the claim to the truth::

    python -m experiments.brute_force [--surveys 200]

Exit code 1 when a claim lies below its truth.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import fhjax
from fhjax.cli.main import main as fhjax_command

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from oracles import brute_force as truth

RESULTS = Path(__file__).parent / "results" / "brute_force.csv"
ROUNDING = 1e-9

#: Ways to trim; each with every kind of outcome, unit and design in turn.
WAYS = (
    {},
    {"variances": "frozen"},
    {"joint": "independent", "variances": "frozen"},
    {"mode": "mean"},
    {"redistribution": "proportional"},
    {"objective": "weights", "model-variance": "0.01"},
    {"joint": "independent", "mode": "median"},
    {"redistribution": "additive", "variances": "frozen"},
)
KINDS = tuple(itertools.product(("yes_no", "count", "amount"), (False, True), ("taylor", "replicates")))


def claims_of(seed: int, outcome: str, by_record: bool, design: str, way: dict[str, str]) -> Iterator[dict]:
    """Every claim about one survey, beside its truth."""
    survey = truth.generated_survey(seed, outcome, by_record=by_record)
    frame, y = survey.frame, survey.frame["y"].to_numpy()
    weight = frame["w"].to_numpy()
    roles = {"area": "area", "weight": "w", "outcome": "y", "bounds": survey.bounds}
    words = [
        "--area",
        "area",
        "--weight",
        "w",
        "--outcome",
        "y",
        "--bounds",
        *(f"{bound:g}" for bound in survey.bounds),
    ]
    if not by_record:
        roles["unit"] = "hh"
        words += ["--unit", "hh"]
    variance = fhjax.Taylor()
    if design == "taylor":
        roles |= {"strata": "stratum", "psu": "psu"}
        words += ["--strata", "stratum", "--psu", "psu"]
    else:
        columns = f"r1..r{truth.REPLICATES}"
        roles["replicates"] = columns
        variance = fhjax.Replicates("fay", fay=truth.FAY)
        words += ["--replicates", columns, "--replicate-method", "fay", "--fay", str(truth.FAY)]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file, out = Path(folder) / "survey.parquet", Path(folder) / "trimmed"
        frame.to_parquet(file)
        direct = fhjax.direct_estimates(fhjax.open_survey(file, **roles), variance=variance)
        assessment = fhjax.assess(direct, delta=1e-5)
        said = assessment.guarantees

        change = truth.largest_changes(survey, weight)
        yield {"claim": "sensitivity", "claimed": np.asarray(direct.sensitivity), "truth": change}
        psi = truth.variances(frame, weight, y, design)
        np.testing.assert_allclose(direct.sampling_variance, psi, rtol=1e-9)
        rho = truth.true_rho(psi, float(assessment.fit.model_variance), change)
        yield {"claim": "rho of each area", "claimed": np.asarray(said.per_area_rho), "truth": rho["per_area"]}
        yield {"claim": "joint rho, correlated", "claimed": said.joint_correlated.rho, "truth": rho["correlated"]}
        yield {"claim": "joint rho, independent", "claimed": said.joint_independent.rho, "truth": rho["independent"]}

        joint = way.get("joint", "correlated")
        target = rho[joint] * np.random.default_rng(seed).uniform(0.3, 0.95)
        extra = [word for name, value in way.items() for word in (f"--{name}", value)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = fhjax_command(
                ["trim", str(file), *words, *extra, "--target-rho", repr(float(target)), "--out", str(out), "--quiet"]
            )
        summary = json.loads((out / "summary.json").read_text())
        assert (code == 0) == summary["certified"], (code, summary["status"])
        trimmed = pd.read_parquet(out / "weights.parquet").sort_values("id")["weight_trimmed"].to_numpy()
        trimmed = np.where(np.isnan(y), weight, trimmed)  # records that no estimate reads
        after = truth.largest_changes(survey, trimmed)
        psi = truth.variances(frame, trimmed, y, design)
        fits = [truth.model_variance(truth.estimates(frame, trimmed, y), psi)]
        if "model-variance" in way:
            fits.append(float(way["model-variance"]))
        reached = max(float(truth.true_rho(psi, s2, after)[joint]) for s2 in fits)
        yield {
            "claim": "rho of the written weights",
            "claimed": summary["rho_by_the_route_of_the_report"],
            "truth": reached,
        }
        if summary["certified"]:
            yield {"claim": "certificate: the target", "claimed": target, "truth": reached}
        else:
            assert reached > target * (1 - 1e-6), "a target that the written weights meet was not certified"


def rows_of(number: int) -> list[dict]:
    """The rows of the table for one survey: which kind, and each claim over its truth where that is least."""
    way = WAYS[number % len(WAYS)]
    outcome, by_record, design = KINDS[(number // len(WAYS)) % len(KINDS)]
    rows = []
    for found in claims_of(1000 + number, outcome, by_record, design, way):
        ratio = np.asarray(found["claimed"]) / np.asarray(found["truth"])
        rows.append({
            "survey": number, "outcome": outcome, "unit": "record" if by_record else "household", "design": design,
            "trimming": " ".join(f"{name}={value}" for name, value in way.items()) or "default",
            "claim": found["claim"], "least_ratio": float(np.min(ratio)),
            "below": int(np.sum(~(ratio >= 1.0 - ROUNDING))),
        })  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--surveys", type=int, default=200)
    args = parser.parse_args()
    rows: list[dict] = []
    for number in range(args.surveys):
        rows += rows_of(number)
        if sys.stderr.isatty():
            print(f"\r{number + 1:,} of {args.surveys:,} surveys", end="", file=sys.stderr)
    table = pd.DataFrame(rows)
    RESULTS.parent.mkdir(exist_ok=True)
    table.to_csv(RESULTS, index=False, float_format="%.12g", lineterminator="\n")
    shown = table.groupby("claim").agg(claims=("claim", "size"), least_ratio=("least_ratio", "min"),
                                       below=("below", "sum"))  # fmt: skip
    print(shown.to_string())
    return int(shown["below"].sum() > 0)


if __name__ == "__main__":
    raise SystemExit(main())
