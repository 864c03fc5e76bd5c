"""Messages in the words of the command line: the package names its Python arguments, a shell user types options."""

from __future__ import annotations

import re

#: (what the package writes, what a user of the command line types), in the order in which they are tried.
_SPELLINGS = (
    (r"Taylor\(single_psu='(\w+)'\), '", r"--single-psu \1, '"),
    (r"Taylor\(single_psu='(\w+)'\)", r"--single-psu \1"),
    (r"Replicates\(\.\.\., empty_area='(\w+)'\)", r"--empty-area \1"),
    (r"use Taylor\(\)", "leave --replicates out for Taylor linearisation"),
    (r"bounds=\(lo, hi\)", "--bounds LO HI"),
    (r"replicate_factors=True", "--replicate-factors"),
    (r"missing=\{\.\.\.\}", "--na COL=CODE"),
    (r"\bna=(?=\S)", "--na "),
    (r"unit='(\w+)'", r"--unit \1"),
    (r"pass allow_zero_variance=True", "keep them with --zero-variance keep"),
    (r"where=(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')", r"--where \1"),
    (r"method=['\"](fay)['\"]", r"--replicate-method \1"),
    (r"method=(['\"])(reml|ml|moment|pr)\1", r"--method \2"),
    (r"decimal=','", "--decimal ,"),
    (r"encoding='([\w-]+)'", r"--encoding \1"),
    (r"zero_variance='(\w+)'", r"--zero-variance \1"),
    (r"single_psu='(\w+)'", r"--single-psu \1"),
    (r"\bmax_weight \(", "--max-weight ("),
    (r"\bweight_total \(", "--weight-total ("),
    (r"Give a column sensitivity", "Give a column --sensitivity"),
    (r"give delta, or n\.", "give --delta D, or the column of counts with --n COL."),
    (r"^zero_variance must be", "--zero-variance must be"),
)


def for_command_line(message: str) -> str:
    """The message with Python arguments spelled as options.

    Examples:
        >>> for_command_line("Choose zero_variance='exclude', or pass decimal=','.")
        'Choose --zero-variance exclude, or pass --decimal ,.'
    """
    for python, option in _SPELLINGS:
        message = re.sub(python, option, message)
    return message
