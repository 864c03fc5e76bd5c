"""Why pyproject.toml pins DuckDB and sqlglot: these two calls are what newer releases broke for Ibis 12.

When Ibis, DuckDB or sqlglot are raised, these tests say whether the pins can go.
"""

from __future__ import annotations

import ibis
import pandas as pd


def test_a_table_from_a_data_frame() -> None:
    """Fails with sqlglot 30."""
    table = ibis.duckdb.connect().create_table("t", pd.DataFrame({"area": ["01", "02"], "w": [1.5, 2.0]}))
    assert table.w.sum().to_pyarrow().as_py() == 3.5


def test_sql_over_a_table() -> None:
    """Fails with DuckDB 2. Also: SQL's three-valued logic keeps a missing input missing."""
    table = ibis.duckdb.connect().create_table("t", pd.DataFrame({"x": [1, None, 3]}))
    found = table.alias("survey").sql("SELECT *, (x IN (1, 2)) AS y FROM survey", dialect="duckdb")
    assert found.y.to_pyarrow().to_pylist() == [True, None, False]
