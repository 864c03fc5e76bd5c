"""How many independent draws a correlated sequence is worth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

_BLOCK = 2**22  # numbers transformed at once
_FEWEST = 50  # shorter sequences are taken as independent: their autocorrelation cannot be estimated


def autocorrelations(series: Floats) -> Floats:
    """Autocorrelation of every column of (n, s) at all lags (n, s); a constant column gives 1, 0, ..."""
    n = series.shape[0]
    centred = series - series.mean(axis=0)
    size = 1 << int(2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size, axis=0)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=0)[:n]
    variance = covariance[0]
    return np.where(variance > 0.0, covariance / np.where(variance > 0.0, variance, 1.0), np.eye(n, 1))


def effective_sample_size(series: npt.ArrayLike) -> Floats:
    """Effective sample size of every column of (n, s), at most n.

    The sum of autocorrelations stops at Geyer's initial positive sequence, made monotone.

    Source: Geyer (1992), section 3.3.

    Examples:
        >>> import numpy as np
        >>> z = np.random.default_rng(1).normal(size=(4000, 1))
        >>> bool(effective_sample_size(z)[0] > 3000)
        True
    """
    series = np.asarray(series, dtype=float)
    n, s = series.shape
    if n < _FEWEST:
        return np.full(s, float(n))
    result = np.empty(s)
    width = max(1, _BLOCK // (4 * n))
    for first in range(0, s, width):
        rho = autocorrelations(series[:, first : first + width])
        even = n - n % 2
        pairs = rho[0:even:2] + rho[1:even:2]
        positive = np.cumprod(pairs > 0.0, axis=0).astype(bool)
        monotone = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
        time = np.maximum(2.0 * monotone.sum(axis=0) - 1.0, 1.0)
        result[first : first + width] = n / time
    return np.minimum(result, n)


def autocorrelation_p_values(series: Floats, independent_columns: float | None = None) -> tuple[float, float]:
    """Whether neighbouring rows of (n, s) are positively, and negatively, correlated, over all columns.

    Each is the smaller of two one-sided tests by Bonferroni: of the mean lag-1 autocorrelation, and of the most extreme
    one. ``independent_columns``: how many independent columns the s are worth in the mean; None: s.
    """
    n = series.shape[0]
    if n < _FEWEST:
        return 1.0, 1.0
    centred = series - series.mean(axis=0)
    square = np.sum(centred**2, axis=0)
    live = square > 0.0
    if not live.any():
        return 1.0, 1.0
    lag = np.sum(centred[1:] * centred[:-1], axis=0)[live] / square[live] + 1.0 / n
    count = float(live.sum())
    worth = count if independent_columns is None else min(count, max(independent_columns, 1.0))

    def one_sided(values: Floats) -> float:
        pooled = stats.norm.sf(values.mean() * np.sqrt(n * worth))
        single = stats.norm.sf(values.max() * np.sqrt(n)) * count
        return float(min(1.0, 2.0 * min(pooled, single)))

    return one_sided(lag), one_sided(-lag)
