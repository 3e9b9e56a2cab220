"""Two models on a benchmark: differences with one test and its interval, equivalence,
agreement, and flips.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.baselines import is_baseline
from rmlab.benchmarks.prepare import prepare
from rmlab.estimation.difference import differences, holm
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import (
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
from rmlab.tables import ITEM, DataError, IntArray

HINT = "compare the parts with by='domain', or all answers alike with average='prompts'"


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
    average, ties, common, cluster, confidence, **options
        As in `rmlab.summary`; `common` means the items of all models in the table.

    Returns
    -------
    DataFrame
        One row, or one per combination of the `by` columns: model_a, model_b, the `by`
        columns, value_a, value_b, difference (a minus b, each model on its own
        answers), se (clustered by prompt), low, high, p (two-sided, unadjusted: the
        interval excludes zero exactly where p < 1 - confidence), p_holm (Holm over the
        rows), agreement (share of items with the same outcome), n_prompts, n_pairs
        (items that both models answered), n_ties_a, n_ties_b, missing, average, reason
        (why a number is missing, with the way out).

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
    columns = [] if by is None else [by] if isinstance(by, str) else list(by)
    selected = select_models(table, a, b)
    table = table if common else selected
    prepared = prepare(
        table, average, ties, common, options, by=columns, cluster=cluster, min_models=2
    )
    weights, models = group_weights(prepared, columns), prepared.items.models
    first, second = np.array([[models.index(a)], [models.index(b)]])
    frame = _compare_pairs(prepared.items, weights, first, second, confidence)
    for place, column in enumerate(columns):
        frame.insert(2 + place, column, weights.numbers[column].array)
    frame["p_holm"] = holm(frame["p"].to_numpy())
    if not columns:
        frame["reason"] = add_hint(
            frame["reason"], frame["difference"]
        )  # rows by domain are that way out already
    return tables.copy_provenance(table, frame)


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
    first, second = np.triu_indices(len(items.models), 1)
    frame = _compare_pairs(
        items, overall_weights(items, prepared.parts), first, second, confidence
    )
    p, is_blind = (
        frame["p"].to_numpy(),
        np.array([is_baseline(name) for name in items.models]),
    )
    between_models = ~is_blind[first] & ~is_blind[second]
    p_holm = holm(p)
    p_holm[between_models] = holm(p[between_models])
    return tables.copy_provenance(table, frame.assign(p_holm=p_holm))


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
        One row, or one per combination of the `by` columns: model_a, model_b, the `by`
        columns, difference, low, high (the interval at 1 - 2 alpha), margin, equivalent
        (the interval lies inside -margin to margin), smallest_margin (the least for
        which it would), n_prompts, average, reason. Rows are not adjusted for their
        number.

    References
    ----------
    Schuirmann (1987): both one-sided tests reject exactly where the interval at 1 - 2
    alpha lies inside the margin.
    """
    if not 0 < margin < 1:
        raise ValueError(
            f"margin: {margin!r}; allowed: a difference of scores between 0 and 1, for example 0.02"
        )
    if not 0 < alpha < 0.5:
        raise ValueError(
            f"alpha: {alpha!r}; allowed: between 0 and 0.5, for example 0.05"
        )
    shared = {
        "by": by,
        "average": average,
        "ties": ties,
        "common": common,
        "cluster": cluster,
    }
    frame = compare(table, a, b, confidence=1 - 2 * alpha, **shared, **options)  # type: ignore[arg-type]
    farthest = np.maximum(-frame["low"].to_numpy(), frame["high"].to_numpy())
    is_inside = (
        pd.Series(farthest < margin).astype("boolean").where(frame["low"].notna())
    )
    frame = frame.assign(margin=margin, equivalent=is_inside, smallest_margin=farthest)
    order = [
        "difference",
        "low",
        "high",
        "margin",
        "equivalent",
        "smallest_margin",
        "n_prompts",
        "average",
        "reason",
    ]
    keys = frame.columns[: frame.columns.get_loc("value_a")]
    refuse_result_names(keys, order)
    return frame[[*keys, *order]]


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
        One row per comparison whose outcomes differ: benchmark, domain, id,
        chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level,
        outcome_a, outcome_b, margin_a, margin_b. A comparison without an answer of
        either model is not a flip.
    """
    pairs = as_pairs(select_models(table, a, b))
    if not common:
        comparison_items(pairs).require_same()
    described = ["subset", "chosen_style", "rejected_style", "level"]
    rows = pairs[["model", *ITEM, *described, "outcome", "margin"]].dropna(
        subset=["outcome"]
    )
    rows_a, rows_b = (
        rows[rows["model"] == name].drop(columns="model") for name in (a, b)
    )
    merged = rows_a.merge(
        rows_b.drop(columns=described),
        on=ITEM,
        suffixes=("_a", "_b"),
        validate="one_to_one",
    )
    order = [*ITEM, *described, "outcome_a", "outcome_b", "margin_a", "margin_b"]
    return merged.loc[merged["outcome_a"] != merged["outcome_b"], order].reset_index(
        drop=True
    )


def select_models(table: pd.DataFrame, a: str, b: str | None) -> pd.DataFrame:
    """The rows of the models `a` and `b`; DataError where they are the same or not in
    the table.
    """
    tables.require_columns(table, ["model"], "pairs")
    if a == b:
        raise DataError(f"a, b: both are {a!r}. Name two models.")
    models = list(table["model"].unique())
    for argument, name in (("a", a), ("b", b)):
        if name is not None and name not in models:
            raise DataError(
                f"{argument}: no model {name!r} in table; {tables.nearest(name, models)}."
            )
    return table[table["model"].isin([a, b])]


def add_hint(reasons: Iterable[str], values: Iterable[float]) -> pd.Series:
    """The reasons of overall numbers; those of missing ones with the way out."""
    hinted = [
        f"{reason}; {HINT}" if np.isnan(value) else reason
        for reason, value in zip(reasons, values, strict=True)
    ]
    return pd.Series(hinted, dtype="str")


def _compare_pairs(
    items: Items, weights: Weights, first: IntArray, second: IntArray, confidence: float
) -> pd.DataFrame:
    """One row per number and pair of models (their places); p_holm is not adjusted yet."""
    result = estimate(items, weights, confidence, contrasts=range(len(weights.means)))
    names, frames = np.array(result.models, object), []
    for number, mean in enumerate(weights.means):
        difference = differences(
            result, first, second, number=number, confidence=confidence
        )
        counted = np.concatenate(
            [items.rows_of_cell[cell] for cell in mean.cells] or [np.zeros(0, np.intp)]
        )
        outcome = items.outcome[:, counted]
        # Counts by matrix products; single precision counts exactly up to 16 million
        # items.
        flags = [
            flag.astype(np.float32)
            for flag in (outcome > MISSING, *(outcome == o for o in (LOSS, TIE, WIN)))
        ]
        n_pairs, *n_alike = (
            (flag @ flag.T)[first, second].astype(np.intp) for flag in flags
        )
        with np.errstate(invalid="ignore"):
            agreement = np.sum(n_alike, axis=0) / n_pairs
        value, n_ties, n_prompts = (
            column[:, number]
            for column in (result.value, result.n_ties, result.n_prompts)
        )
        frame = pd.DataFrame(
            {"model_a": names[first], "model_b": names[second]}, dtype="str"
        )
        frame = frame.assign(
            value_a=value[first],
            value_b=value[second],
            difference=difference.value,
            se=difference.se,
        )
        frame = frame.assign(
            low=difference.low,
            high=difference.high,
            p=difference.p,
            p_holm=difference.p,
        )
        frame = frame.assign(
            agreement=agreement,
            n_prompts=np.minimum(n_prompts[first], n_prompts[second]),
        )
        frame = frame.assign(
            n_pairs=n_pairs, n_ties_a=n_ties[first], n_ties_b=n_ties[second]
        )
        frame = frame.assign(
            missing=len(counted) - n_pairs,
            average=result.label,
            reason=difference.reason,
        )
        frames.append(frame.astype({"average": "str", "reason": "str"}))
    return pd.concat(frames, ignore_index=True)
