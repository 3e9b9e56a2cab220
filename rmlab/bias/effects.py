"""Effects of correctness, style and length on the score, and their exchange rate."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.bias.answers import (
    answer_column,
    count_columns,
    demean,
    within_spread,
)
from rmlab.bias.groups import (
    Group,
    Numbers,
    estimate,
    explain_few,
    fit_groups,
    join_texts,
    number_clusters,
    split_rows,
)
from rmlab.bias.least_squares import (
    dependence_reasons,
    fit_without_clusters,
    jackknife,
)
from rmlab.estimation.clustered import t_quantile
from rmlab.tables import PROMPT, BoolArray, DataError, FloatArray, IntArray, group_codes

_DEFAULT_COUNTS = ("characters", "markdown")
_LENGTHS = {"characters", "tokens", "words", "sentences"}
# The step that a term asks for; 0: their mean.
_STEPS = {"step": 0, "step_plain": 1, "step_markdown": 2}
_MISFIT = 0.01  # p of the test of fit below which a table says so
_OF_EFFECT = ("effect", "se", "low", "high", "p")
_OF_RATE = ("rate", "rate_low", "rate_high")
_COUNTS = ("n_prompts", "n", "missing")
_EFFECT_TEXTS = ("caveat", "reason")
_RATE_TEXTS = ("rate_caveat", "rate_reason")
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
        - caveat: that a count's effect is not linear in its logarithm, so that other
          terms may absorb part of it; in the row of "correct" also that length is not
          among the terms;
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
    Counts enter as logarithms; `caveat` says where their squares fit too (p < 0.01,
    Bonferroni). Without features a step has its whole price; with them, what is left at
    equal length and marks. Style, length and marks rise together, so that with few
    prompts their parts have wide intervals.

    References
    ----------
    Efron (1982) for the jackknife; Bell and McCaffrey (2002) for degrees of freedom.
    """

    table = _fit_models(scores, features, terms, by, cluster, confidence)
    return table.drop(columns=[*_OF_RATE, *_RATE_TEXTS])


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

    table = _fit_models(scores, features, terms, by, cluster, confidence)
    table = table[table["term"] != "correct"].reset_index(drop=True)
    table = table.drop(columns=[*_OF_EFFECT, *_EFFECT_TEXTS])
    return table.rename(columns=lambda name: name.removeprefix("rate_"))


class _Unit(NamedTuple):
    """Spread of a model's scores within a prompt, 0 where no score differs, and what
    the spread without each of `clusters` is of it: NaN where scores vary in one cluster
    alone, without which there is no spread.
    """

    clusters: IntArray
    spread: float
    without: FloatArray


def _fit_models(
    scores: pd.DataFrame,
    features: pd.DataFrame | None,
    terms: Sequence[str] | None,
    by: str | Sequence[str],
    cluster: str | None,
    confidence: float,
) -> pd.DataFrame:
    """Effects and rates of every group, one row per term."""
    scores = tables.check_scores(scores, allow_missing=True)
    models, model = np.unique(scores["model"].to_numpy(), return_inverse=True)
    by = [by] if isinstance(by, str) else by
    if "model" not in by and len(models) > 1:
        problem = f"by: {by} has no 'model', but the table has {len(models)}"
        raise DataError(problem, "add 'model'")
    terms, design = _design(scores, features, terms)
    prompts = group_codes(scores, PROMPT)[0]
    clusters = number_clusters(scores, cluster)
    y = scores["score"].to_numpy()
    # One unit for each model, whatever `by` is: its rows can then be compared with one
    # another.
    units = {}
    for rows in split_rows(scores, ["model"]):
        units[model[rows[0]]] = _measure_unit(y[rows], prompts[rows], clusters[rows])

    def fit(group: Group) -> Numbers:
        unit = units[model[group.rows[0]]]
        observed = ~np.isnan(y[group.rows])
        prompt = prompts[group.rows]
        # A lone score tells no difference.
        n_scores = np.bincount(prompt, observed)
        answered = group.select(observed & (n_scores[prompt] > 1))
        rows = answered.rows
        values = (y[rows], design[rows], prompts[rows])
        numbers = _fit_terms(*values, answered, unit, terms, confidence)
        return numbers | {
            "term": np.array(terms, object),
            "n_prompts": answered.n_prompts,
            "n": len(rows),
            "missing": (~observed).sum(),
        }

    numbers = ("term", *_OF_EFFECT, *_OF_RATE, *_COUNTS)
    results = (*numbers, *_EFFECT_TEXTS, *_RATE_TEXTS)
    return fit_groups(scores, by, cluster, fit, results)


def _measure_unit(y: FloatArray, prompt: IntArray, cluster: IntArray) -> _Unit:
    observed = ~np.isnan(y)
    y = y[observed]
    prompt = np.unique(prompt[observed], return_inverse=True)[1]
    clusters, cluster = np.unique(cluster[observed], return_inverse=True)
    spread = within_spread(y, prompt)
    if not spread > 0:
        return _Unit(clusters, 0.0, np.ones(len(clusters)))

    squares = np.bincount(cluster, demean(y, prompt) ** 2)
    if squares.max() > (1 - 1e-12) * squares.sum():
        return _Unit(clusters, spread, np.full(len(clusters), np.nan))
    df = np.bincount(cluster, 1 - 1 / np.bincount(prompt)[prompt])
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (squares.sum() - squares) / (df.sum() - df)
    return _Unit(clusters, spread, np.sqrt(variance) / spread)


