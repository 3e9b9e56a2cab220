"""How texts of a model can go through it together: found out by looking at its settings and by trying."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from rmlab.inference.fitting import out_of_memory
from rmlab.inference.kernels import kernels, serves
from rmlab.inference.passes import UNKNOWN, Shape, accepts, alone, padded_rows
from rmlab.inference.state import changes, put_back, remember
from rmlab.inference.trial_pack import FAILURES, Trial, distance, noise, some_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Packing", "cached_packing", "goes_on", "how_packed", "packing_support"]

_LAYERS = {"full_attention", "sliding_attention"}  # kinds that path attention knows


@dataclass(frozen=True)
class Packing:
    """How texts go through a model together.

    `refused`: why they cannot share a pack, as half a sentence; None where they can. `causal`: a token sees what comes
    before it and no more, so that texts with a common beginning share its rows. `shape`: what passes need to know of
    the layers. `pads`: where there are no packs, texts of different lengths can share a batch, since padding changes
    nothing. `half_differs`: on a GPU, in half precision, texts in a pack are rounded otherwise than texts alone.
    `keeps`: a prompt that is larger than a pack can be forwarded in several, which hand keys and values on; believed
    until the first such prompt, before which `goes_on` tries it.
    """

    refused: str | None
    causal: bool = True
    shape: Shape = UNKNOWN
    pads: bool = True
    half_differs: bool = False
    keeps: bool = True

    @property
    def packed(self) -> bool:
        """Can texts share a pack?"""
        return self.refused is None

    def __str__(self) -> str:
        """What packs hold, or why there are none."""
        if self.packed:
            held = "texts with shared beginnings" if self.causal else "whole texts"
            return held + (", rounded otherwise than alone" if self.half_differs else "")
        return f"none: {self.refused}" + ("" if self.pads else "; texts of one length go together")


# By model, so that answers go with it; by device and dtype, as a model that is moved meets other kernels and noise.
_cached: "WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], Packing]]" = WeakKeyDictionary()
_goes_on: "WeakKeyDictionary[PreTrainedModel, dict[tuple[str, str], bool]]" = WeakKeyDictionary()


def packing_support(backbone: "PreTrainedModel") -> Packing:
    """How texts go through this model together.

    Asks the model's settings first. Then forwards a pack of short texts: every layer must come to path attention and
    ask for nothing that it lacks, and each text must come out as it does alone. The last layers are narrowed where that
    changes nothing either, and texts that cannot share a pack are padded where that changes nothing. A GPU's kernels
    that compute something else are not used. What trying may have changed in the model is put back. The answer is kept
    for as long as the model lives, per device and dtype.
    """
    found = cached_packing(backbone)
    if found is None:
        refused, before = next(_settings(backbone), None), remember(backbone)
        found = Packing(refused) if refused else _tried(backbone)
        # Refused by trial on a GPU: it may be the kernels that are wrong, not the packs.
        if found.refused and not refused and _has_kernels(backbone):
            found = _without_kernels(backbone, found.refused) or found
        found = found if found.packed else replace(found, pads=not changes(backbone) and _pads(backbone))
        put_back(before)
        _cached.setdefault(backbone, {})[_state(backbone)] = found
    return found


def goes_on(backbone: "PreTrainedModel") -> bool:
    """Do texts come out the same where a pack goes on from the keys and values of the one before?

    Tried only for prompts that are larger than a pack: a GPU compiles kernels of their own for it. The answer is kept.
    """
    known = _goes_on.setdefault(backbone, {})
    if _state(backbone) not in known:
        before = remember(backbone)
        known[_state(backbone)] = Trial(backbone, 0, causal=True).goes_on(packing_support(backbone).shape)
        put_back(before)
    return known[_state(backbone)]


def cached_packing(backbone: "PreTrainedModel") -> Packing | None:
    """What `packing_support` found out for this model as it is now; None before that."""
    return _cached.get(backbone, {}).get(_state(backbone))


def how_packed(backbone: "PreTrainedModel") -> tuple[str | None, str]:
    """For people: what packs hold and how attention goes, None before that is known; and what kernels lack, if any."""
    packing = cached_packing(backbone)
    if packing is None:
        return None, ""
    if not packing.packed or not serves(backbone.device):
        return str(packing), ""
    held = kernels(backbone)
    return f"{packing}; {held}", held.trouble


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
    # Layers with a state that runs along the row (Mamba, linear attention) would carry it from text to text.
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS)
    if getattr(config, "attn_temperature_tuning", False):
        # Llama 4 counts rows for it, in steps of thousands, which no short text shows.
        yield "its attention scales by rows"
    if strange:
        yield f"it has layers of another kind: {', '.join(strange)}"


def _tried(backbone: "PreTrainedModel") -> Packing:
    """What shows when a small pack is forwarded: as a decoder's, and as an encoder's if it looks both ways."""
    config = backbone.config.get_text_config()
    # Learned positions may run out in a pack that has more rows than they are.
    learned = 0 if getattr(config, "rope_parameters", None) else getattr(config, "max_position_embeddings", 0)
    trial = Trial(backbone, learned - 8, causal=True)
    refused, calls = trial.run()
    if calls and not any(call.causal for call in calls):
        # Texts several windows long, so that what lies outside of a window shows.
        nearest = min((call.window for call in calls if call.window), default=0)
        trial = Trial(backbone, max(learned - 8, 6 * nearest), causal=False)
        refused, calls = trial.run()
    if refused:
        return Packing(refused)
    half, kernel = backbone.dtype.itemsize < 4, _has_kernels(backbone)  # below four bytes: bfloat16 and float16
    # Run by run, half precision is rounded as in the text alone, if no layer but the last is left out.
    windows = tuple(None if trial.causal or (half and not kernel) else call.window for call in calls)
    whole = Shape(frozenset(call.view for call in calls))
    # Narrowing must pass a trial of its own; else all rows go through all layers, which is only slower.
    narrow = replace(whole, windows=windows, behind=trial.behind)
    shape = narrow if all(trial.behind) and trial.run(narrow)[0] is None else whole
    return Packing(None, trial.causal, shape, half_differs=half and kernel)


def _without_kernels(backbone: "PreTrainedModel", refused: str) -> Packing | None:
    """What shows when packs go run by run: if they are right then, the kernels are to blame and are not used."""
    held = kernels(backbone)
    with held.paused():
        found = _tried(backbone)
    if not found.packed:
        return None
    held.refuse(refused)
    return found


def _has_kernels(backbone: "PreTrainedModel") -> bool:
    """Does attention go through a GPU's kernels?"""
    return serves(backbone.device) and kernels(backbone).usable


def _pads(backbone: "PreTrainedModel") -> bool:
    """Do two texts come out of a padded batch as they do alone, at both of their ends?"""
    import torch

    ids = some_ids(backbone, 16)
    texts = [ids[:9], ids[9:]]  # nine tokens and seven: the second is padded
    ends = [np.array([0, len(text) - 1]) for text in texts]
    try:
        single = torch.cat([alone(backbone, text, at) for text, at in zip(texts, ends, strict=True)])
        together = padded_rows(backbone, texts, np.array([0, 0, 1, 1]), np.concatenate(ends))
    except FAILURES as error:
        if out_of_memory(error):
            raise
        return False
    return distance(together, single) <= noise(backbone)
