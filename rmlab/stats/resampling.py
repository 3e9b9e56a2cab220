"""What the test of `compare` would say of other tables: clusters of two models drawn anew, at any difference."""

from typing import NamedTuple

import numpy as np

from rmlab.items.columns import group_sums
from rmlab.items.grid import Codes, Floats
from rmlab.metrics.estimate import Estimate
from rmlab.stats.difference import is_exact
from rmlab.stats.mcnemar import mcnemar

__all__ = ["Drawn", "Pair", "draw", "pair_of", "reachable", "tilt"]

_BLOCK = 250  # draws held in memory at once
_STEEPEST = 60.0  # of the tilt, per unit of gain: by then nearly all draws are the clusters that gain most
_ROUNDING = 1e-12
_HALVINGS = 60  # of the tilts: to the last digits of a float


class Pair(NamedTuple):
    """Two models on the same clusters, all (clusters,), sorted by stratum and, inside, by `gain`.

    `gain` is the difference of their credits in a cluster, from -range to range; `share` what the cluster weighs.
    """

    gain: Floats
    share: Floats
    stratum: Codes
    exact: bool


class Drawn(NamedTuple):
    """Results of tables drawn anew, all (draws,): the difference, its error, and its p."""

    value: Floats
    se: Floats
    p: Floats


