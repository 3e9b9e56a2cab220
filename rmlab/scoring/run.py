"""The walk of texts to their scores: read the store, check a few texts alone, score
and store the missing ones, count.
"""

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
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
    descriptions: list[Provenance] = []
    if engine is not None:
        descriptions = _describe_on_cluster(scorer, engine)

    runs: list[_ModelRun] = []
    self_check: Provenance = {}
    for number in range(1, len(scorer.terms) + 1) or [0]:
        run = _ModelRun(scorer, number, texts, options)
        if engine is not None:
            run.fingerprint = descriptions[number]["fingerprint"]
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
    if engine is None:
        # By now the models know what they found.
        descriptions = _describe_models(scorer, None)
    provenance = descriptions[0] | self_check
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
        self, scorer: Scorer, number: int, texts: Texts, options: RunOptions
    ) -> None:
        self.scorer = scorer
        self.number = number
        self.model = list_models(scorer)[number]
        self.fingerprint: object = self.model.fingerprint
        self.texts = texts
        self.options = options
        self.title = scorer.name
        if number:
            self.title += f" (model {number} of {len(scorer.terms)})"
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
            remedy = (
                f"give it one that changes with it ({example}), or leave store= out"
            )
            raise DataError(problem, remedy)
        fingerprint = str(self.fingerprint)
        keys = [text.key for text in self.texts.distinct]
        stored = store.read(fingerprint, keys)
        self.model.require_like(store.runs(fingerprint).values())

        numbers = [i for i, key in enumerate(keys) if key in stored]
        rows = []
        for number in numbers:
            value = stored[keys[number]]
            try:
                rows.append(_read_record(self.model, value))
            except (TypeError, ValueError, OverflowError):
                content = f"{short(value)}, no score of {self.model.name!r}"
                problem = f"store: {store}/{fingerprint} holds {content}"
                remedy = "change the scorer's fingerprint, or give store= a new folder"
                raise DataError(problem, remedy) from None
        stored_texts = [self.texts.distinct[number] for number in numbers]
        restored = self.model.restore(stored_texts, rows)
        if numbers:
            self.is_new[numbers] = False
            self._set_rows(np.array(numbers), np.array(restored, object))

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

    def _fill_rows(
        self, numbers: Ints, batches: Generator[tuple[Ints, Rows], None, None]
    ) -> None:
        """Fill in the rows of the texts of these numbers, as batches of them come."""
        n = len(self.rows)
        show_progress = _open_bar(
            self.title, n, n - len(numbers), self.options.progress
        )
        # Left in its middle, a generator ends with what keeps it: what it has not
        # written yet would wait for the next error in Jupyter.
        with closing(batches), show_progress as advance:
            for positions, rows in batches:
                unscored = self.model.unscored
                reasons = {numbers[i]: unscored[i] for i in positions if i in unscored}
                self._set_rows(numbers[positions], rows, reasons)
                advance(len(positions))

    def _stream(
        self, texts: Sequence[Text], engine: Ray | None, needs_check: bool
    ) -> Generator[tuple[Ints, Rows], None, None]:
        """Positions in `texts` and their rows, from here or from the workers."""
        store = self.options.store
        if engine is None:
            yield from score_batches(self.model, texts, store, self.title)
            return
        work = partial(
            _score_block, self.scorer, self.number, self.fingerprint, store, needs_check
        )
        try:
            for positions, rows, counts in engine.map(work, cut_blocks(texts)):
                add_counts(self.counts, counts)
                yield positions, rows
        except DataError as error:
            if repr(self.scorer.name) in error.problem:
                raise
            problem = f"scorer {self.title!r}: {error.problem}"
            raise DataError(problem, error.remedy) from error

    def _set_rows(
        self,
        numbers: Ints,
        rows: Rows,
        reasons: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Fill in the rows of texts by their numbers, and the reasons for missing
        scores; DataError for one that is not finite without a reason, unless it is
        allowed.
        """
        n_columns = 1 + len(self.model.columns)
        n_numbers = _count_numbers(self.model)
        self.rows[numbers] = rows[:, :n_columns]
        values = rows[:, :n_numbers].astype(np.float64)
        for i in np.flatnonzero(~np.isfinite(values).all(axis=1)):
            number = int(numbers[i])
            self.rows[number, :n_numbers] = np.nan
            reason = reasons.get(number, "")
            if "reason" in self.model.hidden_columns:
                place = n_columns + self.model.hidden_columns.index("reason")
                reason = str(rows[i, place])
            bad = values[i][~np.isfinite(values[i])][0]
            if reason:
                self.reasons[number] = reason
            elif np.isinf(bad) or not self.options.allow_missing:
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
        # Replies that nothing can read are in the store: a new run asks no more.
        words = set(self.rows[list(self.reasons), 1:2].ravel())
        ways = []
        if words != {UNPARSABLE}:
            ways.append("run again with the same store=")
        if UNPARSABLE in words:
            ways.append("give another reader= for unparsable replies")
        remedy = f"{', '.join(ways)}, or pass allow_missing=True"
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


def _describe_on_cluster(scorer: Scorer, engine: Ray) -> list[Provenance]:
    """Descriptions of the models; one that is made anew on a worker, with the number
    type of its device, is described there.
    """
    if not hasattr(scorer, "remake"):
        return _describe_models(scorer, None)
    return next(engine.map(partial(_describe_models, scorer), [None]))


def empty_rows(scorer: Scorer, n: int) -> Rows:
    """Rows of score and columns, without values."""
    rows: Rows = np.full((n, 1 + len(scorer.columns)), np.nan)
    return rows.astype(object) if scorer.has_objects else rows


def _count_numbers(scorer: Scorer) -> int:
    """How many values of a row are numbers: of one with objects the score."""
    return 1 if scorer.has_objects else 1 + len(scorer.columns)


def _count_missing(rows: Rows) -> int:
    return int(np.isnan(rows[:, 0].astype(np.float64)).sum())


def _read_record(model: Scorer, value: Any) -> Rows:
    """The row of a text, as a store has it."""
    values = list_values(value)
    if len(values) != 1 + len(model.columns) + len(model.hidden_columns):
        raise ValueError
    row = np.empty(len(values), object)
    row[:] = values
    if row[0] is None:
        row[0] = np.nan
    n_numbers = _count_numbers(model)
    row[:n_numbers] = row[:n_numbers].astype(float)
    return row


def _make_record(scorer: Scorer, row: Rows) -> object:
    """The stored value of a text: its score, or a list where the scorer has columns.

    None for a score that is not finite, unless a hidden value tells why there is none.
    """
    values: list[Any] = row.tolist()
    if scorer.hidden_columns:
        is_stored = values[1 + len(scorer.columns)] is not None
        if math.isnan(values[0]):
            values[0] = None
    else:
        is_stored = all(map(math.isfinite, values[: _count_numbers(scorer)]))
    if not is_stored:
        return None
    return values if len(values) > 1 else values[0]


def score_batches(
    scorer: Scorer, texts: Sequence[Text], store: Store | None, title: str
) -> Generator[tuple[Ints, Rows], None, None]:
    """Yield positions in `texts`, and a row for each, once they are in the store. Each
    text comes once.
    """
    fingerprint = str(scorer.fingerprint)
    is_waiting = np.ones(len(texts), bool)
    n_given = 0
    batches = scorer.stream(texts)
    try:
        for batch_positions, values in batches:
            positions = np.asarray(batch_positions, np.intp)
            rows = check_rows(values, len(positions), scorer, title)
            if store is not None and not n_given:
                store.note(fingerprint, {"name": scorer.name} | describe_scorer(scorer))
            n_given += len(positions)
            is_waiting[positions] = False
            if n_given + is_waiting.sum() > len(texts):
                problem = f"scorer {title!r}: stream gave positions twice"
                raise DataError(problem, "yield each position once")

            if store is not None:
                records = {}
                for position, row in zip(positions, rows, strict=True):
                    record = _make_record(scorer, row)
                    if record is not None:
                        records[texts[position].key] = record
                store.append(fingerprint, records)
            yield positions, rows
    finally:
        # A server is asked no more.
        if isinstance(batches, Generator):
            batches.close()
        if store is not None:
            store.flush()

    if is_waiting.any():
        text = texts[int(is_waiting.argmax())]
        first = f"{text.answers[0][:60]!r} to {str(text.prompt)[:60]!r}"
        count = f"no score for {is_waiting.sum()} of {len(texts)} texts"
        raise DataError(f"scorer {title!r}: {count}, first: {first}")


def _score_block(
    scorer: Scorer,
    number: int,
    fingerprint: object,
    store: Store | None,
    needs_check: bool,
    block: WorkBlock,
) -> tuple[Ints, Rows, Counts]:
    """On a worker: positions and rows of the texts by the scorer, or by one model of
    its sum, and what it counted.
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
    return positions, np.concatenate(rows_of), dict(model.counts)


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

    description = line(title)
    if initial:
        description += f", {initial} from the store"
    # Into a log few lines are written.
    interval = 10.0
    if is_live:
        interval = 0.2
    with tqdm(
        desc=description,
        unit="text",
        total=total,
        initial=initial,
        mininterval=interval,
        delay=_BAR_DELAY if is_kernel else 0.0,
    ) as bar:
        yield bar.update
