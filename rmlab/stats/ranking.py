"""Ranks with confidence sets, and groups that the data cannot tell apart."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.baselines import is_baseline
from rmlab.estimation.clustered import Estimate, interval, subtract_rows
from rmlab.estimation.difference import holm
from rmlab.estimation.estimate import estimate, sum_number
from rmlab.estimation.items import Items
from rmlab.estimation.weights import Average
from rmlab.metrics.prepare import overall_number, prepare
from rmlab.metrics.summaries import estimate_frame
from rmlab.stats.comparing import add_hint
from rmlab.tables import IntArray, copy_provenance

# Values that differ by less are equal: sums in another order.
DECIMALS = 12
# With 1,000 models there are 500,000 pairs and 700 letters, which take 17 s and tell
# nobody anything.
MOST_MODELS = 500

_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ORDER = [
    *("model", "value", "se", "low", "high", "rank", "rank_low", "rank_high", "group"),
    *("n_prompts", "n_ties", "missing", "average", "reason"),
]


def rank(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Rank the models by their overall score, best first.

    Parameters
    ----------
    table, average, ties, common, cluster, confidence, **options
        As in `rmlab.compare`.

    Returns
    -------
    DataFrame
        One row per model, with the columns

        - model;
        - value: the overall score, see `rmlab.summary`;
        - se, low, high;
        - rank: 1 is best; equal values share the better rank;
        - rank_low: 1 + the number of models clearly better;
        - rank_high: the number of models less those clearly worse;
        - group: two models share a letter exactly unless they are clearly different:
          the p of `compare`, adjusted over all pairs of models by Holm's method, is
          below 1 - confidence;
        - n_prompts, n_ties, missing, average;
        - reason: why a number is missing, with the remedy.

        All sets from rank_low to rank_high hold at once with the confidence. A model
        may be first if its rank_low is 1. Content-blind baselines have a value but no
        rank. With more than 500 models rank_low, rank_high and group are left out, and
        `reason` says so. A model without an overall score stands last, without rank or
        group.

    References
    ----------
    Holm (1979); Mogstad, Romano, Shaikh and Wilhelm (2024) for sets of ranks; Piepho
    (2004) for letters.
    """
    _, items = prepare(
        table, average, ties, common, options, cluster=cluster, min_models=2
    )
    result = estimate(items, [overall_number(items)], confidence)
    frame = estimate_frame(items, pd.DataFrame(index=range(1)), result)
    frame = frame.assign(**rank_columns(items, result, confidence))
    frame = frame[_ORDER].sort_values(
        "value", ascending=False, na_position="last", kind="stable", ignore_index=True
    )
    return copy_provenance(table, frame)


def rank_columns(
    items: Items, result: Estimate, confidence: float = 0.95
) -> dict[str, pd.Series]:
    """The columns rank, rank_low, rank_high, group and reason of every model, from the
    overall score, which is the first number of the result.

    Baselines have no rank and no group. Section "Many models" of docs/statistics.md.
    """
    value = result.value[:, 0]
    has_error = ~np.isnan(result.se[:, 0])
    is_blind = np.array([is_baseline(name) for name in items.models])
    is_ranked = ~np.isnan(value) & ~is_blind
    n_ranked = is_ranked.sum()
    too_many = n_ranked > MOST_MODELS
    is_compared = is_ranked & has_error & ~too_many

    ranked_value = pd.Series(np.round(value, DECIMALS)).where(is_ranked)
    rank = ranked_value.rank(ascending=False, method="min").astype("Int64")
    rank_low = pd.Series(pd.NA, rank.index, dtype="Int64")
    rank_high = rank_low.copy()
    group = np.full(len(value), "", object)
    models = np.flatnonzero(is_compared)
    if len(models):
        lead = _clear_leads(items, models, confidence)
        n_better = (lead < 0).sum(axis=1)
        n_worse = (lead > 0).sum(axis=1)
        # The set always holds the rank that is printed, also where values equal but for
        # rounding share a place.
        rank_low[models] = np.minimum(1 + n_better, rank[models])
        # A model without an error can be clearly worse than nobody, so it counts among
        # the places of others.
        rank_high[models] = np.maximum(n_ranked - n_worse, rank[models])

        # From the best down, so that its letter is "a".
        order = np.argsort(-value[models], kind="stable")
        differ = lead[np.ix_(order, order)] != 0
        group[models[order]] = group_letters(differ)

    reason = add_hint(result.reason[:, 0], value)
    if too_many:
        left_out = f"rank_low, rank_high and group: at most {MOST_MODELS} models"
        reason = reason.mask(is_ranked & (reason == ""), left_out)
    return {
        "rank": rank,
        "rank_low": rank_low,
        "rank_high": rank_high,
        "group": pd.Series(group, dtype="str"),
        "reason": reason,
    }


def group_letters(differ: NDArray[np.bool_]) -> list[str]:
    """Letters of models that share one exactly if they do not `differ` (a square).

    Groups grow in the order of the models until every pair that does not differ stands
    in one. After 52 letters a number follows the letter.

    >>> group_letters(np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool))
    ['a', 'ab', 'b']
    """
    joinable = ~differ & ~np.eye(len(differ), dtype=bool)
    uncovered = np.triu(joinable)  # pairs that no letter joins yet
    letters = [""] * len(differ)
    n_groups = 0
    for model in range(len(differ)):
        while not letters[model] or uncovered[model].any():
            # Around the farthest model that is still to be joined: few letters.
            group = [model, *np.flatnonzero(uncovered[model])[-1:]]
            fits = joinable[group].all(axis=0)
            while fits.any():
                other = int(fits.argmax())
                group.append(other)
                fits &= joinable[other]
            uncovered[np.ix_(group, group)] = False
            round_number, symbol = divmod(n_groups, len(_SYMBOLS))
            letter = _SYMBOLS[symbol]
            if round_number:
                letter += str(round_number + 1)
            for member in group:
                letters[member] += letter
            n_groups += 1
    return letters


def _clear_leads(items: Items, models: IntArray, confidence: float) -> NDArray[np.intp]:
    """A square: 1 where the row's model is clearly better, -1 clearly worse, else 0."""
    row, column = np.triu_indices(len(models), 1)
    first = models[row]
    second = models[column]
    # Models that lack the same, whose differences need no items of their own.
    lacks = np.isnan(items.credit) & items.counts
    counts = np.broadcast_to(items.counts, lacks.shape)
    patterns = [row.tobytes() for row in np.hstack([lacks, counts])]
    pattern = pd.factorize(np.array(patterns, object))[0]
    is_alike = pattern[first] == pattern[second]

    difference = np.zeros(len(row))
    p = np.zeros(len(row))
    sums = sum_number(items, overall_number(items))
    alike = subtract_rows(sums, first[is_alike], second[is_alike])
    difference[is_alike] = alike.value
    *_, p[is_alike] = interval(alike, confidence)
    for model in np.unique(first[~is_alike]):
        pairs = np.flatnonzero(~is_alike & (first == model))
        apart = items.subtract(first[pairs], second[pairs])
        tested = estimate(apart, [overall_number(apart)], confidence)
        difference[pairs] = tested.value[:, 0]
        p[pairs] = tested.p[:, 0]

    is_clear = holm(p) < 1 - confidence
    lead = np.zeros((len(models), len(models)), np.intp)
    lead[row, column] = np.where(is_clear, np.sign(difference), 0)
    return lead - lead.T
