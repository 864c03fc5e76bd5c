"""``fhjax release``: draw once for publication, with the guarantee beside the draw.

The noise is exact and comes from the operating system's entropy; there is no seed to give. Every call draws anew and
costs its rho again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options
from fhjax.cli.claim import add_claim_options, claim_from
from fhjax.files import Staging, refuse_same

if TYPE_CHECKING:
    from fhjax.records import ReleaseGuarantee


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("release", help="draw once, for publication", description=__doc__)
    options.add_file_options(parser, "one row an area, as `fhjax direct` writes it")
    add_claim_options(parser)
    parser.add_argument("--release", choices=("correlated", "independent"), default="correlated", help="one draw of "
                        "the whole posterior, or every area on its own (default: correlated)")  # fmt: skip
    parser.add_argument("--as", dest="kind", choices=("posterior-draw", "noisy-means"), default="posterior-draw",
                        help="what the release is called; noisy-means (posterior means plus Gaussian noise) is the "
                        "independent release by its other name")  # fmt: skip
    parser.add_argument("--draws", type=int, default=1, metavar="N", help="how many draws (default: 1); the cost is "
                        "multiplied by N")  # fmt: skip
    parser.add_argument("--decimals", type=int, metavar="D", help="digits after the point of the published values")
    parser.add_argument("--clip", nargs=2, type=float, metavar=("LO", "HI"), help="move values outside to the nearest "
                        "bound (post-processing)")  # fmt: skip
    options.add_delta_option(parser)
    parser.add_argument("--ledger", type=arguments.OutFile, metavar="FILE.jsonl",
                        help="what was released so far: an entry "
                        "is added before the draw, and all entries of the same file are summed")  # fmt: skip
    parser.add_argument("--out", required=True, type=arguments.OutFile, metavar="FILE.csv",
                        help="the draws: one row an area, one column a "
                        "draw; an existing file is never overwritten")  # fmt: skip
    parser.add_argument(
        "--guarantee", required=True, type=arguments.OutFile, metavar="FILE.json", help="what the draws cost (internal)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Draw, and write the draws and their guarantee."""
    import pandas as pd

    from fhjax.assessment import checked_delta
    from fhjax.errors import InputError
    from fhjax.release.ledger import charge, read_ledger
    from fhjax.release.publish import publish
    from fhjax.report.numbers import format_up
    from fhjax.report.step_files import guarantee_values

    refuse_same(arguments.inputs_of(args), [path for path in (args.out, args.guarantee, args.ledger) if path])
    for path in (args.out, args.guarantee):
        if Path(path).exists():
            raise InputError(
                f"{path} exists. A second draw would cost its rho again: name another file if you mean it."
            )
    if args.ledger:
        read_ledger(args.ledger)
    with Staging(arguments.inputs_of(args)) as staging:
        out, price = staging.file(args.out), staging.file(args.guarantee)
        claim = claim_from(args)
        delta = checked_delta(args.delta, claim.direct)
        direct, total = claim.direct, None

        def enter(guarantee: ReleaseGuarantee) -> None:
            nonlocal total
            if args.ledger:
                total = charge(
                    args.ledger, sources=direct.sources, outcome=direct.outcome, rho=float(guarantee.rho),
                    unit=direct.privacy_unit, release=guarantee.release,
                )  # fmt: skip

        made = publish(
            claim.data,
            claim.posterior,
            claim.guarantees,
            release=args.release,
            kind=args.kind,
            num_draws=args.draws,
            decimals=args.decimals,
            clip=tuple(args.clip) if args.clip else None,
            outcome_bounds=direct.outcome_bounds,
            before_drawing=enter,
        )
        text = {"area": list(made.labels)}
        for number, row in enumerate(made.values, start=1):
            name = "value" if len(made.values) == 1 else f"draw_{number}"
            text[name] = [f"{value:.{made.decimals}f}" for value in row]
        pd.DataFrame(text).to_csv(out, index=False)
        values = guarantee_values(made, delta)
        if total is not None:
            values["ledger"] = dataclasses.asdict(total)
        price.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    print(f"{values['release']}: {len(made.labels):,} areas in {args.out}")
    print(
        f"rho {format_up(values['rho'], 8)} (real-number draw: {format_up(values['rho_real_numbers'], 8)}; the "
        f"lattice adds {100 * made.price.spacing_share:.2g} %)"
    )
    print(f"epsilon {format_up(values['epsilon'], 6)} at delta {delta:g}, from the tight conversion of zCDP")
    if float(claim.posterior.model_variance) == 0.0:
        print(
            "The model variance is 0: the draw lies on the regression surface and shows it. A neighbouring data set "
            "may have another model variance and draws that this one cannot have; the guarantee holds with the "
            "variances as invariants only."
        )
    if total is None:
        print(
            "No ledger: a second release of these units, of this or another outcome or year, adds its rho to this one."
        )
    else:
        print(
            f"Ledger: with this release rho {format_up(total.same_outcome, 8)} was spent on this outcome and "
            f"{format_up(total.all_outcomes, 8)} on all outcomes of the same file, in {total.releases:,} "
            f"release{'s' * (total.releases > 1)}."
        )
    print("Publish the draws file. The guarantee file is internal: its numbers come from confidential data.")
    return 0
