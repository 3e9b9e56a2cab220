"""Scoring speed: rmlab beside the ways people score today, in one run, interleaved, median of several.

The texts are RM-Bench's; the tokenizer is a byte-level BPE trained on them; the models have random weights (speed does
not depend on their values). On a CPU every way has a process of its own, so that none finds the memory that another one
left behind, and is timed by the clock, on one thread and on all. On a GPU all ways share one model, made there. The other
ways are written plainly below from the public behaviour of the runners:

  RewardBench 2, batches of 64   file order, padded to the longest of the batch
  RM-Bench, batches of 8         one style at a time, chosen and rejected apart, file order
  pipeline, batch 1              transformers.pipeline("text-classification"), no sigmoid
  rmlab                          the classifier as users call it: texts in, scores out
  forward alone                  rmlab's forward passes on a ready plan: what the rest of rmlab adds to them

    python performance/scoring.py                                    # CPU, 32 M parameters, float32
    python performance/scoring.py --dtype bfloat16 --architecture qwen3
    python performance/scoring.py --device cuda --size 8b --dtype bfloat16 --prompts 48

"share of peak": operations of the weights on the tokens that a way forwards (2 a weight and token), over what a large
matrix product reaches on the same threads. `--ways` names ways. On a machine with other work take `--clock process`.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import rmlab
from rmlab import toy
from rmlab.inference.planning import plan
from rmlab.scorers import classifier
from rmlab.toy.models import random_model

SIZES = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 172,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "32m": {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
    },
    "149m": {
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
    },
    "250m": {
        "hidden_size": 1536,
        "intermediate_size": 4096,
        "num_hidden_layers": 8,
        "num_attention_heads": 12,
    },
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
}
DATA = Path(__file__).parents[2] / "shared" / "data" / "rm-bench"
ENCODERS = ("modernbert", "bert")
OURS = ("rmlab", "forward alone")
WAYS = (
    "RewardBench 2, batches of 64",
    "RM-Bench, batches of 8",
    "pipeline, batch 1",
    "rmlab",
    "forward alone",
)
Run = Callable[[], object]


def load(data: Path, prompts: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All responses at hand, and a sample of `prompts` prompts spread evenly over the
    files (0: all).
    """
    everything = rmlab.load("rm-bench", path=data)
    ids = everything.drop_duplicates(["subset", "id"])[["subset", "id"]]
    if not prompts:
        return everything, everything
    share = max(prompts // ids["subset"].nunique(), 1)
    picked = pd.concat(
        part.iloc[:: max(len(part) // share, 1)].head(share)
        for _, part in ids.groupby("subset")
    )
    return everything, everything.merge(picked.head(prompts), on=["subset", "id"])


def shape_of(architecture: str, size: str) -> dict[str, int]:
    """The settings of a model of this size."""
    shape = SIZES[size] | {"max_position_embeddings": 16384}
    if architecture in ENCODERS:
        return shape | {"local_attention": 128, "global_attn_every_n_layers": 3}
    heads = shape["num_attention_heads"]
    return shape | {
        "num_key_value_heads": max(heads // 2, 2),
        "head_dim": shape["hidden_size"] // heads,
    }


def build(folder: Path, options: argparse.Namespace, words: Any) -> Path:
    shape = shape_of(options.architecture, options.size)
    toy.save_model(
        folder, options.architecture, words=words, initializer_range=0.02, **shape
    )
    return folder


def build_on_device(options: argparse.Namespace, words: Any) -> Any:
    """The model of `build` on the device, without files: 8 B would be 32 GB."""
    shape = shape_of(options.architecture, options.size)
    with torch.device(options.device):
        model = random_model(
            words,
            options.architecture,
            task="classifier",
            seed=0,
            initializer_range=0.02,
            dtype=getattr(torch, options.dtype),
            **shape,
        )
    return model.eval()


def render(words: Any, responses: pd.DataFrame) -> list[str]:
    """Conversations as text, with the chat template."""
    return [
        words.apply_chat_template(
            [{"role": "user", "content": p}, {"role": "assistant", "content": r}],
            tokenize=False,
        )
        for p, r in zip(responses["prompt"], responses["response"], strict=True)
    ]


class Padded:
    """Batches in a given order, padded to the longest of the batch: what the public
    runners do.
    """

    def __init__(
        self, model: Any, words: Any, texts: list[str], batches: list[list[int]]
    ) -> None:
        self.model, self.words, self.texts, self.batches = model, words, texts, batches

    def __call__(self) -> np.ndarray:
        scores = np.empty(len(self.texts))
        for batch in self.batches:
            inputs = self.words(
                [self.texts[i] for i in batch],
                padding=True,
                return_tensors="pt",
                add_special_tokens=False,
            ).to(self.model.device)
            inputs.pop("token_type_ids", None)
            with torch.inference_mode():
                scores[batch] = self.model(**inputs).logits[:, 0].float().cpu().numpy()
        return scores


def batches_of(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[i : i + size] for i in range(0, len(numbers), size)]


def by_style(responses: pd.DataFrame, size: int) -> list[list[int]]:
    """RM-Bench's order: style after style; its chosen answers in one batch, its
    rejected ones in another.
    """
    cells = (
        responses.reset_index(drop=True)
        .groupby(["slot", "label"], observed=True, sort=True)
        .groups
    )
    return [
        batch for numbers in cells.values() for batch in batches_of(list(numbers), size)
    ]


def padded_tokens(lengths: np.ndarray, batches: list[list[int]]) -> int:
    return int(sum(len(batch) * lengths[batch].max() for batch in batches))


def pipeline(model: Any, words: Any, texts: list[str]) -> Callable[[], np.ndarray]:
    from transformers import pipeline as make

    run = make("text-classification", model=model, tokenizer=words, device=model.device)
    bos = words.bos_token or ""
    # The pipeline adds the BOS token itself.
    plain = [text.removeprefix(bos) for text in texts]
    return lambda: run(plain, batch_size=1, function_to_apply="none")


def forward_alone(scorer: Any, prepared: Any) -> Run:
    """The forward passes by themselves: token ids and reads are ready."""
    sequences, reads = scorer.places(prepared, np.arange(len(prepared.ids)))
    groups, budget = prepared.groups, scorer.max_batch_tokens

    def run() -> None:
        for batch in scorer.backbone.hidden(
            sequences, reads, groups=groups, budget=budget
        ):
            batch.rows.sum().item()

    return run


def make(name: str, options: argparse.Namespace, folder: Path) -> Run:
    """What runs one way, with all that it needs loaded from the folder."""
    sample = load(options.data, options.prompts)[1]
    if name in OURS:
        scorer = classifier(
            folder,
            dtype=options.dtype,
            device=options.device,
            max_batch_tokens=options.budget,
        )
        return ours(name, scorer, sample)
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)
    dtype = getattr(torch, options.dtype)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype)
    return theirs(name, model.to(options.device).eval(), words, sample)


def ours(name: str, scorer: Any, sample: pd.DataFrame) -> Run:
    _ = scorer.backbone.packing  # loads the weights
    given = sample["prompt"].tolist(), sample["response"].tolist()
    if name == "rmlab":
        return lambda: scorer(*given)
    return forward_alone(scorer, scorer.prepare(*given))


def theirs(name: str, model: Any, words: Any, sample: pd.DataFrame) -> Run:
    texts = render(words, sample)
    if name.startswith("pipeline"):
        return pipeline(model, words, texts)
    if "RM-Bench" in name:
        return Padded(model, words, texts, by_style(sample, 8))
    return Padded(model, words, texts, batches_of([*range(len(texts))], 64))


def seconds(run: Run, device: str) -> float:
    """Wall-clock seconds on a GPU."""
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    """Until the GPU has done what it was given."""
    if device.startswith("mps"):
        torch.mps.synchronize()
    else:
        torch.cuda.synchronize(device)


class Worker:
    """A process of its own for one way, so that it finds no memory that another left
    behind; started, not forked.

    `make(*given)` loads what is needed there and returns what is timed. A fork would
    hang: it has none of the threads that torch's pool believes in.
    """

    def __init__(
        self, make: Callable[..., Callable[..., object]], *given: object
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._ours, theirs = spawn.Pipe()
        self._process = spawn.Process(
            target=serve, args=(theirs, make, given), daemon=True
        )
        self._process.start()
        theirs.close()

    def run(
        self, threads: int, *given: object, core: int | None = None
    ) -> dict[str, float]:
        """Seconds of one run on so many threads: "wall" by the clock, "process" of the
        processor.

        `core`: the only one to run on, None: any.
        """
        self._ours.send((threads, core, given))
        taken: dict[str, float] = self._ours.recv()
        return taken

    def close(self) -> None:
        self._ours.send(None)
        self._process.join()


def serve(
    connection: Any,
    make: Callable[..., Callable[..., object]],
    given: tuple[object, ...],
) -> None:
    """What a worker's process does: load, then time one run for each message."""
    run = make(*given)
    while (message := connection.recv()) is not None:
        threads, core, asked = message
        torch.set_num_threads(threads)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(
                0, range(os.cpu_count() or 1) if core is None else [core]
            )
        wall, process = time.perf_counter(), time.process_time()
        run(*asked)
        connection.send(
            {
                "wall": time.perf_counter() - wall,
                "process": time.process_time() - process,
            }
        )


def tokens_of(scorer: Any, frame: pd.DataFrame) -> dict[str, int]:
    """Tokens that each way forwards: exact, the same on every machine."""
    prepared = scorer.prepare(frame["prompt"].tolist(), frame["response"].tolist())
    lengths, numbers = (
        np.array([len(ids) for ids in prepared.ids]),
        list(range(len(frame))),
    )
    packing = scorer.backbone.packing
    made = plan(prepared.ids, prepared.groups, packing=packing)
    fewest = plan(
        prepared.ids, prepared.groups, budget=10**9, fill=None, packing=packing
    )
    return {
        WAYS[0]: padded_tokens(lengths, batches_of(numbers, 64)),
        WAYS[1]: padded_tokens(lengths, by_style(frame, 8)),
        WAYS[2]: int(lengths.sum()),
        WAYS[3]: made.tokens,
        WAYS[4]: made.tokens,
        "fewest possible": fewest.tokens,
    }


def product(options: argparse.Namespace) -> Run:
    """A large matrix product: the ceiling of this device."""
    dtype = getattr(torch, options.dtype)
    side = SIDE if options.device == "cpu" else GPU_SIDE
    a = torch.randn(side, side, device=options.device, dtype=dtype)
    return lambda: a @ a


SIDE = 4096
PEAK = 2 * SIDE**3
# A smaller product is over before a GPU's clock can be read.
GPU_SIDE = 8192
GPU_PEAK = 2 * GPU_SIDE**3


def on_processor(
    options: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Where it ran, and seconds of every way and of the product, round by round, so
    that a noisy moment hits all alike.
    """
    workers = {name: Worker(make, name, options, folder) for name in options.ways}
    workers["product"] = Worker(product, options)
    for threads in options.threads:
        times: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(options.rounds):
            for name, worker in workers.items():
                times[name].append(worker.run(threads)[options.clock])
        yield "1 thread" if threads == 1 else f"{threads} threads", times
    for worker in workers.values():
        worker.close()


def on_device(
    options: argparse.Namespace, scorer: Any, words: Any
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """The same on a GPU, where all ways share the scorer's model."""
    sample = load(options.data, options.prompts)[1]
    ways = {}
    for name in options.ways:
        if name in OURS:
            ways[name] = ours(name, scorer, sample)
        else:
            ways[name] = theirs(name, scorer.checkpoint.model, words, sample)
    ways["product"] = product(options)
    for name, run in ways.items():
        first = seconds(run, options.device)
        print(f"{name}: {first:.1f} s in the first round, which compiles", flush=True)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, run in ways.items():
            times[name].append(seconds(run, options.device))
    yield options.device, times


def table_of(
    options: argparse.Namespace,
    everything: pd.DataFrame,
    sample: pd.DataFrame,
    words: Any,
) -> pd.DataFrame:
    """A row for each way: tokens on all texts over rmlab's, and for each number of
    threads, or the GPU, seconds and two ratios.
    """
    with tempfile.TemporaryDirectory() as place:
        if options.device == "cpu":
            folder = build(Path(place) / "model", options, words)
            weights = dict(shapes(folder))
            scorer = classifier(folder, device="cpu")
            measured = on_processor(options, folder)
            operations = PEAK
        else:
            model = build_on_device(options, words)
            weights = {name: one.shape for name, one in model.named_parameters()}
            scorer = classifier(model, tokenizer=words, max_batch_tokens=options.budget)
            measured = on_device(options, scorer, words)
            operations = GPU_PEAK
        n_weights = sum(
            np.prod(shape) for name, shape in weights.items() if "embed" not in name
        )
        whole = tokens_of(scorer, everything)
        some = tokens_of(scorer, sample)
        table = pd.DataFrame({"tokens, all texts": whole}).loc[
            [*options.ways, "fewest possible"]
        ]
        table["times rmlab's"] = table["tokens, all texts"] / whole["rmlab"]
        for on, times in measured:
            peak = operations / min(times.pop("product"))
            for name, taken in times.items():
                middle = statistics.median(taken)
                ratios = np.divide(taken, times["rmlab"])
                table.loc[name, f"s, {on}"] = middle
                table.loc[name, f"times rmlab, {on}"] = statistics.median(ratios)
                share = 2 * n_weights * some[name] / middle / peak
                table.loc[name, f"share of peak, {on}"] = share
            rate = some["rmlab"] / statistics.median(times["rmlab"])
            print(
                f"{on}: rmlab {rate:,.0f} tokens/s, matrix product {peak / 1e9:,.0f} GFLOP/s"
            )
    return table


def shapes(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a checkpoint's weights."""
    from safetensors import safe_open

    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as held:
            for name in held.keys():  # noqa: SIM118  # a handle, not a mapping
                yield name, tuple(held.get_slice(name).get_shape())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--architecture", choices=("llama", "qwen3", "modernbert"), default="llama"
    )
    parser.add_argument("--size", choices=SIZES, default="32m")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=12, help="0: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, nargs="*", default=sorted({1, os.cpu_count() or 1})
    )
    parser.add_argument("--clock", choices=("wall", "process"), default="wall")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    everything, _ = load(options.data, options.prompts)
    words = toy.tokenizer(
        [*everything["prompt"].unique(), *everything["response"]], vocab_size=16384
    )
    keep(
        options,
        table_of(options, everything, load(options.data, options.prompts)[1], words),
    )


def keep(options: argparse.Namespace, table: pd.DataFrame) -> None:
    name = f"scoring_{options.architecture}_{options.size}_{options.dtype}_{options.device.split(':')[0]}"
    options.out.mkdir(parents=True, exist_ok=True)
    table.round(3).rename_axis("way").to_csv(options.out / f"{name}.csv")
    print(table.round(2).to_string(), flush=True)


if __name__ == "__main__":
    main()
