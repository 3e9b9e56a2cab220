"""Causes of a difference between two runs that the numbers alone show."""

from collections.abc import Iterator

import numpy as np
from scipy.special import expit

from rmlab.findings import Finding
from rmlab.scorers.base import Floats

EXACT = 1e-3
"""Standard deviations within which two runs of one model on the same tokens agree in
float32, on any server.
"""

HALF = 0.05
"""The same where one of them wrote its scores in half precision."""

# Relative rounding of a number.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}

_MIN_SCORES = 4

RAW_SCORES = (
    "ask for raw scores: vLLM use_activation=false, TEI raw_scores=true; "
    "or serve with another program"
)
_REMEDIES = {
    "sigmoid": RAW_SCORES,
    "softmax": RAW_SCORES,
    "half precision": "compute the head, or the whole model, in float32",
    "scale": (
        "look for a reward mean and deviation, or a temperature, in the server's "
        "options"
    ),
    "order": "join scores to texts by key, and ask a server one text at a time",
    "double bos": (
        "send token ids, or text with add_special_tokens=false: the template writes "
        "it already"
    ),
    "missing bos": "let the template or the tokenizer write it",
    "eos": "end texts as the template does",
    "padding": (
        "pass pooling='before_pad' to read as the other run; or give the pad token an "
        "id of its own there"
    ),
    "pooling": (
        "pass pooling='last' to read as vLLM does; or read before the pad token there, "
        "as the model's class"
    ),
    "truncation": (
        "raise the server's length limit, or cut alike on both sides (max_length= and "
        "truncate= here)"
    ),
    "template": (
        "render the model's own template; servers take one as chat_template, or token "
        "ids"
    ),
    "tokenizer": (
        "start the server with the tokenizer that was saved with the model, or send "
        "token ids"
    ),
}


def name_cause(name: str, detail: str, residual: float) -> Finding:
    """Why two runs differ; `residual`: the largest difference that it leaves, in
    standard deviations.
    """
    return Finding("fail", f"{name}: {detail}", _REMEDIES[name], residual)


def half_cause(dtype: str, residual: float) -> Finding:
    """The cause of scores that were written in half precision."""
    head = "the head, or the whole model, was computed in half precision"
    detail = f"all scores are {dtype} numbers: {head}"
    return name_cause("half precision", detail, residual)


def numeric_causes(a: Floats, b: Floats) -> Iterator[Finding]:
    """Causes that turn the numbers of `a` into those of `b`; `a` is thought to be
    right.
    """
    if is_constant(a):
        return
    if is_constant(b):
        value = f"every text has the same score, {b[0]:.6g}"
        softmax = "a softmax over one label gives 1 for everything"
        yield name_cause("softmax", f"{value}: {softmax}", 0.0)
        return

    for find in (_find_sigmoid, _find_half_precision, _find_scale, _find_order):
        cause = find(a, b)
        if cause is not None:
            yield cause


def _find_sigmoid(a: Floats, b: Floats) -> Finding | None:
    distance = float(np.abs(b - expit(a)).max())
    is_share = b.min() >= 0 and b.max() <= 1
    if distance > 2e-3 or not is_share:
        return None
    detail = f"the sigmoid of the raw scores, to {distance:.1g}"
    return name_cause("sigmoid", detail, distance / b.std())


def _find_half_precision(a: Floats, b: Floats) -> Finding | None:
    dtype = half_precision(b)
    if dtype is None or half_precision(a) is not None:
        return None
    rounding = 1.01 * _ROUNDING[dtype] * np.abs(a) + 1e-7
    if (np.abs(b - a) > rounding).any():
        return None
    return half_cause(dtype, _distance(a, b))


def _find_scale(a: Floats, b: Floats) -> Finding | None:
    slope, offset, residual = fit_line(a, b)
    is_scaled = abs(slope - 1) > 0.01 or abs(offset) > 0.01 * a.std()
    if residual > EXACT or not is_scaled:
        return None
    detail = f"b = {slope:.4g} a {offset:+.4g}: the scores were rescaled"
    return name_cause("scale", detail, residual)


def _find_order(a: Floats, b: Floats) -> Finding | None:
    residual = _distance(np.sort(a), np.sort(b))
    # Sorting brings noisy runs nearer to each other, too, but never a hundred times
    # nearer.
    if residual > min(EXACT, _distance(a, b) / 100):
        return None
    detail = "both runs have the same scores, in another order of the texts"
    return name_cause("order", detail, residual)


def _distance(a: Floats, b: Floats) -> float:
    """The largest difference, in standard deviations of `a`."""
    return float(np.abs(a - b).max() / a.std())


def is_constant(scores: Floats) -> bool:
    """Whether every text has the same score, up to rounding."""
    largest = float(np.abs(scores).max())
    return bool(np.ptp(scores) <= 1e-9 * max(largest, 1e-12))


def fit_line(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Slope and offset of b on a by least squares, and the largest residual in standard
    deviations of b.
    """
    slope, offset = np.polyfit(a, b, 1)
    residual = np.abs(b - slope * a - offset).max() / b.std()
    return float(slope), float(offset), float(residual)


def half_precision(scores: Floats) -> str | None:
    """The half-precision type that writes all the scores exactly, None where there is
    none.

    >>> half_precision(np.array([0.5, 1.0078125, -3.25, 7.0]))
    'bfloat16'
    >>> half_precision(np.array([0.5, 0.1, 0.2, 0.3])) is None
    True
    """
    single = scores.astype(np.float32)
    # Whole numbers and quarters are exact in every type: they tell nothing.
    is_quarter = single * 4 == np.round(single * 4)
    if len(scores) < _MIN_SCORES or is_quarter.all():
        return None

    lower_bits = single.view(np.uint32) & 0xFFFF
    if (lower_bits == 0).all():
        return "bfloat16"
    with np.errstate(over="ignore"):
        rounded = single.astype(np.float16).astype(np.float32)
    return "float16" if (rounded == single).all() else None
