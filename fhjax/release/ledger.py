"""What was released of the same confidential file, added up: every draw costs its rho again.

A ledger is a text file with one JSON object a line, only ever appended to. An entry is written before the draw is
made, so that a run that fails afterwards counts too.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fhjax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Spent:
    """What a ledger says of one source, zCDP's rho."""

    same_outcome: float  # of the same outcome
    all_outcomes: float  # of every outcome of the same file: a unit's answers add up
    releases: int  # entries of the file


def read_ledger(path: str | Path) -> list[dict[str, Any]]:
    """The entries of a ledger, oldest first; none when the file does not exist yet.

    Raises:
        InputError: a line that is no entry. A ledger that cannot be read cannot be added up.
    """
    place = Path(path)
    if not place.exists():
        return []
    entries = []
    for number, line in enumerate(place.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            rho = float(entry["rho"])
            if not (isinstance(entry["sources"], list) and rho >= 0.0 and isinstance(entry["outcome"], str)):
                raise ValueError("not an entry")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"Line {number} of the ledger {place} is no entry ({error}). Restore the file.") from error
        entries.append(entry)
    return entries


def spent(entries: Sequence[dict[str, Any]], sources: Sequence[str], outcome: str) -> Spent:
    """What the entries say of files with these SHA-256 sums: entries that share any of them count.

    Examples:
        >>> spent([{"sources": ["a"], "outcome": "poor", "rho": 0.5}], ["a"], "employed")
        Spent(same_outcome=0.0, all_outcomes=0.5, releases=1)
    """
    here = [entry for entry in entries if set(entry["sources"]) & set(sources)]
    return Spent(
        math.fsum(entry["rho"] for entry in here if entry["outcome"] == outcome),
        math.fsum(entry["rho"] for entry in here),
        len(here),
    )


def charge(path: str | Path, *, sources: Sequence[str], outcome: str, rho: float, unit: str, release: str) -> Spent:
    """Append an entry, before anything is drawn, and return what was spent with it.

    Raises:
        InputError: the ledger cannot be read or written, or nothing identifies the source.
    """
    if not sources:
        raise InputError(
            "The source of these estimates is not known, so a ledger cannot tell what else was released of it."
        )
    entries = read_ledger(path)
    entry = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "sources": list(sources),
        "outcome": outcome,
        "unit": unit,
        "rho": rho,
        "release": release,
    }
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(entry) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
    except OSError as error:
        raise InputError(f"The ledger {path} cannot be written: {error.strerror}. Nothing was drawn.") from error
    return spent([*entries, entry], sources, outcome)
