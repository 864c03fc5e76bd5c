"""The results as a short table: what was promised, what was measured."""

from __future__ import annotations

from benchmarks.registry import Case


def print_table(rows: list[dict], cases: list[Case]) -> None:
    """Print ratios at each case's target size, promised ones with their target."""
    print(f"{'case':32} {'size':>10} {'p':>3} {'seconds':>10} {'peer':24} {'peer s':>10} {'ratio':>8}  target")
    for row in rows:
        if row["record"] != "result":
            continue
        case = next(case for case in cases if case.name == row["case"])
        at_target = row["size"] == case.target_size and row["p"] == case.target_p
        target = case.targets.get(row["peer"] or "") if at_target else None
        said = "" if target is None else f"{target:g} {'met' if row['ratio'] >= target else 'MISSED'}"
        peer = f"{row['peer'] or '-':24} {row['peer_seconds']:10.4g} {row['ratio']:8.3g}" if row["peer"] else "-"
        print(f"{row['case']:32} {row['size']:10,} {row['p']:3} {row['seconds']:10.4g} {peer}  {said}")
