"""What every numeric entrance of the package asks of what it is handed: float64, no masks, and order by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .errors import InputError, first_few


def require_float64() -> None:
    """Refuse to compute in single precision, which understates rho.

    Raises:
        InputError: float64 was switched off after the package was imported.
    """
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError(
            "float64 is switched off in JAX (jax_enable_x64 is False), and single precision understates rho. Switch "
            "it on: jax.config.update('jax_enable_x64', True)."
        )


def is_concrete(*values: object) -> bool:
    """Whether the numbers are known now, so that they can be checked and an error can be raised."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def namespace(*values: object) -> Any:
    """NumPy where the numbers are known, which compiles nothing, and jax.numpy inside a transformation."""
    return np if is_concrete(*values) else jax.numpy


def refuse_single(*values: Any) -> None:
    """Refuse arrays in single or half precision.

    Raises:
        InputError: an array of less than 64 bits a number.
    """
    if any(str(getattr(value, "dtype", "")) in ("float32", "float16", "bfloat16") for value in values):
        raise InputError("Privacy numbers need float64: single precision understates rho. Convert with astype(float).")


def refuse_masked(values: Any, name: str) -> None:
    """Refuse arrays with masked values: NumPy hands on what lies under the mask.

    Raises:
        InputError: a masked array of which something is masked.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.count_masked(values))
        raise InputError(
            f"{name} is a masked array with {count:,} masked values, and what lies under a mask is not data. Leave "
            "these areas out, or fill them in."
        )


def index_of(values: Any) -> tuple[str, ...] | None:
    """The labels that a pandas Series or DataFrame carries; None for plain arrays and for counted rows."""
    index = getattr(values, "index", None)
    if index is None or callable(index) or not hasattr(index, "is_unique"):
        return None
    if index.equals(type(index)(range(len(index)))) if hasattr(index, "equals") else False:
        return None
    return tuple(str(label) for label in index)


def in_order(values: Any, labels: Sequence[str] | None, name: str) -> Any:
    """``values`` in the order of ``labels``: a labelled Series is put in order, plain arrays pass as they are.

    Raises:
        InputError: its labels are others than these, repeat, or there are none to hold them against.
    """
    own = index_of(values)
    if own is None:
        return values
    if labels is None:
        raise InputError(
            f"{name} has labels ({first_few(own[:3], len(own))}), but the areas have none, so nobody knows whether the "
            "order is the same. Label the areas (labels=...), or pass plain arrays (.to_numpy())."
        )
    wanted = [str(label) for label in labels]
    if own == tuple(wanted):
        return values
    known = set(own)
    missing = [label for label in wanted if label not in known]
    if missing or len(own) != len(wanted) or len(known) != len(own):
        raise InputError(
            f"{name} has other labels than the areas: {len(own):,} rows ({first_few(own[:3], len(own))}) for "
            f"{len(wanted):,} areas"
            + (f", without {first_few(missing)}" if missing else "")
            + ". Give one row an area."
        )
    place = {label: i for i, label in enumerate(own)}
    return values.iloc[[place[label] for label in wanted]]
