"""Effects on the score inside a prompt: correctness, a step of style, a doubling of length; and their exchange rate."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rmlab import tables
from rmlab.bias import regression
from rmlab.metrics.estimate import MIN_PROMPTS
from rmlab.metrics.items import FloatArray
from rmlab.tables import PROMPT, DataError, IntArray, copy_provenance, group_codes

_DEFAULT_COUNTS = ("characters", "markdown")
_LENGTHS = {"characters", "tokens", "words", "sentences"}
_STEPS = {"step": 0, "step_plain": 1, "step_markdown": 2}  # the step that a term asks for; 0: their mean
_RESULTS = ("term", "effect", "rate", "se", "low", "high", "p", "n_prompts", "n", "missing", "caveat", "reason")
_NO_LENGTH = "length is not in the fit, so 'correct' also takes up any length difference of right and wrong answers"


def style_effects(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate the effects of correctness, style, length and Markdown on the score, inside a prompt.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    features : DataFrame, optional
        Counts of each answer, from `rmlab.styles.features(responses)`. Give them: without length among the terms,
        "correct" holds the price of the length in which right and wrong answers differ, and `caveat` says so.
    terms : sequence of str, optional
        "correct" (chosen against rejected), "step_plain" (plain against concise), "step_markdown" (Markdown against
        plain), "step" (0, 1, 2: the mean step), and columns of `features` as log2 of the count (log2(1 + count) where
        it can be 0), so that the effect is that of a doubling. Default: correct; the two steps where scores have
        styles; characters and markdown as far as `features` have them (all counts where they have neither).
    by : str or sequence of str
        Columns that define the rows.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns and term: these, term, effect (in standard deviations of the model's
        scores within a prompt), se, low, high, p, n_prompts, n (scores), missing, caveat (in the row of "correct",
        where length is not among the terms), reason (why a number is missing).

    Raises
    ------
    DataError
        For unknown terms, and for features of other responses.

    Notes
    -----
    Least squares with an intercept for every prompt. Errors are clustered by prompt (CR1), with n_prompts - 1
    degrees of freedom. Without features a step has its whole price; with them, what is left at equal length and
    marks. Style, length and marks rise together, so that with few prompts their parts have wide intervals.

    References
    ----------
    Cameron and Miller (2015), section III.B, for the degrees of freedom of the prompts' intercepts.
    """
    frames = []
    for fit in _fit_groups(scores, features, terms, by):
        quantile = regression.t_limit(confidence, fit.n_prompts)
        # A variance that is nothing but rounding may come out below zero.
        se = np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            p = np.where(se > 0, 2 * stdtr(fit.n_prompts - 1, -np.abs(fit.effect) / se), np.nan)  # no spread, no test
        limits = {"low": fit.effect - quantile * se, "high": fit.effect + quantile * se}
        frame = fit.table({"effect": fit.effect, "se": se, **limits, "p": p})
        frames.append(frame.assign(caveat=frame["caveat"].where(frame["term"] == "correct", "")))
    return copy_provenance(scores, pd.concat(frames, ignore_index=True))


