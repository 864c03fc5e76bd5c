"""Files as agencies have them, broken one way at a time: exit code 2, a sentence with a way out, and no report."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.cli.arguments import names
from fhjax.cli.main import main
from fhjax.cli.wording import for_command_line

ROLES = ("--area", "area", "--weight", "w", "--outcome", "y = 1")


def people() -> pd.DataFrame:
    """400 records in 8 areas with differing rates, households of 16 that stay within their area."""
    n = 400
    area = np.arange(n) % 8
    y = (np.arange(n) * 37 % 100 < 10 + 6 * area).astype(int)
    codes, weights = [f"{a + 1:03d}" for a in area], 5.0 + 7 * np.arange(n) % 83
    frame = pd.DataFrame({"area": codes, "w": weights, "y": y, "income": np.arange(n) % 100})
    return frame.assign(hh=[f"{a}-{i // 128}" for i, a in enumerate(frame["area"])])


def with_values(column: str, value: object, rows: list[int]) -> pd.DataFrame:
    frame = people()
    frame[column] = frame[column].astype(object)
    frame.loc[rows, column] = value
    return frame


def text(frame: pd.DataFrame, path: Path, **options: str) -> str:
    frame.to_csv(path, index=False, **options)  # type: ignore[call-overload]
    return str(path)


def refused(argv: list[str], out: Path, capsys: pytest.CaptureFixture[str], *words: str) -> None:
    assert main([*argv, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for word in words:
        assert word in said, said
    assert not out.exists()


SURVEYS: dict[str, tuple[Callable[[], pd.DataFrame], tuple[str, ...], tuple[str, ...]]] = {
    "missing weight": (lambda: with_values("w", None, [3, 9, 11]), (), ("3 of 400 records have a missing weight",)),
    "one missing weight": (lambda: with_values("w", None, [3]), (), ("1 of 400 records has a missing weight",)),
    "negative weight": (lambda: with_values("w", -5, [3]), (), ("negative weight", "'004'", "--where 'w > 0'")),
    "zero weight": (lambda: with_values("w", 0, list(range(12))), (), ("12 of 400", "8 areas", "3 more")),
    "text weight": (lambda: with_values("w", "many", [3]), (), ("not numeric in 1 of 400", "'many'")),
    "infinite weight": (lambda: with_values("w", "inf", [3]), (), ("infinite weight",)),
    "thousands comma": (lambda: people().assign(w=[f"{1000 * w:,.0f}" for w in people()["w"]]), (),
                        ("separates thousands", "CAST(replace(w, ',', '') AS DOUBLE)")),
    "no outcome": (lambda: people().assign(y=None), (), ("missing in all 400 records",)),
    "one and two": (lambda: people().assign(y=people()["y"] + 1), ("--outcome", "y"), ("--bounds LO HI", "'y = 1'")),
    "zeros and ones": (people, ("--outcome", "y"), ("is a number", "--bounds LO HI", "'y = 1'")),
    "yes and no": (lambda: people().assign(y=people()["y"].map({0: "No", 1: "Yes"})), ("--outcome", "y"),
        ("y = 'Yes'",)),
    "outside the bounds": (people, ("--outcome", "income", "--bounds", "0", "50"), ("outside the declared bounds",)),
    "bounds backwards": (people, ("--outcome", "income", "--bounds", "50", "0"), ("lo < hi",)),
    "unknown column": (people, ("--outcome", "yy"), ("'yy'", "Did you mean 'y'")),
    "code against number": (people, ("--where", "area < 5 AND hh"), ("Codes are text here", "area = '001'")),
    "filter drops all": (people, ("--where", "w > 1000"), ("There is no record",)),
    "filter of many records": (people, ("--where", "w > avg(w)"), ("AVG(w)", "one record alone")),
    "one area": (lambda: people().assign(area="x"), (), ("Only 1 area", "'x'", "at least 2 areas")),
    "blank area": (lambda: with_values("area", " ", [1]), (), ("1 of 400 records has no area code",)),
    "float codes": (lambda: with_values("area", "1.0", [0, 8]), (), ("1 area code", "'1.0'", "'002'")),
    "one record": (lambda: people()[lambda f: (f["area"] != "003") | (f.index == 2)], (),
                   ("1 area has a design variance of 0: '003'", "--zero-variance exclude")),
    "constant outcome": (lambda: people().assign(y=1), (), ("8 areas have a design variance of 0",)),
    "constant outcome kept": (lambda: people().assign(y=1), ("--zero-variance", "keep"), ("8 areas",)),
    "household in two areas": (lambda: people().assign(hh=[i // 2 for i in range(400)]), ("--unit", "hh"),
                               ("200 privacy units have records in two areas", "combine them with the area")),
    "delta of 0": (people, ("--delta", "0"), ("delta must lie strictly between 0 and 1",)),
    "fay without replicates": (people, ("--fay", "0.5"), ("--fay needs --replicates",)),
    "weights of an area-level file": (people, ("--max-weight", "w"), ("--max-weight", "Add --area-level")),
    "population without its column": (people, ("--estimator", "ht", "--population", "SELF"),
                                      ("There is no column 'N'", "--population-columns AREA,N")),
}  # fmt: skip


@pytest.mark.parametrize("name", SURVEYS)
def test_a_broken_survey_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, options, words = SURVEYS[name]
    file = text(make(), tmp_path / "survey.csv")
    roles = ROLES[:-2] if "--outcome" in options else ROLES  # an option is given once
    refused(["report", file, *roles, *(file if o == "SELF" else o for o in options)], tmp_path / "out", capsys, *words)


def area_level() -> pd.DataFrame:
    y = np.linspace(0.1, 0.4, 8)
    return pd.DataFrame({"area": list("abcdefgh"), "y": y, "sampling_variance": 1e-3, "n": 50, "wmax": 30.0,
                         "total": 600.0, "s": 0.05})  # fmt: skip


WEIGHTS = ("--n", "n", "--max-weight", "wmax", "--weight-total", "total")
AREA_LEVEL: dict[str, tuple[dict[str, object], tuple[str, ...], tuple[str, ...]]] = {
    "survey options": ({}, (*WEIGHTS, "--where", "y > 0", "--weight", "w"), ("--weight, --where", "--area-level")),
    "sensitivity twice": ({}, (*WEIGHTS, "--sensitivity", "s"), ("twice",)),
    "half of the weights": ({}, ("--max-weight", "wmax"), ("--sensitivity", "--weight-total (")),
    "percentages": ({"y": [10.0 * i for i in range(8)]}, WEIGHTS, ("run from 0 to 70", "--bounds LO HI")),
    "negative variance": ({"sampling_variance": [1e-3] * 7 + [-1]}, WEIGHTS, ("negative sampling variance", "'h'")),
    "zero variance": ({"sampling_variance": [1e-3] * 7 + [0]}, WEIGHTS, ("--zero-variance exclude",)),
    "gvf": ({"sampling_variance": [1e-3] * 7 + [0]}, (*WEIGHTS, "--zero-variance", "gvf"), ("needs the records",)),
    "fractional n": ({"n": [50.5] * 8}, WEIGHTS, ("8 areas have a number of records (n) that is not whole",)),
    "repeated area": ({"area": list("abcdefgg")}, WEIGHTS, ("1 area occurs more than once: 'g'",)),
    "two units": ({"privacy_unit": ["hh"] * 7 + ["record"]}, WEIGHTS, ("several units",)),
}


@pytest.mark.parametrize("name", AREA_LEVEL)
def test_broken_direct_estimates_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns, options, words = AREA_LEVEL[name]
    file = text(area_level().assign(**columns), tmp_path / "areas.csv")
    refused(["report", file, "--area-level", "--area", "area", *options], tmp_path / "out", capsys, *words)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"double": lambda f: 2 * f["x"]}, ("--x", "x,double"), ("collinear",)),
        ({"one": 1.0}, ("--x", "one"), ("intercept",)),
        ({"x": None}, ("--x", "x"), ("missing", "covariate")),
        ({"area": lambda f: "9" + f["area"]}, ("--x", "x"), ("8 areas of the survey have no covariates", "'9001'")),
        ({"area": "001"}, ("--x", "x"), ("1 area occurs more than once: '001'",)),
        ({}, ("--x", "xx"), ("Did you mean 'x'", "--covariates-area")),
        ({}, (), ("--covariates FILE and --x",)),
        ({}, ("--x", ",".join(f"x*x*{i} + exp(x/{i})" for i in range(1, 9))), ("8 areas cannot carry 9 columns",)),
    ],
)  # fmt: skip
def test_broken_covariates_are_refused(
    change: dict[str, object], options: tuple[str, ...], words: tuple[str, ...], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    frame = pd.DataFrame({"area": [f"{a:03d}" for a in range(1, 9)], "x": np.sqrt(np.arange(8.0))}).assign(**change)
    covariates = text(frame, tmp_path / "covariates.csv")
    file = text(people(), tmp_path / "survey.csv")
    refused(["report", file, *ROLES, "--covariates", covariates, *options], tmp_path / "out", capsys, *words)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("empty.csv", b"", ("is empty",)),
        ("lines.csv", b"\n\n", ("no header line",)),
        ("header.csv", b"area,w,y\n", ("There is no record",)),
        ("ragged.csv", b"area,w,y\n001,1,0\n002,5\n", ("Line: 3",)),
        ("letters.csv", "area,w,y\né,1,0\n".encode("cp1252"), ("not UTF-8", "--encoding cp1252")),
        ("wide.csv", "area,w,y\n1,1,0\n".encode("utf-16"), ("--encoding utf-16",)),
        ("rubbish.parquet", b"nope", ("not a readable Parquet file",)),
        ("rubbish.csv.gz", b"nope", ("cannot be unpacked",)),
        ("rubbish.zip", b"nope", ("not a readable zip file",)),
        ("rubbish.sav", b"nope", ("cannot be read",)),
        ("table.xlsx", b"nope", ("no ending that says what it is", "Parquet")),
    ],
)
def test_broken_files_are_refused(
    file: str, content: bytes, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_bytes(content)
    refused(["report", str(tmp_path / file), *ROLES], tmp_path / "out", capsys, *words)


def test_a_report_without_a_place_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["report", str(tmp_path / "nowhere.csv"), *ROLES, "--out", str(out)]) == 2
        assert "needs a folder" in capsys.readouterr().err
    assert main(["direct", text(people(), tmp_path / "s.csv"), *ROLES, "--out", str(tmp_path), "--quiet"]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_zip_part_files_and_glob_give_what_one_file_gives(tmp_path: Path) -> None:
    frame = people()
    parts = frame.iloc[:150], frame.iloc[150:][frame.columns[::-1]]  # the second with its columns in another order
    one = text(frame, tmp_path / "one.csv")
    several = [text(part, tmp_path / f"part_{i}.csv") for i, part in enumerate(parts)]
    archive = tmp_path / "csv_pxx.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for i, part in enumerate(parts):
            zipped.writestr(f"psam_p{i}.csv", part.to_csv(index=False))
        zipped.writestr("ACS_README.pdf", "not data")
    tables = []
    for files in ([one], several, [str(tmp_path / "part_*.csv")], [str(archive)]):
        out = tmp_path / "direct.csv"
        assert main(["direct", *files, *ROLES, "--out", str(out), "--quiet"]) == 0
        tables.append(pd.read_csv(out, dtype={"area": str}))
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table.drop(columns="source"), tables[0].drop(columns="source"), rtol=1e-13)


def test_step_by_step_says_what_the_report_says_and_keeps_the_privacy_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With covariates, an area kept at zero variance and a household as the unit: the long way and the short one."""
    frame = people()
    frame.loc[frame["area"] == "008", "y"] = 1
    file = text(frame, tmp_path / "survey.csv")
    covariates = text(
        pd.DataFrame({"area": sorted(set(frame["area"])), "x": np.sqrt(np.arange(8.0))}), tmp_path / "x.csv"
    )
    given = ("--covariates", covariates, "--x", "x", "--zero-variance", "keep")
    direct, fit, out = (str(tmp_path / name) for name in ("direct.csv", "fit.json", "guarantee.csv"))
    options = (*ROLES, "--unit", "hh", "--psu", "hh")
    assert main(["direct", file, *options, "--zero-variance", "keep", "--out", direct, "--quiet"]) == 0
    assert main(["fit", direct, *given, "--out", fit]) == 0
    summary = tmp_path / "summary.json"
    assert main(["guarantee", direct, *given, "--fit", fit, "--n", "n", "--out", out, "--summary", str(summary)]) == 0
    assert "infinite" in capsys.readouterr().out
    rho = pd.read_csv(out, dtype={"area": str}).set_index("area")["rho"]
    assert list(np.isinf(rho)) == [False] * 7 + [True]
    assert "(hh: all its records)" in summary.read_text(encoding="utf-8")

    survey = fhjax.open_survey(file, area="area", weight="w", outcome="y = 1", unit="hh", psu="hh")
    estimates = fhjax.direct_estimates(survey, zero_variance="keep")
    X, columns = fhjax.read_covariates(covariates, area="area", columns="x", labels=estimates.labels)
    assessment = fhjax.assess(estimates, X=X, columns=columns)
    assert assessment.area_data.columns == ("(Intercept)", "x")
    np.testing.assert_allclose(np.asarray(assessment.guarantees.per_area_rho), rho, rtol=1e-12)
    for damaged in ("[1]", "{}", json.dumps({"model_variance": "x", "num_areas": 8, "columns": []})):
        (tmp_path / "damaged.json").write_text(damaged)
        assert main(["guarantee", direct, *given, "--fit", str(tmp_path / "damaged.json"), "--out", out]) == 2
        assert "is not a fit" in capsys.readouterr().err


