"""The claim that `check`, `audit` and `release` are about: data, posterior and guarantees, from shared options."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from fhjax.cli import arguments, options

if TYPE_CHECKING:
    from fhjax.records import AreaData, DirectEstimates, Guarantees, Posterior


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is claimed of draws: the posterior they come from and what they cost."""

    direct: DirectEstimates
    data: AreaData
    posterior: Posterior
    guarantees: Guarantees


def add_claim_options(parser: argparse.ArgumentParser) -> None:
    """Columns of the area-level file, covariates, and where the model variance comes from."""
    options.add_area_level_input(parser)
    variance = parser.add_mutually_exclusive_group()
    variance.add_argument(
        "--fit", type=arguments.InFile, metavar="FILE.json", help="the fit that `fhjax fit` wrote (default: REML, here)"
    )
    variance.add_argument("--model-variance", type=float, metavar="V", help="a given model variance instead of a fit")


def claim_from(args: argparse.Namespace) -> Claim:
    """Read the area-level file and work out what is claimed."""
    from fhjax.assessment import guarantees_of, model_data
    from fhjax.cli.guarantee import model_variance_of
    from fhjax.model.fit import fit, given
    from fhjax.model.posterior import posterior

    direct = options.area_level_from(args)
    X, columns, _ = options.covariates_from(args, direct)
    data = model_data(direct, X=X, columns=columns)
    if args.fit is not None:
        fitted, source = given(data, model_variance_of(args.fit, data)), "estimated"
    elif args.model_variance is not None:
        fitted, source = given(data, args.model_variance), "public"
    else:
        fitted, source = fit(data), "estimated"
    post = posterior(data, fitted)
    claim = guarantees_of(direct, data, post, model_variance_source=source)
    return Claim(direct=direct, data=data, posterior=post, guarantees=claim)
