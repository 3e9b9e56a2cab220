"""The walk of texts to their scores: read the store, check a few texts alone, score
and store the missing ones, count.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Never

import numpy as np

from rmlab.scorers.base import Floats, Ints, Provenance, Scorer
from rmlab.scoring.cluster import Ray, find_engine
from rmlab.scoring.self_check import check_company
from rmlab.scoring.streaming import describe_scorer, score_batches
from rmlab.scoring.texts import Texts
from rmlab.scoring.workers import spread_scorer
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.text import line, short

if TYPE_CHECKING:
    from tqdm import tqdm

# Texts to score from which on a run is checked; six texts are then 2 % of the work.
LONG = 256
_TICK = 2.0  # seconds; a run that is shorter shows no bar in Jupyter


@dataclass(frozen=True)
class RunOptions:
    """How texts are scored.

    `keeps_tables`: whether the store gets the finished tables, too. `engine`: who
    scores on a cluster. `batch`: texts of a call of a function.
    """

    store: Store | None = None
    keeps_tables: bool = True
    engine: Ray | None = None
    batch: int = 256
    allow_missing: bool = False
    progress: bool | None = None


def make_run_options(
    *,
    store: str | Path | None,
    cluster: str | Ray | None,
    batch: int,
    allow_missing: bool,
    progress: bool | None,
    keeps_tables: bool,
) -> RunOptions:
    """Options from what people give; DataError for what is not allowed."""
    if not isinstance(batch, int) or batch < 1:
        allowed = "give the number of texts of a call, 1 or more"
        raise DataError(f"batch: {batch!r} is not allowed", allowed)
    opened_store = None if store is None else Store(store)
    engine = find_engine(cluster) if isinstance(cluster, str) else cluster
    return RunOptions(
        store=opened_store,
        keeps_tables=keeps_tables,
        engine=engine,
        batch=batch,
        allow_missing=allow_missing,
        progress=progress,
    )


class ModelScores(NamedTuple):
    """A row of scores for each text, and the numbers of the texts that were scored
    now.
    """

    rows: Floats
    scored: Ints
    self_check: Provenance


def score_texts(
    scorer: Scorer, texts: Texts, options: RunOptions
) -> tuple[Floats, Provenance]:
    """Score distinct texts, here or on a cluster; where a score is a weighted sum of
    models, these take turns.

    Returns a row for each text (the score, then the scorer's columns; NaN where
    missing), and the provenance.
    """
    store = options.store
    if options.engine is not None and scorer.travels:
        scorer = spread_scorer(scorer, options.engine, store)

    start = time.perf_counter()
    n = len(texts.distinct)
    terms = scorer.terms or [(1.0, scorer)]
    models = [model for _, model in terms]
    if store is not None:
        _require_fingerprints(scorer, models)

    total = np.zeros((n, 1 + len(scorer.columns)))
    is_new = np.zeros(n, bool)
    self_check: Provenance = {}
    turns: list[Provenance] = []
    for number, (weight, model) in enumerate(terms, start=1):
        title = scorer.name
        if len(terms) > 1:
            title += f" (model {number} of {len(terms)})"
        scores = _score_model(
            scorer, model, title, texts, options, needs_check=not self_check
        )
        self_check |= scores.self_check
        total += weight * scores.rows
        is_new[scores.scored] = True
        turns.append(
            {
                "name": model.name,
                "fingerprint": model.fingerprint,
                "scored": len(scores.scored),
                "missing": int(np.isnan(scores.rows[:, 0]).sum()),
            }
        )

    provenance = describe_scorer(scorer) | self_check
    # A scorer that had all the texts here, of which none was stored, has counted them.
    is_counted = options.engine is None and all(turn["scored"] == n for turn in turns)
    if not is_counted:
        provenance |= scorer.count_cut(texts.distinct)
    if store is not None:
        provenance["runs"] = _list_runs(models, turns, store, provenance)
    n_missing = int(np.isnan(total[:, 0]).sum())
    provenance |= count_texts(start, n, int(is_new.sum()), n_missing)
    if len(terms) > 1:
        provenance["terms"] = turns
    return total, provenance


def _score_model(
    scorer: Scorer,
    model: Scorer,
    title: str,
    texts: Texts,
    options: RunOptions,
    *,
    needs_check: bool,
) -> ModelScores:
    """Scores of the texts by the scorer, or by one model of its sum: those in the store
    are read, the others computed.
    """
    rows = np.full((len(texts.distinct), 1 + len(model.columns)), np.nan)
    if options.store is not None:
        _fill_stored(rows, model, texts, options.store)
    missing = np.flatnonzero(np.isnan(rows[:, 0]))
    new_texts = [texts.distinct[i] for i in missing]

    self_check: Provenance = {}
    try:
        if len(missing) >= LONG and needs_check:
            self_check = check_company(scorer, new_texts)
        if new_texts:
            batches = score_batches(model, new_texts, options.store, title)
            _fill_missing(rows, missing, batches, model, title, texts, options)
    finally:
        if model is not scorer:
            model.free_memory()
    return ModelScores(rows, missing, self_check)


def _require_fingerprints(scorer: Scorer, models: Sequence[Scorer]) -> None:
    """Raise DataError for a scorer whose scores no store could find again."""
    if not all(model.fingerprint for model in models):
        problem = f"store: scorer {scorer.name!r} has no fingerprint"
        example = "scorer.fingerprint = 'my-judge-v1'"
        remedy = f"give it one that changes with it ({example}), or leave store= out"
        raise DataError(problem, remedy)


def _list_runs(
    models: Sequence[Scorer],
    turns: Sequence[Provenance],
    store: Store,
    provenance: Provenance,
) -> list[Provenance]:
    """Provenance of all runs that the scores are of, each model's last one this one; a
    run does not repeat what it shares with `provenance`.
    """
    runs: list[Provenance] = []
    for model, turn in zip(models, turns, strict=True):
        runs += store.runs(str(model.fingerprint)).values()
        if turn["scored"]:
            runs.append(describe_scorer(model) | {"scored": turn["scored"]})

    differing = []
    for run in runs:
        fields = {}
        for field, value in run.items():
            if field != "name" and provenance.get(field) != value:
                fields[field] = value
        differing.append(fields)
    return differing


def _fill_stored(rows: Floats, model: Scorer, texts: Texts, store: Store) -> None:
    """Fill in the rows of the texts whose scores are in the store."""
    fingerprint = str(model.fingerprint)
    stored = store.read(fingerprint, [text.key for text in texts.distinct])
    model.require_like(store.runs(fingerprint).values())
    for row, text in enumerate(texts.distinct):
        if text.key not in stored:
            continue
        value: Any = stored[text.key]  # as the file has it
        try:
            rows[row] = value
        except (TypeError, ValueError, OverflowError):
            content = f"{short(value)}, no score of {model.name!r}"
            problem = f"store: {store}/{fingerprint} holds {content}"
            remedy = "change the scorer's fingerprint, or give store= a new folder"
            raise DataError(problem, remedy) from None


def _fill_missing(
    rows: Floats,
    missing: Ints,
    batches: Iterator[tuple[Ints, Floats]],
    model: Scorer,
    title: str,
    texts: Texts,
    options: RunOptions,
) -> None:
    """Fill in the rows with the numbers `missing`, as batches of their scores come."""
    n_stored = len(rows) - len(missing)
    with open_bar(title, "text", len(rows), n_stored, options.progress) as bar:
        for positions, values in batches:
            numbers = missing[positions]
            is_bad = ~np.isfinite(values.sum(axis=1))
            rows[numbers] = np.where(is_bad[:, None], np.nan, values)
            bar.update(len(numbers))

            is_refused = not options.allow_missing or np.isinf(values).any()
            if is_bad.any() and is_refused:
                first_text = texts.describe(numbers[is_bad][0])
                reason = model.unscored.get(int(positions[is_bad][0]))
                if reason:
                    count = f"{len(model.unscored)} of {len(missing)} texts"
                    raise _not_scored(title, count, first_text, reason)
                raise _not_finite(title, values, is_bad, first_text)


def _not_scored(title: str, count: str, first_text: str, reason: str) -> DataError:
    first = f"first {first_text}: {reason}"
    problem = f"scorer {title!r}: no score for {count}, {first}"
    remedy = "mend what it names, or count them as missing by allow_missing=True"
    return DataError(problem, remedy)


def _not_finite(
    title: str, values: Floats, is_bad: np.ndarray, first_text: str
) -> DataError:
    first_row = values[is_bad][0]
    first = first_row[~np.isfinite(first_row)][0]
    count = f"{is_bad.sum()} of {len(values)} scores are not finite"
    problem = f"scorer {title!r}: {count}, first {first} for {first_text}"
    remedy = "check the dtype (float16 overflows), or count NaN by allow_missing=True"
    return DataError(problem, remedy)


def count_texts(
    start: float, n_texts: int, n_scored: int, n_missing: int
) -> Provenance:
    """When a run began (`start`: by the performance counter), how long it took, and its
    counts of texts.
    """
    seconds = time.perf_counter() - start
    began = datetime.fromtimestamp(time.time() - seconds, UTC)
    return {
        "started": began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "texts": n_texts,
        "scored": n_scored,
        "missing": n_missing,
    }


@contextmanager
def open_bar(
    title: str, unit: str, total: int, initial: int, show: bool | None
) -> Iterator["tqdm[Never]"]:
    """A progress bar on stderr; `show`: None shows it on a terminal and in Jupyter
    only.

    Its clock goes on during a batch. TQDM_DISABLE=1 keeps it out of notebooks.
    """
    from tqdm.auto import tqdm

    is_kernel = type(sys.stderr).__module__.startswith("ipykernel")
    is_live = sys.stderr.isatty() or is_kernel
    is_shown = show
    if show is None:
        is_shown = is_live and not os.environ.get("TQDM_DISABLE")

    # Into a log few lines are written.
    interval = 0.2 if is_live else 10.0
    delay = _TICK if is_kernel else 0.0
    description = line(title)
    if initial:
        description += f", {initial} from the store"
    bar: tqdm[Never] = tqdm(
        desc=description,
        unit=unit,
        total=total,
        initial=initial,
        disable=not is_shown,
        mininterval=interval,
        delay=delay,
    )
    is_done = Event()

    def tick() -> None:
        while not is_done.wait(_TICK):
            bar.refresh()

    if is_shown and is_live:
        Thread(target=tick, daemon=True).start()
    with bar:
        try:
            yield bar
        finally:
            is_done.set()
