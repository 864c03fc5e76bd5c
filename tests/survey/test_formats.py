"""Every way a survey file is written gives the same records; every way it is broken is said."""

from __future__ import annotations

import gc
import gzip
import hashlib
import zipfile
from pathlib import Path

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest

from fhjax.errors import InputError
from fhjax.survey.example import example
from fhjax.survey.formats import open_source
from fhjax.survey.read import Survey, open_survey

ROLES = {"area": "area", "weight": "w", "outcome": "y", "bounds": (0, 1), "unit": "hh"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "area": ["01", "01", "02", "02", "10"],
            "hh": ["000127", "000127", "2025GQ1", "x", "9" * 25],
            "w": [1.5, 2.0, 3.25, 1e3, 7.0],
            "y": [0.0, 1.0, np.nan, 1.0, 0.0],
            "unused": ["a", "b", "c", "d", "e"],
        }
    )


def records(survey: Survey) -> pd.DataFrame:
    found = survey.table.to_pyarrow().to_pandas()
    return found.sort_values(["area", "weight"], ignore_index=True)[["area", "unit", "weight", "y"]]


@pytest.fixture(scope="module")
def expected(frame: pd.DataFrame) -> pd.DataFrame:
    return records(open_survey(frame, **ROLES))


def check(source, expected: pd.DataFrame, **options) -> Survey:
    survey = open_survey(source, **{**ROLES, **options})
    pd.testing.assert_frame_equal(records(survey), expected)
    return survey


def test_a_data_frame_keeps_codes_as_text(expected: pd.DataFrame) -> None:
    assert list(expected["area"]) == ["01", "01", "02", "02", "10"]
    assert list(expected["unit"]) == ["000127", "000127", "2025GQ1", "x", "9" * 25]
    assert expected["y"].isna().sum() == 1


@pytest.mark.parametrize("name", ["s.csv", "s.CSV", "s.csv.gz", "s.tsv", "s.txt"])
def test_delimited_text(frame, expected, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    frame.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    survey = check(path, expected)
    assert survey.files[0].size == path.stat().st_size
    assert survey.files[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert any("NA count as missing" in note for note in survey.notes)


def test_text_with_na_quotes_line_ends_and_byte_order_mark(expected, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    rows = [
        "area;hh;w;y",
        '01;"000127";1.5;0',
        '"01";000127;2;1',
        "02;2025GQ1;3.25;NA",
        "02;x;1e3;1",
        f"10;{'9' * 25};7;0",
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode())
    check(path, expected)
    check(path, expected, delimiter=";")


def test_windows_letters_must_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("area;w;y\nDoña Ana;1;0\nAñasco – €;2;1\n", encoding="cp1252")
    with pytest.raises(InputError, match=r"not UTF-8 text.*encoding='cp1252'"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))
    survey = open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1), encoding="cp1252")
    assert sorted(survey.table.area.to_pyarrow().to_pylist()) == ["Añasco – €", "Doña Ana"]
    packed = tmp_path / "s.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert open_survey(packed, area="area", weight="w", outcome="y", bounds=(0, 1), encoding="cp1252").num_records == 2
    header = tmp_path / "h.csv"
    header.write_text("área,w,y\n1,1,0\n", encoding="cp1252")
    with pytest.raises(InputError, match="not UTF-8 text"):
        open_survey(header, area="área", weight="w", outcome="y", bounds=(0, 1))
    with pytest.raises(InputError, match="no encoding called 'klingon'"):
        open_survey(header, area="área", weight="w", outcome="y", bounds=(0, 1), encoding="klingon")
    with pytest.raises(InputError, match="is not utf-16 text"):
        open_survey(header, area="área", weight="w", outcome="y", bounds=(0, 1), encoding="utf-16")
    wide = tmp_path / "u.csv"
    wide.write_text("area,w,y\nñ,1,0\n", encoding="utf-16")
    with pytest.raises(InputError, match="UTF-16"):
        open_survey(wide, area="area", weight="w", outcome="y", bounds=(0, 1))
    assert open_survey(wide, area="area", weight="w", outcome="y", bounds=(0, 1), encoding="utf-16").num_records == 1


