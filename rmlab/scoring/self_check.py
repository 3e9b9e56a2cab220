"""Before a long run: does a text get the same score in company as alone, and how long will the run take?"""

import logging
import time
from collections.abc import Sequence

import numpy as np

from rmlab.scorers.base import Floats, Provenance, Scorer, Text, fill
from rmlab.tables import DataError
from rmlab.text import line

LONG = 256
"""Texts to score from which on a run is checked; six texts are then 2 % of the work."""

LONG_SECONDS = 60.0
"""A run that will take longer says so before it starts."""

_log = logging.getLogger(__name__)


def check_company(scorer: Scorer, texts: Sequence[Text], title: str, progress: bool | None) -> Provenance:
    """Score six texts alone and together; say how long all texts will take, if that is long.

    Returns how many texts they were and how far apart, in standard deviations, for the provenance; nothing for a
    scorer in which company cannot matter. Raises DataError where the scores are further apart than number types
    explain.
    """
    n = len(texts)
    sample = [texts[start + i] for start in (n // 4, 3 * n // 4) for i in range(3)]
    alone = scorer.score_alone(sample)
    if alone is None:
        return {}
    start = time.perf_counter()  # the weights are loaded by now
    together = fill(scorer.stream(sample), len(sample))
    seconds = (time.perf_counter() - start) / len(sample) * n
    # A text without a score has none either way; the run counts or refuses it.
    is_scored = ~(np.isnan(alone) & np.isnan(together))
    difference = apart(alone[is_scored], together[is_scored]) if is_scored.any() else 0.0
    if not difference <= 10 * tolerance(str(scorer.provenance().get("dtype"))):
        raise DataError(
            f"scorer {scorer.name!r}: texts scored alone and together differ by {difference:.2g} standard deviations. "
            "Look at rmlab.doctor(scorer, responses), and score with dtype='float32' or a smaller budget=."
        )
    if seconds > LONG_SECONDS and progress is not False:
        duration = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
        _log.warning("%s: %s texts to go, about %s (measured on a few texts)", line(title), f"{n:,}", duration)
    return {"self_check": {"texts": len(sample), "apart": float(f"{difference:.2g}")}}


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
