"""Accuracy with the length or the style of both answers held equal, by a logistic model per model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, tables
from rmlab.bias.within import columns_of, groups_of, interval_note, lookup, prompt_index, repeats, t_quantile
from rmlab.tables import PROMPT, STYLE, DataError

__all__ = ["length_controlled", "style_controlled"]

Floats = NDArray[np.float64]

_NEWTON_STEPS = 100
_SMALL_STEP = 1e-9


def length_controlled(
    pairs: pd.DataFrame,
    features: pd.DataFrame,
    *,
    measure: str = "characters",
    by: str | Sequence[str] = "model",
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Accuracy with the difference in length set to zero, one row per combination of the `by` columns.

    logit P(chosen wins) = a + b * tanh(d / sd(d)), with d the length (`measure`, a column of `features`) of the chosen
    minus that of the rejected answer, and sd(d) taken in the group; at d = 0 the accuracy is the inverse logit of a.
    The form is that of length-controlled AlpacaEval (Dubois and others, arXiv 2404.04475), without its term for the
    difficulty of a prompt, which one model's outcomes cannot give.

    Columns after those of `by`: accuracy (as it is), controlled, se, low, high (of controlled; errors clustered by
    prompt), effect (b: log-odds per unit of the tanh), effect_low, effect_high, n_pairs, n_prompts, ties, missing and
    note. Where length alone decides every comparison (perfect separation) no maximum exists: controlled and effect are
    then those with a standard normal prior on b (a ridge of b^2 / 2), they have no interval, and `note` says so. NaN
    with the reason in `note` where every comparison ends the same way. Fewer than 5 prompts give no interval. Raises
    DataError for features of other responses.
    """
    pairs = tables.check_pairs(pairs)
    by = columns_of(pairs, by, "pairs")
    difference = _difference(pairs, features, [measure])[0]
    value = metrics.credit(pairs, ties=ties)
    rows = []
    for index in groups_of(pairs, by):
        scale = _scale(difference[index][~np.isnan(value[index])])
        fit = _fit(pairs.iloc[index], value[index], np.tanh(difference[index] / scale), [measure], confidence)
        effect = {"effect": fit.effect[0], "effect_low": fit.effect_low[0], "effect_high": fit.effect_high[0]}
        rows.append(_row(pairs.iloc[index], by, fit, effect))
    return pd.DataFrame(rows)


