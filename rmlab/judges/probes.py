"""How far a judge can be trusted: a comparison is asked again, changed only where the
change must not matter.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.judges.modes import FAILED, UNPARSABLE, AnswerJudge, Judge, PairJudge
from rmlab.judges.questions import load_template
from rmlab.scorers.base import Prompt, Text
from rmlab.store import Store
from rmlab.styles.transforms import TRANSFORMS
from rmlab.tables import PROMPT, DataError, group_codes


class _Case(NamedTuple):
    """Two answers to a prompt under one condition. `row`: a row of the responses that
    names the prompt.
    """

    row: int
    condition: str
    prompt: Prompt
    left: str
    right: str


def examine(
    judge: Judge,
    responses: pd.DataFrame,
    *,
    samples: int = 2,
    prompts: int | None = None,
    reworded_template: str | Path | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Ask a judge about one comparison of each prompt, again and again, for
    `rmlab.stats.judge_report`.

    A prompt takes up to 2 x `samples` + 14 questions (a judge that rates: + 8). The
    answers that are compared depend on the texts and the seed alone. A text that a
    change leaves as it was is not asked about.

    Parameters
    ----------
    judge : PairJudge or AnswerJudge
        A judge that compares or rates.
    responses : DataFrame
        A table of responses.
    samples : int
        How often the unchanged comparison is asked.
    prompts : int, optional
        Only so many prompts, drawn by the seed.
    reworded_template : str or Path, optional
        The question in other words. Default the one that belongs to the shipped
        template.
    seed : int
        Seed of the prompts and answers that are taken.
    store : str or Path, optional
        Keeps the answers.
    progress : bool, optional
        Whether a bar is shown; None shows it on a terminal.

    Returns
    -------
    DataFrame
        One row per verdict: model, benchmark, domain, id, further columns of
        `responses` that are constant within a prompt, condition, order ("first" or
        "second": where the left answer is shown), sample, vote (1 for the left answer,
        0 for a draw, -1 for the right one, missing without a verdict) and status
        ("read", "unparsable", "failed"). Conditions, each in both orders: "as is", the
        chosen answer (left) and a rejected one; "padding, left" and "padding, right",
        one of them with sentences that say nothing; "markdown, left" and "markdown,
        right", with bold words and lists, not a word changed; "reworded", the question
        in other words; "cycle, 2-3" and "cycle, 3-1", two more pairs that make a triple
        with a third answer to the prompt, where there is one ("as is" is the first
        pair). A judge that rates votes for the higher rating, `order` is "alone", and
        there are no cycles.

    Raises
    ------
    TypeError
        For a judge that neither compares nor rates.
    DataError
        For `samples` below 1, and where no prompt has both a chosen and a rejected
        answer.
    """
    if not isinstance(judge, PairJudge | AnswerJudge):
        raise TypeError(
            f"judge: {judge!r:.60} is not allowed; give one of mode='pairwise', 'logprob' or 'rating'"
        )
    if samples < 1:
        raise DataError(f"samples={samples!r}; allowed: 1 or more")
    responses = tables.check_responses(responses).reset_index(drop=True)
    cases = _cases(responses, prompts, seed)
    reworded = f"{judge.template.name.removesuffix('-number')}-reworded"
    template = load_template(reworded_template or reworded, judge.takes)
    if isinstance(judge, PairJudge):
        plain: PairJudge | AnswerJudge = replace(
            judge, published=False, samples=1, one_order=False
        )
        samples = (
            1 if judge.letters else samples
        )  # log-probabilities are the same each time
    else:
        plain = replace(judge, published=False, samples=1)
        cases = [case for case in cases if not case.condition.startswith("cycle")]
    as_is = [case for case in cases if case.condition == "as is"]
    runs = [
        (replace(plain, samples=samples), as_is),
        (plain, [case for case in cases if case.condition != "as is"]),
        (
            replace(plain, template=template),
            [case._replace(condition="reworded") for case in as_is],
        ),
    ]
    answers = None if store is None else Store(store)
    parts = [
        _verdicts(run_judge, run_cases, responses, answers, progress)
        for run_judge, run_cases in runs
    ]
    return pd.concat(parts, ignore_index=True).astype(
        dict.fromkeys(("condition", "order", "status"), "str")
    )


