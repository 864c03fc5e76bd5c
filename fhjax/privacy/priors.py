"""Spatial and temporal priors: the cost of one draw of all areas under any Gaussian prior on theta.

The prior is N(X beta, Q^-1) with a sparse precision Q, possibly improper, and a flat prior on beta. The argument of
the correlated joint carries over: theta_k is sufficient for y_k, so rho = max_k Delta_k^2 Sigma_kk / (2 psi_k^2), with
Sigma the posterior covariance. Only its diagonal is needed; it comes from sparse solves, a block of areas at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import MatrixRankWarning, splu

from fhjax.errors import InputError, complain
from fhjax.privacy.assumptions import GAUSSIAN_PRIOR, assumption_sentences, neighbours_sentence
from fhjax.privacy.defects import refuse_sensitivities, sensitivities
from fhjax.records import FloatArray, Labels, ReleaseGuarantee

_BLOCK = 256


def adjacency(neighbours: Sequence[Sequence[int]]) -> sparse.csr_array:
    """The symmetric 0/1 matrix of a neighbour list: ``neighbours[i]`` holds the positions of area i's neighbours.

    Raises:
        InputError: for a position outside the list, an area that is its own neighbour, or a one-sided pair.

    Examples:
        >>> adjacency([[1], [0, 2], [1]]).toarray().astype(int).tolist()
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    m = len(neighbours)
    rows = np.repeat(np.arange(m), [len(near) for near in neighbours])
    columns = np.array([k for near in neighbours for k in near], dtype=int)
    bad = (columns < 0) | (columns >= m) | (columns == rows)
    if bad.any():
        raise complain("have a neighbour that is themselves or not in the list", sorted({*rows[bad]}), "Correct them.")
    W = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(m, m))
    W.data[:] = 1.0  # a neighbour named twice counts once
    one_sided = abs(W - W.T).nonzero()[0]
    if len(one_sided):
        raise complain("have a neighbour that does not name them back", sorted({*one_sided}), "Name both sides.")
    return W


def car_precision(W: Any, variance: float, dependence: float = 1.0) -> sparse.csr_array:
    """Q = (D - dependence W) / variance, a conditional autoregression; dependence 1 is the improper intrinsic one.

    Args:
        W: (m, m) symmetric sparse neighbour weights, D their row sums.
        variance: of a mean given its neighbours, times its row sum; outcome units squared.
        dependence: in [0, 1]. An area without neighbours needs a value below 1 no less than others do not.

    Raises:
        InputError: for numbers outside these ranges.

    Source: Besag (1974); Rue and Held (2005), chapters 2 and 3.

    Examples:
        >>> car_precision(adjacency([[1], [0, 2], [1]]), variance=0.01, dependence=0.9).diagonal().tolist()
        [100.0, 200.0, 100.0]
    """
    _positive(variance, "variance")
    if not 0.0 <= dependence <= 1.0:
        raise InputError(f"The spatial dependence is {dependence}; a CAR prior takes 0 to 1.")
    W = sparse.csr_array(W)
    degree = np.asarray(W.sum(axis=1)).ravel()
    # An area without neighbours is given a precision of its own rather than none.
    return sparse.csr_array((sparse.diags_array(np.where(degree > 0, degree, 1.0)) - dependence * W) / variance)


def sar_precision(W: Any, variance: float, dependence: float) -> sparse.csr_array:
    """Q = (I - dependence R)'(I - dependence R) / variance, R the row-standardised W: a simultaneous autoregression.

    Arguments as in :func:`car_precision`, with |dependence| < 1.

    Source: Whittle (1954); Rao and Molina (2015), section 4.4.4 (spatial Fay-Herriot model).

    Examples:
        >>> sar_precision(adjacency([[1], [0, 2], [1]]), variance=0.01, dependence=0.5).shape
        (3, 3)
    """
    _positive(variance, "variance")
    if not abs(dependence) < 1.0:
        raise InputError(f"The spatial dependence is {dependence}; a SAR prior needs it strictly between -1 and 1.")
    W = sparse.csr_array(W)
    degree = np.asarray(W.sum(axis=1)).ravel()
    R = sparse.diags_array(1.0 / np.where(degree > 0, degree, 1.0)) @ W
    F = sparse.eye_array(W.shape[0]) - dependence * R
    return sparse.csr_array(F.T @ F / variance)


