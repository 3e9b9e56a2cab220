"""Scores with the fitted effect of style or length taken off, without looking at the
labels; and the cost of that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.bias import regression
from rmlab.estimation.clustered import MIN_PROMPTS, group_means, indicator
from rmlab.estimation.items import CREDIT_OF_TIE, Ties
from rmlab.tables import (
    KEY,
    LEVELS,
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    copy_provenance,
    group_codes,
)

_RESAMPLES = 300
_CHANGES = (
    "level",
    "before",
    "after",
    "change",
    "se",
    "low",
    "high",
    "flipped",
    "n_pairs",
    "n_prompts",
    "reason",
)


def debias(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    on: str | Sequence[str] = "characters",
    within: bool = True,
    folds: int = 5,
    seed: int = 0,
    suffix: str = " debiased",
) -> pd.DataFrame:
    """Take the effect of length (or style) off the scores, without looking at the
    labels.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    features : DataFrame, optional
        Counts of each answer, from `rmlab.styles.features(responses)`; not needed for
        `on="step"`.
    on : str or sequence of str
        Columns of `features`, which enter as log2 (log2(1 + count) where they can be
        0), or "step": concise 0, plain 1, markdown 2. A liking for Markdown alone does
        not lie on a straight line through the three: name what is liked ("headings",
        say) where you know it.
    within : bool
        Whether every prompt has its own level, so that only answers of one prompt are
        held against each other. If not, the fit also learns from the scores of prompts
        with long answers beside those of prompts with short ones.
    folds : int
        Prompts are dealt into so many folds; the effect on a prompt's scores is fitted
        on the other folds.
    seed : int
        Of the deal.
    suffix : str
        Added to the model's name, so that both tables can stand in one.

    Returns
    -------
    DataFrame
        A table of scores in the order of `scores`, with a last column `removed` (old
        minus new score; differences inside a prompt have a meaning, its level has
        none). Missing scores stay missing.

    Raises
    ------
    DataError
        With fewer prompts than 5 or than `folds`, for a feature that does not vary, and
        for features of other responses.

    Notes
    -----
    score = level + slopes * `on`, by least squares. Where right answers are shorter or
    longer than wrong ones, part of the effect is merit: `debias_change` shows the cost.

    References
    ----------
    Huang and others (arXiv 2409.17407) for calibration with one level for all prompts.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    x = _regressors(scores, features, on)
    removed = np.zeros(len(scores))
    # Model by model: scores of different models have no scale in common.
    for rows in regression.group_rows(scores, ["model"]):
        prompt, fold = _deal(scores.iloc[rows], folds, seed)
        weights = np.ones((1, len(fold)))
        slopes = _fit_slopes(
            scores["score"].to_numpy()[rows],
            x.iloc[rows],
            prompt,
            fold,
            weights,
            within,
        )[0]
        removed[rows] = (x.to_numpy()[rows] * slopes[fold[prompt]]).sum(axis=1)
    model = scores["model"] + suffix
    return copy_provenance(
        scores,
        scores.assign(model=model, score=scores["score"] - removed, removed=removed),
    )


