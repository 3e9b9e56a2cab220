"""Effects of correctness, style and length on the score, and their exchange rate."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.bias.answers import (
    Spread,
    answer_column,
    demean,
    measure_spread,
    read_counts,
)
from rmlab.bias.least_squares import (
    dependence_reasons,
    fit_without_clusters,
    jackknife,
)
from rmlab.estimation.clustered import t_quantile, two_sided_p
from rmlab.estimation.groups import (
    Group,
    Numbers,
    fit_groups,
    list_names,
    require_model,
    split_rows,
)
from rmlab.estimation.items import number_clusters
from rmlab.tables import PROMPT, DataError, FloatArray, group_codes

_LENGTHS = {"characters", "tokens", "words", "sentences"}
_UNBOUNDED = "unbounded: the effect of correctness may be zero"
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
        Counts of each answer, from `rmlab.styles.features(responses)`, or the responses
        themselves, which are then counted. Give them: without length among the terms,
        "correct" holds the price of the length in which right and wrong answers differ,
        and `caveat` says so.
    terms : sequence of str, optional
        "correct" (chosen against rejected), "step_plain" (plain against concise),
        "step_markdown" (Markdown against plain), "step" (0, 1, 2: the mean step), and
        columns of `features` as log2 of the count (log2(1 + count) where it can be 0),
        so that the effect is that of a doubling. Default: correct; the two steps where
        scores have styles; characters and markdown as far as `features` have them (all
        counts where they have neither).
    by : str or sequence of str
        Columns that define the rows; "model" must be one of them if there are several.
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
        - caveat: in the row of "correct", that length is not among the terms;
        - reason: why a number is missing.

    Raises
    ------
    DataError
        For unknown terms, for features of other responses, and for several models in
        one row.

    Notes
    -----
    Least squares with an intercept for every prompt. The error is the jackknife over
    prompts of the effect divided by the scores' spread, since the spread is estimated,
    too. Satterthwaite's degrees of freedom are few where a term varies in few prompts.
    Counts enter as logarithms: if a model likes characters, not their logarithm, steps
    of style take up what is left over. Without features a step has its whole price;
    with them, what is left at equal length and marks. Style, length and marks rise
    together, so that with few prompts their parts have wide intervals.

    References
    ----------
    Efron (1982) for the jackknife; Bell and McCaffrey (2002) for degrees of freedom.
    """
    return _fit_models(scores, features, terms, by, cluster, confidence, _show_effects)


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
        -inf and inf, and `reason` says so.

    Raises
    ------
    DataError
        As `style_effects`, and where "correct" is the only term.

    References
    ----------
    Fieller (1954) for the interval, which is exact for a ratio of two normal estimates.
    """
    if terms is not None and "correct" not in terms:
        raise ValueError(
            f"terms: {list(terms)} must hold 'correct', the unit of the rate"
        )
    table = _fit_models(scores, features, terms, by, cluster, confidence, _show_rates)
    rates = table[table["term"] != "correct"].reset_index(drop=True)
    if rates.empty:
        problem = "scores: without styles and features no term has a rate"
        raise DataError(problem, "pass features=rmlab.styles.features(responses)")
    return rates


class _Fit(NamedTuple):
    """Terms of one group's fit, their effects (k,), the same without each cluster of
    the model (clusters, k), degrees of freedom (k,), why each is missing (k,), and the
    spread of the model's scores.
    """

    terms: list[str]
    effect: FloatArray
    without: FloatArray
    df: FloatArray
    reason: NDArray[np.object_]
    spread: Spread
    counts: Numbers

    @property
    def caveat(self) -> str:
        """What the effect of "correct" holds besides, else ""."""
        return "" if _LENGTHS & set(self.terms) else _NO_LENGTH


def _fit_models(
    scores: pd.DataFrame,
    features: pd.DataFrame | None,
    terms: Sequence[str] | None,
    by: str | Sequence[str],
    cluster: str | None,
    confidence: float,
    show: Callable[[_Fit, float], Numbers],
) -> pd.DataFrame:
    """What `show` makes of each group's fit, one row per term."""
    scores = tables.check_scores(scores, allow_missing=True)
    models = scores["model"].to_numpy()
    by = [by] if isinstance(by, str) else by
    require_model(by, models)
    terms, design = _design(scores, read_counts(features, scores), terms)
    prompts = group_codes(scores, PROMPT)[0]
    clusters = number_clusters(scores, cluster)
    y = scores["score"].to_numpy()
    # One unit for each model, whatever `by` is: its rows can then be compared with one
    # another.
    spreads = {}
    for rows in split_rows(scores, ["model"]):
        spread = measure_spread(y[rows], prompts[rows], clusters[rows])
        spreads[models[rows[0]]] = spread

    def fit(group: Group) -> Numbers:
        observed = ~np.isnan(y[group.rows])
        # A lone score tells no difference.
        n_scores = np.bincount(group.prompt, observed)
        answered = group.select(observed & (n_scores[group.prompt] > 1))
        counts: Numbers = {
            "n_prompts": answered.n_prompts,
            "n": len(answered.rows),
            "missing": (~observed).sum(),
        }
        spread = spreads[models[group.rows[0]]]
        return show(_fit_terms(y, design, terms, answered, spread, counts), confidence)

    return fit_groups(scores, by, cluster, fit)


