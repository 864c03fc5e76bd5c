"""``fhjax check``: does the privacy loss behave as the guarantee says? By Monte Carlo; exit code 1 on refutation."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options
from fhjax.cli.claim import add_claim_options, claim_from
from fhjax.cli.progress import Steps
from fhjax.files import Staging

if TYPE_CHECKING:
    from fhjax.records import AreaData, Guarantees


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("check", help="Monte Carlo check of the privacy loss", description=__doc__)
    options.add_file_options(parser, "one row an area, as `fhjax direct` writes it")
    add_claim_options(parser)
    parser.add_argument("--claim", type=arguments.InFile, metavar="FILE.csv",
                        help="rho by area as others claim it, instead of this "
                        "package's own: columns area and rho, as `fhjax guarantee` writes them")  # fmt: skip
    parser.add_argument("--draws", type=int, default=100_000, metavar="N", help="draws of every area, in each "
                        "direction (default: 100,000)")  # fmt: skip
    parser.add_argument("--joint-draws", type=int, metavar="N", help="draws of the joint releases (default: as many)")
    parser.add_argument("--release", choices=("both", "independent", "correlated"), default="both")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the simulation (default: 1)")
    parser.add_argument("--level", type=float, default=0.01, metavar="A", help="probability of refuting a true claim, "
                        "over all tests together (default: 0.01)")  # fmt: skip
    parser.add_argument("--out", type=arguments.OutFolder, metavar="DIR", help="folder for check.json and figures/")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the claim and say what was found; 1 when it is refuted."""
    steps = Steps(2 + bool(args.out), quiet=args.quiet)
    with Staging(arguments.inputs_of(args)) as staging:
        folder = (
            staging.folder(args.out, ("check.json",), stale=("figures/*.png", "figures/*.pdf")) if args.out else None
        )
        with steps.step("direct estimates, model and guarantees"):
            claim = claim_from(args)
            guarantees = claim.guarantees if args.claim is None else _claimed(claim.guarantees, claim.data, args.claim)
        with steps.step(f"{args.draws:,} draws of every area"):
            import jax

            from fhjax.plrv.check import check

            result = check(
                claim.data,
                claim.posterior,
                guarantees,
                key=jax.random.key(args.seed),
                num_draws=args.draws,
                joint_draws=args.joint_draws,
                level=args.level,
                independent=args.release != "correlated",
                correlated=args.release != "independent",
            )
        if folder is not None:
            with steps.step("check.json and figures"):
                from fhjax.report.check_files import check_values
                from fhjax.report.numbers import json_safe
                from fhjax.report.plrv_figures import write_check_figures

                values = {**check_values(result), "options": options.configuration(args)}
                (folder / "check.json").write_text(json.dumps(json_safe(values), indent=2) + "\n", encoding="utf-8")
                write_check_figures(result, folder / "figures")
    print(check_text(result))
    return 1 if result.refuted else 0


def _claimed(own: Guarantees, data: AreaData, path: str) -> Guarantees:
    """The guarantees with the per-area rho of a file."""
    import jax.numpy as jnp
    import pandas as pd

    from fhjax.errors import InputError, complain

    try:
        table = pd.read_csv(path, dtype={"area": str}, keep_default_na=False, na_values={"rho": ["", "NA", "NaN"]})
        rho = dict(zip(table["area"], table["rho"].astype(float), strict=True))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} is not a table with columns area and rho ({error}).") from error
    labels = [str(label) for label in data.labels or range(data.num_areas)]
    missing = [label for label in labels if label not in rho]
    if missing:
        raise complain(f"have no rho in {path}", missing, "Claim a rho for every area of the file that is checked.")
    return dataclasses.replace(own, per_area_rho=jnp.asarray([rho[label] for label in labels]))


def check_text(result) -> str:
    """What a reader of the terminal needs."""
    from fhjax.report.check_files import check_values

    lines = []
    for finding in result.findings:
        mark = "REFUTED" if finding in result.reasons else "ok"
        lines.append(
            f"{mark:>8}  p {finding.p_value:<9.3g} {finding.name}" + (f" ({finding.detail})" if finding.detail else "")
        )
    values = check_values(result)
    for name, release in values["releases"].items():
        if "renyi" in release:
            beyond = [f"{row['order']:g}" for row in release["renyi"] if not row["feasible"]]
            if beyond:
                lines.append(
                    f"Rényi orders out of reach of the draws, joint {name}: {', '.join(beyond)} (their estimates are "
                    "biased toward safe and prove nothing)"
                )
    power = values["power_one_area_sd_1_percent_off"]
    lines.append(
        f"A standard deviation 1 % off in one area is seen by its own test, at the 1 % level, with power {power:.2f}."
    )
    if result.first_reasons:
        names = "; ".join(finding.name for finding in result.first_reasons)
        lines.append(
            f"A first run refuted the claim narrowly ({names}); this is its repetition with a fresh stream and "
            f"{result.num_draws:,} draws, which decides."
        )
    if result.refuted:
        lines.append(f"REFUTED at level {result.level:g}: {'; '.join(finding.name for finding in result.reasons)}.")
    else:
        lines.append(f"Not refuted at level {result.level:g} over {len(result.findings)} tests. This is no proof.")
    return "\n".join(lines)
