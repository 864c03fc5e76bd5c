"""``fhjax trim``: survey file in, weights out whose release meets a target rho."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
import time
from pathlib import Path

import numpy as np

from fhjax.cli import options
from fhjax.cli.progress import Steps
from fhjax.errors import InputError


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
        "--group", metavar="FILE", help="redistribute within groups of areas: a CSV with the columns area, group"
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
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for weights.parquet, caps.csv, "
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
        from fhjax.trim.plan import plan_trimming

        goal = np.full(len(problem.labels), target) if args.per_area else target
        begun = time.perf_counter()
        plan = plan_trimming(problem, target_rho=goal)
        seconds = time.perf_counter() - begun
        points, rules = None, []
        if args.frontier:
            from fhjax.trim.frontier import frontier

            points = frontier(problem)
        if args.rules:
            from fhjax.trim.classical import compare_rules

            rules = compare_rules(problem)
    with steps.step("weights, certificate, report"):
        out = Path(args.out)
        out.mkdir(parents=True, exist_ok=True)
        written = _write_weights(args, out, plan, survey)
        from_file = _rho_of_file(args, written, survey, X, columns, per_area=args.per_area)
        plan = _certified(plan, from_file, target)
        _write(args, out, plan, points, rules, from_file, seconds, survey, started)
    from fhjax.report.trimming import plan_text

    print(plan_text(plan))
    print(f"\nReport: {out / 'report.html'}")
    sys.stdout.flush()
    if not plan.certified:
        print(f"fhjax trim: {plan.statements[-1]}", file=sys.stderr)
        return 2
    return 0


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
        **options.text_options(args),
    )


def _rho_of_file(args: argparse.Namespace, written: Path, survey, X, columns, *, per_area: bool) -> float:
    """rho by the plain route of ``fhjax report``, from the written file, with nothing taken from the search."""
    from fhjax.assessment import assess
    from fhjax.model.fit import from_direct, given
    from fhjax.privacy.guarantee import guarantees
    from fhjax.survey.trimmed_file import trimmed_names

    again = argparse.Namespace(**vars(args))
    weight, replicates = trimmed_names(survey)
    again.file, again.weight = [str(written)], weight
    again.replicates = ", ".join(replicates) if replicates else None
    again.delimiter = again.decimal = again.encoding = None
    direct = options.direct_from(again, options.open_survey_from(again))
    if args.model_variance is None:
        result = assess(direct, X=X, columns=columns, method=args.method).guarantees
    else:
        data = from_direct(direct, X=X, columns=columns)
        result = guarantees(data, given(data, args.model_variance), direct.sensitivity)
    if per_area:
        return float(np.max(np.asarray(result.per_area_rho)))
    return float((result.joint_independent if args.joint == "independent" else result.joint_correlated).rho)


def _certified(plan, from_file: float, target: float):
    """The plan with the certificate from the written file. Frozen variances have their own, and the file's is shown."""
    if plan.variances == "frozen" or plan.objective == "weights":
        note = (
            f"Recomputed from the written weights with every variance re-estimated, rho is {from_file:.6g}, "
            f"{'within' if from_file <= target else 'ABOVE'} the target."
        )
        return dataclasses.replace(plan, statements=(note, *plan.statements))
    if plan.certified and from_file > target:
        note = f"Recomputed from the written weights rho is {from_file:.17g}, above the target: not certified."
        return dataclasses.replace(plan, certified=False, rho_after=from_file, statements=(*plan.statements, note))
    return plan


def _write(args, out: Path, plan, points, rules, from_file: float, seconds: float, survey, started) -> None:
    from fhjax.report.numbers import json_safe
    from fhjax.report.provenance import collect_provenance
    from fhjax.report.trimming import caps_table, frontier_table, plan_summary, rules_table, trimming_page

    caps_table(plan).to_csv(out / "caps.csv", index=False, lineterminator="\n")
    if points is not None:
        frontier_table(points).to_csv(out / "frontier.csv", index=False, lineterminator="\n")
    if rules:
        rules_table(rules).to_csv(out / "rules.csv", index=False, lineterminator="\n")
    summary = plan_summary(plan) | {"rho_from_written_weights": from_file, "search_seconds": round(seconds, 3)}
    (out / "summary.json").write_text(json.dumps(json_safe(summary), indent=2) + "\n", encoding="utf-8")
    page = trimming_page(plan, frontier=points, rules=rules, title=args.title)
    (out / "report.html").write_text(page, encoding="utf-8")
    files = [{"path": file.path, "bytes": file.size, "sha256": file.sha256} for file in survey.files]
    run_record = collect_provenance(options.configuration(args), files, started)
    (out / "run.json").write_text(json.dumps(json_safe(run_record), indent=2) + "\n", encoding="utf-8")
