"""Two models on a benchmark: differences with one test and its interval, agreement, and what flipped."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.baselines import is_baseline
from rmlab.items.comparisons import ITEM, as_pairs, comparison_items
from rmlab.items.grid import LOSS, MISSING, TIE, WIN, Codes, Floats, Items, require_same_items
from rmlab.items.weighting import Average, Number, weighs
from rmlab.metrics.comparisons import grouped
from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.numbers import Reading, overall, read
from rmlab.stats.difference import Difference, differences, holm
from rmlab.stats.simultaneous import adjusted_p, chance_of
from rmlab.tables import DataError

__all__ = ["WAY_OUT", "compare", "compare_all", "flips", "read_models", "with_way_out"]

WAY_OUT = "compare the parts with by='domain', or all answers alike with average='prompts'"


def compare(
    table: pd.DataFrame,
    a: str,
    b: str,
    *,
    by: str | Sequence[str] | None = None,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Model `a` against model `b`: one row, or one per combination of the `by` columns (as in `rmlab.accuracy`).

    Columns: model_a, model_b, those of `by`, value_a, value_b (the overall scores of `summary`, or the numbers of
    `accuracy`), difference (a minus b: each model on its own answers, nothing deleted pairwise), se (clustered by
    prompt), low, high, p (two-sided, unadjusted: the interval excludes zero exactly where p < 1 - confidence), p_holm
    (Holm over the rows; no interval belongs to it), agreement (share of items with the same outcome), n_prompts,
    n_pairs (items that both answered), n_ties_a, n_ties_b, missing (items that one of them has no score for), test,
    average, reason. `test` is "mcnemar" (exact, with the melded interval) where each prompt has one item that earns 0
    or 1, else "t" (CR2 errors and their degrees of freedom). Where a part is missing, difference and p are too, and
    `reason` says why and names the way out. Raises DataError where the models were scored on different comparisons,
    unless `common=True`.
    """
    if a == b:
        raise DataError(f"a, b: both are {a!r}; a comparison needs two models")
    columns = [] if by is None else [by] if isinstance(by, str) else list(by)
    two = _chosen(table, [a, b])
    # `common` means the items of all models, as in `rank` and `summary`, though only two are compared.
    reading = read_models(table if common else two, average, ties, common, options)
    first, second = (np.array([reading.items.models.index(name)]) for name in (a, b))  # one pair, as arrays
    rows = []
    for key, counted, need in grouped(reading, columns):
        number = reading.number(counted, need)
        one = estimate(reading.items, number, confidence=confidence)
        found = differences(one, first, second, confidence=confidence)
        rows.append(pd.DataFrame(_row(reading, number, one, found, first, second) | key))
    frame = pd.concat(rows, ignore_index=True)
    dtypes: dict[str, pd.CategoricalDtype | str] = {c: tables.CLOSED.get(c, "str") for c in columns}
    frame = frame.astype(dtypes).assign(p_holm=holm(frame["p"].to_numpy(float)))
    if not columns:
        # With `by` the rows are that way out already.
        frame["reason"] = with_way_out(frame["reason"], frame["difference"])
    return tables.made_from(table, _ordered(frame, columns))