def test_decimal_commas_must_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text('area;w;y;k\n1;"4,5";0,25;1\n2;3,25;1;1\n3;7;0,5;1\n')
    roles = {"area": "area", "weight": "w", "outcome": "y", "bounds": (0, 1)}
    with pytest.raises(InputError, match=r"weight column 'w' is not numeric in 2 of 3 rows.*'4,5'.*decimal=','"):
        open_survey(path, **roles)
    survey = open_survey(path, **roles, decimal=",")
    assert survey.table.weight.sum().to_pyarrow().as_py() == 14.75
    assert survey.table.y.sum().to_pyarrow().as_py() == 1.75
    with pytest.raises(InputError, match=r"outcome column 'y' is not numeric in 2 of 3 rows.*decimal=','"):
        open_survey(path, **{**roles, "weight": "k"})
    path.write_text("area;w;y\n1;4,5;0\n2;3.25;1\n")
    with pytest.raises(InputError, match=r"weight column 'w' is not numeric in 1 of 2 rows, for example '3\.25'"):
        open_survey(path, **roles, decimal=",")
    with pytest.raises(InputError, match="decimal sign must be"):
        open_survey(path, **roles, decimal=";")


def test_thousands_commas_are_not_decimals(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text('area,w,y\n1,"1,234",0\n2,12,1\n')
    with pytest.raises(
        InputError, match=r"'w' is not numeric in 1 of 2 rows, for example '1,234'.*separates thousands"
    ):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))


def test_text_where_a_weight_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("area,w,y\n1,heavy,0\n2,heavy,1\n")
    with pytest.raises(InputError, match=r"weight column 'w' is not numeric in 2 of 2 rows, for example 'heavy'"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))
    path.write_text("area,w,y\n1,3,0\n2,.,1\n")
    with pytest.raises(InputError, match=r"is not numeric in 1 of 2 rows, for example '\.'.*TRY_CAST"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))
    survey = open_survey(path, area="area", weight="TRY_CAST(w AS DOUBLE)", outcome="y = 1", where="w <> '.'")
    assert (survey.num_records, survey.num_filtered) == (1, 1)


def test_types_are_those_of_all_values(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    rows = ["area,w,y,x", *("1,1,0,5" for _ in range(25_000)), "2,1.5,0.5,2.5"]
    path.write_text("\n".join(rows))
    survey = open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1), where="x > 1")
    assert survey.table.y.max().to_pyarrow().as_py() == 0.5  # a sniffer would settle on integers and round
    path.write_text("\n".join([*rows, "2,1.5,high,2.5"]))
    with pytest.raises(InputError, match=r"outcome column 'y' is not numeric in 1 of 25,002 rows, for example 'high'"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))
    path.write_text("area,w,code,id,yes\n1,1,007,12345678901234567,TRUE\n1,1,1,12345678901234568,false\n1,1,,,\n")
    roles = {"area": "area", "weight": "w"}
    assert open_survey(path, **roles, outcome="substr(code, 1, 2) = '00'").table.y.to_pyarrow().to_pylist() == [
        1,
        0,
        None,
    ]
    assert open_survey(path, **roles, outcome="id = '12345678901234567'").table.y.sum().to_pyarrow().as_py() == 1
    assert open_survey(path, **roles, outcome="yes").table.y.to_pyarrow().to_pylist() == [1, 0, None]
    with pytest.raises(InputError, match=r"cannot be evaluated: .*explicit type casts"):
        open_survey(path, **roles, outcome="code % 2 = 1")  # a code with leading zeros is text


@pytest.mark.parametrize("row", ["2,1,0,9", "2,1"])
def test_a_ragged_line_is_an_error_not_a_skipped_row(tmp_path: Path, row: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text(f"area,w,y\n1,1,0\n{row}\n3,1,1\n")
    with pytest.raises(InputError, match=r"s\.csv cannot be read: .*Line: 3"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))


