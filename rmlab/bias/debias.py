"""Scores with the fitted effect of style or length removed, and the cost of that."""

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
    """Take the effect of length or style off the scores without looking at the labels.

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
    y = scores["score"].to_numpy()
    removed = np.zeros(len(scores))
    # Model by model: scores of different models have no scale in common.
    for rows in regression.group_rows(scores, ["model"]):
        prompt, fold = _deal(scores.iloc[rows], folds, seed)
        model_x = x.iloc[rows]
        weights = np.ones((1, len(fold)))
        slopes = _fit_slopes(y[rows], model_x, prompt, fold, weights, within)[0]
        slopes_of_row = slopes[fold[prompt]]
        removed[rows] = (model_x.to_numpy() * slopes_of_row).sum(axis=1)
    debiased = scores.assign(
        model=scores["model"] + suffix,
        score=scores["score"] - removed,
        removed=removed,
    )
    return copy_provenance(scores, debiased)


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
        Column that names a cluster of prompts; default: the prompt.
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
        problem = f"by: {columns} has no 'model', but the table has several"
        raise DataError(problem, "add 'model'")
    x = _regressors(scores, features, on)

    results = []
    for rows in regression.group_rows(scores, ["model"]):
        model_scores = scores.iloc[rows].reset_index(drop=True)
        model_x = x.iloc[rows].reset_index(drop=True)
        changes = _resample(
            model_scores, model_x, cluster_columns, within, folds, seed, ties
        )
        for group in regression.group_rows(changes.pairs, columns):
            keys = changes.pairs[columns].iloc[group[0]].to_dict()
            for level, part in changes.split_levels(group).items():
                measured = changes.measure(part, confidence, level == "ties")
                results.append({**keys, "level": level, **measured})
    frame = pd.DataFrame(results).reindex(columns=[*columns, *_CHANGES])
    return copy_provenance(scores, frame)


class _Changes(NamedTuple):
    """Comparisons of one model before and after the correction.

    is_tie: tied before, and counted; differs: the two answers differ in a regressor;
    before, after: credit, NaN where missing; weight: how often the comparison was
    drawn. All are (pairs,), but after and weight are (draws, pairs): the first draw is
    the table as it is, the others are resamples.
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

    def split_levels(self, group: IntArray) -> dict[str, IntArray]:
        """Comparisons of a group by level, then all, then all again if some tie."""
        level = self.pairs["level"].iloc[group]
        parts = {}
        for name in LEVELS:
            part = group[level == name]
            if len(part):
                parts[name] = part
        parts["all"] = group
        if self.is_tie[group].any():
            parts["ties"] = group
        return parts

    def measure(
        self, part: IntArray, confidence: float, ties_alone: bool
    ) -> dict[str, object]:
        """Means of the comparisons of a part, with error and limits of the change."""
        is_counted = ~np.isnan(self.before[part] + self.after[0, part])
        part = part[is_counted]
        n_prompts = len(np.unique(self.prompt[part]))
        reason = regression.few_prompts(n_prompts)
        if not len(part):
            return {"n_pairs": 0, "n_prompts": 0, "reason": reason}

        change = self.after[:, part] - self.before[part]
        flipped = self.flipped[part]
        if ties_alone:
            change = change * self.is_tie[part]
            flipped = flipped & self.is_tie[part]
        mean_change = _weighted_means(change, self.weight[:, part])
        if self.differs[part].any():
            limits = _change_limits(
                mean_change, change[0], self.cluster[part], confidence
            )
        else:
            limits = _Limits(0.0, 0.0, 0.0)
            reason = (
                "zero by algebra:"
                " the answers of no comparison differ in the columns of on="
            )

        before = self.before[part].mean()
        return {
            "before": before,
            "after": before + mean_change[0],
            "change": mean_change[0],
            **limits._asdict(),
            "flipped": flipped.mean(),
            "n_pairs": len(part),
            "n_prompts": n_prompts,
            "reason": reason,
        }


