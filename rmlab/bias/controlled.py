"""Accuracy at equal length or equal style: a logistic curve per model, read off where the two answers do not differ."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, fdtrc

from rmlab import tables
from rmlab.bias import regression
from rmlab.metrics.estimate import indicator
from rmlab.metrics.items import FloatArray, Ties, as_pairs, credit
from rmlab.tables import STYLE, DataError, IntArray, copy_provenance, default_cluster, group_codes

_OUTCOMES_PER_COLUMN = 6  # prompts of the rarer ending that each column of a fit needs
_MAX_KNOTS = {"length": 5, "style": 4}
_FEW_VALUES = 7  # up to so many different values, a curve passes through each of them freely
_MAX_STEPS = 25  # as R's glm; where no maximum exists each adds about one to the log-odds
_RUNAWAY = 10.0  # at zero difference: beyond, a fit has run away
_MISFIT = 0.01  # p of the test of fit below which a row carries a caveat: in a table of 100 rows one by chance
_PROMPTS_PER_DIRECTION = 5  # prompts that the test of fit needs for each column it looks for


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
        "spline": the logit of winning is a curve in the length of each answer, chosen less rejected, plus a curve in
        their ratio. "tanh" repeats length-controlled AlpacaEval, b * tanh(d / sd(d)), without its term for the
        difficulty of a prompt, which one model's outcomes cannot give: narrower, and wrong where the liking has another
        shape.
    by : str or sequence of str
        Columns that define the rows.
    ties : {"loss", "half", "drop"}
        What a tie earns.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: these, accuracy (as it is), controlled, se, low, high (of
        controlled; clustered), effect (what a chosen answer twice as long as the rejected one adds in log-odds, at the
        typical length), effect_low, effect_high, fit_p (test whether the form fits; NaN with few prompts), n_pairs,
        n_prompts, n_ties, missing, caveat (the form does not fit), reason
        (why a number is missing). Where length alone decides every comparison the curve has no finite answer, and
        `reason` says so.

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
    This is not an accuracy "without length bias": where longer answers are better or worse, the curve holds merit
    as well as liking, and no outcome can tell the two apart. A model that ignores length moves here if right
    answers win more often when they are short. The fit is statsmodels' binomial GLM with errors clustered by
    prompt.

    References
    ----------
    Dubois and others (arXiv 2404.04475) for the form "tanh".
    """
    tables.check_option("form", form, ("spline", "tanh"))
    pairs = as_pairs(table)
    counts = np.hstack(regression.look_up_sides(pairs, features, [measure]))

    design_of = partial(_length_design, counts, measure, form)
    return copy_provenance(table, _fit_groups(pairs, design_of, ["effect"], by, ties, cluster, confidence))


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
    """Estimate how often the chosen answer wins where the answers do not differ in any of the controls.

    Parameters
    ----------
    table, by, ties, cluster, confidence
        As in `length_controlled`.
    features : DataFrame, optional
        Counts of each answer; not needed for the control "style".
    controls : sequence of str
        Columns of `features`, which enter as (c - r) / (c + r + 1) for the counts c and r of the chosen and the
        rejected answer; "style" is the difference in steps (concise 0, plain 1, markdown 2). The default counts
        characters, code included.
    form : {"spline", "linear"}
        "spline": a curve for each control (each step of style has its own effect, so that "style" alone gives the
        accuracy where both styles are equal). "linear": one slope per control, the form of Chatbot Arena's style
        control.

    Returns
    -------
    DataFrame
        As `length_controlled`, with effect_<control> and its limits for each control in place of effect: what a
        difference of one standard deviation adds in log-odds. A control that does not vary, or repeats the ones before
        it, is left out: its effect is NaN, and `reason` says so.

    Raises
    ------
    DataError
        For features of other responses, and for the control "style" where styles are missing.

    Warns
    -----
    UserWarning
        Where fit_p is below 0.01.

    References
    ----------
    Li and others (2024), "Does style matter?", for the form "linear".
    """
    tables.check_option("form", form, ("spline", "linear"))
    names = [controls] if isinstance(controls, str) else list(controls)
    pairs = as_pairs(table)
    design_of = partial(_style_design, *_compare_controls(pairs, features, names), names, form)
    effects = [f"effect_{name}" for name in names]
    return copy_provenance(table, _fit_groups(pairs, design_of, effects, by, ties, cluster, confidence))


