"""Logistic regression with a penalty and errors clustered by prompt: the fit, its penalty, and whether it fits."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PENALTY", "Logistic", "Penalty", "fit", "misfit", "separated"]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Penalty = float | Literal["cv"]

PENALTY = 0.1
"""Default weight of the squared slopes: a normal prior of standard deviation 3.2, in log-odds per standard deviation.

With 1 a strong taste for a middle length was shrunk by 0.7 of its error, and covered 91 % on the shorter files of
RM-Bench; with 0.1 intervals are 2 to 8 % wider and hold (benchmarks/equal_length.py). Less changes little more.
"""

_STEPS = 100  # of Newton's method, at most
_SETTLED = 1e-9  # in log-odds: a smaller step changes nothing
_LONGEST = 4.0  # of a Newton step, in log-odds: the first steps of a nearly separated fit are far too long
_GRID = (0.01, 0.1, 1.0, 10.0, 100.0)  # penalties that cross-validation chooses from
_FOLDS = 5
_MIN_PER_DIRECTION = 5  # clusters that the test of fit needs for each direction it looks into


class Logistic(NamedTuple):
    """A fit of `fit`: estimates (the first column's is never penalised), their covariance, the penalty used."""

    estimate: Floats
    covariance: Floats
    penalty: float


def fit(y: Floats, x: Floats, cluster: Codes, penalty: Penalty = 0.0) -> Logistic:
    """Maximise the log-likelihood of `y` (0 to 1) less penalty / 2 times the squared estimates, the first one's aside.

    "cv" takes the penalty with the best log-likelihood on prompts left out, in 5 folds. The covariance is the sandwich
    over clusters (G/(G-1) * (n-1)/(n-k), as in Stata), with the penalty's own variance in the middle: that of a
    normal prior, so that the interval makes room for what the penalty shrinks (Nychka 1988; Marra and Wood 2012). NaN
    with one cluster only.
    """
    chosen = _cross_validated(y, x, cluster) if penalty == "cv" else float(penalty)
    estimate = _maximum(y, x, chosen)
    # At the maximum: the information's inverse is the bread of the sandwich.
    inverse, residual = _curvature(y, x, estimate, chosen)
    n_clusters = int(cluster.max()) + 1
    if n_clusters < 2:
        return Logistic(estimate, np.full((x.shape[1],) * 2, np.nan), chosen)
    score = _by_cluster(x * residual[:, None], cluster)
    small = n_clusters / (n_clusters - 1) * (len(y) - 1) / max(len(y) - x.shape[1], 1)
    return Logistic(estimate, inverse @ (small * score.T @ score + np.diag(_weights(x, chosen))) @ inverse, chosen)


def misfit(y: Floats, x: Floats, other: Floats, cluster: Codes, found: Logistic) -> float:
    """p-value of a test whether the columns of `other` would improve the fit; NaN where there are too few clusters.

    A score test: nothing is fitted again, and the variance is that over clusters, so comparisons of a prompt may
    depend on each other. F with as many directions as `other` has, and clusters less directions.
    """
    from scipy.stats import f

    if not other.shape[1]:
        return float("nan")
    p = _sigmoid(x @ found.estimate)
    # Weighted by the root of the variance of a win, the score test is a regression on what the fit leaves over.
    root = np.sqrt(p * (1 - p))[:, None]
    # What the fitted columns already explain is not evidence against the fit: remove it, and drop columns that vanish.
    known, wanted = np.linalg.qr(root * x)[0], root * other
    left = wanted - known @ (known.T @ wanted)
    kept = np.linalg.norm(left, axis=0) > 1e-6 * np.linalg.norm(wanted, axis=0)
    if not kept.any():
        return float("nan")
    size = _by_cluster(left[:, kept] / np.maximum(root, 1e-12) * (y - p)[:, None], cluster)
    values, directions = np.linalg.eigh(size.T @ size)
    free = values > 1e-10 * max(values.max(initial=0.0), 1e-300)
    q, n = int(free.sum()), len(size)
    if q == 0 or n < _MIN_PER_DIRECTION * q:
        return float("nan")
    total = size.sum(axis=0) @ directions[:, free]
    statistic = float((total**2 / values[free]).sum())  # at most n, as the sums of n clusters are in its variance
    statistic = statistic / (1 - min(statistic / n, 1 - 1e-12)) * (n - 1) / n  # to Hotelling's, around the mean
    return float(f.sf(statistic * (n - q) / (q * (n - 1)), q, n - q))


def separated(y: Floats, x: Floats) -> bool:
    """Whether some direction puts all wins on one side and all losses on the other (boundary allowed): no maximum.

    Ties that count half must lie on the boundary. With one column beside the intercept the two sides are intervals;
    with more it is a linear programme: the largest sum of signed distances with none negative (Konis 2007).
    """
    if x.shape[1] == 2:
        return _separated_on_a_line(np.sign(y - 0.5), x[:, 1])
    from scipy.optimize import linprog

    rows, counts = np.unique(np.column_stack([np.sign(y - 0.5), x]), axis=0, return_counts=True)
    sign, points = rows[:, 0], rows[:, 1:]
    signed, tied = points[sign != 0] * sign[sign != 0, None], points[sign == 0]
    found = linprog(
        -(counts[sign != 0, None] * signed).sum(axis=0),
        A_ub=-signed,
        b_ub=np.zeros(len(signed)),
        A_eq=tied if len(tied) else None,
        b_eq=np.zeros(len(tied)) if len(tied) else None,
        # Any direction can be made longer: bounded, so that a maximum exists; above zero, some direction separates.
        bounds=(-1, 1),
    )
    return bool(found.status == 0 and found.fun is not None and -found.fun > 1e-6)


def _separated_on_a_line(side: Floats, x: Floats) -> bool:
    """`separated` for one column: some point has all losses (side -1) on one side and all wins on the other.

    Ties (side 0) must all be that point, and something must lie off it. The linear programme says the same, but took
    half of the time of a fit of 2,500 comparisons.
    """
    won, lost, tied = x[side > 0], x[side < 0], x[side == 0]
    for sign in (1.0, -1.0):
        low, high = (sign * lost).max(initial=-np.inf), (sign * won).min(initial=np.inf)
        boundary = low <= high and (not len(tied) or low <= sign * tied[0] <= high)
        if boundary and np.ptp(x) > 0 and (not len(tied) or np.ptp(tied) == 0):
            return True
    return False


def _maximum(y: Floats, x: Floats, penalty: float) -> Floats:
    """Newton's method, steps bounded, and halved while they make the objective worse."""
    # Not scipy.optimize.minimize: to the same 1e-9 its Newton-CG takes 1 to 1.7 times as long, BFGS and trust-exact up
    # to 8 times, and most runs end without success there, as the loss itself has no more digits. The inverse that each
    # step needs is the sandwich's bread as well; a pseudo-inverse, so that columns that repeat do not stop the fit.
    weights = _weights(x, penalty)

    def loss(b: Floats) -> float:
        return float(np.logaddexp(0, x @ b).sum() - y @ (x @ b) + 0.5 * weights @ b**2)

    estimate = np.zeros(x.shape[1])
    here = loss(estimate)
    for _ in range(_STEPS):
        inverse, residual = _curvature(y, x, estimate, penalty)
        step = inverse @ (x.T @ residual - weights * estimate)
        step = step * min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-300))
        # The loss is convex: a step that makes it worse was too long, never the wrong way.
        while (there := loss(estimate + step)) > here and np.abs(step).max() > _SETTLED:
            step = step / 2
        estimate, here = estimate + step, there
        if np.abs(step).max() <= _SETTLED:
            break
    return estimate