class _Limits(NamedTuple):
    se: float
    low: float
    high: float


def _weighted_means(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Mean of each row of values that are there; NaN in a row without weight."""
    weight = weight * ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        sums = (weight * np.nan_to_num(values)).sum(axis=1)
        return np.asarray(sums / weight.sum(axis=1))


def _resample(
    scores: pd.DataFrame,
    x: pd.DataFrame,
    cluster_columns: list[str],
    within: bool,
    folds: int,
    seed: int,
    ties: Ties,
) -> _Changes:
    """Fit and count a model's scores as they are, and in resamples of its clusters."""
    prompt, fold = _deal(scores, folds, seed)
    clusters, first_rows = group_codes(scores, cluster_columns)
    cluster_of_prompt = np.zeros(len(fold), np.intp)
    cluster_of_prompt[prompt] = clusters
    weight = _draw_weights(len(first_rows), seed)[:, cluster_of_prompt]
    y = scores["score"].to_numpy()
    slopes = _fit_slopes(y, x, prompt, fold, weight, within)

    pairs = metrics.pairs(scores)
    chosen, rejected = regression.look_up_sides(
        pairs, scores[KEY].join(x), list(x.columns)
    )
    difference = chosen - rejected
    pair_prompt = _number_prompts(pairs)
    pair_slopes = slopes[:, fold[pair_prompt]]
    margin = pairs["margin"].to_numpy()
    new_margins = margin - np.einsum("dpc,pc->dp", pair_slopes, difference)
    before = _credit_of(margin, ties)
    return _Changes(
        pairs=pairs,
        is_tie=(margin == 0) & ~np.isnan(before),
        differs=np.abs(difference).max(axis=1) > 0,
        prompt=pair_prompt,
        cluster=cluster_of_prompt[pair_prompt],
        before=before,
        after=_credit_of(new_margins, ties),
        flipped=np.sign(margin) != np.sign(new_margins[0]),
        weight=weight[:, pair_prompt],
    )


def _draw_weights(n_clusters: int, seed: int) -> FloatArray:
    """How often each cluster counts: once as it is, then in every resample."""
    rng = np.random.default_rng(seed)
    share = np.full(n_clusters, 1 / n_clusters)
    draws = rng.multinomial(n_clusters, share, _RESAMPLES)
    return np.vstack([np.ones(n_clusters), draws])


def _credit_of(margin: FloatArray, ties: Ties) -> FloatArray:
    is_won = margin > 0
    is_lost = margin < 0
    is_tied = margin == 0
    credit = [1.0, 0.0, CREDIT_OF_TIE[ties]]
    return np.select([is_won, is_lost, is_tied], credit, np.nan)


def _change_limits(
    means: FloatArray, change: FloatArray, cluster: IntArray, confidence: float
) -> _Limits:
    """Error and limits of the first of `means` from the others, those of the resamples.

    `change` and `cluster` are those of the comparisons, (pairs,).
    """
    value = means[0]
    resampled = means[1:]
    t = regression.t_limit(confidence, len(np.unique(cluster)))
    if np.isnan(t):
        return _Limits(np.nan, np.nan, np.nan)
    se = float(np.nanstd(resampled, ddof=1))
    if se == 0:
        # No resample flips anything: a gaining and a losing cluster may lie unseen.
        mean = group_means(
            change,
            np.zeros(len(change), np.intp),
            np.unique(cluster, return_inverse=True)[1],
            1,
            bounds=(-1.0, 1.0),
            confidence=confidence,
        )
        low = mean.low[0]
        high = mean.high[0]
    else:
        # The wider of Student's t and the percentiles of the resamples.
        tail = (1 - confidence) / 2
        low = min(value - t * se, np.nanquantile(resampled, tail))
        high = max(value + t * se, np.nanquantile(resampled, 1 - tail))
    return _Limits(se, max(low, -1.0), min(high, 1.0))


def _regressors(
    scores: pd.DataFrame, features: pd.DataFrame | None, on: str | Sequence[str]
) -> pd.DataFrame:
    """The columns `on` of each answer."""
    names = [on] if isinstance(on, str) else list(on)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"on: {names}; name at least one column, each once")
    columns = {}
    for name in names:
        columns[name] = regression.answer_column(scores, features, name)
    return pd.DataFrame(columns)