def ar1_precision(num_times: int, variance: float, dependence: float) -> sparse.csr_array:
    """The (num_times, num_times) precision of a stationary first-order autoregression with innovation ``variance``.

    For all areas, with times varying fastest: ``scipy.sparse.kron(scipy.sparse.eye_array(num_areas), ...)``.

    Raises:
        InputError: unless num_times >= 1, variance > 0 and |dependence| < 1.

    Examples:
        >>> ar1_precision(3, 1.0, 0.5).toarray().tolist()
        [[1.0, -0.5, 0.0], [-0.5, 1.25, -0.5], [0.0, -0.5, 1.0]]
    """
    _positive(variance, "variance")
    if num_times < 1 or not abs(dependence) < 1.0:
        raise InputError("An AR(1) prior needs at least one time and a dependence strictly between -1 and 1.")
    if num_times == 1:
        return sparse.csr_array([[(1.0 - dependence**2) / variance]])
    main = np.full(num_times, 1.0 + dependence**2)
    main[[0, -1]] = 1.0
    side = np.full(num_times - 1, -dependence)
    return sparse.csr_array((np.diag(main) + np.diag(side, 1) + np.diag(side, -1)) / variance)


def posterior_variances(sampling_variance: Any, prior_precision: Any, X: Any = None) -> FloatArray:
    """Sigma_kk (m,), outcome units squared, of theta given y under the prior N(X beta, Q^-1), beta flat.

    Args:
        sampling_variance: (m,) psi; 0 where theta is known exactly, infinity for an area without a survey estimate.
        prior_precision: (m, m) sparse, symmetric, no negative eigenvalue.
        X: (m, p) covariates, or None for a prior mean that is fixed.

    Raises:
        InputError: for a matrix that is not symmetric, or an improper prior where the data do not determine every mean.

    Source: docs/derivations.md, sections 4 to 8; Woodbury's identity for beta.
    """
    psi = np.asarray(sampling_variance, dtype=float)
    m = len(psi)
    Q = sparse.csr_array(prior_precision)
    if Q.shape != (m, m) or not np.isfinite(Q.data).all():
        raise InputError(f"The prior precision has shape {Q.shape}; expected a finite ({m}, {m}) matrix.")
    if abs(Q - Q.T).max() > 1e-12 * abs(Q).max():
        raise InputError("The prior precision is not symmetric.")
    if np.isnan(psi).any() or (psi < 0.0).any():
        raise complain(
            "have a negative or missing sampling variance", np.flatnonzero(~(psi >= 0.0)).tolist(), "Correct them."
        )
    known = psi == 0.0  # conditioning on theta_k removes its row and column
    free = np.flatnonzero(~known)
    result = np.zeros(m)
    if not len(free):
        return result
    precision = 1.0 / psi[free]
    K = sparse.csc_array(Q[free][:, free] + sparse.diags_array(precision))
    factor = _factor(K)
    correction = None
    if X is not None:
        X = np.asarray(X, dtype=float).reshape(m, -1)
        QX = Q @ X
        inner = factor.solve(QX[free])
        # What the data say of beta once theta is integrated out. Known means say it through their whole column.
        information = X.T @ QX - QX[free].T @ inner
        scale = np.sqrt(np.maximum(np.diag(X.T @ QX), 1e-300))
        values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
        if values.min() <= 1e-13:
            raise InputError(
                "The covariates are collinear, or lie where an improper prior says nothing (an intrinsic prior already "
                "leaves the overall level free: drop the intercept)."
            )
        correction = inner / scale @ (vectors / np.sqrt(values))
    for start in range(0, len(free), _BLOCK):
        here = np.arange(start, min(start + _BLOCK, len(free)))
        unit = np.zeros((len(free), len(here)))
        unit[here, here - start] = 1.0
        result[free[here]] = factor.solve(unit)[here, here - start]
    if correction is not None:
        result[free] += np.sum(correction**2, axis=1)
    return result


