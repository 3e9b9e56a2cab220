"""The kinds of judges: which of two answers is better, how good one is, which of all
answers to a prompt is the best.
"""

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rmlab import tables
from rmlab.findings import Finding
from rmlab.judges import readers
from rmlab.judges.chat import NO_LETTERS, NO_LOGPROBS, USE_PAIRWISE, Chat
from rmlab.judges.local_model import Local
from rmlab.judges.questions import (
    LETTERS,
    Completion,
    Order,
    Question,
    Template,
    encode,
    shuffled_order,
)
from rmlab.judges.readers import Reader, Scale
from rmlab.scorers.base import (
    UNPARSABLE,
    Floats,
    PairScorer,
    Provenance,
    Rows,
    Scorer,
    Stream,
    Text,
    hash_parts,
)
from rmlab.scorers.pairwise import mean_log_odds
from rmlab.tables import DataError

FAILED = "failed"

# Opening the store's file takes longer than a request: fast answers share it.
_BATCH_TEXTS = 8
_BATCH_SECONDS = 0.5
# Answers without log-probabilities from which on a server counts as one that gives
# none.
_MAX_LETTERLESS = 8
# So many questions count as truncated where their sizes differ by this factor and their
# tokens do not.
_MIN_TRUNCATED = 5
_SIZE_FACTOR = 1.5
_SHOWN_CHARACTERS = 80


