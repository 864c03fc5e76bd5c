"""A survey file becomes one table with named roles: area, weight, y and, where given, stratum, psu, unit and replicates."""

from __future__ import annotations

import dataclasses
from typing import Any

import ibis


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """One file that was read: enough to tell later whether it is still the same."""

    path: str
    size: int  # bytes
    sha256: str


@dataclasses.dataclass(frozen=True)
class Roles:
    """Which column of the source plays which part."""

    area: tuple[str, ...]
    weight: str
    outcome: str
    where: str | None = None
    strata: str | None = None
    psu: str | None = None
    replicates: tuple[str, ...] = ()
    unit: str | None = None


@dataclasses.dataclass(frozen=True)
class Survey:
    """A survey as a table of records with named roles, checked, not yet summed.

    ``table`` has the columns area (string), weight (float64), y (float64, null = outcome missing) and, where given,
    stratum (string), psu, unit, rep_1..rep_R (float64).
    """

    table: ibis.Table
    roles: Roles
    bounds: tuple[float, float]
    binary: bool
    num_records: int
    num_filtered: int
    num_missing_outcome: int
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()


def open_survey(
    source: Any,
    *,
    area: str | list[str] | tuple[str, ...],
    weight: str,
    outcome: str,
    where: str | None = None,
    strata: str | None = None,
    psu: str | None = None,
    replicates: str | list[str] | tuple[str, ...] | None = None,
    unit: str | None = None,
    bounds: tuple[float, float] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Survey:
    """Open a survey file. (Being written.)"""
    raise NotImplementedError
