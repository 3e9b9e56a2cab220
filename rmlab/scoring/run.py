"""The walk of texts to their scores: read the store, score what is missing, count."""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Never

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Floats, Provenance, Scorer, Text
from rmlab.scoring.batches import describe_scorer, store_batches
from rmlab.scoring.cluster import Engine, Spread, spread_scorer
from rmlab.scoring.self_check import LONG, check_company
from rmlab.scoring.texts import Texts
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.text import line

if TYPE_CHECKING:
    from tqdm import tqdm

LONG_SECONDS = 60.0
"""A run that will take longer says so before it starts."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """How texts are scored. `engine`: who scores on a cluster."""

    store: Store | None = None
    allow_missing: bool = False
    progress: bool | None = None
    engine: Engine | None = None


@dataclass
class Scored:
    """A row for each distinct text: the score, then the scorer's columns; NaN where missing.

    `new`, `missing`: numbers of the texts that this run scored, and of those without a score.
    """

    rows: Floats
    new: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    provenance: Provenance = field(default_factory=dict)


def score_texts(scorer: Scorer, texts: Texts, options: RunOptions) -> Scored:
    """Score distinct texts; where a score is a weighted sum of models, these take turns."""
    start, store = time.perf_counter(), options.store
    if options.engine is not None and scorer.travels:
        scorer = spread_scorer(scorer, options.engine, store)
    terms = scorer.terms or [(1.0, scorer)]
    if store is not None and not all(model.fingerprint for _, model in terms):
        raise DataError(
            f"store: scorer {scorer.name!r} has no fingerprint, so its stored scores could not be told from those of a "
            "changed version. Give it one (scorer.fingerprint = 'my-judge-v1'), or leave store= out."
        )
    total, turns, runs = Scored(np.zeros((len(texts.distinct), 1 + len(scorer.columns)))), [], []
    for number, (weight, model) in enumerate(terms, 1):
        title = scorer.name if len(terms) == 1 else f"{scorer.name} (model {number} of {len(terms)})"
        must_check = "self_check" not in total.provenance
        try:
            turn = _take_turn(scorer, model, title, texts, options, must_check)
        finally:
            if len(terms) > 1:
                model.free_memory()
        total.rows += weight * turn.rows
        total.new |= turn.new
        total.missing |= turn.missing
        total.provenance |= turn.provenance
        counts = {"scored": len(turn.new), "missing": len(turn.missing)}
        turns.append({"name": model.name, "fingerprint": model.fingerprint} | counts)
        if store is not None:
            runs += [*store.runs(str(model.fingerprint)).values()]
            runs += [describe_scorer(model) | {"scored": len(turn.new)}] if turn.new else []
    about = describe_scorer(scorer) | total.provenance
    if store is not None:
        # A run does not repeat what it shares with the provenance.
        about["runs"] = [{k: v for k, v in run.items() if k != "name" and about.get(k) != v} for run in runs]
    about |= count_texts(start, len(texts.distinct), len(total.new), len(total.missing))
    total.provenance = about | ({"terms": turns} if len(terms) > 1 else {})
    return total


def _take_turn(
    scorer: Scorer, model: Scorer, title: str, texts: Texts, options: RunOptions, must_check: bool
) -> Scored:
    """One model's scores: what the store has, and what the model gives of the rest."""
    distinct, store = texts.distinct, options.store
    stored = {} if store is None else store.read(str(model.fingerprint), [text.key for text in distinct])
    turn = Scored(_read_rows(model, distinct, stored))
    todo = np.array([number for number, text in enumerate(distinct) if text.key not in stored], np.intp)
    if not len(todo):
        return turn
    todo_texts = [distinct[number] for number in todo]
    check = check_company(scorer, todo_texts) if must_check and len(todo) >= LONG else None
    if check is not None:
        turn.provenance["self_check"] = check[0]
        announce(title, len(todo), check[1] * len(todo), options.progress)
    batches = model.stream(todo_texts)
    # The workers of a cluster have stores of their own.
    batches = store_batches(model, todo_texts, batches, None if isinstance(model, Spread) else store, scorer.name)
    with open_bar(title, "text", len(distinct), len(distinct) - len(todo), options.progress) as bar:
        for positions, rows in batches:
            numbers, is_bad = todo[positions], ~np.isfinite(rows.sum(axis=1))
            turn.rows[numbers] = np.where(is_bad[:, None], np.nan, rows)
            turn.new.update(numbers.tolist())
            turn.missing.update(numbers[is_bad].tolist())
            bar.update(len(numbers))
            if is_bad.any() and (not options.allow_missing or np.isinf(rows).any()):
                _refuse_missing(scorer.name, [texts.describe(i) for i in numbers[is_bad][:3]], rows, is_bad)
    return turn


def _read_rows(model: Scorer, texts: Sequence[Text], stored: dict[str, object]) -> Floats:
    """A row for each text; NaN where the store has none."""
    width = 1 + len(model.columns)
    empty = [np.nan] * width if model.columns else np.nan
    try:
        return np.array([stored.get(text.key, empty) for text in texts], np.float64).reshape(len(texts), width)
    except (ValueError, TypeError):
        raise DataError(
            f"store: the fingerprint {model.fingerprint} of scorer {model.name!r} holds other values than its scores. "
            "Give store= another folder."
        ) from None


def _refuse_missing(name: str, rows_without: list[str], rows: Floats, is_bad: NDArray[np.bool_]) -> None:
    first = rows[is_bad][0][~np.isfinite(rows[is_bad][0])][0]
    raise DataError(
        f"scorer {name!r}: {is_bad.sum()} of {len(rows)} scores are not finite, first {first} for: "
        f"{'; '.join(rows_without)}. Look at these texts and the dtype (float16 overflows), or pass allow_missing=True "
        "to count NaN as missing."
    )


def open_bar(title: str, unit: str, total: int, initial: int, show: bool | None) -> "tqdm[Never]":
    """A progress bar on stderr; `show`: None shows it on a terminal only."""
    from tqdm import tqdm

    return tqdm(
        total=total,
        initial=initial,
        desc=line(title),
        unit=unit,
        disable=None if show is None else not show,
        mininterval=0.2 if sys.stderr.isatty() else 10.0,
        file=sys.stderr,
    )


def announce(title: str, n_texts: int, seconds: float, show: bool | None) -> None:
    """Say how long a run will take, if that is long."""
    if seconds > LONG_SECONDS and show is not False:
        hours = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
        _log.warning("%s: %s texts to go, about %s (measured on a few texts)", line(title), f"{n_texts:,}", hours)


def count_texts(start: float, n_texts: int, n_scored: int, n_missing: int) -> Provenance:
    """When a run began (`start`: by the performance counter), how long it took, and its counts of texts."""
    seconds = time.perf_counter() - start
    began = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="seconds")
    counts = {"texts": n_texts, "scored": n_scored, "missing": n_missing}
    return {"started": began, "seconds": round(seconds, 3)} | counts
