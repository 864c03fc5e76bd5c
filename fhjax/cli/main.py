"""The ``fhjax`` command: one verb a module, each composing with the others through files.

Exit codes: 0 done, 1 refuted (check, audit), 2 bad input or a target not met, 3 numerical failure, 130 interrupted.
stdout carries the result, stderr progress and warnings.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

import fhjax
from fhjax.cli import audit, check, direct, doctor, fit, guarantee, release, report, trim
from fhjax.cli.arguments import Parser
from fhjax.cli.compiled import keep_compiled
from fhjax.cli.options import say_idle
from fhjax.cli.terminal import interruptible, open_pipes
from fhjax.cli.wording import for_command_line
from fhjax.errors import InputError, NumericalError

VERBS = (report, direct, fit, guarantee, trim, check, audit, release, doctor)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs; each module adds its own."""
    parser = Parser(
        prog="fhjax",
        description="How much privacy does a Fay-Herriot release already carry? Survey file in, privacy report out.",
    )
    parser.add_argument("--version", action="version", version=f"fhjax {fhjax.__version__}")
    parser.add_argument(
        "--no-compile-cache",
        action="store_true",
        help="keep nothing of what is compiled for the next command (doctor says where it is kept)",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for verb in VERBS:
        verb.add_parser(verbs)
    for subparser in verbs.choices.values():
        subparser.description = (subparser.description or "").replace("``", "")  # markup of the docstring
        subparser.epilog = (
            "Exit codes: 0 done, 1 refuted (check, audit), 2 bad input or a target not met, 3 numerical failure, 130 "
            "interrupted."
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    args = build_parser().parse_args(argv)
    if not args.no_compile_cache:
        keep_compiled()
    with warnings.catch_warnings(), interruptible() as interrupt, open_pipes():
        warnings.showwarning = _show_warning
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", category)  # between libraries, not for the user of a command
        try:
            say_idle(args)
            return args.run(args)
        except KeyboardInterrupt:
            return _interrupted(args)
        except InputError as error:
            if interrupt.came:  # the data engine reports an interrupt as an error of its own
                return _interrupted(args)
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
        except Exception:
            if interrupt.came:
                return _interrupted(args)
            raise


def _interrupted(args: argparse.Namespace) -> int:
    print(f"\nfhjax {args.verb}: interrupted; nothing was written.", file=sys.stderr)
    return 130


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"\nfhjax: warning: {for_command_line(str(message))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
