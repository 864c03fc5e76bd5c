"""Options that several verbs share, and what they mean in the package's own terms."""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fhjax.cli.arguments import InFile, inputs_of, names
from fhjax.errors import DataWarning, InputError

if TYPE_CHECKING:
    from fhjax.records import DirectEstimates

REPLICATE_METHODS = ("sdr", "brr", "fay", "jk1", "jkn", "bootstrap")


def add_file_options(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "file", nargs="+", type=InFile, metavar="FILE", help=f"{what}; several part files or a glob are read as one"
    )
    add_text_options(parser)


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """How text files are written."""
    text = parser.add_argument_group("how text files are written")
    text.add_argument(
        "--delimiter", metavar="CHAR", help="column separator of a text file (found by itself by default)"
    )
    text.add_argument("--decimal", metavar="CHAR", help="decimal mark of a text file (default: a point)")
    text.add_argument("--encoding", metavar="NAME", help="encoding of a text file, such as cp1252 (default: utf-8)")


def add_survey_options(parser: argparse.ArgumentParser) -> None:
    """The roles of a survey file's columns, and how its direct estimates and their variances are made."""
    roles = parser.add_argument_group("which column plays which part")
    roles.add_argument(
        "--area",
        type=names,
        required=True,
        metavar="COL[,COL]",
        help="area, one column or several; codes stay text",
    )
    roles.add_argument("--weight", metavar="COL", help="survey weight")
    roles.add_argument("--outcome", metavar="EXPR", help="a column, or an SQL expression such as 'POVPIP < 100'")
    roles.add_argument(
        "--bounds",
        nargs=2,
        type=float,
        metavar=("LO", "HI"),
        help="declared bounds of one record's outcome, needed for every number, a 0/1 column too; a comparison or a "
        "true/false column has 0 1 by itself",
    )
    roles.add_argument(
        "--where",
        action="append",
        metavar="EXPR",
        help="keep only these records, before the design; given several times, all conditions must be true",
    )
    roles.add_argument("--strata", metavar="COL", help="design stratum, for Taylor linearisation")
    roles.add_argument("--psu", metavar="COL", help="primary sampling unit, such as the household")
    roles.add_argument("--unit", metavar="COL", help="privacy unit, such as the household (default: one record)")
    roles.add_argument("--replicates", metavar="PATTERN", help="replicate weights: 'PWGTP1..PWGTP80' or 'pwgtp*'")
    roles.add_argument(
        "--replicate-factors", action="store_true", help="the replicate columns are factors to multiply the weight by"
    )
    add_missing_option(roles)

    direct = parser.add_argument_group("direct estimates and design variances")
    direct.add_argument(
        "--estimator",
        choices=("hajek", "ht"),
        default="hajek",
        help="weighted mean (hajek, the default), or weighted total over a known population (ht)",
    )
    direct.add_argument(
        "--population", type=InFile, metavar="FILE", help="known population by area, for --estimator ht"
    )
    direct.add_argument(
        "--population-columns", default="area,N", metavar="AREA,N", help="its columns (default: area,N)"
    )
    direct.add_argument(
        "--replicate-method", choices=REPLICATE_METHODS, help="how the replicates were made, as the survey's guide says"
    )
    direct.add_argument("--fay", type=float, metavar="RHO", help="Fay's coefficient, for --replicate-method fay")
    direct.add_argument(
        "--center",
        choices=("full", "replicates"),
        default="full",
        help="deviations of the replicates are from the full-sample estimate (full, the Census formula and the "
        "default), or from their mean",
    )
    direct.add_argument(
        "--replicate-scale", type=float, metavar="S", help="overall factor, instead of the method's own"
    )
    direct.add_argument(
        "--replicate-scales", type=InFile, metavar="FILE", help="one factor a replicate, one number a row"
    )
    direct.add_argument(
        "--single-psu",
        choices=("error", "certainty", "center", "remove"),
        default="error",
        help="what a stratum with one PSU contributes (default: error)",
    )
    direct.add_argument(
        "--empty-area",
        choices=("error", "exclude"),
        default="error",
        help="areas in which a replicate has no weight left: stop, or leave them out (default: error)",
    )
    add_zero_variance_option(direct)


