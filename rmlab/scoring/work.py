"""What a scorer has to do: each distinct text once, batch by batch, in memory or with a ledger that remembers."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmlab.scoring.distinct_texts import Texts
from rmlab.scoring.progress import Progress
from rmlab.store import Ledger, column_key
from rmlab.tables import DataError

__all__ = ["SPAN", "Numbers", "Stream", "Work", "at_once", "gather", "resume", "summary"]

Numbers = NDArray[np.intp]
Floats = NDArray[np.float64]
Stream = Callable[[Numbers], Iterable[tuple[ArrayLike, ArrayLike]]]

# Seconds without a new score from anybody after which texts that another process claimed are scored here, too.
PATIENCE = 600.0
# Texts that one process claims at a time when it shares a store: at least, and how many claims there are at most.
SPAN = 512
_SPANS = 64
# Seconds after which is looked whether workers' scores are in the store.
_SEEN = 20.0


@dataclass
class Work:
    """What is to be scored. `leaders`: texts to score, one per key. `label`: the scorer's name in the store.

    `columns`: what the stream gives of each text behind its score. `scored`: numbers of the texts that were scored
    here. `missing`: keys of those without a score.
    """

    name: str
    label: str
    texts: Texts
    keys: list[str]
    leaders: Numbers
    stream: Stream
    about: Callable[[], dict[str, object]]
    allow_missing: bool
    progress: Progress
    columns: Sequence[str] = ()
    start: float = field(default_factory=time.perf_counter)
    missing: set[str] = field(default_factory=set)
    scored: set[int] = field(default_factory=set)


def at_once(work: Work) -> dict[str, float]:
    """Score of each key, without a store."""
    known: dict[str, float] = {}
    for numbers, values in _batches(work, work.leaders):
        _refuse_missing(work, numbers, values)
        known.update(_records(work, numbers, values))
    return known


def resume(work: Work, ledger: Ledger[float]) -> dict[str, float]:
    """Score what the ledger does not know, span by span; wait for spans that another process is scoring.

    A process that is stopped keeps its claims. After `PATIENCE` seconds without a new score from anybody, its texts are
    scored here, too: two scores of one text do no harm, because the ledger that sorts first is believed.
    """
    ledger.refresh()
    pause, last = 0.02, time.monotonic()
    spans = _spans(work)
    # Processes that cannot claim begin at different places, so that they meet late.
    first = ledger.place.turn % max(len(spans), 1)
    while True:
        before = _unknown(work, ledger, work.leaders).size
        if not before:
            return ledger.values
        for span in spans[first:] + spans[:first]:
            if not _unknown(work, ledger, span).size:
                continue
            with ledger.claim([work.keys[i] for i in span]) as mine:
                if mine or time.monotonic() - last > PATIENCE:
                    if not mine:
                        _warn_of_stopped(work, ledger)
                    ledger.refresh()
                    _score_span(work, ledger, _unknown(work, ledger, span))
                    last = time.monotonic()
        ledger.refresh()
        after = _unknown(work, ledger, work.leaders).size
        if after:
            last = time.monotonic() if after < before else last
            pause = 0.02 if after < before else min(2 * pause, 1.0)
            work.progress.wait()
            time.sleep(pause)


def gather(work: Work, ledger: Ledger[float]) -> dict[str, float]:
    """Score what the ledger does not know in one stream, of workers that keep their scores by themselves.

    What they could not keep where this ledger finds it, as on machines that do not share the folder, is kept here.
    """
    ledger.refresh()
    wanted = _unknown(work, ledger, work.leaders)
    work.progress.resume(np.setdiff1d(work.leaders, wanted), ours=False)
    if not wanted.size:
        return ledger.values
    late: dict[str, float] = {}
    seen = time.monotonic()
    try:
        for numbers, values in _batches(work, wanted):
            found = np.isfinite(values).all(axis=1)
            late |= _records(work, numbers[found], values[found])
            if time.monotonic() - seen > _SEEN:
                late, seen = _settle(ledger, late), time.monotonic()
            _refuse_missing(work, numbers, values)
    finally:
        _settle(ledger, late)
        ledger.note(_note(work))
    return ledger.values


def _settle(ledger: Ledger[float], late: dict[str, float]) -> dict[str, float]:
    """Keep what workers sent and the ledger does not know; nothing is late then."""
    known = ledger.refresh() if late else {}
    rest = {key: value for key, value in late.items() if key not in known}
    if rest:
        ledger.append(list(rest), list(rest.values()))
    return {}


def summary(start: float, texts: int, scored: int, missing: int) -> dict[str, object]:
    """When a run began (`start`: by the performance counter), how long it took, and its counts of texts."""
    seconds = time.perf_counter() - start
    began = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="seconds")
    return {"started": began, "seconds": round(seconds, 3), "texts": texts, "scored": scored, "missing": missing}


def _warn_of_stopped(work: Work, ledger: Ledger[float]) -> None:
    writers = ", ".join(name.removesuffix(".scores") for name in ledger.place.names(".scores")) or "no scores so far"
    warnings.warn(
        f"scorer {work.name!r}: another process holds texts in {ledger.place.where} and has written no score for "
        f"{PATIENCE:.0f} seconds; it may be stopped. They are scored here as well. Writers (time-host-process): "
        f"{writers}",
        stacklevel=4,
    )


def _note(work: Work) -> dict[str, object]:
    counts = len(work.leaders), len(work.scored), len(work.missing)
    return {"name": work.label} | work.about() | summary(work.start, *counts)


def _score_span(work: Work, ledger: Ledger[float], wanted: Numbers) -> None:
    if not wanted.size:
        return
    left = set(_unknown(work, ledger, work.leaders).tolist())
    work.progress.resume([text for text in work.leaders.tolist() if text not in left], ours=bool(work.scored))
    if not work.scored:
        ledger.note(_note(work) | {"seconds": None})
    written = time.monotonic()
    try:
        for numbers, values in _batches(work, wanted):
            found = np.isfinite(values).all(axis=1)
            records = _records(work, numbers[found], values[found])
            due = time.monotonic() - written >= ledger.place.every
            ledger.append(list(records), list(records.values()), wait=due)
            written = time.monotonic() if due else written
            _refuse_missing(work, numbers, values)
    finally:  # an interrupted run has scored what it has scored
        ledger.note(_note(work))


def _spans(work: Work) -> list[Numbers]:
    """The texts in runs of at least SPAN, cut where the prompt changes: every process cuts alike."""
    size = max(SPAN, -(-len(work.leaders) // _SPANS))
    group = work.texts.groups[work.leaders]
    cuts, last = [], 0
    for i in np.flatnonzero(np.diff(group)) + 1:
        if i - last >= size:
            cuts.append(last := int(i))
    return [span for span in np.split(work.leaders, cuts) if span.size]


def _unknown(work: Work, ledger: Ledger[float], span: Numbers) -> Numbers:
    known, missing = ledger.values, work.missing
    return np.array([i for i in span.tolist() if work.keys[i] not in known and work.keys[i] not in missing], np.intp)


def _batches(work: Work, wanted: Numbers) -> Iterator[tuple[Numbers, Floats]]:
    """The stream's batches, checked: every wanted text once; a row for each, the score and then the columns."""
    waiting = np.zeros(len(work.texts), bool)
    waiting[wanted] = True
    if not wanted.size:
        return
    batches = work.stream(wanted)
    work.progress.announce()
    for numbers, values in batches:
        texts = np.asarray(numbers, np.intp)
        floats = _floats(work, values, len(texts))
        if not waiting[texts].all() or len(np.unique(texts)) != len(texts):
            raise DataError(f"scorer {work.name!r}: stream gave texts that were not asked for, or gave them twice")
        waiting[texts] = False
        work.scored.update(texts.tolist())
        work.progress.add(texts)
        yield texts, floats
    if waiting.any():
        first = work.texts.name(int(waiting.argmax()))
        raise DataError(f"scorer {work.name!r}: no score for {waiting.sum()} of {len(wanted)} texts, first: {first}")


