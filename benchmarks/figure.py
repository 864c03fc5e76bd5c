"""Cost against size from a results file: ``python -m benchmarks.figure FILE.jsonl FIGURE.png``; prints the slopes."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

#: Cases in the figure, each with the rival drawn beside it, in colours and markers that greyscale keeps apart.
SHOWN = {
    "reml_fit": ("numpy_blocked", "#0072B2", "o"),
    "guarantees_reused": ("numpy_blocked", "#D55E00", "s"),
    "guarantees_general": (None, "#009E73", "^"),
    "epsilon_exact": (None, "#000000", "D"),
}
#: Below this size a call costs what starting it costs, and the slope says nothing about the work.
LEAST_FOR_SLOPE = 100_000


def main(source: str, target: str) -> None:
    rows = [json.loads(line) for line in Path(source).read_text(encoding="utf-8").splitlines()]
    results = [row for row in rows if row["record"] == "result"]
    ours: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    rivals: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for row in results:
        key = row["case"], row["p"]
        ours[key][row["size"]] = row["seconds"]
        if row["case"] in SHOWN and row["peer"] == SHOWN[row["case"]][0]:
            rivals[key][row["size"]] = row["peer_seconds"]

    figure, axes = plt.subplots(figsize=(7.0, 4.4), layout="constrained")
    for (case, p), times in sorted(ours.items()):
        slope = _slope(times)
        if slope is not None:
            print(f"{case:24} p = {p:2}  cost grows as m^{slope:.2f} from {LEAST_FOR_SLOPE:,} on")
        if case not in SHOWN or p not in (1, 5):
            continue
        _, colour, marker = SHOWN[case]
        style = "-" if p == 1 else "--"
        sizes = sorted(times)
        axes.plot(sizes, [times[size] for size in sizes], style, color=colour, marker=marker, markersize=4)
        label = f"{case.replace('_', ' ')}, p = {p}" if case != "epsilon_exact" else "epsilon exact"
        axes.annotate(label, (sizes[-1], times[sizes[-1]]), (6, 0), textcoords="offset points", va="center", fontsize=7)
        if rivals[case, p]:
            sizes = sorted(rivals[case, p])
            axes.plot(sizes, [rivals[case, p][size] for size in sizes], ":", color=colour, linewidth=1.2)
    axes.set(xscale="log", yscale="log", xlabel="Areas (epsilon: values)", ylabel="Seconds, warm")
    axes.set_title(
        "From 100,000 areas on cost grows in proportion to them; dotted: cache-blocked NumPy",
        loc="left",
        fontweight="bold",
        fontsize=9,
    )
    axes.set_xlim(right=axes.get_xlim()[1] * 12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=200)


def _slope(times: dict[int, float]) -> float | None:
    """Least squares of log seconds on log size."""
    sizes = [size for size in sorted(times) if size >= LEAST_FOR_SLOPE]
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log([times[size] for size in sizes]), 1)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
