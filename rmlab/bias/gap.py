"""Easy minus hard: how much of a model's accuracy is style."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, metrics, tables
from rmlab.bias.prompts import MIN_PROMPTS, columns_of, prompt_index, too_few
from rmlab.tables import LEVEL, DataError

__all__ = ["style_gap"]

Floats = NDArray[np.float64]


def style_gap(
    pairs: pd.DataFrame,
    by: str | Sequence[str] = "model",
    *,
    average: Literal["prompts", "domains"] = "prompts",
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Accuracy on easy minus accuracy on hard comparisons, one row per combination of the `by` columns.

    Columns after those of `by`: easy, hard, gap (-1 to 1), se, low, high, n_prompts, ties, missing (comparisons), note.
    A model that style does not move has a gap of 0; one that only looks at style a gap of 1. Easy and hard come from
    the same prompts, so the error is of the difference, clustered by prompt. The interval joins the Wilson limits of
    both sides and their correlation (Zou and Donner 2008, "MOVER"), so it has width at 1 and 0 too.
    `average="prompts"` pools prompts, as `accuracy` does; "domains" takes the unweighted mean of all domains in `pairs`
    and equals easy - hard of `rm_bench`; a group without one of them is NaN. Fewer than 5 prompts (in any domain) give
    no interval; `note` says so. Raises DataError where pairs have no level.
    """
    if average not in ("prompts", "domains"):
        raise ValueError(f"average: {average!r}; allowed: 'prompts', 'domains'")
    pairs = _with_levels(pairs)
    by = columns_of(pairs, by, "pairs")
    if pairs["level"].isna().all():
        raise DataError(
            "pairs: level is missing in every row; this benchmark has no styles, so it has no easy and hard"
        )
    frame = pairs[by].drop_duplicates().reset_index(drop=True)
    group = prompt_index(pairs, by)
    domains = pairs["domain"] if average == "domains" else pd.Series("all", index=pairs.index)
    stratum, names = pd.factorize(domains)
    sides = _sides(pairs, group, stratum.astype(np.intp), (len(frame), len(names)), metrics.credit(pairs, ties=ties))
    low, high = _mover(sides, confidence)
    note = np.array([too_few(n) for n in sides.fewest], dtype=object)
    refused = sides.fewest < MIN_PROMPTS
    return frame.assign(
        easy=sides.easy,
        hard=sides.hard,
        gap=sides.easy - sides.hard,
        se=np.where(refused, np.nan, np.sqrt(sides.variance @ np.array([1.0, 1.0, -2.0]))),
        low=np.where(refused, np.nan, low),
        high=np.where(refused, np.nan, high),
        n_prompts=sides.n_prompts,
        ties=np.bincount(group, pairs["outcome"] == "tie", len(frame)).astype(int),
        missing=np.bincount(group, pairs["outcome"].isna(), len(frame)).astype(int),
        note=np.where(np.isnan(sides.easy - sides.hard), "easy or hard comparisons are missing", note).astype(str),
    )


def _with_levels(pairs: pd.DataFrame) -> pd.DataFrame:
    """A pairs table; the levels of a table without styles stay as they are."""
    checked = tables.check_pairs(pairs)
    if "level" not in pairs or not checked["level"].isna().all():
        return checked
    return checked.assign(level=pd.Categorical(pairs["level"], dtype=LEVEL))


class _Sides(NamedTuple):
    easy: Floats
    hard: Floats
    variance: Floats  # (groups, 3): of easy, of hard, their covariance
    n_prompts: NDArray[np.intp]
    fewest: NDArray[np.intp]  # prompts in the smallest stratum


def _sides(
    pairs: pd.DataFrame, group: NDArray[np.intp], stratum: NDArray[np.intp], shape: tuple[int, int], value: Floats
) -> _Sides:
    """Means of easy and hard per group (mean over strata), and their variances from influences summed by prompt."""
    cells = shape[0] * shape[1]
    prompt = prompt_index(pairs.assign(_group=group), ["_group", "benchmark", "domain", "id"])
    where = np.zeros(prompt.max(initial=-1) + 1, np.intp)
    where[prompt] = group * shape[1] + stratum
    counted = ~np.isnan(value)
    means, influences = [], []
    for level in ("easy", "hard"):
        use = counted & (pairs["level"] == level).to_numpy()
        n = np.bincount(where[prompt[use]], minlength=cells)
        with np.errstate(invalid="ignore"):
            mean = np.bincount(where[prompt[use]], value[use], cells) / n
        residual = (value[use] - mean[where[prompt[use]]]) / n[where[prompt[use]]]
        influences.append(np.bincount(prompt[use], residual, len(where)))
        means.append(mean.reshape(shape).mean(axis=1))
    used = np.bincount(prompt[counted & pairs["level"].isin(["easy", "hard"]).to_numpy()], minlength=len(where)) > 0
    prompts = np.bincount(where[used], minlength=cells)
    products = (influences[0] ** 2, influences[1] ** 2, influences[0] * influences[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = [np.bincount(where, p, cells) * prompts / (prompts - 1) for p in products]
    variance = np.stack([s.reshape(shape).sum(axis=1) for s in scaled], axis=1) / shape[1] ** 2
    grid = prompts.reshape(shape)
    return _Sides(means[0], means[1], variance, grid.sum(axis=1), grid.min(axis=1))


def _mover(sides: _Sides, confidence: float) -> tuple[Floats, Floats]:
    """Limits of easy - hard from the Wilson limits of each, and the correlation of their errors."""
    clusters = sides.n_prompts.astype(float)
    se = np.sqrt(sides.variance[:, :2])
    easy_low, easy_high = intervals.share_interval(sides.easy, se[:, 0], clusters, confidence=confidence)
    hard_low, hard_high = intervals.share_interval(sides.hard, se[:, 1], clusters, confidence=confidence)
    scale = se[:, 0] * se[:, 1]
    known = scale > 1e-12
    correlation = np.where(known, sides.variance[:, 2] / np.where(known, scale, 1.0), 0.0)
    gap = sides.easy - sides.hard

    def reach(a: Floats, b: Floats) -> Floats:
        half: Floats = np.sqrt(np.maximum(a**2 + b**2 - 2 * correlation * a * b, 0))
        return half

    low = gap - reach(sides.easy - easy_low, hard_high - sides.hard)
    high = gap + reach(easy_high - sides.easy, sides.hard - hard_low)
    return np.clip(low, -1, 1), np.clip(high, -1, 1)
