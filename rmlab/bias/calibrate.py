"""Take the fitted style or length effect off the scores, without looking at what is right; and see what it changes."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, tables
from rmlab.bias.prompts import MIN_PROMPTS, columns_of, demean, exponent, groups_of, prompt_index, too_few
from rmlab.bias.regressors import doublings, lookup
from rmlab.metrics.means import clustered_mean, difference_interval
from rmlab.tables import LEVELS, PAIR_KEY, PROMPT, STYLE, DataError

__all__ = ["debias", "debias_change"]

Floats = NDArray[np.float64]
Method = Literal["linear", "lowess"]

SUFFIX = " debiased"
_GRID = 60  # points at which the smooth curve is computed
_ROUNDS = 100  # of backfitting, at most
_SETTLED = 1e-4  # of the range of the curve


def debias(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    method: Method = "linear",
    on: str | Sequence[str] = "characters",
    within: bool = True,
    folds: int = 5,
    frac: float = 0.4,
    seed: int = 0,
    suffix: str = SUFFIX,
) -> pd.DataFrame:
    """Scores with the effect of length (or style) taken off, one row per row of `scores`, in its order.

    Labels are never read: the fit sees scores, prompts and `on` only. Prompts are dealt into `folds` at random (seeded,
    whatever the row order); the effect that is taken off a prompt's scores was fitted on the other folds.
    "linear": score = level + slopes * `on`, least squares; several columns may be named, and "step" (concise 0, plain
    1, markdown 2) stands for the style. A taste for Markdown alone does not lie on a straight line through the three:
    the gap then closes while single cells stay off. Name what is liked ("headings", say) where you know it.
    "lowess": score = level + curve(`on`), one column, LOWESS with `frac` of the texts in each window. Counts enter
    as log2 (log2(1 + count) where they can be 0).
    `within=True`: every prompt has its own level, so only texts of one prompt are held against each other; made for
    benchmarks with several answers per label, as RM-Bench. `within=False`: one level for all texts, as in the
    calibration of Huang and others (arXiv 2409.17407); it also learns from what prompts with long answers score beside
    prompts with short ones.

    The result is a scores table: same keys, model named with `suffix` so that both can stand in one table, and a last
    column `removed` (old minus new score; its level means nothing, differences inside a prompt do). Missing scores stay
    missing. Scores that do not vary stay as they are. What it cannot know: where right answers are shorter or longer
    than wrong ones, part of what it takes off is merit; `debias_change` shows the cost.
    Raises DataError with fewer prompts than 5 or than `folds`, for a feature that does not vary, and for features of
    other responses.
    """
    if method not in ("linear", "lowess"):
        raise ValueError(f"method: {method!r}; {tables.nearest(method, ['linear', 'lowess'])}")
    if folds < 2:
        raise ValueError(f"folds: {folds}; at least 2, or a prompt would be calibrated on itself")
    on = [on] if isinstance(on, str) else list(on)
    if method == "lowess" and len(on) != 1:
        raise ValueError(f"on: {on}; 'lowess' takes one column, 'linear' several")
    scores = tables.check_scores(scores, allow_missing=True)
    if scores.empty:
        raise DataError("scores: no rows, so there is nothing to calibrate; look at what the rows were selected by")
    x = _regressors(scores, features, on)
    removed = np.zeros(len(scores))
    # Model by model: scores of different models have no scale in common.
    for rows in groups_of(scores, ["model"]):
        own = scores.iloc[rows]
        fold = _deal(own, folds, seed)
        if own["score"].notna().any():
            # Without a score there is nothing to fit and nothing to take off.
            removed[rows] = _effect_of(own, x[rows], fold, on, method if method == "linear" else frac, within)
    return scores.assign(model=scores["model"] + suffix, score=_less(scores, removed), removed=removed)


def _effect_of(
    own: pd.DataFrame, x: Floats, fold: NDArray[np.intp], on: list[str], method: Literal["linear"] | float, within: bool
) -> Floats:
    """What goes off each score of one model: fitted on the other folds; a number as `method` is LOWESS's window."""
    y, prompt = own["score"].to_numpy(), prompt_index(own)
    effect: Floats = np.zeros(len(own))
    power = exponent(y)
    y = np.ldexp(y, -power)  # so that the squares of the largest floats are floats
    for number in np.unique(fold):
        away, here = (fold != number) & ~np.isnan(y), fold == number
        # Numbered anew for the other folds; without levels of their own all texts are one prompt.
        index = np.unique(prompt[away], return_inverse=True)[1] if within else np.zeros(away.sum(), np.intp)
        _check_varies(demean(x[away], index), on, own["model"].iloc[0])
        if method == "linear":
            effect[here] = x[here] @ _slopes(y[away], x[away], index)
        else:
            # A text longer than all of the other folds gets the end of their curve, not a line drawn on beyond it.
            effect[here] = np.interp(x[here][:, 0], *_curve(y[away], x[away][:, 0], index, float(method)))
    with np.errstate(over="ignore"):
        scaled: Floats = np.ldexp(effect, power)
    return scaled


