"""Small inputs that once went wrong, each with its right value or its refusal; they lie beside the checkout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ibis
import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.cli.main import main
from fhjax.errors import DataWarning, InputError

ROLES = ("--area", "area", "--weight", "w")
KNOWN = ("--model-variance", "0.001", "--delta", "1e-6")


@pytest.fixture(scope="module")
def cases(shared: Path) -> Path:
    return shared / "cases"


def refused(argv: list[str], capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([str(word) for word in argv]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for word in words:
        assert word in said, said
    return said


def direct(tmp_path: Path, *argv: object) -> pd.DataFrame:
    out = tmp_path / "direct-of-case.csv"
    assert main(["direct", *map(str, argv), "--out", str(out), "--quiet"]) == 0
    return pd.read_csv(out, dtype={"area": str}, keep_default_na=False, na_values={"deff": [""]}).set_index("area")


def joint_rho(tmp_path: Path, file: Path, *argv: str) -> float:
    summary = tmp_path / "summary-of-case.json"
    out = tmp_path / "g-of-case.csv"
    options = ["guarantee", str(file), *KNOWN, *argv, "--out", str(out), "--summary", str(summary)]
    assert main(options) == 0
    return json.loads(summary.read_text())["releases"][0]["rho"]


def test_01_a_household_is_not_what_the_file_protects(cases: Path, tmp_path: Path, capsys) -> None:
    persons = cases / "01/persons.csv"
    direct(tmp_path, persons, *ROLES, "--outcome", "pov < 100")
    table = tmp_path / "direct-of-case.csv"
    assert joint_rho(tmp_path, table) == pytest.approx(0.0459621, rel=2e-6)
    for verb in (
        ["guarantee", table, *KNOWN, "--unit", "hh", "--out", tmp_path / "g.csv"],
        ["release", table, *KNOWN, "--unit", "hh", "--out", tmp_path / "r.csv", "--guarantee", tmp_path / "r.json"],
        ["report", table, "--area-level", "--area", "area", "--sensitivity", "sensitivity", "--unit", "hh",
         "--delta", "1e-6", "--out", tmp_path / "report"],
    ):  # fmt: skip
        refused(verb, capsys, "protect one record", "--unit hh")
    assert not (tmp_path / "report").exists()
    direct(tmp_path, persons, *ROLES, "--outcome", "pov < 100", "--unit", "hh")
    assert joint_rho(tmp_path, table, "--unit", "hh") == pytest.approx(0.587842, rel=2e-6)


@pytest.mark.parametrize(
    ("file", "variance", "words"),
    [
        ("acs.csv", "pow(moe/1.645,2)", ("annotation code '-555555555'", "'moe'")),
        ("se.csv", "se*se", ("negative value", "'se'", "se*se")),
        ("acs_est.csv", "pow(moe/1.645,2)", ("-666666666", "'est'")),
    ],
)
def test_02_codes_are_no_margins_of_error(cases: Path, tmp_path: Path, capsys, file, variance, words) -> None:
    refused(["guarantee", cases / "02" / file, "--y", "est", "--sensitivity", "sens", "--sampling-variance", variance,
             *KNOWN, "--out", tmp_path / "g.csv"], capsys, *words)  # fmt: skip


def test_03_bounds_are_declared(cases: Path, tmp_path: Path, capsys) -> None:
    y2023, y2024 = cases / "03/y2023.csv", cases / "03/y2024.csv"
    refused(["direct", y2023, *ROLES, "--outcome", "visits", "--out", tmp_path / "d.csv"], capsys, "--bounds LO HI")
    refused(["direct", y2024, *ROLES, "--outcome", "visits", "--where", "visits < 2", "--out", tmp_path / "d.csv"],
        capsys,
            "--bounds LO HI")  # fmt: skip
    direct(tmp_path, y2023, *ROLES, "--outcome", "visits", "--bounds", "0", "3")
    table = tmp_path / "direct-of-case.csv"
    assert joint_rho(tmp_path, table) == pytest.approx(22.805, rel=1e-4)
    assert "0 to 3" in (tmp_path / "summary-of-case.json").read_text()
    weights = ["--max-weight", "w_max", "--weight-total", "sum_w", "--out", tmp_path / "g.csv"]
    refused(["guarantee", table, *KNOWN, *weights, "--bounds", "0", "1"], capsys, "between 0 and 3")
    frame = pd.read_csv(table, dtype={"area": str}).drop(columns=["outcome_lower", "outcome_upper"])
    frame.to_csv(tmp_path / "older.csv", index=False)
    refused(["guarantee", tmp_path / "older.csv", *KNOWN, *weights], capsys, "below the table's own column sensitivity")
    out = tmp_path / "report"
    assert main(["report", str(y2023), *ROLES, "--outcome", "visits", "--bounds", "0", "3", "--delta", "1e-6", "--out",
                 str(out), "--quiet"]) == 0  # fmt: skip
    assert json.loads((out / "summary.json").read_text())["outcome_bounds"] == [0.0, 3.0]
    assert "lies between 0 and 3" in (out / "report.html").read_text()


@pytest.mark.parametrize("file", ["blank.csv", "nan.csv", "nan.parquet"])
@pytest.mark.parametrize("outcome", ["pov < 100", "pov >= 200"])
def test_04_nan_is_missing_in_outcomes_and_filters(cases: Path, tmp_path: Path, file: str, outcome: str) -> None:
    found = direct(tmp_path, cases / "04" / file, *ROLES, "--outcome", outcome)
    reference = direct(tmp_path, cases / "04/blank.csv", *ROLES, "--outcome", outcome)
    numbers = ["n", "y", "sampling_variance", "sensitivity"]
    pd.testing.assert_frame_equal(found[numbers], reference[numbers], rtol=1e-12)
    if outcome == "pov < 100":
        row = found.loc["01", numbers].astype(float)
        np.testing.assert_allclose(row, [22, 0.24327, 0.009536, 0.065497], rtol=2e-5)
    kept = direct(tmp_path, cases / "04" / file, *ROLES, "--outcome", "w > 30", "--where", outcome)
    same = direct(tmp_path, cases / "04/blank.csv", *ROLES, "--outcome", "w > 30", "--where", outcome)
    pd.testing.assert_frame_equal(kept[numbers], same[numbers], rtol=1e-12)


@pytest.mark.parametrize("outcome", ["CASE WHEN pov < 100 THEN 1 ELSE 0 END", "IF(pov < 100, 1, 0)"])
def test_05_an_expression_does_not_make_a_zero_of_a_missing_input(cases: Path, tmp_path: Path, outcome: str) -> None:
    numbers = ["n", "y", "sampling_variance", "sensitivity"]
    plain = direct(tmp_path, cases / "05/blank.csv", *ROLES, "--outcome", "pov < 100")
    found = direct(tmp_path, cases / "05/blank.csv", *ROLES, "--outcome", outcome)
    pd.testing.assert_frame_equal(found[numbers], plain[numbers], rtol=1e-12)
    survey = fhjax.open_survey(cases / "05/blank.csv", area="area", weight="w", outcome=outcome)
    missing = survey.num_missing_outcome
    assert missing == 33
    assert any(f"In {missing} records the outcome" in note for note in survey.notes)
    own = "CASE WHEN pov IS NULL THEN 0 WHEN pov < 100 THEN 1 ELSE 0 END"
    assert fhjax.open_survey(cases / "05/blank.csv", area="area", weight="w", outcome=own).num_missing_outcome == 0


def test_06_labels_decide_and_masks_are_refused() -> None:
    y, v = np.array([0.10, 0.20, 0.30, 0.25]), np.array([0.01, 0.02, 0.01, 0.015])
    s = pd.Series([0.1, 0.02, 0.02, 0.02], index=list("abcd"))
    Y, V = pd.Series(y, index=list("abcd")), pd.Series(v, index=list("abcd"))
    for ys, vs, ss in ((Y, V, s), (Y, V[::-1], s[::-1]), (Y[::-1], V, s)):
        data = fhjax.area_data(ys, vs)
        result = fhjax.guarantees(data, fhjax.posterior(data, fhjax.fit(data)), ss)
        assert float(result.joint_correlated.rho) == pytest.approx(0.1578947, rel=1e-6)
    data = fhjax.area_data(y, v)
    with pytest.raises(InputError, match="has labels"):
        fhjax.guarantees(data, fhjax.fit(data), s)
    with pytest.raises(InputError, match="other labels"):
        fhjax.area_data(Y, pd.Series(v, index=list("abce")))
    masked = np.ma.masked_array([0.1, 0.2, 999.0, 0.25], mask=[0, 0, 1, 0])
    with pytest.raises(InputError, match="y is a masked array with 1 masked"):
        fhjax.area_data(masked, v)
    with pytest.raises(InputError, match="sensitivity is a masked array"):
        fhjax.guarantees(data, fhjax.fit(data), masked)


@pytest.mark.parametrize("method", ["brr", "bootstrap"])
def test_07_factors_are_not_weights(cases: Path, tmp_path: Path, capsys, method: str) -> None:
    file = cases / "07/brr.csv"
    roles = ("--area", "puma", "--weight", "w", "--outcome", "y = 1", "--replicate-method", method)
    refused(["direct", file, *roles, "--replicates", "m*", "--out", tmp_path / "d.csv"], capsys, "--replicate-factors")
    found = direct(tmp_path, file, *roles, "--replicates", "m*", "--replicate-factors")
    weights = direct(tmp_path, file, *roles, "--replicates", "f*")
    np.testing.assert_allclose(found["sampling_variance"], weights["sampling_variance"], rtol=1e-12)
    if method == "brr":
        np.testing.assert_allclose(found["sampling_variance"][:3], [0.006211, 0.006834, 0.007099], rtol=1e-3)


def test_08_one_type_in_all_parts(cases: Path, tmp_path: Path, capsys) -> None:
    parts = [cases / "08/part1.parquet", cases / "08/part2.parquet"]
    refused(["direct", *parts, *ROLES, "--outcome", "pov < 100", "--out", tmp_path / "d.csv"], capsys,
            "holds text in", "numbers in", "part2.parquet")  # fmt: skip


def test_09_outer_blanks_do_not_make_another_area(cases: Path, tmp_path: Path, capsys) -> None:
    refused(["direct", cases / "09/padded.csv", *ROLES, "--outcome", "pov < 100", "--out", tmp_path / "d.csv"], capsys,
            "4 area codes", "outer blanks", "'01', '01 '", "trim(area)")  # fmt: skip
    found = direct(tmp_path, cases / "09/padded.csv", "--area", "trim(area)", "--weight", "w", "--outcome", "pov < 100")
    assert list(found.index) == ["01", "02", "03", "04"]


@pytest.mark.parametrize("file", ["wide.csv", "wide_index.csv", "wide_n.csv"])
def test_11_only_draws_are_audited(cases: Path, capsys, file: str) -> None:
    areas = str(cases / "11/areas.csv")
    assert main(["audit", str(cases / "11" / file), "--area-level", areas, "--model-variance", "0.002"]) == 0
    said = capsys.readouterr().out
    assert "'draw_1', 'draw_2', 'draw_3' and 47 more used" in said
    left = {"wide.csv": "", "wide_index.csv": "left out: '(no name)'", "wide_n.csv": "left out: 'n'"}[file]
    assert left in said


def test_12_line_ends_of_an_old_macintosh(cases: Path, tmp_path: Path) -> None:
    mac = direct(tmp_path, cases / "12/mac.csv", *ROLES, "--outcome", "pov < 100")
    pd.testing.assert_frame_equal(
        mac.drop(columns="source"),
        direct(tmp_path, cases / "12/ok.csv", *ROLES, "--outcome", "pov < 100").drop(columns="source"),
    )
    text = "area,x\r" + "".join(f"{a},{i}\r" for i, a in enumerate(mac.index))
    (tmp_path / "x.csv").write_bytes(text.encode())
    assert fhjax.read_covariates(tmp_path / "x.csv", area="area", columns="x", labels=list(mac.index)).X.shape == (4, 1)


@pytest.mark.parametrize("file", ["sadc.csv", "sadc.parquet"])
def test_13_namibia_is_an_area_in_every_verb(cases: Path, tmp_path: Path, capsys, file: str) -> None:
    found = direct(tmp_path, cases / "13" / file, *ROLES, "--outcome", "pov < 100")
    assert "NA" in found.index
    assert "taken as a code" in capsys.readouterr().err
    table = str(tmp_path / "direct-of-case.csv")
    fit, draw = str(tmp_path / "f.json"), str(tmp_path / "draws.csv")
    assert main(["fit", table, "--out", fit]) == 0
    guarantee = str(tmp_path / "g.csv")
    assert main(["guarantee", table, "--fit", fit, "--delta", "1e-6", "--out", guarantee]) == 0
    assert (
        main(["check", table, "--fit", fit, "--claim", guarantee, "--draws", "2000", "--level", "1e-6", "--quiet"]) == 0
    )
    assert (
        main(["release", table, *KNOWN, "--draws", "60", "--out", draw, "--guarantee", str(tmp_path / "d.json")]) == 0
    )
    assert main(["audit", draw, "--area-level", table, "--model-variance", "0.001", "--level", "1e-6"]) == 0
    refused(["direct", cases / "13" / file, *ROLES, "--outcome", "pov < 100", "--na", "area=NA", "--out",
             tmp_path / "d.csv"], capsys, "no area code")  # fmt: skip


@pytest.mark.parametrize("name", ["null", "None", "NaN", "nan"])
def test_13_areas_named_like_nothing(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"area": [name, "b", "c", "d"], "y": [0.1, 0.2, 0.3, 0.25], "sampling_variance": 0.001,
                          "sensitivity": 0.01})  # fmt: skip
    table, draws, guarantee = (str(tmp_path / file) for file in ("a.csv", "d.csv", "g.csv"))
    frame.to_csv(table, index=False)
    assert (
        main(["release", table, *KNOWN, "--draws", "60", "--out", draws, "--guarantee", str(tmp_path / "p.json")]) == 0
    )
    assert main(["audit", draws, "--area-level", table, "--model-variance", "0.001", "--level", "1e-6"]) == 0
    assert main(["guarantee", table, *KNOWN, "--out", guarantee]) == 0
    assert main(["check", table, "--model-variance", "0.001", "--claim", guarantee, "--draws", "2000", "--level",
        "1e-6",
                 "--quiet"]) == 0  # fmt: skip


def test_14_a_table_of_sqlite(tmp_path: Path) -> None:
    import sqlite3

    frame = pd.DataFrame({"area": ["a", "a", "b", "b"], "w": [1.0, 2, 3, 4], "y": [0.0, 1, 1, 0]})
    with sqlite3.connect(tmp_path / "s.db") as connection:
        frame.to_sql("t", connection, index=False)
    table = ibis.sqlite.connect(tmp_path / "s.db").table("t")
    for options in ({"outcome": "y", "bounds": (0, 1)}, {"outcome": "y < 1"}):
        one = fhjax.direct_estimates(fhjax.open_survey(table, area="area", weight="w", **options))
        two = fhjax.direct_estimates(fhjax.open_survey(frame, area="area", weight="w", **options))
        np.testing.assert_allclose(one.sampling_variance, two.sampling_variance, rtol=1e-12)


def test_15_float64_switched_off_is_one_sentence_at_every_entrance() -> None:
    import jax

    data = fhjax.area_data([0.1, 0.2, 0.3, 0.25], [0.01, 0.02, 0.01, 0.015])
    fitted = fhjax.fit(data)
    posterior = fhjax.posterior(data, fitted)
    claim = fhjax.guarantees(data, posterior, 0.1)
    key = jax.random.key(1)
    entrances = {
        "area_data": lambda: fhjax.area_data([0.1, 0.2], [0.1, 0.1]),
        "fit": lambda: fhjax.fit(data),
        "posterior": lambda: fhjax.posterior(data, fitted),
        "guarantees": lambda: fhjax.guarantees(data, posterior, 0.1),
        "subset_guarantee": lambda: fhjax.subset_guarantee(data, posterior, 0.1, [0, 1]),
        "epsilon": lambda: fhjax.epsilon(0.1, 1e-5),
        "epsilon_tight": lambda: fhjax.epsilon_tight(0.1, 1e-5),
        "epsilon_exact": lambda: fhjax.epsilon_exact(0.1, 1e-5),
        "rho_for_epsilon": lambda: fhjax.rho_for_epsilon(1.0, 1e-5),
        "personal_risk": lambda: fhjax.personal_risk(0.1, 1e-5),
        "draws": lambda: fhjax.draws(posterior, key=key),
        "check": lambda: fhjax.check(data, fitted, claim, key=key),
        "audit": lambda: fhjax.audit(np.zeros((2, 4)), data, 0.1, claim),
        "publish": lambda: fhjax.publish(data, posterior, claim),
    }
    jax.config.update("jax_enable_x64", False)
    try:
        for name, call in entrances.items():
            with pytest.raises(InputError, match="float64 is switched off"):
                pytest.fail(f"{name} gave {call()!r}")
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize(
    ("file", "areas", "options"),
    [
        ("ok.csv", "areas.csv", ()),
        ("stan.csv", "areas.csv", ()),
        ("long.csv", "areas.csv", ()),
        ("semicolon.csv", "areas_semi.csv", ("--delimiter", ";", "--decimal", ",")),
    ],
)
def test_16_draws_as_samplers_write_them(cases: Path, tmp_path: Path, file: str, areas: str, options) -> None:
    out, reference = tmp_path / "a.json", tmp_path / "r.json"
    folder = cases / "16"
    argv = ["audit", str(folder / file), "--area-level", str(folder / areas), "--model-variance", "0.002", *options]
    assert main([*argv, "--out", str(out)]) == 0
    known = ["audit", str(folder / "ok.csv"), "--area-level", str(folder / "areas.csv"), "--model-variance", "0.002"]
    assert main([*known, "--out", str(reference)]) == 0
    one, two = json.loads(out.read_text()), json.loads(reference.read_text())
    if file == "long.csv":  # the same areas, fewer draws
        assert (one["draws"], [a["area"] for a in one["areas"]]) == (50, [a["area"] for a in two["areas"]])
        return
    assert one["draws"] == two["draws"]
    for a, b in zip(one["areas"], two["areas"], strict=True):
        assert a["variance_ratio"] == pytest.approx(b["variance_ratio"], rel=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--decimals", "-2"), ("decimals is -2",)),
        (("--clip", "0.25", "0.35", "--decimals", "1"), ("0.25 and 0.35 would be rounded",)),
        (("--decimals", "16"), ("0 to 15",)),
        (("--decimals", "12"), ("show the lattice", "at most 7 decimals")),
        (("--delta", "0"), ("delta must lie strictly between",)),
    ],
)
def test_17_a_release_is_refused_before_it_is_drawn(
    cases: Path, tmp_path: Path, capsys, monkeypatch, options, words
) -> None:
    import fhjax.release.publish as publish

    monkeypatch.setattr(publish, "noisy_integers", lambda *_: pytest.fail("drawn"))
    ledger = tmp_path / "ledger.jsonl"
    delta = () if "--delta" in options else ("--delta", "1e-6")
    refused(["release", cases / "17/areas.csv", "--model-variance", "0.001", *delta, *options, "--ledger", ledger,
        "--out",
             tmp_path / "r.csv", "--guarantee", tmp_path / "r.json"], capsys, *words)  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_18_a_name_that_ends_in_a_blank(cases: Path, tmp_path: Path) -> None:
    found = direct(tmp_path, cases / "18/LLCP.XPT ", "--area", "puma", "--weight", "w", "--outcome", "povpip < 100",
                   "--zero-variance", "keep")  # fmt: skip
    assert len(found) > 1


@pytest.mark.parametrize(
    ("options", "truth"),
    [
        (("--variances", "frozen"), 0.0046142),
        (("--objective", "weights", "--model-variance", "0.0001"), 0.0051480),
    ],
)
def test_19_a_certificate_is_of_the_written_weights(cases: Path, tmp_path: Path, capsys, options, truth: float) -> None:
    out = tmp_path / "trim"
    argv = ["trim", cases / "19/u4.csv", *ROLES, "--outcome", "y = 1", "--target-rho", "0.0028", *options, "--out", out]
    said = refused([*argv, "--quiet"], capsys, "NOT met", "0.0028")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["certified"] is False
    assert summary["status"] == "frozen_only"
    assert summary["rho_from_written_weights"] == pytest.approx(truth, rel=1e-4)
    assert summary["rho_after"] == pytest.approx(0.0028, rel=1e-6)
    assert f"{summary['rho_by_the_route_of_the_report']:.6g}" in said
    report = tmp_path / "report"
    main(["report", str(out / "weights.parquet"), "--area", "area", "--weight", "weight_trimmed", "--outcome", "y = 1",
          "--out", str(report), "--quiet"])  # fmt: skip
    rho = json.loads((report / "summary.json").read_text())["rho_joint_correlated"]
    assert rho > 0.0028
    assert rho <= summary["rho_from_written_weights"] * (1 + 1e-9)


def test_20_float_codes_are_trimmed_like_whole_numbers(cases: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(cases / "20/hf.parquet")
    codes = [name for name in frame.columns if name == "area"]
    assert codes
    assert frame["area"].dtype == float
    frame.assign(area=frame["area"].astype(int)).to_parquet(tmp_path / "whole.parquet")
    sums = []
    for file in (cases / "20/hf.parquet", tmp_path / "whole.parquet"):
        out = tmp_path / f"trim-{Path(file).stem}"
        target = ["--target-rho", "0.2", "--quiet", "--out", str(out)]
        assert main(["trim", str(file), *ROLES, "--outcome", "y = 1", *target]) == 0
        written = pd.read_parquet(out / "weights.parquet")
        assert (written["in_universe"] == written["y"].notna()).all()
        sums.append(np.sort(written["weight_trimmed"].to_numpy()))
        assert (written["weight_trimmed"] < written["w"]).sum() == json.loads((out / "summary.json").read_text())[
            "units_trimmed"
        ]
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-12)


def test_21_antithetic_draws_are_refuted(cases: Path, capsys) -> None:
    argv = [
        "audit",
        str(cases / "21/anti.csv"),
        "--area-level",
        str(cases / "21/areas.csv"),
        "--model-variance",
        "0.001",
    ]
    main(argv)
    own = [str(cases / "21/anti.csv"), "--area-level", str(cases / "21/areas.csv")]
    capsys.readouterr()
    assert main(["audit", *own]) == 1
    said = capsys.readouterr().out
    assert any(line.lstrip().startswith("REFUTED") and "dependence of the draws" in line for line in said.splitlines())


def test_22_thousands_separators_are_named(cases: Path, tmp_path: Path, capsys) -> None:
    argv = ["direct", cases / "22/thousands.csv", *ROLES, "--outcome", "y = 1", "--out", tmp_path / "d.csv"]
    said = refused(argv, capsys, "separates thousands", "CAST(replace(w, ',', '') AS DOUBLE)")
    assert "--decimal" not in said
    refused([*argv, "--decimal", ","], capsys, "separates thousands")
    way_out = "CAST(replace(w, ',', '') AS DOUBLE)"
    found = direct(tmp_path, cases / "22/thousands.csv", "--area", "area", "--weight", way_out, "--outcome", "y = 1")
    assert found["sum_w"].min() > 1000


def test_23_a_fit_needs_no_sensitivity(cases: Path, tmp_path: Path) -> None:
    assert main(["fit", str(cases / "23/three.csv"), "--out", str(tmp_path / "f.json")]) == 0
    assert json.loads((tmp_path / "f.json").read_text())["num_areas"] == 48


def test_24_repeated_records_are_counted(cases: Path) -> None:
    roles = {"area": "area", "weight": "w", "outcome": "y = 1", "strata": "stratum", "psu": "psu"}
    once, repeated = pd.read_csv(cases / "24/once.csv"), pd.read_csv(cases / "24/repeated.csv")
    extra = len(repeated) - len(once)
    assert extra > 0
    with pytest.warns(DataWarning, match=f"{extra:,} of {len(repeated):,} records repeat another"):
        survey = fhjax.open_survey(cases / "24/repeated.csv", **roles)
    assert any("repeat another" in sentence for sentence in survey.cautions)
    estimates = fhjax.direct_estimates(survey)
    assert any("repeat another" in text for text in fhjax.assess(estimates).guarantees.assumptions)
    single = fhjax.open_survey(cases / "24/once.csv", **roles)
    assert not any("repeat another" in sentence for sentence in single.cautions)


def test_25_a_fixed_width_file_is_named_and_not_shown(cases: Path, tmp_path: Path, capsys) -> None:
    file = cases / "25/fixed.txt"
    said = refused(["direct", file, *ROLES, "--outcome", "y = 1", "--out", tmp_path / "d.csv"], capsys, "fixed width")
    for line in file.read_text().splitlines():
        assert line.strip()[:12] not in said


def test_10_the_survey_stays_as_it_is(cases: Path, tmp_path: Path, capsys) -> None:
    survey = tmp_path / "s.csv"
    shutil.copy(cases / "10/survey.csv", survey)
    before = survey.read_bytes()
    refused(["direct", survey, *ROLES, "--outcome", "pov < 100", "--out", survey], capsys, "would overwrite")
    (tmp_path / "link.csv").symlink_to(survey)
    refused(
        ["direct", survey, *ROLES, "--outcome", "pov < 100", "--out", tmp_path / "link.csv"], capsys, "would overwrite"
    )
    assert survey.read_bytes() == before
