"""Checks of token ids: the template, the beginning, the token that is read, the pad token, the length."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.checks.findings import Row

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.inference.template import Encoded

__all__ = ["as_asked", "beginning", "end", "length", "pad", "spread", "template"]

Ids = NDArray[np.int32]


def template(encoded: "Encoded") -> Row:
    """Where the chat template comes from."""
    own = encoded.source == "tokenizer"
    origin = "the tokenizer's own" if own else f"{encoded.source!r}, as you asked"
    date = "" if encoded.date is None else f", with the date {encoded.date} instead of today's"
    return Row("template", "pass", f"{origin} (hash {encoded.template_hash[:8]}){date}")


def beginning(words: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Row:
    """The beginning token stands once before each text, or before none; an encoder's `[CLS]` before each."""
    from rmlab.inference.ends import special_tokens

    opening = special_tokens(words).opening if words.bos_token_id is None else ()
    bos = opening[0] if opening else words.bos_token_id
    if bos is None:
        return Row("bos", "pass", "the tokenizer has no beginning token")
    leading = Counter(int((np.append(text, -1) != bos).argmax()) for text in ids)
    inside = sum(int((text == bos).sum()) > 1 for text in ids)
    shown = f"{_name(words, bos)} at the beginning: {_times(leading)}"
    if max(leading) > 1 or len(leading) > 1 or (opening and not max(leading)):
        remedy = "prepare texts with rmlab.inference.template.encode, which writes it once"
        return Row("bos", "fail", shown, remedy)
    if inside:
        remedy = "look for the token's name in prompts and answers, or for a template that opens every turn with it"
        return Row("bos", "warn", f"{shown}; again inside {inside} texts", remedy)
    return Row("bos", "pass", shown)


def end(words: "PreTrainedTokenizerBase", ids: Sequence[Ids], reads: Sequence[NDArray[np.intp]]) -> Row:
    """The head reads the same token of every text, behind at most one end token."""
    read = Counter(int(text[positions[-1]]) for text, positions in zip(ids, reads, strict=True))
    token, n = read.most_common(1)[0]
    eos = words.eos_token_id
    endings = [_trailing(text, eos) for text in ids]
    if max(endings) > 1:
        found = f"{_name(words, eos)} stands {max(endings)} times at the end of {sum(e > 1 for e in endings)} texts"
        return Row("read", "fail", found, "pass eos=True, which writes it once")
    if len(read) > 1:
        found = f"{len(read)} different tokens are read in {len(ids)} texts: the template writes no end token"
        return Row("read", "warn", found, "if the model was trained with one, pass eos=True; the model card says")
    where = "first" if all(positions[-1] == 0 for positions in reads) else "last"
    if any(positions[-1] not in (0, len(text) - 1) for text, positions in zip(ids, reads, strict=True)):
        where = "chosen"
    return Row("read", "pass", f"the {where} token, {_name(words, token)}, in all {n} texts")


def as_asked(row: Row, asked: bool) -> Row:
    """A row that fails for a peculiarity that a convention asks for is a warning."""
    if row.status != "fail" or not asked:
        return row
    remedy = "as convention='reward-bench' asks; leave convention out for the model's own tokens"
    return row._replace(status="warn", remedy=remedy)


def pad(words: "PreTrainedTokenizerBase", ids: Sequence[Ids]) -> Row:
    """Is the pad token an end token, which runners that look for the last token by it would step over?"""
    mark = words.pad_token_id
    if mark is None:
        return Row("pad", "pass", "no pad token; none is needed here")
    if mark != words.eos_token_id:
        return Row("pad", "pass", f"{_name(words, mark)}, not the end token")
    early = sum(_trailing(text, mark) > 0 for text in ids)
    remedy = "nothing to do here: heads are read by position. In other runners give the pad token an id of its own"
    found = f"pad and end token are both {_name(words, mark)}"
    return Row(
        "pad", "warn", f"{found}; {early} of {len(ids)} texts end with it, and may be read early elsewhere", remedy
    )


def length(lengths: NDArray[np.intp], window: int | None, truncate: str | None) -> Row:
    """The share of texts that are longer than the model's window."""
    longest = f"the longest of {len(lengths)} texts has {lengths.max()} tokens"
    if window is None:
        return Row("truncated", "pass", f"{longest}; positions are relative, without an end")
    cut = int((lengths > window).sum())
    if not cut:
        return Row("truncated", "pass", f"none; {longest}, the window {window}")
    found = f"{cut} of {len(lengths)} texts ({cut / len(lengths):.1%}) exceed the window of {window}; {longest}"
    if truncate is None:
        return Row("truncated", "fail", found, "pass max_length= and truncate='left' (keeps the answer)")
    return Row("truncated", "warn", f"{found}; cut at the {truncate}", "report the share with the results")


def _trailing(text: Ids, token: int | None) -> int:
    return 0 if token is None else int((np.append(text[::-1], -1) != token).argmax())


def _times(counts: Counter[int]) -> str:
    return ", ".join(_each(times, n) for times, n in sorted(counts.items()))


def _each(times: int, texts: int) -> str:
    words = {0: "not at all", 1: "once", 2: "twice"}
    return f"{words.get(times, f'{times} times')} in {texts} texts"


def _name(words: "PreTrainedTokenizerBase", token: int) -> str:
    return f"{words.convert_ids_to_tokens(int(token))!r} ({int(token)})"


def spread(lengths: NDArray[np.intp], groups: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Texts of whole prompts, evenly spread from the shortest prompt to the longest, about `size` texts."""
    prompts, group = np.unique(groups, return_inverse=True)
    mean = np.bincount(group, lengths) / np.bincount(group)
    n = min(len(prompts), max(1, round(size * len(prompts) / len(groups))))
    middle = (np.arange(n) + 0.5) * len(prompts) / n
    chosen = np.argsort(mean, kind="stable")[middle.astype(int)]
    return np.flatnonzero(np.isin(group, chosen))
