"""What a file makes doubtful though nothing in it is wrong by itself: said with counts, for a person to judge."""

from __future__ import annotations

from typing import Any

from fhjax.errors import first_few
from fhjax.survey.workspace import to_frame

#: PSUs with at most this many records on average look like households or persons, not like places.
SMALL_PSU = 12
#: Of many replicate weights the first few tell records apart as well as all.
REPLICATES_COMPARED = 4


def of_records(table: Any, roles: Any, num_records: int) -> list[str]:
    """Sentences about the records of a survey: repeated ones, units that may be too small, PSUs across areas.

    Args:
        table: records with named roles, as in :class:`fhjax.survey.read.Survey`.
        roles: the roles as the user named them.
        num_records: how many records there are.
    """
    said = []
    if "psu" in table.columns or "unit" in table.columns or "rep_1" in table.columns:
        said += _repeated(table, num_records)
    if "psu" in table.columns:
        said += _psus(table, roles)
    return said


def _repeated(table: Any, num_records: int) -> list[str]:
    """Records that are equal in all named columns: perhaps the same person twice, whose sensitivity is then halved."""
    keys = [name for name in table.columns if not name.startswith("rep_")]
    keys += [f"rep_{i}" for i in range(1, REPLICATES_COMPARED + 1) if f"rep_{i}" in table.columns]
    distinct = int(table.select(*keys).distinct().count().to_pyarrow().as_py())
    repeats = num_records - distinct
    if repeats <= 0:
        return []
    return [
        f"{repeats:,} of {num_records:,} records repeat another in all named columns. Members of one PSU can be "
        "alike; but if the file holds records twice (appended or joined twice), sample sizes are too large, and "
        "sensitivities and rho too small. Drop the copies, or name the column that tells records apart as the unit."
    ]


def _psus(table: Any, roles: Any) -> list[str]:
    """PSUs that look like households while a record is protected, and PSUs that lie in several areas."""
    keys = ["stratum", "psu"] if "stratum" in table.columns else ["psu"]
    psus = table.group_by(keys).aggregate(
        records=table.count(), first_area=table.area.min(), last_area=table.area.max()
    )
    across = psus["first_area"] != psus["last_area"]
    row = psus.aggregate(
        psus=psus.count(), several=(psus.records > 1).sum(), most=psus.records.max(), records=psus.records.sum(),
        across=across.sum(),
    ).to_pyarrow().to_pylist()[0]  # fmt: skip
    said = []
    several, count = int(row["several"] or 0), int(row["psus"])
    if several and roles.unit is None and int(row["records"]) <= SMALL_PSU * count:
        said.append(
            f"The privacy unit is one record, but {several:,} of {count:,} PSUs ({roles.psu}) hold several, up to "
            f"{int(row['most']):,}. If a PSU is a household, or a person with several records, name it as the unit "
            f"(unit={roles.psu!r}): otherwise the others of its records are not protected together."
        )
    if int(row["across"] or 0):
        said.append(_across(table, psus.filter(across), keys, int(row["across"]), count, roles))
    return said


def _across(table: Any, crossing: Any, keys: list[str], across: int, count: int, roles: Any) -> str:
    """The model takes areas as independent; PSUs with records of several areas say otherwise."""
    here = table.semi_join(crossing, keys)
    inside = to_frame(here.group_by("area").aggregate(crossing=here.count()))
    whole = to_frame(table.group_by("area").aggregate(records=table.count()))
    both = whole.merge(inside, on="area", how="left").fillna({"crossing": 0})
    both["share"] = both["crossing"] / both["records"]
    both = both.sort_values(["share", "area"], ascending=[False, True])
    top = both.iloc[0]
    same = both.loc[both["share"] == top["share"], "area"]
    return (
        f"{across:,} of {count:,} PSUs ({roles.psu}) have records in several areas; in {first_few(same)} "
        f"{top['share']:.0%} of the records lie in such PSUs, the largest share. This file contradicts the "
        "assumption that sampling errors are independent between areas; joint guarantees rest on it."
    )