def debias_change(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    on: str | Sequence[str] = "characters",
    within: bool = True,
    folds: int = 5,
    seed: int = 0,
    by: str | Sequence[str] = "model",
    ties: Ties = "half",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure what `debias` does to the accuracy.

    Parameters
    ----------
    scores, features, on, within, folds, seed
        As in `debias`.
    by : str or sequence of str
        Columns that define the rows; must hold "model" if there are several.
    ties : {"half", "loss", "drop"}
        What a tie earns. A correction breaks ties, so with "loss" it gains by that
        alone; the default is half.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together; default: the
        prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns and level (easy, normal, hard where
        known, then all, then ties if there are any: all comparisons, if only the ties
        were broken): these, level, before, after, change, se, low, high (of the
        change), flipped (share of comparisons whose outcome changes), n_pairs (with an
        outcome in both), n_prompts, reason. Where the two answers of no comparison
        differ in `on`, such as the step on normal, the change is 0 by algebra, and
        `reason` says so.

    Notes
    -----
    The error is that of 300 resamples of the prompts, each fitted and counted anew, so
    that it knows that the slopes were estimated. The limits are the wider of Student's
    t and the resamples' percentiles: without an effect, ties are broken this way or
    that by the sign of a slope. Where no resample changes an outcome, the limits say
    how much may lie unseen.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> change = debias_change(scores, on="step")
    >>> change.loc[change["level"] == "normal", "change"].item()
    0.0
    """
    tables.check_option("ties", ties, tuple(CREDIT_OF_TIE))
    scores = tables.check_scores(scores, allow_missing=True)
    columns, cluster_columns = regression.group_columns(
        scores, by, cluster, results=_CHANGES
    )
    if "model" not in columns and len(scores["model"].unique()) > 1:
        raise DataError(
            f"by: {columns} has no 'model', but the table has several. Add 'model'."
        )
    x = _regressors(scores, features, on)
    frames = []
    for rows in regression.group_rows(scores, ["model"]):
        model_scores = scores.iloc[rows].reset_index(drop=True)
        model_x = x.iloc[rows].reset_index(drop=True)
        changes = _resample(
            model_scores, model_x, cluster_columns, within, folds, seed, ties
        )
        pairs = changes.pairs
        for group in regression.group_rows(pairs, columns):
            level = pairs["level"].iloc[group]
            parts = {
                name: group[level == name] for name in LEVELS if (level == name).any()
            }
            parts["all"] = group
            if changes.is_tie[group].any():
                parts["ties"] = group
            for name, part in parts.items():
                row = pairs[columns].iloc[group[0]].to_dict()
                row["level"] = name
                frames.append(
                    row | changes.measure(part, confidence, ties_alone=name == "ties")
                )
    return copy_provenance(scores, pd.DataFrame(frames)[[*columns, *_CHANGES]])


class _Changes(NamedTuple):
    """Comparisons of one model before and after the correction, as they are and in
    every resample.

    is_tie: tied before, and counted; differs: the two answers differ in a regressor;
    before, after: credit, NaN where missing; weight: how often the comparison was
    drawn. All are (pairs,), after and weight (draws, pairs), of which the first draw is
    the table as it is.
    """

    pairs: pd.DataFrame
    is_tie: BoolArray
    differs: BoolArray
    prompt: IntArray
    cluster: IntArray
    before: FloatArray
    after: FloatArray
    flipped: BoolArray
    weight: FloatArray

    def measure(
        self, part: IntArray, confidence: float, ties_alone: bool
    ) -> dict[str, object]:
        """Means of the comparisons of a part, with error and limits of the change."""
        is_counted = ~np.isnan(self.before[part] + self.after[0, part])
        part = part[is_counted]
        change = self.after[:, part] - self.before[part]
        if ties_alone:
            change = change * self.is_tie[part]
        weight = self.weight[:, part] * ~np.isnan(change)
        with np.errstate(invalid="ignore"):
            changes = (weight * np.nan_to_num(change)).sum(axis=1) / weight.sum(axis=1)
        flipped = self.flipped[part] & (self.is_tie[part] | (not ties_alone))
        n_prompts = len(np.unique(self.prompt[part]))
        if len(part) and not self.differs[part].any():
            interval = dict.fromkeys(("se", "low", "high"), 0.0)
            reason = "zero by algebra: the answers of no comparison differ in the columns of on="
        else:
            interval = _interval(changes, change[0], self.cluster[part], confidence)
            reason = regression.few_prompts(n_prompts)
        before = self.before[part].mean() if len(part) else np.nan
        return {
            "before": before,
            "after": before + changes[0],
            "change": changes[0],
            **interval,
            "flipped": flipped.mean() if len(part) else np.nan,
            "n_pairs": len(part),
            "n_prompts": n_prompts,
            "reason": reason,
        }


def _resample(
    scores: pd.DataFrame,
    x: pd.DataFrame,
    cluster_columns: list[str],
    within: bool,
    folds: int,
    seed: int,
    ties: Ties,
) -> _Changes:
    """Fit and count one model's scores as they are, and in resamples of its clusters."""
    prompt, fold = _deal(scores, folds, seed)
    codes, first_rows = group_codes(scores, cluster_columns)
    cluster_of_prompt = np.zeros(len(fold), np.intp)
    cluster_of_prompt[prompt] = codes
    n_clusters = len(first_rows)
    draws = np.random.default_rng(seed).multinomial(
        n_clusters, np.full(n_clusters, 1 / n_clusters), _RESAMPLES
    )
    weight = np.vstack([np.ones(n_clusters), draws])[:, cluster_of_prompt]
    slopes = _fit_slopes(scores["score"].to_numpy(), x, prompt, fold, weight, within)

    pairs = metrics.pairs(scores)
    chosen, rejected = regression.look_up_sides(
        pairs, scores[KEY].join(x), list(x.columns)
    )
    difference = chosen - rejected
    pair_prompt = _number_prompts(pairs)
    margin = pairs["margin"].to_numpy()
    margins = margin - np.einsum("dpc,pc->dp", slopes[:, fold[pair_prompt]], difference)
    before = _credit_of(margin, ties)
    return _Changes(
        pairs=pairs,
        is_tie=(margin == 0) & ~np.isnan(before),
        differs=np.abs(difference).max(axis=1) > 0,
        prompt=pair_prompt,
        cluster=cluster_of_prompt[pair_prompt],
        before=before,
        after=_credit_of(margins, ties),
        flipped=np.sign(margin) != np.sign(margins[0]),
        weight=weight[:, pair_prompt],
    )


def _credit_of(margin: FloatArray, ties: Ties) -> FloatArray:
    return np.select(
        [margin > 0, margin < 0, margin == 0], [1.0, 0.0, CREDIT_OF_TIE[ties]], np.nan
    )


def _interval(
    changes: FloatArray, change: FloatArray, cluster: IntArray, confidence: float
) -> dict[str, float]:
    """Error and limits of the first of `changes` from those of the resamples; `change`
    and `cluster`: (pairs,).
    """
    value, resampled = changes[0], changes[1:]
    quantile = regression.t_limit(confidence, len(np.unique(cluster)))
    if np.isnan(quantile):
        return dict.fromkeys(("se", "low", "high"), np.nan)
    se = float(np.nanstd(resampled, ddof=1))
    tail = (1 - confidence) / 2
    low = min(value - quantile * se, np.nanquantile(resampled, tail))
    high = max(value + quantile * se, np.nanquantile(resampled, 1 - tail))
    if (
        se == 0
    ):  # no resample flips anything: a gaining and a losing cluster may lie unseen
        one_group = np.zeros(len(change), np.intp)
        codes = np.unique(cluster, return_inverse=True)[1]
        mean = group_means(
            change, one_group, codes, 1, bounds=(-1.0, 1.0), confidence=confidence
        )
        low, high = mean.low[0], mean.high[0]
    return {"se": se, "low": max(low, -1.0), "high": min(high, 1.0)}


def _regressors(
    scores: pd.DataFrame, features: pd.DataFrame | None, on: str | Sequence[str]
) -> pd.DataFrame:
    """The columns `on` of each answer."""
    names = [on] if isinstance(on, str) else list(on)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"on: {names}; name at least one column, each once")
    return pd.DataFrame(
        {name: regression.answer_column(scores, features, name) for name in names}
    )


