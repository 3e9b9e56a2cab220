"""Scores to comparisons, comparisons to accuracies: with n, ties and clustered errors."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, tables
from rmlab.metrics.columns import allowed, codes, factorise, number, sums, tally
from rmlab.tables import PROMPT, STYLES, DataError

__all__ = ["TIE_CREDIT", "Ties", "accuracy", "credit", "matrix", "pairs", "win_matrix"]

Ties = Literal["loss", "half", "drop"]

TIE_CREDIT = {"loss": 0.0, "half": 0.5, "drop": np.nan}


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt: one row per model, prompt, chosen and rejected.

    Columns: model, benchmark, domain, id, chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level,
    margin (score of the chosen minus score of the rejected) and outcome (win, tie, loss; missing where a score is).
    A prompt with n chosen and m rejected answers gives n * m rows. Raises DataError where a prompt of a model has
    answers of one label only.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    group, _ = number(scores, ["model", *PROMPT])
    chosen = (scores["label"] == "chosen").to_numpy()
    left, right = _cross(group, chosen, scores)
    first, second = scores.iloc[left].reset_index(drop=True), scores.iloc[right].reset_index(drop=True)
    frame = first[["model", *PROMPT]].assign(
        chosen_slot=first["slot"],
        rejected_slot=second["slot"],
        subset=first["subset"],
        chosen_style=first["style"],
        rejected_style=second["style"],
        level=tables.level(first["style"], second["style"]),
    )
    margin = first["score"].to_numpy() - second["score"].to_numpy()
    return frame.assign(margin=margin, outcome=tables.outcome(margin))[tables.PAIRS]


def matrix(
    pairs: pd.DataFrame, *, ties: Ties = "loss", average: Literal["prompts", "domains"] = "prompts"
) -> pd.DataFrame:
    """Style-substance matrix of one model: share of comparisons that the chosen answer wins.

    A 3x3 frame, rows the chosen style, columns the rejected style, both concise, plain, markdown. The upper triangle
    is hard, the diagonal normal, the lower triangle easy. RM-Bench (arXiv 2410.16184), section 3 and figure 2. With
    several domains `average="prompts"` pools their prompts; "domains" averages the domains' matrices, as the
    benchmark's summary does. A cell without a comparison is NaN. Raises DataError with several models or no styles.

    >>> margins = pd.DataFrame({"model": "m", "benchmark": "b", "domain": "chat", "id": ["0", "1"], "chosen_slot": 0,
    ...     "rejected_slot": 2, "chosen_style": "concise", "rejected_style": "markdown", "margin": [0.5, -1.0]})
    >>> matrix(tables.check_pairs(margins)).loc["concise", "markdown"].item()
    0.5
    """
    _one_model(pairs)
    allowed("average", average, ("prompts", "domains"))
    cell = 3 * codes(pairs, "chosen_style", tables.STYLE) + codes(pairs, "rejected_style", tables.STYLE)
    domain, domains = factorise(pairs["domain"]) if average == "domains" else (np.zeros(len(pairs), np.intp), ["all"])
    total, n = sums(credit(pairs, ties=ties), domain * 9 + cell, len(domains) * 9)
    with np.errstate(invalid="ignore"):
        shares = (total / n).reshape(-1, 3, 3).mean(axis=0)
    rows, columns = pd.Index(STYLES, name="chosen_style"), pd.Index(STYLES, name="rejected_style")
    return pd.DataFrame(shares, index=rows, columns=columns)


def accuracy(
    pairs: pd.DataFrame, by: str | Sequence[str] = "model", *, ties: Ties = "loss", confidence: float = 0.95
) -> pd.DataFrame:
    """Share of comparisons won, one row per combination of the `by` columns.

    Columns after those of `by`: accuracy, se (clustered by prompt), low, high (Wilson interval from the clustered
    error; these three are missing with fewer than 5 prompts, as in `rmlab.intervals`), n_pairs (comparisons
    counted), n_prompts, ties and missing (comparisons, counted whatever the policy).
    Comparisons with a missing outcome are counted in `missing` and in nothing else. `ties`: "loss" (RM-Bench and
    RewardBench 1), "half" or "drop". Style, level and other ordered categorical columns come on their full grid: a
    hole is NaN with n = 0.
    """
    tables.require_columns(pairs, [*PROMPT, "outcome"], "pairs")
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    group, frame = _groups(pairs, by)
    value = credit(pairs, ties=ties)
    prompt, first = number(pairs, PROMPT)
    index, cluster = pd.factorize(group * len(first) + prompt)
    totals, counts = sums(value, index, len(cluster))
    owner = cluster // len(first)
    mean, se, n_prompts = intervals.clustered_se(totals, counts, owner, len(frame))
    se = np.where(n_prompts < intervals.FEWEST, np.nan, se)
    low, high = intervals.share_interval(mean, se, n_prompts, confidence=confidence)
    return frame.assign(
        accuracy=mean,
        se=se,
        low=low,
        high=high,
        n_pairs=np.bincount(owner, counts, len(frame)).astype(int),
        n_prompts=n_prompts.astype(int),
        **tally(pairs, group, len(frame)),
    )


def credit(pairs: pd.DataFrame, *, ties: Ties = "loss") -> NDArray[np.float64]:
    """What each comparison earns: win 1, loss 0, tie by policy ("loss" 0, "half" 0.5, "drop" NaN), missing NaN."""
    earned = np.array([0.0, TIE_CREDIT[allowed("ties", ties, tuple(TIE_CREDIT))], 1.0, np.nan])
    result: NDArray[np.float64] = earned[codes(pairs, "outcome", tables.OUTCOME, allow_missing=True)]
    return result


def win_matrix(chosen: NDArray[np.float64], rejected: NDArray[np.float64]) -> NDArray[np.float64]:
    """The array behind `matrix`: share of prompts with chosen > rejected, strictly, for every pair of slots.

    `chosen` (..., prompts, n) and `rejected` (..., prompts, m) give (..., n, m); leading axes are models.

    >>> win_matrix(np.array([[3.0], [1.0]]), np.array([[2.0, 3.0], [0.0, 1.0]])).tolist()
    [[1.0, 0.0]]
    """
    chosen, rejected = (np.ascontiguousarray(np.swapaxes(scores, -1, -2)) for scores in (chosen, rejected))
    wins = np.packbits(chosen[..., :, None, :] > rejected[..., None, :, :], axis=-1)
    share: NDArray[np.float64] = np.bitwise_count(wins).sum(axis=-1, dtype=np.int64) / chosen.shape[-1]
    return share


def _cross(
    group: NDArray[np.intp], chosen: NDArray[np.bool_], scores: pd.DataFrame
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row numbers (chosen, rejected) of every chosen x rejected within a group, in the order of the scores."""
    left, right = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    right = right[np.argsort(group[right], kind="stable")]
    size = int(group.max(initial=-1)) + 1
    n_chosen, n_rejected = np.bincount(group[left], minlength=size), np.bincount(group[right], minlength=size)
    lonely = (n_chosen == 0) | (n_rejected == 0)
    if lonely.any():
        row = scores.loc[lonely[group], ["model", *PROMPT, "label"]].iloc[0].to_dict()
        raise DataError(
            f"scores: {int(lonely.sum())} prompts have answers of one label only, first {row}; "
            "a comparison needs a chosen and a rejected answer: score both or drop the prompt"
        )
    start = np.concatenate([[0], np.cumsum(n_rejected)[:-1]]).astype(np.intp)
    repeats = n_rejected[group[left]]
    offset = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.repeat(left, repeats), right[np.repeat(start[group[left]], repeats) + offset]


