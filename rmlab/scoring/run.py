"""One scorer over distinct texts: in memory, or with a ledger that remembers every batch."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.baselines import Baseline
from rmlab.scoring.check import LONG, self_check
from rmlab.scoring.texts import Texts
from rmlab.store import Ledger, Store
from rmlab.tables import DataError

__all__ = ["run"]

Numbers = NDArray[np.intp]
Floats = NDArray[np.float64]
Stream = Callable[[Numbers], Iterable[tuple[Any, Any]]]

# Texts that one process claims at a time when it shares a store: at least, and how many claims there are at most.
_SPAN = 512
_SPANS = 64


@dataclass
class _Work:
    """What is to be scored. `leaders`: texts to score, one per key; `spans`: their split into claims."""

    name: str
    texts: Texts
    keys: list[str]
    leaders: Numbers
    stream: Stream
    about: Callable[[], dict[str, Any]]
    allow_missing: bool
    bar: Any
    start: float
    missing: set[str] = field(default_factory=set)
    scored: int = 0


def run(
    name: str,
    scorer: Any,
    call: Callable[..., Any],
    texts: Texts,
    *,
    store: Store | None,
    batch: int,
    allow_missing: bool,
    progress: bool | None,
) -> tuple[Floats, dict[str, Any]]:
    """Score of each distinct text (NaN where missing and allowed) and the provenance.

    `call` is the scorer's plain call. A scorer with `prepare` and `stream` is streamed instead.
    """
    start = time.perf_counter()
    # Baselines cost nothing: they are computed anew.
    stored = store is not None and not isinstance(scorer, Baseline)
    if stored:
        _check_storable(name, scorer)
    check: dict[str, Any] = {}
    keys, order, stream = _source(name, scorer, call, texts, batch if stored else max(len(texts), 1), check)
    leaders = _leaders(keys, order)
    with _bar(len(leaders), name, progress) as bar:
        work = _Work(name, texts, keys, leaders, stream, lambda: _about(scorer) | check, allow_missing, bar, start)
        runs: dict[str, Any] = {}
        if store is not None and stored:
            with store.ledger(scorer.fingerprint) as ledger:
                known = _resume(work, ledger)
                runs = {"runs": [_what_differs(run, work.about()) for run in ledger.runs()]}
        else:
            known = _at_once(work)
    values = np.array([known.get(key, np.nan) for key in keys], np.float64)
    return values, work.about() | _summary(work) | runs


def _source(
    name: str, scorer: Any, call: Callable[..., Any], texts: Texts, batch: int, check: dict[str, Any]
) -> tuple[list[str], Numbers, Stream]:
    """Key of each text, the order in which neighbours go together, and the stream of scores.

    The first long stream of a scorer that can score texts alone begins with the self-check, which goes into `check`.
    """
    order = np.argsort(texts.groups, kind="stable")
    if not (hasattr(scorer, "prepare") and hasattr(scorer, "stream")):
        return texts.content_keys(), order, _in_batches(name, call, texts, batch)
    prepared = scorer.prepare(*texts.columns)
    keys = list(prepared.keys)
    if len(keys) != len(texts):
        raise DataError(
            f"scorer {name!r}: prepare gave {len(keys)} keys for {len(texts)} texts; one per text is needed"
        )
    order = np.asarray(getattr(prepared, "order", order), np.intp)

    def stream(wanted: Numbers) -> Iterable[tuple[Any, Any]]:
        if not check and len(wanted) >= LONG and hasattr(scorer, "alone"):
            check["self_check"] = self_check(name, scorer, prepared, wanted)
        return scorer.stream(prepared, wanted)  # type: ignore[no-any-return]

    return keys, order, stream


def _in_batches(name: str, call: Callable[..., Any], texts: Texts, batch: int) -> Stream:
    def stream(wanted: Numbers) -> Iterator[tuple[Numbers, Any]]:
        for start in range(0, len(wanted), batch):
            part = wanted[start : start + batch]
            yield part, call(*([column[i] for i in part] for column in texts.columns))

    return stream


def _leaders(keys: list[str], order: Numbers) -> Numbers:
    """The first text of each key, in the given order."""
    first: dict[str, int] = {}
    for text in order.tolist():
        first.setdefault(keys[text], text)
    return np.fromiter(first.values(), np.intp, len(first))


def _at_once(work: _Work) -> dict[str, float]:
    known: dict[str, float] = {}
    for numbers, values in _batches(work, work.leaders):
        _refuse_missing(work, numbers, values)
        known.update(zip([work.keys[i] for i in numbers], values.tolist(), strict=True))
    return known


def _resume(work: _Work, ledger: Ledger) -> dict[str, float]:
    """Score what the ledger does not know, span by span; wait for spans that another process is scoring."""
    ledger.refresh()
    pause = 0.02
    while True:
        before = _unknown(work, ledger, work.leaders).size
        if not before:
            return ledger.scores
        for span in _spans(work):
            if not _unknown(work, ledger, span).size:
                continue
            with ledger.claim([work.keys[i] for i in span]) as mine:
                if mine:
                    ledger.refresh()
                    _score_span(work, ledger, _unknown(work, ledger, span))
        ledger.refresh()
        after = _unknown(work, ledger, work.leaders).size
        if after:
            pause = 0.02 if after < before else min(2 * pause, 1.0)
            work.bar.set_postfix_str("waiting for another process")
            time.sleep(pause)


def _score_span(work: _Work, ledger: Ledger, wanted: Numbers) -> None:
    if not wanted.size:
        return
    work.bar.n = len(work.leaders) - _unknown(work, ledger, work.leaders).size
    work.bar.set_postfix_str("")
    if not work.scored:
        ledger.note({"name": work.name} | work.about() | _summary(work) | {"seconds": None})
    for numbers, values in _batches(work, wanted):
        found = np.isfinite(values)
        ledger.append([work.keys[i] for i in numbers[found]], values[found])
        _refuse_missing(work, numbers, values)
    ledger.note({"name": work.name} | work.about() | _summary(work))


def _spans(work: _Work) -> list[Numbers]:
    """The texts in runs of at least _SPAN, cut where the prompt changes: every process cuts alike."""
    size = max(_SPAN, -(-len(work.leaders) // _SPANS))
    group = work.texts.groups[work.leaders]
    cuts, last = [], 0
    for i in np.flatnonzero(np.diff(group)) + 1:
        if i - last >= size:
            cuts.append(last := int(i))
    return [span for span in np.split(work.leaders, cuts) if span.size]


def _unknown(work: _Work, ledger: Ledger, span: Numbers) -> Numbers:
    known, missing = ledger.scores, work.missing
    return np.array([i for i in span.tolist() if work.keys[i] not in known and work.keys[i] not in missing], np.intp)


def _batches(work: _Work, wanted: Numbers) -> Iterator[tuple[Numbers, Floats]]:
    """The stream's batches, checked: every wanted text once, a number for each."""
    waiting = np.zeros(len(work.texts), bool)
    waiting[wanted] = True
    if not wanted.size:
        return
    for numbers, values in work.stream(wanted):
        texts = np.asarray(numbers, np.intp)
        floats = _floats(work.name, values, len(texts))
        if not waiting[texts].all() or len(np.unique(texts)) != len(texts):
            raise DataError(f"scorer {work.name!r}: stream gave texts that were not asked for, or gave them twice")
        waiting[texts] = False
        work.scored += len(texts)
        work.bar.update(len(texts))
        yield texts, floats
    if waiting.any():
        first = work.texts.name(int(waiting.argmax()))
        raise DataError(f"scorer {work.name!r}: no score for {waiting.sum()} of {len(wanted)} texts, first: {first}")


