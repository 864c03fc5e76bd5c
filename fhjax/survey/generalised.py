"""A generalised variance function: design variances of areas whose own estimate of them is zero."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..records import FloatArray


def generalised_variance(
    variance: FloatArray,
    element_variance: FloatArray,
    num_records: npt.NDArray[np.int64],
    weight_sum: FloatArray,
) -> FloatArray:
    """Fill in the zero variances from the relation of variance to sample size in the other areas.

    Over areas with a positive variance, log(psi_i / S_i^2) is regressed on log n_i, where S_i^2 is the area's weighted
    element variance (p (1 - p) for a proportion): a design effect that may drift with the sample size. The level is
    corrected for the log transformation by the mean of the exponentiated residuals. An area without variance uses its
    own S_i^2 shrunk by one pseudo-record towards the pooled within-area element variance,
    ((n_i - 1) S_i^2 + S^2) / n_i: with n_i records all of one kind the variance still falls with n_i, as it should,
    and a single record takes the pooled value.

    Args:
        variance: (m,) design variances, outcome units squared.
        element_variance: (m,) sum w (Y - y_i)^2 / sum w, outcome units squared.
        num_records: (m,) records.
        weight_sum: (m,) weight sums, which weigh the areas in the pooled element variance.

    Returns:
        (m,) variances, the zeros replaced.

    Raises:
        InputError: no area has a positive variance.

    Source: Wolter (2007), chapter 7; Duan (1983) for the smearing factor. The pseudo-record is this package's choice.

    Examples:
        >>> generalised_variance(np.array([0.01, 0.01, 0.0]), np.array([0.1, 0.1, 0.0]), np.array([10, 10, 10]),
        ...                      np.ones(3)).round(6)
        array([0.01    , 0.01    , 0.000667])
    """
    given = (variance > 0.0) & (element_variance > 0.0)
    if not np.any(given):
        raise InputError("No area has a positive design variance, so none can be modelled for the others.")
    n = np.asarray(num_records, dtype=float)
    x, z = np.log(n[given]), np.log(variance[given] / element_variance[given])
    spread = np.sum((x - x.mean()) ** 2)
    # Too few or equal sizes say nothing about the slope: a constant design effect has slope -1.
    slope = np.sum((x - x.mean()) * z) / spread if x.size >= 3 and spread > 1e-12 * x.size else -1.0
    intercept = z.mean() - slope * x.mean()
    smearing = np.mean(np.exp(z - intercept - slope * x))
    pooled = np.sum(weight_sum * element_variance) / np.sum(weight_sum)
    shrunk = ((n - 1.0) * element_variance + pooled) / n
    return np.where(variance > 0.0, variance, shrunk * smearing * np.exp(intercept) * n**slope)
