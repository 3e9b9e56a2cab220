"""Accuracy at equal length or equal style: a logistic curve per model, read off where
the two answers do not differ.
"""

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
from rmlab.estimation.clustered import MIN_PROMPTS, TOO_FEW, indicator, t_quantile
from rmlab.estimation.items import Ties, as_pairs, credit
from rmlab.tables import (
    STYLE,
    BoolArray,
    DataError,
    FloatArray,
    IntArray,
    copy_provenance,
    default_cluster,
    group_codes,
)

_OUTCOMES_PER_COLUMN = 6  # prompts of the rarer ending that each column of a fit needs
_MAX_KNOTS = {"length": 5, "style": 4}
_FEW_VALUES = (
    7  # up to so many different values, a curve passes through each of them freely
)
_MAX_STEPS = (
    25  # as R's glm; where no maximum exists each adds about one to the log-odds
)
_MAX_STEPS_FIRTH = 100  # always has a maximum, but its steps shrink more slowly
_LONGEST_STEP = 5.0  # in log-odds, as R's logistf
_CONVERGED = 1e-8  # in log-odds
_RUNAWAY = 10.0  # at zero difference: beyond, a fit has run away
# p of the test of fit below which a row carries a caveat: in a table of 100 rows one by
# chance
_MISFIT = 0.01
_PROMPTS_PER_DIRECTION = (
    5  # prompts that the test of fit needs for each column it looks for
)
_MIN_NEAR = 10  # prompts of nearly equal length below which a row carries a caveat


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
        Column that names a family of prompts which stand or fall together; default: the
        prompt.
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
    counts = np.hstack(regression.look_up_sides(pairs, features, [measure]))

    design_of = partial(_length_design, counts, measure, form)
    fit = partial(_fit, is_penalised=False, confidence=confidence)
    return copy_provenance(
        table, _fit_groups(pairs, design_of, fit, ["effect"], by, ties, cluster)
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
    """Estimate how often the chosen answer wins where the answers do not differ in any
    of the controls.

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
        effect is NaN, and `reason` says so. An effect that fewer than five prompts tell
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
    design_of = partial(
        _style_design, *_compare_controls(pairs, features, names), names, form
    )
    effects = [f"effect_{name}" for name in names]
    fit = partial(_fit, is_penalised=True, confidence=confidence)
    return copy_provenance(
        table, _fit_groups(pairs, design_of, fit, effects, by, ties, cluster)
    )


_Budget = Callable[
    [BoolArray], int
]  # how many columns the outcomes of some rows can bear


class _Design(NamedTuple):
    """Columns of a regression, all zero where the answers do not differ.

    columns (rows + effects, k): the last rows are the differences whose effects are
    reported; alternatives (rows, q): what the test of fit looks for; reasons
    (effects,): why a control was left out, else ""; outside: why zero difference lies
    outside the data; is_near (rows,): lengths that differ by less than a quarter.
    """

    columns: FloatArray
    alternatives: FloatArray
    reasons: list[str]
    outside: str = ""
    is_near: BoolArray | slice = slice(None)


def _fit_groups(
    pairs: pd.DataFrame,
    design_of: Callable[[IntArray, _Budget], _Design],
    fit: Callable[..., dict[str, object]],
    effects: list[str],
    by: str | Sequence[str],
    ties: Ties,
    cluster: str | None,
) -> pd.DataFrame:
    """One row per group."""
    names = [f"{name}{end}" for name in effects for end in ("", "_low", "_high")]
    results = ["accuracy", "controlled", "se", "low", "high", *names, "fit_p"]
    results += ["n_pairs", "n_prompts", "n_ties", "missing", "caveat", "reason"]
    columns, cluster_columns = regression.group_columns(
        pairs, by, cluster, results=results
    )
    clusters = group_codes(pairs, cluster_columns)[0]
    prompts = group_codes(pairs, default_cluster(pairs))[0]
    earned = credit(pairs, ties=ties)
    frames = []
    for rows in regression.group_rows(pairs, columns):
        counted_rows, outcome = (
            rows[~np.isnan(earned[rows])],
            pairs["outcome"].iloc[rows],
        )
        row = pairs[columns].iloc[rows[0]].to_dict()
        design = partial(design_of, counted_rows)
        row |= {
            "caveat": "",
            **fit(earned[counted_rows], design, clusters[counted_rows], names),
        }
        row |= {
            "n_pairs": len(counted_rows),
            "n_prompts": len(np.unique(prompts[counted_rows])),
        }
        frames.append(
            row | {"n_ties": (outcome == "tie").sum(), "missing": outcome.isna().sum()}
        )
    frame = pd.DataFrame(frames).reindex(columns=[*columns, *results])
    misfits = frame.loc[frame["fit_p"] < _MISFIT, columns].to_dict("records")
    if misfits:
        warnings.warn(
            f"form: it does not fit in {len(misfits)} of {len(frame)} rows, first {misfits[0]}",
            stacklevel=3,
        )
    return frame


def _fit(
    y: FloatArray,
    make_design: Callable[[_Budget], _Design],
    cluster: IntArray,
    effects: Sequence[str],
    *,
    is_penalised: bool,
    confidence: float,
) -> dict[str, object]:
    """Numbers of one group, as far as there are any, with columns for the effects, and
    the reason.
    """
    if not len(y):
        return {"reason": "no outcome"}
    if not np.ptp(y):
        ending = {0.0: "lost or tied", 1.0: "won"}.get(float(y[0]), "a tie")
        return {
            "accuracy": y[0],
            "reason": f"every comparison is {ending}: nothing to fit",
        }
    cluster = np.unique(cluster, return_inverse=True)[1]
    n_clusters = int(cluster.max()) + 1
    design = make_design(partial(_count_columns, y, cluster))
    reasons = [design.outside, *design.reasons, regression.few_prompts(n_clusters)]
    if design.outside:
        return {"accuracy": y.mean(), "reason": _join(*reasons)}

    x = np.column_stack([np.ones(len(y)), design.columns[: len(y)]])
    coefficients, inverse = _maximise(y, x, is_penalised)
    log_odds = x @ coefficients
    # If every win has higher odds than every loss, the differences alone decide.
    is_apart = log_odds[y > 0.5].min(initial=np.inf) > log_odds[y < 0.5].max(
        initial=-np.inf
    )
    if is_apart or abs(coefficients[0]) > _RUNAWAY:
        separation = "perfect separation: the differences alone decide every comparison; no finite answer"
        return {"accuracy": y.mean(), "reason": _join(separation, *reasons)}

    # The intercept (log-odds at no difference) and the effects; limits of odds keep
    # those of a share between 0 and 1.
    points = np.vstack(
        [np.eye(1, x.shape[1]), np.pad(design.columns[len(y) :], ((0, 0), (1, 0)))]
    )
    value = np.where([False, *map(bool, design.reasons)], np.nan, points @ coefficients)
    p = expit(log_odds)
    error, df = _cluster_errors(
        y - p, x, p * (1 - p), inverse @ points.T, cluster, is_penalised
    )
    is_few = df < MIN_PROMPTS - 1
    half = t_quantile(np.where(is_few, 0.0, df), confidence) * error
    limits = np.column_stack([value, value - half, value + half])
    controlled, low, high = expit(limits[0])
    # By the delta method; without an interval there is no error.
    se = controlled * (1 - controlled) * error[0] if half[0] >= 0 else np.nan
    numbers = {
        "accuracy": y.mean(),
        "controlled": controlled,
        "se": se,
        "low": low,
        "high": high,
    }
    numbers |= dict(zip(effects, limits[1:].ravel(), strict=True))
    for name, is_unsure, value_given in zip(
        effects[::3], is_few[1:], ~np.isnan(value[1:]), strict=True
    ):
        if is_unsure and value_given and not is_few[0]:
            reasons.append(f"{name}: {TOO_FEW}")
    fit_p = _test_fit(y, x, p, design.alternatives, cluster)
    caveats = [f"the form does not fit (p = {fit_p:.1g})" if fit_p < _MISFIT else ""]
    if _is_separated(y, x):
        caveats.append("separation: the differences alone decide some comparisons")
    n_near = len(np.unique(cluster[design.is_near]))
    if n_near < _MIN_NEAR:
        caveats.append(
            f"equal length is hardly observed: {n_near} prompts have lengths within a quarter of each other"
        )
    return numbers | {
        "fit_p": fit_p,
        "caveat": _join(*caveats),
        "reason": _join(*reasons),
    }


def _join(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _count_columns(y: FloatArray, cluster: IntArray, rows: BoolArray) -> int:
    """Columns of a fit that the outcomes of the rows can bear."""
    # By cluster, as comparisons of one prompt are not independent; one with both
    # endings counts on both sides.
    n_won = len(np.unique(cluster[rows & (y > 0)]))
    n_lost = len(np.unique(cluster[rows & (y < 1)]))
    return min(n_won, n_lost) // _OUTCOMES_PER_COLUMN


def _maximise(
    y: FloatArray, x: FloatArray, is_penalised: bool
) -> tuple[FloatArray, FloatArray]:
    """Coefficients of a logistic regression, and the inverse of their information, by
    Newton's method.

    The penalty is Firth's (1993): half of each row's leverage is added to its wins and
    to its losses. No effect then runs away where a difference alone decides, and a rare
    difference has little bias.
    """
    coefficients = np.zeros(x.shape[1])
    for _ in range(_MAX_STEPS_FIRTH if is_penalised else _MAX_STEPS):
        p = expit(x @ coefficients)
        weight = p * (1 - p)
        # A pseudo-inverse, so that columns that repeat each other share one effect.
        inverse = np.linalg.pinv(
            (x * weight[:, None]).T @ x, rcond=1e-14, hermitian=True
        )
        residual = y - p
        if is_penalised:
            leverage = weight * ((x @ inverse) * x).sum(axis=1)
            residual = residual + leverage * (0.5 - p)
        step = inverse @ (x.T @ residual)
        length = np.abs(x @ step).max()
        coefficients = coefficients + step * min(
            1.0, _LONGEST_STEP / max(length, _CONVERGED)
        )
        if length < _CONVERGED:
            break
    return coefficients, np.asarray(inverse, np.float64)


def _is_separated(y: FloatArray, x: FloatArray) -> bool:
    """Whether in some direction no win lies below a loss, and some above: larger slopes
    fit better (Konis 2007).
    """
    from scipy.optimize import linprog

    side = np.sign(y - 0.5)
    distance = side[:, None] * x
    is_tie = side == 0
    result = linprog(
        -distance.sum(axis=0),
        A_ub=-distance[~is_tie],
        b_ub=np.zeros((~is_tie).sum()),
        A_eq=x[is_tie],
        b_eq=np.zeros(is_tie.sum()),
        bounds=(-1, 1),
    )
    return (result.fun or 0.0) < -1e-6


def _cluster_errors(
    residual: FloatArray,
    x: FloatArray,
    weight: FloatArray,
    sensitivity: FloatArray,
    cluster: IntArray,
    is_penalised: bool,
) -> tuple[FloatArray, FloatArray]:
    """Error and degrees of freedom of each point of a curve; `sensitivity` (columns,
    points) is inverse @ points.T.
    """
    leverage = x @ sensitivity
    influence = _cluster_sums(leverage * residual[:, None], cluster)
    n_clusters = len(influence)
    # CR1, as cov_type="cluster" in statsmodels.
    small_sample = (
        n_clusters / max(n_clusters - 1, 1) * (len(x) - 1) / max(len(x) - x.shape[1], 1)
    )
    variance = small_sample * (influence**2).sum(axis=0)
    df = np.full(len(variance), n_clusters - 1.0)
    if is_penalised:
        # Residuals vanish where a difference decides: the error is at least the
        # model's. A rare difference has only as many degrees of freedom as there are
        # clusters that tell of it (Kish).
        information = _cluster_sums(leverage**2 * weight[:, None], cluster)
        model_variance = information.sum(axis=0)
        variance = np.maximum(variance, model_variance)
        with np.errstate(invalid="ignore"):
            df = 1 / ((information / model_variance) ** 2).sum(axis=0) - 1
    return np.sqrt(variance), df


def _test_fit(
    y: FloatArray,
    x: FloatArray,
    p: FloatArray,
    alternatives: FloatArray,
    cluster: IntArray,
) -> float:
    """p of the score test whether `alternatives` would improve the fit; NaN with too
    few clusters.

    Hotelling's test of the clusters' scores, in the part of the alternatives that the
    fitted columns do not explain.
    """
    root = np.sqrt(np.maximum(p * (1 - p), 1e-12))[:, None]
    columns = root * alternatives
    residual = columns - root * x @ np.linalg.lstsq(root * x, columns)[0]
    residual = residual[
        :, np.linalg.norm(residual, axis=0) > 1e-6 * np.linalg.norm(columns, axis=0)
    ]
    scores = _cluster_sums(residual / root * (y - p)[:, None], cluster)
    n, mean = len(scores), scores.mean(axis=0)
    _, size, directions = np.linalg.svd(scores - mean, full_matrices=False)
    is_free = size > 1e-8 * size.max(initial=0.0)
    q = int(is_free.sum())
    if q == 0 or n < _PROMPTS_PER_DIRECTION * q:
        return float("nan")
    t_squared = (
        n * (n - 1) * float(((directions[is_free] @ mean / size[is_free]) ** 2).sum())
    )
    return float(fdtrc(q, n - q, t_squared * (n - q) / (q * (n - 1))))


def _cluster_sums(rows: FloatArray, cluster: IntArray) -> FloatArray:
    return np.asarray(indicator(cluster, int(cluster.max()) + 1).T @ rows, np.float64)


def _length_design(
    counts: FloatArray, measure: str, form: str, rows: IntArray, budget: _Budget
) -> _Design:
    """For both lengths of each comparison, (comparisons, 2)."""
    counts = counts[rows]
    difference, total = counts @ [1.0, -1.0], np.log(counts.sum(axis=1) + 2)
    if not difference.any():
        return _Design(
            np.empty((len(counts) + 1, 0)),
            np.empty((len(counts), 0)),
            [f"{measure} does not vary"],
        )
    # The last row: one answer twice as long as the other, at the typical sum of both.
    counts = np.vstack([counts, (np.exp(total.mean()) - 2) * np.array([2 / 3, 1 / 3])])
    bent, lengths = np.tanh(counts @ [1.0, -1.0] / difference.std()), np.log(counts + 1)
    n_knots = min(2 + budget(np.ones(len(rows), bool)), _MAX_KNOTS["length"])
    merit = _spline_change(lengths[:-1].ravel(), n_knots, lengths[:, 0], lengths[:, 1])
    spline = np.hstack([merit, _spline_change(bent[:-1], n_knots, bent, np.zeros(1))])
    ratio = lengths[:-1, 0] - lengths[:-1, 1]
    crossed = ratio * (total - total.mean())
    powers = np.column_stack([ratio**2, crossed, ratio * crossed])
    columns, alternatives = (
        (bent[:, None], spline[:-1]) if form == "tanh" else (spline, powers)
    )
    return _Design(
        columns,
        alternatives,
        [""],
        _outside(difference, measure),
        np.abs(ratio) <= WITHIN_A_QUARTER,
    )


def _style_design(
    differences: FloatArray,
    sums: FloatArray,
    controls: list[str],
    form: str,
    rows: IntArray,
    budget: _Budget,
) -> _Design:
    """For the relative difference and the sum of each control, (comparisons, controls)."""
    differences, sums = differences[rows], sums[rows]
    columns = np.column_stack([np.ones(len(rows)), differences])
    reasons = regression.dependence_reasons(
        columns, ["", *controls], scale=np.linalg.norm(columns, axis=0)
    )[1:]
    places = [place for place, reason in enumerate(reasons) if not reason]
    # The last rows: a standard deviation of one control, nothing of the others.
    columns = np.vstack([differences, np.diag(differences.std(axis=0))])[:, places]
    if form == "spline":  # less its value at zero, so that equal answers get no effect
        share = budget(np.ones(len(rows), bool)) // len(controls)
        blocks = [columns[:, :0]]
        for column in columns.T:
            values = column[: len(rows)]
            # Comparisons that do not differ in a control say nothing of its effect.
            n_bearable = 1 + min(share, budget(values != 0))
            n_knots = min(max(n_bearable, 2), _MAX_KNOTS["style"])
            few = min(n_bearable, _FEW_VALUES)
            blocks.append(_spline_change(values, n_knots, column, np.zeros(1), few))
        columns = np.hstack(blocks)
    for place, name in enumerate(controls):
        # A curve is constant beyond the data: zero where the chosen answer never has
        # more.
        if not (reasons[place] or columns[len(rows) + place].any()):
            reasons[place] = f"{name} is never larger in the chosen answer"
    products = [
        differences[:, a] * differences[:, b]
        for i, a in enumerate(places)
        for b in places[: i + 1]
    ]
    # A slope may change with the sum, as where style is worth more on right answers; a
    # curve has room for that.
    alternatives = [
        *(sums[:, place] for place in places if form == "linear"),
        *products,
    ]
    # Of a rare difference with next to no losses the scores are too skewed for a test.
    alternatives = [column for column in alternatives if budget(column != 0)]
    outside = _join(
        *(_outside(differences[:, place], controls[place]) for place in places)
    )
    return _Design(
        columns, np.array(alternatives).T.reshape(len(rows), -1), reasons, outside
    )


def _spline_change(
    values: FloatArray,
    n_knots: int,
    above: FloatArray,
    below: FloatArray,
    few: int = _FEW_VALUES,
) -> FloatArray:
    """Natural cubic splines that are one at one knot and zero at the others, `above`
    less `below`.

    They are constant beyond the outermost knots. Up to `few` different values are a
    knot each. The first column goes, as the splines sum to one.
    """
    from scipy.interpolate import CubicSpline

    knots = np.unique(values)
    if len(knots) > few or n_knots < 3:
        knots = np.unique(np.quantile(values, np.linspace(0, 1, n_knots)))
    spline = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    ends = (np.clip(x, knots[0], knots[-1]) for x in (above, below))
    return np.asarray(np.subtract(*map(spline, ends))[:, 1:], np.float64)


def _compare_controls(
    pairs: pd.DataFrame, features: pd.DataFrame | None, controls: list[str]
) -> tuple[FloatArray, FloatArray]:
    """Relative difference and sum of each control, (rows, controls)."""
    if not controls or len(set(controls)) < len(controls):
        raise ValueError(f"controls: {controls}; name at least one, each once")
    differences, sums = np.empty((2, len(pairs), len(controls)))
    for place, name in enumerate(controls):
        if name == "style":  # steps are no counts: no ratio
            steps = [
                pd.Categorical(pairs[f"{label}_style"], dtype=STYLE).codes
                for label in tables.LABELS
            ]
            if np.min(steps, initial=0) < 0:
                raise DataError(
                    "controls: 'style' needs styles, but some are missing in pairs. Leave it out."
                )
            differences[:, place], sums[:, place] = (
                steps[0] - steps[1],
                steps[0] + steps[1],
            )
            continue
        chosen, rejected = np.hstack(
            regression.look_up_sides(pairs, features, [name])
        ).T
        # With 1 in the denominator, two answers without a heading differ by 0, not by 0
        # / 0.
        total = chosen + rejected
        differences[:, place], sums[:, place] = (
            (chosen - rejected) / (total + 1),
            np.log1p(total),
        )
    return differences, sums


def _outside(difference: FloatArray, name: str) -> str:
    """Why answers that are equal lie outside the data, else ""."""
    if difference.min() <= 0 <= difference.max():
        return ""
    return f"{name} differs the same way in every comparison: answers that are equal lie outside the data"
