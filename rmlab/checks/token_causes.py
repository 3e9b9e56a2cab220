"""Why two runs differ, found by trying: the same texts read in the ways in which servers misread them.

A cause is named only where it was reproduced: texts scored here in that way get the other run's scores.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.checks.numeric_causes import HALF, Cause, half_precision, in_half
from rmlab.scorers.classifier import Classifier
from rmlab.scorers.types import EncodeOptions, Prompt
from rmlab.tables import DataError
from rmlab.toy import CHAT_TEMPLATES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["scores_of", "tried"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]

# Texts on which every way is tried first; only one that explains them is tried on the rest.
_FIRST = 3
_WINDOWS = tuple(2**n for n in range(5, 17))
_PADS = 256

_PLAIN = {
    "the contents with a line break between": (
        "{% for m in messages %}{{ m['content'] }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
    ),
    "the contents with a space between": (
        "{% for m in messages %}{{ m['content'] }}{% if not loop.last %}{{ ' ' }}{% endif %}{% endfor %}"
    ),
    "Human: and Assistant:": (
        "{% for m in messages %}{{ '\\n\\n' + ('Human' if m['role'] == 'user' else 'Assistant') + ': ' }}"
        "{{ m['content'] }}{% endfor %}"
    ),
}


class _Way(NamedTuple):
    """One way to read the texts: their token ids, all of one list the same in length and order as the texts."""

    name: str
    found: str
    remedy: str
    ids: list[Ids]


def tried(
    reference: Classifier,
    rows: pd.DataFrame,
    other: Floats,
    near: float,
    *,
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Cause | None:
    """The first way of reading that gives the scores `other` to `rows`, within `near` standard deviations.

    `rows`: responses, those that differ most first. `tokenizers`: further ones to try. Where no other way of reading
    explains half-precision scores and they are near those of the same tokens, half precision is the cause.
    """
    prompts, responses = rows["prompt"].tolist(), rows["response"].tolist()
    prepared = reference.prepare(prompts, responses)
    own = [np.asarray(ids) for ids in reference.places(prepared, np.arange(len(rows)))[0]]
    scores = scores_of(reference, own)
    scale = max(float(scores.std()), 1e-12)
    apart = float(np.abs(scores - other).max()) / scale
    # A way that leaves most of the difference explains nothing, however small the difference is.
    near = min(near, apart / 2)
    for way in _ways(reference, prompts, responses, own, tokenizers):
        left = _left(reference, way.ids, other, scale, near)
        if left is not None:
            return Cause(way.name, way.found, way.remedy, left)
    return (
        _half(other, apart)
        or _padding(reference, own, other, scale, near)
        or _softmax(reference, own, other, scale, near)
    )


def scores_of(reference: Classifier, sequences: Sequence[Ids]) -> Floats:
    """Scores of token id sequences, read where the head reads."""
    from rmlab.inference.forward import hidden

    reads = [_reads(reference, len(ids)) for ids in sequences]
    found = np.full(len(sequences), np.nan)
    for batch in hidden(reference.backbone, sequences, reads, groups=[0] * len(sequences)):
        found[batch.texts] = reference.read_head(batch)
    return found


def _left(reference: Classifier, ids: list[Ids], other: Floats, scale: float, near: float) -> float | None:
    """What a way leaves unexplained, in standard deviations; None where that is more than `near`."""
    if not all(map(len, ids)):
        return None
    for part in (slice(0, _FIRST), slice(None)):
        left = float(np.abs(scores_of(reference, ids[part]) - other[part]).max()) / scale
        if not left <= near:
            return None
    return left


def _reads(reference: Classifier, length: int) -> NDArray[np.intp]:
    spots = {"last": [length - 1], "first": [0], "mean": range(length)}
    return np.concatenate([np.asarray(spots[look], np.intp) for look in reference.looks])


def _ways(
    reference: Classifier,
    prompts: list[Prompt],
    responses: list[str],
    own: list[Ids],
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Iterator[_Way]:
    """Ways to misread the texts, the simplest first; none that reads them as they are."""
    for way in (
        *_bos(reference.tokenizer, own),
        *_eos(reference.tokenizer, own),
        *_truncated(reference.tokenizer, own),
        *_templates(reference, prompts, responses),
        *_tokenizers(reference, prompts, responses, tokenizers),
    ):
        if any(len(a) != len(b) or (a != b).any() for a, b in zip(way.ids, own, strict=True)):
            yield way


def _bos(words: "PreTrainedTokenizerBase", own: list[Ids]) -> Iterator[_Way]:
    bos = words.bos_token_id
    if bos is None:
        return
    token = words.convert_ids_to_tokens(bos)
    twice = [np.r_[np.int32(bos), ids] for ids in own]
    remedy = "send token ids, or text with add_special_tokens=false: the template writes it already"
    yield _Way("double bos", f"{token} stands twice before every text", remedy, twice)
    without = [ids[1:] if ids[0] == bos else ids for ids in own]
    remedy = "let the template or the tokenizer write it"
    yield _Way("missing bos", f"{token} is not written before the texts", remedy, without)


def _eos(words: "PreTrainedTokenizerBase", own: list[Ids]) -> Iterator[_Way]:
    eos = words.eos_token_id
    if eos is None:
        return
    token = words.convert_ids_to_tokens(eos)
    without = [ids[:-1] if ids[-1] == eos else ids for ids in own]
    if eos == words.pad_token_id:
        found = f"the pad token is the end token {token}, so that the head is read one token before the end"
        yield _Way("padding", found, "give the pad token an id of its own, or read by length", without)
    else:
        yield _Way("eos", f"{token} is missing at the end", "keep the end that the template writes", without)
    added = [np.r_[ids, np.int32(eos)] for ids in own]
    remedy = "do not append an end token: the template says how a text ends"
    yield _Way("eos", f"{token} is added at the end", remedy, added)


def _truncated(words: "PreTrainedTokenizerBase", own: list[Ids]) -> Iterator[_Way]:
    longest = max(map(len, own))
    head = int(own[0][0] == words.bos_token_id)
    for window in reversed([window for window in _WINDOWS if window < longest]):
        shown = f"texts longer than {window} tokens are cut"
        remedy = f"raise the server's length limit, or cut alike on both sides (max_length={window} and truncate= here)"
        yield _Way("truncation", f"{shown} at the end", remedy, [ids[:window] for ids in own])
        yield _Way("truncation", f"{shown} at the beginning", remedy, [ids[-window:] for ids in own])
        if head:
            kept = [ids if len(ids) <= window else np.r_[ids[:1], ids[1 - window :]] for ids in own]
            yield _Way("truncation", f"{shown} at the beginning, behind the first token", remedy, kept)


def _templates(reference: Classifier, prompts: list[Prompt], responses: list[str]) -> Iterator[_Way]:
    from rmlab.inference.formats import FORMATS

    remedy = "render the model's own template; servers take one as chat_template, or token ids"
    for name, jinja in {**FORMATS, **CHAT_TEMPLATES, **_PLAIN}.items():
        for eos in (None, True):
            ids = _encoded(reference, prompts, responses, reference.tokenizer, {"template": jinja, "eos": eos})
            if ids is not None:
                ending = ", with an end token" if eos else ""
                yield _Way("template", f"the texts are written in another template: {name}{ending}", remedy, ids)


def _tokenizers(
    reference: Classifier, prompts: list[Prompt], responses: list[str], further: "Sequence[PreTrainedTokenizerBase]"
) -> Iterator[_Way]:
    from rmlab.scorers.checkpoints.tokenizer_file import own_class

    remedy = "start the server with the tokenizer that was saved with the model, or send token ids"
    own = reference.tokenizer
    made = own_class(reference.checkpoint)
    candidates = [(f"transformers' own {type(made).__name__}", made)]
    candidates += [(str(getattr(words, "name_or_path", "") or type(words).__name__), words) for words in further]
    for name, made in candidates:
        ids = _encoded(reference, prompts, responses, made, {"template": own.chat_template})
        if ids is not None:
            yield _Way("tokenizer", f"another tokenizer was used: {name}", remedy, ids)
    split = _split(reference, prompts, responses)
    if split is not None:
        yield _Way("tokenizer", "the template's special tokens are read as plain text", remedy, split)


def _split(reference: Classifier, prompts: list[Prompt], responses: list[str]) -> list[Ids] | None:
    """The texts with the names of special tokens broken into pieces, as plain text."""
    ids = reference.prepare(prompts, responses).encoded.ids
    words = reference.tokenizer
    texts = [words.decode(one, skip_special_tokens=False, clean_up_tokenization_spaces=False) for one in ids]
    try:
        return [
            np.asarray(words(text, add_special_tokens=True, split_special_tokens=True)["input_ids"], np.int32)
            for text in texts
        ]
    except TypeError:  # slow tokenizers do not have the option
        return None


def _encoded(
    reference: Classifier,
    prompts: list[Prompt],
    responses: list[str],
    words: "PreTrainedTokenizerBase",
    changed: EncodeOptions,
) -> list[Ids] | None:
    """Token ids with some options changed, None where these texts cannot be written so."""
    from rmlab.inference.template import encode

    try:
        return encode(words, prompts, responses, **(reference.encode_options | changed)).ids
    except DataError:
        return None


def _half(other: Floats, apart: float) -> Cause | None:
    """Half precision of the head or of more; `apart`: standard deviations between the scores and the right ones."""
    kind = half_precision(other)
    if kind is None or apart > HALF:
        return None
    return in_half(kind, f"at most {apart:.2g} standard deviations from those of the same tokens in float32", apart)


def _padding(reference: Classifier, own: list[Ids], other: Floats, scale: float, near: float) -> Cause | None:
    """The head read at a pad token behind the text, where batches are padded to their longest text."""
    pad = reference.tokenizer.pad_token_id
    if pad is None or reference.looks != ("last",):
        return None
    scores = scores_of(reference, own)
    wrong = np.flatnonzero(np.abs(scores - other) > near * scale)
    if not len(wrong):
        return None
    counts, left = [], 0.0
    for text in wrong:
        gaps = [np.abs(_behind(reference, own[text], pad, seen=seen) - other[text]) for seen in (True, False)]
        gap = min(gaps, key=np.min)
        if not gap.min() <= near * scale:
            return None
        counts.append(int(gap.argmin()) + 1)
        left = max(left, float(gap.min()) / scale)
    where = f"{len(wrong)} of {len(own)} texts, at pad token {min(counts)} to {max(counts)}"
    found = f"the head is read behind the end of {where}"
    return Cause("padding", found, "read the last token that is not padding, or score one text at a time", left)


def _behind(reference: Classifier, ids: Ids, pad: int, *, seen: bool) -> Floats:
    """The head read at each of some pad tokens behind a text; `seen`: pad tokens see those before them."""
    import torch

    from rmlab.inference.forward import Batch

    length, n = len(ids), min(_PADS, 2 * len(ids) + 32)
    device = reference.backbone.device
    row = torch.tensor(np.r_[ids, np.full(n, pad)][None].astype(np.int64), device=device)
    mask = torch.ones_like(row)
    if not seen:
        mask[:, length:] = 0
    with torch.inference_mode():
        states: torch.Tensor = reference.backbone(input_ids=row, attention_mask=mask).last_hidden_state[0, length:]
    return reference.read_head(Batch(np.arange(n), states.float(), [np.array([i]) for i in range(n)]))


def _softmax(reference: Classifier, own: list[Ids], other: Floats, scale: float, near: float) -> Cause | None:
    """A softmax over several labels before they are weighted."""
    from rmlab.inference.forward import hidden

    if reference.mix is None:
        return None
    found = np.full(len(own), np.nan)
    reads = [_reads(reference, len(ids)) for ids in own]
    for batch in hidden(reference.backbone, own, reads, groups=[0] * len(own)):
        outputs = reference.outputs(batch).double().softmax(-1).cpu().numpy()
        found[batch.texts] = outputs @ reference.mix
    left = float(np.abs(found - other).max()) / max(float(found.std()), 1e-12)
    if not left <= near:
        return None
    return Cause("softmax", "a softmax over the labels before they are weighted", "ask for raw scores", left)
