"""One table, told in every way a file can tell it, gives the same numbers or a refusal: never other numbers.

A table is drawn once and read twice: as a plain data frame, and as a file, frame or database table of another format,
cut into parts, shuffled, with its codes and missing values written differently. A refusal is right only where the
telling is ambiguous (``must_be_refused`` says when), so that refusing everything would fail too.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import sqlite3
import warnings
import zipfile
from pathlib import Path

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracles import survey_oracle

import fhjax
from fhjax.errors import InputError

RECORDS = 30
MISSING_CODE = 999.0
DELIMITED = ("csv", "tsv", "txt;", "csv.gz", "zip")
LABELLED = ("xpt", "dta", "sav")
FORMATS = (*DELIMITED, *LABELLED, "parquet", "frame", "arrow", "duckdb", "sqlite")
IN_PARTS = (*DELIMITED, *LABELLED, "parquet")
CODES = ("text", "integer", "float", "padded", "all_padded", "point", "exponent")
_names = itertools.count()


@dataclasses.dataclass(frozen=True)
class Table:
    """What a survey says, whatever holds it: whole-number codes, an amount that may be missing."""

    area: np.ndarray
    stratum: np.ndarray
    psu: np.ndarray
    unit: np.ndarray
    weight: np.ndarray
    factors: np.ndarray  # (n, 4) replicate factors
    amount: np.ndarray  # nan where missing
    age: np.ndarray


@dataclasses.dataclass(frozen=True)
class Telling:
    """How a table is written down."""

    codes: str
    missing: str  # "nothing", "NaN" or "code": how a missing amount is written
    declared: str  # how the code is declared: everywhere or by column
    order: tuple[int, ...]
    cut: int  # records of the first of two part files; 0 for one file
    second_codes: str  # how the codes of the second part are written
    conditions: str  # one filter, two filters, or two joined by AND


@st.composite
def tables(draw) -> Table:
    """Three areas of units of two, each in a PSU of its area and stratum; every area has observed amounts."""
    codes = draw(st.lists(st.integers(1, 99_999), min_size=3, max_size=3, unique=True))
    ids = np.array(draw(st.lists(st.integers(1, 10**6), min_size=15, max_size=15, unique=True)))
    numbers = st.lists(st.integers(1, 5_000), min_size=RECORDS, max_size=RECORDS)
    place = np.arange(RECORDS)
    amount = np.array(draw(numbers), dtype=float) / 8.0
    amount[np.array(draw(st.lists(st.booleans(), min_size=RECORDS, max_size=RECORDS))) & (place % 10 > 3)] = np.nan
    return Table(
        area=np.array(codes)[place // 10],
        stratum=1 + (place // 2) % 2,
        psu=10 + (place // 4),
        unit=ids[place // 2],
        weight=np.array(draw(numbers), dtype=float) / 16.0,
        factors=np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 1.5]), min_size=4, max_size=4)))
        * np.ones((RECORDS, 1))
        + (place[:, None] * np.array([3, 5, 7, 11]) % 4) / 8.0,
        amount=amount,
        age=np.where(
            place % 10 > 3, np.array(draw(st.lists(st.integers(0, 90), min_size=RECORDS, max_size=RECORDS))), 40
        ),
    )


tellings = st.builds(
    Telling,
    codes=st.sampled_from(CODES),
    missing=st.sampled_from(["nothing", "NaN", "code"]),
    declared=st.sampled_from(["999", "amount=999", "amount=999.0"]),
    order=st.permutations(range(RECORDS)).map(tuple),
    cut=st.sampled_from([0, 0, 7, 15]),
    second_codes=st.sampled_from([*CODES, "same", "same", "same"]),
    conditions=st.sampled_from(["one", "two", "joined"]),
)


def written(codes: np.ndarray, style: str) -> np.ndarray:
    """Whole-number codes as a program might hold them. "padded" pads every second record, "all_padded" each."""
    if style == "integer":
        return codes.astype(np.int64)
    if style == "float":
        return codes.astype(float)
    if style == "point":
        return np.array([f"{code}.0" for code in codes], dtype=object)
    if style == "exponent":
        return np.array(
            [f"{code / 10 ** (len(str(code)) - 1):g}e+{len(str(code)) - 1:02d}" for code in codes], dtype=object
        )
    text = [f"{code:07d}" for code in codes]
    if style == "padded":
        text = [value + "  " * (i % 2) for i, value in enumerate(text)]
    elif style == "all_padded":
        text = [f" {value} " for value in text]
    return np.array(text, dtype=object)


def as_frame(table: Table, telling: Telling, style: str, rows: np.ndarray, *, text_file: bool) -> pd.DataFrame:
    amount = table.amount[rows]
    frame = pd.DataFrame(
        {
            "amount": np.where(np.isnan(amount), MISSING_CODE, amount) if telling.missing == "code" else amount,
            "weight": table.weight[rows],
            "area": written(table.area[rows], style),
            "stratum": written(table.stratum[rows], style),
            "psu": written(table.psu[rows], style),
            "unit": written(table.unit[rows], style),
            "age": table.age[rows],
        }
    )
    for b in range(4):
        frame[f"factor{b + 1}"] = table.factors[rows, b]
    if text_file and telling.missing == "NaN":
        frame["amount"] = [("NaN" if np.isnan(value) else repr(float(value))) for value in amount]
    return frame


def nullable(frame: pd.DataFrame, telling: Telling) -> pa.Table:
    """Arrow keeps NaN and null apart."""
    amount = frame["amount"].to_numpy(float)
    column = pa.array(amount, from_pandas=telling.missing != "NaN")
    arrow = pa.Table.from_pandas(frame.drop(columns="amount"), preserve_index=False)
    return arrow.append_column("amount", column)


def hold(frame: pd.DataFrame, kind: str, telling: Telling, folder: Path):
    """One part in the format ``kind``: a path, a frame or a table."""
    stem = folder / f"t{next(_names)}"
    if kind in DELIMITED:
        separator = {"tsv": "\t", "txt;": ";"}.get(kind, ",")
        suffix = {"tsv": ".tsv", "txt;": ".txt"}.get(kind, ".csv")
        text = frame.to_csv(index=False, sep=separator)
        if kind == "csv.gz":
            path = stem.with_suffix(".csv.gz")
            path.write_bytes(gzip.compress(text.encode(), 1))
        elif kind == "zip":
            path = stem.with_suffix(".zip")
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("data.csv", text)
        else:
            path = stem.with_suffix(suffix)
            path.write_text(text)
        return str(path)
    if kind in LABELLED:
        path = str(stem.with_suffix(f".{kind}"))
        write = {"xpt": pyreadstat.write_xport, "dta": pyreadstat.write_dta, "sav": pyreadstat.write_sav}[kind]
        write(frame, path)
        return path
    if kind == "frame":
        return frame
    arrow = nullable(frame, telling)
    if kind == "arrow":
        return arrow
    if kind == "parquet":
        path = str(stem.with_suffix(".parquet"))
        with duckdb.connect() as connection:  # another writer than the reader's own
            connection.register("t", arrow)
            connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
        return path
    if kind == "duckdb":
        return ibis.duckdb.connect().create_table("records", arrow)
    path = str(stem.with_suffix(".sqlite"))
    connection = sqlite3.connect(path)
    frame.to_sql("records", connection, index=False)
    connection.close()
    return ibis.sqlite.connect(path).table("records")


def tell(table: Table, telling: Telling, kind: str, folder: Path):
    """The source that ``open_survey`` gets: one file, two part files, or the whole as a frame or table."""
    rows = np.array(telling.order)
    text_file = kind in DELIMITED
    if not (telling.cut and kind in IN_PARTS):
        return hold(as_frame(table, telling, telling.codes, rows, text_file=text_file), kind, telling, folder)
    second = telling.codes if telling.second_codes == "same" else telling.second_codes
    parts = [(telling.codes, rows[: telling.cut]), (second, rows[telling.cut :])]
    return [hold(as_frame(table, telling, style, part, text_file=text_file), kind, telling, folder)
            for style, part in parts]  # fmt: skip


def as_held(codes: np.ndarray, style: str, kind: str) -> tuple[str, list[str]]:
    """Whether a format holds the codes as numbers or as text, and the text."""
    values = written(codes, style)
    if kind not in DELIMITED and style in ("integer", "float"):
        return "numbers", [str(int(value)) for value in values]
    text = [str(value) for value in values]
    return "text", [value.rstrip() for value in text] if kind in ("xpt", "sav") else text


def must_be_refused(table: Table, telling: Telling, kind: str, columns: list[str]) -> bool:
    """Whether a column holds two forms of one code that nobody can know to be one, or codes that a program spoiled.

    Text in one part and numbers in another; codes that differ only in outer blanks or in leading zeros; 3.0 beside
    003.
    """
    rows = np.array(telling.order)
    parts = [(telling.codes, rows)]
    if telling.cut and kind in IN_PARTS:
        second = telling.codes if telling.second_codes == "same" else telling.second_codes
        parts = [(telling.codes, rows[: telling.cut]), (second, rows[telling.cut :])]
    for column in columns:
        held = [as_held(getattr(table, column)[part], style, kind) for style, part in parts]
        if len({how for how, _ in held}) > 1:
            return True
        if held[0][0] == "numbers":
            continue
        forms = {form for _, text in held for form in text}
        bare = {form.strip() for form in forms}
        zeros = {form for form in bare if len(form) > 1 and form[0] == "0"}
        spoiled = {form for form in bare if not form.isdigit()}
        values = [int(float(form)) for form in bare - spoiled]
        if len(bare) < len(forms) or (spoiled and zeros) or len(set(values)) < len(values):
            return True
    return False


def read(source, kind: str, telling: Telling, design: str, outcome: str) -> fhjax.records.DirectEstimates:
    conditions = {"one": "age >= 10", "two": ["age >= 10", "age < 80"], "joined": "age >= 10 AND age < 80"}
    roles = {
        "replicates": {"replicates": "factor1..factor4", "replicate_factors": True},
        "taylor": {"strata": "stratum", "psu": "psu"},
        "units": {"unit": "unit"},
    }[design]
    variance = {"variance": fhjax.Replicates("sdr")} if design == "replicates" else {"variance": fhjax.Taylor("center")}
    bounds = {"bounds": (0.0, 1000.0)} if outcome == "amount" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        survey = fhjax.open_survey(
            source,
            area="area",
            weight="weight",
            outcome=outcome,
            where=conditions[telling.conditions],
            missing=telling.declared if telling.missing == "code" else None,
            delimiter=";" if kind == "txt;" else None,
            **roles,
            **bounds,
        )
        return fhjax.direct_estimates(survey, zero_variance="keep", **variance)


PLAIN = Telling("integer", "nothing", "", tuple(range(RECORDS)), 0, "same", "one")
OUTCOMES = (
    "amount",
    "amount < 300",
    "amount >= 300 OR age > 50",
    "CASE WHEN amount < 300 THEN 1 ELSE 0 END",
)
CODE_COLUMNS = {"taylor": ["area", "stratum", "psu"], "replicates": ["area"], "units": ["area", "unit"]}


def numbers(direct) -> dict[str, np.ndarray]:
    """What must not depend on the telling, in the order of the area's number."""
    order = np.argsort([int(label) for label in direct.labels])
    found = {"labels": np.array([int(label) for label in direct.labels])[order]}
    for name in ("y", "sampling_variance", "sensitivity", "num_records", "num_missing", "weight_sum", "max_unit_weight",
                 "kish_n_eff", "design_effect", "degrees_of_freedom"):  # fmt: skip
        found[name] = np.asarray(getattr(direct, name))[order]
    return found


