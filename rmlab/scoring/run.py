"""One scorer over distinct texts: in memory, or with a ledger that remembers every batch."""

import time
from collections.abc import Callable, Iterator
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from rmlab.baselines import Baseline
from rmlab.scorers import guards
from rmlab.scorers.protocol import AnyScorer
from rmlab.scorers.types import Provenance
from rmlab.scoring.distinct_texts import Texts
from rmlab.scoring.progress import Progress
from rmlab.scoring.self_check import SelfCheck
from rmlab.scoring.spread import Crew, Scored, blocks, reached, sent
from rmlab.scoring.terms import Call, Summand, about_term, checked, leaders, source
from rmlab.scoring.terms import about as about_scorer
from rmlab.scoring.work import Numbers, Stream, Work, at_once, gather, resume, summary
from rmlab.scoring.worker import Task
from rmlab.store import Ledger, Store, column_key
from rmlab.tables import DataError

__all__ = ["Call", "How", "run"]

Floats = NDArray[np.float64]
_Notes = list[dict[str, object]]


class How(TypedDict):
    """How `run` goes about it: where scores are kept, how many texts a call gets, and what is shown."""

    store: Store | None
    batch: int
    allow_missing: bool
    progress: bool | None
    crew: Crew | None


def run(
    name: str,
    scorer: AnyScorer,
    call: Call | None,
    texts: Texts,
    *,
    store: Store | None,
    batch: int,
    allow_missing: bool,
    progress: bool | None,
    crew: Crew | None = None,
) -> tuple[Floats, dict[str, Floats], Provenance]:
    """Of each distinct text the score and the scorer's columns (NaN where missing and allowed), and the provenance.

    A streaming scorer is streamed, the several terms of a `SumScorer` one after the other, each over all texts and into
    a ledger of its own. `call` is how any other is asked: with the prompts, and one list of answers or two. A `crew`
    scores on a cluster; here the texts are only prepared.
    """
    start = time.perf_counter()
    # Baselines cost nothing: they are computed anew.
    stored = store is not None and not isinstance(scorer, Baseline)
    crew = None if isinstance(scorer, Baseline) else crew
    if stored:
        _check_storable(name, scorer)
    total = np.zeros(len(texts))
    check = SelfCheck(name, total)
    keys, order, tokens, terms = source(name, scorer, call, texts, batch if stored else max(len(texts), 1), check)
    first = leaders(keys, order)
    names = guards.columns_of(scorer)
    columns: dict[str, Floats] = {}
    works, runs, others = [], [], []
    for number, term in enumerate(terms):
        check.stored = stored and number > 0
        title = name if len(terms) == 1 else f"{name} (model {number + 1} of {len(terms)})"
        with Progress(title, first, tokens, progress, check.speed) as shown:
            says = about_term(term, check)
            work = Work(name, term.name, texts, keys, first, term.stream, says, allow_missing, shown, names)
            kept = store if stored else None
            if crew is not None:
                print_ = guards.fingerprint_of(term.scorer)
                prefers = guards.is_pairwise(scorer)
                task = Task(name, crew.make, prefers, number, batch, allow_missing, print_, reached(kept))
                work.stream = _on_cluster(crew, task, work)
            known, earlier, foreign = _score(work, term, kept, gather if crew is not None else resume)
        total += term.weight * np.array([known.get(key, np.nan) for key in keys], np.float64)
        for column in names:
            columns[column] = np.array([known.get(column_key(key, column), np.nan) for key in keys], np.float64)
        works.append(work)
        runs += earlier
        others += foreign
    about = about_scorer(scorer) | checked(check)
    before = {"runs": [_what_differs(run, about) for run in runs]} if stored else {}
    before |= {"by_others": others} if others else {}
    return total, columns, about | _counts(start, works) | before


def _on_cluster(crew: Crew, task: Task, work: Work) -> Stream:
    """The texts' scores as workers send them."""

    def stream(wanted: Numbers) -> Iterator[Scored]:
        return sent(crew, f"scorer {task.name!r}", task, blocks(wanted, work.texts, work.keys))

    return stream


def _score(
    work: Work, term: Summand, store: Store | None, through: Callable[[Work, Ledger[float]], dict[str, float]]
) -> tuple[dict[str, float], _Notes, _Notes]:
    """Score of each key, what was noted of this and earlier runs, and whose other ledgers were believed.

    Frees the model's memory afterwards.
    """
    try:
        if store is None:
            return at_once(work), [], []
        with store.ledger(str(guards.fingerprint_of(term.scorer)), only=work.keys) as ledger:
            return through(work, ledger), ledger.runs(), ledger.others()
    finally:
        term.leave()


def _check_storable(name: str, scorer: AnyScorer) -> None:
    if guards.fingerprint_of(scorer) is None:
        raise DataError(
            f"store: scorer {name!r} has no fingerprint, so its stored scores could not be told from those of a "
            "changed version; give it one (scorer.fingerprint = 'my-judge-v1'), or leave store= out"
        )


def _counts(start: float, works: list[Work]) -> dict[str, object]:
    """Counts of texts over all terms, and of each where there are several: a text is scored if any term was."""
    scored, missing = (
        set().union(*sets) for sets in zip(*((work.scored, work.missing) for work in works), strict=True)
    )
    counts = summary(start, len(works[0].leaders), len(scored), len(missing))
    if len(works) > 1:
        counts["terms"] = [
            {"name": work.label, "fingerprint": work.about()["fingerprint"]}
            | {"scored": len(work.scored), "missing": len(work.missing)}
            for work in works
        ]
    return counts


def _what_differs(run: dict[str, object], about: dict[str, object]) -> dict[str, object]:
    """One earlier run, without what is said already."""
    return {key: value for key, value in run.items() if key != "name" and about.get(key) != value}
