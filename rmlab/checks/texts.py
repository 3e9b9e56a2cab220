"""Checks of token ids: the template, the beginning, the token that is read, the pad token, the length."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.checks.findings import Finding
from rmlab.scorers.base import Prompt as Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.template import Encoded

Ids = NDArray[np.int32]
Ints = NDArray[np.intp]

_TIMES = {0: "not at all", 1: "once", 2: "twice"}


def template(encoded: "Encoded") -> Finding:
    """Where the chat template comes from."""
    origin = "the tokenizer's own" if encoded.source == "tokenizer" else f"{encoded.source!r}, as you asked"
    date = "" if encoded.date is None else f", with the date {encoded.date} instead of today's"
    return Finding("template", "pass", f"{origin} (hash {encoded.template_hash[:8]}){date}")


def beginning(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Finding:
    """The beginning token stands once before each text, or before none; an encoder's `[CLS]` before each."""
    from rmlab.inference.template import special_tokens

    opening = special_tokens(tokenizer).opening if tokenizer.bos_token_id is None else ()
    bos = opening[0] if opening else tokenizer.bos_token_id
    if bos is None:
        return Finding("bos", "pass", "the tokenizer has no beginning token")
    leading = Counter(int((np.append(text, -1) != bos).argmax()) for text in ids)
    counts = ", ".join(f"{_TIMES.get(n, f'{n} times')} in {texts} texts" for n, texts in sorted(leading.items()))
    detail = f"{_token_name(tokenizer, bos)} at the beginning: {counts}"
    if max(leading) > 1 or len(leading) > 1 or (opening and not max(leading)):
        remedy = "prepare texts with rmlab.inference.template.encode, which writes it once"
        return Finding("bos", "fail", detail, remedy)
    n_inside = sum(int((text == bos).sum()) > 1 for text in ids)
    if n_inside:
        remedy = "look for the token's name in prompts and answers, or for a template that opens every turn with it"
        return Finding("bos", "warn", f"{detail}; again inside {n_inside} texts", remedy)
    return Finding("bos", "pass", detail)


def end(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[Ints]) -> Finding:
    """The head reads the same token of every text, behind at most one end token."""
    positions = [int(text_reads[-1]) for text_reads in reads]
    read = Counter(int(text[position]) for text, position in zip(ids, positions, strict=True))
    endings = [_count_trailing(text, tokenizer.eos_token_id) for text in ids]
    if max(endings) > 1:
        token, n_twice = _token_name(tokenizer, tokenizer.eos_token_id), sum(n > 1 for n in endings)
        detail = f"{token} stands {max(endings)} times at the end of {n_twice} texts"
        return Finding("read", "fail", detail, "pass eos=True, which writes it once")
    if len(read) > 1:
        detail = f"{len(read)} different tokens are read in {len(ids)} texts: the template writes no end token"
        return Finding("read", "warn", detail, "if the model was trained with one, pass eos=True; the model card says")
    where = "first" if not any(positions) else "last"
    if any(position not in (0, len(text) - 1) for text, position in zip(ids, positions, strict=True)):
        where = "chosen"
    return Finding(
        "read", "pass", f"the {where} token, {_token_name(tokenizer, next(iter(read)))}, in all {len(ids)} texts"
    )


def pad(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Finding:
    """Is the pad token an end token, which runners that look for the last token by it would step over?"""
    token = tokenizer.pad_token_id
    if token is None:
        return Finding("pad", "pass", "no pad token; none is needed here")
    if token != tokenizer.eos_token_id:
        return Finding("pad", "pass", f"{_token_name(tokenizer, token)}, not the end token")
    n_early = sum(_count_trailing(text, token) > 0 for text in ids)
    detail = f"pad and end token are both {_token_name(tokenizer, token)}; {n_early} of {len(ids)} texts end with it"
    remedy = "nothing to do here: heads are read by position. In other runners give the pad token an id of its own"
    return Finding("pad", "warn", f"{detail}, and may be read early elsewhere", remedy)


def length(lengths: Ints, is_cut: NDArray[np.bool_], window: int | None, truncate: str | None, unit: str) -> Finding:
    """The share of texts that are longer than the model's window; `is_cut`: comparisons that their form has to cut."""
    longest = f"the longest of {len(lengths)} {unit} has {lengths.max()} tokens"
    is_beyond = lengths > (window or lengths.max())
    is_long = is_beyond | is_cut
    if not is_long.any():
        limit = "positions are relative, without an end" if window is None else f"the window {window}"
        return Finding("truncated", "pass", f"none; {longest}, {limit}")
    detail = f"{is_long.sum()} of {len(lengths)} {unit} ({is_long.mean():.1%}) are longer than the model takes"
    detail += f" ({window} tokens); {longest}" if is_beyond.any() else ""
    if unit == "comparisons" and is_beyond.any():
        return Finding("truncated", "fail", detail, "raise max_length= where the model can read more")
    if truncate is None:
        cut = "max_length= and truncate='left' (keeps the answer)"
        remedy = "truncate='right', which cuts as its authors do" if unit == "comparisons" else cut
        return Finding("truncated", "fail", detail, f"pass {remedy}")
    return Finding("truncated", "warn", f"{detail}; cut at the {truncate}", "report the share with the results")


def spread(lengths: Ints, groups: Ints, size: int) -> Ints:
    """Texts of whole prompts, evenly spread from the shortest prompt to the longest, about `size` texts."""
    prompts, group = np.unique(groups, return_inverse=True)
    mean = np.bincount(group, lengths) / np.bincount(group)
    n = min(len(prompts), max(1, round(size * len(prompts) / len(groups))))
    middle = (np.arange(n) + 0.5) * len(prompts) / n
    chosen = np.argsort(mean, kind="stable")[middle.astype(int)]
    return np.flatnonzero(np.isin(group, chosen))


def _count_trailing(text: Ids, token: int | None) -> int:
    return 0 if token is None else int((np.append(text[::-1], -1) != token).argmax())


def _token_name(tokenizer: "PreTrainedTokenizerBase", token: int) -> str:
    return f"{tokenizer.convert_ids_to_tokens(int(token))!r} ({int(token)})"
