"""What must hold of the conversions for every input: order of methods, monotonicity, ends, refusals, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fhjax.errors import InputError
from fhjax.privacy.conversion import (
    METHODS,
    delta_exact,
    delta_tight,
    epsilon,
    epsilon_exact,
    epsilon_simple,
    epsilon_tight,
    log_delta_exact,
    log_delta_tight,
    rho_for_epsilon,
)
from fhjax.records import ReleaseGuarantee

CONVERSIONS = {"simple": epsilon_simple, "tight": epsilon_tight, "exact": epsilon_exact}
DELTAS = {"tight": delta_tight, "exact": delta_exact}

RHOS = np.array(
    [0, 5e-324, 1e-310, 1e-300, 1e-200, 1e-100, 1e-12, 1e-3, 1, 1e3, 1e10, 1e30, 1e200, 1e300, 1.7e308, np.inf]
)
ALL_DELTAS = np.array([0, 5e-324, 1e-310, 1e-300, 1e-100, 1e-16, 1e-5, 0.1, 0.5, 0.9, 1 - 1e-10, 1 - 2.0**-53])
EPSILONS = np.array([0, 1e-310, 1e-100, 1e-8, 1e-3, 1, 1e3, 1e10, 1e100, 1e300, 1.7e308, np.inf])

log_rho = st.floats(-12, 10)
log_delta = st.floats(-300, -0.01)
step = st.floats(1e-9, 3)


def guarantee(rho, gaussian_pair=True):
    return ReleaseGuarantee(
        rho=jnp.asarray(rho),
        worst_area=jnp.asarray(0),
        release="one draw",
        neighbours="one outcome replaced",
        assumptions=(),
        gaussian_pair=gaussian_pair,
    )


@pytest.mark.parametrize("method", CONVERSIONS)
class TestEnds:
    def test_no_nan_and_ordered_on_a_grid_to_the_ends_of_the_doubles(self, method):
        rho, delta = np.meshgrid(RHOS, ALL_DELTAS, indexing="ij")
        value = np.asarray(CONVERSIONS[method](rho, delta))
        assert value.shape == (16, 12)
        assert not np.isnan(value).any()
        assert (value >= 0).all()
        assert (value[1:] >= value[:-1] * (1 - 1e-13)).all()
        assert (value[:, 1:] <= value[:, :-1] * (1 + 1e-13)).all()
        assert (value[0] == 0).all()  # rho 0
        assert np.isinf(value[-1]).all()  # nothing certified
        assert np.isinf(value[1:, 0]).all()  # delta 0
        assert np.isfinite(value[1:13, 3:]).all()

    def test_calibration_on_the_same_grid(self, method):
        budget, delta = np.meshgrid(EPSILONS, ALL_DELTAS, indexing="ij")
        rho = np.asarray(rho_for_epsilon(budget, delta, method=method))
        assert not np.isnan(rho).any()
        assert (rho >= 0).all()
        assert (rho[1:] >= rho[:-1] * (1 - 1e-12)).all()
        assert (rho[:-1, 0] == 0).all()  # delta 0 allows nothing
        assert np.isinf(rho[-1]).all()
        assert (np.asarray(CONVERSIONS[method](rho, delta)) <= budget).all()

    def test_gradients_are_never_nan(self, method):
        rho, delta = (grid.ravel() for grid in np.meshgrid(RHOS, ALL_DELTAS, indexing="ij"))
        for argument in (0, 1):
            slope = np.asarray(jax.vmap(jax.grad(CONVERSIONS[method], argument))(rho, delta))
            assert not np.isnan(slope).any()

    def test_gradients_are_the_differences(self, method):
        convert = CONVERSIONS[method]
        compared = 0
        for rho in (1e-3, 0.048, 1.51, 195.0):
            for delta in (1e-7, 1e-3, 1e-100):
                by_rho, by_delta = jax.grad(convert, (0, 1))(rho, delta)
                h = 1e-5
                across = (convert(rho * (1 + h), delta) - convert(rho * (1 - h), delta)) / (2 * h * rho)
                down = (convert(rho, delta * (1 + h)) - convert(rho, delta * (1 - h))) / (2 * h * delta)
                np.testing.assert_allclose(by_rho, across, rtol=1e-7)
                np.testing.assert_allclose(by_delta, down, rtol=1e-6)
                compared += 1
        assert compared == 12

    def test_broadcasts_jits_and_maps(self, method):
        rho, delta = jnp.array([[0.1], [1.0], [3.0]]), jnp.array([1e-5, 1e-9])
        table = CONVERSIONS[method](rho, delta)
        assert table.shape == (3, 2)
        assert table.dtype == jnp.float64
        np.testing.assert_allclose(jax.jit(CONVERSIONS[method])(rho, delta), table, rtol=1e-13)
        mapped = jax.vmap(lambda r: CONVERSIONS[method](r, 1e-5))(rho[:, 0])
        np.testing.assert_allclose(mapped, table[:, 0], rtol=1e-13)


@pytest.mark.parametrize("method", DELTAS)
def test_delta_at_the_ends(method):
    rho, budget = np.meshgrid(RHOS, EPSILONS, indexing="ij")
    value = np.asarray(DELTAS[method](rho, budget))
    assert not np.isnan(value).any()
    assert ((value >= 0) & (value <= 1)).all()
    assert (value[1:] >= value[:-1] * (1 - 1e-12)).all()
    assert (value[:, 1:] <= value[:, :-1] * (1 + 1e-12)).all()
    assert (value[0] == 0).all()
    assert (value[-1] == 1).all()
    # spending something never has delta 0, however small: it is rounded up to the smallest normal double
    assert (value[1:-1, :-1] > 0).all()


def test_log_delta_reaches_far_below_the_doubles():
    assert float(log_delta_exact(1e-6, 100.0)) == pytest.approx(-(100**2) / 4e-6, rel=1e-6)
    assert float(log_delta_tight(1e-6, 100.0)) == pytest.approx(-(100**2) / 4e-6, rel=1e-6)
    assert float(delta_exact(1e-6, 100.0)) == np.finfo(float).tiny


@settings(max_examples=150, deadline=None)
@given(log_rho, log_delta, step)
def test_epsilon_rises_with_rho_and_falls_with_delta(u, v, h):
    rho = 10.0 ** np.array([u, u + h, u])
    delta = 10.0 ** np.array([v, v, max(v - h, -305.0)])
    for convert in CONVERSIONS.values():
        base, more_rho, less_delta = np.asarray(convert(rho, delta))
        assert more_rho >= base
        assert less_delta >= base


@settings(max_examples=150, deadline=None)
@given(log_rho, log_delta)
def test_exact_is_at_most_tight_is_at_most_simple(u, v):
    rho, delta = 10.0**u, 10.0**v
    simple, tight, exact = (float(convert(rho, delta)) for convert in CONVERSIONS.values())
    assert exact <= tight * (1 + 1e-13)
    assert tight <= simple * (1 + 1e-13)


@settings(max_examples=100, deadline=None)
@given(log_rho, log_delta, st.sampled_from(METHODS))
def test_round_trips_stay_safe(u, v, method):
    rho, delta = 10.0**u, 10.0**v
    spent = float(CONVERSIONS[method](rho, delta))
    back = float(rho_for_epsilon(spent, delta, method=method))
    assert float(CONVERSIONS[method](back, delta)) <= spent
    if spent > 1e-2 * np.sqrt(2 * rho):  # away from where epsilon becomes 0 and many rho share it
        assert back == pytest.approx(rho, rel=1e-10)
    else:
        assert back >= rho * (1 - 1e-10)


def test_planted_fault_a_fixed_grid_of_orders_is_loose():
    """The comparison with the best order sees what a usual grid of orders loses at a small rho and a small delta."""
    orders = np.arange(2, 65)
    rho, delta = 1e-6, 1e-100
    grid = min(a * rho + np.log1p(-1 / a) - (np.log(delta) + np.log(a)) / (a - 1) for a in orders)
    assert grid > 50 * float(epsilon_tight(rho, delta))


class TestRefusals:
    def test_exact_needs_a_gaussian_pair(self):
        ours = epsilon(guarantee(1.51), 1e-7, method="exact")
        assert float(ours) == float(epsilon_exact(1.51, 1e-7))
        with pytest.raises(InputError, match="bare rho"):
            epsilon(1.51, 1e-7, method="exact")
        for refused in (epsilon_exact, log_delta_exact, delta_exact):
            with pytest.raises(InputError, match="one draw"):
                refused(guarantee(1.51, gaussian_pair=False), 0.1)
        with pytest.raises(InputError, match="tight"):
            epsilon(guarantee(1.51, gaussian_pair=False), 1e-7, method="exact")

    def test_the_other_methods_take_any_release(self):
        for method in ("simple", "tight"):
            for pair in (True, False):
                ours = epsilon(guarantee(1.51, gaussian_pair=pair), 1e-7, method=method)
                assert float(ours) == float(CONVERSIONS[method](1.51, 1e-7))

    def test_simple_is_the_default(self):
        assert float(epsilon(1.51, 1e-7)) == float(epsilon_simple(1.51, 1e-7))

    @pytest.mark.parametrize(
        ("rho", "delta", "message"),
        [
            (-1.0, 1e-5, "rho"),
            (np.nan, 1e-5, "rho"),
            ([1.0, -2.0], 1e-5, "-2 at position 1"),
            (1.0, 1.0, "delta"),
            (1.0, -1e-5, "delta"),
            (1.0, np.nan, "delta"),
            ("much", 1e-5, "number"),
            ([1.0, 2.0], [0.1, 0.1, 0.1], "broadcast"),
        ],
    )
    def test_values_that_cannot_be_meant(self, rho, delta, message):
        for convert in CONVERSIONS.values():
            with pytest.raises(InputError, match=message):
                convert(rho, delta)

    def test_unknown_method_and_bad_budgets(self):
        with pytest.raises(InputError, match="simple, tight, exact"):
            epsilon(1.0, 1e-5, method="best")
        with pytest.raises(InputError, match="simple, tight, exact"):
            rho_for_epsilon(1.0, 1e-5, method="best")
        with pytest.raises(InputError, match="epsilon"):
            rho_for_epsilon(-1.0, 1e-5)
        with pytest.raises(InputError, match="epsilon"):
            delta_exact(1.0, np.nan)
