"""A small pack that is tried on a model: whether its texts come out as they do alone, and what its layers ask for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.attention import Call, calls_made
from rmlab.inference.fitting import out_of_memory
from rmlab.inference.kept import Kept
from rmlab.inference.layout import lay_out
from rmlab.inference.narrowing import Recorder, layers
from rmlab.inference.passes import UNKNOWN, Shape, alone, packed_rows
from rmlab.inference.trie import pack

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["FAILURES", "Trial", "distance", "noise", "some_ids"]

FAILURES = (TypeError, ValueError, KeyError, IndexError, RuntimeError)
"""What a model raises that cannot take what it is given."""

_SMALL = 20
"""Tokens of a pack that the common beginning of the trial's texts, 28 tokens, does not fit into."""


class Trial:
    """A pack of five texts, read at both ends of each run, or narrowed to where heads read.

    That is at a text's end, or at its beginning where a model is not causal. Three texts have common beginnings, two
    lie apart, one of these of up to `longest` tokens.
    """

    def __init__(self, backbone: "PreTrainedModel", longest: int, *, causal: bool) -> None:
        self.backbone, self.causal = backbone, causal
        self.behind: tuple[tuple[str, ...], ...] = ()
        ids = some_ids(backbone, 80 + min(max(longest, 16), 1024))
        # The second text leaves the first after 28 tokens, the third leaves the second six tokens later: a branch in a
        # branch.
        self.sharing = [ids[:34], np.r_[ids[:28], ids[40:50]], np.r_[ids[:28], ids[40:46], ids[60:65]]]
        texts = [*self.sharing, ids[65:80], ids[80:]]
        # Five groups: an encoder's texts share nothing.
        part = pack(texts, [0, 0, 0, 1, 2] if causal else range(5), budget=4096)[0]
        self.layout = lay_out(part, texts)
        self.alone: list[torch.Tensor] = []
        self.entered: list[torch.Tensor] = []
        self.texts = part.texts
        for text, run in zip(part.texts, self.layout.runs, strict=True):
            # The first row after what is shared, and the last: where a wrong path or position shows.
            ends = np.array([run.offset, len(texts[text]) - 1])
            with _entering(backbone, len(texts[text])) as entered:
                self.alone.append(alone(backbone, texts[text], ends))
            self.entered += entered[:1]

    def run(self, shape: Shape = UNKNOWN) -> tuple[str | None, list[Call]]:
        """Why the texts cannot share this pack, None where they can; and the attention calls.

        Looks for the modules behind the attention as long as none are known. With `shape` the layers are narrowed.
        """
        import torch

        end = 1 if self.causal else 0  # heads of decoders read the end, of encoders the beginning
        read = slice(end, end + 1) if shape.windows else slice(2)
        rows = np.concatenate([[run.start, run.stop - 1][read] for run in self.layout.runs])
        recorder = Recorder([] if shape.windows else layers(self.backbone) or [], len(self.layout.ids), calls_made)
        try:
            with _entering(self.backbone, len(self.layout.ids)) as entered:
                states, calls = packed_rows(self.backbone, self.layout, rows, shape)
        except FAILURES as error:
            if out_of_memory(error):
                raise
            return f"it does not run with path attention: {error}", []
        finally:
            self.behind = recorder.close() or self.behind
        single = torch.cat([one[read] for one in self.alone])
        return next(self._complaints(entered, states, single, calls), None), calls

    def goes_on(self, shape: Shape) -> bool:
        """Do the texts come out the same in packs that are too small for their common beginning?"""
        import torch

        kept, found = Kept(), []
        single = dict(zip(self.texts.tolist(), self.alone, strict=True))
        try:
            for part in pack(self.sharing, [0] * len(self.sharing), _SMALL):
                layout = lay_out(part, self.sharing)
                ends = np.array([run.stop - 1 for run in layout.runs])
                states, _ = packed_rows(self.backbone, layout, ends, shape, kept)
                found += [
                    (state, single[text][-1]) for state, text in zip(states, part.finished.tolist(), strict=False)
                ]
        except FAILURES as error:
            if out_of_memory(error):
                raise
            return False
        together, apart = (torch.stack(states) for states in zip(*found, strict=True))
        return distance(together, apart) <= noise(self.backbone)

    def _complaints(
        self, entered: "list[torch.Tensor]", states: "torch.Tensor", single: "torch.Tensor", calls: list[Call]
    ) -> Iterator[str]:
        yield from _complaints(self.backbone.config.get_text_config(), calls)
        if any(call.causal != self.causal for call in calls):
            yield (
                "it attends in both directions" if self.causal else "only some of its layers attend in both directions"
            )
        # Before any attention: a model that adds positions of its own to the embeddings is found out here.
        for path, one in zip(self.layout.paths, self.entered if entered else (), strict=False):
            # Rounded once or twice by now, so that another position is plain in any dtype.
            if not distance(entered[0][:, path], one) <= min(noise(self.backbone), 0.02):
                yield "tokens in a pack enter the first layer different from tokens of texts alone"
        apart = distance(states, single)
        if not apart <= noise(self.backbone):
            yield f"texts in a pack come out different from texts alone (relative distance {apart:.2g})"


@contextmanager
def _entering(backbone: "PreTrainedModel", rows: int) -> "Iterator[list[torch.Tensor]]":
    """Inside the block: what enters the first layer when a text or pack of `rows` rows goes through it."""
    import torch

    entered: list[torch.Tensor] = []

    def keep(layer: object, given: tuple[object, ...]) -> None:
        if given and isinstance(given[0], torch.Tensor) and given[0].shape[:-1] == (1, rows):
            entered.append(given[0].float())

    handles = [layer.register_forward_pre_hook(keep) for layer in (layers(backbone) or [])[:1]]
    try:
        yield entered
    finally:
        for handle in handles:
            handle.remove()


def _complaints(config: "PreTrainedConfig", calls: list[Call]) -> Iterator[str]:
    if len(calls) != config.num_hidden_layers:
        yield f"{len(calls)} of its {config.num_hidden_layers} layers use the attention interface"
    for call in calls:
        for name in call.refused:
            yield f"its attention asks for {name}"
    # A window that a layer does not hand over would be missing in path attention.
    kinds = getattr(config, "layer_types", None)
    if kinds:
        windows = sum(kind == "sliding_attention" for kind in kinds)
    else:
        windows = len(calls) * bool(
            getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        )
    if windows != sum(call.window is not None for call in calls):
        yield "it has sliding windows that its layers do not hand to attention"


def some_ids(backbone: "PreTrainedModel", n: int) -> NDArray[np.intp]:
    """Token ids for a trial, the same every time."""
    vocabulary = getattr(backbone.config.get_text_config(), "vocab_size", 256)
    return np.random.default_rng(0).integers(0, vocabulary, n)


def noise(backbone: "PreTrainedModel") -> float:
    """The relative distance up to which states count as equal."""
    # Wrong rows are off by about their own length, 1. Rounding is far below that in float32, and may come to hundredths
    # in half precision.
    return 1e-3 if backbone.dtype.itemsize >= 4 else 0.1


def distance(left: "torch.Tensor", right: "torch.Tensor") -> float:
    """The largest relative distance of a row from what it should be."""
    # NaN is not below any bound, so it counts as different.
    return float(((left - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-6)).max())