def _groups(pairs: pd.DataFrame, by: list[str]) -> tuple[NDArray[np.intp], pd.DataFrame]:
    """Group number of each row, and one row per group: open columns as observed, closed ones on their full grid."""
    absent = [c for c in by if c not in pairs.columns]
    if absent:
        raise DataError(f"by: {absent[0]!r} is not a column of pairs; {tables.nearest(absent[0], list(pairs.columns))}")
    # The contract's vocabularies keep their order whatever the column's type: strings would sort wrongly.
    types = {c: tables.CLOSED.get(c, pairs[c].dtype) for c in by}
    closed = {
        c: dtype
        for c, dtype in types.items()
        if isinstance(dtype, pd.CategoricalDtype) and (c in tables.CLOSED or dtype.ordered)
    }
    open_ = [c for c in by if c not in closed]
    group, first = number(pairs, open_) if open_ else (np.zeros(len(pairs), np.intp), np.zeros(1, np.intp))
    grid = pairs[open_].iloc[first].reset_index(drop=True) if open_ else pd.DataFrame(index=[0])
    for column, dtype in closed.items():
        n, rows = len(dtype.categories), len(grid)
        group = group * n + codes(pairs, column, dtype)
        values = pd.Categorical.from_codes(np.tile(np.arange(n), rows), dtype=dtype)
        grid = grid.iloc[np.repeat(np.arange(rows), n)].assign(**{column: values})
    return group, grid[by].reset_index(drop=True)


def _one_model(pairs: pd.DataFrame) -> None:
    tables.require_columns(pairs, tables.PAIR_KEY, "pairs")
    if pairs.empty:
        raise DataError("pairs: no rows, so there is no matrix; look at what the rows were selected by")
    models = list(pairs["model"].unique())
    if len(models) != 1:
        raise DataError(
            f"pairs: a matrix shows one model, got {len(models)} {models[:5]}; keep one: pairs[pairs.model == ...]"
        )
