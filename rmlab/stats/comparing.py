"""Two models on a benchmark: differences, equivalence, agreement, and flips."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.baselines import is_baseline
from rmlab.benchmarks.prepare import prepare
from rmlab.estimation.difference import (
    Difference,
    holm,
    paired_differences,
    smallest_margins,
)
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import (
    DESCRIBED,
    LOSS,
    MISSING,
    TIE,
    WIN,
    Items,
    as_pairs,
    comparison_items,
    refuse_result_names,
)
from rmlab.estimation.weights import Average, Weights, overall_weights
from rmlab.metrics.summaries import group_weights
from rmlab.tables import ITEM, BoolArray, DataError, FloatArray, IntArray

HINT = "compare the parts with by='domain', or all answers alike with average='prompts'"

_EQUIVALENCE = [
    *("difference", "low", "high", "margin", "equivalent", "smallest_margin"),
    *("n_prompts", "average", "reason"),
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
    """Compare model `a` with model `b`.

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
        Whether to keep only the items that all models of the table have.

    Returns
    -------
    DataFrame
        One row, or one per combination of the `by` columns, with the columns

        - model_a, model_b, and the `by` columns;
        - value_a, value_b: each model's number on its own answers;
        - difference: value_a minus value_b;
        - se: its error, clustered by prompt;
        - low, high: its interval; for it and for p two prompts are added to each part,
          one that only a wins and one that only b wins, so that their error is a little
          larger than se;
        - p: two-sided and unadjusted; the interval excludes zero exactly where p < 1 -
          confidence;
        - p_holm: adjusted over the rows by Holm's method;
        - agreement: share of items with the same outcome;
        - n_prompts, and n_pairs: prompts, and items that both models answered;
        - n_ties_a, n_ties_b, missing, average;
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


def compare_all(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Compare every model with every other.

    Parameters
    ----------
    table, average, ties, common, cluster, confidence, **options
        As in `compare`.

    Returns
    -------
    DataFrame
        One row per pair of models, in the order of the table, with the columns of
        `compare`. p_holm is adjusted over the pairs of models, for pairs with a
        content-blind baseline over all pairs; two models share a letter in `rank`
        exactly where it is not below 1 - confidence.
    """
    prepared = prepare(
        table, average, ties, common, options, cluster=cluster, min_models=2
    )
    items = prepared.items
    weights = overall_weights(items, prepared.parts)
    first, second = np.triu_indices(len(items.models), 1)
    frame = _compare_pairs(items, weights, first, second, confidence).frame

    is_blind = find_baselines(items.models)
    between_models = ~is_blind[first] & ~is_blind[second]
    p = frame["p"].to_numpy()
    p_holm = holm(p)
    p_holm[between_models] = holm(p[between_models])
    frame["p_holm"] = p_holm
    return tables.copy_provenance(table, frame)


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
        - n_prompts, average, reason.

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

    margins = [
        smallest_margins(difference, 1 - 2 * alpha)
        for difference in compared.differences
    ]
    smallest_margin = np.concatenate(margins)
    is_inside = pd.Series(smallest_margin < margin, dtype="boolean")
    frame = frame.assign(
        margin=margin,
        equivalent=is_inside.where(frame["low"].notna()),
        smallest_margin=smallest_margin,
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
    """Rows of `compare`, and the differences of each number, which `equivalence`
    tests.
    """

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
    prepared = prepare(
        table, average, ties, common, options, by=columns, cluster=cluster, min_models=2
    )
    if columns:
        weights = group_weights(prepared, columns)
    else:
        weights = overall_weights(prepared.items, prepared.parts)
    models = prepared.items.models
    first = np.array([models.index(a)])
    second = np.array([models.index(b)])

    compared = _compare_pairs(prepared.items, weights, first, second, confidence)
    frame = compared.frame
    for place, column in enumerate(columns, start=2):
        frame.insert(place, column, weights.numbers[column].array)
    frame["p_holm"] = holm(frame["p"].to_numpy())
    if not columns:
        # Rows by domain need no hint to compare by domain.
        frame["reason"] = add_hint(frame["reason"], frame["difference"])
    frame = tables.copy_provenance(table, frame)
    return compared._replace(frame=frame)


def _compare_pairs(
    items: Items,
    weights: Weights,
    first: IntArray,
    second: IntArray,
    confidence: float,
) -> _Compared:
    """One row per number and pair of models (their places), with p_holm still p."""
    result = estimate(items, weights, confidence, contrasts=range(len(weights.means)))
    names = np.array(result.models, object)
    frames = []
    differences = []
    for number, mean in enumerate(weights.means):
        difference = paired_differences(
            result, first, second, number=number, confidence=confidence
        )
        value = result.value[:, number]
        n_ties = result.n_ties[:, number]
        n_prompts = result.n_prompts[:, number]

        counted = np.isin(items.cell, mean.cells)
        agreement = _count_agreement(items.outcome[:, counted], first, second)

        frame = pd.DataFrame(
            {
                "model_a": names[first],
                "model_b": names[second],
                "value_a": value[first],
                "value_b": value[second],
                "difference": difference.value,
                "se": difference.se,
                "low": difference.low,
                "high": difference.high,
                "p": difference.p,
                "p_holm": difference.p,
                "agreement": agreement.share,
                "n_prompts": np.minimum(n_prompts[first], n_prompts[second]),
                "n_pairs": agreement.n_pairs,
                "n_ties_a": n_ties[first],
                "n_ties_b": n_ties[second],
                "missing": counted.sum() - agreement.n_pairs,
                "average": result.label,
                "reason": difference.reason,
            }
        )
        frames.append(frame)
        differences.append(difference)
    texts = dict.fromkeys(("model_a", "model_b", "average", "reason"), "str")
    frame = pd.concat(frames, ignore_index=True).astype(texts)
    return _Compared(frame, differences)


class _Agreement(NamedTuple):
    """Items that both models of a pair answered, and their share of same outcomes."""

    n_pairs: IntArray
    share: FloatArray


def _count_agreement(
    outcome: NDArray[np.int8], first: IntArray, second: IntArray
) -> _Agreement:
    """Compare the outcomes (models, items) of each pair of models."""
    n_shared = []
    for has_outcome in (
        outcome > MISSING,
        outcome == LOSS,
        outcome == TIE,
        outcome == WIN,
    ):
        # A matrix product counts; single precision is exact up to 16 million items.
        weight = has_outcome.astype(np.float32)
        n_shared.append((weight @ weight.T)[first, second].astype(np.intp))

    n_pairs, *n_same = n_shared
    with np.errstate(invalid="ignore"):
        share = sum(n_same) / n_pairs
    return _Agreement(n_pairs, share)