def _floats(work: Work, values: ArrayLike, n: int) -> Floats:
    found = np.asarray(values)
    shape = (n, 1 + len(work.columns)) if work.columns else (n,)
    if found.shape != shape:
        each = f"the score and {', '.join(work.columns)}" if work.columns else "one number"
        raise DataError(
            f"scorer {work.name!r}: returned shape {found.shape} for {n} texts; allowed: {each} per text, shape {shape}"
        )
    if found.dtype.kind not in "biuf":
        raise DataError(
            f"scorer {work.name!r}: returned {found.dtype} values, first {found.flat[0]!r:.80}; allowed: numbers "
            "(float('nan') where there is no score)"
        )
    return found.astype(np.float64).reshape(n, -1)


def _records(work: Work, numbers: Numbers, values: Floats) -> dict[str, float]:
    """What is kept of each text, by key; the score comes last, so that a text whose score is there is whole."""
    records: dict[str, float] = {}
    for number, row in zip(numbers, values.tolist(), strict=True):
        key = work.keys[number]
        records.update((column_key(key, name), value) for name, value in zip(work.columns, row[1:], strict=True))
        records[key] = row[0]
    return records


def _refuse_missing(work: Work, numbers: Numbers, rows: Floats) -> None:
    bad = ~np.isfinite(rows).all(axis=1)
    values = rows[:, 0]
    if not bad.any():
        return
    if work.allow_missing and not np.isinf(values).any():
        work.missing.update(work.keys[i] for i in numbers[bad])
        return
    names = "; ".join(work.texts.name(i) for i in numbers[bad][:3])
    raise DataError(
        f"scorer {work.name!r}: {bad.sum()} of {len(values)} scores are not finite, first {values[bad][0]} for: {names}"
        "; look at these texts and the dtype (float16 overflows), or pass allow_missing=True to count NaN as missing"
    )
