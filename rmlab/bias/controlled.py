"""Accuracy at equal length or style: a logistic curve per model, at no difference."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, stdtr

from rmlab import tables
from rmlab.bias.answers import look_up_sides, style_steps
from rmlab.bias.firth import Points, fit_curve, read_points
from rmlab.bias.groups import (
    Estimate,
    Group,
    Numbers,
    count_outcomes,
    estimate,
    estimate_mean,
    explain_few,
    fit_groups,
    join_texts,
    name_limits,
)
from rmlab.bias.least_squares import dependence_reasons
from rmlab.estimation.clustered import MIN_PROMPTS
from rmlab.estimation.items import Ties, credit
from rmlab.metrics.pairing import as_pairs
from rmlab.tables import BoolArray, FloatArray, IntArray

# Prompts of the rarer ending that each column of a fit needs.
_OUTCOMES_PER_COLUMN = 6
_MAX_KNOTS = {"length": 5, "style": 4}
# Up to so many different values, a curve passes through each of them freely.
_FEW_VALUES = 7
# Effective prompts (Kish) that an effect needs for an interval: with fewer, t is wider
# than any use.
_MIN_TELLING = 4
_WITHIN_A_QUARTER = np.log(1.25)
_MIN_NEAR = 10  # prompts of nearly equal length below which a row says so
_DISAGREES = 0.05  # p of the difference from near below which a row says so
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
        Counts of each answer, from `rmlab.styles.features(responses)`.
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
        - effect: what a chosen answer twice as long as the rejected one adds in
          log-odds, at the typical length, with effect_low, effect_high;
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
    pairs = as_pairs(table)
    lengths = look_up_sides(pairs, features, measure)
    log_ratio = np.log1p(lengths[:, 0]) - np.log1p(lengths[:, 1])
    is_near = np.abs(log_ratio) <= _WITHIN_A_QUARTER

    def make_design(y: FloatArray, group: Group) -> _Design:
        return _length_design(lengths[group.rows], measure, y, group.cluster)

    return _fit_outcomes(
        pairs, make_design, ["effect"], by, ties, cluster, confidence, is_near
    )


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
        Counts of each answer; not needed for the control "style".
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
        As `length_controlled`, without near, and with effect_<control> and its limits
        for each control in place of effect: what a difference of one standard deviation
        adds in log-odds. A control that does not vary, or repeats the ones before it,
        is left out: its effect is NaN, and `reason` says so. An effect that is
        supported by fewer than four effective prompts (Kish) has no interval.

    Raises
    ------
    DataError
        For features of other responses, and for the control "style" where styles are
        missing.

    Notes
    -----
    The likelihood has Firth's penalty, so effects are finite if a rare control decides
    all of its comparisons. A curve has as many columns as the comparisons that differ
    in its control can bear. The error is the larger of the one clustered by prompt and
    the model's own, since residuals vanish where a control decides.

    References
    ----------
    Li and others (2024), "Does style matter?", for the form "linear"; Firth (1993) for
    the penalty.
    """
    tables.check_option("form", form, ("spline", "linear"))
    names = [controls] if isinstance(controls, str) else list(controls)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"controls: {names}; name at least one, each once")
    pairs = as_pairs(table)
    columns = [_compare_control(pairs, features, name) for name in names]
    differences = np.column_stack(columns)

    def make_design(y: FloatArray, group: Group) -> _Design:
        return _style_design(differences[group.rows], names, form, y, group.cluster)

    effects = [f"effect_{name}" for name in names]
    return _fit_outcomes(pairs, make_design, effects, by, ties, cluster, confidence)


class _Design(NamedTuple):
    """Columns of a regression, all zero where the answers do not differ.

    columns (rows, k); effects (effects, k): the differences whose effects are reported;
    reasons (effects,): why a control was left out, else ""; outside: why zero
    difference lies outside the data.
    """

    columns: FloatArray
    effects: FloatArray
    reasons: list[str]
    outside: str = ""


