"""How texts of a model can go through it together: one self-check, whether each text
comes out in company as it does alone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmlab.inference.flex import Kind
from rmlab.inference.memory import out_of_memory
from rmlab.inference.passes import Passes, rotary_settings, takes_argument
from rmlab.inference.planning import (
    Groups,
    Ints,
    Packing,
    Texts,
    count_tokens,
    lay_out,
    pack,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

# Kinds of layers that path attention knows.
_LAYERS = {"full_attention", "sliding_attention"}

# The relative distance up to which states count as equal, by the bytes of a number.
# Wrong rows are off by about their own length, 1; rounding is far below that in
# float32, and may come to hundredths in half precision.
NOISE = {2: 0.1, 4: 1e-3, 8: 1e-3}

# Tokens of the longest text of a trial.
_LONGEST = 1024


def find_packing(passes: Passes) -> Packing:
    """How texts go through the model together.

    Asks the model's settings first. Then forwards a pack of short texts: with common
    beginnings, or whole ones where the model looks both ways. Texts that cannot share a
    pack are padded where that changes nothing.
    """
    refused = read_refusal(passes.model)
    if refused is not None:
        return Packing(refused, pads=_pads(passes))

    config = passes.model.config.get_text_config()
    # Learned positions may run out in a pack that has more rows than they are.
    longest = 16
    if not rotary_settings(config):
        longest = getattr(config, "max_position_embeddings", 24) - 8
    trial = _try_pack(passes, longest, shares=True)
    shares = all(kind.causal for kind in trial.kinds)
    if not shares:
        # What lies outside of a window must show.
        windows = [kind.window for kind in trial.kinds if kind.window]
        longest = max(longest, 6 * min(windows, default=0))
        trial = _try_pack(passes, longest, shares=False)
    if trial.refused:
        return Packing(trial.refused, pads=_pads(passes))
    return Packing(None, shares)


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


class _Trial(NamedTuple):
    """Why texts do not come out of a pack as they do alone, None where they do; what
    its attention layers computed.
    """

    refused: str | None
    kinds: Sequence[Kind] = ()


def _try_pack(passes: Passes, longest: int, *, shares: bool) -> _Trial:
    """Forward texts in a pack, and each alone."""
    config = passes.model.config.get_text_config()
    texts = _trial_texts(config, min(longest, _LONGEST))
    groups: Groups = [0, 0, 0, 1, 2] if shares else range(len(texts))
    (part,) = pack(texts, groups, sum(map(len, texts)))
    layout = lay_out(part, texts)
    # Of each run the first row, behind what is shared, and the last: where a wrong path
    # or position shows.
    ends = [(run.start, run.stop - 1) for run in layout.runs]
    reads = [
        np.array([run.offset, run.offset + run.stop - 1 - run.start])
        for run in layout.runs
    ]
    try:
        states, kinds = passes.packed_rows(layout, np.ravel(ends))
    # A model may raise anything that cannot take what it is given, or that calls what
    # torch or transformers has renamed.
    except Exception as error:
        if out_of_memory(error):
            raise
        return _Trial(f"it does not run with path attention: {error}")

    # A window that a layer does not hand over would be missing in path attention, which
    # no short text shows.
    n_windows = sum(kind.window is not None for kind in kinds)
    if n_windows != _count_windows(config):
        return _Trial("it has sliding windows that its layers do not hand to attention")
    distance = _distance(passes, [texts[text] for text in part.texts], reads, states)
    if not distance <= NOISE[passes.model.dtype.itemsize]:
        come_out = "texts in a pack come out different from texts alone"
        return _Trial(f"{come_out} (relative distance {distance:.2g})", kinds)
    return _Trial(None, kinds)


def _trial_texts(config: "PreTrainedConfig", longest: int) -> list[Ints]:
    """Three texts with common prefixes and two that lie apart, the last of `longest`
    tokens.
    """
    vocabulary = getattr(config, "vocab_size", 256)
    ids = np.random.default_rng(0).integers(0, vocabulary, 80 + longest)
    # The second text leaves the first after 28 tokens, the third leaves the second six
    # tokens later: a branch in a branch.
    return [
        ids[:34],
        np.r_[ids[:28], ids[40:50]],
        np.r_[ids[:28], ids[40:46], ids[60:65]],
        ids[65:80],
        ids[80:],
    ]


def _count_windows(config: "PreTrainedConfig") -> int:
    """How many layers have a window by the configuration."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        return list(layer_types).count("sliding_attention")
    uses_windows = getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None)
    return config.num_hidden_layers if window and uses_windows else 0


def _pads(passes: Passes) -> bool:
    """Do two texts come out of a padded batch as they do alone, at both ends?"""
    # BigBird's attention goes by the length of the batch.
    if hasattr(passes.model, "set_attention_type"):
        return False
    # Fifteen tokens and sixteen: the first is padded.
    texts = _trial_texts(passes.model.config.get_text_config(), 16)[3:]
    reads = [np.array([0, n - 1]) for n in count_tokens(texts)]
    try:
        states = passes.padded_rows(texts, np.array([0, 0, 1, 1]), np.ravel(reads))
        distance = _distance(passes, texts, reads, states)
    except Exception as error:
        if out_of_memory(error):
            raise
        return False
    return distance <= NOISE[passes.model.dtype.itemsize]


def _distance(
    passes: Passes, texts: Texts, reads: Sequence[Ints], states: "Tensor"
) -> float:
    """The largest relative distance of states, those that are read of all texts, from
    what each text alone gives.
    """
    import torch

    pairs = zip(texts, reads, strict=True)
    alone = torch.cat([passes.alone(ids, positions) for ids, positions in pairs])
    lengths = alone.norm(dim=-1).clamp_min(1e-6)
    # NaN is not below any bound, so it counts as different.
    return float(((states - alone).norm(dim=-1) / lengths).max())
