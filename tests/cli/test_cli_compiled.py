"""What was compiled is kept for the next command: where, for whom, and without data."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fhjax

COMMAND = [
    "report", fhjax.example("nhanes0910_cholesterol"), "--area", "race", "--weight", "weight",
    "--outcome", "high_cholesterol = 1", "--strata", "stratum", "--psu", "psu", "--out", "out",
]  # fmt: skip


def run(*words: str, where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "FHJAX_COMPILE"))}
    return subprocess.run(
        [sys.executable, "-m", "fhjax.cli.main", *words],
        cwd=where, capture_output=True, text=True, env=clean | environment, check=True,
    )  # fmt: skip


def test_the_cache_is_the_users_alone_and_can_be_switched_off(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    kept = tmp_path / "cache" / "fhjax" / "compiled"
    assert f"compile cache: {kept} (0 files" in run("doctor", where=tmp_path, **home).stdout
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    run(*COMMAND, where=tmp_path, **home)
    assert list(kept.iterdir())
    assert "compile cache: off" in run("doctor", where=tmp_path, FHJAX_COMPILE_CACHE="off", **home).stdout
    other = tmp_path / "other"
    run("--no-compile-cache", "doctor", where=tmp_path, FHJAX_COMPILE_CACHE=str(other), **home)
    assert not other.exists()


def test_a_folder_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    run(*COMMAND, where=tmp_path, FHJAX_COMPILE_CACHE=str(shared))
    assert not list(shared.iterdir())


TRIM = ["trim", *COMMAND[1:-2], "--target-rho", "1", "--out", "weights.parquet"]


@pytest.mark.parametrize("words", [COMMAND, TRIM], ids=lambda words: words[0])
def test_compiled_programs_hold_no_data(words: list[str], tmp_path: Path) -> None:
    """Every program that is compiled is looked at: its constants are coefficients of polynomials, and short tables."""
    subprocess.run(
        [sys.executable, "-m", "fhjax.cli.main", *words],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"JAX_DUMP_IR_TO": str(tmp_path / "ir"), "JAX_DUMP_IR_MODES": "stablehlo",
                          "FHJAX_COMPILE_CACHE": "off"},
    )  # fmt: skip
    programs = list((tmp_path / "ir").iterdir())
    assert len(programs) > 10
    found = set()
    for program in programs:
        for values, shape in re.findall(r"constant dense<(.*)> : tensor<([0-9x]+)xf64>", program.read_text()):
            if "," in values or values.startswith('"0x'):
                found.add((int(np.prod([int(n) for n in shape.split("x")])), program.name))
    assert max(found, default=(0, ""))[0] <= 16, sorted(found)[-3:]
