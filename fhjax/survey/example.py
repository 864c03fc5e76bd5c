"""The survey file that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fhjax.errors import InputError

EXAMPLES = {"nhanes0910_cholesterol": "nhanes0910_cholesterol.csv.gz"}


def example(name: str) -> Path:
    """The path of a data file that comes with the package; on the command line write ``example:NAME``.

    ``nhanes0910_cholesterol``: NHANES 2009-2010 (public domain), high cholesterol by race, age group and sex, with
    strata, PSUs and examination weights.

    Raises:
        InputError: For any other name.

    Examples:
        >>> example("nhanes0910_cholesterol").name
        'nhanes0910_cholesterol.csv.gz'
    """
    if name not in EXAMPLES:
        raise InputError(f"There is no example {name!r}. There is {', '.join(map(repr, EXAMPLES))}.")
    return Path(str(resources.files("fhjax") / "data" / EXAMPLES[name]))
