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
from numpy.typing import NDArray

from rmlab import tables
from rmlab.judges.asking import LLMJudge, Replies
from rmlab.judges.modes import FAILED, UNPARSABLE, AnswerJudge, PairJudge
from rmlab.judges.questions import Question, load_template
from rmlab.scorers.base import Floats, Ints, Prompt, Text
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
    judge: LLMJudge,
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
        One row per verdict, with the columns

        - model, benchmark, domain, id, and further columns of `responses` that are
          constant within a prompt;
        - condition;
        - order: "first" or "second", where the left answer is shown;
        - sample;
        - vote: 1 for the left answer, 0 for a draw, -1 for the right one, missing
          without a verdict;
        - status: "read", "unparsable" or "failed".

        The conditions, each in both orders:

        - as is: the chosen answer (left) and a rejected one;
        - padding, left and padding, right: one of them with sentences that say nothing;
        - markdown, left and markdown, right: one with bold words and lists, not a word
          changed;
        - reworded: the question in other words;
        - cycle, 2-3 and cycle, 3-1: two more pairs that make a triple with a third
          answer to the prompt, where there is one ("as is" is the first pair).

        A judge that rates votes for the higher rating, `order` is "alone", and there
        are no cycles.

    Raises
    ------
    TypeError
        For a judge that neither compares nor rates.
    DataError
        For `samples` below 1, and where no prompt has both a chosen and a rejected
        answer.
    """
    if not isinstance(judge, PairJudge | AnswerJudge):
        allowed = "mode='pairwise', 'logprob' or 'rating'"
        raise TypeError(f"judge: {judge!r:.60} is not allowed; give one of {allowed}")
    if samples < 1:
        raise DataError(f"samples={samples!r}", "allowed: 1 or more")
    responses = tables.check_responses(responses).reset_index(drop=True)
    cases = _cases(responses, prompts, seed)
    reworded = f"{judge.template.name.removesuffix('-number')}-reworded"
    template = load_template(reworded_template or reworded, judge.takes)

    plain = replace(judge, published=False, samples=1)
    compares = isinstance(plain, PairJudge)
    if isinstance(plain, PairJudge):
        plain = replace(plain, one_order=False)
        if plain.letters:
            # Log-probabilities are the same each time.
            samples = 1

    as_is = []
    changed = []
    asked_otherwise = []
    for case in cases:
        if case.condition == "as is":
            as_is.append(case)
            asked_otherwise.append(case._replace(condition="reworded"))
        elif compares or not case.condition.startswith("cycle"):
            changed.append(case)

    answers = None if store is None else Store(store)
    verdicts_by_run = []
    for asked_judge, asked_cases in (
        (replace(plain, samples=samples), as_is),
        (plain, changed),
        (replace(plain, template=template), asked_otherwise),
    ):
        verdicts_by_run.append(
            _ask_cases(asked_judge, asked_cases, responses, answers, progress)
        )
    verdicts = pd.concat(verdicts_by_run, ignore_index=True)
    return verdicts.astype(dict.fromkeys(("condition", "order", "status"), "str"))


class _Verdicts(NamedTuple):
    """Verdicts on cases, an array each: number of the case, order, sample, vote, and
    whether a question got no answer.
    """

    case: Ints
    order: NDArray[np.str_]
    sample: Ints
    vote: Floats
    has_failed: NDArray[np.bool_]


def _ask_cases(
    judge: PairJudge | AnswerJudge,
    cases: Sequence[_Case],
    responses: pd.DataFrame,
    store: Store | None,
    progress: bool | None,
) -> pd.DataFrame:
    """Ask about the cases: one row per verdict."""
    items = []
    for case in cases:
        if isinstance(judge, PairJudge):
            items.append(Text(case.prompt, (case.left, case.right)))
        else:
            items.append(Text(case.prompt, (case.left,)))
            items.append(Text(case.prompt, (case.right,)))
    questions = judge.questions(items)
    replies = judge.ask(questions, store=store, progress=progress)
    if isinstance(judge, PairJudge):
        verdicts = _read_comparisons(questions, replies)
    else:
        verdicts = _compare_ratings(questions, replies, len(cases))

    further = tables.prompt_columns(responses, tables.RESPONSES)
    case_rows = pd.DataFrame(cases, columns=_Case._fields).iloc[verdicts.case]
    rows = case_rows["row"].to_numpy(np.intp)
    frame = responses[[*PROMPT, *further]].iloc[rows].reset_index(drop=True)
    frame.insert(0, "model", judge.name)
    frame["condition"] = case_rows["condition"].to_numpy()
    frame["order"] = verdicts.order
    frame["sample"] = verdicts.sample
    frame["vote"] = verdicts.vote
    frame["status"] = np.select(
        [verdicts.has_failed, np.isnan(verdicts.vote)], [FAILED, UNPARSABLE], "read"
    )
    return frame


def _read_comparisons(questions: Sequence[Question], replies: Replies) -> _Verdicts:
    """One verdict for each question."""
    is_left_first = replies.first == 0
    value_of_left = np.where(is_left_first, replies.values, -replies.values)
    return _Verdicts(
        case=replies.item,
        order=np.where(is_left_first, "first", "second"),
        sample=np.array([question.sample for question in questions], np.intp),
        vote=np.sign(value_of_left),
        has_failed=replies.has_failed,
    )


def _compare_ratings(
    questions: Sequence[Question], replies: Replies, n_cases: int
) -> _Verdicts:
    """One verdict for two questions: both answers of a case are rated in turn, and the
    higher rating has the vote.
    """
    n_samples = len(questions) // (2 * max(n_cases, 1))
    shape = (n_cases, 2, n_samples)
    ratings = replies.values.reshape(shape)
    has_failed = replies.has_failed.reshape(shape)
    n_verdicts = n_cases * n_samples
    return _Verdicts(
        case=np.repeat(np.arange(n_cases), n_samples),
        order=np.full(n_verdicts, "alone"),
        sample=np.tile(np.arange(n_samples), n_cases),
        vote=np.sign(ratings[:, 0] - ratings[:, 1]).ravel(),
        has_failed=has_failed.any(axis=1).ravel(),
    )


def _cases(responses: pd.DataFrame, prompts: int | None, seed: int) -> list[_Case]:
    """All conditions of one comparison of each prompt."""
    prompt_number, first_rows = group_codes(responses, PROMPT)
    keys = responses[PROMPT].iloc[first_rows].to_numpy().tolist()
    draws = [_draw(seed, key) for key in keys]
    drawn = sorted(range(len(keys)), key=draws.__getitem__)
    picked = set(drawn[:prompts])

    texts = responses["response"].tolist()
    cases: list[_Case] = []
    for number, answers in responses.groupby(pd.Series(prompt_number)):
        if number not in picked:
            continue
        shuffled = sorted(answers.index, key=lambda row: _draw(seed, texts[row]))
        cases += _conditions(answers.loc[shuffled])
    if not cases:
        problem = "responses: no prompt has a chosen and a rejected answer"
        raise DataError(problem, "give both")
    return cases


def _conditions(answers: pd.DataFrame) -> list[_Case]:
    """The conditions of a prompt's first chosen and first rejected answer, and a third
    one.
    """
    texts = answers["response"].tolist()
    labels = answers["label"].tolist()
    if len({*labels}) < 2:
        return []
    row = int(answers.index[0])
    prompt = answers["prompt"].iloc[0]
    left = texts[labels.index("chosen")]
    right = texts[labels.index("rejected")]

    cases = [_Case(row, "as is", prompt, left, right)]
    for name, change in (("padding", TRANSFORMS["padding"]), ("markdown", _mark_up)):
        new_left = change(left)
        new_right = change(right)
        if new_left != left and new_right != right:
            cases.append(_Case(row, f"{name}, left", prompt, new_left, right))
            cases.append(_Case(row, f"{name}, right", prompt, left, new_right))

    third_texts = [text for text in texts if text not in (left, right)]
    if third_texts and left != right:
        third = third_texts[0]
        cases.append(_Case(row, "cycle, 2-3", prompt, right, third))
        cases.append(_Case(row, "cycle, 3-1", prompt, third, left))
    return cases


def _mark_up(text: str) -> str:
    """Bold words and lists: marks only, and not a word more."""
    return TRANSFORMS["bullets"](TRANSFORMS["bold"](text))


def _draw(seed: int, value: object) -> bytes:
    content = repr((seed, value)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).digest()
