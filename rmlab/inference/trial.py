"""How texts of a model can go through it together: read from its settings, then tried
with one small pack.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmlab.inference.attention import Call, PrefixCache
from rmlab.inference.memory import out_of_memory
from rmlab.inference.passes import Passes, rotary_settings, takes_argument
from rmlab.inference.planning import (
    Groups,
    Ints,
    Packing,
    Run,
    Texts,
    Tokens,
    lay_out,
    pack,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

# Kinds of layers that path attention knows.
_LAYERS = {"full_attention", "sliding_attention"}

# What a model raises that cannot take what it is given, or that calls what torch or
# transformers has renamed.
_FAILURES = (
    TypeError,
    ValueError,
    LookupError,
    RuntimeError,
    AttributeError,
    ImportError,
    AssertionError,
)

# The relative distance up to which states count as equal, by the bytes of a number.
# Wrong rows are off by about their own length, 1; rounding is far below that in
# float32, and may come to hundredths in half precision.
NOISE = {2: 0.1, 4: 1e-3, 8: 1e-3}

# The same before any attention: rounded once or twice by then, so that another position
# is plain in any number type.
_ENTRY_NOISE = 0.02

# Tokens of a pack: all texts of the trial fit into the first, and their common
# beginning, 28 tokens, does not fit into the second.
_LARGE = 4096
_SMALL = 20


def find_packing(passes: Passes) -> Packing:
    """How texts go through the model together.

    Asks the model's settings first. Then forwards a pack of short texts: every layer
    must come to path attention and ask for nothing that it lacks, and each text must
    come out as it does alone. Texts that cannot share a pack are padded where that
    changes nothing. A GPU's kernels that compute something else are not used.
    """
    refused = read_refusal(passes.model)
    if refused is not None:
        return Packing(refused, pads=_pads(passes))

    packing = _try_packing(passes)
    # It may be the kernels that are wrong, not the packs.
    kernels = passes.kernels
    if packing.refused and kernels.serve(passes.model.device):
        kernels.trouble = packing.refused
        without_kernels = _try_packing(passes)
        kernels.trouble = ""
        if not without_kernels.refused:
            kernels.refuse(packing.refused)
            packing = without_kernels
    if packing.refused:
        packing = replace(packing, pads=_pads(passes))
    return packing


def can_cache(passes: Passes) -> bool:
    """Do texts come out the same where a pack goes on from the keys and values of the
    one before?

    Tried only for prompts that are larger than a pack: a GPU compiles kernels of their
    own for it.
    """
    texts = _trial_texts(passes.model.config, 0)[:3]
    return _try_packs(passes, texts, [0, 0, 0], _SMALL, causal=True).refused is None


def read_refusal(model: "PreTrainedModel") -> str | None:
    """Why texts cannot share a pack, by the model's settings alone; its weights may be
    on torch's meta device.
    """
    config = model.config.get_text_config()
    # Layers with a state that runs along the row (Mamba, linear attention) would carry
    # it from text to text.
    layer_types = getattr(config, "layer_types", None) or ()
    strange = sorted(set(layer_types) - _LAYERS)
    if model.config.is_encoder_decoder:
        return "it is an encoder with a decoder"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention does not go through transformers' attention interface"
    if not takes_argument(model, "position_ids"):
        return "its forward pass takes no position_ids"
    # Llama 4 counts rows for it, in steps of thousands, which no short text shows.
    if getattr(config, "attn_temperature_tuning", False):
        return "its attention scales by rows"
    if strange:
        return f"it has layers of another kind: {', '.join(strange)}"
    return None


def _try_packing(passes: Passes) -> Packing:
    """The result of forwarding a small pack: as a decoder's, and as an encoder's if the
    model looks both ways.
    """
    model = passes.model
    config = model.config.get_text_config()
    # Learned positions may run out in a pack that has more rows than they are.
    n_learned = 0
    if not rotary_settings(config):
        n_learned = getattr(config, "max_position_embeddings", 0)

    texts = _trial_texts(model.config, n_learned - 8)
    trial = _try_packs(passes, texts, [0, 0, 0, 1, 2], _LARGE, causal=True)
    causal = True
    kinds = {call.kind for call in trial.calls}
    if kinds and not any(kind.causal for kind in kinds):
        # Texts several windows long, so that what lies outside of a window shows; an
        # encoder's share nothing.
        windows = [kind.window for kind in kinds if kind.window]
        longest = max(n_learned - 8, 6 * min(windows, default=0))
        texts = _trial_texts(model.config, longest)
        trial = _try_packs(passes, texts, range(5), _LARGE, causal=False)
        causal = False
    if trial.refused:
        return Packing(trial.refused)

    return Packing(None, causal)


def _trial_texts(config: "PreTrainedConfig", longest: int) -> list[Ints]:
    """Three texts with common beginnings and two that lie apart, the last of these of
    up to `longest` tokens.
    """
    vocabulary = getattr(config.get_text_config(), "vocab_size", 256)
    n_tokens = 80 + min(max(longest, 16), 1024)
    ids = np.random.default_rng(0).integers(0, vocabulary, n_tokens)
    # The second text leaves the first after 28 tokens, the third leaves the second six
    # tokens later: a branch in a branch.
    return [
        ids[:34],
        np.r_[ids[:28], ids[40:50]],
        np.r_[ids[:28], ids[40:46], ids[60:65]],
        ids[65:80],
        ids[80:],
    ]


class _PackTrial(NamedTuple):
    """Why texts do not come out of packs as they do alone, None where they do; the last
    pack's attention calls.
    """

    refused: str | None
    calls: list[Call]


def _try_packs(
    passes: Passes, texts: Texts, groups: Groups, budget: int, *, causal: bool
) -> _PackTrial:
    """Forward the texts in packs, and each alone."""
    config = passes.model.config.get_text_config()
    cache = PrefixCache()
    calls: list[Call] = []
    complaints: list[str] = []
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        # Of each run the first row, behind what is shared, and the last: where a wrong
        # path or position shows.
        ends = [(run.start, run.stop - 1) for run in layout.runs]
        try:
            with _layer_inputs(passes.model) as entered:
                states, calls = passes.packed_rows(layout, np.ravel(ends), cache)
        except _FAILURES as error:
            if out_of_memory(error):
                raise
            return _PackTrial(f"it does not run with path attention: {error}", [])

        complaints += _call_complaints(config, calls, causal=causal)
        per_run = zip(part.texts, layout.runs, states.split(2), strict=True)
        for text, run, run_states in per_run:
            rows = slice(run.start - layout.n_cached, run.stop - layout.n_cached)
            run_inputs = [inputs[..., rows, :] for inputs in entered]
            complaints += _run_complaints(
                passes, texts[text], run, run_inputs, run_states
            )
    return _PackTrial(next(iter(complaints), None), calls)


def _run_complaints(
    passes: Passes, ids: Tokens, run: Run, entered: "list[Tensor]", ends: "Tensor"
) -> Iterator[str]:
    """Differences between a text alone and its run in a pack: what `entered` the first
    layer, states at its `ends`.
    """
    stop = run.offset + run.stop - run.start
    noise = NOISE[passes.model.dtype.itemsize]
    with _layer_inputs(passes.model) as entered_alone:
        ends_alone = passes.alone(ids, np.array([run.offset, stop - 1]))
    # Before any attention: a model that adds positions of its own to the embeddings is
    # found out here.
    for packed, single in zip(entered, entered_alone, strict=False):
        distance = _distance(packed.float(), single[..., run.offset : stop, :].float())
        if not distance <= min(noise, _ENTRY_NOISE):
            enter = "tokens in a pack enter the first layer"
            yield f"{enter} different from tokens of texts alone"
    distance = _distance(ends, ends_alone)
    if not distance <= noise:
        come_out = "texts in a pack come out different from texts alone"
        yield f"{come_out} (relative distance {distance:.2g})"


def _call_complaints(
    config: "PreTrainedConfig", calls: list[Call], *, causal: bool
) -> Iterator[str]:
    """What attention calls ask for that packs cannot give."""
    n_layers = config.num_hidden_layers
    if len(calls) != n_layers:
        yield f"{len(calls)} of its {n_layers} layers use the attention interface"
    for call in calls:
        for name in call.refused:
            yield f"its attention asks for {name}"
    # A window that a layer does not hand over would be missing in path attention.
    n_windows = sum(call.kind.window is not None for call in calls)
    if n_windows != _count_windows(config, len(calls)):
        yield "it has sliding windows that its layers do not hand to attention"
    if any(call.kind.causal != causal for call in calls):
        if causal:
            yield "it attends in both directions"
        else:
            yield "only some of its layers attend in both directions"


def _count_windows(config: "PreTrainedConfig", n_layers: int) -> int:
    """How many layers have a window by the configuration."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        return list(layer_types).count("sliding_attention")
    uses_windows = getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None)
    return n_layers if window and uses_windows else 0


