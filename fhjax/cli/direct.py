"""``fhjax direct``: survey file in, direct estimates with design variances out, one row an area."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from fhjax.cli import options
from fhjax.cli.progress import Steps
from fhjax.records import DirectEstimates


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser(
        "direct", help="direct estimates and design variances of a survey file", description=__doc__
    )
    options.add_file_options(parser, "survey file")
    options.add_survey_options(parser)
    parser.add_argument("--out", required=True, metavar="FILE.csv", help="what `fhjax fit` and `fhjax guarantee` read")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the direct estimates, and beside them the areas that could not be used."""
    steps = Steps(2, quiet=args.quiet)
    with steps.step("reading and checking the survey"):
        survey = options.open_survey_from(args)
    with steps.step("direct estimates and design variances"):
        direct = options.direct_from(args, survey)
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    direct_table(direct).to_csv(out, index=False)
    print(f"{len(direct.labels):,} areas: {out}")
    if direct.excluded:
        excluded = out.with_suffix(".excluded.csv")
        pd.DataFrame(direct.excluded, columns=["area", "reason"]).to_csv(excluded, index=False)
        print(f"{len(direct.excluded):,} areas without an estimate, with the reason: {excluded}")
    return 0


def direct_table(direct: DirectEstimates) -> pd.DataFrame:
    """Direct estimates as a table, under the column names that ``fhjax fit`` reads."""
    columns = {
        "area": list(direct.labels),
        "n": direct.num_records,
        "sum_w": direct.weight_sum,
        "w_max": direct.max_unit_weight,
        "deff": direct.design_effect,
        "n_eff": direct.kish_n_eff,
        "degrees_of_freedom": direct.degrees_of_freedom,
        "y": direct.y,
        "sampling_variance": direct.sampling_variance,
        "sensitivity": direct.sensitivity,
        "privacy_unit": [direct.privacy_unit] * len(direct.labels),
    }
    table = pd.DataFrame({name: values for name, values in columns.items() if values is not None})
    table["flags"] = [";".join(flag for flag, mask in direct.flags.items() if mask[i]) for i in range(len(table))]
    return table