def _verdicts(
    judge: PairJudge | AnswerJudge,
    cases: Sequence[_Case],
    responses: pd.DataFrame,
    store: Store | None,
    progress: bool | None,
) -> pd.DataFrame:
    """One row per verdict: of a judge that sees both answers one for each question,
    otherwise one for two questions.
    """
    is_pair, sides = (
        isinstance(judge, PairJudge),
        [(case.left, case.right) for case in cases],
    )
    candidates = sides if is_pair else [(text,) for side in sides for text in side]
    prompts = [
        case.prompt for case in cases for _ in range(len(candidates) // len(cases))
    ]
    questions = judge.questions(
        [Text(*item) for item in zip(prompts, candidates, strict=True)]
    )
    values, failed, *_ = judge.ask(questions, store=store, progress=progress)
    item, sample = (
        np.array([getattr(question, name) for question in questions])
        for name in ("item", "sample")
    )
    if is_pair:
        shown_first = np.array([question.order[0] == 0 for question in questions])
        order = np.where(shown_first, "first", "second")
        votes = np.sign(np.where(shown_first, values, -values))
    else:
        # Both answers of a case are rated in turn, `samples` times each.
        shape = (len(cases), 2, -1)
        left, right = np.moveaxis(values.reshape(shape), 1, 0)
        votes, failed = (
            np.sign(left - right).ravel(),
            failed.reshape(shape).any(axis=1).ravel(),
        )
        item, sample = (
            column.reshape(shape)[:, 0].ravel() for column in (item // 2, sample)
        )
        order = np.full(len(votes), "alone")
    further = tables.prompt_columns(responses, tables.RESPONSES)
    frame = (
        responses[[*PROMPT, *further]]
        .iloc[[cases[i].row for i in item]]
        .reset_index(drop=True)
    )
    frame.insert(0, "model", judge.name)
    status = np.where(failed, FAILED, np.where(np.isnan(votes), UNPARSABLE, "read"))
    condition = [cases[i].condition for i in item]
    return frame.assign(
        condition=condition, order=order, sample=sample, vote=votes, status=status
    )


def _cases(responses: pd.DataFrame, prompts: int | None, seed: int) -> list[_Case]:
    """All conditions of one comparison of each prompt."""
    prompt_number, first_rows = group_codes(responses, PROMPT)
    keys = responses[PROMPT].iloc[first_rows].to_numpy().tolist()
    picked: list[object] = [
        *sorted(range(len(keys)), key=lambda number: _draw(seed, keys[number]))[
            :prompts
        ]
    ]
    texts = responses["response"].tolist()
    cases = [
        case
        for number, answers in responses.groupby(pd.Series(prompt_number))
        if number in picked
        for case in _conditions(
            answers.loc[sorted(answers.index, key=lambda row: _draw(seed, texts[row]))]
        )
    ]
    if not cases:
        raise DataError(
            "responses: no prompt has a chosen and a rejected answer; give both"
        )
    return cases


def _conditions(answers: pd.DataFrame) -> list[_Case]:
    """The conditions of a prompt's first chosen and first rejected answer, and a third
    one.
    """
    texts, labels = answers["response"].tolist(), answers["label"].tolist()
    if len({*labels}) < 2:
        return []
    row, prompt = int(answers.index[0]), answers["prompt"].iloc[0]
    left, right = texts[labels.index("chosen")], texts[labels.index("rejected")]
    cases = [_Case(row, "as is", prompt, left, right)]
    for name, change in (("padding", TRANSFORMS["padding"]), ("markdown", _mark_up)):
        if change(left) != left and change(right) != right:
            cases.append(_Case(row, f"{name}, left", prompt, change(left), right))
            cases.append(_Case(row, f"{name}, right", prompt, left, change(right)))
    third = next((text for text in texts if text not in (left, right)), None)
    if third is not None and left != right:
        cases += [
            _Case(row, "cycle, 2-3", prompt, right, third),
            _Case(row, "cycle, 3-1", prompt, third, left),
        ]
    return cases


def _mark_up(text: str) -> str:
    """Bold words and lists: marks only, and not a word more."""
    return TRANSFORMS["bullets"](TRANSFORMS["bold"](text))


def _draw(seed: int, value: object) -> bytes:
    return hashlib.blake2b(
        repr((seed, value)).encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
