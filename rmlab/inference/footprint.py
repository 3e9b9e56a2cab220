"""What a model would forward and hold, without its weights: tokens by the plan, memory by a pass of shapes alone.

Two stand-ins are made of the configuration. A narrow model with real numbers shows how texts go together
(packing.py). A model of a few layers in full width, whose tensors have shapes and no numbers (torch's fake tensors),
forwards the largest pack of the plan; the tensors that live at once are counted as they come and go.
"""

import copy
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference import runs
from rmlab.inference.batches import Padded
from rmlab.inference.budget import activation_bytes, kept_bytes
from rmlab.inference.layout import lay_out
from rmlab.inference.packing import Packing, packing_support
from rmlab.inference.passes import packed_rows, padded_rows
from rmlab.inference.planning import Plan, plan
from rmlab.inference.trie import Pack, Tokens

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["Footprint", "Tensors", "footprint", "tensors"]

Ints = NDArray[np.intp]
Named = dict[str, object] | None

_LAYERS = 4
"""Layers of the stand-ins: a layer's tensors are freed before the next one's come, so that more layers hold no more."""

# Small enough to try in a moment, with heads that divide the width.
_NARROW = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16, "vocab_size": 64}
_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
# What architectures raise that cannot be made this small, or that ask shapes for their numbers.
_ERRORS = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError, NotImplementedError)


class Footprint(NamedTuple):
    """What is forwarded (`plan`), and the bytes of the tensors that live at once beside the weights.

    `exact`: whether a pass of shapes gave them; else they are an estimate from the configuration alone.
    """

    plan: Plan
    activations: float
    exact: bool


def footprint(
    config: "PreTrainedConfig",
    sequences: Sequence[Tokens],
    reads: Sequence[Ints],
    groups: Sequence[int] | Ints,
    *,
    dtype: "torch.dtype",
    budget: int,
    fill: int | None,
    causal: bool,
) -> Footprint:
    """What a model of this configuration forwards for the token id sequences, and holds meanwhile.

    `reads[i]`: the wanted positions of text i; `groups[i]`: its prompt number; `causal`: what is believed where the
    architecture cannot be tried in small.
    """
    packing = _packing(config, causal)
    made = plan(sequences, groups, budget=budget, fill=fill, packing=packing)
    kept = made.kept * kept_bytes(config, dtype)
    # The largest part decides what is held: parts go through one after the other.
    part = max(made.parts, key=lambda one: one.tokens)
    own = [copies[0] for copies in made.copies]  # parts hold numbers of distinct sequences; these are their texts
    # Masks are kept between passes: those with numbers would not be counted, those without must not stay.
    runs.forget()
    try:
        held = _held(config, dtype, packing, part, [sequences[i] for i in own], [reads[i] for i in own])
    except _ERRORS:
        return Footprint(made, part.tokens * activation_bytes(config, dtype) + kept, False)
    finally:
        runs.forget()
    return Footprint(made, held + kept, True)


class Tensors:
    """Bytes of the tensors that live now, and the most that lived at once; kept by `tensors`."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._uses: dict[int, list[int]] = {}

    def made(self, tensor: "torch.Tensor") -> None:
        """A tensor has come: its storage counts until the last tensor on it has gone."""
        # Views share the storage of what they look at: it is counted once, by its identity.
        storage = tensor.untyped_storage()
        uses = self._uses.setdefault(storage._cdata, [0, storage.nbytes()])
        if not uses[0]:
            self.now += uses[1]
            self.most = max(self.most, self.now)
        uses[0] += 1
        # At exit nobody counts any more.
        weakref.finalize(tensor, self._gone, storage._cdata).atexit = False

    def _gone(self, storage: int) -> None:
        uses = self._uses[storage]
        uses[0] -= 1
        if not uses[0]:
            self.now -= uses[1]
            del self._uses[storage]


@contextmanager
def tensors() -> Iterator[Tensors]:
    """Count the tensors that operations make within the block, whether they hold numbers or only shapes."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    counted = Tensors()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Callable[..., object], types: object, args: tuple[object, ...] = (), kwargs: Named = None
        ) -> object:
            # Every operation comes through here, with and without numbers; what it gives out is a tree of tensors.
            found = func(*args, **(kwargs or {}))
            for one in tree_leaves(found):
                if isinstance(one, torch.Tensor):
                    counted.made(one)
            return found

    watching: Callable[[], TorchDispatchMode] = Watch  # its __init__, torch's, has no annotations
    with watching():
        yield counted


def _packing(config: "PreTrainedConfig", causal: bool) -> Packing:
    """How texts of this architecture go together, tried on a narrow model of it."""
    try:
        return packing_support(_model(_narrow(config)).eval())
    except _ERRORS:
        return Packing(None, causal=causal)


def _held(
    config: "PreTrainedConfig",
    dtype: "torch.dtype",
    packing: Packing,
    part: Pack | Padded,
    sequences: list[Tokens],
    reads: list[Ints],
) -> int:
    """Bytes at once of a pass with one part, in a model of shapes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    # On "meta" weights take no memory while the model is made; as fake tensors on "cpu" they then go a CPU's way.
    with torch.device("meta"):
        # To mypy, what `functools.wraps` makes of transformers' method would want the model as an argument.
        made = _model(_few_layers(config))
        cast("Callable[[torch.dtype], object]", made.to)(dtype)
        shapes = made.eval()
    with FakeTensorMode(allow_non_fake_inputs=True):
        shapes = shapes.to_empty(device="cpu")
        positions = [reads[text] for text in part.finished] or [np.zeros(0, np.intp)]
        owner = np.repeat(np.arange(len(positions)), [len(some) for some in positions])
        with tensors() as counted:
            if isinstance(part, Padded):
                own = [sequences[text] for text in part.texts]
                states: object = padded_rows(shapes, own, owner, np.concatenate(positions))
            else:
                layout = lay_out(part, sequences)
                rows = np.unique(layout.rows(owner, np.concatenate(positions)))
                # What a later pack reads is read then; something is read of every pack.
                rows = rows if len(rows) else np.array([layout.kept])
                states = packed_rows(shapes, layout, rows[rows >= layout.kept], packing.shape)
            del states
    return counted.most


def _model(config: "PreTrainedConfig") -> "PreTrainedModel":
    """A model of the configuration, with random weights where weights have numbers."""
    import torch
    from transformers import AutoModel

    # Forked, so that the weights drawn here move no random number of the caller's.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        made: PreTrainedModel = AutoModel.from_config(config)
        made.requires_grad_(False)
        return made


def _few_layers(config: "PreTrainedConfig") -> "PreTrainedConfig":
    made = copy.deepcopy(config)
    text = made.get_text_config()
    # Settings by layer must be as many as the layers.
    text.num_hidden_layers = min(text.num_hidden_layers, _LAYERS)
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[: text.num_hidden_layers]
    return made


def _narrow(config: "PreTrainedConfig") -> "PreTrainedConfig":
    """The architecture with few layers of little width, which takes a moment to try."""
    made = _few_layers(config)
    text = made.get_text_config()
    # Heads that share keys stay heads that share keys: it is the way through the model that is tried.
    grouped = getattr(text, "num_key_value_heads", None) not in (None, text.num_attention_heads)
    for name, value in _NARROW.items():
        if getattr(text, name, None) is not None:
            setattr(text, name, value)
    if getattr(text, "num_key_value_heads", None) is not None:
        text.num_key_value_heads = 2 if grouped else 4
    # Inside the narrow vocabulary: torch refuses a padding index beyond it.
    for name in _IDS:
        if getattr(text, name, None) is not None:
            setattr(text, name, 0)
    return made
