"""The same work in NumPy, twice: written plainly by somebody who knows NumPy, and in cache-sized blocks by somebody who
needs it fast. Both allocate as little as the formulas allow and use the algebra with the fewest divisions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MOST_STEPS = 50
BLOCK = 16_384  # 128 KiB of float64: a handful of such arrays stay in the second-level cache

Array = np.ndarray


def reml_sums(y: Array, psi: Array, s2: float) -> tuple[float, ...]:
    """The six sums of one REML step, intercept only: sums of w, wy, w^2, w^2 y, w^2 y^2, w^3 with w = 1/(psi + s2)."""
    w = 1.0 / (psi + s2)
    w2 = w * w
    w2y = w2 * y
    return w.sum(), w @ y, w2.sum(), w2y.sum(), w2y @ y, w2 @ w


def reml_sums_blocked(y: Array, psi: Array, s2: float) -> tuple[float, ...]:
    """The same in blocks that stay in cache."""
    total = np.zeros(6)
    for part in _blocks(len(y)):
        total += reml_sums(y[part], psi[part], s2)
    return tuple(total)


def reml_fit(y: Array, psi: Array, X: Array, *, tolerance: float, blocked: bool) -> tuple[float, Array, Array]:
    """Fisher scoring of REML for any X until a step is relatively below ``tolerance``, then EBLUP and MSE."""
    m, p = X.shape
    parts = list(_blocks(m)) if blocked else [slice(None)]
    y = y - y.mean()
    s2 = max(float(y.var() - psi.mean()), 1e-3 * float(psi.mean()))

    def sums(s2: float) -> tuple[Array, ...]:
        G1, G2, G3 = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
        b1, b2 = np.zeros(p), np.zeros(p)
        scalars = np.zeros(3)  # sum w^2 y^2, sum w, sum w^2
        for part in parts:
            w = 1.0 / (psi[part] + s2)
            x, t = X[part], y[part]
            wx = x * w[:, None]
            w2x = wx * w[:, None]
            G1 += x.T @ wx
            G2 += wx.T @ wx
            G3 += wx.T @ w2x
            wt = w * t
            b1 += x.T @ wt
            b2 += wx.T @ wt
            scalars += wt @ wt, w.sum(), w @ w
        return G1, G2, G3, b1, b2, scalars

    for _ in range(MOST_STEPS):
        G1, G2, G3, b1, b2, (w2y2, w_sum, w2_sum) = sums(s2)
        A = np.linalg.inv(G1)
        beta = A @ b1
        quadratic = w2y2 - 2 * beta @ b2 + beta @ G2 @ beta
        AG2 = A @ G2
        trace = w_sum - np.trace(AG2)
        information = 0.5 * (w2_sum - 2 * np.sum(A * G3) + np.sum(AG2 * AG2.T))
        before, s2 = s2, max(0.0, s2 + 0.5 * (quadratic - trace) / information)
        if abs(s2 - before) <= tolerance * s2:
            break

    A = np.linalg.inv(sums(s2)[0])
    eblup, mse = np.empty(m), np.empty(m)
    asymptotic = 1.0 / information
    for part in parts:
        w = 1.0 / (psi[part] + s2)
        B = psi[part] * w
        x = X[part]
        synthetic = x @ beta
        eblup[part] = y[part] - B * (y[part] - synthetic)
        g2 = B * B * np.einsum("ij,ij->i", x @ A, x)
        mse[part] = s2 * B + g2 + 2 * asymptotic * B * B * w
    return s2, eblup, mse


def reml_fit_intercept(y: Array, psi: Array, *, tolerance: float) -> float:
    """Fisher scoring of REML with an intercept alone until a step is below ``tolerance``: one problem of a batch."""
    y = y - y.mean()
    s2 = max(float(y.var() - psi.mean()), 1e-3 * float(psi.mean()))
    for _ in range(MOST_STEPS):
        w, wy, w2, w2y, w2y2, w3 = reml_sums(y, psi, s2)
        beta = wy / w
        quadratic = w2y2 - 2 * beta * w2y + beta * beta * w2
        ratio = w2 / w
        before, s2 = s2, max(0.0, s2 + (quadratic - (w - ratio)) / (w2 - 2 * w3 / w + ratio * ratio))
        if abs(s2 - before) <= tolerance * s2:
            break
    return s2


def guarantees(psi: Array, s2: float, delta: Array) -> tuple:
    """All guarantees of the intercept-only model: per area (24), both joints, the largest off-diagonal ratio."""
    V = psi + s2
    inverse_V = 1.0 / V
    S = inverse_V.sum()
    reach = delta * inverse_V
    top = int(reach.argmax())
    second = max(reach[:top].max(initial=0.0), reach[top + 1 :].max(initial=0.0))
    q = s2 * V + psi / S
    own = delta * delta * q * inverse_V * inverse_V / (2 * psi)
    largest_other = np.full_like(reach, reach[top])
    largest_other[top] = second
    ratio = psi * largest_other / (S * q * delta * inverse_V)
    per_area = own * np.maximum(1.0, ratio * ratio)
    M = (psi / q).sum()
    independent = own + delta * delta * inverse_V * inverse_V / (2 * S * S) * (M - psi / q)
    return per_area, independent.max(), own.max(), ratio.max(), per_area.sum()


def guarantees_blocked(psi: Array, s2: float, delta: Array, out: Array) -> tuple:
    """The same in blocks that stay in cache, into an array that is reused."""
    m = len(psi)
    S, first, second, top = 0.0, -1.0, -1.0, -1
    for part in _blocks(m):
        inverse_V = 1.0 / (psi[part] + s2)
        S += inverse_V.sum()
        reach = delta[part] * inverse_V
        k = int(reach.argmax())
        if reach[k] > first:
            rest = max(reach[:k].max(initial=-1.0), reach[k + 1 :].max(initial=-1.0))
            first, second, top = reach[k], max(first, rest), part.start + k
        else:
            second = max(second, reach[k])
    M = 0.0
    for part in _blocks(m):
        V = psi[part] + s2
        M += (psi[part] / (s2 * V + psi[part] / S)).sum()
    own_max, independent_max, ratio_max, total = 0.0, 0.0, 0.0, 0.0
    for part in _blocks(m):
        p, d = psi[part], delta[part]
        V = p + s2
        inverse_V = 1.0 / V
        q = s2 * V + p / S
        d2 = d * d * inverse_V * inverse_V
        own = d2 * q / (2 * p)
        ratio = p * V / (S * q * d)
        ratio *= first
        if part.start <= top < part.stop:
            ratio[top - part.start] *= second / first
        rho = own * np.maximum(1.0, ratio * ratio)
        out[part] = rho
        own_max = max(own_max, own.max())
        independent_max = max(independent_max, (own + d2 / (2 * S * S) * (M - p / q)).max())
        ratio_max = max(ratio_max, ratio.max())
        total += rho.sum()
    return out, independent_max, own_max, ratio_max, total


def guarantees_dense(psi: Array, s2: float, delta: Array, X: Array) -> tuple:
    """The same for any covariates through the m x m matrix of coefficients, as the formulas are written."""
    V = psi + s2
    B = psi / V
    A = np.linalg.inv(X.T @ (X / V[:, None]))
    C = B[:, None] * (X @ A @ (X / V[:, None]).T)
    C[np.diag_indices_from(C)] += 1.0 - B
    variance = np.diag(C) * psi
    moved = np.abs(C) * delta
    per_area = moved.max(axis=1) ** 2 / (2 * variance)
    independent = (delta**2 / 2 * (C**2 / variance[:, None]).sum(axis=0)).max()
    correlated = (delta**2 * variance / (2 * psi**2)).max()
    own = np.diag(moved).copy()
    np.fill_diagonal(moved, 0.0)
    return per_area, independent, correlated, (moved.max(axis=1) / own).max(), per_area.sum()


def _blocks(m: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, m)) for start in range(0, m, BLOCK))
