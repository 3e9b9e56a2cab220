"""Best of n: accuracy of picking the highest score among n answers, for several n."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.items.best_of_n import best_of, best_of_outcome
from rmlab.items.grid import spread
from rmlab.items.weighting import by_domain, number_of
from rmlab.metrics.estimate import estimate
from rmlab.tables import PROMPT

__all__ = ["best_of_curve"]


def best_of_curve(
    scores: pd.DataFrame, *, sizes: tuple[int, ...] = (2, 3, 4), confidence: float = 0.95
) -> pd.DataFrame:
    """Accuracy of picking the chosen answer among n, for several n: one row per model, subset and n.

    Columns: model, domain, n, accuracy, se, low, high (these three missing with fewer than 5 prompts), n_prompts,
    missing, chance (1/n), reason. Each prompt contributes the exact mean over all ways to draw n - 1 of its rejected
    answers. Prompts with fewer rejected answers, or with several chosen ones, do not count at that n. No other source:
    the n = 4 value is RewardBench 2's own.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    table = best_of(scores)
    n_chosen = scores[scores["label"] == "chosen"].groupby(["model", *PROMPT], sort=False).size()
    one = n_chosen.reindex(pd.MultiIndex.from_frame(table[["model", *PROMPT]])).to_numpy() == 1
    table = table[one].reset_index(drop=True)
    order = {key: i for i, key in enumerate(dict.fromkeys(zip(table["model"], table["domain"], strict=True)))}
    points = pd.concat([_points(table, n, confidence) for n in sizes], ignore_index=True)
    keys = list(zip(points["model"], points["domain"], strict=True))
    points = points[[key in order for key in keys]]
    place = [order[key] for key in keys if key in order]
    return points.iloc[np.lexsort([points["n"].to_numpy(), np.array(place, np.intp)])].reset_index(drop=True)


def _points(table: pd.DataFrame, n: int, confidence: float) -> pd.DataFrame:
    enough = table[table["n_answers"] >= n]
    earned = _expected_credit(
        enough["n_answers"].to_numpy() - 1, enough["above"].to_numpy(), enough["level"].to_numpy(), n - 1
    )
    earned = np.where(enough["credit"].isna(), np.nan, earned)
    columns = ["model", "domain", "n", "accuracy", "se", "low", "high", "n_prompts", "missing", "reason"]
    if enough.empty:
        return pd.DataFrame(
            {c: pd.Series(dtype="str" if c in ("model", "domain", "reason") else float) for c in columns}
        )
    items = spread(enough, key=PROMPT, outcome=best_of_outcome(enough), credit=earned, describing=["subset"])
    weighting, parts = by_domain(items), []
    for domain in dict.fromkeys(items.frame["domain"]):
        one = estimate(items, number_of(items, weighting, (items.frame["domain"] == domain).to_numpy()),
                       confidence=confidence)  # fmt: skip
        frame = pd.DataFrame({"model": pd.Series(items.models, dtype="str"), "domain": domain, "n": n})
        parts.append(frame.assign(accuracy=one.value, se=one.se, low=one.low, high=one.high, n_prompts=one.n_prompts,
                                  missing=one.missing, reason=pd.Series(one.reason, dtype="str")))  # fmt: skip
    return pd.concat(parts, ignore_index=True).assign(chance=1 / n)


def _expected_credit(
    rejected: NDArray[np.intp], above: NDArray[np.intp], level: NDArray[np.intp], drawn: int
) -> NDArray[np.float64]:
    """Mean credit of one chosen answer against `drawn` of its rejected ones, over all draws (hypergeometric)."""
    from scipy.special import comb

    # A draw with an answer from above the chosen one earns nothing: only draws from the others are summed.
    below = rejected - above - level
    total = comb(rejected, drawn)
    earned = sum(comb(level, j) * comb(below, drawn - j) / (1 + j) for j in range(drawn + 1))
    return np.asarray(earned / total, np.float64)
