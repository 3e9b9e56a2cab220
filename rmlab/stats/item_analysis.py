"""Comparisons and the models that fail them: how hard each is, and which models err alike."""

from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, owens_t

from rmlab.metrics.estimate import indicator
from rmlab.metrics.items import FloatArray, Items, Ties, comparison_items
from rmlab.tables import ITEM, PROMPT, check_option

MIN_COMPARISONS = 400
"""Comparisons below which a tetrachoric correlation says too little."""

_LIMIT = 0.9999  # correlations lie between -this and this: at 1 the normal density is infinite
_HALVINGS = 20  # of the interval from -1 to 1: to 2e-6
_EXPECTED = 3.0  # of independent models; from there on an outcome that was never seen is telling: exp(-3) = 0.05


def item_difficulty(
    table: pd.DataFrame,
    *,
    unit: Literal["comparison", "prompt"] = "comparison",
    ties: Ties = "loss",
    common: bool = False,
) -> pd.DataFrame:
    """Difficulty and discrimination of every item.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    unit : {"comparison", "prompt"}
        What an item is; a prompt's credit is the mean over its comparisons.
    ties : {"loss", "half", "drop"}
        What a tie earns.
    common : bool
        Whether to keep only the comparisons that all models have.

    Returns
    -------
    DataFrame
        One row per item, in the order of the table: benchmark, domain, id (and chosen_slot, rejected_slot, level where
        the unit is a comparison), subset, n_models (that answered), missing, difficulty (share of credit that the
        models fail to earn), discrimination (correlation over models between the credit on this item and the mean
        credit on the others: below 0 good models tend to fail; NaN where all earn the same), none_right, all_right.
    """
    check_option("unit", unit, ("comparison", "prompt"))
    items = _shared_comparisons(table, ties, common)
    frame, credit = items.frame[[*ITEM, "level", "subset"]], items.credit
    if unit == "prompt":
        first_rows = np.unique(items.prompt, return_index=True)[1]
        frame = frame.iloc[first_rows][[*PROMPT, "subset"]].reset_index(drop=True)
        credit = pd.DataFrame(credit.T).groupby(items.prompt).mean().to_numpy().T
    n_models = (~np.isnan(credit)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        easiness = np.nansum(credit, axis=0) / n_models
    frame = frame.assign(n_models=n_models, missing=len(items.models) - n_models, difficulty=1 - easiness)
    frame = frame.assign(discrimination=_item_rest_correlation(credit))
    # Sums of 0, 1/2 and 1 are exact, so these need no tolerance.
    return frame.assign(none_right=easiness == 0, all_right=easiness == 1)


def _shared_comparisons(table: pd.DataFrame, ties: str, common: bool) -> Items:
    """Comparisons, which must be the same for all models."""
    items = comparison_items(table, ties)
    items = items.common() if common else items
    items.require_same()
    return items


def _item_rest_correlation(credit: FloatArray) -> FloatArray:
    """Correlation over models (rows) of each item's credit with the mean credit on the other items."""
    answered = ~np.isnan(credit)
    filled = np.where(answered, credit, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of the other items: with the item itself among them, even noise would correlate with the total.
        rest_mean = (filled.sum(axis=1)[:, None] - filled) / (answered.sum(axis=1)[:, None] - answered)
        sides = [pd.DataFrame(np.where(answered, side, np.nan)) for side in (credit, rest_mean)]
        x, y = (side.sub(side.mean()).fillna(0.0).to_numpy() for side in sides)
        spread = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
        return np.where(spread > 1e-12, (x * y).sum(axis=0) / spread, np.nan)


def error_correlation(table: pd.DataFrame, *, ties: Ties = "loss", common: bool = False) -> pd.DataFrame:
    """Tetrachoric correlation of the errors of every two models.

    The correlation of two normal variables that, cut where the two models' accuracies are, give the wins and losses
    seen. Unlike the plain (phi) correlation it is not capped where accuracies differ. It holds the difficulty of
    comparisons, which all models share.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    ties : {"loss", "half", "drop"}
        What a tie earns; half a win counts as half in each outcome.
    common : bool
        Whether to keep only the comparisons that all models have.

    Returns
    -------
    DataFrame
        A square, models by models, on comparisons that both models answered. `attrs["se"]` holds the standard errors,
        clustered by prompt, and `attrs["n_pairs"]` the comparisons, in squares of the same shape. With fewer than 400
        comparisons, or where a model wins all or nothing, the correlation is missing; `attrs["reason"]` says so.

    Notes
    -----
    Where one of the four outcomes (both right, ... both wrong) was never seen although independent models would show
    three or more, the correlation is next to 1 or -1. With fewer, half a comparison is added (Brown and Benedetti
    1977).

    References
    ----------
    Pearson (1900); Plackett (1954) for the derivatives behind the standard error.
    """
    items = _shared_comparisons(table, ties, common)
    first, second = np.triu_indices(len(items.models), 1)
    observed = (~np.isnan(items.credit)).astype(float)
    credit = np.nan_to_num(items.credit)
    products = (credit @ credit.T, credit @ observed.T, observed @ credit.T, observed @ observed.T)
    _, right_a, right_b, n = counts = np.stack(products)[:, first, second]
    has_spread = (right_a > 0) & (right_a < n) & (right_b > 0) & (right_b < n)
    known = np.flatnonzero(has_spread & (n >= MIN_COMPARISONS))
    correlation, se = np.full((2, len(n)), np.nan)
    correlation[known], cuts = _tetrachoric(_outcome_shares(*counts[:, known]))
    for pair, pair_cuts in zip(known, cuts.T, strict=True):
        se[pair] = _clustered_error(items, first[pair], second[pair], correlation[pair], pair_cuts)
    names = pd.Index(items.models, name="model")
    n_right, n_observed = credit.sum(axis=1), observed.sum(axis=1)
    diagonal = np.where((n_observed >= MIN_COMPARISONS) & (n_right > 0) & (n_right < n_observed), 1.0, np.nan)
    squares = []
    for values, model_values in ((correlation, diagonal), (se, 0.0 * diagonal), (n, n_observed)):
        square = np.diag(model_values)
        square[first, second] = square[second, first] = values
        squares.append(pd.DataFrame(square, index=names, columns=names))
    frame, se_frame, n_frame = squares
    reasons = [f"fewer than {MIN_COMPARISONS} comparisons"] if (n < MIN_COMPARISONS).any() else []
    reasons += ["a model wins all or nothing"] if (~has_spread).any() else []
    frame.attrs = {"se": se_frame, "n_pairs": n_frame, "reason": "; ".join(reasons)}
    return frame


def normal_below(h: FloatArray, k: FloatArray, correlation: FloatArray) -> FloatArray:
    """P(x <= h, y <= k) of two standard normal variables, by Owen's T function (Owen 1956)."""
    # At zero the slopes are infinite; a step that no digit shows avoids 0 / 0.
    h, k = (np.where(np.abs(cut) < 1e-12, 1e-12, cut) for cut in (h, k))
    root = np.sqrt(1 - correlation**2)
    triangles = owens_t(h, (k / h - correlation) / root) + owens_t(k, (h / k - correlation) / root)
    return np.asarray((ndtr(h) + ndtr(k)) / 2 - triangles - np.where(h * k < 0, 0.5, 0.0))


def _outcome_shares(both_right: FloatArray, right_a: FloatArray, right_b: FloatArray, n: FloatArray) -> FloatArray:
    """Shares of both right, only the first, only the second, both wrong: (4, pairs)."""
    counts = np.stack([both_right, right_a - both_right, right_b - both_right, n - right_a - right_b + both_right])
    expected = np.stack([a * b / n for a in (right_a, n - right_a) for b in (right_b, n - right_b)])
    counts = counts + 0.5 * (counts <= 0) * (expected < _EXPECTED)
    return np.asarray(counts / counts.sum(axis=0))


def _tetrachoric(shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Correlation of each pair by bisection on all at once, and the cuts of its two variables, (2, pairs)."""
    cuts = np.stack([ndtri(shares[0] + shares[1]), ndtri(shares[0] + shares[2])])
    low, high = np.full(shares.shape[1], -_LIMIT), np.full(shares.shape[1], _LIMIT)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_below = normal_below(cuts[0], cuts[1], middle) < shares[0]  # rises with the correlation
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return (low + high) / 2, cuts


def _clustered_error(items: Items, first: int, second: int, correlation: float, cuts: FloatArray) -> float:
    """Standard error of one correlation: the influence of each comparison by the delta method, summed by prompt."""
    credit = items.credit[[first, second]]
    answered = ~np.isnan(credit).any(axis=0)
    credit, cluster = credit[:, answered], np.unique(items.cluster[answered], return_inverse=True)[1]
    root = np.sqrt(1 - correlation**2)
    slopes = ndtr((cuts[::-1] - correlation * cuts) / root)
    density = np.exp(-(cuts @ cuts - 2 * correlation * cuts.prod()) / (2 * root**2)) / (2 * np.pi * root)
    product = credit.prod(axis=0)
    residual = product - product.mean() - slopes @ (credit - credit.mean(axis=1, keepdims=True))
    n_clusters = int(cluster.max()) + 1
    sums = residual @ indicator(cluster, n_clusters) / (len(product) * density)
    return float(np.sqrt((sums**2).sum() * n_clusters / max(n_clusters - 1, 1)))
