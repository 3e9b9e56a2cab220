"""Margins as probabilities: how they spread, and whether they are calibrated as win probabilities."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.metrics import errors as clustered
from rmlab.metrics.means import clustered_mean, share_interval
from rmlab.stats.chance_error import binned_error
from rmlab.tables import PROMPT, DataError

__all__ = ["calibration", "calibration_error", "margins"]

Floats = NDArray[np.float64]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def calibration(
    pairs: pd.DataFrame, *, bins: int = 10, temperature: float = 1.0, confidence: float = 0.95
) -> pd.DataFrame:
    """How often the preferred answer is the right one, against the probability the margin stands for.

    One row per model and bin of predicted probability. In the Bradley-Terry model that reward models are trained
    with, the answer with the higher score is better with probability 1 / (1 + exp(-|margin| / temperature)), from
    0.5 to 1, cut into `bins` of equal width. Columns: model, bin (from 0), left, right (its edges), predicted (mean
    probability), accuracy (share of comparisons whose preferred answer is the chosen one; a tie counts half, as its
    prediction does), se, low, high (clustered by prompt; NaN below 5 prompts), n_pairs, n_prompts, missing (of the
    model), then of the model, the same in each of its rows: ece, ece_debiased, ece_low, ece_high, see
    `calibration_error`. A bin without comparisons is NaN with n = 0.
    Scores of judges, DPO sums or rescaled heads are not log-odds; `temperature` brings them to scale.
    Guo et al. (arXiv 1706.04599), section 2. Raises DataError where no comparison has a margin.
    """
    told = _promises(pairs, bins, temperature)
    size = len(told.models) * bins
    group = told.model * bins + told.bin  # (comparisons,): each model's bins have numbers of their own
    found = clustered_mean(told.right, group, told.prompt, size)
    low, high = share_interval(found, confidence=confidence)
    n = np.bincount(group, minlength=size)
    # 0 / 0 in a bin without comparisons is the NaN that is promised.
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(group, told.chance, size) / n
    number = np.tile(np.arange(bins), len(told.models))
    errors = np.repeat(_errors(told, bins, confidence), bins, axis=0)
    return pd.DataFrame({"model": pd.Series(np.repeat(np.array(told.models, object), bins), dtype="str")}).assign(
        bin=number,
        # The bins share out 0.5 to 1: an answer is preferred because its probability is the larger one.
        left=0.5 + number / (2 * bins),
        right=0.5 + (number + 1) / (2 * bins),
        predicted=predicted,
        accuracy=found.mean,
        se=found.se,
        low=low,
        high=high,
        n_pairs=n,
        n_prompts=found.n_clusters,
        missing=np.repeat(told.missing, bins),
        **dict(zip(("ece", "ece_debiased", "ece_low", "ece_high"), errors.T, strict=True)),
    )


def calibration_error(
    pairs: pd.DataFrame, *, bins: int = 10, temperature: float = 1.0, confidence: float = 0.95
) -> pd.DataFrame:
    """How far a model's margins are from log-odds, in one row per model.

    Columns: model; ece, the expected calibration error (mean over bins of |accuracy - predicted| weighted by n_pairs;
    Guo et al., arXiv 1706.04599), which is above zero by chance alone; ece_debiased, the same without that part: about
    0 for a calibrated model of any size, at times below; ece_low, ece_high, the interval of the binned error (it holds
    0 unless calibration is rejected); brier (mean squared distance of the promised probability from what happened; a
    flat 0.5 has 0.25) and log_loss (mean of log(1 + exp(-margin / temperature)), the loss reward models are trained
    with; a flat 0.5 has 0.693), each with _low and _high (Student's t, clustered by prompt, corrected for
    skewness as in Hall 1992: a few certain and wrong answers make most of a loss); n_pairs, n_prompts,
    n_ties (half a win each), missing, reason (why a number is not there).
    The error is that of the bins: what averages out inside a bin is not seen, so the true error may be larger
    (Kumar, Liang and Ma, arXiv 1909.10155, section 3). `rmlab.stats.chance_error` has the formulas. Fewer than 5
    prompts give no interval. Raises DataError where no comparison has a margin.
    """
    told = _promises(pairs, bins, temperature)
    size = len(told.models)
    n = np.bincount(told.model, minlength=size)
    n_prompts = np.zeros(size, np.intp)
    columns = dict(zip(("ece", "ece_debiased", "ece_low", "ece_high"), _errors(told, bins, confidence).T, strict=True))
    # The square of both outcomes, weighed by `right`: of a tie half of each.
    happened = (told.right * (1 - told.chance) ** 2 + (1 - told.right) * told.chance**2, told.loss)
    for name, value in zip(("brier", "log_loss"), happened, strict=True):
        mean, low, high, clusters = _skewed(value, told.model, told.prompt, size, confidence)
        columns |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        n_prompts = clusters.astype(int)
    few = [clustered.TOO_FEW if k < clustered.MIN_PROMPTS else "" for k in n_prompts]
    return pd.DataFrame({"model": pd.Series(told.models, dtype="str"), **columns}).assign(
        n_pairs=n,
        n_prompts=n_prompts,
        n_ties=np.bincount(told.model[told.right == 0.5], minlength=size),
        missing=told.missing,
        reason=[text if k else "no margins" for k, text in zip(n, few, strict=True)],
    )


class _Promises(NamedTuple):
    """What the margins promise and what happened: one entry per comparison with a margin."""

    models: list[str]
    model: NDArray[np.intp]
    prompt: NDArray[np.intp]
    bin: NDArray[np.intp]
    chance: Floats  # promised probability that the preferred answer is the right one, 0.5 to 1
    right: Floats  # 1 where it is, 0 where it is not, 0.5 for a tie
    loss: Floats  # log loss
    missing: NDArray[np.intp]  # comparisons without a margin, by model


def _promises(pairs: pd.DataFrame, bins: int, temperature: float) -> _Promises:
    if bins < 1 or not temperature > 0:
        raise ValueError(f"bins, temperature: {bins!r}, {temperature!r}; allowed: bins from 1, a temperature above 0")
    pairs = _with_margins(pairs)
    model, names = pd.factorize(pairs["model"])
    margin = pairs["margin"].to_numpy()
    known = ~np.isnan(margin)
    margin = margin[known]
    with np.errstate(over="ignore"):  # a margin beyond the floats promises certainty, as the largest float does
        odds = margin / temperature
    # Of the preferred answer, hence the absolute value; so the exponential cannot overflow either.
    chance = 1 / (1 + np.exp(-np.abs(odds)))
    # Certainty, a probability of 1, is the upper edge of the last bin and belongs to it.
    place = np.minimum((2 * bins * (chance - 0.5)).astype(np.intp), bins - 1)
    prompt = pairs.loc[known].groupby(PROMPT, sort=False).ngroup().to_numpy().astype(np.intp)
    missing = np.bincount(model[~known], minlength=len(names))
    # A positive margin prefers the chosen answer, which is the right one. logaddexp(0, -x) is log(1 + exp(-x)) without
    # overflow.
    right, loss = 0.5 + 0.5 * np.sign(margin), np.logaddexp(0, -odds)
    return _Promises(list(names), model[known].astype(np.intp), prompt, place, chance, right, loss, missing)


def _errors(told: _Promises, bins: int, confidence: float) -> Floats:
    """Plain error, debiased error and limits of each model, (models, 4); NaN without margins."""
    errors = np.full((len(told.models), 4), np.nan)
    for number in range(len(told.models)):
        own = told.model == number
        if not own.any():
            continue
        # Numbered anew for this model: `binned_error` makes a row for every number up to the largest.
        prompt = np.unique(told.prompt[own], return_inverse=True)[1]
        residual = told.right[own] - told.chance[own]
        errors[number] = binned_error(residual, told.bin[own], prompt, bins, confidence=confidence)
        if prompt.max() + 1 < clustered.MIN_PROMPTS:
            errors[number, 2:] = np.nan  # the errors stand, their interval needs prompts
    return errors


def margins(pairs: pd.DataFrame, *, by: str = "level") -> pd.DataFrame:
    """How the margins spread: one row per model and value of `by`.

    Columns: model, `by`, n_pairs, n_prompts, missing, mean, sd, q05, q25, q50, q75, q95 (quantiles, in the model's own
    units of score), positive (share above zero: the accuracy with ties lost). Raises DataError without margins.
    """
    pairs = _with_margins(pairs)
    if by not in pairs.columns:
        raise DataError(f"by: {by!r} is not a column of pairs; {tables.nearest(by, list(pairs.columns))}")
    if pairs[by].isna().all():
        raise DataError(f"by: {by!r} is missing in all comparisons; use by='domain'")
    prompt = pairs.groupby(PROMPT, sort=False).ngroup()
    grouped = pairs.assign(_prompt=prompt).groupby(["model", by], sort=False, observed=True)
    rows = []
    for (model, value), part in grouped:
        margin = part["margin"].dropna().to_numpy()
        counts = {"n_pairs": len(margin), "n_prompts": part["_prompt"].nunique(), "missing": len(part) - len(margin)}
        rows.append({"model": model, by: value} | counts | _describe(margin))
    frame = pd.DataFrame(rows)
    frame = frame.assign(**{by: frame[by].astype(pairs[by].dtype), "model": frame["model"].astype("str")})
    # Models in the order of the table; the values of `by` in theirs only if they have one (levels), else as they
    # appear.
    place = {name: i for i, name in enumerate(pairs["model"].unique())}
    ordered = isinstance(pairs[by].dtype, pd.CategoricalDtype)
    keys = ["model", by] if ordered else ["model"]
    sort = frame.sort_values(keys, key=lambda c: c.map(place) if c.name == "model" else c, kind="stable")
    return sort.reset_index(drop=True)


def _with_margins(pairs: pd.DataFrame) -> pd.DataFrame:
    pairs = tables.check_pairs(pairs)
    if pairs["margin"].isna().all():
        raise DataError(
            f"pairs: no margin in any of {len(pairs)} rows; a judge gives outcomes only: use a reward model's scores"
        )
    return pairs


def _skewed(
    value: Floats, group: NDArray[np.intp], prompt: NDArray[np.intp], size: int, confidence: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean of each group, its limits and its number of clusters; the limits follow the skewness of the clusters."""
    from scipy.special import stdtrit

    # Pair of group and prompt as one whole number: the clusters, sorted by group.
    number, index = np.unique(group * (prompt.max(initial=0) + 1) + prompt, return_inverse=True)
    owner = number // (prompt.max(initial=0) + 1)
    sums = np.bincount(index, value, len(number)).astype(np.float64)
    counts = np.bincount(index, minlength=len(number)).astype(np.float64)
    found = clustered_mean(value, group, prompt, size)
    mean, se, n = found.mean, found.se, found.n_clusters
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Hall's cubic takes the skewness out of the t statistic; the limits below come from its inverse.
        # (clusters,): what each prompt adds to the error of the mean, a ratio of two sums, to first order.
        off = sums - mean[owner] * counts
        second, third = (np.bincount(owner, off**k, size) / n for k in (2, 3))  # central moments of those
        # Of the mean, so over the root of n. Without any spread there is none.
        skew = np.where(second > 0, third / second**1.5 / np.sqrt(n), 0.0)
        skew = np.where(np.abs(skew) > 1e-6, skew, 1e-6)  # at none the formula is 0 / 0, and its limit is t itself
        # Hall (1992): g(t) = t + skew t^2 / 3 + skew^2 t^3 / 27 + skew / 6 is nearly symmetric, and, unlike the plain
        # correction in t^2, rises everywhere. So its inverse at the two ends of Student's t is a cubic root.
        t = stdtrit(np.maximum(n - 1, 1), 0.5 + confidence / 2)
        down, up = (3 / skew * (np.cbrt(1 + skew * (side - skew / 6)) - 1) for side in (t, -t))
        return mean, mean - down * se, mean - up * se, n.astype(np.float64)


def _describe(margin: np.ndarray) -> dict[str, float]:
    names = ["mean", "sd", *(f"q{100 * q:02.0f}" for q in _QUANTILES), "positive"]
    if len(margin) == 0:
        return dict.fromkeys(names, np.nan)
    values = [margin.mean(), margin.std(), *np.quantile(margin, _QUANTILES), (margin > 0).mean()]
    return dict(zip(names, map(float, values), strict=True))
