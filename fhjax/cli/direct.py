"""``fhjax direct``: survey file in, direct estimates with design variances out, one row an area."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options
from fhjax.cli.progress import Steps
from fhjax.files import Staging

if TYPE_CHECKING:
    pass


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser(
        "direct", help="direct estimates and design variances of a survey file", description=__doc__
    )
    options.add_file_options(parser, "survey file")
    options.add_survey_options(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=arguments.OutFile,
        metavar="FILE.csv",
        help="what `fhjax fit` and `fhjax guarantee` read",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the direct estimates, and beside them the areas that could not be used."""
    import pandas as pd

    from fhjax.report.step_files import direct_table

    steps = Steps(2, quiet=args.quiet)
    place = Path(args.out)
    left_out = place.with_suffix(".excluded.csv")
    with Staging(arguments.inputs_of(args)) as staging:
        out, excluded = staging.file(place), staging.file(left_out)
        with steps.step("reading and checking the survey"):
            survey = options.open_survey_from(args)
        with steps.step("direct estimates and design variances"):
            direct = options.direct_from(args, survey)
        direct_table(direct).to_csv(out, index=False)
        if direct.excluded:
            pd.DataFrame(direct.excluded, columns=["area", "reason"]).to_csv(excluded, index=False)
    print(f"{len(direct.labels):,} areas: {place}")
    print(options.universe_text(survey))
    if direct.excluded:
        print(f"{len(direct.excluded):,} areas without an estimate, with the reason: {left_out}")
    return 0
