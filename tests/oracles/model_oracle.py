"""Dense Fay-Herriot in NumPy and in mpmath, straight from the definitions (m x m matrices, brute-force search)."""

from __future__ import annotations

import mpmath
import numpy as np


def projection(s, psi, X):
    """V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1, (m, m)."""
    W = np.diag(1.0 / (psi + s))
    return W - W @ X @ np.linalg.solve(X.T @ W @ X, X.T @ W)


def log_likelihood(s, y, psi, X, restricted):
    m, p = X.shape
    P = projection(s, psi, X)
    value = np.sum(np.log(psi + s)) + y @ P @ y + (m - p if restricted else m) * np.log(2 * np.pi)
    if restricted:
        value += np.linalg.slogdet(X.T @ np.diag(1.0 / (psi + s)) @ X)[1]
    return -0.5 * value


def model_variance(y, psi, X, method):
    """Brute force: the best of a fine grid, narrowed by bisection of the score; or bisection of the moment equation."""
    m, p = X.shape
    if method == "pr":
        H = X @ np.linalg.pinv(X)
        r = y - H @ y
        return max((r @ r - np.sum(psi * (1 - np.diag(H)))) / (m - p), 0.0)
    top = 10.0 * (np.var(y) + np.max(psi)) * m
    if method == "moment":

        def excess(s):
            return y @ projection(s, psi, X) @ y - (m - p)

        if excess(0.0) <= 0:
            return 0.0
        low, high = 0.0, top
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return 0.5 * (low + high)
    grid = np.concatenate([[0.0], np.geomspace(1e-4 * np.min(psi), top, 400)])
    values = [log_likelihood(s, y, psi, X, method == "reml") for s in grid]
    k = int(np.argmax(values))
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, grid.size - 1)]

    def score(s):
        P = projection(s, psi, X)
        trace = np.trace(P) if method == "reml" else np.sum(1.0 / (psi + s))
        return y @ P @ P @ y - trace

    if k == 0 and score(0.0) <= 0:
        return 0.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if score(middle) > 0 else (low, middle)
    return 0.5 * (low + high)


def posterior(s, y, psi, X, prior_mean=None, prior_precision=None):
    """Posterior mean and dense covariance of theta, by conditioning the joint Gaussian of (theta, beta)."""
    p = X.shape[1]
    W = np.diag(1.0 / (psi + s))
    P = np.zeros((p, p)) if prior_precision is None else prior_precision
    b = np.zeros(p) if prior_mean is None else prior_mean
    A = np.linalg.inv(X.T @ W @ X + P)
    beta = A @ (X.T @ W @ y + P @ b)
    B = psi / (psi + s)
    mean = (1 - B) * y + B * (X @ beta)
    return mean, np.diag(B * s) + np.outer(B, B) * (X @ A @ X.T), beta, A


def mse(s, y, psi, X, method):
    m = len(y)
    V = psi + s
    B = psi / V
    _, covariance, _, A = posterior(s, y, psi, X)
    w1, w2 = np.sum(1 / V), np.sum(1 / V**2)
    bias = 0.0
    if method in ("reml", "ml"):
        spread = 2 / w2
        if method == "ml":
            bias = -np.trace(A @ X.T @ np.diag(1 / V**2) @ X) / w2
    elif method == "moment":
        spread, bias = 2 * m / w1**2, 2 * (m * w2 - w1**2) / w1**3
    else:
        spread = 2 * np.sum(V**2) / m**2
    return np.diag(covariance) + 2 * psi**2 / V**3 * spread - bias * B**2


def reml_mp(y, psi, X, start, digits=50):
    """REML model variance and coefficients in ``digits`` digits by Newton steps on the score from ``start``."""
    with mpmath.workdps(digits):
        m, p = len(y), len(X[0])
        Xm = mpmath.matrix([[mpmath.mpf(float(v)) for v in row] for row in X])
        ym = mpmath.matrix([mpmath.mpf(float(v)) for v in y])
        psi = [mpmath.mpf(float(v)) for v in psi]

        def pieces(s):
            w = [1 / (v + s) for v in psi]
            G1 = mpmath.matrix(p, p)
            G2 = mpmath.matrix(p, p)
            b1 = mpmath.matrix(p, 1)
            for i in range(m):
                for a in range(p):
                    b1[a] += w[i] * Xm[i, a] * ym[i]
                    for c in range(p):
                        G1[a, c] += w[i] * Xm[i, a] * Xm[i, c]
                        G2[a, c] += w[i] ** 2 * Xm[i, a] * Xm[i, c]
            A = G1**-1
            beta = A * b1
            r = ym - Xm * beta
            AG = A * G2
            score = sum(w[i] ** 2 * r[i] ** 2 - w[i] for i in range(m)) + sum(AG[a, a] for a in range(p))
            return score, beta, A

        root = mpmath.findroot(
            lambda s: pieces(s)[0], (mpmath.mpf(start), mpmath.mpf(start) * (1 + mpmath.mpf("1e-6")))
        )
        _, beta, A = pieces(root)
        return float(root), np.array([float(v) for v in beta]), np.array(A.tolist(), dtype=float)
