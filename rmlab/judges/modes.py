"""The kinds of judges: the better of two answers, the rating of one, the best of all
answers to a prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.judges import verdicts
from rmlab.judges.asking import LLMJudge, Replies
from rmlab.judges.questions import (
    LETTERS,
    Completion,
    Order,
    Question,
    shuffled_order,
)
from rmlab.scorers.base import SILENT, Floats, Ints, Judged, Prompt, Text
from rmlab.scorers.pairwise import mean_log_odds
from rmlab.tables import DataError

UNPARSABLE, FAILED = SILENT

Bools = NDArray[np.bool_]


class Votes(NamedTuple):
    """Votes for the first answer of each comparison, shown first and second.

    `is_opposed`: whether each order has another winner. `is_unread`: whether an order
    that was asked has no vote. `has_failed`: whether that is since it got no reply.
    """

    shown_first: Floats
    shown_second: Floats
    is_opposed: Bools
    is_unread: Bools
    has_failed: Bools


@dataclass(frozen=True)
class PairJudge(LLMJudge):
    """Which of two answers is better, asked in both orders.

    Outcomes win, loss and tie are what both orders say together (a win and a tie are a
    win). A flip, where each order has another winner, is a tie: the order decides. The
    columns of the table are `vote_first`, the mean vote for the first answer where it
    is shown first, from -1 to 1, `vote_second`, the same where it is shown second, and
    `margin`.

    Where the question asks how much better an answer is (A>>B beside A>B), votes are
    from -2 to 2, the margin is their mean over the orders, and its sign is the outcome:
    a much better answer wins against a slight opposite in the other order. `strength`
    is the size of the margin. A flip is then a margin of 0 by opposed orders.

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `LLMJudge`; of several samples the majority counts, of strengths the
        mean. A published convention counts a reply that cannot be read as a tie.
    letters : bool
        Read the log-probabilities of A and B instead of the text. The margin is then
        the log-odds of the mean probability over both orders, and a flip only says that
        the orders disagree.
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
    # Whether the question asks how much better an answer is.
    has_strengths: bool = field(init=False, repr=False, compare=False)
    takes = "pair"
    mode = "pairwise"

    def __post_init__(self) -> None:
        largest = 1
        if not self.letters:
            largest = verdicts.largest_strength(
                self.template.text, self._read_text, self.template.name
            )
        object.__setattr__(self, "has_strengths", largest > 1)

    @property
    def options(self) -> dict[str, object]:
        """Values that change a verdict but no answer."""
        options = super().options | {"one_order": self.one_order}
        if self.letters:
            options["mode"] = "logprob"
        if self.has_strengths:
            options["strengths"] = True
        return options

    def orders(self, item: Text, sample: int) -> list[Order]:
        """Return both orders, or the one that a coin chooses."""
        if self.one_order:
            return [shuffled_order(item, sample, self.seed)]
        return [(0, 1), (1, 0)]

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return how much better the answer is that is shown first: 2, 1, 0, -1, -2, or
        log-odds.
        """
        if self.letters:
            return verdicts.letter_odds(answer.top or {})
        if self.published:
            return self._read_text(answer.text)
        return self._read_text(verdicts.verdict_text(answer))

    def _read_text(self, text: str) -> int | None:
        if self.published:
            choice = verdicts.read_published_letter(text, 2)
            return None if choice is None else 1 - 2 * choice
        draw = "C" if "[[C]]" in self.template.text else ""
        return verdicts.read_pair(text, draw=draw)

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return the verdict on each comparison, by the votes for its first answer."""
        votes = self._votes(len(items), replies)
        number = self._number(votes)
        return self._verdict(votes, number, replies)

    def _votes(self, n_items: int, replies: Replies) -> Votes:
        """The mean vote for the first answer of each comparison, by order."""
        is_first = replies.first == 0
        votes = np.where(is_first, replies.values, -replies.values)
        if not (self.letters or self.has_strengths):
            votes = np.sign(votes)

        # A row each for the first answer shown first, and second.
        cell = np.where(is_first, replies.item, n_items + replies.item)
        shape = (2, n_items)
        mean_vote = _mean_by(votes, cell, 2 * n_items).reshape(shape)
        n_asked = np.bincount(cell, minlength=2 * n_items).reshape(shape)
        failed_cell = cell[replies.has_failed]
        n_failed = np.bincount(failed_cell, minlength=2 * n_items).reshape(shape)
        is_unread = (n_asked > 0) & np.isnan(mean_vote)
        has_failed = is_unread & (n_failed > 0)
        return Votes(
            shown_first=mean_vote[0],
            shown_second=mean_vote[1],
            is_opposed=mean_vote[0] * mean_vote[1] < 0,
            is_unread=is_unread[0] | is_unread[1],
            has_failed=has_failed[0] | has_failed[1],
        )

    def _number(self, votes: Votes) -> Floats:
        """What both orders say together: margins, or 1, 0 and -1."""
        if self.letters and not self.one_order:
            # `mean_log_odds` takes the odds of the answer shown first.
            return mean_log_odds(votes.shown_first, -votes.shown_second)
        orders = np.array([votes.shown_first, votes.shown_second])
        total = np.asarray(np.nansum(orders, axis=0), np.float64)
        if self.one_order and (self.letters or self.has_strengths):
            return total
        if self.has_strengths:
            return total / 2
        return np.where(votes.is_opposed, 0.0, np.sign(total))

    def _verdict(self, votes: Votes, number: Floats, replies: Replies) -> Judged:
        """Words and columns; unread comparisons have no number."""
        sign = np.sign(np.nan_to_num(number)).astype(int)
        decided = np.array(["loss", "tie", "win"])[sign + 1]
        is_flip = votes.is_opposed
        if self.has_strengths:
            is_flip = is_flip & (sign == 0)
        verdict = np.select(
            [votes.has_failed, votes.is_unread, is_flip],
            [FAILED, UNPARSABLE, "flip"],
            decided,
        )

        # A runner counts a reply that it cannot read as a tie.
        unread = 0.0 if self.published else np.nan
        number = np.select(
            [votes.has_failed, votes.is_unread], [np.nan, unread], number
        )

        vote_first = votes.shown_first
        vote_second = votes.shown_second
        if self.letters:
            vote_first = np.sign(vote_first)
            vote_second = np.sign(vote_second)
        margin = number
        if not (self.letters or self.has_strengths):
            margin = np.full(len(number), np.nan)
        columns = {
            "vote_first": vote_first,
            "vote_second": vote_second,
            "margin": margin,
        }
        if self.has_strengths:
            columns["strength"] = np.abs(number)
        return Judged([*number[:, None]], verdict.tolist(), columns, replies.provenance)

    def prefer(
        self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]
    ) -> Floats:
        """Return 1, 0 or -1 for each comparison (or its margin), NaN where nothing can
        be read.

        Parameters
        ----------
        prompts
            The conversation of each comparison.
        first, second
            Its answers.
        """
        items = []
        for prompt, *answers in zip(prompts, first, second, strict=True):
            items.append(Text(prompt, tuple(answers)))
        return np.concatenate(self.judge(items).values)


