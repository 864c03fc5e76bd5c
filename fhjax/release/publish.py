"""A draw that leaves the house: exact discrete Gaussian noise from the operating system's entropy, and its guarantee.

There is no key and no seed to give, log or lose: the noise is made inside OpenDP from the operating system's entropy,
added there, and only the sum comes back. Neither the noise nor the posterior mean is part of any result.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fhjax.entrance import require_float64
from fhjax.errors import InputError
from fhjax.records import AreaData, Guarantees, Labels, Posterior, ReleaseGuarantee
from fhjax.release.lattice import (
    DEFAULT_STEPS,
    Integers,
    LatticePrice,
    computation_error,
    lattice_price,
    to_lattice,
    whitening,
)

Floats = npt.NDArray[np.float64]

FINENESS = 1e-6  # default rounding, relative to the outcome's range
HIDDEN = 16  # lattice points in one rounded value, at least

KINDS = {
    "posterior-draw": "posterior draws of the area means",
    "noisy-means": "posterior means with Gaussian noise of the posterior variance",
}


@dataclasses.dataclass(frozen=True)
class SafeRelease:
    """Draws that may be published, with what they cost. It holds neither the noise nor the posterior mean."""

    values: Floats  # (n, m) outcome units, rounded to ``decimals``
    decimals: int
    labels: Labels
    guarantee: ReleaseGuarantee  # of all n draws together
    price: LatticePrice  # of one draw
    release: str
    kind: str


def publish(
    data: AreaData,
    posterior: Posterior,
    guarantees: Guarantees,
    *,
    release: str = "correlated",
    kind: str = "posterior-draw",
    num_draws: int = 1,
    decimals: int | None = None,
    clip: tuple[float, float] | None = None,
    steps: int | None = None,
    outcome_bounds: tuple[float, float] | None = None,
    before_drawing: Callable[[ReleaseGuarantee], object] | None = None,
) -> SafeRelease:
    """Draw once, for publication. Every call draws anew and costs its rho again.

    Args:
        data: m areas.
        posterior: their posterior.
        guarantees: its guarantees; the real-number rho is taken from here.
        release: ``"correlated"``: the whole posterior at once. ``"independent"``: every area on its own.
        kind: ``"posterior-draw"`` or ``"noisy-means"``, the same release under its other name (independent areas only).
        num_draws: how many draws n are published; the cost is multiplied by n.
        decimals: digits after the point of the published values, 0 to 15; None: those that make a millionth of the
            outcome's range (6 for a yes/no outcome), a number that does not depend on the data. Rounding is
            post-processing and hides the lattice, whose spacing gives the posterior variances away: digits so fine that
            they show it are refused.
        clip: (lo, hi) to which values are clipped, on the grid of ``decimals``, which is post-processing. Redrawing
            until inside is not offered here: its proof needs a continuous law.
        steps: lattice steps to one posterior standard deviation, a power of two from 2^10 to 2^40. None: 2^24, or as
            many as the rounding errors of many areas allow.
        outcome_bounds: (lo, hi) of one record's outcome. They set the scale of rounding errors and the default
        decimals,
            so that neither follows the data; without them the largest direct estimate does, up to a power of two.
        before_drawing: called with the guarantee when everything was checked and nothing was drawn yet, for a ledger.

    Returns:
        A :class:`SafeRelease`.

    Raises:
        InputError: an unknown option, an area without posterior variance, a guarantee that is infinite, a lattice so
            fine that rounding errors exceed a tenth of a step, or OpenDP missing.

    Guarantee: rho of the release times n, with the lattice's effect added: (d + sqrt(q) (1/N + 2 e))^2 / 2 a draw for
    d^2 = 2 rho, q coordinates, N steps and e the bound of rounding errors. Neighbours and assumptions are those of
    ``guarantees``, and the covariance of the draw is an invariant with the variances. The discrete pair is not
    Gaussian, so epsilon comes from the ``simple`` or ``tight`` conversion, never from ``exact``.

    Source: Canonne, Kamath and Steinke (2020); proof in ``fhjax.release.lattice``.

    Examples:
        >>> import fhjax
        >>> data = fhjax.area_data([0.20, 0.10, 0.25, 0.12], [0.0004, 0.0009, 0.0004, 0.0016])
        >>> fit = fhjax.fit(data)
        >>> posterior = fhjax.posterior(data, fit)
        >>> claimed = fhjax.guarantees(data, posterior, [0.02, 0.03, 0.02, 0.05])
        >>> published = publish(data, posterior, claimed, decimals=2)  # needs the extra `release`
        >>> published.values.shape, bool(published.guarantee.rho >= claimed.joint_correlated.rho)
        ((1, 4), True)
    """
    require_float64()
    if release not in ("correlated", "independent"):
        raise InputError(f"release is {release!r}; it is 'correlated' or 'independent'.")
    if kind not in KINDS:
        raise InputError(f"kind is {kind!r}; it is one of {', '.join(KINDS)}.")
    if kind == "noisy-means" and release != "independent":
        raise InputError("Posterior means with noise are drawn area by area: say release='independent'.")
    if num_draws < 1:
        raise InputError(f"num_draws is {num_draws!r}; publish at least one draw.")
    if steps is not None and (steps < 2**10 or steps > 2**40 or steps & (steps - 1)):
        raise InputError(f"steps is {steps!r}; it must be a power of two from 2^10 to 2^40.")
    if decimals is not None and not (isinstance(decimals, int) and 0 <= decimals <= 15):
        raise InputError(f"decimals is {decimals!r}; it is a whole number from 0 to 15.")
    if clip is not None and not (math.isfinite(clip[0]) and math.isfinite(clip[1]) and clip[0] < clip[1]):
        raise InputError(f"clip is {clip!r}; the lower bound must be below the upper.")
    if data.mask is not None and not np.all(np.asarray(data.mask)):
        raise InputError("Drop the rows that only pad the arrays (mask False) before a release.")
    claim: ReleaseGuarantee = getattr(guarantees, f"joint_{release}")
    if not math.isfinite(float(claim.rho)):
        raise InputError("The guarantee of this release is infinite: leave out the areas whose rho is infinite.")
    labels = data.labels or Labels(range(data.num_areas))
    root = whitening(posterior, release, labels)
    # |y| is bounded by the declared bounds, else by a power of two: the allowance must not follow the data's digits.
    largest = float(np.abs(np.asarray(data.y)).max())
    if outcome_bounds is not None and largest <= max(map(abs, outcome_bounds)):
        largest = max(map(abs, outcome_bounds))
    scale = 2.0 ** math.ceil(math.log2(max(largest, 1e-300)) + 1)
    error = computation_error(data, posterior, root, scale)
    finest = 2 ** math.floor(math.log2(0.1 / error))
    steps = min(DEFAULT_STEPS, finest) if steps is None else steps
    if steps > finest or finest < 2**10:
        raise InputError(
            f"{steps:,} lattice steps to a standard deviation are finer than the posterior mean is computed: its "
            f"rounding errors allow {finest:,}, and at least 1,024 are needed. Centre an outcome that is far from 0."
        )
    price = lattice_price(float(claim.rho), steps, root.num_coordinates, error)
    sd = np.sqrt(np.asarray(posterior.variance))
    decimals = _decimals(decimals, outcome_bounds, sd, steps)
    if clip is not None:
        _refuse_off_grid(clip, decimals)
    guarantee = _guarantee(claim, price, release, kind, num_draws)
    _measurement(float(steps))  # a library that is missing or states another price stops here, before anything is spent
    if before_drawing is not None:
        before_drawing(guarantee)

    exact = to_lattice(root, np.asarray(posterior.mean), steps)
    noisy = noisy_integers(np.tile(exact, num_draws), steps).reshape(num_draws, -1)
    values = np.round(root.apply(noisy / steps), decimals)
    if clip is not None:
        values = np.clip(values, *clip)
    return SafeRelease(
        values=values,
        decimals=decimals,
        labels=labels,
        guarantee=guarantee,
        price=price,
        release=release,
        kind=kind,
    )


def _decimals(decimals: int | None, bounds: tuple[float, float] | None, sd: Floats, steps: int) -> int:
    """The digits after the point: fine enough to be of use, coarse enough to hide the lattice in every area."""
    finest = math.floor(-math.log10(HIDDEN * sd.max() / steps))
    if decimals is None:
        extent = 1.0 if bounds is None else bounds[1] - bounds[0]
        chosen = min(max(0, math.ceil(-math.log10(extent * FINENESS) - 1e-9)), 15)
        chosen = max(0, min(chosen, finest))  # a coarse lattice, asked for by steps, hides behind fewer digits
        if chosen > finest or 10.0**-chosen > 0.1 * sd.min():
            raise InputError(
                f"{chosen} decimals, which the outcome's range suggests, are coarser than a tenth of the smallest "
                "posterior standard deviation, or show the lattice. Say how many (decimals); the number is "
                "published with the draw, so do not fit it to the data."
            )
        return chosen
    if decimals > finest:
        raise InputError(
            f"{decimals} decimals show the lattice on which the noise is drawn, and with it the posterior variances, "
            f"which are confidential: at most {max(finest, 0)} decimals hide it here."
        )
    return decimals


def _refuse_off_grid(clip: tuple[float, float], decimals: int) -> None:
    off = [bound for bound in clip if abs(round(bound, decimals) - bound) > 1e-12 * max(1.0, abs(bound))]
    if off:
        raise InputError(
            f"The bounds to clip to must be numbers with {decimals} decimals, as the published values are: "
            f"{' and '.join(f'{bound:g}' for bound in off)} would be rounded. Choose other bounds or more decimals."
        )


def noisy_integers(values: Integers, scale: float) -> Integers:
    """Integers plus independent discrete Gaussian noise, P(noise = j) proportional to exp(-j^2 / (2 scale^2)).

    Exact sampling on the operating system's entropy by OpenDP; the noise itself never leaves it.

    Raises:
        InputError: OpenDP is not installed.
    """
    measurement = _measurement(float(scale))
    return np.asarray(measurement([int(value) for value in values]), dtype=np.int64)


def _measurement(scale: float) -> Any:
    try:
        dp: Any = importlib.import_module("opendp.prelude")
    except ImportError as error:
        raise InputError(
            "A release for publication needs OpenDP's exact noise: pip install 'fhjax[release]'. Draws for simulation "
            "come from fhjax.release.draws and must not be published."
        ) from error
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale)
    stated, ours = measurement.map(1.0), 1.0 / (2.0 * scale * scale)
    if not ours * (1 - 1e-9) <= stated <= ours * (1 + 1e-9):
        raise InputError(
            f"This version of OpenDP states rho {stated!r} for a unit change, not {ours!r}: do not release."
        )
    return measurement


def _guarantee(
    claim: ReleaseGuarantee, price: LatticePrice, release: str, kind: str, num_draws: int
) -> ReleaseGuarantee:
    together = "all areas from one draw of the correlated posterior" if release == "correlated" else "areas independent"
    return ReleaseGuarantee(
        rho=np.float64(num_draws * price.rho),  # pyright: ignore[reportArgumentType]
        worst_area=claim.worst_area,
        release=f"{num_draws} x {KINDS[kind]}, {together}, on a lattice with exact discrete Gaussian noise",
        neighbours=claim.neighbours,
        assumptions=(
            *claim.assumptions,
            "The covariance of the draw, which sets the lattice, is an invariant like the variances it is made from.",
            f"The whitened posterior mean is computed with errors of at most {price.computation_error:.2g} standard "
            "deviations, a bound from its operations and from twice the largest direct estimate.",
            "How long the computation took and whether it was repeated is not published.",
            "Every further release of the same units adds its rho: another draw, another outcome of the same "
            "records, and a later year in which they take part again.",
        ),
        gaussian_pair=False,
    )
