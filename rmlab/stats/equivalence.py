"""Showing that two models do not differ by more than a margin: two one-sided tests."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab.items.weighting import Average
from rmlab.stats.comparing import compare

__all__ = ["equivalence"]


def equivalence(
    table: pd.DataFrame,
    a: str,
    b: str,
    *,
    margin: float,
    by: str | Sequence[str] | None = None,
    alpha: float = 0.05,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    **options: str,
) -> pd.DataFrame:
    """Whether two models differ by less than `margin`: one row, or one per combination of the `by` columns.

    Columns: model_a, model_b, those of `by`, difference (as in `compare`), low, high (the interval at 1 - 2 alpha, so
    90 %), margin, equivalent (the interval lies inside -margin to margin: both one-sided tests reject at `alpha`),
    smallest_margin (the least for which that would hold), n_prompts, test, average, reason. Two one-sided tests
    (Schuirmann 1987) by the interval of the same method as `compare`: t with CR2, or melded with McNemar's test.
    "Not significant" in `compare` shows nothing; this does. Say the margin before you look: `smallest_margin` is for
    reading, not for choosing it. Rows are not adjusted for their number.
    """
    if not 0 < margin < 1:
        raise ValueError(f"margin: {margin!r}; allowed: a difference of scores between 0 and 1, for example 0.02")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha: {alpha!r}; allowed: between 0 and 0.5, for example 0.05")
    # Both one-sided tests reject at alpha exactly where the two-sided interval at 1 - 2 alpha lies inside the margin
    # (Schuirmann 1987), and an interval that agrees with its own test is there already.
    found = compare(table, a, b, by=by, average=average, ties=ties, common=common, confidence=1 - 2 * alpha, **options)
    reach = np.maximum(-found["low"], found["high"])  # the end farther from zero
    inside = pd.Series(reach < margin).astype("boolean").where(found["low"].notna())
    columns = [] if by is None else [by] if isinstance(by, str) else list(by)
    found = found.assign(margin=margin, equivalent=inside, smallest_margin=reach)
    order = ["difference", "low", "high", "margin", "equivalent", "smallest_margin", "n_prompts", "test", "average"]
    return found[["model_a", "model_b", *columns, *order, "reason"]]
