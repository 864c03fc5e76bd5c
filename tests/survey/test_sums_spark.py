"""The same sums from another engine: a local Spark."""

from __future__ import annotations

import importlib.util
import shutil

import numpy as np
import pytest
from survey_tables import random_frame, survey_from_frame, survey_from_table
from test_sums import agree

from fhjax.errors import InputError
from fhjax.survey.sums import area_sums

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),  # PySpark warns of pandas 3
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed (extra `spark`)"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime"),
]


@pytest.fixture(scope="module")
def spark():
    import ibis
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield ibis.pyspark.connect(session)
    session.stop()


def test_spark_gives_the_sums_of_duckdb(spark, tmp_path):
    frame = random_frame(31, n=300, replicates=4, binary=False)
    frame["u"] = frame["area"] + "_" + (np.arange(len(frame)) % 40).astype(str)
    frame["yes"] = (frame["y"] > 0.0).astype(float).where(frame["y"].notna())
    path = tmp_path / "records.parquet"
    frame.to_parquet(path)
    there = spark.read_parquet(str(path))
    basic = {"area": "area", "weight": "w", "bounds": (-1e6, 1e6)}
    every = {**basic, "outcome": "y", "strata": "h", "psu": "j", "unit": "u", "replicates": ["r1", "r2", "r3", "r4"]}
    one = area_sums(survey_from_frame(frame, **every, binary=False))
    two = area_sums(survey_from_table(there, **every, binary=False))
    assert agree(one, two) >= 17
    np.testing.assert_allclose(one.replicate_deviations, two.replicate_deviations, rtol=1e-12)
    yes = {**basic, "outcome": "yes", "binary": True}
    assert (
        agree(
            area_sums(survey_from_frame(frame, **yes), taylor=False),
            area_sums(survey_from_table(there, **yes), taylor=False),
        )
        >= 10
    )
    with pytest.raises(InputError, match="have records in two areas"):
        area_sums(survey_from_table(there, **yes, unit="j"), taylor=False)
