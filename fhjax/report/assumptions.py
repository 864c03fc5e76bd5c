"""Every condition a privacy number rests on, as full sentences, none left to be guessed by the reader."""

from __future__ import annotations

import re

from fhjax.records import Assessment
from fhjax.report.numbers import format_count, format_percent


def assumptions(assessment: Assessment) -> tuple[str, ...]:
    """The guarantee's own assumptions first, then each standard one that they do not already state.

    The privacy side writes the assumptions of its numbers; a guarantee made by hand may come without some of them. So
    each standard topic is looked for in what is there, and its sentence is added only when nobody has stated it.
    """
    guarantees = assessment.guarantees
    stated = list(guarantees.assumptions)
    for release in (guarantees.joint_correlated, guarantees.joint_independent, guarantees.sequential):
        stated.extend(release.assumptions)
    sentences = list(dict.fromkeys(sentence.strip() for sentence in stated))
    for pattern, sentence in _standard(assessment):
        if not any(re.search(pattern, known, re.IGNORECASE) for known in sentences):
            sentences.append(sentence)
    return (*sentences, *filter(None, (exclusions(assessment), missing_outcomes(assessment))))


def exclusions(assessment: Assessment) -> str:
    """Areas left out because of their outcomes: a choice that the data made, which the guarantee takes as fixed."""
    count = sum("variance" in reason for _, reason in assessment.direct.excluded)
    if not count:
        return ""
    areas, their = ("1 area was", "its") if count == 1 else (f"{format_count(count)} areas were", "their")
    return (
        f"{areas} left out because {their} design variance is 0, which depends on the outcomes: that the release has "
        "no draw for an area tells that its outcomes are all equal or that one sampling unit holds it. The guarantee "
        "takes the list of areas as fixed and does not cover this."
    )


def missing_outcomes(assessment: Assessment) -> str:
    """How many records of the areas have no outcome: they are outside the universe and get no guarantee."""
    direct = assessment.direct
    if direct.num_missing is None or direct.num_records is None:
        return ""
    missing, observed = int(direct.num_missing.sum()), int(direct.num_records.sum())
    if missing == 0:
        return "Every record of the areas has an observed outcome, so nobody is outside the universe for lack of one."
    return (
        f"{format_count(missing)} of {format_count(missing + observed)} records of the areas "
        f"({format_percent(missing / (missing + observed))}) have no observed outcome: they are outside the universe, "
        "and the guarantee says nothing about whether a person answered."
    )


def unit_of(assessment: Assessment) -> str:
    """What is protected, in words: a record, or all records of one unit."""
    unit = assessment.direct.privacy_unit
    return "one record" if unit == "record" else f"all records that share one value of {unit!r}"


def neighbours(assessment: Assessment) -> str:
    """Which two data sets every number compares, as a sentence."""
    given = assessment.guarantees.neighbours or assessment.guarantees.joint_correlated.neighbours
    text = given.strip().rstrip(".") or (
        f"bounded neighbours: two data sets that differ in the outcome of {unit_of(assessment)} and in nothing else"
    )
    return f"The guarantee compares {text}."


def _standard(assessment: Assessment) -> list[tuple[str, str]]:
    direct = assessment.direct
    topics = [
        (r"bounded neighbours", neighbours(assessment)),
        (
            r"universe",
            "The universe is public and fixed: which records have an observed outcome, and so the list of areas, is "
            "the same in two neighbouring data sets.",
        ),
        (r"weight", "The survey weights are public: they do not depend on anybody's outcome."),
        (r"covariate|\bX\b", "The covariates of the areas are public: they do not depend on this survey's outcomes."),
        (r"one area|single area|two areas|several areas", "A privacy unit belongs to one area only."),
        (
            r"real.number|continuous|floating",
            "The draws are treated as Gaussian real numbers: the rounding of computer arithmetic is not part of the "
            "guarantee.",
        ),
    ]
    if direct.variance_source == "estimated":
        topics.append(
            (
                r"invariant|held fixed",
                "The sampling variances and the model variance are held fixed as invariants although they were "
                "estimated from the same confidential data; what they give away themselves is not covered.",
            )
        )
    return topics