def add_missing_option(parser: Any) -> None:
    parser.add_argument(
        "--na",
        action="append",
        metavar="[COL=]CODES",
        help="codes that mean no answer, separated by commas: '7,9,-9' in the columns that only the outcome and the "
        "filter read, 'income=99999998' in one column instead of those; may be given several times. By default empty "
        "fields of text "
        "files are missing, and the words NA and NaN where they are no codes",
    )


def add_zero_variance_option(parser: Any) -> None:
    parser.add_argument(
        "--zero-variance",
        choices=("error", "exclude", "gvf", "keep"),
        default="error",
        help="areas whose design variance is 0: stop, leave them out, use a generalised variance "
        "function, or keep them (their guarantee is then infinite; default: error)",
    )


def add_area_level_input(parser: argparse.ArgumentParser) -> None:
    """What every verb that reads one row an area asks for: its columns, zero variances, covariates."""
    parser.add_argument("--area", type=names, default="area", metavar="COL[,COL]", help="area (default: area)")
    add_area_level_options(parser, sensitivity="sensitivity")
    add_missing_option(parser)
    add_zero_variance_option(parser)
    add_covariate_options(parser)


def add_area_level_options(parser: argparse.ArgumentParser, *, sensitivity: str | None) -> None:
    """Columns of a file with one row an area. ``sensitivity`` is the default of ``--sensitivity``."""
    columns = parser.add_argument_group("columns of a file with one row an area")
    columns.add_argument("--y", default="y", metavar="COL", help="direct estimate (default: y)")
    columns.add_argument(
        "--sampling-variance",
        default="sampling_variance",
        metavar="COL",
        help="its design variance (default: sampling_variance)",
    )
    columns.add_argument("--n", metavar="COL", help="number of records")
    columns.add_argument("--max-weight", metavar="COL", help="largest weight of one privacy unit")
    columns.add_argument("--weight-total", metavar="COL", help="sum of the weights")
    default = f" (default: {sensitivity}, unless these are given)" if sensitivity else ""
    columns.add_argument(
        "--sensitivity",
        metavar="COL",
        help=f"largest change of y from one privacy unit, instead of --max-weight and --weight-total{default}",
    )
    parser.set_defaults(default_sensitivity=sensitivity)
    if sensitivity:  # the other verbs have no survey options, where these two are
        columns.add_argument(
            "--unit",
            metavar="NAME",
            help="what the sensitivity protects, such as the household (default: as the column privacy_unit says)",
        )
        columns.add_argument(
            "--bounds",
            nargs=2,
            type=float,
            metavar=("LO", "HI"),
            help="declared bounds of one record's outcome (default: the columns outcome_lower and outcome_upper, "
            "else 0 1 with --max-weight and --weight-total)",
        )
    columns.add_argument(
        "--variance-source",
        choices=("estimated", "public"),
        default="estimated",
        help="where the sampling variances come from: estimated from the same confidential data (then they are "
        "assumed to be invariants), or public numbers",
    )


def add_covariate_options(parser: argparse.ArgumentParser) -> None:
    covariates = parser.add_argument_group("covariates by area (public)")
    covariates.add_argument("--covariates", type=InFile, metavar="FILE", help="one row an area")
    covariates.add_argument(
        "--covariates-area", default="area", metavar="COL[,COL]", help="its area columns (default: area)"
    )
    covariates.add_argument("--x", type=names, metavar="COL,COL", help="columns to use; an intercept is added")


def add_fit_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--method",
        choices=("reml", "ml", "moment", "pr"),
        default="reml",
        help="how the model variance is estimated (default: reml)",
    )


def add_delta_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--delta",
        type=float,
        metavar="D",
        help="delta of the (epsilon, delta) translation (default: the largest power of ten not above 1 / records)",
    )


#: Options of a survey file that a file with one row an area cannot obey, and the other way round.
SURVEY_ONLY = ("weight", "outcome", "where", "strata", "psu", "replicates", "replicate_method", "fay",
               "replicate_scale", "replicate_scales", "population")  # fmt: skip
