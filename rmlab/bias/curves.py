"""Smooth curves of a difference that are zero where the difference is zero: columns for a regression."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curve", "curve", "line"]

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]
"""From differences (rows,) to columns (rows, k): zero at a difference of zero, uncorrelated in the data, variance 1."""

_FEW_VALUES = 7  # up to so many different values, a curve passes through each of them freely
_SHARES = (0.05, 0.95)  # knots lie between these quantiles; beyond them a natural spline is a straight line
_FLAT = 1e-6  # of the largest singular value, below which a direction holds nothing


def line(values: Floats) -> Curve:
    """The straight line, in standard deviations of `values`."""
    spread = float(values.std()) or 1.0
    return lambda x: (x / spread)[:, None]


def curve(values: Floats, freedom: int) -> Curve:
    """A natural cubic spline with at most `freedom` columns, its knots at quantiles of `values`.

    Where there are few different values (steps of style), a line through each of them instead: as free as the data
    allow. With `freedom` 1 the straight line. Hastie, Tibshirani and Friedman (2009), section 5.2.1.
    """
    different = np.unique(values)
    if freedom < 2 or len(different) < 3:
        return line(values)
    if len(different) <= _FEW_VALUES:
        return _scaled(_through(np.union1d(different, [0.0])), values)
    knots = np.unique(np.quantile(values, np.linspace(*_SHARES, freedom + 1)))
    return _scaled(_natural(knots), values) if len(knots) > 2 else line(values)


def _natural(knots: Floats) -> Curve:
    """The spline's truncated powers, less their values at zero."""

    def columns(x: Floats) -> Floats:
        last = knots[-1]
        # Equations 5.4 and 5.5 of Hastie, Tibshirani and Friedman (2009): cubic between the knots, straight beyond
        # them.
        powers = [(np.maximum(x - knot, 0) ** 3 - np.maximum(x - last, 0) ** 3) / (last - knot) for knot in knots[:-1]]
        return np.stack([x, *(power - powers[-1] for power in powers[:-1])], axis=1)

    return lambda x: columns(x) - columns(np.zeros(1))  # so that equal answers get no effect


def _through(values: Floats) -> Curve:
    """Piecewise straight between `values`, one column for each but zero; straight on beyond the outermost."""

    def columns(x: Floats) -> Floats:
        inside = np.clip(x, values[0], values[-1])
        hats = np.stack([np.interp(inside, values, row) for row in np.eye(len(values))], axis=1)
        return hats[:, values != 0]

    return columns


def _scaled(columns: Curve, values: Floats) -> Curve:
    """The same curves, written in columns that are uncorrelated and of variance 1 in `values`.

    So that one penalty weighs on all of them alike; columns that repeat others go.
    """
    made = columns(values)
    # Centred to find the directions only: the columns themselves keep their zero at a difference of zero.
    made = made - made.mean(axis=0)
    unit = np.where(made.std(axis=0) > 0, made.std(axis=0), 1.0)
    _, size, rows = np.linalg.svd(made / unit, full_matrices=False)
    kept = size > _FLAT * size[0]
    turn = rows[kept].T / size[kept] * np.sqrt(len(values)) / unit[:, None]
    return lambda x: columns(x) @ turn
