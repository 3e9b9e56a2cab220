"""Texts that are longer than the model's window: refused, or cut at one end."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.tokenised import TokenisedText
from rmlab.tables import DataError, nearest


def limit_lengths(
    texts: list[TokenisedText], max_length: int | None, truncate: str | None
) -> list[TokenisedText]:
    """Texts of at most `max_length` tokens; longer ones are refused or cut."""
    if truncate not in (None, "left", "right"):
        problem = f"truncate={truncate!r}; {nearest(truncate, ['left', 'right'])}"
        raise DataError(problem, "None refuses long texts")
    if max_length is None:
        if truncate is not None:
            problem = f"truncate={truncate!r} without max_length"
            raise DataError(problem, "give the model's window in tokens")
        return texts
    if max_length < 2:
        raise DataError(f"max_length={max_length}", "allowed: 2 tokens or more")

    lengths = np.array([len(text.ids) for text in texts])
    if (lengths <= max_length).all():
        return texts
    if truncate is None:
        raise _too_long(lengths, max_length)

    cut_texts = []
    for text in texts:
        if len(text.ids) > max_length:
            text = _cut(text, max_length, truncate)
        cut_texts.append(text)
    return cut_texts


def _too_long(lengths: NDArray[np.intp], max_length: int) -> DataError:
    """The error of texts that are longer than they may be."""
    n_long = (lengths > max_length).sum()
    problem = (
        f"{n_long} of {len(lengths)} texts are longer than "
        f"max_length={max_length} tokens; "
        f"the longest is text {lengths.argmax()} with {lengths.max()}"
    )
    return DataError(problem, "pass truncate='left' (keeps the answer) or 'right'")


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
