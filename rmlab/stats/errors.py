"""Which models err alike: correlations of errors that accuracy does not cap, and groups of models that come back."""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.items.columns import allowed
from rmlab.items.comparisons import Ties
from rmlab.items.grid import Floats, Items
from rmlab.stats.difficulty import several

__all__ = ["error_clusters", "error_correlation"]

# `both_below` divides by the cosine of the angle, which is zero at a correlation of 1.
_CLOSEST = 0.9999  # correlations lie between -this and this
_HALVINGS = 20  # of the interval from -1 to 1: to 2e-6
_FARTHEST_SHARED = 0.99  # of the correlation with the other models: at 1 nothing would be left to correlate
# Of three expected, none is seen by chance one time in twenty: exp(-3).
_TELLING = 3.0  # comparisons expected of independent models, from which on an outcome never seen is telling
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)  # right to 1e-9 even where correlations are at their limit
_SPLITS = 5  # of the prompts into halves
_MIN_PROMPTS = 20  # prompts for which halves are compared
_COMES_BACK = 0.5  # adjusted Rand index that a number of clusters must reach


def error_correlation(
    pairs: pd.DataFrame,
    *,
    kind: Literal["tetrachoric", "residual"] = "tetrachoric",
    ties: Ties = "loss",
    common: bool = False,
) -> pd.DataFrame:
    """How alike the errors of two models are: a square frame, models by models, on comparisons that both answered.

    "tetrachoric": the correlation of two normal variables that, cut where the two models' accuracies are, give the wins
    and losses seen (Pearson 1900). Unlike the plain (phi) correlation it is not capped where accuracies differ: a model
    at 0.95 whose errors are all among those of a model at 0.55 is next to 1, where phi has 0.25. It holds what all
    models have in common, too: some comparisons are hard for each of them.
    "residual": its part beyond that, the partial tetrachoric correlation given the mean of all other models: above 0
    the two err alike on comparisons of equal difficulty, below 0 they fail on different ones. With two models nothing
    can be taken off.
    Where one of the four outcomes (both right, ... both wrong) was never seen although independent models would show
    three or more, the correlation is next to 1 or -1. With fewer its absence says little, and half a comparison is
    added (Brown and Benedetti 1977): a single error in common is not a perfect correlation. NaN where a model has no
    spread. Half a win counts as half in each of its outcomes.
    """
    allowed("kind", kind, ("tetrachoric", "residual"))
    table = several(pairs, ties, common)
    square = _tetrachoric(table.credit)
    square = _residual(square) if kind == "residual" else square
    names = pd.Index(table.models, name="model")
    return pd.DataFrame(square, index=names, columns=names)


def error_clusters(
    pairs: pd.DataFrame, *, n_clusters: int | None = None, ties: Ties = "loss", common: bool = False
) -> pd.DataFrame:
    """Models grouped by their errors beyond common difficulty: one row per model, those of a cluster together.

    Columns: model, cluster (1 is the largest), size (models in it), nearest (the model that errs most alike),
    correlation (with it: "residual", see `error_correlation`), within (mean residual correlation with the others of the
    cluster; NaN alone), stability. Average-linkage clustering with distance 1 - correlation.
    How many: prompts are split in halves at random, 5 times, and each half is clustered; `stability` is the mean
    adjusted Rand index of the two halves' groups (1: the same groups; 0: no more alike than chance; Hubert and Arabie
    1985). The halves are dealt by the prompts' keys: the order of rows changes nothing, other ids give other halves.
    The number with the highest one is taken, from 2 to the square root of the number of models times 1.5; one cluster
    where none reaches 0.5, or with fewer than 20 prompts (stability is then that of the best number, or NaN).
    `n_clusters` asks for at most so many instead. A cluster is a group of models with like errors on these prompts; it
    does not say that an ensemble of them gains nothing: `rmlab.metrics.ensemble` measures that.
    """
    if n_clusters is not None and n_clusters < 1:
        raise ValueError(f"n_clusters: {n_clusters!r}; allowed: a whole number from 1, or None to have it chosen")
    table = several(pairs, ties, common)
    credit = table.credit
    alike = _residual(_tetrachoric(credit))
    stability = _stability(credit, table, [n_clusters] if n_clusters else _numbers(len(credit)))
    best = max(stability, key=lambda k: np.nan_to_num(stability[k], nan=-1.0))
    n = n_clusters or (best if stability[best] >= _COMES_BACK else 1)
    label, order = _cut(alike, n)
    return _described(alike, label, table.models, stability[best]).iloc[order].sort_values(
        "cluster", kind="stable"
    ).reset_index(drop=True)  # fmt: skip


