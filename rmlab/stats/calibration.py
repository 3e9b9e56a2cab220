"""Margins as probabilities of a win: their calibration."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.estimation.clustered import Estimate, group_means
from rmlab.estimation.items import number_clusters
from rmlab.metrics.pairing import unique_pairs
from rmlab.tables import PROMPT, DataError, FloatArray, IntArray, group_codes


def calibration(
    table: pd.DataFrame,
    *,
    bins: int = 10,
    temperature: float = 1.0,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Compare how often the preferred answer is right with what the margins promise.

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
        One row per model and bin, with the columns

        - model, and bin (from 0);
        - left, right: the edges of the bin;
        - predicted: mean probability;
        - accuracy: share of comparisons whose preferred answer is the chosen one; a tie
          counts half;
        - se, low, high: clustered by prompt, missing below five prompts;
        - n_pairs, n_prompts, and missing (of the model);
        - ece, ece_low, ece_high: the model's, see `calibration_error`.

        A bin without comparisons is NaN with n = 0.

    Raises
    ------
    DataError
        If no comparison has a margin.

    References
    ----------
    Guo et al. (arXiv 1706.04599), section 2.
    """
    predictions = _predict_outcomes(table, bins, temperature, cluster)
    group = predictions.group
    n_groups = len(predictions.models) * bins
    accuracy = group_means(
        predictions.correct,
        group,
        predictions.cluster,
        n_groups,
        confidence=confidence,
    )
    # An empty bin is 0 / 0, the NaN that is promised.
    with np.errstate(invalid="ignore"):
        total = np.bincount(group, predictions.probability, n_groups)
        predicted = total / accuracy.n_pairs

    errors = _calibration_errors(predictions, bins, confidence)
    model, bin_number = np.divmod(np.arange(n_groups), bins)
    by_bin = predictions.models.join(errors).loc[model].reset_index(drop=True)
    return pd.DataFrame(
        {
            "model": by_bin["model"],
            "bin": bin_number,
            "left": 0.5 + bin_number / (2 * bins),
            "right": 0.5 + (bin_number + 1) / (2 * bins),
            "predicted": predicted,
            "accuracy": accuracy.value,
            "se": accuracy.se,
            "low": accuracy.low,
            "high": accuracy.high,
            "n_pairs": accuracy.n_pairs,
            "n_prompts": predictions.count_prompts(group, n_groups),
            "missing": by_bin["missing"],
            **by_bin[list(errors)],
        }
    )


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
        One row per model, with the columns

        - model;
        - ece, ece_low, ece_high: expected calibration error, the mean over bins of
          |accuracy - predicted|, weighted by their comparisons;
        - brier, brier_low, brier_high: mean squared distance of the probability from
          the outcome; a flat 0.5 has 0.25;
        - log_loss, log_loss_low, log_loss_high: mean of log(1 + exp(-margin /
          temperature)), the loss that reward models are trained with; a flat 0.5 has
          0.693;
        - n_pairs, n_prompts, n_ties (half a win each), missing;
        - reason: why a number or its interval is missing.

        Fewer than five prompts give no interval.

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
    predictions = _predict_outcomes(table, bins, temperature, cluster)
    correct = predictions.correct
    probability = predictions.probability
    squared = correct * (1 - probability) ** 2 + (1 - correct) * probability**2
    brier = predictions.average(squared, confidence, bounds=(0.0, 1.0))
    # Margins beyond the floats: an infinite loss.
    with np.errstate(over="ignore", invalid="ignore"):
        log_loss = predictions.average(
            predictions.log_loss, confidence, bounds=(0.0, np.inf)
        )

    n_models = len(predictions.models)
    n_ties = np.bincount(predictions.model[correct == 0.5], minlength=n_models)
    reason = np.where(brier.n_pairs == 0, "no margins", log_loss.reason)
    return pd.DataFrame(
        {
            "model": predictions.models["model"],
            **_calibration_errors(predictions, bins, confidence),
            "brier": brier.value,
            "brier_low": brier.low,
            "brier_high": brier.high,
            "log_loss": log_loss.value,
            "log_loss_low": np.maximum(log_loss.low, 0.0),
            "log_loss_high": log_loss.high,
            "n_pairs": brier.n_pairs,
            "n_prompts": predictions.count_prompts(predictions.model, n_models),
            "n_ties": n_ties,
            "missing": predictions.models["missing"],
            "reason": pd.Series(reason, dtype="str"),
        }
    )


