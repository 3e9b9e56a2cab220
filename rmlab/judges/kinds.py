"""The kinds of judges: which of two answers is better, how good one is, which of all
answers to a prompt is the best.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rmlab import tables
from rmlab.findings import Finding
from rmlab.judges import readers
from rmlab.judges.chat import Chat
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
from rmlab.judges.readers import Reader, Scale, Vote
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

_COUNTS = ("questions", "asked", "failed", "cut", "prompt_tokens", "answer_tokens")
# Opening the store's file takes longer than a request: fast answers share it.
_BATCH_TEXTS = 8
_BATCH_SECONDS = 0.5
_SHOWN_CHARACTERS = 80


@dataclass(eq=False)
class Judge(Scorer):
    """A language model as a judge: base class of the three kinds.

    A text is asked about `samples` times; its score is the mean of what the replies
    say. A text without a readable reply has none, and its verdict is "unparsable"; it
    is "failed" where a question got no reply. A store keeps the replies, which are
    read again in every run.

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
    reader : Reader
        Finds the verdict in a reply.
    scale : tuple of float
        The lowest and the highest score.
    unread : float
        The score of a text whose replies cannot be read: none, or what RewardBench's
        runners count.
    by_subset : dict
        Judges of the subsets that need other words, as RewardBench 2's Ties do.
    """

    name: str
    respondent: Chat | Local
    template: Template
    samples: int = 1
    seed: int = 0
    reader: Reader = field(default_factory=lambda: readers.choose_reader(None))
    scale: Scale = (1, 10)
    unread: float = np.nan
    by_subset: dict[str, Scorer] = field(default_factory=dict, kw_only=True)

    mode: ClassVar[str]
    # What a question shows: a "pair", a "list", or an "answer".
    shows: ClassVar[str]
    # The verdict on a text that has a score.
    read_word: ClassVar[str]
    has_objects = True
    columns = ("verdict",)
    hidden_columns = ("replies",)

    def _start_counts(self) -> None:
        self.counts: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
        self.counts["models"] = Counter()
        self.unscored: dict[int, str] = {}

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
        model = self.respondent.fingerprint
        identity = {"model": model, "question": self.template.identity}
        return hash_parts(identity | self.options)

    def provenance(self) -> Provenance:
        """Return the model, the question, and how replies are read."""
        details: Provenance = {
            **self.respondent.provenance(),
            "template": self.template.name,
            "reader": self.reader.name,
            "scale": list(self.scale),
            **self.options,
        }
        if self.template.system:
            details["system"] = self.template.system
        return details

    def checks(
        self, responses: pd.DataFrame, sample: int = 24, /
    ) -> Iterator[tuple[str, Finding]]:
        """Yield the checks of answers and verdicts; about `sample` answers are asked
        about, twice.
        """
        # It builds on this class.
        from rmlab.judges.examination import examine_judge

        return examine_judge(self, responses, sample)

    def order(self, text: Text, sample: int) -> Order:
        """Return the order in which a question shows the answers."""
        return tuple(range(len(text.answers)))

    def read_answer(self, answer: Completion, question: Question) -> Any | None:
        """Return what an answer says about the text, None where nothing can be read."""
        raise NotImplementedError

    def questions(self, text: Text) -> list[Question]:
        """Return the questions about a text, one a sample."""
        questions = []
        for sample in range(self.samples):
            order = self.order(text, sample)
            questions.append(Question(order, sample, self.template, text, self.seed))
        return questions

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions of texts and their rows: score, verdict, and replies. Equal
        questions are asked once.
        """
        self._start_counts()
        asked: dict[str, Question] = {}
        positions_of: defaultdict[str, list[int]] = defaultdict(list)
        questions_of = [self.questions(text) for text in texts]
        for position, questions in enumerate(questions_of):
            for question in questions:
                asked[question.key] = question
                positions_of[question.key].append(position)
        self.counts["questions"] = len(asked)

        answers: dict[str, Completion | str] = {}
        rows: dict[int, Rows] = {}
        yielded_at = time.monotonic()
        with closing(self.respondent.respond(list(asked.values()))) as replies:
            for question, answer in replies:
                self._count(answer)
                answers[question.key] = answer
                for position in positions_of[question.key]:
                    about = questions_of[position]
                    said = [answers[one.key] for one in about if one.key in answers]
                    if len(said) == len(about):
                        rows[position] = self._read(position, about, said)

                is_late = time.monotonic() - yielded_at >= _BATCH_SECONDS
                is_last = len(answers) == len(asked)
                if rows and (len(rows) >= _BATCH_TEXTS or is_late or is_last):
                    yield np.array([*rows]), np.array([*rows.values()], object)
                    rows = {}
                    yielded_at = time.monotonic()

    def _count(self, answer: Completion | str) -> None:
        if isinstance(answer, str):
            self.counts["failed"] += 1
            return
        self.counts["asked"] += 1
        self.counts["cut"] += answer.finish == "length"
        self.counts["prompt_tokens"] += answer.prompt_tokens or 0
        self.counts["answer_tokens"] += answer.answer_tokens or 0
        if answer.model:
            self.counts["models"][answer.model] += 1

    def restore(self, texts: Sequence[Text], rows: list[Rows], /) -> list[Rows]:
        """Return the rows of texts whose replies a store has, read again."""
        self._start_counts()
        restored = []
        for position, (text, row) in enumerate(zip(texts, rows, strict=True)):
            replies = [Completion(**reply) for reply in row[-1]]
            restored.append(self._read(position, self.questions(text), replies))
        return restored

    def _read(
        self,
        position: int,
        questions: Sequence[Question],
        answers: Sequence[Completion | str],
    ) -> Rows:
        """The row of a text: score, verdict and replies; no replies where a question is
        to be asked again.
        """
        replies = [answer for answer in answers if isinstance(answer, Completion)]
        failures = [answer for answer in answers if isinstance(answer, str)]
        values: list[Any] = []
        if not failures:
            for question, reply in zip(questions, replies, strict=True):
                value = self.read_answer(reply, question)
                if value is not None:
                    values.append(value)

        row = np.empty(1 + len(self.columns + self.hidden_columns), object)
        row[0] = self._score(values) if values else self.unread
        row[1] = self.read_word if values else UNPARSABLE
        row[2:-1] = self._details(questions, values)
        row[-1] = [encode(reply) for reply in replies]
        if failures:
            row[0] = np.nan
            row[1] = FAILED
            row[-1] = None
            self.unscored[position] = failures[0]
        elif not values:
            end = replies[0].text[-_SHOWN_CHARACTERS:]
            self.unscored[position] = f"no verdict in {end!r}"
        return row

    def _score(self, values: Sequence[Any]) -> float:
        """The score of a text, from what its replies say."""
        return _mean(values)

    def _details(
        self, questions: Sequence[Question], values: Sequence[Any]
    ) -> list[object]:
        """The columns behind the verdict."""
        return []


