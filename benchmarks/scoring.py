"""Scoring speed: rmlab beside the ways people score today, in one run, interleaved, median of several.

The texts are RM-Bench's; the tokenizer is a byte-level BPE trained on them; the models have random weights (speed does
not depend on their values). On a CPU every timed run is a fork of this process, so that no way finds the memory that
another one left behind. The other ways are written plainly below from the public behaviour of the runners:

  rewardbench 2, batches of 64   file order, padded to the longest of the batch
  RM-Bench, batches of 8         one style at a time, chosen and rejected apart, file order
  pipeline, batch 8 and 1        transformers.pipeline("text-classification"), no sigmoid
  CrossEncoder, batch 32         sentence_transformers, sorted by characters
  rmlab                          the classifier as users call it: texts in, scores out
  forward alone                  rmlab's forward passes on a ready plan: what the rest of rmlab adds to them

    python benchmarks/scoring.py                                    # CPU, 32 M parameters, float32
    python benchmarks/scoring.py --dtype bfloat16 --architecture qwen3
    python benchmarks/scoring.py --device cuda --size 8b --dtype bfloat16 --prompts 0

`--skip` leaves out ways by name; CrossEncoder needs sentence-transformers (the extra `bench`).
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import rmlab
from rmlab import toy
from rmlab.inference.forward import hidden, packing_support, plan
from rmlab.scorers import classifier

SIZES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4},
    "32m": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8},
    "149m": {"hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12},
    "250m": {"hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 12},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
}
ENCODERS = ("modernbert", "bert")


def load(data: Path, prompts: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All responses at hand, and a sample of `prompts` prompts spread evenly over the files (0: all)."""
    everything = rmlab.load("rm-bench", path=data)
    ids = everything.drop_duplicates(["subset", "id"])[["subset", "id"]]
    if not prompts:
        return everything, everything
    share = prompts // ids["subset"].nunique()
    picked = pd.concat(part.iloc[:: max(len(part) // share, 1)].head(share) for _, part in ids.groupby("subset"))
    return everything, everything.merge(picked, on=["subset", "id"])


def build(folder: Path, options: argparse.Namespace, words: Any) -> Path:
    shape = dict(SIZES[options.size])
    if options.architecture not in ENCODERS:
        shape |= {"num_key_value_heads": shape["num_attention_heads"] // 2 if options.size != "tiny" else 2}
        shape |= {"head_dim": shape["hidden_size"] // shape["num_attention_heads"]}
        shape |= {"max_position_embeddings": 8192}
    else:
        shape |= {"max_position_embeddings": 8192, "local_attention": 128, "global_attn_every_n_layers": 3}
    toy.save_model(folder, options.architecture, words=words, initializer_range=0.02, **shape)
    return folder


def render(words: Any, responses: pd.DataFrame) -> list[str]:
    """Conversations as text, with the chat template."""
    return [
        words.apply_chat_template([{"role": "user", "content": p}, {"role": "assistant", "content": r}], tokenize=False)
        for p, r in zip(responses["prompt"], responses["response"], strict=True)
    ]


class Padded:
    """Batches in a given order, padded to the longest of the batch: what the public runners do."""

    def __init__(self, model: Any, words: Any, texts: list[str], batches: list[list[int]]) -> None:
        self.model, self.words, self.texts, self.batches = model, words, texts, batches

    def __call__(self) -> np.ndarray:
        scores = np.empty(len(self.texts))
        for batch in self.batches:
            inputs = self.words(
                [self.texts[i] for i in batch], padding=True, return_tensors="pt", add_special_tokens=False
            ).to(self.model.device)
            inputs.pop("token_type_ids", None)
            with torch.inference_mode():
                scores[batch] = self.model(**inputs).logits[:, 0].float().cpu().numpy()
        return scores


def batches_of(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[i : i + size] for i in range(0, len(numbers), size)]


def by_style(responses: pd.DataFrame, size: int) -> list[list[int]]:
    """RM-Bench's order: style after style; its chosen answers in one batch, its rejected ones in another."""
    cells = responses.reset_index(drop=True).groupby(["slot", "label"], observed=True, sort=True).groups
    return [batch for numbers in cells.values() for batch in batches_of(list(numbers), size)]


def padded_tokens(lengths: np.ndarray, batches: list[list[int]]) -> int:
    return int(sum(len(batch) * lengths[batch].max() for batch in batches))


def pipeline(model: Any, words: Any, texts: list[str], size: int) -> Callable[[], np.ndarray]:
    from transformers import pipeline as make

    run = make("text-classification", model=model, tokenizer=words, device=model.device)
    bos = words.bos_token or ""
    plain = [text.removeprefix(bos) for text in texts]  # the pipeline adds the beginning token itself
    return lambda: np.array(
        [found["score"] for found in run(plain, batch_size=size, function_to_apply="none", padding=True)]
    )


def cross_encoder(folder: Path, responses: pd.DataFrame, options: argparse.Namespace) -> Callable[[], np.ndarray]:
    from sentence_transformers import CrossEncoder

    bare = folder.with_name("bare")  # without a chat template: with one it renders query and document messages
    shutil.copytree(folder, bare, copy_function=os.link, ignore=shutil.ignore_patterns("chat_template*"))
    kind = {"dtype": getattr(torch, options.dtype)}
    model = CrossEncoder(str(bare), device=options.device, model_kwargs=kind, max_length=8192)
    pairs = list(zip(responses["prompt"], responses["response"], strict=True))
    identity = torch.nn.Identity()
    return lambda: model.predict(pairs, batch_size=32, activation_fn=identity, show_progress_bar=False)


def forward_alone(scorer: Any, prepared: Any) -> Callable[[], None]:
    """The forward passes by themselves: token ids and reads are ready."""
    sequences, reads = scorer.places(prepared, np.arange(len(prepared.keys)))
    groups = prepared.encoded.groups

    def run() -> None:
        for batch in hidden(scorer.backbone, sequences, reads, groups=groups, budget=scorer.budget):
            batch.rows.sum().item()

    return run


def seconds(run: Callable[[], object], device: str) -> float:
    """Wall-clock seconds on a GPU; on a CPU the processor time of a fork, which other programs do not stretch."""
    if device == "cpu":
        return in_fork(run)
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


def in_fork(run: Callable[[], object]) -> float:
    """Processor seconds of `run` in a child process that starts with all that is loaded here."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)

    def child() -> None:
        start = time.process_time()
        run()
        theirs.send(time.process_time() - start)

    process = fork.Process(target=child)
    process.start()
    theirs.close()
    taken: float = ours.recv()
    process.join()
    return taken


def ways_of(
    options: argparse.Namespace, folder: Path, sample: pd.DataFrame
) -> tuple[dict[str, Callable[[], object]], int, int]:
    """The ways by name, the tokens that rmlab forwards, and the weights that each token is multiplied with."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)
    kind = getattr(torch, options.dtype)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=kind).to(options.device).eval()
    texts = render(words, sample)
    numbers = list(range(len(texts)))
    scorer = classifier(folder, dtype=options.dtype, device=options.device, budget=options.budget)
    packing = packing_support(scorer.backbone)  # loads the weights
    prompts, answers = sample["prompt"].tolist(), sample["response"].tolist()
    prepared = scorer.prepare(prompts, answers)
    ways: dict[str, Callable[[], object]] = {
        "rewardbench 2, batches of 64": Padded(model, words, texts, batches_of(numbers, 64)),
        "RM-Bench, batches of 8": Padded(model, words, texts, by_style(sample, 8)),
        "pipeline, batch 8": pipeline(model, words, texts, 8),
        "pipeline, batch 1": pipeline(model, words, texts, 1),
        "rmlab": lambda: scorer(prompts, answers),
        "forward alone": forward_alone(scorer, prepared),
    }
    if "CrossEncoder, batch 32" not in options.skip:
        ways["CrossEncoder, batch 32"] = cross_encoder(folder, sample, options)
    forwarded = plan(prepared.encoded.ids, prepared.encoded.groups, packing=packing).tokens
    weights = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    return {name: run for name, run in ways.items() if name not in options.skip}, forwarded, weights


def token_table(options: argparse.Namespace, folder: Path, everything: pd.DataFrame) -> pd.DataFrame:
    """Tokens forwarded on all texts at hand: exact, the same on every machine."""
    scorer = classifier(folder, device="cpu")
    prepared = scorer.prepare(everything["prompt"].tolist(), everything["response"].tolist())
    ids, groups = prepared.encoded.ids, prepared.encoded.groups
    lengths = np.array([len(i) for i in ids])
    packing = packing_support(scorer.backbone)
    start = time.perf_counter()
    made = plan(ids, groups, packing=packing)
    planned = time.perf_counter() - start
    numbers = list(range(len(ids)))
    by_characters = sorted(numbers, key=lambda i: -len(everything["prompt"].iloc[i] + everything["response"].iloc[i]))
    tokens = {
        "rewardbench 2, batches of 64": padded_tokens(lengths, batches_of(numbers, 64)),
        "RM-Bench, batches of 8": padded_tokens(lengths, by_style(everything, 8)),
        "pipeline, batch 8": padded_tokens(lengths, batches_of(numbers, 8)),
        "pipeline, batch 1": int(lengths.sum()),
        "CrossEncoder, batch 32": padded_tokens(lengths, batches_of(by_characters, 32)),
        "rmlab": made.tokens,
        "fewest possible": made.minimum,
    }
    print(f"{len(ids)} texts planned in {planned:.2f} s")
    return pd.DataFrame({"tokens, all texts": tokens}).assign(ratio=lambda f: f["tokens, all texts"] / made.tokens)


def matmul_rate(options: argparse.Namespace) -> float:
    """Floating-point operations per second of a large matrix product: the ceiling of this device."""
    size = 8192 if options.device != "cpu" else 2048
    a = torch.randn(size, size, device=options.device, dtype=getattr(torch, options.dtype))
    best = min(seconds(lambda: [a @ a for _ in range(4)], options.device) for _ in range(3))
    return 4 * 2 * size**3 / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", choices=("llama", "qwen3", "modernbert"), default="llama")
    parser.add_argument("--size", choices=SIZES, default="32m")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=20, help="0: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--skip", nargs="*", default=[], help="names of ways to leave out")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "rm-bench")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    everything, sample = load(options.data, options.prompts)
    words = toy.tokenizer([*everything["prompt"].unique(), *everything["response"]], vocab_size=16384)
    with tempfile.TemporaryDirectory() as place:
        folder = build(Path(place) / "model", options, words)
        tokens = token_table(options, folder, everything)
        ways, forwarded, weights = ways_of(options, folder, sample)
        times = measure(options, ways)
    table = summary(options, tokens, times)
    keep(options, table)
    report_rate(options, forwarded, weights, statistics.median(times["rmlab"]))


def measure(options: argparse.Namespace, ways: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of every way, repeat by repeat, so that a noisy moment hits all alike."""
    if options.device != "cpu":
        for name in ("rmlab", "forward alone"):
            ways[name]()  # compilation
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, run in ways.items():
            times[name].append(seconds(run, options.device))
    return times


def summary(options: argparse.Namespace, tokens: pd.DataFrame, times: dict[str, list[float]]) -> pd.DataFrame:
    ratio = {name: statistics.median(np.divide(run, times["rmlab"])) for name, run in times.items()}
    timed = pd.DataFrame({"seconds": {n: statistics.median(t) for n, t in times.items()}, "times rmlab": ratio})
    return tokens.join(timed, how="outer").loc[[*timed.index, "fewest possible"]].round(3)


def keep(options: argparse.Namespace, table: pd.DataFrame) -> None:
    name = f"scoring_{options.architecture}_{options.size}_{options.dtype}_{options.device.split(':')[0]}"
    options.out.mkdir(parents=True, exist_ok=True)
    table.rename_axis("way").to_csv(options.out / f"{name}.csv")
    print(table.to_string())
    draw(table, options.out / f"{name}.png", name)


def report_rate(options: argparse.Namespace, forwarded: int, weights: int, taken: float) -> None:
    """Tokens per second, and which share of the device's matrix products they use (2 operations a weight and token)."""
    ceiling = matmul_rate(options)
    share = 2 * weights * forwarded / taken / ceiling
    print(f"rmlab: {forwarded / taken:,.0f} tokens/s, {share:.0%} of {ceiling / 1e12:.2f} TFLOP/s (matrix product)")


def draw(table: pd.DataFrame, path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = table["times rmlab"].dropna()[::-1]
    figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    bars = ax.barh(
        shown.index, shown, color=["#2166ac" if n in ("rmlab", "forward alone") else "#bbbbbb" for n in shown.index]
    )
    ax.bar_label(bars, fmt="%.2f", padding=3)
    ax.set(xlabel="time, relative to rmlab", title=title.replace("_", " "))
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
