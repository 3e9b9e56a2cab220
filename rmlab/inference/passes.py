"""One forward pass: a pack, a padded batch, or one text alone, read at the wanted
positions in float32.

How texts of a model can go through it together is read from its settings, then tried
with one small pack.
"""

import inspect
from collections.abc import Callable, Hashable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call, Kept, paths
from rmlab.inference.flex import View, has_kernels, kernels, serves, tables
from rmlab.inference.memory import offloaded, out_of_memory, upload
from rmlab.inference.planning import (
    Groups,
    Ints,
    Layout,
    Packing,
    Run,
    Texts,
    Tokens,
    filled,
    lay_out,
    pack,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedConfig, PreTrainedModel

# Where a pack needs at most this share of further rows to fill a kernel's size, they go
# through the whole model: that costs less than filling up queries, keys and values in
# every layer.
FILLING = 0.01

_locks: "WeakKeyDictionary[PreTrainedModel, Lock]" = WeakKeyDictionary()

_LAYERS = {"full_attention", "sliding_attention"}  # kinds that path attention knows

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

# Tokens of a pack that the common beginning of the trial's texts, 28 tokens, does not
# fit into.
_SMALL = 20

# By model, so that answers go with it.
_packings: "WeakKeyDictionary[PreTrainedModel, Packing]" = WeakKeyDictionary()
_prefix_caches: "WeakKeyDictionary[PreTrainedModel, bool]" = WeakKeyDictionary()


def alone(backbone: "PreTrainedModel", sequence: Tokens, reads: Tokens) -> "Tensor":
    """Hidden states of one text forwarded by itself with the model's own attention:
    (reads, hidden) float32.

    The reference that packs and batches are compared with.
    """
    return padded_rows(
        backbone, [sequence], np.zeros(len(reads), np.intp), np.asarray(reads, np.intp)
    )


def packed_rows(
    backbone: "PreTrainedModel",
    layout: Layout,
    rows: Ints,
    views: Set[View] = frozenset(),
    prefix: Kept | None = None,
) -> "tuple[Tensor, list[Call]]":
    """Hidden states of some forwarded `rows` of a pack, (n, hidden) float32, and the
    attention calls that made them.

    `views`: what the layers let a row see, as far as known, so that the tables for it
    go up with the pack. `prefix`: what the pack before has left, where the layout goes
    on from that; takes what the next pack needs. Everything goes up in one copy, and
    nothing comes back before the states are asked for.
    """
    on_kernels = has_kernels(backbone)
    if (
        on_kernels
        and (size := filled(layout.forwarded)) - layout.forwarded <= FILLING * size
    ):
        layout = layout.filled(size)
    # Rows are counted from the first forwarded one.
    ids, positions = (
        layout.ids[None, layout.kept :],
        layout.positions[None, layout.kept :],
    )
    arrays: dict[Hashable, NDArray[np.generic]] = {
        "ids": ids,
        "positions": positions,
        "rows": rows - layout.kept,
    }
    for view in views if on_kernels else ():
        arrays |= tables(layout, view)
    with exclusive_pass(backbone, layout.positions.max() + 1):
        # Kernels are compiled for tensors made inside: those made outside are of
        # another sort to torch.
        uploaded = upload(arrays, backbone.device)
        with paths(backbone, layout, uploaded, prefix) as calls:
            states = _forward(
                backbone, input_ids=uploaded["ids"], position_ids=uploaded["positions"]
            )[0]
        # A model that drops or adds rows would be read at the wrong ones.
        if len(states) != ids.shape[1]:
            raise ValueError(f"{len(states)} rows came out of a pack of {ids.shape[1]}")
        # Only the wanted rows become float32: heads compute in it, whatever the model's
        # dtype is.
        return states[uploaded["rows"].to(states.device)].float(), calls


def padded_rows(
    backbone: "PreTrainedModel", sequences: Texts, texts: Ints, reads: Ints
) -> "Tensor":
    """Hidden states of right-padded `sequences` at positions `reads` of `texts` among
    them, (n, hidden) float32.

    Without padding no mask is passed, so that the model may take its fastest way.
    """
    lengths = np.array([len(ids) for ids in sequences])
    real = (
        np.arange(lengths.max())[None, :] < lengths[:, None]
    )  # (texts, longest): False is padding
    # The model's own pad token: some encoders count positions by it.
    pad = getattr(backbone.config.get_text_config(), "pad_token_id", None)
    ids = np.full(real.shape, 0 if pad is None or pad < 0 else pad, np.int64)
    ids[real] = np.concatenate(list(sequences))
    arrays = {"input_ids": ids} | (
        {} if real.all() else {"attention_mask": real.astype(np.int64)}
    )
    with exclusive_pass(backbone, lengths.max()):
        states = _forward(backbone, **upload(arrays, backbone.device))
        places = upload({"texts": texts, "reads": reads}, states.device)
        return states[places["texts"], places["reads"]].float()


def _forward(backbone: "PreTrainedModel", **inputs: "Tensor") -> "Tensor":
    """The last hidden states, (texts, rows, hidden)."""
    # A cache of keys and values would cost memory, and nothing is generated from it.
    options = (
        {"use_cache": False}
        if "use_cache" in inspect.signature(backbone.forward).parameters
        else {}
    )
    return cast("Tensor", backbone(**inputs, **options).last_hidden_state)


def position_scales(backbone: "PreTrainedModel", lengths: Ints) -> Ints:
    """Texts with equal numbers may share a forward pass.

    Some rotary embeddings rescale all positions by the longest text of the pass
    ("longrope" has one other scale above its first window, 1; "dynamic" one per
    length): such texts must not meet. Zero for all others.
    """
    config = backbone.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    scales = np.zeros(len(lengths), np.intp)
    # Settings per kind of layer are None for layers without rotary embeddings.
    for kind in [rope] if "rope_type" in rope else filter(None, rope.values()):
        if kind["rope_type"] == "longrope":
            # transformers takes the long factors for a whole pass as soon as one of its
            # positions lies beyond this.
            window = (
                kind.get("original_max_position_embeddings")
                or config.max_position_embeddings
            )
            scales = np.maximum(scales, lengths > window)
        elif kind["rope_type"] == "dynamic":
            scales = np.maximum(
                scales, np.where(lengths > config.max_position_embeddings, lengths, 0)
            )
    return scales


@contextmanager
def exclusive_pass(backbone: "PreTrainedModel", longest: int) -> Iterator[None]:
    """Eval mode, no gradients, RoPE scale reset, one pass at a time; the model is
    afterwards as it was before.
    """
    import torch

    # Weights that are fetched during a pass must not become inference tensors, which
    # nothing else may change.
    no_gradients = torch.no_grad if offloaded(backbone) else torch.inference_mode
    # Attention is changed for the length of a pass, so that threads with one model have
    # to take turns.
    with _locks.setdefault(backbone, Lock()), no_gradients():
        training, attention_type = (
            backbone.training,
            getattr(backbone, "attention_type", None),
        )
        if training:
            backbone.eval()
        try:
            if position_scales(backbone, np.array([longest]))[0] > 1:
                # "dynamic" keeps the scale of the longest text that it met until a
                # short one comes.
                backbone(
                    input_ids=torch.zeros(
                        (1, 1), dtype=torch.int64, device=backbone.device
                    )
                )
            yield
        finally:
            if training:
                backbone.train()
            # A short text switches BigBird to full attention for good; long texts after
            # it would get other scores.
            if attention_type != getattr(backbone, "attention_type", None):
                cast("Callable[[object], None]", backbone.set_attention_type)(
                    attention_type
                )


def packing_support(backbone: "PreTrainedModel") -> Packing:
    """How texts go through this model together.

    Asks the model's settings first. Then forwards a pack of short texts: every layer
    must come to path attention and ask for nothing that it lacks, and each text must
    come out as it does alone. Texts that cannot share a pack are padded where that
    changes nothing. A GPU's kernels that compute something else are not used. The
    answer is kept for as long as the model lives.
    """
    if backbone not in _packings:
        refused = read_refusal(backbone)
        packing = Packing(refused) if refused else _try_packing(backbone)
        # Refused by trial on a GPU: it may be the kernels that are wrong, not the
        # packs.
        if packing.refused and not refused and has_kernels(backbone):
            with kernels(backbone).paused():
                without_kernels = _try_packing(backbone)
            if without_kernels.packed:
                kernels(backbone).refuse(packing.refused)
                packing = without_kernels
        _packings[backbone] = (
            packing if packing.packed else replace(packing, pads=_pads(backbone))
        )
    return _packings[backbone]


def supports_prefix_cache(backbone: "PreTrainedModel") -> bool:
    """Do texts come out the same where a pack goes on from the keys and values of the
    one before?

    Tried only for prompts that are larger than a pack: a GPU compiles kernels of their
    own for it. The answer is kept.
    """
    if backbone not in _prefix_caches:
        is_packed, texts = (
            packing_support(backbone).packed,
            _trial_texts(backbone, 0)[:3],
        )
        _prefix_caches[backbone] = (
            is_packed
            and not _try_packs(backbone, texts, [0, 0, 0], _SMALL, causal=True)[0]
        )
    return _prefix_caches[backbone]


def how_packed(backbone: "PreTrainedModel") -> tuple[str | None, str]:
    """For people: what packs hold and how attention goes, None before that is known;
    and what kernels lack, if any.
    """
    packing = _packings.get(backbone)
    if packing is None or not packing.packed or not serves(backbone.device):
        return None if packing is None else str(packing), ""
    return f"{packing}; {kernels(backbone)}", kernels(backbone).trouble


def read_refusal(backbone: "PreTrainedModel") -> str | None:
    """Why texts cannot share a pack, by the model's settings alone; its weights may be
    on torch's meta device.
    """
    config = backbone.config.get_text_config()
    # Layers with a state that runs along the row (Mamba, linear attention) would carry
    # it from text to text.
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS)
    has_interface = getattr(backbone, "_supports_attention_backend", False)
    arguments = inspect.signature(backbone.forward).parameters
    reasons = [
        (backbone.config.is_encoder_decoder, "it is an encoder with a decoder"),
        (
            not has_interface,
            "its attention does not go through transformers' attention interface",
        ),
        ("position_ids" not in arguments, "its forward pass takes no position_ids"),
        # Llama 4 counts rows for it, in steps of thousands, which no short text shows.
        (
            getattr(config, "attn_temperature_tuning", False),
            "its attention scales by rows",
        ),
        (strange, f"it has layers of another kind: {', '.join(strange)}"),
    ]
    return next((reason for refuses, reason in reasons if refuses), None)


