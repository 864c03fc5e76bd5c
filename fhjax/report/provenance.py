"""What run made these files: configuration, versions, device, inputs by hash, time and memory."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fhjax
from fhjax.report.numbers import json_safe

PACKAGES = (
    "jax",
    "jaxlib",
    "numpy",
    "scipy",
    "pandas",
    "duckdb",
    "ibis-framework",
    "sqlglot",
    "pyarrow",
    "pyreadstat",
    "matplotlib",
    "jinja2",
)


def collect_provenance(
    config: Mapping[str, Any],
    files: Iterable[str | Path | Mapping[str, Any]],
    started: float | datetime.datetime,
    seed: int | None = None,
) -> dict[str, Any]:
    """Everything needed to say how a report came about and to make it again.

    Args:
        config: the options of the run, by name.
        files: the input files (a folder stands for all files in it), or descriptions of files hashed before.
        started: when the run began: seconds since the epoch (``time.time()``) or an aware datetime.
        seed: the seed of the random numbers, if there were any.

    Returns:
        A dictionary of plain JSON values. Paths are recorded as they were given. The commit is that of the working
        directory if it is a git repository, else null.

    Examples:
        >>> import time
        >>> run = collect_provenance({"delta": 1e-5}, [], time.time())
        >>> run["config"]["delta"], run["float64"]
        (1e-05, True)
    """
    if isinstance(started, datetime.datetime):
        begun = started.astimezone(datetime.UTC)
    else:
        begun = datetime.datetime.fromtimestamp(float(started), datetime.UTC)
    ended = datetime.datetime.now(datetime.UTC)
    return json_safe(
        {
            "config": dict(config),
            "seed": seed,
            "files": [entry for given in files for entry in _descriptions(given)],
            "versions": versions(),
            "device": device(),
            "float64": _float64(),
            "platform": platform.platform(),
            "git": git_state(),
            "started": begun.isoformat(timespec="milliseconds"),
            "ended": ended.isoformat(timespec="milliseconds"),
            "wall_seconds": round((ended - begun).total_seconds(), 3),
            "peak_memory_bytes": peak_memory(),
        }
    )


def finished(run: Mapping[str, Any]) -> dict[str, Any]:
    """The same run at its end: the times and the memory of all its work, the report's included."""
    begun = datetime.datetime.fromisoformat(run["started"])
    ended = datetime.datetime.now(datetime.UTC)
    return {
        **run,
        "ended": ended.isoformat(timespec="milliseconds"),
        "wall_seconds": round((ended - begun).total_seconds(), 3),
        "peak_memory_bytes": peak_memory(),
    }


def _descriptions(given: str | Path | Mapping[str, Any]) -> list[dict[str, Any]]:
    if isinstance(given, Mapping):
        return [dict(given)]
    return [describe(path) for path in _expanded(Path(given))]


def describe(path: Path) -> dict[str, Any]:
    """A file's path, size in bytes and SHA-256, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def versions() -> dict[str, str | None]:
    """Versions of Python, fhjax and what it stands on; null for what is not installed. Nothing is imported."""
    found: dict[str, str | None] = {"python": platform.python_version(), "fhjax": fhjax.__version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def device() -> dict[str, Any]:
    """Where JAX computes."""
    import jax

    devices = jax.devices()
    return {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)}


def git_state() -> dict[str, Any] | None:
    """The commit of the working directory and whether it has changes, or None outside a repository."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "changed": bool(_git("status", "--porcelain", "--untracked-files=no"))}


def peak_memory() -> int | None:
    """The largest resident size of this process so far, in bytes; None where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024  # Linux counts in KiB, macOS in bytes


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _float64() -> bool:
    import jax

    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]


def _expanded(path: Path) -> list[Path]:
    return sorted(inside for inside in path.rglob("*") if inside.is_file()) if path.is_dir() else [path]
