"""Before a long run: does a text get the same score in company as alone?"""

import time
from collections.abc import Sequence

import numpy as np

from rmlab.scorers.base import Floats, Scorer, Text, fill
from rmlab.tables import DataError

LONG = 256
"""Texts to score from which on a run is checked; six texts are then 2 % of the work."""


def check_company(scorer: Scorer, texts: Sequence[Text]) -> tuple[dict[str, object], float] | None:
    """Score six texts alone and together; None for a scorer in which company cannot matter.

    Returns how many texts they were and how far apart, in standard deviations, and the seconds that a text takes.
    Raises DataError where the scores are further apart than number types explain.
    """
    n = len(texts)
    sample = [texts[i] for i in (n // 4, n // 4 + 1, n // 4 + 2, 3 * n // 4, 3 * n // 4 + 1, 3 * n // 4 + 2)]
    alone = scorer.score_alone(sample)
    if alone is None:
        return None
    start = time.perf_counter()  # the weights are loaded by now
    together = fill(scorer.stream(sample), len(sample))
    seconds = (time.perf_counter() - start) / len(sample)
    # A text without a score has none either way; the run counts or refuses it.
    is_scored = ~(np.isnan(alone) & np.isnan(together))
    difference = apart(alone[is_scored], together[is_scored]) if is_scored.any() else 0.0
    if not difference <= 10 * tolerance(str(scorer.provenance().get("dtype"))):
        raise DataError(
            f"scorer {scorer.name!r}: texts scored alone and together differ by {difference:.2g} standard deviations. "
            "Look at rmlab.doctor(scorer, responses), and score with dtype='float32' or a smaller budget=."
        )
    return {"texts": len(sample), "apart": float(f"{difference:.2g}")}, seconds


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