def _try_packing(backbone: "PreTrainedModel") -> Packing:
    """The result of forwarding a small pack: as a decoder's, and as an encoder's if the
    model looks both ways.
    """
    config = backbone.config.get_text_config()
    # Learned positions may run out in a pack that has more rows than they are.
    learned = (
        0
        if getattr(config, "rope_parameters", None)
        else getattr(config, "max_position_embeddings", 0)
    )
    texts, causal = _trial_texts(backbone, learned - 8), True
    refused, calls = _try_packs(backbone, texts, [0, 0, 0, 1, 2], 4096, causal=True)
    if calls and not any(call.view.causal for call in calls):
        # Texts several windows long, so that what lies outside of a window shows; an
        # encoder's share nothing.
        nearest = min(
            (call.view.window for call in calls if call.view.window), default=0
        )
        texts, causal = _trial_texts(backbone, max(learned - 8, 6 * nearest)), False
        refused, calls = _try_packs(backbone, texts, range(5), 4096, causal=False)
    if refused:
        return Packing(refused)
    half_differs = backbone.dtype.itemsize < 4 and has_kernels(backbone)
    return Packing(
        None, causal, frozenset(call.view for call in calls), half_differs=half_differs
    )


def _trial_texts(backbone: "PreTrainedModel", longest: int) -> list[Ints]:
    """Three texts with common beginnings and two that lie apart, the last of these of
    up to `longest` tokens.
    """
    vocabulary = getattr(backbone.config.get_text_config(), "vocab_size", 256)
    ids = np.random.default_rng(0).integers(
        0, vocabulary, 80 + min(max(longest, 16), 1024)
    )
    # The second text leaves the first after 28 tokens, the third leaves the second six
    # tokens later: a branch in a branch.
    return [
        ids[:34],
        np.r_[ids[:28], ids[40:50]],
        np.r_[ids[:28], ids[40:46], ids[60:65]],
        ids[65:80],
        ids[80:],
    ]


