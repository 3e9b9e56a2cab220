"""Ranks with confidence sets, and groups that the data cannot tell apart."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from rmlab.baselines import is_baseline
from rmlab.benchmarks.prepare import prepare
from rmlab.estimation.difference import differences, holm
from rmlab.estimation.estimate import Estimate, estimate
from rmlab.estimation.weights import Average, overall_weights
from rmlab.metrics.summaries import estimate_frame
from rmlab.stats.comparing import add_hint
from rmlab.tables import IntArray, copy_provenance

DECIMALS = 12  # values that differ by less are equal: sums in another order
# with 1,000 models there are 500,000 pairs and 700 letters, which take 17 s and tell
# nobody anything
MOST_MODELS = 500
_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
        One row per model: model, value (overall, see `rmlab.summary`), se, low, high,
        rank (1 is best; equal values share the better rank), rank_low, rank_high,
        group, n_prompts, n_ties, missing, average, reason. rank_low is 1 + the number
        of models clearly better, rank_high the number of models less those clearly
        worse; all these sets hold at once with the confidence. A model may be first if
        its rank_low is 1. Two models share a letter in `group` exactly unless they are
        clearly different: p_holm of `compare_all` is below 1 - confidence.
        Content-blind baselines have a value but no rank. With more than 500 models
        rank_low, rank_high and group are left out, and `reason` says so. A model
        without an overall score stands last, without rank or group, and `reason` names
        the way out.

    References
    ----------
    Holm (1979); Mogstad, Romano, Shaikh and Wilhelm (2024) for sets of ranks; Piepho
    (2004) for letters.
    """
    prepared = prepare(
        table, average, ties, common, options, cluster=cluster, min_models=2
    )
    result = estimate(
        prepared.items,
        overall_weights(prepared.items, prepared.parts),
        confidence,
        contrasts=[0],
    )
    frame = estimate_frame(result, "value").assign(
        **rank_columns(result, confidence=confidence)
    )
    order = [
        "model",
        "value",
        "se",
        "low",
        "high",
        "rank",
        "rank_low",
        "rank_high",
        "group",
    ]
    frame = frame[[*order, "n_prompts", "n_ties", "missing", "average", "reason"]]
    frame = frame.sort_values(
        "value", ascending=False, na_position="last", kind="stable", ignore_index=True
    )
    return copy_provenance(table, frame)


def rank_columns(result: Estimate, *, confidence: float = 0.95) -> dict[str, pd.Series]:
    """The columns rank, rank_low, rank_high, group (missing for baselines) and reason
    of every model.
    """
    names, value = result.models, result.value[:, 0]
    is_ranked = ~np.isnan(value) & ~np.array([is_baseline(name) for name in names])
    too_many = is_ranked.sum() > MOST_MODELS
    has_error = is_ranked & ~np.isnan(result.se[:, 0]) & ~too_many
    reason = add_hint(result.reason[:, 0], result.value[:, 0]).to_numpy()
    rank, rank_low, rank_high = np.zeros((3, len(names)), np.intp)
    rank[is_ranked] = rankdata(-np.round(value[is_ranked], DECIMALS), method="min")
    groups = np.full(len(names), "", object)
    models = np.flatnonzero(has_error)
    if len(models):
        lead = _clear_leads(result, models, confidence)
        # The set always holds the rank that is printed, also where values equal but for
        # rounding share a place.
        rank_low[models] = np.minimum(1 + (lead < 0).sum(axis=1), rank[models])
        # A model without an error can be clearly worse than nobody, so it counts among
        # the places of others.
        rank_high[models] = np.maximum(
            is_ranked.sum() - (lead > 0).sum(axis=1), rank[models]
        )
        order = np.argsort(
            -value[models], kind="stable"
        )  # from the best down, so that its letter is "a"
        groups[models[order]] = group_letters((lead != 0)[np.ix_(order, order)])
    columns = {
        "rank": (rank, is_ranked),
        "rank_low": (rank_low, has_error),
        "rank_high": (rank_high, has_error),
    }
    ranks = {
        name: pd.Series(column).astype("Int64").where(mask)
        for name, (column, mask) in columns.items()
    }
    if too_many:
        text = f"rank_low, rank_high and group: at most {MOST_MODELS} models"
        reason = np.where(is_ranked & (reason == ""), text, reason)
    return {
        **ranks,
        "group": pd.Series(groups, dtype="str"),
        "reason": pd.Series(reason, dtype="str"),
    }


def group_letters(differ: NDArray[np.bool_]) -> list[str]:
    """Compact letters: two models share a letter exactly if they do not `differ` (a
    symmetric square).

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
            group = _grow_group(model, uncovered, joinable)
            uncovered[np.ix_(group, group)] = False
            round_number = (
                f"{n_groups // len(_SYMBOLS) + 1}" if n_groups >= len(_SYMBOLS) else ""
            )
            for member in group:
                letters[member] += _SYMBOLS[n_groups % len(_SYMBOLS)] + round_number
            n_groups += 1
    return letters


def _clear_leads(
    result: Estimate, models: IntArray, confidence: float
) -> NDArray[np.intp]:
    """1 where the row's model is clearly better than the column's, -1 where it is
    clearly worse, else 0.
    """
    a, b = np.triu_indices(len(models), 1)
    difference = differences(result, models[a], models[b], confidence=confidence)
    is_clear = holm(difference.p) < 1 - confidence
    lead = np.zeros((len(models), len(models)), np.intp)
    lead[a, b] = np.where(is_clear, np.sign(difference.value), 0)
    return lead - lead.T


def _grow_group(
    start: int, uncovered: NDArray[np.bool_], joinable: NDArray[np.bool_]
) -> list[int]:
    """A group of models that do not differ and that no further model fits into, around
    an uncovered pair of `start`.
    """
    partners = np.flatnonzero(uncovered[start])
    # The farthest model that is still to be joined, then those between, the nearest
    # first: long groups, few letters.
    group = [start, *partners[-1:]]
    fits = joinable[group].all(axis=0)
    while fits.any():
        nearest = int(
            np.flatnonzero(fits)[np.abs(np.flatnonzero(fits) - start).argmin()]
        )
        group.append(nearest)
        fits &= joinable[nearest]
    return sorted(group)
