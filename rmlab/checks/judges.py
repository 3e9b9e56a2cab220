"""Checks of a judge before a long run: whether it answers, whether its verdicts can be
read, the order, the cost.

How often it contradicts itself in other ways takes many more questions:
`rmlab.judges.examine`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.checks.sampled_scores import check_position
from rmlab.findings import Check, Checks, Finding, check_rate, grade, run_checks
from rmlab.judges import LLMJudge
from rmlab.judges.chat import estimate, list_questions
from rmlab.judges.questions import Question
from rmlab.scorers.base import Floats
from rmlab.tables import PROMPT


def judge_sample(responses: pd.DataFrame, sample: int = 24) -> pd.DataFrame:
    """Whole prompts with about `sample` answers, evenly from the table: those that a
    judge is checked with.
    """
    prompts = responses[PROMPT].drop_duplicates()
    n_prompts = max(1, round(sample * len(prompts) / max(len(responses), 1)))
    picked = prompts.iloc[
        np.linspace(0, len(prompts) - 1, min(n_prompts, len(prompts)))
        .round()
        .astype(int)
    ]
    return responses.merge(picked, on=PROMPT)


class _Trial(NamedTuple):
    """Questions to a judge, the numbers that it answered, and counts of questions,
    models and failures.

    `runs`: the judges of all subsets, each with its questions.
    """

    judge: LLMJudge
    responses: pd.DataFrame
    runs: list[tuple[LLMJudge, list[Question]]]
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
    runs = list_questions(judge, judge_sample(responses, sample))
    replies = [
        run_judge.ask(questions, store=None, progress=False)
        for run_judge, questions in runs
    ]
    counts, models, failures = (
        sum(part, Counter[str]())
        for part in zip(*(part[2:] for part in replies), strict=True)
    )
    values = np.concatenate([reply.values for reply in replies])
    yield from run_checks(
        _CHECKS, _Trial(judge, responses, runs, values, counts, models, failures)
    )


def _check_answers(trial: _Trial) -> Finding:
    n_failed = trial.counts["failed"]
    detail = "questions were not answered" + "".join(
        f": {reason}" for reason, _ in trial.failures.most_common(1)
    )
    return check_rate(
        n_failed, trial.counts["asked"] + n_failed, detail, warn=0, fail=0.5
    )


def _check_model(trial: _Trial) -> Finding:
    """The model that the server says has answered."""
    title, names = trial.judge.respondent.title, sorted(trial.models)
    if {*names} <= {title}:
        return Finding("pass", title)
    return Finding(
        grade(False, len(names) == 1),
        f"{', '.join(map(repr, names))} answered where {title!r} was asked",
    )


def _check_verdict(trial: _Trial) -> Finding:
    n, n_silent = len(trial.values), int(np.isnan(trial.values).sum())
    return check_rate(
        n_silent,
        n,
        f"questions ({n_silent / n:.0%}) got no verdict",
        warn=0.02,
        fail=0.5,
    )


def _check_length(trial: _Trial) -> Finding:
    longest = trial.judge.respondent.sampling.answer_tokens
    n_cut = trial.counts["cut"] if longest > 1 else 0  # of a letter only one is read
    return check_rate(
        n_cut,
        trial.counts["asked"],
        f"answers were cut at {longest} tokens",
        warn=0.02,
        fail=np.inf,
    )


def _check_repeat(trial: _Trial) -> Finding:
    """Whether questions that are asked again, as further samples, get the same
    verdicts.
    """
    second = np.zeros(0)
    for judge, questions in trial.runs:
        again = [
            replace(question, sample=question.sample + judge.samples)
            for question in questions
        ]
        second = np.append(second, judge.ask(again, store=None, progress=False).values)
    change = trial.values - second
    if trial.judge.takes == "pair":  # it counts who wins, not how clearly
        change = np.sign(trial.values) - np.sign(second)
    change = change[~np.isnan(change)]
    detail = "questions got another verdict when they were asked again"
    return check_rate(
        int(np.count_nonzero(change)), len(change), detail, warn=0.1, fail=np.inf
    )


def _check_spread(trial: _Trial) -> Finding | None:
    """Whether a judge that rates tells answers apart."""
    if trial.judge.takes != "answer":
        return None
    counts = Counter(trial.values[~np.isnan(trial.values)].tolist())
    detail = f"ratings are the commonest of {len(counts)} different ones"
    return check_rate(
        max(counts.values(), default=0), counts.total(), detail, warn=0.5, fail=np.inf
    )


def _check_position(trial: _Trial) -> Finding | None:
    """As of pairwise models, where both orders have a verdict."""
    if trial.judge.takes != "pair":
        return None
    questions = trial.runs[0][1]
    items = np.array([question.item for question in questions])
    is_first = np.array([question.order[0] == 0 for question in questions])
    orders = [
        pd.Series(trial.values[side]).groupby(items[side]).mean()
        for side in (is_first, ~is_first)
    ]
    votes = pd.concat(orders, axis=1).dropna().to_numpy()
    return check_position(*votes.T) if len(votes) else None


def _describe_cost(trial: _Trial) -> Finding:
    cost = estimate(trial.judge, trial.responses).iloc[0]
    n_written = trial.counts["answer_tokens"] * cost["to_ask"] / trial.counts["asked"]
    to_write = (
        f"{n_written:,.0f}" if n_written else f"at most {cost['answer_tokens']:,}"
    )
    numbers = f"{cost['to_ask']:,} questions in all, about {cost['prompt_tokens']:,} tokens to read"
    return Finding("pass", f"{numbers} and {to_write} to write")


_CHECKS: Checks[_Trial] = {
    "answers": Check(
        _check_answers,
        "look at the server's log; lower concurrency= or raise timeout= where it is busy",
        is_needed=True,
    ),
    "model": Check(
        _check_model,
        "name the exact model and its date, or say version=, so that answers are told apart",
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
