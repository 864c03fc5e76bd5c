"""Fixtures shared by all tests.

Reference values that may not be carried in the project (inputs from GPL packages, large survey files) live in a folder
beside the checkout, ``../shared``, or where ``FHJAX_SHARED`` points. Tests that need it skip when it is absent, unless
``FHJAX_REQUIRE_SHARED=1`` says that it must be there: then a missing file is a failure.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # so that tests import their oracles: from oracles import ...

# Compiling takes most of the time: what one worker compiled, the others and the programs they start read from here.
# Point the variable to a folder that stays, and the next run starts with what this one compiled.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="fhjax-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import jax  # noqa: E402

import fhjax  # noqa: E402, F401  (float64 before any test makes an array)


def shared_folder() -> Path:
    return Path(os.environ.get("FHJAX_SHARED", HERE.parent.parent / "shared"))


@pytest.fixture(scope="module", autouse=True)
def few_compiled_programs() -> Iterator[None]:
    """Compiled programs hold memory maps, of which Linux allows a process 65,530: above, XLA aborts the worker."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


@pytest.fixture(scope="session")
def carried() -> Path:
    """Reference values that the project carries itself (tests/golden)."""
    return HERE / "golden"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout."""
    folder = shared_folder()
    if (folder / "golden").is_dir() and (folder / "data").is_dir():
        return folder
    if os.environ.get("FHJAX_REQUIRE_SHARED") == "1":
        pytest.fail(f"FHJAX_REQUIRE_SHARED=1 but {folder} has no golden/ and data/")
    pytest.skip("the reference data beside the checkout is not here")
