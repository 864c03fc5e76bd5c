"""Areas spread over the devices of one machine or of several: where rows go, and how they come back.

A sharded :class:`~fhjax.records.AreaData` is an ordinary one whose (m,) arrays live in equal blocks on the devices of a
mesh with one axis, ``"areas"``. The public functions (fit, posterior, guarantees) take it as it is: their sums become
one small all-reduce each, and what they return by area stays where the areas are. Blocks are filled up with rows whose
mask is False.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fhjax.entrance import is_concrete
from fhjax.errors import InputError, complain
from fhjax.records import AreaData, Array, Guarantees, Labels

#: The name of the mesh axis.
AREAS = "areas"
#: Sums over areas run along rows of this length: long enough to hide the loop's start, short enough that a row of each
#: operand stays in cache. Above this many areas a device's block is a multiple of it.
ROW = 10_000

R = TypeVar("R")


def join_hosts(address: str, num_hosts: int, host: int, *, timeout: int = 60) -> None:
    """Join this process with others, so that :func:`area_mesh` spans the devices of all of them.

    Args:
        address: "name:port" of host 0, reachable from every host.
        num_hosts: number of processes, usually one a machine.
        host: number of this process, from 0.
        timeout: seconds to wait for the others before giving up with an error.

    To be called once, before anything else uses JAX; every process then runs the same program. On CPUs the processes
    talk through gloo.

    Examples:
        >>> join_hosts("127.0.0.1:7733", num_hosts=2, host=0)  # doctest: +SKIP
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=num_hosts, process_id=host, initialization_timeout=timeout)


def area_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh that areas are spread over: all devices of all hosts, or those given.

    Examples:
        >>> from fhjax.sharding import area_mesh
        >>> area_mesh().axis_names
        ('areas',)
    """
    devices = jax.devices() if devices is None else list(devices)
    return Mesh(np.array(devices), (AREAS,), axis_types=(jax.sharding.AxisType.Auto,))


def shard_areas(data: AreaData, mesh: Mesh | None = None, *, local: bool = False) -> AreaData:
    """The same areas in equal blocks on the devices of a mesh, padded by mask.

    Args:
        data: m areas. Rows whose mask is False are left out first.
        mesh: from :func:`area_mesh`; None for all devices.
        local: False when every host passes all areas; True when each host passes its own, whose order is then that of
            the hosts. Covariates and options must agree either way.

    Every number computed from the result agrees with the unsharded one to about 1e-12: only the order of sums differs.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> from fhjax.sharding import shard_areas
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> abs(float(fit(shard_areas(data)).model_variance - fit(data).model_variance)) < 1e-12
        True
    """
    mesh = area_mesh() if mesh is None else mesh
    y, psi, X = (np.asarray(values, dtype=float) for values in (data.y, data.sampling_variance, data.X))
    if y.ndim != 1 or psi.shape != y.shape or X.shape[:1] != y.shape:
        raise InputError(f"Areas to spread need y (m,), not shapes {y.shape}, {psi.shape} and {X.shape}.")
    labels = data.labels
    if data.mask is not None and not np.all(data.mask):
        keep = np.asarray(data.mask)
        y, psi, X = y[keep], psi[keep], X[keep]
        if labels is not None and len(labels) == len(keep):
            labels = Labels(labels.where(keep))
    here = len(mesh.local_devices)
    if local and jax.process_count() > 1:
        from jax.experimental.multihost_utils import process_allgather

        block = int(np.max(process_allgather(np.array([-(-len(y) // here)]))))
    else:
        block = -(-len(y) // mesh.size)
    block = max(block, 1)
    if block * mesh.size > ROW:
        block = -(-block // ROW) * ROW

    def spread(values: np.ndarray, fill: float | bool) -> Array:
        sharding = NamedSharding(mesh, PartitionSpec(AREAS))
        shape = (block * mesh.size, *values.shape[1:])

        def rows(index: Any) -> np.ndarray:
            start, stop, _ = index[0].indices(shape[0])
            start, stop = start - first, stop - first
            part = values[start:stop]
            missing = stop - start - len(part)
            return (
                np.concatenate([part, np.full((missing, *values.shape[1:]), fill, values.dtype)]) if missing else part
            )

        return jax.make_array_from_callback(shape, sharding, rows)

    # Row of the mesh at which this process's values begin.
    first = _first_local_row(mesh, block) if local else 0
    return dataclasses.replace(
        data,
        y=spread(y, 0.0),
        sampling_variance=spread(psi, 1.0),
        X=spread(X, 0.0),
        mask=spread(np.ones(len(y), bool), False),
        labels=labels,
    )


def _first_local_row(mesh: Mesh, block: int) -> int:
    mine = [i for i, device in enumerate(mesh.devices.flat) if device.process_index == jax.process_index()]
    if mine != list(range(mine[0], mine[0] + len(mine))):
        raise InputError("The devices of one host must stand together in the mesh: use area_mesh().")
    return mine[0] * block


def is_sharded(*values: Any) -> bool:
    """Whether any of the arrays is a concrete one whose rows lie on several devices."""
    return any(
        isinstance(leaf, jax.Array)
        and is_concrete(leaf)
        and len(leaf.sharding.device_set) > 1
        and not leaf.is_fully_replicated
        for leaf in jax.tree.leaves(values)
    )


def mesh_of(values: Array) -> Mesh:
    """The mesh over which an array's areas are spread."""
    sharding = values.sharding
    if not isinstance(sharding, NamedSharding) or sharding.spec[:1] != (AREAS,):
        raise InputError("Areas on several devices must be placed by shard_areas.")
    return sharding.mesh  # pyright: ignore[reportReturnType]