def _try_packs(
    backbone: "PreTrainedModel",
    texts: Texts,
    groups: Groups,
    budget: int,
    *,
    causal: bool,
) -> tuple[str | None, list[Call]]:
    """Why the texts do not come out of packs as they do alone, None where they do; the
    last pack's attention calls.
    """
    kept, calls, complaints = Kept(), list[Call](), list[str]()
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        # Of each run the first row, behind what is shared, and the last: where a wrong
        # path or position shows.
        rows = np.concatenate([[run.start, run.stop - 1] for run in layout.runs])
        handle, inputs = _record_layer_inputs(backbone)
        try:
            with handle:
                states, calls = packed_rows(backbone, layout, rows, prefix=kept)
        except _FAILURES as error:
            if out_of_memory(error):
                raise
            return f"it does not run with path attention: {error}", []
        complaints += _call_complaints(
            backbone.config.get_text_config(), calls, causal=causal
        )
        for text, run, ends in zip(
            part.texts, layout.runs, states.split(2), strict=True
        ):
            entered = [
                rows[..., run.start - layout.kept : run.stop - layout.kept, :]
                for rows in inputs
            ]
            complaints += _run_complaints(backbone, texts[text], run, entered, ends)
    return next(iter(complaints), None), calls


def _run_complaints(
    backbone: "PreTrainedModel",
    ids: Tokens,
    run: Run,
    entered: "list[Tensor]",
    ends: "Tensor",
) -> Iterator[str]:
    """Differences between a text alone and its run in a pack: what `entered` the first
    layer, states at its `ends`.
    """
    stop, noise = run.offset + run.stop - run.start, NOISE[backbone.dtype.itemsize]
    handle, inputs = _record_layer_inputs(backbone)
    with handle:
        ends_alone = alone(backbone, ids, np.array([run.offset, stop - 1]))
    # Before any attention: a model that adds positions of its own to the embeddings is
    # found out here.
    for packed, single in zip(entered, inputs, strict=False):
        # Rounded once or twice by now, so that another position is plain in any dtype.
        if not _distance(
            packed.float(), single[..., run.offset : stop, :].float()
        ) <= min(noise, 0.02):
            yield "tokens in a pack enter the first layer different from tokens of texts alone"
    apart = _distance(ends, ends_alone)
    if not apart <= noise:
        yield f"texts in a pack come out different from texts alone (relative distance {apart:.2g})"


