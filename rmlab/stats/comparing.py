"""Two models on a benchmark: differences, equivalence, agreement, and flips."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rmlab import tables
from rmlab.estimation.difference import equivalence_power, holm, smallest_margins
from rmlab.estimation.estimate import estimate, sum_number
from rmlab.estimation.items import (
    DESCRIBED,
    Items,
    comparison_items,
    refuse_result_names,
)
from rmlab.estimation.weights import Average, Number
from rmlab.metrics.pairing import as_pairs
from rmlab.metrics.prepare import prepare
from rmlab.metrics.summaries import group_numbers
from rmlab.tables import ITEM, DataError, FloatArray

HINT = "compare the parts with by='domain', or all answers alike with average='prompts'"

_EQUIVALENCE = [
    *("difference", "low", "high", "margin", "equivalent", "smallest_margin"),
    *("power", "n_prompts", "missing", "average", "reason"),
]


def compare(
    table: pd.DataFrame,
    a: str,
    b: str,
    *,
    by: str | Sequence[str] | None = None,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Compare model `a` with model `b` on the items that both have answered.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark.
    a, b : str
        Names of the two models.
    by : str or sequence of str, optional
        Columns that define the rows, as in `rmlab.accuracy`; default: the overall score
        alone.
    average, ties, cluster, confidence, **options
        As in `rmlab.summary`.
    common : bool
        Whether to keep only the items that all models of the table have answered.

    Returns
    -------
    DataFrame
        One row, or one per combination of the `by` columns, with the columns

        - model_a, model_b, and the `by` columns;
        - value_a, value_b: each model's number on these items;
        - difference: value_a minus value_b;
        - se: its error, clustered by prompt;
        - low, high: its interval; for it and for p two prompts are added, one that only
          a wins and one that only b wins, so that their error is a little larger than
          se;
        - p: two-sided and unadjusted; the interval excludes zero exactly where p < 1 -
          confidence;
        - p_holm: adjusted over the rows by Holm's method;
        - agreement: share of these items with the same outcome;
        - n_prompts, n_pairs: prompts and items that are compared;
        - n_ties_a, n_ties_b;
        - missing: items left out, since a model lacks an answer, or ties where
          ties="drop";
        - average;
        - reason: why a number is missing, with the remedy.

    Raises
    ------
    DataError
        If a model is not in the table, or the models were scored on different
        comparisons and `common` is false.

    Notes
    -----
    A paired clustered t with Satterthwaite's degrees of freedom over strata; see "Two
    models" in docs/statistics.md. An item counts where both models have answered it
    and, with ties="drop", neither ties; RewardBench 1's prior sets where both have all
    of them.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest", "shortest"])
    >>> rmlab.compare(scores, "longest", "shortest")["difference"].round(3).item()
    0.002
    """
    frame, _, _ = _compare_two(
        table,
        a,
        b,
        by=by,
        average=average,
        ties=ties,
        common=common,
        cluster=cluster,
        confidence=confidence,
        options=options,
    )
    return frame


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
    cluster: str | None = None,
    **options: str,
) -> pd.DataFrame:
    """Test whether two models differ by less than `margin`.

    "Not significant" in `compare` shows nothing; this does.

    Parameters
    ----------
    table, a, b, by, average, ties, common, cluster, **options
        As in `rmlab.compare`.
    margin : float
        The largest difference that does not matter, between 0 and 1. Choose it before
        you look.
    alpha : float
        Level of each one-sided test, between 0 and 0.5.

    Returns
    -------
    DataFrame
        One row, or one per combination of the `by` columns, not adjusted for the number
        of rows, with the columns

        - model_a, model_b, and the `by` columns;
        - difference;
        - low, high: the interval at 1 - 2 alpha;
        - margin;
        - equivalent: whether both one-sided tests reject a difference of the margin;
        - smallest_margin: the least for which they would;
        - power: how often models that are equal, and disagree on as many prompts, are
          found equivalent (without the score test);
        - n_prompts, missing, average, reason.

    Notes
    -----
    Two one-sided tests reject where the interval lies inside -margin to margin
    (Schuirmann 1987), and a score test rejects too (Tango 1998): its error is that of a
    difference as large as the margin. It decides where few prompts differ, or all of
    them favour one model.

    References
    ----------
    Schuirmann (1987); Tango (1998), Statistics in Medicine 17, for paired proportions.
    """
    if not 0 < margin < 1:
        allowed = "a difference of scores between 0 and 1, for example 0.02"
        raise ValueError(f"margin: {margin!r}; allowed: {allowed}")
    if not 0 < alpha < 0.5:
        allowed = "between 0 and 0.5, for example 0.05"
        raise ValueError(f"alpha: {alpha!r}; allowed: {allowed}")
    confidence = 1 - 2 * alpha
    frame, difference, numbers = _compare_two(
        table,
        a,
        b,
        by=by,
        average=average,
        ties=ties,
        common=common,
        cluster=cluster,
        confidence=confidence,
        options=options,
    )
    keys = frame.columns[: frame.columns.get_loc("value_a")]
    smallest = []
    power = []
    for number in numbers:
        sums = sum_number(difference, number)
        smallest.append(smallest_margins(sums, confidence).item())
        power.append(equivalence_power(sums, margin, confidence).item())
    has_interval = frame["low"].notna()
    is_inside = pd.Series(smallest, dtype="float64") < margin
    frame = frame.assign(
        margin=margin,
        equivalent=is_inside.astype("boolean").where(has_interval),
        smallest_margin=pd.Series(smallest).where(has_interval),
        power=pd.Series(power).where(has_interval),
    )
    return frame[[*keys, *_EQUIVALENCE]]


