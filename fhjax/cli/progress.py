"""Progress of long work, on stderr: one line a step, with its time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator


class Steps:
    """Counts and times the named steps of a command: ``[2/5] direct estimates ... 1.3 s``."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self.total = total
        self.quiet = quiet
        self.done = 0

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        self.done += 1
        begun = time.perf_counter()
        self._write(f"[{self.done}/{self.total}] {what} ...")
        try:
            yield
        except BaseException:
            self._write("\n")  # so that the error starts on a line of its own
            raise
        self._write(f" {time.perf_counter() - begun:.1f} s\n")

    def _write(self, text: str) -> None:
        if not self.quiet:
            print(text, end="", file=sys.stderr, flush=True)
