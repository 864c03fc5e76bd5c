"""What README and docs print works as printed: Python blocks run, commands run on files of the kind they name, names
exist.

Files that a reader brings (a PUMS zip, BRFSS, a survey of persons) are stood in for by small ones with the same
columns.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pyreadstat
import pytest

import fhjax
from fhjax.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"`fhjax((?:\.\w+)+)(\(?)")
MODULE = re.compile(r"python -m ((?:benchmarks|experiments)[\w.]*)")


def blocks(language: str) -> list:
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (kind, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
        if kind == language
    ]


def commands() -> list:
    """Every ``fhjax ...`` line of every block without a language, continuation lines joined, as words."""
    found = []
    for page in PAGES:
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind:
                continue
            for line in text.replace("\\\n", " ").splitlines():
                part = line[line.index("fhjax report") :] if "&& " in line and "fhjax report" in line else line
                if part.startswith("fhjax "):
                    words = shlex.split(part)[1:]
                    found.append(pytest.param(words, id=f"{page.stem}-{words[0]}-{len(found)}"))
    return found


def persons(seed: int = 0, areas: int = 12, each: int = 30) -> pd.DataFrame:
    """Persons in households of two with the columns of PUMS."""
    rng = np.random.default_rng(seed)
    n = areas * each
    area = np.repeat(np.arange(areas), each)
    weight = rng.integers(10, 400, n).astype(float)
    frame = pd.DataFrame({
        "STATE": "53", "PUMA": [f"{1000 + k:05d}" for k in area], "area": [f"53{1000 + k:05d}" for k in area],
        "SERIALNO": np.repeat([f"2024HU{i:07d}" for i in range(n // 2)], 2), "hh": np.repeat(np.arange(n // 2), 2),
        "PWGTP": weight, "POVPIP": np.where(rng.random(n) < 0.2 + 0.02 * area, 50.0, 300.0),
    })  # fmt: skip
    frame["poor"] = (frame["POVPIP"] < 100).astype(int)
    signs = rng.choice([-1.0, 1.0], (n // 2, 80))[frame["hh"]]
    replicates = pd.DataFrame(weight[:, None] * (1.0 + 0.3 * signs), columns=[f"PWGTP{b}" for b in range(1, 81)])
    return pd.concat([frame, replicates], axis=1)


def respondents(seed: int = 1, areas: int = 6, each: int = 30) -> pd.DataFrame:
    """Respondents with the columns of BRFSS."""
    rng = np.random.default_rng(seed)
    n = areas * each
    return pd.DataFrame({
        "_STATE": 53.0, "_STSTR": 532000.0 + np.repeat(np.arange(areas), each), "_PSU": 1.0 + np.arange(n),
        "_LLCPWT": rng.gamma(2.0, 300.0, n) + 20.0,
        "_SMOKER3": rng.choice([1.0, 2.0, 3.0, 4.0, 9.0], n, p=[0.2, 0.1, 0.2, 0.45, 0.05]),
    })  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader of the pages has in front of them."""
    here = tmp_path_factory.mktemp("reader")
    with zipfile.ZipFile(here / "csv_pwa.zip", "w") as archive:
        archive.writestr("psam_p53.csv", persons().drop(columns=["area", "hh", "poor"]).to_csv(index=False))
    persons().to_parquet(here / "persons.parquet")
    persons().to_parquet(here / "acs2024_us_persons.parquet")
    pyreadstat.write_xport(respondents(), str(here / "LLCP2022.XPT"), file_format_version=8)
    survey = fhjax.open_survey(
        "example:nhanes0910_cholesterol", area=["race", "age", "sex"], weight="weight", outcome="high_cholesterol = 1",
        strata="stratum", psu="psu", where="age <> '0-19'",
    )  # fmt: skip
    direct = fhjax.direct_estimates(survey)
    data = fhjax.assess(direct).area_data
    from_r = direct.to_frame()[["y", "sampling_variance", "sensitivity", "num_records"]]
    from_r.rename(columns={"num_records": "n"}).to_csv(here / "r-areas.csv")
    drawn = fhjax.draws(fhjax.posterior(data, fhjax.fit(data)), key=jax.random.key(3), num_draws=50)
    pd.DataFrame(np.asarray(drawn), columns=list(direct.labels)).to_csv(here / "draws.csv", index=False)
    return here


@pytest.mark.parametrize("words", commands())
def test_a_printed_command_runs(words, folder, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    if words[0] in ("audit", "release", "check") and not Path("fit.json").exists():  # this page goes on from another
        example = next(param.values[0] for param in commands() if param.values[0][0] == "direct")
        assert main(example) == 0
        assert main(["fit", "areas.csv", "--out", "fit.json"]) == 0
    code = main(words)
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("text", blocks("python"))
def test_a_printed_program_runs(text: str, tmp_path: Path) -> None:
    program = tmp_path / "two.py"
    program.write_text(text, encoding="utf-8")
    hosts = ["0", "1"] if "join_hosts" in text else [""]
    running = [
        subprocess.Popen(
            [sys.executable, str(program), host],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for host in hosts
    ]  # fmt: skip
    for one in running:
        out, err = one.communicate(timeout=300)
        assert one.returncode == 0, err
        assert out.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_printed_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for dotted, called in NAME.findall(text):
        first = dotted.split(".")[1]
        if called or importlib.util.find_spec(f"fhjax{dotted}") is None:
            assert first in fhjax.__all__, f"fhjax{dotted} is no public name"
            value = fhjax
            for part in dotted.split(".")[1:]:
                value = getattr(value, part)
    for module in MODULE.findall(text):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists() or (ROOT / module).is_dir()
