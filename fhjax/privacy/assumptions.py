"""The sentences that stand beside every guarantee: which data sets are compared, and what a reader must accept."""

from __future__ import annotations

from fhjax.entrance import is_concrete
from fhjax.errors import InputError
from fhjax.records import AreaData, FayHerriotFit, Posterior

_UNIVERSE = (
    "The universe, the weights, the list of areas and the covariates are public and fixed: a neighbouring data set "
    "changes outcomes, not who is in the file, nor which outcomes are observed."
)
_ONE_AREA = "Sampling errors are independent between areas, and a privacy unit lies in one area."
_BOUNDS = "Every outcome lies within its declared bounds."
_SAMPLING_INVARIANT = (
    "The sampling variances were estimated from the same confidential data and are treated as invariants: they are "
    "held equal for neighbouring data sets, so what they reveal is not covered by this guarantee."
)
_MODEL_INVARIANT = (
    "The model variance was estimated from the same confidential data and is treated as an invariant: it is held equal "
    "for neighbouring data sets, so what it reveals is not covered by this guarantee."
)
_AT_ZERO = (
    "The model variance is exactly 0, so the joint draw lies on the regression surface, which shows it. For a "
    "neighbouring data set it may be estimated above 0, and a draw then lies elsewhere: without the invariant no "
    "finite rho holds."
)
GAUSSIAN_PRIOR = (
    "The area means have a Gaussian prior that, given its variances, does not depend on the confidential outcomes."
)


def neighbours_sentence(privacy_unit: str = "record") -> str:
    """Which two data sets every number compares."""
    if privacy_unit == "record":
        return "bounded neighbours: two data sets that differ in the outcome of one record, replaced by any other"
    return (
        f"bounded neighbours: two data sets that differ in the outcomes of one privacy unit ({privacy_unit}: all its "
        "records), replaced by any others"
    )


def release_assumptions(
    data: AreaData,
    posterior: Posterior | FayHerriotFit,
    model_variance_source: str | None = None,
    outcome_bounds: tuple[float, float] | None = None,
    cautions: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The sentences for these data; a model variance is public only where it was given or is said to be."""
    if model_variance_source is None:
        given = isinstance(posterior, FayHerriotFit) and posterior.method == "given"
        model_variance_source = "public" if given else "estimated"
    sentences = assumption_sentences(data.variance_source, model_variance_source, outcome_bounds)
    if not is_concrete(posterior.model_variance):
        sentences = (*sentences, f"Where the model variance is 0: {_AT_ZERO}")
    elif float(posterior.model_variance) == 0.0:
        sentences = (*sentences, _AT_ZERO)
    return (*sentences, *cautions)


def assumption_sentences(
    variance_source: str, model_variance_source: str, outcome_bounds: tuple[float, float] | None = None
) -> tuple[str, ...]:
    """The sentences a reader must accept for the numbers to hold."""
    for name, source in (("variance_source", variance_source), ("model_variance_source", model_variance_source)):
        if source not in ("estimated", "public"):
            raise InputError(f"{name} is {source!r}; say 'estimated' (from the same confidential data) or 'public'.")
    bounds = _BOUNDS
    if outcome_bounds is not None:
        bounds = f"Every outcome lies within its declared bounds, {outcome_bounds[0]:g} to {outcome_bounds[1]:g}."
    sentences = [_UNIVERSE, bounds, _ONE_AREA]
    if variance_source == "estimated":
        sentences.append(_SAMPLING_INVARIANT)
    if model_variance_source == "estimated":
        sentences.append(_MODEL_INVARIANT)
    return tuple(sentences)
