"""Six answers of 400 tokens to prompts of 20 to 12,000 tokens: rmlab beside batch 1 and
sorted batches, wall clock.

All ways forward the same token ids through the same backbone with random weights and
read its last state, so that what is compared is the passes and nothing else. Each way
has a process of its own, as in scoring.py; rounds are interleaved, and the ratio is the
median of the rounds' ratios. Encoders share nothing: ModernBERT's texts stand side by
side.

    python performance/long_prompts.py     # Llama and Qwen3, 32 M, one thread and all
    python performance/long_prompts.py --architecture llama --size 250m \\
      --lengths 400 3500 --threads 1
"""

import argparse
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from scoring import ENCODERS, SIZES, Worker, shape_of

from rmlab.inference.backbone import Backbone
from rmlab.inference.planning import Packing, plan

ANSWERS, ANSWER, VOCABULARY = 6, 400, 16384
PADDED = 16384
"""Tokens of a sorted batch, padding included."""


def texts_of(length: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Token ids and prompt numbers: about as many tokens for short prompts as for one
    of 1,000.
    """
    rng = np.random.default_rng(length)
    prompts = max(1, 1000 // (length + ANSWER))
    sizes = rng.integers(ANSWER // 2, 3 * ANSWER // 2, (prompts, ANSWERS))
    begins = [rng.integers(8, VOCABULARY, length) for _ in range(prompts)]
    texts = [
        np.r_[begin, rng.integers(8, VOCABULARY, n)]
        for begin, row in zip(begins, sizes, strict=True)
        for n in row
    ]
    return texts, np.repeat(np.arange(prompts), ANSWERS)


def sorted_batches(texts: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Longest first, padded to the longest of the batch, at most `PADDED` tokens with
    the padding.
    """
    batches: list[list[np.ndarray]] = []
    for text in sorted(texts, key=len, reverse=True):
        if batches and len(batches[-1][0]) * (len(batches[-1]) + 1) <= PADDED:
            batches[-1].append(text)
        else:
            batches.append([text])
    return batches


def forward(model: torch.nn.Module, batch: list[np.ndarray]) -> None:
    """A padded batch, as transformers takes it; without padding no mask."""
    longest = max(map(len, batch))
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(batch):
        ids[row, : len(text)], mask[row, : len(text)] = torch.from_numpy(text), 1
    named = {} if bool(mask.all()) else {"attention_mask": mask}
    with torch.inference_mode():
        takes_cache = "use_cache" in inspect.signature(model.forward).parameters
        model(input_ids=ids, **named | ({"use_cache": False} if takes_cache else {}))


def backbone(architecture: str, size: str, dtype: str) -> torch.nn.Module:
    """A model with random weights; without a tokenizer, since its texts are numbers
    from the start.
    """
    from transformers import CONFIG_MAPPING, AutoModel

    torch.manual_seed(0)
    config = CONFIG_MAPPING[architecture](
        **shape_of(architecture, size), vocab_size=VOCABULARY, pad_token_id=0
    )
    return AutoModel.from_config(config, dtype=getattr(torch, dtype)).eval()


def make(way: str, architecture: str, size: str, dtype: str) -> Callable[[int], None]:
    """In a process of its own: what runs one way on the texts of a length."""
    model = backbone(architecture, size, dtype)
    ours = Backbone(model)
    packing = ours.packing

    def run(length: int, few: int | None = None) -> None:
        texts, groups = texts_of(length)
        if few:
            texts, groups = texts[:few], groups[:few]
        if way == "rmlab":
            at = [np.array([len(text) - 1 if packing.shares else 0]) for text in texts]
            for batch in ours.hidden(texts, at, groups=groups):
                batch.rows.sum().item()
        else:
            for one in (
                sorted_batches(texts)
                if way == "sorted batches"
                else [[text] for text in texts]
            ):
                forward(model, one)

    return run


def tokens_of(length: int, architecture: str) -> dict[str, int]:
    """Tokens that each way forwards, and the fewest possible."""
    texts, groups = texts_of(length)
    packing = Packing(None, shares=architecture not in ENCODERS)
    made = plan(texts, groups, packing=packing)
    fewest = plan(texts, groups, budget=10**9, fill=None, packing=packing)
    padded = sum(len(batch) * len(batch[0]) for batch in sorted_batches(texts))
    return {
        "batch 1": sum(map(len, texts)),
        "sorted batches": padded,
        "rmlab": made.tokens,
        "minimum": fewest.tokens,
    }


def errors_of(length: int, architecture: str, size: str) -> dict[str, object]:
    """How far rmlab's scores by a random head lie from those of two texts by
    themselves, in deviations of all texts.
    """
    model = backbone(architecture, size, "float32")
    texts, groups = texts_of(length)
    at = [
        np.array([len(text) - 1 if architecture not in ENCODERS else 0])
        for text in texts
    ]
    head = torch.randn(
        model.config.hidden_size, generator=torch.Generator().manual_seed(1)
    )
    scores = np.empty(len(texts))
    for batch in Backbone(model).hidden(texts, at, groups=groups):
        scores[batch.texts] = (batch.rows[np.concatenate(batch.where)] @ head).numpy()
    alone = []
    with torch.inference_mode():
        for text, places in zip(texts[:2], at[:2], strict=True):
            states = model(input_ids=torch.from_numpy(text)[None]).last_hidden_state
            alone.append(float(states[0, places[0]] @ head))
    error = float(np.abs(scores[:2] - alone).max() / scores.std(ddof=1))
    return {"model": f"{architecture} {size}", "prompt": length, "error_sd": error}


def rows_of(
    options: argparse.Namespace, architecture: str, workers: dict[str, Worker]
) -> list[dict]:
    rows = []
    for length in options.lengths:
        tokens = tokens_of(length, architecture)
        for threads in options.threads:
            times: dict[str, list[float]] = {way: [] for way in workers}
            for _ in range(
                options.rounds if length < 5000 else max(options.rounds - 2, 1)
            ):
                for way, worker in workers.items():
                    times[way].append(worker.run(threads, length)[options.clock])
            named = {
                "model": f"{architecture} {options.size}",
                "prompt": length,
                "threads": threads,
            }
            for way, taken in times.items():
                ratio = median(np.divide(taken, times["rmlab"]))
                share = tokens[way] / tokens["rmlab"]
                measured = {
                    "tokens": tokens[way],
                    "seconds": median(taken),
                    "times rmlab": ratio,
                    "tokens, times": share,
                }
                rows.append(named | {"way": way} | measured)
            print(
                pd.DataFrame(rows[-len(workers) :])
                .round(2)
                .to_string(index=False, header=len(rows) == 3),
                flush=True,
            )
        print(f"  fewest possible: {tokens['minimum']}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", nargs="*", default=["llama", "qwen3"])
    parser.add_argument("--size", choices=SIZES, default="32m")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=[20, 400, 3500, 6000, 12000]
    )
    parser.add_argument(
        "--threads", type=int, nargs="*", default=sorted({1, os.cpu_count() or 1})
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "process"), default="wall")
    parser.add_argument(
        "--ways", nargs="*", default=["batch 1", "sorted batches", "rmlab"]
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument(
        "--errors",
        action="store_true",
        help="how far the scores lie from one by one, not the time",
    )
    options = parser.parse_args()
    if options.errors:
        found = [
            errors_of(n, name, options.size)
            for name in options.architecture
            for n in options.lengths
        ]
        table = pd.DataFrame(found)
        table.to_csv(
            options.out / "long_prompts_errors.csv", index=False, float_format="%.2g"
        )
        print(table.to_string(index=False))
        return
    rows = []
    for architecture in options.architecture:
        workers = {
            way: Worker(make, way, architecture, options.size, options.dtype)
            for way in options.ways
        }
        rows += rows_of(options, architecture, workers)
        for worker in workers.values():
            worker.close()
    options.out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).round(3).to_csv(
        options.out / f"long_prompts_{options.size}_{options.dtype}.csv", index=False
    )


if __name__ == "__main__":
    main()