def _described(alike: Floats, label: NDArray[np.intp], models: list[str], stability: float) -> pd.DataFrame:
    same = (label[:, None] == label) & ~np.eye(len(label), dtype=bool)
    # A model is not its own nearest; a correlation that is unknown counts as none.
    others = np.where(np.eye(len(alike), dtype=bool), -np.inf, np.nan_to_num(alike))
    nearest = others.argmax(axis=1)
    size = same.sum(axis=1)
    with np.errstate(invalid="ignore"):
        within = np.where(same, np.nan_to_num(alike), 0.0).sum(axis=1) / size
    names = np.array(models, object)
    return pd.DataFrame({"model": pd.Series(names, dtype="str"), "cluster": label, "size": size + 1}).assign(
        nearest=pd.Series(names[nearest], dtype="str"),
        correlation=others.max(axis=1),
        within=within,
        stability=stability,
    )


def _numbers(models: int) -> list[int]:
    return list(range(2, max(2, int(1.5 * np.sqrt(models))) + 1))


def _stability(credit: Floats, table: Items, numbers: list[int]) -> dict[int, float]:
    """For each number of clusters, the mean adjusted Rand index of the groups that two halves of the prompts give."""
    n_prompts = int(table.prompt.max(initial=-1)) + 1
    if n_prompts < _MIN_PROMPTS:
        return dict.fromkeys(numbers, np.nan)
    found: dict[int, list[float]] = {k: [] for k in numbers}
    for seed in range(_SPLITS):
        first = np.random.default_rng(seed).permutation(n_prompts) < n_prompts // 2
        halves = [_residual(_tetrachoric(credit[:, side[table.prompt]])) for side in (first, ~first)]
        for k in numbers:
            # One group comes back trivially.
            found[k].append(rand_index(*(_cut(half, k)[0] for half in halves)) if k > 1 else np.nan)
    return {k: float(np.mean(values)) for k, values in found.items()}


