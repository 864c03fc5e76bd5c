"""Codes of areas, strata, PSUs and units: one text for one thing, however the file writes it.

Text stays text, whole numbers become their digits, and outer blanks go. Where that would make one code of two that the
file keeps apart, the codes are refused: nobody can know which of them are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ibis
import pandas as pd

from fhjax.errors import InputError, Problems, first_few
from fhjax.survey.roles import Role
from fhjax.survey.workspace import to_frame

#: Text that some program made of a whole number: 532079.0, 1e+05.
_FROM_NUMBER = r"^[-+]?[0-9]+(\.0*|(\.[0-9]+)?[eE]\+[0-9]+)$"
_NUMBER = r"^[-+]?([0-9]+\.?0*|[0-9](\.[0-9]+)?[eE]\+[0-9]+)$"
_LEADING_ZERO = r"^[-+]?0[0-9]"
_WHOLE = 2.0**53  # above, floating-point numbers are no longer apart by 1


@dataclasses.dataclass(frozen=True)
class Coding:
    """How one column of codes becomes text; decided once, from all records."""

    strip: bool = False  # some codes have outer blanks
    whole: bool = False  # text that holds whole numbers written as 101.0 or 1e+05


def bare(column: Any) -> Any:
    """Text without outer blanks, the no-break space among them."""
    return column.replace("\u00a0", " ").strip()


def code(column: Any, coding: Coding = Coding(), *, keep_integers: bool = False) -> Any:
    """A column of codes as text; integers stay integers where that is asked for."""
    kind = column.type()
    if kind.is_floating():
        column = ibis.ifelse(column.isnan(), ibis.null(kind), column).cast("int64")
    elif kind.is_decimal():
        column = column.cast("int64")
    elif kind.is_string():
        column = bare(column) if coding.strip else column
        if not coding.whole:
            return column
        column = ibis.ifelse(column == "", ibis.null("string"), column).cast("float64").cast("int64")
    if keep_integers and column.type().is_integer() and not coding.whole:
        return column
    return column.cast("string")


def decide(
    table: Any, roles: Mapping[str, Role], words: Mapping[str, str]
) -> tuple[dict[str, Coding], list[str], list[str]]:
    """The coding of every column of codes, notes on what it changes, and what a person must judge.

    Args:
        table: records with the columns that ``roles`` and ``words`` name.
        roles: key -> role of the codes; ``words``: key -> "area", "PSU", ... for messages.

    Raises:
        InputError: numbers that are not whole; codes that differ only in outer blanks or leading zeros, or that look
            like numbers in some records and like codes in others.
    """
    problems, notes, cautions = Problems(), [], []
    kinds = {key: table[key].type() for key in roles}
    asked: dict[str, Any] = {}
    for key, kind in kinds.items():
        column = table[key]
        if kind.is_floating() or kind.is_decimal():
            asked[f"broken_{key}"] = (column != column.floor()).sum()
            asked[f"large_{key}"] = (column.abs() > _WHOLE).sum()
        elif kind.is_string():
            asked[f"padded_{key}"] = (column != bare(column)).sum()
            asked[f"point_{key}"] = (column.contains(".") | column.contains("+")).sum()
            asked[f"zero_{key}"] = column.strip().startswith("0").sum()
            asked[f"short_{key}"], asked[f"long_{key}"] = column.length().min(), column.length().max()
            asked[f"na_{key}"] = column.isin(["NA", "NaN", "nan", "NULL", "null", "None", "N/A"]).sum()
    found = to_frame(table.aggregate(**asked)).iloc[0] if asked else {}
    count = {name: 0 if pd.isna(found[name]) else int(found[name]) for name in asked}
    codings = dict.fromkeys(roles, Coding())
    for key, role in roles.items():
        word, name, column = words[key], role.text, table[key]
        if count.get(f"broken_{key}", 0):
            broken = table.filter(column != column.floor())
            examples = to_frame(broken.select(key).distinct().limit(5))[key]
            problems.add(
                f"The {word} column {name!r} holds {count[f'broken_{key}']:,} numbers that are not whole, for example "
                f"{first_few(examples)}. Codes must be text or whole numbers."
            )
        elif count.get(f"large_{key}", 0):
            problems.add(
                f"The {word} column {name!r} holds {count[f'large_{key}']:,} codes of more than 15 digits stored as "
                "floating point, which cannot keep them apart. Read them as text from the original file."
            )
        elif f"broken_{key}" in count:
            notes.append(f"The {word} codes {name!r} are stored as floating point; whole numbers are used.")
        elif kinds[key].is_integer() and word == "area":
            notes.append(f"The area codes {name!r} are stored as numbers, so they have no leading zeros.")
        elif kinds[key].is_string():
            strip = count[f"padded_{key}"] > 0
            if strip:
                with problems.caught():
                    _refuse_merging(table, key, word, name)
                notes.append(
                    f"Outer blanks of the {word} codes {name!r} are dropped ({count[f'padded_{key}']:,} records)."
                )
            whole = False
            if count[f"point_{key}"]:
                with problems.caught():
                    whole = _whole_numbers_as_text(table, key, word, name)
                if whole:
                    notes.append(f"The {word} codes {name!r} are written as 101.0 or 1e+05; whole numbers are used.")
            elif count[f"zero_{key}"] and count[f"short_{key}"] < count[f"long_{key}"]:
                with problems.caught():
                    _refuse_lost_zeros(table, key, word, name)
            if count[f"na_{key}"]:
                cautions.append(
                    f"The {word} codes {name!r} hold NA or a like word in {count[f'na_{key}']:,} records, taken as a "
                    f"code. If it means that there is none, declare it as missing: na={name}=NA."
                )
            codings[key] = Coding(strip=strip, whole=whole)
    problems.raise_if_any()
    return codings, notes, cautions


def _refuse_merging(table: Any, key: str, word: str, name: str) -> None:
    pairs = table.select(written=table[key], meant=bare(table[key])).distinct()
    twice = to_frame(pairs.group_by("meant").aggregate(forms=pairs.count()).filter(lambda t: t.forms > 1))
    twice = twice[twice["meant"].notna() & (twice["meant"] != "")]  # blank codes are missing, and told as that
    if len(twice):
        forms = to_frame(pairs.filter(pairs.meant.isin(list(twice["meant"][:5]))).order_by("written"))["written"]
        verb = "differs" if len(twice) == 1 else "differ"
        raise InputError(
            f"{len(twice):,} {word} code{'s' * (len(twice) > 1)} in {name!r} {verb} only in outer blanks: "
            f"{first_few(forms, limit=6)}. Are they the same? If so use the expression trim({name}); if not, "
            "rename them."
        )


def _refuse_lost_zeros(table: Any, key: str, word: str, name: str) -> None:
    """003 beside 3: one of the files, or a program in between, dropped leading zeros."""
    codes = table.select(code=bare(table[key])).distinct().filter(lambda t: t.code.re_search("^[0-9]+$"))
    codes = codes.mutate(digits=codes.code.re_replace("^0+", ""))
    twice = codes.group_by("digits").aggregate(forms=codes.count()).filter(lambda t: t.forms > 1)
    count = int(to_frame(twice.aggregate(n=twice.count()))["n"].iloc[0])
    if count:
        few = to_frame(twice.order_by("digits").limit(3))["digits"]
        forms = to_frame(codes.filter(codes.digits.isin(list(few))).order_by("digits", "code"))["code"]
        raise InputError(
            f"{count:,} {word} code{'s' * (count > 1)} in {name!r} {'differs' if count == 1 else 'differ'} only in "
            f"leading zeros: {first_few(forms, limit=6)}. Some program dropped them: read the codes as text from the "
            f"original file. If the forms mean the same use the expression CAST({name} AS BIGINT); if they do not, "
            f"make them words with 'c' || {name}."
        )


def _whole_numbers_as_text(table: Any, key: str, word: str, name: str) -> bool:
    """Whether every code is a whole number and some are written as one with a point or an exponent."""
    codes = table.select(code=bare(table[key])).filter(lambda t: t.code.notnull() & (t.code != ""))
    frame = to_frame(codes.group_by("code").aggregate(records=codes.count()))
    text = frame["code"].astype(str)
    odd = text.str.match(_FROM_NUMBER)
    if not odd.any():
        return False
    other = ~text.str.match(_NUMBER) | text.str.match(_LEADING_ZERO)
    values: Any = pd.to_numeric(text.where(~other), errors="coerce")
    other |= ~((values == values.round()) & (values.abs() <= _WHOLE))
    if other.any():
        records = int(frame.loc[odd, "records"].sum())
        raise InputError(
            f"{int(odd.sum()):,} {word} codes in {name!r} ({records:,} records) look like numbers with a decimal "
            f"point or an exponent: {first_few(sorted(text[odd]))}, beside codes that are no such numbers: "
            f"{first_few(sorted(text[other]))}. Some program took the codes for numbers. Read them from the original "
            f"file, or use the expression CAST(CAST({name} AS DOUBLE) AS BIGINT) if no leading zeros are lost."
        )
    return True