def shard_values(values: Any, data: AreaData, fill: float = 0.0) -> Array:
    """Numbers by area, laid out like the sharded ``data``: those of all areas, or of the areas of this host.

    Args:
        values: one number, or (m,) for all areas in their order, or for the areas of this host; or already sharded.
        data: from :func:`shard_areas`.
        fill: what padded rows get.

    Raises:
        InputError: a length that is neither.

    Examples:
        >>> from fhjax.model.fit import area_data
        >>> from fhjax.sharding import local_areas, shard_areas, shard_values
        >>> data = shard_areas(area_data([1.0, 3.0, 2.0], [0.5, 0.5, 0.5]))
        >>> local_areas(shard_values([0.1, 0.2, 0.3], data), data).tolist()
        [0.1, 0.2, 0.3]
    """
    assert data.mask is not None
    if isinstance(values, jax.Array) and is_sharded(values):
        if values.shape != data.mask.shape:
            raise InputError(f"There are {data.mask.shape[0]:,} rows and {values.shape[0]:,} values: one a row.")
        return values
    values = np.asarray(values)
    counts, starts = _counts(data)
    mine = [d for d, device in enumerate(_devices(data)) if device.process_index == jax.process_index()]
    total, here = int(counts.sum()), int(counts[mine].sum())
    if values.ndim and (values.ndim != 1 or len(values) not in (total, here)):
        raise InputError(
            f"There are {total:,} areas, {here:,} of them here, and values of shape {values.shape}: one an area."
        )
    offset = starts[mine[0]] if values.ndim and len(values) != total else 0
    block = data.mask.shape[0] // len(counts)

    def rows(index: Any) -> np.ndarray:
        d = (index[0].start or 0) // block
        part = np.full(block, fill, values.dtype)
        begin = starts[d] - offset
        part[: counts[d]] = values if values.ndim == 0 else values[begin : begin + counts[d]]
        return part

    return jax.make_array_from_callback(data.mask.shape, data.mask.sharding, rows)


