"""Names, near names, replicate patterns and expressions: pure text."""

from __future__ import annotations

import pytest

from fhjax.errors import InputError
from fhjax.survey.roles import find_column, left_out, near_names, parse_role, replicate_columns

PWGTP = ["SERIALNO", "PWGTP", *(f"pwgtp{i}" for i in range(1, 81)), "fpwgtp1", "pwgtp1_flag"]


def test_near_names_prefer_the_same_letters() -> None:
    assert near_names("pwgtp", ["pwgt", "PWGTP"])[0] == "PWGTP"
    assert near_names("zzzzzz", ["area", "weight"]) == []


def test_a_column_is_found_exactly_or_by_the_only_other_spelling() -> None:
    assert find_column("w", ["W", "w"], "weight") == ("w", None)
    column, note = find_column("pwgtp", ["PWGTP", "area"], "weight")
    assert column == "PWGTP"
    assert note is not None
    assert "spelled 'PWGTP'" in note
    with pytest.raises(InputError, match=r"2 columns that differ only in case: 'Wt', 'wT'"):
        find_column("WT", ["Wt", "wT"], "weight")
    with pytest.raises(InputError, match=r"no column 'PWGT' for the weight\. Did you mean 'PWGTP'\?"):
        find_column("PWGT", ["area", "PWGTP"], "weight")
    with pytest.raises(InputError, match=r"The columns are 'area', 'age'"):
        find_column("zzzz", ["area", "age"], "weight")
    with pytest.raises(InputError, match="2 columns are called 'w'"):
        find_column("w", ["w", "w"], "weight")


@pytest.mark.parametrize(
    "pattern", ["pwgtp*", "PWGTP*", "PWGTP1..PWGTP80", "pwgtp1-pwgtp80", "PWGTP[0-9]+", "^pwgtp[0-9]+$"]
)
def test_patterns_mean_all_eighty_and_never_the_main_weight(pattern: str) -> None:
    found, notes = replicate_columns(pattern, PWGTP, "PWGTP")
    assert found == tuple(f"pwgtp{i}" for i in range(1, 81))
    assert bool(notes) == ("PWGTP" in pattern)  # another case than the data's is noted


def test_the_main_weight_is_never_swallowed() -> None:
    assert replicate_columns("w*", ["w0", "w1", "w2"], "w0")[0] == ("w1", "w2")
    with pytest.raises(InputError, match="main weight 'w0' is listed"):
        replicate_columns("w0, w1", ["w0", "w1"], "w0")
    with pytest.raises(InputError, match="main weight 'w0' is listed"):
        replicate_columns("w0..w1", ["w0", "w1"], "w0")


def test_numbers_sort_as_numbers_and_stems_may_end_in_digits() -> None:
    assert replicate_columns("r*", ["r10", "r9", *(f"r{i}" for i in range(1, 9))], "w")[0][-2:] == ("r9", "r10")
    assert replicate_columns("rep2024_*", ["rep2024_2", "rep2024_1"], "w")[0] == ("rep2024_1", "rep2024_2")
    assert replicate_columns("w01..w03", ["w01", "w02", "w03", "w04"], "w")[0] == ("w01", "w02", "w03")


def test_lists_of_names() -> None:
    assert replicate_columns("b, a", ["a", "b"], "w")[0] == ("b", "a")
    assert replicate_columns(["a", "B"], ["a", "b"], "w")[0] == ("a", "b")
    assert replicate_columns("only", ["only"], "w")[0] == ("only",)
    with pytest.raises(InputError, match="more than once: 'a'"):
        replicate_columns(["a", "A"], ["a", "b"], "w")
    with pytest.raises(InputError, match=r"2 of 3 replicate weight columns are not in the data: 'x', 'y'"):
        replicate_columns("a,x,y", ["a"], "w")


def test_a_shorter_range_is_noted() -> None:
    found, notes = replicate_columns("pwgtp1..pwgtp40", PWGTP, "PWGTP")
    assert len(found) == 40
    assert notes == ("40 more columns pwgtp* lie outside the replicate weights pwgtp1..pwgtp40 and were not used.",)


