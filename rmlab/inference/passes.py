"""One forward pass: a pack, a padded batch, or one text alone, read at the wanted
positions in float32.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from rmlab.inference.attention import PrefixCache, paths
from rmlab.inference.flex import Kernels, Kind, Masks, key_table
from rmlab.inference.memory import offloaded, upload
from rmlab.inference.planning import (
    Ints,
    Layout,
    Texts,
    Tokens,
    count_tokens,
    filled,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

    # What a class needs beside ids and positions, computed from these: both are
    # (rows, tokens), and positions are None where each row is one text.
    Argument = Callable[[Tensor, Tensor | None], Tensor]


class PackStates(NamedTuple):
    """Hidden states of some rows of a pack, (n, hidden) float32, and what the attention
    layers computed.
    """

    rows: "Tensor"
    kinds: list[Kind]


class Passes:
    """The forward passes of a transformers base model, one at a time.

    `arguments`: what its class needs in every pass beside ids and positions, by the
    name of the argument. `kernels`: its attention on a GPU.
    """

    def __init__(
        self, model: "PreTrainedModel", arguments: "dict[str, Argument] | None" = None
    ) -> None:
        self.model = model
        self.arguments = {} if arguments is None else arguments
        self.kernels = Kernels()
        self._lock = Lock()

    def alone(self, ids: Tokens, reads: Tokens) -> "Tensor":
        """Hidden states of one text forwarded by itself with the model's own attention:
        (reads, hidden) float32.

        The reference that packs and batches are compared with.
        """
        texts = np.zeros(len(reads), np.intp)
        return self.padded_rows([ids], texts, np.asarray(reads, np.intp))

    def packed_rows(
        self, layout: Layout, rows: Ints, cache: PrefixCache | None = None
    ) -> PackStates:
        """Hidden states of some forwarded `rows` of a pack.

        `cache`: what the pack before has left, where the layout goes on from that;
        takes what the next pack needs. Everything goes up in one copy, and nothing
        comes back before the states are asked for.
        """
        # Rows are counted from the first forwarded one.
        n_cached = layout.n_cached
        device = self.model.device
        on_kernels = self.kernels.serve(device)
        arrays = {
            "ids": layout.ids[None, n_cached:],
            "positions": layout.positions[None, n_cached:],
            "rows": rows - n_cached,
        }
        if on_kernels:
            arrays = {"keys": key_table(layout), **arrays}

        with self.exclusive_pass(int(layout.positions.max()) + 1):
            # Kernels are compiled for tensors made inside: those made outside are of
            # another sort to torch.
            uploaded = upload(arrays, device)
            masks = None
            if on_kernels:
                masks = Masks(uploaded["keys"], filled(layout.forwarded))
            with paths(self.model, layout, self.kernels, masks, cache) as kinds:
                (states,) = self.forward(
                    input_ids=uploaded["ids"], position_ids=uploaded["positions"]
                )
            # A model that drops or adds rows would be read at the wrong ones.
            if len(states) != layout.forwarded:
                n_rows = f"{len(states)} rows came out of a pack of {layout.forwarded}"
                raise ValueError(n_rows)
            # Only the wanted rows become float32: heads compute in it, whatever the
            # model's dtype is.
            states = states[uploaded["rows"].to(states.device)].float()
        return PackStates(states, kinds)

    def padded_rows(self, sequences: Texts, texts: Ints, reads: Ints) -> "Tensor":
        """Hidden states of right-padded `sequences` at positions `reads` of `texts`
        among them, (n, hidden) float32.

        The mask is passed where nothing is padded, too, as a tokenizer gives it:
        without one transformers takes positions that do not ascend by one for several
        texts in a row.
        """
        lengths = count_tokens(sequences)
        # (texts, longest): False is padding.
        is_token = np.arange(lengths.max()) < lengths[:, None]
        # The model's own pad token: some encoders count positions by it.
        pad = getattr(self.model.config.get_text_config(), "pad_token_id", None)
        if pad is None or pad < 0:
            pad = 0
        ids = np.full(is_token.shape, pad)
        ids[is_token] = np.concatenate(list(sequences))
        arrays = {"input_ids": ids}
        if takes_argument(self.model, "attention_mask") or not is_token.all():
            arrays["attention_mask"] = is_token.astype(np.intp)

        with self.exclusive_pass(int(lengths.max())):
            states = self.forward(**upload(arrays, self.model.device))
            cells = upload({"texts": texts, "reads": reads}, states.device)
            return states[cells["texts"], cells["reads"]].float()

    def forward(self, **inputs: "Tensor") -> "Tensor":
        """The last hidden states of one pass, (texts, rows, hidden); call it inside
        `exclusive_pass`.
        """
        for name, compute in self.arguments.items():
            inputs[name] = compute(inputs["input_ids"], inputs.get("position_ids"))
        options = {}
        # A cache of keys and values would cost memory, and nothing is generated from
        # it.
        if takes_argument(self.model, "use_cache"):
            options["use_cache"] = False
        return cast("Tensor", self.model(**inputs, **options).last_hidden_state)

    @contextmanager
    def exclusive_pass(self, longest: int) -> Iterator[None]:
        """Eval mode, no gradients, RoPE scale reset, one pass at a time, with texts of
        up to `longest` tokens; the model is afterwards as it was before.
        """
        import torch

        model = self.model
        # Weights that are fetched during a pass must not become inference tensors,
        # which nothing else may change.
        no_gradients = torch.no_grad if offloaded(model) else torch.inference_mode
        # Attention is changed for the length of a pass, so that threads with one model
        # have to take turns.
        with self._lock, no_gradients():
            training = model.training
            attention_type = getattr(model, "attention_type", None)
            if training:
                model.eval()
            try:
                if position_scales(model.config, np.array([longest]))[0] > 1:
                    # "dynamic" keeps the scale of the longest text that it met until a
                    # short one comes.
                    ids = torch.zeros((1, 1), dtype=torch.int64, device=model.device)
                    model(input_ids=ids)
                yield
            finally:
                if training:
                    model.train()
                # A short text switches BigBird to full attention for good; long texts
                # after it would get other scores.
                if attention_type != getattr(model, "attention_type", None):
                    set_type = cast(
                        "Callable[[object], None]", model.set_attention_type
                    )
                    set_type(attention_type)


def takes_argument(model: "PreTrainedModel", name: str) -> bool:
    """Whether the model's forward pass has an argument of this name."""
    # What torch.compile wraps a module in takes any argument.
    whole = getattr(model, "_orig_mod", model)
    return name in inspect.signature(whole.forward).parameters


