"""From columns to records: roles, missing values, bounds, and every complaint by the name it gives."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from fhjax.errors import InputError
from fhjax.survey.read import Survey, open_survey


def people(**columns) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "area": ["01", "01", "02", "02", "03", "03"],
            "w": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "y": [0, 1, 0, 1, 1, 0],
            "stratum": ["s1", "s1", "s2", "s2", "s2", "s1"],
            "psu": [1, 2, 1, 2, 3, 1],
            "pov": [50.0, 99.0, 100.0, np.nan, 300.0, 501.0],
        }
    )
    return frame.assign(**columns)


def read(frame: pd.DataFrame | None = None, **options) -> Survey:
    roles = {"area": "area", "weight": "w", "outcome": "y", **options}
    if roles["outcome"] == "y":
        roles = {"bounds": (0, 1), **roles}  # a number needs bounds, also where this file has only 0 and 1
    return open_survey(people() if frame is None else frame, **roles)


def column(survey: Survey, name: str) -> list:
    return survey.table[name].to_pyarrow().to_pylist()


def refuses(message: str, frame: pd.DataFrame | None = None, **options) -> None:
    with pytest.raises(InputError, match=message):
        read(frame, **options)


def test_the_table_has_the_promised_columns_and_types() -> None:
    frame = people(**{f"r{i}": [1.0] * 6 for i in (1, 2)}, hh=["a", "a", "b", "b", "c", "c"])
    survey = read(frame, strata="stratum", psu="psu", unit="hh", replicates="r*")
    schema = {name: str(kind) for name, kind in survey.table.schema().items()}
    assert schema == {
        "area": "string",
        "stratum": "string",
        "psu": "int64",
        "unit": "string",
        "weight": "float64",
        "y": "float64",
        "rep_1": "float64",
        "rep_2": "float64",
    }
    assert survey.roles.replicates == ("r1", "r2")
    assert (survey.num_records, survey.num_filtered, survey.num_missing_outcome) == (6, 0, 0)
    assert "There are 2 replicate weights, r1 to r2." in survey.notes
    assert "The privacy units are given by hh." in survey.notes


def test_several_area_columns_are_joined_in_the_order_given() -> None:
    frame = people(state=["53"] * 6)
    assert column(read(frame, area=["state", "area"]), "area")[:1] == ["53|01"]
    assert column(read(frame, area=("area", "state")), "area")[:1] == ["01|53"]
    refuses(
        r"1 codes of the area column 'state' contain '\|'.*: '5\|3'", frame.assign(state="5|3"), area=["area", "state"]
    )
    assert column(read(frame.assign(state="5|3"), area="state"), "area")[0] == "5|3"


def test_a_missing_input_makes_a_missing_outcome_never_a_zero() -> None:
    below = read(outcome="pov < 100")
    assert column(below, "y") == [1, 1, 0, None, 0, 0]
    assert (below.binary, below.bounds, below.num_missing_outcome) == (True, (0.0, 1.0), 1)
    assert column(read(outcome="pov IN (50, 300)"), "y") == [1, 0, 0, None, 1, 0]
    assert column(read(outcome="NOT (pov IN (50, 300))"), "y") == [0, 1, 1, None, 0, 1]
    either = read(outcome="pov < 100 OR area = '02'")  # a column it reads is missing, whatever the value would do
    assert column(either, "y") == [1, 1, 1, None, 0, 0]
    assert any("In 1 records the outcome" in note for note in either.notes)
    tested = read(outcome="coalesce(pov, 0) < 100 OR area = '02'")
    assert column(tested, "y") == [1, 1, 1, 1, 0, 0]


def test_nan_is_missing_wherever_it_hides() -> None:
    survey = read(outcome="pov / 1000", bounds=(0, 1))
    assert column(survey, "y")[3] is None
    assert survey.num_missing_outcome == 1
    from ibis import duckdb

    table = duckdb.connect().create_table("t", people().to_dict("list"))
    as_nan = table.mutate(pov=table.pov.fill_null(float("nan")))
    survey = open_survey(as_nan, area="area", weight="w", outcome="pov", bounds=(0, 501))
    assert column(survey, "y")[3] is None
    with pytest.raises(InputError, match=r"1 of 6 records has a missing weight \(pov\), in area '02'"):
        open_survey(as_nan, area="area", weight="pov", outcome="y", bounds=(0, 1))


def test_the_filter_drops_false_and_unknown_before_the_design() -> None:
    survey = read(where="pov < 400")
    assert (survey.num_records, survey.num_filtered) == (4, 2)
    assert (
        "The filter pov < 400 dropped 2 records before the design, 1 of them because a column that it reads is missing."
        in survey.notes
    )
    assert "where" not in survey.table.columns
    refuses("must be true or false", where="pov")
    refuses("no record", where="pov > 1e6")


def test_expressions_may_play_any_role() -> None:
    survey = read(area="substr(area, 2)", weight="w / 100", strata="lower(stratum)")
    assert column(survey, "area") == ["1", "1", "2", "2", "3", "3"]
    assert column(survey, "weight") == [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]
    assert survey.roles.weight == "w / 100"


def test_bounds() -> None:
    refuses(r"'pov' is a number, so bounds=\(lo, hi\).*runs from 50 to 501, but the data's own extremes", outcome="pov")
    refuses(r"2 of 6 records have an outcome \(pov\) outside the declared bounds 60 to 500, in 2 areas: '01', '03'\. "
            r"The outcomes run from 50 to 501", outcome="pov", bounds=(60, 500))  # fmt: skip
    assert read(outcome="pov", bounds=(0, 501)).bounds == (0.0, 501.0)
    assert read(outcome="pov", bounds=(0, 501)).binary is False
    wide = read(bounds=(-1, 2))
    assert (wide.bounds, wide.binary) == ((-1.0, 2.0), True)
    assert read(people(y=[True, False] * 3)).binary
    assert read(people(y=[1, 2] * 3), bounds=(1, 2)).binary is False
    for bounds, message in (((1, 0), "lo < hi"), ((0, np.inf), "finite"), ((0,), "two numbers"), ("ab", "two numbers")):
        refuses(message, bounds=bounds)
    refuses(r"1 of 6 records has an infinite outcome", people(y=[0.0, 1, 0, 1, 1, np.inf]))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, None, None, 5, 6], r"2 of 6 records have a missing weight \(w\), in area '02'\..*where='w > 0'"),
        ([1, -2, 3, 4, 5, -6], r"2 of 6 records have a negative weight \(w\), in 2 areas: '01', '03'"),
        ([0, 2, 3, 4, 5, 6], r"1 of 6 records has a weight of zero \(w\), in area '01'"),
        ([np.inf, 2, 3, 4, 5, 6], r"1 of 6 records has an infinite weight"),
        (["heavy"] * 6, r"weight column 'w' is not numeric in 6 of 6 rows, for example 'heavy'"),
        (["1,5", "2", "3", "4", "5", "6"], r"not numeric in 1 of 6 rows, for example '1,5'.*decimal=','"),
        (["1", "2", "3", "4", "5", "6"], r"holds numbers stored as text. Use the expression CAST\(w AS DOUBLE\)"),
        (pd.date_range("2020-01-01", periods=6), r"is of type timestamp.*where a number is needed"),
    ],
)
def test_weights(weights, message: str) -> None:
    refuses(message, people(w=weights))


def test_a_zero_weight_that_counts_in_a_replicate_belongs_to_the_design() -> None:
    frame = people(w=[0, 2, 3, 4, 5, 6], r1=[3, 1, 1, 1, 1, 1], r2=[-2, 1, 1, 1, 1, 0])
    survey = read(frame, replicates="r*")
    assert survey.num_records == 6
    assert any("1 records have a main weight of zero but other replicate weights" in note for note in survey.notes)
    frame = people(w=[0, 0, 3, 4, 5, 6], r1=[3, 0, 1, 1, 1, 1], r2=[0, 0, 1, 1, 1, 0])
    refuses(r"1 of 6 records has a weight of zero \(w\) and in all replicates, in area '01'", frame, replicates="r*")


def test_replicates_never_include_the_weight_inside_an_expression() -> None:
    frame = people(r0=[100.0] * 6, r1=[1.0] * 6, r2=[1.0] * 6)
    assert read(frame, weight="r0 / 100", replicates="r*").roles.replicates == ("r1", "r2")


def test_exact_decimals_and_dates_are_handled(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    duckdb.sql(
        "COPY (SELECT 53.0::DECIMAL(9, 1) AS area, DATE '2024-01-02' AS day, 1.25::DECIMAL(9, 2) AS w, "
        f"1::DECIMAL(3, 0) AS y) TO '{path}' (FORMAT parquet)"
    )
    survey = open_survey(path, area=["area", "day"], weight="w", outcome="y", bounds=(0, 1))
    assert survey.table.to_pyarrow().to_pylist() == [{"area": "53|2024-01-02", "weight": 1.25, "y": 1.0}]


def test_replicate_weights() -> None:
    good = {"r1": [1.0] * 6, "r2": [-1.0, 0, 0, 0, 0, 0]}
    assert read(people(**good), replicates="r*").roles.replicates == ("r1", "r2")  # zero and negative ones are legal
    bad = {**good, "r2": [1.0, None, None, 0, 0, 0]}
    refuses(r"1 of 2 replicate weight columns has missing values \(2 in all\): 'r2'", people(**bad), replicates="r*")
    bad = {**good, "r2": [1.0, np.inf, 0, 0, 0, 0]}
    refuses(r"1 of 2 replicate weight columns holds undefined or infinite values: 'r2'", people(**bad), replicates="r*")
    bad = {**good, "r2": ["a"] * 6}
    refuses(r"replicate weight column 'r2' is not numeric in 6 of 6 rows", people(**bad), replicates="r*")


def test_area_codes() -> None:
    blank = people(area=["01", None, " ", "", "02", "02"])
    refuses(r"3 of 6 records have no area code \(area\)\..*where='area IS NOT NULL'", blank)
    assert read(blank, where="trim(area) <> ''").num_filtered == 3
    floats = people(area=["532079.0", "532079.0", "532080.0", "53", "53", "53"])
    survey = read(floats)  # as floating-point codes of a Parquet file are read
    assert column(survey, "area") == ["532079", "532079", "532080", "53", "53", "53"]
    assert any("written as 101.0 or 1e+05" in note for note in survey.notes)
    assert column(read(people(area=["1e+05", "1e+05", "2", "2", "3", "3"])), "area")[0] == "100000"
    refuses(
        r"2 area codes in 'area' \(3 records\) look like numbers with a decimal point or an exponent: '532079.0', "
        r"'532080.0', beside codes that are no such numbers: '053'",
        people(area=["532079.0", "532079.0", "532080.0", "053", "053", "053"]),
    )
    assert column(read(people(area=[1.0, 1, 2, 2, 3, 3])), "area")[0] == "1"
    refuses(
        r"area column 'area' holds 1 numbers that are not whole, for example '1.5'", people(area=[1.5, 1, 2, 2, 3, 3])
    )
    refuses(r"1 of 6 records has no area code", people(area=[None, 1, 2, 2, 3, 3]))
    survey = read(people(area=[1, 1, 2, 2, 3, 3]))
    assert "The area codes 'area' are stored as numbers, so they have no leading zeros." in survey.notes
    refuses("Name at least one area column", area=[])


def test_strata_psus_and_units() -> None:
    blank = people(stratum=[None, " ", "a", "a", "a", "a"], psu=[1, 1, 1, 1, 1, None])
    refuses(r"2 of 6 records have no stratum \(stratum\), in area '01'", blank, strata="stratum")
    refuses(r"1 of 6 records has no PSU \(psu\), in area '03'\..*where='psu IS NOT NULL'", blank, psu="psu")
    refuses(r"1 of 6 records has no privacy unit \(hh\)", people(hh=["a", "a", "a", "a", "a", ""]), unit="hh")
    assert column(read(people(stratum="12.0"), strata="stratum"), "stratum")[0] == "12"
    refuses(r"strata column 'stratum' holds 6 numbers that are not whole", people(stratum=1.5), strata="stratum")
    assert column(read(people(stratum=119.0), strata="stratum"), "stratum")[0] == "119"


def test_outcomes_that_are_not_there() -> None:
    refuses("outcome 'y' is missing in all 6 records", people(y=np.nan))
    refuses("outcome 'y' is missing in all 6 records", people(y=None))
    refuses(r"outcome column 'y' is not numeric in 6 of 6 rows, for example 'no', 'yes'", people(y=["yes", "no"] * 3))


def test_columns_that_are_not_there() -> None:
    refuses(r"no column 'wt' for the weight", weight="wt")
    refuses(r"no column 'Areas' for the area\. Did you mean 'area'\?", area="Areas")
    refuses(r"no column 'stratums' for the strata\. Did you mean 'stratum'\?", strata="stratums")
    refuses(r"no column 'povv' for the filter\. Did you mean 'pov'\?", where="povv < 3")
    survey = read(weight="W")
    assert "The weight 'W' was read from the column spelled 'w'." in survey.notes


def test_expressions_that_fail() -> None:
    refuses(r"The outcome 'no_such\(y\) = 1' cannot be evaluated", outcome="no_such(y) = 1")
    refuses(r"An expression met a value it cannot work with: .*'s1'.*Roles: .*outcome 'CAST\(stratum AS INTEGER\) = 1'",
            outcome="CAST(stratum AS INTEGER) = 1")  # fmt: skip


def test_not_a_number_in_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("area,w,y\n1,1,NaN\n1,1,0\n2,1,1\n")
    assert column(open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1)), "y") == [None, 0, 1]
    path.write_text("area,w,y\n1,1,inf\n1,1,0\n2,1,1\n")
    with pytest.raises(InputError, match="1 of 3 records has an infinite outcome"):
        open_survey(path, area="area", weight="w", outcome="y", bounds=(0, 1))


def test_no_rows() -> None:
    refuses("There is no record: the file has no rows", people().iloc[:0].astype({"y": "int64"}))


def test_errors_list_five_areas_and_count_the_rest() -> None:
    many = pd.DataFrame({"area": [f"{i:02d}" for i in range(12)], "w": -1.0, "y": 0})
    with pytest.raises(InputError) as caught:
        open_survey(many, area="area", weight="w", outcome="y", bounds=(0, 1))
    assert re.search(r"12 of 12 records .* in 12 areas: '00', '01', '02', '03', '04' and 7 more\.", str(caught.value))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_records_changes_nothing(seed: int) -> None:
    shuffled = people().sample(frac=1, random_state=seed)

    def sums(survey: Survey) -> list:
        table = survey.table
        found = table.group_by("area").aggregate(n=table.count(), w=table.weight.sum(), y=table.y.sum())
        return found.order_by("area").to_pyarrow().to_pylist()

    assert sums(read(shuffled)) == sums(read())