@dataclass(frozen=True)
class AnswerJudge(LLMJudge):
    """How good one answer is, from 1 to 10. The verdict is "rated", "unparsable" or
    "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `LLMJudge`; of several samples the mean counts. A published convention
        counts a rating that cannot be read as -1, below all others.
    """

    takes = "answer"
    mode = "rating"

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the rating."""
        if self.published:
            return verdicts.read_published_rating(answer.text)
        return verdicts.read_rating(verdicts.verdict_text(answer))

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return the mean rating of each answer."""
        ratings = _mean_by(replies.values, replies.item, len(items))
        verdict = _name_verdicts(ratings, replies, "rated")
        if self.published:
            ratings = np.where(verdict == UNPARSABLE, -1.0, ratings)
        return Judged([*ratings[:, None]], verdict.tolist(), {}, replies.provenance)

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Floats:
        """Return the rating of each response, NaN where nothing can be read."""
        items = []
        for prompt, response in zip(prompts, responses, strict=True):
            items.append(Text(prompt, (response,)))
        return np.concatenate(self.judge(items).values)


@dataclass(frozen=True)
class ListJudge(LLMJudge):
    """Which of all answers to a prompt is the best: each answer is scored by its share
    of the votes over the samples.

    The answers are shuffled, by the seed and anew for each sample. The verdict is
    "ranked", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `LLMJudge`. A published convention gives all answers the same where the
        choice cannot be read.
    """

    takes = "list"
    mode = "ranking"

    def orders(self, item: Text, sample: int) -> list[Order]:
        """Return one shuffled order; raise DataError with more answers than letters."""
        n_answers = len(item.answers)
        if n_answers > len(LETTERS):
            problem = f"responses: {n_answers} to a prompt"
            raise DataError(problem, f"allowed: {len(LETTERS)}, or mode='rating'")
        return [shuffled_order(item, sample, self.seed)]

    def read_answer(self, answer: Completion, question: Question) -> float | None:
        """Return the number of the chosen answer, as it is shown."""
        n_answers = len(question.order)
        if self.published:
            return verdicts.read_published_letter(answer.text, n_answers)
        return verdicts.read_letter(verdicts.verdict_text(answer), n_answers)

    def read(
        self, items: Sequence[Text], questions: Sequence[Question], replies: Replies
    ) -> Judged:
        """Return each answer's share of the votes. Answers with equal texts get the
        same votes.
        """
        votes = [np.zeros(len(item.answers)) for item in items]
        n_votes = np.zeros(len(items))
        for question, choice in zip(questions, replies.values, strict=True):
            if np.isnan(choice):
                continue
            chosen = question.answers[int(choice)]
            is_chosen = [answer == chosen for answer in question.text.answers]
            votes[question.item] += is_chosen
            n_votes[question.item] += 1
        n_votes[n_votes == 0] = np.nan

        verdict = _name_verdicts(n_votes, replies, "ranked")
        if self.published:
            n_votes[verdict == UNPARSABLE] = 1
        shares = [count / n for count, n in zip(votes, n_votes, strict=True)]
        return Judged(shares, verdict.tolist(), {}, replies.provenance)


def _name_verdicts(
    numbers: Floats, replies: Replies, word: str
) -> "NDArray[np.object_]":
    """The word for items with a number; otherwise whether an answer is missing or
    cannot be read.
    """
    has_failed = np.zeros(len(numbers), bool)
    has_failed[replies.item[replies.has_failed]] = True
    reason = np.where(has_failed, FAILED, UNPARSABLE)
    return np.where(np.isnan(numbers), reason, word).astype(object)


def _mean_by(values: Floats, group: Ints, n_groups: int) -> Floats:
    """Mean of the known values of each group; NaN where there is none."""
    is_known = ~np.isnan(values)
    known_group = group[is_known]
    total = np.bincount(known_group, values[is_known], minlength=n_groups)
    n_known = np.bincount(known_group, minlength=n_groups)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / n_known, np.float64)