@dataclass(eq=False)
class PairJudge(Judge, PairScorer):
    """Which of two answers is better, asked in both orders.

    Outcomes win, loss and tie are what both orders say together (a win and a tie are a
    win). A flip, where each order has another winner, is a tie: the order decides. The
    columns of the table are `vote_first`, the mean vote for the first answer where it
    is shown first, from -1 to 1, `vote_second`, the same where it is shown second, and
    `margin`.

    Where the question asks how much better an answer is (A>>B beside A>B), or more
    replies of a run hold scores than letters, votes are strengths or differences of
    scores, the margin is their mean over the orders, and its sign is the outcome: a
    much better answer wins against a slight opposite in the other order. `strength` is
    the size of the margin. A flip is then a margin of 0 by opposed orders. Among scores
    a letter counts as 1, and among letters scores count as the letter of the higher
    one.

    Parameters
    ----------
    name, respondent, template, samples, seed, reader, scale, unread
        As for `Judge`; of several samples the majority counts, of strengths the mean.
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
    mode = "pairwise"
    shows = "pair"
    read_word = "read"
    # `place`: 1 where the first answer was shown second. `lean`: the mean of the votes'
    # signs. `n_scores`: replies with scores, less those with letters.
    columns = ("verdict", "place", "lean", "n_scores")  # type: ignore[assignment]

    def __post_init__(self) -> None:
        words = self.template.text
        if not (self.letters or self.reader.reads_scores):

            def read(verdict: str) -> Vote | None:
                return self._read_vote(Completion(verdict))

            readers.require_readable(words, read, self.template.name)
        # Whether votes say how much better an answer is; None: the replies decide.
        self.has_strengths: bool | None = None
        if self.reader.name == "strength" or readers.asks_strength(words):
            self.has_strengths = True
        elif self.letters or not self.reader.reads_scores:
            self.has_strengths = self.letters

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

    def read_answer(self, answer: Completion, question: Question) -> Vote | None:
        """Return the vote for the text's first answer: a strength, log-odds, or the
        difference of scores.
        """
        vote: Vote | None = None
        if not self.letters:
            vote = self._read_vote(answer)
        else:
            choices = self.respondent.sampling.choices
            odds = readers.choice_odds(answer.top or {}, choices)
            if odds is not None:
                vote = Vote(odds)
        if vote is None or question.order[0] == 0:
            return vote
        return Vote(-vote.value, vote.is_score)

    def _read_vote(self, answer: Completion) -> Vote | None:
        draw = "C" if "[[C]]" in self.template.text else ""
        scale = self.scale if self.reader.reads_scores else None
        interpret = partial(readers.pair_vote, draw=draw, scale=scale)
        return self.reader.read(answer, interpret)

    def _score(self, values: Sequence[Vote]) -> float:
        if self.has_strengths is False:
            return _mean([np.sign(vote.value) for vote in values])
        return _mean([vote.value for vote in values])

    def _details(
        self, questions: Sequence[Question], values: Sequence[Vote]
    ) -> list[object]:
        lean = _mean([np.sign(vote.value) for vote in values])
        n_scores = 2 * sum(vote.is_score for vote in values) - len(values)
        return [questions[0].order[0], lean, n_scores]

    def average(self, forward: Floats, exchanged: Floats, /) -> Floats:
        """Return the mean of both orders' votes, or the log-odds of their mean
        probability.
        """
        if self.letters:
            return mean_log_odds(forward, exchanged)
        # Means of the samples in another order may differ in the last digit.
        return np.round(super().average(forward, exchanged), 9)

    def compare(self, forward: Rows, exchanged: Rows | None, /) -> dict[str, ArrayLike]:
        """Return the columns of the pairs: margin, outcome, verdict and votes."""
        sides = np.array([side for side in (forward, exchanged) if side is not None])
        has_margins = self.has_strengths
        if has_margins is None:
            has_margins = sides[:, :, 4].sum() > 0
        words = sides[:, :, 1]
        values = sides[:, :, 0 if has_margins else 3]
        values = np.where(words == self.read_word, values, np.nan).astype(np.float64)

        # Votes for the first answer by its place; NaN where nothing was read.
        if exchanged is not None:
            margin = self.average(*values)
            shown_first = values[0]
            shown_second = -values[1]
        else:
            margin = values[0]
            is_second = forward[:, 2].astype(bool)
            shown_first = np.where(is_second, np.nan, margin)
            shown_second = np.where(is_second, margin, np.nan)

        is_flip = shown_first * shown_second < 0
        if not has_margins:
            margin = np.where(is_flip, 0.0, np.sign(margin))
        has_strengths = has_margins and not self.letters
        if has_strengths:
            is_flip = is_flip & (margin == 0)
        is_failed = (words == FAILED).any(axis=0)
        is_unread = is_failed | (words == UNPARSABLE).any(axis=0)
        sign = np.sign(np.nan_to_num(margin)).astype(int)
        decided = np.array(["loss", "tie", "win"])[sign + 1]
        causes = [is_failed, is_unread, is_flip]
        verdict = np.select(causes, [FAILED, UNPARSABLE, "flip"], decided)
        margin = np.select(causes[:2], [np.nan, self.unread], margin)

        columns: dict[str, ArrayLike] = {
            "vote_first": np.sign(shown_first) if self.letters else shown_first,
            "vote_second": np.sign(shown_second) if self.letters else shown_second,
            "margin": margin if has_margins else np.full(len(margin), np.nan),
            "verdict": verdict.astype(str),
            "outcome": tables.outcome(margin),
        }
        if has_strengths:
            columns["strength"] = np.abs(margin)
        return columns


@dataclass(eq=False)
class AnswerJudge(Judge):
    """How good one answer is. The verdict is "rated", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, reader, scale, unread
        As for `Judge`; of several samples the mean counts. Where the respondent gives
        log-probabilities of yes and no, the score is their log-odds.
    """

    mode = "rating"
    shows = "answer"
    read_word = "rated"

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the rating."""
        choices = self.respondent.sampling.choices
        if choices:
            return readers.choice_odds(answer.top or {}, choices)
        return self.reader.read(answer, partial(readers.rating, scale=self.scale))


@dataclass(eq=False)
class ListJudge(Judge):
    """Which of all answers to a prompt is the best: each answer is scored by its share
    of the votes over the samples.

    The answers are shuffled, by the seed and anew for each sample. The verdict is
    "ranked", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, reader, scale, unread
        As for `Judge`.
    """

    mode = "ranking"
    shows = "list"
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
        interpret = partial(readers.chosen_letter, answers=len(question.order))
        choice = self.reader.read(answer, interpret)
        if choice is None:
            return None
        return float(question.answers[choice] == question.text.answers[0])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
