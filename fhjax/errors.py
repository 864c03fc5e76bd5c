"""What can go wrong, each with a sentence a user can act on.

Two families. *Bad input* is found before any number is computed and raises :class:`InputError` (exit code 2 on the
command line). *Numerical failure* happens inside compiled kernels, which cannot raise without aborting a whole batch,
so they return a :class:`Status`; the public functions raise :class:`NumericalError` (exit code 3) on a bad one.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator, Sequence


class FhjaxError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(FhjaxError, ValueError):
    """The data or an option cannot mean what was asked: nothing was computed. Command-line exit code 2.

    Where the message is about areas, strata or units, ``what`` says what they are or have, ``labels`` names all of them
    (the message only the first five), and ``way_out`` says what to do: for a program that catches the error.

    Examples:
        >>> import fhjax
        >>> try:
        ...     fhjax.area_data([0.1, 0.2, 0.3], [0.01, 0.0, 0.0], labels=["a", "b", "c"])
        ... except fhjax.InputError as error:
        ...     print(error.what, error.labels)
        have a sampling variance of 0 ('b', 'c')
    """

    def __init__(self, message: str, *, what: str = "", labels: Sequence[object] = (), way_out: str = "") -> None:
        super().__init__(message)
        self.what, self.labels, self.way_out = what, tuple(str(label) for label in labels), way_out


class NumericalError(FhjaxError, ArithmeticError):
    """The input was acceptable but the computation could not be completed. Command-line exit code 3."""


class DataWarning(UserWarning):
    """Something about the data or the options that a person must judge; the same sentence stands in the report."""


class Status(enum.IntEnum):
    """Outcome of one numerical problem. Kernels return it as an integer array, one code a problem."""

    OK = 0
    AT_BOUNDARY = 1
    NOT_CONVERGED = 2
    SINGULAR = 3
    NOT_FINITE = 4
    BAD_INPUT = 5

    @property
    def failed(self) -> bool:
        return self >= Status.NOT_CONVERGED

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Status.OK: "Converged.",
    Status.AT_BOUNDARY: (
        "The model variance is estimated as exactly 0: the areas do not differ by more than their sampling variances "
        "explain, so every small-area estimate equals its regression prediction. This is an answer, not a failure."
    ),
    Status.NOT_CONVERGED: (
        "The iteration for the model variance stopped before it converged. Look for sampling variances that differ by "
        "many orders of magnitude or for an outcome far outside the rest, or try another fitting method (ml, moment, "
        "pr)."
    ),
    Status.SINGULAR: "The covariates are collinear: drop the column that the others determine.",
    Status.NOT_FINITE: (
        "A value became infinite or undefined during the fit: check the scale of the outcome and covariates."
    ),
    Status.BAD_INPUT: (
        "The input cannot be meant: a variance or sensitivity that is negative or missing, or a posterior of other "
        "data. The same call outside jit, vmap and grad says which and where."
    ),
}


def first_few(labels: Iterable[object], total: int | None = None, limit: int = 5) -> str:
    """``'a', 'b', 'c', 'd', 'e' and 7 more``: how every message lists the things it is about."""
    names = [str(label) for label in labels]
    count = len(names) if total is None else total
    shown = ", ".join(repr(name) for name in names[:limit])
    rest = count - min(len(names), limit)
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def complain(what: str, labels: Sequence[object], way_out: str, *, noun: str = "area") -> InputError:
    """An :class:`InputError` in the house form: what, how many, the first five by label, and the way out.

    Examples:
        >>> str(complain("have a sampling variance of 0", ["A", "B"], "Pass zero_variance='exclude'."))
        "2 areas have a sampling variance of 0: 'A', 'B'. Pass zero_variance='exclude'."
        >>> str(complain("have a sampling variance of 0", ["A"], "Exclude it."))
        "1 area has a sampling variance of 0: 'A'. Exclude it."
    """
    count = len(labels)
    if count == 1:
        plural = noun
    elif noun.endswith("y"):
        plural = noun[:-1] + "ies"
    else:
        plural = "strata" if noun == "stratum" else noun + "s"
    said = what
    if count == 1:
        verb, _, rest = what.partition(" ")
        said = f"{_SINGULAR.get(verb, verb)} {rest}"
    message = f"{count:,} {plural} {said}: {first_few(labels)}. {way_out}"
    return InputError(message, what=what, labels=labels, way_out=way_out)


_SINGULAR = {
    "have": "has",
    "are": "is",
    "do": "does",
    "hold": "holds",
    "lie": "lies",
    "occur": "occurs",
    "appear": "appears",
}


class Problems:
    """Gathers what is wrong with an input, so that all of it is said in one go and not one run after the other.

    Examples:
        >>> problems = Problems()
        >>> with problems.caught():
        ...     raise InputError("The weight is missing.")
        >>> problems.add("The area is missing.")
        >>> try:
        ...     problems.raise_if_any()
        ... except InputError as error:
        ...     print(error)
        2 problems:
          1. The weight is missing.
          2. The area is missing.
    """

    def __init__(self) -> None:
        self.found: list[InputError] = []

    def add(self, message: str | InputError) -> None:
        self.found.append(message if isinstance(message, InputError) else InputError(message))

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Keep an :class:`InputError` for later, and go on."""
        try:
            yield
        except InputError as error:
            self.found.append(error)

    def raise_if_any(self) -> None:
        """One problem is raised as it is, several as a numbered list."""
        found = list({str(error): error for error in self.found}.values())
        if len(found) == 1:
            raise found[0]
        if found:
            listed = "".join(f"\n  {i}. {error}" for i, error in enumerate(found, 1))
            raise InputError(f"{len(found)} problems:{listed}")