def compare_all(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Every model against every other: one row per pair of models, in the order of the rows of `table`.

    The columns of `compare` without `by`, and p_adjusted behind p_holm: adjusted over all pairs by the largest
    statistic (max-t, step-down), which knows how the pairs hang together and so costs less than Holm. Read p_adjusted
    where all pairs are one question: two models share a letter in `rank` exactly where it is not below
    `1 - confidence`. Over 11,026 pairs it is still a harsh question; "which model is the best" is `compare_best`, and
    two models named beforehand are `compare`. Pairs of models are adjusted over the pairs of models, those with a
    content-blind baseline over all pairs.
    """
    reading = read_models(table, average, ties, common, options)
    number = overall(reading)
    one = estimate(reading.items, number, confidence=confidence)
    first, second = np.triu_indices(len(reading.items.models), 1)
    found = differences(one, first, second, confidence=confidence)
    frame = pd.DataFrame(_row(reading, number, one, found, first, second))
    frame = frame.assign(p_holm=holm(found.p), p_adjusted=_adjusted(reading.items.models, one, found, first, second))
    return _ordered(frame, [], ["p_adjusted"])


def _adjusted(models: list[str], one: Estimate, found: Difference, first: Codes, second: Codes) -> Floats:
    """p over all pairs; over the pairs of models alone for those, so that a baseline in the table moves no letter."""
    chance = chance_of(one.influence)
    adjusted = adjusted_p(chance, found.p, found.value, first, second)
    blind = np.array([is_baseline(name) for name in models])
    if blind.any():
        ranked = np.flatnonzero(~blind[first] & ~blind[second])
        # Models against models are a family of their own: drawn anew without the baselines, and numbered without them.
        own = chance_of(one.influence[~blind])
        place = np.cumsum(~blind) - 1
        adjusted[ranked] = adjusted_p(
            own, found.p[ranked], found.value[ranked], place[first[ranked]], place[second[ranked]]
        )
    return adjusted


def flips(table: pd.DataFrame, a: str, b: str, *, common: bool = False) -> pd.DataFrame:
    """Comparisons that two models judge differently: one row per comparison whose outcomes differ.

    Columns: benchmark, domain, id, chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level,
    outcome_a, outcome_b, margin_a, margin_b. A comparison without an answer of either model is not a flip.
    """
    pairs = as_pairs(_chosen(table, [a, b]))
    items = comparison_items(pairs)
    if not common:
        require_same_items(items, table="pairs")
    describing = ["subset", "chosen_style", "rejected_style", "level"]
    one, other = (
        pairs.loc[pairs["model"] == name, [*ITEM, *describing, "outcome", "margin"]].dropna(subset=["outcome"])
        for name in (a, b)
    )
    # ITEM is the key of a comparison, so within one model each stands once; a repeated one must not multiply rows.
    both = one.merge(other.drop(columns=describing), on=ITEM, suffixes=("_a", "_b"), validate="one_to_one")
    # As strings: categorical columns compare only where their categories are the same.
    differ = both["outcome_a"].astype("str") != both["outcome_b"].astype("str")
    order = [*ITEM, *describing, "outcome_a", "outcome_b", "margin_a", "margin_b"]
    return both.loc[differ, order].reset_index(drop=True)


def read_models(
    table: pd.DataFrame, average: Average, ties: str | None, common: bool, options: dict[str, str], fewest: int = 2
) -> Reading:
    """`read` for tables of several models, which must have been scored on the same items."""
    reading = read(table, average, ties, common, options)
    models = reading.items.models
    if len(models) < fewest:
        raise DataError(
            f"table: {len(models)} model {models}; a comparison needs {fewest}: "
            "add another model's rows with pd.concat([table, others])"
        )
    # Items that weigh nothing for a model, such as prior sets that it was not run on, may be missing there.
    require_same_items(reading.items, weighs(reading.items, reading.weighting))
    return reading


def with_way_out(reasons: Iterable[str], values: Iterable[float]) -> list[str]:
    """The reasons of overall numbers, those of missing ones with what can be asked for instead."""
    return [f"{r}; {WAY_OUT}" if np.isnan(value) else r for r, value in zip(reasons, values, strict=True)]


def _chosen(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The rows of some models, which must be there."""
    tables.require_columns(table, ["model"], "pairs")
    models = list(table["model"].unique())
    if not models:
        raise DataError("table: no rows; nothing to compare")
    for argument, name in zip("ab", names, strict=True):
        if name not in models:
            raise DataError(f"{argument}: no model {name!r} in table; {tables.nearest(name, models)}")
    return table[table["model"].isin(names)]


def _row(
    reading: Reading, number: Number, one: Estimate, found: Difference, first: Codes, second: Codes
) -> dict[str, object]:
    names = np.array(reading.items.models, object)
    return {
        "model_a": names[first],
        "model_b": names[second],
        "value_a": one.value[first],
        "value_b": one.value[second],
        "difference": found.value,
        "se": found.se,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        **_tallies(reading.items, number, one, first, second),
        "test": np.where(found.exact, "mcnemar", "t"),
        "average": reading.weighting.label,
        "reason": found.reason,
    }


def _tallies(items: Items, number: Number, one: Estimate, first: Codes, second: Codes) -> dict[str, object]:
    """How often both say the same, and what was counted: from the outcomes of all models by matrix products."""
    outcome = items.outcome[:, number.pool >= 0]  # (models, items that count here)
    answered = (outcome > MISSING).astype(np.float32)  # single precision counts exactly up to 16 million items
    same = sum(np.asarray(own @ own.T) for own in ((outcome == code).astype(np.float32) for code in (LOSS, TIE, WIN)))
    both = answered @ answered.T  # (models, models): comparisons that both answered
    with np.errstate(invalid="ignore"):
        agreement = (same / both)[first, second].astype(np.float64)
    n_pairs = both[first, second].astype(np.intp)
    return {
        "agreement": agreement,
        # Each model has its own where answers are missing: of the two numbers the smaller claims least.
        "n_prompts": np.minimum(one.n_prompts[first], one.n_prompts[second]),
        "n_pairs": n_pairs,
        "n_ties_a": one.n_ties[first],
        "n_ties_b": one.n_ties[second],
        "missing": outcome.shape[1] - n_pairs,
    }


def _ordered(frame: pd.DataFrame, by: list[str], further: Sequence[str] = ()) -> pd.DataFrame:
    strings = {c: frame[c].astype("str") for c in ("model_a", "model_b", "test", "average", "reason")}
    columns = [
        "model_a", "model_b", *by, "value_a", "value_b", "difference", "se", "low", "high", "p", "p_holm", *further,
        "agreement", "n_prompts", "n_pairs", "n_ties_a", "n_ties_b", "missing", "test", "average", "reason",
    ]  # fmt: skip
    return frame.assign(**strings)[columns]