def test_part_files(frame, expected, tmp_path: Path) -> None:
    frame.iloc[:2].to_csv(tmp_path / "part1.csv", index=False)
    frame.iloc[2:, ::-1].to_csv(tmp_path / "part2.csv", index=False)  # the same columns in another order
    survey = check(str(tmp_path / "part*.csv"), expected)
    assert len(survey.files) == 2
    check([tmp_path / "part1.csv", str(tmp_path / "part2.csv")], expected)
    frame.iloc[2:].to_parquet(tmp_path / "part2.parquet")
    check([tmp_path / "part1.csv", tmp_path / "part2.parquet"], expected)
    frame.iloc[2:].drop(columns="w").to_csv(tmp_path / "part2.csv", index=False)
    with pytest.raises(InputError, match=r"part2\.csv lacks 1 of the 4 columns needed: 'w'"):
        open_survey(str(tmp_path / "part*.csv"), **ROLES)
    with pytest.raises(InputError, match="listed more than once"):
        open_survey([tmp_path / "part1.csv", tmp_path / "part1.csv"], **ROLES)


def test_a_zip_file_as_the_census_ships_it(frame, expected, tmp_path: Path) -> None:
    path = tmp_path / "csv_pus.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("psam_pusa.csv", frame.iloc[:2].to_csv(index=False))
        archive.writestr("psam_pusb.csv", frame.iloc[2:].to_csv(index=False))
        archive.writestr("ACS2024_PUMS_README.pdf", b"%PDF")
        archive.writestr("readme.txt", "Read me.")
    survey = check(path, expected)
    assert len(survey.files) == 1
    assert (
        "Read from csv_pus.zip: psam_pusa.csv, psam_pusb.csv; passed over: ACS2024_PUMS_README.pdf, readme.txt."
        in survey.notes
    )


def test_zip_files_that_cannot_be_meant(frame, tmp_path: Path) -> None:
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.pdf", b"%PDF")
    with pytest.raises(InputError, match=r"holds no data file, only 'readme\.pdf'"):
        open_survey(path, **ROLES)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", frame.to_csv(index=False))
        archive.writestr("a.dta", b"?")
    with pytest.raises(InputError, match=r"different kinds: 'a\.csv', 'a\.dta'"):
        open_survey(path, **ROLES)
    path.write_bytes(b"not a zip")
    with pytest.raises(InputError, match="not a readable zip file"):
        open_survey(path, **ROLES)


def test_a_zipped_sas_file_with_a_space_after_its_name(frame, expected, tmp_path: Path) -> None:
    pyreadstat.write_xport(frame, str(tmp_path / "a.xpt"))
    path = tmp_path / "LLCPXPT.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "a.xpt", "LLCP.XPT ")
    check(path, expected)


