"""High-precision answers for the privacy conversions, in mpmath. Imports nothing from fhjax.

Every function takes numbers that mpmath reads exactly (floats are binary fractions) and works to ``DIGITS`` digits,
more where two large terms cancel.
"""

from __future__ import annotations

import mpmath as mp

DIGITS = 50


def normal_cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def mills(x):
    """R(x) = (1 - Phi(x)) / phi(x)."""
    x = mp.mpf(x)
    if x > 10**6:
        return sum((-1) ** k * mp.fac2(2 * k - 1) / x ** (2 * k + 1) for k in range(8))
    return mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))


def mills_coefficients(terms: int, nodes: int = 64) -> list:
    """Chebyshev coefficients in t = (x - 5) / (x + 7) of (x + 2) R(x) on [-1, infinity), by discrete cosines."""
    with mp.workdps(DIGITS):
        angles = [mp.pi * (j + mp.mpf(1) / 2) / nodes for j in range(nodes)]
        points = [mp.cos(angle) for angle in angles]
        x = [(5 + 7 * t) / (1 - t) for t in points]
        values = [(xj + 2) * mills(xj) for xj in x]
        return [
            (2 if k else 1) * mp.fsum(v * mp.cos(k * angle) for v, angle in zip(values, angles, strict=True)) / nodes
            for k in range(terms)
        ]


def log_delta_exact(rho, eps):
    """log delta(eps) of a Gaussian pair: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    rho, eps = mp.mpf(rho), mp.mpf(eps)
    size = max(eps, rho, 1) ** 2 / rho
    # the two terms share their leading digits when mu is small; Phi near 1 needs digits too
    with mp.workdps(DIGITS + int(abs(mp.log10(rho))) + int(min(mp.log10(size), 40))):
        mu = mp.sqrt(2 * rho)
        first = normal_cdf(mu / 2 - eps / mu)
        tail = mp.exp(eps) * normal_cdf(-mu / 2 - eps / mu)
        return mp.log(first - tail)


def epsilon_simple(rho, delta):
    with mp.workdps(DIGITS):
        rho = mp.mpf(rho)
        return rho + 2 * mp.sqrt(rho * -mp.log(mp.mpf(delta)))


def _bisect(f, low, high, steps=220):
    """Root of an increasing f between low and high, f(low) <= 0 <= f(high)."""
    for _ in range(steps):
        middle = (low + high) / 2
        if f(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def epsilon_tight(rho, delta):
    """(unclipped epsilon, alpha - 1): the infimum over alpha of the improved conversion, by its stationary point."""
    with mp.workdps(DIGITS + 20):
        rho, log_inverse = mp.mpf(rho), -mp.log(mp.mpf(delta))
        top = min(mp.expm1(log_inverse), mp.sqrt(log_inverse / rho))
        # in log b, so that tiny and huge orders are found to the same relative precision
        log_b = _bisect(lambda u: rho * mp.exp(2 * u) + mp.log1p(mp.exp(u)) - log_inverse, mp.log(top) - 5, mp.log(top))
        b = mp.exp(log_b)
        return epsilon_at_order(rho, delta, b), b


def epsilon_at_order(rho, delta, b):
    """The improved conversion at the order 1 + b, whether or not it is the best one."""
    log_inverse = -mp.log(mp.mpf(delta))
    alpha = 1 + b
    return alpha * rho + mp.log1p(-1 / alpha) + (log_inverse - mp.log(alpha)) / b


def epsilon_exact(rho, delta):
    """The unique root of delta(eps) = delta, or 0 where delta(0) <= delta."""
    with mp.workdps(DIGITS + 30):
        rho, log_delta = mp.mpf(rho), mp.log(mp.mpf(delta))
        if log_delta_exact(rho, 0) <= log_delta:
            return mp.mpf(0)
        mu = mp.sqrt(2 * rho)
        # eps = mu a + rho. Newton from the right on a concave decreasing function converges from that side.
        low, high = -mu / 2, mp.sqrt(-2 * log_delta) + 1
        a = high
        for _ in range(400):
            value = log_delta_exact(rho, mu * a + rho) - log_delta
            b = a + mu
            slope = -mu * mp.exp(-(a**2) / 2) / mp.sqrt(2 * mp.pi) * mills(b) / mp.exp(value + log_delta)
            step = value / slope
            new = a - step
            if not low <= new <= high:
                new = (low + a) / 2
            done = abs(new - a) <= mp.mpf(10) ** -40 * (abs(a) + mp.mpf(10) ** -10)
            a = new
            if done:
                break
        return mu * a + rho


def delta_tight(rho, eps):
    """log delta: the infimum over alpha of the improved conversion at a given epsilon."""
    with mp.workdps(DIGITS + 20):
        rho, eps = mp.mpf(rho), mp.mpf(eps)
        top = max(mp.mpf(1), (max(eps - rho, 0) + 1) / (2 * rho))
        bottom = eps - rho - 2 * rho * top

        def slope(u):
            return rho * (1 + 2 * mp.exp(u)) - eps - mp.log1p(mp.exp(-u))

        b = mp.exp(_bisect(slope, bottom, mp.log(top)))
        return b * ((1 + b) * rho - eps) - b * mp.log1p(1 / b) - mp.log1p(b)


def renyi_gaussian(alpha, shift, variance, other):
    """D_alpha(N(shift, variance) || N(0, other)) from the textbook formula, or inf."""
    with mp.workdps(DIGITS + 30):
        alpha, shift, variance, other = (mp.mpf(v) for v in (alpha, shift, variance, other))
        if alpha == 1:
            ratio = variance / other
            return (shift**2 / other + ratio - 1 - mp.log(ratio)) / 2
        mixed = alpha * other + (1 - alpha) * variance
        if mixed <= 0:
            return mp.inf
        logs = mp.log(mixed) - (1 - alpha) * mp.log(variance) - alpha * mp.log(other)
        return alpha * shift**2 / (2 * mixed) + logs / (2 * (1 - alpha))
