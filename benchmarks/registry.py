"""The named cases. A case builds its problem once and yields the thunks to be timed against each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from benchmarks.timing import Thunk


@dataclasses.dataclass(frozen=True)
class Contest:
    """One size of one case: our thunk, the rivals' thunks, and those too slow to be called more than once."""

    ours: Thunk
    rivals: dict[str, Thunk] = dataclasses.field(default_factory=dict)
    slow_rivals: dict[str, Thunk] = dataclasses.field(default_factory=dict)
    #: slow rivals do one part in ``slow_scale`` of the work; their time is scaled up by it
    slow_scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Case:
    """A named benchmark: sizes to run it at, and how to set one size up."""

    name: str
    what: str
    build: Callable[[int, int], Contest]  # (size, p)
    sizes: tuple[int, ...]
    covariates: tuple[int, ...] = (1,)
    #: peer -> least ratio peer_seconds / seconds that the project promises at ``target_size``
    targets: dict[str, float] = dataclasses.field(default_factory=dict)
    target_size: int | None = None
    target_p: int = 1


CASES: dict[str, Case] = {}


def case(**options) -> Callable[[Callable[[int, int], Contest]], Callable[[int, int], Contest]]:
    """Register the decorated ``build(size, p)`` as a case."""

    def register(build: Callable[[int, int], Contest]) -> Callable[[int, int], Contest]:
        entry = Case(build=build, **options)
        CASES[entry.name] = entry
        return build

    return register
