"""Checks of token ids, one function each: the finding, how bad it is, and the remedy."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rmlab.findings import Finding, grade
from rmlab.scorers.base import Ints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = np.ndarray
_TIMES = {0: "not at all", 1: "once", 2: "twice"}


def check_bos(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Finding:
    """The beginning token stands once before each text, or before none; an encoder's
    `[CLS]` before each.
    """
    from rmlab.inference.template import special_tokens

    opening = (
        special_tokens(tokenizer).opening if tokenizer.bos_token_id is None else ()
    )
    bos = opening[0] if opening else tokenizer.bos_token_id
    if bos is None:
        return Finding("pass", "the tokenizer has no beginning token")
    leading = Counter(int((np.append(text, -1) != bos).argmax()) for text in ids)
    counts = ", ".join(
        f"{_TIMES.get(n, f'{n} times')} in {texts} texts"
        for n, texts in sorted(leading.items())
    )
    detail = f"{_token_name(tokenizer, bos)} at the beginning: {counts}"
    if max(leading) > 1 or len(leading) > 1 or (opening and not max(leading)):
        return Finding(
            "fail",
            detail,
            "prepare texts with rmlab.inference.template.encode, which writes it once",
        )
    n_inside = sum(int((text == bos).sum()) > 1 for text in ids)
    detail += f"; again inside {n_inside} texts" if n_inside else ""
    remedy = "look for its name in prompts and answers, or for a template that opens every turn with it"
    return Finding(grade(not n_inside, True), detail, remedy)


def check_read(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]
) -> Finding:
    """The head reads the same token of every text, behind at most one end token."""
    positions = [int(text_reads[-1]) for text_reads in reads]
    tokens = {
        int(text[position]) for text, position in zip(ids, positions, strict=True)
    }
    endings = np.array([_count_trailing(text, tokenizer.eos_token_id) for text in ids])
    if endings.max() > 1:
        name = _token_name(tokenizer, tokenizer.eos_token_id)
        detail = f"{name} stands {endings.max()} times at the end of {(endings > 1).sum()} texts"
        return Finding("fail", detail, "pass eos=True, which writes it once")
    if len(tokens) > 1:
        detail = f"{len(tokens)} different tokens are read in {len(ids)} texts: the template writes no end token"
        return Finding(
            "warn",
            detail,
            "if the model was trained with one, pass eos=True; the model card says",
        )
    is_outer = all(
        position in (0, len(text) - 1)
        for text, position in zip(ids, positions, strict=True)
    )
    place = "chosen" if not is_outer else "last" if any(positions) else "first"
    return Finding(
        "pass",
        f"the {place} token, {_token_name(tokenizer, *tokens)}, in all {len(ids)} texts",
    )


def check_pad(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Finding:
    """Is the pad token an end token, which runners that look for the last token by it
    would step over?
    """
    token = tokenizer.pad_token_id
    name = "none" if token is None else _token_name(tokenizer, token)
    if token is None or token != tokenizer.eos_token_id:
        return Finding("pass", f"{name}, not the end token")
    n_early = sum(_count_trailing(text, token) > 0 for text in ids)
    detail = f"pad and end token are both {name}; {n_early} of {len(ids)} texts end with it, and may be read early "
    remedy = "nothing to do here: heads are read by position. In other runners give the pad token an id of its own"
    return Finding("warn", f"{detail}elsewhere", remedy)


def check_markers(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]
) -> Finding:
    """PairRM's markers, where its head reads, stand once in each text."""
    marks = [text[positions] for text, positions in zip(ids, reads, strict=True)]
    names = " ".join(map(str, tokenizer.convert_ids_to_tokens(marks[0].tolist())))
    n_again = sum(
        int(np.isin(text, mark).sum()) > len(mark)
        for text, mark in zip(ids, marks, strict=True)
    )
    count = f"again inside {n_again} of" if n_again else "once each in all"
    remedy = (
        "look for their names in prompts and answers; the head reads the first of each"
    )
    return Finding(
        grade(not n_again, True), f"{names}, {count} {len(ids)} texts", remedy
    )


def _count_trailing(text: Ids, token: int | None) -> int:
    return 0 if token is None else int((np.append(text[::-1], -1) != token).argmax())


def _token_name(tokenizer: "PreTrainedTokenizerBase", token: int) -> str:
    return f"{tokenizer.convert_ids_to_tokens(int(token))!r} ({int(token)})"
