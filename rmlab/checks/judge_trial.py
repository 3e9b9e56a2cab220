"""Checks of a judge before a long run: whether it answers, whether its verdicts can be
read, the order, the cost.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.checks.sampled_scores import check_position
from rmlab.findings import Check, Checks, Finding, check_rate, grade, run_checks
from rmlab.judges import Judge, cost
from rmlab.judges.costs import texts_by_judge
from rmlab.judges.kinds import FAILED, PairJudge
from rmlab.scorers.base import Floats, Text
from rmlab.scoring.run import Counts, add_counts
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
    """Texts that a judge was asked about, by the judges of all subsets, their scores
    and verdicts, and counts of answers, models and reasons for missing scores.
    """

    judge: Judge
    responses: pd.DataFrame
    texts: list[tuple[Judge, list[Text]]]
    values: Floats
    verdicts: list[str]
    counts: Counts
    models: Counter[str]
    reasons: Counter[str]


def examine_judge(
    judge: Judge, responses: pd.DataFrame, sample: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on a judge. The questions about some `sample` answers are
    asked twice; nothing is stored.
    """
    texts_of = texts_by_judge(judge, judge_sample(responses, sample))
    values = []
    verdicts: list[str] = []
    counts: Counts = {}
    reasons: Counter[str] = Counter()
    for subset_judge, texts in texts_of:
        rows = _ask(subset_judge, texts)
        values.append(rows[:, 0].astype(np.float64))
        verdicts += rows[:, 1].tolist()
        add_counts(counts, subset_judge.counts)
        reasons.update(subset_judge.unscored.values())

    trial = _JudgeTrial(
        judge=judge,
        responses=responses,
        texts=texts_of,
        values=np.concatenate(values),
        verdicts=verdicts,
        counts=counts,
        models=counts["models"],
        reasons=reasons,
    )
    yield from run_checks(_CHECKS, trial)


def _ask(judge: Judge, texts: Sequence[Text]) -> np.ndarray:
    """The rows of the texts in their order."""
    rows = np.empty((len(texts), 1 + len(judge.columns + judge.hidden_columns)), object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a check says it
        for positions, values in judge.stream(texts):
            rows[positions] = values
    return rows


def _check_answers(trial: _JudgeTrial) -> Finding:
    n_failed = trial.verdicts.count(FAILED)
    description = "texts got no reply"
    if n_failed:
        reason, _ = trial.reasons.most_common(1)[0]
        description += f": {reason}"
    return check_rate(n_failed, len(trial.verdicts), description, warn=0, fail=0.5)


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
    description = f"texts ({n_silent / n:.0%}) got no verdict"
    return check_rate(n_silent, n, description, warn=0.02, fail=0.5)


def _check_length(trial: _JudgeTrial) -> Finding:
    longest = trial.judge.respondent.sampling.answer_tokens
    n_cut = trial.counts["cut"] if longest > 1 else 0  # of a letter only one is read
    description = f"answers were cut at {longest} tokens"
    return check_rate(n_cut, trial.counts["asked"], description, warn=0.02, fail=np.inf)


def _check_repeat(trial: _JudgeTrial) -> Finding:
    """Whether texts that are asked about again, as further samples, get the same
    verdicts.
    """
    repeated = []
    for judge, texts in trial.texts:
        again = replace(judge, seed=judge.seed + 1)
        repeated.append(_ask(again, texts)[:, 0].astype(np.float64))

    first = trial.values
    second = np.concatenate(repeated)
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
    forth = []
    back = []
    for text in texts:
        exchanged = Text(text.prompt, text.answers[::-1])
        votes = (vote_of[text.key], vote_of[exchanged.key])
        # Each comparison once, in one of its orders.
        if text.answers < exchanged.answers and not np.isnan(votes).any():
            forth.append(votes[0])
            back.append(votes[1])
    if not forth:
        return None
    return check_position(np.array(forth), np.array(back))


def _describe_cost(trial: _JudgeTrial) -> Finding:
    costs = cost(trial.judge, trial.responses).iloc[0]
    tokens_an_answer = trial.counts["answer_tokens"] / trial.counts["asked"]
    n_written = tokens_an_answer * costs["to_ask"]
    to_write = f"at most {costs['answer_tokens']:,}"
    if n_written:
        to_write = f"{n_written:,.0f}"
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
