"""What rmlab does on this machine's GPU, in five minutes, as text to paste into an
issue.

Small models with random weights: does attention go over kernels, do packs come out as
texts alone, in float32 and in half precision. Then how fast each way is, packs over
flex attention and packs run by run, beside texts one by one: tokens per second, and the
share of the peak of matrix products that the model's weights use. Whoever has a GPU
sees which way should stay.

    make gpu-check                      # or: python performance/gpu_check.py --device cuda:0
    python performance/gpu_check.py --device cpu --quick      # what a machine without a GPU can show
"""

import argparse
import logging
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import numpy as np
import torch
import transformers

from rmlab import toy
from rmlab.inference import flex
from rmlab.inference.backbone import Backbone
from rmlab.inference.memory import model_budget
from rmlab.inference.planning import FILL, plan
from rmlab.scorers.models import loading
from rmlab.tables import DataError
from rmlab.toy.models import random_model

MODELS = {
    "Llama": ("llama", {}),
    "Llama, 3 heads share keys": (
        "llama",
        {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 384},
    ),
    "Mistral, window 200": ("mistral", {"sliding_window": 200, "head_dim": 64}),
    "Gemma 2, capped": (
        "gemma2",
        {
            "sliding_window": 200,
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            # Not every release of transformers takes one that knows the cap.
            "attn_implementation": "eager",
        },
    ),
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
    "num_key_value_heads": 8,
}
N_PROMPTS = {"cuda": 100, "cpu": 4}
"""Prompts of the timed run, six answers each; other devices as CUDA."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--quick", action="store_true", help="small texts and small models throughout"
    )
    parser.add_argument(
        "--models",
        nargs="*",
        choices=MODELS,
        default=[*MODELS],
        metavar="NAME",
        help=f"of the table of scores: {', '.join(MODELS)}",
    )
    parser.add_argument("--no-speed", action="store_true", help="scores only")
    options = parser.parse_args()
    logging.basicConfig(format="note: %(message)s", stream=sys.stdout)
    transformers.utils.logging.disable_progress_bar()
    device = loading.device(options.device)
    print("\n".join(machine(device)))
    if options.models:
        print("\n| model | dtype | packs hold | attention | apart, sd | seconds |")
        print("|---|---|---|---|---|---|")
    for name in options.models:
        architecture, shape = MODELS[name]
        for dtype in (torch.float32, torch.bfloat16):
            attempt(
                lambda *given: exactness(*given, device, options.quick),
                name,
                architecture,
                shape,
                dtype,
            )
    if options.no_speed:
        return
    # The wide model, 1 B parameters, is too slow for a CPU.
    is_small = options.quick or device.type == "cpu"
    for line in speed(device, SHAPE if is_small else WIDE):
        print(line, flush=True)


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
    tried = device.type not in flex.WITHOUT_KERNELS
    yield f"device {device}: {name_of(device)}; flex attention is tried on it: {tried}"
    yield f"default dtype: {short(loading.dtype(None, device))}"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    yield f"{versions}, Python {platform.python_version()}"
    yield f"triton: {version_of('triton')}, {platform.system()} {platform.machine()}"


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def name_of(device: torch.device) -> str:
    if device.type != "cuda":
        return platform.processor() or platform.machine()
    about = torch.cuda.get_device_properties(device)
    memory = f"{about.total_memory / 2**30:.0f} GiB"
    return f"{about.name}, {memory}, capability {about.major}.{about.minor}"


def version_of(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def load(
    architecture: str, shape: dict, dtype: torch.dtype, device: torch.device
) -> Backbone:
    """A random model, made on the device."""
    settings = {"num_key_value_heads": 4, "max_position_embeddings": 8192}
    settings = SHAPE | settings | shape
    settings = {key: value for key, value in settings.items() if value is not None}
    with torch.device(device):
        model = random_model(
            toy.tokenizer(),
            architecture,
            task="backbone",
            seed=0,
            initializer_range=0.05,
            dtype=dtype,
            **settings,
        )
    return Backbone(model.eval())


def texts_of(
    prompts: int, lengths: tuple[int, int]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Six answers to each prompt of 60 tokens."""
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(prompts):
        prompt = rng.integers(8, 490, 60)
        for n_tokens in rng.integers(*lengths, 6):
            texts.append(np.r_[1, prompt, rng.integers(8, 490, n_tokens)])
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
    backbone = load(architecture, shape, dtype, device)
    texts, groups = texts_of(4 if quick else 16, (20, 60) if quick else (50, 500))
    packing = backbone.packing
    reads = [np.array([len(text) - 1 if packing.shares else 0]) for text in texts]
    size = backbone.model.config.hidden_size
    direction = torch.randn(size, generator=torch.Generator().manual_seed(0))
    direction = direction.to(device)
    packed, single = torch.zeros(len(texts)), torch.zeros(len(texts))
    for batch in backbone.hidden(texts, reads, groups=groups):
        packed[batch.texts] = (
            batch.rows[np.concatenate(batch.where)] @ direction
        ).cpu()
    for number, (text, at) in enumerate(zip(texts, reads, strict=True)):
        single[number] = (backbone.alone(text, at)[0] @ direction).cpu()
    apart = float((packed - single).abs().max() / single.std())
    taken = time.perf_counter() - start
    cells = [name, short(dtype), packing, way_of(backbone), f"{apart:.1g}"]
    return "| " + " | ".join(map(str, [*cells, f"{taken:.1f}"])) + " |"


