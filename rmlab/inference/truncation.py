"""Texts that are longer than the model's window: refused, or cut at one end."""

from dataclasses import replace

import numpy as np

from rmlab.inference.tokenised import TokenisedText
from rmlab.tables import DataError, nearest


def limit_lengths(
    texts: list[TokenisedText], max_length: int | None, truncate: str | None
) -> list[TokenisedText]:
    """Texts of at most `max_length` tokens; longer ones are refused or cut."""
    _check_options(max_length, truncate)
    lengths = np.array([len(text.ids) for text in texts])
    if max_length is None or not (lengths > max_length).any():
        return texts

    if truncate is None:
        problem = (
            f"{(lengths > max_length).sum()} of {len(texts)} texts are longer than "
            f"max_length={max_length} tokens; "
            f"the longest is text {lengths.argmax()} with {lengths.max()}"
        )
        remedy = "pass truncate='left' (keeps the answer) or 'right'"
        raise DataError(problem, remedy)

    cut_texts = []
    for text in texts:
        if len(text.ids) > max_length:
            text = _cut(text, max_length, truncate)
        cut_texts.append(text)
    return cut_texts


def _check_options(max_length: int | None, truncate: str | None) -> None:
    if truncate not in (None, "left", "right"):
        problem = f"truncate={truncate!r}; {nearest(truncate, ['left', 'right'])}"
        raise DataError(problem, "None refuses long texts")
    if max_length is not None and max_length < 2:
        raise DataError(f"max_length={max_length}", "allowed: 2 tokens or more")
    if truncate is not None and max_length is None:
        problem = f"truncate={truncate!r} without max_length"
        raise DataError(problem, "give the model's window in tokens")


def _cut(text: TokenisedText, max_length: int, truncate: str) -> TokenisedText:
    """The text without tokens at one of its ends.

    The special tokens around it stay, as encoders are read there.
    """
    n_cut = len(text.ids) - max_length
    if truncate == "left":
        first_cut = text.opening
        # Of an answer that is cut too, the rest begins behind the special tokens.
        start = max(text.start - n_cut, text.opening)
    else:
        first_cut = max_length - text.closing
        start = text.start
        if start >= first_cut:
            problem = (
                f"truncate='right' at {max_length} tokens leaves nothing of a response "
                f"that begins at token {start}"
            )
            raise DataError(problem, "use truncate='left' or a larger max_length")

    ids = np.delete(text.ids, slice(first_cut, first_cut + n_cut))
    return replace(text, ids=ids, start=start, is_cut=True)
