"""Before a long run of a judge: what it costs, whether the judge answers, whether its
verdicts can be read and stay the same, the order.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.findings import Check, Checks, Finding, check_rate, grade, run_checks
from rmlab.judges.kinds import FAILED, Judge, PairJudge
from rmlab.judges.questions import Question, count_tokens
from rmlab.scorers.base import Floats, Rows, Text
from rmlab.scorers.score_checks import check_position
from rmlab.scoring.texts import comparisons, list_texts
from rmlab.scoring.walk import split_subsets
from rmlab.store import Store
from rmlab.tables import PROMPT

# So many questions count as truncated where their sizes differ by this factor and their
# tokens do not.
_MIN_TRUNCATED = 5
_SIZE_FACTOR = 1.5


def texts_by_judge(
    judge: Judge, responses: pd.DataFrame
) -> list[tuple[Judge, list[Text]]]:
    """Return the texts of a run with the judge that is asked about them: the judge
    itself, or that of a subset.
    """
    responses = tables.check_responses(responses)
    if isinstance(judge, PairJudge):
        _, texts = comparisons(responses, both_orders=judge.both_orders)
        return [(judge, texts.distinct)]
    asked = []
    for scorer, part in split_subsets(judge, responses):
        texts = list_texts(part, tables.KEY, lists=scorer.lists_answers)
        asked.append((cast("Judge", scorer), texts.distinct))
    return asked


def cost(
    judge: Judge, responses: pd.DataFrame, *, store: str | Path | None = None
) -> pd.DataFrame:
    """Count what judging `responses` would take; nothing is asked.

    Parameters
    ----------
    judge : judge
        A judge, as `rmlab.judge` makes it.
    responses : DataFrame
        A table of responses.
    store : str or Path, optional
        Where earlier answers are.

    Returns
    -------
    DataFrame
        One row: judge, questions (each different one once), answered (by the store),
        to_ask, prompt_tokens (of those to ask, at four bytes a token) and answer_tokens
        (at most).
    """
    questions: dict[str, Question] = {}
    answered: set[str] = set()
    for asked, texts in texts_by_judge(judge, responses):
        stored: set[str] = set()
        if store is not None:
            stored.update(Store(store).read(asked.fingerprint))
        for text in texts:
            for question in asked.questions(text):
                questions[question.key] = question
                if text.key in stored:
                    answered.add(question.key)

    pending = [question for key, question in questions.items() if key not in answered]
    answer_tokens = judge.respondent.sampling.answer_tokens
    return pd.DataFrame(
        {
            "judge": [judge.name],
            "questions": len(questions),
            "answered": len(answered),
            "to_ask": len(pending),
            "prompt_tokens": count_tokens(pending),
            "answer_tokens": answer_tokens * len(pending),
        }
    )


@dataclass(frozen=True)
class _JudgeTrial:
    """Responses that a judge was asked about, their texts by the judges of all
    subsets, the rows of these (score and verdict first, replies last), and the reasons
    for missing scores.
    """

    judge: Judge
    responses: pd.DataFrame
    texts: list[tuple[Judge, list[Text]]]
    rows: Rows
    reasons: list[str]

    @property
    def values(self) -> Floats:
        """The score of each text."""
        return self.rows[:, 0].astype(np.float64)

    @property
    def replies(self) -> list[tuple[Question, Mapping[str, Any]]]:
        """Each question with what was answered, as it is stored."""
        replies: list[tuple[Question, Mapping[str, Any]]] = []
        stored = iter(self.rows[:, -1])
        for judge, texts in self.texts:
            for text in texts:
                answers = next(stored)
                if answers is not None:
                    replies += zip(judge.questions(text), answers, strict=True)
        return replies


def examine_judge(
    judge: Judge, responses: pd.DataFrame, sample: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a judge. The questions about some `sample` answers, whole
    prompts evenly from the table, are asked twice; nothing is stored.
    """
    prompts = responses[PROMPT].drop_duplicates()
    n_prompts = max(1, round(sample * len(prompts) / max(len(responses), 1)))
    n_prompts = min(len(prompts), n_prompts)
    rows = np.linspace(0, len(prompts) - 1, n_prompts).round().astype(int)
    sampled = responses.merge(prompts.iloc[rows], on=PROMPT)
    texts = texts_by_judge(judge, sampled)
    yield from run_checks(_CHECKS, _JudgeTrial(judge, sampled, texts, *_ask(texts)))


