"""The whole coefficient matrix on disk, written by blocks of rows: for readers that want every c_ik."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fhjax.errors import InputError
from fhjax.privacy.coefficients import Coefficients
from fhjax.records import Labels


def write_dense(
    coefficients: Coefficients,
    path: str | Path,
    *,
    labels: Labels | None = None,
    block_bytes: int = 2**26,
    progress: Callable[[int, int], Any] | None = None,
) -> Path:
    """Write the m x m matrix of c_ik to ``path`` row block by row block; memory stays near ``block_bytes``.

    Args:
        coefficients: from :func:`fhjax.privacy.coefficients.coefficients`.
        path: ending in ``.npy`` (a NumPy array, to be opened with ``np.load(path, mmap_mode="r")``) or ``.parquet``
            (one column an area k, one row an area i).
        labels: (m,) column names of a Parquet file; default the areas' positions.
        block_bytes: size of one block.
        progress: called with (rows written, m) after each block.

    Returns:
        The path.

    Raises:
        InputError: for another ending, or labels that are too few or not distinct.

    Internal: the coefficients are computed from sampling variances and a model variance that may be confidential.

    Examples:
        >>> import tempfile
        >>> import fhjax
        >>> C = fhjax.coefficients([1.0, 1.0, 2.0], 1.0, [[1.0]] * 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.load(write_dense(C, folder + "/c.npy")).round(4).tolist()[0]
        [0.6875, 0.1875, 0.125]
    """
    path, m = Path(path), coefficients.num_areas
    height = max(1, min(m, block_bytes // (8 * m)))
    columns = jnp.arange(m)

    def blocks():
        for start in range(0, m, height):
            # The last block is shifted back to the full height, so that one compilation serves all.
            first = max(0, min(start, m - height))
            rows = np.asarray(coefficients.block(jnp.arange(height) + first, columns))
            yield start, rows[start - first :]
            if progress is not None:
                progress(min(start + height, m), m)

    if path.suffix == ".npy":
        target = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(m, m))
        for start, rows in blocks():
            target[start : start + len(rows)] = rows
        target.flush()
        del target
    elif path.suffix == ".parquet":
        names = list(labels) if labels is not None else [str(k) for k in range(m)]
        if len(names) != m or len(set(names)) != m:
            raise InputError(f"A Parquet file of {m:,} areas needs as many distinct labels.")
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([(name, pa.float64()) for name in names])
        with pq.ParquetWriter(path, schema) as writer:
            for _, rows in blocks():
                writer.write_table(pa.table([rows[:, k] for k in range(m)], schema=schema))
    else:
        raise InputError(f"The coefficient matrix can be written to .npy or .parquet, not to {path.suffix!r}.")
    return path
