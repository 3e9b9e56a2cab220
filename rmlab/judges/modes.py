"""The kinds of judges (better of two answers, rating of one, best of all answers to a
prompt), and how they ask.
"""

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.judges import verdicts
from rmlab.judges.chat import NO_LETTERS, Chat, read_stored
from rmlab.judges.local import Local
from rmlab.judges.questions import (
    LETTERS,
    Answer,
    Answers,
    Order,
    Question,
    Template,
    encode,
    shuffled_order,
)
from rmlab.scorers import base
from rmlab.scorers.base import (
    SILENT,
    Floats,
    Judged,
    Prompt,
    Provenance,
    Text,
    hash_parts,
)
from rmlab.scorers.pairwise import mean_log_odds
from rmlab.scoring.run import open_bar
from rmlab.store import Store
from rmlab.tables import DataError

UNPARSABLE, FAILED = SILENT

# Opening the store's file takes longer than a request: fast answers share it.
_STORE_ANSWERS, _STORE_SECONDS = 8, 0.5
# Answers without letters from which on a server counts as one that gives none.
_MAX_LETTERLESS = 8
# Questions that count as cut where their sizes differ by this factor and their tokens
# do not.
_MIN_CUT, _SIZE_FACTOR = 5, 1.5


class Replies(NamedTuple):
    """What became of questions.

    `values`: the number that each one's answer says, NaN without one. `has_failed`:
    whether it got no answer. `counts`: of different questions, answers and tokens.
    `models`: how often the server named which. `failures`: by reason.
    """

    values: Floats
    has_failed: NDArray[np.bool_]
    counts: Counter[str]
    models: Counter[str]
    failures: Counter[str]

    @property
    def provenance(self) -> Provenance:
        """All counts, as plain values."""
        details = {
            "models": dict(self.models),
            "failures": dict(self.failures.most_common(5)),
        }
        return dict(self.counts) | {
            name: detail for name, detail in details.items() if detail
        }


