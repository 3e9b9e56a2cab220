"""Why two runs differ, told from their numbers alone: an activation, half precision, another scale."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT", "HALF", "Cause", "half_precision", "in_half", "numeric", "tolerance"]

Floats = NDArray[np.float64]

EXACT = 1e-3
"""Standard deviations within which two runs of one model on the same tokens agree in float32, on any server."""

HALF = 0.05
"""The same where one of them wrote its scores in half precision."""


class Cause(NamedTuple):
    """Why the scores in `b` differ from those in `a`. `name`: one word for it; `residual`: what it leaves unexplained,
    the largest difference in standard deviations."""

    name: str
    found: str
    remedy: str
    residual: float


def tolerance(a: Floats, b: Floats) -> float:
    """How far apart, in standard deviations, two runs of the same tokens may come out."""
    return HALF if half_precision(a) or half_precision(b) else EXACT


def half_precision(scores: Floats) -> str | None:
    """The half-precision type that writes all the scores exactly, None where there is none.

    >>> half_precision(np.array([0.5, 1.0078125, -3.25, 7.0])), half_precision(np.array([0.5, 0.1, 0.2, 0.3]))
    ('bfloat16', None)
    """
    short = scores.astype(np.float32)
    # Whole numbers and halves are exact in every type: they tell nothing.
    if len(scores) < 4 or (short * 4 == np.round(short * 4)).all():
        return None
    if (short.view(np.uint32) & 0xFFFF == 0).all():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if (short.astype(np.float16).astype(np.float32) == short).all() else None


def in_half(kind: str, shown: str, residual: float) -> Cause:
    """The cause of scores that are all numbers of a half-precision type; `shown`: what else is seen in them."""
    found = f"all scores are {kind} numbers, {shown}: the head, or the whole model, was computed in half precision"
    return Cause("half precision", found, "compute the head, or the whole model, in float32", residual)


def numeric(a: Floats, b: Floats) -> Iterator[Cause]:
    """Causes that turn the numbers of `a` into those of `b`; `a` is thought to be right."""
    spread = max(float(b.std()), 1e-12)
    if a.std() > 0 and b.std() <= 1e-9 * max(abs(float(b.mean())), 1e-12):
        found = f"every text has the score {b[0]:.6g}: a softmax over one label gives 1 for everything"
        yield Cause("softmax", found, _RAW, 0.0)
        return
    with np.errstate(over="ignore"):
        squashed = 1 / (1 + np.exp(-a))
    left = float(np.abs(b - squashed).max())
    if left <= 2e-3 and b.min() >= 0 and b.max() <= 1:
        ties = len(b) - len(np.unique(b))
        found = f"the sigmoid of the raw scores, to {left:.1g}; {ties} of {len(b)} scores are tied"
        yield Cause("sigmoid", found, _RAW, left / spread)
    kind = half_precision(b)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(kind or "", 0.0)
    if kind and half_precision(a) is None and (np.abs(b - a) <= 1.01 * unit * np.abs(a) + 1e-7).all():
        ties = len(b) - len(np.unique(b)) - (len(a) - len(np.unique(a)))
        yield in_half(kind, f"{ties} more are tied", _apart(a, b))
    slope, offset, left = line(a, b)
    if left <= EXACT and (abs(slope - 1) > 0.01 or abs(offset) > 0.01 * a.std()):
        found = f"b = {slope:.4g} a {'+' if offset >= 0 else '-'} {abs(offset):.4g}: the scores were rescaled"
        yield Cause(
            "scale", found, "look for a reward mean and deviation, or a temperature, in the server's options", left
        )


def line(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Slope and offset of b on a by least squares, and the largest residual in standard deviations of b."""
    if a.std() == 0 or b.std() == 0:
        return float("nan"), float("nan"), float("nan")
    slope, offset = np.polyfit(a, b, 1)
    return float(slope), float(offset), float(np.abs(b - slope * a - offset).max() / b.std())


def _apart(a: Floats, b: Floats) -> float:
    return float(np.abs(a - b).max() / max(float(a.std()), 1e-12))


_RAW = "ask for raw scores: vLLM use_activation=false, TEI raw_scores=true; or serve with another program"