@dataclass(eq=False)
class Judge(Scorer):
    """A language model as a judge: base class of the three kinds.

    A text is asked about `samples` times; its score is the mean of what the replies
    say. A text without a readable reply has none, and its verdict is "unparsable", or
    "failed" where a question got no reply. A store keeps the replies, which are read
    again in every run.

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
        runners.
    reader : Reader
        Finds the verdict in a reply.
    scale : tuple of float
        The lowest and the highest score.
    first_sample : int
        Number of the first sample; another one asks the same questions anew.
    by_subset : dict
        Judges of the subsets that need other words, as RewardBench 2's Ties do.
    """

    name: str
    respondent: Chat | Local
    template: Template
    samples: int = 1
    seed: int = 0
    published: bool = False
    reader: Reader = field(default_factory=lambda: readers.choose_reader(None))
    scale: Scale = (1, 10)
    first_sample: int = 0
    by_subset: dict[str, Scorer] = field(default_factory=dict, kw_only=True)

    mode: ClassVar[str]
    # The verdict on a text that has a score.
    read_word: ClassVar[str]
    # The score of a reply that a published convention cannot read.
    published_score: ClassVar[float] = 0.0
    has_objects = True
    columns = ("verdict",)
    hidden_columns = ("replies", "reason")

    def __post_init__(self) -> None:
        self._start_counts()
        # Models that the stored replies name.
        self.stored_models: set[str] = set()

    def _start_counts(self) -> None:
        self.unscored: dict[int, str] = {}
        self.counts = Counter(
            questions=0, asked=0, failed=0, cut=0, prompt_tokens=0, answer_tokens=0
        )
        self.models: Counter[str] = Counter()

    @property
    def travels(self) -> bool:  # type: ignore[override]
        """Whether copies may ask on other machines: budgets are a client's."""
        return not hasattr(self.respondent, "client")

    @property
    def options(self) -> dict[str, object]:
        """Values that change which questions are asked."""
        return {"mode": self.mode, "samples": self.samples, "seed": self.seed}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model and of the questions; how replies are read is not in it."""
        identity = {
            "model": self.respondent.fingerprint,
            "question": self.template.identity,
            "first_sample": self.first_sample,
        }
        return hash_parts(identity | self.options)

    def provenance(self) -> Provenance:
        """Return the model, the question, how replies are read, and counts."""
        details: Provenance = {
            **self.respondent.provenance(),
            "template": self.template.name,
            "reader": self.reader.name,
            "scale": list(self.scale),
            "published": self.published,
            **self.options,
            **self.counts,
        }
        if self.template.system:
            details["system"] = self.template.system
        if self.models:
            details["models"] = dict(self.models)
        return details

    def checks(
        self, responses: pd.DataFrame, sample: int = 24, /
    ) -> Iterator[tuple[str, Finding]]:
        """Yield the checks of answers, verdicts and cost; about `sample` answers are
        asked about, twice.
        """
        # It builds on this class.
        from rmlab.judges.examination import examine_judge

        return examine_judge(self, responses, sample)

    def order(self, text: Text, sample: int) -> Order:
        """Return the order in which a question shows the answers."""
        return tuple(range(len(text.answers)))

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the number that an answer says about the text, None where nothing can
        be read.
        """
        raise NotImplementedError

    def questions(self, text: Text) -> list[Question]:
        """Return the questions about a text, one a sample."""
        questions = []
        for sample in range(self.first_sample, self.first_sample + self.samples):
            order = self.order(text, sample)
            questions.append(Question(order, sample, self.template, text, self.seed))
        return questions

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions of texts and their rows: score, verdict, replies and the
        reason for a missing score. Equal questions are asked once.
        """
        self._start_counts()
        asked: dict[str, Question] = {}
        positions_of: defaultdict[str, list[int]] = defaultdict(list)
        questions_of = [self.questions(text) for text in texts]
        for position, questions in enumerate(questions_of):
            for question in questions:
                asked.setdefault(question.key, question)
                positions_of[question.key].append(position)

        answers: dict[str, Completion | str] = {}
        n_open = np.full(len(texts), self.samples)
        finished: list[int] = []
        yielded_at = time.monotonic()
        for question, answer in self._ask(list(asked.values())):
            answers[question.key] = answer
            for position in positions_of[question.key]:
                n_open[position] -= 1
                if not n_open[position]:
                    finished.append(position)
            is_late = time.monotonic() - yielded_at >= _BATCH_SECONDS
            is_last = len(answers) == len(asked)
            if finished and (len(finished) >= _BATCH_TEXTS or is_late or is_last):
                yield self._batch(finished, questions_of, answers)
                finished = []
                yielded_at = time.monotonic()
        self._warn_of_models()

    def _batch(
        self,
        positions: list[int],
        questions_of: Sequence[list[Question]],
        answers: dict[str, Completion | str],
    ) -> tuple[Any, Rows]:
        """The rows of texts whose questions are all answered."""
        rows = np.empty(
            (len(positions), 1 + len(self.columns + self.hidden_columns)), object
        )
        for i, position in enumerate(positions):
            questions = questions_of[position]
            replies = [answers[question.key] for question in questions]
            rows[i, :] = self._row(questions, replies)
            if np.isnan(rows[i, 0]):
                self.unscored[position] = rows[i, -1]
        return np.array(positions, np.intp), rows

    def _row(
        self, questions: Sequence[Question], answers: Sequence[Completion | str]
    ) -> list[object]:
        """Score, verdict, replies and the reason for a missing score; no replies where
        a question is to be asked again.
        """
        values = []
        unread = []
        failures = []
        for question, answer in zip(questions, answers, strict=True):
            if isinstance(answer, str):
                failures.append(answer)
                continue
            value = self.read_answer(answer, question)
            if value is None:
                unread.append(answer)
            else:
                values.append(value)

        replies = None
        if not failures:
            replies = [encode(answer) for answer in answers]  # type: ignore[arg-type]
        if values:
            return [sum(values) / len(values), self.read_word, replies, ""]
        if failures:
            return [np.nan, FAILED, None, failures[0]]
        reason = f"no verdict in {unread[0].text[-_SHOWN_CHARACTERS:]!r}"
        score = self.published_score if self.published else np.nan
        return [score, UNPARSABLE, replies, reason]

    def restore(self, texts: Sequence[Text], rows: list[Rows], /) -> list[Rows]:
        """Return the rows of texts whose replies a store has, read again."""
        self._start_counts()
        self.stored_models = set()
        restored = []
        for text, row in zip(texts, rows, strict=True):
            replies = [Completion(**reply) for reply in row[-2]]
            self.stored_models.update(reply.model for reply in replies)
            new_row = np.empty(len(row), object)
            new_row[:] = self._row(self.questions(text), replies)
            restored.append(new_row)
        return restored

    def _ask(
        self, questions: Sequence[Question]
    ) -> Iterator[tuple[Question, Completion | str]]:
        """Yield questions and their answers, or why they have none, and count them."""
        sizes_of: defaultdict[int, list[int]] = defaultdict(list)
        self.counts["questions"] = len(questions)
        n_letterless = 0
        with closing(self.respondent.respond(questions)) as answers:
            for question, answer in answers:
                if isinstance(answer, str):
                    self.counts["failed"] += 1
                    n_letterless += answer == NO_LETTERS
                    self._require_logprobs(n_letterless, len(questions))
                else:
                    n_read = answer.prompt_tokens or 0
                    sizes_of[n_read].append(question.n_bytes)
                    self._count(answer)
                yield question, answer
        self._warn_of_truncation(sizes_of)

    def _count(self, answer: Completion) -> None:
        self.counts["asked"] += 1
        self.counts["cut"] += answer.finish == "length"
        self.counts["prompt_tokens"] += answer.prompt_tokens or 0
        self.counts["answer_tokens"] += answer.answer_tokens or 0
        if answer.model:
            self.models[answer.model] += 1

    def _require_logprobs(self, n_letterless: int, n_questions: int) -> None:
        """Raise DataError where a server never gives log-probabilities."""
        n_enough = min(_MAX_LETTERLESS, n_questions)
        has_read = self.counts["asked"] or self.stored_models
        if not has_read and n_letterless >= n_enough:
            raise DataError(f"judge {self.name!r}: {NO_LOGPROBS}", USE_PAIRWISE)

    def _warn_of_models(self) -> None:
        names = sorted({*self.models, *self.stored_models} - {""})
        if len(names) > 1:
            models = f"{len(names)} models: {', '.join(names)}"
            message = f"judge {self.name!r}: answers of {models}; name each version="
            warnings.warn(message, stacklevel=5)

    def _warn_of_truncation(self, sizes_of: dict[int, list[int]]) -> None:
        """Warn where short and long questions were read as equally many tokens."""
        n_most = max(sizes_of, default=0)
        sizes = sizes_of[n_most] if n_most else []
        if len(sizes) >= _MIN_TRUNCATED and max(sizes) > _SIZE_FACTOR * min(sizes):
            asked = f"{len(sizes)} questions of {min(sizes)} to {max(sizes)} bytes"
            read = f"the server read {asked} as {n_most} tokens each"
            message = f"judge {self.name!r}: {read}; it may truncate: raise its limit"
            warnings.warn(message, stacklevel=5)


class _Votes(NamedTuple):
    """Votes for the first answer of each comparison, shown first and second, and the
    words of both.
    """

    shown_first: Floats
    shown_second: Floats
    words: np.ndarray


@dataclass(eq=False)
class PairJudge(Judge, PairScorer):
    """Which of two answers is better, asked in both orders.

    Outcomes win, loss and tie are what both orders say together (a win and a tie are a
    win). A flip, where each order has another winner, is a tie: the order decides. The
    columns of the table are `vote_first`, the mean vote for the first answer where it
    is shown first, from -1 to 1, `vote_second`, the same where it is shown second, and
    `margin`.

    Where the question asks how much better an answer is (A>>B beside A>B), or the
    reader reads scores, votes are strengths or differences of scores, the margin is
    their mean over the orders, and its sign is the outcome: a much better answer wins
    against a slight opposite in the other order. `strength` is the size of the margin.
    A flip is then a margin of 0 by opposed orders.

    Parameters
    ----------
    name, respondent, template, samples, seed, published, reader, scale, first_sample
        As for `Judge`; of several samples the majority counts, of strengths the mean. A
        published convention counts a reply that cannot be read as a tie.
    letters : bool
        Read log-probabilities of the respondent's choices instead of the text. The
        margin is then the log-odds of the mean probability over both orders, and a flip
        only says that the orders disagree.
    one_order : bool
        Ask in one order, which a coin chooses: half the questions, and a position bias
        that nobody sees.

    Raises
    ------
    DataError
        Where the question asks for verdicts that cannot be read.
    """

    letters: bool = False
    one_order: bool = False
    # Whether votes say how much better an answer is.
    has_strengths: bool = field(init=False, repr=False)
    mode = "pairwise"
    read_word = "read"
    # `place`: 1 where the first answer was shown second.
    columns = ("verdict", "place")  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.has_strengths = False
        if self.letters:
            return
        self.has_strengths = self.reader.reads_scores or self.reader.name == "strength"
        if not self.has_strengths:
            largest = readers.largest_strength(
                self.template.text, self._read_text, self.template.name
            )
            self.has_strengths = largest > 1

    @property
    def both_orders(self) -> bool:  # type: ignore[override]
        """Whether each comparison is asked in both orders."""
        return not self.one_order

    @property
    def options(self) -> dict[str, object]:
        """Values that change which questions are asked."""
        return super().options | {"one_order": self.one_order}

    def order(self, text: Text, sample: int) -> Order:
        """Return the order in which the text has its answers, or that of a coin."""
        if self.one_order:
            return shuffled_order(text, 0, self.seed)
        return (0, 1)

    def _row(
        self, questions: Sequence[Question], answers: Sequence[Completion | str]
    ) -> list[object]:
        score, word, *details = super()._row(questions, answers)
        return [score, word, questions[0].order[0], *details]

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the vote for the text's first answer: 2, 1, 0, -1, -2, log-odds, or
        the difference of scores.
        """
        vote: float | None
        if self.letters:
            choices = self.respondent.sampling.choices
            vote = readers.choice_odds(answer.top or {}, choices)
        elif self.published:
            vote = self._read_text(answer.text)
        else:
            vote = self._read_text(readers.verdict_text(answer))
        if vote is None:
            return None
        if not (self.letters or self.has_strengths):
            vote = float(np.sign(vote))
        return vote if question.order[0] == 0 else -vote

    def _read_text(self, text: str) -> float | None:
        if self.published:
            choice = readers.read_published_letter(text, 2)
            return None if choice is None else 1 - 2 * choice
        draw = "C" if "[[C]]" in self.template.text else ""
        scale = self.scale if self.reader.reads_scores else None
        return self.reader.first(
            text, partial(readers.pair_vote, draw=draw, scale=scale)
        )

    def average(self, forward: Floats, exchanged: Floats, /) -> Floats:
        """Return what both orders say together: margins, or 1, 0 and -1."""
        return self._number(forward, -exchanged)

    def compare(self, forward: Rows, exchanged: Rows | None, /) -> dict[str, ArrayLike]:
        """Return the columns of the pairs: margin, outcome, verdict and votes."""
        votes = self._votes(forward, exchanged)
        number = self._number(votes.shown_first, votes.shown_second)
        is_failed = (votes.words == FAILED).any(axis=0)
        is_unread = is_failed | (votes.words == UNPARSABLE).any(axis=0)
        sign = np.sign(np.nan_to_num(number)).astype(int)
        decided = np.array(["loss", "tie", "win"])[sign + 1]
        is_flip = votes.shown_first * votes.shown_second < 0
        if self.has_strengths:
            is_flip = is_flip & (sign == 0)
        verdict = np.select(
            [is_failed, is_unread, is_flip], [FAILED, UNPARSABLE, "flip"], decided
        )

        # A runner counts a reply that it cannot read as a tie.
        unread = 0.0 if self.published else np.nan
        number = np.select([is_failed, is_unread], [np.nan, unread], number)
        vote_first = votes.shown_first
        vote_second = votes.shown_second
        if self.letters:
            vote_first = np.sign(vote_first)
            vote_second = np.sign(vote_second)
        margin = number
        if not (self.letters or self.has_strengths):
            margin = np.full(len(number), np.nan)
        columns: dict[str, ArrayLike] = {
            "vote_first": vote_first,
            "vote_second": vote_second,
            "margin": margin,
            "verdict": verdict.astype(str),
            "outcome": tables.outcome(number),
        }
        if self.has_strengths:
            columns["strength"] = np.abs(number)
        return columns

    def _votes(self, forward: Rows, exchanged: Rows | None) -> _Votes:
        """Votes for the first answer by its place; NaN where nothing was read."""
        sides = [forward] if exchanged is None else [forward, exchanged]
        words = np.array([rows[:, 1] for rows in sides])
        votes = np.array([rows[:, 0] for rows in sides], np.float64)
        votes[words != self.read_word] = np.nan
        if exchanged is not None:
            return _Votes(votes[0], -votes[1], words)
        is_second = forward[:, 2].astype(bool)
        shown_first = np.where(is_second, np.nan, votes[0])
        shown_second = np.where(is_second, votes[0], np.nan)
        return _Votes(shown_first, shown_second, words)

    def _number(self, shown_first: Floats, shown_second: Floats) -> Floats:
        """Margins, or 1, 0 and -1, from the votes for the first answer by its place."""
        if self.letters and not self.one_order:
            # `mean_log_odds` takes the odds of the answer shown first.
            return mean_log_odds(shown_first, -shown_second)
        total = np.asarray(np.nansum([shown_first, shown_second], axis=0), np.float64)
        if self.one_order and (self.letters or self.has_strengths):
            return total
        if self.has_strengths:
            # Means of the samples in another order may differ in the last digit.
            return np.round(total / 2, 9)
        return np.where(shown_first * shown_second < 0, 0.0, np.sign(total))


