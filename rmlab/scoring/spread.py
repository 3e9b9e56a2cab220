"""Scoring on a cluster: blocks of whole prompts go to workers, which keep their scores in the store and send them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.clusters import Engine
from rmlab.escapes import line
from rmlab.scorers import guards
from rmlab.scorers.protocol import AnyScorer, Judge, Prompt
from rmlab.scoring.distinct_texts import Texts
from rmlab.store import ANSWERS, Store

__all__ = ["Answers", "Block", "Crew", "Scored", "ask_on_cluster", "blocks", "reached"]

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]

_LEAST, _MOST, _PARTS = 32, 1024, 64
"""Texts of a block: at least, at most, and how many blocks there are where both allow it."""


@dataclass(frozen=True)
class Crew:
    """Who scores: the engine, and how a worker makes the scorer."""

    engine: Engine
    make: Callable[[], AnyScorer]

    def of(self, make: Callable[[], AnyScorer]) -> "Crew":
        """The same engine for another scorer."""
        return Crew(self.engine, make)


class Block(NamedTuple):
    """Texts to score together: their numbers and keys at the driver, and themselves."""

    numbers: Ints
    keys: list[str]
    texts: Texts


class Scored(NamedTuple):
    """A block's numbers, and of each text the score and the columns."""

    numbers: Ints
    values: Floats


class _JudgeBlock(NamedTuple):
    """Items to judge together."""

    prompts: list[Prompt]
    candidates: list[tuple[str, ...]]


Answers = dict[str, dict[str, str]]
"""Raw answers by the fingerprint of who gave them and the key of the question."""


def blocks(wanted: Ints, texts: Texts, keys: list[str]) -> list[Block]:
    """The wanted texts, in their order, in blocks that end where a prompt does."""
    first = np.unique(texts.rows, return_index=True)[1]
    return [
        Block(part, [keys[i] for i in part], texts.some(part, first)) for part in _cut(wanted, texts.groups[wanted])
    ]


def _judge_blocks(prompts: list[Prompt], candidates: list[tuple[str, ...]]) -> list[_JudgeBlock]:
    """All items, in their order, in blocks that end where a prompt does."""
    numbers: dict[str, int] = {}
    groups = np.array([numbers.setdefault(repr(prompt), len(numbers)) for prompt in prompts], np.intp)
    parts = _cut(np.arange(len(prompts)), groups)
    return [_JudgeBlock([prompts[i] for i in part], [candidates[i] for i in part]) for part in parts]


def _cut(wanted: Ints, groups: Ints) -> Iterator[Ints]:
    size = min(_MOST, max(_LEAST, len(wanted) // _PARTS))
    start = 0
    for stop in [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(wanted)]:
        if stop - start >= size or (stop == len(wanted) and stop > start):
            yield wanted[start:stop]
            start = stop


def reached(store: Store | None) -> str | None:
    """The store's address as workers in other folders reach it."""
    if store is None:
        return None
    return str(store) if store.folder is None else str(store.folder.absolute())


@contextmanager
def ask_on_cluster(
    crew: Crew | None,
    judge: Judge,
    prompts: Sequence[Prompt],
    candidates: Sequence[tuple[str, ...]],
    store: Store | None,
    progress: bool | None,
) -> Iterator[Store | None]:
    """A store that holds the judge's answers, asked for on the cluster, until the block ends; without crew, `store`."""
    if crew is None:
        yield store
        return
    from tqdm import tqdm

    with TemporaryDirectory() as place:
        kept = store or Store(place)
        parts = _judge_blocks(list(prompts), list(candidates))
        task = _JudgeTask(crew.make, reached(store))
        answers = crew.engine.map(task, parts, alone=guards.asks_a_server(judge))
        hidden = None if progress is None else not progress
        for said in tqdm(answers, total=len(parts), desc=line(judge.name), unit="block", disable=hidden):
            for fingerprint, found in said.items():
                with kept.answers(fingerprint, ANSWERS, only=()) as ledger:
                    ledger.append(list(found), list(found.values()))
        yield kept


@dataclass(frozen=True)
class _JudgeTask:
    """What a worker does for a judge: ask about a block of items. It travels to the workers.

    With a store the answers go there, and what it holds is not asked again; without one they are sent back.
    """

    make: Callable[[], AnyScorer]
    store: str | None

    def __call__(self) -> "Callable[[_JudgeBlock], Answers]":
        judge = self.make()
        assert guards.is_judge(judge)
        return partial(_asked, judge, self.store)


def _asked(judge: Judge, store: str | None, block: _JudgeBlock) -> Answers:
    if store is not None:
        judge.judge(block.prompts, block.candidates, store=Store(store), progress=False)
        return {}
    with TemporaryDirectory() as place:
        own = Store(place)
        judge.judge(block.prompts, block.candidates, store=own, progress=False)
        return {fingerprint: _answers(own, fingerprint) for fingerprint in own.holding(ANSWERS)}


def _answers(store: Store, fingerprint: str) -> dict[str, str]:
    with store.answers(fingerprint, ANSWERS) as ledger:
        return dict(ledger.refresh())
