"""Area-level input, checked while it is still plain numbers: every complaint names areas or columns and a way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.entrance import in_order, index_of, is_concrete, refuse_masked, require_float64
from fhjax.errors import InputError, complain, first_few
from fhjax.model.basis import COLLINEAR
from fhjax.records import AreaData, DirectEstimates, FloatArray, Labels, NumberedLabels

INTERCEPT = "(Intercept)"


def area_data(
    y: npt.ArrayLike,
    sampling_variance: npt.ArrayLike,
    X: npt.ArrayLike | None = None,
    *,
    labels: Sequence[object] | None = None,
    columns: Sequence[str] | None = None,
    variance_source: str = "estimated",
    intercept: bool = True,
    allow_zero_variance: bool = False,
    mask: npt.ArrayLike | None = None,
) -> AreaData:
    """Check direct estimates, sampling variances and covariates, and gather them for a fit.

    Args:
        y: (m,) direct estimates, outcome units.
        sampling_variance: (m,) design variances, outcome units squared, above 0.
        X: (m, p) or (m,) covariates, without the intercept when ``intercept`` is true. None: an intercept alone.
        labels: (m,) names of the areas, for messages; "area 1", ... when missing. A pandas Series or DataFrame whose
            index names areas gives them, and is put in their order.
        columns: names of the columns of ``X``; x1, x2, ... when missing.
        variance_source: ``"estimated"`` from the same confidential data, or ``"public"``.
        intercept: put a column of ones first.
        allow_zero_variance: keep areas whose sampling variance is 0. Their estimate is then y exactly, their posterior
            variance 0 and their privacy loss infinite.
        mask: (m,) False for rows that are no areas, such as those of ``direct.usable`` inside ``jit``.

    Raises:
        InputError: shapes that do not match, values that are missing or infinite, negative or zero variances, repeated
            labels, no more areas than columns, or collinear columns. Inside ``jit``, ``vmap`` and ``grad`` only shapes
            and names are checked, because the values are not known; what is fitted to them has a ``status``.

    Source: docs/derivations.md, sections 1 and 14.

    Examples:
        >>> from fhjax.model.checks import area_data
        >>> y, variance, age = [0.1, 0.3, 0.2, 0.4], [0.01, 0.02, 0.01, 0.02], [1.0, 2.0, 3.0, 5.0]
        >>> data = area_data(y, variance, age, columns=["age"])
        >>> data.columns, data.X.shape
        (('(Intercept)', 'age'), (4, 2))
    """
    require_float64()
    if mask is not None or not is_concrete(y, sampling_variance, X):
        if is_concrete(y, sampling_variance, X, mask):
            rows = np.flatnonzero(np.asarray(mask))
            part = [None if values is None else np.asarray(values)[rows] for values in (y, sampling_variance, X)]
            area_data(
                *part,  # pyright: ignore[reportArgumentType]
                labels=None if labels is None else [list(labels)[i] for i in rows],
                columns=columns,
                intercept=intercept,
                allow_zero_variance=allow_zero_variance,
            )
        return _unchecked(y, sampling_variance, X, labels, columns, variance_source, intercept, mask)
    order: Any = _index_of(labels, y, sampling_variance, X)
    y, sampling_variance, X = (
        in_order(values, order, name) for values, name in ((y, "y"), (sampling_variance, "sampling_variance"), (X, "X"))
    )
    direct = _vector(y, "y")
    psi = _vector(sampling_variance, "sampling_variance")
    m = direct.shape[0]
    if psi.shape[0] != m:
        raise InputError(f"y has {m:,} values and sampling_variance {psi.shape[0]:,}: one of each is needed per area.")
    covariates, names = _covariates(X, m, columns)
    names_of_areas = _labels(order, m)
    _check_source(variance_source)

    def refuse(bad: npt.NDArray[np.bool_], what: str, way_out: str) -> None:
        if np.any(bad):
            raise complain(what, names_of_areas.where(bad), way_out)

    refuse(~np.isfinite(direct), "have a direct estimate y that is missing or infinite", "Leave them out.")
    refuse(
        ~np.isfinite(psi),
        "have a sampling variance that is missing or infinite",
        "Leave them out, or give a variance, for example from a generalised variance function.",
    )
    refuse(psi < 0, "have a negative sampling variance", "Give variances, not standard errors or logarithms.")
    if not allow_zero_variance:
        refuse(
            psi == 0,
            "have a sampling variance of 0",
            "Leave them out, give a variance, or pass allow_zero_variance=True: their privacy loss is then infinite.",
        )
    refuse(
        ~np.all(np.isfinite(covariates), axis=1),
        "have a covariate that is missing or infinite",
        "Fill in the covariate or leave the areas out.",
    )
    if intercept:
        constant = [j for j in range(covariates.shape[1]) if m and np.all(covariates[:, j] == covariates[0, j])]
        if constant:
            raise InputError(
                f"Column {names[constant[0]]!r} is constant and stands beside the intercept that is added. "
                "Drop the column or pass intercept=False."
            )
        covariates = np.concatenate([np.ones((m, 1)), covariates], axis=1)
        names = (INTERCEPT, *names)
    _refuse_twice(names)
    _check_rank(covariates, names)
    return AreaData(
        y=jnp.asarray(direct),
        sampling_variance=jnp.asarray(psi),
        X=jnp.asarray(covariates),
        labels=names_of_areas if isinstance(names_of_areas, Labels) else None,
        columns=names,
        variance_source=variance_source,
    )


def from_direct(
    direct: DirectEstimates,
    X: npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    *,
    intercept: bool = True,
    allow_zero_variance: bool | None = None,
) -> AreaData:
    """The area-level input from direct survey estimates; ``X`` has a row for each of ``direct.labels``, in their order.

    Args:
        direct: m areas.
        X: (m, p) public covariates without the intercept, or None.
        columns: names of the columns of ``X``.
        intercept: put a column of ones first.
        allow_zero_variance: keep areas whose design variance is 0; by default those that the estimates flag as kept.

    Raises:
        InputError: as :func:`area_data`.

    Examples:
        >>> import numpy as np
        >>> from fhjax.model.checks import from_direct
        >>> from fhjax.records import DirectEstimates, Labels
        >>> direct = DirectEstimates(
        ...     labels=Labels(["A", "B", "C"]), y=np.array([0.1, 0.2, 0.4]),
        ...     sampling_variance=np.array([0.01, 0.01, 0.02]), sensitivity=np.array([0.1, 0.1, 0.1]))
        >>> from_direct(direct).num_areas
        3
    """
    if allow_zero_variance is None:
        allow_zero_variance = bool(np.any(direct.flags.get("zero_variance", False)))
    return area_data(
        direct.y,
        direct.sampling_variance,
        X,
        labels=direct.labels,
        columns=columns,
        variance_source=direct.variance_source,
        intercept=intercept,
        allow_zero_variance=allow_zero_variance,
        mask=direct.usable,
    )


def _unchecked(
    y: Any,
    sampling_variance: Any,
    X: Any,
    labels: Sequence[object] | None,
    columns: Sequence[str] | None,
    variance_source: str,
    intercept: bool,
    mask: Any,
) -> AreaData:
    """The areas inside a transformation or with rows that only pad: only shapes and names are checked."""
    _check_source(variance_source)
    direct, psi = jnp.asarray(y, dtype=float), jnp.asarray(sampling_variance, dtype=float)
    for name, values in (("y", direct), ("sampling_variance", psi)):
        if values.ndim != 1:
            raise InputError(f"{name} must have one dimension, one value an area, not the shape {values.shape}.")
    m = direct.shape[0]
    if psi.shape[0] != m:
        raise InputError(f"y has {m:,} values and sampling_variance {psi.shape[0]:,}: one of each is needed per area.")
    covariates = jnp.zeros((m, 0)) if X is None else jnp.asarray(X, dtype=float)
    covariates = covariates[:, None] if covariates.ndim == 1 else covariates
    names = _names_of(covariates.shape, m, columns)
    if intercept:
        covariates, names = jnp.concatenate([jnp.ones((m, 1)), covariates], axis=1), (INTERCEPT, *names)
    _refuse_twice(names)
    _check_size(m, names)
    return AreaData(
        y=direct,
        sampling_variance=psi,
        X=covariates,
        mask=None if mask is None else jnp.asarray(mask, dtype=bool),
        labels=None if labels is None else Labels(_labels(labels, m)),
        columns=names,
        variance_source=variance_source,
    )


def _check_source(variance_source: str) -> None:
    if variance_source not in ("estimated", "public"):
        raise InputError(f'variance_source must be "estimated" or "public", not {variance_source!r}.')


def _refuse_twice(names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        raise InputError(f"Column names are repeated: {first_few(twice)}. Give each column its own name.")


def _index_of(labels: Sequence[object] | None, *values: Any) -> Any:
    """The labels given, or those that the first labelled Series carries."""
    if labels is not None:
        return labels
    return next((own for own in map(index_of, values) if own is not None), None)


def _numbers(values: npt.ArrayLike, name: str) -> FloatArray:
    refuse_masked(values, name)
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise TypeError("complex numbers")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers only: {error}.") from error


def _vector(values: npt.ArrayLike, name: str) -> FloatArray:
    array = _numbers(values, name)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, one value an area, not the shape {array.shape}.")
    return array


def _covariates(X: npt.ArrayLike | None, m: int, columns: Sequence[str] | None) -> tuple[FloatArray, tuple[str, ...]]:
    if X is None:
        array = np.zeros((m, 0))
    else:
        array = _numbers(X, "X")
        array = array[:, None] if array.ndim == 1 else array
    return array, _names_of(array.shape, m, columns)


def _names_of(shape: tuple[int, ...], m: int, columns: Sequence[str] | None) -> tuple[str, ...]:
    if len(shape) != 2 or shape[0] != m:
        raise InputError(f"X must have one row for each of the {m:,} areas, not the shape {shape}.")
    if columns is None:
        return tuple(f"x{j + 1}" for j in range(shape[1]))
    if isinstance(columns, str) or len(columns) != shape[1]:
        count = 1 if isinstance(columns, str) else len(columns)
        raise InputError(f"X has {shape[1]} columns and columns has {count} names: give a list with one name for each.")
    return tuple(str(column) for column in columns)


def _labels(labels: Sequence[object] | None, m: int) -> Labels | NumberedLabels:
    if labels is None:
        return NumberedLabels(m, first=1, prefix="area ")
    result = labels if isinstance(labels, Labels) else Labels(labels)
    if len(result) != m:
        raise InputError(f"There are {m:,} areas and {len(result):,} labels: give one label for each area.")
    if len(set(result)) != m:
        seen: set[str] = set()
        twice = dict.fromkeys(label for label in result if label in seen or seen.add(label))
        raise complain("appear more than once", list(twice), "Sum or rename them: one row an area.", noun="label")
    return result


def _check_rank(X: FloatArray, columns: tuple[str, ...]) -> None:
    _check_size(X.shape[0], columns)
    # Gram-Schmidt, twice, on columns of length 1: the share of a column that the earlier ones leave unexplained.
    basis: list[FloatArray] = []
    for j, name in enumerate(columns):
        size = np.max(np.abs(X[:, j]))
        if size == 0:
            raise InputError(f"Column {name!r} is 0 in all areas. Drop it.")
        v = X[:, j] / size
        v = v / np.linalg.norm(v)
        for q in basis * 2:
            v = v - (q @ v) * q
        rest = np.linalg.norm(v)
        if rest <= COLLINEAR:
            raise InputError(
                f"Column {name!r} is collinear with the columns before it ({', '.join(columns[:j])}). Drop it."
            )
        basis.append(v / rest)


def _check_size(m: int, columns: tuple[str, ...]) -> None:
    p = len(columns)
    if p == 0:
        raise InputError("There is no covariate and no intercept. Pass X, or intercept=True.")
    if m <= p:
        raise InputError(
            f"{m} area{'s' if m != 1 else ''} cannot carry {p} column{'s' if p != 1 else ''}"
            f" ({', '.join(columns)}): the model needs more areas than columns. Use fewer columns or more areas."
        )
