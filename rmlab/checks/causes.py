"""Why two runs of one model differ: from their numbers, or by reading the texts as servers misread them.

A misreading is named only where it was reproduced: texts scored here in that way get the other run's scores.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.checks.findings import Finding
from rmlab.scorers.base import Floats, fill
from rmlab.scorers.classifier import Classifier
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = list[np.ndarray]

EXACT = 1e-3
"""Standard deviations within which two runs of one model on the same tokens agree in float32, on any server."""

HALF = 0.05
"""The same where one of them wrote its scores in half precision."""

_RAW_SCORES = "ask for raw scores: vLLM use_activation=false, TEI raw_scores=true; or serve with another program"
REMEDIES = {
    "sigmoid": _RAW_SCORES,
    "softmax": _RAW_SCORES,
    "half precision": "compute the head, or the whole model, in float32",
    "scale": "look for a reward mean and deviation, or a temperature, in the server's options",
    "order": "join scores to texts by key, and ask a server one text at a time",
    "double bos": "send token ids, or text with add_special_tokens=false: the template writes it already",
    "missing bos": "let the template or the tokenizer write it",
    "eos": "end texts as the template does; give the pad token an id of its own",
    "truncation": "raise the server's length limit, or cut alike on both sides (max_length= and truncate= here)",
    "template": "render the model's own template; servers take one as chat_template, or token ids",
    "tokenizer": "start the server with the tokenizer that was saved with the model, or send token ids",
}


def name_cause(name: str, detail: str, residual: float) -> Finding:
    """Why two runs differ; `residual`: the largest difference that it leaves, in standard deviations."""
    return Finding("cause", "fail", f"{name}: {detail}", REMEDIES[name], residual)


def is_constant(scores: Floats) -> bool:
    """Whether every text has the same score, up to rounding."""
    return bool(np.ptp(scores) <= 1e-9 * max(float(np.abs(scores).max()), 1e-12))


def half_precision(scores: Floats) -> str | None:
    """The half-precision type that writes all the scores exactly, None where there is none.

    >>> half_precision(np.array([0.5, 1.0078125, -3.25, 7.0])), half_precision(np.array([0.5, 0.1, 0.2, 0.3]))
    ('bfloat16', None)
    """
    single = scores.astype(np.float32)
    # Whole numbers and quarters are exact in every type: they tell nothing.
    if len(scores) < 4 or (single * 4 == np.round(single * 4)).all():
        return None
    if (single.view(np.uint32) & 0xFFFF == 0).all():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if (single.astype(np.float16).astype(np.float32) == single).all() else None


def numeric_causes(a: Floats, b: Floats) -> Iterator[Finding]:
    """Causes that turn the numbers of `a` into those of `b`; `a` is thought to be right."""
    if is_constant(a):
        return
    if is_constant(b):
        detail = f"every text has the same score, {b[0]:.6g}: a softmax over one label gives 1 for everything"
        yield name_cause("softmax", detail, 0.0)
        return
    with np.errstate(over="ignore"):
        distance = float(np.abs(b - 1 / (1 + np.exp(-a))).max())
    if distance <= 2e-3 and b.min() >= 0 and b.max() <= 1:
        n_tied = len(b) - len(np.unique(b))
        detail = f"the sigmoid of the raw scores, to {distance:.1g}; {n_tied} of {len(b)} scores are tied"
        yield name_cause("sigmoid", detail, distance / b.std())
    kind = half_precision(b)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(kind or "", 0.0)
    if kind and half_precision(a) is None and (np.abs(b - a) <= 1.01 * unit * np.abs(a) + 1e-7).all():
        yield half_cause(kind, f"{len(np.unique(a)) - len(np.unique(b))} more are tied", _distance(a, b))
    slope, offset, residual = fit_line(a, b)
    if residual <= EXACT and (abs(slope - 1) > 0.01 or abs(offset) > 0.01 * a.std()):
        yield name_cause("scale", f"b = {slope:.4g} a {offset:+.4g}: the scores were rescaled", residual)
    residual = _distance(np.sort(a), np.sort(b))
    # Sorting brings noisy runs nearer to each other, too, but never a hundred times nearer.
    if residual <= min(EXACT, _distance(a, b) / 100):
        yield name_cause("order", "both runs have the same scores, in another order of the texts", residual)


def half_cause(kind: str, evidence: str, residual: float) -> Finding:
    """The cause of scores that are all numbers of a half-precision type."""
    detail = f"all scores are {kind} numbers, {evidence}: the head, or the whole model, was computed in half precision"
    return name_cause("half precision", detail, residual)


def fit_line(a: Floats, b: Floats) -> tuple[float, float, float]:
    """Slope and offset of b on a by least squares, and the largest residual in standard deviations of b."""
    slope, offset = np.polyfit(a, b, 1)
    return float(slope), float(offset), float(np.abs(b - slope * a - offset).max() / b.std())


def _distance(a: Floats, b: Floats) -> float:
    return float(np.abs(a - b).max() / a.std())


def score_ids(model: Classifier, ids: Ids) -> Floats:
    """Scores of token ids, read where the number of tokens tells."""
    from rmlab.inference.forward import hidden

    ids = [np.asarray(text_ids, np.int32) for text_ids in ids]
    spots = [{"last": [len(text) - 1], "first": [0], "mean": range(len(text))} for text in ids]
    reads = [np.concatenate([text_spots[look] for look in model.looks]).astype(np.intp) for text_spots in spots]
    batches = hidden(model.backbone, ids, reads, groups=[0] * len(ids))
    return fill(((batch.texts, model.read_head(batch)) for batch in batches), len(ids))


def misreading_cause(
    model: Classifier, rows: pd.DataFrame, tokenizers: Sequence["PreTrainedTokenizerBase"]
) -> Finding | None:
    """The first misreading of `rows` that turns one run into the other; None where the model gives neither run.

    `rows`: texts with score_a and score_b, those that differ most first. `tokenizers`: further ones that may have been
    used.
    """
    prepared = model.prepare(rows["prompt"].tolist(), rows["response"].tolist())
    ids = model.places(prepared, np.arange(len(rows)))[0]
    scores = score_ids(model, ids)
    scale = max(float(scores.std()), 1e-12)
    runs = [rows[column].to_numpy(np.float64) for column in ("score_a", "score_b")]
    tolerance = HALF if any(half_precision(run) for run in runs) else EXACT
    # The tolerance for half precision may hold for both runs: the nearer one reads the texts as they are.
    right, other = sorted(runs, key=lambda run: float(np.abs(scores - run).max()))
    if np.abs(scores - right).max() > tolerance * scale:
        return None
    gaps = np.abs(scores - other) / scale
    # A misreading that leaves most of the difference explains nothing, however small the difference is.
    tolerance = min(tolerance, float(gaps.max()) / 2)

    def residual(misread: Ids) -> float:
        return float(np.abs(score_ids(model, misread) - other[: len(misread)]).max() / scale)

    for name, detail, misread in _misreadings(model, rows, ids, gaps > tolerance, tokenizers):
        is_changed = all(map(len, misread)) and not all(map(np.array_equal, misread, ids))
        # All texts are scored only where the first three agree.
        if is_changed and residual(misread[:3]) <= tolerance and (distance := residual(misread)) <= tolerance:
            return name_cause(name, detail, distance)
    kind = half_precision(other)
    if kind is not None and gaps.max() <= HALF:
        evidence = f"at most {gaps.max():.2g} standard deviations from those of the same tokens in float32"
        return half_cause(kind, evidence, float(gaps.max()))
    return None


def _misreadings(
    model: Classifier,
    rows: pd.DataFrame,
    ids: Ids,
    is_different: np.ndarray,
    tokenizers: Sequence["PreTrainedTokenizerBase"],
) -> Iterator[tuple[str, str, Ids]]:
    """Cause, detail and token ids of each wrong way to read the texts, the simplest first."""
    tokenizer = model.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if bos is not None:
        yield "double bos", f"{tokenizer.bos_token} stands twice before every text", [np.r_[bos, text] for text in ids]
        without = [text[int(text[0] == bos) :] for text in ids]
        yield "missing bos", f"{tokenizer.bos_token} is not written before the texts", without
    if eos is not None:
        without = [text[: len(text) - int(text[-1] == eos)] for text in ids]
        pads = ", or is not read, being the pad token" if eos == tokenizer.pad_token_id else ""
        yield "eos", f"{tokenizer.eos_token} is missing at the end{pads}", without
        yield "eos", f"{tokenizer.eos_token} is added at the end", [np.r_[text, eos] for text in ids]
    lengths = np.array([len(text) for text in ids])
    for window in (2**n for n in range(16, 4, -1)):
        if lengths[~is_different].max(initial=0) <= window < lengths[is_different].min():
            detail = f"texts longer than {window} tokens are cut"
            yield "truncation", f"{detail} at the end", [text[:window] for text in ids]
            yield "truncation", f"{detail} at the beginning", [text[-window:] for text in ids]
            behind_first = [np.r_[text[:1], text[1:][1 - window :]] for text in ids]
            yield "truncation", f"{detail} at the beginning, behind the first token", behind_first
    yield from _other_texts(model, rows, tokenizers)


def _other_texts(
    model: Classifier, rows: pd.DataFrame, tokenizers: Sequence["PreTrainedTokenizerBase"]
) -> Iterator[tuple[str, str, Ids]]:
    """The texts without a template, in ChatML, and as other tokenizers write them."""
    from rmlab.inference.template import FORMATS, encode
    from rmlab.toy.models import CHAT_TEMPLATES

    tokenizer = model.tokenizer
    trials = [
        ("template", "the texts are written without a template", tokenizer, FORMATS["raw"]),
        ("template", "the texts are written in ChatML", tokenizer, CHAT_TEMPLATES["chatml"]),
    ]
    trials += [("tokenizer", f"that of {t.name_or_path}", t, tokenizer.chat_template) for t in tokenizers]
    for name, detail, trial_tokenizer, template in trials:
        options = model.encode_options | {"template": template}
        try:
            texts = encode(trial_tokenizer, rows["prompt"].tolist(), rows["response"].tolist(), **options)
        except DataError:  # these texts cannot be written so
            continue
        yield name, detail, texts.ids