def _fit_outcomes(
    pairs: pd.DataFrame,
    make_design: Callable[[FloatArray, Group], _Design],
    effects: list[str],
    by: str | Sequence[str],
    ties: Ties,
    cluster: str | None,
    confidence: float,
    is_near: BoolArray | None = None,
) -> pd.DataFrame:
    """One row per group."""
    results = ["accuracy", "controlled", "se", "low", "high"]
    if is_near is not None:
        results += ["near", "near_low", "near_high", "n_near"]
    for name in effects:
        results += [name, f"{name}_low", f"{name}_high"]
    results += ["n_pairs", "n_prompts", "n_ties", "missing", "reason"]
    earned = credit(pairs, ties=ties)

    def fit(group: Group) -> Numbers:
        outcome = pairs["outcome"].iloc[group.rows]
        group = group.select(~np.isnan(earned[group.rows]))
        y = earned[group.rows]
        numbers = count_outcomes(outcome, group)
        if not len(y):
            return numbers | {"reason": "no outcome"}

        numbers["accuracy"] = y.mean()
        points, reasons = _fit_points(y, group, make_design, effects)
        if points is not None:
            log_odds = estimate(points.value, points.se, points.df, confidence)
            share = expit(log_odds.value[0])
            numbers["controlled"] = share
            numbers["se"] = share * (1 - share) * log_odds.se[0]  # by the delta method
            # Limits of odds keep those of a share between 0 and 1.
            numbers["low"] = expit(log_odds.low[0])
            numbers["high"] = expit(log_odds.high[0])
            for place, name in enumerate(effects, start=1):
                effect = Estimate(*(part[place] for part in log_odds))
                numbers |= name_limits(name, effect)
        if is_near is not None:
            near, reason = _look_near(y, group, is_near[group.rows], points, confidence)
            numbers |= near
            reasons.append(reason)
        return numbers | {"reason": join_texts(reasons)}

    return fit_groups(pairs, by, cluster, fit, results)


def _fit_points(
    y: FloatArray,
    group: Group,
    make_design: Callable[[FloatArray, Group], _Design],
    effects: Sequence[str],
) -> tuple[Points | None, list[str]]:
    """Log-odds at no difference and of each effect, where they can be fitted, and why
    numbers are missing.
    """
    if not np.ptp(y):
        return None, ["every comparison ends alike: nothing to fit"]
    design = make_design(y, group)
    reasons = [design.outside, *design.reasons, explain_few(group.n_clusters)]
    if design.outside:
        return None, reasons
    curve = fit_curve(y, design.columns)
    lowest_win = curve.log_odds[y > 0.5].min(initial=np.inf)
    highest_loss = curve.log_odds[y < 0.5].max(initial=-np.inf)
    if lowest_win > highest_loss:
        return None, [_SEPARATION, *reasons]

    intercept = np.eye(1, curve.x.shape[1])
    at_points = np.vstack([intercept, np.pad(design.effects, ((0, 0), (1, 0)))])
    cluster = np.unique(group.cluster, return_inverse=True)[1]
    points = read_points(y, curve, at_points, cluster)
    is_left_out = np.array([False, *map(bool, design.reasons)])
    has_interval = points.df >= _MIN_TELLING - 1
    if group.n_clusters < MIN_PROMPTS:
        has_interval[:] = False
    else:
        for place in np.flatnonzero(~has_interval & ~is_left_out):
            name = ["controlled", *effects][place]
            few = f"supported by fewer than {_MIN_TELLING} effective prompts"
            reasons.append(f"{name}: {few}")
    value = np.where(is_left_out, np.nan, points.value)
    df = np.where(has_interval, points.df, 0.0)
    return points._replace(value=value, df=df), reasons


def _look_near(
    y: FloatArray,
    group: Group,
    is_near: BoolArray,
    points: Points | None,
    confidence: float,
) -> tuple[Numbers, str]:
    """The accuracy of pairs of nearly equal length, and what speaks against the
    curve.
    """
    close = group.select(is_near)
    mean = estimate_mean(y[is_near], close.cluster, confidence)
    near = name_limits("near", mean) | {"n_near": close.n_prompts}
    if close.n_prompts < _MIN_NEAR:
        return near, (
            f"equal length is hardly observed: {close.n_prompts} prompts have lengths"
            " within a quarter of each other"
        )
    if points is None:
        return near, ""

    # Both come from the same prompts: the error of their difference is paired.
    cluster = np.unique(group.cluster, return_inverse=True)[1]
    residual = np.where(is_near, y - mean.value, 0.0) / is_near.sum()
    share = expit(points.value[0])
    influence = share * (1 - share) * points.influence[:, 0]
    influence = influence - np.bincount(cluster, residual)
    t = abs(share - mean.value[0]) / np.sqrt((influence**2).sum())
    if 2 * stdtr(close.n_clusters - 1, -t) >= _DISAGREES:
        return near, ""
    return near, (
        "controlled and near disagree: the curve may miss the preference's shape"
    )


def _count_bearable(y: FloatArray, cluster: IntArray) -> int:
    """Columns of a fit that these outcomes can bear."""
    # By cluster, as comparisons of one prompt are not independent; one with both
    # endings counts on both sides.
    n_won = len(np.unique(cluster[y > 0]))
    n_lost = len(np.unique(cluster[y < 1]))
    return min(n_won, n_lost) // _OUTCOMES_PER_COLUMN


