"""Every public name exists, has a docstring, and hides no module of the same name."""

from __future__ import annotations

import importlib.util
import inspect

import pytest

import fhjax


@pytest.mark.parametrize("name", fhjax.__all__)
def test_public_name(name: str) -> None:
    value = getattr(fhjax, name)
    assert inspect.getdoc(value)
    assert not inspect.ismodule(value)
    assert importlib.util.find_spec(f"fhjax.{name}") is None, "a module of this name would replace it once imported"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fhjax.nothing  # noqa: B018
    assert set(fhjax.__all__) <= set(dir(fhjax))
    assert not {"Any", "importlib", "os", "sys", "TYPE_CHECKING"} & set(dir(fhjax))
    with pytest.raises(AttributeError, match="Did you mean 'per_area_rho'"):
        fhjax.per_are_rho  # noqa: B018