@dataclass(frozen=True)
class Judge(base.Judge):
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
    apart : mapping of str to Judge
        Judges of the subsets that need other words, as RewardBench 2's Ties do.
    """

    name: str
    respondent: Chat | Local
    template: Template
    samples: int = 1
    seed: int = 0
    published: bool = False
    apart: Mapping[str, "Judge"] = field(default_factory=dict, kw_only=True)

    mode: ClassVar[str]

    def orders(self, item: Text, sample: int) -> list[Order]:
        """Return the orders in which a question shows the answers."""
        return [tuple(range(len(item.answers)))]

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return the number that an answer says, None where nothing can be read."""
        raise NotImplementedError

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return the verdict on each item."""
        raise NotImplementedError

    @property
    def travels(self) -> bool:  # type: ignore[override]
        """Whether copies may ask on other machines: a server's budget is one client's."""
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
        parts = {
            "model": self.respondent.fingerprint,
            "question": self.template.text,
            "takes": self.takes,
        }
        return hash_parts(
            parts
            | self.options
            | {"apart": [judge.fingerprint for judge in self.apart.values()]}
        )

    def provenance(self) -> Provenance:
        """Return the model, the words of the question, and how votes are counted."""
        return (
            self.respondent.provenance()
            | {"template": self.template.name}
            | self.options
        )

    def questions(self, items: Sequence[Text]) -> list[Question]:
        """Return the questions about all items, a prompt with one, two or all of its
        answers each.
        """
        return [
            Question(number, order, sample, self.template, item, self.seed)
            for number, item in enumerate(items)
            for sample in range(self.samples)
            for order in self.orders(item, sample)
        ]

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
            As for `questions`.
        store
            Keeps the raw answers; nothing that it knows is asked.
        progress
            Whether a bar is shown; None shows it on a terminal.

        Returns
        -------
        Judged
            Numbers and verdict of each item, further columns, and counts for the
            provenance.
        """
        questions = self.questions(items)
        return self.read(
            items, questions, self.ask(questions, store=store, progress=progress)
        )

    def ask(
        self,
        questions: Sequence[Question],
        *,
        store: Store | None,
        progress: bool | None,
    ) -> Replies:
        """Ask the questions that the store has no answer to, equal ones once; of the
        answers only numbers stay.

        Two processes that share a store may both ask a question; the store then takes
        one of the answers for all readers.
        """
        values, failures, stored_models = (
            dict[str, float | None](),
            dict[str, str](),
            set[str](),
        )
        counts, models = (
            Counter(asked=0, cut=0, prompt_tokens=0, answer_tokens=0),
            Counter[str](),
        )
        by_tokens = defaultdict[int, list[Question]](list)
        # Reversed, so that the first of equal questions is the one that is asked.
        by_key = {question.key: question for question in reversed(questions)}
        for key, answer in read_stored(self.respondent, by_key, store):
            values.setdefault(key, self.read_answer(answer, by_key[key]))
            stored_models.add(answer.model)
        answers = self.respondent.respond(
            [
                question
                for key, question in reversed(by_key.items())
                if key not in values
            ]
        )
        if store is not None:
            store.note(
                self.respondent.fingerprint,
                {"name": self.name} | self.respondent.provenance(),
            )
            answers = _store_answers(answers, self.respondent.fingerprint, store)
        with (
            open_bar(self.name, "question", len(by_key), len(values), progress) as bar,
            closing(answers),
        ):
            for question, reply in answers:
                if isinstance(reply, str):
                    failures[question.key] = reply
                    if (
                        reply == NO_LETTERS
                        and not values
                        and len(failures) >= min(_MAX_LETTERLESS, len(by_key))
                    ):
                        raise DataError(f"judge {self.name!r}: {reply}")
                    continue
                values[question.key] = self.read_answer(reply, question)
                n_read, n_written = reply.prompt_tokens or 0, reply.answer_tokens or 0
                by_tokens[n_read].append(question)
                counts.update(
                    asked=1,
                    cut=reply.finish == "length",
                    prompt_tokens=n_read,
                    answer_tokens=n_written,
                )
                models.update([reply.model] if reply.model else [])
                bar.update()
        names = sorted({*models, *stored_models} - {""})
        if len(names) > 1:
            models_found = f"{len(names)} models: {', '.join(names)}"
            warnings.warn(
                f"judge {self.name!r}: answers of {models_found}; name each version=",
                stacklevel=4,
            )
        n_most = max(by_tokens, default=0)
        sizes = [question.n_bytes for question in by_tokens[n_most] if n_most]
        if len(sizes) >= _MIN_CUT and max(sizes) > _SIZE_FACTOR * min(sizes):
            sizes_read = f"{len(sizes)} questions of {min(sizes)} to {max(sizes)} bytes as {n_most} tokens each"
            warnings.warn(
                f"judge {self.name!r}: the server read {sizes_read}; raise its limit, it cuts",
                stacklevel=4,
            )
        numbers = np.array(
            [values.get(question.key, np.nan) for question in questions], np.float64
        )
        has_failed = np.array(
            [question.key in failures for question in questions], bool
        )
        n_unparsable = int((np.isnan(numbers) & ~has_failed).sum())
        counts.update(
            questions=len(by_key), failed=len(failures), unparsable=n_unparsable
        )
        return Replies(numbers, has_failed, counts, models, Counter(failures.values()))


def _store_answers(answers: Answers, fingerprint: str, store: Store) -> Answers:
    """Yield the answers after they are stored, fast ones a few at once."""
    unstored, stored_at = dict[str, object](), time.monotonic()
    try:
        for question, answer in answers:
            if not isinstance(answer, str):
                unstored[question.key] = encode(answer)
            if (
                len(unstored) >= _STORE_ANSWERS
                or time.monotonic() - stored_at >= _STORE_SECONDS
            ):
                store.append(fingerprint, unstored)
                unstored, stored_at = {}, time.monotonic()
            yield question, answer
    finally:
        store.append(fingerprint, unstored)
        store.flush()