def style_controlled(
    pairs: pd.DataFrame,
    features: pd.DataFrame | None = None,
    *,
    controls: Sequence[str] = ("characters", "headings", "bold", "list_items"),
    by: str | Sequence[str] = "model",
    ties: metrics.Ties = "loss",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Accuracy with several differences in style set to zero at once, one row per combination of the `by` columns.

    As `length_controlled`, with one term per control: (c - r) / (c + r + 1) over its standard deviation, for the counts
    c and r of the chosen and the rejected answer. Form and default controls are those of Chatbot Arena's style control
    (Li and others 2024), but no mean is taken off, so that zero stays "no difference". The control "style" is the
    difference in steps (concise 0, plain 1, markdown 2) and needs no features. Columns as there, with effect_<control>
    for each control in place of effect and its limits; a control that does not vary, or repeats the ones before it, is
    left out of the fit, its effect NaN, and `note` says so.
    """
    pairs = tables.check_pairs(pairs)
    by = columns_of(pairs, by, "pairs")
    controls = [controls] if isinstance(controls, str) else list(controls)
    relative = _relative(pairs, features, controls)
    value = metrics.credit(pairs, ties=ties)
    rows = []
    for index in groups_of(pairs, by):
        counted = ~np.isnan(value[index])
        scale = np.array([_scale(column) for column in relative[index][counted].T])
        fit = _fit(pairs.iloc[index], value[index], relative[index] / scale, controls, confidence)
        effects = {f"effect_{name}": effect for name, effect in zip(controls, fit.effect, strict=True)}
        rows.append(_row(pairs.iloc[index], by, fit, effects))
    return pd.DataFrame(rows)


class _Fit(NamedTuple):
    accuracy: float
    controlled: float
    se: float
    low: float
    high: float
    effect: Floats
    effect_low: Floats
    effect_high: Floats
    n_pairs: int
    n_prompts: int
    note: str


def _fit(pairs: pd.DataFrame, value: Floats, x: Floats, names: list[str], confidence: float) -> _Fit:
    """Logistic fit of one group; the intercept is the log-odds at zero difference."""
    counted = ~np.isnan(value)
    x = x.reshape(len(value), -1)[counted]
    y, prompt = value[counted], np.unique(prompt_index(pairs)[counted], return_inverse=True)[1]
    n_prompts = int(prompt.max(initial=-1)) + 1
    notes = repeats(np.column_stack([np.ones(len(x)), x]), ["", *names])[1:]
    kept = [0, *[i + 1 for i, note in enumerate(notes) if not note]]
    estimate, error = np.full(1 + len(names), np.nan), np.full(1 + len(names), np.nan)
    if np.ptp(y) if len(y) else False:
        design = np.column_stack([np.ones(len(x)), x])[:, kept]
        estimate[kept], error[kept], trouble = _logit(y, design, prompt)
    else:
        trouble = (
            f"every comparison is {_ENDINGS.get(float(y[0]), 'a tie')}: nothing to fit" if len(y) else "no outcome"
        )
    few = str(interval_note(np.array([n_prompts]))[0])
    error = np.full_like(error, np.nan) if few else error
    low, high = _limits(estimate, error, n_prompts, confidence)
    at_zero = _sigmoid(estimate[:1])[0]
    return _Fit(
        accuracy=float(y.mean()) if len(y) else np.nan,
        controlled=at_zero,
        se=at_zero * (1 - at_zero) * error[0],
        low=_sigmoid(low[:1])[0],
        high=_sigmoid(high[:1])[0],
        effect=estimate[1:],
        effect_low=low[1:],
        effect_high=high[1:],
        n_pairs=len(y),
        n_prompts=n_prompts,
        note="; ".join(note for note in (trouble, *notes, few) if note) if len(y) else trouble,
    )


_ENDINGS = {0.0: "lost or tied", 1.0: "won"}


def _logit(y: Floats, x: Floats, prompt: NDArray[np.intp]) -> tuple[Floats, Floats, str]:
    """Estimates, clustered errors and a note; ridge estimates without errors where the outcomes are separated."""
    if _separated(y, x):
        note = "perfect separation: the differences alone decide every comparison; ridge estimate, no interval"
        return _ridge(y, x), np.full(x.shape[1], np.nan), note
    import statsmodels.api as sm

    model = sm.GLM(y, x, family=sm.families.Binomial())
    if prompt.max() < 1:
        return model.fit().params, np.full(x.shape[1], np.nan), ""
    found = model.fit(cov_type="cluster", cov_kwds={"groups": prompt, "use_correction": True})
    return found.params, found.bse, ""


def _separated(y: Floats, x: Floats) -> bool:
    """Whether some direction puts all wins on one side and all losses on the other (boundary allowed): no maximum.

    A linear programme: the largest sum of signed distances with none negative (Konis 2007). Ties that count half must
    lie on the boundary.
    """
    from scipy.optimize import linprog

    rows, counts = np.unique(np.column_stack([np.sign(y - 0.5), x]), axis=0, return_counts=True)
    sign, points = rows[:, 0], rows[:, 1:]
    signed, tied = points[sign != 0] * sign[sign != 0, None], points[sign == 0]
    found = linprog(
        -(counts[sign != 0, None] * signed).sum(axis=0),
        A_ub=-signed,
        b_ub=np.zeros(len(signed)),
        A_eq=tied if len(tied) else None,
        b_eq=np.zeros(len(tied)) if len(tied) else None,
        bounds=(-1, 1),
    )
    return bool(found.status == 0 and -found.fun > 1e-6)


def _ridge(y: Floats, x: Floats) -> Floats:
    """Logistic estimates with a standard normal prior on every effect, none on the intercept: finite if both outcomes
    occur. Newton's method, steps halved while they make the objective worse."""
    penalty = np.r_[0.0, np.ones(x.shape[1] - 1)]

    def loss(b: Floats) -> float:
        return float(np.logaddexp(0, x @ b).sum() - y @ (x @ b) + 0.5 * penalty @ b**2)

    estimate = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = _sigmoid(x @ estimate)
        hessian = x.T @ (x * (p * (1 - p))[:, None]) + np.diag(penalty)
        step = np.linalg.solve(hessian, x.T @ (y - p) - penalty * estimate)
        while loss(estimate + step) > loss(estimate) and np.abs(step).max() > _SMALL_STEP:
            step = step / 2
        estimate = estimate + step
        if np.abs(step).max() <= _SMALL_STEP:
            break
    return estimate


def _limits(estimate: Floats, error: Floats, n_prompts: int, confidence: float) -> tuple[Floats, Floats]:
    quantile = t_quantile(confidence, n_prompts)
    return estimate - quantile * error, estimate + quantile * error


def _row(pairs: pd.DataFrame, by: list[str], fit: _Fit, effects: dict[str, Any]) -> dict[str, Any]:
    of_zero = {name: getattr(fit, name) for name in ("accuracy", "controlled", "se", "low", "high")}
    counts = {"n_pairs": fit.n_pairs, "n_prompts": fit.n_prompts, "ties": int((pairs["outcome"] == "tie").sum())}
    missing = int(pairs["outcome"].isna().sum())
    group: dict[str, Any] = pairs.iloc[0][by].to_dict()
    return group | of_zero | effects | counts | {"missing": missing, "note": fit.note}


def _difference(pairs: pd.DataFrame, features: pd.DataFrame, columns: list[str]) -> tuple[Floats, Floats]:
    """Chosen minus rejected, and chosen plus rejected; one column as a flat array, several as (rows, columns)."""
    sides = []
    for label in ("chosen", "rejected"):
        keys = pairs[PROMPT].assign(label=label, slot=pairs[f"{label}_slot"])
        sides.append(lookup(keys, features, columns, "pairs"))
    chosen, rejected = (side[:, 0] if len(columns) == 1 else side for side in sides)
    return chosen - rejected, chosen + rejected


def _relative(pairs: pd.DataFrame, features: pd.DataFrame | None, controls: list[str]) -> Floats:
    if not controls or len(set(controls)) < len(controls):
        raise ValueError(f"controls: {controls}; name at least one, each once")
    columns = {}
    counted = [c for c in controls if c != "style"]
    if counted and features is None:
        raise DataError(f"features: None, but {counted[0]!r} is asked for; pass rmlab.styles.features(responses)")
    for name in counted:
        assert features is not None
        difference, total = _difference(pairs, features, [name])
        columns[name] = difference / (total + 1)
    if "style" in controls:
        steps = [pd.Categorical(pairs[c], dtype=STYLE).codes.astype(float) for c in ("chosen_style", "rejected_style")]
        if min(steps[0].min(initial=0), steps[1].min(initial=0)) < 0:
            raise DataError("controls: 'style' needs styles, but some are missing in pairs; leave it out")
        columns["style"] = steps[0] - steps[1]
    return np.column_stack([columns[name] for name in controls])


def _scale(values: Floats) -> float:
    """Standard deviation, or 1 where there is none to divide by."""
    return float(values.std()) if len(values) and values.std() > 0 else 1.0


def _sigmoid(x: Floats) -> Floats:
    from scipy.special import expit

    result: Floats = expit(x)
    return result
