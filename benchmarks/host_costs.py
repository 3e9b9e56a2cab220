"""What a pack costs the host, while a GPU works on the one before: laying it out, its tables, the upload, each layer.

Measured on a CPU with a stand-in for the GPU's kernels that computes nothing, so that what is left is the host's work:
Python, NumPy, and torch's guards around a compiled kernel. The launch of a kernel itself (5 to 10 microseconds each on
most machines) and the model's own layers come on top. Process time, median of several rounds.

    python benchmarks/host_costs.py
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from rmlab.inference import flex, kernels, runs
from rmlab.inference.flex import View
from rmlab.inference.layout import Layout, lay_out
from rmlab.inference.transfers import upload
from rmlab.inference.trie import Pack, pack

HEADS = {"8B Llama": (32, 8, 32), "1B Llama": (32, 8, 16), "0.6B Qwen3": (16, 8, 28)}
"""Heads, heads of keys, layers."""


def a_pack(budget: int, seed: int = 0) -> tuple[Pack, list[np.ndarray]]:
    """Six answers each to prompts of 60 tokens, of 50 to 500 tokens, as in RM-Bench; the first, fullest pack."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 9999, 60) for _ in range(budget // 1000)]
    texts = [np.r_[prompt, rng.integers(0, 9999, n)] for prompt in prompts for n in rng.integers(50, 500, 6)]
    return pack(texts, np.repeat(np.arange(len(prompts)), 6), budget)[0], texts


def microseconds(run: Callable[[], object], rounds: int, times: int) -> float:
    """Process time of one run: the median of `rounds`, each of `times` runs."""
    run()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            run()
        found.append((time.process_time() - start) / times * 1e6)
    return statistics.median(found)


def nothing(graph: object, inputs: list[torch.Tensor]) -> Callable[..., tuple[torch.Tensor]]:
    """A compiler whose kernels give out the same empty memory."""
    out = torch.empty_like(inputs[0])
    return lambda *given: (out,)


def attention(layout: Layout, heads: int, key_heads: int) -> Callable[[], object]:
    """One layer's attention, but for its kernel."""
    kind, view, held = runs.Kind(None, None, None), View(None, True), kernels.Kernels()
    rows = len(layout.ids)
    # One number per head: what is copied or filled is the GPU's work, not the host's.
    query, key, value = (torch.empty(1, rows, n, 1).transpose(1, 2) for n in (heads, key_heads, key_heads))
    sent = flex.tables_of(upload(flex.tables(layout, view), query.device), view)
    return lambda: held.attend(kind, query, key, value, sent)


def costs(budget: int) -> list[dict[str, object]]:
    """Microseconds of a full pack, a row for each model."""
    part, texts = a_pack(budget)
    view, layout = View(None, True), lay_out(part, texts)
    full = layout.filled(flex.filled(len(layout.ids)))
    arrays = {"ids": full.ids, "positions": full.positions} | flex.tables(full, view)
    once = {
        "layout": microseconds(lambda: lay_out(part, texts), 15, 20),
        "tables": microseconds(lambda: flex.tables(full, view), 15, 20),
        "buffer": microseconds(lambda: upload(arrays, torch.device("meta")), 15, 20),
    }
    rows = []
    for name, (heads, key_heads, layers) in HEADS.items():
        layer = microseconds(attention(full, heads, key_heads), 15, 200)
        named = {"rows": len(full.ids), "texts": len(part.texts), "model": name}
        rows.append(named | once | {"a layer": layer, "in all": sum(once.values()) + layers * layer})
    return rows


def table() -> pd.DataFrame:
    """Microseconds of full packs of two sizes, a row for each model."""
    torch.set_num_threads(1)
    kernels.BACKEND = nothing
    with torch.inference_mode():
        return pd.DataFrame([row for budget in (4096, 16384) for row in costs(budget)])


def main() -> None:
    print(table().round(0).to_string(index=False))


if __name__ == "__main__":
    main()