def flips(table: pd.DataFrame, a: str, b: str, *, common: bool = False) -> pd.DataFrame:
    """Comparisons that two models judge differently.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    a, b : str
        Names of the two models.
    common : bool
        Whether to look only at comparisons that both have, instead of raising where
        they differ.

    Returns
    -------
    DataFrame
        One row per comparison whose outcomes differ, with the columns

        - benchmark, domain, id, chosen_slot, rejected_slot;
        - subset, chosen_style, rejected_style, level;
        - outcome_a, outcome_b, margin_a, margin_b.

        A comparison without an answer of either model is not a flip.
    """
    pairs = as_pairs(select_models(table, a, b))
    if not common:
        comparison_items(pairs).require_same()
    columns = ["model", *ITEM, *DESCRIBED, "outcome", "margin"]
    rows = pairs[columns].dropna(subset=["outcome"])
    rows_a = rows[rows["model"] == a].drop(columns="model")
    rows_b = rows[rows["model"] == b].drop(columns=["model", *DESCRIBED])
    suffixes = ("_a", "_b")
    merged = rows_a.merge(rows_b, on=ITEM, suffixes=suffixes, validate="one_to_one")

    is_flip = merged["outcome_a"] != merged["outcome_b"]
    order = [*ITEM, *DESCRIBED, "outcome_a", "outcome_b", "margin_a", "margin_b"]
    return merged.loc[is_flip, order].reset_index(drop=True)


def select_models(table: pd.DataFrame, a: str, b: str | None) -> pd.DataFrame:
    """The rows of models `a` and `b`; DataError where one is absent or both are one."""
    tables.require_columns(table, ["model"], "pairs")
    if a == b:
        raise DataError(f"a, b: both are {a!r}", "name two models")
    models = list(table["model"].unique())
    for argument, name in (("a", a), ("b", b)):
        if name is not None and name not in models:
            nearest = tables.nearest(name, models)
            raise DataError(f"{argument}: no model {name!r} in table", nearest)
    return table[table["model"].isin([a, b])]


def add_hint(reasons: ArrayLike, values: FloatArray) -> "pd.Series[str]":
    """The reasons of overall scores, with the remedy where a score is missing."""
    hinted = np.asarray(reasons, object) + f"; {HINT}"
    return pd.Series(np.where(np.isnan(values), hinted, reasons), dtype="str")


def _compare_two(
    table: pd.DataFrame,
    a: str,
    b: str,
    *,
    by: str | Sequence[str] | None,
    average: Average,
    ties: str | None,
    common: bool,
    cluster: str | None,
    confidence: float,
    options: dict[str, str],
) -> tuple[pd.DataFrame, Items, list[Number]]:
    """The rows of `compare`, with the differences between the two models on each item
    and the numbers that were compared.
    """
    columns = [by] if isinstance(by, str) else list(by or [])
    two_models = select_models(table, a, b)
    _, items = prepare(
        table if common else two_models,
        average,
        ties,
        common,
        options,
        by=columns,
        cluster=cluster,
        min_models=2,
    )
    pair = items.shared_by(items.models.index(a), items.models.index(b))
    _, numbers_of_models = group_numbers(pair, columns)
    by_model = estimate(pair, numbers_of_models, confidence)
    differences = pair.subtract(np.array([0]), np.array([1]))
    groups, numbers = group_numbers(differences, columns)
    result = estimate(differences, numbers, confidence)

    is_counted = ~np.isnan(differences.credit[0])
    is_same = is_counted & (pair.outcome[0] == pair.outcome[1])
    n_items = np.array([len(number.rows) for number in numbers])
    n_pairs = np.array([is_counted[number.rows].sum() for number in numbers])
    n_same = np.array([is_same[number.rows].sum() for number in numbers])
    with np.errstate(invalid="ignore"):
        agreement = n_same / n_pairs

    value_a, value_b = by_model.value
    reason = result.reason[0]
    if not columns:
        # Rows by domain need no hint to compare by domain.
        reason = add_hint(reason, value_a)
    frame = pd.DataFrame(
        {
            "model_a": a,
            "model_b": b,
            "value_a": value_a,
            "value_b": value_b,
            "difference": value_a - value_b,
            "se": result.se[0],
            "low": result.low[0],
            "high": result.high[0],
            "p": result.p[0],
            "p_holm": holm(result.p[0]),
            "agreement": agreement,
            "n_prompts": result.n_prompts[0],
            "n_pairs": n_pairs,
            "n_ties_a": by_model.n_ties[0],
            "n_ties_b": by_model.n_ties[1],
            "missing": n_items - n_pairs,
            "average": items.parts.label,
            "reason": pd.Series(reason, dtype="str"),
        }
    )
    refuse_result_names(columns, [*frame, *_EQUIVALENCE])
    for place, column in enumerate(columns, start=2):
        frame.insert(place, column, groups[column])
    return tables.copy_provenance(table, frame), differences, numbers
