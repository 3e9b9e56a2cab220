"""Checks of a judge before a long run: whether it answers, whether its verdicts can be read, the order, the cost.

How often it contradicts itself takes many more questions: `rmlab.judges.examine`.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.checks.findings import Finding, check_position, check_rate
from rmlab.judges.chat import estimate, list_questions
from rmlab.judges.modes import Judge
from rmlab.judges.questions import Question
from rmlab.tables import PROMPT

Floats = NDArray[np.float64]


def judge_sample(responses: pd.DataFrame, sample: int = 24) -> pd.DataFrame:
    """Whole prompts with about `sample` answers, evenly from the table: those that a judge is checked with."""
    prompts = responses[PROMPT].drop_duplicates()
    n_prompts = max(1, round(sample * len(prompts) / max(len(responses), 1)))
    picked = prompts.iloc[np.linspace(0, len(prompts) - 1, min(n_prompts, len(prompts))).round().astype(int)]
    return responses.merge(picked, on=PROMPT)


def examine_judge(judge: Judge, responses: pd.DataFrame, sample: int) -> Iterator[Finding]:
    """The rows of a judge's table. The questions about some `sample` answers are asked; nothing is stored."""
    runs = list_questions(judge, judge_sample(responses, sample))
    replies = [run_judge.ask(questions, store=None, progress=False) for run_judge, questions in runs]
    counts, models, failures = (sum(part, Counter[str]()) for part in zip(*(part[2:] for part in replies), strict=True))
    n_answers, n_failed = counts["asked"], counts["failed"]
    detail = "questions were not answered" + "".join(f": {reason}" for reason, _ in failures.most_common(1))
    remedy = "look at the server's log; lower concurrency= or raise timeout= where it is busy"
    yield check_rate("answers", n_failed, n_answers + n_failed, detail, remedy, warn=0, fail=0.5)
    if not n_answers:
        return
    yield _check_model(judge.respondent.title, {*models})
    values = np.concatenate([part.values for part in replies])
    remedy = "read some answers in the store; raise answer_tokens=, or give a template= that this model follows"
    n_silent = int(np.isnan(values).sum())
    detail = f"questions ({n_silent / len(values):.0%}) got no verdict that can be read"
    yield check_rate("verdict", n_silent, len(values), detail, remedy, warn=0.02, fail=0.5)
    longest = judge.respondent.sampling.answer_tokens
    n_cut = counts["cut"] if longest > 1 else 0  # of a letter only one is read
    remedy = "raise answer_tokens=: reasoning comes before the verdict"
    detail = f"answers were cut at {longest} tokens"
    yield check_rate("length", n_cut, n_answers, detail, remedy, warn=0.02, fail=np.inf)
    if judge.takes == "pair":
        yield from _check_position(runs[0][1], values)
    cost = estimate(judge, responses).iloc[0]
    n_written = counts["answer_tokens"] * cost["to_ask"] / n_answers
    written = f"{n_written:,.0f}" if n_written else f"at most {cost['answer_tokens']:,}"
    detail = (
        f"{cost['to_ask']:,} questions in all, about {cost['prompt_tokens']:,} tokens to read and {written} to write"
    )
    yield Finding("cost", "pass", detail)


def _check_model(asked: str, names: set[str]) -> Finding:
    """The model that the server says has answered."""
    if names <= {asked}:
        return Finding("model", "pass", asked)
    detail = f"{', '.join(map(repr, sorted(names)))} answered where {asked!r} was asked"
    remedy = "name the exact model and its date, or say version=, so that answers are told apart"
    return Finding("model", "warn" if len(names) == 1 else "fail", detail, remedy)


def _check_position(questions: list[Question], values: Floats) -> Iterator[Finding]:
    """As of pairwise models, where both orders have a verdict."""
    items = np.array([question.item for question in questions])
    is_first = np.array([question.order[0] == 0 for question in questions])
    orders = [pd.Series(values[side]).groupby(items[side]).mean() for side in (is_first, ~is_first)]
    votes = pd.concat(orders, axis=1).dropna()
    if len(votes):
        finding = check_position(votes.iloc[:, 0].to_numpy(), votes.iloc[:, 1].to_numpy())
        yield finding._replace(remedy="a flip counts as a tie, so the order cannot win; report the share of flips")
