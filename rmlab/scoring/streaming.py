"""Scores as a scorer streams them, batch by batch, and put into the store."""

from collections.abc import Iterator, Sequence

import numpy as np

from rmlab.scorers.base import (
    Floats,
    Ints,
    Judge,
    Provenance,
    Scorer,
    Text,
    check_rows,
)
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.version import __version__


def score_batches(
    scorer: Scorer, texts: Sequence[Text], store: Store | None, title: str
) -> Iterator[tuple[Ints, Floats]]:
    """Yield positions in `texts`, and a row for each, once they are in the store. Each
    text comes once.
    """
    if scorer.writes_store:
        store = None
    fingerprint = str(scorer.fingerprint)
    is_waiting = np.ones(len(texts), bool)
    try:
        for batch_positions, values in scorer.stream(texts):
            positions = np.asarray(batch_positions, np.intp)
            rows = check_rows(values, len(positions), scorer.columns, title)
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
    except DataError:
        if store is not None and len(scorer.withdrawn):
            keys = {texts[position].key for position in scorer.withdrawn}
            store.withdraw(fingerprint, keys)
        raise
    finally:
        if store is not None:
            store.flush()

    if is_waiting.any():
        raise _no_scores(title, texts, is_waiting)


def _make_records(
    scorer: Scorer, texts: Sequence[Text], positions: Ints, rows: Floats
) -> dict[str, object]:
    """The finite scores by key: numbers, or lists where the scorer has columns."""
    is_finite = np.isfinite(rows).all(axis=1)
    values = rows if scorer.columns else rows[:, 0]
    keys = [texts[position].key for position in positions[is_finite]]
    return dict(zip(keys, values[is_finite].tolist(), strict=True))


def _no_scores(title: str, texts: Sequence[Text], is_waiting: np.ndarray) -> DataError:
    text = texts[int(is_waiting.argmax())]
    first = f"{text.answers[0][:60]!r} to {str(text.prompt)[:60]!r}"
    count = f"no score for {is_waiting.sum()} of {len(texts)} texts"
    return DataError(f"scorer {title!r}: {count}, first: {first}")


def describe_scorer(scorer: Scorer | Judge) -> Provenance:
    """The release, the class that scores, its fingerprint, and its own provenance."""
    code = type(scorer)
    identity: Provenance = {
        "rmlab": __version__,
        "scorer": f"{code.__module__}.{code.__qualname__}",
        "fingerprint": scorer.fingerprint,
    }
    return identity | scorer.provenance()
