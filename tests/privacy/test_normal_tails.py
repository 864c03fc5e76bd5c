"""The Mills ratio's series: its coefficients made again, its values and chords against mpmath."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
from oracles import conversion_oracle as oracle

from fhjax.privacy.normal_tails import COEFFICIENTS, mills_chord, mills_ratio


def test_coefficients_are_those_of_the_recipe():
    fresh = oracle.mills_coefficients(32)
    assert len(COEFFICIENTS) == 28
    assert [float(c) for c in fresh[:28]] == list(COEFFICIENTS)
    assert sum(abs(c) for c in fresh[28:]) < 5e-18  # what was cut


def test_values():
    x = np.concatenate([np.linspace(-1, 40, 83), 10.0 ** np.arange(2, 13)])
    ours = np.asarray(mills_ratio(jnp.asarray(x)))
    with mp.workdps(40):
        error = [abs(float(value) / oracle.mills(at) - 1) for value, at in zip(ours, x, strict=True)]
    assert len(error) == 94
    assert max(error) < 1e-15
    assert float(mills_ratio(jnp.asarray(jnp.inf))) == 0


def test_chords_do_not_cancel():
    compared = 0
    with mp.workdps(60):
        for x in (-1.0, -0.5, 0.0, 0.3, 1.0, 4.0, 10.0, 37.0, 1e3):
            for step in (1e-15, 1e-8, 1e-3, 0.1, 1.0, 10.0, 1e5):
                chord, tail = mills_chord(jnp.asarray(x), jnp.asarray(step))
                end = mp.mpf(x) + mp.mpf(step)
                truth = (oracle.mills(x) - oracle.mills(end)) / mp.mpf(step)
                assert abs(float(chord) / truth - 1) < 2e-15
                assert abs(float(tail) / oracle.mills(end) - 1) < 2e-15
                compared += 1
    assert compared == 63
