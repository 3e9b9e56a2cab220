"""The doctor's table: what a check found, and the checks of the model alone: head, memory, packs, tokenizer."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from rmlab.scorers.protocol import LocalModel
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch

    from rmlab.scorers.checkpoints.checkpoint import Checkpoint

__all__ = ["STATUS", "Row", "memory", "memory_need", "of_model", "packs", "refusal", "table"]

STATUS = pd.CategoricalDtype(["pass", "warn", "fail"], ordered=True)


class Row(NamedTuple):
    """One check. `remedy` is empty where there is nothing to do."""

    check: str
    status: str
    found: str
    remedy: str = ""


def refusal(check: str, error: Exception) -> Row:
    """A failed check from an error that says what is wrong and, behind the first semicolon, what to do."""
    found, _, remedy = " ".join(str(error).split()).partition("; ")
    return Row(check, "fail", found, remedy)


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Columns check, status (pass < warn < fail), found, remedy."""
    return pd.DataFrame(list(rows), columns=list(Row._fields)).astype({"status": STATUS})


def of_model(scorer: LocalModel) -> list[Row]:
    """What can be said without a text; only the failed head where the model cannot be loaded."""
    try:
        _ = scorer.backbone
    except DataError as error:
        return [refusal("head", error)]
    head = Row("head", "pass", scorer.head_title)
    return [head, memory(scorer), packs(scorer), _tokenizer(scorer.checkpoints[0])]


def memory(scorer: LocalModel) -> Row:
    """Weights and activations at the scorer's budget against the device's memory."""
    weights, activations = memory_need(scorer)
    have = memory_there(scorer.device)
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


def memory_need(scorer: LocalModel) -> tuple[float, float]:
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


def packs(scorer: LocalModel) -> Row:
    """How texts go through the scorer's model together, and why not in a faster way; found by trying."""
    from rmlab.inference.packing import how_packed, packing_support

    packing = packing_support(scorer.backbone)
    if not packing.packed:
        return Row("packs", "pass", f"batches of similar length, no packs: {packing.refused}")
    found, trouble = how_packed(scorer.backbone)
    if not trouble:
        return Row("packs", "pass", str(found))
    remedy = (
        "scores are right either way; for more speed install a C compiler and the triton that belongs to this torch"
    )
    return Row("packs", "warn", str(found), remedy)


def _tokenizer(checkpoint: "Checkpoint") -> Row:
    """Whether the class that transformers takes for this architecture writes the tokens of the tokenizer's file."""
    from rmlab.scorers.checkpoints.tokenizer_file import PROBES, deviations, own_class

    made = own_class(checkpoint)
    name, differ = type(made).__name__, deviations(made, checkpoint)
    if not differ:
        return Row("tokenizer", "pass", f"{name}, as its file says on {len(PROBES)} texts")
    found = f"transformers' {name} writes other tokens than tokenizer.json on {differ} of {len(PROBES)} texts"
    return Row("tokenizer", "warn", f"{found}; the file is followed", "other runners follow the class: compare ids")


def memory_there(device: "torch.device") -> float | None:
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
