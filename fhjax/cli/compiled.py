"""What was compiled is kept between commands, because a report on a few areas is mostly compiling.

The programs hold no data: numbers are handed to them when they run (tests/cli/test_cli_compiled.py looks). The folder
is the user's own cache folder and is used only if nobody else can read or write it.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

SWITCH = "FHJAX_COMPILE_CACHE"
_JAX = "JAX_COMPILATION_CACHE_DIR"


def folder() -> Path | None:
    """Where compiled programs are kept; None when that is switched off.

    ``FHJAX_COMPILE_CACHE`` names another folder, or is ``off``; JAX's own variable goes before it.
    """
    if os.environ.get(_JAX):
        return Path(os.environ[_JAX])
    wanted = os.environ.get(SWITCH, "")
    if wanted.lower() in ("off", "0", "no", "none"):
        return None
    if wanted:
        return Path(wanted)
    from platformdirs import user_cache_path

    return user_cache_path("fhjax", appauthor=False) / "compiled"


def keep_compiled() -> None:
    """Tell JAX, which must not be imported yet, to keep what it compiles; where that cannot be, it does not."""
    where = None if os.environ.get(_JAX) or "jax" in sys.modules else folder()
    if where is None or not _private(where):
        return
    os.environ[_JAX] = str(where)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


def _private(where: Path) -> bool:
    """Make the folder if it is missing; whether it is this user's alone."""
    try:
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = where.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True  # on Windows the user's folder is the user's
    return facts.st_uid == os.getuid() and not stat.S_IMODE(facts.st_mode) & 0o077
