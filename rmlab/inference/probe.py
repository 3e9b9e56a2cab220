"""Can texts of this model share a row? Found out by looking at its settings and by trying."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from rmlab.inference.attention import Call
from rmlab.inference.passes import accepts, alone, packed_rows
from rmlab.inference.trie import lay_out, pack

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["packs"]

_LAYERS = {"full_attention", "sliding_attention"}
_found: "WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], str | None]]" = WeakKeyDictionary()


def packs(backbone: "PreTrainedModel") -> str | None:
    """Why texts cannot share a pack in this model, as half a sentence; None where they can.

    Asks the model's settings first. Then forwards a pack of four short texts that share beginnings: every layer must
    come to path attention and ask for nothing that it lacks, and each text must come out as it does alone. The answer
    is kept for as long as the model lives, per device and dtype.
    """
    key = (str(backbone.device), str(backbone.dtype))
    known = _found.setdefault(backbone, {})
    if key not in known:
        known[key] = next(_settings(backbone), None) or next(_trial(backbone), None)
    return known[key]


def _settings(backbone: "PreTrainedModel") -> Iterator[str]:
    config = backbone.config.get_text_config()
    if backbone.config.is_encoder_decoder:
        yield "it is an encoder with a decoder"
    if not getattr(backbone, "_supports_attention_backend", False):
        yield "its attention does not go through transformers' attention interface"
    if not accepts(backbone, "position_ids"):
        yield "its forward pass takes no position_ids"
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS)
    if strange:
        yield f"it has layers of another kind: {', '.join(strange)}"


def _trial(backbone: "PreTrainedModel") -> Iterator[str]:
    """Reasons that show when a small pack is forwarded."""
    import torch

    texts = _texts(backbone.config.get_text_config().vocab_size)
    layout = lay_out(pack(texts, [0, 0, 0, 1], budget=4096)[0], texts)
    try:
        states, calls = packed_rows(backbone, layout, np.array([path[-1] for path in layout.paths]))
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        yield f"it does not run with path attention: {error}"
        return
    yield from _complaints(backbone.config.get_text_config(), calls)
    order = pack(texts, [0, 0, 0, 1], budget=4096)[0].texts
    single = [alone(backbone, texts[text], np.array([len(texts[text]) - 1])) for text in order]
    apart = max(_distance(packed, one[0]) for packed, one in zip(states, single, strict=True))
    if not apart <= (1e-3 if backbone.dtype.itemsize >= 4 else 0.1):
        yield f"texts in a pack come out different from texts alone (relative distance {apart:.2g})"


def _texts(vocabulary: int) -> list[np.ndarray]:
    """Three texts with common beginnings and one apart."""
    ids = np.random.default_rng(0).integers(0, vocabulary, 80)
    return [ids[:34], np.r_[ids[:28], ids[40:50]], np.r_[ids[:28], ids[40:46], ids[60:65]], ids[65:80]]


def _complaints(config: Any, calls: list[Call]) -> Iterator[str]:
    if len(calls) != config.num_hidden_layers:
        yield f"{len(calls)} of its {config.num_hidden_layers} layers use the attention interface"
    for call in calls:
        for name in call.refused:
            yield f"its attention asks for {name}"
    kinds = getattr(config, "layer_types", None)
    if kinds:
        windows = sum(kind == "sliding_attention" for kind in kinds)
    else:
        windows = len(calls) * bool(
            getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        )
    if windows != sum(call.window is not None for call in calls):
        yield "it has sliding windows that its layers do not hand to attention"


def _distance(left: "torch.Tensor", right: "torch.Tensor") -> float:
    return float((left - right).norm() / right.norm().clamp_min(1e-6))
