"""Asking: each question once, its raw answer stored as it comes, and nothing asked that the store has answered."""

import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.judges.questions import Answer, Question, Sampling, count_tokens, decode, encode
from rmlab.scorers.base import Provenance
from rmlab.scoring.judged import list_items
from rmlab.scoring.texts import comparisons
from rmlab.store import Store
from rmlab.text import line

if TYPE_CHECKING:
    from rmlab.judges.modes import Judge

Read = Callable[[Answer, Question], float | None]
"""Makes a number of an answer: None where nothing can be read in it."""

Answers = Generator[tuple[Question, Answer | str], None, None]
"""Questions, each with its answer, or with the reason why there is none, in any order."""


# Opening the store's file takes longer than a request: fast answers share it.
_STORE_ANSWERS, _STORE_SECONDS = 8, 0.5


class Respondent(ABC):
    """The model that answers: behind a server, or on this machine. Answers are drawn as `sampling` says."""

    sampling: Sampling

    @property
    @abstractmethod
    def title(self) -> str:
        """The model's name for people."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of everything but the question that changes an answer."""

    @property
    def longest(self) -> int:
        """The most tokens of an answer."""
        return self.sampling.answer_tokens

    def check_budget(self, questions: Sequence[Question]) -> None:  # noqa: B027  # a model here costs time alone
        """Raise DataError where a budget cannot pay for the questions."""

    @abstractmethod
    def respond(self, questions: Iterable[Question]) -> Answers:
        """Yield the answers."""

    @abstractmethod
    def provenance(self) -> Provenance:
        """The model and how it is asked, as plain values."""


@dataclass
class Replies:
    """What became of the questions of a run.

    Parameters
    ----------
    values : dict of str to float or None
        What was read in each answer, by the question's key.
    failures : dict of str to str
        Why a question has no answer, by its key.
    counts : Counter
        Of this run: questions "asked" (and answered), answers "cut" at the limit of their length, "prompt_tokens" and
        "answer_tokens".
    models : Counter
        How often the server named which model in this run.
    """

    values: dict[str, float | None] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)

    def add(self, question: Question, answer: Answer | str, read: Read) -> None:
        """Take an answer, or the reason why there is none."""
        if isinstance(answer, str):
            self.failures[question.key] = answer
            return
        self.values[question.key] = read(answer, question)
        costs = {"prompt_tokens": answer.prompt_tokens or 0, "answer_tokens": answer.answer_tokens or 0}
        self.counts.update({"asked": 1, "cut": int(answer.finish == "length")} | costs)
        self.models.update([answer.model] if answer.model else [])

    def values_of(self, questions: Sequence[Question]) -> NDArray[np.float64]:
        """Return the value of each question, NaN without one."""
        return np.array([self.values.get(question.key, np.nan) for question in questions], np.float64)

    def has_failed(self, questions: Sequence[Question]) -> NDArray[np.bool_]:
        """Return whether each question got no answer."""
        return np.array([question.key in self.failures for question in questions], bool)

    def provenance(self, questions: Sequence[Question]) -> Provenance:
        """Return the counts of the run."""
        counts: Provenance = {"questions": len({question.key for question in questions}), "failed": len(self.failures)}
        counts |= {name: self.counts[name] for name in ("asked", "cut", "prompt_tokens", "answer_tokens")}
        details = {"models": dict(self.models), "failures": dict(Counter(self.failures.values()).most_common(5))}
        return counts | {name: detail for name, detail in details.items() if detail}


