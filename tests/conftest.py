"""Fixtures shared by all tests.

Reference values that may not be carried in the project (inputs from GPL packages, large survey files) live in a folder
beside the checkout, ``../shared``, or where ``FHJAX_SHARED`` points. Tests that need it skip when it is absent, unless
``FHJAX_REQUIRE_SHARED=1`` says that it must be there: then a missing file is a failure.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # so that tests import their oracles: from oracles import ...

import fhjax  # noqa: E402, F401  (float64 before any test makes an array)


def shared_folder() -> Path:
    return Path(os.environ.get("FHJAX_SHARED", HERE.parent.parent / "shared"))


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
