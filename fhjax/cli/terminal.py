"""The terminal's side of a command: Ctrl-C, SIGTERM, and a pipe that nobody reads any more."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass
class Interrupt:
    """Whether the user asked to stop."""

    came: bool = False


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Make SIGTERM an interrupt like Ctrl-C, and remember that one came."""
    interrupt = Interrupt()

    def stop(*_: object) -> None:
        interrupt.came = True
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Pipe:
    """A stream that goes quiet when its reader is gone: `fhjax ... | head` is no error."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._gone = stream, False

    def write(self, text: str) -> int:
        return self._quietly(lambda: self._stream.write(text)) or len(text)

    def flush(self) -> None:
        self._quietly(self._stream.flush)

    def _quietly(self, act: Any) -> Any:
        if self._gone:
            return None
        try:
            return act()
        except BrokenPipeError:
            self._gone = True
            # What the stream still holds must not be tried again when the interpreter ends.
            with contextlib.suppress(Exception):
                self._stream.close()
            return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def open_pipes() -> Iterator[None]:
    """Write to stdout and stderr as long as somebody reads them."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Pipe(sys.stdout), _Pipe(sys.stderr)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        sys.stdout, sys.stderr = before