def way_of(backbone: Backbone) -> str:
    """Which way attention goes."""
    if backbone.model.device.type in flex.WITHOUT_KERNELS:
        return "run by run"
    return str(backbone.passes.kernels)


def speed(device: torch.device, shape: dict) -> Iterator[str]:
    """Both ways of packs and texts one by one: a row for each."""
    dtype = loading.dtype(None, device)
    backbone = load("llama", shape, dtype, device)
    texts, groups = texts_of(N_PROMPTS.get(device.type, 100), (50, 500))
    reads = [np.array([len(text) - 1]) for text in texts]
    budget = model_budget(backbone.model)
    planned = plan(
        texts,
        groups,
        budget=budget,
        fill=FILL.get(device.type),
        packing=backbone.packing,
    )

    def packs() -> None:
        for batch in backbone.hidden(texts, reads, groups=groups):
            last = batch.rows
        last.sum().item()

    def one_by_one() -> None:
        for text, at in zip(texts, reads, strict=True):
            last = backbone.alone(text, at)
        last.sum().item()

    n_weights = sum(weight.numel() for weight in backbone.model.parameters())
    n_weights -= backbone.model.get_input_embeddings().weight.numel()
    peak = matrix_peak(device, dtype)
    yield (
        f"\nLlama of {n_weights / 1e6:,.0f} M weights, {short(dtype)}: {len(texts)} texts, "
        f"{planned.tokens:,} tokens in {len(planned.parts)} packs of at most {budget:,}; "
        f"matrix products reach {peak / 1e12:,.2f} TFLOP/s here"
    )
    yield "| way | seconds | tokens per second | share of peak | host, ms a pack |"
    yield "|---|---|---|---|---|"

    def row(way: str, run: Callable[[], None], n_tokens: int, n_passes: int) -> str:
        run()  # compiles
        taken = statistics.median(seconds(run) for _ in range(3))
        start = time.process_time()
        run()
        host = (time.process_time() - start) / n_passes
        share = 2 * n_weights * n_tokens / taken / peak
        cells = [way, f"{taken:.2f}", f"{n_tokens / taken:,.0f}", f"{share:.2f}"]
        return "| " + " | ".join([*cells, f"{1e3 * host:.1f}"]) + " |"

    without_kernels = flex.WITHOUT_KERNELS
    n_packs = len(planned.parts)
    try:
        # Elsewhere than on a GPU it compiles for the processor.
        flex.WITHOUT_KERNELS = set()
        yield row("packed, flex attention", packs, planned.tokens, n_packs)
        if backbone.passes.kernels.trouble:
            yield str(backbone.passes.kernels)
        flex.WITHOUT_KERNELS = {device.type}
        yield row("packed, run by run", packs, planned.tokens, n_packs)
        n_tokens = sum(len(text) for text in texts)
        yield row("one by one", one_by_one, n_tokens, len(texts))
    finally:
        flex.WITHOUT_KERNELS = without_kernels


def matrix_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second in products of large matrices, the best of five."""
    n = 8192 if device.type == "cuda" else 1024
    left = torch.randn(n, n, device=device, dtype=dtype)

    def multiply() -> None:
        (left @ left)[0, 0].item()

    multiply()
    return 2 * n**3 / min(seconds(multiply) for _ in range(5))


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(str(error))
