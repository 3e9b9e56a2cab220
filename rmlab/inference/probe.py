"""How texts of a model can go through it together. Found out by looking at its settings and by trying."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call
from rmlab.inference.narrowing import layers
from rmlab.inference.passes import accepts, alone, packed_rows, padded_rows
from rmlab.inference.state import changes, put_back, remember
from rmlab.inference.trie import lay_out, pack

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Way", "known", "way"]

_LAYERS = {"full_attention", "sliding_attention"}
_ERRORS = (TypeError, ValueError, KeyError, IndexError, RuntimeError)


@dataclass(frozen=True)
class Way:
    """How texts go through a model together.

    `refused`: why they cannot share a pack, as half a sentence; None where they can. `causal`: a token sees what comes
    before it and no more, so that texts with a common beginning share its rows. `windows`: of each layer, where the
    last layers can be narrowed; else empty. `pads`: where there are no packs, texts of different lengths can share a
    batch, since padding changes nothing.
    """

    refused: str | None
    causal: bool = True
    windows: tuple[int | None, ...] = ()
    pads: bool = True

    @property
    def packed(self) -> bool:
        """Can texts share a pack?"""
        return self.refused is None

    def __str__(self) -> str:
        """What packs hold, or why there are none."""
        if self.packed:
            return "texts with shared beginnings" if self.causal else "whole texts"
        return f"none: {self.refused}" + ("" if self.pads else "; texts of one length go together")


_found: "WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], Way]]" = WeakKeyDictionary()


def way(backbone: "PreTrainedModel") -> Way:
    """How texts go through this model together.

    Asks the model's settings first. Then forwards a pack of short texts: every layer must come to path attention and
    ask for nothing that it lacks, and each text must come out as it does alone. The last layers are narrowed where that
    changes nothing either, and texts that cannot share a pack are padded where that changes nothing. What trying may
    have changed in the model is put back. The answer is kept for as long as the model lives, per device and dtype.
    """
    found = known(backbone)
    if found is None:
        refused, before = next(_settings(backbone), None), remember(backbone)
        found = Way(refused) if refused else _tried(backbone)
        found = found if found.packed else replace(found, pads=not changes(backbone) and _pads(backbone))
        put_back(before)
        _found.setdefault(backbone, {})[_state(backbone)] = found
    return found


def known(backbone: "PreTrainedModel") -> Way | None:
    """What `way` found out for this model as it is now; None before that."""
    return _found.get(backbone, {}).get(_state(backbone))


def _state(backbone: "PreTrainedModel") -> tuple[str, str]:
    return str(backbone.device), str(backbone.dtype)


def _settings(backbone: "PreTrainedModel") -> Iterator[str]:
    config = backbone.config.get_text_config()
    if changes(backbone):
        yield f"a pass changes the model ({', '.join(changes(backbone))})"
    if backbone.config.is_encoder_decoder:
        yield "it is an encoder with a decoder"
    if not getattr(backbone, "_supports_attention_backend", False):
        yield "its attention does not go through transformers' attention interface"
    if not accepts(backbone, "position_ids"):
        yield "its forward pass takes no position_ids"
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS)
    if getattr(config, "attn_temperature_tuning", False):
        # Llama 4 counts rows for it, in steps of thousands, which no short text shows.
        yield "its attention scales by rows"
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
    # In half precision attention is computed of all rows, as in the text alone, so that it is rounded alike.
    exact = backbone.dtype.itemsize >= 4
    windows = tuple(call.window if exact and not trial.causal else None for call in calls)
    narrows = layers(backbone) is not None and trial.run(windows)[0] is None
    return Way(None, trial.causal, windows if narrows else ())


def _pads(backbone: "PreTrainedModel") -> bool:
    """Do two texts come out of a padded batch as they do alone, at both of their ends?"""
    import torch

    ids = _ids(backbone, 16)
    texts = [ids[:9], ids[9:]]
    ends = [np.array([0, len(text) - 1]) for text in texts]
    try:
        single = torch.cat([alone(backbone, text, at) for text, at in zip(texts, ends, strict=True)])
        together = padded_rows(backbone, texts, np.array([0, 0, 1, 1]), np.concatenate(ends))
    except torch.OutOfMemoryError:
        raise
    except _ERRORS:
        return False
    return _distance(together, single) <= _noise(backbone)


class _Trial:
    """A pack of five texts, read at both ends of each run, or narrowed to where heads read.

    That is at a text's end, or at its beginning where a model is not causal. Three texts have common beginnings, two
    lie apart, one of these of up to `longest` tokens.
    """

    def __init__(self, backbone: "PreTrainedModel", longest: int, *, causal: bool) -> None:
        self.backbone, self.causal = backbone, causal
        ids = _ids(backbone, 80 + min(max(longest, 16), 1024))
        texts = [ids[:34], np.r_[ids[:28], ids[40:50]], np.r_[ids[:28], ids[40:46], ids[60:65]], ids[65:80], ids[80:]]
        part = pack(texts, [0, 0, 0, 1, 2] if causal else range(5), budget=4096)[0]
        self.layout = lay_out(part, texts)
        self.alone: list[torch.Tensor] = []
        self.entered: list[torch.Tensor] = []
        for text, run in zip(part.texts, self.layout.runs, strict=True):
            ends = np.array([run.offset, len(texts[text]) - 1])
            with _entering(backbone, len(texts[text])) as entered:
                self.alone.append(alone(backbone, texts[text], ends))
            self.entered += entered[:1]

    def run(self, windows: Sequence[int | None] = ()) -> tuple[str | None, list[Call]]:
        """Why the texts cannot share this pack, None where they can; and the attention calls. `windows`: narrowed."""
        import torch

        end = 1 if self.causal else 0
        read = slice(end, end + 1) if windows else slice(2)
        rows = np.concatenate([[run.start, run.stop - 1][read] for run in self.layout.runs])
        try:
            with _entering(self.backbone, len(self.layout.ids)) as entered:
                states, calls = packed_rows(self.backbone, self.layout, rows, windows)
        except torch.OutOfMemoryError:
            raise
        except _ERRORS as error:
            return f"it does not run with path attention: {error}", []
        single = torch.cat([one[read] for one in self.alone])
        return next(self._complaints(entered, states, single, calls), None), calls

    def _complaints(
        self, entered: "list[torch.Tensor]", states: "torch.Tensor", single: "torch.Tensor", calls: list[Call]
    ) -> Iterator[str]:
        yield from _complaints(self.backbone.config.get_text_config(), calls)
        if any(call.causal != self.causal for call in calls):
            yield (
                "it attends in both directions" if self.causal else "only some of its layers attend in both directions"
            )
        for path, one in zip(self.layout.paths, self.entered if entered else (), strict=False):
            # Rounded once or twice by now, so that another position is plain in any dtype.
            if not _distance(entered[0][:, path], one) <= min(_noise(self.backbone), 0.02):
                yield "tokens in a pack enter the first layer different from tokens of texts alone"
        apart = _distance(states, single)
        if not apart <= _noise(self.backbone):
            yield f"texts in a pack come out different from texts alone (relative distance {apart:.2g})"


@contextmanager
def _entering(backbone: "PreTrainedModel", rows: int) -> "Iterator[list[torch.Tensor]]":
    """Inside the block: what enters the first layer when a text or pack of `rows` rows goes through it."""
    import torch

    entered: list[torch.Tensor] = []

    def keep(layer: Any, given: tuple[Any, ...]) -> None:
        if given and isinstance(given[0], torch.Tensor) and given[0].shape[:-1] == (1, rows):
            entered.append(given[0].float())

    handles = [layer.register_forward_pre_hook(keep) for layer in (layers(backbone) or [])[:1]]
    try:
        yield entered
    finally:
        for handle in handles:
            handle.remove()


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


def _ids(backbone: "PreTrainedModel", n: int) -> NDArray[np.intp]:
    vocabulary = getattr(backbone.config.get_text_config(), "vocab_size", 256)
    return np.random.default_rng(0).integers(0, vocabulary, n)


def _noise(backbone: "PreTrainedModel") -> float:
    """The relative distance up to which states count as equal."""
    return 1e-3 if backbone.dtype.itemsize >= 4 else 0.1


def _distance(left: "torch.Tensor", right: "torch.Tensor") -> float:
    """The largest relative distance of a row from what it should be."""
    return float(((left - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-6)).max())
