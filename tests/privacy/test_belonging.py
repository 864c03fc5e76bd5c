"""A guarantee is of the data, the fit, the unit and the bounds that belong together, exactly; else it is refused."""

from __future__ import annotations

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.cli.main import main
from fhjax.errors import InputError

M = 9


def areas(seed: int = 2, columns: int = 0):
    rng = np.random.default_rng(seed)
    psi = rng.gamma(2.0, 5e-4, M) + 1e-4
    X = rng.normal(size=(M, columns)) if columns else None
    return fhjax.area_data(0.3 + rng.normal(size=M) * np.sqrt(psi + 2e-3), psi, X)


SENSITIVITY = np.linspace(0.01, 0.04, M)


@pytest.mark.parametrize("columns", [0, 2])
@pytest.mark.parametrize("factor", [0.9, 0.999, 1.0 + 1e-7, 1.1])
def test_a_posterior_of_other_sampling_variances_is_refused(columns: int, factor: float) -> None:
    """psi x 0.9 once passed a tolerance of 5 % and understated rho by a tenth."""
    data = areas(columns=columns)
    fitted = fhjax.given(data, 2e-3)
    posterior = fhjax.posterior(data, fitted)
    other = dataclasses.replace(data, sampling_variance=data.sampling_variance * factor)
    assert fhjax.guarantees(data, posterior, SENSITIVITY).labels is data.labels
    with pytest.raises(InputError, match="was not computed from these sampling variances"):
        fhjax.guarantees(other, posterior, SENSITIVITY)
    with pytest.raises(InputError, match="fit was made from other data"):
        fhjax.guarantees(other, fitted, SENSITIVITY)


@pytest.mark.parametrize("field", ["shrinkage", "variance"])
def test_one_area_of_a_posterior_that_differs_is_named_by_row(field: str) -> None:
    data = areas(columns=1)
    posterior = fhjax.posterior(data, fhjax.given(data, 2e-3))
    changed = dataclasses.replace(posterior, **{field: getattr(posterior, field).at[4].multiply(1.0 + 1e-6)})
    with pytest.raises(InputError, match="in row 5"):
        fhjax.guarantees(data, changed, SENSITIVITY)


def test_a_model_variance_that_was_changed_afterwards_is_refused() -> None:
    data = areas(columns=1)
    posterior = fhjax.posterior(data, fhjax.given(data, 2e-3))
    with pytest.raises(InputError, match="with this model variance"):
        fhjax.guarantees(data, dataclasses.replace(posterior, model_variance=jnp.asarray(2.1e-3)), SENSITIVITY)


def test_a_fit_of_another_outcome_is_refused() -> None:
    """Variances and covariates are the same, the estimates are not: the model variance is another's."""
    data = areas()
    other = dataclasses.replace(data, y=data.y[::-1])
    with pytest.raises(InputError, match="the estimates y"):
        fhjax.guarantees(data, fhjax.fit(other), SENSITIVITY)
    # Said to be known from elsewhere, it may be used.
    known = fhjax.given(data, fhjax.fit(other).model_variance)
    assert np.isfinite(float(fhjax.guarantees(data, known, SENSITIVITY).joint_correlated.rho))


def level(tmp_path, name: str, y: np.ndarray, **more) -> str:
    data = areas()
    table = pd.DataFrame({"area": [f"a{k}" for k in range(M)], "y": y, "sampling_variance": data.sampling_variance,
                          "sensitivity": SENSITIVITY, **more})  # fmt: skip
    path = tmp_path / name
    table.to_csv(path, index=False, float_format="%.17g")
    return str(path)


