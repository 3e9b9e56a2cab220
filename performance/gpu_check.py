"""What rmlab does on this machine's GPU, in five minutes, as text to paste into an
issue.

Small models with random weights: does attention go over kernels, do packs come out as
texts alone, in float32 and in half precision; how fast, and how much of a pack's time
is the host's.

    make gpu-check                      # or: python performance/gpu_check.py --device cuda:0
    python performance/gpu_check.py --device cpu --quick      # what a machine without a GPU can show
"""

import argparse
import logging
import platform
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import transformers

from rmlab import toy
from rmlab.inference.flex import kernels, serves
from rmlab.inference.forward import hidden
from rmlab.inference.memory import model_budget
from rmlab.inference.passes import alone, packing_support
from rmlab.inference.planning import plan
from rmlab.scorers.models import backbone as backbones
from rmlab.tables import DataError

MODELS = {
    "Llama": ("llama", {}),
    "Llama, 3 heads share keys": (
        "llama",
        {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 384},
    ),
    "Mistral, window 200": ("mistral", {"sliding_window": 200}),
    "Gemma 2, capped": ("gemma2", {"sliding_window": 200}),
    "ModernBERT": ("modernbert", {"num_key_value_heads": None}),
}
SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}
WIDE = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small texts and no timing of a larger model",
    )
    options = parser.parse_args()
    logging.basicConfig(format="note: %(message)s", stream=sys.stdout)
    transformers.utils.logging.disable_progress_bar()
    device = backbones.device(options.device)
    print("\n".join(machine(device)))
    print(
        "\n| model | dtype | packs hold | attention | apart, sd | seconds |\n|---|---|---|---|---|---|"
    )
    for name, (architecture, shape) in MODELS.items():
        for dtype in (torch.float32, torch.bfloat16):
            attempt(
                lambda *given: exactness(*given, device, options.quick),
                name,
                architecture,
                shape,
                dtype,
            )
    if not options.quick:
        attempt(lambda name: speed(device), "speed")


def attempt(check: Callable[..., str], name: str, *given: object) -> None:
    """Print what a check found, or how it failed: one that fails must not hide the
    others.
    """
    try:
        print(check(name, *given), flush=True)
    except Exception:
        print(f"{name} FAILED\n{traceback.format_exc(limit=-6)}", flush=True)


def machine(device: torch.device) -> Iterator[str]:
    """The device, the versions, and what kernels need to be compiled."""
    yield f"device {device}: {name_of(device)}; flex attention has a kernel for it: {serves(device)}"
    yield f"default dtype: {str(backbones.dtype(None, device)).removeprefix('torch.')}"
    yield f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    yield f"triton: {version_of('triton')}, {platform.system()} {platform.machine()}"


def name_of(device: torch.device) -> str:
    if device.type != "cuda":
        return platform.processor() or platform.machine()
    about = torch.cuda.get_device_properties(device)
    return f"{about.name}, {about.total_memory / 2**30:.0f} GiB, capability {about.major}.{about.minor}"


def version_of(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def load(
    architecture: str, shape: dict, dtype: torch.dtype, device: torch.device
) -> torch.nn.Module:
    from transformers import AutoModel

    settings = (
        SHAPE | {"num_key_value_heads": 4, "max_position_embeddings": 8192} | shape
    )
    settings = {key: value for key, value in settings.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        toy.save_model(
            Path(folder),
            architecture,
            task="backbone",
            initializer_range=0.05,
            **settings,
        )
        return AutoModel.from_pretrained(folder, dtype=dtype).to(device).eval()


def texts_of(
    prompts: int, lengths: tuple[int, int]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Six answers to each prompt of 60 tokens."""
    rng = np.random.default_rng(0)
    begins = [rng.integers(8, 490, 60) for _ in range(prompts)]
    texts = [
        np.r_[1, begin, rng.integers(8, 490, n)]
        for begin in begins
        for n in rng.integers(*lengths, 6)
    ]
    return texts, np.repeat(np.arange(prompts), 6)


def exactness(
    name: str,
    architecture: str,
    shape: dict,
    dtype: torch.dtype,
    device: torch.device,
    quick: bool,
) -> str:
    """A row of the table: scores of packs against each text alone, in standard
    deviations.
    """
    start = time.perf_counter()
    model = load(architecture, shape, dtype, device)
    texts, groups = texts_of(4 if quick else 16, (20, 60) if quick else (50, 500))
    packing = packing_support(model)
    reads = [np.array([len(text) - 1 if packing.causal else 0]) for text in texts]
    direction = torch.randn(
        model.config.hidden_size, generator=torch.Generator().manual_seed(0)
    ).to(device)
    packed, single = torch.zeros(len(texts)), torch.zeros(len(texts))
    for batch in hidden(model, texts, reads, groups=groups):
        packed[batch.texts] = (batch.stacked()[:, 0] @ direction).cpu()
    for number, (text, at) in enumerate(zip(texts, reads, strict=True)):
        single[number] = (alone(model, text, at)[0] @ direction).cpu()
    apart = float((packed - single).abs().max() / single.std())
    way = str(kernels(model)) if serves(device) else "run by run"
    kind = str(dtype).removeprefix("torch.")
    return f"| {name} | {kind} | {packing} | {way} | {apart:.1g} | {time.perf_counter() - start:.1f} |"


def speed(device: torch.device) -> str:
    """Tokens per second of a model of 1 B parameters' shape, in packs and one by one;
    how much of it is the host's.
    """
    model = load(
        "llama",
        WIDE | {"num_key_value_heads": 8},
        backbones.dtype(None, device),
        device,
    )
    texts, groups = texts_of(200, (50, 500))
    reads = [np.array([len(text) - 1]) for text in texts]
    budget = model_budget(model)
    made = plan(texts, groups, budget=budget, fill=None, packing=packing_support(model))

    def packs() -> None:
        for batch in hidden(model, texts, reads, groups=groups):
            last = batch.rows
        last.sum().item()

    def one_by_one() -> None:
        for text, at in zip(texts[:200], reads[:200], strict=True):
            last = alone(model, text, at)
        last.sum().item()

    packs()  # compilation
    taken = statistics.median(seconds(packs) for _ in range(3))
    slow = (
        statistics.median(seconds(one_by_one) for _ in range(3))
        / sum(map(len, texts[:200]))
        * sum(map(len, texts))
    )
    start = time.process_time()
    packs()
    host = (time.process_time() - start) / len(made.parts)
    return (
        f"\n1 B Llama: {len(texts)} texts, {made.tokens} tokens in {len(made.parts)} packs of at most {budget}: "
        f"{taken:.2f} s, {made.tokens / taken:,.0f} tokens/s; one by one {slow / taken:.2f} times as long\n"
        f"a pack takes {1e3 * taken / len(made.parts):.1f} ms, {1e3 * host:.1f} ms of it on one processor core"
    )


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(str(error))