@dataclass(eq=False)
class AnswerJudge(Judge):
    """How good one answer is. The verdict is "rated", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, reader, scale, first_sample
        As for `Judge`; of several samples the mean counts. A published convention
        counts a rating that cannot be read as -1, below all others. Where the
        respondent gives log-probabilities of yes and no, the score is their log-odds.
    """

    mode = "rating"
    read_word = "rated"
    published_score = -1.0

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the rating."""
        choices = self.respondent.sampling.choices
        if choices:
            return readers.choice_odds(answer.top or {}, choices)
        if self.published:
            return readers.read_published_rating(answer.text)
        text = readers.verdict_text(answer)
        return self.reader.first(text, partial(readers.rating, scale=self.scale))


@dataclass(eq=False)
class ListJudge(Judge):
    """Which of all answers to a prompt is the best: each answer is scored by its share
    of the votes over the samples.

    The answers are shuffled, by the seed and anew for each sample. The verdict is
    "ranked", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, reader, scale, first_sample
        As for `Judge`. A published convention gives all answers the same where the
        choice cannot be read.
    """

    mode = "ranking"
    read_word = "ranked"
    lists_answers = True

    def order(self, text: Text, sample: int) -> Order:
        """Return one shuffled order; raise DataError with more answers than letters."""
        n_answers = len(text.answers)
        if n_answers > len(LETTERS):
            problem = f"responses: {n_answers} to a prompt"
            raise DataError(problem, f"allowed: {len(LETTERS)}, or mode='rating'")
        return shuffled_order(text, sample, self.seed)

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return 1 where the text's first answer, or one equal to it, is chosen, else
        0.
        """
        n_answers = len(question.order)
        if self.published:
            choice = readers.read_published_letter(answer.text, n_answers)
        else:
            text = readers.verdict_text(answer)
            interpret = partial(readers.chosen_letter, answers=n_answers)
            choice = self.reader.first(text, interpret)
        if choice is None:
            return None
        return float(question.answers[choice] == question.text.answers[0])