@pytest.mark.parametrize("verb", ["guarantee", "check", "audit", "release"])
def test_the_fit_file_of_another_outcome_is_refused_by_every_verb(tmp_path, capsys, verb: str) -> None:
    y = np.asarray(areas().y)
    right, wrong = level(tmp_path, "right.csv", y), level(tmp_path, "wrong.csv", y[::-1])
    fit = str(tmp_path / "fit.json")
    assert main(["fit", wrong, "--out", fit]) == 0
    argv = {
        "guarantee": ["guarantee", right, "--out", str(tmp_path / "g.csv")],
        "check": ["check", right, "--out", str(tmp_path / "check")],
        "audit": ["audit", str(tmp_path / "draws.csv"), "--area-level", right],
        "release": ["release", right, "--out", str(tmp_path / "r.csv"), "--guarantee", str(tmp_path / "r.json")],
    }[verb]
    if verb in ("guarantee", "release"):
        argv += ["--delta", "1e-6"]
    pd.DataFrame([y], columns=[f"a{k}" for k in range(M)]).to_csv(tmp_path / "draws.csv", index=False)
    assert main([*argv, "--fit", fit]) == 2
    assert "the estimates y" in capsys.readouterr().err
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.parametrize(
    ("column", "option", "words"),
    [
        ({"privacy_unit": "record"}, ["--unit", "hh"], "protect one record"),
        ({"outcome_lower": 0.0, "outcome_upper": 1.0}, ["--bounds", "0", "3"], "between 0 and 1"),
        ({"delta": 1e-7}, ["--delta", "1e-5"], "at delta 1e-07 (its column delta), not at 1e-05"),
        ({"half": SENSITIVITY / 2.0}, ["--sensitivity", "half"], "below the table's own column sensitivity"),
    ],
)
def test_an_option_against_the_files_own_word_is_refused(tmp_path, capsys, column, option, words) -> None:
    path = level(tmp_path, "level.csv", np.asarray(areas().y), **column)
    delta = [] if "--delta" in option else ["--delta", "1e-7"]
    for verb in (
        ["guarantee", path, "--model-variance", "0.002", "--out", str(tmp_path / "g.csv")],
        ["report", path, "--area-level", "--area", "area", "--sensitivity", "sensitivity",
         "--out", str(tmp_path / "report")],
        ["release", path, "--model-variance", "0.002", "--out", str(tmp_path / "r.csv"),
         "--guarantee", str(tmp_path / "r.json")],
    ):  # fmt: skip
        if verb[0] == "report" and "--sensitivity" in option:
            verb = [word for word in verb if word not in ("--sensitivity", "sensitivity")]
        assert main([*verb, *option, *delta]) == 2, verb[0]
        assert words in capsys.readouterr().err


def test_the_same_words_as_the_file_pass(tmp_path) -> None:
    path = level(tmp_path, "level.csv", np.asarray(areas().y), privacy_unit="hh", outcome_lower=0.0, outcome_upper=1.0,
                 delta=1e-7)  # fmt: skip
    summary = tmp_path / "s.json"
    argv = ["guarantee", path, "--model-variance", "0.002", "--unit", "hh", "--bounds", "0", "1", "--delta", "1e-7"]
    assert main([*argv, "--out", str(tmp_path / "g.csv"), "--summary", str(summary)]) == 0
    said = json.loads(summary.read_text())["releases"][0]
    assert "privacy unit (hh" in said["neighbours"]
    assert any("0 to 1" in sentence for sentence in said["assumptions"])


def test_a_model_variance_of_zero_is_said_wherever_a_guarantee_is_printed(tmp_path, capsys) -> None:
    data = areas()
    flat = dataclasses.replace(data, y=jnp.full(M, 0.3))
    result = fhjax.guarantees(flat, fhjax.fit(flat), SENSITIVITY)
    assert any("exactly 0" in sentence for sentence in result.assumptions)
    path = level(tmp_path, "level.csv", np.full(M, 0.3))
    fit = str(tmp_path / "fit.json")
    assert main(["fit", path, "--out", fit]) == 0
    argv = ["release", path, "--fit", fit, "--delta", "1e-6", "--out", str(tmp_path / "r.csv"),
            "--guarantee", str(tmp_path / "r.json")]  # fmt: skip
    assert main(argv) == 0
    assert "The model variance is 0" in capsys.readouterr().out
    assert any("exactly 0" in text for text in json.loads((tmp_path / "r.json").read_text())["assumptions"])
