"""Accuracy at equal length or style: a logistic curve per model, at no difference."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, fdtrc

from rmlab import tables
from rmlab.bias import regression
from rmlab.bias.gap import WITHIN_A_QUARTER
from rmlab.estimation.clustered import MIN_PROMPTS, indicator, t_quantile
from rmlab.estimation.items import Ties, credit
from rmlab.metrics.pairing import as_pairs
from rmlab.tables import (
    BoolArray,
    FloatArray,
    IntArray,
    copy_provenance,
    default_cluster,
    group_codes,
)

# Prompts of the rarer ending that each column of a fit needs.
_OUTCOMES_PER_COLUMN = 6
_MAX_KNOTS = {"length": 5, "style": 4}
# Up to so many different values, a curve passes through each of them freely.
_FEW_VALUES = 7
# As R's glm; where no maximum exists each step adds about one to the log-odds.
_MAX_STEPS = 25
# With the penalty there is always a maximum, but the steps shrink more slowly.
_MAX_STEPS_FIRTH = 100
_LONGEST_STEP = 5.0  # in log-odds, as R's logistf
_CONVERGED = 1e-8  # in log-odds
_RUNAWAY = 10.0  # at zero difference: beyond, a fit has run away
# p of the test of fit below which a row carries a caveat: in a table of 100 rows one by
# chance.
_MISFIT = 0.01
# Prompts that the test of fit needs for each column it looks for.
_PROMPTS_PER_DIRECTION = 5
# Effective prompts (Kish) that an effect needs for an interval: with fewer, t is wider
# than any use.
_MIN_TELLING = 4
_MIN_NEAR = 10  # prompts of nearly equal length below which a row carries a caveat
_SEPARATION = (
    "perfect separation: the differences alone decide every comparison;"
    " no finite answer"
)
_NO_STYLE = tables.DataError(
    "controls: 'style' needs styles, but some are missing in pairs", "leave it out"
)

# How many columns the outcomes of some rows can bear.
_Budget = Callable[[BoolArray], int]


def length_controlled(
    table: pd.DataFrame,
    features: pd.DataFrame,
    *,
    measure: str = "characters",
    form: Literal["spline", "tanh"] = "spline",
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
    form : {"spline", "tanh"}
        "spline": the logit of winning is a curve in the length of each answer, chosen
        less rejected, plus a curve in their ratio. "tanh" repeats length-controlled
        AlpacaEval, b * tanh(d / sd(d)), without its term for the difficulty of a
        prompt, which one model's outcomes cannot give: narrower, and wrong where the
        liking has another shape.
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
        One row per combination of the `by` columns: these, accuracy (as it is),
        controlled, se, low, high (of controlled; clustered), effect (what a chosen
        answer twice as long as the rejected one adds in log-odds, at the typical
        length), effect_low, effect_high, fit_p (test whether the form fits; NaN with
        few prompts), n_pairs, n_prompts, n_ties, missing, caveat (the form does not
        fit; equal length is hardly observed; length alone decides some comparisons, so
        that effects may be of any size), reason (why a number is missing). Where length
        alone decides every comparison the curve has no finite answer, and `reason` says
        so.

    Raises
    ------
    DataError
        For features of other responses.

    Warns
    -----
    UserWarning
        Where fit_p is below 0.01.

    Notes
    -----
    This is the accuracy of the prompts whose answers happen to be equally long. If the
    answers of hard prompts differ more in length, it is higher than all prompts would
    have at equal length. Nor is it an accuracy "without length bias": where longer
    answers are better or worse, the curve holds merit as well as liking, and no outcome
    can tell the two apart. A model that ignores length moves here if right answers win
    more often when they are short. The fit is logistic regression with errors clustered
    by prompt.

    References
    ----------
    Dubois and others (arXiv 2404.04475) for the form "tanh".
    """
    tables.check_option("form", form, ("spline", "tanh"))
    pairs = as_pairs(table)
    lengths = np.hstack(regression.look_up_sides(pairs, features, [measure]))

    make_design = partial(_length_design, lengths, measure, form)
    fit = partial(_fit, ["effect"], is_penalised=False, confidence=confidence)
    frame = _fit_groups(pairs, make_design, fit, ["effect"], by, ties, cluster)
    return copy_provenance(table, frame)


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
        As `length_controlled`, with effect_<control> and its limits for each control in
        place of effect: what a difference of one standard deviation adds in log-odds. A
        control that does not vary, or repeats the ones before it, is left out: its
        effect is NaN, and `reason` says so. An effect that fewer than four prompts tell
        of (Kish) has no interval.

    Raises
    ------
    DataError
        For features of other responses, and for the control "style" where styles are
        missing.

    Warns
    -----
    UserWarning
        Where fit_p is below 0.01.

    Notes
    -----
    The likelihood has Firth's penalty, so effects are finite if a rare control decides
    all of its comparisons; `caveat` then says so. A curve has as many columns as the
    comparisons that differ in its control can bear. The error is the larger of the one
    clustered by prompt and the model's own, since residuals vanish where a control
    decides.

    References
    ----------
    Li and others (2024), "Does style matter?", for the form "linear"; Firth (1993) for
    the penalty.
    """
    tables.check_option("form", form, ("spline", "linear"))
    names = [controls] if isinstance(controls, str) else list(controls)
    pairs = as_pairs(table)
    differences, sums = _compare_controls(pairs, features, names)

    make_design = partial(_style_design, differences, sums, names, form)
    effects = [f"effect_{name}" for name in names]
    fit = partial(_fit, effects, is_penalised=True, confidence=confidence)
    frame = _fit_groups(pairs, make_design, fit, effects, by, ties, cluster)
    return copy_provenance(table, frame)


class _Design(NamedTuple):
    """Columns of a regression, all zero where the answers do not differ.

    columns (rows, k); effects (effects, k): the differences whose effects are reported;
    alternatives (rows, q): what the test of fit looks for; reasons (effects,): why a
    control was left out, else ""; outside: why zero difference lies outside the data;
    is_near (rows,): lengths that differ by less than a quarter.
    """

    columns: FloatArray
    effects: FloatArray
    alternatives: FloatArray
    reasons: list[str]
    outside: str = ""
    is_near: BoolArray | slice = slice(None)


class _Curve(NamedTuple):
    """A fitted logistic regression: log-odds and probabilities of the rows of x.

    inverse is that of the information, (k, k).
    """

    x: FloatArray
    coefficients: FloatArray
    inverse: FloatArray
    log_odds: FloatArray
    p: FloatArray


def _fit_groups(
    pairs: pd.DataFrame,
    make_design: Callable[[IntArray, _Budget], _Design],
    fit: Callable[..., dict[str, object]],
    effects: list[str],
    by: str | Sequence[str],
    ties: Ties,
    cluster: str | None,
) -> pd.DataFrame:
    """One row per group."""
    results = ["accuracy", "controlled", "se", "low", "high"]
    for name in effects:
        results += [name, f"{name}_low", f"{name}_high"]
    results += ["fit_p", "n_pairs", "n_prompts", "n_ties", "missing"]
    results += ["caveat", "reason"]
    columns, cluster_columns = regression.group_columns(
        pairs, by, cluster, results=results
    )
    clusters = group_codes(pairs, cluster_columns)[0]
    prompts = group_codes(pairs, default_cluster(pairs))[0]
    earned = credit(pairs, ties=ties)

    groups = []
    for rows in regression.group_rows(pairs, columns):
        counted_rows = rows[~np.isnan(earned[rows])]
        outcome = pairs["outcome"].iloc[rows]
        group = pairs[columns].iloc[rows[0]].to_dict()
        group["caveat"] = ""
        design_of_budget = partial(make_design, counted_rows)
        group |= fit(earned[counted_rows], design_of_budget, clusters[counted_rows])
        group["n_pairs"] = len(counted_rows)
        group["n_prompts"] = len(np.unique(prompts[counted_rows]))
        group["n_ties"] = (outcome == "tie").sum()
        group["missing"] = outcome.isna().sum()
        groups.append(group)
    frame = pd.DataFrame(groups).reindex(columns=[*columns, *results])

    misfits = frame.loc[frame["fit_p"] < _MISFIT, columns].to_dict("records")
    if misfits:
        warnings.warn(
            f"form: it does not fit in {len(misfits)} of {len(frame)} rows,"
            f" first {misfits[0]}",
            stacklevel=3,
        )
    return frame


def _fit(
    effects: Sequence[str],
    y: FloatArray,
    make_design: Callable[[_Budget], _Design],
    cluster: IntArray,
    *,
    is_penalised: bool,
    confidence: float,
) -> dict[str, object]:
    """Numbers of one group, as far as there are any, and why others are missing."""
    if not len(y):
        return {"reason": "no outcome"}
    if not np.ptp(y):
        endings = {0.0: "lost or tied", 1.0: "won"}
        ending = endings.get(float(y[0]), "a tie")
        reason = f"every comparison is {ending}: nothing to fit"
        return {"accuracy": y[0], "reason": reason}
    observed_clusters, cluster = np.unique(cluster, return_inverse=True)
    design = make_design(partial(_count_columns, y, cluster))
    few_prompts = regression.few_prompts(len(observed_clusters))
    reasons = [design.outside, *design.reasons, few_prompts]
    if design.outside:
        return {"accuracy": y.mean(), "reason": _join(reasons)}
    curve = _fit_curve(y, design.columns, is_penalised)
    if _has_no_limit(y, curve):
        return {"accuracy": y.mean(), "reason": _join([_SEPARATION, *reasons])}

    points = _read_points(y, curve, design, cluster, is_penalised, confidence)
    share = expit(points.value[0])
    numbers = {
        "accuracy": y.mean(),
        "controlled": share,
        "se": share * (1 - share) * points.se[0],  # by the delta method
        # Limits of odds keep those of a share between 0 and 1.
        "low": expit(points.low[0]),
        "high": expit(points.high[0]),
    }
    for place, name in enumerate(effects, start=1):
        numbers[name] = points.value[place]
        numbers[f"{name}_low"] = points.low[place]
        numbers[f"{name}_high"] = points.high[place]
        has_value = not np.isnan(points.value[place])
        if has_value and points.is_few[place] and not points.is_few[0]:
            reasons.append(f"{name}: fewer than {_MIN_TELLING} prompts tell of it")

    fit_p = _test_fit(y, curve, design.alternatives, cluster)
    caveats = _list_caveats(y, curve, design, cluster, fit_p)
    return {
        **numbers,
        "fit_p": fit_p,
        "caveat": _join(caveats),
        "reason": _join(reasons),
    }


def _join(texts: list[str]) -> str:
    return "; ".join(text for text in texts if text)


def _list_caveats(
    y: FloatArray, curve: _Curve, design: _Design, cluster: IntArray, fit_p: float
) -> list[str]:
    caveats = []
    if fit_p < _MISFIT:
        caveats.append(f"the form does not fit (p = {fit_p:.1g})")
    if _is_separated(y, curve.x):
        caveats.append("separation: the differences alone decide some comparisons")
    n_near = len(np.unique(cluster[design.is_near]))
    if n_near < _MIN_NEAR:
        caveats.append(
            f"equal length is hardly observed: {n_near} prompts have lengths within a"
            " quarter of each other"
        )
    return caveats


def _fit_curve(y: FloatArray, columns: FloatArray, is_penalised: bool) -> _Curve:
    """Logistic regression with an intercept, by Newton's method.

    The penalty is Firth's (1993): half of each row's leverage is added to its wins and
    to its losses. No effect then runs away where a difference alone decides, and a rare
    difference has little bias.
    """
    x = np.column_stack([np.ones(len(y)), columns])
    coefficients = np.zeros(x.shape[1])
    max_steps = _MAX_STEPS_FIRTH if is_penalised else _MAX_STEPS
    for _ in range(max_steps):
        p = expit(x @ coefficients)
        weight = p * (1 - p)
        information = (x * weight[:, None]).T @ x
        # A pseudo-inverse, so that columns that repeat each other share one effect.
        inverse = np.linalg.pinv(information, rcond=1e-14, hermitian=True)
        residual = y - p
        if is_penalised:
            leverage = weight * ((x @ inverse) * x).sum(axis=1)
            residual = residual + leverage * (0.5 - p)

        step = inverse @ (x.T @ residual)
        length = np.abs(x @ step).max()
        damping = min(1.0, _LONGEST_STEP / max(length, _CONVERGED))
        coefficients = coefficients + step * damping
        if length < _CONVERGED:
            break
    log_odds = x @ coefficients
    return _Curve(x, coefficients, np.asarray(inverse), log_odds, expit(log_odds))


def _has_no_limit(y: FloatArray, curve: _Curve) -> bool:
    """Whether the fit has run away, or every win has higher odds than every loss.

    In the second case the differences alone decide.
    """
    lowest_win = curve.log_odds[y > 0.5].min(initial=np.inf)
    highest_loss = curve.log_odds[y < 0.5].max(initial=-np.inf)
    is_apart = lowest_win > highest_loss
    return bool(is_apart or abs(curve.coefficients[0]) > _RUNAWAY)


def _count_columns(y: FloatArray, cluster: IntArray, rows: BoolArray) -> int:
    """Columns of a fit that the outcomes of the rows can bear."""
    # By cluster, as comparisons of one prompt are not independent; one with both
    # endings counts on both sides.
    n_won = len(np.unique(cluster[rows & (y > 0)]))
    n_lost = len(np.unique(cluster[rows & (y < 1)]))
    return min(n_won, n_lost) // _OUTCOMES_PER_COLUMN


def _is_separated(y: FloatArray, x: FloatArray) -> bool:
    """Whether larger slopes in some direction fit better (Konis 2007).

    There no win lies below a loss, and some lie above.
    """
    from scipy.optimize import linprog

    side = np.sign(y - 0.5)
    distance = side[:, None] * x
    is_tie = side == 0
    n_ties = is_tie.sum()
    result = linprog(
        -distance.sum(axis=0),
        A_ub=-distance[~is_tie],
        b_ub=np.zeros(len(y) - n_ties),
        A_eq=x[is_tie],
        b_eq=np.zeros(n_ties),
        bounds=(-1, 1),
    )
    return (result.fun or 0.0) < -1e-6


class _Points(NamedTuple):
    """Log-odds at no difference, then the effects; NaN where one was left out.

    Without an interval there is no error; is_few says where too few prompts tell of it.
    """

    value: FloatArray
    se: FloatArray
    low: FloatArray
    high: FloatArray
    is_few: BoolArray


def _read_points(
    y: FloatArray,
    curve: _Curve,
    design: _Design,
    cluster: IntArray,
    is_penalised: bool,
    confidence: float,
) -> _Points:
    intercept = np.eye(1, curve.x.shape[1])
    effects = np.pad(design.effects, ((0, 0), (1, 0)))
    points = np.vstack([intercept, effects])
    value = points @ curve.coefficients
    is_left_out = [reason != "" for reason in design.reasons]
    value = np.where([False, *is_left_out], np.nan, value)

    error, df = _cluster_errors(y, curve, points, cluster, is_penalised)
    n_clusters = len(np.unique(cluster))
    is_few = (df < _MIN_TELLING - 1) | (n_clusters < MIN_PROMPTS)
    half = t_quantile(np.where(is_few, 0.0, df), confidence) * error
    return _Points(
        value=value,
        se=np.where(np.isnan(half), np.nan, error),
        low=value - half,
        high=value + half,
        is_few=is_few,
    )


def _cluster_errors(
    y: FloatArray,
    curve: _Curve,
    points: FloatArray,
    cluster: IntArray,
    is_penalised: bool,
) -> tuple[FloatArray, FloatArray]:
    """Error and degrees of freedom of each point of a curve."""
    sensitivity = curve.inverse @ points.T
    leverage = curve.x @ sensitivity
    residual = y - curve.p
    influence = _cluster_sums(leverage * residual[:, None], cluster)

    # CR1, as cov_type="cluster" in statsmodels.
    n_clusters = len(influence)
    n, k = curve.x.shape
    small_sample = n_clusters / max(n_clusters - 1, 1) * (n - 1) / max(n - k, 1)
    variance = small_sample * (influence**2).sum(axis=0)
    if not is_penalised:
        df = np.full(len(points), n_clusters - 1.0)
        return np.sqrt(variance), df

    # Residuals vanish where a difference decides: the error is at least the model's.
    weight = curve.p * (1 - curve.p)
    information = _cluster_sums(leverage**2 * weight[:, None], cluster)
    model_variance = information.sum(axis=0)
    variance = np.maximum(variance, model_variance)
    # A rare difference has only as many degrees of freedom as there are clusters that
    # tell of it (Kish).
    with np.errstate(invalid="ignore"):
        share = information / model_variance
        df = 1 / (share**2).sum(axis=0) - 1
    return np.sqrt(variance), df


def _test_fit(
    y: FloatArray, curve: _Curve, alternatives: FloatArray, cluster: IntArray
) -> float:
    """p of the score test whether `alternatives` would improve the fit.

    Hotelling's test of the clusters' scores, in the part of the alternatives that the
    fitted columns do not explain, with the effective number of clusters (Kish): a rare
    difference is told of by few. NaN with too few clusters.
    """
    variance = curve.p * (1 - curve.p)
    root = np.sqrt(np.maximum(variance, 1e-12))[:, None]
    x = root * curve.x
    columns = root * alternatives
    unexplained = columns - x @ np.linalg.lstsq(x, columns)[0]
    length = np.linalg.norm(unexplained, axis=0)
    is_new = length > 1e-6 * np.linalg.norm(columns, axis=0)
    residual = y - curve.p
    scores = unexplained[:, is_new] / root * residual[:, None]

    cluster_scores = _cluster_sums(scores, cluster)
    n = len(cluster_scores)
    mean = cluster_scores.mean(axis=0)
    _, size, directions = np.linalg.svd(cluster_scores - mean, full_matrices=False)
    is_free = size > 1e-8 * size.max(initial=0.0)
    q = int(is_free.sum())
    if q == 0 or n < _PROMPTS_PER_DIRECTION * q:
        return float("nan")
    n_effective = _effective_clusters(unexplained[:, is_new], cluster)
    df = n_effective - q
    if df <= 0:
        return float("nan")
    standardised = directions[is_free] @ mean / size[is_free]
    t_squared = n * (n - 1) * float((standardised**2).sum())
    f = t_squared * df / (q * (n_effective - 1))
    return float(fdtrc(q, df, f))


def _effective_clusters(columns: FloatArray, cluster: IntArray) -> float:
    """Kish's number of clusters by their leverages in the space of the columns."""
    basis = np.linalg.qr(columns)[0]
    leverage = _cluster_sums(basis**2, cluster).sum(axis=1)
    return float(leverage.sum() ** 2 / (leverage**2).sum())


