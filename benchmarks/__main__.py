"""Run the benchmarks: ``python -m benchmarks [CASE ...] [--max-areas M] --out FILE.jsonl``.

Each size of each case runs in a process of its own, so that its peak memory is its own and its first call compiles.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import fhjax  # noqa: F401  (float64)
from benchmarks import (  # noqa: F401  (the cases register themselves)
    cases_conversion,
    cases_guarantee,
    cases_model,
    cases_plrv,
    cases_scale,
    cases_survey,
    cases_trim,
)
from benchmarks.machine import device, facts
from benchmarks.registry import CASES, Case
from benchmarks.table import print_table
from benchmarks.timing import first_call, in_turn, once, peak_mib


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument("--max-areas", type=int, default=10**7, metavar="M", help="leave out larger sizes")
    parser.add_argument("--out", metavar="FILE.jsonl", help="where the results go, one JSON object a line")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--one", nargs=3, metavar=("CASE", "SIZE", "P"), help=argparse.SUPPRESS)
    parser.add_argument("--no-slow", action="store_true", help="leave out rivals that take minutes")
    args = parser.parse_args(argv)
    if args.list:
        for case in CASES.values():
            print(f"{case.name:32} {case.what}")
        return 0
    if args.one:
        name, size, p = args.one
        for row in measure(CASES[name], int(size), int(p), slow=not args.no_slow):
            print(json.dumps(row))
        return 0
    unknown = [name for name in args.cases if name not in CASES]
    if unknown or not args.out:
        parser.error(f"unknown case {unknown}; --list names them" if unknown else "--out FILE.jsonl is needed")

    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [facts()]
    out.write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    for case in (CASES[name] for name in args.cases or CASES):
        for p in case.covariates:
            for size in (size for size in case.sizes if size <= args.max_areas):
                print(f"{case.name}: size {size:,}, p = {p}", file=sys.stderr, flush=True)
                for row in _in_own_process(case, size, p, slow=not args.no_slow):
                    rows.append(row)
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    print_table(rows, list(CASES.values()))
    return 0


def measure(case: Case, size: int, p: int, *, slow: bool) -> list[dict[str, object]]:
    """Time one size of one case against its rivals: one row a rival, or one row without any."""
    contest = case.build(size, p)
    first = first_call(contest.ours)
    for rival in contest.rivals.values():
        rival()
    timings = in_turn({"fhjax": contest.ours, **contest.rivals})
    ours = timings.pop("fhjax")
    peak = peak_mib()
    if slow:
        timings |= {name: once(rival, scale=contest.slow_scale) for name, rival in contest.slow_rivals.items()}
    row: dict[str, object] = {
        "record": "result",
        "case": case.name,
        "size": size,
        "p": p,
        "seconds": ours.median,
        "seconds_low": ours.low,
        "seconds_high": ours.high,
        "compile_seconds": max(0.0, first - ours.median),
        "peak_mib": round(peak, 1),
        "device": device(),
    }
    if not timings:
        return [{**row, "peer": None, "peer_seconds": None, "ratio": None}]
    return [
        {
            **row,
            "peer": name,
            "peer_seconds": peer.median,
            "ratio": peer.median / ours.median,
            "peer_scaled_from_sample": name in contest.slow_rivals and contest.slow_scale > 1.0,
        }
        for name, peer in timings.items()
    ]


def _in_own_process(case: Case, size: int, p: int, *, slow: bool) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "benchmarks", "--one", case.name, str(size), str(p)]
    done = subprocess.run(command + ([] if slow else ["--no-slow"]), capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  failed: {last}", file=sys.stderr, flush=True)
        return [{"record": "failure", "case": case.name, "size": size, "p": p, "message": last[:300]}]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


if __name__ == "__main__":
    sys.exit(main())