def test_both_cases_present() -> None:
    both = ["PWGTP", *(f"PWGTP{i}" for i in (1, 2)), *(f"pwgtp{i}" for i in (1, 2))]
    assert replicate_columns("pwgtp*", both, "PWGTP")[0] == ("pwgtp1", "pwgtp2")
    mixed = ["PWGTP", "PWGTP1", "pwgtp2"]
    assert replicate_columns("PWGTP*", mixed, "PWGTP")[0] == ("PWGTP1", "pwgtp2")
    with pytest.raises(InputError, match="No column fits"):
        replicate_columns("pwgTP*", both, "PWGTP")


def test_incomplete_patterns() -> None:
    gap = [column for column in PWGTP if column != "pwgtp37"]
    with pytest.raises(InputError, match=r"79 columns up to number 80, without 'pwgtp37'"):
        replicate_columns("pwgtp*", gap, "PWGTP")
    with pytest.raises(InputError, match=r"1 of 80|no column 'pwgtp37'"):
        replicate_columns("pwgtp1..pwgtp80", gap, "PWGTP")
    with pytest.raises(InputError, match=r"without 'r1'"):
        replicate_columns("r*", ["r2", "r3"], "w")
    with pytest.raises(InputError, match=r"No column fits .*Near names: 'wgtp1'"):
        replicate_columns("wgpt*", ["wgtp1"], "w")
    with pytest.raises(InputError, match=r"same number .*'r01', 'r1'"):
        replicate_columns("r*", ["r1", "r01"], "w")
    with pytest.raises(InputError, match="run backwards, from 80 to 1"):
        replicate_columns("pwgtp80..pwgtp1", PWGTP, "PWGTP")
    with pytest.raises(InputError, match="not a pattern this understands"):
        replicate_columns("p?gtp", PWGTP, "PWGTP")


def test_expressions_take_the_spelling_of_the_data() -> None:
    role = parse_role("povpip < 100 AND SEX = 1", ["POVPIP", "SEX"], "outcome")
    assert role.sql == '"POVPIP" < 100 AND "SEX" = 1'
    assert role.inputs == ("POVPIP", "SEX")
    assert role.column is None
    assert role.notes == ("The outcome 'povpip' was read from the column spelled 'POVPIP'.",)
    assert parse_role("a - b", ["a - b"], "outcome").column == "a - b"  # a column's own name comes first
    assert parse_role('"my weight" / 100', ["my weight"], "weight").inputs == ("my weight",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("POVPIP <", "neither a column nor an SQL expression"),
        ("POVPI < 100", r"no column 'POVPI' for the outcome\. Did you mean 'POVPIP'"),
        ('POVPIP = "poor"', r"'poor' is meant as text, put it in single quotes"),
        ("POVPIP = yes", r"no column 'yes' .*'yes' is meant as text, put it in single quotes"),
        ("avg(POVPIP)", "depends on more than one record or on chance"),
        ("POVPIP - avg(POVPIP) OVER ()", "depends on more than one record or on chance"),
        ("POVPIP < (SELECT 1)", "depends on more than one record or on chance"),
        ("POVPIP < random()", "depends on more than one record or on chance"),
        ("SELECT POVPIP", "must be one SQL expression"),
        ("POVPIP; DROP TABLE survey", "must be one SQL expression"),
        ("POVPIP AS y", "must be one SQL expression"),
        ("1 = 1", "names no column"),
        ("  ", "must be a column name or an SQL expression"),
    ],
)
def test_expressions_that_cannot_be_meant(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_role(text, ["POVPIP"], "outcome")


def test_the_weight_is_never_one_of_its_own_left_out_replicates() -> None:
    columns = ["area", "w0", "w1", "w2", "w3", "y"]
    assert left_out(["w1", "w2"], columns, "w0") == ("w3",)
    assert left_out(["w1", "w2", "w3"], columns, "w0") == ()
