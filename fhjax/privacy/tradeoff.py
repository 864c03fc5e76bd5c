"""What a rho means for one person: error rates of the best attack, its advantage, and how sure it can become.

The attacker knows everything but which of two neighbouring data sets was used. For a Gaussian pair the test between
them is that of N(0, 1) against N(mu, 1), mu = sqrt(2 rho) (mu-GDP; Dong, Roth and Su 2022; docs/derivations.md,
sections 10 and 12), so every number here is exact for a release whose ``gaussian_pair`` is true. For any other rho-zCDP
release bounds are given.

Two different questions have two different answers. *How often is the best guess right?* Phi(mu/2) of the time from
even odds. *How sure can the attacker become?* There is no limit: the privacy loss L ~ N(rho, 2 rho) is unbounded
(Theorem 1), so a posterior probability as near 1 as you like occurs, only rarely. The bound given here is the one that
holds except with probability delta. It uses the quantile of L and not the ``exact`` or ``tight`` epsilon, which average
over how far L goes beyond epsilon and are exceeded by L with a probability greater than delta.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import erf, ndtr, ndtri

from fhjax.entrance import is_concrete
from fhjax.errors import InputError
from fhjax.privacy.conversion import ArrayLike, Rho, checked, checked_delta, checked_rho, epsilon_simple
from fhjax.records import Array, ReleaseGuarantee, record, static

SQRT_TWO = 1.4142135623730951  # taken out of the square root, so that no rho overflows


@record
class PersonalRisk:
    """The risk to one person from one release, under the neighbours and assumptions of its rho."""

    mu: Array  # sqrt(2 rho): how many standard deviations the person moves the release, at most
    advantage: Array  # true positive rate minus false positive rate of the best attack (total variation)
    best_guess: Array  # probability that the best guess is right, from the prior
    largest_posterior: Array  # posterior probability not exceeded, except with probability delta
    prior: float = static(default=0.5)
    delta: float = static(default=0.0)
    gaussian_pair: bool = static(default=True)  # exact numbers; otherwise upper bounds for any rho-zCDP release


def _is_gaussian_pair(rho: Rho, gaussian_pair: bool | None) -> bool:
    if isinstance(rho, ReleaseGuarantee):
        if gaussian_pair and not rho.gaussian_pair:
            raise InputError(f"This release ({rho.release}) is not a Gaussian pair: leave gaussian_pair unset.")
        return rho.gaussian_pair if gaussian_pair is None else gaussian_pair
    return True if gaussian_pair is None else gaussian_pair


def _checked_prior(prior: ArrayLike) -> Array:
    prior = checked(prior, "prior", below=1.0)
    if is_concrete(prior) and bool(jnp.any((prior <= 0.0) | (prior >= 1.0))):
        raise InputError("The attacker's prior probability must lie strictly between 0 and 1.")
    return prior


# --- kernels: every where guards an argument at which the formula's limit is not a number ---------------------------


@jax.jit
def _trade_off(mu: Array, alpha: Array) -> Array:
    inside = (alpha > 0.0) & (alpha < 1.0) & (mu < jnp.inf)
    curve = ndtr(-ndtri(jnp.where(inside, alpha, 0.5)) - jnp.where(inside, mu, 0.0))
    return jnp.where(inside, curve, jnp.where((alpha == 0.0) & (mu < jnp.inf), 1.0, 0.0))


@jax.jit
def _best_guess(rho: Array, prior: Array) -> Array:
    usable = (rho > 0.0) & (rho < jnp.inf)
    mu = SQRT_TWO * jnp.sqrt(jnp.where(usable, rho, 1.0))
    tilt = (jnp.log(prior) - jnp.log1p(-prior)) / mu
    value = prior * ndtr(0.5 * mu + tilt) + (1.0 - prior) * ndtr(0.5 * mu - tilt)
    without_looking = jnp.maximum(prior, 1.0 - prior)
    value = jnp.clip(value, without_looking, 1.0)
    return jnp.where(usable, value, jnp.where(rho > 0.0, 1.0, without_looking))


@jax.jit
def _quantile(rho: Array, delta: Array) -> Array:
    usable = (rho > 0.0) & (rho < jnp.inf) & (delta > 0.0)
    safe_rho = jnp.where(usable, rho, 1.0)
    value = safe_rho - SQRT_TWO * jnp.sqrt(safe_rho) * ndtri(jnp.where(usable, delta, 0.5))
    return jnp.where(usable, value, jnp.where(rho == 0.0, 0.0, jnp.inf))


# --- public ---------------------------------------------------------------------------------------------------------


def gaussian_mu(rho: Rho) -> Array:
    """mu = sqrt(2 rho): a Gaussian pair with this rho is mu-GDP, and composes by adding rho.

    Args: rho: zCDP parameter in nats, any shape, >= 0. Raises: InputError for negative or NaN rho.

    Examples:
        >>> round(float(gaussian_mu(0.5)), 12)
        1.0
    """
    return SQRT_TWO * jnp.sqrt(checked_rho(rho))


def trade_off_curve(rho: Rho, false_positive_rate: ArrayLike) -> Array:
    """The smallest false negative rate of any attack with a given false positive rate: Phi(Phi^-1(1 - alpha) - mu).

    Args:
        rho: zCDP parameter of a Gaussian pair, any shape, >= 0; inf gives 0.
        false_positive_rate: alpha in [0, 1], broadcast against rho.

    Raises: InputError for values outside these ranges, and for a release that is not a Gaussian pair.
    Source: Dong, Roth and Su 2022, Gaussian differential privacy.

    Examples:
        >>> round(float(trade_off_curve(0.5, 0.05)), 4)
        0.7405
    """
    if isinstance(rho, ReleaseGuarantee) and not rho.gaussian_pair:
        raise InputError(f"The trade-off curve is that of a Gaussian pair; this release ({rho.release}) is not one.")
    mu = gaussian_mu(rho)
    alpha = checked(false_positive_rate, "false_positive_rate", below=1.0)
    return _trade_off(mu, alpha)


def membership_advantage(rho: Rho, *, gaussian_pair: bool | None = None) -> Array:
    """Largest true positive rate minus false positive rate of any attack: 2 Phi(mu/2) - 1 = erf(sqrt(rho) / 2).

    Args:
        rho: zCDP parameter in nats, any shape, >= 0, or a ReleaseGuarantee.
        gaussian_pair: exact for a Gaussian pair (the default for a bare rho; a record knows). If False, an upper bound
            for every rho-zCDP release: the smaller of sqrt(rho / 2) (Pinsker) and sqrt(1 - e^-rho) (Bretagnolle and
            Huber).

    Raises: InputError for negative or NaN rho.
    Source: Dong, Roth and Su 2022, section 2; Tsybakov 2009, lemmas 2.5 and 2.6.

    Examples:
        >>> round(float(membership_advantage(0.5)), 4)
        0.3829
    """
    exact = _is_gaussian_pair(rho, gaussian_pair)
    rho = checked_rho(rho)
    if exact:
        return erf(0.5 * jnp.sqrt(rho))
    return jnp.sqrt(jnp.minimum(0.5 * rho, -jnp.expm1(-rho)))


def best_guess_probability(rho: Rho, *, prior: ArrayLike = 0.5, gaussian_pair: bool | None = None) -> Array:
    """How often the best guess is right, when the attacker starts from ``prior`` for one of the two data sets.

    With even odds it is Phi(mu/2) = (1 + advantage) / 2. In general, with w = log(prior / (1 - prior)),
    prior Phi(mu/2 + w/mu) + (1 - prior) Phi(mu/2 - w/mu); never below the larger prior, which is right without looking.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0, or a ReleaseGuarantee.
        prior: in (0, 1), broadcast against rho.
        gaussian_pair: as in :func:`membership_advantage`. If False, the bound max + min advantage of the two priors.

    Raises: InputError for values outside these ranges.
    Source: Bayes' rule for two Gaussians; docs/derivations.md, section 12.

    Examples:
        >>> round(float(best_guess_probability(0.5)), 4)
        0.6915
    """
    exact = _is_gaussian_pair(rho, gaussian_pair)
    prior = _checked_prior(prior)
    rho = checked_rho(rho)
    if not exact:
        smaller = jnp.minimum(prior, 1.0 - prior)
        return jnp.minimum(1.0 - smaller + smaller * membership_advantage(rho, gaussian_pair=False), 1.0)
    return _best_guess(rho, prior)


def privacy_loss_quantile(rho: Rho, delta: ArrayLike, *, gaussian_pair: bool | None = None) -> Array:
    """The privacy loss that is exceeded with probability at most ``delta``, under the data set that is true.

    For a Gaussian pair L ~ N(rho, 2 rho) and this is rho + sqrt(2 rho) z, z the upper delta quantile of N(0, 1):
    exceeded with probability exactly delta. For any rho-zCDP release it is the simple epsilon, by the tail bound that
    proves it.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0, or a ReleaseGuarantee.
        delta: in [0, 1), broadcast against rho; 0 gives inf.
        gaussian_pair: as in :func:`membership_advantage`.

    Raises: InputError for values outside these ranges.
    Source: docs/derivations.md, section 12; Bun and Steinke 2016, proposition 1.3.

    Examples:
        >>> round(float(privacy_loss_quantile(0.5, 0.05)), 4)
        2.1449
    """
    if not _is_gaussian_pair(rho, gaussian_pair):
        return epsilon_simple(rho, delta)
    return _quantile(checked_rho(rho), checked_delta(delta))


def largest_posterior(
    rho: Rho, delta: ArrayLike, *, prior: ArrayLike = 0.5, gaussian_pair: bool | None = None
) -> Array:
    """The posterior probability of the truth that an attacker exceeds with probability at most ``delta``.

    prior e^q / (1 - prior + prior e^q) with q the :func:`privacy_loss_quantile`. The attacker starts from ``prior`` for
    the data set that is true; at delta = 0 the answer is 1, because no bound holds always (Theorem 1).

    Args:
        rho: zCDP parameter in nats, any shape, >= 0, or a ReleaseGuarantee.
        delta: probability over the release with which the bound may fail, in [0, 1).
        prior: in (0, 1). All arguments broadcast.
        gaussian_pair: as in :func:`membership_advantage`.

    Raises: InputError for values outside these ranges.
    Source: Bayes' rule and docs/derivations.md, section 12.

    Examples:
        >>> round(float(largest_posterior(0.5, 0.05)), 4)
        0.8952
    """
    loss = privacy_loss_quantile(rho, delta, gaussian_pair=gaussian_pair)
    prior = _checked_prior(prior)
    return jax.nn.sigmoid(jnp.log(prior) - jnp.log1p(-prior) + loss)


def personal_risk(rho: Rho, delta: float, *, prior: float = 0.5, gaussian_pair: bool | None = None) -> PersonalRisk:
    """All of the above for one release or an array of rho, as one record.

    Args:
        rho: zCDP parameter in nats, any shape, >= 0, or a ReleaseGuarantee.
        delta: probability with which the posterior bound may fail, in [0, 1).
        prior: the attacker's probability before seeing the release, in (0, 1).
        gaussian_pair: as in :func:`membership_advantage`.

    Raises: InputError for values outside these ranges.

    Examples:
        >>> risk = personal_risk(0.048, 1e-7)
        >>> round(float(risk.best_guess), 3), round(float(risk.largest_posterior), 3)
        (0.562, 0.84)
    """
    exact = _is_gaussian_pair(rho, gaussian_pair)
    return PersonalRisk(
        mu=gaussian_mu(rho),
        advantage=membership_advantage(rho, gaussian_pair=exact),
        best_guess=best_guess_probability(rho, prior=prior, gaussian_pair=exact),
        largest_posterior=largest_posterior(rho, delta, prior=prior, gaussian_pair=exact),
        prior=float(prior),
        delta=float(delta),
        gaussian_pair=exact,
    )
