"""``fhjax trim``: survey file in, weights out whose release meets a target rho."""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
import time
import warnings
from pathlib import Path

from fhjax.cli import arguments, options
from fhjax.cli.progress import Steps
from fhjax.errors import DataWarning, InputError
from fhjax.files import Staging

RESULTS = ("weights.parquet", "caps.csv", "summary.json", "report.html", "run.json", "frontier.csv", "rules.csv")
STALE = ("frontier.csv", "rules.csv")


def add_parser(verbs: argparse._SubParsersAction) -> None:
    parser = verbs.add_parser("trim", help="weight caps that meet a target rho", description=__doc__)
    options.add_file_options(parser, "survey file")
    options.add_survey_options(parser)
    options.add_covariate_options(parser)
    options.add_fit_option(parser)
    goal = parser.add_argument_group("target")
    goal.add_argument("--target-rho", type=float, metavar="RHO", help="rho that the release may cost at most")
    goal.add_argument("--target-epsilon", type=float, metavar="E", help="or an epsilon at --delta (simple conversion)")
    goal.add_argument("--delta", type=float, metavar="D")
    goal.add_argument("--joint", choices=("correlated", "independent"), default="correlated",
                      help="one draw of the whole posterior (default), or the areas drawn independently")  # fmt: skip
    goal.add_argument("--per-area", action="store_true", help="the target is for publishing each area's draw by itself")
    how = parser.add_argument_group("how weights are trimmed")
    how.add_argument("--mode", choices=("area", "mean", "median", "absolute"), default="area",
                     help="a cap for each area (default), one multiple of each area's mean weight after trimming or "
                     "median weight, or one absolute cap")  # fmt: skip
    how.add_argument("--redistribution", choices=("none", "proportional", "additive"), default="none",
                     help="what becomes of the weight that is cut off (default: dropped)")  # fmt: skip
    how.add_argument(
        "--group",
        type=arguments.InFile,
        metavar="FILE",
        help="redistribute within groups of areas: a CSV with the columns area, group",
    )
    how.add_argument("--variances", choices=("reestimated", "frozen"), default="reestimated",
                     help="design and model variances after trimming (default), or held as before")  # fmt: skip
    how.add_argument("--objective", choices=("eblup", "direct", "draw", "weights"), default="eblup",
                     help="whose mean squared error is least; 'weights' looks at no outcome")  # fmt: skip
    how.add_argument(
        "--model-variance", type=float, metavar="V", help="a public model variance, for --objective weights"
    )
    how.add_argument("--element-variance", type=float, metavar="S2", help="a public variance of one outcome "
                     "(default with --objective weights: a quarter of the squared range)")  # fmt: skip
    parser.add_argument("--frontier", action="store_true", help="also rho against accuracy over a path of targets")
    parser.add_argument("--rules", action="store_true", help="also the classical trimming rules and the rho they give")
    parser.add_argument("--title", help="title of the report")
    parser.add_argument("--out", required=True, type=arguments.OutFolder, metavar="DIR",
                        help="folder for weights.parquet, caps.csv, "
                        "summary.json, report.html and run.json")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trim, write, and certify from the file that was written. Exit 2 when the target is not met."""
    from fhjax.trimming import target_of

    started = datetime.datetime.now(datetime.UTC)
    target = target_of(args.target_rho, args.target_epsilon, args.delta)
    if args.estimator != "hajek":
        raise InputError(
            "Trimming is for weighted means (--estimator hajek): a Horvitz-Thompson mean changes its target."
        )
    if args.delta is not None and args.target_epsilon is None:
        raise InputError("--delta has no effect without --target-epsilon: the target is a rho. Leave it out.")
    with Staging(arguments.inputs_of(args)) as staging:
        out = staging.folder(args.out, RESULTS, stale=STALE)
        plan, command = _trim(args, out, target, started)
    from fhjax.report.trimming import plan_text

    print(plan_text(plan))
    print(f"\nReport: {Path(args.out) / 'report.html'}")
    print(f"Read the trimmed weights with:\n  {command}")
    if not plan.certified:
        print(f"fhjax trim: {plan.statements[-1]}", file=sys.stderr)
        return 2
    return 0


def _trim(args: argparse.Namespace, out: Path, target: float, started: datetime.datetime):
    """Trim, write into ``out``, certify from what was written; the plan, and the command that reads the weights."""
    import numpy as np

    steps = Steps(5, quiet=args.quiet)
    with steps.step("reading and checking the survey"):
        survey = options.open_survey_from(args)
    with steps.step("direct estimates and design variances"):
        direct = options.direct_from(args, survey)
        X, columns, _ = options.covariates_from(args, direct)
    with steps.step("sums by distinct weight"):
        from fhjax.trimming import problem_of

        problem = problem_of(
            survey,
            variance=options.variance_from(args),
            zero_variance=args.zero_variance,
            direct=direct,
            X=None if X is None else np.column_stack([np.ones(len(X)), X]),
            joint=args.joint,
            mode=args.mode,
            redistribution=args.redistribution,
            group=_groups(args.group, direct.labels),
            variances=args.variances,
            objective=args.objective,
            method=args.method,
            model_variance=args.model_variance,
            element_variance=args.element_variance,
            per_area_targets=args.per_area,
        )
    with steps.step("search for caps"):
        from fhjax.caps.plan import plan_trimming

        goal = np.full(len(problem.labels), target) if args.per_area else target
        begun = time.perf_counter()
        plan = plan_trimming(problem, target_rho=goal)
        seconds = time.perf_counter() - begun
        points, rules = None, []
        if args.frontier:
            from fhjax.caps.frontier import frontier

            points = frontier(problem)
        if args.rules:
            from fhjax.caps.classical import compare_rules

            rules = compare_rules(problem)
    with steps.step("weights, certificate, report"):
        from fhjax.trimming import certified_from_file

        written = _write_weights(args, out, plan, survey)
        again = _of_written(args, survey, written)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # what there is to say of the file was said when it was read
            estimates = options.direct_from(again, options.open_survey_from(again))
        plan = certified_from_file(
            plan, estimates, X=X, columns=columns, method=args.method, model_variance=args.model_variance
        )
        command = _command(_of_written(args, survey, Path(args.out) / written.name))
        _write(args, out, plan, points, rules, command, seconds, survey, started)
    return plan, command


def _groups(path: str | None, labels) -> list[str] | None:
    if path is None:
        return None
    import pandas as pd

    table = pd.read_csv(path, dtype=str)
    if not {"area", "group"} <= set(table.columns):
        raise InputError(f"The file {path} must have the columns area and group.")
    groups = dict(zip(table["area"], table["group"], strict=True))
    missing = [label for label in labels if label not in groups]
    if missing:
        from fhjax.errors import complain

        raise complain(f"have no group in {path}", missing, "Add them.")
    return [groups[label] for label in labels]


def _write_weights(args: argparse.Namespace, out: Path, plan, survey) -> Path:
    from fhjax.survey.trimmed_file import write_trimmed_weights

    return write_trimmed_weights(
        args.file,
        out / "weights.parquet",
        plan,
        survey,
        area=args.area,
        weight=args.weight,
        outcome=args.outcome,
        where=args.where,
        unit=args.unit,
        replicates=args.replicates,
        replicate_factors=args.replicate_factors,
        **options.text_options(args),
    )


def _of_written(args: argparse.Namespace, survey, written: Path) -> argparse.Namespace:
    """The options that read the written file with its trimmed weights."""
    from fhjax.survey.trimmed_file import trimmed_names

    again = argparse.Namespace(**vars(args))
    weight, replicates = trimmed_names(survey)
    again.file, again.weight = [str(written)], weight
    again.replicates = _pattern(replicates) if replicates else None
    again.replicate_factors = False  # the written replicate columns are weights
    again.delimiter = again.decimal = again.encoding = None
    return again


def _pattern(names: tuple[str, ...]) -> str:
    """``PWGTP1_trimmed..PWGTP80_trimmed`` where the names run so, else all of them."""
    from fhjax.survey.roles import replicate_columns

    span = f"{names[0]}..{names[-1]}"
    try:
        if replicate_columns(span, names, "")[0] == names:
            return span
    except InputError:
        pass
    return ", ".join(names)


def _command(args: argparse.Namespace) -> str:
    """The `fhjax report` command with these options, to be pasted."""
    words = ["fhjax", "report", *args.file, "--area", ",".join(args.area)]
    for name in ("weight", "outcome", "strata", "psu", "unit", "replicates", "replicate_method", "fay",
                 "replicate_scale", "replicate_scales", "covariates", "covariates_area"):  # fmt: skip
        value = getattr(args, name)
        if value is not None and not (name == "covariates_area" and args.covariates is None):
            words += ["--" + name.replace("_", "-"), str(value)]
    for condition in args.where or ():
        words += ["--where", condition]
    for codes in args.na or ():
        words += ["--na", codes]
    if args.bounds:
        words += ["--bounds", *(f"{bound:g}" for bound in args.bounds)]
    if args.x:
        words += ["--x", ",".join(args.x)]
    for name, default in (
        ("zero_variance", "error"),
        ("single_psu", "error"),
        ("center", "full"),
        ("empty_area", "error"),
    ):
        if getattr(args, name) != default:
            words += ["--" + name.replace("_", "-"), getattr(args, name)]
    if args.method != "reml":
        words += ["--method", args.method]
    return shlex.join([*words, "--out", str(Path(args.out) / "trimmed-report")])


def _write(args, out: Path, plan, points, rules, command: str, seconds: float, survey, started) -> None:
    from fhjax.report.numbers import json_safe
    from fhjax.report.provenance import collect_provenance
    from fhjax.report.trimming import caps_table, frontier_table, plan_summary, rules_table, trimming_page

    caps_table(plan).to_csv(out / "caps.csv", index=False, lineterminator="\n")
    if points is not None:
        frontier_table(points).to_csv(out / "frontier.csv", index=False, lineterminator="\n")
    if rules:
        rules_table(rules).to_csv(out / "rules.csv", index=False, lineterminator="\n")
    summary = plan_summary(plan) | {"search_seconds": round(seconds, 3), "read_the_weights_with": command}
    (out / "summary.json").write_text(json.dumps(json_safe(summary), indent=2) + "\n", encoding="utf-8")
    page = trimming_page(plan, frontier=points, rules=rules, title=args.title)
    (out / "report.html").write_text(page, encoding="utf-8")
    files = [{"path": file.path, "bytes": file.size, "sha256": file.sha256} for file in survey.files]
    run_record = collect_provenance(options.configuration(args), files, started)
    (out / "run.json").write_text(json.dumps(json_safe(run_record), indent=2) + "\n", encoding="utf-8")
