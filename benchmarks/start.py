"""What a command costs before it does anything: ``python -m benchmarks.start --out FILE.json``.

CPU seconds (user and system, of the process and its children) and wall seconds, the median of several runs: help,
version, bad input, and a report on the 24 areas of the carried survey with an empty and with a warm compile cache.
Beside them, how many operations the programs of one fit and one guarantee have and what compiling them costs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fhjax
from benchmarks.machine import facts
from fhjax.privacy.guarantee import _kernel
from fhjax.privacy.problem import given_to

REPORT = [
    "report", "example:nhanes0910_cholesterol", "--area", "race,age,sex", "--weight", "weight",
    "--outcome", "high_cholesterol = 1", "--where", "age <> '0-19'", "--strata", "stratum", "--psu", "psu",
]  # fmt: skip


def costs(words: list[str], cache: str) -> tuple[float, float]:
    """Wall and CPU seconds of one command."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "fhjax.cli.main", *words],
            cwd=folder, env=clean | {"FHJAX_COMPILE_CACHE": cache}, capture_output=True, check=False,
        )  # fmt: skip
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def repeated(words: list[str], cache: str | None, runs: int) -> dict[str, float]:
    """The medians; without ``cache`` every run begins with an empty one."""
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as empty:
            found.append(costs(words, cache or str(Path(empty) / "compiled")))
    return {
        "wall_seconds": statistics.median(w for w, _ in found),
        "cpu_seconds": statistics.median(c for _, c in found),
    }


def compiled(function: Any, *arguments: Any, **options: Any) -> dict[str, float]:
    """Operations of the program as it is handed to the compiler, and the CPU seconds that takes."""
    lowered = function.lower(*arguments, **options)
    operations = sum(" = " in line for line in lowered.as_text(dialect="hlo").splitlines())
    start = time.process_time()
    lowered.compile()
    return {"operations": operations, "compile_cpu_seconds": time.process_time() - start}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--out", required=True, metavar="FILE.json")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args(argv)
    jax.config.update("jax_enable_compilation_cache", False)
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=50)), jnp.asarray(rng.normal(size=50))
    data = fhjax.area_data(y, np.ones(50), x)
    fit = fhjax.fit(data)
    with tempfile.TemporaryDirectory() as folder:
        warm = str(Path(folder) / "compiled")
        costs([*REPORT, "--out", "report"], warm)
        result = {
            "machine": facts(),
            "--help": repeated(["--help"], warm, args.runs),
            "--version": repeated(["--version"], warm, args.runs),
            "bad input": repeated([*REPORT[:-2], "--weight", "twice", "--out", "report"], warm, args.runs),
            "report, empty cache": repeated([*REPORT, "--out", "report"], None, args.runs),
            "report, warm cache": repeated([*REPORT, "--out", "report"], warm, args.runs),
            "fit_kernel, 50 areas, 2 covariates": compiled(fhjax.fit_kernel, y, data.sampling_variance, data.X),
            "guarantees, 50 areas, 2 covariates": compiled(
                _kernel, *given_to(data, fit, 0.1, None), exact_off_diagonal=True
            ),
        }
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
