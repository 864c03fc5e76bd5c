"""``fhjax fit``: direct estimates in, Fay-Herriot fit and small-area estimates out."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options
from fhjax.files import Staging

if TYPE_CHECKING:
    import pandas as pd

    from fhjax.records import AreaData, FayHerriotFit, Posterior


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
    from fhjax.model.fit import fit
    from fhjax.model.posterior import posterior

    with Staging(arguments.inputs_of(args)) as staging:
        out = staging.file(args.out)
        estimates = staging.file(args.estimates) if args.estimates else None
        direct = options.area_level_from(args)
        X, columns, _ = options.covariates_from(args, direct)
        data = model_data(direct, X=X, columns=columns)
        fitted = fit(data, method=args.method)
        out.write_text(json.dumps(fit_values(fitted), indent=2) + "\n", encoding="utf-8")
        if estimates is not None:
            estimates_table(data, posterior(data, fitted)).to_csv(estimates, index=False)
    print(f"{data.num_areas:,} areas, method {fitted.method}: model variance {float(fitted.model_variance):.8g}")
    print(Status(int(fitted.status)).sentence)
    return 0


def fit_values(fitted: FayHerriotFit) -> dict[str, object]:
    """A fit as plain values: what `fhjax guarantee` needs, and what a reader wants to see."""
    import numpy as np

    from fhjax.model.digest import data_digest

    return {
        "method": fitted.method,
        "num_areas": fitted.num_areas,
        "model_variance": float(fitted.model_variance),
        "model_variance_se": _finite(fitted.model_variance_se),
        "columns": list(fitted.columns),
        "beta": np.asarray(fitted.beta).tolist(),
        "beta_se": np.asarray(fitted.beta_se).tolist(),
        "log_likelihood": _finite(fitted.log_likelihood),
        "restricted_log_likelihood": _finite(fitted.restricted_log_likelihood),
        "aic": _finite(fitted.aic),
        "bic": _finite(fitted.bic),
        "status": int(fitted.status),
        "data_digest": {} if fitted.fitted_to is None else data_digest(fitted.fitted_to),
    }


def estimates_table(data: AreaData, posterior: Posterior) -> pd.DataFrame:
    """Small-area estimates, one row an area."""
    import numpy as np
    import pandas as pd

    return pd.DataFrame(
        {
            "area": list(data.labels or range(data.num_areas)),
            "y": np.asarray(data.y),
            "sampling_variance": np.asarray(data.sampling_variance),
            "shrinkage": np.asarray(posterior.shrinkage),
            "posterior_mean": np.asarray(posterior.mean),
            "posterior_variance": np.asarray(posterior.variance),
            "mse": np.asarray(posterior.mse),
        }
    )


def _finite(value) -> float | None:
    import numpy as np

    number = float(value)
    return number if np.isfinite(number) else None
