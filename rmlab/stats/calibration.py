"""Margins as probabilities: how they spread, and whether they are calibrated as win
probabilities.
"""

import numpy as np
import pandas as pd

from rmlab.estimation.clustered import group_means
from rmlab.estimation.items import (
    as_pairs,
    cluster_columns,
    refuse_result_names,
    require_item_columns,
)
from rmlab.tables import DataError, default_cluster, group_codes

_QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
_MARGIN_NUMBERS = (
    "n_pairs",
    "n_prompts",
    "missing",
    "mean",
    "sd",
    *_QUANTILES,
    "positive",
)


def calibration(
    table: pd.DataFrame,
    *,
    bins: int = 10,
    temperature: float = 1.0,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How often the preferred answer is the right one, against the probability that the
    margin stands for.

    In the Bradley-Terry model that reward models are trained with, the answer with the
    higher score is better with probability 1 / (1 + exp(-|margin| / temperature)).

    Parameters
    ----------
    table : DataFrame
        Scores or pairs with margins.
    bins : int
        Number of bins of equal width, from 0.5 to 1.
    temperature : float
        Divides the margins. Scores of judges, DPO sums or rescaled heads are not
        log-odds; this brings them to scale.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per model and bin: model, bin (from 0), left, right (its edges),
        predicted (mean probability), accuracy (share of comparisons whose preferred
        answer is the chosen one; a tie counts half), se, low, high (clustered by
        prompt; missing below five prompts), n_pairs, n_prompts, missing (of the model),
        and the model's ece, ece_low, ece_high, see `calibration_error`. A bin without
        comparisons is NaN with n = 0.

    Raises
    ------
    DataError
        If no comparison has a margin.

    References
    ----------
    Guo et al. (arXiv 1706.04599), section 2.
    """
    models, predictions = _predictions(table, bins, temperature, cluster)
    group, clusters, correct = (
        predictions[name].to_numpy() for name in ("group", "cluster", "correct")
    )
    n_groups = len(models) * bins
    accuracy = group_means(correct, group, clusters, n_groups, confidence=confidence)
    with np.errstate(
        invalid="ignore"
    ):  # 0 / 0 in an empty bin is the NaN that is promised
        predicted = (
            np.bincount(group, predictions["predicted"], n_groups) / accuracy.n_pairs
        )
    number = np.tile(np.arange(bins), len(models))
    rows = models.loc[np.repeat(models.index, bins)].reset_index(drop=True)
    frame = pd.DataFrame(
        {"model": rows["model"], "bin": number, "left": 0.5 + number / (2 * bins)}
    )
    frame = frame.assign(
        right=0.5 + (number + 1) / (2 * bins),
        predicted=predicted,
        accuracy=accuracy.value,
    )
    frame = frame.assign(se=accuracy.se, low=accuracy.low, high=accuracy.high)
    frame = frame.assign(
        n_pairs=accuracy.n_pairs, n_prompts=accuracy.n_prompts, missing=rows["missing"]
    )
    errors = _calibration_errors(predictions, bins, len(models), confidence)
    return frame.join(errors.loc[np.repeat(errors.index, bins)].reset_index(drop=True))


def calibration_error(
    table: pd.DataFrame,
    *,
    bins: int = 10,
    temperature: float = 1.0,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How far a model's margins are from log-odds.

    Parameters
    ----------
    table, bins, temperature, cluster, confidence
        As in `calibration`.

    Returns
    -------
    DataFrame
        One row per model: model; ece (expected calibration error: mean over bins of
        |accuracy - predicted|, weighted by their comparisons), ece_low, ece_high; brier
        (mean squared distance of the probability from what happened; a flat 0.5 has
        0.25) and log_loss (mean of log(1 + exp(-margin / temperature)), the loss that
        reward models are trained with; a flat 0.5 has 0.693), each with _low and _high;
        n_pairs, n_prompts, n_ties (half a win each), missing, reason. Fewer than five
        prompts give no interval.

    Notes
    -----
    The ECE is above zero by chance alone, since noise in a bin counts as error. Its
    lower limit therefore takes off the chance part that a calibrated model would have,
    so it is zero unless calibration is rejected. What averages out inside a bin is not
    seen (Kumar, Liang and Ma, arXiv 1909.10155, section 3).

    References
    ----------
    Guo et al. (arXiv 1706.04599).
    """
    models, predictions = _predictions(table, bins, temperature, cluster)
    names = ("model", "cluster", "correct", "predicted", "log_loss")
    model, clusters, correct, predicted, log_loss = (
        predictions[name].to_numpy() for name in names
    )
    frame = models[["model"]].join(
        _calibration_errors(predictions, bins, len(models), confidence)
    )
    squared = correct * (1 - predicted) ** 2 + (1 - correct) * predicted**2
    for name, value, upper_bound in (
        ("brier", squared, 1.0),
        ("log_loss", log_loss, np.inf),
    ):
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # margins beyond the floats: an infinite loss
            means = group_means(
                value,
                model,
                clusters,
                len(models),
                bounds=(0.0, upper_bound),
                confidence=confidence,
            )
        low = np.maximum(means.low, 0.0)
        frame = frame.assign(
            **{name: means.value, f"{name}_low": low, f"{name}_high": means.high}
        )
    n_ties = np.bincount(model[correct == 0.5], minlength=len(models))
    frame = frame.assign(
        n_pairs=means.n_pairs,
        n_prompts=means.n_prompts,
        n_ties=n_ties,
        missing=models["missing"],
    )
    return frame.assign(
        reason=pd.Series(
            np.where(means.n_pairs == 0, "no margins", means.reason), dtype="str"
        )
    )


def margins(table: pd.DataFrame, *, by: str = "level") -> pd.DataFrame:
    """How the margins spread.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs with margins.
    by : str
        A column of the pairs.

    Returns
    -------
    DataFrame
        One row per model and value of `by`: model, `by`, n_pairs, n_prompts, missing,
        mean, sd, q05, q25, q50, q75, q95 (quantiles, in the model's own units of
        score), positive (share above zero: the accuracy with ties lost).

    Raises
    ------
    DataError
        If no comparison has a margin, or `by` is missing in all of them.
    """
    pairs = _with_margins(table)
    require_item_columns(pairs, [by], [])
    refuse_result_names([by], _MARGIN_NUMBERS)
    if pairs[by].isna().all():
        raise DataError(f"by: {by!r} is missing in all comparisons. Use by='domain'.")
    order = pd.CategoricalDtype(pairs["model"].unique().tolist())
    is_ordered = isinstance(pairs[by].dtype, pd.CategoricalDtype)
    pairs = pairs.assign(
        model=pairs["model"].astype(order),
        prompt=group_codes(pairs, default_cluster(pairs))[0],
    )
    keys = list(dict.fromkeys(["model", by]))
    groups = pairs.groupby(keys, sort=is_ordered, observed=True)
    margin = groups["margin"]
    frame = pd.DataFrame(
        {"n_pairs": margin.count(), "n_prompts": groups["prompt"].nunique()}
    )
    frame = frame.assign(
        missing=groups.size() - frame["n_pairs"],
        mean=margin.mean(),
        sd=margin.std(ddof=0),
    )
    frame = frame.assign(
        **{name: margin.quantile(share) for name, share in _QUANTILES.items()}
    )
    is_positive = (pairs["margin"] > 0).where(pairs["margin"].notna()).astype(float)
    positive = is_positive.groupby([pairs[key] for key in keys], observed=True).mean()
    frame = frame.assign(positive=positive).reset_index()
    frame = (
        frame
        if is_ordered
        else frame.sort_values("model", kind="stable", ignore_index=True)
    )
    return frame.astype({"model": "str", by: pairs[by].dtype})


def _predictions(
    table: pd.DataFrame, bins: int, temperature: float, cluster: str | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Models with their comparisons that have no margin, and the probability that each
    other margin stands for.

    The second frame has model, group (of model and bin) and cluster as numbers,
    predicted (probability that the preferred answer is the right one, 0.5 to 1),
    correct (1 where it is, 0 where it is not, 0.5 for a tie), log_loss.
    """
    if not isinstance(bins, int) or bins < 1 or not temperature > 0:
        raise ValueError(
            f"bins, temperature: {bins!r}, {temperature!r}; allowed: whole bins from 1, a temperature above 0"
        )
    pairs = _with_margins(table)
    clusters_by = cluster_columns(pairs, cluster)
    model, first_rows = group_codes(pairs, ["model"])
    has_margin = pairs["margin"].notna().to_numpy()
    margin = pairs["margin"].to_numpy()[has_margin]
    with np.errstate(over="ignore"):  # a margin beyond the floats promises certainty
        log_odds = margin / temperature
    predicted = 1 / (1 + np.exp(-np.abs(log_odds)))
    # Certainty, a probability of 1, is the upper edge of the last bin and belongs to
    # it.
    group = bins * model[has_margin] + np.minimum(
        (2 * bins * (predicted - 0.5)).astype(np.intp), bins - 1
    )
    frame = pd.DataFrame(
        {
            "model": model[has_margin],
            "group": group,
            "cluster": group_codes(pairs, clusters_by)[0][has_margin],
            "predicted": predicted,
            "correct": 0.5 + 0.5 * np.sign(margin),
            "log_loss": np.logaddexp(0, -log_odds),
        }
    )
    models = pairs[["model"]].iloc[first_rows].reset_index(drop=True)
    models["missing"] = np.bincount(model[~has_margin], minlength=len(models))
    return models, frame


def _calibration_errors(
    predictions: pd.DataFrame, bins: int, n_models: int, confidence: float
) -> pd.DataFrame:
    """ece, ece_low and ece_high of each model."""
    model, group, clusters = (
        predictions[name].to_numpy() for name in ("model", "group", "cluster")
    )
    residual = (predictions["correct"] - predictions["predicted"]).to_numpy()
    sign = np.sign(np.bincount(group, residual, n_models * bins))[group]
    unbounded = (-np.inf, np.inf)
    # With the signs of the bins as they are, the ECE is a mean of signed residuals.
    signed = group_means(
        sign * residual,
        model,
        clusters,
        n_models,
        bounds=unbounded,
        confidence=confidence,
    )
    block, first_rows = group_codes(predictions, ["group", "cluster"])
    squares = np.bincount(block, residual, len(first_rows)) ** 2
    deviation = np.sqrt(
        np.bincount(group[first_rows], squares, n_models * bins)
    ).reshape(n_models, bins)
    with np.errstate(invalid="ignore"):
        # The mean of |x| for a normal x around zero, over bins: the chance part of a
        # calibrated model.
        chance = np.sqrt(2 / np.pi) * deviation.sum(axis=1) / signed.n_pairs
    low = np.maximum(signed.low - chance, 0.0)
    return pd.DataFrame(
        {"ece": signed.value, "ece_low": low, "ece_high": np.minimum(signed.high, 1.0)}
    )


def _with_margins(table: pd.DataFrame) -> pd.DataFrame:
    pairs = as_pairs(table)
    if pairs["margin"].isna().all():
        raise DataError(
            f"pairs: no margin in any of {len(pairs)} rows. Use scores; a judge has outcomes only."
        )
    return pairs
