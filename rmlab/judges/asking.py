"""The base class of the three kinds of judges, and how a judge asks its questions."""

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.judges.chat import NO_LETTERS, NO_LOGPROBS, USE_PAIRWISE, Chat, read_stored
from rmlab.judges.local_model import Local
from rmlab.judges.questions import (
    Completion,
    Completions,
    Order,
    Question,
    Template,
    encode,
    item_numbers,
)
from rmlab.scorers.base import (
    Floats,
    Ints,
    Judge,
    Judged,
    Provenance,
    Text,
    hash_parts,
)
from rmlab.scoring.run import open_bar
from rmlab.store import Store
from rmlab.tables import DataError

# Opening the store's file takes longer than a request: fast answers share it.
_STORE_ANSWERS = 8
_STORE_SECONDS = 0.5
# Answers without letters from which on a server counts as one that gives none.
_MAX_LETTERLESS = 8
# So many questions count as cut where their sizes differ by this factor and their
# tokens do not.
_MIN_CUT = 5
_SIZE_FACTOR = 1.5


class Replies(NamedTuple):
    """What became of questions.

    `item`: number of each one's item. `first`: number of the answer that it shows
    first. `values`: the number that its reply says, NaN without one. `has_failed`:
    whether it got no reply. `counts`: of different questions, replies and tokens.
    `models`: how often the server named which. `failures`: by reason.
    """

    item: Ints
    first: Ints
    values: Floats
    has_failed: NDArray[np.bool_]
    counts: Counter[str]
    models: Counter[str]
    failures: Counter[str]

    @property
    def provenance(self) -> Provenance:
        """All counts, as plain values."""
        counts: Provenance = dict(self.counts)
        if self.models:
            counts["models"] = dict(self.models)
        if self.failures:
            counts["failures"] = dict(self.failures.most_common(5))
        return counts


