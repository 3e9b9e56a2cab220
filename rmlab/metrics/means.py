"""Means of values in groups whose items come in clusters, for numbers that no benchmark defines: calibration,
agreement, preferences, probes. The same errors as `rmlab.metrics.estimate`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.metrics import errors

__all__ = ["ClusteredMean", "clustered_mean", "difference_interval", "mean_interval", "share_interval"]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_FLAT = 1e-12  # an error below this is rounding noise


class ClusteredMean(NamedTuple):
    """Mean of each group, all (groups,): with CR2 error and degrees of freedom, both NaN below 5 clusters.

    `n_equal` is the number of equal clusters that would be as unsure (Kish): where a few weigh most there are few.
    `n_seen`: how many the error rests on.
    """

    mean: Floats
    se: Floats
    freedom: Floats
    n_items: Codes
    n_clusters: Codes
    reason: list[str]
    n_equal: Floats
    n_seen: Floats


def clustered_mean(value: Floats, group: Codes, cluster: Codes, n_groups: int) -> ClusteredMean:
    """Mean of the known values of each group; `value`, `group` and `cluster` are (items,), NaN values count nowhere.

    A ratio of sums over clusters, with u = (sum - n mean) / N / sqrt(1 - n / N) for a cluster of n of the N items and
    variance sum u^2 (Miller, arXiv 2411.00640, section 2.2, with CR2's factor for few clusters).

    >>> value, two = np.array([1.0, 1, 1, 0, 0, 0, 1, 0, 1, 1]), np.repeat(np.arange(5), 2)
    >>> found = clustered_mean(value, np.zeros(10, int), two, 1)
    >>> found.mean.item(), round(found.se.item(), 4), found.freedom.round(6).item()
    (0.6, 0.1871, 4.0)
    """
    known = ~np.isnan(value)
    size = int(cluster.max(initial=-1)) + 1
    key, where = np.unique(group[known] * size + cluster[known], return_inverse=True)
    total = np.bincount(where, value[known], len(key))
    n = np.bincount(where, minlength=len(key)).astype(np.float64)
    owner = key // max(size, 1)
    items, clusters = np.bincount(owner, n, n_groups), np.bincount(owner, minlength=n_groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(owner, total, n_groups) / items
        h = n / items[owner]
        lever = np.where(h < 1, 1 / np.sqrt(1 - h), 0.0)
        influence = (total - n * mean[owner]) / items[owner] * lever  # NaN where a value is infinite
        n_equal = 1 / np.bincount(owner, h**2, n_groups)
    with np.errstate(over="ignore"):  # near the end of the floats, such as the loss of a sure and wrong margin
        squares: Floats = np.nan_to_num(influence) ** 2
        variance = np.bincount(owner, squares, n_groups).astype(np.float64)
        fourths = np.bincount(owner, squares**2, n_groups).astype(np.float64)
    withheld = np.where(clusters < errors.MIN_PROMPTS, np.nan, 0.0)
    freedom = errors.cluster_freedom(h, owner, n_groups)
    reason = [errors.TOO_FEW if c < errors.MIN_PROMPTS else "" for c in clusters]
    se, counted = np.sqrt(variance) + withheld, items.astype(np.intp)
    seen = errors.seen_clusters(variance, fourths)
    return ClusteredMean(mean, se, freedom + withheld, counted, clusters, reason, n_equal, seen)


def share_interval(found: ClusteredMean, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Mid-p interval of each mean of values from 0 to 1, with width at 0 and 1 too; NaN below 5 clusters."""
    items = found.n_items.astype(float)
    return errors.midp_limits(
        found.mean, found.se, items, found.n_equal, found.n_seen, found.freedom, confidence=confidence
    )


def mean_interval(found: ClusteredMean, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Symmetric t interval of each mean, for differences and effects; NaN below 5 clusters."""
    half = errors.t_quantile(found.freedom, confidence) * found.se
    return found.mean - half, found.mean + half


def difference_interval(found: ClusteredMean, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Interval of each mean difference of shares, inside -1 to 1.

    Where every cluster has the same difference the error is zero; the half-width is then the rate at which clusters
    may differ unseen, `errors.unseen_rate`. NaN below 5 clusters.
    """
    half = errors.t_quantile(found.freedom, confidence) * found.se
    half = np.where(found.se <= _FLAT, errors.unseen_rate(found.n_clusters.astype(float), confidence), half)
    return np.maximum(found.mean - half, -1), np.minimum(found.mean + half, 1)
