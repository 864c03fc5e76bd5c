"""Files and folders that appear whole or not at all, and never in place of what is being read.

Everything is written beside its place under a name of its own, and moved there at the end; moving is not interrupted.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fhjax.errors import InputError

PathLike = str | os.PathLike[str]


def same_file(one: PathLike, other: PathLike) -> bool:
    """Whether two paths lead to one file, through links and spellings too; a file need not exist."""
    first, second = Path(one), Path(other)
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def expanded(paths: Iterable[PathLike]) -> list[str]:
    """The files that paths and patterns name; examples of the package are none of the user's."""
    found: list[str] = []
    for path in [os.fspath(path) for path in paths]:
        if path.startswith("example:"):
            continue
        fits = glob.glob(path, recursive=True) if glob.has_magic(path) and not os.path.exists(path) else []
        found += fits or [path]
    return found


def refuse_same(inputs: Iterable[PathLike], outputs: Sequence[PathLike]) -> None:
    """Refuse an output that is an input, or another output.

    Raises:
        InputError: which two.
    """
    read = expanded(inputs)
    for i, output in enumerate(outputs):
        for path in read:
            if same_file(path, output):
                raise InputError(
                    f"{os.fspath(output)} would overwrite {path}, which is read here. Name another file for the result."
                )
        for other in outputs[:i]:
            if same_file(other, output):
                raise InputError(f"Two results would be written to {os.fspath(output)}. Name a file for each.")


@contextlib.contextmanager
def uninterrupted(*, forget: bool = False) -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block is through; ``forget``: drop them, it was the last thing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, object]] = []
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda *caught: came.append(caught))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came and not forget:
            signal.raise_signal(came[0][0])


class Staging:
    """Files and folders of one command: written aside, then put in their places together.

    Used as a context manager: on an exception everything written is removed and nothing has changed.
    """

    def __init__(self, inputs: Iterable[PathLike] = ()) -> None:
        self._inputs = expanded(inputs)
        self._files: list[tuple[Path, Path]] = []  # (aside, place)
        self._folders: list[tuple[Path, Path, tuple[str, ...]]] = []  # ..., patterns of older results to remove
        self._aside: list[Path] = []

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                with uninterrupted(forget=True):
                    self._commit()
        finally:
            with uninterrupted():
                for aside in self._aside:
                    shutil.rmtree(aside, ignore_errors=True)

    def file(self, place: PathLike) -> Path:
        """Where to write the file that will be at ``place``."""
        target = Path(place)
        refuse_same(self._inputs, [*(done for _, done in self._files), target])
        if target.is_dir():
            raise InputError(f"{target} is a folder. Name a file for the result.")
        aside = self._beside(target) / target.name
        self._files.append((aside, target))
        return aside

    def folder(self, place: PathLike, results: Sequence[str], *, stale: Sequence[str] = ()) -> Path:
        """Where to write the folder that will be at ``place``. Other files that are there stay.

        Args:
            place: the folder.
            results: names of the files that will be in it, to hold against the inputs before the work.
            stale: patterns of files of an earlier run that are removed if this one does not write them.
        """
        target = Path(place)
        if target.exists() and not target.is_dir():
            raise InputError(f"The result needs a folder, but {str(target)!r} is a file. Name another place (--out).")
        refuse_same(self._inputs, [*(done for _, done in self._files), *(target / name for name in results)])
        for path in self._inputs:
            if any(same_file(path, old) for pattern in stale for old in target.glob(pattern)):
                raise InputError(f"{path} is read here and lies where results of an earlier run are removed. Move it.")
        aside = self._beside(target) / (target.name or "results")
        aside.mkdir()
        self._folders.append((aside, target, tuple(stale)))
        return aside

    def _beside(self, target: Path) -> Path:
        """A new folder on the same file system, so that moving is one step."""
        # A folder that is a link is filled where it leads; a file that is a link is itself replaced.
        parent = target.resolve().parent if target.is_dir() else target.parent.resolve()
        while not parent.exists():
            parent = parent.parent
        if not parent.is_dir():
            raise InputError(f"{target} needs a folder, but {str(parent)!r} is a file. Name another place (--out).")
        if not os.access(parent, os.W_OK):
            raise InputError(
                f"{target} cannot be written: no permission in {str(parent)!r}. Name another place (--out)."
            )
        with uninterrupted():
            made = Path(tempfile.mkdtemp(prefix=".fhjax-", dir=parent))
            self._aside.append(made)
        return made

    def _commit(self) -> None:
        for aside, target in self._files:
            if aside.exists():
                refuse_same(self._inputs, [target])
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(aside, target)
        for aside, target, stale in self._folders:
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(aside, target)
                continue
            written = [path for path in sorted(aside.rglob("*")) if path.is_file()]
            refuse_same(self._inputs, [target / path.relative_to(aside) for path in written])
            for pattern in stale:
                for old in target.glob(pattern):
                    if not (aside / old.relative_to(target)).exists():
                        old.unlink()
            for path in written:
                place = target / path.relative_to(aside)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)


@contextlib.contextmanager
def staged_file(place: PathLike) -> Iterator[Path]:
    """Write one file aside; it is moved to its place when the block ends well."""
    with Staging() as staging:
        yield staging.file(place)
