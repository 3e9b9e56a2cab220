"""An estimate of the memory that a run needs, against what the device has."""

import os
from typing import Any

from rmlab.checks.report import Row

__all__ = ["need", "row"]


def row(scorer: Any) -> Row:
    """Weights and activations at the scorer's budget against the device's memory."""
    weights, activations = need(scorer)
    have = _have(scorer.place)
    asks = f"about {_gib(weights)} of weights and {_gib(activations)} of activations"
    if have is None:
        return Row("memory", "warn", f"{asks}; how much there is, this system does not say", "compare by hand")
    found = f"{asks}, {_gib(have)} on {scorer.place}"
    if weights + activations <= 0.85 * have:
        return Row("memory", "pass", found)
    if weights + activations <= have:
        return Row("memory", "warn", found, "lower budget=, or free memory before the run")
    remedy = "use dtype='bfloat16', a device with more memory, or several: weights are spread over all GPUs there are"
    return Row("memory", "fail", found, remedy)


def need(scorer: Any) -> tuple[float, float]:
    """Bytes of the weights and of the activations of one forward pass.

    An implicit reward adds its chunk of logits, and its second model if both stay.
    """
    from rmlab.inference.budget import activation_bytes, default_budget, free_memory

    every = getattr(scorer, "checkpoints", None) or [scorer.checkpoint]
    running = getattr(scorer, "running", {"budget": getattr(scorer, "budget", None)})
    config, dtype, device = every[0].config, scorer.kind, scorer.place
    budget = running["budget"] or default_budget(config, dtype, device, free=free_memory(device))
    sizes = [sum(checkpoint.sizes.values()) * dtype.itemsize for checkpoint in every]
    logits = 2.0**29 if hasattr(scorer, "checkpoints") and device.type == "cuda" else 0.0
    weights = sum(sizes) if getattr(scorer, "together", False) else max(sizes)
    return float(weights), budget * activation_bytes(config, dtype) + logits


def _have(place: Any) -> float | None:
    """Bytes that the device can give: free memory and what this process has on a GPU, all memory on a CPU."""
    if place.type == "cuda":
        import torch

        devices = range(torch.cuda.device_count())
        return float(sum(torch.cuda.mem_get_info(i)[0] + torch.cuda.memory_reserved(i) for i in devices))
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return None
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
