"""``fhjax fit``: direct estimates in, Fay-Herriot fit and small-area estimates out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from fhjax.cli import options
from fhjax.records import AreaData, FayHerriotFit, Posterior


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("fit", help="Fay-Herriot fit of direct estimates", description=__doc__)
    options.add_file_options(parser, "one row an area, as `fhjax direct` writes it")
    options.add_area_level_input(parser)
    options.add_fit_option(parser)
    parser.add_argument("--out", required=True, metavar="FILE.json", help="the fit, as `fhjax guarantee` reads it")
    parser.add_argument("--estimates", metavar="FILE.csv", help="small-area estimates, one row an area")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit the model and write what was asked for."""
    from fhjax.assessment import model_data
    from fhjax.errors import Status
    from fhjax.model.fit import fit
    from fhjax.model.posterior import posterior

    direct = options.area_level_from(args)
    X, columns, _ = options.covariates_from(args, direct)
    data = model_data(direct, X=X, columns=columns)
    fitted = fit(data, method=args.method)
    _write_text(args.out, json.dumps(fit_values(fitted), indent=2) + "\n")
    if args.estimates:
        table = estimates_table(data, posterior(data, fitted))
        Path(args.estimates).parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(args.estimates, index=False)
    print(f"{data.num_areas:,} areas, method {fitted.method}: model variance {float(fitted.model_variance):.8g}")
    print(Status(int(fitted.status)).sentence)
    return 0


def fit_values(fitted: FayHerriotFit) -> dict[str, object]:
    """A fit as plain values: what `fhjax guarantee` needs, and what a reader wants to see."""
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
    }


def estimates_table(data: AreaData, posterior: Posterior) -> pd.DataFrame:
    """Small-area estimates, one row an area."""
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
    number = float(value)
    return number if np.isfinite(number) else None


def _write_text(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
