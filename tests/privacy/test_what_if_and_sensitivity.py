"""Sensitivities, what-ifs, drivers and composition."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import privacy_oracle as oracle
from privacy_problems import random_problem, records

from fhjax.errors import InputError
from fhjax.privacy.composition import OtherSpending, composed, repeated
from fhjax.privacy.guarantee import guarantees
from fhjax.privacy.what_if import (
    drivers,
    equal_weight_rho,
    model_variance_changes,
    record_loss_summary,
    relative_change,
)
from fhjax.records import Labels
from fhjax.survey.sensitivity import hajek_sensitivity, horvitz_thompson_sensitivity, record_loss_share


def test_hajek_sensitivity_is_reached_by_replacing_an_outcome_and_never_exceeded():
    rng = np.random.default_rng(0)
    for _ in range(50):
        w, y = rng.exponential(size=8), rng.uniform(-2, 3, size=8)
        household = rng.integers(0, 3, size=8)
        delta = float(hajek_sensitivity([w.max()], [w.sum()], 5.0)[0])
        change = max(abs(w[r] * (new - y[r])) / w.sum() for r in range(8) for new in (-2.0, 3.0))
        assert change <= delta * (1 + 1e-12)
        extreme = y.copy()
        extreme[w.argmax()] = -2.0
        moved = extreme.copy()
        moved[w.argmax()] = 3.0
        assert (moved - extreme) @ w / w.sum() == pytest.approx(delta, rel=1e-12)
        sizes = np.bincount(household, w)
        unit = float(hajek_sensitivity([sizes.max()], [w.sum()], 5.0)[0])
        both = np.where(household == sizes.argmax(), 3.0, y) - np.where(household == sizes.argmax(), -2.0, y)
        assert both @ w / w.sum() == pytest.approx(unit, rel=1e-12)
        assert unit >= delta


def test_sensitivities_that_cannot_be_meant_are_refused_and_infinite_inside_jit():
    for largest, total in ((0.0, 1.0), (1.0, 0.0), (np.nan, 1.0), (1.0, np.inf)):
        with pytest.raises(InputError, match="'b'"):
            hajek_sensitivity([1.0, largest], [2.0, total], labels=Labels("ab"))
    with pytest.raises(InputError, match=r"above their sum of weights: 'a'"):
        hajek_sensitivity([3.0], [2.0], labels=Labels("a"))
    with pytest.raises(InputError, match="outcome range"):
        hajek_sensitivity([1.0], [2.0], np.inf)
    assert horvitz_thompson_sensitivity([3.0], [2.0]).tolist() == [1.5]
    inside = jax.jit(hajek_sensitivity)([1.0, 0.0, 3.0], [2.0, 1.0, 2.0])
    assert inside.tolist() == [0.5, np.inf, np.inf]


def test_record_losses():
    share = record_loss_share([1.0, 2.0, 0.0, 4.0], [0, 0, 0, 1], [2.0, 4.0])
    assert share.tolist() == [0.25, 1.0, 0.0, 1.0]
    summary = record_loss_summary(share, [0, 0, 0, 1], [8.0, np.inf])
    assert summary.quantiles.tolist() == [2.0, np.inf, np.inf, np.inf]
    assert summary.num_units == 4
    with pytest.raises(InputError, match="1 record"):
        record_loss_share([3.0], [0], [2.0])


def test_equal_weights_and_model_variance_changes_match_the_dense_formulas():
    psi, s2, X, delta = random_problem(5, scale=0.3)
    data, posterior = records(psi, s2, X)
    n = np.random.default_rng(0).integers(5, 500, size=len(psi))

    def rho(s2, delta):
        C = oracle.coefficient_matrix(psi, s2, X)
        return oracle.per_area(C, psi * np.diag(C), delta)[0]

    np.testing.assert_allclose(equal_weight_rho(data, posterior, n, outcome_range=2.0), rho(s2, 2.0 / n), rtol=1e-9)
    changes = model_variance_changes(data, posterior, delta)
    assert list(changes) == [-0.5, -0.25, -0.1, 0.1, 0.25, 0.5]
    for eta, change in changes.items():
        np.testing.assert_allclose(change, rho(s2 * (1 + eta), delta) / rho(s2, delta) - 1, rtol=1e-8, atol=1e-12)
    with pytest.raises(InputError, match="no records"):
        equal_weight_rho(data, posterior, np.where(np.arange(len(psi)) == 1, 0, n))
    with pytest.raises(InputError, match="negative"):
        model_variance_changes(data, posterior, delta, etas=(-2.0,))


def test_relative_changes_are_never_nan():
    before, after = jnp.array([0.0, 0.0, jnp.inf, jnp.inf, 2.0]), jnp.array([0.0, 1.0, jnp.inf, 1.0, jnp.inf])
    assert relative_change(before, after).tolist() == [0.0, np.inf, 0.0, -1.0, np.inf]


def test_drivers_recover_a_planted_law_and_cover_it():
    rng = np.random.default_rng(3)
    log_n = rng.normal(6, 1, size=400)
    log_ratio = 0.3 * log_n + rng.normal(size=400)
    rho = np.exp(1.0 + 2.0 * log_ratio - 0.7 * log_n + 0.4 * rng.normal(size=400))
    rho[:3] = [0.0, np.inf, 1.0]
    result = drivers(rho, np.exp(log_n), np.exp(log_ratio))
    assert result is not None
    assert result.num_areas_used == 398
    for (low, estimate, high), truth in ((result.slope_log_ratio_joint, 2.0), (result.slope_log_n_joint, -0.7)):
        assert low < truth < high
        assert abs(estimate - truth) < 0.12
    used = np.isfinite(rho) & (rho > 0)
    design = np.column_stack([np.ones(398), log_n[used]])
    assert result.slope_log_n[1] == pytest.approx(
        np.linalg.lstsq(design, np.log(rho[used]), rcond=None)[0][1], rel=1e-10
    )
    assert result.correlation_log_n_log_ratio == pytest.approx(
        np.corrcoef(log_n[used], log_ratio[used])[0, 1], rel=1e-10
    )
    flat = drivers(rho, np.full(400, 30.0), np.ones(400))
    assert flat is not None
    assert flat.slope_log_n == (-np.inf, 0.0, np.inf)
    assert flat.correlation_log_rho_log_ratio == 0.0
    assert drivers(rho[:5], np.exp(log_n[:5]), np.exp(log_ratio[:5])) is None
    with pytest.raises(InputError, match="shape"):
        drivers(rho, log_n[:3], log_ratio)


def test_what_ifs_on_acs_2024(shared):
    with open(shared / "data" / "acs2024_us_persons.poor.direct.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1964
    column = {name: np.array([float(row[name]) for row in rows]) for name in ("var_psu", "w_max_over_sum", "n")}
    data, posterior = records(column["var_psu"], 0.00267714, np.ones((1964, 1)))
    rho = np.asarray(guarantees(data, posterior, column["w_max_over_sum"]).per_area_rho)
    equal = np.asarray(equal_weight_rho(data, posterior, column["n"]))
    assert np.median(rho / equal) == pytest.approx(51.80, abs=0.005)


def test_releases_add_and_other_spending_is_converted_or_refused():
    psi, s2, X, delta = random_problem(0)
    data, posterior = records(psi, s2, X)
    result = guarantees(data, posterior, delta)
    joint = result.joint_correlated
    rho = float(joint.rho)
    assert float(repeated(joint, 7).rho) == pytest.approx(7 * rho, rel=1e-15)
    assert repeated(joint, 7).release.startswith("7 independent draws of: one draw of all areas")
    with pytest.raises(InputError, match="positive whole number"):
        repeated(joint, 0)
    total = composed(
        [joint, result.joint_independent],
        other=[OtherSpending(name="Table A", rho=0.5), OtherSpending(name="Table B", rho=0.25, neighbours="unbounded")],
    )
    assert float(total.rho) == pytest.approx(rho + float(result.joint_independent.rho) + 0.5 + 1.0, rel=1e-14)
    assert not total.gaussian_pair
    assert composed([joint, joint]).gaussian_pair
    assert "Table B satisfies zCDP with rho 0.25 for unbounded neighbours" in " ".join(total.assumptions)
    assert len(set(total.assumptions)) == len(total.assumptions)
    household = guarantees(data, posterior, delta, privacy_unit="SERIALNO").joint_correlated
    with pytest.raises(InputError, match="do not add"):
        composed([joint, household])
    with pytest.raises(InputError, match="'Table C' has neighbours 'zero-out'"):
        composed([joint], other=[OtherSpending(name="Table C", rho=0.1, neighbours="zero-out")])
    with pytest.raises(InputError, match="must not be negative"):
        composed([joint], other=[OtherSpending(name="Table C", rho=-0.1)])
    with pytest.raises(InputError, match="another privacy unit"):
        composed([joint], other=[OtherSpending(name="Table C", rho=0.1)], unit_is_the_same=False)
    with pytest.raises(InputError, match="Nothing to compose"):
        composed([])
