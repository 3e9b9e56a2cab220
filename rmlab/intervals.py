"""Standard errors and intervals of means whose terms come in clusters: a prompt's comparisons are not independent."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["clustered_se", "normal_interval", "share_interval"]

Floats = NDArray[np.float64]
_ROUNDING = 1e-12  # below this a variance is rounding noise


def clustered_se(
    sums: Floats, counts: Floats, groups: NDArray[np.intp], n_groups: int
) -> tuple[Floats, Floats, Floats]:
    """Mean, clustered standard error and number of clusters of each group.

    `sums` and `counts` hold one entry per cluster (a prompt): the sum of its terms and how many there are; `groups`
    says to which group each cluster belongs. A ratio estimator: mean = sum of sums / sum of counts,
    variance = C/(C-1) * sum((sums - mean * counts)^2) / (sum of counts)^2 (Miller, arXiv 2411.00640, section 2.2).
    NaN where a group is empty; the error is NaN with fewer than two clusters.

    >>> mean, se, n = clustered_se(np.array([3.0, 0.0]), np.array([3.0, 3.0]), np.array([0, 0]), 1)
    >>> mean.item(), se.item(), n.item()
    (0.5, 0.5, 2.0)
    """
    total = np.bincount(groups, counts, n_groups).astype(np.float64)
    clusters = np.bincount(groups, counts > 0, n_groups).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(groups, sums, n_groups) / total
        residual = sums - mean[groups] * counts
        scale = clusters / (clusters - 1)
        se = np.sqrt(scale * np.bincount(groups, residual**2, n_groups)) / total
    se[clusters < 2] = np.nan
    return mean, se, clusters


def share_interval(mean: Floats, se: Floats, clusters: Floats, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson interval of a share, with the effective sample size that its clustered standard error implies.

    n_eff = mean (1 - mean) / se^2. Where the error is zero (all right or all wrong) n_eff is the number of
    clusters, so the interval never has zero width. Student's t with clusters - 1 degrees of freedom.
    Wilson (1927); effective sample size as in Korn and Graubard (1998). NaN below two clusters.
    """
    t = _quantile(clusters, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = mean * (1 - mean)
        n_eff = np.where((se > _ROUNDING) & (spread > _ROUNDING), spread / se**2, clusters)
        centre = (mean + t**2 / (2 * n_eff)) / (1 + t**2 / n_eff)
        half = t / (1 + t**2 / n_eff) * np.sqrt(np.maximum(spread, 0) / n_eff + t**2 / (4 * n_eff**2))
    return np.clip(np.minimum(centre - half, mean), 0, 1), np.clip(np.maximum(centre + half, mean), 0, 1)


def normal_interval(mean: Floats, se: Floats, clusters: Floats, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Symmetric interval mean +- t * se, for differences and effects. NaN below two clusters."""
    t = _quantile(clusters, confidence)
    return mean - t * se, mean + t * se


def _quantile(clusters: Floats, confidence: float) -> Floats:
    from scipy.special import stdtrit

    freedom = np.asarray(clusters, float) - 1
    return np.where(freedom > 0, stdtrit(np.maximum(freedom, 1), 0.5 + confidence / 2), np.nan)
