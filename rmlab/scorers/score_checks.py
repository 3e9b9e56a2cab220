"""Checks of a scorer by its scores of a few texts, which hold for every kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics
from rmlab.findings import (
    Check,
    Checks,
    Finding,
    check_rate,
    grade,
    run_checks,
)
from rmlab.metrics.pairing import cross_answers, describe_pairs
from rmlab.scorers.base import Floats, Ints, PairScorer, Scorer, Text, collect_scores
from rmlab.tables import KEY, PROMPT, group_codes


def list_orders(
    scorer: Scorer, responses: pd.DataFrame
) -> tuple[pd.DataFrame, list[list[Text]]]:
    """The rows that a scorer scores, and their texts: responses, or comparisons in the
    orders in which they are asked.
    """
    prompts = responses["prompt"].to_numpy()
    answers = responses["response"].to_numpy()
    if not isinstance(scorer, PairScorer):
        single = zip(prompts, answers, strict=True)
        return responses, [[Text(prompt, (answer,)) for prompt, answer in single]]

    prompt_number, _ = group_codes(responses, PROMPT)
    chosen, rejected = cross_answers(responses, prompt_number)
    rows = describe_pairs(responses, chosen, rejected)
    columns = zip(prompts[chosen], answers[chosen], answers[rejected], strict=True)
    forward = [Text(prompt, (first, second)) for prompt, first, second in columns]
    if not scorer.both_orders:
        return rows, [forward]
    return rows, [forward, [Text(text.prompt, text.answers[::-1]) for text in forward]]


def spread(lengths: Ints, prompts: Ints, size: int) -> Ints:
    """Rows of whole prompts, evenly spread from the shortest prompt to the longest,
    about `size` rows.
    """
    mean_length = pd.Series(lengths).groupby(prompts).mean()
    by_length = mean_length.sort_values(kind="stable").index

    n = max(1, round(size * len(by_length) / len(prompts)))
    n = min(len(by_length), n)
    middle = (np.arange(n) + 0.5) * len(by_length) / n
    return np.flatnonzero(np.isin(prompts, by_length[middle.astype(int)]))


@dataclass
class Sample:
    """Some rows of a table, and what a scorer gives for their texts.

    `texts`: of all rows, of comparisons in both orders one behind the other. `dtype`:
    of the weights, where there are some.
    """

    scorer: Scorer
    rows: pd.DataFrame
    texts: list[Text]
    dtype: str | None = None

    @cached_property
    def together(self) -> Floats:
        """The score of each text as in a long run."""
        return collect_scores(self.scorer, self.texts)

    @cached_property
    def alone(self) -> Floats | None:
        """The score of each text by itself; None where company cannot matter."""
        return self.scorer.score_alone(self.texts)

    def by_order(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """What is known of the texts, an array of all rows for each order."""
        return list(values.reshape(-1, len(self.rows)))

    def row_scores(self, scores: Floats) -> Floats:
        """The score of each row, from those of the texts."""
        forward, *exchanged = self.by_order(scores)
        if isinstance(self.scorer, PairScorer) and exchanged:
            return self.scorer.average(forward, *exchanged)
        return forward

    def margins(self, scores: Floats) -> Floats:
        """The margin of each comparison, from the scores of the texts."""
        row_scores = self.row_scores(scores)
        if isinstance(self.scorer, PairScorer):
            return row_scores
        return label_margins(self.rows, row_scores)


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


def examine_scores(
    scorer: Scorer, responses: pd.DataFrame, size: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on any scorer; about `size` rows are scored."""
    rows, orders = list_orders(scorer, responses)
    lengths = np.array([sum(map(len, text.answers)) for text in orders[0]])
    prompts, _ = group_codes(rows, PROMPT)
    chosen = spread(lengths, prompts, size).tolist()
    texts = [order[row] for order in orders for row in chosen]
    sample = Sample(scorer, rows.iloc[chosen], texts)
    yield from run_checks(SCORE_CHECKS, sample)


def apart(left: Floats, right: Floats) -> float:
    """The largest difference of two scorings of the same texts, in standard deviations
    of the first.

    >>> apart(np.array([0.0, 2.0]), np.array([0.0, 2.1])).__round__(6)
    0.1
    """
    # Scores that hardly vary are compared by their size: their own spread may be
    # rounding.
    deviation = float(np.std(left))
    size = float(np.abs(left).max())
    scale = max(deviation, 1e-3 * size, 1e-12)
    return float(np.abs(left - right).max()) / scale


