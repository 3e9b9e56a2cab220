"""Misreadings of the texts: which wrong way to read them gives the scores of another
run.

A cause is named only where it was reproduced: texts scored here in that way get the
other run's scores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rmlab.chat_templates import CHAT_TEMPLATES
from rmlab.checks.causes import EXACT, HALF, half_cause, half_precision, name_cause
from rmlab.findings import Finding
from rmlab.inference.forward import Batch
from rmlab.scorers import Classifier
from rmlab.scorers.base import Floats, fill
from rmlab.scorers.encoder import EncodeOptions
from rmlab.scorers.reads import Read
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.encoding import Encoded

Ids = list[np.ndarray]

_MAX_PADS = 256  # behind a text
_WINDOWS = 2 ** np.arange(16, 4, -1)


class Misreading(NamedTuple):
    """A wrong way to read the texts: its cause, and the token ids."""

    cause: str
    detail: str
    ids: Ids


class _Difference(NamedTuple):
    """What a misreading has to explain.

    `wrong`: the other run's scores. `is_large`: of which texts they differ. `largest`:
    the largest difference, in units of `scale`, a standard deviation. `tolerance`: up
    to which scores count as the same, in these units.
    """

    wrong: Floats
    is_large: np.ndarray
    largest: float
    scale: float
    tolerance: float


def misreading_cause(
    model: Classifier,
    rows: pd.DataFrame,
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Finding | None:
    """The first misreading of `rows` that turns one run into the other; None where the
    model gives neither run.

    `rows`: texts with score_a and score_b, those that differ most first. `tokenizers`:
    further ones that may have been used.
    """
    prepared = model.prepare(rows["prompt"].tolist(), rows["response"].tolist())
    ids, _ = model.places(prepared, np.arange(len(rows)))
    difference = _find_difference(rows, _score_ids(model, prepared, ids))
    if difference is None:
        return None

    if Read.BEFORE_PAD in model.readout.reads:
        scores = _score_last(model, ids)
        residual = float(np.abs(scores - difference.wrong).max() / difference.scale)
        if residual <= difference.tolerance:
            detail = "one run reads the pad token that ends the texts, one before it"
            return name_cause("pooling", detail, residual)

    for misreading in _misreadings(model, rows, ids, difference.is_large, tokenizers):
        if not _changes_tokens(misreading.ids, ids):
            continue
        scores = _score_ids(model, prepared, misreading.ids)
        residual = float(np.abs(scores - difference.wrong).max() / difference.scale)
        if residual <= difference.tolerance:
            return name_cause(misreading.cause, misreading.detail, residual)

    dtype = half_precision(difference.wrong)
    if dtype is not None and difference.largest <= HALF:
        return half_cause(dtype, difference.largest)
    if model.tokenizer.pad_token_id is None or not reads_last_only(model):
        return None
    return _padding_cause(model, ids, difference)


def _find_difference(rows: pd.DataFrame, scores: Floats) -> _Difference | None:
    """What the run gives that is not the model's; None where neither is."""
    runs = rows[["score_a", "score_b"]].to_numpy(np.float64).T
    is_half = any(half_precision(run) for run in runs)
    tolerance = HALF if is_half else EXACT
    scale = max(float(scores.std()), 1e-12)

    # The tolerance for half precision may hold for both runs: the nearer one reads the
    # texts as they are.
    right, wrong = sorted(runs, key=lambda run: float(np.abs(scores - run).max()))
    if np.abs(scores - right).max() > tolerance * scale:
        return None

    gaps = np.abs(scores - wrong) / scale
    largest = float(gaps.max())
    # A misreading that leaves most of the difference explains nothing, however small
    # the difference is.
    tolerance = min(tolerance, largest / 2)
    return _Difference(
        wrong=wrong,
        is_large=gaps > tolerance,
        largest=largest,
        scale=scale,
        tolerance=tolerance,
    )


def reads_known_positions(model: Classifier) -> bool:
    """Whether the number of a text's tokens tells where the head reads."""
    known = {Read.LAST, Read.BEFORE_PAD, Read.FIRST, Read.MEAN}
    return set(model.readout.reads) <= known


def reads_last_only(model: Classifier) -> bool:
    """Whether the head reads the last token, and nothing else."""
    return model.readout.reads in ((Read.LAST,), (Read.BEFORE_PAD,))


def _changes_tokens(misread: Ids, ids: Ids) -> bool:
    """Whether a misreading leaves every text some tokens, and changes those of one."""
    is_changed = False
    for new, old in zip(misread, ids, strict=True):
        if len(new) == 0:
            return False
        is_changed = is_changed or not np.array_equal(new, old)
    return is_changed


def _score_ids(model: Classifier, prepared: "Encoded", ids: Ids) -> Floats:
    """Scores of token ids in place of those of the prepared texts."""
    misread_ids = [np.asarray(text, np.int32) for text in ids]
    misread = replace(prepared, ids=model.encoder.append_end(misread_ids))
    return fill(model.forward(misread, np.arange(len(ids))), len(ids))


def _score_last(model: Classifier, ids: Ids) -> Floats:
    """Scores of token ids at the last of each, be it the pad token."""
    import torch

    states = []
    for text in ids:
        last = np.array([len(text) - 1])
        states.append(model.backbone.alone(np.asarray(text, np.int32), last))
    numbers = np.arange(len(ids))
    return model.read_head(Batch(numbers, torch.cat(states), [*numbers[:, None]]))