def _less(scores: pd.DataFrame, removed: Floats) -> Floats:
    """Scores less what goes off them; raises DataError where a result is too large for a float."""
    with np.errstate(over="ignore", invalid="ignore"):
        left: Floats = scores["score"].to_numpy(np.float64) - removed
    beyond = ~np.isfinite(left) & scores["score"].notna().to_numpy()
    if beyond.any():
        model = scores["model"].iloc[int(beyond.argmax())]
        raise DataError(
            f"scores: the scores of {model!r} less their effect are beyond the floats; divide its scores by 1000"
        )
    return left


def debias_change(
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    by: str | Sequence[str] = "model",
    suffix: str = SUFFIX,
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """What a calibration does to accuracy: one row per model and level (easy, normal, hard where known, then all).

    `before` and `after`: scores and what `debias` made of them (same keys; model names with `suffix`). `by`: columns
    that make the rows instead of the model alone, such as ["model", "domain"]. Columns: those of `by`, level (text),
    before, after, change, se, low, high (of the change: the same comparisons twice, clustered by prompt; never of zero
    width, see `rmlab.metrics.means.difference_interval`), flipped (share of comparisons whose outcome is another one),
    n_pairs (with an outcome in both), n_prompts, reason.
    Raises DataError where the two tables do not hold the same comparisons.
    """
    old = metrics.pairs(before)
    new = metrics.pairs(after.assign(model=after["model"].astype("str").str.removesuffix(suffix)))
    both = old.merge(new[[*PAIR_KEY, "outcome"]], on=PAIR_KEY, how="left", suffixes=("", "_after"), indicator="side")
    # The join shows what only `before` has; the two lengths show what only `after` has.
    strange = int((both.pop("side") != "both").sum())
    if strange or len(new) != len(old):
        raise DataError(
            f"after: {len(new)} comparisons, before: {len(old)}, {strange} of them not in after; "
            "pass the scores and what debias(scores, ...) returned"
        )
    renamed = both.drop(columns="outcome").rename(columns={"outcome_after": "outcome"})
    values = metrics.credit(both, ties=ties), metrics.credit(renamed, ties=ties)
    # A missing outcome flips nothing.
    flipped = (both["outcome"] != both["outcome_after"]).to_numpy(dtype=float, na_value=0.0)
    rows = []
    by = columns_of(both, by, "pairs")
    for index in groups_of(both, by):
        level = both["level"].to_numpy()[index]
        parts = {name: index[level == name] for name in LEVELS if (level == name).any()} | {"all": index}
        rows += [
            {column: both[column].iloc[index[0]] for column in by}
            | {"level": name}
            | _change(both.iloc[part], values[0][part], values[1][part], flipped[part], confidence)
            for name, part in parts.items()
        ]
    return pd.DataFrame(rows)


def _change(
    pairs: pd.DataFrame, before: Floats, after: Floats, flipped: Floats, confidence: float
) -> dict[str, object]:
    there = ~(np.isnan(before) | np.isnan(after))
    prompt = np.unique(prompt_index(pairs)[there], return_inverse=True)[1]
    n_prompts = int(prompt.max(initial=-1)) + 1
    difference = after[there] - before[there]
    found = clustered_mean(difference, np.zeros(len(difference), np.intp), prompt, 1)
    low, high = difference_interval(found, confidence=confidence)
    some = len(difference) > 0
    return {
        "before": float(before[there].mean()) if some else np.nan,
        "after": float(after[there].mean()) if some else np.nan,
        "change": float(found.mean[0]),
        "se": float(found.se[0]),
        "low": float(low[0]),
        "high": float(high[0]),
        "flipped": float(flipped[there].mean()) if some else np.nan,
        "n_pairs": len(difference),
        "n_prompts": n_prompts,
        "reason": too_few(n_prompts),
    }


def _regressors(scores: pd.DataFrame, features: pd.DataFrame | None, on: list[str]) -> Floats:
    if not on or len(set(on)) < len(on):
        raise ValueError(f"on: {on}; name at least one column, each once")
    if features is None and on != ["step"]:
        raise DataError(
            f"features: None, but on={on}; pass rmlab.styles.features(responses), or on='step' for the style"
        )
    if "step" in on and scores["style"].isna().any():
        raise DataError("on: 'step' needs styles, but style is missing in some scores; use a column of features")
    columns = []
    for name in on:
        if name == "step" or features is None:
            columns.append(pd.Categorical(scores["style"], dtype=STYLE).codes.astype(float))
        else:
            columns.append(doublings(lookup(scores, features, [name], "scores")[:, 0]))
    return np.column_stack(columns)


def _deal(scores: pd.DataFrame, folds: int, seed: int) -> NDArray[np.intp]:
    """Fold of each row: prompts in the order of their keys, shuffled by the seed, dealt round."""
    number = scores.groupby(PROMPT, sort=True).ngroup().to_numpy()  # by key, so that the order of rows decides nothing
    n_prompts = int(number.max()) + 1
    if n_prompts < max(folds, MIN_PROMPTS):
        model = scores["model"].iloc[0]
        raise DataError(
            f"scores: model {model!r} has {n_prompts} prompts; calibration needs at least {max(folds, MIN_PROMPTS)} "
            f"(folds={folds}): score more prompts"
        )
    dealt = np.empty(n_prompts, np.intp)
    # Folds of equal size, but for one prompt.
    dealt[np.random.default_rng(seed).permutation(n_prompts)] = np.arange(n_prompts) % folds
    fold: NDArray[np.intp] = dealt[number]
    return fold


def _check_varies(x: Floats, on: list[str], model: str) -> None:
    # Doublings and steps are of the order of 1, so what is left below this is rounding.
    flat = np.abs(x).max(axis=0, initial=0.0) <= 1e-9
    if flat.any():
        raise DataError(
            f"features: {on[int(flat.argmax())]!r} does not vary inside the prompts of model {model!r}; "
            "there is nothing to take off: choose another column with on="
        )


def _slopes(y: Floats, x: Floats, prompt: NDArray[np.intp]) -> Floats:
    # Tiny singular values are left out, so that columns that repeat each other share one effect.
    slopes = np.linalg.lstsq(demean(x, prompt), demean(y, prompt), rcond=1e-10)[0]
    return slopes.astype(np.float64)


def _curve(y: Floats, x: Floats, prompt: NDArray[np.intp], frac: float) -> tuple[Floats, Floats]:
    """Grid and curve of score = level of the prompt + curve(x): smoothing and levels in turns (backfitting)."""
    from statsmodels.nonparametric.smoothers_lowess import lowess

    # At quantiles the curve is known where the texts are; where lengths repeat, so do quantiles.
    grid = np.unique(np.quantile(x, np.linspace(0, 1, _GRID)))
    curve: Floats = np.zeros(len(grid))
    size = np.bincount(prompt)
    # Hastie, Tibshirani and Friedman (2009), section 9.1.1, with the prompts' levels as the second term.
    for _ in range(_ROUNDS):
        level = np.bincount(prompt, y - np.interp(x, grid, curve)) / size
        # it=0: no rounds that weigh outliers down; the linear method has none either.
        smooth = lowess(y - level[prompt], x, frac=frac, it=0, xvals=grid)
        # The levels hold the constant: left in both, it could wander between them from turn to turn.
        before, curve = curve, (smooth - smooth.mean()).astype(np.float64)
        moved = float(np.abs(curve - before).max())
        if moved <= _SETTLED * np.ptp(curve):
            break
    return grid, curve