def tolerance(dtype: str | None) -> float:
    """How far apart, in standard deviations, is explained by a number type, such as
    "bfloat16".
    """
    return 1e-4 if dtype == "float32" else 0.1


class Distance(NamedTuple):
    """How far two scorings of a sample are apart: in standard deviations of the first,
    in comparisons whose outcome changes, of `n`, and in words.
    """

    apart: float
    n_flips: int
    n: int
    detail: str


def measure(sample: Sample, reference: Floats) -> Distance:
    """How far the sample's scores are from a reference."""
    distance = apart(sample.row_scores(reference), sample.row_scores(sample.together))
    outcomes = np.sign(sample.margins(reference))
    n_flips = int((outcomes != np.sign(sample.margins(sample.together))).sum())
    n = len(outcomes)
    deviation = f"at most {distance:.1g} standard deviations apart"
    detail = (
        f"{deviation} on {len(sample.rows)} {_unit(sample)}; {n_flips} of {n} "
        "comparisons flip"
    )
    return Distance(distance, n_flips, n, detail)


def _unit(sample: Sample) -> str:
    return "comparisons" if isinstance(sample.scorer, PairScorer) else "texts"


def _check_finite(sample: Sample) -> Finding:
    """No score is NaN or infinite."""
    is_finite = np.isfinite(sample.together)
    if sample.alone is not None:
        is_finite &= np.isfinite(sample.alone)
    is_bad = ~np.all(sample.by_order(is_finite), axis=0)
    n = len(is_bad)
    if not is_bad.any():
        return Finding("pass", f"{n} of {n} scores are finite")

    first = sample.rows.iloc[int(is_bad.argmax())]
    place = f"{first['domain']}, id {first['id']}"
    count = f"{is_bad.sum()} of {n} scores are not finite"
    download = "if it stays, the weights themselves hold NaN: download them again"
    remedy = f"score with dtype='float32'; {download}"
    return Finding("fail", f"{count}, first: {place}", remedy)


def _check_company(sample: Sample) -> Finding | None:
    """Each text alone gets the score that it gets among others."""
    if sample.alone is None:
        return None
    distance = measure(sample, sample.alone)
    remedy = "score with dtype='float32'"
    if sample.dtype == "float32":
        remedy = "set max_batch_tokens= to the longest text's tokens"
    allowed = tolerance(sample.dtype)
    status = grade(distance.apart <= allowed, distance.apart <= 10 * allowed)
    return Finding(status, distance.detail, remedy)


def check_position(forward: Floats, exchanged: Floats) -> Finding:
    """How many winners change when the answers change places.

    Up to a tenth passes. From one half on the place decides more often than the answers
    do: that fails.
    """
    n = len(forward)
    n_changed = int((np.sign(forward) != -np.sign(exchanged)).sum())
    first_wins = float(np.mean(np.concatenate([forward, exchanged]) > 0))
    changed = f"comparisons ({n_changed / n:.0%}) change their winner"
    first = f"the one written first wins {first_wins:.0%}"
    description = f"{changed} with the order of the answers; {first}"
    return check_rate(n_changed, n, description, warn=0.1, fail=0.5)


def _check_position(sample: Sample) -> Finding | None:
    scores = sample.together if sample.alone is None else sample.alone
    forward, *exchanged = sample.by_order(scores)
    return check_position(forward, *exchanged) if exchanged else None


def _check_saturation(sample: Sample) -> Finding:
    """Different texts get different scores."""
    scores = pd.Series(sample.row_scores(sample.together))
    keys = [text.key for text in sample.texts[: len(scores)]]
    distinct = scores.groupby(keys, sort=False).first()
    n = len(distinct)
    n_distinct = distinct.nunique()
    n_tied = int((sample.margins(sample.together) == 0).sum())
    counts = f"{n_distinct} distinct scores for {n} distinct {_unit(sample)}"
    detail = f"{counts}, {n_tied} tied comparisons"
    remedy = "read raw logits, never a sigmoid; count ties with the results"
    return Finding(grade(n_distinct == n, n_distinct > n // 2), detail, remedy)


SCORE_CHECKS: Checks[Sample] = {
    "nan": Check(_check_finite, is_needed=True),
    "alone": Check(_check_company),
    "position": Check(
        _check_position,
        "both orders are averaged: report the share, and never ask in one order only",
    ),
    "saturation": Check(_check_saturation),
}
"""What holds for every scorer, by the scores of a few texts."""
