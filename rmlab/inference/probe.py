"""How texts of a model can go through it together. Found out by looking at its settings and by trying."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from rmlab.inference.attention import Call
from rmlab.inference.narrowing import layers
from rmlab.inference.passes import accepts, alone, packed_rows
from rmlab.inference.trie import lay_out, pack

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Way", "way"]

_LAYERS = {"full_attention", "sliding_attention"}
_LONGEST = 1024


@dataclass(frozen=True)
class Way:
    """How texts go through a model together.

    `refused`: why they cannot share a pack, as half a sentence; None where they can. `causal`: a token sees what comes
    before it and no more, so that texts with a common beginning share its rows. `windows`: of each layer, where the
    last layers can be narrowed; else empty.
    """

    refused: str | None
    causal: bool = True
    windows: tuple[int | None, ...] = ()

    @property
    def packed(self) -> bool:
        """Can texts share a pack?"""
        return self.refused is None


_found: "WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], Way]]" = WeakKeyDictionary()


def way(backbone: "PreTrainedModel") -> Way:
    """How texts go through this model together.

    Asks the model's settings first. Then forwards a pack of short texts: every layer must come to path attention and
    ask for nothing that it lacks, and each text must come out as it does alone. The last layers are narrowed where that
    changes nothing either. The answer is kept for as long as the model lives, per device and dtype.
    """
    key = (str(backbone.device), str(backbone.dtype))
    known = _found.setdefault(backbone, {})
    if key not in known:
        refused = next(_settings(backbone), None)
        known[key] = Way(refused) if refused else _tried(backbone)
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


def _tried(backbone: "PreTrainedModel") -> Way:
    """What shows when a small pack is forwarded: as a decoder's, and as an encoder's if it looks both ways."""
    config = backbone.config.get_text_config()
    # Learned positions may run out in a pack that has more rows than they are.
    learned = 0 if getattr(config, "rope_parameters", None) else getattr(config, "max_position_embeddings", 0)
    trial = _Trial(backbone, learned - 8, causal=True)
    refused, calls = trial.run()
    if calls and not any(call.causal for call in calls):
        nearest = min((call.window for call in calls if call.window), default=0)
        trial = _Trial(backbone, max(learned - 8, 6 * nearest), causal=False)
        refused, calls = trial.run()
    if refused:
        return Way(refused)
    windows = tuple(None if trial.causal else call.window for call in calls)
    narrows = layers(backbone) is not None and trial.run(windows)[0] is None
    return Way(None, trial.causal, windows if narrows else ())


class _Trial:
    """A pack of five texts, each read where heads read: at its end, or at its beginning where a model is not causal.

    Three have common beginnings, two lie apart, one of these of up to `longest` tokens.
    """

    def __init__(self, backbone: "PreTrainedModel", longest: int, *, causal: bool) -> None:
        self.backbone, self.causal = backbone, causal
        vocabulary = backbone.config.get_text_config().vocab_size
        ids = np.random.default_rng(0).integers(0, vocabulary, 80 + min(max(longest, 16), 1024))
        texts = [ids[:34], np.r_[ids[:28], ids[40:50]], np.r_[ids[:28], ids[40:46], ids[60:65]], ids[65:80], ids[80:]]
        self.part = pack(texts, [0, 0, 0, 1, 2] if causal else range(5), budget=4096)[0]
        self.layout = lay_out(self.part, texts)
        self.rows = np.array([path[-1 if causal else 0] for path in self.layout.paths])
        at = [np.array([len(texts[text]) - 1 if causal else 0]) for text in self.part.texts]
        self.alone = [alone(backbone, texts[text], read)[0] for text, read in zip(self.part.texts, at, strict=True)]

    def run(self, windows: Sequence[int | None] = ()) -> tuple[str | None, list[Call]]:
        """Why the texts cannot share this pack, None where they can; and the attention calls. `windows`: narrowed."""
        import torch

        try:
            states, calls = packed_rows(self.backbone, self.layout, self.rows, windows)
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, RuntimeError) as error:
            return f"it does not run with path attention: {error}", []
        return next(self._complaints(states, calls), None), calls

    def _complaints(self, states: "torch.Tensor", calls: list[Call]) -> Iterator[str]:
        yield from _complaints(self.backbone.config.get_text_config(), calls)
        if any(call.causal != self.causal for call in calls):
            yield (
                "it attends in both directions" if self.causal else "only some of its layers attend in both directions"
            )
        apart = max(_distance(packed, one) for packed, one in zip(states, self.alone, strict=True))
        if not apart <= (1e-3 if self.backbone.dtype.itemsize >= 4 else 0.1):
            yield f"texts in a pack come out different from texts alone (relative distance {apart:.2g})"


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
