"""Judges: models that are asked in words which answer is better, which of several is best, or how good one is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rmlab.judges import votes
from rmlab.judges.answers import Answer
from rmlab.judges.asking import ask
from rmlab.judges.questions import Order, Questions, Speaker, ask_for, both_orders, shuffled
from rmlab.judges.templates import MOST, Template
from rmlab.judges.votes import FAILED, UNPARSABLE
from rmlab.scorers.pairwise import mean_log_odds
from rmlab.scorers.streaming import fingerprint
from rmlab.scorers.types import SILENT, Judged, Prompt, Provenance
from rmlab.store import Store
from rmlab.tables import DataError

__all__ = ["AnswerJudge", "AnyJudge", "ListJudge", "PairJudge"]

Floats = NDArray[np.float64]
Candidates = Sequence[tuple[str, ...]]
Reader = Callable[[Answer, int], votes.Reading]


# The three judges have many fields and members in common, and each spells them out: they satisfy one Protocol
# (rmlab.scorers.protocol.Judge) and inherit from nothing, so that each can be read, and imitated, by itself.
@dataclass(frozen=True)
class PairJudge:
    """Which of two answers is better: asked in both orders, or in one that a coin chooses.

    `letters`: read the log-probabilities of A and B, not what is written. `samples`: answers to each question, of
    which the majority counts. `one_order`: half the questions, and a position bias that nobody sees. `lenient`: an
    answer that cannot be read is a tie, as RewardBench counts it, instead of missing.
    """

    name: str
    speaker: Speaker
    template: Template
    samples: int = 1
    seed: int = 0
    letters: bool = False
    one_order: bool = False
    lenient: bool = False
    takes: Literal["pair"] = field(default="pair", init=False)
    apart: Mapping[str, "AnswerJudge"] = field(default_factory=dict, init=False)

    @property
    def fingerprint(self) -> str:
        """Of the model, the words of the question, and how votes are counted."""
        return _fingerprint(self, one_order=self.one_order, lenient=self.lenient, letters=self.letters)

    def questions(self, prompts: Sequence[Prompt], candidates: Candidates) -> Questions:
        """Each comparison in its orders, each order as often as there are samples."""
        orders = shuffled(self.seed) if self.one_order else both_orders
        return ask_for(prompts, candidates, self.template, orders, self.samples)

    def judge(
        self,
        prompts: Sequence[Prompt],
        candidates: Candidates,
        /,
        *,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> Judged:
        """Votes for the first of each two answers, made a verdict.

        win, loss, tie: what both orders say together (a win and a tie are a win). flip: each order has another winner,
        which says nothing but that the order decides: a tie. With log-probabilities the number is the log-odds of the
        mean probability over both orders, and flip only says that they disagree. `columns`: `vote_first`, the mean vote
        for the first answer where it is shown first, from -1 to 1, `vote_second` where it is shown second; `margin`.
        """
        questions = self.questions(prompts, candidates)
        counts, value, failed = _replies(self, questions, store, progress)
        place = np.array([one.item + len(prompts) * (one.order[0] == 1) for one in questions.asked], np.intp)
        value = np.where(place < len(prompts), value, -value)
        vote = value if self.letters else np.sign(value)
        there, back = votes.mean_by(vote, place, 2 * len(prompts)).reshape(2, -1)
        asked = np.bincount(place, minlength=2 * len(prompts)).reshape(2, -1) > 0
        silent = np.bincount(place[failed], minlength=2 * len(prompts)).reshape(2, -1) > 0
        margin, verdict = self._verdicts(there, back, asked, silent)
        numbers = np.where([word in SILENT for word in verdict], np.nan, margin)
        if self.lenient:
            numbers = np.where([word == UNPARSABLE for word in verdict], 0.0, numbers)
        columns = {"vote_first": np.sign(there) if self.letters else there}
        columns["vote_second"] = np.sign(back) if self.letters else back
        columns["margin"] = numbers if self.letters else np.full(len(numbers), np.nan)
        return Judged([np.atleast_1d(n) for n in numbers], verdict, columns, counts)

    def prefer(self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str]) -> Floats:
        """1, 0 or -1 for each comparison (or log-odds), NaN where the judge said nothing that can be read."""
        found = self.judge(prompts, list(zip(first, second, strict=True)))
        return np.concatenate(found.values) if found.values else np.zeros(0)

    def provenance(self) -> Provenance:
        """The model, the words of the question, and how votes are counted."""
        return _provenance(self, mode="logprob" if self.letters else "pairwise", one_order=self.one_order)

    def reader(self, questions: Questions) -> Reader:
        """What reads the answer to the question of a number."""
        if self.letters:
            return lambda answer, _: votes.read_letters(answer)
        draw = "C" if "[[C]]" in self.template.text else ""
        return lambda answer, _: votes.read_two(answer, draw=draw)

    def _verdicts(
        self, there: Floats, back: Floats, asked: NDArray[np.bool_], failed: NDArray[np.bool_]
    ) -> tuple[Floats, list[str]]:
        """Number and verdict of each comparison, from the votes for its first answer in both orders."""
        unread = [asked[side] & np.isnan(side_votes) for side, side_votes in enumerate((there, back))]
        flip = there * back < 0
        total = np.nansum([there, back], axis=0)
        if self.letters:
            # `mean_log_odds` takes the odds of the answer shown first, and `back` has those of the first answer.
            number = total if self.one_order else mean_log_odds(there, -back)
        else:
            number = np.where(flip, 0.0, np.sign(total))
        words = np.array(["loss", "tie", "win"], object)[np.sign(np.nan_to_num(number)).astype(int) + 1]
        words[flip] = "flip"
        words[unread[0] | unread[1]] = UNPARSABLE
        words[(unread[0] & failed[0]) | (unread[1] & failed[1])] = FAILED
        return number, [str(word) for word in words]


@dataclass(frozen=True)
class AnswerJudge:
    """How good one answer is, from 1 to 10; with several samples the mean of those that can be read.

    `apart`: judges of subsets that need other words, as RewardBench 2's Ties do. `lenient`: a rating that cannot be
    read is -1, below all others, as RewardBench 2 counts it, instead of missing.
    """

    name: str
    speaker: Speaker
    template: Template
    samples: int = 1
    seed: int = 0
    lenient: bool = False
    apart: Mapping[str, "AnswerJudge"] = field(default_factory=dict)
    takes: Literal["answer"] = field(default="answer", init=False)

    @property
    def fingerprint(self) -> str:
        """Of the model, the words of the questions, and how they are counted."""
        return _fingerprint(self, lenient=self.lenient, apart=[one.fingerprint for one in self.apart.values()])

    def questions(self, prompts: Sequence[Prompt], candidates: Candidates) -> Questions:
        """Each answer by itself, as often as there are samples."""
        return ask_for(prompts, candidates, self.template, lambda *_: [(0,)], self.samples)

    def judge(
        self,
        prompts: Sequence[Prompt],
        candidates: Candidates,
        /,
        *,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> Judged:
        """Ratings; the verdict is "rated", "unparsable" or "failed"."""
        questions = self.questions(prompts, candidates)
        counts, value, failed = _replies(self, questions, store, progress)
        item = np.array([one.item for one in questions.asked], np.intp)
        rating = votes.mean_by(value, item, len(prompts))
        verdict = _words(rating, np.bincount(item[failed], minlength=len(prompts)) > 0, "rated")
        if self.lenient:
            rating = np.where([word == UNPARSABLE for word in verdict], -1.0, rating)
        return Judged([np.atleast_1d(r) for r in rating], verdict, {}, counts)

    def reader(self, questions: Questions) -> Reader:
        """What reads the answer to the question of a number."""
        return lambda answer, _: votes.read_one(answer)

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Floats:
        """The rating of each response, NaN where the judge said nothing that can be read."""
        found = self.judge(prompts, [(text,) for text in responses])
        return np.concatenate(found.values) if found.values else np.zeros(0)

    def provenance(self) -> Provenance:
        """The model, the words of the question, and how votes are counted."""
        return _provenance(self, mode="rating")


@dataclass(frozen=True)
class ListJudge:
    """Which of all answers to a prompt is the best: each is scored by its share of the votes over the samples.

    The answers are shuffled, by the seed and anew for each sample. `apart` as of `AnswerJudge`. `lenient`: where the
    choice cannot be read all answers get the same, as RewardBench counts it, instead of nothing.
    """

    name: str
    speaker: Speaker
    template: Template
    samples: int = 1
    seed: int = 0
    lenient: bool = False
    apart: Mapping[str, "AnswerJudge"] = field(default_factory=dict)
    takes: Literal["list"] = field(default="list", init=False)

    @property
    def fingerprint(self) -> str:
        """Of the model, the words of the questions, and how they are counted."""
        return _fingerprint(self, lenient=self.lenient, apart=[one.fingerprint for one in self.apart.values()])

    def questions(self, prompts: Sequence[Prompt], candidates: Candidates) -> Questions:
        """Each prompt with all its answers, in one order per sample; DataError with more than 26 answers."""
        longest = max(map(len, candidates), default=0)
        if longest > MOST:
            raise DataError(
                f"responses: a prompt has {longest} answers, and a question shows at most {MOST}, a letter each; rate "
                "them one by one with mode='rating'"
            )
        return ask_for(prompts, candidates, self.template, shuffled(self.seed), self.samples)

    def judge(
        self,
        prompts: Sequence[Prompt],
        candidates: Candidates,
        /,
        *,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> Judged:
        """Shares of the votes; the verdict is "ranked", "unparsable" or "failed"."""
        questions = self.questions(prompts, candidates)
        counts, value, failed = _replies(self, questions, store, progress)
        shares, given = [np.zeros(len(texts)) for texts in candidates], np.zeros(len(prompts))
        for one, choice in zip(questions.asked, value, strict=True):
            if not np.isnan(choice):
                shares[one.item] += _same(candidates[one.item], one.order, int(choice))
                given[one.item] += 1
        item = np.array([one.item for one in questions.asked], np.intp)
        known = np.where(given > 0, given, np.nan)
        verdict = _words(known, np.bincount(item[failed], minlength=len(prompts)) > 0, "ranked")
        scores = [share / n for share, n in zip(shares, known, strict=True)]
        if self.lenient:
            scores = [np.zeros(len(s)) if w == UNPARSABLE else s for s, w in zip(scores, verdict, strict=True)]
        return Judged(scores, verdict, {}, counts)

    def provenance(self) -> Provenance:
        """The model, the words of the question, and how votes are counted."""
        return _provenance(self, mode="ranking")

    def reader(self, questions: Questions) -> Reader:
        """What reads the answer to the question of a number."""
        return lambda answer, number: votes.read_list(answer, len(questions.asked[number].order))


AnyJudge = PairJudge | AnswerJudge | ListJudge


def _same(texts: tuple[str, ...], order: Order, choice: int) -> Floats:
    """A vote for an answer, and for every other one with the same text."""
    chosen = texts[order[choice]]
    return np.array([float(text == chosen) for text in texts])


def _words(known: Floats, failed: NDArray[np.bool_], done: str) -> list[str]:
    return [done if k == k else FAILED if f else UNPARSABLE for k, f in zip(known.tolist(), failed, strict=True)]


def _replies(
    judge: AnyJudge, questions: Questions, store: Store | None, progress: bool | None
) -> tuple[Provenance, Floats, NDArray[np.bool_]]:
    """Of all questions: what became of them, counted; the value read from each answer, NaN for none; who failed."""
    found = ask(judge.name, judge.speaker, questions, judge.reader(questions), store=store, progress=progress)
    value, failed = votes.states(questions, found.read, found.failed)
    return found.about(questions) | {"unparsable": int((np.isnan(value) & ~failed).sum())}, value, failed


def _fingerprint(judge: AnyJudge, **more: object) -> str:
    parts = {"model": judge.speaker.fingerprint, "question": judge.template.text, "takes": judge.takes}
    return fingerprint(parts | {"samples": judge.samples, "seed": judge.seed} | more)


def _provenance(judge: AnyJudge, **more: object) -> Provenance:
    about = {"template": judge.template.name, "samples": judge.samples, "seed": judge.seed}
    return judge.speaker.provenance() | about | more | {"fingerprint": judge.fingerprint}