def _design(
    scores: pd.DataFrame, counts: pd.DataFrame, terms: Sequence[str] | None
) -> tuple[list[str], FloatArray]:
    """The terms, and their columns (rows, terms)."""
    if terms is None:
        terms = ["correct"]
        if scores["style"].notna().all():
            terms += ["step_plain", "step_markdown"]
        default_counts = [name for name in ("characters", "markdown") if name in counts]
        terms += default_counts or [*map(str, counts)]
    terms = list_names("terms", terms)
    columns = []
    for term in terms:
        if term == "correct":
            columns.append(np.where(scores["label"] == "chosen", 1.0, 0.0))
        else:
            columns.append(answer_column(scores, counts, term))
    return terms, np.column_stack(columns)


def _fit_terms(
    score: FloatArray,
    design: FloatArray,
    terms: list[str],
    group: Group,
    spread: Spread,
    counts: Numbers,
) -> _Fit:
    """Least squares with an intercept for every prompt (docs/statistics.md, Style)."""
    y = score[group.rows]
    # Without the prompts' means the intercept of each prompt is out of the regression
    # (Frisch, Waugh and Lovell).
    x = demean(design[group.rows], group.prompt)
    few = group.few
    if np.isnan(measure_spread(y, group.prompt, group.prompt).value):
        reasons = ["scores do not vary within a prompt"] * len(terms)
    else:
        raw = design[group.rows]
        reasons = dependence_reasons(x, terms, raw, "within a prompt")
        if not few and np.isnan(spread.without).any():
            few = "scores vary in one prompt only"

    n_clusters = len(spread.clusters)
    effect = np.full(len(terms), np.nan)
    without = np.full((n_clusters, len(terms)), np.nan)
    df = np.zeros(len(terms))
    reason = np.array(reasons, object)
    is_fitted = reason == ""
    if is_fitted.any():
        unit_scores = demean(y, group.prompt) / spread.value
        cluster = np.searchsorted(spread.clusters, group.cluster)
        fit = fit_without_clusters(unit_scores, x[:, is_fitted], cluster, n_clusters)
        effect[is_fitted] = fit.effect
        without[:, is_fitted] = fit.without
        reason[is_fitted] = few
        if not few:
            df[is_fitted] = fit.df
            decided = np.where(fit.is_decided, "one prompt alone decides it", "")
            reason[is_fitted] = decided
    return _Fit(terms, effect, without, df, reason, spread, counts)


def _show_effects(fit: _Fit, confidence: float) -> Numbers:
    in_units = fit.without / fit.spread.without[:, None]
    se = np.sqrt(np.diag(jackknife(in_units, fit.effect)))
    half = t_quantile(fit.df, confidence) * se
    term = np.array(fit.terms, object)
    return {
        "term": term,
        "effect": fit.effect,
        "se": np.where(np.isnan(half), np.nan, se),
        "low": fit.effect - half,
        "high": fit.effect + half,
        "p": two_sided_p(fit.effect, se, fit.df),
        **fit.counts,
        "caveat": np.where(term == "correct", fit.caveat, ""),
        "reason": fit.reason,
    }


def _show_rates(fit: _Fit, confidence: float) -> Numbers:
    place = fit.terms.index("correct")
    t = t_quantile(np.minimum(fit.df, fit.df[place]), confidence)
    covariance = jackknife(fit.without, fit.effect)
    rate, low, high = fieller(fit.effect, covariance, t, place)
    reason = np.where(fit.reason == "", fit.reason[place], fit.reason)
    unbounded = np.where(np.isinf(low), _UNBOUNDED, "")
    return {
        "term": np.array(fit.terms, object),
        "rate": rate,
        "low": low,
        "high": high,
        **fit.counts,
        "caveat": fit.caveat,
        "reason": np.where(reason == "", unbounded, reason),
    }


def fieller(
    effects: FloatArray, covariance: FloatArray, t: FloatArray, place: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Ratios e1 / e0 of effects to the one at `place`, and their limits: all r with
    (e1 - r e0)^2 <= t^2 var(e1 - r e0); infinite where these are not bounded.

    docs/statistics.md, Style: exchange rate.
    """
    # a r^2 - 2 b r + c <= 0, a parabola in the ratio r.
    a = effects[place] ** 2 - t**2 * covariance[place, place]
    b = effects[place] * effects - t**2 * covariance[place]
    c = effects**2 - t**2 * np.diag(covariance)
    # a > 0: the denominator differs from zero, the parabola opens upwards, and all
    # ratios between its zeros belong. Else it opens downwards.
    a[a <= 0] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(np.maximum(b**2 - a * c, 0.0)) / a  # below 0 by rounding
        low = np.where(a == 0, -np.inf, b / a - half)
        high = np.where(a == 0, np.inf, b / a + half)
        return effects / effects[place], low, high
