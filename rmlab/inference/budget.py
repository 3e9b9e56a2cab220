"""How many tokens go through a model at once: as many as keep a GPU busy and fit beside the weights."""

from typing import TYPE_CHECKING

from rmlab.inference.flex import SIZES
from rmlab.inference.passes import offloaded

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["CPU_BUDGET", "activation_bytes", "default_budget", "free_memory", "kept_bytes", "of_model"]

CPU_BUDGET = 4096
"""Tokens at once on a CPU: more no longer fits into its caches."""

_BUSY = 16384
"""Tokens at once that keep any GPU busy; more would only take memory."""

_FETCHED = 65536
"""Tokens at once where weights are fetched anew in every pass: tens of GB over the bus, so the passes should be few."""

_SHARE = 0.5
"""The share of the free memory that activations may take by this estimate, which knows only the largest of them."""


def of_model(backbone: "PreTrainedModel") -> int:
    """The default budget of a loaded model, in tokens."""
    device = backbone.device
    return default_budget(
        backbone.config, backbone.dtype, device, free=free_memory(device), offloaded=offloaded(backbone)
    )


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
    most = _FETCHED if offloaded else _BUSY
    room = most if free is None else _SHARE * free / activation_bytes(config, dtype)  # tokens
    return max(size for size in SIZES if size <= max(min(room, most), SIZES[0]))


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
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + kept)
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return None
