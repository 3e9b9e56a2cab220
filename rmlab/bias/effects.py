"""Effects of correctness, style and length on the score, and their exchange rate."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rmlab import tables
from rmlab.bias import regression
from rmlab.estimation.clustered import MIN_PROMPTS, t_quantile
from rmlab.tables import (
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    copy_provenance,
    group_codes,
)

_DEFAULT_COUNTS = ("characters", "markdown")
_LENGTHS = {"characters", "tokens", "words", "sentences"}
# The step that a term asks for; 0: their mean.
_STEPS = {"step": 0, "step_plain": 1, "step_markdown": 2}
_MISFIT = 0.01  # p of the test of fit below which a table says so
_RESULTS = (
    "term",
    "effect",
    "rate",
    "se",
    "low",
    "high",
    "p",
    "n_prompts",
    "n",
    "missing",
    "caveat",
    "reason",
)
_NO_LENGTH = (
    "length is not in the fit, so 'correct' also takes up any length difference of"
    " right and wrong answers"
)


def style_effects(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate what correctness, style, length and Markdown add to a score in a prompt.

    Parameters
    ----------
    scores : DataFrame
        A table of scores.
    features : DataFrame, optional
        Counts of each answer, from `rmlab.styles.features(responses)`. Give them:
        without length among the terms, "correct" holds the price of the length in which
        right and wrong answers differ, and `caveat` says so.
    terms : sequence of str, optional
        "correct" (chosen against rejected), "step_plain" (plain against concise),
        "step_markdown" (Markdown against plain), "step" (0, 1, 2: the mean step), and
        columns of `features` as log2 of the count (log2(1 + count) where it can be 0),
        so that the effect is that of a doubling. Default: correct; the two steps where
        scores have styles; characters and markdown as far as `features` have them (all
        counts where they have neither).
    by : str or sequence of str
        Columns that define the rows.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns and term:

        - the `by` columns, term;
        - effect, in standard deviations of the model's scores within a prompt, se, low,
          high, p;
        - n_prompts, n (scores), missing;
        - caveat: that a count's effect bends, so that the other terms may hold part of
          it; in the row of "correct" also that length is not among the terms;
        - reason: why a number is missing.

    Raises
    ------
    DataError
        For unknown terms, and for features of other responses.

    Notes
    -----
    Least squares with an intercept for every prompt. Errors are clustered by prompt
    (CR2), with Satterthwaite's degrees of freedom: few where a term varies in few
    prompts. Counts enter as logarithms; `caveat` says where their squares fit too (p <
    0.01, Bonferroni). Without features a step has its whole price; with them, what is
    left at equal length and marks. Style, length and marks rise together, so that with
    few prompts their parts have wide intervals.

    References
    ----------
    Pustejovsky and Tipton (2018) for errors and degrees of freedom with an intercept
    for every prompt.
    """
    frames = []
    for fit in _fit_groups(scores, features, terms, by, cluster):
        effects = fit.effects
        # A variance that is nothing but rounding may come out below zero.
        se = np.sqrt(np.maximum(np.diag(effects.covariance), 0.0))
        half = t_quantile(effects.df, confidence) * se
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(effects.value) / se
            p = 2 * stdtr(effects.df, -t)

        columns = {
            "effect": effects.value,
            "se": se,
            "low": effects.value - half,
            "high": effects.value + half,
            "p": np.where(se > 0, p, np.nan),  # no spread, no test
        }
        frame = fit.tabulate(columns, fit.explain_missing())
        is_correct = frame["term"] == "correct"
        frame["caveat"] = frame["caveat"].where(is_correct, effects.misfit)
        frames.append(frame)
    return copy_provenance(scores, pd.concat(frames, ignore_index=True))


