"""Logistic regression with Firth's penalty, and errors clustered by prompt."""

from typing import NamedTuple

import numpy as np
import scipy

from rmlab.tables import FloatArray, IntArray

# There is always a maximum, but where a difference alone decides the steps shrink
# slowly.
_MAX_STEPS = 100
_LONGEST_STEP = 5.0  # in log-odds, as R's logistf
_CONVERGED = 1e-8  # in log-odds
_DEPENDENT = 1e-7  # share of the largest singular value below which there is none
_MAX_HALVINGS = 10  # of a step
_ROUNDING = 1e-10  # of a log-likelihood


class Curve(NamedTuple):
    """A fitted curve: the log-odds of the rows of x, the first column of which is one.

    inverse is that of the information, (k, k).
    """

    x: FloatArray
    coefficients: FloatArray
    inverse: FloatArray
    log_odds: FloatArray


class Intercept(NamedTuple):
    """Log-odds where all columns are zero, with its error, degrees of freedom, and the
    influence of each cluster, (clusters,).
    """

    value: float
    se: float
    df: float
    influence: FloatArray


def fit_curve(y: FloatArray, columns: FloatArray) -> Curve:
    """Fit an intercept and the columns by Newton's method, a step halved until the
    penalised likelihood does not fall.

    The penalty is Firth's (1993): half of each row's leverage is added to its wins and
    to its losses. No effect then runs away where a difference alone decides, and a rare
    difference has little bias.
    """
    x = np.column_stack([np.ones(len(y)), columns])
    coefficients = np.zeros(x.shape[1])
    # Its determinants are those of x but for a factor, also where columns of x repeat.
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    basis = left[:, sizes > _DEPENDENT * sizes[0]]
    likelihood = _log_likelihood(y, basis, x @ coefficients)
    for _ in range(_MAX_STEPS):
        p = scipy.special.expit(x @ coefficients)
        weight = p * (1 - p)
        information = (x * weight[:, None]).T @ x
        # A pseudo-inverse, so that columns that repeat each other share one effect.
        inverse = np.linalg.pinv(information, rcond=1e-14, hermitian=True)
        leverage = weight * ((x @ inverse) * x).sum(axis=1)
        score = x.T @ (y - p + leverage * (0.5 - p))

        step = inverse @ score
        length = np.abs(x @ step).max()
        damping = min(1.0, _LONGEST_STEP / max(length, _CONVERGED))
        step = step * damping
        lowest = likelihood - _ROUNDING * (1 + abs(likelihood))
        likelihood = _log_likelihood(y, basis, x @ (coefficients + step))
        for _ in range(_MAX_HALVINGS):
            if likelihood >= lowest:
                break
            step = step / 2
            likelihood = _log_likelihood(y, basis, x @ (coefficients + step))
        coefficients = coefficients + step
        if length < _CONVERGED:
            break
    return Curve(x, coefficients, np.asarray(inverse), x @ coefficients)


def _log_likelihood(y: FloatArray, basis: FloatArray, log_odds: FloatArray) -> float:
    """The log-likelihood with Firth's penalty, but for a constant."""
    p = scipy.special.expit(log_odds)
    information = (basis * (p * (1 - p))[:, None]).T @ basis
    penalty = np.linalg.slogdet(information)[1] / 2
    return float(y @ log_odds - np.logaddexp(0, log_odds).sum() + penalty)


def read_intercept(y: FloatArray, curve: Curve, cluster: IntArray) -> Intercept:
    """Log-odds of a curve where all columns are zero.

    The error is the larger of the clustered one and the model's own, since residuals
    vanish where a difference decides. The degrees of freedom are the effective number
    of clusters that tell of the intercept (Kish), less one.
    """
    leverage = curve.x @ curve.inverse[:, 0]
    p = scipy.special.expit(curve.log_odds)
    influence = np.asarray(np.bincount(cluster, leverage * (y - p)), np.float64)

    # CR1, as cov_type="cluster" in statsmodels.
    n_clusters = len(influence)
    n, k = curve.x.shape
    small_sample = n_clusters / max(n_clusters - 1, 1) * (n - 1) / max(n - k, 1)
    clustered = small_sample * (influence**2).sum()

    information = np.bincount(cluster, leverage**2 * p * (1 - p))
    variance = information.sum()
    share = information / variance
    return Intercept(
        value=curve.coefficients[0],
        se=np.sqrt(max(clustered, variance)),
        df=1 / (share**2).sum() - 1,
        influence=influence,
    )