AREA_LEVEL_ONLY = ("n", "max_weight", "weight_total", "sensitivity")
#: Those of a survey file that have a default: refused when they were typed.
SURVEY_DEFAULTS = ("estimator", "center", "single_psu", "empty_area", "population_columns")
TEXT_OPTIONS = ("delimiter", "decimal", "encoding")
_TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".gz", ".zip")


def given_of(args: argparse.Namespace, options: tuple[str, ...], *, typed: bool = False) -> list[str]:
    """Those of the options that were given, as a user types them; ``typed``: even if it was their default."""
    given = getattr(args, "given", frozenset())
    return [
        "--" + name.replace("_", "-")
        for name in options
        if (name in given if typed else getattr(args, name, None) is not None)
    ]


def say_idle(args: argparse.Namespace) -> None:
    """Warn of options that have no effect in this call: the user meant something by them."""
    idle: list[tuple[list[str], str]] = []
    replicates = getattr(args, "replicates", None) is not None
    if replicates:
        designs = given_of(args, ("strata", "psu")) + given_of(args, ("single_psu",), typed=True)
        idle.append((designs, "beside --replicates, which carry the design"))
    else:
        idle.append((given_of(args, ("center", "empty_area"), typed=True), "without --replicates"))
    if getattr(args, "population", None) is None:
        idle.append((given_of(args, ("population_columns",), typed=True), "without --population"))
    if getattr(args, "covariates", None) is None:
        idle.append((given_of(args, ("covariates_area",), typed=True), "without --covariates"))
    if not any(name.strip().lower().endswith(_TEXT_ENDINGS) for name in inputs_of(args)):
        idle.append((given_of(args, ("delimiter", "decimal")), "for files that are no text"))
    for options, why in idle:
        if options:
            verb = "has" if len(options) == 1 else "have"
            warnings.warn(f"{' and '.join(options)} {verb} no effect {why}.", DataWarning, stacklevel=2)


@contextlib.contextmanager
def naming_columns(option: str) -> Iterator[None]:
    """Say which option names the columns of a second file when one of them is not there."""
    try:
        yield
    except InputError as error:
        if "There is no column" not in str(error):
            raise
        raise InputError(f"{error} The columns of this file are named by {option}.") from error


def text_options(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in TEXT_OPTIONS}


def open_survey_from(args: argparse.Namespace):
    """The survey that the options describe."""
    from fhjax.survey.read import open_survey

    misplaced = given_of(args, AREA_LEVEL_ONLY)
    if misplaced:
        raise InputError(
            f"{', '.join(misplaced)} describes a file with one row an area, but FILE is read as a survey with one row "
            "a record. Add --area-level, or leave the option out."
        )
    for option in ("weight", "outcome"):
        if getattr(args, option) is None:
            raise InputError(
                f"--{option} is needed for a survey file (one row a record). A file with one row an area "
                "is read with --area-level."
            )
    return open_survey(
        args.file,
        area=args.area,
        weight=args.weight,
        outcome=args.outcome,
        where=args.where,
        strata=args.strata,
        psu=args.psu,
        replicates=args.replicates,
        unit=args.unit,
        bounds=tuple(args.bounds) if args.bounds else None,
        replicate_factors=args.replicate_factors,
        missing=args.na,
        **text_options(args),
    )


def universe_text(survey: Any) -> str:
    """How many records the filter left, and in how many of them the outcome is observed."""
    seen = survey.num_records - survey.num_missing_outcome
    dropped = f" ({survey.num_filtered:,} dropped by the filter)" if survey.roles.where else ""
    return f"{survey.num_records:,} records{dropped}, outcome observed in {seen:,}"