def _number_prompts(frame: pd.DataFrame) -> IntArray:
    """Number of each row's prompt by its key, so that the order of rows is nothing."""
    return frame.groupby(PROMPT, sort=True).ngroup().to_numpy().astype(np.intp)


def _deal(scores: pd.DataFrame, folds: int, seed: int) -> tuple[IntArray, IntArray]:
    """Prompt of each row, and fold of each prompt: sizes differ by one at most."""
    if folds < 2:
        raise ValueError(
            f"folds: {folds}; at least 2, or a prompt would be calibrated on itself"
        )
    prompt = _number_prompts(scores)
    n_prompts = int(prompt.max(initial=-1)) + 1
    n_needed = max(folds, MIN_PROMPTS)
    if n_prompts < n_needed:
        problem = f"scores: {n_prompts} prompts of model {scores['model'].unique()}"
        raise DataError(problem, f"debias needs {n_needed}")
    fold = np.empty(n_prompts, np.intp)
    order = np.random.default_rng(seed).permutation(n_prompts)
    fold[order] = np.arange(n_prompts) % folds
    return prompt, fold


def _fit_slopes(
    y: FloatArray,
    x: pd.DataFrame,
    prompt: IntArray,
    fold: IntArray,
    weights: FloatArray,
    within: bool,
) -> FloatArray:
    """Least-squares slopes for the prompts of each fold, fitted on the other folds.

    (draws, folds, columns); `weights` of the prompts are (draws, prompts).
    """
    n_folds = int(fold.max()) + 1
    n_columns = x.shape[1]
    observed = ~np.isnan(y)
    if not observed.any():
        return np.zeros((len(weights), n_folds, n_columns))
    y = y[observed]
    prompt = prompt[observed]
    regressors = _remove_levels(x[observed], prompt, within)
    if within:
        y = regression.demean(y, prompt)

    sums_by_prompt = _sum_products(regressors, y, prompt, len(fold))
    slopes = []
    for number in range(n_folds):
        training_weights = weights * (fold != number)
        sums = np.einsum("dp,pij->dij", training_weights, sums_by_prompt)
        # A pseudo-inverse, so that columns that repeat each other share one effect.
        inverse = np.linalg.pinv(sums[..., :-1], rcond=1e-12, hermitian=True)
        coefficients = (inverse @ sums[..., -1:])[..., 0]
        slopes.append(coefficients[:, -n_columns:])
    return np.stack(slopes, axis=1)


def _remove_levels(x: pd.DataFrame, prompt: IntArray, within: bool) -> FloatArray:
    """Regressors without their prompts' means, or beside an intercept for all prompts.

    Raises DataError for a column that does not vary.
    """
    columns = x.to_numpy()
    level = prompt if within else np.zeros_like(prompt)
    centered = regression.demean(columns, level)
    is_flat = np.abs(centered).max(axis=0) <= 1e-9  # columns are of the order of 1
    if is_flat.any():
        name = x.columns[int(is_flat.argmax())]
        problem = f"features: {name!r} does not vary inside prompts"
        raise DataError(problem, "choose another column with on=")
    if within:
        return centered
    return np.column_stack([np.ones(len(columns)), columns])


def _sum_products(
    x: FloatArray, y: FloatArray, prompt: IntArray, n_prompts: int
) -> FloatArray:
    """Sums of x' [x y] by prompt: a resample or a fold is a weighted sum of them."""
    columns = np.column_stack([x, y])
    products = x[:, :, None] * columns[:, None, :]
    flat_products = products.reshape(len(y), -1)
    sums = indicator(prompt, n_prompts).T @ flat_products
    return np.asarray(sums.reshape(n_prompts, *products.shape[1:]))
