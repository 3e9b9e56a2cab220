"""The walk of texts to their scores: read the store, check a few texts alone, score
and store the missing ones, count.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from rmlab.scorers.base import (
    UNPARSABLE,
    Ints,
    Provenance,
    Rows,
    Scorer,
    Text,
    check_rows,
    fill,
)
from rmlab.scorers.score_checks import apart, tolerance
from rmlab.scoring.texts import Texts
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.text import line, short
from rmlab.version import __version__

if TYPE_CHECKING:
    from rmlab.scoring.cluster import Ray

# Texts to score from which on a run is checked; six texts are then 2 % of the work.
LONG = 256
_TICK = 2.0  # seconds; a run that is shorter shows no bar in Jupyter
_MAX_REASONS = 3  # that a message shows


@dataclass(frozen=True)
class RunOptions:
    """How texts are scored.

    `engine`: the cluster that scores. `batch`: texts of a call of a function.
    """

    store: Store | None = None
    engine: "Ray | None" = None
    batch: int = 256
    allow_missing: bool = False
    progress: bool | None = None


@dataclass
class ModelScores:
    """Rows of all texts by one model, without hidden columns.

    `scored`: numbers of the texts that were scored now. `reasons`: why texts have no
    score, by their numbers.
    """

    rows: Rows
    scored: Ints
    reasons: dict[int, str] = field(default_factory=dict)
    self_check: Provenance = field(default_factory=dict)


def score_texts(
    scorer: Scorer, texts: Texts, options: RunOptions
) -> tuple[Rows, Provenance]:
    """Score distinct texts; where a score is a weighted sum of models, these take
    turns.

    Returns a row for each text (the score, then the scorer's columns; NaN where
    missing), and the provenance.
    """
    store = options.store
    start = time.perf_counter()
    n = len(texts.distinct)
    terms = scorer.terms or [(1.0, scorer)]
    models = [model for _, model in terms]
    if store is not None:
        _require_fingerprints(scorer, models)

    total: Rows = np.zeros((n, 1 + len(scorer.columns)))
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
        _require_scores(title, scores, texts, options)
        self_check |= scores.self_check
        total = total + weight * scores.rows if scorer.terms else scores.rows
        is_new[scores.scored] = True
        turns.append(
            {
                "name": model.name,
                "fingerprint": model.fingerprint,
                "scored": len(scores.scored),
                "missing": int(_is_missing(scores.rows).sum()),
            }
        )

    provenance = describe_scorer(scorer) | self_check
    # A scorer that had all the texts here, of which none was stored, has counted them.
    is_counted = options.engine is None and all(turn["scored"] == n for turn in turns)
    if not is_counted:
        provenance |= scorer.count_cut(texts.distinct)
    if store is not None:
        provenance["runs"] = _list_runs(models, turns, store, provenance)
    n_missing = int(_is_missing(total).sum())
    provenance |= _count_texts(start, n, int(is_new.sum()), n_missing)
    if scores.reasons:
        reasons = Counter(scores.reasons.values())
        provenance["unscored"] = dict(reasons.most_common(_MAX_REASONS))
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
    n = len(texts.distinct)
    rows = empty_rows(model, n)
    scores = ModelScores(rows, np.arange(n))
    if options.store is not None:
        _fill_stored(scores, model, texts, options.store)
    missing = scores.scored
    new_texts = [texts.distinct[i] for i in missing]
    try:
        if len(missing) >= LONG and needs_check:
            scores.self_check = check_company(scorer, new_texts)
        if new_texts:
            _fill_missing(scores, model, title, texts, options)
    finally:
        if model is not scorer:
            model.free_memory()
    return scores


def empty_rows(scorer: Scorer, n: int) -> Rows:
    """Rows of score and columns, without values."""
    kind = object if scorer.has_objects else float
    return np.full((n, 1 + len(scorer.columns)), np.nan, kind)


def _is_missing(rows: Rows) -> np.ndarray:
    return np.isnan(rows[:, 0].astype(np.float64))


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
        for name, value in run.items():
            if name != "name" and provenance.get(name) != value:
                fields[name] = value
        differing.append(fields)
    return differing


def _fill_stored(
    scores: ModelScores, model: Scorer, texts: Texts, store: Store
) -> None:
    """Fill in the rows of the texts whose scores are in the store."""
    fingerprint = str(model.fingerprint)
    stored = store.read(fingerprint, [text.key for text in texts.distinct])
    model.require_like(store.runs(fingerprint).values())
    is_stored = np.array([text.key in stored for text in texts.distinct], bool)
    numbers = np.flatnonzero(is_stored)
    stored_texts = [texts.distinct[number] for number in numbers]
    rows = []
    for text in stored_texts:
        value = stored[text.key]
        try:
            rows.append(_read_record(model, value))
        except (TypeError, ValueError, OverflowError):
            content = f"{short(value)}, no score of {model.name!r}"
            problem = f"store: {store}/{fingerprint} holds {content}"
            remedy = "change the scorer's fingerprint, or give store= a new folder"
            raise DataError(problem, remedy) from None
    restored = model.restore(stored_texts, rows)
    for number, row in zip(numbers, restored, strict=True):
        _set_row(scores, model, int(number), row)
    scores.scored = np.flatnonzero(~is_stored)


def _read_record(model: Scorer, value: Any) -> Rows:
    """The row of a text, as a store has it."""
    values = value if isinstance(value, list) else [value]
    row = np.empty(len(values), object if model.has_objects else float)
    row[:] = values
    if row[0] is None:
        row[0] = np.nan
    row[0] = float(row[0])
    if len(row) != 1 + len(model.columns) + len(model.hidden_columns):
        raise ValueError
    return row


def _set_row(scores: ModelScores, model: Scorer, number: int, row: Rows) -> None:
    """Fill in the row of a text, and the reason that it gives for a missing score."""
    n_columns = 1 + len(model.columns)
    scores.rows[number] = row[:n_columns]
    if "reason" in model.hidden_columns and np.isnan(row[0]):
        place = n_columns + model.hidden_columns.index("reason")
        scores.reasons[number] = str(row[place])


def _fill_missing(
    scores: ModelScores, model: Scorer, title: str, texts: Texts, options: RunOptions
) -> None:
    """Fill in the rows of the texts to score, as batches of their scores come."""
    missing = scores.scored
    new_texts = [texts.distinct[i] for i in missing]
    batches = score_batches(model, new_texts, options.store, title)
    n = len(scores.rows)
    # Left in its middle, a generator ends with what keeps it: what it has not written
    # yet would wait for the next error in Jupyter.
    show_progress = _open_bar(title, n, n - len(missing), options.progress)
    with closing(batches), show_progress as advance:
        for positions, rows in batches:
            for position, row in zip(positions, rows, strict=True):
                number = int(missing[position])
                _set_row(scores, model, number, row)
                if position in model.unscored:
                    scores.reasons[number] = model.unscored[position]
            advance(len(positions))
            numbers = missing[positions]
            values = rows[:, : 1 + len(model.columns)]
            _require_finite(title, numbers, values, scores, texts, options)


def _require_finite(
    title: str,
    numbers: Ints,
    values: Rows,
    scores: ModelScores,
    texts: Texts,
    options: RunOptions,
) -> None:
    """Raise DataError for infinite scores, and for missing ones that are not allowed
    and for which the scorer gives no reason.
    """
    if values.dtype == object:
        values = values[:, :1].astype(np.float64)
    is_bad = ~np.isfinite(values).all(axis=1)
    if not is_bad.any():
        return
    n_numbers = values.shape[1]
    scores.rows[numbers[is_bad], :n_numbers] = np.nan
    is_explained = all(int(number) in scores.reasons for number in numbers[is_bad])
    is_allowed = options.allow_missing or is_explained
    if is_allowed and not np.isinf(values).any():
        return

    first_row = values[is_bad][0]
    first = first_row[~np.isfinite(first_row)][0]
    count = f"{is_bad.sum()} of {len(values)} scores are not finite"
    first_text = texts.describe(numbers[is_bad][0])
    problem = f"scorer {title!r}: {count}, first {first} for {first_text}"
    remedy = "check the dtype (float16 overflows), or count NaN by allow_missing=True"
    raise DataError(problem, remedy)


def _require_scores(
    title: str, scores: ModelScores, texts: Texts, options: RunOptions
) -> None:
    """Raise DataError where the scorer says why texts have no score."""
    if options.allow_missing or not scores.reasons:
        return
    first_text = texts.describe(next(iter(scores.reasons)))
    reasons = Counter(scores.reasons.values())
    examples = []
    for reason in list(reasons)[:_MAX_REASONS]:
        examples.append(f"{reason} ({reasons[reason]})")
    count = f"no score for {len(scores.reasons)} of {len(scores.rows)} texts"
    first = f"first {first_text}: {'; '.join(examples)}"
    # Replies that nothing can read are in the store: a new run asks no more.
    words = set(scores.rows[list(scores.reasons), 1:2].ravel())
    again = "run again with the same store="
    other = "give another reader= for unparsable replies"
    ways = [again]
    if words == {UNPARSABLE}:
        ways = [other]
    elif UNPARSABLE in words:
        ways = [again, other]
    remedy = f"{', '.join(ways)}, or pass allow_missing=True"
    raise DataError(f"scorer {title!r}: {count}, {first}", remedy)


def score_batches(
    scorer: Scorer, texts: Sequence[Text], store: Store | None, title: str
) -> Generator[tuple[Ints, Rows], None, None]:
    """Yield positions in `texts`, and a row for each, once they are in the store. Each
    text comes once.
    """
    if scorer.writes_store:
        store = None
    fingerprint = str(scorer.fingerprint)
    is_waiting = np.ones(len(texts), bool)
    batches = scorer.stream(texts)
    try:
        for batch_positions, values in batches:
            positions = np.asarray(batch_positions, np.intp)
            rows = check_rows(values, len(positions), scorer, title)
            is_repeated = len(np.unique(positions)) < len(positions)
            if is_repeated or not is_waiting[positions].all():
                problem = f"scorer {title!r}: stream gave positions twice"
                raise DataError(problem, "yield each position once")

            if store is not None:
                if is_waiting.all():
                    run = {"name": scorer.name} | describe_scorer(scorer)
                    store.note(fingerprint, run)
                records = _make_records(scorer, texts, positions, rows)
                store.append(fingerprint, records)
            is_waiting[positions] = False
            yield positions, rows
    finally:
        # A server is asked no more.
        if isinstance(batches, Generator):
            batches.close()
        if store is not None:
            store.flush()

    if is_waiting.any():
        raise _no_scores(title, texts, is_waiting)


def _make_records(
    scorer: Scorer, texts: Sequence[Text], positions: Ints, rows: Rows
) -> dict[str, object]:
    """The rows that are stored, by key: numbers, or lists where the scorer has columns.

    These have a finite score, or a hidden value that tells why there is none.
    """
    if scorer.hidden_columns:
        hidden = rows[:, 1 + len(scorer.columns)]
        is_stored = np.array([value is not None for value in hidden], bool)
    else:
        numbers = rows[:, :1] if scorer.has_objects else rows
        is_finite = np.isfinite(numbers.astype(np.float64))
        is_stored = np.asarray(is_finite.all(axis=1))

    records: dict[str, object] = {}
    for position, row in zip(positions[is_stored], rows[is_stored], strict=True):
        values = row.tolist()
        if np.isnan(row[0]):
            values[0] = None
        records[texts[position].key] = values if len(values) > 1 else values[0]
    return records


def _no_scores(title: str, texts: Sequence[Text], is_waiting: np.ndarray) -> DataError:
    text = texts[int(is_waiting.argmax())]
    first = f"{text.answers[0][:60]!r} to {str(text.prompt)[:60]!r}"
    count = f"no score for {is_waiting.sum()} of {len(texts)} texts"
    return DataError(f"scorer {title!r}: {count}, first: {first}")


def describe_scorer(scorer: Scorer) -> Provenance:
    """The release, the class that scores, its fingerprint, and its own provenance."""
    code = type(scorer)
    identity: Provenance = {
        "rmlab": __version__,
        "scorer": f"{code.__module__}.{code.__qualname__}",
        "fingerprint": scorer.fingerprint,
    }
    return identity | scorer.provenance()


def check_company(scorer: Scorer, texts: Sequence[Text]) -> Provenance:
    """Score six texts alone and together.

    Returns how many texts they were and how far apart, in standard deviations, for the
    provenance; nothing for a scorer whose scores cannot depend on the batch. Raises
    DataError where the scores are further apart than number types explain.
    """
    n = len(texts)
    sample = [*texts[n // 4 :][:3], *texts[3 * n // 4 :][:3]]
    alone = scorer.score_alone(sample)
    if alone is None:
        return {}

    together = fill(scorer.stream(sample), len(sample))
    # A text without a score has none either way; the run counts or refuses it.
    is_scored = ~(np.isnan(alone) & np.isnan(together))
    difference = 0.0
    if is_scored.any():
        difference = apart(alone[is_scored], together[is_scored])

    dtype = str(scorer.provenance().get("dtype"))
    is_explained = difference <= 10 * tolerance(dtype)
    if not is_explained:
        gap = f"texts alone and together differ by {difference:.2g} standard deviations"
        remedy = (
            "ask rmlab.doctor, and score with dtype='float32' or a smaller "
            "max_batch_tokens="
        )
        raise DataError(f"scorer {scorer.name!r}: {gap}", remedy)
    return {"self_check": {"texts": len(sample), "apart": float(f"{difference:.2g}")}}


def _count_texts(
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
def _open_bar(
    title: str, total: int, initial: int, show: bool | None
) -> Iterator[Callable[[int], object]]:
    """A progress bar on stderr, as a function that takes how many texts were scored;
    `show`: None shows it on a terminal and in Jupyter only.

    Its clock goes on during a batch. TQDM_DISABLE=1 keeps it out of notebooks.
    """
    is_kernel = type(sys.stderr).__module__.startswith("ipykernel")
    is_live = sys.stderr.isatty() or is_kernel
    is_shown = show
    if show is None:
        is_shown = is_live and not os.environ.get("TQDM_DISABLE")
    if not is_shown:
        # A bar of tqdm, shown or not, takes a lock that forked processes share; one
        # that is killed with it stops all others for ever.
        yield lambda n_texts: None
        return

    from tqdm.auto import tqdm

    # Into a log few lines are written.
    interval = 0.2 if is_live else 10.0
    delay = _TICK if is_kernel else 0.0
    description = line(title)
    if initial:
        description += f", {initial} from the store"
    bar: tqdm[Never] = tqdm(
        desc=description,
        unit="text",
        total=total,
        initial=initial,
        mininterval=interval,
        delay=delay,
    )
    is_done = Event()

    def tick() -> None:
        while not is_done.wait(_TICK):
            bar.refresh()

    if is_live:
        Thread(target=tick, daemon=True).start()
    with bar:
        try:
            yield bar.update
        finally:
            is_done.set()