def pair_of(one: Estimate, a: int, b: int) -> Pair:
    """Two models of an estimate; clusters that neither answered are left out."""
    share = (one.share[a] + one.share[b]) / 2
    there = np.flatnonzero(share > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(share > 0, (one.contribution[a] - one.contribution[b]) / share, 0.0)
    order = there[np.lexsort((gain[there], one.stratum[there]))]
    _, stratum = np.unique(one.stratum[order], return_inverse=True)
    exact = bool(is_exact(one, np.array([a]), np.array([b]))[0])
    return Pair(gain[order], share[order], stratum.astype(np.intp), exact)


def reachable(pair: Pair) -> float:
    """Largest difference that tables with these clusters alone can have."""
    return float(_expected(pair, _weights(pair, _STEEPEST)))


def tilt(pair: Pair, difference: float) -> Floats:
    """Probability of each cluster inside its stratum with which the expected difference is `difference`.

    Proportional to exp(lambda gain) among the clusters that differ, lambda by bisection: the data's own steps, more of
    some and fewer of others, and as many prompts as now on which nothing differs. Adding a constant instead would make
    gains that no prompt can have, and hide how discrete the test is.
    """
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _expected(pair, _weights(pair, middle)) < difference:
            low = middle
        else:
            high = middle
    return _weights(pair, (low + high) / 2)


def draw(pair: Pair, weights: Floats, *, draws: int, seed: int = 0, scale: float = 1.0) -> Drawn:
    """Tables of `scale` times as many clusters, drawn with the weights inside each stratum, and the test on each.

    The same seed gives the same uniforms, dealt out to clusters in the order of their gain, so that the difference of
    every table rises with the tilt: power then rises too, and a search for it does not stumble over noise.
    """
    rng = np.random.default_rng(seed)
    found = []
    for start in range(0, draws, _BLOCK):
        counts = _counts(pair, weights, min(_BLOCK, draws - start), scale, rng)
        found.append(exact_test(pair, counts) if pair.exact else t_test(pair, counts))
    return Drawn(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _weights(pair: Pair, steepness: float) -> Floats:
    n_strata = int(pair.stratum.max(initial=-1)) + 1
    apart = np.abs(pair.gain) > _ROUNDING
    # Less the largest exponent, so that it is 0 and nothing overflows; the factor cancels below.
    raw = np.exp(steepness * (pair.gain - (pair.gain.max() if steepness > 0 else pair.gain.min()))) * apart
    total = np.bincount(pair.stratum, raw, n_strata)
    size, moved = np.bincount(pair.stratum, minlength=n_strata), np.bincount(pair.stratum, apart, n_strata)
    found: Floats = np.where(apart, raw * (moved / np.maximum(total, 1e-300))[pair.stratum], 1.0)
    return found / size[pair.stratum]


def _expected(pair: Pair, weights: Floats) -> float:
    """Difference of a table whose clusters come in these proportions."""
    gained, weighed, whole = (
        np.bincount(pair.stratum, x) for x in (weights * pair.share * pair.gain, weights * pair.share, pair.share)
    )
    return float((whole * gained / np.maximum(weighed, 1e-300)).sum())


def _counts(pair: Pair, weights: Floats, draws: int, scale: float, rng: np.random.Generator) -> Floats:
    """How often each cluster stands in each table: (draws, clusters)."""
    counts = np.zeros((draws, len(weights)))
    for stratum in range(int(pair.stratum.max()) + 1):
        members = np.flatnonzero(pair.stratum == stratum)
        # What is drawn from n clusters varies by one n-th less than they did; drawing one fewer makes up for it (Rao
        # and Wu 1988). The exact test needs none of that: how often two models differ is right on average as it is.
        size = max(round(scale * len(members)) - (not pair.exact), 2)
        edges = np.cumsum(weights[members])
        place = np.searchsorted(edges / edges[-1], rng.random((draws, size)), side="right").clip(0, len(members) - 1)
        flat = place + len(members) * np.arange(draws)[:, None]
        found = np.bincount(flat.ravel(), minlength=draws * len(members))
        counts[:, members] = found.reshape(draws, -1)
    return counts


def exact_test(pair: Pair, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """McNemar's test as in `differences`, on all tables at once: difference, error and p of each."""
    only_a, only_b = (np.rint(counts @ (pair.gain * sign > 0.5)).astype(np.intp) for sign in (1, -1))
    n = counts.sum(axis=1)
    value = (only_a - only_b) / n
    se = np.sqrt(((only_a + only_b) / n - value**2) / np.maximum(n - 1, 1))
    return value, se, mcnemar(only_a, only_b)


def t_test(pair: Pair, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """The t test of `differences`, on all tables at once; a stratum is a mean of gains, weighed by the shares."""
    # Its formulas again, for counts: a cluster that is drawn three times stands for three clusters.
    from scipy.special import stdtr

    n_strata = int(pair.stratum.max()) + 1
    whole = np.bincount(pair.stratum, pair.share, n_strata)
    weighed = group_sums(counts * pair.share, pair.stratum, n_strata)
    mean = group_sums(counts * pair.share * pair.gain, pair.stratum, n_strata) / weighed
    h = pair.share / weighed[:, pair.stratum]
    with np.errstate(divide="ignore", invalid="ignore"):
        lever = np.where(h < 1, 1 / (1 - h), 0.0)
        variance = group_sums(counts * lever * (h * (pair.gain - mean[:, pair.stratum])) ** 2, pair.stratum, n_strata)
        variance = variance * whole**2
        q = h**2 * lever
        squares, linked, twice = (group_sums(counts * x, pair.stratum, n_strata) for x in (h**2, q, q**2))
        differing = group_sums(counts * (np.abs(pair.gain) > _ROUNDING), pair.stratum, n_strata)
        freedom = np.minimum(1 / (squares + linked**2 - twice), np.maximum(differing - 1, 1))
        total, k = variance.sum(axis=1), differing.sum(axis=1)
        spent = np.where(variance > 0, variance**2 / freedom, 0.0).sum(axis=1)
        freedom = np.minimum(np.where(spent > 0, total**2 / spent, 1.0), np.maximum(k - 1, 1e-3))
        value, se = mean @ whole, np.sqrt(total)
        p = 2 * stdtr(freedom, -np.abs(value) / se)
    still = (k <= 1) | (total <= _ROUNDING**2)
    return value, se, np.where(still, np.minimum(2.0 ** (1 - np.minimum(k, 1000)), 1.0), p)