@pytest.mark.parametrize("suffix", ["xpt", "dta", "sav", "zsav"])
def test_statistical_packages(frame, expected, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"s.{suffix}"
    write = {"xpt": pyreadstat.write_xport, "dta": pyreadstat.write_dta}.get(suffix, pyreadstat.write_sav)
    options = {"compress": True} if suffix == "zsav" else {}
    write(frame, str(path), **options)
    check(path, expected)


def test_labelled_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fhjax.survey.labelled._CHUNK_CELLS", 0)  # the least piece, 10,000 rows
    size = 25_000
    frame = pd.DataFrame({"area": np.arange(size) % 7, "w": np.arange(size) + 1.0, "y": np.arange(size) % 2})
    for name, write in (
        ("s.dta", pyreadstat.write_dta),
        ("s.xpt", pyreadstat.write_xport),
        ("s.sav", pyreadstat.write_sav),
    ):
        write(frame, str(tmp_path / name))
        survey = open_survey(tmp_path / name, area="area", weight="w", outcome="y", bounds=(0, 1))
        assert survey.num_records == size
        assert survey.table.weight.sum().to_pyarrow().as_py() == size * (size + 1) / 2
        assert sorted(survey.table.area.to_pyarrow().unique().to_pylist()) == list("0123456")


def test_value_labels_are_not_used_and_said(tmp_path: Path) -> None:
    frame = pd.DataFrame({"area": [1.0, 2.0], "w": [1.0, 1.0], "y": [0.0, 1.0]})
    pyreadstat.write_sav(frame, str(tmp_path / "s.sav"), variable_value_labels={"area": {1.0: "North", 2.0: "South"}})
    survey = open_survey(tmp_path / "s.sav", area="area", weight="w", outcome="y", bounds=(0, 1))
    assert sorted(survey.table.area.to_pyarrow().to_pylist()) == ["1", "2"]
    assert "Value labels were not used, only the codes: 'area'." in survey.notes
    assert "The area codes 'area' are stored as floating point; whole numbers are used." in survey.notes


def test_parquet_is_read_in_place_and_keeps_integer_units(frame, expected, tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    frame.to_parquet(path)
    check(path, expected)
    frame.assign(hh=[1, 1, 2, 3, 4]).to_parquet(path)
    assert open_survey(path, **ROLES).table.unit.type().is_integer()
    path.write_bytes(b"PAR1 not parquet")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        open_survey(path, **ROLES)


def test_arrow_and_ibis_tables(frame, expected) -> None:
    arrow = pa.Table.from_pandas(frame)
    survey = check(arrow, expected)
    assert survey.files == ()
    connection = ibis.duckdb.connect()
    check(connection.create_table("survey", arrow), expected, outcome="CASE WHEN y > 0 THEN 1 ELSE y END")


def test_data_frames_with_categories_and_repeated_names(frame, expected) -> None:
    check(frame.astype({"area": "category", "hh": "category"}), expected)
    twice = pd.concat([frame, frame[["w"]]], axis=1)
    with pytest.raises(InputError, match="1 column names occur more than once in the data frame: 'w'"):
        open_survey(twice, **ROLES)
    mixed = frame.assign(hh=[1, "a", 2.5, "b", "c"])
    with pytest.raises(InputError, match="column 'hh' of the data frame mixes types"):
        open_survey(mixed, **ROLES)
    cased = frame.assign(W=1.0)
    with pytest.raises(InputError, match="differ only in case"):
        open_survey(cased, **{**ROLES, "outcome": "W > 1"})


def test_repeated_names_in_a_header(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("area,w,w,y\n1,1,2,0\n")
    with pytest.raises(InputError, match="2 columns are called 'w'"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))


def test_the_example() -> None:
    assert example("nhanes0910_cholesterol").is_file()
    survey = open_survey(
        "example:nhanes0910_cholesterol", area="sex", weight="weight", outcome="high_cholesterol = 1", bounds=(0, 1)
    )
    assert survey.num_records == 8591
    with pytest.raises(InputError, match=r"no example 'iris'"):
        open_survey("example:iris", area="sex", weight="weight", outcome="high_cholesterol = 1", bounds=(0, 1))


def test_what_is_not_a_file(tmp_path: Path) -> None:
    for source, message in (
        (tmp_path / "none.csv", "There is no file"),
        (tmp_path, "is a folder"),
        (str(tmp_path / "*.csv"), "No file fits the pattern"),
        ([], "list of files is empty"),
        (7, "not int"),
        ([tmp_path, 7], "not list"),
    ):
        with pytest.raises(InputError, match=message):
            open_source(source)
    path = tmp_path / "s.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"no ending that says what it is. Accepted are CSV"):
        open_source(path)
    path = tmp_path / "s.csv"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        open_source(path)
    path.write_bytes(b"\n")
    with pytest.raises(InputError, match="no header line"):
        open_source(path)
    path = tmp_path / "s.csv.gz"
    path.write_bytes(b"not gzip")
    with pytest.raises(InputError, match="cannot be unpacked"):
        open_source(path)
    path = tmp_path / "s.dta"
    path.write_bytes(b"not stata")
    with pytest.raises(InputError, match="cannot be read"):
        open_source(path)


def test_temporary_files_go_with_the_survey(frame, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    frame.to_csv(path, index=False)
    survey = open_survey(path, **ROLES)
    folder = Path(survey.table.get_backend()._fhjax_folder.name)
    assert list(folder.glob("*.parquet"))
    del survey
    gc.collect()
    assert not folder.exists()