@contextmanager
def _layer_inputs(model: "PreTrainedModel") -> "Iterator[list[Tensor]]":
    """A list that takes what enters the first layer inside the block, (..., rows,
    hidden) for each pass; it stays empty where the model has no list of its layers.
    """
    import torch

    # Found by their number, as names differ from model to model.
    n_layers = model.config.get_text_config().num_hidden_layers
    first_layer: torch.nn.Module = model
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == n_layers:
            first_layer = module[0]
            break

    states: list[Tensor] = []

    def note(_: "torch.nn.Module", inputs: "tuple[Tensor, ...]") -> None:
        # A model itself takes no positional arguments.
        states.extend(inputs[:1])

    hook = first_layer.register_forward_pre_hook(note)
    try:
        yield states
    finally:
        hook.remove()


def _pads(passes: Passes) -> bool:
    """Do two texts come out of a padded batch as they do alone, at both ends?"""
    import torch

    # BigBird's attention goes by the length of the batch.
    if hasattr(passes.model, "set_attention_type"):
        return False
    # Fifteen tokens and sixteen: the first is padded.
    shorter, longer = _trial_texts(passes.model.config, 0)[3:]
    texts = np.array([0, 0, 1, 1])
    ends = np.array([0, len(shorter) - 1, 0, len(longer) - 1])
    try:
        together = passes.padded_rows([shorter, longer], texts, ends)
        first = passes.alone(shorter, ends[:2])
        second = passes.alone(longer, ends[2:])
    except _FAILURES as error:
        if out_of_memory(error):
            raise
        return False
    noise = NOISE[passes.model.dtype.itemsize]
    return _distance(together, torch.cat([first, second])) <= noise


def _distance(left: "Tensor", right: "Tensor") -> float:
    """The largest relative distance of a row from what it should be."""
    lengths = right.norm(dim=-1).clamp_min(1e-6)
    # NaN is not below any bound, so it counts as different.
    return float(((left - right).norm(dim=-1) / lengths).max())
