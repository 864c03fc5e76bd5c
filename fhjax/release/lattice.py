"""The lattice on which a posterior draw is published, and the exact price of rounding to it.

A floating-point normal number betrays its mean in its last digits. So nothing confidential meets floating-point noise:

1. whiten: v = R^-1 mu, where R R' is the covariance of the draw (diagonal for independent areas, the whole posterior
   covariance for a correlated draw);
2. round: k = round(N v), integers, N = ``steps`` lattice steps to one posterior standard deviation;
3. add exact discrete Gaussian noise with parameter N to every integer;
4. publish R (k + noise) / N, which is post-processing and may be computed in floating point.

Why it keeps the guarantee: one unit moves N v by a vector a with |a| = N d, d^2 = 2 rho of the real-number release.
Rounding moves each coordinate by at most |a_i| + 1, so the integers move by a vector of length at most N d + sqrt(q)
for q coordinates, and the discrete Gaussian with parameter N costs (length)^2 / (2 N^2) (Canonne, Kamath and Steinke
2020, Proposition 5: the discrete Gaussian on the integers has the Gaussian's zCDP for integer shifts, and coordinates
add up). Hence rho_lattice <= (d + sqrt(q) (1 + slack) / N)^2 / 2: the sensitivity plus the spacing. The argument is
the same for both releases, because whitening turns the correlated draw into independent coordinates.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fhjax.errors import InputError
from fhjax.model.posterior import posterior_covariance
from fhjax.privacy.coefficients import Coefficients
from fhjax.records import AreaData, Labels, Posterior

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DEFAULT_STEPS = 2**24
_LARGEST = 2**60  # of an integer that is published or drawn


class Whitening:
    """R with R R' the covariance of one draw, as O(m p) factors; made by :func:`whitening`.

    For a correlated draw R = D^1/2 (I + Q (K - I) Q'), symmetric in the middle: D the variances given the coefficients,
    Q an orthonormal basis of D^-1/2 F, K = (I + T T')^1/2 its square root there. At a model variance of 0 the draw is X
    times p coefficients and R = X U has p columns.
    """

    def __init__(
        self, scale: Floats, basis: Floats | None, middle: Floats | None, surface: Floats | None = None
    ) -> None:
        self.scale, self.basis, self.middle, self.surface = scale, basis, middle, surface

    @property
    def num_coordinates(self) -> int:
        """How many integers are published."""
        return len(self.scale) if self.surface is None else self.surface.shape[1]

    def apply(self, coordinates: Floats) -> Floats:
        """R w for rows w (n, q) -> (n, m)."""
        if self.surface is not None:
            return coordinates @ self.surface.T
        if self.basis is None or self.middle is None:
            return coordinates * self.scale
        part = coordinates @ self.basis
        return (coordinates + (part @ (self.middle - np.eye(len(self.middle)))) @ self.basis.T) * self.scale

    def solve(self, values: Floats) -> Floats:
        """R^-1 x (m,) -> (q,); the coefficients for a value on the regression surface."""
        if self.surface is not None:
            return np.asarray(np.linalg.lstsq(self.surface, values, rcond=None)[0], dtype=np.float64)
        scaled = values / self.scale
        if self.basis is None or self.middle is None:
            return scaled
        return scaled + self.basis @ ((np.linalg.inv(self.middle) - np.eye(len(self.middle))) @ (self.basis.T @ scaled))


def whitening(posterior: Posterior, release: str, labels: Labels | None = None) -> Whitening:
    """The square root of the covariance of one draw.

    Args:
        posterior: of m areas.
        release: ``"independent"`` or ``"correlated"``.
        labels: names for messages.

    Raises:
        InputError: an area without posterior variance, whose draw would be its direct estimate.
    """
    variance = np.asarray(posterior.variance)
    zero = variance <= 0.0
    if zero.any():
        names = labels or Labels(range(len(variance)))
        first = ", ".join(repr(name) for name in names.where(zero)[:5])
        raise InputError(
            f"{int(zero.sum()):,} areas have a posterior variance of 0, so a draw would publish their direct estimate: "
            f"{first}. Leave them out of the release."
        )
    if release == "independent":
        return Whitening(np.sqrt(variance), None, None)
    operator = posterior_covariance(posterior)
    own, factor = np.asarray(operator.independent), np.asarray(operator.factor)
    if np.all(own == 0.0):
        return Whitening(np.sqrt(variance), None, None, surface=factor)
    scale = np.sqrt(own)
    basis, triangle = np.linalg.qr(factor / scale[:, None])
    values, vectors = np.linalg.eigh(triangle @ triangle.T)
    middle = (vectors * np.sqrt(1.0 + np.maximum(values, 0.0))) @ vectors.T
    return Whitening(scale, basis, middle)


@dataclasses.dataclass(frozen=True)
class LatticePrice:
    """What one draw costs on the lattice, beside the real-number draw."""

    rho: float  # of one lattice draw, rounded up
    rho_real: float  # of one real-number draw
    steps: int  # lattice steps to one posterior standard deviation
    num_coordinates: int
    computation_error: float  # allowance for rounding errors of the whitened mean, in posterior standard deviations

    @property
    def spacing_share(self) -> float:
        """Relative increase of rho that the lattice causes."""
        return self.rho / self.rho_real - 1.0 if self.rho_real > 0.0 else math.inf


def lattice_price(rho_real: float, steps: int, num_coordinates: int, computation_error: float) -> LatticePrice:
    """rho of one lattice draw: (d + sqrt(q) (1 / N + 2 e))^2 / 2 with d = sqrt(2 rho), rounded up.

    Args:
        rho_real: rho of the real-number release, nats.
        steps: N, lattice steps to one posterior standard deviation.
        num_coordinates: q, integers published.
        computation_error: e, a bound of the error of every computed whitened coordinate, the same for all data sets.

    Source: module docstring; Canonne, Kamath and Steinke (2020), Proposition 5.

    Examples:
        >>> round(lattice_price(0.5, 2**20, 100, 0.0).rho, 6)
        0.50001
    """
    d = math.sqrt(2.0 * rho_real)
    moved = d + math.sqrt(num_coordinates) * (1.0 / steps + 2.0 * computation_error)
    rho = moved * moved / 2.0 * (1.0 + 64 * float(np.finfo(float).eps))
    return LatticePrice(rho=rho, rho_real=rho_real, steps=steps, num_coordinates=num_coordinates,
                        computation_error=computation_error)  # fmt: skip


def area_price(effect: float, posterior_sd: float, steps: int, computation_error: float = 0.0) -> float:
    """rho of publishing one area's lattice draw: integers move by at most ceil(N effect / sd + 2 N e).

    Args:
        effect: max_k |c_ik| Delta_k, outcome units.
        posterior_sd: sigma_i, outcome units.
        steps: N.
        computation_error: as in :func:`lattice_price`.

    Examples:
        >>> area_price(0.25, 1.0, 4), area_price(0.26, 1.0, 4)
        (0.03125, 0.125)
    """
    moved = math.ceil(
        steps * (effect / posterior_sd + 2.0 * computation_error) * (1.0 - 4 * float(np.finfo(float).eps))
    )
    return (moved / steps) ** 2 / 2.0


def computation_error(data: AreaData, posterior: Posterior, root: Whitening, scale: float) -> float:
    """A bound of the rounding error of a whitened posterior mean, the same for all y with |y_k| <= ``scale``.

    Gaussian error analysis of matrix products (Higham 2002, section 3.5): every product of length L errs by at most
    L u / (1 - L u) times the product of absolute values. Here L = 4 (m + p) + 20 covers the regression, the shrinkage
    and the whitening one after the other.
    """
    m, p = data.X.shape
    unit = np.finfo(float).eps
    length = 4 * (m + p) + 20
    A = np.abs(np.asarray(posterior.beta_covariance))
    X, B = np.abs(np.asarray(data.X)), np.asarray(posterior.shrinkage)
    V = np.asarray(data.sampling_variance) + float(posterior.model_variance)
    beta = A @ (X.T @ (scale / V))
    mean = (1.0 - B) * scale + B * (X @ beta)
    if root.surface is not None:
        whitened = np.abs(np.linalg.pinv(root.surface)) @ mean
    else:
        whitened = mean / root.scale
        if root.basis is not None and root.middle is not None:
            inner = np.abs(np.linalg.inv(root.middle) - np.eye(len(root.middle)))
            whitened = whitened + np.abs(root.basis) @ (inner @ (np.abs(root.basis).T @ whitened))
    return float(length * unit * whitened.max())


def exact_joint_price(C: Coefficients, sensitivity: Floats, steps: int, *, block: int = 256) -> float:
    """rho of independent lattice draws of all areas, with every ceiling: max_k sum_i ceil(N |c_ik| Delta_k / sigma_i)^2
    / (2 N^2). O(m^2) time; the bound of :func:`lattice_price` needs O(m) and is never below it.
    """
    sd = np.sqrt(np.asarray(C.posterior_variance()))
    m = C.num_areas
    worst = 0.0
    for first in range(0, m, block):
        columns = jnp.arange(first, min(first + block, m))
        c = np.abs(np.asarray(C.block(jnp.arange(m), columns))) * np.asarray(sensitivity)[np.asarray(columns)]
        moved = np.ceil(steps * c / sd[:, None] * (1.0 - 4 * np.finfo(float).eps))
        worst = max(worst, float(np.max(np.sum((moved / steps) ** 2, axis=0))) / 2.0)
    return worst


def to_lattice(root: Whitening, mean: Floats, steps: int) -> Integers:
    """The whitened posterior mean as integers (q,)."""
    coordinates = np.rint(root.solve(np.asarray(mean, dtype=float)) * steps)
    if not np.all(np.abs(coordinates) < _LARGEST):
        raise InputError(
            f"The posterior means are too many standard deviations from 0 for {steps:,} lattice steps each: use fewer."
        )
    return coordinates.astype(np.int64)
