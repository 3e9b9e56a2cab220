"""What moves a score inside a prompt: correctness, a step of style, a doubling of length; and their exchange rate."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.bias.prompts import columns_of, demean, groups_of, prompt_index, spread, t_quantile, too_few, unit_scores
from rmlab.bias.regressors import counts_of, doublings, lookup, repeats
from rmlab.tables import PROMPT, STYLE, DataError

__all__ = ["exchange_rate", "style_effects"]

Floats = NDArray[np.float64]

_USUAL = ("characters", "markdown")
_LENGTHS = ("characters", "tokens", "words", "sentences")  # in the order in which they are looked for
_OWN = ("correct", "step", "step_plain", "step_markdown")


def style_effects(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Effect of correctness, style, length and Markdown on the score, inside a prompt: one row per `by` and term.

    Least squares with an intercept for every prompt (all variables minus their prompt mean), the score in standard
    deviations of the model's scores within a prompt. Terms: "correct" (chosen against rejected), "step_plain" (plain
    against concise), "step_markdown" (Markdown against plain), "step" (0, 1, 2: the mean step), and any column of
    `features` as log2 of the count (log2(1 + count) where it can be 0), so its effect is that of a doubling.
    By default: correct; step_plain and step_markdown where the scores have styles; characters and markdown as far as
    `features` have them (all their counts where they have neither). Without features a step has its whole price; with
    them, what is left at equal length and marks; style, length and marks rise together, so with few prompts these
    parts have wide intervals.
    What is not among the terms goes to those it comes with: where wrong answers are longer than right ones and length
    is left out, "correct" holds the price of that length too, even for a model that only counts characters. So give
    `features`; `caveat` says where length is left out although it differs, or may differ, between right and wrong.
    Length counts as a straight line in doublings; a taste for it that bends leaves a little in "correct".

    Columns after those of `by`: term, effect, se, low, high, p, n_prompts, n (scores), missing, caveat (of the row of
    "correct"), reason (why a number is not there). Errors are robust and clustered by prompt (CR1; the prompt
    intercepts lie inside the clusters and cost no degrees of freedom), t with n_prompts - 1 degrees of freedom (Cameron
    and Miller 2015, section III.B). No estimate: scores that do not vary within a prompt, a term that does not vary, or
    one that repeats the terms before it. Fewer than 5 prompts give no interval. Raises DataError for unknown terms and
    for features of other responses.
    """
    return _table(_fits(scores, features, terms, by), _effect_rows, confidence)


