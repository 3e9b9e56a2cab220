"""The columns of a regression of wins on differences in length or style: all of them zero where answers are alike."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.bias.curves import Curve, curve, line
from rmlab.bias.regressors import repeats

__all__ = ["Design", "length_design", "style_design"]

Floats = NDArray[np.float64]

_MOST = {"length": 5, "style": 3}  # degrees of freedom of a curve


class Design(NamedTuple):
    """What one fit needs, without the intercept: every column is zero where the answers do not differ."""

    columns: Floats  # (rows, k)
    plain: Floats  # (rows, controls): straight lines, for the separated case and the test of separation
    others: Floats  # (rows, q): what the test of fit looks for
    steps: Floats  # (effects, k): the columns at the differences whose effects are reported; NaN for a control left out
    plain_steps: Floats  # (effects, controls)
    reasons: list[str]  # controls left out
    outside: str = ""  # why zero difference lies outside the data


def length_design(chosen: Floats, rejected: Floats, form: str, freedom: int, measure: str) -> Design:
    """For the lengths of both answers, (rows,) each; `freedom` is what the outcomes can bear, `measure` a name."""
    difference, ratio = chosen - rejected, np.log((chosen + 1) / (rejected + 1))
    size = np.log(chosen + rejected + 2)
    centre, spread = (float(size.mean()), float(difference.std()) or 1.0) if len(size) else (0.0, 1.0)
    # tanh(d / sd) and log((c + 1) / (r + 1)) are both 0 at equal length, which is all that is read off.
    bent, size = np.tanh(difference / spread), size - centre
    outside = _outside(difference, measure)
    # One answer twice as long as the other, at the typical sum of both: the difference is then a third of the sum.
    doubled = np.tanh([(np.exp(centre) - 2) / 3 / spread]), np.log([2.0]), np.zeros(1)
    if not len(size) or not np.ptp(difference):
        return _empty(len(size), 1, [f"{measure} does not vary"] if len(size) else [])
    plain = bent[:, None], doubled[0][:, None]
    if form == "tanh":
        others = np.column_stack([bent**2, ratio, ratio * size, size])
        return Design(plain[0], plain[0], others, plain[1], plain[1], [], outside)
    freedom = int(np.clip(freedom + 1, 1, _MOST["length"]))  # a bend as soon as anything can be told
    curves = curve(bent, freedom), curve(ratio, freedom)
    width = (_spread(ratio * size), _spread(ratio**2 * size))

    def columns(bent: Floats, ratio: Floats, size: Floats) -> Floats:
        crossed = [ratio * size / width[0], ratio**2 * size / width[1]] if freedom > 1 else []
        return np.column_stack([curves[0](bent), curves[1](ratio), *crossed])

    return Design(columns(bent, ratio, size), plain[0], _tenths(ratio), columns(*doubled), plain[1], [], outside)


def style_design(relative: Floats, total: Floats, form: str, freedom: int, controls: list[str]) -> Design:
    """For the relative difference and the log of the sum of each control, (rows, controls) both."""
    n, k = relative.shape
    reasons = repeats(np.column_stack([np.ones(n), relative]), ["", *controls])[1:] if n else []
    kept = [i for i, reason in enumerate(reasons) if not reason]
    if not kept:
        return _empty(n, k, [reason for reason in reasons if reason])
    x = relative[:, kept]
    freedom = int(np.clip(freedom, 1, _MOST["style"]))
    curves = [curve(column, freedom) if form == "spline" else line(column) for column in x.T]
    lines: list[Curve] = [line(column) for column in x.T]
    pairs = [x[:, i] * x[:, j] for i in range(len(kept)) for j in range(i)]
    others = np.column_stack([x**2, *pairs, *([] if form == "spline" else [total[:, kept]])])
    one = np.diag(x.std(axis=0))  # a standard deviation of one control, nothing of the others

    def steps(made: list[Curve]) -> Floats:
        rows = np.hstack([own(one[:, i]) for i, own in enumerate(made)])
        every = np.full((k, rows.shape[1]), np.nan)
        every[kept] = rows
        return every

    columns, plain = (np.hstack([own(x[:, i]) for i, own in enumerate(made)]) for made in (curves, lines))
    left_out = [reason for reason in reasons if reason]
    outside = "; ".join(filter(None, (_outside(x[:, i], controls[kept[i]]) for i in range(len(kept)))))
    return Design(columns, plain, others, steps(curves), steps(lines), left_out, outside)


def _empty(n: int, effects: int, reasons: list[str]) -> Design:
    """The design where no control varies: an intercept, and no effect."""
    none, unknown = np.empty((n, 0)), np.full((effects, 0), np.nan)
    return Design(none, none, none, unknown, unknown, reasons)


def _outside(difference: Floats, name: str) -> str:
    """Why nothing can be said about answers that are equal: empty where some are, or where some differ either way."""
    if not len(difference) or difference.min() <= 0 <= difference.max():
        return ""
    return f"{name} differs the same way in every comparison: answers that are equal lie outside the data"


def _tenths(x: Floats) -> Floats:
    """One column per tenth of the values but the first: a step function that no smooth curve follows for free."""
    edges = np.unique(np.quantile(x, np.linspace(0.1, 0.9, 9)))
    place = np.searchsorted(edges, x, side="right")
    member: Floats = (place[:, None] == np.arange(1, len(edges) + 1)).astype(np.float64)
    return member


def _spread(x: Floats) -> float:
    return float(x.std()) or 1.0
