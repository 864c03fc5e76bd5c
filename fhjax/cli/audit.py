"""``fhjax audit``: do draws from any sampler have the law their guarantee assumes? Exit code 1 when they do not."""

from __future__ import annotations

import argparse
import json

from fhjax.cli import arguments, options
from fhjax.cli.claim import add_claim_options, claim_from
from fhjax.files import Staging


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("audit", help="audit draws made by any sampler", description=__doc__)
    parser.add_argument(
        "draws",
        type=arguments.InFile,
        metavar="DRAWS",
        help="CSV or Parquet: one row a draw and one column an area; one row an area, as `fhjax release` writes it; "
        "long (columns area, draw and a value); or as CmdStan, posterior and brms write it (theta[1] is the area "
        "of the first row of the area-level file)",
    )
    parser.add_argument("--area-level", required=True, nargs="+", dest="file", type=arguments.InFile, metavar="FILE",
                        help="one row an area, "
                        "as `fhjax direct` writes it")  # fmt: skip
    options.add_text_options(parser)
    add_claim_options(parser)
    parser.add_argument("--release", choices=("independent", "correlated"), help="how the areas are said to be drawn "
                        "together (default: find out)")  # fmt: skip
    parser.add_argument("--ignore", type=arguments.names, default=[], metavar="COL,COL",
            help="columns of DRAWS that are "
                        "no areas, such as the chain or the iteration")  # fmt: skip
    parser.add_argument("--level", type=float, default=0.01, metavar="A", help="probability of refuting true draws "
                        "(default: 0.01)")  # fmt: skip
    parser.add_argument("--out", type=arguments.OutFile, metavar="FILE.json", help="everything that was found")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit the draws; 1 when they are refuted."""
    from fhjax.cli.draws_file import order_of_rows, read_draws
    from fhjax.plrv.audit import audit
    from fhjax.records import Labels
    from fhjax.report.check_files import audit_values
    from fhjax.report.numbers import json_safe

    with Staging(arguments.inputs_of(args)) as staging:
        out = staging.file(args.out) if args.out else None
        claim = claim_from(args)
        labels = claim.data.labels or Labels(range(claim.data.num_areas))
        area = [args.area] if isinstance(args.area, str) else args.area
        order = order_of_rows(args.file, area, delimiter=args.delimiter)
        found = read_draws(args.draws, labels, args.ignore, order=order, **options.text_options(args))
        result = audit(
            found.draws, claim.data, claim.posterior.model_variance, claim.guarantees, release=args.release,
            level=args.level,
        )  # fmt: skip
        if out is not None:
            values = {**audit_values(result), "columns": found.said}
            out.write_text(json.dumps(json_safe(values), indent=2) + "\n", encoding="utf-8")
    print(found.said)
    print(audit_text(result))
    return 1 if result.refuted else 0


def audit_text(result) -> str:
    """What a reader of the terminal needs."""
    import numpy as np

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
    if result.num_draws > 1:
        total = ", ".join(f"{format_up(result.num_draws * result.rho_claimed[name], 4)} ({name})" for name in shown)
        lines.append(f"These rhos are of one draw. If all {result.num_draws:,} draws are published, rho is {total}.")
    lines += [f"Not seen: {sentence}" for sentence in result.unseen]
    if result.refuted:
        lines.append(f"REFUTED at level {result.level:g}: these draws do not carry the guarantee.")
    else:
        lines.append(f"Not refuted at level {result.level:g}: the draws are consistent with the guarantee. No proof.")
    return "\n".join(lines)