def exchange_rate(
    scores: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    terms: Sequence[str] | None = None,
    by: str | Sequence[str] = "model",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Units of correctness that one step of style (or one doubling of a feature) is worth: one row per `by` and term.

    rate = effect of the term / effect of "correct", of the same fit as `style_effects` (same arguments). 0.5: two steps
    of style buy as much reward as being right; a negative rate: the two pull in opposite directions.
    The denominator is the "correct" of that fit: where length differs between right and wrong answers and is not among
    the terms, it is not the worth of being right alone, and `caveat` says so in every row.
    Columns after those of `by`: term, rate, low, high, n_prompts, n, missing, caveat, reason. Fieller's interval
    (Fieller 1954): exact for a ratio of two normal estimates. Where the effect of correctness may be zero the ratio has
    no bounded interval: low and high are -inf and inf, and `reason` says so, with the stretch that is excluded, if any.
    """
    if terms is not None and "correct" not in terms:
        raise ValueError(f"terms: {list(terms)} must hold 'correct', the unit of the rate")
    return _table(_fits(scores, features, terms, by), _rate_rows, confidence)


class _Fit(NamedTuple):
    """One regression: estimates of the terms (NaN where there is none), their covariance, why some are missing."""

    group: dict[str, object]
    terms: list[str]
    effect: Floats
    covariance: Floats
    reasons: list[str]
    n_prompts: int
    n: int
    missing: int
    caveat: str = ""


_Rows = Callable[[_Fit, float], Iterator[tuple[dict[str, object], str, str]]]


def _fits(
    scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None, by: str | Sequence[str]
) -> list[_Fit]:
    scores = tables.check_scores(scores, allow_missing=True)
    by = columns_of(scores, by, "scores")
    terms = _chosen_terms(scores, features, terms)
    design = _design(scores, features, terms)
    # `inside`: a model's scores of a prompt, which share a level. `cluster`: the prompt, whose scores by several models
    # in one row are not independent.
    score, inside, cluster = scores["score"].to_numpy(), prompt_index(scores, ["model", *PROMPT]), prompt_index(scores)
    y = np.full(len(scores), np.nan)
    for rows in groups_of(scores, ["model"]):
        # One unit for each model, whatever `by` is: its rows can then be compared with one another.
        y[rows] = unit_scores(score[rows], inside[rows])
    right, length = (scores["label"] == "chosen").to_numpy().astype(float), _length(scores, features, terms)
    fits = []
    for rows in groups_of(scores, by):
        fit = _fit(y[rows], design[rows], inside[rows], cluster[rows], terms, scores[by].iloc[rows[0]].to_dict())
        # Where right and wrong answers differ in length, and no length is among the terms, its price goes to "correct".
        if "correct" in terms and not set(terms) & set(_LENGTHS):
            own = None if length is None else length[rows]
            fit = fit._replace(caveat=_length_by_label(own, right[rows], inside[rows], cluster[rows]))
        fits.append(fit)
    return fits


def _length(scores: pd.DataFrame, features: pd.DataFrame | None, terms: list[str]) -> Floats | None:
    """log2 of the length of each answer, from the first count of length that `features` have."""
    name = next((name for name in _LENGTHS if features is not None and name in counts_of(features)), None)
    return None if features is None or name is None else doublings(lookup(scores, features, [name], "scores")[:, 0])


def _length_by_label(length: Floats | None, right: Floats, inside: NDArray[np.intp], cluster: NDArray[np.intp]) -> str:
    """Why "correct" may hold the price of length: empty where lengths do not differ between right and wrong answers."""
    if length is None:
        return "length is not in the fit: 'correct' holds what it is worth where right and wrong answers differ in it"
    # The same regression with log2 of the length in place of the score: how many doublings longer a right answer is.
    fit = _fit(length, right[:, None], inside, cluster, ["correct"], {})
    doubled, se = float(fit.effect[0]), float(np.sqrt(fit.covariance[0, 0]))
    if not abs(doubled) > t_quantile(0.95, fit.n_prompts) * se:
        return ""
    return (
        f"right answers are {2**doubled:.2f} times as long as wrong ones and length is not in the fit: "
        "'correct' holds what that is worth"
    )


def _fit(
    y: Floats,
    design: Floats,
    inside: NDArray[np.intp],
    cluster: NDArray[np.intp],
    terms: list[str],
    group: dict[str, object],
) -> _Fit:
    there = ~np.isnan(y)
    missing = int((~there).sum())
    inside = np.unique(inside, return_inverse=True)[1]
    # Numbered anew after rows have gone, here and below: `demean` and the clusters count up to the largest number.
    there &= np.bincount(inside, there)[inside] > 1  # a lone score says nothing about differences
    cluster = np.unique(cluster[there], return_inverse=True)[1]
    inside = np.unique(inside[there], return_inverse=True)[1]
    counts = (int(cluster.max(initial=-1)) + 1, int(there.sum()), missing)
    effect, covariance = np.full(len(terms), np.nan), np.full((len(terms), len(terms)), np.nan)
    y, design = y[there], design[there]
    if not len(y):
        return _Fit(group, terms, effect, covariance, ["no prompt with two scores"] * len(terms), *counts)
    if not spread(y, inside):
        return _Fit(group, terms, effect, covariance, ["scores do not vary within a prompt"] * len(terms), *counts)
    # Without the prompts' means the intercept of each prompt is out of the regression (Frisch, Waugh and Lovell).
    x = demean(design, inside)
    # Measured by the column before its means went off: what varies only between prompts leaves rounding behind.
    reasons = repeats(x, terms, scale=np.linalg.norm(design, axis=0), where="within a prompt")
    kept = np.array([i for i, reason in enumerate(reasons) if not reason], dtype=np.intp)
    if len(kept):
        effect[kept], covariance[np.ix_(kept, kept)] = _least_squares(demean(y, inside), x[:, kept], cluster)
    return _Fit(group, terms, effect, covariance, reasons, *counts)


def _least_squares(y: Floats, x: Floats, cluster: NDArray[np.intp]) -> tuple[Floats, Floats]:
    import statsmodels.api as sm

    if cluster.max(initial=0) < 1:  # one prompt says nothing of the spread between prompts
        return sm.OLS(y, x).fit().params, np.full((x.shape[1], x.shape[1]), np.nan)
    # CR1: the sandwich times G / (G - 1) * (n - 1) / (n - k).
    found = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": True}, use_t=True)
    return found.params, found.cov_params()


def _chosen_terms(scores: pd.DataFrame, features: pd.DataFrame | None, terms: Sequence[str] | None) -> list[str]:
    styled = bool(scores["style"].notna().all())
    if terms is None:
        style = ["step_plain", "step_markdown"] if styled else []
        known = [] if features is None else counts_of(features)
        return ["correct", *style, *([c for c in _USUAL if c in known] or known)]
    terms = [terms] if isinstance(terms, str) else list(terms)
    columns = [] if features is None else counts_of(features)
    for term in terms:
        if term not in (*_OWN, *columns):
            raise DataError(f"terms: {term!r}; {tables.nearest(term, [*_OWN, *columns])}")
        if term.startswith("step") and not styled:
            raise DataError(f"terms: {term!r} needs styles, but style is missing in some scores; leave it out")
    if not terms or len(set(terms)) < len(terms):
        raise ValueError(f"terms: {terms}; name at least one term, each once")
    return terms


def _design(scores: pd.DataFrame, features: pd.DataFrame | None, terms: list[str]) -> Floats:
    steps = pd.Categorical(scores["style"], dtype=STYLE).codes.astype(float)
    own = {
        "correct": (scores["label"] == "chosen").to_numpy(dtype=float),
        "step": steps,
        # One step each, not one style each: Markdown has taken both, so that "step_markdown" is what it adds to plain.
        "step_plain": (steps >= 1).astype(float),
        "step_markdown": (steps >= 2).astype(float),
    }
    counted = [term for term in terms if term not in own]
    if counted and features is not None:
        values = lookup(scores, features, counted, "scores")
        own |= {term: doublings(values[:, i]) for i, term in enumerate(counted)}
    return np.column_stack([own[term] for term in terms])


def _table(fits: list[_Fit], rows: _Rows, confidence: float) -> pd.DataFrame:
    """One row per fit and term, with the intervals that `rows` makes."""
    made = []
    for fit in fits:
        quantile = t_quantile(confidence, fit.n_prompts)
        counts = {"n_prompts": fit.n_prompts, "n": fit.n, "missing": fit.missing}
        made += [
            fit.group | row | counts | {"caveat": caveat, "reason": reason}
            for row, caveat, reason in rows(fit, quantile)
        ]
    return pd.DataFrame(made)


def _effect_rows(fit: _Fit, quantile: float) -> Iterator[tuple[dict[str, object], str, str]]:
    from scipy.stats import t

    few = too_few(fit.n_prompts)
    for i, (term, effect) in enumerate(zip(fit.terms, fit.effect, strict=True)):
        # A variance that is nothing but rounding may come out below zero.
        se = np.nan if few else float(np.sqrt(np.maximum(fit.covariance[i, i], 0.0)))
        p = 2 * t.sf(abs(effect) / se, fit.n_prompts - 1) if se > 0 else np.nan  # no spread, no test
        limits = {"low": effect - quantile * se, "high": effect + quantile * se}
        caveat = fit.caveat if term == "correct" else ""
        yield {"term": term, "effect": effect, "se": se} | limits | {"p": p}, caveat, fit.reasons[i] or few


def _rate_rows(fit: _Fit, quantile: float) -> Iterator[tuple[dict[str, object], str, str]]:
    few = too_few(fit.n_prompts)
    unit = fit.terms.index("correct")
    for i, term in enumerate(fit.terms):
        if i == unit:
            continue
        reason, low, high = fit.reasons[i] or fit.reasons[unit] or few, np.nan, np.nan
        if not reason:
            ends = [unit, i]
            low, high, reason = fieller(fit.effect[ends], fit.covariance[np.ix_(ends, ends)], quantile)
        rate = fit.effect[i] / fit.effect[unit] if fit.effect[unit] else np.nan
        yield {"term": term, "rate": rate, "low": low, "high": high}, fit.caveat, reason


def fieller(estimates: Floats, covariance: Floats, quantile: float) -> tuple[float, float, str]:
    """Interval of estimates[1] / estimates[0]: all ratios r with (e1 - r e0)^2 <= quantile^2 var(e1 - r e0).

    Returns low, high and the reason why they are not bounded: empty where they are.
    """
    # a r^2 - 2 b r + c <= 0, a parabola in the ratio r.
    below, above = (float(e) for e in estimates)
    square = quantile**2
    a = below**2 - square * covariance[0, 0]
    b = below * above - square * covariance[0, 1]
    c = above**2 - square * covariance[1, 1]
    # a > 0: the denominator differs from zero, the parabola opens upwards, and all ratios between its zeros belong.
    # Else it opens downwards: all ratios but those between its zeros, or all there are.
    root = b**2 - a * c
    if a > 0:
        half = np.sqrt(max(root, 0.0)) / a  # below 0 only by rounding where a > 0
        return b / a - half, b / a + half, ""
    reason = "unbounded: the effect of correctness may be zero"
    if a < 0 < root:
        ends = sorted(((b - np.sqrt(root)) / a, (b + np.sqrt(root)) / a))
        reason += f"; only rates between {ends[0]:.3g} and {ends[1]:.3g} are excluded"
    return -np.inf, np.inf, reason
