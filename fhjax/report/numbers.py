"""How numbers are written: privacy numbers rounded up, the rest to nearest, and JSON that every parser reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

MISSING = "–"
INFINITE = "∞"


def round_up(x: float, digits: int = 3) -> float:
    """The smallest number of ``digits`` significant decimal digits that is not below ``x``.

    The decimal ceiling D is taken of the shortest decimal text that reads back as x, so that 0.1 stays 0.1. Reading a
    decimal as the nearest float is monotone, hence float(D) >= x: what is returned, and what is printed once it is read
    back, is never below ``x``.

    Args:
        x: any float; infinity and NaN are returned as they are.
        digits: significant digits kept, at least 1.

    Returns:
        A float >= ``x``.

    Examples:
        >>> round_up(1.39651, 3), round_up(0.0379401, 3), round_up(1.4, 3)
        (1.4, 0.038, 1.4)
    """
    x = float(x)
    return x if not math.isfinite(x) else float(_decimal(x, digits, ROUND_CEILING))


def format_up(x: float | None, digits: int = 3) -> str:
    """``x`` as text, rounded up to ``digits`` significant digits: for every rho and epsilon that is shown.

    Examples:
        >>> format_up(1.39651), format_up(float("inf")), format_up(None)
        ('1.40', '∞', '–')
    """
    return _text(x, digits, ROUND_CEILING)


def format_number(x: float | None, digits: int = 3) -> str:
    """``x`` as text, rounded to nearest: for everything that is not a privacy bound.

    Examples:
        >>> format_number(0.00267714), format_number(1249.0), format_number(3.2e-9)
        ('0.00268', '1,250', '3.20e-9')
    """
    return _text(x, digits, ROUND_HALF_EVEN)


def format_count(x: float | None) -> str:
    """A whole number with thousands separators, or a dash when it is unknown."""
    return MISSING if x is None or not math.isfinite(x) else f"{round(x):,}"


def format_percent(x: float | None, digits: int = 2) -> str:
    """A share as a percentage: 0.0123 becomes ``1.2 %``."""
    return MISSING if x is None or not math.isfinite(x) else f"{format_number(100.0 * x, digits)} %"


def format_change(x: float | None, digits: int = 2) -> str:
    """A relative change with its sign: 0.1 becomes ``+10 %``.

    Examples:
        >>> format_change(0.1), format_change(-0.0123), format_change(0.0)
        ('+10 %', '−1.2 %', '0 %')
    """
    if x is None or not math.isfinite(x):
        return MISSING
    return f"{'+' if x > 0 else ''}{format_number(100.0 * x, digits)} %".replace("-", "−")


def format_delta(delta: float) -> str:
    """``delta`` in scientific notation without padding: ``1e-7``."""
    mantissa, exponent = f"{delta:e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _decimal(x: float, digits: int, rounding: str) -> Decimal:
    return Context(prec=max(int(digits), 1), rounding=rounding).create_decimal(repr(float(x)))


def _text(x: float | None, digits: int, rounding: str) -> str:
    if x is None or math.isnan(x):
        return MISSING
    if math.isinf(x):
        return INFINITE if x > 0 else f"-{INFINITE}"
    if x == 0.0:
        return "0"
    value = _decimal(float(x), digits, rounding)
    magnitude = value.adjusted()
    if not -4 <= magnitude < 7:
        mantissa = value.scaleb(-magnitude)
        return f"{mantissa:.{digits - 1}f}e{magnitude}"
    return f"{value:,.{max(digits - 1 - magnitude, 0)}f}"


def quantile(values: npt.ArrayLike, q: float) -> float:
    """The q-quantile by linear interpolation (NumPy's default), with infinities where NumPy would say NaN.

    Missing values (NaN) are left out; with nothing left the answer is NaN, which is shown as a dash.
    """
    ordered = np.asarray(values, dtype=np.float64)
    ordered = np.sort(ordered[~np.isnan(ordered)])
    if ordered.size == 0:
        return math.nan
    position = q * (ordered.size - 1)
    low = math.floor(position)
    share = position - low
    if share == 0.0 or ordered[low] == ordered[min(low + 1, ordered.size - 1)]:
        return float(ordered[low])
    # An infinite upper neighbour makes the quantile infinite: the safe side, and never inf - inf.
    return float(ordered[low] * (1.0 - share) + ordered[low + 1] * share)


def mean(values: npt.ArrayLike) -> float:
    """The mean of what is not missing."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else math.nan


def json_safe(value: Any) -> Any:
    """``value`` in terms of strict JSON: infinity becomes the text ``"Infinity"``, an undefined number becomes null.

    JSON has no infinity, and a privacy parameter that cannot be certified must not read as "missing": Python's
    ``float("Infinity")`` and R's ``as.numeric("Infinity")`` both read the text back.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_safe(item) for item in value]
    if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and not np.isscalar(value)):
        return json_safe(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return json_safe(value.item())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    return str(value)