def _curvature(y: Floats, x: Floats, estimate: Floats, penalty: float) -> tuple[Floats, Floats]:
    """Inverse of the (penalised) information, and the residuals y - p."""
    p = _sigmoid(x @ estimate)
    information = x.T @ (x * (p * (1 - p))[:, None]) + np.diag(_weights(x, penalty))
    inverse: Floats = np.linalg.pinv(information, rcond=1e-14, hermitian=True).astype(np.float64)
    return inverse, y - p


def _cross_validated(y: Floats, x: Floats, cluster: Codes) -> float:
    """The penalty of the grid with the best log-likelihood on clusters left out; the largest where several are best."""
    n = int(cluster.max()) + 1
    fold = np.empty(n, np.intp)
    # Whole clusters: comparisons of one prompt on both sides would let the fit recognise it.
    fold[np.random.default_rng(0).permutation(n)] = np.arange(n) % _FOLDS
    losses = []
    for penalty in _GRID:
        loss = 0.0
        for number in range(min(_FOLDS, n)):
            away = fold[cluster] == number
            odds = x[away] @ _maximum(y[~away], x[~away], penalty)
            loss += float(np.logaddexp(0, odds).sum() - y[away] @ odds)
        losses.append(loss)
    # Argmin takes the first: of the reversed list the largest.
    return _GRID[len(_GRID) - 1 - int(np.argmin(losses[::-1]))]


def _weights(x: Floats, penalty: float) -> Floats:
    weights: Floats = np.full(x.shape[1], penalty)
    weights[0] = 0.0  # the intercept is what is asked for
    return weights


def _by_cluster(rows: Floats, cluster: Codes) -> Floats:
    """Sums of the rows of each cluster: (rows, k) to (clusters, k)."""
    sums: Floats = np.stack([np.bincount(cluster, column) for column in rows.T], axis=1)
    return sums


def _sigmoid(x: Floats) -> Floats:
    from scipy.special import expit

    result: Floats = expit(x)
    return result