def local_areas(record: R, data: AreaData) -> R:
    """A result's numbers for the areas on this host, as NumPy arrays in the areas' order and without padding.

    On one host these are all areas. Nothing moves between devices: each gives up its own block. Indices of areas
    (``attained_by``, ``worst_area``) are turned from rows into the areas' own numbers.

    Args:
        record: what a public function returned for ``data``, or one of its arrays.
        data: from :func:`shard_areas`, or not sharded at all.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> from fhjax.model.posterior import posterior
        >>> from fhjax.sharding import local_areas, shard_areas
        >>> data = shard_areas(area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5]))
        >>> local_areas(posterior(data, fit(data)), data).mean.shape
        (4,)
    """
    if data.mask is None:
        return jax.tree.map(np.asarray, record)
    keep = _blocks(data.mask)

    def here(leaf: Any) -> Any:
        if np.ndim(leaf) == 0 or leaf.shape[0] != data.num_areas:
            return np.asarray(leaf)
        blocks = _blocks(leaf)
        return np.concatenate([block[rows] for block, rows in zip(blocks, keep, strict=True)])

    result = jax.tree.map(here, record)
    return _numbered(result, data) if isinstance(result, Guarantees) else result  # pyright: ignore[reportReturnType]


def _numbered(result: Guarantees, data: AreaData) -> Guarantees:
    counts, starts = _counts(data)
    block = data.num_areas // len(counts)

    def number(row: Any) -> Any:
        return np.where(row >= 0, starts[row // block] + row % block, row)

    def release(one: Any) -> Any:
        return dataclasses.replace(one, worst_area=number(one.worst_area))

    return dataclasses.replace(
        result,
        attained_by=number(result.attained_by),
        joint_independent=release(result.joint_independent),
        joint_correlated=release(result.joint_correlated),
        sequential=release(result.sequential),
    )


def _devices(data: AreaData) -> list[Any]:
    assert data.mask is not None
    return list(mesh_of(data.mask).devices.flat) if is_sharded(data.mask) else list(data.mask.devices())


def _counts(data: AreaData) -> tuple[np.ndarray, np.ndarray]:
    """How many areas each device holds, and how many come before them."""
    assert data.mask is not None
    counts = np.asarray(_count(data.mask, len(_devices(data))))
    return counts, np.cumsum(counts) - counts


def _count(mask: Array, num_devices: int) -> Array:
    if num_devices == 1:
        return jnp.sum(mask)[None]
    mesh = mesh_of(mask)
    mine = lambda block: jax.lax.all_gather(jnp.sum(block), AREAS)  # noqa: E731
    return jax.jit(
        jax.shard_map(mine, mesh=mesh, in_specs=PartitionSpec(AREAS), out_specs=PartitionSpec(), check_vma=False)
    )(mask)


def _blocks(values: Array) -> list[np.ndarray]:
    """The blocks of this host's devices, in order."""
    shards = {shard.index[0].start or 0: shard.data for shard in values.addressable_shards}
    return [np.asarray(shards[start]) for start in sorted(shards)]


def refuse_rows(bad: Array, data: AreaData, what: str, way_out: str) -> None:
    """Raise the usual complaint if any of the sharded ``bad`` is true, on every host alike.

    Raises:
        InputError: naming areas by label, or by number where the label is on another host.
    """
    total = int(jnp.sum(bad))
    if total == 0:
        return
    counts, starts = _counts(data)
    block = bad.shape[0] // len(counts)
    mine = [d for d, device in enumerate(_devices(data)) if device.process_index == jax.process_index()]
    labels = data.labels or ()
    offset = 0 if len(labels) == counts.sum() else int(starts[mine[0]])
    names = []
    for _ in range(min(total, 5)):
        row = int(jnp.argmax(bad))
        bad = bad & (jnp.arange(bad.shape[0]) != row)
        area = int(starts[row // block]) + row % block
        names.append(labels[area - offset] if 0 <= area - offset < len(labels) else str(area))
    raise complain(what, [*names, *[""] * (total - len(names))], way_out)