def position_scales(config: "PreTrainedConfig", lengths: Ints) -> Ints:
    """Texts with equal numbers may share a forward pass.

    Some rotary embeddings rescale all positions by the longest text of the pass
    ("longrope" has one other scale above its first window, 1; "dynamic" one per
    length): such texts must not meet. Zero for all others.
    """
    text_config = config.get_text_config()
    rope = rotary_settings(text_config)
    kinds = list(rope.values())
    if "rope_type" in rope:
        kinds = [rope]
    scales = np.zeros(len(lengths), np.intp)
    for kind in kinds:
        # Settings per kind of layer are None for layers without rotary embeddings.
        if kind is None:
            continue
        if kind["rope_type"] == "longrope":
            # transformers takes the long factors for a whole pass as soon as one of its
            # positions lies beyond this.
            window = kind.get("original_max_position_embeddings")
            if not window:
                window = text_config.max_position_embeddings
            scales = np.maximum(scales, lengths > window)
        elif kind["rope_type"] == "dynamic":
            is_long = lengths > text_config.max_position_embeddings
            scales = np.maximum(scales, lengths * is_long)
    return scales


def rotary_settings(text_config: "PreTrainedConfig") -> dict[str, Any]:
    """Rotary embeddings as transformers 5 has them in a configuration: the settings, or
    those of each kind of layer; empty for other positions.

    Transformers 4 has `rope_scaling`, None where nothing is scaled, and the first
    window beside it.
    """
    rope = getattr(text_config, "rope_parameters", None)
    if rope:
        return cast("dict[str, Any]", rope)
    if getattr(text_config, "rope_scaling", None):
        window = getattr(text_config, "original_max_position_embeddings", None)
        scaling = {**text_config.rope_scaling}
        # Older checkpoints call it so.
        scaling.setdefault("rope_type", scaling.get("type", "default"))
        scaling["original_max_position_embeddings"] = window
        return scaling
    if getattr(text_config, "rope_theta", None):
        return {"rope_type": "default"}
    return {}
