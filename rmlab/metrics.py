"""Scores to comparisons, comparisons to accuracies: the numbers of RM-Bench, with n, ties and clustered errors."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, tables
from rmlab.tables import LEVELS, PROMPT, STYLES, DataError

__all__ = ["accuracy", "credit", "matrix", "pairs", "rm_bench", "win_matrix"]

Ties = Literal["loss", "half", "drop"]
Safety = Literal["pooled", "split"]

_TIE_CREDIT = {"loss": 0.0, "half": 0.5, "drop": np.nan}
_DOMAINS = ("chat", "math", "code", "safety")
_STRATA: dict[str, dict[str, float]] = {
    "pooled": dict.fromkeys(_DOMAINS, 1 / 4),
    "split": {"chat": 1 / 4, "math": 1 / 4, "code": 1 / 4, "safety-refuse": 1 / 8, "safety-response": 1 / 8},
}


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt: one row per model, prompt, chosen and rejected.

    Columns: model, benchmark, domain, id, chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level,
    margin (score of the chosen minus score of the rejected) and outcome (win, tie, loss; missing where a score is).
    A prompt with n chosen and m rejected answers gives n * m rows. Raises DataError where a prompt of a model has
    answers of one label only.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    group = scores.groupby(["model", *PROMPT], sort=False).ngroup().to_numpy()
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
    cell = 3 * _codes(pairs, "chosen_style", tables.STYLE) + _codes(pairs, "rejected_style", tables.STYLE)
    domain, domains = _factorise(pairs["domain"]) if average == "domains" else (np.zeros(len(pairs), np.intp), ["all"])
    total, n = _sums(credit(pairs, ties=ties), domain * 9 + cell, len(domains) * 9)
    with np.errstate(invalid="ignore"):
        shares = (total / n).reshape(-1, 3, 3).mean(axis=0)
    rows, columns = pd.Index(STYLES, name="chosen_style"), pd.Index(STYLES, name="rejected_style")
    return pd.DataFrame(shares, index=rows, columns=columns)


def accuracy(
    pairs: pd.DataFrame, by: str | Sequence[str] = "model", *, ties: Ties = "loss", confidence: float = 0.95
) -> pd.DataFrame:
    """Share of comparisons won, one row per combination of the `by` columns.

    Columns after those of `by`: accuracy, se (clustered by prompt), low, high (Wilson interval from the clustered
    error), n_pairs (comparisons counted), n_prompts, ties and missing (comparisons, counted whatever the policy).
    Comparisons with a missing outcome are counted in `missing` and in nothing else. `ties`: "loss" (RM-Bench and
    RewardBench 1), "half" or "drop". Style and level columns come on their full grid: a hole is NaN with n = 0.
    """
    by = [by] if isinstance(by, str) else list(by)
    group, frame = _groups(pairs, by)
    value = credit(pairs, ties=ties)
    prompt = pairs.groupby(PROMPT, sort=False).ngroup().to_numpy()
    cluster, index = np.unique(group * (prompt.max(initial=0) + 1) + prompt, return_inverse=True)
    sums, counts = _sums(value, index, len(cluster))
    owner = cluster // (prompt.max(initial=0) + 1)
    mean, se, n_prompts = intervals.clustered_se(sums, counts, owner, len(frame))
    low, high = intervals.share_interval(mean, se, n_prompts, confidence=confidence)
    return frame.assign(
        accuracy=mean,
        se=se,
        low=low,
        high=high,
        n_pairs=np.bincount(owner, counts, len(frame)).astype(int),
        n_prompts=n_prompts.astype(int),
        **_tally(pairs, group, len(frame)),
    )


def rm_bench(
    pairs: pd.DataFrame, *, ties: Ties = "loss", safety: Safety = "pooled", confidence: float = 0.95
) -> pd.DataFrame:
    """RM-Bench's summary, one row per model: chat, math, code, safety | easy, normal, hard | overall.

    A domain's level is the mean of its cells, a domain's score the mean of its three levels; easy, normal, hard and
    overall are unweighted means over the four domains, so the mean of the domains equals the mean of the levels.
    `safety="pooled"` counts refuse and response prompts as one domain, as the released runner does; "split"
    averages the two files. A domain that is not all there is NaN, and so is every mean that needs it.
    Further columns: se, low, high (of overall; prompts are clusters, domains are strata), n_prompts, ties, missing.
    RM-Bench (arXiv 2410.16184), section 3; `scripts/utils.py` of its repository.
    """
    weights = _STRATA[_allowed("safety", safety, tuple(_STRATA))]
    model, models = _factorise(pairs["model"])
    stratum = _strata(pairs, list(weights), safety)
    cell = (model * len(weights) + stratum) * 3 + _codes(pairs, "level", tables.LEVEL)
    value = credit(pairs, ties=ties)
    total, n = _sums(value, cell, len(models) * len(weights) * 3)
    with np.errstate(invalid="ignore"):
        mean = (total / n).reshape(len(models), len(weights), 3)
    share = np.array(list(weights.values()))
    overall = share @ mean.mean(axis=2).T
    se, low, high, n_prompts = _overall_interval(pairs, model, value, cell, mean, n, share, confidence)
    frame = pd.DataFrame({"model": pd.Series(models, dtype="str")}).assign(
        **_domain_columns(mean, list(weights)),
        **dict(zip(LEVELS, np.einsum("s,msl->lm", share, mean), strict=True)),
        overall=overall,
    )
    return frame.assign(se=se, low=low, high=high, n_prompts=n_prompts, **_tally(pairs, model, len(models)))


def credit(pairs: pd.DataFrame, *, ties: Ties = "loss") -> NDArray[np.float64]:
    """What each comparison earns: win 1, loss 0, tie by policy ("loss" 0, "half" 0.5, "drop" NaN), missing NaN."""
    earned = np.array([0.0, _TIE_CREDIT[_allowed("ties", ties, tuple(_TIE_CREDIT))], 1.0, np.nan])
    result: NDArray[np.float64] = earned[_codes(pairs, "outcome", tables.OUTCOME, allow_missing=True)]
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


class _Interval(NamedTuple):
    se: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n_prompts: NDArray[np.intp]


def _overall_interval(
    pairs: pd.DataFrame,
    model: NDArray[np.intp],
    value: NDArray[np.float64],
    cell: NDArray[np.intp],
    mean: NDArray[np.float64],
    n: NDArray[np.float64],
    share: NDArray[np.float64],
    confidence: float,
) -> _Interval:
    """Clustered interval of overall: each comparison's influence on it, summed by prompt, squared, summed."""
    models, strata, _ = mean.shape
    weight = np.repeat(share, 3) / 3
    with np.errstate(invalid="ignore", divide="ignore"):
        influence = (value - mean.ravel()[cell]) * weight[cell % (3 * strata)] / n[cell]
    prompt = pairs.groupby(["model", *PROMPT], sort=False).ngroup().to_numpy()
    residual = np.bincount(prompt, np.nan_to_num(influence))
    where = np.zeros(len(residual), np.intp)
    where[prompt] = cell // 3
    squares = np.bincount(where, residual**2, models * strata).reshape(models, strata)
    prompts = np.bincount(where, minlength=models * strata).reshape(models, strata)
    with np.errstate(invalid="ignore", divide="ignore"):
        se = np.sqrt((squares * prompts / (prompts - 1)).sum(axis=1))
    overall = share @ mean.mean(axis=2).T
    se = np.where(np.isnan(overall), np.nan, se)
    n_prompts = prompts.sum(axis=1)
    low, high = intervals.share_interval(overall, se, n_prompts, confidence=confidence)
    return _Interval(se, low, high, n_prompts)


