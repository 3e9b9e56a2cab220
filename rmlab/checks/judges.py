"""Checks of a judge before a long run: whether it answers, whether its verdicts can be read, the order, the cost.

How often it contradicts itself takes many more questions: `rmlab.judges.examine`.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.checks.findings import Finding, check_position, check_rate
from rmlab.judges.asking import ask, estimate, list_questions
from rmlab.judges.modes import Judge
from rmlab.judges.questions import Answer, Question
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
    replies = [_ask(run_judge, questions) for run_judge, questions in runs]
    answers = [answer for run_answers, _, _ in replies for answer in run_answers]
    failures = sum((run_failures for _, _, run_failures in replies), Counter[str]())
    n_asked = len(answers) + failures.total()
    detail = "questions were not answered" + "".join(f": {reason}" for reason, _ in failures.most_common(1))
    remedy = "look at the server's log; lower concurrency= or raise timeout= where it is busy"
    yield check_rate("answers", failures.total(), n_asked, detail, remedy, warn=0, fail=0.5)
    if not answers:
        return
    yield _check_model(judge.respondent.title, {answer.model for answer in answers} - {""})
    values = np.concatenate([run_values for _, run_values, _ in replies])
    remedy = "read some answers in the store; raise answer_tokens=, or give a template= that this model follows"
    n_silent = int(np.isnan(values).sum())
    detail = f"questions ({n_silent / len(values):.0%}) got no verdict that can be read"
    yield check_rate("verdict", n_silent, len(values), detail, remedy, warn=0.02, fail=0.5)
    longest = judge.respondent.longest
    n_cut = sum(answer.finish == "length" for answer in answers) if longest > 1 else 0  # of a letter only one is read
    remedy = "raise answer_tokens=: reasoning comes before the verdict"
    detail = f"answers were cut at {longest} tokens"
    yield check_rate("length", n_cut, len(answers), detail, remedy, warn=0.02, fail=np.inf)
    if judge.takes == "pair":
        yield from _check_position(runs[0][1], values)
    cost = estimate(judge, responses).iloc[0]
    counts = [answer.answer_tokens for answer in answers if answer.answer_tokens is not None]
    written = f"{np.mean(counts) * cost['to_ask']:,.0f}" if counts else f"at most {cost['answer_tokens']:,}"
    detail = (
        f"{cost['to_ask']:,} questions in all, about {cost['prompt_tokens']:,} tokens to read and {written} to write"
    )
    yield Finding("cost", "pass", detail)


def _ask(judge: Judge, questions: list[Question]) -> tuple[list[Answer], Floats, Counter[str]]:
    """Answers, the value of each question (NaN without one), and the reasons of failures."""
    answers: list[Answer] = []

    def read(answer: Answer, question: Question) -> float | None:
        answers.append(answer)
        return judge.read_answer(answer, question)

    replies = ask(judge.name, judge.respondent, questions, read, store=None, progress=False)
    return answers, replies.values_of(questions), Counter(replies.failures.values())


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