def test_an_intercept_enters_once() -> None:
    direct = fhjax.read_area_level(area_level(), area="area", y="y", sampling_variance="sampling_variance",
                                   sensitivity="s", n="n")  # fmt: skip
    x = np.sqrt(np.arange(8.0))
    from fhjax.assessment import model_data

    ones = np.ones(8)
    assert model_data(direct, X=x).columns == ("(Intercept)", "x1")
    with pytest.raises(fhjax.InputError, match="'one'"):
        model_data(direct, X=np.column_stack([ones, x]), columns=["one", "x"])


def test_replicates_that_contradict_the_method_are_doubted_in_the_report_too() -> None:
    from fhjax.survey.variance import Replicates, ReplicateWarning

    frame = people()
    sign = np.sign(np.sin(np.arange(400)[:, None] * np.arange(1, 9)[None, :]))
    for b in range(8):
        frame[f"w{b + 1}"] = frame["w"] * (1.0 + 0.5 * sign[:, b])  # Fay's weights with f = 0.5
    survey = fhjax.open_survey(frame, area="area", weight="w", outcome="y = 1", replicates="w*")
    with pytest.warns(ReplicateWarning, match="balanced repeated replication"):
        doubted = fhjax.direct_estimates(survey, variance=Replicates("brr"))
    assert any("contradict the method named" in sentence for sentence in doubted.design)
    fine = fhjax.direct_estimates(survey, variance=Replicates("fay", fay=0.5))
    assert not any("contradict" in sentence for sentence in fine.design)
    with pytest.raises(fhjax.InputError, match=r"Replicates\('sdr'\)"):
        fhjax.direct_estimates(survey, variance="sdr")  # type: ignore[arg-type]


