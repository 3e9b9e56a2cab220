"""Hidden states: what comes out of packs and batches is what each text alone gives."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from operator import attrgetter
from threading import get_ident
from time import sleep

import numpy as np
import pytest
import torch
import transformers
from as_alone import (
    assert_as_alone,
    assert_same,
    assert_states_as_alone,
    padded_scores,
    scores,
    scores_alone,
)

from rmlab.inference import attention, flex
from rmlab.inference.backbone import Backbone
from rmlab.inference.memory import out_of_memory
from rmlab.inference.planning import Packing, lay_out, pack, plan

# torch before 2.8 raises a RuntimeError where later ones have a class for it.
ACCELERATOR_ERROR = getattr(torch, "AcceleratorError", RuntimeError)
DECODERS = ["llama", "qwen2", "qwen3", "mistral", "gemma2", "gpt_neox", "gpt2"]
ENCODERS = ["deberta-v2", "modernbert", "bert"]
packed_encoders = pytest.mark.skipif(
    int(transformers.__version__.partition(".")[0]) < 5,
    reason="transformers before 5: encoders without its attention interface are padded",
)


def forwarded(backbone):
    """A list that fills with the tokens of every pass."""
    sizes = []
    backbone.model.get_input_embeddings().register_forward_hook(
        lambda layer, inputs, out: sizes.append(inputs[0].numel())
    )
    return sizes


def replace_forward(backbone, forward):
    """Another forward method, which is given the old one first."""
    original = backbone.model.forward

    def replaced(input_ids, position_ids=None, **options):
        return forward(original, input_ids, position_ids=position_ids, **options)

    backbone.model.forward = replaced


def run_out_of_memory(backbone, when):
    """A list that fills with the tokens of every pass, which fails `when` this says so
    of the list.
    """
    sizes = []

    def fail(forward, input_ids, **options):
        sizes.append(input_ids.numel())
        if when(sizes):
            raise torch.OutOfMemoryError
        return forward(input_ids=input_ids, **options)

    replace_forward(backbone, fail)
    return sizes


@pytest.mark.parametrize("architecture", DECODERS)
def test_packs_give_what_each_text_alone_gives(load_backbone, world, architecture):
    """In any order; the rows that go through the model are the plan's tokens, and no
    more.
    """
    texts, groups = world
    backbone = load_backbone(architecture)
    assert backbone.packing.refused is None
    assert_as_alone(backbone, world, (1, 250, 900, None))
    order = np.random.default_rng(1).permutation(len(texts))
    reference, sizes = scores_alone(backbone, texts)[order], forwarded(backbone)
    moved = scores(backbone, ([texts[i] for i in order], groups[order]), 500)
    assert np.abs(moved - reference).max() <= 1e-5 * reference.std()
    assert sum(sizes) == plan(*world, budget=500).tokens < sum(map(len, texts))


@pytest.fixture(scope="module")
def long_world():
    """A prompt of 700 tokens with five answers, one of them the beginning of another,
    and a few short texts.
    """
    rng = np.random.default_rng(3)
    prompt, opening = rng.integers(8, 490, 700), rng.integers(8, 490, 40)
    long = [np.r_[prompt, rng.integers(8, 490, n)] for n in (30, 5, 90)]
    long += [np.r_[prompt, opening], np.r_[prompt, opening, rng.integers(8, 490, 60)]]
    short = [rng.integers(8, 490, n) for n in (20, 40)]
    return [*long, *short, long[4].copy()], np.array([0, 0, 0, 0, 0, 1, 2, 0])


LONG = {"gpt2": {"n_positions": 1024}}


def fewest_tokens(world):
    """The nodes of one trie per prompt: a pack that holds everything."""
    return plan(*world, budget=10**6, fill=None).tokens


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_prompt_larger_than_the_budget_is_forwarded_once(
    load_backbone, long_world, architecture
):
    """Whole and in pieces; the rows that go through the model are the trie's, however
    small the packs.
    """
    backbone = load_backbone(architecture, **LONG.get(architecture, {}))
    packing = backbone.packing
    reference, sizes = scores_alone(backbone, long_world[0]), forwarded(backbone)
    for budget in (64, 300, 701):
        sizes.clear()
        assert_same(scores(backbone, long_world, budget), reference)
        passes = plan(*long_world, budget=budget, packing=packing)
        assert (
            sum(sizes)
            == passes.tokens
            == fewest_tokens(long_world)
            <= 700 + 30 + 5 + 90 + 100 + 60
        )
        assert max(sizes) <= budget
        assert 700 <= max(part.n_to_cache for part in passes.parts) <= 800


@pytest.mark.parametrize("budget", [64, 300])
def test_what_is_read_of_earlier_packs_is_kept(load_backbone, long_world, budget):
    """Positions all over the texts, as implicit rewards read them: in the prompt, in
    answers that are cut.
    """
    rng = np.random.default_rng(0)
    reads = [
        np.sort(rng.choice(len(ids), min(len(ids), 30), replace=False))
        for ids in long_world[0]
    ]
    assert_states_as_alone(load_backbone("llama"), long_world, reads, budget)


def test_out_of_memory_in_the_middle_of_a_prompt(load_backbone, long_world, caplog):
    """What is done stays done; the rest begins anew with half the budget."""
    backbone = load_backbone("llama")
    assert backbone.packing.refused is None
    reference = scores_alone(backbone, long_world[0])
    sizes = run_out_of_memory(backbone, lambda sizes: len(sizes) == 4)
    assert_same(scores(backbone, long_world, 200), reference)
    assert caplog.text.count("out of memory at 200 tokens") == 1
    assert max(sizes[4:]) == 100


@packed_encoders
@pytest.mark.parametrize("architecture", ["modernbert", "bert"])
def test_packs_of_encoders_give_what_each_text_alone_gives(
    load_backbone, world, architecture
):
    """The first position, as encoders are read; nothing is padded, and a common
    beginning is not shared.
    """
    world = [np.r_[1, ids] for ids in world[0]], world[1]
    backbone = load_backbone(architecture)
    assert backbone.packing.refused is None
    assert not backbone.packing.shares
    passes = plan(*world, budget=900, packing=backbone.packing)
    assert passes.tokens == sum(map(len, world[0][:-1])), (
        "the last text stands there twice"
    )
    assert_as_alone(backbone, world, (1, 250, 900, None), position=0)


@pytest.mark.parametrize("architecture", [*ENCODERS, "llama", "gemma2"])
def test_batches_give_what_each_text_alone_gives(
    load_backbone, world, architecture, monkeypatch
):
    """Padding in some of them; the first position of encoders. Models that could be
    packed are told not to be.
    """
    batches = Packing("asked for")
    monkeypatch.setattr("rmlab.inference.trial.find_packing", lambda passes: batches)
    position = 0 if architecture in ENCODERS else -1
    world = [np.r_[1, ids, ids[:1].repeat(100)] for ids in world[0]], world[1]
    passes = plan(*world, budget=3000, packing=batches)
    assert passes.tokens > sum(map(len, world[0][:-1]))
    backbone = load_backbone(architecture)
    assert_as_alone(backbone, world, (1, 900, 3000), position)


def test_many_reads_per_text(load_backbone, world):
    """Positions of all kinds, shared ones and none at all; equal texts may be read at
    different places.
    """
    rng = np.random.default_rng(0)
    reads = [
        np.sort(rng.choice(len(ids), rng.integers(0, min(len(ids), 6)), replace=False))
        for ids in world[0]
    ]
    assert_states_as_alone(load_backbone("qwen2"), world, reads, 600)


@pytest.mark.parametrize("window", [3, 16, 64, 4096])
@pytest.mark.parametrize("architecture", ["gemma2", "mistral", "qwen2"])
def test_sliding_windows_are_kept_inside_a_pack(
    load_backbone, world, long_world, architecture, window
):
    """And reach back into earlier packs."""
    extra = (
        {"use_sliding_window": True, "max_window_layers": 1}
        if architecture == "qwen2"
        else {}
    )
    backbone = load_backbone(architecture, sliding_window=window, **extra)
    assert backbone.packing.refused is None
    assert_as_alone(backbone, world, (900,))
    if window > 3 and architecture != "qwen2":
        assert_as_alone(backbone, long_world, (50, 300))


WHOLE = [
    (name, "world", [900]) for name in ("llama", "gemma2", "gpt2", "modernbert", "bert")
]
IN_PIECES = [(name, "long_world", [300, 5000]) for name in ("llama", "gemma2")]


@pytest.mark.parametrize(("architecture", "name", "budgets"), WHOLE + IN_PIECES)
def test_bfloat16_noise_is_at_most_half_of_padding(
    load_backbone, request, architecture, name, budgets
):
    """Against each text alone in bfloat16, beside file-order batches of eight, padded
    where they are not read.
    """
    world, backbone = (
        request.getfixturevalue(name),
        load_backbone(architecture, torch.bfloat16),
    )
    at = -1 if backbone.packing.shares else 0
    single = scores_alone(backbone, world[0], at)
    noise = np.abs(padded_scores(backbone, world[0], at) - single).max()
    for budget in budgets:
        apart = np.abs(scores(backbone, world, budget, at) - single).max()
        assert apart <= max(0.5 * noise, 1e-5 * single.std())


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_stretch_with_the_longest_text(load_backbone, world, kind):
    """Such a text must not change the scale of the others: each comes out as it does
    alone, shortest first.
    """
    texts, _ = world
    rope = {
        "rope_type": kind,
        "factor": 4.0,
        "original_max_position_embeddings": 120,
    }
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    # As transformers 4 has it, which 5 translates.
    config = {
        "rope_scaling": rope,
        "rope_theta": 1e4,
        "max_position_embeddings": 120 if kind == "dynamic" else 480,
        "original_max_position_embeddings": 120,
    }
    assert min(map(len, texts)) < 120 < max(map(len, texts))
    reference = np.empty(len(texts))
    for text in np.argsort([len(ids) for ids in texts], kind="stable"):
        reference[text] = scores_alone(
            load_backbone("llama", **config), texts[text : text + 1]
        )[0]
    backbone = load_backbone("llama", **config)
    assert backbone.packing.refused is None
    assert_same(scores(backbone, world, 2000), reference)


TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize("architecture", ["mobilebert", "convbert"])
def test_a_model_that_padding_changes_gets_texts_of_one_length(world, architecture):
    """Both mix a token with its neighbours, padding included."""
    world = [ids[:n] for ids in world[0] for n in (7, 8)], np.repeat(world[1], 2)
    config = transformers.CONFIG_MAPPING[architecture](
        **TINY,
        vocab_size=512,
        embedding_size=32,
        intra_bottleneck_size=32,
        true_hidden_size=32,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    backbone = Backbone(transformers.AutoModel.from_config(config).eval())
    backbone.model.get_input_embeddings().weight.data[0] = (
        1  # the pad token is not always nothing
    )
    packing = backbone.packing
    assert packing.refused is not None
    assert not packing.pads
    passes = plan(*world, budget=3000, packing=packing)
    assert len(passes.parts) == 2
    assert_states_as_alone(
        backbone,
        world,
        [np.array([0, len(ids) - 1]) for ids in world[0]],
        tolerance=1e-3,
    )


def test_the_model_is_left_as_it_was(load_backbone, world):
    texts, groups = world
    backbone = load_backbone("llama")
    backbone.model.train()
    before = (
        backbone.model.config.to_dict(),
        backbone.model.config._attn_implementation,
        set(vars(backbone.model)),
    )
    steps = backbone.hidden(
        texts, [np.array([0])] * len(texts), groups=groups, budget=300
    )
    next(steps)
    for _ in range(2):
        assert (
            backbone.model.config.to_dict(),
            backbone.model.config._attn_implementation,
            set(vars(backbone.model)),
        ) == before
        assert backbone.model.training
        assert torch.is_grad_enabled()
        list(steps)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_threads_with_one_model_take_turns(load_backbone, world, architecture):
    backbone = load_backbone(architecture)
    assert backbone.packing.refused is None
    reference = scores_alone(backbone, world[0])
    inside, counts = set(), []

    def enter(model, inputs):
        inside.add(get_ident())
        counts.append(len(inside))
        sleep(0.005)

    backbone.model.register_forward_pre_hook(enter)
    backbone.model.register_forward_hook(
        lambda model, inputs, out: inside.discard(get_ident())
    )
    with ThreadPoolExecutor(2) as pool:
        results = list(
            pool.map(lambda budget: scores(backbone, world, budget), (600, 700))
        )
    assert max(counts) == 1
    for result in results:
        assert_same(result, reference)
    assert backbone.model.config._attn_implementation == "sdpa"


def assert_halved(sizes, limit, caplog):
    """The too large parts came first, each about half of the one before; what followed
    fitted.
    """
    failed = [size for size in sizes if size > limit]
    assert 1 <= len(failed) <= 3
    assert all(later <= earlier / 2 for earlier, later in pairwise(failed))
    assert max(sizes[len(failed) :]) <= limit
    assert caplog.text.count("out of memory") == len(failed)


def test_out_of_memory_halves_the_budget_and_goes_on(load_backbone, world, caplog):
    backbone = load_backbone("llama")
    assert backbone.packing.refused is None
    reference = scores_alone(backbone, world[0])
    sizes = run_out_of_memory(backbone, lambda sizes: sizes[-1] > 400)
    assert_same(scores(backbone, world, 2000), reference)
    assert_halved(sizes, 400, caplog)


def test_a_text_that_never_fits_is_named(load_backbone, world):
    backbone = load_backbone("llama")
    assert backbone.packing.refused is None
    run_out_of_memory(backbone, lambda sizes: True)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        scores(backbone, world, 400)
    assert re.match(r"text \d+ alone, \d+ tokens", caught.value.__notes__[0])
    assert backbone.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (ACCELERATOR_ERROR("CUDA error: out of memory\nCUDA kernel errors"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("shapes"), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(error, is_memory):
    assert out_of_memory(error) == is_memory


def ignore_positions(backbone):
    class Deaf(type(backbone.model)):
        def forward(self, input_ids, use_cache=None):
            return super().forward(input_ids=input_ids, use_cache=use_cache)

    backbone.model.__class__ = Deaf


def put(path, value):
    """A change of the attribute at the end of the path."""
    owner, _, name = path.rpartition(".")
    return lambda backbone: setattr(attrgetter(owner)(backbone.model), name, value)


def add_rows_before(share):
    """A layer that looks one row back, as a convolution does, leaks from one text into
    the next.
    """

    def leak(layer, inputs, out):
        return out + share * torch.nn.functional.pad(out[:, :-1], (0, 0, 1, 0))

    return lambda backbone: backbone.model.layers[0].register_forward_hook(leak)


KINDS = ["full_attention", "linear_attention"]
SEEN = ".*different from texts alone.*"
FAILS = "it does not run with path attention.*"


@pytest.mark.parametrize(
    ("architecture", "dtype", "change", "reason"),
    [
        ("deberta-v2", "float32", lambda backbone: None, ".*attention interface"),
        ("llama", "float32", put("config.attn_temperature_tuning", True), ".*by rows"),
        ("llama", "float32", put("config.layer_types", KINDS), ".*linear_attention"),
        ("llama", "float32", put("config.sliding_window", 8), ".*sliding windows.*"),
        ("llama", "float32", ignore_positions, ".*position_ids.*"),
        ("llama", "float32", add_rows_before(0.5), SEEN),
        ("llama", "bfloat16", add_rows_before(0.1), SEEN),  # where a text begins
        ("llama", "float32", put("layers.1.self_attn.forward", None), FAILS),
    ],
)
def test_models_that_cannot_pack_say_why(
    load_backbone, architecture, dtype, change, reason
):
    options = {"n_positions": 128} if architecture == "gpt2" else {}
    backbone = load_backbone(architecture, getattr(torch, dtype), **options)
    change(backbone)
    assert re.fullmatch(reason, backbone.packing.refused)


@packed_encoders
def test_a_model_that_looks_both_ways_in_some_layers_shares_nothing(
    load_backbone, world
):
    backbone = load_backbone("bert")
    backbone.model.encoder.layer[0].attention.self.is_causal = True
    assert not backbone.packing.shares


def queries_and_keys(layout, size, dtype=torch.float32):
    make = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, len(layout.ids), size, generator=make).to(dtype)
        for heads in (4, 2, 2)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 1, 65, 700])
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("causal", [True, False])
def test_every_row_attends_to_its_path(causal, softcap, window, dtype):
    """Against a table of who sees whom."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 9, 90)
    texts = [np.r_[prompt, rng.integers(0, 9, n)] for n in (300, 1, 700)]
    texts += [rng.integers(0, 9, n) for n in (1, 129)]
    groups = [0, 0, 0, 1, 2] if causal else range(5)
    layout = lay_out(pack(texts, groups, 10_000)[0], texts)
    query, key, value = queries_and_keys(layout, 16, dtype)
    kind = flex.Kind(window, 0.3, softcap, causal)
    attended = attention.attend(layout, kind, query, key, value)

    rows = np.arange(len(layout.ids))
    seen = layout.ends[:, None] == layout.ends
    if causal:
        seen = (rows <= rows[:, None]) & (rows[:, None] < layout.ends)
    distance = layout.positions[:, None] - layout.positions
    seen &= np.abs(distance) < (window or 10_000)
    logits = 0.3 * query.double() @ key.double().repeat_interleave(2, 1).transpose(2, 3)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    weights = logits.masked_fill(~torch.from_numpy(seen), -torch.inf).softmax(-1)
    expected = (weights @ value.double().repeat_interleave(2, 1)).transpose(1, 2)
    tolerance = 0.03 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(attended.double(), expected, rtol=0, atol=tolerance)
