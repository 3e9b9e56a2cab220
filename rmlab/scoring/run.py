"""The walk of texts to their scores: read the store, check a few texts alone, score
and store the missing ones, count.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

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
from rmlab.scoring.cluster import Ray, WorkBlock, cut_blocks
from rmlab.scoring.stores import list_values
from rmlab.scoring.texts import Texts
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.text import line, short
from rmlab.version import __version__

# Texts to score from which on a run is checked; six texts are then 2 % of the work.
LONG = 256
_BAR_DELAY = 2.0  # seconds; a run that is shorter shows no bar in Jupyter
_MAX_REASONS = 3  # that a message shows

# Positions of texts, their rows, and the reasons for missing scores by position.
Batch = tuple[Ints, Rows, Mapping[int, str]]
Counts = dict[str, Any]
"""Numbers, Counters and lists, which add up over the parts of a run."""


@dataclass(frozen=True)
class RunOptions:
    """How texts are scored.

    `engine`: the cluster that scores. `batch`: texts of a call of a function.
    """

    store: Store | None = None
    engine: Ray | None = None
    batch: int = 256
    allow_missing: bool = False
    progress: bool | None = None


def score_texts(
    scorer: Scorer, texts: Texts, options: RunOptions
) -> tuple[Rows, Provenance, Counts]:
    """Score distinct texts; where a score is a weighted sum of models, these take
    turns.

    Returns a row for each text (the score, then the scorer's columns; NaN where
    missing), the provenance, and the counts of the run.
    """
    start = time.perf_counter()
    engine = options.engine if scorer.travels else None
    fingerprints: list[object] = [model.fingerprint for model in list_models(scorer)]
    descriptions: list[Provenance] = []
    if engine is not None and hasattr(scorer, "remake"):
        # It is made anew on a worker, with the number type of its device.
        descriptions = next(engine.map(partial(_describe_models, scorer), [None]))
        fingerprints = [described["fingerprint"] for described in descriptions]

    runs: list[_ModelRun] = []
    self_check: Provenance = {}
    for number in range(1, len(scorer.terms) + 1) or [0]:
        run = _ModelRun(scorer, number, fingerprints[number], texts, options)
        runs.append(run)
        if options.store is not None:
            run.read_store(options.store)
        self_check |= run.score_missing(engine, needs_check=not self_check)

    rows = runs[-1].rows
    if scorer.terms:
        weighted = [
            w * run.rows for (w, _), run in zip(scorer.terms, runs, strict=True)
        ]
        rows = np.sum(weighted, axis=0)
    # By now a model here knows what it found.
    provenance = descriptions[0] if descriptions else describe_scorer(scorer)
    provenance |= self_check
    # A scorer that had all the texts here, of which none was stored, has counted them.
    if engine is not None or not all(run.is_new.all() for run in runs):
        provenance |= scorer.count_cut(texts.distinct)
    if scorer.terms:
        provenance["terms"] = [run.summary for run in runs]

    seconds = time.perf_counter() - start
    began = datetime.fromtimestamp(time.time() - seconds, UTC)
    provenance["started"] = began.isoformat(timespec="seconds")
    counts: Counts = {
        "seconds": seconds,
        "texts": len(texts.distinct),
        "scored": int(np.any([run.is_new for run in runs], axis=0).sum()),
        "missing": _count_missing(rows),
    }
    for run in runs:
        if options.store is not None:
            counts.setdefault("runs", []).extend(run.list_writers(options.store))
        add_counts(counts, run.counts)
        reasons = Counter(run.reasons.values()).most_common(_MAX_REASONS)
        add_counts(counts, {"unscored": Counter(dict(reasons))})
    return rows, provenance, counts


def add_counts(counts: Counts, more: Mapping[str, Any]) -> None:
    """Add the counts of another part of a run."""
    for name, value in more.items():
        if name in counts:
            counts[name] = counts[name] + value
        else:
            counts[name] = value


class _ModelRun:
    """Scores of texts by one model: those in the store are read, the others computed.

    `number`: 0 for the scorer, 1 and more for the models of its sum. `rows`: the values
    without hidden columns. `is_new`: whether each text is scored now. `reasons`: why
    texts have no score, by their numbers.
    """

    def __init__(
        self,
        scorer: Scorer,
        number: int,
        fingerprint: object,
        texts: Texts,
        options: RunOptions,
    ) -> None:
        self.scorer = scorer
        self.number = number
        self.model = list_models(scorer)[number]
        self.fingerprint = fingerprint
        self.texts = texts
        self.options = options
        self.title = scorer.name
        n = len(texts.distinct)
        self.rows = empty_rows(self.model, n)
        self.is_new = np.ones(n, bool)
        self.reasons: dict[int, str] = {}
        self.counts: Counts = {}

    @property
    def summary(self) -> Provenance:
        """The model with its counts of texts."""
        return {
            "name": self.model.name,
            "fingerprint": self.fingerprint,
            "scored": int(self.is_new.sum()),
            "missing": _count_missing(self.rows),
        }

    def list_writers(self, store: Store) -> list[Provenance]:
        """The runs that wrote the scores, this one last."""
        writers: list[Provenance] = [*store.runs(str(self.fingerprint)).values()]
        if self.is_new.any():
            writers.append({"scored": int(self.is_new.sum())})
        return writers

    def read_store(self, store: Store) -> None:
        """Fill in the rows of the texts whose scores are in the store."""
        if not self.fingerprint:
            problem = f"store: scorer {self.scorer.name!r} has no fingerprint"
            example = "scorer.fingerprint = 'my-judge-v1'"
            remedy = f"give it one that changes with it ({example}), or no store="
            raise DataError(problem, remedy)
        fingerprint = str(self.fingerprint)
        keys = [text.key for text in self.texts.distinct]
        stored = store.read(fingerprint, keys)
        self.model.require_like(store.runs(fingerprint).values())

        numbers = [i for i, key in enumerate(keys) if key in stored]
        try:
            rows = _read_records(self.model, [stored[keys[i]] for i in numbers])
        except (TypeError, ValueError) as error:
            content = f"no scores of {self.model.name!r} ({error})"
            problem = f"store: {store}/{fingerprint} holds {content}"
            remedy = "change the scorer's fingerprint, or give store= a new folder"
            raise DataError(problem, remedy) from None
        stored_texts = [self.texts.distinct[number] for number in numbers]
        restored = self.model.restore(stored_texts, rows)
        if numbers:
            self.is_new[numbers] = False
            reasons = self.model.unscored
            self._set_rows(np.array(numbers), np.array(restored, object), reasons)

    def score_missing(self, engine: Ray | None, *, needs_check: bool) -> Provenance:
        """Fill in the other rows as batches of their scores come, and return the
        self-check; DataError for texts without a score, unless these are allowed.
        """
        numbers = np.flatnonzero(self.is_new)
        new_texts = [self.texts.distinct[i] for i in numbers]
        needs_check = needs_check and len(new_texts) >= LONG
        self_check: Provenance = {}
        try:
            if needs_check and engine is None:
                self_check = check_company(self.scorer, new_texts)
            if new_texts:
                self._fill_rows(numbers, self._stream(new_texts, engine, needs_check))
        finally:
            if self.number:
                self.model.free_memory()
        if engine is None or not new_texts:
            self.counts = dict(self.model.counts)
        if self.reasons and not self.options.allow_missing:
            raise self._refusal()
        return self_check

    def _fill_rows(self, numbers: Ints, batches: Generator[Batch, None, None]) -> None:
        """Fill in the rows of the texts of these numbers, as batches of them come."""
        n_stored = len(self.rows) - len(numbers)
        bar = _open_bar(self.title, len(self.rows), n_stored, self.options.progress)
        # Left in its middle, a generator ends with what keeps it: what it has not
        # written yet would wait for the next error in Jupyter.
        with closing(batches), bar as advance:
            for positions, rows, unscored in batches:
                reasons = {}
                for i, position in enumerate(positions):
                    if position in unscored:
                        reasons[i] = unscored[position]
                self._set_rows(numbers[positions], rows, reasons)
                advance(len(positions))

    def _stream(
        self, texts: Sequence[Text], engine: Ray | None, needs_check: bool
    ) -> Generator[Batch, None, None]:
        """Batches of `texts` with their rows, from here or from the workers."""
        store = self.options.store
        if engine is None:
            for positions, rows in score_batches(self.model, texts, store, self.title):
                yield positions, rows, self.model.unscored
            return
        work = partial(
            _score_block, self.scorer, self.number, self.fingerprint, store, needs_check
        )
        try:
            for batch, counts in engine.map(work, cut_blocks(texts)):
                add_counts(self.counts, counts)
                yield batch
        except DataError as error:
            if repr(self.scorer.name) in error.problem:
                raise
            problem = f"scorer {self.title!r}: {error.problem}"
            raise DataError(problem, error.remedy) from error

    def _set_rows(self, numbers: Ints, rows: Rows, reasons: Mapping[int, str]) -> None:
        """Fill in the rows of texts by their numbers. DataError for a score that is
        not finite and has no reason, by its place in `rows`, unless it is allowed.
        """
        n_numbers = _count_numbers(self.model)
        self.rows[numbers] = rows[:, : self.rows.shape[1]]
        values = rows[:, :n_numbers].astype(np.float64)
        for i in np.flatnonzero(~np.isfinite(values).all(axis=1)).tolist():
            number = int(numbers[i])
            self.rows[number, :n_numbers] = np.nan
            is_infinite = np.isinf(values[i]).any()
            if i in reasons:
                self.reasons[number] = reasons[i]
            elif is_infinite or not self.options.allow_missing:
                bad = "infinite" if is_infinite else "nan"
                text = self.texts.describe(number)
                problem = f"scorer {self.title!r}: the score of {text} is {bad}"
                remedy = "check the dtype (float16 overflows), or count NaN"
                raise DataError(problem, f"{remedy} by allow_missing=True")

    def _refusal(self) -> DataError:
        """The error of texts without a score, with the first reasons."""
        first_text = self.texts.describe(next(iter(self.reasons)))
        examples = []
        for reason, n in list(Counter(self.reasons.values()).items())[:_MAX_REASONS]:
            examples.append(f"{reason} ({n})")
        count = f"no score for {len(self.reasons)} of {len(self.rows)} texts"
        first = f"first {first_text}: {'; '.join(examples)}"
        remedy = "run again with the same store=, or pass allow_missing=True"
        if UNPARSABLE in self.rows[list(self.reasons), 1:2]:
            remedy = f"give another reader= for unparsable replies, {remedy}"
        return DataError(f"scorer {self.title!r}: {count}, {first}", remedy)


def list_models(scorer: Scorer) -> list[Scorer]:
    """The scorer itself, then the models of its weighted sum."""
    return [scorer, *(model for _, model in scorer.terms)]


def describe_scorer(scorer: Scorer) -> Provenance:
    """The release, the class that scores, its fingerprint, and its own provenance."""
    code = type(scorer)
    identity: Provenance = {
        "rmlab": __version__,
        "scorer": f"{code.__module__}.{code.__qualname__}",
        "fingerprint": scorer.fingerprint,
    }
    return identity | scorer.provenance()


def _describe_models(scorer: Scorer, _: None) -> list[Provenance]:
    return [describe_scorer(model) for model in list_models(scorer)]


def empty_rows(scorer: Scorer, n: int) -> Rows:
    """Rows of score and columns, without values."""
    rows: Rows = np.full((n, 1 + len(scorer.columns)), np.nan)
    return rows.astype(object) if scorer.has_objects else rows


def _count_numbers(scorer: Scorer) -> int:
    """How many values of a row are numbers: of one with objects the score."""
    return 1 if scorer.has_objects else 1 + len(scorer.columns)


def _count_missing(rows: Rows) -> int:
    return int(np.isnan(rows[:, 0].astype(np.float64)).sum())


def _read_records(model: Scorer, records: Iterable[Any]) -> list[Rows]:
    """The rows of texts, as a store has them."""
    n_values = 1 + len(model.columns) + len(model.hidden_columns)
    all_values = []
    for record in records:
        values = list_values(record)
        if len(values) != n_values:
            raise ValueError(short(record))
        all_values.append(values)
    if not model.has_objects:
        return list(np.array(all_values, np.float64))

    rows: list[Rows] = []
    for values in all_values:
        row = np.empty(n_values, object)
        row[:] = values
        row[0] = np.float64(row[0])
        rows.append(row)
    return rows


def _make_records(
    scorer: Scorer, texts: Sequence[Text], positions: Ints, rows: Rows
) -> dict[str, object]:
    """The stored values of texts by their keys: a score, or a list where the scorer has
    columns. A score that is not finite is left out, unless a hidden value tells why
    there is none.
    """
    if scorer.hidden_columns:
        first_hidden = rows[:, 1 + len(scorer.columns)]
        is_stored = np.array([value is not None for value in first_hidden])
    else:
        numbers = rows[:, : _count_numbers(scorer)].astype(np.float64)
        is_stored = np.isfinite(numbers.sum(axis=1))

    records: dict[str, object] = {}
    stored_rows = rows[is_stored].tolist()
    for position, values in zip(positions[is_stored], stored_rows, strict=True):
        if np.isnan(values[0]):
            values[0] = None
        records[texts[position].key] = values if len(values) > 1 else values[0]
    return records


def score_batches(
    scorer: Scorer, texts: Sequence[Text], store: Store | None, title: str
) -> Generator[tuple[Ints, Rows], None, None]:
    """Yield positions in `texts`, and a row for each, once they are in the store. Each
    text comes once.
    """
    fingerprint = str(scorer.fingerprint)
    n_rows = np.zeros(len(texts), int)
    batches = scorer.stream(texts)
    try:
        for batch_positions, values in batches:
            positions = np.asarray(batch_positions, np.intp)
            rows = check_rows(values, len(positions), scorer, title)
            if store is not None:
                if not n_rows.any():
                    run = {"name": scorer.name} | describe_scorer(scorer)
                    store.note(fingerprint, run)
                store.append(fingerprint, _make_records(scorer, texts, positions, rows))
            np.add.at(n_rows, positions, 1)
            yield positions, rows
    finally:
        # A server is asked no more.
        if isinstance(batches, Generator):
            batches.close()
        if store is not None:
            store.flush()

    wrong = np.flatnonzero(n_rows != 1)
    if len(wrong):
        text = texts[wrong[0]]
        first = f"{text.answers[0][:60]!r} to {str(text.prompt)[:60]!r}"
        count = f"not one score for {len(wrong)} of {len(texts)} texts"
        raise DataError(f"scorer {title!r}: {count}, first: {first}")


def _score_block(
    scorer: Scorer,
    number: int,
    fingerprint: object,
    store: Store | None,
    needs_check: bool,
    block: WorkBlock,
) -> tuple[Batch, Counts]:
    """On a worker: the texts' rows by the scorer, or by one model of its sum, and what
    it counted.
    """
    model = list_models(scorer)[number]
    if model.fingerprint != fingerprint:
        worker = "a worker of the cluster has other weights or settings than the driver"
        remedy = "give all machines the same files and releases"
        raise DataError(f"scorer {scorer.name!r}: {worker}", remedy)
    if needs_check and block.start == 0:
        check_company(scorer, block.texts)

    batches = score_batches(model, block.texts, store, scorer.name)
    positions_of, rows_of = zip(*batches, strict=True)
    positions = block.start + np.concatenate(positions_of)
    reasons = {block.start + i: reason for i, reason in model.unscored.items()}
    return (positions, np.concatenate(rows_of), reasons), dict(model.counts)


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


@contextmanager
def _open_bar(
    title: str, total: int, initial: int, show: bool | None
) -> Iterator[Callable[[int], object]]:
    """A progress bar on stderr, as a function that takes how many texts were scored;
    `show`: None shows it on a terminal and in Jupyter only, and TQDM_DISABLE=1 keeps it
    out of notebooks.
    """
    is_kernel = type(sys.stderr).__module__.startswith("ipykernel")
    is_live = sys.stderr.isatty() or is_kernel
    if show is None:
        show = is_live and not os.environ.get("TQDM_DISABLE")
    if not show:
        # A bar of tqdm, shown or not, takes a lock that forked processes share; one
        # that is killed with it stops all others for ever.
        yield lambda n_texts: None
        return

    from tqdm.auto import tqdm

    with tqdm(
        desc=line(title),
        unit="text",
        total=total,
        initial=initial,
        # Into a log few lines are written.
        mininterval=0.2 if is_live else 10.0,
        delay=_BAR_DELAY if is_kernel else 0.0,
    ) as bar:
        yield bar.update
