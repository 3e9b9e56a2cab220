"""What a GPU will do, as far as a CPU can show it: the way over kernels with stand-ins
for what only a GPU has.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from as_alone import assert_as_alone, assert_same, scores, scores_alone
from pairwise_models import save
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

from rmlab import toy
from rmlab.inference import flex, memory, planning
from rmlab.inference.backbone import Backbone, Batch
from rmlab.inference.memory import (
    model_budget,
    upload,
)
from rmlab.inference.planning import Packing, plan
from rmlab.scorers.classifier import classifier
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.models import loading
from rmlab.scorers.pairwise import pairwise
from rmlab.scorers.readout import pool_states

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:torch", "ignore::DeprecationWarning"
)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Attention goes the way over kernels; these are traced by dynamo, but computed by
    torch without a compiler.
    """
    monkeypatch.setattr(flex, "WITHOUT_KERNELS", set())
    monkeypatch.setattr(flex, "BACKEND", "eager")
    flex.compiled.cache_clear()
    yield
    COMPILED.cache_clear()


def noted(caplog):
    """What the package said, a line each."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("rmlab")
    ]


COMPILED = flex.compiled


@pytest.fixture
def counter(as_on_a_gpu, monkeypatch):
    """Counts the kernels that are compiled."""
    counter = CompileCounter()
    monkeypatch.setattr(flex, "BACKEND", counter)
    return counter


# The way over kernels


@pytest.mark.parametrize(
    ("architecture", "options", "sights"),
    [
        ("llama", {}, 1),
        (
            "llama",
            {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2},
            1,
        ),
        ("mistral", {"sliding_window": 50}, 1),
        ("gemma2", {"sliding_window": 50}, 2),
        ("gpt2", {"n_positions": 512}, 1),
        ("bert", {"max_position_embeddings": 512}, 1),
        ("modernbert", {}, 2),
    ],
)
def test_scores_are_those_of_each_text_alone(
    load_backbone, world, as_on_a_gpu, counter, architecture, options, sights
):
    """One kernel for each window, whatever number of rows the packs have, none compiled
    twice.
    """
    backbone = load_backbone(architecture, **options)
    packing = backbone.packing
    assert packing.refused is None
    assert_as_alone(backbone, world, (1000,), -1 if packing.shares else 0)
    assert counter.frame_count == sights
    assert str(backbone.passes.kernels) == "flex attention"


@pytest.mark.parametrize(
    ("architecture", "options"), [("llama", {}), ("mistral", {"sliding_window": 50})]
)
def test_packs_go_on_over_kernels_too(load_backbone, counter, architecture, options):
    """A prompt that is larger than the budget, forwarded once; kept keys get a kernel
    of their own.
    """
    rng = np.random.default_rng(0)
    prompt = rng.integers(8, 490, 700)
    texts = [np.r_[prompt, rng.integers(8, 490, n)] for n in (30, 200, 5)] + [
        rng.integers(8, 490, 50)
    ]
    world = texts, np.array([0, 0, 0, 1])
    backbone = load_backbone(architecture, **options)
    passes = plan(*world, budget=300, fill=None, packing=backbone.packing)
    assert (passes.tokens, sum(part.n_cached > 0 for part in passes.parts)) == (
        plan(*world, budget=10**6, fill=None).tokens,
        3,
    )
    assert_as_alone(backbone, world, (300,))
    assert str(backbone.passes.kernels) == "flex attention"
    assert counter.frame_count == 2, "1,024 keys, and 1,024 cached ones more"


# bfloat16 and Apple's GPU


@pytest.mark.parametrize(
    ("hip", "capability", "dtype"),
    [
        (None, (7, 0), "float32"),
        (None, (7, 5), "float32"),
        (None, (8, 6), "bfloat16"),
        ("6.4", (9, 0), "bfloat16"),
    ],
)
def test_bfloat16_only_where_the_gpu_meant_computes_in_it(
    monkeypatch, hip, capability, dtype
):
    """A T4 emulates it; another GPU of the same machine, the current one, says nothing
    of this one.
    """
    capabilities = {torch.device("cuda:0"): (9, 0), torch.device("cuda:1"): capability}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert loading.dtype(None, torch.device("cuda:1")) == getattr(torch, dtype)
    assert loading.dtype("bfloat16", torch.device("cuda:1")) == torch.bfloat16


def make_run(kind, folder, **options):
    """What scores prompts with the answers of a tiny model of this kind."""
    if kind == "classifier":
        return classifier(toy.save_model(folder), **options)
    if kind == "implicit":
        return implicit_reward(toy.save_model(folder, task="causal"), **options)
    judge = pairwise(save(kind, folder), **options)
    return lambda prompts, answers: judge.prefer(prompts, answers, answers[::-1])


# Kernels that cannot be had


class Compiler:
    """Stands for a compiler that `refuses` packs of some rows; notes their rows."""

    def __init__(self, refuses):
        self.refuses, self.asked = refuses, []

    def __call__(self, kind):
        whole = COMPILED(kind)

        def run(query, *given):
            rows = query.shape[2]
            self.asked.append(rows)
            if self.refuses(rows):
                raise NotImplementedError("no room for this kernel\nand a long trace")
            return whole(query, *given)

        return run


def test_kernels_that_compute_something_else_are_not_used(
    load_backbone, world, as_on_a_gpu, monkeypatch
):
    """The model goes in batches."""

    def wrong(kind):
        whole = COMPILED(kind)
        return lambda *given: whole(*given).roll(1, dims=2)

    monkeypatch.setattr(flex, "compiled", wrong)
    backbone = load_backbone("llama")
    assert_as_alone(backbone, world)
    assert "different from texts alone" in backbone.packing.refused


def test_lack_of_memory_is_no_reason_to_change_kernels(
    load_backbone, world, as_on_a_gpu, monkeypatch, caplog
):
    backbone = load_backbone("llama")
    assert backbone.packing.refused is None
    reference = scores_alone(backbone, world[0])
    fails = [RuntimeError("Triton Error [CUDA]: out of memory")]

    def compiled(kind):
        whole = COMPILED(kind)

        def run(*given):
            if fails:
                raise fails.pop()
            return whole(*given)

        return run

    monkeypatch.setattr(flex, "compiled", compiled)
    assert_same(scores(backbone, world, 1000), reference)
    assert "out of memory at" in caplog.text
    assert str(backbone.passes.kernels) == "flex attention"


# The limit on compilations


def test_more_kernels_than_torch_compiles_of_one_function(
    load_backbone, world, as_on_a_gpu, counter, monkeypatch
):
    """Sizes and windows make four; torch gives up after `recompile_limit`, and would
    compute rows x rows.
    """
    texts, groups = world
    longest = np.random.default_rng(1).integers(8, 490, 700)
    monkeypatch.setattr(planning, "SIZES", (512, 1024))
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(2):
            model = load_backbone("gemma2", sliding_window=50)
            assert_as_alone(model, ([*texts, longest], np.r_[groups, 9]), (400,))
            assert str(model.passes.kernels) == "flex attention"
        assert torch._dynamo.config.recompile_limit == 1
    assert counter.frame_count == 4, "models share kernels"


# Memory


@pytest.mark.parametrize(
    ("device", "device_map", "budget"),
    [
        ("cpu", {}, 4096),
        ("meta", {}, 16384),
        ("meta", {"": 0, "layers": "cpu"}, 65536),
    ],
)
def test_the_budget_is_that_of_the_device_and_fills_a_kernel(
    device, device_map, budget
):
    model = SimpleNamespace(device=torch.device(device), hf_device_map=device_map)
    assert model_budget(model) == budget
    assert flex.filled(budget) == budget


# Copies, and the order of things


LARGE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


class Copies(TorchDispatchMode):
    """Notes what goes from one device to another, and every number that the host asks
    for.
    """

    def __init__(self):
        super().__init__()
        self.noted = []

    def __torch_dispatch__(self, function, types, given=(), named=None):
        out = function(*given, **(named or {}))
        devices = {one.device for one in [*given, out] if isinstance(one, torch.Tensor)}
        if (
            len(devices) > 1
            or "local_scalar" in str(function)
            or "nonzero" in str(function)
        ):
            self.noted.append(str(function))
        return out


def test_a_large_llama_runs_from_plan_to_states_with_one_copy_a_pack(
    as_on_a_gpu, monkeypatch
):
    """On the meta device, which knows shapes and devices but no numbers: nothing is
    copied inside the layers.
    """

    def compiled(kind):
        def run(query, key, value, mask):
            rows = mask.shape[-1]
            assert query.shape[2] == key.shape[2] == value.shape[2] == rows
            assert mask.kv_indices.device.type == "meta"
            return query.new_empty(*query.shape[:3], value.shape[3])

        return run

    monkeypatch.setattr(flex, "compiled", compiled)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(
            transformers.LlamaConfig(**LARGE), dtype=torch.bfloat16
        ).eval()
    packing = Packing(None)
    monkeypatch.setattr("rmlab.inference.trial.find_packing", lambda passes: packing)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 128256, 80) for _ in range(24)]
    texts = [
        np.r_[prompt, rng.integers(0, 128256, n)]
        for prompt in prompts
        for n in rng.integers(50, 500, 6)
    ]
    groups, reads = (
        np.repeat(np.arange(24), 6),
        [np.array([len(text) - 1]) for text in texts],
    )
    made = plan(texts, groups, budget=16384, fill=None, packing=packing)
    seen = []
    with Copies() as copies:
        for batch in Backbone(model).hidden(texts, reads, groups=groups):
            assert batch.rows.shape == (len(batch.texts), model.config.hidden_size)
            seen += batch.texts.tolist()
    assert sorted(seen) == list(range(len(texts)))
    assert len(copies.noted) == len(made.parts), copies.noted
    assert len(made.parts) == 3


def test_each_read_is_the_mean_of_its_positions():
    rows = torch.randn(30, 5)
    where = [np.arange(12), np.array([29]), np.arange(11, 30)]
    counts = np.array([[len(some)] for some in where])
    means = pool_states(Batch(np.arange(3), rows, where), counts)[:, 0]
    expected = torch.stack([rows[some].mean(0) for some in where])
    torch.testing.assert_close(means, expected)


def test_an_upload_is_pinned_and_not_waited_for(monkeypatch):
    """Arrays of several integer types and shapes in one copy."""
    asked = []

    def pin_memory(tensor):
        asked.append("pinned")
        return tensor

    def to(tensor, device, non_blocking=False):
        asked.append((device.type, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    arrays = {
        "ids": np.arange(7)[None],
        "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    sent = upload(arrays, torch.device("cuda"))
    assert asked == ["pinned", ("cuda", True)]
    for name, values in arrays.items():
        assert sent[name].dtype == torch.int64
        np.testing.assert_array_equal(sent[name].numpy(), values)


@pytest.fixture
def cuda_events(monkeypatch):
    """Events of CUDA that only note that they were waited for."""
    log = []

    class Event:
        made = 0

        def __init__(self):
            self.number, Event.made = Event.made, Event.made + 1

        def record(self, stream):
            log.append(f"mark {self.number}")

        def synchronize(self):
            log.append(f"wait {self.number}")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    return log


@pytest.mark.parametrize("kind", ["classifier", "implicit", "letters"])
def test_scorers_launch_ahead(tmp_path, monkeypatch, kind, cuda_events):
    """The forward pass and the head of the next pack come before the last one's scores
    are waited for.
    """
    prompts = [f"What is {n} and {n}?" for n in range(4)]
    answers = ["It is more than that.", "Add them.", "I do not know.", "Nothing."]
    run = make_run(kind, tmp_path / "m", max_batch_tokens=16)
    expected = run(prompts, answers)
    monkeypatch.setattr(memory, "COPIES_BEHIND", {"cpu"})
    np.testing.assert_array_equal(run(prompts, answers), expected)
    log = ["launch" if step.startswith("mark") else "read" for step in cuda_events]
    packs = log.count("launch")
    assert packs >= 4
    assert log == ["launch", *["launch", "read"] * (packs - 1), "read"]


def test_the_provenance_says_which_way_packs_go_and_why(
    load_backbone, as_on_a_gpu, monkeypatch
):
    def find_way(architecture, *options):
        backbone = load_backbone(architecture, *options)
        _ = backbone.packing
        return backbone.way

    assert find_way("llama") == "texts with shared prefixes; flex attention"
    monkeypatch.setattr(flex, "compiled", Compiler(lambda rows: True))
    assert "run by run (no kernel for 80 rows" in find_way("llama", torch.bfloat16)
    assert "does not go" in find_way("deberta-v2")
