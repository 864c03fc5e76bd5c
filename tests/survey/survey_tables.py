"""Surveys for tests, made from data frames or files without the file reader."""

from __future__ import annotations

import functools
import itertools

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa

from fhjax.survey.read import Roles, Survey

_numbers = itertools.count()


@functools.cache
def engine():
    """One engine for all tests of a process: opening one costs more than most tests."""
    connection = ibis.duckdb.connect()
    connection.raw_sql("SET threads = 2")
    return connection


def survey_from_table(table, *, area, weight, outcome, strata=None, psu=None, replicates=(), unit=None, where=None,
                      bounds=(0.0, 1.0), binary=True):  # fmt: skip
    """A Survey over an Ibis table; ``area``, ``strata``, ``psu`` and ``unit`` are column names."""
    if where is not None:
        table = table.filter(table[where].notnull())
    columns = {
        "area": table[area].cast("string"),
        "weight": table[weight].cast("float64"),
        "y": table[outcome].cast("float64"),
    }
    if strata is not None:
        columns["stratum"] = table[strata].cast("string")
    if psu is not None:
        columns["psu"] = table[psu]
    if unit is not None:
        columns["unit"] = table[unit]
    columns |= {f"rep_{b}": table[name].cast("float64") for b, name in enumerate(replicates, start=1)}
    return Survey(
        table=table.select(**columns),
        roles=Roles((area,), weight, outcome, where, strata, psu, tuple(replicates), unit),
        bounds=bounds,
        binary=binary,
        num_records=0,
        num_filtered=0,
        num_missing_outcome=0,
    )


def survey_from_frame(frame: pd.DataFrame, **roles):
    """A Survey over a data frame; missing numbers become nulls."""
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    return survey_from_table(engine().create_table(f"records_{next(_numbers)}", arrow, temp=True), **roles)


def random_frame(seed: int, *, n: int = 400, areas: int = 7, replicates: int = 0, binary: bool = True) -> pd.DataFrame:
    """Records of a stratified cluster sample: PSUs cross areas, some outcomes are missing, weights vary."""
    rng = np.random.default_rng(seed)
    stratum = rng.integers(0, 5, n)
    frame = pd.DataFrame(
        {
            "area": [f"{a:02d}" for a in rng.integers(0, areas, n)],
            "w": rng.gamma(1.5, 20.0, n) + 0.5,
            "h": [f"s{h}" for h in stratum],
            "j": rng.integers(0, 6, n),
        }
    )
    y = (rng.random(n) < 0.3).astype(float) if binary else rng.normal(size=n)
    frame["y"] = np.where(rng.random(n) < 0.1, np.nan, y)
    for b in range(1, replicates + 1):
        frame[f"r{b}"] = frame["w"] * rng.choice([0.3, 1.7, 1.0, -0.01], n, p=[0.45, 0.45, 0.09, 0.01])
    return frame