def _cluster_sums(rows: FloatArray, cluster: IntArray) -> FloatArray:
    n_clusters = int(cluster.max()) + 1
    return np.asarray(indicator(cluster, n_clusters).T @ rows)


def _length_design(
    lengths: FloatArray, measure: str, form: str, rows: IntArray, budget: _Budget
) -> _Design:
    """Columns of m(log l_c) - m(log l_r) + g(tanh((l_c - l_r) / sd)).

    docs/statistics.md, Style: accuracy at equal length. `lengths` holds l_c and l_r,
    those of the chosen and of the rejected answer, (comparisons, 2).
    """
    lengths = lengths[rows]
    n_rows = len(rows)
    difference = lengths[:, 0] - lengths[:, 1]
    outside = _outside(difference, measure)
    no_columns = np.empty((n_rows, 0))
    if outside:
        return _Design(no_columns, no_columns[:1], no_columns, [""], outside)
    if not difference.any():
        reasons = [f"{measure} does not vary"]
        return _Design(no_columns, no_columns[:1], no_columns, reasons)

    # The last row: one answer twice as long as the other, at the typical sum of both.
    log_sum = np.log(lengths.sum(axis=1) + 2)
    typical_sum = np.exp(log_sum.mean()) - 2
    doubled = typical_sum * np.array([2 / 3, 1 / 3])
    l_c, l_r = np.vstack([lengths, doubled]).T
    log_c = np.log(l_c + 1)
    log_r = np.log(l_r + 1)
    bent = np.tanh((l_c - l_r) / difference.std())

    n_knots = min(2 + budget(np.ones(n_rows, bool)), _MAX_KNOTS["length"])
    observed_logs = np.concatenate([log_c[:n_rows], log_r[:n_rows]])
    m = _spline_change(observed_logs, n_knots, log_c, log_r)
    g = _spline_change(bent[:n_rows], n_knots, bent, np.zeros(1))
    spline = np.hstack([m, g])

    log_ratio = log_c[:n_rows] - log_r[:n_rows]
    crossed = log_ratio * (log_sum - log_sum.mean())
    if form == "tanh":
        columns = bent[:, None]
        alternatives = spline[:n_rows]
    else:
        columns = spline
        alternatives = np.column_stack([log_ratio**2, crossed, log_ratio * crossed])
    return _Design(
        columns=columns[:n_rows],
        effects=columns[n_rows:],
        alternatives=alternatives,
        reasons=[""],
        outside=outside,
        is_near=np.abs(log_ratio) <= WITHIN_A_QUARTER,
    )


