"""What a pack costs the host, while a GPU works on the one before: laying it out, its
key table, the upload, the block mask, each layer.

Measured on a CPU with a stand-in for the GPU's kernels that computes nothing, so that
what is left is the host's work: Python, NumPy, and torch's guards around a compiled
kernel. A layer is all that a model's attention calls. The launch of a kernel itself (5
to 10 microseconds each on most machines) and the model's own layers come on top.
Process time, median of several rounds.

    python performance/host_costs.py
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch

from rmlab.inference import flex
from rmlab.inference.attention import path_attention, paths
from rmlab.inference.flex import Kernels, Kind, Masks
from rmlab.inference.memory import upload
from rmlab.inference.planning import Layout, Part, filled, lay_out, pack

HEADS = {"8B Llama": (32, 8, 32), "1B Llama": (32, 8, 16), "0.6B Qwen3": (16, 8, 28)}
"""Heads, heads of keys, layers."""


def a_pack(budget: int, seed: int = 0) -> tuple[Part, list[np.ndarray]]:
    """Six answers each to prompts of 60 tokens, of 50 to 500 tokens, as in RM-Bench;
    the first, fullest pack.
    """
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 9999, 60) for _ in range(budget // 1000)]
    texts = [
        np.r_[prompt, rng.integers(0, 9999, n)]
        for prompt in prompts
        for n in rng.integers(50, 500, 6)
    ]
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


def nothing(
    graph: object, inputs: list[torch.Tensor]
) -> Callable[..., tuple[torch.Tensor]]:
    """A compiler whose kernels give out the same empty memory."""
    out = torch.empty_like(inputs[0])
    return lambda *given: (out,)


class Model:
    """What attention along paths asks of a model: to name its attention, and change
    it.
    """

    config = SimpleNamespace(_attn_implementation="sdpa")

    def set_attn_implementation(self, name: str) -> None:
        """Nothing needs to be changed here."""


@contextmanager
def layer(layout: Layout, heads: int, key_heads: int) -> Iterator[Callable[[], object]]:
    """One layer's attention, but for its kernel; inside the block a pass is running."""
    module = SimpleNamespace(is_causal=True)
    masks = Masks(torch.from_numpy(flex.key_table(layout)), filled(layout.forwarded))
    rows, ids = len(layout.ids), torch.zeros(1, len(layout.ids), dtype=torch.long)
    # One number per head: what is copied or filled is the GPU's work, not the host's.
    query, key, value = (
        torch.empty(1, rows, n, 1).transpose(1, 2)
        for n in (heads, key_heads, key_heads)
    )
    with paths(Model(), layout, Kernels(), masks):
        yield lambda: path_attention(
            module,
            query,
            key,
            value,
            None,
            scaling=0.125,
            dropout=0.0,
            position_ids=ids,
            use_cache=False,
        )


def costs(budget: int) -> list[dict[str, object]]:
    """Microseconds of a full pack, a row for each model."""
    part, texts = a_pack(budget)
    size = filled(part.tokens)
    layout = lay_out(part, texts)
    keys = flex.key_table(layout)
    arrays = {"keys": keys, "ids": layout.ids, "positions": layout.positions}
    table, kind = torch.from_numpy(keys), Kind(None, None, None)
    once = {
        "layout": microseconds(lambda: lay_out(part, texts), 15, 20),
        "table": microseconds(lambda: flex.key_table(layout), 15, 20),
        "upload": microseconds(lambda: upload(arrays, torch.device("meta")), 15, 20),
        "mask": microseconds(lambda: flex.block_mask(table, size, kind), 15, 20),
    }
    rows = []
    for name, (heads, key_heads, layers) in HEADS.items():
        with layer(layout, heads, key_heads) as run:
            each = microseconds(run, 15, 200)
        named = {"rows": size, "texts": len(part.texts), "model": name}
        rows.append(
            named
            | once
            | {"a layer": each, "in all": sum(once.values()) + layers * each}
        )
    return rows


def table() -> pd.DataFrame:
    """Microseconds of full packs of two sizes, a row for each model."""
    torch.set_num_threads(1)
    flex.BACKEND = nothing
    flex.WITHOUT_KERNELS = set()
    with torch.inference_mode():
        return pd.DataFrame([row for budget in (4096, 16384) for row in costs(budget)])


def main() -> None:
    print(table().round(0).to_string(index=False))


if __name__ == "__main__":
    main()