@dataclass(frozen=True)
class LLMJudge(Judge):
    """A language model as a judge: base class of the three kinds.

    A kind says in which orders the answers are shown (`orders`), what number an answer
    says (`read_answer`), and what the numbers of all questions come to (`read`).

    Parameters
    ----------
    name : str
        Name in every table.
    respondent : Chat or Local
        Who answers: a server, or a model on this machine.
    template : Template
        The words of the question.
    samples : int
        Answers to each question.
    seed : int
        Seed of the orders and of drawn answers.
    published : bool
        Whether replies are read, and unreadable ones counted, as by RewardBench's
        runners. Otherwise rmlab reads more forms of a verdict, and unreadable replies
        are missing.
    apart : mapping of str to LLMJudge
        Judges of the subsets that need other words, as RewardBench 2's Ties do.
    """

    name: str
    respondent: Chat | Local
    template: Template
    samples: int = 1
    seed: int = 0
    published: bool = False
    apart: Mapping[str, "LLMJudge"] = field(default_factory=dict, kw_only=True)

    mode: ClassVar[str]

    def orders(self, item: Text, sample: int) -> list[Order]:
        """Return the orders in which a question shows the answers."""
        return [tuple(range(len(item.answers)))]

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the number that an answer says, None where nothing can be read."""
        raise NotImplementedError

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return the verdict on each item."""
        raise NotImplementedError

    @property
    def travels(self) -> bool:  # type: ignore[override]
        """Whether copies may ask on other machines: budgets are a client's."""
        return not hasattr(self.respondent, "client")

    @property
    def options(self) -> dict[str, object]:
        """Values that change a verdict but no answer."""
        return {
            "mode": self.mode,
            "samples": self.samples,
            "seed": self.seed,
            "published": self.published,
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the model, the words of the question, and how votes are counted."""
        identity = {
            "model": self.respondent.fingerprint,
            "question": self.template.text,
            "takes": self.takes,
            "apart": [judge.fingerprint for judge in self.apart.values()],
        }
        return hash_parts(identity | self.options)

    def provenance(self) -> Provenance:
        """Return the model, the words of the question, and how votes are counted."""
        model = self.respondent.provenance()
        return {**model, "template": self.template.name, **self.options}

    def questions(self, items: Sequence[Text]) -> list[Question]:
        """Return the questions about all items, a prompt with one, two or all of its
        answers each.
        """
        questions = []
        for number, item in enumerate(items):
            for sample in range(self.samples):
                for order in self.orders(item, sample):
                    question = Question(
                        number, order, sample, self.template, item, self.seed
                    )
                    questions.append(question)
        return questions

    def judge(
        self,
        items: Sequence[Text],
        /,
        *,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> Judged:
        """Ask about all items, and return the verdicts.

        Parameters
        ----------
        items
            Prompts with one, two or all of their answers: see `takes`.
        store
            Keeps the replies. A question whose reply it has is not asked.
        progress
            Whether a bar is shown; None shows it on a terminal.

        Returns
        -------
        Judged
            Numbers and verdict of each item, further columns, and counts for the
            provenance.
        """
        questions = self.questions(items)
        replies = self.ask(questions, store=store, progress=progress)
        return self.read(items, questions, replies)

    def ask(
        self,
        questions: Sequence[Question],
        *,
        store: Store | None,
        progress: bool | None,
    ) -> Replies:
        """Ask the questions that the store has no answer to, equal ones once.

        Of the answers only numbers stay in memory. Two processes that share a store may
        both ask a question; the store then takes one of the answers for all readers.
        """
        by_key: dict[str, Question] = {}
        for question in questions:
            by_key.setdefault(question.key, question)
        tally = _Tally(self, by_key)
        for key, stored in read_stored(self.respondent, by_key, store):
            tally.add_stored(key, stored)

        pending = []
        for key, question in by_key.items():
            if key not in tally.values:
                pending.append(question)
        n_stored = len(tally.values)
        answers = self.respondent.respond(pending)
        if store is not None:
            fingerprint = self.respondent.fingerprint
            run = {"name": self.name} | self.respondent.provenance()
            store.note(fingerprint, run)
            answers = _store_answers(answers, fingerprint, store)

        bar = open_bar(self.name, "question", len(by_key), n_stored, progress)
        with bar as shown_bar, closing(answers):
            for question, answer in answers:
                if isinstance(answer, str):
                    tally.add_failure(question, answer)
                else:
                    tally.add(question, answer)
                    shown_bar.update()

        tally.warn()
        return tally.replies(questions)


@dataclass
class _Tally:
    """The answers to a judge's questions so far, as numbers and counts.

    `values`, `failures`: by the question's key. `stored_models`: named by answers from
    the store. `by_tokens`: questions by the tokens that the server says it read.
    """

    judge: LLMJudge
    by_key: Mapping[str, Question]
    values: dict[str, float | None] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    stored_models: set[str] = field(default_factory=set)
    by_tokens: defaultdict[int, list[Question]] = field(
        default_factory=lambda: defaultdict(list)
    )
    counts: Counter[str] = field(
        default_factory=lambda: Counter(
            asked=0, cut=0, prompt_tokens=0, answer_tokens=0
        )
    )

    def add_stored(self, key: str, answer: Completion) -> None:
        """Add an answer from the store; the first one to a question counts."""
        value = self.judge.read_answer(answer, self.by_key[key])
        self.values.setdefault(key, value)
        self.stored_models.add(answer.model)

    def add(self, question: Question, answer: Completion) -> None:
        """Add an answer that has just come."""
        self.values[question.key] = self.judge.read_answer(answer, question)
        n_read = answer.prompt_tokens or 0
        self.by_tokens[n_read].append(question)
        self.counts["asked"] += 1
        self.counts["cut"] += answer.finish == "length"
        self.counts["prompt_tokens"] += n_read
        self.counts["answer_tokens"] += answer.answer_tokens or 0
        if answer.model:
            self.models[answer.model] += 1

    def add_failure(self, question: Question, reason: str) -> None:
        """Add a question without an answer; raise DataError where a server never gives
        the letters that are to be read.
        """
        self.failures[question.key] = reason
        n_enough = min(_MAX_LETTERLESS, len(self.by_key))
        is_letterless = reason == NO_LETTERS and not self.values
        if is_letterless and len(self.failures) >= n_enough:
            problem = f"judge {self.judge.name!r}: {NO_LOGPROBS}"
            raise DataError(problem, USE_PAIRWISE)

    def warn(self) -> None:
        """Warn of several models behind one name, and of short and long questions that
        were read as equally many tokens.
        """
        title = f"judge {self.judge.name!r}"
        names = sorted({*self.models, *self.stored_models} - {""})
        if len(names) > 1:
            models = f"{len(names)} models: {', '.join(names)}"
            message = f"{title}: answers of {models}; name each version="
            warnings.warn(message, stacklevel=5)

        n_most = max(self.by_tokens, default=0)
        if not n_most:
            return
        sizes = [question.n_bytes for question in self.by_tokens[n_most]]
        if len(sizes) >= _MIN_CUT and max(sizes) > _SIZE_FACTOR * min(sizes):
            asked = f"{len(sizes)} questions of {min(sizes)} to {max(sizes)} bytes"
            read = f"the server read {asked} as {n_most} tokens each"
            warnings.warn(f"{title}: {read}; raise its limit, it cuts", stacklevel=5)

    def replies(self, questions: Sequence[Question]) -> Replies:
        """Return the number of each question, and all counts."""
        n = len(questions)
        first = np.zeros(n, np.intp)
        values = np.full(n, np.nan)
        has_failed = np.zeros(n, bool)
        for row, question in enumerate(questions):
            first[row] = question.order[0]
            has_failed[row] = question.key in self.failures
            value = self.values.get(question.key)
            if value is not None:
                values[row] = value

        counts = self.counts.copy()
        counts["questions"] = len(self.by_key)
        counts["failed"] = len(self.failures)
        counts["unparsable"] = int((np.isnan(values) & ~has_failed).sum())
        return Replies(
            item=item_numbers(questions),
            first=first,
            values=values,
            has_failed=has_failed,
            counts=counts,
            models=self.models,
            failures=Counter(self.failures.values()),
        )


def _store_answers(answers: Completions, fingerprint: str, store: Store) -> Completions:
    """Yield the answers after they are stored, fast ones a few at once."""
    unstored: dict[str, object] = {}
    stored_at = time.monotonic()
    try:
        for question, answer in answers:
            if not isinstance(answer, str):
                unstored[question.key] = encode(answer)
            is_late = time.monotonic() - stored_at >= _STORE_SECONDS
            if len(unstored) >= _STORE_ANSWERS or is_late:
                store.append(fingerprint, unstored)
                unstored = {}
                stored_at = time.monotonic()
            yield question, answer
    finally:
        store.append(fingerprint, unstored)
        store.flush()