def variance_from(args: argparse.Namespace):
    """The variance method that the options describe."""
    from fhjax.survey.covariates import read_numbers
    from fhjax.survey.variance import Replicates, Taylor

    if args.replicates is None:
        unused = ("replicate_method", "fay", "replicate_scale", "replicate_scales")
        given = given_of(args, unused)
        if given:
            raise InputError(f"{', '.join(given)} needs --replicates, the pattern of the replicate weights.")
        return Taylor(single_psu=args.single_psu)
    if args.replicate_method is None:
        raise InputError(
            f"--replicates needs --replicate-method, one of {', '.join(REPLICATE_METHODS)}: the same weights give "
            "standard errors that differ by a factor of 2 and more under another method. The survey's documentation "
            "names it (ACS: sdr)."
        )
    scales = None if args.replicate_scales is None else read_numbers(args.replicate_scales)
    return Replicates(
        args.replicate_method,
        fay=args.fay,
        center=args.center,
        scale=args.replicate_scale,
        scales=scales,
        empty_area=args.empty_area,
    )


def direct_from(args: argparse.Namespace, survey: Any) -> DirectEstimates:
    """Direct estimates of an opened survey under the options."""
    from fhjax.survey.covariates import read_population
    from fhjax.survey.direct import direct_estimates

    population = None
    if args.estimator == "ht":
        if args.population is None:
            raise InputError("--estimator ht needs --population FILE with the known population of every area.")
        *area, size = names(args.population_columns)
        if not area:
            raise InputError("--population-columns names the area column and then the population, such as area,N.")
        with naming_columns("--population-columns AREA,N"):
            population = read_population(args.population, area=area, column=size, **text_options(args))
    elif args.population is not None:
        raise InputError("--population is only used by --estimator ht.")
    return direct_estimates(
        survey,
        estimator=args.estimator,
        population=population,
        variance=variance_from(args),
        zero_variance=args.zero_variance,
        variance_source=getattr(args, "variance_source", "estimated"),
    )


def area_level_from(args: argparse.Namespace) -> DirectEstimates:
    """Direct estimates read from a file with one row an area."""
    from fhjax.survey.area_level import read_area_level

    misplaced = given_of(args, SURVEY_ONLY) + given_of(args, SURVEY_DEFAULTS, typed=True)
    misplaced += ["--replicate-factors"] if getattr(args, "replicate_factors", False) else []
    if misplaced:
        raise InputError(
            f"{', '.join(misplaced)} cannot be used with --area-level: a file with one row an area has no records "
            "left to weigh, filter or group. Prepare the file, or leave the option out."
        )
    by_weights = args.max_weight is not None or args.weight_total is not None
    if by_weights and args.sensitivity is not None:
        raise InputError(
            "--sensitivity and --max-weight, --weight-total say the same thing twice. Give the sensitivity of each "
            "estimate, or the weights it follows from."
        )
    sensitivity = None if by_weights else args.sensitivity or getattr(args, "default_sensitivity", None)
    bounds = getattr(args, "bounds", None)
    return read_area_level(
        args.file,
        area=args.area,
        y=args.y,
        sampling_variance=args.sampling_variance,
        n=args.n,
        max_weight=args.max_weight,
        weight_total=args.weight_total,
        sensitivity=sensitivity,
        bounds=tuple(bounds) if bounds else None,
        privacy_unit=args.unit,
        delta=getattr(args, "delta", None),
        need_sensitivity=getattr(args, "need_sensitivity", True),
        missing=args.na,
        zero_variance=args.zero_variance,
        variance_source=args.variance_source,
        **text_options(args),
    )


def covariates_from(args: argparse.Namespace, direct: DirectEstimates):
    """``(X, column names, notes)`` for the areas of ``direct``; ``(None, None, ())`` for an intercept alone."""
    from fhjax.survey.covariates import read_covariates

    if args.covariates is None and args.x is None:
        return None, None, ()
    if args.covariates is None or not args.x:
        raise InputError("--covariates FILE and --x COL,COL go together: the file and the columns to use.")
    with naming_columns("--covariates-area COL and --x COL,COL"):
        covariates = read_covariates(
            args.covariates,
            area=names(args.covariates_area),
            columns=args.x,
            labels=direct.labels,
            **text_options(args),
        )
    return covariates.X, covariates.columns, covariates.notes


def configuration(args: argparse.Namespace) -> dict[str, Any]:
    """The options as plain values, for ``run.json``."""
    return {name: value for name, value in sorted(vars(args).items()) if name not in ("run", "given")}
