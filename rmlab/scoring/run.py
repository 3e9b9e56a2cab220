"""The walk of texts to their scores: read the store, stream what is missing, keep each batch as it comes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.baselines import Baseline
from rmlab.records import __version__
from rmlab.scorers import guards
from rmlab.scorers.protocol import AnyScorer
from rmlab.scorers.types import Provenance
from rmlab.scoring.progress import announce, open_bar
from rmlab.scoring.self_check import LONG, SelfCheck
from rmlab.scoring.texts import Texts
from rmlab.scoring.turn import Turn, Value, prepare
from rmlab.scoring.workers import Workers, identify
from rmlab.store import Store
from rmlab.tables import DataError

__all__ = ["RunOptions", "Scored", "count_texts", "score_texts"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RunOptions:
    """How texts are scored. `batch`: texts of a call of a function; `workers`: who scores on a cluster."""

    store: Store | None = None
    batch: int = 256
    allow_missing: bool = False
    progress: bool | None = None
    workers: Workers | None = None


class Scored(NamedTuple):
    """Of each distinct text its score and the scorer's columns, NaN where missing; and the provenance."""

    scores: Floats
    columns: dict[str, Floats]
    provenance: Provenance


def score_texts(name: str, scorer: AnyScorer, texts: Texts, options: RunOptions) -> Scored:
    """Score distinct texts; where a score is a weighted sum of models, these take turns."""
    start = time.perf_counter()
    if isinstance(scorer, Baseline):  # costs missing_row: it is computed anew, and here
        options = RunOptions(allow_missing=options.allow_missing, progress=options.progress)
    batch = options.batch if options.store is not None else max(len(texts), 1)
    prepared = prepare(name, scorer, texts, batch)
    identity = identify(scorer) if options.workers is None else options.workers.identify(name, scorer)
    if options.store is not None and not all(identity.fingerprints):
        raise DataError(
            f"store: scorer {name!r} has no fingerprint, so its stored scores could not be told from those of a "
            "changed version. Give it one (scorer.fingerprint = 'my-judge-v1'), or leave store= out."
        )
    columns = guards.columns_of(scorer)
    total, check = np.zeros((len(texts), 1 + len(columns))), SelfCheck(name, np.zeros(len(texts)))
    turns, runs = [], []
    for number, (weight, model) in enumerate(prepared.terms):
        turn = Turn(name, model, prepared, columns, options.allow_missing, number, identity.fingerprints[number])
        check.stored = options.store is not None and number > 0
        try:
            values = _take_turn(turn, weight, check, options)
        finally:
            if len(prepared.terms) > 1:
                model.leave()
        total += weight * _rows(values, turn)
        check.before[:] = total[:, 0]
        turns.append(turn)
        if options.store is not None:
            runs += [*options.store.runs(turn.fingerprint).values()]
            runs += [turn.describe() | {"scored": len(turn.scored)}] if turn.scored else []
    provenance = {"rmlab": __version__} | guards.provenance_of(scorer) | check.provenance()
    provenance |= identity.provenance if options.workers is not None else {}
    if options.store is not None:
        # What a run shares with the provenance is not said again.
        runs = [{k: value for k, value in run.items() if k != "name" and provenance.get(k) != value} for run in runs]
    provenance |= _count(start, turns) | ({"runs": runs} if options.store is not None else {})
    return Scored(total[:, 0], {column: total[:, 1 + place] for place, column in enumerate(columns)}, provenance)


def _take_turn(turn: Turn, weight: float, check: SelfCheck, options: RunOptions) -> Mapping[str, object]:
    """Score of each key: what the store has, and what the model gives of the rest."""
    prepared, store, workers = turn.prepared, options.store, options.workers
    values = {} if store is None else store.read(turn.fingerprint, prepared.keys)
    todo = prepared.first_numbers(values)
    if not todo.size:
        return values
    tokens = guards.tokens_of(prepared.content)
    sizes = np.ones(len(prepared.texts), np.intp) if tokens is None else tokens
    texts = prepared.first_numbers({})
    left, total = int(sizes[todo].sum()), int(sizes[texts].sum())
    unit = "text" if tokens is None else "token"
    with open_bar(turn.title, unit, total, total - left, options.progress) as bar:
        batches = turn.stream(todo) if workers is None else workers.stream(turn, todo, store)
        if workers is None:
            if len(todo) >= LONG and guards.is_checkable(turn.model):
                check(turn.model, prepared.content, todo, weight)
                if tokens is not None and check.speed and options.progress is not False:
                    announce(turn.title, len(texts), left, check.speed)
            if store is not None:
                store.note(turn.fingerprint, turn.describe())
        try:
            for numbers, rows in turn.check_batches(batches, todo):
                records = turn.records(numbers, rows)
                if store is not None and workers is None:
                    store.append(turn.fingerprint, records)
                values |= records
                bar.update(int(sizes[numbers].sum()))
                turn.refuse_missing(numbers, rows)
        finally:
            if store is not None:
                store.flush()
    return values


def _rows(values: Mapping[str, object], turn: Turn) -> Floats:
    """A row for each text, the score and then the columns; NaN where there is none."""
    width = 1 + len(turn.columns)
    missing_row: Value = [np.nan] * width if turn.columns else np.nan
    try:
        rows = np.array([values.get(key, missing_row) for key in turn.prepared.keys], np.float64)
        return rows.reshape(len(turn.prepared.keys), width)
    except (ValueError, TypeError):
        raise DataError(
            f"store: the fingerprint {turn.fingerprint} of scorer {turn.name!r} holds other values than its scores. "
            "Give store= another folder."
        ) from None


def count_texts(start: float, texts: int, scored: int, missing: int) -> Provenance:
    """When a run began (`start`: by the performance counter), how long it took, and its counts of texts."""
    seconds = time.perf_counter() - start
    began = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="seconds")
    return {"started": began, "seconds": round(seconds, 3), "texts": texts, "scored": scored, "missing": missing}


def _count(start: float, turns: list[Turn]) -> Provenance:
    """Counts of texts, and of each model where several make the score: a text is scored if any model scored it."""
    scored = set().union(*(turn.scored for turn in turns))
    missing = set().union(*(turn.missing for turn in turns))
    counts = count_texts(start, len(set(turns[0].prepared.keys)), len(scored), len(missing))
    if len(turns) > 1:
        counts["terms"] = [
            {
                "name": turn.model.name,
                "fingerprint": turn.fingerprint,
                "scored": len(turn.scored),
                "missing": len(turn.missing),
            }
            for turn in turns
        ]
    return counts
