"""A worker of a cluster: scores blocks of texts with one term of a scorer, and puts the scores into the store."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmlab.scorers import guards
from rmlab.scorers.protocol import AnyScorer
from rmlab.scoring.progress import Progress
from rmlab.scoring.self_check import SelfCheck
from rmlab.scoring.spread import Block, Scored
from rmlab.scoring.terms import Summand, about_term, leaders, source
from rmlab.scoring.work import Work, at_once, summary
from rmlab.store import Ledger, Store, column_key
from rmlab.tables import DataError

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """What the workers do. It travels to them; called there, it makes the scorer and gives the worker.

    `make`: gives the scorer. `prefers`: comparisons are asked of it. `term`: which summand of its score. `fingerprint`:
    the driver's of that term; `store`: a folder or URL that workers reach; neither, without a store.
    """

    name: str
    make: Callable[[], AnyScorer]
    prefers: bool
    term: int
    batch: int
    allow_missing: bool
    fingerprint: str | None
    store: str | None

    def __call__(self) -> "_Worker":
        """Make the scorer."""
        return _Worker(self, self.make())


class _Worker:
    """Scores one block after the other; its ledger is one writer, and a block one append."""

    def __init__(self, task: Task, scorer: AnyScorer) -> None:
        self.task, self.scorer = task, scorer
        self.ledger: Ledger[float] | None = None
        self.scored = 0

    def __call__(self, block: Block) -> Scored:
        work, term = self._work(block)
        known = at_once(work)
        names = work.columns
        values = np.array(
            [[known[key], *(known[column_key(key, name)] for name in names)] for key in block.keys], np.float64
        )
        self._keep({key: value for key, value in known.items() if np.isfinite(value)}, work, term)
        return Scored(block.numbers, values if names else values[:, 0])

    def _work(self, block: Block) -> tuple[Work, Summand]:
        task, texts = self.task, block.texts
        check = SelfCheck(task.name, np.zeros(len(texts)))
        call = self.scorer.prefer if task.prefers else self.scorer  # type: ignore[union-attr]
        keys, order, _, terms = source(task.name, self.scorer, call, texts, task.batch, check)  # type: ignore[arg-type]
        term = terms[task.term]
        found = guards.fingerprint_of(term.scorer)
        if keys != block.keys or found != task.fingerprint:
            what = "weights or settings" if keys == block.keys else "tokens"
            raise DataError(
                f"scorer {task.name!r}: a worker of the cluster has other {what} than the driver, so that its scores "
                "would be another model's; give all machines the same files and releases of rmlab, transformers and "
                "tokenizers"
            )
        shown = Progress(task.name, order, None, False, check.speed)
        says = about_term(term, check)
        columns = guards.columns_of(self.scorer)
        first = leaders(keys, order)
        return Work(
            task.name, term.name, texts, keys, first, term.stream, says, task.allow_missing, shown, columns
        ), term

    def _keep(self, records: dict[str, float], work: Work, term: Summand) -> None:
        """Put a block's records into the store before anybody is told of them."""
        self.scored += len(work.scored)
        if self.task.store is None or self.task.fingerprint is None:
            return
        if self.ledger is None:
            self.ledger = Store(self.task.store).ledger(self.task.fingerprint, only=())
        if records:
            self.ledger.append(list(records), list(records.values()))
        counts = summary(work.start, len(work.leaders), self.scored, 0)
        self.ledger.note({"name": work.label} | work.about() | counts)
