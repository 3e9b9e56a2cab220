"""Checks of the scores of a few texts, one function each: the finding, how bad it is,
and the remedy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.findings import Finding, check_rate, grade
from rmlab.scorers.base import Floats, Ints
from rmlab.scoring.run import apart
from rmlab.tables import KEY, PROMPT


def spread(lengths: np.ndarray, groups: Ints, size: int) -> Ints:
    """Texts of whole prompts, evenly spread from the shortest prompt to the longest,
    about `size` texts.
    """
    mean_length = pd.Series(lengths).groupby(groups).mean()
    prompts = mean_length.sort_values(kind="stable").index

    n = max(1, round(size * len(prompts) / len(groups)))
    n = min(len(prompts), n)
    middle = (np.arange(n) + 0.5) * len(prompts) / n
    chosen = prompts[middle.astype(int)]
    return np.flatnonzero(np.isin(groups, chosen))


def label_margins(rows: pd.DataFrame, scores: pd.Series | Floats) -> Floats:
    """Margins of the comparisons of a chosen with a rejected answer, in the prompts
    that have both.
    """
    frame = rows[KEY].assign(model="", score=scores)
    n_labels = frame.groupby(PROMPT)["label"].transform("nunique")
    frame = frame[n_labels == 2]
    if frame.empty:
        return np.zeros(0)
    return metrics.pairs(frame)["margin"].to_numpy(np.float64)


class Flips(NamedTuple):
    """How many comparisons change their outcome, of how many, and both in words."""

    n_changed: int
    n: int
    description: str


class Sample(NamedTuple):
    """Rows of responses (or pairs) and the score (margin) of each: forwarded alone, and
    together as in a long run.
    """

    rows: pd.DataFrame
    alone: Floats
    together: Floats

    @property
    def unit(self) -> str:
        """The noun of a row."""
        return "comparisons" if "chosen_slot" in self.rows else "texts"

    def margins(self, scores: Floats) -> Floats:
        """Margins of the comparisons of a chosen with a rejected answer."""
        if self.unit == "comparisons":
            return scores
        return label_margins(self.rows, scores)

    def flips(self, left: Floats, right: Floats) -> Flips:
        """Compare the outcomes by two scorings of the rows."""
        outcome = np.sign(self.margins(left))
        other_outcome = np.sign(self.margins(right))
        n = len(outcome)
        n_changed = int((outcome != other_outcome).sum())
        flips = "no prompt with both labels in the sample"
        if n:
            flips = f"{n_changed} of {n} comparisons flip"
        return Flips(n_changed, n, f"on {len(left)} {self.unit}; {flips}")


def check_finite(sample: Sample) -> Finding:
    """No score is NaN or infinite."""
    is_bad = ~(np.isfinite(sample.alone) & np.isfinite(sample.together))
    n = len(is_bad)
    if not is_bad.any():
        return Finding("pass", f"{n} of {n} scores are finite")

    first = sample.rows.iloc[int(is_bad.argmax())]
    columns = [*KEY[1:], "chosen_slot", "rejected_slot"]
    values = [f"{column} {first[column]}" for column in columns if column in first]
    count = f"{is_bad.sum()} of {n} scores are not finite"
    download = "if it stays, the weights themselves hold NaN: download them again"
    remedy = f"score with dtype='float32'; {download}"
    return Finding("fail", f"{count}, first: {', '.join(values)}", remedy)


def check_company(sample: Sample, tolerance: float) -> Finding:
    """Each text alone gets the score that it gets among others; `tolerance` in standard
    deviations.
    """
    distance = apart(sample.alone, sample.together)
    flips = sample.flips(sample.alone, sample.together)
    detail = f"at most {distance:.1g} standard deviations apart {flips.description}"
    remedy = "set max_batch_tokens= to the longest text's tokens"
    if tolerance > 1e-3:
        remedy = "score with dtype='float32'"
    status = grade(distance <= tolerance, distance <= 10 * tolerance)
    return Finding(status, detail, remedy)


def check_precision(sample: Sample, exact: Floats, dtype: str) -> Finding:
    """How far half precision is from float32, and how many comparisons it turns."""
    distance = apart(exact, sample.together)
    flips = sample.flips(exact, sample.together)
    is_right = flips.n_changed == 0 and distance <= 0.2
    is_near = flips.n_changed <= max(0.1 * flips.n, 1) and distance <= 1
    deviation = f"at most {distance:.2g} standard deviations from float32"
    detail = f"{dtype} is {deviation} {flips.description}"
    return Finding(grade(is_right, is_near), detail)


def check_position(forth: Floats, back: Floats) -> Finding:
    """How many winners change when the answers change places.

    Up to a tenth passes. From one half on the place decides more often than the answers
    do: that fails.
    """
    n = len(forth)
    n_changed = int((np.sign(forth) != -np.sign(back)).sum())
    first_wins = float(np.mean(np.concatenate([forth, back]) > 0))
    changed = f"comparisons ({n_changed / n:.0%}) change their winner"
    first = f"the one written first wins {first_wins:.0%}"
    description = f"{changed} with the order of the answers; {first}"
    return check_rate(n_changed, n, description, warn=0.1, fail=0.5)


def check_saturation(sample: Sample, keys: Sequence[str]) -> Finding:
    """Different texts get different scores."""
    scores = pd.Series(sample.together).groupby(list(keys), sort=False).first()
    n = len(scores)
    n_distinct = scores.nunique()
    n_tied = int((sample.margins(sample.together) == 0).sum())
    distinct = f"{n_distinct} distinct scores for {n} distinct {sample.unit}"
    raw = "read raw logits, never a sigmoid; count ties with the results"
    return Finding(
        grade(n_distinct == n, n_distinct > n // 2),
        f"{distinct}, {n_tied} tied comparisons",
        f"score with dtype='float32'; {raw}",
    )
