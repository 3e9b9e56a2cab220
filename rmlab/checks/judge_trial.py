"""Checks of a judge before a long run: whether it answers, whether its verdicts can be
read, the order, the cost.

How often it contradicts itself in other ways takes many more questions:
`rmlab.judges.examine`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.checks.sampled_scores import check_position
from rmlab.findings import Check, Checks, Finding, check_rate, grade, run_checks
from rmlab.judges import LLMJudge
from rmlab.judges.batches import estimate, list_questions
from rmlab.judges.questions import Question, item_numbers
from rmlab.scorers.base import Floats
from rmlab.tables import PROMPT


def judge_sample(responses: pd.DataFrame, sample: int = 24) -> pd.DataFrame:
    """Whole prompts with about `sample` answers, evenly from the table: those that a
    judge is checked with.
    """
    prompts = responses[PROMPT].drop_duplicates()
    share = sample / max(len(responses), 1)
    n = min(len(prompts), max(1, round(share * len(prompts))))
    rows = np.linspace(0, len(prompts) - 1, n).round().astype(int)
    return responses.merge(prompts.iloc[rows], on=PROMPT)


class _JudgeTrial(NamedTuple):
    """Questions to a judge, the numbers that it answered, and counts of questions,
    models and failures.

    `questions`: by the judges of all subsets.
    """

    judge: LLMJudge
    responses: pd.DataFrame
    questions: list[tuple[LLMJudge, list[Question]]]
    values: Floats
    counts: Counter[str]
    models: Counter[str]
    failures: Counter[str]


def examine_judge(
    judge: LLMJudge, responses: pd.DataFrame, sample: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a judge. The questions about some `sample` answers are
    asked twice; nothing is stored.
    """
    questions_of = list_questions(judge, judge_sample(responses, sample))
    values = []
    counts: Counter[str] = Counter()
    models: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for subset_judge, questions in questions_of:
        replies = subset_judge.ask(questions, store=None, progress=False)
        values.append(replies.values)
        counts += replies.counts
        models += replies.models
        failures += replies.failures

    trial = _JudgeTrial(
        judge=judge,
        responses=responses,
        questions=questions_of,
        values=np.concatenate(values),
        counts=counts,
        models=models,
        failures=failures,
    )
    yield from run_checks(_CHECKS, trial)


def _check_answers(trial: _JudgeTrial) -> Finding:
    n_failed = trial.counts["failed"]
    n = trial.counts["asked"] + n_failed
    description = "questions were not answered"
    for reason, _ in trial.failures.most_common(1):
        description += f": {reason}"
    return check_rate(n_failed, n, description, warn=0, fail=0.5)


def _check_model(trial: _JudgeTrial) -> Finding:
    """The model that the server says has answered."""
    title = trial.judge.respondent.title
    names = sorted(trial.models)
    if set(names) <= {title}:
        return Finding("pass", title)
    listed = ", ".join(repr(name) for name in names)
    status = grade(False, len(names) == 1)
    return Finding(status, f"{listed} answered where {title!r} was asked")


def _check_verdict(trial: _JudgeTrial) -> Finding:
    n = len(trial.values)
    n_silent = int(np.isnan(trial.values).sum())
    description = f"questions ({n_silent / n:.0%}) got no verdict"
    return check_rate(n_silent, n, description, warn=0.02, fail=0.5)


def _check_length(trial: _JudgeTrial) -> Finding:
    longest = trial.judge.respondent.sampling.answer_tokens
    n_cut = trial.counts["cut"] if longest > 1 else 0  # of a letter only one is read
    description = f"answers were cut at {longest} tokens"
    return check_rate(n_cut, trial.counts["asked"], description, warn=0.02, fail=np.inf)


def _check_repeat(trial: _JudgeTrial) -> Finding:
    """Whether questions that are asked again, as further samples, get the same
    verdicts.
    """
    repeated = []
    for judge, questions in trial.questions:
        again = _as_further_samples(questions, judge.samples)
        replies = judge.ask(again, store=None, progress=False)
        repeated.append(replies.values)

    first = trial.values
    second = np.concatenate(repeated)
    if trial.judge.takes == "pair":  # who wins, not how clearly
        first = np.sign(first)
        second = np.sign(second)
    change = first - second
    change = change[~np.isnan(change)]
    n_changed = int(np.count_nonzero(change))
    description = "questions got another verdict when they were asked again"
    return check_rate(n_changed, len(change), description, warn=0.1, fail=np.inf)


def _as_further_samples(
    questions: Sequence[Question], n_samples: int
) -> list[Question]:
    return [
        replace(question, sample=question.sample + n_samples) for question in questions
    ]


def _check_spread(trial: _JudgeTrial) -> Finding | None:
    """Whether a judge that rates tells answers apart."""
    if trial.judge.takes != "answer":
        return None
    ratings = trial.values[~np.isnan(trial.values)]
    counts = Counter(ratings.tolist())
    n_commonest = max(counts.values(), default=0)
    description = f"ratings are the commonest of {len(counts)} different ones"
    return check_rate(n_commonest, len(ratings), description, warn=0.5, fail=np.inf)


def _check_position(trial: _JudgeTrial) -> Finding | None:
    """As of pairwise models, where both orders have a verdict."""
    if trial.judge.takes != "pair":
        return None
    ((_, questions),) = trial.questions
    votes = pd.DataFrame(
        {
            "item": item_numbers(questions),
            "is_forward": [question.order[0] == 0 for question in questions],
            "value": trial.values,
        }
    )
    means = votes.pivot_table("value", index="item", columns="is_forward")
    means = means.reindex(columns=[True, False]).dropna()
    if means.empty:
        return None
    forth, back = means.to_numpy().T
    return check_position(forth, back)


def _describe_cost(trial: _JudgeTrial) -> Finding:
    cost = estimate(trial.judge, trial.responses).iloc[0]
    tokens_an_answer = trial.counts["answer_tokens"] / trial.counts["asked"]
    n_written = tokens_an_answer * cost["to_ask"]
    to_write = f"at most {cost['answer_tokens']:,}"
    if n_written:
        to_write = f"{n_written:,.0f}"
    to_ask = f"{cost['to_ask']:,} questions in all"
    to_read = f"about {cost['prompt_tokens']:,} tokens to read"
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
