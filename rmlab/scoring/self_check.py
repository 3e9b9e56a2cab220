"""The self-check of a run: do a few texts get the same scores alone as together?"""

from collections.abc import Sequence

import numpy as np

from rmlab.scorers.base import Floats, Provenance, Scorer, Text, fill
from rmlab.tables import DataError


def check_company(scorer: Scorer, texts: Sequence[Text]) -> Provenance:
    """Score six texts alone and together.

    Returns how many texts they were and how far apart, in standard deviations, for the
    provenance; nothing for a scorer in which company cannot matter. Raises DataError
    where the scores are further apart than number types explain.
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
        remedy = "ask rmlab.doctor, and score with dtype='float32' or a smaller budget="
        raise DataError(f"scorer {scorer.name!r}: {gap}", remedy)
    return {"self_check": {"texts": len(sample), "apart": float(f"{difference:.2g}")}}


def apart(left: Floats, right: Floats) -> float:
    """The largest difference of two scorings of the same texts, in standard deviations
    of the first.

    >>> apart(np.array([0.0, 2.0]), np.array([0.0, 2.1])).__round__(6)
    0.1
    """
    # Scores that hardly vary are compared by their size: their own spread may be
    # rounding.
    deviation = float(np.std(left))
    size = float(np.abs(left).max())
    scale = max(deviation, 1e-3 * size, 1e-12)
    return float(np.abs(left - right).max()) / scale


def tolerance(dtype: str | None) -> float:
    """How far apart, in standard deviations, is explained by a number type, such as
    "bfloat16".
    """
    return 1e-4 if dtype == "float32" else 0.1