@dataclass(frozen=True)
class PairJudge(Judge):
    """Which of two answers is better, asked in both orders.

    Outcomes win, loss and tie are what both orders say together (a win and a tie are a
    win). A flip, where each order has another winner, is a tie: the order decides. The
    columns of the table are `vote_first`, the mean vote for the first answer where it
    is shown first, from -1 to 1, `vote_second`, the same where it is shown second, and
    `margin`.

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `Judge`; of several samples the majority counts. A published convention
        counts a reply that cannot be read as a tie.
    letters : bool
        Read the log-probabilities of A and B instead of the text. The margin is then
        the log-odds of the mean probability over both orders, and a flip only says that
        the orders disagree.
    one_order : bool
        Ask in one order, which a coin chooses: half the questions, and a position bias
        that nobody sees.
    """

    letters: bool = False
    one_order: bool = False
    takes = "pair"
    mode = "pairwise"

    @property
    def options(self) -> dict[str, object]:
        """Values that change a verdict but no answer."""
        return (
            super().options
            | {"one_order": self.one_order}
            | ({"mode": "logprob"} if self.letters else {})
        )

    def orders(self, item: Text, sample: int) -> list[Order]:
        """Return both orders, or the one that a coin chooses."""
        return (
            [shuffled_order(item, sample, self.seed)]
            if self.one_order
            else [(0, 1), (1, 0)]
        )

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return how much better the answer is that is shown first: 2, 1, 0, -1, -2, or
        log-odds.
        """
        if self.letters:
            return verdicts.letter_odds(answer.top or {})
        if self.published:
            choice = verdicts.read_published_letter(answer.text, 2)
            return None if choice is None else 1 - 2 * choice
        return verdicts.read_pair(
            verdicts.verdict_text(answer),
            draw="C" if "[[C]]" in self.template.text else "",
        )

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return the verdict on each comparison, from the votes for its first answer."""
        n = len(items)
        # Rows of `votes`: the first answer is shown first, or second.
        shape, place = (
            (2, n),
            np.array(
                [question.item + n * question.order[0] for question in questions],
                np.intp,
            ),
        )
        values = np.where(place < n, replies.values, -replies.values)
        votes = _mean_by(
            values if self.letters else np.sign(values), place, 2 * n
        ).reshape(shape)
        is_unread = (np.bincount(place, minlength=2 * n) > 0).reshape(shape) & np.isnan(
            votes
        )
        has_failed = (
            np.bincount(place[replies.has_failed], minlength=2 * n) > 0
        ).reshape(shape)
        flip, total = votes[0] * votes[1] < 0, np.nansum(votes, axis=0)
        if self.letters:
            # `mean_log_odds` takes the odds of the answer shown first.
            number = total if self.one_order else mean_log_odds(votes[0], -votes[1])
        else:
            number = np.where(flip, 0.0, np.sign(total))
        decided = np.array(["loss", "tie", "win"])[
            np.sign(np.nan_to_num(number)).astype(int) + 1
        ]
        missing, failed = is_unread.any(axis=0), (is_unread & has_failed).any(axis=0)
        verdict = np.select(
            [failed, missing, flip], [FAILED, UNPARSABLE, "flip"], decided
        )
        # A runner counts a reply that it cannot read as a tie.
        number = np.select(
            [failed, missing], [np.nan, 0.0 if self.published else np.nan], number
        )
        columns = dict(
            zip(
                ("vote_first", "vote_second"),
                np.sign(votes) if self.letters else votes,
                strict=True,
            )
        )
        columns["margin"] = number if self.letters else np.full(n, np.nan)
        return Judged([*number[:, None]], verdict.tolist(), columns, replies.provenance)

    def prefer(
        self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]
    ) -> Floats:
        """Return 1, 0 or -1 for each comparison (or log-odds), NaN where nothing can be
        read.

        Parameters
        ----------
        prompts
            The conversation of each comparison.
        first, second
            Its answers.
        """
        items = [
            Text(*item)
            for item in zip(prompts, zip(first, second, strict=True), strict=True)
        ]
        return np.concatenate(self.judge(items).values)


