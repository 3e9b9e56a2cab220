"""The three kinds of judges: better of two answers, rating of one answer, best of all answers to a prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rmlab.judges import verdicts
from rmlab.judges.asking import Replies, Respondent, ask
from rmlab.judges.questions import LETTERS, Answer, Order, Question, Template, shuffled_order
from rmlab.scorers import base
from rmlab.scorers.base import SILENT, Judged, Prompt, Provenance
from rmlab.scorers.local import hash_parts
from rmlab.scorers.pairwise import mean_log_odds
from rmlab.store import Store
from rmlab.tables import DataError

Floats = NDArray[np.float64]
Candidates = Sequence[tuple[str, ...]]

UNPARSABLE, FAILED = SILENT


@dataclass(frozen=True)
class Judge(base.Judge):
    """A language model as a judge: base class of the three kinds.

    A kind says in which orders the answers are shown (`orders`), what number an answer says (`read_answer`), and what
    the numbers of all questions come to (`read`).

    Parameters
    ----------
    name : str
        Name in every table.
    respondent : Respondent
        Who answers: a server, or a model on this machine.
    template : Template
        The words of the question.
    samples : int
        Answers to each question.
    seed : int
        Seed of the orders and of drawn answers.
    published : bool
        Whether replies are read, and unreadable ones counted, as by RewardBench's runners. Otherwise rmlab reads more
        forms of a verdict, and unreadable replies are missing.
    apart : mapping of str to Judge
        Judges of the subsets that need other words, as RewardBench 2's Ties do.
    """

    name: str
    respondent: Respondent
    template: Template
    samples: int = 1
    seed: int = 0
    published: bool = False
    apart: Mapping[str, "Judge"] = field(default_factory=dict, kw_only=True)

    takes: ClassVar[Literal["answer", "pair", "list"]]
    mode: ClassVar[str]

    def orders(self, prompt: Prompt, answers: tuple[str, ...], sample: int) -> list[Order]:
        """Return the orders in which a question shows the answers."""
        return [tuple(range(len(answers)))]

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return the number that an answer says, None where nothing can be read."""
        raise NotImplementedError

    def read(self, candidates: Candidates, questions: Sequence[Question], replies: Replies) -> Judged:
        """Return the verdict on each item."""
        raise NotImplementedError

    @property
    def travels(self) -> bool:  # type: ignore[override]
        """Whether copies may ask on other machines: a server's budget is one client's."""
        return getattr(self.respondent, "client", None) is None

    @property
    def options(self) -> dict[str, object]:
        """Values that change a verdict but no answer."""
        parts = [judge.fingerprint for judge in self.apart.values()]
        counting = {"samples": self.samples, "seed": self.seed, "published": self.published}
        return {"mode": self.mode} | counting | {"apart": parts}

    @property
    def fingerprint(self) -> str:
        """Hash of the model, the words of the question, and how votes are counted."""
        parts = {"model": self.respondent.fingerprint, "question": self.template.text, "takes": self.takes}
        return hash_parts(parts | self.options)

    def provenance(self) -> Provenance:
        """Return the model, the words of the question, and how votes are counted."""
        options = {name: option for name, option in self.options.items() if name != "apart"}
        return (
            self.respondent.provenance() | {"template": self.template.name, "fingerprint": self.fingerprint} | options
        )

    def questions(self, prompts: Sequence[Prompt], candidates: Candidates) -> list[Question]:
        """Return the questions about all items.

        Parameters
        ----------
        prompts
            The conversation of each item.
        candidates
            The answers of each item: two, one, or all.
        """
        return [
            Question(item, order, sample, self.template, prompt, tuple(answers[i] for i in order), self.seed)
            for item, (prompt, answers) in enumerate(zip(prompts, candidates, strict=True))
            for sample in range(self.samples)
            for order in self.orders(prompt, answers, sample)
        ]

    def judge(
        self,
        prompts: Sequence[Prompt],
        candidates: Candidates,
        /,
        *,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> Judged:
        """Ask about all items, and return the verdicts.

        Parameters
        ----------
        prompts, candidates
            As for `questions`.
        store
            Keeps the raw answers; nothing that it knows is asked.
        progress
            Whether a bar is shown; None shows it on a terminal.

        Returns
        -------
        Judged
            Numbers and verdict of each item, further columns, and counts for the provenance.
        """
        questions = self.questions(prompts, candidates)
        replies = ask(self.name, self.respondent, questions, self.read_answer, store=store, progress=progress)
        n_unparsable = int((np.isnan(replies.values_of(questions)) & ~replies.has_failed(questions)).sum())
        judged = self.read(candidates, questions, replies)
        return judged._replace(about=replies.provenance(questions) | {"unparsable": n_unparsable})


@dataclass(frozen=True)
class PairJudge(Judge):
    """Which of two answers is better, asked in both orders.

    Outcomes win, loss and tie are what both orders say together (a win and a tie are a win). A flip, where each order
    has another winner, is a tie: the order decides. The columns of the table are `vote_first`, the mean vote for the
    first answer where it is shown first, from -1 to 1, `vote_second`, the same where it is shown second, and `margin`.

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `Judge`; of several samples the majority counts. A published convention counts a reply that cannot be
        read as a tie.
    letters : bool
        Read the log-probabilities of A and B instead of the text. The margin is then the log-odds of the mean
        probability over both orders, and a flip only says that the orders disagree.
    one_order : bool
        Ask in one order, which a coin chooses: half the questions, and a position bias that nobody sees.
    """

    letters: bool = False
    one_order: bool = False
    takes = "pair"
    mode = "pairwise"

    @property
    def options(self) -> dict[str, object]:
        """Values that change a verdict but no answer."""
        return super().options | {"one_order": self.one_order} | ({"mode": "logprob"} if self.letters else {})

    def orders(self, prompt: Prompt, answers: tuple[str, ...], sample: int) -> list[Order]:
        """Return both orders, or the one that a coin chooses."""
        return shuffled_order(prompt, answers, sample, self.seed) if self.one_order else [(0, 1), (1, 0)]

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return how much better the answer is that is shown first: 2, 1, 0, -1, -2, or log-odds."""
        if self.letters:
            return verdicts.letter_odds(answer.top or {})
        if self.published:
            choice = verdicts.read_published_letter(answer.text, 2)
            return None if choice is None else 1 - 2 * choice
        return verdicts.read_pair(verdicts.verdict_text(answer), draw="C" if "[[C]]" in self.template.text else "")

    def read(self, candidates: Candidates, questions: Sequence[Question], replies: Replies) -> Judged:
        """Return the verdict on each comparison, from the votes for its first answer."""
        n = len(candidates)
        # Rows of `votes`: the first answer is shown first, or second.
        shape, place = (2, n), np.array([question.item + n * question.order[0] for question in questions], np.intp)
        values, failed = replies.values_of(questions), replies.has_failed(questions)
        values = np.where(place < n, values, -values)
        votes = _mean_by(values if self.letters else np.sign(values), place, 2 * n).reshape(shape)
        is_unread = (np.bincount(place, minlength=2 * n) > 0).reshape(shape) & np.isnan(votes)
        has_failed = (np.bincount(place[failed], minlength=2 * n) > 0).reshape(shape)
        flip, total = votes[0] * votes[1] < 0, np.nansum(votes, axis=0)
        if self.letters:
            # `mean_log_odds` takes the odds of the answer shown first.
            number = total if self.one_order else mean_log_odds(votes[0], -votes[1])
        else:
            number = np.where(flip, 0.0, np.sign(total))
        verdict = np.array(["loss", "tie", "win"], object)[np.sign(np.nan_to_num(number)).astype(int) + 1]
        verdict[flip] = "flip"
        verdict[is_unread.any(axis=0)] = UNPARSABLE
        verdict[(is_unread & has_failed).any(axis=0)] = FAILED
        number = np.where(is_unread.any(axis=0), np.nan, number)
        if self.published:
            number = np.where(verdict == UNPARSABLE, 0.0, number)
        columns = dict(zip(("vote_first", "vote_second"), np.sign(votes) if self.letters else votes, strict=True))
        columns["margin"] = number if self.letters else np.full(n, np.nan)
        return Judged([np.atleast_1d(margin) for margin in number], verdict.tolist(), columns, {})

    def prefer(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]) -> Floats:
        """Return 1, 0 or -1 for each comparison (or log-odds), NaN where nothing can be read.

        Parameters
        ----------
        prompts
            The conversation of each comparison.
        first, second
            Its answers.
        """
        return np.array([values[0] for values in self.judge(prompts, list(zip(first, second, strict=True))).values])


@dataclass(frozen=True)
class AnswerJudge(Judge):
    """How good one answer is, from 1 to 10. The verdict is "rated", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `Judge`; of several samples the mean counts. A published convention counts a rating that cannot be read
        as -1, below all others.
    """

    takes = "answer"
    mode = "rating"

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return the rating."""
        if self.published:
            return verdicts.read_published_rating(answer.text)
        return verdicts.read_rating(verdicts.verdict_text(answer))

    def read(self, candidates: Candidates, questions: Sequence[Question], replies: Replies) -> Judged:
        """Return the mean rating of each answer."""
        item = np.array([question.item for question in questions], np.intp)
        ratings = _mean_by(replies.values_of(questions), item, len(candidates))
        verdict = _verdicts(ratings, item[replies.has_failed(questions)], "rated")
        if self.published:
            ratings = np.where(np.array(verdict) == UNPARSABLE, -1.0, ratings)
        return Judged([np.atleast_1d(rating) for rating in ratings], verdict, {}, {})

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Floats:
        """Return the rating of each response, NaN where nothing can be read."""
        return np.array([values[0] for values in self.judge(prompts, [(text,) for text in responses]).values])


@dataclass(frozen=True)
class ListJudge(Judge):
    """Which of all answers to a prompt is the best: each answer is scored by its share of the votes over the samples.

    The answers are shuffled, by the seed and anew for each sample. The verdict is "ranked", "unparsable" or "failed".

    Parameters
    ----------
    name, respondent, template, samples, seed, published, apart
        As for `Judge`. A published convention gives all answers the same where the choice cannot be read.
    """

    takes = "list"
    mode = "ranking"

    def orders(self, prompt: Prompt, answers: tuple[str, ...], sample: int) -> list[Order]:
        """Return one shuffled order; raise DataError with more answers than letters."""
        if len(answers) > len(LETTERS):
            raise DataError(
                f"responses: a prompt has {len(answers)} answers, and a question shows at most {len(LETTERS)}, a "
                "letter each; rate them one by one with mode='rating'"
            )
        return shuffled_order(prompt, answers, sample, self.seed)

    def read_answer(self, answer: Answer, question: Question) -> float | None:
        """Return the number of the chosen answer, as it is shown."""
        if self.published:
            return verdicts.read_published_letter(answer.text, len(question.order))
        return verdicts.read_letter(verdicts.verdict_text(answer), len(question.order))

    def read(self, candidates: Candidates, questions: Sequence[Question], replies: Replies) -> Judged:
        """Return each answer's share of the votes. Answers with equal texts get the same votes."""
        votes = [np.zeros(len(answers)) for answers in candidates]
        n_votes = np.zeros(len(candidates))
        for question, choice in zip(questions, replies.values_of(questions).tolist(), strict=True):
            if choice == choice:
                chosen = question.answers[int(choice)]
                votes[question.item] += [text == chosen for text in candidates[question.item]]
                n_votes[question.item] += 1
        n_votes[n_votes == 0] = np.nan
        failed_items = np.array([q.item for q in questions if q.key in replies.failures], np.intp)
        verdict = _verdicts(n_votes, failed_items, "ranked")
        shares = [item_votes / n for item_votes, n in zip(votes, n_votes, strict=True)]
        if self.published:
            shares = [np.zeros(len(s)) if v == UNPARSABLE else s for s, v in zip(shares, verdict, strict=True)]
        return Judged(shares, verdict, {}, {})


def _verdicts(numbers: Floats, failed_items: NDArray[np.intp], word: str) -> list[str]:
    """The word for items with a number; otherwise whether an answer is missing or cannot be read."""
    has_failed = np.isin(np.arange(len(numbers)), failed_items)
    words: list[str] = np.where(np.isnan(numbers), np.where(has_failed, FAILED, UNPARSABLE), word).tolist()
    return words


def _mean_by(values: Floats, group: NDArray[np.intp], size: int) -> Floats:
    """Mean of the known values of each group; NaN where there is none."""
    is_known = ~np.isnan(values)
    total, n = (np.bincount(group[is_known], weights, size) for weights in (values[is_known], None))
    with np.errstate(invalid="ignore"):
        return np.asarray(total / n, np.float64)
