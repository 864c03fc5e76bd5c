"""Dense, slow NumPy versions of what fhjax.caps computes from prefix sums. Nothing here imports the package."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import brentq, minimize_scalar


def share(w):
    return np.max(w) / np.sum(w)


def least_cap(w, t):
    """Largest cap with share(min(w, cap)) <= t, by bisection on the cap; infinity when none is needed."""
    w = np.asarray(w, dtype=float)
    w = w[w > 0]
    if share(w) <= t:
        return np.inf
    low, high = w.min(), w.max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        if share(np.minimum(w, middle)) <= t:
            low = middle
        else:
            high = middle
    return low


def iterated(w, cap, rule, rounds=20_000):
    """Redistribution round by round, as it is described in words; stops when nothing exceeds the cap."""
    w = np.asarray(w, dtype=float).copy()
    alive = w > 0
    held = np.zeros(len(w), dtype=bool)
    for _ in range(rounds):
        over = w > cap
        if not over.any():
            break
        held |= over
        cut = np.minimum(w, cap)
        excess = np.sum(w - cut)
        takers = alive & ~held
        if not takers.any():
            return cut
        if rule == "proportional":
            cut[takers] *= 1 + excess / cut[takers].sum()
        else:
            cut[takers] += excess / takers.sum()
        w = cut
    return w


def posterior(psi, s2, X):
    """C, Sigma and shrinkage of a Fay-Herriot posterior, dense."""
    psi, X = np.asarray(psi, dtype=float), np.asarray(X, dtype=float)
    V = psi + s2
    A = np.linalg.inv(X.T @ (X / V[:, None]))
    B = psi / V
    Sigma = np.diag(B * s2) + (B[:, None] * X) @ A @ (B[:, None] * X).T
    return Sigma / psi[None, :], Sigma, B


def rho_terms(psi, s2, X, delta, joint="correlated"):
    C, Sigma, _ = posterior(psi, s2, X)
    sigma2 = np.diag(Sigma)
    if joint == "correlated":
        return np.asarray(delta) ** 2 * sigma2 / (2 * np.asarray(psi) ** 2)
    return np.asarray(delta) ** 2 / 2 * np.sum(C**2 / sigma2[:, None], axis=0)


def per_area_rho(psi, s2, X, delta):
    C, Sigma, _ = posterior(psi, s2, X)
    return np.max(np.abs(C) * np.asarray(delta), axis=1) ** 2 / (2 * np.diag(Sigma))


def reml(y, psi, X):
    """REML model variance by a dense likelihood: a fine grid, then bounded minimisation; 0 where it wins."""
    y, psi, X = (np.asarray(value, dtype=float) for value in (y, psi, X))
    scale = psi.mean()

    def minus(s):
        V = psi / scale + s
        G = X.T @ (X / V[:, None])
        beta = np.linalg.solve(G, X.T @ (y / np.sqrt(scale) / V))
        r = y / np.sqrt(scale) - X @ beta
        return 0.5 * (np.log(V).sum() + np.linalg.slogdet(G)[1] + np.sum(r * r / V))

    top = 20 * (1 + np.var(y) / scale)
    grid = np.concatenate([[0.0], np.geomspace(1e-6, top, 300)])
    values = np.array([minus(s) for s in grid])
    k = int(values.argmin())
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    best = minimize_scalar(minus, bounds=(low, high), method="bounded", options={"xatol": 1e-13 * (1 + high)})
    return 0.0 if values[0] <= best.fun else float(best.x) * scale


def mse_eblup(psi, s2, X, bias):
    """g1 + g2 + 2 g3 + (C b)^2, g3 with the REML information's leading term 2 / tr P P replaced by the exact one."""
    psi, X = np.asarray(psi, dtype=float), np.asarray(X, dtype=float)
    C, Sigma, _ = posterior(psi, s2, X)
    V = psi + s2
    P = np.diag(1 / V) - (X / V[:, None]) @ np.linalg.inv(X.T @ (X / V[:, None])) @ (X / V[:, None]).T
    g3 = psi**2 / V**3 * 2 / np.trace(P @ P)
    return np.diag(Sigma) + 2 * g3 + (C @ np.asarray(bias)) ** 2


def estimate(weights, outcomes):
    return np.sum(weights * outcomes) / np.sum(weights)


def taylor(weights, outcomes, stratum, psu, design):
    """Variance of one area's Hájek mean; ``design``: stratum -> number of PSUs of the whole design."""
    y = estimate(weights, outcomes)
    residual = weights * (outcomes - y)
    total = 0.0
    for h, n in design.items():
        here = stratum == h
        sums = [residual[here & (psu == j)].sum() for j in np.unique(psu[here])]
        e = np.concatenate([sums, np.zeros(n - len(sums))])
        if n > 1:
            total += n / (n - 1) * np.sum((e - e.mean()) ** 2)
    return total / np.sum(weights) ** 2


def replicate_variance(weights, replicates, outcomes, multiples, center="full"):
    y_b = (replicates * outcomes[:, None]).sum(axis=0) / replicates.sum(axis=0)
    y = estimate(weights, outcomes) if center == "full" else y_b.mean()
    return np.sum(multiples * (y_b - y) ** 2)


def brute_force(candidates, evaluate, target):
    """Smallest objective over all combinations of candidate caps that meet the target, with the caps."""
    best, caps = np.inf, None
    for combination in itertools.product(*candidates):
        rho, objective = evaluate(np.array(combination))
        if rho <= target and objective < best:
            best, caps = objective, np.array(combination)
    return best, caps


def additive_threshold(w, cap):
    """a such that min(w + a, cap) keeps the total."""
    w = np.asarray(w, dtype=float)
    return brentq(lambda a: np.minimum(w + a, cap).sum() - w.sum(), 0.0, cap)
