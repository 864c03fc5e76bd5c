"""The kinds of arguments: files that are read or written, lists of names, and options that are given once."""

from __future__ import annotations

import argparse
import re
from typing import Any

_PIECE = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|[(),])""")


def names(text: str) -> list[str]:
    """``"race,age"`` -> ``["race", "age"]``; a comma inside brackets or quotes belongs to an expression.

    Examples:
        >>> names("race, left(SERIALNO, 4)")
        ['race', 'left(SERIALNO, 4)']
    """
    parts, depth = [""], 0
    for piece in _PIECE.split(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [name.strip() for name in parts if name.strip()]


class InFile(str):
    """A file that a command reads; every option that names one has this type, so that none is ever overwritten."""


class OutFile(str):
    """A file that a command writes."""


class OutFolder(str):
    """A folder that a command fills."""


class _Once(argparse.Action):
    """An option that is given once: the second would win in silence. What was given is kept in ``args.given``."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = getattr(namespace, "given", frozenset())
        if self.option_strings and self.dest in given:
            parser.error(
                f"{option_string} is given twice. Say it once"
                + (", with several columns separated by commas." if self.type is names else ".")
            )
        namespace.given = given | {self.dest}
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser whose options are given once, unless they say that they add up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)


def inputs_of(args: argparse.Namespace) -> list[str]:
    """Every file that the command reads."""
    found: list[str] = []
    for value in vars(args).values():
        for each in value if isinstance(value, list) else [value]:
            found += [each] if isinstance(each, InFile) else []
    return found
