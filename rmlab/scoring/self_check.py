"""Before a long run: a few texts scored alone must come out as they do among others."""

import time

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.guards import lengths_of, provenance_of
from rmlab.scorers.protocol import Checkable, P
from rmlab.tables import DataError

__all__ = ["LONG", "SelfCheck", "alone_and_together", "apart", "tolerance"]

LONG = 256
"""Texts asked for at once from which on the self-check is made; its six texts are then 2 % of the work."""

Floats = NDArray[np.float64]

_STORED = (
    "; the store already holds the sums of the models before this one, and a rerun would not check them again: give "
    "the next try another store=, or dtype='float32'"
)


class SelfCheck:
    """The check of a run: six texts of the first long stream, scored alone and together.

    `found`: how many texts, and how far apart in standard deviations; empty before the check. Of a score that is a sum
    of several terms, each term is checked when its turn comes, on the same texts, and judged by the sum so far;
    `before`: that sum by text number, which the run adds to. `stored`: whether a store holds it already, so that a
    rerun would take it from there unchecked; set by the run. The check also shows how fast the model is.
    """

    def __init__(self, name: str, before: Floats) -> None:
        self.name, self.before = name, before
        self.found: dict[str, float] = {}
        self.stored = False
        self._speed: float | None = None
        self._texts = np.zeros(0, np.intp)
        self._alone, self._together = np.zeros(0), np.zeros(0)

    def __call__(self, scorer: Checkable[P], prepared: P, wanted: NDArray[np.intp], weight: float = 1.0) -> None:
        """Check one scorer; raises DataError where the scores are further apart than number types explain."""
        if not self.found:
            middle = [len(wanted) // 4 + i for i in range(3)] + [3 * len(wanted) // 4 + i for i in range(3)]
            self._texts = wanted[middle]
            self._alone = self._together = self.before[self._texts]
        alone, together, seconds = _timed(scorer, prepared, self._texts)
        lengths = lengths_of(prepared)
        self._speed = None if lengths is None else float(lengths[self._texts].sum()) / max(seconds, 1e-9)
        self._alone, self._together = self._alone + weight * alone, self._together + weight * together
        # A text without a score has none either way; the run counts or refuses it.
        scored = ~(np.isnan(self._alone) & np.isnan(self._together))
        found = apart(self._alone[scored], self._together[scored]) if scored.any() else 0.0
        if not found <= 10 * tolerance(str(provenance_of(scorer).get("dtype"))):
            raise DataError(
                f"scorer {self.name!r}: texts scored alone and together differ by {found:.2g} standard deviations; "
                "look at rmlab.doctor(scorer, responses), and score with dtype='float32' or a smaller budget="
                + (_STORED if self.stored else "")
            )
        self.found = {"texts": len(self._texts), "apart": float(f"{found:.2g}")}

    def speed(self) -> float | None:
        """Tokens a second of the texts that were scored alone; None before the check."""
        return self._speed


def alone_and_together(scorer: Checkable[P], prepared: P, texts: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Scores of the texts, each forwarded by itself, and packed or batched with the others."""
    return _timed(scorer, prepared, texts)[:2]


def _timed(scorer: Checkable[P], prepared: P, texts: NDArray[np.intp]) -> tuple[Floats, Floats, float]:
    """The same, and the seconds of the first: the weights are loaded by then."""
    place = {int(text): i for i, text in enumerate(texts)}
    together = np.full(len(texts), np.nan)
    for numbers, values in scorer.stream(prepared, texts):
        together[[place[int(number)] for number in numbers]] = values
    start = time.perf_counter()
    alone = np.asarray(scorer.alone(prepared, texts), np.float64)
    return alone, together, time.perf_counter() - start


def apart(left: Floats, right: Floats) -> float:
    """The largest difference of two scorings of the same texts, in standard deviations of the first.

    >>> apart(np.array([0.0, 2.0]), np.array([0.0, 2.1])).__round__(6)
    0.1
    """
    # Scores that hardly vary are compared by their size: their own spread may be rounding.
    scale = max(float(np.std(left)), 1e-3 * float(np.abs(left).max()), 1e-12)
    return float(np.abs(left - right).max()) / scale


def tolerance(dtype: str | None) -> float:
    """How far apart, in standard deviations, is explained by a number type, such as "bfloat16"."""
    return 1e-4 if dtype == "float32" else 0.1