def _number_prompts(frame: pd.DataFrame) -> IntArray:
    """Number of each row's prompt in the order of the keys, so that the order of rows
    decides nothing.
    """
    return frame.groupby(PROMPT, sort=True).ngroup().to_numpy().astype(np.intp)


def _deal(scores: pd.DataFrame, folds: int, seed: int) -> tuple[IntArray, IntArray]:
    """Prompt of each row, and fold of each prompt: of equal size, but for one prompt."""
    if folds < 2:
        raise ValueError(
            f"folds: {folds}; at least 2, or a prompt would be calibrated on itself"
        )
    prompt, n_needed = _number_prompts(scores), max(folds, MIN_PROMPTS)
    n_prompts = int(prompt.max(initial=-1)) + 1
    if n_prompts < n_needed:
        raise DataError(
            f"scores: {n_prompts} prompts of model {scores['model'].unique()}; debias needs {n_needed}."
        )
    fold = np.empty(n_prompts, np.intp)
    fold[np.random.default_rng(seed).permutation(n_prompts)] = (
        np.arange(n_prompts) % folds
    )
    return prompt, fold


def _fit_slopes(
    y: FloatArray,
    x: pd.DataFrame,
    prompt: IntArray,
    fold: IntArray,
    weights: FloatArray,
    within: bool,
) -> FloatArray:
    """Least-squares slopes for the prompts of each fold, fitted on the other folds:
    (draws, folds, columns).
    """
    observed = ~np.isnan(y)
    if not observed.any():
        return np.zeros((len(weights), int(fold.max()) + 1, x.shape[1]))
    y, columns, prompt = y[observed], x.to_numpy()[observed], prompt[observed]
    centered = regression.demean(columns, prompt if within else np.zeros_like(prompt))
    is_flat = np.abs(centered).max(axis=0) <= 1e-9  # columns are of the order of 1
    if is_flat.any():
        name = x.columns[int(is_flat.argmax())]
        raise DataError(
            f"features: {name!r} does not vary inside prompts. Choose another column with on=."
        )
    if within:
        y = regression.demean(y, prompt)
    else:
        centered = np.column_stack([np.ones(len(y)), columns])
    # Sums of squares and products by prompt: a resample or a fold is a weighted sum of
    # them.
    products = centered[:, :, None] * np.column_stack([centered, y])[:, None, :]
    by_prompt = (indicator(prompt, len(fold)).T @ products.reshape(len(y), -1)).reshape(
        len(fold), *products.shape[1:]
    )
    slopes = []
    for number in range(int(fold.max()) + 1):
        sums = np.einsum("dp,pij->dij", weights * (fold != number), by_prompt)
        # A pseudo-inverse, so that columns that repeat each other share one effect.
        inverse = np.linalg.pinv(sums[..., :-1], rcond=1e-12, hermitian=True)
        slopes.append((inverse @ sums[..., -1:])[:, -x.shape[1] :, 0])
    return np.stack(slopes, axis=1)