def test_python_callers_get_input_errors_for_things_of_the_wrong_kind() -> None:
    with pytest.raises(fhjax.InputError, match="assess takes direct estimates, not DataFrame"):
        fhjax.assess(people())  # type: ignore[arg-type]
    direct = fhjax.direct_estimates(fhjax.open_survey(people(), area="area", weight="w", outcome="y = 1"))
    with pytest.raises(fhjax.InputError, match="delta must lie"):
        fhjax.assess(direct, delta="1e-5")  # type: ignore[arg-type]
    for source in (None, 42, {"area": ["a"]}, io.StringIO("area,w,y\n")):
        with pytest.raises(fhjax.InputError, match="A survey is read from"):
            fhjax.open_survey(source, area="area", weight="w", outcome="y = 1")


def test_messages_name_options_on_the_command_line() -> None:
    assert for_command_line("Choose zero_variance='exclude', 'gvf' or 'keep'.") == (
        "Choose --zero-variance exclude, 'gvf' or 'keep'."
    )
    assert for_command_line("choose Taylor(single_psu='center'), 'certainty'") == (
        "choose --single-psu center, 'certainty'"
    )
    assert for_command_line("""a filter (where="a <> 'b'").""") == """a filter (--where "a <> 'b'")."""
    assert for_command_line('Use method="reml".') == "Use --method reml."


def test_commas_inside_an_expression_do_not_split_it() -> None:
    assert names("race, left(SERIALNO, 4),age") == ["race", "left(SERIALNO, 4)", "age"]
    assert names("""replace(a, ',', '('), "b,c" """) == ["replace(a, ',', '(')", '"b,c"']
