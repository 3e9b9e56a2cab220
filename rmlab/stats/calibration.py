"""Margins as probabilities of a win: their calibration."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.estimation.clustered import estimate_mean, group_means
from rmlab.estimation.groups import Group, Numbers, fit_groups
from rmlab.metrics.pairing import unique_pairs
from rmlab.tables import DataError, FloatArray, IntArray, group_codes


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
    pairs = _require_margins(table, bins, temperature)
    margin = pairs["margin"].to_numpy()

    def fit(group: Group) -> Numbers:
        margins = _read_margins(margin, group, bins, temperature)
        bin_of_pair = margins.bin
        accuracy = group_means(
            margins.correct,
            bin_of_pair,
            margins.group.cluster,
            bins,
            confidence,
        )
        # An empty bin is 0 / 0, the NaN that is promised.
        with np.errstate(invalid="ignore"):
            total = np.bincount(bin_of_pair, margins.probability, bins)
            predicted = total / accuracy.n_pairs
        prompts = pd.DataFrame({"bin": bin_of_pair, "prompt": margins.group.prompt})
        bin_of_prompt = prompts.drop_duplicates()["bin"]
        return {
            "bin": np.arange(bins),
            "left": 0.5 + np.arange(bins) / (2 * bins),
            "right": 0.5 + np.arange(1, bins + 1) / (2 * bins),
            "predicted": predicted,
            "accuracy": accuracy.value,
            "se": accuracy.se,
            "low": accuracy.low,
            "high": accuracy.high,
            "n_pairs": accuracy.n_pairs,
            "n_prompts": np.bincount(bin_of_prompt, minlength=bins),
            "missing": len(group.rows) - len(bin_of_pair),
            **_calibration_error(margins, confidence),
        }

    return fit_groups(pairs, "model", cluster, fit)


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
    pairs = _require_margins(table, bins, temperature)
    margin = pairs["margin"].to_numpy()

    def fit(group: Group) -> Numbers:
        margins = _read_margins(margin, group, bins, temperature)
        answered = margins.group
        correct = margins.correct
        error = correct - margins.probability
        # A tie is half right and half wrong.
        squared = error**2 + correct * (1 - correct)
        brier = estimate_mean(squared, answered.cluster, confidence)
        # Margins beyond the floats: an infinite loss.
        with np.errstate(over="ignore", invalid="ignore"):
            log_loss = estimate_mean(
                margins.log_loss, answered.cluster, confidence, bounds=(0.0, np.inf)
            )
        return {
            **_calibration_error(margins, confidence),
            "brier": brier.value,
            "brier_low": brier.low,
            "brier_high": brier.high,
            "log_loss": log_loss.value,
            "log_loss_low": np.maximum(log_loss.low, 0.0),
            "log_loss_high": log_loss.high,
            "n_pairs": len(answered.rows),
            "n_prompts": answered.n_prompts,
            "n_ties": (correct == 0.5).sum(),
            "missing": len(group.rows) - len(answered.rows),
            "reason": log_loss.reason if len(correct) else "no margins",
        }

    return fit_groups(pairs, "model", cluster, fit)


class _Margins(NamedTuple):
    """The comparisons of a model that have a margin, (comparisons,) each.

    `probability` (0.5 to 1) is that of the preferred answer to be the right one, `bin`
    its bin; `correct` is 1 where it is right, 0 where it is not, 0.5 for a tie.
    """

    group: Group
    bin: IntArray
    probability: FloatArray
    correct: FloatArray
    log_loss: FloatArray


def _require_margins(
    table: pd.DataFrame, bins: int, temperature: float
) -> pd.DataFrame:
    """The pairs of a table; DataError where none has a margin."""
    if not isinstance(bins, int) or bins < 1 or not temperature > 0:
        allowed = "whole bins from 1, a temperature above 0"
        raise ValueError(
            f"bins, temperature: {bins!r}, {temperature!r}; allowed: {allowed}"
        )
    pairs = unique_pairs(table)
    if pairs["margin"].isna().all():
        problem = f"pairs: no margin in any of {len(pairs)} rows"
        raise DataError(problem, "use scores; a judge has outcomes only")
    return pairs


def _read_margins(
    margin: FloatArray, group: Group, bins: int, temperature: float
) -> _Margins:
    """What the margins of a model promise."""
    answered = group.select(~np.isnan(margin[group.rows]))
    # A margin beyond the floats promises certainty.
    with np.errstate(over="ignore"):
        log_odds = margin[answered.rows] / temperature
    probability = 1 / (1 + np.exp(-np.abs(log_odds)))
    bin_number = (2 * bins * (probability - 0.5)).astype(np.intp)
    return _Margins(
        group=answered,
        # Certainty, a probability of 1, is the upper edge of the last bin and inside
        # it.
        bin=np.minimum(bin_number, bins - 1),
        probability=probability,
        correct=0.5 + 0.5 * np.sign(log_odds),
        log_loss=np.logaddexp(0, -log_odds),
    )


def _calibration_error(margins: _Margins, confidence: float) -> Numbers:
    """The columns ece, ece_low and ece_high of a model.

    Section "Margins as probabilities" of docs/statistics.md.
    """
    residual = margins.correct - margins.probability

    # With the signs of the bins as they are, the ECE is a mean of signed residuals.
    sign = np.sign(np.bincount(margins.bin, residual))
    signed = sign[margins.bin] * residual
    ece = estimate_mean(
        signed, margins.group.cluster, confidence, bounds=(-np.inf, np.inf)
    )

    # The part of the ECE that a calibrated model has by chance: the mean of |x| for a
    # normal x around zero, over bins.
    codes = pd.DataFrame({"bin": margins.bin, "cluster": margins.group.cluster})
    block, first_rows = group_codes(codes, ["bin", "cluster"])
    squared_sums = np.bincount(block, residual) ** 2
    variance = np.bincount(margins.bin[first_rows], squared_sums)
    with np.errstate(invalid="ignore"):
        chance = np.sqrt(2 / np.pi) * np.sqrt(variance).sum() / ece.n_pairs
    return {
        "ece": ece.value.item(),
        "ece_low": np.maximum(ece.low - chance, 0.0).item(),
        "ece_high": np.minimum(ece.high, 1.0).item(),
    }
