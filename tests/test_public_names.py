"""Every public name exists, has a docstring, and hides no module of the same name."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import fhjax


@pytest.mark.parametrize("name", fhjax.__all__)
def test_public_name(name: str) -> None:
    value = getattr(fhjax, name)
    assert inspect.getdoc(value)
    assert not inspect.ismodule(value)
    assert importlib.util.find_spec(f"fhjax.{name}") is None, "a module of this name would replace it once imported"


def test_the_reference_page_lists_every_public_name() -> None:
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: ([\w.]+)$", page, re.M)
    assert sorted(listed) == sorted(f"{module}.{name}" for name, module in fhjax._PUBLIC.items())


@pytest.mark.parametrize("name", [name for name in fhjax.__all__ if inspect.isfunction(getattr(fhjax, name))])
def test_every_public_function_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(fhjax, name)) or "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fhjax.nothing  # noqa: B018
    assert set(fhjax.__all__) <= set(dir(fhjax))
    assert not {"Any", "importlib", "os", "sys", "TYPE_CHECKING"} & set(dir(fhjax))
    with pytest.raises(AttributeError, match="Did you mean 'per_area_rho'"):
        fhjax.per_are_rho  # noqa: B018
