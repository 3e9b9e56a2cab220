"""How far the groups of a benchmark, such as its languages, lie apart."""

import numpy as np
import pandas as pd

from rmlab.benchmarks.prepare import prepare
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import refuse_result_names
from rmlab.estimation.weights import Average, Weights, contrast
from rmlab.metrics.summaries import estimate_frame, group_weights
from rmlab.tables import copy_provenance

_DIFFERENCE = ["difference", "difference_low", "difference_high", "spread"]


def spread(
    table: pd.DataFrame,
    by: str = "language",
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Compare the groups of a benchmark, such as its languages, with their mean.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark.
    by : str
        Column that names the group.
    average, ties, common, cluster, confidence, **options
        As in `rmlab.summary`.

    Returns
    -------
    DataFrame
        One row per model and group, with the columns

        - model, and the `by` column;
        - accuracy, se, low, high: as in `rmlab.accuracy`;
        - difference, difference_low, difference_high: accuracy minus the mean of the
          model's groups, paired by cluster;
        - spread: standard deviation of the model's groups beyond what errors explain, 0
          where they explain all of it;
        - n_prompts, n_pairs, n_ties, missing, average, reason.

    Notes
    -----
    With G groups, spread^2 is the sum of difference^2 - se^2 over G - 1, where se is
    the error of the difference.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> table = spread(scores, by="domain", average="domains")
    >>> round(float(table["difference"].sum()), 6)
    0.0
    """
    refuse_result_names([by], _DIFFERENCE)
    prepared = prepare(
        table,
        average,
        ties,
        common,
        options,
        by=[by],
        cluster=cluster,
        require_complete=False,
    )
    groups = group_weights(prepared, [by])
    n_groups = len(groups.means)
    differences = []
    for place in range(n_groups):
        factors = np.full(n_groups, -1 / n_groups)
        factors[place] += 1
        differences.append(contrast(groups.means, factors.tolist()))
    weights = Weights(groups.numbers, differences, groups.label)
    difference = estimate(prepared.items, weights, confidence)

    noise = difference.se**2
    excess = (difference.value**2 - noise).sum(axis=1) / max(n_groups - 1, 1)
    spread_of_model = np.sqrt(np.maximum(excess, 0.0))

    frame = estimate_frame(estimate(prepared.items, groups, confidence), "accuracy")
    further = {
        "difference": difference.value.ravel(),
        "difference_low": difference.low.ravel(),
        "difference_high": difference.high.ravel(),
        "spread": np.repeat(spread_of_model, n_groups),
    }
    first_place = list(frame.columns).index("n_prompts")
    for column, values in reversed(further.items()):
        frame.insert(first_place, column, values)
    return copy_provenance(table, frame)