def _domain_columns(mean: NDArray[np.float64], strata: list[str]) -> dict[str, NDArray[np.float64]]:
    score = mean.mean(axis=2)
    owners = [name.split("-")[0] for name in strata]
    return {d: score[:, [i for i, o in enumerate(owners) if o == d]].mean(axis=1) for d in _DOMAINS}


def _strata(pairs: pd.DataFrame, names: list[str], safety: Safety) -> NDArray[np.intp]:
    benchmarks = pairs["benchmark"].unique()
    if len(benchmarks) > 1:
        raise DataError(
            f"pairs: {len(benchmarks)} benchmarks {sorted(benchmarks)}; keep one: pairs[pairs.benchmark == ...]"
        )
    strange = sorted(set(pairs["domain"].unique()) - set(_DOMAINS))
    if strange:
        raise DataError(
            f"pairs: domain {strange[0]!r} is not one of RM-Bench's {list(_DOMAINS)}; "
            "use reward_bench, reward_bench_2 or accuracy(pairs, by=...)"
        )
    column = pairs["domain"]
    if safety == "split":
        column = column.where(column != "safety", pairs["subset"])
    codes: NDArray[np.intp] = pd.Categorical(column, categories=names).codes.astype(np.intp)
    if (codes < 0).any():
        raise DataError(f"pairs: subset {column[codes < 0].iloc[0]!r} inside safety; safety='split' needs {names[3:]}")
    return codes


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
    closed = [c for c in by if isinstance(pairs[c].dtype, pd.CategoricalDtype)]
    open_ = [c for c in by if c not in closed]
    seen = pairs[open_].drop_duplicates().reset_index(drop=True) if open_ else pd.DataFrame(index=[0])
    number = pairs.groupby(open_, sort=False, dropna=False).ngroup().to_numpy() if open_ else np.zeros(len(pairs), int)
    grid, group = seen, number.astype(np.intp)
    for column in closed:
        dtype = pairs[column].dtype
        group = group * len(dtype.categories) + _codes(pairs, column, dtype)
        grid = grid.merge(pd.DataFrame({column: pd.Categorical(dtype.categories, dtype=dtype)}), how="cross")
    return group, grid[by]