def _cut(alike: Floats, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Cluster of each model, numbered from 1 by size, and the order of the tree's leaves."""
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
    from scipy.spatial.distance import squareform

    # Correlations of 1 to -1 are distances of 0 to 2, but for rounding, which the clip takes off.
    distance = 1 - np.nan_to_num(alike)
    np.fill_diagonal(distance, 0.0)
    # The optimal order of leaves makes the rows readable and nothing else; it is slow for many models.
    tree = linkage(squareform(np.clip(distance, 0, 2), checks=False), "average", optimal_ordering=len(alike) <= 500)
    # fcluster numbers clusters by the tree; people expect number 1 to be the largest.
    raw = pd.Series(fcluster(tree, n, "maxclust"))
    place = {cluster: i + 1 for i, cluster in enumerate(raw.value_counts(sort=True).index)}
    return raw.map(place).to_numpy(np.intp), leaves_list(tree).astype(np.intp)


def rand_index(one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """Adjusted Rand index of two groupings."""
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1)
    # Pairs of models that are together in both groupings, in the one, in the other (Hubert and Arabie 1985).
    together, first, second = ((n * (n - 1) / 2).sum() for n in (table, table.sum(axis=1), table.sum(axis=0)))
    chance = first * second / (len(one) * (len(one) - 1) / 2)
    most = (first + second) / 2
    return float((together - chance) / (most - chance)) if most > chance else 0.0


def _tetrachoric(credit: Floats) -> Floats:
    """Tetrachoric correlation of each two rows, by bisection on all pairs at once."""
    from scipy.special import ndtri

    upper = np.triu_indices(len(credit), 1)
    known = (~np.isnan(credit)).astype(float)
    filled = np.nan_to_num(credit)
    # For each pair of models, over what both answered: both right, the one right, the other right, and how many.
    both, one, other, n = (
        square[upper] for square in (filled @ filled.T, filled @ known.T, known @ filled.T, known @ known.T)
    )
    n = np.maximum(n, 1.0)
    # A model that wins all or nothing has no spread; such pairs get some counts here and NaN below.
    flat = (one <= 0) | (one >= n) | (other <= 0) | (other >= n)
    cells = np.stack([both, one - both, other - both, n - one - other + both])
    expected = np.stack([one * other, one * (n - other), (n - one) * other, (n - one) * (n - other)]) / n
    cells = np.where(flat, 1.0, cells + 0.5 * (cells <= 0) * (expected < _TELLING))
    # Shares: both right, only the one, only the other. The cuts are where a standard normal has each one's accuracy
    # below.
    a, b, c, _ = cells / cells.sum(axis=0)
    cuts = ndtri(a + b), ndtri(a + c)
    low, high = np.full(len(a), -_CLOSEST), np.full(len(a), _CLOSEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # The share that both win rises with the correlation.
        more = both_below(*cuts, middle) < a
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    square = np.zeros((len(credit), len(credit)))
    square[upper] = np.where(flat, np.nan, (low + high) / 2)
    square = square + square.T
    alone = (known.sum(axis=1) == 0) | (filled.sum(axis=1) <= 0) | (filled.sum(axis=1) >= known.sum(axis=1))
    np.fill_diagonal(square, np.where(alone, np.nan, 1.0))
    return square


def both_below(h: Floats, k: Floats, correlation: Floats) -> Floats:
    """P(x <= h, y <= k) of two normal variables: an integral over the angle whose sine is the correlation."""
    from scipy.special import ndtr

    # The density at (h, k) is the derivative by the correlation (Plackett 1954); with its sine as variable the
    # integrand is smooth, so that few nodes do (Drezner and Wesolowsky 1990).
    half = np.arcsin(correlation)[:, None] / 2
    angle = half * (_NODES + 1)
    exponent = (h**2 + k**2)[:, None] - 2 * (h * k)[:, None] * np.sin(angle)
    inner = np.exp(-exponent / (2 * np.cos(angle) ** 2)) @ _WEIGHTS
    below: Floats = ndtr(h) * ndtr(k) + inner * half[:, 0] / (2 * np.pi)
    return below


def _residual(square: Floats) -> Floats:
    """Partial correlation of each two models given the sum of all others; 0 is taken off where there are no others."""
    r = np.nan_to_num(square)
    off = r - np.diag(np.diag(r))
    total = off.sum(axis=1)  # covariance of each model with the sum of all others
    spread = r.sum() - np.diag(r)[:, None] - np.diag(r) - 2 * (total[:, None] + total - off)  # of the sum of the others
    with np.errstate(invalid="ignore", divide="ignore"):
        shared = np.where(spread > 1e-9, (total[:, None] - off) / np.sqrt(np.maximum(spread, 1e-9)), 0.0)
        shared = np.clip(shared, -_FARTHEST_SHARED, _FARTHEST_SHARED)
        # shared[i, j] is the correlation of model i with the sum of all but i and j; the rest is the usual partial
        # correlation.
        partial = (r - shared * shared.T) / np.sqrt((1 - shared**2) * (1 - shared.T**2))
    partial = np.where(np.isnan(square), np.nan, np.clip(partial, -1.0, 1.0))
    np.fill_diagonal(partial, np.diag(square))
    return partial
