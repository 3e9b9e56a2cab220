"""Checks of token ids, one function each: the finding, how bad it is, the remedy."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rmlab.findings import Finding, grade
from rmlab.scorers.base import Ints, Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = np.ndarray
_TIMES = {0: "not at all", 1: "once", 2: "twice"}


def check_bos(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], texts: Sequence[Text]
) -> Finding:
    """The beginning token stands once before each text, or before none; an encoder's
    `[CLS]` before each. Inside, a template may write it before every turn, but no
    prompt or answer may.
    """
    from rmlab.inference.tokenizer_calls import special_tokens

    bos = tokenizer.bos_token_id
    is_encoder = False
    if bos is None:
        opening = special_tokens(tokenizer).opening
        is_encoder = bool(opening)
        bos = opening[0] if is_encoder else None
    if bos is None:
        return Finding("pass", "the tokenizer has no beginning token")

    written = str(tokenizer.convert_ids_to_tokens(bos))
    n_leading: Counter[int] = Counter()
    n_quoted = 0
    for text_ids, text in zip(ids, texts, strict=True):
        n_leading[_count_leading(text_ids, bos)] += 1
        contents = json.dumps([text.prompt, text.answers], ensure_ascii=False)
        n_quoted += int((text_ids == bos).sum() > 1 and written in contents)

    counts = []
    for n, n_texts in sorted(n_leading.items()):
        times = _TIMES.get(n, f"{n} times")
        counts.append(f"{times} in {n_texts} texts")
    detail = f"{_token_name(tokenizer, bos)} at the beginning: {', '.join(counts)}"

    is_absent = is_encoder and max(n_leading) == 0
    if max(n_leading) > 1 or len(n_leading) > 1 or is_absent:
        writer = "rmlab.inference.encoding.encode, which writes it once"
        return Finding("fail", detail, f"prepare texts with {writer}")

    if n_quoted:
        detail += f"; also inside {n_quoted} texts, as if another text began there"
    remedy = "take its name out of prompts and answers"
    return Finding(grade(not n_quoted, True), detail, remedy)


def check_read(
    tokenizer: "PreTrainedTokenizerBase",
    ids: Sequence[Ids],
    reads: Sequence[Ints],
    *,
    is_implicit: bool = False,
) -> Finding:
    """The head reads the same token of every text, behind at most one end token.

    An implicit reward reads all tokens of the answer: the last is the same.
    """
    n_endings = np.array(
        [_count_trailing(text, tokenizer.eos_token_id) for text in ids]
    )
    if n_endings.max() > 1:
        name = _token_name(tokenizer, tokenizer.eos_token_id)
        place = f"at the end of {(n_endings > 1).sum()} texts"
        detail = f"{name} stands {n_endings.max()} times {place}"
        return Finding("fail", detail, "pass eos=True, which writes it once")

    tokens = set()
    is_first = []
    is_last = []
    for text, text_reads in zip(ids, reads, strict=True):
        position = int(text_reads[-1])
        tokens.add(int(text[position]))
        is_first.append(position == 0)
        is_last.append(position == len(text) - 1)

    if len(tokens) > 1 and not any(is_last) and n_endings.all():
        place = "the last token before the end token"
        return Finding("pass", f"{place}, in all {len(ids)} texts")
    if len(tokens) > 1:
        read = "end the answer" if is_implicit else "are read"
        counts = f"{len(tokens)} different tokens {read} in {len(ids)} texts"
        remedy = "if the model was trained with one, pass eos=True; the model card says"
        return Finding("warn", f"{counts}: the template writes no end token", remedy)

    place = "the chosen token"
    if is_implicit:
        place = "every token of the answer, the last one"
    elif all(is_first):
        place = "the first token"
    elif all(np.logical_or(is_first, is_last)):
        place = "the last token"
    name = _token_name(tokenizer, *tokens)
    return Finding("pass", f"{place}, {name}, in all {len(ids)} texts")


def check_pad(
    tokenizer: "PreTrainedTokenizerBase",
    ids: Sequence[Ids],
    reads: Sequence[Ints],
    *,
    padding: int | None,
    pooling: str | None = None,
    is_implicit: bool = False,
) -> Finding:
    """Does the pad token end texts, so that some programs read the last token and some
    the one before it?

    `padding`: the token that the model's class takes for padding. `pooling`: where the
    user wants the text read.
    """
    token = tokenizer.pad_token_id if padding is None else padding
    name = "none" if token is None else _token_name(tokenizer, token)
    if is_implicit:
        n_affected = sum(token in text for text in ids)
        detail = f"{n_affected} of {len(ids)} texts hold the pad token {name}"
        effect = "a program that skips the pad token skips these tokens too"
        status = "warn"
        remedy = "nothing to do here: nothing is padded"
    else:
        n_affected = sum(_count_trailing(text, token) > 0 for text in ids)
        detail = f"{n_affected} of {len(ids)} texts end with the pad token {name}"
        is_early = any(
            read[-1] < len(text) - 1 for read, text in zip(reads, ids, strict=True)
        )
        if is_early:
            effect = "the token before it is read; vLLM and others read the last one"
            other = "last"
        else:
            effect = "the last token is read; transformers' classes read before it"
            other = "before_pad"
        status = "fail" if is_early and pooling is None else "warn"
        remedy = f"pass pooling={other!r} if the model was trained to be read there"

    if not n_affected:
        return Finding("pass", detail)
    return Finding(status, f"{detail}: {effect}", remedy)


def check_markers(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]
) -> Finding:
    """PairRM's markers, where its head reads, stand once in each text."""
    n_repeated = 0
    for text, positions in zip(ids, reads, strict=True):
        n_markers = int(np.isin(text, text[positions]).sum())
        n_repeated += n_markers > len(positions)

    markers = ids[0][reads[0]].tolist()
    names = " ".join(map(str, tokenizer.convert_ids_to_tokens(markers)))
    count = f"again inside {n_repeated} of" if n_repeated else "once each in all"
    detail = f"{names}, {count} {len(ids)} texts"
    place = "in prompts and answers; the head reads the first of each"
    return Finding(grade(not n_repeated, True), detail, f"look for their names {place}")


def _count_leading(text: Ids, token: int) -> int:
    """How many times the token stands at the beginning."""
    return int((np.append(text, -1) != token).argmax())


def _count_trailing(text: Ids, token: int | None) -> int:
    return 0 if token is None else _count_leading(text[::-1], token)


def _token_name(tokenizer: "PreTrainedTokenizerBase", token: int) -> str:
    return f"{tokenizer.convert_ids_to_tokens(int(token))!r} ({int(token)})"