def exchange_rate(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate the worth of a step of style or a doubling of length in correctness.

    Parameters
    ----------
    scores, features, by, cluster, confidence
        As in `style_effects`.
    terms
        As in `style_effects`. "correct", the unit of the rate, must be one of them.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns and term: these, term, rate (the
        effect of the term over that of "correct", from the same fit), low, high,
        n_prompts, n, missing, caveat (what the effect of "correct" holds), reason. At a
        rate of 0.5 two steps of style buy as much reward as being right. Where the
        effect of correctness may be zero the interval is unbounded: low and high are
        -inf and inf, and `reason` names the rates that are excluded, if any.

    References
    ----------
    Fieller (1954) for the interval, which is exact for a ratio of two normal estimates.
    """
    if terms is not None and "correct" not in terms:
        raise ValueError(
            f"terms: {list(terms)} must hold 'correct', the unit of the rate"
        )
    frames = []
    for fit in _fit_groups(scores, features, terms, by, cluster):
        unit = fit.terms.index("correct")
        effect = fit.effects.value
        unit_effect = effect[unit] if effect[unit] != 0 else np.nan
        limits = pd.DataFrame(_rate_limits(fit, unit, confidence))
        columns = {
            "rate": effect / unit_effect,
            "low": limits["low"],
            "high": limits["high"],
        }
        frame = fit.tabulate(columns, limits["reason"].tolist())
        frames.append(frame.drop(index=unit))
    return copy_provenance(scores, pd.concat(frames, ignore_index=True))


class _Effects(NamedTuple):
    """Estimates of the terms (NaN where there is none), and why they are missing.

    `misfit` says which counts have an effect that bends, else "".
    """

    value: FloatArray
    covariance: FloatArray
    df: FloatArray
    reasons: list[str]
    misfit: str


class _Fit(NamedTuple):
    """One regression: the values of its group, its terms, their effects, and counts."""

    group: dict[str, object]
    terms: list[str]
    effects: _Effects
    n_prompts: int
    n: int
    missing: int

    def explain_missing(self) -> list[str]:
        """Why each term has no estimate or no interval, else ""."""
        few_prompts = regression.few_prompts(self.n_prompts)
        return [reason or few_prompts for reason in self.effects.reasons]

    def tabulate(
        self, columns: Mapping[str, object], reasons: list[str]
    ) -> pd.DataFrame:
        """One row per term: the group, the columns, and what is behind them."""
        caveats = []
        if not _LENGTHS & set(self.terms):
            caveats.append(_NO_LENGTH)
        if self.effects.misfit:
            caveats.append(self.effects.misfit)
        return pd.DataFrame(
            {
                **self.group,
                "term": pd.Series(self.terms, dtype="str"),
                **columns,
                "n_prompts": self.n_prompts,
                "n": self.n,
                "missing": self.missing,
                "caveat": "; ".join(caveats),
                "reason": pd.Series(reasons, dtype="str"),
            }
        )


class RatioLimits(NamedTuple):
    """Interval of a ratio, and why it is missing or not bounded, else ""."""

    low: float
    high: float
    reason: str


def _rate_limits(fit: _Fit, unit: int, confidence: float) -> list[RatioLimits]:
    """Limits of each term's effect over that of the term at place `unit`."""
    effects = fit.effects
    reasons = fit.explain_missing()
    limits = []
    for place, reason in enumerate(reasons):
        reason = reason or reasons[unit]
        if reason:
            limits.append(RatioLimits(np.nan, np.nan, reason))
            continue
        places = [unit, place]
        df = effects.df[places].min(keepdims=True)
        t = float(t_quantile(df, confidence)[0])
        covariance = effects.covariance[np.ix_(places, places)]
        limits.append(fieller(effects.value[places], covariance, t))
    return limits


def _fit_groups(
    scores: pd.DataFrame,
    features: pd.DataFrame | None,
    terms: Sequence[str] | None,
    by: str | Sequence[str],
    cluster: str | None,
) -> list[_Fit]:
    scores = tables.check_scores(scores, allow_missing=True)
    columns, cluster_columns = regression.group_columns(
        scores, by, cluster, results=_RESULTS
    )
    terms, design = _design(scores, features, terms)
    # A model's scores of a prompt share a level. Scores of a prompt by several models
    # in one row are not independent.
    level = group_codes(scores, ["model", *PROMPT])[0]
    clusters = group_codes(scores, cluster_columns)[0]
    # One unit for each model, whatever `by` is: its rows can then be compared with one
    # another.
    y = regression.standardize_models(scores)

    fits = []
    for rows in regression.group_rows(scores, columns):
        observed_rows = rows[_shares_level(y[rows], level[rows])]
        observed_clusters, cluster_of_row = np.unique(
            clusters[observed_rows], return_inverse=True
        )
        effects = _estimate_effects(
            y[observed_rows],
            design[observed_rows],
            level[observed_rows],
            cluster_of_row,
            terms,
        )
        fit = _Fit(
            group=scores[columns].iloc[rows[0]].to_dict(),
            terms=terms,
            effects=effects,
            n_prompts=len(observed_clusters),
            n=len(observed_rows),
            missing=int(np.isnan(y[rows]).sum()),
        )
        fits.append(fit)
    return fits


def _shares_level(y: FloatArray, level: IntArray) -> BoolArray:
    """Scores with another one in their level: a lone score tells no difference."""
    observed = ~np.isnan(y)
    level = np.unique(level, return_inverse=True)[1]
    n_scores = np.bincount(level, observed)
    return observed & (n_scores[level] > 1)


def _estimate_effects(
    y: FloatArray,
    design: FloatArray,
    level: IntArray,
    cluster: IntArray,
    terms: list[str],
) -> _Effects:
    """Least squares with an intercept for every prompt (docs/statistics.md, Style)."""
    # Without the prompts' means the intercept of each prompt is out of the regression
    # (Frisch, Waugh and Lovell).
    x = regression.demean(design, level)
    # Measured by the column before its means went off: what varies only between prompts
    # leaves rounding behind.
    scale = np.linalg.norm(design, axis=0)
    if not len(y):
        reasons = ["no prompt with two scores"] * len(terms)
    elif not regression.within_spread(y, level):
        reasons = ["scores do not vary within a prompt"] * len(terms)
    else:
        reasons = regression.dependence_reasons(
            x, terms, scale=scale, where="within a prompt"
        )

    value = np.full(len(terms), np.nan)
    covariance = np.full((len(terms), len(terms)), np.nan)
    df = np.zeros(len(terms))
    misfit = ""
    places = [place for place, reason in enumerate(reasons) if not reason]
    if places:
        y = regression.demean(y, level)
        fit = regression.fit_clustered(y, x[:, places], cluster)
        value[places] = fit.effect
        if cluster.max() + 1 >= MIN_PROMPTS:
            covariance[np.ix_(places, places)] = fit.covariance
            df[places] = fit.df
            estimated_terms = [terms[place] for place in places]
            misfit = _find_misfit(y, design[:, places], level, cluster, estimated_terms)
    return _Effects(value, covariance, df, reasons, misfit)


def _find_misfit(
    y: FloatArray,
    design: FloatArray,
    level: IntArray,
    cluster: IntArray,
    terms: Sequence[str],
) -> str:
    """Say which counts have an effect that bends, else "".

    Their squares enter one at a time, beside all terms.
    """
    x = regression.demean(design, level)
    no_counts = ("correct", *_STEPS)
    counts = [place for place, term in enumerate(terms) if term not in no_counts]
    bent = []
    for place in counts:
        centered = design[:, place] - design[:, place].mean()
        square = regression.demean(centered**2, level)
        p = _last_column_p(y, np.column_stack([x, square]), cluster)
        if p * len(counts) < _MISFIT:
            bent.append(terms[place])
    if not bent:
        return ""
    return f"the effect of {', '.join(bent)} bends: the other terms may hold part of it"


def _last_column_p(y: FloatArray, x: FloatArray, cluster: IntArray) -> float:
    """p of the effect of the last column; 1 if it is a sum of the columns before it."""
    names = [""] * x.shape[1]
    scale = np.linalg.norm(x, axis=0)
    if regression.dependence_reasons(x, names, scale=scale)[-1]:
        return 1.0
    fit = regression.fit_clustered(y, x, cluster)
    se = np.sqrt(fit.covariance[-1, -1])
    if not se > 0:
        return 1.0
    t = fit.effect[-1] / se
    return float(2 * stdtr(fit.df[-1], -abs(t)))


def _design(
    scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None
) -> tuple[list[str], FloatArray]:
    """The terms, and their columns (rows, terms)."""
    counts = [] if features is None else regression.count_columns(features)
    if terms is None:
        terms = _default_terms(scores, counts)
    terms = [terms] if isinstance(terms, str) else list(terms)
    if not terms or len(set(terms)) < len(terms):
        raise ValueError(f"terms: {terms}; name at least one term, each once")
    known_terms = ["correct", *_STEPS, *counts]
    columns = []
    for term in terms:
        if term not in known_terms:
            allowed = tables.nearest(term, known_terms)
            raise DataError(f"terms: {term!r}", allowed)
        columns.append(_term_column(scores, features, term))
    return terms, np.column_stack(columns)


def _default_terms(scores: pd.DataFrame, counts: list[str]) -> list[str]:
    terms = ["correct"]
    if scores["style"].notna().all():
        terms += ["step_plain", "step_markdown"]
    default_counts = [count for count in _DEFAULT_COUNTS if count in counts]
    return terms + (default_counts or counts)


def _term_column(
    scores: pd.DataFrame, features: pd.DataFrame | None, term: str
) -> FloatArray:
    if term == "correct":
        return (scores["label"] == "chosen").to_numpy().astype(np.float64)
    if term not in _STEPS:
        return regression.answer_column(scores, features, term)
    step = regression.answer_column(scores, features, "step")
    if term == "step":
        return step
    # One step each, not one style each: Markdown has taken both, so that
    # "step_markdown" is what it adds to plain.
    return (step >= _STEPS[term]).astype(np.float64)


def fieller(estimates: FloatArray, covariance: FloatArray, t: float) -> RatioLimits:
    """Interval of e1 / e0: all r with (e1 - r e0)^2 <= t^2 var(e1 - r e0).

    docs/statistics.md, Style: exchange rate; `estimates` are e0 and e1.
    """
    # a r^2 - 2 b r + c <= 0, a parabola in the ratio r.
    coefficients = np.outer(estimates, estimates) - t**2 * covariance
    a = float(coefficients[0, 0])
    b = float(coefficients[0, 1])
    c = float(coefficients[1, 1])
    # a > 0: the denominator differs from zero, the parabola opens upwards, and all
    # ratios between its zeros belong. Else it opens downwards: all ratios but those
    # between its zeros, or all of them.
    discriminant = b**2 - a * c
    if a > 0:
        # Below 0 only by rounding.
        half = np.sqrt(max(discriminant, 0.0)) / a
        return RatioLimits(b / a - half, b / a + half, "")
    reason = "unbounded: the effect of correctness may be zero"
    if a < 0 < discriminant:
        low = (b + np.sqrt(discriminant)) / a
        high = (b - np.sqrt(discriminant)) / a
        reason += f"; only rates between {low:.3g} and {high:.3g} are excluded"
    return RatioLimits(-np.inf, np.inf, reason)
