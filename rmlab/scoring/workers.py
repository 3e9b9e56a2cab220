"""Texts to score, or items to judge, spread over the workers of a cluster: blocks of
whole prompts, whose scores the workers put into the store.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from rmlab.scorers.base import (
    Floats,
    Ints,
    Judge,
    Judged,
    Provenance,
    Scorer,
    Stream,
    Text,
)
from rmlab.scoring.cluster import Ray
from rmlab.scoring.self_check import check_company
from rmlab.scoring.streaming import describe_scorer, score_batches
from rmlab.store import Store
from rmlab.tables import DataError

R = TypeVar("R")

# Texts of a block: at least, at most, and how many blocks there are where both allow
# it.
_SMALLEST = 32
_LARGEST = 1024
_N_BLOCKS = 64


class WorkBlock(NamedTuple):
    """Texts to score together, or items to judge, and the position of the first."""

    start: int
    texts: list[Text]


def cut_blocks(texts: Sequence[Text]) -> list[WorkBlock]:
    """Blocks of texts that end where a prompt does; neither tiny nor the whole."""
    size = min(_LARGEST, max(_SMALLEST, len(texts) // _N_BLOCKS))
    starts = [0]
    for i in range(1, len(texts)):
        is_full = i - starts[-1] >= size
        if is_full and texts[i].prompt != texts[i - 1].prompt:
            starts.append(i)
    bounds = pairwise([*starts, len(texts)])
    return [WorkBlock(start, list(texts[start:stop])) for start, stop in bounds]


def map_blocks(
    title: str, engine: Ray, work: Callable[[WorkBlock], R], texts: Sequence[Text]
) -> Iterator[R]:
    """Yield the results of blocks of texts; an error names who failed."""
    try:
        yield from engine.map(work, cut_blocks(texts))
    except DataError as error:
        if title in error.problem:
            raise
        raise DataError(f"{title}: {error.problem}", error.remedy) from error


class ClusterScorer(Scorer):
    """A scorer, or one model of its weighted sum, whose texts go to workers.

    `number`: 0 for the scorer, 1 and more for the models of its sum. `described`: the
    provenance on the workers.
    """

    writes_store = True

    def __init__(
        self,
        scorer: Scorer,
        number: int,
        engine: Ray,
        store: Store | None,
        described: Provenance,
    ) -> None:
        model = _list_models(scorer)[number]
        self.scorer = scorer
        self.engine = engine
        self.described = described
        self.name = model.name
        self.columns = model.columns
        self.fingerprint = str(described["fingerprint"] or "")
        self.work = partial(_score_block, scorer, number, self.fingerprint, store)

    def provenance(self) -> Provenance:
        """The provenance where the models run."""
        return self.described

    def count_cut(self, texts: Sequence[Text]) -> Provenance:
        """The count of the scorer, which needs no worker."""
        return self.scorer.count_cut(texts)

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions and scores as workers send them."""
        yield from map_blocks(f"scorer {self.name!r}", self.engine, self.work, texts)


def spread_scorer(scorer: Scorer, engine: Ray, store: Store | None) -> Scorer:
    """The scorer with its work on the cluster; one that is made anew there is described
    there.
    """
    describe = partial(_describe_models, scorer)
    if hasattr(scorer, "remake"):
        descriptions = next(engine.map(describe, [None]))
    else:
        descriptions = describe(None)

    total = ClusterScorer(scorer, 0, engine, store, descriptions[0])
    terms = []
    for number, (weight, _) in enumerate(scorer.terms, start=1):
        model = ClusterScorer(scorer, number, engine, store, descriptions[number])
        terms.append((weight, model))
    total.terms = terms
    return total


def _list_models(scorer: Scorer) -> list[Scorer]:
    """The scorer itself, then the models of its weighted sum."""
    return [scorer, *(model for _, model in scorer.terms)]


def _describe_models(scorer: Scorer, _: None) -> list[Provenance]:
    return [describe_scorer(model) for model in _list_models(scorer)]


def _score_block(
    scorer: Scorer, number: int, fingerprint: str, store: Store | None, block: WorkBlock
) -> tuple[Ints, Floats]:
    """On a worker: positions and scores of the texts by the scorer, or by one model of
    its sum.
    """
    model = _list_models(scorer)[number]
    if (model.fingerprint or "") != fingerprint:
        worker = "a worker of the cluster has other weights or settings than the driver"
        remedy = "give all machines the same files and releases"
        raise DataError(f"scorer {scorer.name!r}: {worker}", remedy)
    if block.start == 0 and len(block.texts) >= _SMALLEST:
        check_company(scorer, block.texts)

    batches = score_batches(model, block.texts, store, scorer.name)
    positions_of, rows_of = zip(*batches, strict=True)
    positions = np.concatenate(positions_of)
    rows = np.concatenate(rows_of)
    scores = rows if model.columns else rows[:, 0]
    return block.start + positions, scores


def judge_block(
    judge: Judge, store: Store | None, block: WorkBlock
) -> tuple[int, Judged]:
    """On a worker: the number of the block's first item, and the verdicts."""
    return block.start, judge.judge(block.texts, store=store, progress=False)
