"""``fhjax audit``: do draws from any sampler have the law their guarantee assumes? Exit code 1 when they do not."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fhjax.cli import options
from fhjax.cli.claim import add_claim_options, claim_from
from fhjax.errors import InputError, complain
from fhjax.records import Labels


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("audit", help="audit draws made by any sampler", description=__doc__)
    parser.add_argument(
        "draws",
        metavar="DRAWS",
        help="CSV or Parquet: one row a draw and one column an area, or as `fhjax release` writes it, one row an area",
    )
    parser.add_argument("--area-level", required=True, nargs="+", dest="file", metavar="FILE", help="one row an area, "
                        "as `fhjax direct` writes it")  # fmt: skip
    options.add_text_options(parser)
    add_claim_options(parser)
    parser.add_argument("--release", choices=("independent", "correlated"), help="how the areas are said to be drawn "
                        "together (default: find out)")  # fmt: skip
    parser.add_argument("--ignore", type=options.names, default=[], metavar="COL,COL", help="columns of DRAWS that are "
                        "no areas, such as the chain or the iteration")  # fmt: skip
    parser.add_argument("--level", type=float, default=0.01, metavar="A", help="probability of refuting true draws "
                        "(default: 0.01)")  # fmt: skip
    parser.add_argument("--out", metavar="FILE.json", help="everything that was found")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit the draws; 1 when they are refuted."""
    from fhjax.plrv.audit import audit
    from fhjax.report.numbers import json_safe

    claim = claim_from(args)
    labels = claim.data.labels or Labels(range(claim.data.num_areas))
    draws = read_draws(args.draws, labels, args.ignore)
    result = audit(
        draws, claim.data, claim.posterior.model_variance, claim.guarantees, release=args.release, level=args.level
    )
    if args.out:
        Path(args.out).parent.mkdir(parents=True, exist_ok=True)
        Path(args.out).write_text(json.dumps(json_safe(audit_values(result)), indent=2) + "\n", encoding="utf-8")
    print(audit_text(result))
    return 1 if result.refuted else 0


def read_draws(path: str, labels: Labels, ignore: list[str]) -> np.ndarray:
    """The draws (n, m) of a file, in the order of ``labels``.

    Either the columns are named by area, or a column ``area`` names the rows and the others are draws.
    """
    try:
        if path.endswith((".parquet", ".pq")):
            table = pd.read_parquet(path)
        else:
            with_names = pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0]
            table = pd.read_csv(path, header=None, skiprows=1)
            table.columns = [str(name) for name in with_names]  # codes stay text; pandas would rename repeated ones
            if "area" in table.columns and "area" not in set(labels):
                table["area"] = pd.read_csv(path, usecols=["area"], dtype=str)["area"]
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"{path} cannot be read as a table of draws ({error}).") from error
    table.columns = [str(name) for name in table.columns]
    table = table.drop(columns=[name for name in ignore if name in table.columns])
    if "area" in table.columns and "area" not in set(labels):
        table = table.set_index("area").T
        table.columns = [str(name) for name in table.columns]
    repeated = sorted(set(table.columns[table.columns.duplicated()]))
    if repeated:
        raise complain(f"appear twice in {path}", repeated, "One column for each area.", noun="column")
    known = set(labels)
    extra = [name for name in table.columns if name not in known]
    if extra:
        way_out = "Name them in --ignore, or correct them."
        raise complain(f"of {path} are no areas of the area-level file", extra, way_out, noun="column")
    missing = [label for label in labels if label not in set(table.columns)]
    if missing:
        raise complain(f"have no column in {path}", missing, "Audit draws of all areas of the area-level file.")
    try:
        return table[list(labels)].to_numpy(dtype=float)
    except ValueError as error:
        raise InputError(f"{path} holds a value that is no number ({error}).") from error


def audit_values(result) -> dict[str, Any]:
    """An audit as plain values."""
    return {
        "refuted": result.refuted,
        "reasons": [finding.name for finding in result.reasons],
        "level": result.level,
        "draws": result.num_draws,
        "autocorrelated": result.autocorrelated,
        "structure": result.structure,
        "structure_p_values": result.structure_p_values,
        "findings": [vars(finding) for finding in result.findings],
        "rho_claimed": result.rho_claimed,
        "rho_compatible": result.rho_compatible,
        "unseen": list(result.unseen),
        "areas": [
            {
                "area": label,
                "effective_draws": size,
                "mean_shift_sd": shift,
                "variance_ratio": ratio,
                "variance_ratio_low": low,
                "variance_ratio_high": high,
            }
            for label, size, shift, ratio, low, high in zip(
                result.labels, result.effective_draws, result.mean_shift, result.variance_ratio,
                result.variance_low, result.variance_high, strict=True,
            )
        ],
    }  # fmt: skip


def audit_text(result) -> str:
    """What a reader of the terminal needs."""
    from fhjax.report.numbers import format_up

    lines = []
    for finding in result.findings:
        mark = "REFUTED" if finding in result.reasons else "ok"
        lines.append(f"{mark:>8}  p {finding.p_value:<9.3g} {finding.name} ({finding.detail})")
    size = np.asarray(result.effective_draws)
    lines.append(
        f"{result.num_draws:,} draws of {len(size):,} areas"
        + (f", autocorrelated: {size.min():,.0f} to {size.max():,.0f} effective" if result.autocorrelated else "")
        + f"; areas drawn: {result.structure}."
    )
    shown = {"independent": ["joint independent"], "correlated": ["joint correlated"]}.get(
        result.structure, ["joint independent", "joint correlated"]
    )
    for name in ("largest area", *shown):
        low, high = result.rho_compatible[name]
        lines.append(
            f"rho, {name}: {format_up(result.rho_claimed[name], 4)} claimed; the draws' variances are compatible with "
            f"{low:.4g} to {format_up(high, 4)}."
        )
    lines += [f"Not seen: {sentence}" for sentence in result.unseen]
    if result.refuted:
        lines.append(f"REFUTED at level {result.level:g}: these draws do not carry the guarantee.")
    else:
        lines.append(f"Not refuted at level {result.level:g}: the draws are consistent with the guarantee. No proof.")
    return "\n".join(lines)