def _fit_terms(
    y: FloatArray,
    design: FloatArray,
    prompt: IntArray,
    group: Group,
    unit: _Unit,
    terms: list[str],
    confidence: float,
) -> Numbers:
    """Least squares with an intercept for every prompt (docs/statistics.md, Style)."""
    # Without the prompts' means the intercept of each prompt is out of the regression
    # (Frisch, Waugh and Lovell).
    x = demean(design, prompt)
    # Measured by the column before its means went off: what varies only between prompts
    # leaves rounding behind.
    scale = np.linalg.norm(design, axis=0)
    if not len(y):
        reasons = ["no prompt with two scores"] * len(terms)
    elif not within_spread(y, prompt):
        reasons = ["scores do not vary within a prompt"] * len(terms)
    else:
        reasons = dependence_reasons(x, terms, scale=scale, where="within a prompt")

    effect = np.full(len(terms), np.nan)
    without = np.full((len(unit.clusters), len(terms)), np.nan)
    df = np.zeros(len(terms))
    misfit = ""
    is_fitted = np.array([reason == "" for reason in reasons])
    no_interval = explain_few(group.n_clusters)
    if not no_interval and np.isnan(unit.without).any():
        no_interval = "scores vary in one prompt only"
    reason = np.array(reasons, object)
    if is_fitted.any():
        y = demean(y, prompt) / unit.spread
        cluster = np.searchsorted(unit.clusters, group.cluster)
        fit = fit_without_clusters(y, x[:, is_fitted], cluster, len(unit.clusters))
        effect[is_fitted] = fit.effect
        without[:, is_fitted] = fit.without
        reason[is_fitted] = no_interval
        if not no_interval:
            df[is_fitted] = fit.df
            decided = np.where(fit.is_decided, "one prompt alone decides it", "")
            reason[is_fitted] = decided
            misfit = _find_misfit(y, x, design, prompt, cluster, terms, is_fitted)

    se = np.sqrt(np.diag(jackknife(without / unit.without[:, None], effect)))
    estimates = estimate(effect, se, df, confidence)
    no_length = "" if _LENGTHS & set(terms) else _NO_LENGTH
    caveat = join_texts([no_length, misfit])
    numbers: Numbers = {
        **estimates._asdict(),
        "effect": effect,
        "caveat": [caveat if term == "correct" else misfit for term in terms],
        "reason": reason,
    }
    if "correct" in terms:
        place = terms.index("correct")
        t = t_quantile(np.minimum(df, df[place]), confidence)
        rate, low, high, unbounded = fieller(
            effect, jackknife(without, effect), t, place
        )
        no_rate = np.where(reason == "", reason[place], reason)
        numbers |= {
            "rate": rate,
            "rate_low": low,
            "rate_high": high,
            "rate_caveat": caveat,
            "rate_reason": np.where(no_rate == "", unbounded, no_rate),
        }
    return numbers


def _find_misfit(
    y: FloatArray,
    x: FloatArray,
    design: FloatArray,
    prompt: IntArray,
    cluster: IntArray,
    terms: Sequence[str],
    is_fitted: BoolArray,
) -> str:
    """Say which counts have an effect that is not linear, else "".

    Their squares enter one at a time, beside all terms.
    """
    no_counts = ("correct", *_STEPS)
    counts = []
    for place, term in enumerate(terms):
        if is_fitted[place] and term not in no_counts:
            counts.append(place)
    bent = []
    for place in counts:
        centered = design[:, place] - design[:, place].mean()
        square = demean(centered**2, prompt)
        columns = np.column_stack([x[:, is_fitted], square])
        names = [""] * columns.shape[1]
        scale = np.linalg.norm(columns, axis=0)
        if dependence_reasons(columns, names, scale=scale)[-1]:
            continue
        fit = fit_without_clusters(y, columns, cluster, int(cluster.max()) + 1)
        se = np.sqrt(np.diag(jackknife(fit.without, fit.effect)))
        p = estimate(fit.effect, se, fit.df, 0.95).p[-1]
        if p * len(counts) < _MISFIT:
            bent.append(terms[place])
    if not bent:
        return ""
    named = ", ".join(bent)
    return f"the effect of {named} is not linear; other terms may absorb part of it"


def _design(
    scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None
) -> tuple[list[str], FloatArray]:
    """The terms, and their columns (rows, terms)."""
    counts = [] if features is None else count_columns(features)
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
        return answer_column(scores, features, term)
    step = answer_column(scores, features, "step")
    if term == "step":
        return step
    # One step each, not one style each: Markdown has taken both, so that
    # "step_markdown" is what it adds to plain.
    return (step >= _STEPS[term]).astype(np.float64)


def fieller(
    effects: FloatArray, covariance: FloatArray, t: FloatArray, place: int
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.object_]]:
    """Ratios e1 / e0 of effects to the one at `place`, their limits, and why these are
    not bounded: all r with (e1 - r e0)^2 <= t^2 var(e1 - r e0).

    docs/statistics.md, Style: exchange rate.
    """
    divisor = effects[place] or np.nan
    # a r^2 - 2 b r + c <= 0, a parabola in the ratio r.
    a = effects[place] ** 2 - t**2 * covariance[place, place]
    b = effects[place] * effects - t**2 * covariance[place]
    c = effects**2 - t**2 * np.diag(covariance)
    # a > 0: the denominator differs from zero, the parabola opens upwards, and all
    # ratios between its zeros belong. Else it opens downwards: all ratios but those
    # between its zeros, or all of them.
    discriminant = b**2 - a * c
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(np.maximum(discriminant, 0.0)) / np.abs(a)  # below 0 by rounding
        low = b / a - half
        high = b / a + half
    reason = np.where(a <= 0, _UNBOUNDED, "").astype(object)
    for i in np.flatnonzero((a < 0) & (discriminant > 0)):
        reason[i] += f"; only rates between {low[i]:.3g} and {high[i]:.3g} are excluded"
    low[a <= 0] = -np.inf
    high[a <= 0] = np.inf
    return effects / divisor, low, high, reason
