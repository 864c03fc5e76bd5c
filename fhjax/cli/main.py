"""The ``fhjax`` command: one verb a module, each composing with the others through files.

Exit codes: 0 done, 1 refuted (check, audit), 2 bad input, 3 numerical failure. stdout carries the result,
stderr progress and warnings.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

import fhjax
from fhjax.cli import audit, check, direct, doctor, fit, guarantee, release, report, trim
from fhjax.cli.wording import for_command_line
from fhjax.errors import InputError, NumericalError

VERBS = (report, direct, fit, guarantee, trim, check, audit, release, doctor)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs; each module adds its own."""
    parser = argparse.ArgumentParser(
        prog="fhjax",
        description="How much privacy does a Fay-Herriot release already carry? Survey file in, privacy report out.",
    )
    parser.add_argument("--version", action="version", version=f"fhjax {fhjax.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        verb.add_parser(verbs)
    for subparser in verbs.choices.values():
        subparser.description = (subparser.description or "").replace("``", "")  # markup of the docstring
        subparser.epilog = "Exit codes: 0 done, 1 refuted (check, audit), 2 bad input, 3 numerical failure."
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    args = build_parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return args.run(args)
        except InputError as error:
            print(f"fhjax {args.verb}: {for_command_line(str(error))}", file=sys.stderr)
            return 2
        except OSError as error:
            what = error.strerror or type(error).__name__
            where = f" {str(error.filename)!r}" if error.filename else ""
            print(f"fhjax {args.verb}: cannot read or write{where}: {what}.", file=sys.stderr)
            return 2
        except NumericalError as error:
            print(f"fhjax {args.verb}: numerical failure: {for_command_line(str(error))}", file=sys.stderr)
            return 3


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"\nfhjax: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
