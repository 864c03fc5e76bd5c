"""What the reading stage says: all problems at once, the right column, the kind of file, never a line of data."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import pandas as pd
import pytest

import fhjax
from fhjax.cli.main import main
from fhjax.errors import InputError

SECRET = "Quillfeather"


def read(source, **roles):
    return fhjax.open_survey(source, **({"area": "area", "weight": "w", "outcome": "y = 1"} | roles))


@pytest.fixture
def frame() -> pd.DataFrame:
    n = 24
    return pd.DataFrame({
        "area": [f"a{i % 3}" for i in range(n)], "w": np.linspace(1.0, 5.0, n), "y": np.arange(n) % 2,
        "name": SECRET, "hh": np.arange(n) // 2,
    })  # fmt: skip


def test_all_problems_of_the_roles_come_at_once(frame) -> None:
    with pytest.raises(InputError) as caught:
        read(frame, area="aera", outcome="yy = 1", psu="hhh", unit="w", strata="stratm", where="z > 0", bounds=(1, 0))
    said = str(caught.value)
    assert said.startswith("7 problems")
    for word in ("'aera'", "'yy'", "'hhh'", "unit 'w' is the weight", "'stratm'", "'z'", "bounds"):
        assert word in said


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_all_problems_of_the_values_come_at_once(frame, tmp_path, kind: str) -> None:
    broken = frame.assign(
        w=frame["w"].where(frame.index != 3, -1.0), area=frame["area"].where(frame.index != 5, None),
        hh=frame["hh"].astype(str).where(frame.index != 6, None),
        r1=frame["w"].astype(str).replace("1.0", "one"), r2=1.0,
    )  # fmt: skip
    source = tmp_path / f"broken.{kind}"
    if kind == "frame":
        source = broken
    elif kind == "csv":
        broken.to_csv(source, index=False)
    else:
        broken.to_parquet(source)
    with pytest.raises(InputError) as caught:
        read(source, outcome="name", psu="hh", replicates="r1,r2")
    said = str(caught.value)
    assert said.startswith("5 problems")
    for words in ("a negative weight (w)", "no area code (area)", "no PSU (hh)", "outcome column 'name' is not numeric",
                  "replicate weight column 'r1' is not numeric"):  # fmt: skip
        assert words in said


def test_the_weight_as_a_unit_is_blamed_on_the_unit(frame) -> None:
    renamed = frame.rename(columns={"w": "PWGTP"})
    for role in ("unit", "psu", "strata", "area"):
        with pytest.raises(InputError) as caught:
            read(renamed, weight="PWGTP", **{role: "PWGTP"})
        said = str(caught.value)
        assert {"psu": "PSU"}.get(role, role) in said
        assert "'PWGTP' is the weight" in said
        assert "weight column" not in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("survey.rds", "R file"),
        ("survey.RData", "R file"),
        ("survey.xlsx", "spreadsheet"),
        ("survey.dat", "fixed width"),
        ("survey.feather", "Arrow file"),
        ("survey.json", "JSON"),
        ("survey.docx", "no ending that says what it is"),
    ],
)
def test_other_files_are_named_with_a_way_out(tmp_path, name: str, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"x" * 100)
    with pytest.raises(InputError, match=words):
        read(path)


@pytest.mark.parametrize("kind", ["plain", "gz", "zip"])
def test_fixed_width_is_named_and_no_line_is_shown(tmp_path, kind: str, capsys) -> None:
    lines = "\n".join(f"{SECRET}{i:03d}  {i * 17 % 90:02d}0000512" for i in range(40)) + "\n"
    path = tmp_path / "fixed.txt"
    if kind == "plain":
        path.write_text(lines)
    elif kind == "gz":
        path = tmp_path / "fixed.txt.gz"
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path = tmp_path / "fixed.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("fixed.txt", lines)
    argv = ["direct", str(path), "--area", "area", "--weight", "w", "--outcome", "y = 1", "--out", str(tmp_path / "o")]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "looks like fixed width" in said
    assert SECRET not in said


def broken_files(frame: pd.DataFrame) -> dict[str, str]:
    """Delimited text, broken in the ways files break; every line holds a respondent's name."""
    text = frame.to_csv(index=False)
    lines = text.splitlines()
    return {
        "no header": "\n".join(lines[1:]),
        "ragged, one field more": text.replace(lines[7], lines[7] + ",9"),
        "ragged, one field less": text.replace(lines[7], lines[7].rsplit(",", 1)[0]),
        "open quote": text.replace(lines[7], '"' + lines[7]),
        "quote inside": text.replace(SECRET, f'{SECRET}"x', 1),
        "text among weights": text.replace(lines[7], lines[7].replace(",1.", ",one.", 1)),
        "another delimiter below": "\n".join([lines[0], *(line.replace(",", ";") for line in lines[1:])]),
        "bytes of no encoding": text.replace(SECRET, f"{SECRET}\udcff", 3),
        "a null byte": text.replace(SECRET, f"{SECRET}\0", 1),
        "cut in the middle": text[: len(text) // 2],
    }


@pytest.mark.parametrize("fault", list(broken_files(pd.DataFrame({"a": [1] * 9}))))
def test_no_message_prints_a_line_of_data(frame, tmp_path, fault: str, capsys) -> None:
    path = tmp_path / "broken.csv"
    path.write_bytes(broken_files(frame)[fault].encode("utf-8", "surrogateescape"))
    argv = ["direct", str(path), "--area", "area", "--weight", "w", "--outcome", "y = 1", "--psu", "hh",
            "--out", str(tmp_path / "o.csv")]  # fmt: skip
    main(argv)
    said = "".join(capsys.readouterr())
    assert SECRET not in said
    assert "Traceback" not in said


def test_a_suggested_expression_is_right_for_a_mixed_column(tmp_path) -> None:
    rows = [{"area": f"a{i % 2}", "w": 1.0 + i, "smoker": ["Yes", "No", 1, 2][i % 4]} for i in range(24)]
    path = tmp_path / "mixed.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    with pytest.raises(InputError) as caught:
        read(path, outcome="smoker")
    said = str(caught.value)
    expression = said[said.index("such as ") + len("such as ") :].split(";")[0].rstrip(".")
    survey = read(path, outcome=expression)
    assert survey.bounds == (0.0, 1.0)
    assert survey.num_missing_outcome == 0


def test_a_suggested_expression_for_thousands_is_right(tmp_path) -> None:
    path = tmp_path / "thousands.csv"
    rows = [f'a{i % 2},"{1 + i},{200 + i}",{i % 2}' for i in range(24)]
    path.write_text("area,w,y\n" + "\n".join(rows) + "\na0,500,1\n")
    with pytest.raises(InputError, match="separates thousands") as caught:
        read(path)
    said = str(caught.value)
    expression = said[said.index("CAST(replace") :].split(" DOUBLE)")[0] + " DOUBLE)"
    total = float(read(path, weight=expression).table.weight.sum().to_pyarrow().as_py())
    assert total == sum(1000.0 * (1 + i) + 200 + i for i in range(24)) + 500.0
