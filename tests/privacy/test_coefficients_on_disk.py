"""The matrix on disk equals the operator, block by block."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from privacy_problems import random_problem

from fhjax.errors import InputError
from fhjax.privacy.coefficients import coefficients
from fhjax.privacy.dense_output import write_dense
from fhjax.records import Labels


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
def test_blocks_on_disk_equal_the_dense_matrix(tmp_path, rows):
    psi, s2, X, _ = random_problem(3, m=40)
    C = coefficients(psi, s2, X)
    dense, seen = np.asarray(C.to_dense()), []
    path = write_dense(C, tmp_path / "c.npy", block_bytes=rows * 40 * 8, progress=lambda *done: seen.append(done))
    np.testing.assert_allclose(np.load(path, mmap_mode="r"), dense, rtol=1e-13, atol=1e-16)
    assert seen[-1] == (40, 40)
    assert len(seen) == -(-40 // min(rows, 40))
    names = Labels([f"area {k}" for k in range(40)])
    path = write_dense(C, tmp_path / "c.parquet", block_bytes=rows * 40 * 8, labels=names)
    table = pq.read_table(path)
    assert table.column_names == list(names)
    np.testing.assert_allclose(np.column_stack([column.to_numpy() for column in table.columns]), dense, rtol=1e-13)


def test_unknown_endings_and_repeated_labels_are_refused(tmp_path):
    C = coefficients([1.0, 2.0], 1.0, np.ones(2))
    with pytest.raises(InputError, match=r"not to '.csv'"):
        write_dense(C, tmp_path / "c.csv")
    with pytest.raises(InputError, match="distinct labels"):
        write_dense(C, tmp_path / "c.parquet", labels=Labels("aa"))
