"""Margins as probabilities: how they spread, and whether a Bradley-Terry model may believe them."""

import numpy as np
import pandas as pd

from rmlab import intervals, tables
from rmlab.tables import PROMPT, DataError

__all__ = ["calibration", "margins"]

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
    model), ece (of the model: mean of |accuracy - predicted| weighted by n_pairs). A bin without comparisons is NaN
    with n = 0.
    Scores of judges, DPO sums or rescaled heads are no log-odds; `temperature` brings them to scale.
    Guo et al. (arXiv 1706.04599), section 2. Raises DataError where no comparison has a margin.
    """
    if bins < 1 or temperature <= 0:
        raise ValueError(f"bins, temperature: {bins!r}, {temperature!r}; allowed: bins from 1, a temperature above 0")
    pairs = _with_margins(pairs)
    model, names = pd.factorize(pairs["model"])
    margin = pairs["margin"].to_numpy()
    known = ~np.isnan(margin)
    chance = 1 / (1 + np.exp(-np.abs(margin[known]) / temperature))
    group = model[known] * bins + np.minimum((2 * bins * (chance - 0.5)).astype(np.intp), bins - 1)
    right = 0.5 + 0.5 * np.sign(margin[known])
    size = len(names) * bins
    prompt = pairs.loc[known].groupby(PROMPT, sort=False).ngroup().to_numpy()
    mean, se, n_prompts = _clustered(right, group, prompt, size)
    se = np.where(n_prompts < intervals.FEWEST, np.nan, se)
    low, high = intervals.share_interval(mean, se, n_prompts, confidence=confidence)
    n = np.bincount(group, minlength=size)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(group, chance, size) / n
        off = np.nan_to_num(np.abs(mean - predicted) * n).reshape(-1, bins).sum(axis=1)
        error = off / n.reshape(-1, bins).sum(axis=1)
    number = np.tile(np.arange(bins), len(names))
    return pd.DataFrame({"model": pd.Series(np.repeat(np.asarray(names, object), bins), dtype="str")}).assign(
        bin=number,
        left=0.5 + number / (2 * bins),
        right=0.5 + (number + 1) / (2 * bins),
        predicted=predicted,
        accuracy=mean,
        se=se,
        low=low,
        high=high,
        n_pairs=n,
        n_prompts=n_prompts.astype(int),
        missing=np.repeat(np.bincount(model[~known], minlength=len(names)), bins),
        ece=np.repeat(error, bins),
    )


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


def _clustered(value: np.ndarray, group: np.ndarray, prompt: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    cluster, index = np.unique(group * (prompt.max(initial=0) + 1) + prompt, return_inverse=True)
    counts = np.bincount(index, minlength=len(cluster)).astype(np.float64)
    sums: np.ndarray = np.bincount(index, value, len(cluster)).astype(np.float64)
    return intervals.clustered_se(sums, counts, cluster // (prompt.max(initial=0) + 1), size)


def _describe(margin: np.ndarray) -> dict[str, float]:
    names = ["mean", "sd", *(f"q{100 * q:02.0f}" for q in _QUANTILES), "positive"]
    if len(margin) == 0:
        return dict.fromkeys(names, np.nan)
    values = [margin.mean(), margin.std(), *np.quantile(margin, _QUANTILES), (margin > 0).mean()]
    return dict(zip(names, map(float, values), strict=True))