def _floats(name: str, values: Any, n: int) -> Floats:
    found = np.asarray(values)
    if found.shape != (n,):
        raise DataError(
            f"scorer {name!r}: returned shape {found.shape} for {n} texts; allowed: one number per text, shape ({n},)"
        )
    if found.dtype.kind not in "biuf":
        raise DataError(
            f"scorer {name!r}: returned {found.dtype} values, first {found.flat[0]!r:.80}; allowed: numbers "
            "(float('nan') where there is no score)"
        )
    return found.astype(np.float64)


def _refuse_missing(work: _Work, numbers: Numbers, values: Floats) -> None:
    bad = ~np.isfinite(values)
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


def _check_storable(name: str, scorer: Any) -> None:
    if not getattr(scorer, "fingerprint", None):
        raise DataError(
            f"store: scorer {name!r} has no fingerprint, so its stored scores could not be told from those of a "
            "changed version; give it one (scorer.fingerprint = 'my-judge-v1'), or leave store= out"
        )


def _about(scorer: Any) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = version("rmlab")
    except PackageNotFoundError:
        release = "not installed"
    kind = scorer if hasattr(scorer, "__qualname__") else type(scorer)
    about: dict[str, Any] = {"scorer": f"{kind.__module__}.{kind.__qualname__}", "rmlab": release}
    about["fingerprint"] = getattr(scorer, "fingerprint", None)
    return about | (dict(scorer.provenance()) if hasattr(scorer, "provenance") else {})


def _summary(work: _Work) -> dict[str, Any]:
    seconds = time.perf_counter() - work.start
    began = datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(timespec="seconds")
    counts = {"texts": len(work.leaders), "scored": work.scored, "missing": len(work.missing)}
    return {"started": began, "seconds": round(seconds, 3)} | counts


def _what_differs(run: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """One earlier run, without what is said already."""
    return {key: value for key, value in run.items() if key != "name" and about.get(key) != value}


def _bar(total: int, name: str, progress: bool | None) -> Any:
    import sys

    from tqdm import tqdm

    often = 0.2 if sys.stderr.isatty() else 10.0
    disable = None if progress is None else not progress
    return tqdm(total=total, desc=name, unit="text", disable=disable, mininterval=often, file=sys.stderr)
