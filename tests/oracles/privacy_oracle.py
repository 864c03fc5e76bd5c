"""Dense NumPy versions of the privacy formulas, written from the definitions; slow, plain, and free of fhjax."""

from __future__ import annotations

import numpy as np


def reml_intercept(y, psi, steps=200):
    """sigma_v^2 by REML for the intercept-only model: bisection on the restricted score."""

    def score(s2):
        w = 1.0 / (psi + s2)
        total = w.sum()
        residual = y - (w @ y) / total
        trace = total - (w @ w) / total
        return (w * w) @ (residual * residual) - trace

    low, high = 0.0, 10.0 * y.var()
    if score(0.0) <= 0.0:
        return 0.0
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if score(middle) > 0.0 else (low, middle)
    return 0.5 * (low + high)


def hat_matrix(psi, s2, X, P=None):
    """h_ik = x_i' A x_k / V_k, through the orthogonal projection so that near-collinear X costs no digits."""
    root = np.sqrt(psi + s2)
    scaled = X / root[:, None]
    if P is None:
        U = np.linalg.svd(scaled / np.linalg.norm(scaled, axis=0), full_matrices=False)[0]
        projection = U @ U.T
    else:
        projection = scaled @ np.linalg.solve(scaled.T @ scaled + P, scaled.T)
    return root[:, None] * projection / root[None, :]


def coefficient_matrix(psi, s2, X, P=None):
    V = psi + s2
    return np.diag(s2 / V) + (psi / V)[:, None] * hat_matrix(psi, s2, X, P)


def posterior_covariance(psi, s2, X, P=None):
    """Sigma from its definition: B sigma_v^2 on the diagonal plus B X A X' B."""
    V = psi + s2
    B = psi / V
    XAX = hat_matrix(psi, s2, X, P) * V[None, :]
    return np.diag(B * s2) + B[:, None] * XAX * B[None, :]


def per_area(C, variance, delta):
    reach = np.abs(C) * delta[None, :]
    return reach.max(axis=1) ** 2 / (2.0 * variance), reach


def joint_independent_terms(C, variance, delta):
    return 0.5 * delta**2 * (C**2 / variance[:, None]).sum(axis=0)


def joint_correlated(C, covariance, delta):
    """max_k of the quadratic form of the whole shift, by solving with the dense covariance."""
    solved = np.linalg.solve(covariance, C)
    return 0.5 * delta**2 * np.einsum("ik,ik->k", C, solved)


def linear_release(L, C, covariance, delta):
    shift = L @ C
    inner = np.linalg.pinv(L @ covariance @ L.T, rcond=1e-12, hermitian=True)
    return 0.5 * delta**2 * np.einsum("qk,qr,rk->k", shift, inner, shift)