def prior_guarantee(
    sampling_variance: Any,
    prior_precision: Any,
    sensitivity: Any,
    *,
    X: Any = None,
    labels: Labels | None = None,
    privacy_unit: str = "record",
    variance_source: str = "estimated",
    hyperparameter_source: str = "estimated",
) -> ReleaseGuarantee:
    """zCDP cost of one draw of all areas (or areas and times) under a spatial, temporal or any other Gaussian prior.

    Args:
        sampling_variance: (m,) psi, outcome units squared; infinity for an area without a survey estimate, whose
            sensitivity is then ignored.
        prior_precision: (m, m) sparse Q, from :func:`car_precision`, :func:`sar_precision`, :func:`ar1_precision` or
            elsewhere.
        sensitivity: (m,) Delta, outcome units.
        X: (m, p) covariates with a flat prior on their coefficients, or None.
        labels, privacy_unit, variance_source: as elsewhere.
        hyperparameter_source: "estimated" or "public": where variance and dependence of the prior come from.

    Returns:
        ReleaseGuarantee with rho = max_k Delta_k^2 Sigma_kk / (2 psi_k^2); infinite if an area with psi = 0 can change.

    Raises:
        InputError: as :func:`posterior_variances`, and for bad sensitivities.

    Guarantee: rho-zCDP. Neighbours: bounded. It needs sampling errors that are independent between the m entries and a
    unit that lies in one of them: a person interviewed at two times breaks that, and such units are not covered.

    Source: docs/derivations.md, sections 4 to 8.

    Examples:
        >>> Q = car_precision(adjacency([[1], [0, 2], [1]]), variance=0.01, dependence=0.9)
        >>> int(prior_guarantee([0.001, 0.002, 0.001], Q, [0.01, 0.01, 0.02]).worst_area)
        2
    """
    psi = np.asarray(sampling_variance, dtype=float)
    names = labels if labels is not None else Labels(range(len(psi)))
    delta = sensitivities(sensitivity, len(psi))
    refuse_sensitivities(delta, names)
    delta = np.asarray(delta)
    variance = posterior_variances(psi, prior_precision, X)
    surveyed = np.isfinite(psi) & (psi > 0.0)
    terms = np.where(surveyed, delta**2 * variance / (2.0 * np.where(surveyed, psi, 1.0) ** 2), 0.0)
    terms = np.where((psi == 0.0) & (delta > 0.0), np.inf, terms)
    sentences = [
        sentence.replace("The model variance was", "The parameters of the prior were")
        .replace("is treated as an invariant: it is held", "are treated as invariants: they are held")
        .replace("what it reveals is", "what they reveal is")
        for sentence in assumption_sentences(variance_source, hyperparameter_source)
    ]
    return ReleaseGuarantee(
        rho=jnp.asarray(terms.max()),
        worst_area=jnp.asarray(terms.argmax()),
        release="one draw of all areas from their posterior under a Gaussian prior with dependence between areas",
        neighbours=neighbours_sentence(privacy_unit),
        assumptions=(*sentences, GAUSSIAN_PRIOR),
    )


def _factor(K: sparse.csc_array) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MatrixRankWarning)
        try:
            factor = splu(K, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        except (RuntimeError, MatrixRankWarning):
            factor = None
    # Without pivoting the diagonal of U holds what of each area's precision the areas before it leave undetermined.
    left = factor.U.diagonal()[factor.perm_c] / K.diagonal() if factor is not None else np.zeros(1)
    if not left.min() > 1e-13:
        raise InputError(
            "The prior is improper and the data do not make up for it: some combination of area means has neither a "
            "survey estimate nor prior information. Use a proper prior or drop areas without a survey estimate."
        )
    return factor


def _positive(value: float, name: str) -> None:
    if not (np.isfinite(value) and value > 0.0):
        raise InputError(f"The prior's {name} is {value}; it must be finite and positive.")
