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
    prompts, group = np.unique(groups, return_inverse=True)
    mean = np.bincount(group, lengths) / np.bincount(group)
    n = min(len(prompts), max(1, round(size * len(prompts) / len(groups))))
    middle = (np.arange(n) + 0.5) * len(prompts) / n
    chosen = np.argsort(mean, kind="stable")[middle.astype(int)]
    return np.flatnonzero(np.isin(group, chosen))


class Sample(NamedTuple):
    """Rows of responses (or pairs) and the score (margin) of each: forwarded alone, and
    together as in a long run.
    """

    rows: pd.DataFrame
    alone: Floats
    together: Floats

    @property
    def unit(self) -> str:
        """What a row is."""
        return "comparisons" if "chosen_slot" in self.rows else "texts"

    def margins(self, scores: Floats) -> Floats:
        """Margins of the comparisons of a chosen with a rejected answer."""
        if self.unit == "comparisons":
            return scores
        frame = self.rows.assign(model="doctor", score=scores)
        frame = frame[frame.groupby(PROMPT)["label"].transform("nunique") == 2]
        return (
            np.zeros(0)
            if frame.empty
            else metrics.pairs(frame)["margin"].to_numpy(np.float64)
        )

    def flips(self, left: Floats, right: Floats) -> tuple[int, int, str]:
        """How many comparisons change their outcome, how many there are, and both for
        people.
        """
        first, second = self.margins(left), self.margins(right)
        n_flips, n = int((np.sign(first) != np.sign(second)).sum()), len(first)
        flips = (
            f"{n_flips} of {n} comparisons flip"
            if n
            else "no prompt with both labels in the sample"
        )
        return n_flips, n, f"on {len(left)} {self.unit}; {flips}"


def check_finite(sample: Sample) -> Finding:
    """No score is NaN or infinite."""
    bad = ~(np.isfinite(sample.alone) & np.isfinite(sample.together))
    if not bad.any():
        return Finding("pass", f"{len(bad)} of {len(bad)} scores are finite")
    first = sample.rows.iloc[int(bad.argmax())]
    columns = [
        column
        for column in (*KEY[1:], "chosen_slot", "rejected_slot")
        if column in first
    ]
    key = ", ".join(f"{column} {first[column]}" for column in columns)
    remedy = "score with dtype='float32'; if it stays, the weights themselves hold NaN: download them again"
    return Finding(
        "fail", f"{bad.sum()} of {len(bad)} scores are not finite, first: {key}", remedy
    )


def check_company(sample: Sample, tolerance: float) -> Finding:
    """Each text alone gets the score that it gets among others; `tolerance` in standard
    deviations.
    """
    distance = apart(sample.alone, sample.together)
    _, _, flips = sample.flips(sample.alone, sample.together)
    detail = f"at most {distance:.1g} standard deviations apart {flips}"
    remedy = (
        "score with dtype='float32'"
        if tolerance > 1e-3
        else "set budget= to the longest text's tokens"
    )
    return Finding(
        grade(distance <= tolerance, distance <= 10 * tolerance), detail, remedy
    )


def check_precision(sample: Sample, exact: Floats, dtype: str) -> Finding:
    """How far half precision is from float32, and how many comparisons it turns."""
    distance = apart(exact, sample.together)
    n_flips, n, flips = sample.flips(exact, sample.together)
    status = grade(
        n_flips == 0 and distance <= 0.2, n_flips <= max(0.1 * n, 1) and distance <= 1
    )
    return Finding(
        status,
        f"{dtype} is at most {distance:.2g} standard deviations from float32 {flips}",
    )


def check_position(forth: Floats, back: Floats) -> Finding:
    """How many winners change when the answers change places.

    Up to a tenth passes. From one half on the place decides more often than the answers
    do: that fails.
    """
    n, n_changed = len(forth), int((np.sign(forth) != -np.sign(back)).sum())
    first_wins = float(np.mean(np.concatenate([forth, back]) > 0))
    description = f"comparisons ({n_changed / n:.0%}) change their winner with the order of the answers; the one "
    description += f"written first wins {first_wins:.0%}"
    return check_rate(n_changed, n, description, warn=0.1, fail=0.5)


def check_saturation(sample: Sample, keys: Sequence[str]) -> Finding:
    """Different texts get different scores."""
    scores = pd.Series(sample.together).groupby(list(keys), sort=False).first()
    n_distinct, n = scores.nunique(), len(scores)
    n_tied = int((sample.margins(sample.together) == 0).sum())
    detail = f"{n_distinct} distinct scores for {n} distinct {sample.unit}, {n_tied} tied comparisons"
    remedy = "score with dtype='float32'; read raw logits, never a sigmoid; count ties with the results"
    return Finding(grade(n_distinct == n, n_distinct > n // 2), detail, remedy)
