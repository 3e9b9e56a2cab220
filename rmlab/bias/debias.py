"""Scores with the fitted effect of style or length taken off, without looking at the labels; and the cost of that."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.bias import regression
from rmlab.metrics.estimate import MIN_PROMPTS, add_two_clusters, indicator
from rmlab.metrics.items import CREDIT_OF_TIE, FloatArray, Ties
from rmlab.tables import KEY, LEVELS, PROMPT, DataError, IntArray, copy_provenance, group_codes

_RESAMPLES = 300
_CHANGES = ("level", "before", "after", "change", "se", "low", "high", "flipped", "n_pairs", "n_prompts", "reason")


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
    """Take the effect of length (or style) off the scores, without looking at the labels.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    features : DataFrame, optional
        Counts of each answer, from `rmlab.styles.features(responses)`; not needed for `on="step"`.
    on : str or sequence of str
        Columns of `features`, which enter as log2 (log2(1 + count) where they can be 0), or "step": concise 0, plain 1,
        markdown 2. A liking for Markdown alone does not lie on a straight line through the three: name what is liked
        ("headings", say) where you know it.
    within : bool
        Whether every prompt has its own level, so that only answers of one prompt are held against each other. If not,
        the fit also learns from the scores of prompts with long answers beside those of prompts with short ones.
    folds : int
        Prompts are dealt into so many folds; the effect on a prompt's scores is fitted on the other folds.
    seed : int
        Of the deal.
    suffix : str
        Added to the model's name, so that both tables can stand in one.

    Returns
    -------
    DataFrame
        A table of scores in the order of `scores`, with a last column `removed` (old minus new score; differences
        inside a prompt have a meaning, its level has none). Missing scores stay missing.

    Raises
    ------
    DataError
        With fewer prompts than 5 or than `folds`, for a feature that does not vary, and for features of other
        responses.

    Notes
    -----
    score = level + slopes * `on`, by least squares. Where right answers are shorter or longer than wrong ones, part of
    the effect is merit: `debias_change` shows the cost.

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
        slopes = _fit_slopes(scores["score"].to_numpy()[rows], x.iloc[rows], prompt, fold, weights, within)[0]
        removed[rows] = (x.to_numpy()[rows] * slopes[fold[prompt]]).sum(axis=1)
    model = scores["model"] + suffix
    return copy_provenance(scores, scores.assign(model=model, score=scores["score"] - removed, removed=removed))


def debias_change(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    on: str | Sequence[str] = "characters",
    within: bool = True,
    folds: int = 5,
    seed: int = 0,
    by: str | Sequence[str] = "model",
    ties: Ties = "loss",
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
    ties : {"loss", "half", "drop"}
        What a tie earns.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns and level (easy, normal, hard where known, then all): these, level,
        before, after, change, se, low, high (of the change), flipped (share of comparisons whose outcome changes),
        n_pairs (with an outcome in both), n_prompts, reason.

    Notes
    -----
    The error is that of 300 resamples of the prompts, each fitted and counted anew, so that it knows that the slopes
    were estimated. Where no resample changes an outcome, the limits say how much may lie unseen.

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
    columns, cluster_columns = regression.group_columns(scores, by, cluster, results=_CHANGES)
    if "model" not in columns and len(scores["model"].unique()) > 1:
        raise DataError(f"by: {columns} has no 'model', but the table has several. Add 'model'.")
    x = _regressors(scores, features, on)
    frames = []
    for rows in regression.group_rows(scores, ["model"]):
        model_scores, model_x = (frame.iloc[rows].reset_index(drop=True) for frame in (scores, x))
        prompt, fold = _deal(model_scores, folds, seed)
        codes, first_rows = group_codes(model_scores, cluster_columns)
        cluster_of_prompt = np.zeros(len(fold), np.intp)
        cluster_of_prompt[prompt], n = codes, len(first_rows)
        draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), _RESAMPLES)
        # How often each prompt was drawn; first the table as it is.
        weights = np.vstack([np.ones(n), draws])[:, cluster_of_prompt]
        slopes = _fit_slopes(model_scores["score"].to_numpy(), model_x, prompt, fold, weights, within)
        pairs = metrics.pairs(model_scores)
        chosen, rejected = regression.look_up_sides(pairs, model_scores[KEY].join(model_x), list(x.columns))
        pair_prompt, margin = _number_prompts(pairs), pairs["margin"].to_numpy()
        margins = margin - np.einsum("dpc,pc->dp", slopes[:, fold[pair_prompt]], chosen - rejected)
        credit = [1.0, 0.0, CREDIT_OF_TIE[ties]]
        before, after = (np.select([m > 0, m < 0, m == 0], credit, np.nan) for m in (margin, margins))
        change = after - before
        items = pd.DataFrame({"before": before, "after": after[0], "change": change[0]})
        items["flipped"] = (np.sign(margin) != np.sign(margins[0])).astype(float)
        weight, change = weights[:, pair_prompt] * ~np.isnan(change), np.nan_to_num(change)
        for group in regression.group_rows(pairs, columns):
            level = pairs["level"].iloc[group]
            parts = {name: group[level == name] for name in LEVELS if (level == name).any()} | {"all": group}
            for name, part in parts.items():
                counted_items = items.iloc[part].dropna(subset="change")
                prompts = pair_prompt[counted_items.index]
                with np.errstate(invalid="ignore"):
                    changes = (weight[:, part] * change[:, part]).sum(axis=1) / weight[:, part].sum(axis=1)
                row = {**pairs[columns].iloc[group[0]], "level": name, **counted_items.mean()}
                row |= _interval(changes, np.bincount(cluster_of_prompt[prompts]), confidence)
                frames.append(row | {"n_pairs": len(counted_items), "n_prompts": len(np.unique(prompts))})
    frame = pd.DataFrame(frames).assign(reason=[regression.few_prompts(row["n_prompts"]) for row in frames])
    return copy_provenance(scores, frame[[*columns, *_CHANGES]])


