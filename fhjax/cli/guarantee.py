"""``fhjax guarantee``: direct estimates and a fit in, privacy guarantees out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options
from fhjax.errors import InputError
from fhjax.files import Staging

if TYPE_CHECKING:
    from fhjax.records import AreaData


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("guarantee", help="privacy guarantees of a fitted model", description=__doc__)
    options.add_file_options(parser, "one row an area, as `fhjax direct` writes it")
    options.add_area_level_input(parser)
    variance = parser.add_mutually_exclusive_group(required=True)
    variance.add_argument("--fit", type=arguments.InFile, metavar="FILE.json", help="the fit that `fhjax fit` wrote")
    variance.add_argument("--model-variance", type=float, metavar="V", help="a given model variance instead of a fit")
    options.add_delta_option(parser)
    parser.add_argument(
        "--out", required=True, type=arguments.OutFile, metavar="FILE.csv", help="guarantees, one row an area"
    )
    parser.add_argument(
        "--summary", type=arguments.OutFile, metavar="FILE.json", help="the joint guarantees and every assumption"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """State what one draw costs, by area and jointly."""
    from fhjax.assessment import checked_delta, guarantees_of, model_data
    from fhjax.model.fit import given
    from fhjax.model.posterior import posterior
    from fhjax.privacy.conversion import epsilon_simple
    from fhjax.report.step_files import guarantees_table, release_values

    with Staging(arguments.inputs_of(args)) as staging:
        out = staging.file(args.out)
        summary = staging.file(args.summary) if args.summary else None
        direct = options.area_level_from(args)
        X, columns, _ = options.covariates_from(args, direct)
        data = model_data(direct, X=X, columns=columns)
        model_variance = args.model_variance if args.fit is None else model_variance_of(args.fit, data)
        result = guarantees_of(
            direct,
            data,
            posterior(data, given(data, model_variance)),
            model_variance_source="estimated" if args.fit else "public",
        )
        delta = checked_delta(args.delta, direct)
        guarantees_table(data, result, delta).to_csv(out, index=False)
        releases = (result.joint_correlated, result.joint_independent, result.sequential)
        if summary is not None:
            values = {
                "delta": delta,
                "outcome_bounds": direct.outcome_bounds,
                "releases": [release_values(release, delta) for release in releases],
            }
            summary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    for release in releases:
        epsilon = float(epsilon_simple(release.rho, delta))
        print(f"{release.release}: rho {_up(release.rho)}, epsilon {_up(epsilon)} at delta {delta:g}")
    print(result.neighbours)
    return 0


def _up(value) -> str:
    """A bound on the terminal: rounded up, so that it stays one."""
    import numpy as np

    from fhjax.report.numbers import format_up

    return "infinite" if np.isinf(value) else format_up(float(value), 6)


def model_variance_of(path: str, data: AreaData) -> float:
    """The model variance of a written fit, after checking that it was fitted to exactly these data."""
    from fhjax.model.digest import data_digest, differing

    try:
        fitted = json.loads(Path(path).read_text(encoding="utf-8"))
        model_variance = float(fitted["model_variance"])
        num_areas, columns = int(fitted["num_areas"]), tuple(fitted["columns"])
        digest = dict(fitted["data_digest"])
    except OSError as error:
        raise InputError(f"The fit {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a fit that this `fhjax fit` wrote ({error}).") from error
    if num_areas != data.num_areas or columns != data.columns:
        raise InputError(
            f"{path} was fitted to {num_areas:,} areas with columns {', '.join(columns)}; here are "
            f"{data.num_areas:,} areas with columns {', '.join(data.columns)}. Give `fhjax guarantee` the same file "
            "and covariates as `fhjax fit`."
        )
    other = differing(digest, data_digest(data))
    if other:
        raise InputError(
            f"{path} was fitted to other data: {' and '.join(other)} differ from those here. Its model variance "
            "belongs to another outcome, design or set of covariates: give the same file and covariates as to "
            "`fhjax fit`."
        )
    return model_variance
