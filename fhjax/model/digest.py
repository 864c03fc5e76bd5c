"""Whether a fit and the data beside it belong together: by the arrays, or by hashes where a file lies between."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fhjax.errors import InputError
from fhjax.records import AreaData, FayHerriotFit
from fhjax.sharding import is_sharded

PARTS = {"y": "the estimates y", "sampling_variance": "the sampling variances", "X": "the covariates"}


def data_digest(data: AreaData) -> dict[str, str]:
    """SHA-256 of y, the sampling variances and X of the areas that are not padding, by name: what a file carries.

    Examples:
        >>> from fhjax.model.checks import area_data
        >>> one = data_digest(area_data([0.1, 0.2, 0.4], [0.01, 0.02, 0.01]))
        >>> two = data_digest(area_data([0.1, 0.2, 0.5], [0.01, 0.02, 0.01]))
        >>> differing(one, two)
        ['the estimates y']
    """
    return {part: hashlib.sha256(np.ascontiguousarray(_rows(data, part)).tobytes()).hexdigest() for part in PARTS}


def differing(one: Mapping[str, str], two: Mapping[str, str]) -> list[str]:
    """The parts of the data whose digests differ, in words."""
    return [words for part, words in PARTS.items() if one.get(part) != two.get(part)]


def refuse_foreign(fit: Any, data: AreaData, what: str) -> None:
    """Refuse a fit that was made from other data than ``data``; one that went through a transformation cannot tell.

    Raises:
        InputError: which of y, sampling variances and covariates differ.
    """
    source = fit.fitted_to if isinstance(fit, FayHerriotFit) else None
    if source is None or source is data or is_sharded(source) or is_sharded(data):
        return
    other = [
        words
        for part, words in PARTS.items()
        if getattr(source, part) is not getattr(data, part)
        and not np.array_equal(_rows(source, part), _rows(data, part))
    ]
    if other:
        raise InputError(
            f"The fit was made from other data than {what}: {' and '.join(other)} differ. Fit these data, or say "
            "that its model variance is used for them: given(data, fit.model_variance)."
        )


def _rows(data: AreaData, part: str) -> np.ndarray:
    rows = np.asarray(getattr(data, part), dtype=np.float64)
    return (rows if data.mask is None else rows[np.asarray(data.mask)]) + 0.0  # -0.0 and 0.0 are one number