class _Design(NamedTuple):
    """Columns of a regression, all zero where the answers do not differ.

    columns (rows + effects, k): the last rows are the differences whose effects are reported; alternatives (rows, q):
    what the test of fit looks for; reasons (effects,): why a control was left out, else ""; outside: why zero
    difference lies outside the data.
    """

    columns: FloatArray
    alternatives: FloatArray
    reasons: list[str]
    outside: str = ""


def _fit_groups(
    pairs: pd.DataFrame,
    design_of: Callable[[IntArray, int], _Design],
    effects: list[str],
    by: str | Sequence[str],
    ties: Ties,
    cluster: str | None,
    confidence: float,
) -> pd.DataFrame:
    """One row per group; `design_of` takes rows and the number of columns that their outcomes can bear."""
    names = [f"{name}{end}" for name in effects for end in ("", "_low", "_high")]
    results = ["accuracy", "controlled", "se", "low", "high", *names, "fit_p"]
    results += ["n_pairs", "n_prompts", "n_ties", "missing", "caveat", "reason"]
    columns, cluster_columns = regression.group_columns(pairs, by, cluster, results=results)
    clusters = group_codes(pairs, cluster_columns)[0]
    prompts = group_codes(pairs, default_cluster(pairs))[0]
    earned = credit(pairs, ties=ties)
    frames = []
    for rows in regression.group_rows(pairs, columns):
        counted_rows, outcome = rows[~np.isnan(earned[rows])], pairs["outcome"].iloc[rows]
        row = pairs[columns].iloc[rows[0]].to_dict()
        design = partial(design_of, counted_rows)
        row |= _fit(earned[counted_rows], design, clusters[counted_rows], confidence, names)
        row |= {"n_pairs": len(counted_rows), "n_prompts": len(np.unique(prompts[counted_rows]))}
        frames.append(row | {"n_ties": (outcome == "tie").sum(), "missing": outcome.isna().sum()})
    frame = pd.DataFrame(frames).reindex(columns=[*columns, *results])
    frame["caveat"] = [f"the form does not fit (p = {p:.1g})" if p < _MISFIT else "" for p in frame["fit_p"]]
    misfits = frame.loc[frame["caveat"] != "", columns].to_dict("records")
    if misfits:
        warnings.warn(f"form: it does not fit in {len(misfits)} of {len(frame)} rows, first {misfits[0]}", stacklevel=3)
    return frame