def _interval(changes: FloatArray, cluster_size: IntArray, confidence: float) -> dict[str, float]:
    """Error and limits of the first change from the others."""
    quantile = regression.t_limit(confidence, int((cluster_size > 0).sum()))
    if np.isnan(quantile):
        return dict.fromkeys(("se", "low", "high"), np.nan)
    value, se = changes[0], float(np.nanstd(changes[1:], ddof=1))
    center, half = float(value), quantile * se
    if se == 0:  # no resample flips anything: a gaining and a losing cluster may lie unseen
        kish = cluster_size.sum() ** 2 / (cluster_size**2).sum()
        share, variance = add_two_clusters(np.array((value + 1) / 2), np.array(kish))
        center, half = 2 * float(share) - 1, 2 * quantile * float(np.sqrt(variance))
    return {"se": se, "low": max(min(center - half, value), -1.0), "high": min(max(center + half, value), 1.0)}


def _regressors(scores: pd.DataFrame, features: pd.DataFrame | None, on: str | Sequence[str]) -> pd.DataFrame:
    """The columns `on` of each answer."""
    names = [on] if isinstance(on, str) else list(on)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"on: {names}; name at least one column, each once")
    return pd.DataFrame({name: regression.answer_column(scores, features, name) for name in names})


def _number_prompts(frame: pd.DataFrame) -> IntArray:
    """Number of each row's prompt in the order of the keys, so that the order of rows decides nothing."""
    return frame.groupby(PROMPT, sort=True).ngroup().to_numpy().astype(np.intp)


def _deal(scores: pd.DataFrame, folds: int, seed: int) -> tuple[IntArray, IntArray]:
    """Prompt of each row, and fold of each prompt: of equal size, but for one prompt."""
    if folds < 2:
        raise ValueError(f"folds: {folds}; at least 2, or a prompt would be calibrated on itself")
    prompt, n_needed = _number_prompts(scores), max(folds, MIN_PROMPTS)
    n_prompts = int(prompt.max(initial=-1)) + 1
    if n_prompts < n_needed:
        raise DataError(f"scores: {n_prompts} prompts of model {scores['model'].unique()}; debias needs {n_needed}.")
    fold = np.empty(n_prompts, np.intp)
    fold[np.random.default_rng(seed).permutation(n_prompts)] = np.arange(n_prompts) % folds
    return prompt, fold


def _fit_slopes(
    y: FloatArray, x: pd.DataFrame, prompt: IntArray, fold: IntArray, weights: FloatArray, within: bool
) -> FloatArray:
    """Least-squares slopes for the prompts of each fold, fitted on the other folds: (draws, folds, columns)."""
    observed = ~np.isnan(y)
    if not observed.any():
        return np.zeros((len(weights), int(fold.max()) + 1, x.shape[1]))
    y, columns, prompt = y[observed], x.to_numpy()[observed], prompt[observed]
    centered = regression.demean(columns, prompt if within else np.zeros_like(prompt))
    is_flat = np.abs(centered).max(axis=0) <= 1e-9  # columns are of the order of 1
    if is_flat.any():
        name = x.columns[int(is_flat.argmax())]
        raise DataError(f"features: {name!r} does not vary inside prompts. Choose another column with on=.")
    if within:
        y = regression.demean(y, prompt)
    else:
        centered = np.column_stack([np.ones(len(y)), columns])
    # Sums of squares and products by prompt: a resample or a fold is a weighted sum of them.
    products = centered[:, :, None] * np.column_stack([centered, y])[:, None, :]
    by_prompt = (indicator(prompt, len(fold)).T @ products.reshape(len(y), -1)).reshape(len(fold), *products.shape[1:])
    slopes = []
    for number in range(int(fold.max()) + 1):
        sums = np.einsum("dp,pij->dij", weights * (fold != number), by_prompt)
        # A pseudo-inverse, so that columns that repeat each other share one effect.
        inverse = np.linalg.pinv(sums[..., :-1], rcond=1e-12, hermitian=True)
        slopes.append((inverse @ sums[..., -1:])[:, -x.shape[1] :, 0])
    return np.stack(slopes, axis=1)
