"""Errors and intervals of weighted means whose items come in clusters: a prompt's comparisons are not independent.

One notation throughout. `u` (models, clusters) is the influence: what each cluster does to a model's value, with the
small-sample factor 1 / sqrt(1 - h) of CR2, h being the cluster's share of its cell (Bell and McCaffrey 2002). So the
variance is the plain sum of u^2, inside each stratum and over all. Strata are sets of clusters that share cells.
"""

import numpy as np
from numpy.typing import NDArray

from rmlab.items.columns import group_sums

__all__ = [
    "MIN_PROMPTS",
    "TOO_FEW",
    "check_confidence",
    "cluster_freedom",
    "freedom_of_strata",
    "midp_limits",
    "mover",
    "seen_clusters",
    "stratum_share",
    "t_quantile",
    "total_freedom",
    "unseen_rate",
]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

MIN_PROMPTS = 5
"""Prompts below which a table gives no error and no interval: from so few, none means anything."""

TOO_FEW = f"fewer than {MIN_PROMPTS} prompts"
"""The reason that tables give for that."""

_ROUNDING = 1e-12  # below this an error is rounding noise
_WHOLE = 0.15  # of one more cluster that may fail whole, unseen; chosen by benchmarks/coverage.py
_HALVINGS = 50  # of the interval from 0 to 1: down to the last digits of a float


def t_quantile(freedom: Floats, confidence: float) -> Floats:
    """Student's t for a two-sided interval; NaN without degrees of freedom."""
    from scipy.special import stdtrit

    check_confidence(confidence)
    found: Floats = np.where(freedom > 0, stdtrit(np.maximum(freedom, 1e-3), 0.5 + confidence / 2), np.nan)
    return found


def check_confidence(confidence: float) -> None:
    """Raise ValueError unless `confidence` lies between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: {confidence!r}; allowed: between 0 and 1, for example 0.95")


def freedom_of_strata(share: Floats, stratum: Codes, n_strata: int) -> Floats:
    """Degrees of freedom of the variance in each stratum, (models, strata), from the clusters' shares.

    `share` (models, clusters) is the weight of a cluster in the value. With h the cluster's share of its stratum,
    df = 1 / (sum h^2 + sum over pairs of h^2 h'^2 / ((1 - h)(1 - h'))); equal clusters give their number less one.
    Bell and McCaffrey (2002), working independence; Pustejovsky and Tipton (2018). A working model in which clusters
    stand or fall whole gives fewer, and 97.9 % coverage where 12 unequal prompts have 95.9 % with these.
    """
    h = stratum_share(share, stratum, n_strata)
    squares, q, q_squares = (group_sums(x, stratum, n_strata) for x in _powers(h))
    return _freedom(squares, q, q_squares)


def cluster_freedom(h: Floats, group: Codes, n_groups: int) -> Floats:
    """The same for means of groups: `h` (clusters,) is each cluster's share of its group.

    >>> cluster_freedom(np.full(12, 1 / 12), np.zeros(12, int), 1).round(9).item()
    11.0
    """
    return _freedom(*(np.bincount(group, x, n_groups).astype(np.float64) for x in _powers(np.nan_to_num(h))))


def stratum_share(share: Floats, stratum: Codes, n_strata: int) -> Floats:
    """Each cluster's share of its stratum, (models, clusters); 0 where the stratum is empty."""
    total = group_sums(share, stratum, n_strata)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(share / total[:, stratum])


def _powers(h: Floats) -> tuple[Floats, Floats, Floats]:
    with np.errstate(divide="ignore", invalid="ignore"):
        # A cluster that is its whole stratum shows no spread: infinite here, so no degrees of freedom in the end.
        q = np.where(h < 1, h**2 / (1 - h), np.inf)
    return h**2, q, q**2


