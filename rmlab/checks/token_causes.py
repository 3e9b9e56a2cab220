"""Why two runs differ, found by scoring the same texts in the ways in which servers misread them.

A cause is named only where it was reproduced: texts scored here in that way get the other run's scores.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.checks.numeric_causes import HALF, RAW_SCORES, Cause, half_cause, half_precision
from rmlab.scorers.classifier import Classifier
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.forward import Batch

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
Tokenizers = Sequence["PreTrainedTokenizerBase"]

_WINDOWS = tuple(2**n for n in range(16, 4, -1))
_POSITIONS: dict[str, Callable[[int], Sequence[int]]] = {
    "last": lambda length: [length - 1],
    "first": lambda _: [0],
    "mean": range,
}
_REMEDIES = {
    "double bos": "send token ids, or text with add_special_tokens=false: the template writes it already",
    "missing bos": "let the template or the tokenizer write it",
    "eos": "end texts as the template does",
    "padding": "give the pad token an id of its own, or read by length",
    "truncation": "raise the server's length limit, or cut alike on both sides (max_length= and truncate= here)",
    "template": "render the model's own template; servers take one as chat_template, or token ids",
    "tokenizer": "start the server with the tokenizer that was saved with the model, or send token ids",
}


def can_score_ids(model: Classifier) -> bool:
    """Whether the head reads at positions that the number of tokens tells."""
    return set(model.looks) <= set(_POSITIONS)


def score_ids(model: Classifier, ids: Sequence[Ids], read: "Callable[[Batch], Floats] | None" = None) -> Floats:
    """Scores of token ids, read by the model's head or by `read`."""
    from rmlab.inference.forward import hidden

    ids = [np.asarray(text_ids, np.int32) for text_ids in ids]
    reads = [np.concatenate([_POSITIONS[look](len(text)) for look in model.looks]).astype(np.intp) for text in ids]
    scores = np.full(len(ids), np.nan)
    for batch in hidden(model.backbone, ids, reads, groups=[0] * len(ids)):
        scores[batch.texts] = (read or model.read_head)(batch)
    return scores


def misreading_cause(
    model: Classifier, rows: pd.DataFrame, other: Floats, tolerance: float, tokenizers: Tokenizers
) -> Cause | None:
    """The first misreading of `rows` that gives them the scores `other`, within `tolerance` standard deviations.

    `rows`: responses, those that differ most first. `tokenizers`: further ones that may have been used.
    """
    prepared = model.prepare(rows["prompt"].tolist(), rows["response"].tolist())
    ids = model.places(prepared, np.arange(len(rows)))[0]
    scores = score_ids(model, ids)
    scale = max(float(scores.std()), 1e-12)
    gaps = np.abs(scores - other) / scale
    # A misreading that leaves most of the difference explains nothing, however small the difference is.
    tolerance = min(tolerance, float(gaps.max()) / 2)

    def residual(misread: Sequence[Ids], read: "Callable[[Batch], Floats] | None" = None) -> float:
        return float(np.abs(score_ids(model, misread, read) - other[: len(misread)]).max() / scale)

    for cause, detail, misread in _misreadings(model, rows, ids, gaps > tolerance, tokenizers):
        is_changed = all(map(len, misread)) and not all(map(np.array_equal, misread, ids))
        # All texts are scored only where the first three agree.
        if is_changed and residual(misread[:3]) <= tolerance and (distance := residual(misread)) <= tolerance:
            return Cause(cause, detail, _REMEDIES[cause], distance)
    kind = half_precision(other)
    if kind is not None and gaps.max() <= HALF:
        evidence = f"at most {gaps.max():.2g} standard deviations from those of the same tokens in float32"
        return half_cause(kind, evidence, float(gaps.max()))
    mix = model.mix
    if mix is None:
        return None
    distance = residual(ids, lambda batch: model.outputs(batch).double().softmax(-1).cpu().numpy() @ mix)
    detail = "a softmax over the labels before they are weighted"
    return Cause("softmax", detail, RAW_SCORES, distance) if distance * scale <= tolerance * other.std() else None


def _misreadings(
    model: Classifier, rows: pd.DataFrame, ids: Sequence[Ids], is_different: NDArray[np.bool_], tokenizers: Tokenizers
) -> Iterator[tuple[str, str, list[Ids]]]:
    """Cause, detail and token ids of each wrong way to read the texts, the simplest first."""
    tokenizer = model.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if bos is not None:
        yield "double bos", f"{tokenizer.bos_token} stands twice before every text", [np.r_[bos, text] for text in ids]
        without = [text[int(text[0] == bos) :] for text in ids]
        yield "missing bos", f"{tokenizer.bos_token} is not written before the texts", without
    if eos is not None:
        without = [text[: len(text) - int(text[-1] == eos)] for text in ids]
        if eos == tokenizer.pad_token_id:
            yield "padding", f"the pad token is the end token {tokenizer.eos_token}, so the end is not read", without
        yield "eos", f"{tokenizer.eos_token} is missing at the end", without
        yield "eos", f"{tokenizer.eos_token} is added at the end", [np.r_[text, eos] for text in ids]
    lengths = np.array([len(text) for text in ids])
    for window in _WINDOWS:
        if lengths[~is_different].max(initial=0) <= window < lengths[is_different].min():
            detail = f"texts longer than {window} tokens are cut"
            yield "truncation", f"{detail} at the end", [text[:window] for text in ids]
            yield "truncation", f"{detail} at the beginning", [text[-window:] for text in ids]
            behind_first = [np.r_[text[:1], text[1:][1 - window :]] for text in ids]
            yield "truncation", f"{detail} at the beginning, behind the first token", behind_first
    yield from _other_texts(model, rows, tokenizers)


def _other_texts(model: Classifier, rows: pd.DataFrame, tokenizers: Tokenizers) -> Iterator[tuple[str, str, list[Ids]]]:
    """The texts without a template, in ChatML, and as other tokenizers write them."""
    from rmlab.inference.rendering import FORMATS
    from rmlab.inference.template import encode
    from rmlab.toy.models import CHAT_TEMPLATES

    model_tokenizer = model.tokenizer
    trials = [
        ("template", "the texts are written without a template", model_tokenizer, FORMATS["raw"]),
        ("template", "the texts are written in ChatML", model_tokenizer, CHAT_TEMPLATES["chatml"]),
        *(
            ("tokenizer", f"another tokenizer was used: {other.name_or_path}", other, model_tokenizer.chat_template)
            for other in tokenizers
        ),
    ]
    for cause, detail, tokenizer, template in trials:
        options = model.encode_options | {"template": template}
        try:
            texts = encode(tokenizer, rows["prompt"].tolist(), rows["response"].tolist(), **options)
        except DataError:  # these texts cannot be written so
            continue
        yield cause, detail, texts.ids
