"""Checks of a judge before a long run: whether it answers, whether its verdicts can be
read, the order, the cost.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rmlab.findings import Check, Checks, Finding, check_rate, grade, run_checks
from rmlab.judges.costs import cost, texts_by_judge
from rmlab.judges.kinds import FAILED, Judge, PairJudge
from rmlab.judges.questions import Question
from rmlab.scorers.base import Floats, Text
from rmlab.scorers.score_checks import check_position
from rmlab.tables import PROMPT

# So many questions count as truncated where their sizes differ by this factor and their
# tokens do not.
_MIN_TRUNCATED = 5
_SIZE_FACTOR = 1.5


def judge_sample(responses: pd.DataFrame, sample: int = 24) -> pd.DataFrame:
    """Whole prompts with about `sample` answers, evenly from the table: those that a
    judge is checked with.
    """
    prompts = responses[PROMPT].drop_duplicates()
    share = sample / max(len(responses), 1)
    n = min(len(prompts), max(1, round(share * len(prompts))))
    rows = np.linspace(0, len(prompts) - 1, n).round().astype(int)
    return responses.merge(prompts.iloc[rows], on=PROMPT)


@dataclass(frozen=True)
class _JudgeTrial:
    """Texts that a judge was asked about, by the judges of all subsets, and its rows:
    score and verdict first, replies and the reason for a missing score last.
    """

    judge: Judge
    responses: pd.DataFrame
    texts: list[tuple[Judge, list[Text]]]
    rows: np.ndarray

    @property
    def values(self) -> Floats:
        """The score of each text."""
        return self.rows[:, 0].astype(np.float64)

    @property
    def replies(self) -> list[tuple[Question, Mapping[str, Any]]]:
        """Each question with what was answered, as it is stored."""
        questions: list[list[Question]] = []
        for judge, texts in self.texts:
            questions += [judge.questions(text) for text in texts]
        replies: list[tuple[Question, Mapping[str, Any]]] = []
        for asked, answers in zip(questions, self.rows[:, -2], strict=True):
            if answers is not None:
                replies += zip(asked, answers, strict=True)
        return replies


def examine_judge(
    judge: Judge, responses: pd.DataFrame, sample: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a judge. The questions about some `sample` answers are
    asked twice; nothing is stored.
    """
    texts = texts_by_judge(judge, judge_sample(responses, sample))
    trial = _JudgeTrial(judge, responses, texts, _ask(texts))
    yield from run_checks(_CHECKS, trial)


def _ask(texts_of: Sequence[tuple[Judge, list[Text]]]) -> np.ndarray:
    """The rows of all texts in their order."""
    parts = []
    for judge, texts in texts_of:
        n_columns = 1 + len(judge.columns + judge.hidden_columns)
        rows = np.empty((len(texts), n_columns), object)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a check says it
            for positions, values in judge.stream(texts):
                rows[positions] = values
        parts.append(rows)
    return np.concatenate(parts)


def _check_answers(trial: _JudgeTrial) -> Finding:
    is_failed = trial.rows[:, 1] == FAILED
    n_failed = int(is_failed.sum())
    description = "texts got no reply"
    if n_failed:
        ((reason, _),) = Counter(trial.rows[is_failed, -1]).most_common(1)
        description += f": {reason}"
    return check_rate(n_failed, len(is_failed), description, warn=0, fail=0.5)


def _check_model(trial: _JudgeTrial) -> Finding:
    """The model that the server says has answered."""
    title = trial.judge.respondent.title
    names = {reply.get("model", "") for _, reply in trial.replies} - {""}
    if names <= {title}:
        return Finding("pass", title)
    listed = ", ".join(repr(name) for name in sorted(names))
    status = grade(False, len(names) == 1)
    return Finding(status, f"{listed} answered where {title!r} was asked")


def _check_verdict(trial: _JudgeTrial) -> Finding:
    n = len(trial.values)
    n_silent = int(np.isnan(trial.values).sum())
    description = f"texts ({n_silent / n:.0%}) got no verdict"
    return check_rate(n_silent, n, description, warn=0.02, fail=0.5)


def _check_length(trial: _JudgeTrial) -> Finding:
    longest = trial.judge.respondent.sampling.answer_tokens
    n_cut = 0
    for _, reply in trial.replies:
        # Of a letter only one token is read.
        n_cut += longest > 1 and reply.get("finish") == "length"
    description = f"answers were cut at {longest} tokens"
    return check_rate(n_cut, len(trial.replies), description, warn=0.02, fail=np.inf)


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
    second = _ask(repeated)[:, 0].astype(np.float64)
    if isinstance(trial.judge, PairJudge):  # who wins, not how clearly
        first = np.sign(first)
        second = np.sign(second)
    change = first - second
    change = change[~np.isnan(change)]
    n_changed = int(np.count_nonzero(change))
    description = "texts got another verdict when they were asked about again"
    return check_rate(n_changed, len(change), description, warn=0.1, fail=np.inf)


def _check_spread(trial: _JudgeTrial) -> Finding | None:
    """Whether a judge that rates tells answers apart."""
    if trial.judge.mode != "rating":
        return None
    ratings = trial.values[~np.isnan(trial.values)]
    counts = Counter(ratings.tolist())
    n_commonest = max(counts.values(), default=0)
    description = f"ratings are the commonest of {len(counts)} different ones"
    return check_rate(n_commonest, len(ratings), description, warn=0.5, fail=np.inf)


def _check_position(trial: _JudgeTrial) -> Finding | None:
    """As of pairwise models, where both orders have a verdict."""
    if not isinstance(trial.judge, PairJudge) or not trial.judge.both_orders:
        return None
    ((_, texts),) = trial.texts
    vote_of = dict(zip([text.key for text in texts], trial.values, strict=True))
    forward = []
    exchanged = []
    for text in texts:
        swapped = Text(text.prompt, text.answers[::-1])
        votes = (vote_of[text.key], vote_of[swapped.key])
        # Each comparison once, in one of its orders.
        if text.answers < swapped.answers and not np.isnan(votes).any():
            forward.append(votes[0])
            exchanged.append(votes[1])
    if not forward:
        return None
    return check_position(np.array(forward), np.array(exchanged))


def _describe_cost(trial: _JudgeTrial) -> Finding:
    costs = cost(trial.judge, trial.responses).iloc[0]
    n_written = [reply.get("answer_tokens", 0) for _, reply in trial.replies]
    to_write = f"at most {costs['answer_tokens']:,}"
    if any(n_written):
        to_write = f"{np.mean(n_written) * costs['to_ask']:,.0f}"
    to_ask = f"{costs['to_ask']:,} questions in all"
    to_read = f"about {costs['prompt_tokens']:,} tokens to read"
    return Finding("pass", f"{to_ask}, {to_read} and {to_write} to write")


_CHECKS: Checks[_JudgeTrial] = {
    "answers": Check(
        _check_answers,
        "look at the server's log; where it is busy, lower concurrency= or raise "
        "timeout=",
        is_needed=True,
    ),
    "model": Check(
        _check_model,
        "name the exact model and its date, or say version=, to tell answers apart",
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
    "spread": Check(
        _check_spread,
        "equal ratings are ties: compare two answers at once with mode='pairwise'",
    ),
    "position": Check(
        _check_position,
        "a flip counts as a tie, so the order cannot win; report the share of flips",
    ),
    "cost": Check(_describe_cost),
}