def _padding_cause(
    model: Classifier, ids: Ids, difference: _Difference
) -> Finding | None:
    """Whether a server reads the end of a padded batch."""
    numbers = np.flatnonzero(difference.is_large)
    distances = []
    for number in numbers:
        scores = _score_pads(model, ids[number])
        distances.append(float(np.abs(scores - difference.wrong[number]).min()))
    residual = max(distances) / difference.scale
    if residual > difference.tolerance:
        return None
    count = f"{len(numbers)} of {len(ids)} texts"
    detail = f"the head is read behind the end of {count}"
    return name_cause("padding", detail, residual)


def _score_pads(model: Classifier, ids: np.ndarray) -> Floats:
    """The scores at a text's end and at some pad tokens behind it, which see each other
    or are masked.
    """
    import torch

    n_pads = _MAX_PADS
    if model.encoder.longest is not None:
        n_pads = min(n_pads, model.encoder.longest - len(ids))
    padded = np.append(ids, np.full(n_pads, model.tokenizer.pad_token_id))
    passes = model.backbone.passes
    tokens = torch.tensor(padded[None], dtype=torch.int64, device=passes.model.device)
    mask = torch.ones_like(tokens)

    ends = []
    with passes.exclusive_pass(tokens.shape[1]):
        for is_seen in (1, 0):
            mask[:, len(ids) :] = is_seen
            states = passes.forward(input_ids=tokens, attention_mask=mask)
            ends.append(states[0, len(ids) - 1 :])
    rows = torch.cat(ends).float()
    numbers = np.arange(len(rows))
    return model.read_head(Batch(numbers, rows, [*numbers[:, None]]))


def _misreadings(
    model: Classifier,
    rows: pd.DataFrame,
    ids: Ids,
    is_different: np.ndarray,
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Iterator[Misreading]:
    """The wrong ways to read the texts, the simplest first."""
    yield from _begin_otherwise(model.tokenizer, ids)
    yield from _end_otherwise(model.tokenizer, ids)
    yield from _cut(ids, is_different)
    yield from _write_otherwise(model, rows, tokenizers)


def _begin_otherwise(
    tokenizer: "PreTrainedTokenizerBase", ids: Ids
) -> Iterator[Misreading]:
    bos = tokenizer.bos_token_id
    name = tokenizer.bos_token
    if bos is None:
        return
    doubled = [np.append(bos, text) for text in ids]
    yield Misreading("double bos", f"{name} stands twice before every text", doubled)
    without = [text[int(text[0] == bos) :] for text in ids]
    yield Misreading("missing bos", f"{name} is not written before the texts", without)


def _end_otherwise(
    tokenizer: "PreTrainedTokenizerBase", ids: Ids
) -> Iterator[Misreading]:
    eos = tokenizer.eos_token_id
    name = tokenizer.eos_token
    if eos is None:
        return
    # An end token that is the pad token is there and not read.
    cause = "padding" if eos == tokenizer.pad_token_id else "eos"
    detail = f"{name} is missing at the end, or taken for padding"
    without = [text[: len(text) - int(text[-1] == eos)] for text in ids]
    yield Misreading(cause, detail, without)
    added = [np.append(text, eos) for text in ids]
    yield Misreading("eos", f"{name} is added at the end", added)


def _cut(ids: Ids, is_different: np.ndarray) -> Iterator[Misreading]:
    """Cuts to a window that all texts that differ are longer than, and no others."""
    lengths = np.array([len(text) for text in ids])
    shortest_different = lengths[is_different].min()
    longest_same = lengths[~is_different].max(initial=0)
    for window in _WINDOWS:
        if not longest_same <= window < shortest_different:
            continue
        behind_first = []
        for text in ids:
            last = text[1:][-(window - 1) :]
            behind_first.append(np.append(text[:1], last))
        cuts = {
            "end": [text[:window] for text in ids],
            "beginning": [text[-window:] for text in ids],
            "beginning, behind the first token": behind_first,
        }
        for place, misread in cuts.items():
            detail = f"texts longer than {window} tokens are cut at the {place}"
            yield Misreading("truncation", detail, misread)


def _write_otherwise(
    model: Classifier,
    rows: pd.DataFrame,
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Iterator[Misreading]:
    """Other chat templates, and other tokenizers."""
    from rmlab.inference.chat_formats import FORMATS

    templates = FORMATS | CHAT_TEMPLATES
    for name, template in templates.items():
        for eos in (None, True):
            options = EncodeOptions(template=template, eos=eos)
            ids = _encode(model, model.tokenizer, rows, options)
            if ids is not None:
                detail = f"the texts are written as in {name!r}"
                yield Misreading("template", detail, ids)

    options = EncodeOptions(template=model.tokenizer.chat_template)
    for tokenizer in tokenizers:
        ids = _encode(model, tokenizer, rows, options)
        if ids is not None:
            yield Misreading("tokenizer", f"that of {tokenizer.name_or_path}", ids)


def _encode(
    model: Classifier,
    tokenizer: "PreTrainedTokenizerBase",
    rows: pd.DataFrame,
    changed: EncodeOptions,
) -> Ids | None:
    """Token ids of the texts; None where they cannot be written so."""
    from rmlab.inference.encoding import encode

    options = model.encoder.options | changed
    prompts = rows["prompt"].tolist()
    responses = rows["response"].tolist()
    try:
        return encode(tokenizer, prompts, responses, **options).ids
    except DataError:
        return None
