"""Facts about the machine that a benchmark ran on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

import jax


def facts() -> dict[str, object]:
    """What a reader needs to judge a time: processor, memory, device, versions. No host name."""
    return {
        "record": "machine",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "device": device(),
        "versions": {name: importlib.metadata.version(name) for name in ("fhjax", "jax", "jaxlib", "numpy")},
    }


def device() -> str:
    return f"{jax.devices()[0].device_kind} x {jax.device_count()}"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