def ask(
    name: str,
    respondent: Respondent,
    questions: Sequence[Question],
    read: Read,
    *,
    store: Store | None,
    progress: bool | None,
) -> Replies:
    """Ask the questions that the store has no answer to.

    Two processes that share a store may both ask a question; the store then takes one of the answers for all readers.

    Parameters
    ----------
    name
        Name of the judge.
    respondent
        The model that answers.
    questions
        The questions; equal ones are asked once.
    read
        Makes a number of an answer. Only these numbers stay in memory.
    store
        Keeps the raw answers.
    progress
        Whether a bar is shown; None shows it on a terminal.

    Raises
    ------
    DataError
        Before the first question, where the budget cannot pay for all of them.
    """
    from tqdm import tqdm

    stored_models = set[str]()

    def read_stored(answer: Answer, question: Question) -> float | None:
        stored_models.add(answer.model)
        return read(answer, question)

    values, pending = split_answered(respondent, questions, read_stored, store)
    replies = Replies(values)
    respondent.check_budget(pending)
    answers = respondent.respond(pending)
    if store is not None:
        store.note(respondent.fingerprint, {"name": name} | respondent.provenance())
        answers = _store_answers(answers, respondent.fingerprint, store)
    n_questions, disable = len(values) + len(pending), None if progress is None else not progress
    bar = tqdm(total=n_questions, initial=len(values), desc=line(name), unit="question", disable=disable)
    with bar, closing(answers):
        for question, answer in answers:
            replies.add(question, answer, read)
            bar.update(not isinstance(answer, str))
    models = sorted({*replies.models, *stored_models} - {""})
    if len(models) > 1:
        warnings.warn(
            f"judge {name!r}: the answers are of {len(models)} models: {', '.join(models)}. Has the model behind the "
            "address changed? version= keeps the answers of two models apart in a store",
            stacklevel=4,
        )
    return replies


def _store_answers(answers: Answers, fingerprint: str, store: Store) -> Answers:
    """Yield the answers after they are stored, fast ones a few at once."""
    unstored, stored_at = dict[str, object](), time.monotonic()
    try:
        for question, answer in answers:
            if not isinstance(answer, str):
                unstored[question.key] = encode(answer)
            if len(unstored) >= _STORE_ANSWERS or time.monotonic() - stored_at >= _STORE_SECONDS:
                store.append(fingerprint, unstored)
                unstored, stored_at = {}, time.monotonic()
            yield question, answer
    finally:
        store.append(fingerprint, unstored)
        store.flush()


def split_answered(
    respondent: Respondent, questions: Sequence[Question], read: Read, store: Store | None
) -> tuple[dict[str, float | None], list[Question]]:
    """Return what is read in stored answers, by key, and the questions without one, the first of equal ones each."""
    # Reversed, so that the first of equal questions is the one that is asked.
    by_key = {question.key: question for question in reversed(questions)}
    values: dict[str, float | None] = {}
    for record in store.records(respondent.fingerprint) if store is not None else ():
        if record.key in by_key and record.key not in values:
            values[record.key] = read(decode(record.value), by_key[record.key])
    return values, [question for key, question in reversed(by_key.items()) if key not in values]


def list_questions(judge: "Judge", responses: pd.DataFrame) -> "list[tuple[Judge, list[Question]]]":
    """Return the questions of a run with the judge that asks them: the judge itself, or that of a subset."""
    responses = tables.check_responses(responses)
    if judge.takes == "pair":
        runs = [(judge, comparisons(responses)[1].distinct)]
    else:
        runs = [(items.judge, items.texts.distinct) for items in list_items(judge, responses)]  # type: ignore[misc]
    return [(asker, asker.questions([t.prompt for t in texts], [t.answers for t in texts])) for asker, texts in runs]


def estimate(judge: "Judge", responses: pd.DataFrame, *, store: str | Path | None = None) -> pd.DataFrame:
    """Count what judging `responses` would take; nothing is asked.

    Parameters
    ----------
    judge : PairJudge, AnswerJudge or ListJudge
        A judge, as `rmlab.judge` makes it.
    responses : DataFrame
        A table of responses.
    store : str or Path, optional
        Where earlier answers are.

    Returns
    -------
    DataFrame
        One row: judge, questions (each different one once), answered (by the store), to_ask, prompt_tokens (of those to
        ask, at four bytes a token) and answer_tokens (at most).
    """
    answers = None if store is None else Store(store)
    counts = dict.fromkeys(("questions", "answered", "to_ask", "prompt_tokens", "answer_tokens"), 0)
    for part_judge, questions in list_questions(judge, responses):
        answered, pending = split_answered(part_judge.respondent, questions, lambda answer, question: None, answers)
        counts["questions"] += len(answered) + len(pending)
        counts["answered"] += len(answered)
        counts["to_ask"] += len(pending)
        counts["prompt_tokens"] += count_tokens(pending)
        counts["answer_tokens"] += part_judge.respondent.longest * len(pending)
    return pd.DataFrame([{"judge": judge.name} | counts])