def _tally(pairs: pd.DataFrame, group: NDArray[np.intp], size: int) -> dict[str, NDArray[np.intp]]:
    outcome = _codes(pairs, "outcome", tables.OUTCOME, allow_missing=True)
    return {
        "ties": np.bincount(group[outcome == 1], minlength=size),
        "missing": np.bincount(group[outcome == -1], minlength=size),
    }


def _sums(
    value: NDArray[np.float64], index: NDArray[np.intp], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and count of the values at each index; NaN values count for nothing."""
    counted = ~np.isnan(value)
    sums = np.bincount(index, np.where(counted, value, 0.0), size)
    return sums.astype(np.float64), np.bincount(index, counted, size).astype(np.float64)


def _codes(
    frame: pd.DataFrame, column: str, dtype: pd.CategoricalDtype, allow_missing: bool = False
) -> NDArray[np.intp]:
    if column not in frame.columns:
        raise DataError(f"pairs: no column {column!r}; make pairs with rmlab.pairs(scores) or rmlab.check_pairs(frame)")
    values = frame[column]
    if values.dtype != dtype:
        values = pd.Series(pd.Categorical(values, dtype=dtype))
    codes: NDArray[np.intp] = values.cat.codes.to_numpy().astype(np.intp)
    missing = int((codes < 0).sum())
    if missing and not allow_missing:
        raise DataError(
            f"pairs: {column} is missing in {missing} of {len(frame)} rows; this benchmark or file has no such column: "
            "drop these rows or group by another"
        )
    return codes


def _factorise(values: pd.Series) -> tuple[NDArray[np.intp], list[str]]:
    codes, uniques = pd.factorize(values)
    return codes.astype(np.intp), list(uniques)


def _one_model(pairs: pd.DataFrame) -> None:
    models = list(pairs["model"].unique())
    if len(models) != 1:
        raise DataError(
            f"pairs: a matrix shows one model, got {len(models)} {models[:5]}; keep one: pairs[pairs.model == ...]"
        )


def _allowed(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{argument}: {value!r}; {tables.nearest(value, allowed)}")
    return value
