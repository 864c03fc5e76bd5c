"""What is published: the posterior of the area means, its covariance as an operator, and the mean squared errors."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float

from fhjax.entrance import is_concrete, require_float64
from fhjax.errors import InputError
from fhjax.model.digest import refuse_foreign
from fhjax.model.reductions import joint_sums, to_rows
from fhjax.records import AreaData, FayHerriotFit, Posterior

Array = jax.Array


def posterior(
    data: AreaData,
    fit: FayHerriotFit,
    *,
    prior_mean: npt.ArrayLike | None = None,
    prior_precision: npt.ArrayLike | None = None,
) -> Posterior:
    """The posterior of the area means given y, the sampling variances and the fitted model variance.

    The mean is the EBLUP; the variance is g1 + g2. ``mse`` adds what the estimation of the model variance costs, by the
    formula that belongs to the fit's method: g1 + g2 + 2 g3 for REML and Prasad-Rao, with the bias term of Datta and
    Lahiri (2000) for ML and of Datta, Rao and Smith (2005) for the moment estimate.

    Args:
        data: m areas, the ones the model was fitted to.
        fit: the fitted model.
        prior_mean: (p,) mean of a Gaussian prior on the coefficients; 0 when only a precision is given.
        prior_precision: (p, p) its precision matrix, positive semidefinite. None: the flat prior of the paper.

    Raises:
        InputError: shapes that do not match, or a precision that is not symmetric positive semidefinite.

    At a model variance of 0 everything stays finite: B = 1 and the mean is the regression prediction. An area with
    sampling variance 0 has B = 0, mean y and variance 0. With a prior, ``mse`` is None: it has no frequentist formula.

    Source: docs/derivations.md, sections 1 and 14; Rao and Molina (2015), sections 6.1 and 6.2.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> from fhjax.model.posterior import posterior
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> [round(value, 4) for value in posterior(data, fit(data)).mean.tolist()]
        [1.2143, 3.0, 2.1071, 5.6786]
    """
    require_float64()
    p = data.X.shape[1]
    if fit.beta.shape != (p,):
        raise InputError(
            f"The fit has {fit.beta.shape[0]} coefficients and the data {p} columns: fit these data first."
        )
    refuse_foreign(fit, data, "those the posterior is asked for")
    if prior_precision is None:
        if prior_mean is not None:
            raise InputError("prior_mean needs prior_precision, the inverse of the prior's covariance.")
        return posterior_kernel(data.y, data.sampling_variance, data.X, data.mask, fit)
    precision = jnp.asarray(prior_precision, dtype=float)
    centre = jnp.zeros(p) if prior_mean is None else jnp.asarray(prior_mean, dtype=float)
    if precision.shape != (p, p) or centre.shape != (p,):
        raise InputError(
            f"The prior needs a mean of shape {(p,)} and a precision of shape {(p, p)}, "
            f"not {centre.shape} and {precision.shape}."
        )
    if is_concrete(precision, centre):
        matrix = np.asarray(precision)
        if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(centre))):
            raise InputError("The prior's mean and precision must be finite; 0 precision is the flat prior.")
        if not np.allclose(matrix, matrix.T) or np.min(np.linalg.eigvalsh(matrix)) < -1e-10 * np.max(np.abs(matrix)):
            raise InputError("prior_precision must be symmetric and positive semidefinite.")
    informed = _with_prior(fit, centre, precision)
    result = posterior_kernel(data.y, data.sampling_variance, data.X, data.mask, informed)
    return dataclasses.replace(result, mse=None)


@jax.jit
def _with_prior(fit: FayHerriotFit, centre: Array, precision: Array) -> FayHerriotFit:
    # A (X' V^-1 y + P b0) with A = (X' V^-1 X + P)^-1; in the basis U of the flat-prior covariance U U', where
    # A = U (I + U' P U)^-1 U' needs no inverse of X' V^-1 X.
    U = fit.beta_covariance_root
    assert U is not None
    inner = jnp.eye(U.shape[0]) + U.T @ precision @ U
    root = U @ jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(inner), jnp.eye(U.shape[0]), lower=True).T
    beta = fit.beta + root @ (root.T @ (precision @ (centre - fit.beta)))
    return dataclasses.replace(fit, beta=beta, beta_covariance=root @ root.T, beta_covariance_root=root)


def posterior_kernel(
    y: Float[Array, " m"],
    sampling_variance: Float[Array, " m"],
    X: Float[Array, "m p"],
    mask: Bool[Array, " m"] | None,
    fit: FayHerriotFit,
) -> Posterior:
    """The posterior as a pure function of arrays, for ``jit``, ``vmap`` and ``grad``. Rows that are padding give 0.

    Examples:
        >>> import jax.numpy as jnp
        >>> from fhjax.model.fit import fit_kernel
        >>> from fhjax.model.posterior import posterior_kernel
        >>> y, psi, X = jnp.array([1.0, 3.0, 2.0, 6.0]), jnp.full(4, 0.5), jnp.ones((4, 1))
        >>> posterior_kernel(y, psi, X, None, fit_kernel(y, psi, X)).shrinkage.shape
        (4,)
    """
    # The covariates, the largest of the arrays, do not pass through the compiled part, which would copy them.
    by_area, U = area_numbers(y, sampling_variance, X, mask, fit)
    return Posterior(
        **by_area,
        model_variance=fit.model_variance,
        beta=fit.beta,
        beta_covariance=fit.beta_covariance,
        X=X if mask is None else jnp.where(mask[:, None], X, 0.0),
        beta_covariance_root=U,
    )


@jax.jit
def area_numbers(
    y: Array, psi: Array, X: Array, mask: Array | None, fit: FayHerriotFit
) -> tuple[dict[str, Array | None], Array]:
    """The numbers of each area, by their names in :class:`Posterior`, and the root of the coefficients' covariance."""
    s, U = fit.model_variance, fit.beta_covariance_root
    if mask is not None:
        y, psi, X = jnp.where(mask, y, 0.0), jnp.where(mask, psi, 0.0), jnp.where(mask[:, None], X, 0.0)
    if U is None:
        U = jnp.linalg.cholesky(fit.beta_covariance)
    V = psi + s
    B = psi / jnp.where(V > 0, V, 1.0)
    columns = [X[:, j] for j in range(X.shape[1])]
    leverage = jnp.zeros_like(y)
    for k in range(X.shape[1]):
        part = sum((U[j, k] * column for j, column in enumerate(columns)), start=jnp.zeros_like(y))
        leverage = leverage + part * part
    prediction = sum((fit.beta[j] * column for j, column in enumerate(columns)), start=jnp.zeros_like(y))
    variance = B * s + B * B * leverage  # g1 + g2
    mse = None
    if fit.method != "given":
        spread, bias = _price_of_estimation(psi, s, mask, leverage if fit.method == "ml" else None, fit.method)
        # 2 g3, less the bias of the model variance times the derivative B^2 of g1.
        mse = variance + B * B * (spread / jnp.where(V > 0, V, 1.0) - bias)
    numbers = {"mean": y + B * (prediction - y), "variance": variance, "shrinkage": B, "mse": mse}
    # Undefined numbers, of areas that could not be meant, are infinite: outside jit the fit has raised before.
    return {name: None if v is None else jnp.where(jnp.isnan(v), jnp.inf, v) for name, v in numbers.items()}, U


