"""What run.json says of a run."""

from __future__ import annotations

import datetime
import hashlib
import json
import time

import numpy as np

import fhjax
from fhjax.report import collect_provenance
from fhjax.report.provenance import git_state


def test_a_run_is_described(tmp_path) -> None:
    file = tmp_path / "survey.csv"
    file.write_bytes(b"a,b\n1,2\n")
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "1.csv").write_bytes(b"x")
    (folder / "2.csv").write_bytes(b"yy")
    run = collect_provenance({"delta": 1e-5, "cap": np.float64("inf")}, [file, folder], time.time() - 2.0, seed=7)
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    assert run["config"] == {"delta": 1e-5, "cap": "Infinity"}
    assert run["seed"] == 7
    assert [entry["bytes"] for entry in run["files"]] == [8, 1, 2]
    assert run["files"][0] == {
        "path": str(file), "bytes": 8, "sha256": hashlib.sha256(b"a,b\n1,2\n").hexdigest(),
    }  # fmt: skip
    assert run["versions"]["fhjax"] == fhjax.__version__
    assert {"python", "jax", "jaxlib", "numpy", "duckdb", "ibis-framework"} <= run["versions"].keys()
    assert run["float64"] is True
    assert run["device"]["count"] >= 1
    assert run["wall_seconds"] >= 2.0
    assert run["peak_memory_bytes"] > 10_000_000
    started, ended = (datetime.datetime.fromisoformat(run[name]) for name in ("started", "ended"))
    assert started.utcoffset() == datetime.timedelta(0)
    assert started <= ended


def test_started_may_be_a_datetime() -> None:
    started = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert collect_provenance({}, [], started)["started"] == "2025-12-31T22:00:00.000+00:00"


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() is None
    monkeypatch.setenv("PATH", "")
    assert git_state() is None