class _Predictions(NamedTuple):
    """The models with their number of missing margins, and the comparisons that have a
    margin, (comparisons,) each.

    `model`, `group` (of model and bin), `prompt` and `cluster` are numbers;
    `probability` (0.5 to 1) is that of the preferred answer to be the right one;
    `correct` is 1 where it is, 0 where it is not, 0.5 for a tie.
    """

    models: pd.DataFrame
    model: IntArray
    group: IntArray
    prompt: IntArray
    cluster: IntArray
    probability: FloatArray
    correct: FloatArray
    log_loss: FloatArray

    def average(
        self, values: FloatArray, confidence: float, bounds: tuple[float, float]
    ) -> Estimate:
        """Means of values over the comparisons of each model."""
        return group_means(
            values,
            self.model,
            self.cluster,
            len(self.models),
            bounds=bounds,
            confidence=confidence,
        )

    def count_prompts(self, group: IntArray, n_groups: int) -> IntArray:
        """How many prompts have a comparison in each group."""
        members = pd.DataFrame({"group": group, "prompt": self.prompt})
        return np.bincount(members.drop_duplicates()["group"], minlength=n_groups)


def _predict_outcomes(
    table: pd.DataFrame, bins: int, temperature: float, cluster: str | None
) -> _Predictions:
    """What the margins of a table promise."""
    if not isinstance(bins, int) or bins < 1 or not temperature > 0:
        allowed = "whole bins from 1, a temperature above 0"
        raise ValueError(
            f"bins, temperature: {bins!r}, {temperature!r}; allowed: {allowed}"
        )
    pairs = unique_pairs(table)
    has_margin = pairs["margin"].notna().to_numpy()
    if not has_margin.any():
        problem = f"pairs: no margin in any of {len(pairs)} rows"
        raise DataError(problem, "use scores; a judge has outcomes only")
    model_of_pair, first_rows = group_codes(pairs, ["model"])
    models = pairs[["model"]].iloc[first_rows].reset_index(drop=True)
    models["missing"] = np.bincount(model_of_pair[~has_margin], minlength=len(models))

    model = model_of_pair[has_margin]
    margin = pairs["margin"].to_numpy()[has_margin]
    # A margin beyond the floats promises certainty.
    with np.errstate(over="ignore"):
        log_odds = margin / temperature
    probability = 1 / (1 + np.exp(-np.abs(log_odds)))
    bin_number = (2 * bins * (probability - 0.5)).astype(np.intp)
    # Certainty, a probability of 1, is the upper edge of the last bin and inside it.
    bin_number = np.minimum(bin_number, bins - 1)
    return _Predictions(
        models=models,
        model=model,
        group=bins * model + bin_number,
        prompt=group_codes(pairs, PROMPT)[0][has_margin],
        cluster=number_clusters(pairs, cluster)[has_margin],
        probability=probability,
        correct=0.5 + 0.5 * np.sign(margin),
        log_loss=np.logaddexp(0, -log_odds),
    )


def _calibration_errors(
    predictions: _Predictions, bins: int, confidence: float
) -> pd.DataFrame:
    """ece, ece_low and ece_high of each model.

    Section "Margins as probabilities" of docs/statistics.md.
    """
    group = predictions.group
    n_groups = len(predictions.models) * bins
    residual = predictions.correct - predictions.probability

    # With the signs of the bins as they are, the ECE is a mean of signed residuals.
    sign = np.sign(np.bincount(group, residual, n_groups))
    signed = sign[group] * residual
    ece = predictions.average(signed, confidence, bounds=(-np.inf, np.inf))

    # The part of the ECE that a calibrated model has by chance: the mean of |x| for a
    # normal x around zero, over bins.
    codes = pd.DataFrame({"group": group, "cluster": predictions.cluster})
    block, first_rows = group_codes(codes, ["group", "cluster"])
    squared_sums = np.bincount(block, residual, len(first_rows)) ** 2
    variance = np.bincount(group[first_rows], squared_sums, n_groups)
    deviation = np.sqrt(variance).reshape(-1, bins)
    with np.errstate(invalid="ignore"):
        chance = np.sqrt(2 / np.pi) * deviation.sum(axis=1) / ece.n_pairs
    return pd.DataFrame(
        {
            "ece": ece.value,
            "ece_low": np.maximum(ece.low - chance, 0.0),
            "ece_high": np.minimum(ece.high, 1.0),
        }
    )
