"""Speed and memory of implicit (DPO) rewards against full logits, in one run.

A tiny body under a large vocabulary, so that the output layer is what counts. Random
texts of random length with short prompts, so that little but the output layer is saved.
The ways of the public runners:

- full: the batch padded to its longest, logits of all positions, log_softmax over them,
  gather (RewardBench, TRL before its chunked loss)
- logsumexp: the same, but logsumexp minus the picked logit in place of log_softmax
- rmlab: logits of response tokens only, a chunk at a time, float32

Times are interleaved, the median of several. Memory is the peak over what stands before
the run: resident memory sampled every millisecond on a CPU (Linux), the allocator's own
peak on a GPU. In bfloat16 on a CPU the public ways multiply in bfloat16, which rounds
each logit; rmlab multiplies in float32, and is slower for it.

    python performance/implicit.py [--device cuda --dtype bfloat16] [--repeats 3] [--out
    performance/results/implicit.csv]
"""

import argparse
import ctypes
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rmlab import toy
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.models.loading import load

BODY = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}


def make_texts(n: int, words: int, seed: int = 0) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    pool = " ".join(toy.models.TEXTS).split()
    lengths = rng.integers(words // 2, words + 1, n)
    return [f"Question {i // 2}?" for i in range(n)], [
        " ".join(rng.choice(pool, k)) for k in lengths
    ]


class Peak:
    """Peak memory over the start, in MB."""

    def __init__(self, device: str) -> None:
        self.device, self.page = device, os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> "Peak":
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.start = torch.cuda.memory_allocated()
            return self
        # Memory that earlier runs freed but the C library kept would hide what this one
        # takes.
        ctypes.CDLL(None).malloc_trim(0)
        self.start = self.top = self._resident()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            self.top = torch.cuda.max_memory_allocated()
        else:
            self.stop.set()
            self.thread.join()
        self.mb = (self.top - self.start) / 1e6

    def _resident(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * self.page

    def _watch(self) -> None:
        while not self.stop.wait(0.001):
            self.top = max(self.top, self._resident())


def full(
    model: torch.nn.Module,
    ids: list[np.ndarray],
    starts: np.ndarray,
    logsumexp: bool,
    batch: int,
) -> np.ndarray:
    """Rewards by full logits of padded batches in file order."""
    found = []
    for first in range(0, len(ids), batch):
        part = [
            torch.tensor(text.astype(np.int64)) for text in ids[first : first + batch]
        ]
        tokens = torch.nn.utils.rnn.pad_sequence(part, batch_first=True).to(
            model.device
        )
        place = torch.arange(tokens.shape[1], device=model.device)
        ends = torch.tensor([len(text) for text in part], device=model.device)[:, None]
        begins = torch.tensor(starts[first : first + batch], device=model.device)[
            :, None
        ]
        with torch.no_grad():
            logits = model(
                input_ids=tokens, attention_mask=(place < ends).long()
            ).logits[:, :-1]
            targets = tokens[:, 1:, None]
            if logsumexp:
                each = logits.gather(2, targets)[..., 0] - logits.logsumexp(-1)
            else:
                each = logits.log_softmax(-1).gather(2, targets)[..., 0]
        mask = (place[1:] >= begins) & (place[1:] < ends)
        found.append((each * mask).sum(-1).float().cpu().numpy())
    return np.concatenate(found)


def measure(
    ways: dict[str, Callable[[], np.ndarray]], repeats: int, device: str
) -> pd.DataFrame:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    memory: dict[str, list[float]] = {name: [] for name in ways}
    rewards = {}
    for _ in range(repeats):
        for name, run in ways.items():
            with Peak(device) as peak:
                start = time.perf_counter()
                rewards[name] = run()
                seconds[name].append(time.perf_counter() - start)
            memory[name].append(peak.mb)
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    most = {name: max(peaks) for name, peaks in memory.items()}
    return pd.DataFrame(
        {
            "way": list(ways),
            "seconds": [round(middle[name], 3) for name in ways],
            "times_rmlab": [round(middle[name] / middle["rmlab"], 2) for name in ways],
            "peak_mb": [round(most[name], 1) for name in ways],
            "memory_times_rmlab": [
                round(most[name] / most["rmlab"], 1) for name in ways
            ],
            "largest_difference": [
                float(np.abs(rewards[name] - rewards["rmlab"]).max()) for name in ways
            ],
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument(
        "--words",
        type=int,
        default=260,
        help="longest response, in words of about 1.6 tokens",
    )
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        toy.save_model(
            folder,
            task="causal",
            vocab_size=options.vocabulary,
            num_key_value_heads=4,
            tie_word_embeddings=False,
            initializer_range=0.02,
            **BODY,
        )
        reward = implicit_reward(
            folder, mode="sum", device=options.device, dtype=options.dtype
        )
        prepared = reward.prepare(*make_texts(options.texts, options.words))
        ids, starts = prepared.ids, prepared.response_start
        model = load(
            reward.checkpoint,
            "AutoModelForCausalLM",
            device=reward.device,
            dtype=reward.dtype,
        )
    everything = np.arange(len(ids))

    def rmlab() -> np.ndarray:
        found = np.empty(len(ids))
        for texts, values in reward.forward(prepared, everything):
            found[texts] = values
        return found

    ways = {
        "full": lambda: full(model, ids, starts, False, options.batch),
        "logsumexp": lambda: full(model, ids, starts, True, options.batch),
        "rmlab": rmlab,
    }
    ways[
        "rmlab"
    ]()  # The first call compiles and fills caches; every way profits from it.
    table = measure(ways, options.repeats, options.device)
    print(
        f"{len(ids)} texts, {sum(map(len, ids))} tokens, vocabulary "
        f"{options.vocabulary}, "
        f"{options.device} {options.dtype}"
    )
    print(table.to_string(index=False))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
