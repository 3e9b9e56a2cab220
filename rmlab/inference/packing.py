"""How texts of a model can go through it together: read from its settings, then tried with one small pack."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call, Kept
from rmlab.inference.flex import kernels, serves
from rmlab.inference.memory import out_of_memory
from rmlab.inference.passes import accepts, alone, packed_rows, padded_rows
from rmlab.inference.planning import Groups, Ints, Packing, Run, Texts, Tokens, lay_out, pack

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

_LAYERS = {"full_attention", "sliding_attention"}  # kinds that path attention knows

_FAILURES = (TypeError, ValueError, KeyError, IndexError, RuntimeError)
"""What a model raises that cannot take what it is given."""

_SMALL = 20
"""Tokens of a pack that the common beginning of the trial's texts, 28 tokens, does not fit into."""

# By model, so that answers go with it.
_packings: "WeakKeyDictionary[PreTrainedModel, Packing]" = WeakKeyDictionary()
_prefix_caches: "WeakKeyDictionary[PreTrainedModel, bool]" = WeakKeyDictionary()


def packing_support(backbone: "PreTrainedModel") -> Packing:
    """How texts go through this model together.

    Asks the model's settings first. Then forwards a pack of short texts: every layer must come to path attention and
    ask for nothing that it lacks, and each text must come out as it does alone. Texts that cannot share a pack are
    padded where that changes nothing. A GPU's kernels that compute something else are not used. The answer is kept for
    as long as the model lives.
    """
    if backbone not in _packings:
        refused = read_refusal(backbone)
        packing = Packing(refused) if refused else _try_packing(backbone)
        # Refused by trial on a GPU: it may be the kernels that are wrong, not the packs.
        if packing.refused and not refused and _has_kernels(backbone):
            with kernels(backbone).paused():
                without_kernels = _try_packing(backbone)
            if without_kernels.packed:
                kernels(backbone).refuse(packing.refused)
                packing = without_kernels
        _packings[backbone] = packing if packing.packed else replace(packing, pads=_pads(backbone))
    return _packings[backbone]


def supports_prefix_cache(backbone: "PreTrainedModel") -> bool:
    """Do texts come out the same where a pack goes on from the keys and values of the one before?

    Tried only for prompts that are larger than a pack: a GPU compiles kernels of their own for it. The answer is kept.
    """
    if backbone not in _prefix_caches:
        is_packed, texts = packing_support(backbone).packed, _trial_texts(backbone, 0)[:3]
        _prefix_caches[backbone] = is_packed and not _try_packs(backbone, texts, [0, 0, 0], _SMALL, causal=True)[0]
    return _prefix_caches[backbone]


def how_packed(backbone: "PreTrainedModel") -> tuple[str | None, str]:
    """For people: what packs hold and how attention goes, None before that is known; and what kernels lack, if any."""
    packing = _packings.get(backbone)
    if packing is None or not packing.packed or not serves(backbone.device):
        return None if packing is None else str(packing), ""
    return f"{packing}; {kernels(backbone)}", kernels(backbone).trouble


def read_refusal(backbone: "PreTrainedModel") -> str | None:
    """Why texts cannot share a pack, by the model's settings alone; its weights may be on torch's meta device."""
    config = backbone.config.get_text_config()
    # Layers with a state that runs along the row (Mamba, linear attention) would carry it from text to text.
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS)
    if backbone.config.is_encoder_decoder:
        return "it is an encoder with a decoder"
    if not getattr(backbone, "_supports_attention_backend", False):
        return "its attention does not go through transformers' attention interface"
    if not accepts(backbone, "position_ids"):
        return "its forward pass takes no position_ids"
    if getattr(config, "attn_temperature_tuning", False):
        # Llama 4 counts rows for it, in steps of thousands, which no short text shows.
        return "its attention scales by rows"
    return f"it has layers of another kind: {', '.join(strange)}" if strange else None


def _has_kernels(backbone: "PreTrainedModel") -> bool:
    """Does attention go through a GPU's kernels?"""
    return serves(backbone.device) and kernels(backbone).usable


def _try_packing(backbone: "PreTrainedModel") -> Packing:
    """The result of forwarding a small pack: as a decoder's, and as an encoder's if the model looks both ways."""
    config = backbone.config.get_text_config()
    # Learned positions may run out in a pack that has more rows than they are.
    learned = 0 if getattr(config, "rope_parameters", None) else getattr(config, "max_position_embeddings", 0)
    texts, causal = _trial_texts(backbone, learned - 8), True
    refused, calls = _try_packs(backbone, texts, [0, 0, 0, 1, 2], 4096, causal=True)
    if calls and not any(call.view.causal for call in calls):
        # Texts several windows long, so that what lies outside of a window shows; an encoder's share nothing.
        nearest = min((call.view.window for call in calls if call.view.window), default=0)
        texts, causal = _trial_texts(backbone, max(learned - 8, 6 * nearest)), False
        refused, calls = _try_packs(backbone, texts, range(5), 4096, causal=False)
    if refused:
        return Packing(refused)
    half_differs = backbone.dtype.itemsize < 4 and _has_kernels(backbone)
    return Packing(None, causal, frozenset(call.view for call in calls), half_differs=half_differs)


def _trial_texts(backbone: "PreTrainedModel", longest: int) -> list[Ints]:
    """Three texts with common beginnings and two that lie apart, the last of these of up to `longest` tokens."""
    ids = _random_ids(backbone, 80 + min(max(longest, 16), 1024))
    # The second text leaves the first after 28 tokens, the third leaves the second six tokens later: a branch in a
    # branch.
    return [ids[:34], np.r_[ids[:28], ids[40:50]], np.r_[ids[:28], ids[40:46], ids[60:65]], ids[65:80], ids[80:]]


