"""An estimate of the memory that a run needs, against what the device has."""

import os
from typing import TYPE_CHECKING

from rmlab.checks.report import Row
from rmlab.scorers.protocol import LocalModel

if TYPE_CHECKING:
    import torch

__all__ = ["need", "row"]


def row(scorer: LocalModel) -> Row:
    """Weights and activations at the scorer's budget against the device's memory."""
    weights, activations = need(scorer)
    have = _have(scorer.device)
    asks = f"about {_gib(weights)} of weights and {_gib(activations)} of activations"
    if have is None:
        return Row("memory", "warn", f"{asks}; how much there is, this system does not say", "compare by hand")
    found = f"{asks}, {_gib(have)} on {scorer.device}"
    if weights + activations <= 0.85 * have:
        return Row("memory", "pass", found)
    if weights + activations <= have:
        return Row("memory", "warn", found, "lower budget=, or free memory before the run")
    remedy = "use dtype='bfloat16', a device with more memory, or several: weights are spread over all GPUs there are"
    return Row("memory", "fail", found, remedy)


def need(scorer: LocalModel) -> tuple[float, float]:
    """Bytes of the weights and of the activations of one forward pass.

    An implicit reward adds its chunk of logits, and its second model if both stay.
    """
    from rmlab.inference.budget import activation_bytes, default_budget, free_memory

    config = scorer.checkpoints[0].config
    budget = scorer.run_options["budget"]
    budget = budget or default_budget(config, scorer.dtype, scorer.device, free=free_memory(scorer.device))
    weights = sum(sum(checkpoint.sizes.values()) for checkpoint in scorer.resident) * scorer.dtype.itemsize
    logits = 2.0**29 if scorer.sums_answer and scorer.device.type == "cuda" else 0.0
    return float(weights), budget * activation_bytes(config, scorer.dtype) + logits


def _have(device: "torch.device") -> float | None:
    """Bytes that the device can give: free memory and what this process has on a GPU, all memory on a CPU."""
    if device.type == "cuda":
        import torch

        devices = range(torch.cuda.device_count())
        return float(sum(torch.cuda.mem_get_info(i)[0] + torch.cuda.memory_reserved(i) for i in devices))
    names = getattr(os, "sysconf_names", {})  # there is none on Windows
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return None
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
