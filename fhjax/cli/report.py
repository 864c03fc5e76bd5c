"""``fhjax report``: survey file in, privacy report out."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
from pathlib import Path

from fhjax.cli import arguments, options
from fhjax.cli.progress import Steps
from fhjax.files import Staging


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("report", help="survey file in, privacy report out", description=__doc__)
    options.add_file_options(parser, "survey file (CSV, Parquet, SAS, Stata, SPSS), or example:nhanes0910_cholesterol")
    options.add_survey_options(parser)
    parser.add_argument(
        "--area-level", action="store_true", help="FILE has one row an area: direct estimates are given"
    )
    options.add_area_level_options(parser, sensitivity=None)
    options.add_covariate_options(parser)
    options.add_fit_option(parser)
    options.add_delta_option(parser)
    parser.add_argument("--title", help="title of the report")
    parser.add_argument("--pdf", action="store_true", help="figures as PDF too, for print")
    parser.add_argument(
        "--out",
        required=True,
        type=arguments.OutFolder,
        metavar="DIR",
        help="folder for areas.csv, summary.json, report.html, figures/ and run.json",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Assess a file and write the report folder."""
    from fhjax.report.write import RESULTS, STALE

    started = datetime.datetime.now(datetime.UTC)
    steps = Steps(4, quiet=args.quiet)
    with Staging(arguments.inputs_of(args)) as staging:
        folder = staging.folder(args.out, RESULTS, stale=STALE)
        equal = None
        if args.area_level:
            files: list = list(args.file)
            with steps.step("reading the direct estimates"):
                direct = options.area_level_from(args)
            steps.total -= 1
        else:
            with steps.step("reading and checking the survey"):
                survey = options.open_survey_from(args)
                files = [{"path": file.path, "bytes": file.size, "sha256": file.sha256} for file in survey.files]
            with steps.step("direct estimates and design variances"):
                direct = options.direct_from(args, survey)
                if args.estimator == "hajek":
                    from fhjax.survey.direct import equal_weight_estimates

                    equal = equal_weight_estimates(survey, direct, variance=options.variance_from(args))

        with steps.step("Fay-Herriot model and guarantees"):
            from fhjax.assessment import assess

            X, columns, notes = options.covariates_from(args, direct)
            direct = dataclasses.replace(direct, design=(*direct.design, *notes))
            assessment = assess(direct, X=X, columns=columns, method=args.method, delta=args.delta, equal_weights=equal)

        with steps.step("tables, figures, report"):
            from fhjax.report.provenance import collect_provenance
            from fhjax.report.statement import text_summary
            from fhjax.report.write import write_report

            provenance = collect_provenance(options.configuration(args), files, started)
            write_report(assessment, folder, provenance=provenance, title=args.title, pdf=args.pdf)
    print(text_summary(assessment))
    print(f"\nReport: {Path(args.out) / 'report.html'}")
    return 0