def _style_design(
    differences: FloatArray,
    sums: FloatArray,
    controls: list[str],
    form: str,
    rows: IntArray,
    budget: _Budget,
) -> _Design:
    """For the relative difference and the sum of each control, (rows, controls)."""
    differences = differences[rows]
    sums = sums[rows]
    n_rows = len(rows)
    columns = np.column_stack([np.ones(n_rows), differences])
    scale = np.linalg.norm(columns, axis=0)
    reasons = regression.dependence_reasons(columns, ["", *controls], scale=scale)[1:]
    places = [place for place, reason in enumerate(reasons) if not reason]

    # The last rows: a standard deviation of one control, nothing of the others.
    deviations = np.diag(differences.std(axis=0))
    columns = np.vstack([differences, deviations])[:, places]
    if form == "spline":
        n_bearable = budget(np.ones(n_rows, bool)) // len(controls)
        columns = _style_curves(columns, n_rows, n_bearable, budget)
    effects = columns[n_rows:]
    for place, name in enumerate(controls):
        # A curve is constant beyond the data: zero where the chosen answer never has
        # more.
        if not reasons[place] and not effects[place].any():
            reasons[place] = f"{name} is never larger in the chosen answer"

    # A slope may change with the sum, as where style is worth more on right answers; a
    # curve has room for that.
    alternatives = []
    if form == "linear":
        alternatives += list(sums[:, places].T)
    alternatives += _products(differences[:, places])
    # Of a rare difference with next to no losses the scores are too skewed for a test.
    alternatives = [column for column in alternatives if budget(column != 0)]
    outside = [_outside(differences[:, place], controls[place]) for place in places]
    return _Design(
        columns=columns[:n_rows],
        effects=effects,
        alternatives=np.array(alternatives).T.reshape(n_rows, -1),
        reasons=reasons,
        outside=_join(outside),
    )


