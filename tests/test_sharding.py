"""Areas on several devices and hosts: the same numbers as on one, and nothing of the size of the areas travels."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sharding_worker

from fhjax.errors import InputError
from fhjax.model.fit import area_data
from fhjax.sharding import local_areas, shard_areas, shard_values

WORKER = Path(__file__).parent / "sharding_worker.py"
ROOT = WORKER.parent.parent
SECONDS = 400  # after which a process is ended; on an idle machine each takes about ten

Saved = dict[str, np.ndarray]


def start(out: Path, devices: int, problems: str, *hosts: str, flags: str = "") -> subprocess.Popen:
    # Compiling is most of the time; at level 0 machine code is no different in what travels.
    count = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(out), problems, *hosts],
        env={**os.environ, "XLA_FLAGS": f"{count} {flags}", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes: subprocess.Popen) -> None:
    try:
        for process in processes:
            _, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def load(out: Path) -> Saved:
    with np.load(out) as saved:
        return dict(saved)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharding")


@pytest.fixture(scope="module")
def one(folder: Path) -> Saved:
    out = folder / "one.npz"
    finish(start(out, 1, "intercept,covariates,many"))
    return load(out)


@pytest.fixture(scope="module")
def four(folder: Path) -> Saved:
    out = folder / "four.npz"
    flags = f"--xla_dump_to={folder / 'hlo'} --xla_dump_hlo_as_text"
    finish(start(out, 4, "intercept,covariates,many", flags=flags))
    return load(out)


def compare(found: Saved, expected: Saved) -> int:
    """Every number to 1e-12 of itself, posterior means to 1e-12 of the largest; how many were compared."""
    compared = 0
    for name in found.keys() & expected.keys():
        if "/" not in name or name.endswith("fit.steps"):  # a step more or less is no other answer
            continue
        a, b = found[name], expected[name]
        assert a.shape == b.shape, name
        if b.dtype.kind != "f":
            assert np.array_equal(a, b), name
        else:
            near_zero = "posterior.mean" in name or "beta_covariance" in name
            slack = 1e-12 * np.max(np.abs(b)) if near_zero else 0.0
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=slack, err_msg=name)
        compared += b.size
    return compared


def test_padded_areas_give_the_numbers_of_ordinary_ones(one: Saved) -> None:
    y, psi, x, sensitivity = sharding_worker.problem("covariates")
    data = area_data(y, psi, x)
    found = sharding_worker.numbers(sharding_worker.assess(data, sensitivity, 4e9), data)
    assert compare({f"covariates/{name}": value for name, value in found.items()}, one) > 10 * 301


def test_masked_areas_are_left_out_and_values_follow() -> None:
    whole = area_data([1.0, 2.0, 3.0, 9.0, 5.0], [1.0, 1.0, 1.0, 1.0, 1.0], labels="abcde")
    data = shard_areas(dataclasses.replace(whole, mask=np.array([True, True, False, True, True])))
    assert data.labels == ("a", "b", "d", "e")
    assert local_areas(data.y, data).tolist() == [1.0, 2.0, 9.0, 5.0]
    assert local_areas(shard_values([0.1, 0.2, 0.3, 0.4], data), data).tolist() == [0.1, 0.2, 0.3, 0.4]
    assert local_areas(shard_values(0.5, data), data).tolist() == [0.5] * 4
    with pytest.raises(InputError, match="4 areas, 4 of them here"):
        shard_values([0.1, 0.2, 0.3], data)


def test_four_devices_give_the_numbers_of_one(one: Saved, four: Saved) -> None:
    assert four["devices"] == 4
    assert compare(four, one) > 10 * 2 * 23_457


@pytest.mark.parametrize(("devices", "problems"), [(2, "intercept"), (8, "covariates")])
def test_two_and_eight_devices_give_the_numbers_of_one(one: Saved, folder: Path, devices: int, problems: str) -> None:
    out = folder / f"{devices}.npz"
    finish(start(out, devices, problems))
    found = load(out)
    assert found["devices"] == devices
    assert compare(found, one) > 10 * 301


def test_two_hosts_give_the_numbers_of_one(one: Saved, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    outs = [folder / f"host{host}.npz" for host in (0, 1)]
    finish(*(start(out, 2, "covariates", address, "2", str(host)) for host, out in enumerate(outs)))
    first, second = load(outs[0]), load(outs[1])
    assert first["devices"] == 4
    assert first.keys() == second.keys()
    # What belongs to areas is in two parts, of which the first is the shorter; the rest is known to both.
    together: Saved = {}
    for name, value in first.items():
        by_area = name in one and value.ndim > 0 and value.shape != one[name].shape
        together[name] = np.concatenate([value, second[name]]) if by_area else value
        assert by_area or "/" not in name or np.array_equal(value, second[name]), name
    assert compare(together, one) > 10 * 301
    # Each host passed a bad sensitivity for its own area 7, and both say so.
    expected = "2 areas have a negative or non-finite sensitivity: '7', '119'. Correct or drop them."
    assert str(first["complaint"]) == str(second["complaint"]) == expected


def test_without_the_mask_padding_would_count(four: Saved) -> None:
    """301 areas on 4 devices are padded to 304: three rows more, and the model variance is another."""
    assert abs(four["unmasked"] / four["masked"] - 1.0) > 1e-4


def test_a_bad_area_is_named(four: Saved) -> None:
    assert str(four["complaint"]).startswith("1 area has a negative or non-finite sensitivity: '7'.")


COLLECTIVE = re.compile(r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def collectives(folder: Path) -> list[tuple[str, str, int]]:
    """(program, kind, elements of the largest operand or result) of everything that was compiled."""
    found = []
    for path in folder.glob("*after_optimizations.txt"):
        for shapes, kind in COLLECTIVE.findall(path.read_text()):
            sizes = [
                int(np.prod([int(n) for n in dims.split(",") if n], dtype=int))
                for dims in re.findall(r"\[([\d,]*)\]", shapes)
            ]
            found.append((path.name, kind, max(sizes)))
    return found


def test_nothing_of_the_size_of_the_areas_travels(four: Saved, folder: Path) -> None:
    """A device holds 10,000 rows; sums of a few numbers travel, and blocks of 2,048 candidates of the search."""
    found = collectives(folder / "hlo")
    assert sum(kind == "all-reduce" for _, kind, _ in found) > 20
    large = [one for one in found if one[2] > 5_000]
    planted = [one for one in large if "planted" in one[0]]
    assert planted, "the sort that gathers on purpose was not seen"
    assert large == planted
