"""Effects on the score inside a prompt: correctness, a step of style, a doubling of
length; and their exchange rate.
"""

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
    DataError,
    FloatArray,
    IntArray,
    copy_provenance,
    group_codes,
)

_DEFAULT_COUNTS = ("characters", "markdown")
_LENGTHS = {"characters", "tokens", "words", "sentences"}
_STEPS = {
    "step": 0,
    "step_plain": 1,
    "step_markdown": 2,
}  # the step that a term asks for; 0: their mean
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
_NO_LENGTH = "length is not in the fit, so 'correct' also takes up any length difference of right and wrong answers"


def style_effects(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate the effects of correctness, style, length and Markdown on the score,
    inside a prompt.

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
        # A variance that is nothing but rounding may come out below zero.
        se = np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))
        half = t_quantile(fit.df, confidence) * se
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stdtr(fit.df, -np.abs(fit.effect) / se)
        frame = fit.table(
            {
                "effect": fit.effect,
                "se": se,
                "low": fit.effect - half,
                "high": fit.effect + half,
                "p": np.where(se > 0, p, np.nan),  # no spread, no test
            }
        )
        is_correct = frame["term"] == "correct"
        frame["caveat"] = np.where(is_correct, frame["caveat"], fit.misfit)
        frames.append(frame.astype({"caveat": "str"}))
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
    """Estimate how many units of correctness one step of style, or one doubling of a
    feature, is worth.

    Parameters
    ----------
    scores, features, terms, by, cluster, confidence
        As in `style_effects`. The terms must hold "correct", the unit of the rate.

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
        frame = fit.table(
            {
                "rate": fit.effect / (fit.effect[unit] or np.nan),
                "low": np.nan,
                "high": np.nan,
            }
        )
        frame["reason"] = frame["reason"].where(
            frame["reason"] != "", frame["reason"].iloc[unit]
        )
        for place in np.flatnonzero(frame["reason"] == "").tolist():
            places = [unit, place]
            quantile = float(
                t_quantile(fit.df[places].min(keepdims=True), confidence)[0]
            )
            limits = fieller(
                fit.effect[places], fit.covariance[np.ix_(places, places)], quantile
            )
            frame.loc[place, ["low", "high", "reason"]] = limits
        frames.append(frame.drop(index=unit))
    return copy_provenance(scores, pd.concat(frames, ignore_index=True))


class _Fit(NamedTuple):
    """One regression: estimates of the terms (NaN where there is none), their
    covariance, why they are missing.

    `misfit` says which counts have an effect that bends, else "".
    """

    group: dict[str, object]
    terms: list[str]
    effect: FloatArray
    covariance: FloatArray
    df: FloatArray
    reasons: list[str]
    misfit: str
    n_prompts: int
    n: int
    missing: int

    def table(self, columns: Mapping[str, FloatArray | float]) -> pd.DataFrame:
        """One row per term: the group, the columns, and what is behind them."""
        reasons = [
            reason or regression.few_prompts(self.n_prompts) for reason in self.reasons
        ]
        no_length = "" if _LENGTHS & {*self.terms} else _NO_LENGTH
        caveat = "; ".join(filter(None, (no_length, self.misfit)))
        group = pd.DataFrame([self.group] * len(self.terms))
        frame = group.assign(
            term=self.terms,
            **columns,
            n_prompts=self.n_prompts,
            n=self.n,
            missing=self.missing,
        )
        frame = frame.assign(caveat=caveat, reason=reasons)
        return frame.astype(dict.fromkeys(("term", "caveat", "reason"), "str"))


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
        group = scores[columns].iloc[rows[0]].to_dict()
        fits.append(
            _fit(y[rows], design[rows], level[rows], clusters[rows], terms, group)
        )
    return fits


def _fit(
    y: FloatArray,
    design: FloatArray,
    level: IntArray,
    cluster: IntArray,
    terms: list[str],
    group: dict[str, object],
) -> _Fit:
    observed = ~np.isnan(y)
    missing = int((~observed).sum())
    level = np.unique(level, return_inverse=True)[1]
    observed &= (
        np.bincount(level, observed)[level] > 1
    )  # a lone score says nothing about differences
    y = y[observed]
    design = design[observed]
    level = level[observed]
    cluster = np.unique(cluster[observed], return_inverse=True)[1]
    n_clusters = int(cluster.max(initial=-1)) + 1
    effect = np.full(len(terms), np.nan)
    covariance = np.full((len(terms), len(terms)), np.nan)
    df = np.zeros(len(terms))
    if not len(y) or not regression.within_spread(y, level):
        reason = (
            "scores do not vary within a prompt"
            if len(y)
            else "no prompt with two scores"
        )
        reasons = [reason] * len(terms)
        return _Fit(
            group,
            terms,
            effect,
            covariance,
            df,
            reasons,
            "",
            n_clusters,
            len(y),
            missing,
        )

    # Without the prompts' means the intercept of each prompt is out of the regression
    # (Frisch, Waugh and Lovell).
    x = regression.demean(design, level)
    y = regression.demean(y, level)
    # Measured by the column before its means went off: what varies only between prompts
    # leaves rounding behind.
    reasons = regression.dependence_reasons(
        x, terms, scale=np.linalg.norm(design, axis=0), where="within a prompt"
    )
    places = np.array(
        [i for i, reason in enumerate(reasons) if not reason], dtype=np.intp
    )
    misfit = ""
    if len(places):
        result = regression.fit_clustered(y, x[:, places], cluster)
        effect[places] = result.effect
        if n_clusters >= MIN_PROMPTS:
            covariance[np.ix_(places, places)] = result.covariance
            df[places] = result.df
            misfit = _find_misfit(
                y, design[:, places], level, cluster, [terms[place] for place in places]
            )
    return _Fit(
        group,
        terms,
        effect,
        covariance,
        df,
        reasons,
        misfit,
        n_clusters,
        len(y),
        missing,
    )


def _find_misfit(
    y: FloatArray,
    design: FloatArray,
    level: IntArray,
    cluster: IntArray,
    terms: Sequence[str],
) -> str:
    """Say which counts have an effect that bends: their squares, one at a time, beside
    all terms.
    """
    counts = [
        place for place, term in enumerate(terms) if term not in ("correct", *_STEPS)
    ]
    x = regression.demean(design, level)
    bent = []
    for place in counts:
        centered = design[:, place] - design[:, place].mean()
        with_square = np.column_stack([x, regression.demean(centered**2, level)])
        scale = np.linalg.norm(with_square, axis=0)
        if regression.dependence_reasons(with_square, [*terms, "square"], scale=scale)[
            -1
        ]:
            continue
        fit = regression.fit_clustered(y, with_square, cluster)
        se = np.sqrt(fit.covariance[-1, -1])
        p = 2 * stdtr(fit.df[-1], -abs(fit.effect[-1]) / se) if se > 0 else 1.0
        if p * len(counts) < _MISFIT:
            bent.append(terms[place])
    if not bent:
        return ""
    return f"the effect of {', '.join(bent)} bends: the other terms may hold part of it"


def _design(
    scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None
) -> tuple[list[str], FloatArray]:
    """The terms, and their columns (rows, terms)."""
    counts = [] if features is None else regression.count_columns(features)
    if terms is None:
        steps = ["step_plain", "step_markdown"] if scores["style"].notna().all() else []
        terms = [
            "correct",
            *steps,
            *([c for c in _DEFAULT_COUNTS if c in counts] or counts),
        ]
    terms = [terms] if isinstance(terms, str) else list(terms)
    if not terms or len(set(terms)) < len(terms):
        raise ValueError(f"terms: {terms}; name at least one term, each once")
    columns = []
    for term in terms:
        if term not in ("correct", *_STEPS, *counts):
            raise DataError(
                f"terms: {term!r}; {tables.nearest(term, ['correct', *_STEPS, *counts])}."
            )
        if term == "correct":
            columns.append((scores["label"] == "chosen").to_numpy().astype(np.float64))
            continue
        column = regression.answer_column(
            scores, features, "step" if term in _STEPS else term
        )
        # One step each, not one style each: Markdown has taken both, so that
        # "step_markdown" is what it adds to plain.
        columns.append(
            (column >= _STEPS[term]).astype(np.float64) if _STEPS.get(term) else column
        )
    return terms, np.column_stack(columns)


def fieller(
    estimates: FloatArray, covariance: FloatArray, quantile: float
) -> tuple[float, float, str]:
    """Interval of estimates[1] / estimates[0]: all ratios r with (e1 - r e0)^2 <=
    quantile^2 var(e1 - r e0).

    Returns low, high and the reason why they are not bounded: empty where they are.
    """
    # a r^2 - 2 b r + c <= 0, a parabola in the ratio r.
    (a, b), (_, c) = (
        np.outer(estimates, estimates) - quantile**2 * covariance
    ).tolist()
    # a > 0: the denominator differs from zero, the parabola opens upwards, and all
    # ratios between its zeros belong. Else it opens downwards: all ratios but those
    # between its zeros, or all of them.
    root = b**2 - a * c
    if a > 0:
        half = np.sqrt(max(root, 0.0)) / a  # below 0 only by rounding where a > 0
        return b / a - half, b / a + half, ""
    reason = "unbounded: the effect of correctness may be zero"
    if a < 0 < root:
        ends = sorted(((b - np.sqrt(root)) / a, (b + np.sqrt(root)) / a))
        reason += f"; only rates between {ends[0]:.3g} and {ends[1]:.3g} are excluded"
    return -np.inf, np.inf, reason
