"""``fhjax fit``: direct estimates in, Fay-Herriot fit and small-area estimates out."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options
from fhjax.files import Staging

if TYPE_CHECKING:
    pass


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("fit", help="Fay-Herriot fit of direct estimates", description=__doc__)
    options.add_file_options(parser, "one row an area, as `fhjax direct` writes it")
    options.add_area_level_input(parser)
    options.add_fit_option(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=arguments.OutFile,
        metavar="FILE.json",
        help="the fit, as `fhjax guarantee` reads it",
    )
    parser.add_argument(
        "--estimates", type=arguments.OutFile, metavar="FILE.csv", help="small-area estimates, one row an area"
    )
    parser.set_defaults(run=run, need_sensitivity=False, default_sensitivity=None)


def run(args: argparse.Namespace) -> int:
    """Fit the model and write what was asked for."""
    from fhjax.assessment import model_data
    from fhjax.errors import Status
    from fhjax.model.digest import data_digest
    from fhjax.model.fit import fit
    from fhjax.model.posterior import posterior
    from fhjax.report.step_files import estimates_table, fit_values

    with Staging(arguments.inputs_of(args)) as staging:
        out = staging.file(args.out)
        estimates = staging.file(args.estimates) if args.estimates else None
        direct = options.area_level_from(args)
        X, columns, _ = options.covariates_from(args, direct)
        data = model_data(direct, X=X, columns=columns)
        fitted = fit(data, method=args.method)
        out.write_text(json.dumps(fit_values(fitted, data_digest(data)), indent=2) + "\n", encoding="utf-8")
        if estimates is not None:
            estimates_table(data, posterior(data, fitted)).to_csv(estimates, index=False)
    print(f"{data.num_areas:,} areas, method {fitted.method}: model variance {float(fitted.model_variance):.8g}")
    print(Status(int(fitted.status)).sentence)
    return 0
