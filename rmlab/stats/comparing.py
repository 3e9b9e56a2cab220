"""Two models on a benchmark: differences, equivalence, agreement, and flips."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.baselines import is_baseline
from rmlab.estimation.difference import (
    Difference,
    equivalence_power,
    holm,
    paired_differences,
    smallest_margins,
)
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import (
    DESCRIBED,
    MISSING,
    comparison_items,
    refuse_result_names,
)
from rmlab.estimation.weights import Average
from rmlab.metrics.pairing import as_pairs
from rmlab.metrics.prepare import overall_number, prepare
from rmlab.metrics.summaries import group_numbers
from rmlab.tables import ITEM, BoolArray, DataError

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
        - agreement: share of items with the same outcome;
        - n_prompts, n_pairs: prompts, and items that both models answered;
        - n_ties_a, n_ties_b;
        - missing: items left out, since a model lacks an answer;
        - average;
        - reason: why a number is missing, with the remedy.

    Raises
    ------
    DataError
        If a model is not in the table, or the models were scored on different
        comparisons and `common` is false.

    Notes
    -----
    A paired clustered t with Satterthwaite's degrees of freedom over strata; see
    `rmlab.estimation.difference`.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest", "shortest"])
    >>> rmlab.compare(scores, "longest", "shortest")["difference"].round(3).item()
    0.002
    """
    compared = _compare_two(
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
    return compared.frame


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
    compared = _compare_two(
        table,
        a,
        b,
        by=by,
        average=average,
        ties=ties,
        common=common,
        cluster=cluster,
        confidence=1 - 2 * alpha,
        options=options,
    )
    frame = compared.frame
    keys = frame.columns[: frame.columns.get_loc("value_a")]
    refuse_result_names(keys, _EQUIVALENCE)

    confidence = 1 - 2 * alpha
    smallest_margin = np.hstack(
        [smallest_margins(row, confidence) for row in compared.differences]
    )
    power = np.hstack(
        [
            equivalence_power(row.strata, margin, confidence)
            for row in compared.differences
        ]
    )
    is_inside = pd.Series(smallest_margin < margin, dtype="boolean")
    frame = frame.assign(
        margin=margin,
        equivalent=is_inside.where(frame["low"].notna()),
        smallest_margin=smallest_margin,
        power=np.where(frame["low"].isna(), np.nan, power),
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


def find_baselines(models: Sequence[str]) -> BoolArray:
    """Whether each model is a content-blind baseline."""
    return np.array([is_baseline(name) for name in models])


def add_hint(reasons: Iterable[str], values: Iterable[float]) -> pd.Series:
    """The reasons of overall scores, with the remedy where a score is missing."""
    hinted = []
    for reason, value in zip(reasons, values, strict=True):
        if np.isnan(value):
            hinted.append(f"{reason}; {HINT}")
        else:
            hinted.append(reason)
    return pd.Series(hinted, dtype="str")


class _Compared(NamedTuple):
    """Rows of `compare`, and the difference of each, which `equivalence` tests."""

    frame: pd.DataFrame
    differences: list[Difference]


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
) -> _Compared:
    """Compare model `a` with model `b`, one row per combination of `by`."""
    if by is None:
        columns = []
    elif isinstance(by, str):
        columns = [by]
    else:
        columns = list(by)
    two_models = select_models(table, a, b)
    if not common:
        table = two_models
    _, items = prepare(
        table, average, ties, common, options, by=columns, cluster=cluster, min_models=2
    )
    place_a = items.models.index(a)
    place_b = items.models.index(b)
    items = items.shared_by(place_a, place_b)
    groups = pd.DataFrame(index=range(1))
    numbers = [overall_number(items)]
    if columns:
        groups, numbers = group_numbers(items, columns)
    result = estimate(items, numbers, confidence, contrasts=range(len(numbers)))

    first = np.array([place_a])
    second = np.array([place_b])
    rows = [
        paired_differences(
            items, numbers, result, first, second, place=place, confidence=confidence
        )
        for place in range(len(numbers))
    ]
    outcome_a = items.outcome[place_a]
    outcome_b = items.outcome[place_b]
    is_shared = np.minimum(outcome_a, outcome_b) > MISSING
    is_same = is_shared & (outcome_a == outcome_b)
    n_items = np.array([len(number.rows) for number in numbers])
    n_pairs = np.array([is_shared[number.rows].sum() for number in numbers])
    n_same = np.array([is_same[number.rows].sum() for number in numbers])
    with np.errstate(invalid="ignore"):
        agreement = n_same / n_pairs

    test = {
        name: np.concatenate([getattr(row, name) for row in rows])
        for name in ("value", "se", "low", "high", "p", "reason")
    }
    reason = pd.Series(test["reason"], dtype="str")
    if not columns:
        # Rows by domain need no hint to compare by domain.
        reason = add_hint(reason, test["value"])
    frame = pd.DataFrame(
        {
            "model_a": pd.Series([a] * len(rows), dtype="str"),
            "model_b": pd.Series([b] * len(rows), dtype="str"),
            **groups,
            "value_a": result.value[place_a],
            "value_b": result.value[place_b],
            "difference": test["value"],
            "se": test["se"],
            "low": test["low"],
            "high": test["high"],
            "p": test["p"],
            "p_holm": holm(test["p"]),
            "agreement": agreement,
            "n_prompts": result.n_prompts[[place_a, place_b]].min(axis=0),
            "n_pairs": n_pairs,
            "n_ties_a": result.n_ties[place_a],
            "n_ties_b": result.n_ties[place_b],
            "missing": n_items - n_pairs,
            "average": pd.Series([items.parts.label] * len(rows), dtype="str"),
            "reason": reason,
        }
    )
    return _Compared(tables.copy_provenance(table, frame), rows)
