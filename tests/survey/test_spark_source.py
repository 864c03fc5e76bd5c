"""The same survey behind Spark: whatever engine holds the table, the records it yields are the same."""

from __future__ import annotations

import importlib.util
import shutil

import ibis
import numpy as np
import pandas as pd
import pytest

from fhjax.errors import InputError
from fhjax.survey.read import open_survey

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),  # PySpark warns of pandas 3
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed (extra `spark`)"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime"),
]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    size = 400
    poverty = rng.uniform(0, 500, size).round()
    poverty[rng.random(size) < 0.1] = np.nan
    frame = pd.DataFrame(
        {
            "STATE": rng.choice(["01", "02"], size),
            "PUMA": rng.choice(["00100", "00200", "00300"], size),
            "hh": np.arange(size) // 2,
            "PWGTP": rng.integers(1, 60, size),
            "POVPIP": poverty,
            "AGEP": rng.integers(0, 90, size),
        }
    )
    for i in (1, 2):
        frame[f"pwgtp{i}"] = frame["PWGTP"] * rng.integers(0, 3, size)
    return frame


@pytest.fixture(scope="module")
def spark_table(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory):
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    path = folder / "survey.parquet"
    frame.to_parquet(path)
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    connection = ibis.pyspark.connect(session)
    yield connection.read_parquet(str(path), table_name="persons")
    session.stop()


ROLES = {
    "area": ["STATE", "PUMA"],
    "weight": "PWGTP",
    "outcome": "POVPIP < 100",
    "where": "AGEP >= 16",
    "psu": "hh",
    "replicates": "pwgtp*",
}


def sums(survey) -> pd.DataFrame:
    table = survey.table
    found = table.group_by("area").aggregate(
        n=table.count(),
        observed=table.y.count(),
        w=table.weight.sum(),
        wy=(table.weight * table.y).sum(),
        r2=table.rep_2.sum(),
        psus=table.psu.nunique(),
    )
    return found.to_pyarrow().to_pandas().sort_values("area", ignore_index=True)


def test_spark_and_duckdb_yield_the_same_records(frame, spark_table) -> None:
    here, there = open_survey(frame, **ROLES), open_survey(spark_table, **ROLES)
    pd.testing.assert_frame_equal(sums(there), sums(here), check_dtype=False, rtol=1e-12)
    assert len(sums(there)) == 6
    for name in ("num_records", "num_filtered", "num_missing_outcome", "bounds", "binary", "roles", "notes"):
        assert getattr(there, name) == getattr(here, name), name
    assert here.num_missing_outcome > 0
    assert here.num_filtered > 0


def test_bad_input_is_found_on_spark_too(spark_table) -> None:
    with pytest.raises(InputError, match="no area code"):
        open_survey(spark_table, **{**ROLES, "area": "CASE WHEN AGEP > 40 THEN PUMA END"})
    with pytest.raises(InputError, match="bounds"):
        open_survey(spark_table, **{**ROLES, "outcome": "AGEP"})
    with pytest.raises(InputError, match="cannot be evaluated"):
        open_survey(spark_table, **{**ROLES, "outcome": "no_such_function(AGEP) > 1"})