@dataclass(frozen=True)
class AnswerJudge(Judge):
    """How good one answer is, from 1 to 10. The verdict is "rated", "unparsable" or
    "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `Judge`; of several samples the mean counts. A published convention
        counts a rating that cannot be read as -1, below all others.
    """

    takes = "answer"
    mode = "rating"

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return the rating."""
        if self.published:
            return verdicts.read_published_rating(answer.text)
        return verdicts.read_rating(verdicts.verdict_text(answer))

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return the mean rating of each answer."""
        number = np.array([question.item for question in questions], np.intp)
        ratings = _mean_by(replies.values, number, len(items))
        verdict = _verdicts(ratings, number[replies.has_failed], "rated")
        if self.published:
            ratings = np.where(verdict == UNPARSABLE, -1.0, ratings)
        return Judged([*ratings[:, None]], verdict.tolist(), {}, replies.provenance)

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Floats:
        """Return the rating of each response, NaN where nothing can be read."""
        items = [
            Text(prompt, (response,))
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        return np.concatenate(self.judge(items).values)


@dataclass(frozen=True)
class ListJudge(Judge):
    """Which of all answers to a prompt is the best: each answer is scored by its share
    of the votes over the samples.

    The answers are shuffled, by the seed and anew for each sample. The verdict is
    "ranked", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `Judge`. A published convention gives all answers the same where the
        choice cannot be read.
    """

    takes = "list"
    mode = "ranking"

    def orders(self, item: Text, sample: int) -> list[Order]:
        """Return one shuffled order; raise DataError with more answers than letters."""
        if len(item.answers) > len(LETTERS):
            raise DataError(
                f"responses: {len(item.answers)} to a prompt; allowed: {len(LETTERS)}, or mode='rating'"
            )
        return [shuffled_order(item, sample, self.seed)]

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return the number of the chosen answer, as it is shown."""
        if self.published:
            return verdicts.read_published_letter(answer.text, len(question.order))
        return verdicts.read_letter(verdicts.verdict_text(answer), len(question.order))

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return each answer's share of the votes. Answers with equal texts get the
        same votes.
        """
        votes = [np.zeros(len(item.answers)) for item in items]
        n_votes = np.zeros(len(items))
        for question, choice in zip(questions, replies.values.tolist(), strict=True):
            if choice == choice:
                chosen = question.answers[int(choice)]
                votes[question.item] += [
                    answer == chosen for answer in question.text.answers
                ]
                n_votes[question.item] += 1
        n_votes[n_votes == 0] = np.nan
        failed_items = np.array([question.item for question in questions], np.intp)[
            replies.has_failed
        ]
        verdict = _verdicts(n_votes, failed_items, "ranked")
        n_votes[(verdict == UNPARSABLE) & self.published] = 1
        return Judged(
            [v / n for v, n in zip(votes, n_votes, strict=True)],
            verdict.tolist(),
            {},
            replies.provenance,
        )


def _verdicts(
    numbers: Floats, failed_items: NDArray[np.intp], word: str
) -> "NDArray[np.object_]":
    """The word for items with a number; otherwise whether an answer is missing or
    cannot be read.
    """
    has_failed = np.isin(np.arange(len(numbers)), failed_items)
    return np.where(
        np.isnan(numbers), np.where(has_failed, FAILED, UNPARSABLE), word
    ).astype(object)


def _mean_by(values: Floats, group: NDArray[np.intp], size: int) -> Floats:
    """Mean of the known values of each group; NaN where there is none."""
    is_known = ~np.isnan(values)
    total, n = (
        np.bincount(group[is_known], weights, size)
        for weights in (values[is_known], None)
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(total / n, np.float64)
