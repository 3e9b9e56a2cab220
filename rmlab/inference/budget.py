"""How many tokens go through a model at once: as many as keep a GPU busy and fit beside the weights.

Where memory runs out all the same, the part that did not fit is cut in half, and the run goes on.
"""

import logging
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rmlab.inference.flex import SIZES
from rmlab.inference.planning import CPU_BUDGET, Ints, Pack, Padded

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

Result = TypeVar("Result")
Part = TypeVar("Part", bound=Pack | Padded)

_BUSY = 16384
"""Tokens at once that keep any GPU busy; more would only take memory."""

_OFFLOADED = 65536
"""Tokens at once where weights are fetched anew in every pass: tens of GB over the bus, so the passes should be few."""

_SHARE = 0.5
"""The share of the free memory that activations may take by this estimate, which knows only the largest of them."""

_MESSAGES = re.compile("can't allocate memory|out of memory|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED")
"""How a lack of memory shows beside torch.OutOfMemoryError: CPUs, Apple's GPU and kernels raise other errors."""

_log = logging.getLogger(__name__)


def model_budget(backbone: "PreTrainedModel") -> int:
    """The default budget of a loaded model, in tokens."""
    free, is_offloaded = free_memory(backbone.device), offloaded(backbone)
    return default_budget(backbone.config, backbone.dtype, backbone.device, free=free, offloaded=is_offloaded)


def default_budget(
    config: "PreTrainedConfig",
    dtype: "torch.dtype",
    device: "torch.device",
    *,
    free: float | None,
    offloaded: bool = False,
) -> int:
    """Tokens at once for a model with this configuration and `free` bytes of memory (None: not known).

    On a GPU one of the sizes that attention's kernels are compiled for, so that full packs fill them.
    """
    if device.type == "cpu":
        return CPU_BUDGET
    enough = _OFFLOADED if offloaded else _BUSY
    room = enough if free is None else _SHARE * free / activation_bytes(config, dtype)  # tokens
    return max(size for size in SIZES if size <= max(min(room, enough), SIZES[0]))


def activation_bytes(config: "PreTrainedConfig", dtype: "torch.dtype") -> float:
    """Bytes of activations for each token of a pass: about 135 kB for a Llama of 8 B in bfloat16.

    A layer holds, per token, about six vectors of the hidden size and three of the inner one; layers come one after the
    other, so that one is counted.
    """
    text = config.get_text_config()
    # Four times the hidden size is the usual width where a configuration does not say (Vaswani and others 2017).
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    return float((6 * text.hidden_size + 3 * inner) * dtype.itemsize)


def kept_bytes(config: "PreTrainedConfig", dtype: "torch.dtype") -> float:
    """Bytes of keys and values for each token of a prompt that is larger than the budget: 131 kB for a Llama of 8 B.

    `plan(...).kept` says how many tokens are kept at once.
    """
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return float(2 * text.num_hidden_layers * heads * size * dtype.itemsize)  # 2: keys and values


def free_memory(device: "torch.device") -> float | None:
    """Bytes that a GPU can still give to this process; None for other devices."""
    import torch

    if device.type == "cuda":
        # What torch's allocator has taken from the GPU and does not use at the moment counts as free to us.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return None


def offloaded(backbone: "PreTrainedModel") -> bool:
    """Do some of the model's weights wait in host memory or on disk, to be fetched anew in every pass?"""
    return not {"cpu", "disk"}.isdisjoint(map(str, getattr(backbone, "hf_device_map", {}).values()))


def out_of_memory(error: BaseException) -> bool:
    """Does the error say that memory ran out?

    >>> out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"))
    True
    >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    import torch

    return isinstance(error, torch.OutOfMemoryError) or bool(_MESSAGES.search(str(error)))


def until_it_fits(
    parts: list[Part],
    forward: Callable[[Part], Result],
    cut: Callable[[Ints, int], list[Part]],
    number: Callable[[int], int] = int,
) -> Iterator[Result]:
    """The results of `forward` for each part, in order; where memory runs out, what is left is cut for half the tokens.

    `cut(texts, budget)`: the texts in parts of at most `budget` tokens. A text that does not fit alone is named by its
    `number` in a note on the error.
    """
    waiting = parts[::-1]
    while waiting:
        part = waiting.pop()
        budget = max(part.tokens // 2, 1)
        try:
            result = forward(part)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            if len(part.texts) == 1 and max(piece.tokens for piece in cut(part.texts, budget)) >= part.tokens:
                text = number(int(part.texts[0]))
                error.add_note(f"text {text} alone, {part.tokens} tokens, does not fit into memory")
                raise
        else:
            yield result
            continue
        # Freed only here: while the error is being handled it holds the tensors that did not fit.
        _free_caches()
        _log.warning("out of memory at %d tokens; going on with at most %d at once", part.tokens, budget)
        # A text that is cut stands in several parts.
        texts = dict.fromkeys(np.concatenate([part.texts, *(later.texts for later in waiting[::-1])]).tolist())
        waiting = cut(np.array([*texts], np.intp), budget)[::-1]


def _free_caches() -> None:
    """Give back what torch keeps of freed memory, in case it is only in pieces."""
    import torch

    torch.cuda.empty_cache()  # does nothing where there is no GPU
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