def _call_complaints(
    config: "PreTrainedConfig", calls: list[Call], *, causal: bool
) -> Iterator[str]:
    """What attention calls ask for that packs cannot give."""
    if len(calls) != config.num_hidden_layers:
        yield f"{len(calls)} of its {config.num_hidden_layers} layers use the attention interface"
    yield from (
        f"its attention asks for {name}" for call in calls for name in call.refused
    )
    # A window that a layer does not hand over would be missing in path attention.
    layer_types = getattr(config, "layer_types", None)
    slides = getattr(config, "sliding_window", None) and getattr(
        config, "use_sliding_window", True
    )
    windows = (
        layer_types.count("sliding_attention")
        if layer_types
        else len(calls) * bool(slides)
    )
    if windows != sum(call.view.window is not None for call in calls):
        yield "it has sliding windows that its layers do not hand to attention"
    if any(call.view.causal != causal for call in calls):
        yield (
            "it attends in both directions"
            if causal
            else "only some of its layers attend in both directions"
        )


def _record_layer_inputs(
    backbone: "PreTrainedModel",
) -> "tuple[RemovableHandle, list[Tensor]]":
    """While the handle is open, the list takes what enters the first layer, (..., rows,
    hidden) for each pass.
    """
    import torch

    inputs: list[Tensor] = []
    # By their number, as names of layers differ from model to model; a model itself
    # takes no positional arguments.
    n_layers = backbone.config.get_text_config().num_hidden_layers
    lists = (
        module
        for module in backbone.modules()
        if isinstance(module, torch.nn.ModuleList)
    )
    layers = next(
        (modules for modules in lists if len(modules) == n_layers), [backbone]
    )
    return layers[0].register_forward_pre_hook(
        lambda _, args: inputs.extend(args[:1])
    ), inputs


def _pads(backbone: "PreTrainedModel") -> bool:
    """Do two texts come out of a padded batch as they do alone, at both of their ends?"""
    import torch

    if hasattr(
        backbone, "set_attention_type"
    ):  # BigBird's attention goes by the length of the batch
        return False
    texts = _trial_texts(backbone, 0)[
        3:
    ]  # fifteen tokens and sixteen: the first is padded
    ends = [np.array([0, len(text) - 1]) for text in texts]
    try:
        single = torch.cat(
            [
                alone(backbone, text, reads)
                for text, reads in zip(texts, ends, strict=True)
            ]
        )
        together = padded_rows(
            backbone, texts, np.array([0, 0, 1, 1]), np.concatenate(ends)
        )
    except _FAILURES as error:
        if out_of_memory(error):
            raise
        return False
    return _distance(together, single) <= NOISE[backbone.dtype.itemsize]


def _distance(left: "Tensor", right: "Tensor") -> float:
    """The largest relative distance of a row from what it should be."""
    # NaN is not below any bound, so it counts as different.
    return float(
        ((left - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-6)).max()
    )