def _ask(texts_of: Sequence[tuple[Judge, list[Text]]]) -> tuple[Rows, list[str]]:
    """The rows of all texts in their order, and why some have no score."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a check says it
        parts = []
        reasons: list[str] = []
        for judge, texts in texts_of:
            columns = judge.columns + judge.hidden_columns
            rows = np.empty((len(texts), 1 + len(columns)), object)
            for positions, values in judge.stream(texts):
                rows[positions] = values
            parts.append(rows)
            reasons += judge.unscored.values()
    return np.concatenate(parts), reasons


def _check_answers(trial: _JudgeTrial) -> Finding:
    is_failed = trial.rows[:, 1] == FAILED
    n_failed = int(is_failed.sum())
    description = "texts got no reply"
    if n_failed:
        ((reason, _),) = Counter(trial.reasons).most_common(1)
        description += f": {reason}"
    return check_rate(n_failed, len(is_failed), description, warn=0, fail=0.5)


def _check_verdict(trial: _JudgeTrial) -> Finding:
    n = len(trial.values)
    n_silent = int(np.isnan(trial.values).sum())
    description = f"texts ({n_silent / n:.0%}) got no verdict"
    return check_rate(n_silent, n, description, warn=0.02, fail=0.5)


def _check_length(trial: _JudgeTrial) -> Finding:
    longest = trial.judge.respondent.sampling.answer_tokens
    finishes = [reply.get("finish") for _, reply in trial.replies]
    # Of a letter only one token is read.
    n_cut = finishes.count("length") if longest > 1 else 0
    description = f"answers were cut at {longest} tokens"
    return check_rate(n_cut, len(finishes), description, warn=0.02, fail=np.inf)


def _check_truncation(trial: _JudgeTrial) -> Finding | None:
    """Whether short and long questions were read as equally many tokens."""
    sizes_of: dict[int, list[int]] = {}
    for question, reply in trial.replies:
        n_read = reply.get("prompt_tokens", 0)
        sizes_of.setdefault(n_read, []).append(question.n_bytes)
    n_most = max(sizes_of, default=0)
    if not n_most:
        return None
    sizes = sizes_of[n_most]
    is_cut = len(sizes) >= _MIN_TRUNCATED and max(sizes) > _SIZE_FACTOR * min(sizes)
    bytes_read = f"{len(sizes)} questions of {min(sizes)} to {max(sizes)} bytes"
    detail = f"{bytes_read} were read as {n_most} tokens, the most"
    return Finding(grade(not is_cut, True), detail)


def _check_repeat(trial: _JudgeTrial) -> Finding:
    """Whether texts that are asked about again get the same verdicts."""
    repeated = []
    for judge, texts in trial.texts:
        repeated.append((replace(judge, seed=judge.seed + 1), texts))
    first = trial.values
    rows, _ = _ask(repeated)
    second = rows[:, 0].astype(np.float64)
    if isinstance(trial.judge, PairJudge):  # who wins, not how clearly
        first = np.sign(first)
        second = np.sign(second)
    change = first - second
    change = change[~np.isnan(change)]
    n_changed = int(np.count_nonzero(change))
    description = "texts got another verdict when they were asked about again"
    return check_rate(n_changed, len(change), description, warn=0.1, fail=np.inf)


def _check_position(trial: _JudgeTrial) -> Finding | None:
    """As of pairwise models, where both orders have a verdict."""
    if not isinstance(trial.judge, PairJudge) or trial.judge.one_order:
        return None
    _, texts = comparisons(trial.responses, both_orders=True)
    orders = trial.values[texts.numbers]
    orders = orders[:, ~np.isnan(orders).any(axis=0)]
    return check_position(*orders) if orders.size else None


_CHECKS: Checks[_JudgeTrial] = {
    "answers": Check(
        _check_answers,
        "look at the server's log; where it is busy, lower concurrency= or raise "
        "timeout=",
        is_needed=True,
    ),
    "verdict": Check(
        _check_verdict,
        "raise answer_tokens=, or give a template= that this model follows",
    ),
    "length": Check(
        _check_length, "raise answer_tokens=: reasoning comes before the verdict"
    ),
    "truncated": Check(
        _check_truncation, "raise the server's limit: it may cut long questions"
    ),
    "repeat": Check(
        _check_repeat, "take a majority with samples=3 or more, and report the share"
    ),
    "position": Check(
        _check_position,
        "a flip counts as a tie, so the order cannot win; report the share of flips",
    ),
}
