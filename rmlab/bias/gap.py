"""Easy minus hard: how much of a model's accuracy is style."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab.metrics.accuracies import group_weights
from rmlab.metrics.estimate import estimate
from rmlab.metrics.summaries import estimate_frame
from rmlab.metrics.weights import Average, WeightedMean, Weights, prepare
from rmlab.tables import LEVELS, DataError, copy_provenance


def style_gap(
    table: pd.DataFrame,
    by: str | Sequence[str] = "model",
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Measure how much of the accuracy is style: easy minus hard.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark whose answers have styles.
    by : str or sequence of str
        Columns that define the rows, as in `rmlab.accuracy`.
    average, ties, common, cluster, confidence, **options
        As in `rmlab.summary`.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: these, easy, hard (those of `summary`), gap (-1 to 1), se
        (clustered by prompt), low, high, n_prompts, n_ties, missing (of the easy and hard comparisons), average,
        reason. A model that style does not move has a gap of 0, one that only looks at style a gap of 1.

    Raises
    ------
    DataError
        Where comparisons have no level.

    Notes
    -----
    The gap is one number of `rmlab.metrics.estimate`: a prompt's easy and hard comparisons are in one cluster, so that
    what makes a whole prompt hard drops out of the error.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> rmlab.style_gap(scores)[["easy", "hard", "gap"]].round(2).to_numpy().tolist()
    [[0.78, 0.2, 0.58]]
    """
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    columns = [column for column in by if column != "model"]
    prepared = prepare(table, average, ties, common, options, by=columns, cluster=cluster, require_complete=False)
    if not prepared.items.has_levels:
        raise DataError("table: level is missing. Easy and hard need a benchmark whose answers have styles.")
    if "model" not in by and len(prepared.items.models) > 1:
        raise DataError(f"by: {by} has no 'model', but the table has {len(prepared.items.models)}. Add 'model'.")
    levels = group_weights(prepared, [*columns, "level"])
    easy, hard = (levels.means[LEVELS.index(name) :: len(LEVELS)] for name in ("easy", "hard"))
    gaps = [_subtract(*sides) for sides in zip(easy, hard, strict=True)]
    keys = levels.numbers[columns].iloc[:: len(LEVELS)].reset_index(drop=True)
    easy_value, hard_value = (
        estimate(prepared.items, Weights(keys, means, levels.label)).value.ravel() for means in (easy, hard)
    )
    frame = estimate_frame(estimate(prepared.items, Weights(keys, gaps, levels.label), confidence), "gap")
    frame = frame.assign(easy=easy_value, hard=hard_value, gap=easy_value - hard_value)
    uncertainty = ["se", "low", "high", "n_prompts", "n_ties", "missing", "average", "reason"]
    return copy_provenance(table, frame[[*by, "easy", "hard", "gap", *uncertainty]])


def _subtract(first: WeightedMean, second: WeightedMean) -> WeightedMean:
    """The difference of two means as one number."""
    return WeightedMean(
        cells=np.concatenate([first.cells, second.cells]),
        pool=np.concatenate([first.pool, second.pool + len(first.parts)]),
        weight=np.hstack([first.weight, -second.weight]),
        parts=[*first.parts, *second.parts],
        reasons={**first.reasons, **second.reasons},
    )