def _try_packs(
    backbone: "PreTrainedModel", texts: Texts, groups: Groups, budget: int, *, causal: bool
) -> tuple[str | None, list[Call]]:
    """Why the texts do not come out of packs as they do alone, None where they do; the last pack's attention calls."""
    kept, calls, complaints = Kept(), list[Call](), list[str]()
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        # Of each run the first row, behind what is shared, and the last: where a wrong path or position shows.
        rows = np.concatenate([[run.start, run.stop - 1] for run in layout.runs])
        try:
            with _first_layer_inputs(backbone) as inputs:
                states, calls = packed_rows(backbone, layout, rows, prefix=kept)
        except _FAILURES as error:
            if out_of_memory(error):
                raise
            return f"it does not run with path attention: {error}", []
        complaints += _call_complaints(backbone.config.get_text_config(), calls, causal=causal)
        for text, run, ends in zip(part.texts, layout.runs, states.split(2), strict=True):
            entered = [rows[0, run.start - layout.kept : run.stop - layout.kept] for rows in inputs]
            complaints += _run_complaints(backbone, texts[text], run, entered, ends)
    return next(iter(complaints), None), calls


def _run_complaints(
    backbone: "PreTrainedModel", ids: Tokens, run: Run, entered: "list[Tensor]", ends: "Tensor"
) -> Iterator[str]:
    """Differences between a text alone and its run in a pack: what `entered` the first layer, states at its `ends`."""
    stop = run.offset + run.stop - run.start
    with _first_layer_inputs(backbone) as inputs:
        ends_alone = alone(backbone, ids, np.array([run.offset, stop - 1]))
    # Before any attention: a model that adds positions of its own to the embeddings is found out here.
    for packed, single in zip(entered, inputs, strict=False):
        # Rounded once or twice by now, so that another position is plain in any dtype.
        if not _distance(packed.float(), single[0, run.offset : stop].float()) <= min(_noise(backbone), 0.02):
            yield "tokens in a pack enter the first layer different from tokens of texts alone"
    apart = _distance(ends, ends_alone)
    if not apart <= _noise(backbone):
        yield f"texts in a pack come out different from texts alone (relative distance {apart:.2g})"


def _call_complaints(config: "PreTrainedConfig", calls: list[Call], *, causal: bool) -> Iterator[str]:
    """What attention calls ask for that packs cannot give."""
    if len(calls) != config.num_hidden_layers:
        yield f"{len(calls)} of its {config.num_hidden_layers} layers use the attention interface"
    yield from (f"its attention asks for {name}" for call in calls for name in call.refused)
    # A window that a layer does not hand over would be missing in path attention.
    layer_types = getattr(config, "layer_types", None)
    slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    windows = layer_types.count("sliding_attention") if layer_types else len(calls) * bool(slides)
    if windows != sum(call.view.window is not None for call in calls):
        yield "it has sliding windows that its layers do not hand to attention"
    if any(call.view.causal != causal for call in calls):
        yield "it attends in both directions" if causal else "only some of its layers attend in both directions"


@contextmanager
def _first_layer_inputs(backbone: "PreTrainedModel") -> "Iterator[list[Tensor]]":
    """Inside the block: what enters the first layer, (1, rows, hidden) for each pass."""
    import torch

    inputs: list[Tensor] = []
    # By their number, as names of layers differ from model to model.
    n_layers = backbone.config.get_text_config().num_hidden_layers
    lists = (module for module in backbone.modules() if isinstance(module, torch.nn.ModuleList))
    layers = next((list(modules) for modules in lists if len(modules) == n_layers), [])
    handles = [layer.register_forward_pre_hook(lambda _, args: inputs.extend(args[:1])) for layer in layers[:1]]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()


def _pads(backbone: "PreTrainedModel") -> bool:
    """Do two texts come out of a padded batch as they do alone, at both of their ends?"""
    import torch

    if hasattr(backbone, "set_attention_type"):  # BigBird's attention goes by the length of the batch
        return False
    ids = _random_ids(backbone, 16)
    texts = [ids[:9], ids[9:]]  # nine tokens and seven: the second is padded
    ends = [np.array([0, len(text) - 1]) for text in texts]
    try:
        single = torch.cat([alone(backbone, text, reads) for text, reads in zip(texts, ends, strict=True)])
        together = padded_rows(backbone, texts, np.array([0, 0, 1, 1]), np.concatenate(ends))
    except _FAILURES as error:
        if out_of_memory(error):
            raise
        return False
    return _distance(together, single) <= _noise(backbone)


def _random_ids(backbone: "PreTrainedModel", n: int) -> NDArray[np.intp]:
    """Token ids for a trial, the same every time."""
    vocabulary = getattr(backbone.config.get_text_config(), "vocab_size", 256)
    return np.random.default_rng(0).integers(0, vocabulary, n)


def _noise(backbone: "PreTrainedModel") -> float:
    """The relative distance up to which states count as equal."""
    # Wrong rows are off by about their own length, 1. Rounding is far below that in float32, and may come to hundredths
    # in half precision.
    return 1e-3 if backbone.dtype.itemsize >= 4 else 0.1


def _distance(left: "Tensor", right: "Tensor") -> float:
    """The largest relative distance of a row from what it should be."""
    # NaN is not below any bound, so it counts as different.
    return float(((left - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-6)).max())