def _price_of_estimation(
    psi: Array, s: Array, mask: Array | None, leverage: Array | None, method: str
) -> tuple[Array, Array]:
    """Twice the variance of the estimated model variance, and its bias."""
    V = to_rows(psi, jnp.inf) + s
    live = (V > 0) & jnp.isfinite(V)
    if mask is not None:
        live = live & to_rows(mask, False)
    # In units of the smallest V so that no sum over- or underflows.
    unit = jax.lax.stop_gradient(jnp.min(jnp.where(live, V, jnp.inf)))
    unit = jnp.where(jnp.isfinite(unit), unit, 1.0)
    w = jnp.where(live, unit / jnp.where(live, V, 1.0), 0.0)
    bias = jnp.zeros(())
    if method == "reml":
        _, w2 = joint_sums([w, w * w])
        variance = 2.0 / w2
    elif method == "ml":
        assert leverage is not None
        # tr[A sum w^2 x x'] = sum w^2 x' A x
        w2, trace = joint_sums([w * w, w * w * to_rows(leverage)])
        variance, bias = 2.0 / w2, -trace / unit / w2
    elif method == "moment":
        count, w1, w2 = joint_sums([jnp.where(live, 1.0, 0.0), w, w * w])
        variance = 2.0 * count / w1**2
        bias = 2.0 * (count * w2 - w1**2) / w1**3
    else:
        count, square = joint_sums([jnp.where(live, 1.0, 0.0), jnp.where(live, V / unit, 0.0) ** 2])
        variance = 2.0 * square / count**2
    return 2.0 * variance * unit * unit, bias * unit


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PosteriorCovariance:
    """The posterior covariance diag(d) + F F' with F (m, p): never built unless asked for.

    Sigma_ij = delta_ij B_i sigma_v^2 + B_i B_j x_i' A x_j (docs/derivations.md, sections 1 and 14).
    """

    independent: Array  # (m,) B sigma_v^2
    factor: Array  # (m, p) B_i U' x_i with A = U U'

    @property
    def shape(self) -> tuple[int, int]:
        return self.independent.shape[0], self.independent.shape[0]

    def diagonal(self) -> Array:
        """(m,) posterior variances."""
        return self.independent + jnp.sum(self.factor * self.factor, axis=1)

    def matvec(self, vector: Array) -> Array:
        """Sigma times a vector (m,) or the columns of a matrix (m, k), in O(m p)."""
        own = self.independent if vector.ndim == 1 else self.independent[:, None]
        return own * vector + self.factor @ (self.factor.T @ vector)

    def rows(self, index: npt.ArrayLike) -> Array:
        """(k, m) rows of Sigma."""
        index = jnp.asarray(index)
        block = self.factor[index] @ self.factor.T
        return block.at[jnp.arange(index.shape[0]), index].add(self.independent[index])

    def submatrix(self, index: npt.ArrayLike) -> Array:
        """(k, k) covariance of the chosen areas; a repeated area is the same variable twice."""
        index = jnp.asarray(index)
        same = index[:, None] == index
        return jnp.where(same, self.independent[index], 0.0) + self.factor[index] @ self.factor[index].T

    def to_dense(self, *, max_bytes: int = 2**30) -> Array:
        """(m, m), refused above ``max_bytes``.

        Raises:
            InputError: the matrix would be larger than ``max_bytes``.
        """
        m = self.independent.shape[0]
        if 8 * m * m > max_bytes:
            raise InputError(
                f"The dense covariance of {m:,} areas takes {8 * m * m / 2**30:,.1f} GiB, above max_bytes = "
                f"{max_bytes:,}. Use matvec, rows or submatrix, or raise max_bytes."
            )
        return jnp.diag(self.independent) + self.factor @ self.factor.T


def posterior_covariance(posterior: Posterior) -> PosteriorCovariance:
    """The posterior covariance as an operator in O(m p) memory.

    Args:
        posterior: of m areas.

    Source: docs/derivations.md, sections 1 and 14.

    Examples:
        >>> from fhjax.model.fit import area_data, fit
        >>> from fhjax.model.posterior import posterior, posterior_covariance
        >>> data = area_data([1.0, 3.0, 2.0, 6.0], [0.5, 0.5, 0.5, 0.5])
        >>> posterior_covariance(posterior(data, fit(data))).to_dense().shape
        (4, 4)
    """
    U = posterior.beta_covariance_root
    if U is None:
        U = jnp.linalg.cholesky(posterior.beta_covariance)
    return PosteriorCovariance(
        posterior.shrinkage * posterior.model_variance, posterior.shrinkage[:, None] * (posterior.X @ U)
    )
