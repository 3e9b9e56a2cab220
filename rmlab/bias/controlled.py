"""Accuracy at equal length or style: a logistic curve per model, at no difference."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy

from rmlab import tables
from rmlab.bias.answers import look_up_sides, read_counts, style_steps
from rmlab.bias.firth import Intercept, fit_curve, read_intercept
from rmlab.bias.least_squares import dependence_reasons
from rmlab.estimation.clustered import estimate_mean, t_quantile
from rmlab.estimation.groups import (
    Group,
    Numbers,
    count_outcomes,
    fit_groups,
    join_texts,
    list_names,
)
from rmlab.estimation.items import Ties, credit
from rmlab.metrics.pairing import unique_pairs
from rmlab.tables import BoolArray, FloatArray, IntArray

# Prompts of the rarer ending that each column of a fit needs.
_OUTCOMES_PER_COLUMN = 6
_MAX_KNOTS = {"length": 5, "style": 4}
# Up to so many different values, a curve passes through each of them freely.
_FEW_VALUES = 7
# Effective prompts (Kish) that an interval needs: with fewer, t is wider than any use.
_MIN_TELLING = 4
_FEW_TELL = f"supported by fewer than {_MIN_TELLING} effective prompts"
_WITHIN_A_QUARTER = np.log(1.25)
_MIN_NEAR = 10  # prompts of nearly equal length below which a row says so
_DISAGREES = 0.05  # p of the difference from near below which a row says so
_DISAGREEMENT = (
    "controlled and near disagree: the curve may miss the preference's shape"
)
_OUTSIDE = (
    "differs the same way in every comparison: answers that are equal lie outside the"
    " data"
)
_SEPARATION = (
    "perfect separation: the differences alone decide every comparison;"
    " no finite answer"
)


def length_controlled(
    table: pd.DataFrame,
    features: pd.DataFrame,
    *,
    measure: str = "characters",
    by: str | Sequence[str] = "model",
    ties: Ties = "loss",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how often the chosen answer wins where both answers are equally long.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    features : DataFrame
        Counts of each answer, from `rmlab.styles.features(responses)`, or responses.
    measure : str
        The column of `features` that is the length.
    by : str or sequence of str
        Columns that define the rows.
    ties : {"loss", "half", "drop"}
        What a tie earns.
    cluster : str, optional
        Column that names a cluster of prompts; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns:

        - these; accuracy (as it is);
        - controlled: the accuracy at equal length, with se, low, high (clustered);
        - near: the accuracy of the pairs whose lengths are within a quarter of each
          other, with near_low, near_high, n_near (prompts);
        - n_pairs, n_prompts, n_ties, missing;
        - reason: why a number is missing, that controlled and near disagree (p < 0.05),
          so that the curve does not have the shape of the preference, or that hardly
          any pair has nearly equal lengths.

    Raises
    ------
    DataError
        For features of other responses.

    Notes
    -----
    The logit of winning is a curve in the length of each answer, chosen less rejected,
    plus a curve in their ratio, fitted by logistic regression with Firth's penalty.

    This is the accuracy of the prompts whose answers happen to be equally long. If the
    answers of hard prompts differ more in length, it is higher than all prompts would
    have at equal length. Nor is it an accuracy "without length bias": where longer
    answers are better or worse, the curve holds merit as well as liking, and no outcome
    can tell the two apart. A model that ignores length moves here if right answers win
    more often when they are short.

    References
    ----------
    Dubois and others (arXiv 2404.04475) for the idea; Firth (1993) for the penalty.
    """
    pairs = unique_pairs(table)
    lengths = look_up_sides(read_counts(features, pairs), pairs, measure)
    log_ratio = np.log1p(lengths[:, 0]) - np.log1p(lengths[:, 1])
    is_near = np.abs(log_ratio) <= _WITHIN_A_QUARTER

    def make_columns(y: FloatArray, group: Group, _: BoolArray) -> FloatArray:
        return _length_columns(lengths[group.rows], y, group.cluster)

    difference = lengths[:, :1] - lengths[:, 1:]
    control = _Control([measure], difference, make_columns, is_near)
    return _fit_outcomes(pairs, control, by, ties, cluster, confidence)


