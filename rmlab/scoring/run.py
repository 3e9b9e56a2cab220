"""The walk of texts to their scores: read the store, check a few texts alone, score
what is missing, keep, count.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from rmlab.scorers.base import (
    Floats,
    Ints,
    Judge,
    Provenance,
    Scorer,
    Text,
    check_rows,
    fill,
)
from rmlab.scoring.texts import Texts
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.text import line, short
from rmlab.version import __version__

if TYPE_CHECKING:
    from tqdm import tqdm

    from rmlab.scoring.cluster import Ray

# Texts to score from which on a run is checked; six texts are then 2 % of the work.
LONG = 256
_TICK = 2.0  # seconds; a run that is shorter shows no bar in Jupyter


@dataclass(frozen=True)
class RunOptions:
    """How texts are scored. `engine`: who scores on a cluster. `batch`: texts of a call
    of a function.
    """

    store: Store | None = None
    engine: "Ray | None" = None
    batch: int = 256
    allow_missing: bool = False
    progress: bool | None = None


def score_texts(
    scorer: Scorer, texts: Texts, options: RunOptions
) -> tuple[Floats, Provenance]:
    """Score distinct texts; where a score is a weighted sum of models, these take
    turns.

    Returns a row for each text (the score, then the scorer's columns; NaN where
    missing), and the provenance.
    """
    start, store, n = time.perf_counter(), options.store, len(texts.distinct)
    count_cut = scorer.count_cut
    if options.engine is not None and scorer.travels:
        from rmlab.scoring.cluster import spread_scorer

        scorer = spread_scorer(scorer, options.engine, store)
    terms = scorer.terms or [(1.0, scorer)]
    if store is not None and not all(model.fingerprint for _, model in terms):
        remedy = "Give it one that changes with it (scorer.fingerprint = 'my-judge-v1'), or leave store= out."
        raise DataError(f"store: scorer {scorer.name!r} has no fingerprint. {remedy}")
    total, is_new = np.zeros((n, 1 + len(scorer.columns))), np.zeros(n, bool)
    self_check: Provenance = {}
    turns, runs = [], []
    for number, (weight, model) in enumerate(terms, 1):
        title = (
            scorer.name
            if len(terms) == 1
            else f"{scorer.name} (model {number} of {len(terms)})"
        )
        rows = np.full((n, 1 + len(model.columns)), np.nan)
        if store is not None:
            _fill_from_store(rows, model, texts, store)
        todo = np.flatnonzero(np.isnan(rows[:, 0]))
        try:
            if len(todo) >= LONG and not self_check:
                self_check = check_company(scorer, [texts.distinct[i] for i in todo])
            if len(todo):
                _score_missing(model, title, texts, rows, todo, options)
        finally:
            if len(terms) > 1:
                model.free_memory()
        total += weight * rows
        is_new[todo] = True
        counts = {"scored": len(todo), "missing": int(np.isnan(rows[:, 0]).sum())}
        turns.append({"name": model.name, "fingerprint": model.fingerprint} | counts)
        if store is not None:
            runs += [*store.runs(str(model.fingerprint)).values()]
            runs += (
                [describe_scorer(model) | {"scored": len(todo)}] if len(todo) else []
            )
    provenance = describe_scorer(scorer) | self_check | count_cut(texts.distinct)
    if store is not None:
        # A run does not repeat what it shares with the provenance.
        provenance["runs"] = [
            {k: v for k, v in run.items() if k != "name" and provenance.get(k) != v}
            for run in runs
        ]
    provenance |= count_texts(
        start, n, int(is_new.sum()), int(np.isnan(total[:, 0]).sum())
    )
    return total, provenance | ({"terms": turns} if len(terms) > 1 else {})


def _fill_from_store(rows: Floats, model: Scorer, texts: Texts, store: Store) -> None:
    """Fill in the rows of the texts whose scores are in the store."""
    fingerprint = str(model.fingerprint)
    stored = store.read(fingerprint, [text.key for text in texts.distinct])
    model.require_like(store.runs(fingerprint).values())
    if not stored:
        return

    for row, text in enumerate(texts.distinct):
        value: Any = stored.get(text.key, np.nan)  # as the file has it
        try:
            rows[row] = value
        except (TypeError, ValueError, OverflowError):
            held = f"{short(value)}, no score of {model.name!r}"
            problem = f"store: {store}/{fingerprint} holds {held}"
            remedy = "Change the scorer's fingerprint, or give store= a new folder"
            raise DataError(f"{problem}. {remedy}.") from None


def _score_missing(
    model: Scorer,
    title: str,
    texts: Texts,
    rows: Floats,
    todo: Ints,
    options: RunOptions,
) -> None:
    """Fill in the rows of the texts with the numbers `todo`."""
    batches = score_batches(
        model, [texts.distinct[i] for i in todo], options.store, title
    )
    with open_bar(
        title, "text", len(rows), len(rows) - len(todo), options.progress
    ) as bar:
        for positions, values in batches:
            numbers, is_bad = todo[positions], ~np.isfinite(values.sum(axis=1))
            rows[numbers] = np.where(is_bad[:, None], np.nan, values)
            bar.update(len(numbers))
            if is_bad.any() and (not options.allow_missing or np.isinf(values).any()):
                first = values[is_bad][0][~np.isfinite(values[is_bad][0])][0]
                where = f"first {first} for {texts.describe(numbers[is_bad][0])}"
                message = f"scorer {title!r}: {is_bad.sum()} of {len(values)} scores are not finite, {where}"
                raise DataError(
                    f"{message}. Check the dtype (float16 overflows), or count NaN by allow_missing=True."
                )


def score_batches(
    scorer: Scorer, texts: Sequence[Text], store: Store | None, title: str
) -> Iterator[tuple[Ints, Floats]]:
    """Yield positions in `texts`, and a row for each, once they are in the store. Each
    text comes once.
    """
    is_waiting = np.ones(len(texts), bool)
    fingerprint, store = str(scorer.fingerprint), None if scorer.writes_store else store
    try:
        for batch_positions, values in scorer.stream(texts):
            positions = np.asarray(batch_positions, np.intp)
            rows = check_rows(values, len(positions), scorer.columns, title)
            if not is_waiting[positions].all() or len(np.unique(positions)) != len(
                positions
            ):
                raise DataError(
                    f"scorer {title!r}: stream gave positions twice that were to come once"
                )
            if store is not None:
                if is_waiting.all():
                    store.note(
                        fingerprint, {"name": scorer.name} | describe_scorer(scorer)
                    )
                finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
                records = (rows if scorer.columns else rows[:, 0])[finite].tolist()
                store.append(
                    fingerprint,
                    {
                        texts[p].key: record
                        for p, record in zip(positions[finite], records, strict=True)
                    },
                )
            is_waiting[positions] = False
            yield positions, rows
    except DataError:
        if store is not None and len(scorer.withdrawn):
            store.withdraw(
                fingerprint, {texts[position].key for position in scorer.withdrawn}
            )
        raise
    finally:
        if store is not None:
            store.flush()
    if is_waiting.any():
        text = texts[int(is_waiting.argmax())]
        first = f"{text.answers[0][:60]!r} to {str(text.prompt)[:60]!r}"
        raise DataError(
            f"scorer {title!r}: no score for {is_waiting.sum()} of {len(texts)} texts, first: {first}"
        )


def describe_scorer(scorer: Scorer | Judge) -> Provenance:
    """The release, the class that scores, its fingerprint, and what it says of itself."""
    code = type(scorer)
    identity: Provenance = {
        "rmlab": __version__,
        "scorer": f"{code.__module__}.{code.__qualname__}",
    }
    return identity | {"fingerprint": scorer.fingerprint} | scorer.provenance()


def count_texts(
    start: float, n_texts: int, n_scored: int, n_missing: int
) -> Provenance:
    """When a run began (`start`: by the performance counter), how long it took, and its
    counts of texts.
    """
    seconds = time.perf_counter() - start
    began = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(
        timespec="seconds"
    )
    counts = {"texts": n_texts, "scored": n_scored, "missing": n_missing}
    return {"started": began, "seconds": round(seconds, 3)} | counts


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
    is_shown = is_live and not os.environ.get("TQDM_DISABLE") if show is None else show
    bar: tqdm[Never] = tqdm(
        desc=line(title) + (f", {initial} from the store" if initial else ""),
        unit=unit,
        total=total,
        initial=initial,
        disable=not is_shown,
        mininterval=0.2 if is_live else 10.0,
        delay=_TICK if is_kernel else 0,
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


def check_company(scorer: Scorer, texts: Sequence[Text]) -> Provenance:
    """Score six texts alone and together.

    Returns how many texts they were and how far apart, in standard deviations, for the
    provenance; nothing for a scorer in which company cannot matter. Raises DataError
    where the scores are further apart than number types explain.
    """
    n = len(texts)
    sample = [texts[start + i] for start in (n // 4, 3 * n // 4) for i in range(3)]
    alone = scorer.score_alone(sample)
    if alone is None:
        return {}
    together = fill(scorer.stream(sample), len(sample))
    # A text without a score has none either way; the run counts or refuses it.
    is_scored = ~(np.isnan(alone) & np.isnan(together))
    difference = (
        apart(alone[is_scored], together[is_scored]) if is_scored.any() else 0.0
    )
    if not difference <= 10 * tolerance(str(scorer.provenance().get("dtype"))):
        message = f"scorer {scorer.name!r}: texts alone and together differ by {difference:.2g} standard deviations"
        raise DataError(
            f"{message}. Ask rmlab.doctor, and score with dtype='float32' or a smaller budget=."
        )
    return {"self_check": {"texts": len(sample), "apart": float(f"{difference:.2g}")}}


def apart(left: Floats, right: Floats) -> float:
    """The largest difference of two scorings of the same texts, in standard deviations
    of the first.

    >>> apart(np.array([0.0, 2.0]), np.array([0.0, 2.1])).__round__(6)
    0.1
    """
    # Scores that hardly vary are compared by their size: their own spread may be
    # rounding.
    scale = max(float(np.std(left)), 1e-3 * float(np.abs(left).max()), 1e-12)
    return float(np.abs(left - right).max()) / scale


def tolerance(dtype: str | None) -> float:
    """How far apart, in standard deviations, is explained by a number type, such as
    "bfloat16".
    """
    return 1e-4 if dtype == "float32" else 0.1