def _length_design(
    lengths: FloatArray, measure: str, y: FloatArray, cluster: IntArray
) -> _Design:
    """Columns of m(log l_c) - m(log l_r) + g(tanh((l_c - l_r) / sd)).

    docs/statistics.md, Style: accuracy at equal length. `lengths` holds l_c and l_r,
    those of the chosen and of the rejected answer, (comparisons, 2).
    """
    n_rows = len(lengths)
    difference = lengths[:, 0] - lengths[:, 1]
    outside = _outside(difference, measure)
    if outside or not difference.any():
        no_columns = np.empty((n_rows, 0))
        reasons = ["" if outside else f"{measure} does not vary"]
        return _Design(no_columns, no_columns[:1], reasons, outside)

    # The last row: one answer twice as long as the other, at the typical sum of both.
    typical_sum = np.expm1(np.log(lengths.sum(axis=1) + 2).mean()) - 1
    doubled = typical_sum * np.array([2 / 3, 1 / 3])
    l_c, l_r = np.vstack([lengths, doubled]).T
    logs = np.log1p(lengths).ravel()
    bent = np.tanh((l_c - l_r) / difference.std())

    n_knots = min(2 + _count_bearable(y, cluster), _MAX_KNOTS["length"])
    m = _spline_change(logs, n_knots, np.log1p(l_c), np.log1p(l_r))
    g = _spline_change(bent[:n_rows], n_knots, bent, np.zeros(1))
    columns = np.hstack([m, g])
    return _Design(columns[:n_rows], columns[n_rows:], [""])


def _style_design(
    differences: FloatArray,
    controls: list[str],
    form: str,
    y: FloatArray,
    cluster: IntArray,
) -> _Design:
    """For the relative difference of each control, (rows, controls)."""
    n_rows = len(differences)
    columns = np.column_stack([np.ones(n_rows), differences])
    scale = np.linalg.norm(columns, axis=0)
    reasons = dependence_reasons(columns, ["", *controls], scale=scale)[1:]
    places = [place for place, reason in enumerate(reasons) if not reason]
    outside = [_outside(differences[:, place], controls[place]) for place in places]

    # The last rows: a standard deviation of one control, nothing of the others.
    deviations = np.diag(differences.std(axis=0))
    columns = np.vstack([differences, deviations])[:, places]
    if form == "spline":
        n_bearable = _count_bearable(y, cluster) // len(controls)
        curves = [columns[:, :0]]
        for column in columns.T:
            # Comparisons that do not differ in a control say nothing of its effect.
            differs = column[:n_rows] != 0
            n_told = _count_bearable(y[differs], cluster[differs])
            curves.append(_style_curve(column, n_rows, min(n_bearable, n_told)))
        columns = np.hstack(curves)
    effects = columns[n_rows:]
    for place, name in enumerate(controls):
        # A curve is constant beyond the data: zero where the chosen answer never has
        # more.
        if not reasons[place] and not effects[place].any():
            reasons[place] = f"{name} is never larger in the chosen answer"
    return _Design(columns[:n_rows], effects, reasons, join_texts(outside))


def _style_curve(column: FloatArray, n_rows: int, n_bearable: int) -> FloatArray:
    """A curve with up to so many columns, less its value at zero: equal answers get no
    effect.

    The first `n_rows` rows are the data.
    """
    n_values = 1 + n_bearable
    n_knots = min(max(n_values, 2), _MAX_KNOTS["style"])
    few = min(n_values, _FEW_VALUES)
    return _spline_change(column[:n_rows], n_knots, column, np.zeros(1), few)


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
    pairs: pd.DataFrame, features: pd.DataFrame | None, name: str
) -> FloatArray:
    """Relative difference of a control, (rows,)."""
    if name == "style":
        # Steps are no counts: no ratio.
        return style_steps(pairs["chosen_style"]) - style_steps(pairs["rejected_style"])
    chosen, rejected = look_up_sides(pairs, features, name).T
    # With 1 in the denominator, two answers without a heading differ by 0, not by
    # 0 / 0.
    return np.asarray((chosen - rejected) / (chosen + rejected + 1))


def _outside(difference: FloatArray, name: str) -> str:
    """Why answers that are equal lie outside the data, else ""."""
    if difference.min() <= 0 <= difference.max():
        return ""
    return (
        f"{name} differs the same way in every comparison:"
        " answers that are equal lie outside the data"
    )