def style_controlled(
    table: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    controls: Sequence[str] = ("characters", "headings", "bold", "list_items"),
    form: Literal["spline", "linear"] = "spline",
    by: str | Sequence[str] = "model",
    ties: Ties = "loss",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Estimate how often the chosen answer wins where no control differs.

    Parameters
    ----------
    table, by, ties, cluster, confidence
        As in `length_controlled`.
    features : DataFrame, optional
        Counts of each answer, or responses; not needed for the control "style".
    controls : sequence of str
        Columns of `features`, which enter as (c - r) / (c + r + 1) for the counts c and
        r of the chosen and the rejected answer; "style" is the difference in steps
        (concise 0, plain 1, markdown 2). The default counts characters, code included.
    form : {"spline", "linear"}
        "spline": a curve for each control (each step of style has its own effect, so
        that "style" alone gives the accuracy where both styles are equal). "linear":
        one slope per control, the form of Chatbot Arena's style control.

    Returns
    -------
    DataFrame
        As `length_controlled`, without near. A control that does not vary, or repeats
        the ones before it, is left out, and `reason` says so.

    Raises
    ------
    DataError
        For features of other responses, and for the control "style" where styles are
        missing.

    Notes
    -----
    The likelihood has Firth's penalty, so the fit is finite if a rare control decides
    all of its comparisons. A curve has as many columns as the comparisons that differ
    in its control can bear. The error is the larger of the one clustered by prompt and
    the model's own, since residuals vanish where a control decides.

    References
    ----------
    Li and others (2024), "Does style matter?", for the form "linear"; Firth (1993) for
    the penalty.
    """
    tables.check_option("form", form, ("spline", "linear"))
    names = list_names("controls", controls)
    pairs = unique_pairs(table)
    counts = read_counts(features, pairs)
    columns = [_compare_control(pairs, counts, name) for name in names]
    differences = np.column_stack(columns)

    def make_columns(y: FloatArray, group: Group, is_kept: BoolArray) -> FloatArray:
        columns = differences[group.rows][:, is_kept]
        if form == "linear":
            return columns
        n_bearable = _count_bearable(y, group.cluster) // len(names)
        curves = [_style_curve(c, y, group.cluster, n_bearable) for c in columns.T]
        return np.hstack(curves)

    control = _Control(names, differences, make_columns)
    return _fit_outcomes(pairs, control, by, ties, cluster, confidence)


class _Control(NamedTuple):
    """What is to be alike in both answers: names of the controls, and their
    differences, chosen less rejected, (rows, controls).

    make_columns: gives the columns of a regression, all zero where the answers do not
    differ, (rows, k), from the outcomes, their group, and which controls it may use.
    is_near: whether both answers are nearly alike, where the result shows those alone.
    """

    names: list[str]
    differences: FloatArray
    make_columns: Callable[[FloatArray, Group, BoolArray], FloatArray]
    is_near: BoolArray | None = None


def _fit_outcomes(
    pairs: pd.DataFrame,
    control: _Control,
    by: str | Sequence[str],
    ties: Ties,
    cluster: str | None,
    confidence: float,
) -> pd.DataFrame:
    """One row per group."""
    earned = credit(pairs, ties=ties)

    def fit(group: Group) -> Numbers:
        answered = group.select(~np.isnan(earned[group.rows]))
        y = earned[answered.rows]
        log_odds, reasons = _fit_equal(y, answered, control)
        half = t_quantile(np.array(log_odds.df), confidence) * log_odds.se
        share = scipy.special.expit(log_odds.value)
        slope = share * (1 - share)  # of the delta method
        numbers: Numbers = {
            "accuracy": estimate_mean(y, answered.cluster, confidence).value,
            "controlled": share,
            "se": np.where(np.isnan(half), np.nan, slope * log_odds.se),
            # Limits of odds keep those of a share between 0 and 1.
            "low": scipy.special.expit(log_odds.value - half),
            "high": scipy.special.expit(log_odds.value + half),
        }
        if control.is_near is not None:
            is_near = control.is_near[answered.rows]
            near, reason = _look_near(y, answered, is_near, log_odds, confidence)
            numbers |= near
            reasons.append(reason)
        numbers |= count_outcomes(pairs["outcome"].iloc[group.rows], answered)
        return numbers | {"reason": join_texts(reasons)}

    return fit_groups(pairs, by, cluster, fit)


def _fit_equal(
    y: FloatArray, group: Group, control: _Control
) -> tuple[Intercept, list[str]]:
    """Log-odds of a win at no difference, NaN where they cannot be fitted, and why
    numbers are missing.
    """
    missing = Intercept(np.nan, np.nan, np.nan, influence=np.zeros(1))
    if not len(y):
        return missing, ["no outcome"]
    if not np.ptp(y):
        return missing, ["every comparison ends alike: nothing to fit"]
    differences = control.differences[group.rows]
    terms = np.column_stack([np.ones(len(y)), differences])
    reasons = dependence_reasons(terms, ["", *control.names], terms)[1:]
    is_kept = np.array([reason == "" for reason in reasons])
    reasons.append(group.few)
    is_outside = (differences.min(axis=0) > 0) | (differences.max(axis=0) < 0)
    if is_outside.any():
        name = control.names[int(is_outside.argmax())]
        return missing, [f"{name} {_OUTSIDE}", *reasons]

    columns = np.zeros((len(y), 0))
    if is_kept.any():
        columns = control.make_columns(y, group, is_kept)
    curve = fit_curve(y, columns)
    lowest_win = curve.log_odds[y > 0.5].min(initial=np.inf)
    highest_loss = curve.log_odds[y < 0.5].max(initial=-np.inf)
    if lowest_win > highest_loss:
        return missing, [_SEPARATION, *reasons]

    cluster = np.unique(group.cluster, return_inverse=True)[1]
    log_odds = read_intercept(y, curve, cluster)
    if group.few:
        return log_odds._replace(df=0.0), reasons
    if log_odds.df < _MIN_TELLING - 1:
        return log_odds._replace(df=0.0), [*reasons, _FEW_TELL]
    return log_odds, reasons


def _look_near(
    y: FloatArray,
    group: Group,
    is_near: BoolArray,
    log_odds: Intercept,
    confidence: float,
) -> tuple[Numbers, str]:
    """The accuracy of pairs of nearly equal length, and what speaks against the
    curve.
    """
    close = group.select(is_near)
    mean = estimate_mean(y[is_near], close.cluster, confidence)
    near: Numbers = {
        "near": mean.value,
        "near_low": mean.low,
        "near_high": mean.high,
        "n_near": close.n_prompts,
    }
    if close.n_prompts < _MIN_NEAR:
        return near, (
            f"equal length is hardly observed: {close.n_prompts} prompts have lengths"
            " within a quarter of each other"
        )

    # Both come from the same prompts: the error of their difference is paired.
    cluster = np.unique(group.cluster, return_inverse=True)[1]
    residual = np.where(is_near, y - mean.value, 0.0) / is_near.sum()
    share = scipy.special.expit(log_odds.value)
    influence = share * (1 - share) * log_odds.influence
    influence = influence - np.bincount(cluster, residual)
    t = abs(share - mean.value[0]) / np.sqrt((influence**2).sum())
    n_clusters = len(np.unique(close.cluster))
    if 2 * scipy.special.stdtr(n_clusters - 1, -t) < _DISAGREES:
        return near, _DISAGREEMENT
    return near, ""


def _count_bearable(y: FloatArray, cluster: IntArray) -> int:
    """Columns of a fit that these outcomes can bear."""
    # By cluster, as comparisons of one prompt are not independent; one with both
    # endings counts on both sides.
    n_won = len(np.unique(cluster[y > 0]))
    n_lost = len(np.unique(cluster[y < 1]))
    return min(n_won, n_lost) // _OUTCOMES_PER_COLUMN


def _length_columns(
    lengths: FloatArray, y: FloatArray, cluster: IntArray
) -> FloatArray:
    """Columns of m(log l_c) - m(log l_r) + g(tanh((l_c - l_r) / sd)).

    docs/statistics.md, Style: accuracy at equal length. `lengths` holds l_c and l_r,
    those of the chosen and of the rejected answer, (comparisons, 2).
    """
    logs = np.log1p(lengths)
    difference = lengths[:, 0] - lengths[:, 1]
    bent = np.tanh(difference / difference.std())

    n_knots = min(2 + _count_bearable(y, cluster), _MAX_KNOTS["length"])
    m = _spline_change(logs.ravel(), n_knots, logs[:, 0], logs[:, 1])
    g = _spline_change(bent, n_knots, bent, np.zeros(1))
    return np.hstack([m, g])


def _style_curve(
    column: FloatArray, y: FloatArray, cluster: IntArray, n_bearable: int
) -> FloatArray:
    """A curve with up to so many columns, less its value at zero: equal answers get no
    effect.
    """
    # Comparisons that do not differ in a control say nothing of its effect.
    differs = column != 0
    n_told = _count_bearable(y[differs], cluster[differs])
    n_values = 1 + min(n_bearable, n_told)
    n_knots = min(max(n_values, 2), _MAX_KNOTS["style"])
    few = min(n_values, _FEW_VALUES)
    return _spline_change(column, n_knots, column, np.zeros(1), few)


def _spline_change(
    values: FloatArray,
    n_knots: int,
    above: FloatArray,
    below: FloatArray,
    few: int = _FEW_VALUES,
) -> FloatArray:
    """Natural cubic splines at `above` less the same at `below`.

    Each is one at one knot and zero at the others, and constant beyond the outermost
    knots. Up to `few` different values are a knot each. The first column goes, as the
    splines sum to one.
    """
    from scipy.interpolate import CubicSpline

    knots = np.unique(values)
    if len(knots) > few or n_knots < 3:
        shares = np.linspace(0, 1, n_knots)
        knots = np.unique(np.quantile(values, shares))
    spline = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    spline_above = spline(np.clip(above, knots[0], knots[-1]))
    spline_below = spline(np.clip(below, knots[0], knots[-1]))
    change = spline_above - spline_below
    return np.asarray(change[:, 1:])


def _compare_control(
    pairs: pd.DataFrame, counts: pd.DataFrame, name: str
) -> FloatArray:
    """Relative difference of a control, (rows,)."""
    if name == "style":
        # Steps are no counts: no ratio.
        return style_steps(pairs["chosen_style"]) - style_steps(pairs["rejected_style"])
    chosen, rejected = look_up_sides(counts, pairs, name).T
    # With 1 in the denominator, two answers without a heading differ by 0, not by
    # 0 / 0.
    return np.asarray((chosen - rejected) / (chosen + rejected + 1))
