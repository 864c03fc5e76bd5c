"""How a time is taken: compile apart, block until ready, rivals in turn, medians with their spread."""

from __future__ import annotations

import dataclasses
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

Thunk = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of one thunk over several calls."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        return cls(statistics.median(seconds), min(seconds), max(seconds))


def first_call(thunk: Thunk) -> float:
    """Seconds of the first call, compilation included."""
    return _one(thunk)


def in_turn(thunks: dict[str, Thunk], *, budget: float = 3.0, least: int = 3, most: int = 25) -> dict[str, Timing]:
    """Time several thunks A B A B ... so that a drift of the machine hits all alike.

    Each gets between ``least`` and ``most`` calls, as many rounds as fit into ``budget`` seconds. Call each once
    before.
    """
    seconds: dict[str, list[float]] = {name: [] for name in thunks}
    begun = time.perf_counter()
    for round_number in range(most):
        if round_number >= least and time.perf_counter() - begun > budget:
            break
        for name, thunk in thunks.items():
            seconds[name].append(_one(thunk))
    return {name: Timing.of(values) for name, values in seconds.items()}


def once(thunk: Thunk, *, scale: float = 1.0) -> Timing:
    """A rival that takes minutes is timed once, perhaps on a part of the work; low and high are then the one value."""
    return Timing.of([_one(thunk) * scale])


def peak_mib() -> float:
    """Largest memory so far: of the device where it counts its own, else of this process."""
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    scale = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def _one(thunk: Thunk) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(thunk())
    return time.perf_counter() - begun
