"""Two models on the same comparisons: paired differences, tests, agreement, and the comparisons that flipped."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, metrics, tables
from rmlab.stats.grid import ITEM, Codes, Floats, Grid, credit, grid
from rmlab.stats.permutation import holm, mcnemar, sign_flip
from rmlab.stats.targets import Average, Target, groups, target_of, too_few
from rmlab.tables import DataError

__all__ = ["Options", "compare", "compare_all", "flips", "paired"]

Mask = NDArray[np.bool_]

_BLOCK = 512  # pairs of models worked on at once
_COLUMNS = [
    "accuracy_a", "accuracy_b", "difference", "se", "low", "high", "p", "p_holm", "agreement",
    "n_prompts", "n_pairs", "ties_a", "ties_b", "missing", "test", "reason",
]  # fmt: skip


def compare(
    pairs: pd.DataFrame,
    a: str,
    b: str,
    *,
    by: str | Sequence[str] | None = None,
    average: Average = "benchmark",
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """Model `a` against model `b` on the same comparisons: one row, or one per combination of the `by` columns.

    Columns: model_a, model_b, those of `by`, accuracy_a, accuracy_b, difference (a minus b), se (clustered by
    prompt), low, high, p, p_holm (Holm over the rows), agreement (share of comparisons with the same outcome),
    n_prompts, n_pairs, ties_a, ties_b, missing (comparisons that either model left blank: counted, used for
    nothing), test, reason (why there is no interval, else empty).
    `test` is "mcnemar" (exact) where every prompt has one comparison, all count alike and ties are no half wins,
    else "sign-flip" by prompt with `resamples` flips. `by` may hold domain, subset, level, chosen_style,
    rejected_style; rows that are not of one domain or subset average their domains as `average` says (see
    `intervals`; pairs of one domain only are compared on that domain).
    Raises DataError where the models were scored on different comparisons, unless `common=True`.
    """
    table = grid(_models(pairs, a, b), common=common)
    worth = credit(table.outcome, ties)
    options = Options(confidence, resamples, seed, ties != "half")
    columns = [] if by is None else [by] if isinstance(by, str) else list(by)
    one, other = np.array([table.models.index(a)]), np.array([table.models.index(b)])
    rows = [
        pd.DataFrame(paired(table, worth, target, chosen, one, other, options)).assign(**key)
        for key, chosen, target in groups(table, columns, average)
    ]
    frame = pd.concat(rows, ignore_index=True).assign(model_a=a, model_b=b)
    typed = {c: frame[c].astype(table.items[c].dtype) for c in columns}
    return _finished(frame.assign(**typed), columns)


def compare_all(
    pairs: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """Every model against every other: one row per pair of models, in the order of the rows of `pairs`.

    The columns of `compare` without `by`; p_holm is Holm's adjustment over all pairs of models.
    """
    table = grid(pairs, common=common, fewest_models=2)
    worth = credit(table.outcome, ties)
    target = target_of(table, [], average)
    options = Options(confidence, resamples, seed, ties != "half")
    everything = np.ones(len(table.prompt), bool)
    first, second = np.triu_indices(len(table.models), 1)
    parts = []
    for start in range(0, len(first), _BLOCK):
        a, b = first[start : start + _BLOCK], second[start : start + _BLOCK]
        parts.append(pd.DataFrame(paired(table, worth, target, everything, a, b, options)))
    names = np.array(table.models, dtype=object)
    frame = pd.concat(parts, ignore_index=True)
    return _finished(frame.assign(model_a=names[first], model_b=names[second]), [])


def flips(pairs: pd.DataFrame, a: str, b: str, *, common: bool = False) -> pd.DataFrame:
    """Comparisons that two models judge differently: one row per comparison whose outcomes differ.

    Columns: benchmark, domain, id, chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level,
    outcome_a, outcome_b, margin_a, margin_b. A comparison that either model left blank is no flip.
    """
    pairs = _models(pairs, a, b)
    grid(pairs, common=common)  # raises where the models' comparisons differ
    describing = ["subset", "chosen_style", "rejected_style", "level"]
    one, other = (
        pairs.loc[pairs["model"] == name, [*ITEM, *describing, "outcome", "margin"]].dropna(subset=["outcome"])
        for name in (a, b)
    )
    both = one.merge(other.drop(columns=describing), on=ITEM, suffixes=("_a", "_b"), validate="one_to_one")
    differ = both["outcome_a"].astype("str") != both["outcome_b"].astype("str")
    order = [*ITEM, *describing, "outcome_a", "outcome_b", "margin_a", "margin_b"]
    return both.loc[differ, order].reset_index(drop=True)


class Options(NamedTuple):
    """How a comparison is made."""

    confidence: float
    resamples: int
    seed: int
    exact: bool  # McNemar's test is allowed: no half credit


def paired(
    table: Grid, worth: Floats, target: Target, chosen: Mask, first: Codes, second: Codes, options: Options
) -> dict[str, object]:
    """The columns of `compare` for some pairs of models on some comparisons."""
    cells, prompt = target.cells[chosen], table.prompt[chosen]
    a, b = worth[np.ix_(first, chosen)], worth[np.ix_(second, chosen)]
    blank = np.where(np.isnan(a) | np.isnan(b), np.nan, 0.0)
    gap = intervals.weighted_mean(a - b + blank, cells, target.weights, prompt, table.n_prompts)
    used = target.weights != 0
    of_a, of_b = (intervals.cell_means(x + blank, cells, len(used))[0][:, used] @ target.weights[used] for x in (a, b))
    single = len(np.unique(prompt)) == len(prompt) and len(target.weights) == 1 and options.exact
    return {
        "accuracy_a": of_a,
        "accuracy_b": of_b,
        **_interval(gap, target, options.confidence),
        "p": np.where(np.isnan(gap.value), np.nan, _p(gap.contribution, target, single, options)),
        "n_prompts": (~np.isnan(gap.influence)).sum(axis=1),
        "n_pairs": (blank == 0).sum(axis=1),
        **_tallies(table.outcome[np.ix_(first, chosen)], table.outcome[np.ix_(second, chosen)]),
        "test": "mcnemar" if single else "sign-flip",
    }


def _interval(gap: intervals.WeightedMean, target: Target, confidence: float) -> dict[str, object]:
    few = too_few(gap.influence, target)
    reason = ["no comparisons" if np.isnan(v) else r for v, r in zip(gap.value, few, strict=True)]
    se, freedom = intervals.stratified_error(gap.influence, target.strata)
    se = se + np.where([r == "" for r in reason], 0.0, np.nan)
    low, high = intervals.difference_interval(gap.value, se, freedom + 1, confidence=confidence)
    return {"difference": gap.value, "se": se, "low": low, "high": high, "reason": reason}


def _p(contribution: Floats, target: Target, single: bool, options: Options) -> Floats:
    if single:
        return mcnemar((contribution > 0).sum(axis=1), (contribution < 0).sum(axis=1))
    return sign_flip(contribution, target.strata, resamples=options.resamples, seed=options.seed)


def _tallies(a: NDArray[np.int8], b: NDArray[np.int8]) -> dict[str, object]:
    answered = (a >= 0) & (b >= 0)
    with np.errstate(invalid="ignore"):
        agreement = ((a == b) & answered).sum(axis=1) / answered.sum(axis=1)
    return {
        "agreement": agreement,
        "ties_a": (a == 1).sum(axis=1),
        "ties_b": (b == 1).sum(axis=1),
        "missing": (~answered).sum(axis=1),
    }


def _models(pairs: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """The rows of two models, which must be there and differ."""
    pairs = tables.check_pairs(pairs)
    if pairs.empty:
        raise DataError("pairs: no rows; nothing to compare")
    models = list(pairs["model"].unique())
    for argument, name in (("a", a), ("b", b)):
        if name not in models:
            raise DataError(f"{argument}: no model {name!r} in pairs; {tables.nearest(name, models)}")
    if a == b:
        raise DataError(f"a, b: both are {a!r}; a comparison needs two models")
    return pairs[pairs["model"].isin([a, b])]


def _finished(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    frame = frame.assign(
        p_holm=holm(frame["p"].to_numpy(float)),
        **{c: frame[c].astype("str") for c in ("model_a", "model_b", "test", "reason")},
    )
    return frame[["model_a", "model_b", *by, *_COLUMNS]]