def by_hand(table: Table, telling: Telling, design: str, outcome: str) -> dict[str, np.ndarray]:
    """Estimates, sensitivities and counts from the arrays alone."""
    keep = (table.age >= 10) & ((table.age < 80) | (telling.conditions == "one"))
    known = ~np.isnan(table.amount) & keep
    yes = table.amount < 300
    value = {
        "amount": np.nan_to_num(table.amount),
        "amount < 300": yes.astype(float),
        "amount >= 300 OR age > 50": (~yes | (table.age > 50)).astype(float),
        "CASE WHEN amount < 300 THEN 1 ELSE 0 END": yes.astype(float),
    }[outcome]
    reach = 1000.0 if outcome == "amount" else 1.0
    rows: dict[str, list[float]] = {"labels": [], "y": [], "sensitivity": [], "num_records": [], "num_missing": []}
    for area in np.unique(table.area):
        here = known & (table.area == area)
        total = table.weight[here].sum()
        units = table.unit if design == "units" else np.arange(RECORDS)
        largest = max(table.weight[here & (units == unit)].sum() for unit in np.unique(units[here]))
        rows["labels"].append(area)
        rows["y"].append(survey_oracle.hajek(table.weight[here], value[here]))
        rows["sensitivity"].append(reach * largest / total)
        rows["num_records"].append(here.sum())
        rows["num_missing"].append((keep & ~known & (table.area == area)).sum())
    return {name: np.array(column) for name, column in rows.items()}


@pytest.mark.parametrize("kind", FORMATS)
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking a file takes minutes and says little more
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    table=tables(), telling=tellings, design=st.sampled_from(sorted(CODE_COLUMNS)), outcome=st.sampled_from(OUTCOMES)
)
def test_the_same_table_gives_the_same_numbers_however_it_is_told(tmp_path, kind, table, telling, design, outcome):
    plain = dataclasses.replace(PLAIN, conditions=telling.conditions)
    wanted = numbers(read(tell(table, plain, "frame", tmp_path), "frame", plain, design, outcome))
    for name, values in by_hand(table, telling, design, outcome).items():
        np.testing.assert_allclose(wanted[name], values, rtol=1e-12, err_msg=name)
    source = tell(table, telling, kind, tmp_path)
    if must_be_refused(table, telling, kind, CODE_COLUMNS[design]):
        with pytest.raises(InputError):
            read(source, kind, telling, design, outcome)
        return
    found = numbers(read(source, kind, telling, design, outcome))
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=0.0, err_msg=name)