def _freedom(squares: Floats, q: Floats, q_squares: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = 1 / (squares + q**2 - q_squares)
    return np.where(np.isfinite(freedom), freedom, 0.0)


def total_freedom(variance: Floats, freedom: Floats) -> Floats:
    """Satterthwaite's degrees of freedom of a sum of variances (..., strata); without variance, the sum of theirs."""
    total = variance.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        spent = np.where(variance > 0, variance**2 / freedom, 0.0).sum(axis=-1)
        found: Floats = np.where(total > _ROUNDING**2, total**2 / spent, freedom.sum(axis=-1))
    return found


def midp_limits(
    share: Floats, se: Floats, n_items: Floats, n_clusters: Floats, seen: Floats, freedom: Floats, *, confidence: float
) -> tuple[Floats, Floats]:
    """Mid-p limits of a share from its clustered error: the exact binomial interval on the effective sample size.

    n_eff = share (1 - share) / se^2, at most the number of items and at least half the number of clusters; times
    (t(items - 1) / t(freedom))^2, as Korn and Graubard (1998) do for few clusters. Near 0 and 1 the error is itself
    unsure: it rests on the `seen` clusters that differ from the rest (`seen_clusters`), and one that fails once of nine
    makes n_eff the number of items. So n_eff is averaged with the number of clusters, as if a bit of one more cluster
    had failed whole; where none fails it is the number of clusters. The limits are quantiles of the half-and-half
    mixture of the two Beta distributions that the exact (Clopper-Pearson) limits come from, so the interval has width
    at 0 and 1 too. Coverage beside the alternatives: benchmarks/coverage.py and edges.py.
    """
    spread = share * (1 - share)
    with np.errstate(divide="ignore", invalid="ignore"):
        n_eff = np.where((se > _ROUNDING) & (spread > _ROUNDING), spread / se**2, n_clusters)
        n_eff = np.clip(n_eff, n_clusters / 2, np.maximum(n_items, n_clusters))
        n_eff = (seen + _WHOLE) / (seen / n_eff + _WHOLE / n_clusters)
        # At most 1: clusters may tell less than as many independent items, never more.
        few = t_quantile(np.maximum(n_items - 1, freedom), confidence) / t_quantile(freedom, confidence)
        n_eff = np.where(np.isfinite(n_eff), n_eff * few**2, np.nan)
    share = np.clip(share, 0, 1)
    tail = (1 - confidence) / 2
    low = np.where(share * n_eff > _ROUNDING, _midp_quantile(share, n_eff, tail), 0.0)
    high = np.where((1 - share) * n_eff > _ROUNDING, 1 - _midp_quantile(1 - share, n_eff, tail), 1.0)
    unknown = np.where(np.isnan(n_eff) | np.isnan(share), np.nan, 0.0)
    # The share is not the median of its limits: at confidences below 0.1 or so they may both lie on one side of it.
    return np.minimum(low, share) + unknown, np.maximum(high, share) + unknown


def _midp_quantile(share: Floats, n_eff: Floats, tail: float) -> Floats:
    """Quantile of half Beta(x, n - x + 1) and half Beta(x + 1, n - x), where x = share * n: by bisection."""
    from scipy.special import betainc

    n = np.where(n_eff > 0, n_eff, 1.0)
    x = np.clip(np.nan_to_num(share), 0, 1) * n
    # A Beta with a parameter of 0 is a point at 0 or 1; the least float comes as close to it as anything.
    below = np.maximum(x, 1e-300), n - x + 1
    above = x + 1, np.maximum(n - x, 1e-300)
    low, high = np.zeros_like(n), np.ones_like(n)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = (betainc(*below, middle) + betainc(*above, middle)) / 2 < tail
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return (low + high) / 2


def seen_clusters(squares: Floats, fourths: Floats) -> Floats:
    """Number of clusters that an error rests on, from the sums of their influences' squares and fourth powers.

    k clusters that differ from the rest by the same amount give k; where none differs, 0.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(squares > _ROUNDING**2, squares**2 / fourths, 0.0)


def mover(value: Floats, weight: Floats, share: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Limits of a weighted sum of independent shares from the limits of each: MOVER, Zou and Donner (2008).

    `weight`, `share`, `low`, `high` are (models, strata); strata of no weight add nothing.
    """
    down, up = (np.where(weight != 0, weight * (share - end), 0.0) for end in (low, high))
    return value - np.sqrt((down**2).sum(axis=1)), value + np.sqrt((up**2).sum(axis=1))


def unseen_rate(n_clusters: Floats, confidence: float) -> Floats:
    """Upper limit of the rate of something that none of n clusters shows: 1 - (tail)^(1 / n), about 3.7 / n at 95 %."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rate: Floats = 1 - ((1 - confidence) / 2) ** (1 / n_clusters)
    return rate
