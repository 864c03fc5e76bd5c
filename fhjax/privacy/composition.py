"""Adding up: several releases from the same data, several draws, and what was spent before under zCDP."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from fhjax.entrance import is_concrete
from fhjax.errors import InputError
from fhjax.records import ReleaseGuarantee, record, static


@record
class OtherSpending:
    """Another zCDP release from the same confidential data, made elsewhere."""

    name: str = static()
    rho: Any  # () at least 0
    neighbours: str = static(
        default="bounded"
    )  # "bounded" (one unit replaced) or "unbounded" (one unit added or removed)
    gaussian_pair: bool = static(default=False)  # True only for continuous Gaussian noise of fixed covariance


def repeated(guarantee: ReleaseGuarantee, draws: int) -> ReleaseGuarantee:
    """``draws`` independent draws of the same release: rho times their number.

    Raises:
        InputError: unless ``draws`` is a positive whole number.

    Source: docs/derivations.md, sections 4 to 8.

    Examples:
        >>> import fhjax
        >>> data = fhjax.area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> fit = fhjax.fit(data)
        >>> result = fhjax.guarantees(data, fit, [0.02, 0.03, 0.02, 0.05])
        >>> bool(repeated(result.joint_correlated, 5).rho == 5 * result.joint_correlated.rho)
        True
    """
    if draws != int(draws) or draws < 1:
        raise InputError(f"The number of draws is {draws!r}; it must be a positive whole number.")
    if draws == 1:
        return guarantee
    return dataclasses.replace(
        guarantee, rho=guarantee.rho * int(draws), release=f"{int(draws):,} independent draws of: {guarantee.release}"
    )


def composed(
    releases: Iterable[ReleaseGuarantee], *, other: Iterable[OtherSpending] = (), unit_is_the_same: bool = True
) -> ReleaseGuarantee:
    """The cost of all releases together: the sum of their rhos.

    Args:
        releases: guarantees for the same data and the same neighbours.
        other: zCDP releases made elsewhere, such as the agency's published tables.
        unit_is_the_same: declare that the others' privacy unit is the one of ``releases``.

    Raises:
        InputError: for no release, releases with different neighbours, a negative rho (inside ``jit`` it becomes
            infinite), an unknown neighbouring relation, or another privacy unit.

    Guarantee: rho-zCDP for everything together. Neighbours: those of ``releases``. A release that is rho-zCDP for one
    unit added or removed is 4 rho-zCDP for one unit replaced (a removal and an addition, and zCDP grows with the square
    of the number of changes), and enters as that.

    Source: Bun and Steinke (2016), Lemma 2.3 (composition) and Proposition 1.9 (groups);
    docs/derivations.md, section 9.

    Examples:
        >>> import jax.numpy as jnp
        >>> draw = ReleaseGuarantee(rho=jnp.asarray(0.3), worst_area=jnp.asarray(0), release="one draw",
        ...     neighbours="bounded neighbours", assumptions=())
        >>> total = composed([repeated(draw, 2)], other=[OtherSpending(name="published table", rho=0.4)])
        >>> round(float(total.rho), 12)
        1.0
    """
    releases = list(releases)
    if not releases:
        raise InputError("Nothing to compose: pass at least one release.")
    relations = sorted({release.neighbours for release in releases})
    if len(relations) > 1:
        raise InputError(
            "The releases compare different pairs of data sets, so their rhos do not add: " + "; ".join(relations) + "."
        )
    total = sum((release.rho for release in releases), jnp.asarray(0.0))
    names = [release.release for release in releases]
    assumptions = list(dict.fromkeys(sentence for release in releases for sentence in release.assumptions))
    gaussian = all(release.gaussian_pair for release in releases)
    for spent in other:
        total = total + _bounded(spent, unit_is_the_same)
        names.append(spent.name)
        gaussian = gaussian and spent.gaussian_pair
        amount = f"rho {float(spent.rho):g}" if is_concrete(spent.rho) else "the rho that was handed in"
        assumptions.append(
            f"{spent.name} satisfies zCDP with {amount} for {spent.neighbours} neighbours and the same "
            "privacy unit"
            + (", counted four times because here a unit is replaced." if spent.neighbours == "unbounded" else ".")
        )
    worst = jnp.stack([jnp.asarray(release.worst_area) for release in releases])
    return ReleaseGuarantee(
        rho=total,
        worst_area=jnp.where(jnp.all(worst == worst[0]), worst[0], -1),
        release="; and ".join(names),
        neighbours=relations[0],
        assumptions=tuple(assumptions),
        gaussian_pair=gaussian,
    )


def _bounded(spent: OtherSpending, unit_is_the_same: bool) -> Any:
    rho = spent.rho
    if not is_concrete(rho):
        rho = jnp.where(rho >= 0.0, rho, jnp.inf)
    elif np.isnan(rho := float(rho)) or rho < 0.0:
        raise InputError(f"The rho of {spent.name!r} is {rho}; it must not be negative.")
    if not unit_is_the_same:
        raise InputError(
            f"{spent.name!r} protects another privacy unit. Restate it for the unit used here before adding it."
        )
    if spent.neighbours == "bounded":
        return rho
    if spent.neighbours == "unbounded":
        return 4.0 * rho
    raise InputError(f"{spent.name!r} has neighbours {spent.neighbours!r}; say 'bounded' or 'unbounded'.")
