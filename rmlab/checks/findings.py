"""The doctor's table, and the checks of the model alone: head, memory, packs, tokenizer."""

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from rmlab.scorers.local import LocalModel
from rmlab.servers import Finding as Finding
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch

    from rmlab.scorers.checkpoints.checkpoint import Checkpoint

STATUS = pd.CategoricalDtype(["pass", "warn", "fail"], ordered=True)


def findings_table(findings: Iterable[Finding]) -> pd.DataFrame:
    """One row per finding: check, status (pass < warn < fail), value, found, remedy."""
    table = pd.DataFrame(list(findings), columns=["check", "status", "found", "remedy", "value"])
    return table.astype({"status": STATUS, "value": "float64"})[["check", "status", "value", "found", "remedy"]]


def refusal(check: str, error: Exception) -> Finding:
    """A failed check from an error, whose first part says what is wrong and whose second part what to do."""
    detail, remedy, *_ = [*re.split(r"; |\. (?=[A-Z])", " ".join(str(error).split()), maxsplit=1), ""]
    return Finding(check, "fail", detail, remedy)


def check_rate(
    check: str, count: int, total: int, description: str, remedy: str, *, warn: float, fail: float
) -> Finding:
    """A finding about a share of faults: above `warn` it warns, from `fail` on it fails."""
    detail = f"{count} of {total} {description}"
    if count <= warn * total:
        return Finding(check, "pass", detail, value=count)
    return Finding(check, "fail" if count >= fail * total else "warn", detail, remedy, count)


def model_findings(scorer: LocalModel) -> list[Finding]:
    """The checks that need no text; only the failed head where the model cannot be loaded."""
    try:
        _ = scorer.backbone
    except DataError as error:
        return [refusal("head", error)]
    return [
        Finding("head", "pass", scorer.head_title),
        memory(scorer),
        packs(scorer),
        _compare_tokenizer(scorer.checkpoints[0]),
    ]


def memory(scorer: LocalModel) -> Finding:
    """Weights and activations at the scorer's budget against the device's memory."""
    weights, activations = memory_need(scorer)
    size = memory_size(scorer.device)
    need = f"about {_format_size(weights)} of weights and {_format_size(activations)} of activations"
    if size is None:
        return Finding("memory", "warn", f"{need}; how much there is, this system does not say", "compare by hand")
    share, detail = (weights + activations) / size, f"{need}, {_format_size(size)} on {scorer.device}"
    if share <= 0.85:
        return Finding("memory", "pass", detail)
    remedy = "use dtype='bfloat16', lower budget=, or several GPUs: weights are spread over them"
    return Finding("memory", "warn" if share <= 1 else "fail", detail, remedy)


def memory_need(scorer: LocalModel) -> tuple[float, float]:
    """Bytes of the weights and of the activations of one forward pass.

    An implicit reward adds its chunk of logits, and its second model if both stay.
    """
    from rmlab.inference.memory import activation_bytes, default_budget, free_memory

    config = scorer.checkpoints[0].config
    budget = scorer.run_options["budget"]
    budget = budget or default_budget(config, scorer.dtype, scorer.device, free=free_memory(scorer.device))
    weights = sum(checkpoint.n_weights for checkpoint in scorer.resident) * scorer.dtype.itemsize
    logits = 2.0**29 if scorer.sums_answer and scorer.device.type == "cuda" else 0.0
    return float(weights), budget * activation_bytes(config, scorer.dtype) + logits


def memory_size(device: "torch.device") -> float | None:
    """Bytes that the device can give: free memory and this process's share of a GPU, all memory of a CPU."""
    if device.type == "cuda":
        import torch

        devices = range(torch.cuda.device_count())
        return float(sum(torch.cuda.mem_get_info(i)[0] + torch.cuda.memory_reserved(i) for i in devices))
    names = getattr(os, "sysconf_names", {})  # there is none on Windows
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return None
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def packs(scorer: LocalModel) -> Finding:
    """How texts go through the scorer's model together, and why not in a faster way."""
    from rmlab.inference.passes import how_packed, packing_support

    packing = packing_support(scorer.backbone)
    if not packing.packed:
        return Finding("packs", "pass", f"batches of similar length, no packs: {packing.refused}")
    way, trouble = how_packed(scorer.backbone)
    if not trouble:
        return Finding("packs", "pass", str(way))
    remedy = "scores are right either way. For more speed install a C compiler and the triton of this torch"
    return Finding("packs", "warn", str(way), remedy)


def _compare_tokenizer(checkpoint: "Checkpoint") -> Finding:
    """Whether the class that transformers takes for this architecture writes the tokens of the tokenizer's file."""
    from rmlab.scorers.checkpoints.tokenizer_file import PROBES, class_tokenizer, count_deviations

    tokenizer = class_tokenizer(checkpoint)
    name, n_different = type(tokenizer).__name__, count_deviations(tokenizer, checkpoint)
    if not n_different:
        return Finding("tokenizer", "pass", f"{name}, as its file says on {len(PROBES)} texts")
    detail = f"transformers' {name} writes other tokens than tokenizer.json on {n_different} of {len(PROBES)} texts"
    remedy = "other runners follow the class: compare ids"
    return Finding("tokenizer", "warn", f"{detail}; the file is followed", remedy)


def _format_size(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
