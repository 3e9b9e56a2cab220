"""One scorer over distinct texts: in memory, or with a ledger that remembers every batch."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmlab.baselines import Baseline
from rmlab.scorers import guards
from rmlab.scorers.protocol import AnyScorer, P, Provenance, StreamingPairwiseScorer, StreamingScorer, Term
from rmlab.scoring.distinct_texts import Texts
from rmlab.scoring.progress import Progress
from rmlab.scoring.self_check import LONG, SelfCheck
from rmlab.scoring.work import Numbers, Stream, Work, at_once, resume, summary
from rmlab.store import Store, column_key
from rmlab.tables import DataError

__all__ = ["Call", "How", "run"]

Floats = NDArray[np.float64]
Call = Callable[..., ArrayLike]
_Notes = list[dict[str, object]]


class How(TypedDict):
    """How `run` goes about it: where scores are kept, how many texts a call gets, and what is shown."""

    store: Store | None
    batch: int
    allow_missing: bool
    progress: bool | None


class _Term(NamedTuple):
    """One summand of a score. `name`: its own, in the store and in the provenance. `leave`: frees its memory."""

    name: str
    weight: float
    scorer: AnyScorer | Term[Any]
    stream: Stream
    leave: Callable[[], None]


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
) -> tuple[Floats, dict[str, Floats], Provenance]:
    """Of each distinct text the score and the scorer's columns (NaN where missing and allowed), and the provenance.

    A streaming scorer is streamed, the several terms of a `SumScorer` one after the other, each over all texts and into
    a ledger of its own. `call` is how any other is asked: with the prompts, and one list of answers or two.
    """
    start = time.perf_counter()
    # Baselines cost nothing: they are computed anew.
    stored = store is not None and not isinstance(scorer, Baseline)
    if stored:
        _check_storable(name, scorer)
    total = np.zeros(len(texts))
    check = SelfCheck(name, total)
    keys, order, tokens, terms = _source(name, scorer, call, texts, batch if stored else max(len(texts), 1), check)
    leaders = _leaders(keys, order)
    names = guards.columns_of(scorer)
    columns: dict[str, Floats] = {}
    works, runs, others = [], [], []
    for number, term in enumerate(terms):
        check.stored = stored and number > 0
        title = name if len(terms) == 1 else f"{name} (model {number + 1} of {len(terms)})"
        with Progress(title, leaders, tokens, progress, check.speed) as shown:
            says = _about_term(term, check)
            work = Work(name, term.name, texts, keys, leaders, term.stream, says, allow_missing, shown, names)
            known, earlier, foreign = _score(work, term, store if stored else None)
        total += term.weight * np.array([known.get(key, np.nan) for key in keys], np.float64)
        for column in names:
            columns[column] = np.array([known.get(column_key(key, column), np.nan) for key in keys], np.float64)
        works.append(work)
        runs += earlier
        others += foreign
    about = _about(scorer) | _checked(check)
    before = {"runs": [_what_differs(run, about) for run in runs]} if stored else {}
    before |= {"by_others": others} if others else {}
    return total, columns, about | _counts(start, works) | before


def _score(work: Work, term: _Term, store: Store | None) -> tuple[dict[str, float], _Notes, _Notes]:
    """Score of each key, what was noted of this and earlier runs, and whose other ledgers were believed.

    Frees the model's memory afterwards.
    """
    try:
        if store is None:
            return at_once(work), [], []
        with store.ledger(str(guards.fingerprint_of(term.scorer)), only=work.keys) as ledger:
            return resume(work, ledger), ledger.runs(), ledger.others()
    finally:
        term.leave()


def _source(
    name: str, scorer: AnyScorer, call: Call | None, texts: Texts, batch: int, check: SelfCheck
) -> tuple[list[str], Numbers, Numbers | None, list[_Term]]:
    """Key of each text, the order in which neighbours go together, tokens of each if known, and the scores' terms."""
    order = np.argsort(texts.groups, kind="stable")
    if not guards.is_streaming(scorer):
        assert call is not None
        return texts.content_keys(), order, None, [_Term(name, 1.0, scorer, _in_batches(call, texts, batch), _stay)]
    prepared = scorer.prepare(texts.prompts, *texts.answers)
    keys = list(prepared.keys)
    if len(keys) != len(texts):
        raise DataError(
            f"scorer {name!r}: prepare gave {len(keys)} keys for {len(texts)} texts; one per text is needed"
        )
    order, tokens = guards.order_of(prepared, order), guards.tokens_of(prepared)
    terms = list(scorer.terms) if guards.is_sum(scorer) else []
    if len(terms) < 2:
        return keys, order, tokens, [_Term(name, 1.0, scorer, _checking(scorer, prepared, check, 1.0), _stay)]
    streams = [_Term(one.name, w, one, _checking(one, prepared, check, w), one.leave) for w, one in terms]
    return keys, order, tokens, streams


def _stay() -> None:
    """A scorer that is no term of a sum keeps its memory: the caller may go on with it."""


def _checking(
    scorer: StreamingScorer[P] | StreamingPairwiseScorer[P] | Term[P], prepared: P, check: SelfCheck, weight: float
) -> Stream:
    """The scorer's stream; the first long one of a scorer that can score texts alone begins with the self-check."""
    checked = False

    def stream(wanted: Numbers) -> Iterable[tuple[ArrayLike, ArrayLike]]:
        nonlocal checked
        if not checked and len(wanted) >= LONG and guards.is_checkable(scorer):
            check(scorer, prepared, wanted, weight)
            checked = True
        return scorer.stream(prepared, wanted)

    return stream


def _in_batches(call: Call, texts: Texts, batch: int) -> Stream:
    def stream(wanted: Numbers) -> Iterator[tuple[Numbers, ArrayLike]]:
        for start in range(0, len(wanted), batch):
            part = wanted[start : start + batch]
            prompts, answers = [texts.prompts[i] for i in part], ([column[i] for i in part] for column in texts.answers)
            yield part, call(prompts, *answers)

    return stream


def _leaders(keys: list[str], order: Numbers) -> Numbers:
    """The first text of each key, in the given order."""
    first: dict[str, int] = {}
    for text in order.tolist():
        first.setdefault(keys[text], text)
    return np.fromiter(first.values(), np.intp, len(first))


def _check_storable(name: str, scorer: AnyScorer) -> None:
    if guards.fingerprint_of(scorer) is None:
        raise DataError(
            f"store: scorer {name!r} has no fingerprint, so its stored scores could not be told from those of a "
            "changed version; give it one (scorer.fingerprint = 'my-judge-v1'), or leave store= out"
        )


def _about(scorer: object) -> Provenance:
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = version("rmlab")
    except PackageNotFoundError:
        release = "not installed"
    return {"rmlab": release} | guards.provenance_of(scorer)


def _about_term(term: _Term, check: SelfCheck) -> Callable[[], dict[str, object]]:
    return lambda: _about(term.scorer) | _checked(check)


def _checked(check: SelfCheck) -> dict[str, object]:
    return {"self_check": check.found} if check.found else {}


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
