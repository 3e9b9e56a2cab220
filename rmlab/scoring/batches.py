"""Batches of scores as a scorer gives them: checked, and kept in the store before anybody reads them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from rmlab.records import __version__
from rmlab.scorers.base import Floats, Ints, Judge, Provenance, Scorer, Stream, Text
from rmlab.store import Store
from rmlab.tables import DataError


def store_batches(
    scorer: Scorer, texts: Sequence[Text], batches: Stream, store: Store | None, name: str
) -> Iterator[tuple[Ints, Floats]]:
    """Positions in `texts`, and a row for each: the score, then the scorer's columns. Each text comes once.

    `batches`: what the scorer's `stream` returned for the texts. `name`: for messages.
    """
    is_waiting = np.ones(len(texts), bool)
    try:
        for batch_positions, values in batches:
            positions = np.asarray(batch_positions, np.intp)
            rows = _check_rows(values, len(positions), scorer.columns, name)
            if not is_waiting[positions].all() or len(np.unique(positions)) != len(positions):
                raise DataError(f"scorer {name!r}: stream gave positions twice that were to come once")
            if store is not None:
                if is_waiting.all():
                    store.note(str(scorer.fingerprint), {"name": scorer.name} | describe_scorer(scorer))
                store.append(str(scorer.fingerprint), _records(scorer, texts, positions, rows))
            is_waiting[positions] = False
            yield positions, rows
    finally:
        if store is not None:
            store.flush()
    if is_waiting.any():
        text = texts[int(is_waiting.argmax())]
        raise DataError(
            f"scorer {name!r}: no score for {is_waiting.sum()} of {len(texts)} texts, first: {text.answers[0][:60]!r} "
            f"to {str(text.prompt)[:60]!r}"
        )


def describe_scorer(scorer: Scorer | Judge) -> Provenance:
    """The release, the class that scores, its fingerprint, and what it says of itself."""
    code = type(scorer)
    identity: Provenance = {"rmlab": __version__, "scorer": f"{code.__module__}.{code.__qualname__}"}
    return identity | {"fingerprint": scorer.fingerprint} | scorer.provenance()


def _records(scorer: Scorer, texts: Sequence[Text], positions: Ints, rows: Floats) -> dict[str, object]:
    is_finite = np.isfinite(rows).all(axis=1)
    values = (rows if scorer.columns else rows[:, 0])[is_finite].tolist()
    return dict(zip([texts[position].key for position in positions[is_finite]], values, strict=True))


def _check_rows(values: ArrayLike, n: int, columns: Sequence[str], name: str) -> Floats:
    array = np.asarray(values)
    shape = (n, 1 + len(columns)) if columns else (n,)
    if array.shape != shape:
        content = f"the score and {', '.join(columns)}" if columns else "one number"
        raise DataError(
            f"scorer {name!r}: returned shape {array.shape} for {n} texts. Allowed: {content} per text, shape {shape}."
        )
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"scorer {name!r}: returned {array.dtype} values, first {array.flat[0]!r:.80}. Allowed: numbers "
            "(float('nan') where there is no score)."
        )
    return array.astype(np.float64).reshape(n, 1 + len(columns))
