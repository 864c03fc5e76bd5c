"""The Mills ratio R(x) = (1 - Phi(x)) / phi(x) and its chords, accurate in every tail.

The exact conversion is a difference of two normal tails that agree in all their leading digits when mu is small.
Written with the Mills ratio it is phi(a) (R(a) - R(a + mu)), and the difference is taken here without cancellation: R
is one Chebyshev series in t = (x - 5) / (x + 7), and a chord of a Chebyshev series obeys the series' own recurrence.

The coefficients belong to (x + 2) R(x) on [-1, infinity): sample it in 50 digits at the 64 points whose t are
cos(pi (j + 1/2) / 64), take the discrete cosine transform, keep 28 terms (the next one is 5e-17).
``tests/privacy/test_normal_tails.py`` makes them again and compares.
"""

from __future__ import annotations

import jax.numpy as jnp

from fhjax.records import Array

SQRT_TWO_PI = 2.5066282746310002
LOG_SQRT_TWO_PI = 0.9189385332046728
LOWEST = -1.0  # the series holds from here on

COEFFICIENTS = (
    1.7850148225223976,
    -1.1303737547206183,
    0.4564921086009744,
    -0.12913464703052122,
    0.011344084881523145,
    0.014324570498885955,
    -0.011882055087144896,
    0.00592382930173674,
    -0.0022627451160709563,
    0.0006991636041763851,
    -0.00017553403148684083,
    3.467416987978648e-05,
    -4.8447538814118084e-06,
    2.7898994925835745e-07,
    6.704521431349939e-08,
    -2.097841935476114e-08,
    1.892703324186464e-09,
    3.088016830994242e-10,
    -1.0518941733072342e-10,
    4.748061190768512e-12,
    2.857110197314407e-12,
    -4.874359194873937e-13,
    -4.915349674012287e-14,
    2.1991797439508203e-14,
    -1.540939190012601e-17,
    -8.257545138824762e-16,
    5.3483333222164725e-17,
    2.953813422390174e-17,
)


def _variable(x: Array) -> Array:
    # 1 - 12 / (x + 7), so that an infinite x gives 1 and not inf / inf
    return 1.0 - 12.0 / (x + 7.0)


def mills_ratio(x: Array) -> Array:
    """R(x) = (1 - Phi(x)) / phi(x) for x >= -1, relative error about 1e-15.

    Args:
        x: any shape, at least -1. Smaller values are outside the series and give R(-1).

    Source: the normal tail, docs/derivations.md, section 10; series made for this module (see its docstring).

    Examples:
        >>> round(float(mills_ratio(jnp.asarray(0.0))), 12)
        1.253314137315
    """
    x = jnp.maximum(x, LOWEST)
    t = _variable(x)
    two_t = 2.0 * t
    later, current = jnp.zeros_like(t), jnp.full_like(t, COEFFICIENTS[-1])
    for coefficient in COEFFICIENTS[-2:0:-1]:
        later, current = current, coefficient + two_t * current - later
    return (COEFFICIENTS[0] + t * current - later) / (x + 2.0)


def mills_chord(x: Array, step: Array) -> tuple[Array, Array]:
    """The falling chord (R(x) - R(x + step)) / step and R(x + step), for x >= -1 and step >= 0.

    The chord tends to -R'(x) as the step goes to 0 and is as accurate there as anywhere: Clenshaw's recurrence is run
    for the series at x + step and, beside it, for the series' divided difference.

    Examples:
        >>> chord, _ = mills_chord(jnp.asarray(0.0), jnp.asarray(1e-9))
        >>> round(float(chord), 7)
        1.0
    """
    x = jnp.maximum(x, LOWEST)
    end = x + step
    two_t, two_s = 2.0 * _variable(x), 2.0 * _variable(end)
    later, current = jnp.zeros_like(two_s), jnp.full_like(two_s, COEFFICIENTS[-1])
    chord_later, chord = jnp.zeros_like(two_s), jnp.zeros_like(two_s)
    for coefficient in COEFFICIENTS[-2:0:-1]:
        chord_later, chord = chord, two_t * chord + 2.0 * current - chord_later
        later, current = current, coefficient + two_s * current - later
    # the series ends with c_0 + t b_1 - b_2, whose divided difference is b_1(end) + t chord(b_1) - chord(b_2)
    difference = current + 0.5 * two_t * chord - chord_later
    value = COEFFICIENTS[0] + 0.5 * two_s * current - later
    # R = P / (x + 2): both parts of the chord are positive, so nothing cancels. Ratios first: end may be 1e150.
    ratio = value - 12.0 * difference * ((end + 2.0) / (end + 7.0)) / (x + 7.0)
    end_ratio = value / (end + 2.0)
    return ratio / (end + 2.0) / (x + 2.0), end_ratio
