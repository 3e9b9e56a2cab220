"""Running out of memory: what did not fit is cut in half, and the run goes on."""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rmlab.inference.batches import Padded
    from rmlab.inference.trie import Pack

__all__ = ["out_of_memory", "until_it_fits"]

Done = TypeVar("Done")
Part = TypeVar("Part", bound="Pack | Padded")
Ints = NDArray[np.intp]

_log = logging.getLogger(__name__)

_WORDS = (
    "can't allocate memory",  # torch's allocator on CPUs
    "MPS backend out of memory",
    "CUDA error: out of memory",  # AcceleratorError, outside of torch's own allocator
    "CUDA out of memory",
    "HIP out of memory",
    "hipErrorOutOfMemory",
    "CUBLAS_STATUS_ALLOC_FAILED",  # the workspace of a matrix product
    "Triton Error [CUDA]: out of memory",  # while a kernel is loaded
)
"""Errors by which a lack of memory shows, beside torch.OutOfMemoryError."""


def out_of_memory(error: BaseException) -> bool:
    """Does the error say that memory ran out?

    >>> out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"))
    True
    >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    import torch

    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _WORDS)


def until_it_fits(
    parts: list[Part],
    forward: Callable[[Part], Done],
    cut: Callable[[Ints, int], list[Part]],
    number: Callable[[int], int] = int,
) -> Iterator[Done]:
    """What `forward` makes of each part, in order; where memory runs out, the rest is cut anew for half the tokens.

    `cut(texts, budget)`: the texts in parts of at most `budget` tokens. A text that does not fit alone is named by its
    `number` in a note on the error.
    """
    todo = parts[::-1]
    while todo:
        part = todo.pop()
        done = _attempt(part, forward, cut, number)
        if done is not None:
            yield done
            continue
        # Freed only here: while the error is being handled it holds the tensors that did not fit.
        _free_caches()
        budget = max(part.tokens // 2, 1)
        _log.warning("out of memory at %d tokens; going on with at most %d at once", part.tokens, budget)
        # A text that is cut stands in several parts.
        left = dict.fromkeys(np.concatenate([part.texts, *(later.texts for later in todo[::-1])]).tolist())
        todo = cut(np.array([*left], np.intp), budget)[::-1]


def _attempt(
    part: Part,
    forward: Callable[[Part], Done],
    cut: Callable[[Ints, int], list[Part]],
    number: Callable[[int], int],
) -> Done | None:
    """What `forward` makes of the part; None where it does not fit into memory but half of it may."""
    try:
        return forward(part)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        smallest = max(piece.tokens for piece in cut(part.texts, max(part.tokens // 2, 1)))
        if len(part.texts) == 1 and smallest >= part.tokens:
            error.add_note(f"text {number(int(part.texts[0]))} alone, {part.tokens} tokens, does not fit into memory")
            raise
    return None


def _free_caches() -> None:
    """Give back what torch keeps of freed memory, in case it is only in pieces."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
