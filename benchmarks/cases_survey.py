"""Survey file to direct estimates with replicate variances. Sizes are records, not areas."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import fhjax
from benchmarks.registry import Contest, case

REPLICATES = 80
_held: list[tempfile.TemporaryDirectory] = []  # the file lives as long as the process


def replicate_file(records: int) -> Path:
    """A Parquet file like a national PUMS: 1,300 records an area, integer weights, 80 replicate weights."""
    folder = tempfile.TemporaryDirectory()
    _held.append(folder)
    path = Path(folder.name) / "survey.parquet"
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, records, 200_000):
        n = min(200_000, records - start)
        weight = rng.gamma(1.5, 70.0, n).astype(np.int32) + 1
        factor = 1.0 + rng.choice([-0.5, 0.5], size=(REPLICATES, n))
        columns = {
            "area": pa.array([f"{i:07d}" for i in (start + np.arange(n)) // 1300]),
            "w": pa.array(weight),
            "poor": pa.array((rng.random(n) < 0.12).astype(np.int8)),
            "income": pa.array(rng.gamma(2.0, 20_000.0, n)),
            **{f"w{r + 1}": pa.array((weight * factor[r]).astype(np.int32)) for r in range(REPLICATES)},
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return path


def _contest(records: int, outcome: str, bounds: tuple[float, float] | None) -> Contest:
    path = replicate_file(records)

    def ours():
        survey = fhjax.open_survey(
            path, area="area", weight="w", outcome=outcome, replicates=f"w1..w{REPLICATES}", bounds=bounds
        )
        return fhjax.direct_estimates(survey, variance=fhjax.Replicates("sdr")).sampling_variance

    def pandas_whole():
        frame = pd.read_parquet(path)
        weights = ["w", *(f"w{r + 1}" for r in range(REPLICATES))]
        totals = frame.groupby("area")[weights].sum().to_numpy(float)
        products = frame[weights].mul(frame[outcome], axis=0).groupby(frame["area"]).sum().to_numpy(float)
        y = products / totals
        return 4.0 / REPLICATES * ((y[:, 1:] - y[:, :1]) ** 2).sum(axis=1)

    return Contest(ours, slow_rivals={"pandas": pandas_whole} if records <= 10**6 else {})


@case(
    name="replicate_yes_no",
    what="file to estimates and SDR variances by area, yes/no outcome, 80 replicates; size in records",
    sizes=(10**5, 10**6, 3_200_000),
)
def yes_no(size: int, p: int) -> Contest:
    return _contest(size, "poor", None)


@case(
    name="replicate_amount",
    what="the same for an amount",
    sizes=(10**5, 10**6, 3_200_000),
)
def amount(size: int, p: int) -> Contest:
    return _contest(size, "income", (0.0, 1e7))