def exchange_rate(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how many units of correctness one step of style, or one doubling of a feature, is worth.

    Parameters
    ----------
    scores, features, terms, by, confidence
        As in `style_effects`. The terms must hold "correct", the unit of the rate.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns and term: these, term, rate (the effect of the term over that of
        "correct", from the same fit), low, high, n_prompts, n, missing, caveat (what the effect of "correct" holds),
        reason. At a rate of 0.5 two steps of style buy as much reward as being right. Where the effect of correctness
        may be zero the interval is unbounded: low and high are -inf and inf, and `reason` names the rates that are
        excluded, if any.

    References
    ----------
    Fieller (1954) for the interval, which is exact for a ratio of two normal estimates.
    """
    if terms is not None and "correct" not in terms:
        raise ValueError(f"terms: {list(terms)} must hold 'correct', the unit of the rate")
    frames = []
    for fit in _fit_groups(scores, features, terms, by):
        unit, quantile = fit.terms.index("correct"), regression.t_limit(confidence, fit.n_prompts)
        frame = fit.table({"rate": fit.effect / (fit.effect[unit] or np.nan), "low": np.nan, "high": np.nan})
        frame["reason"] = frame["reason"].where(frame["reason"] != "", frame["reason"].iloc[unit])
        for place in np.flatnonzero(frame["reason"] == "").tolist():
            places = [unit, place]
            limits = fieller(fit.effect[places], fit.covariance[np.ix_(places, places)], quantile)
            frame.loc[place, ["low", "high", "reason"]] = limits
        frames.append(frame.drop(index=unit))
    return copy_provenance(scores, pd.concat(frames, ignore_index=True))


class _Fit(NamedTuple):
    """One regression: estimates of the terms (NaN where there is none), their covariance, why they are missing."""

    group: dict[str, object]
    terms: list[str]
    effect: FloatArray
    covariance: FloatArray
    reasons: list[str]
    n_prompts: int
    n: int
    missing: int

    def table(self, columns: Mapping[str, FloatArray | float]) -> pd.DataFrame:
        """One row per term: the group, the columns, and what is behind them."""
        reasons = [reason or regression.few_prompts(self.n_prompts) for reason in self.reasons]
        group = pd.DataFrame([self.group] * len(self.terms))
        frame = group.assign(term=self.terms, **columns, n_prompts=self.n_prompts, n=self.n, missing=self.missing)
        frame = frame.assign(caveat="" if _LENGTHS & {*self.terms} else _NO_LENGTH, reason=reasons)
        return frame.astype(dict.fromkeys(("term", "caveat", "reason"), "str"))


def _fit_groups(
    scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None, by: str | Sequence[str]
) -> list[_Fit]:
    scores = tables.check_scores(scores, allow_missing=True)
    columns, _ = regression.group_columns(scores, by, results=_RESULTS)
    terms, design = _design(scores, features, terms)
    # A model's scores of a prompt share a level. Scores of a prompt by several models in one row are not independent.
    level, cluster = group_codes(scores, ["model", *PROMPT])[0], group_codes(scores, PROMPT)[0]
    # One unit for each model, whatever `by` is: its rows can then be compared with one another.
    y = regression.standardize_models(scores)
    groups = [(rows, scores[columns].iloc[rows[0]].to_dict()) for rows in regression.group_rows(scores, columns)]
    return [_fit(y[rows], design[rows], level[rows], cluster[rows], terms, group) for rows, group in groups]


def _fit(
    y: FloatArray, design: FloatArray, level: IntArray, cluster: IntArray, terms: list[str], group: dict[str, object]
) -> _Fit:
    import statsmodels.api as sm

    observed = ~np.isnan(y)
    missing = int((~observed).sum())
    level = np.unique(level, return_inverse=True)[1]
    observed &= np.bincount(level, observed)[level] > 1  # a lone score says nothing about differences
    y, design, level = y[observed], design[observed], level[observed]
    cluster = np.unique(cluster[observed], return_inverse=True)[1]
    n_prompts = int(cluster.max(initial=-1)) + 1
    effect, covariance = np.full(len(terms), np.nan), np.full((len(terms), len(terms)), np.nan)
    if not len(y) or not regression.within_spread(y, level):
        reason = "scores do not vary within a prompt" if len(y) else "no prompt with two scores"
        return _Fit(group, terms, effect, covariance, [reason] * len(terms), n_prompts, len(y), missing)
    # Without the prompts' means the intercept of each prompt is out of the regression (Frisch, Waugh and Lovell).
    x = regression.demean(design, level)
    # Measured by the column before its means went off: what varies only between prompts leaves rounding behind.
    reasons = regression.dependence_reasons(x, terms, scale=np.linalg.norm(design, axis=0), where="within a prompt")
    places = np.array([i for i, reason in enumerate(reasons) if not reason], dtype=np.intp)
    if len(places):
        result = sm.OLS(regression.demean(y, level), x[:, places]).fit()
        effect[places] = result.params
        if n_prompts >= MIN_PROMPTS:  # CR1: the sandwich times G / (G - 1) * (n - 1) / (n - k)
            covariance[np.ix_(places, places)] = result.get_robustcov_results("cluster", groups=cluster).cov_params()
    return _Fit(group, terms, effect, covariance, reasons, n_prompts, len(y), missing)


def _design(
    scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None
) -> tuple[list[str], FloatArray]:
    """The terms, and their columns (rows, terms)."""
    counts = [] if features is None else regression.count_columns(features)
    if terms is None:
        steps = ["step_plain", "step_markdown"] if scores["style"].notna().all() else []
        terms = ["correct", *steps, *([c for c in _DEFAULT_COUNTS if c in counts] or counts)]
    terms = [terms] if isinstance(terms, str) else list(terms)
    if not terms or len(set(terms)) < len(terms):
        raise ValueError(f"terms: {terms}; name at least one term, each once")
    columns = []
    for term in terms:
        if term not in ("correct", *_STEPS, *counts):
            raise DataError(f"terms: {term!r}; {tables.nearest(term, ['correct', *_STEPS, *counts])}.")
        if term == "correct":
            columns.append((scores["label"] == "chosen").to_numpy().astype(np.float64))
            continue
        column = regression.answer_column(scores, features, "step" if term in _STEPS else term)
        # One step each, not one style each: Markdown has taken both, so that "step_markdown" is what it adds to plain.
        columns.append((column >= _STEPS[term]).astype(np.float64) if _STEPS.get(term) else column)
    return terms, np.column_stack(columns)


def fieller(estimates: FloatArray, covariance: FloatArray, quantile: float) -> tuple[float, float, str]:
    """Interval of estimates[1] / estimates[0]: all ratios r with (e1 - r e0)^2 <= quantile^2 var(e1 - r e0).

    Returns low, high and the reason why they are not bounded: empty where they are.
    """
    # a r^2 - 2 b r + c <= 0, a parabola in the ratio r.
    (a, b), (_, c) = (np.outer(estimates, estimates) - quantile**2 * covariance).tolist()
    # a > 0: the denominator differs from zero, the parabola opens upwards, and all ratios between its zeros belong.
    # Else it opens downwards: all ratios but those between its zeros, or all of them.
    root = b**2 - a * c
    if a > 0:
        half = np.sqrt(max(root, 0.0)) / a  # below 0 only by rounding where a > 0
        return b / a - half, b / a + half, ""
    reason = "unbounded: the effect of correctness may be zero"
    if a < 0 < root:
        ends = sorted(((b - np.sqrt(root)) / a, (b + np.sqrt(root)) / a))
        reason += f"; only rates between {ends[0]:.3g} and {ends[1]:.3g} are excluded"
    return -np.inf, np.inf, reason