def _products(columns: FloatArray) -> list[FloatArray]:
    """Products of every two columns, squares among them."""
    products = []
    for i in range(columns.shape[1]):
        for j in range(i + 1):
            products.append(columns[:, i] * columns[:, j])
    return products


def _style_curves(
    columns: FloatArray, n_rows: int, n_bearable: int, budget: _Budget
) -> FloatArray:
    """A curve for each column, less its value at zero: equal answers get no effect.

    The first `n_rows` rows are the data; a curve has up to `n_bearable` columns.
    """
    curves = [columns[:, :0]]
    for column in columns.T:
        values = column[:n_rows]
        # Comparisons that do not differ in a control say nothing of its effect.
        n_values = 1 + min(n_bearable, budget(values != 0))
        n_knots = min(max(n_values, 2), _MAX_KNOTS["style"])
        few = min(n_values, _FEW_VALUES)
        curves.append(_spline_change(values, n_knots, column, np.zeros(1), few))
    return np.hstack(curves)


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


def _compare_controls(
    pairs: pd.DataFrame, features: pd.DataFrame | None, controls: list[str]
) -> tuple[FloatArray, FloatArray]:
    """Relative difference and sum of each control, (rows, controls)."""
    if not controls or len(set(controls)) < len(controls):
        raise ValueError(f"controls: {controls}; name at least one, each once")
    differences = np.empty((len(pairs), len(controls)))
    sums = np.empty_like(differences)
    for place, name in enumerate(controls):
        if name == "style":
            # Steps are no counts: no ratio.
            chosen_step = regression.style_steps(pairs["chosen_style"], _NO_STYLE)
            rejected_step = regression.style_steps(pairs["rejected_style"], _NO_STYLE)
            differences[:, place] = chosen_step - rejected_step
            sums[:, place] = chosen_step + rejected_step
            continue
        chosen, rejected = regression.look_up_sides(pairs, features, [name])
        difference = (chosen - rejected)[:, 0]
        total = (chosen + rejected)[:, 0]
        # With 1 in the denominator, two answers without a heading differ by 0, not by
        # 0 / 0.
        differences[:, place] = difference / (total + 1)
        sums[:, place] = np.log1p(total)
    return differences, sums


def _outside(difference: FloatArray, name: str) -> str:
    """Why answers that are equal lie outside the data, else ""."""
    if difference.min() <= 0 <= difference.max():
        return ""
    return (
        f"{name} differs the same way in every comparison:"
        " answers that are equal lie outside the data"
    )