def _fit(
    y: FloatArray, make_design: Callable[[int], _Design], cluster: IntArray, confidence: float, effects: Sequence[str]
) -> dict[str, object]:
    """Numbers of one group, as far as there are any, with columns for the effects, and the reason."""
    import statsmodels.api as sm

    if not len(y):
        return {"reason": "no outcome"}
    if not np.ptp(y):
        ending = {0.0: "lost or tied", 1.0: "won"}.get(float(y[0]), "a tie")
        return {"accuracy": y[0], "reason": f"every comparison is {ending}: nothing to fit"}
    # By cluster, as comparisons of one prompt are not independent; one with both endings counts on both sides.
    design = make_design(min(len(np.unique(cluster[side])) for side in (y > 0, y < 1)) // _OUTCOMES_PER_COLUMN)
    cluster = np.unique(cluster, return_inverse=True)[1]
    n_clusters = int(cluster.max()) + 1
    reason = "; ".join(filter(None, (design.outside, *design.reasons, regression.few_prompts(n_clusters))))
    if design.outside:
        return {"accuracy": y.mean(), "reason": reason}
    x = np.column_stack([np.ones(len(y)), design.columns[: len(y)]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels warns of the separation that is refused below
        result = sm.GLM(y, x, family=sm.families.Binomial()).fit(maxiter=_MAX_STEPS)
    log_odds = x @ result.params
    # If every win has higher odds than every loss, larger slopes fit better without end.
    is_apart = log_odds[y > 0.5].min(initial=np.inf) > log_odds[y < 0.5].max(initial=-np.inf)
    if is_apart or abs(result.params[0]) > _RUNAWAY:
        separation = "perfect separation: the differences alone decide every comparison; no finite answer"
        return {"accuracy": y.mean(), "reason": "; ".join(filter(None, (separation, reason)))}
    p = expit(log_odds)
    # As cov_type="cluster", but from influences: products of scores lose the digits where a tail decides everything.
    influence = _cluster_sums(x * (y - p)[:, None], cluster) @ result.normalized_cov_params
    small_sample = n_clusters / max(n_clusters - 1, 1) * (len(y) - 1) / max(len(y) - x.shape[1], 1)
    # The intercept (log-odds at no difference) and the effects; limits of odds keep those of a share between 0 and 1.
    points = np.vstack([np.eye(1, x.shape[1]), np.pad(design.columns[len(y) :], ((0, 0), (1, 0)))])
    value = np.where([False, *map(bool, design.reasons)], np.nan, points @ result.params)
    error = np.sqrt(small_sample * ((influence @ points.T) ** 2).sum(axis=0))
    half = regression.t_limit(confidence, n_clusters) * error
    limits = np.column_stack([value, value - half, value + half])
    controlled, low, high = expit(limits[0])
    # By the delta method; without an interval there is no error.
    se = controlled * (1 - controlled) * error[0] if half[0] >= 0 else np.nan
    numbers = {"accuracy": y.mean(), "controlled": controlled, "se": se, "low": low, "high": high, "reason": reason}
    numbers |= dict(zip(effects, limits[1:].ravel(), strict=True))
    return numbers | {"fit_p": _test_fit(y, x, p, design.alternatives, cluster)}


def _test_fit(y: FloatArray, x: FloatArray, p: FloatArray, alternatives: FloatArray, cluster: IntArray) -> float:
    """p of the score test whether `alternatives` would improve the fit; NaN with too few clusters.

    Hotelling's test of the clusters' scores, in the part of the alternatives that the fitted columns do not explain.
    """
    root = np.sqrt(np.maximum(p * (1 - p), 1e-12))[:, None]
    columns = root * alternatives
    residual = columns - root * x @ np.linalg.lstsq(root * x, columns)[0]
    residual = residual[:, np.linalg.norm(residual, axis=0) > 1e-6 * np.linalg.norm(columns, axis=0)]
    scores = _cluster_sums(residual / root * (y - p)[:, None], cluster)
    n, mean = len(scores), scores.mean(axis=0)
    _, size, directions = np.linalg.svd(scores - mean, full_matrices=False)
    is_free = size > 1e-8 * size.max(initial=0.0)
    q = int(is_free.sum())
    if q == 0 or n < _PROMPTS_PER_DIRECTION * q:
        return float("nan")
    t_squared = n * (n - 1) * float(((directions[is_free] @ mean / size[is_free]) ** 2).sum())
    return float(fdtrc(q, n - q, t_squared * (n - q) / (q * (n - 1))))


def _cluster_sums(rows: FloatArray, cluster: IntArray) -> FloatArray:
    return np.asarray(indicator(cluster, int(cluster.max()) + 1).T @ rows, np.float64)


def _length_design(counts: FloatArray, measure: str, form: str, rows: IntArray, budget: int) -> _Design:
    """For both lengths of each comparison, (comparisons, 2)."""
    counts = counts[rows]
    difference, total = counts @ [1.0, -1.0], np.log(counts.sum(axis=1) + 2)
    if not difference.any():
        return _Design(np.empty((len(counts) + 1, 0)), np.empty((len(counts), 0)), [f"{measure} does not vary"])
    # The last row: one answer twice as long as the other, at the typical sum of both.
    counts = np.vstack([counts, (np.exp(total.mean()) - 2) * np.array([2 / 3, 1 / 3])])
    bent, lengths = np.tanh(counts @ [1.0, -1.0] / difference.std()), np.log(counts + 1)
    n_knots = min(2 + budget, _MAX_KNOTS["length"])
    merit = _spline_change(lengths[:-1].ravel(), n_knots, lengths[:, 0], lengths[:, 1])
    spline = np.hstack([merit, _spline_change(bent[:-1], n_knots, bent, np.zeros(1))])
    ratio = lengths[:-1, 0] - lengths[:-1, 1]
    crossed = ratio * (total - total.mean())
    powers = np.column_stack([ratio**2, crossed, ratio * crossed])
    columns, alternatives = (bent[:, None], spline[:-1]) if form == "tanh" else (spline, powers)
    return _Design(columns, alternatives, [""], _outside(difference, measure))


def _style_design(
    differences: FloatArray, sums: FloatArray, controls: list[str], form: str, rows: IntArray, budget: int
) -> _Design:
    """For the relative difference and the sum of each control, (comparisons, controls)."""
    differences, sums = differences[rows], sums[rows]
    columns = np.column_stack([np.ones(len(rows)), differences])
    reasons = regression.dependence_reasons(columns, ["", *controls], scale=np.linalg.norm(columns, axis=0))[1:]
    places = [place for place, reason in enumerate(reasons) if not reason]
    # The last rows: a standard deviation of one control, nothing of the others.
    columns = np.vstack([differences, np.diag(differences.std(axis=0))])[:, places]
    if form == "spline":  # less its value at zero, so that equal answers get no effect
        n_knots = int(np.clip(1 + budget // len(controls), 2, _MAX_KNOTS["style"]))
        blocks = [_spline_change(column[: len(rows)], n_knots, column, np.zeros(1)) for column in columns.T]
        columns = np.hstack([columns[:, :0], *blocks])
    products = [differences[:, a] * differences[:, b] for i, a in enumerate(places) for b in places[: i + 1]]
    # A slope may change with the sum, as where style is worth more on right answers; a curve has room for that.
    alternatives = np.column_stack([sums[:, places if form == "linear" else []], *products])
    outside = "; ".join(filter(None, (_outside(differences[:, place], controls[place]) for place in places)))
    return _Design(columns, alternatives, reasons, outside)


def _spline_change(values: FloatArray, n_knots: int, above: FloatArray, below: FloatArray) -> FloatArray:
    """Natural cubic splines that are one at one knot and zero at the others, `above` less `below`.

    They are constant beyond the outermost knots. The first column goes, as the splines sum to one.
    """
    from scipy.interpolate import CubicSpline

    knots = np.unique(values)
    if len(knots) > _FEW_VALUES or n_knots < 3:
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
            steps = [pd.Categorical(pairs[f"{label}_style"], dtype=STYLE).codes for label in tables.LABELS]
            if np.min(steps, initial=0) < 0:
                raise DataError("controls: 'style' needs styles, but some are missing in pairs. Leave it out.")
            differences[:, place], sums[:, place] = steps[0] - steps[1], steps[0] + steps[1]
            continue
        chosen, rejected = np.hstack(regression.look_up_sides(pairs, features, [name])).T
        # With 1 in the denominator, two answers without a heading differ by 0, not by 0 / 0.
        total = chosen + rejected
        differences[:, place], sums[:, place] = (chosen - rejected) / (total + 1), np.log1p(total)
    return differences, sums


def _outside(difference: FloatArray, name: str) -> str:
    """Why answers that are equal lie outside the data, else ""."""
    if difference.min() <= 0 <= difference.max():
        return ""
    return f"{name} differs the same way in every comparison: answers that are equal lie outside the data"
