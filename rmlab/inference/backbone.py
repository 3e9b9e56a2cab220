"""A transformers model that is forwarded: its lock, how it packs, its kernels.

backbone = Backbone(model)
for batch in backbone.hidden(ids, reads, groups=groups):
    ...
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmlab.inference import forward, passes
from rmlab.inference.forward import Batch
from rmlab.inference.planning import Groups, Packing, Texts, Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

    # What a class needs beside ids and positions, computed from these: both are
    # (rows, tokens), and positions are None where each row is one text.
    Argument = Callable[[Tensor, Tensor | None], Tensor]


class HowPacked(NamedTuple):
    """For people: what packs hold and how attention goes, None before that is known;
    and what kernels lack, empty if nothing.
    """

    way: str | None
    trouble: str


class Backbone:
    """A transformers base model (what AutoModel gives), and all that is known of it.

    `model`: the model, or a function that loads one: it is called when the weights are
    first needed, and again after `free_memory`.
    """

    def __init__(
        self, model: "PreTrainedModel | Callable[[], PreTrainedModel]"
    ) -> None:
        self._source = model
        # What the model's class needs in every pass beside ids and positions, by the
        # name of its argument (adapters for odd classes add to it).
        self.arguments: dict[str, Argument] = {}

    @cached_property
    def model(self) -> "PreTrainedModel":
        """The transformers model; loads the weights."""
        from transformers import PreTrainedModel

        is_model = isinstance(self._source, PreTrainedModel)
        return self._source if is_model else self._source()

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return "model" in self.__dict__

    @property
    def device(self) -> "torch.device":
        """The device of the first layer."""
        return self.model.device

    @property
    def dtype(self) -> "torch.dtype":
        """The number type of the weights."""
        return self.model.dtype

    def hidden(
        self, ids: Texts, reads: Texts, *, groups: Groups, budget: int | None = None
    ) -> Iterator[Batch]:
        """Last hidden states of each text at the positions it wants, in float32, batch
        by batch.

        `ids[i]`: token ids of text i; `reads[i]`: positions in it; `groups[i]`: its
        prompt number. `budget`: tokens at once, by default what suits the device and
        the model; running out of memory halves it. On a GPU a batch is given out while
        it is still computed: launch what follows before reading it. Raises ValueError
        for an empty text or a position outside it.
        """
        with self._added_arguments():
            yield from forward.hidden(
                self.model, ids, reads, groups=groups, budget=budget
            )

    def alone(self, ids: Tokens, reads: Tokens) -> "Tensor":
        """Hidden states of one text forwarded by itself with the model's own attention:
        (reads, hidden) float32.

        The reference that packs and batches are compared with.
        """
        with self._added_arguments():
            return passes.alone(self.model, ids, reads)

    def forward(self, **inputs: "Tensor") -> "Tensor":
        """The last hidden states of one pass, (rows, tokens, hidden); call it inside
        `exclusive_pass`.
        """
        return passes._forward(self.model, **inputs)

    @contextmanager
    def exclusive_pass(self, longest: int) -> Iterator[None]:
        """One pass at a time, with texts of up to `longest` tokens: eval mode, no
        gradients; the model is afterwards as it was before.
        """
        with self._added_arguments(), passes.exclusive_pass(self.model, longest):
            yield

    @contextmanager
    def _added_arguments(self) -> Iterator[None]:
        """Add the class's arguments to passes inside the block."""
        if not self.arguments:
            yield
            return

        def add(
            _: object, inputs: "tuple[Tensor, ...]", named: "dict[str, Tensor]"
        ) -> "tuple[object, dict[str, Tensor]]":
            ids = inputs[0] if inputs else named["input_ids"]
            positions = named.get("position_ids")
            added = {
                name: compute(ids, positions)
                for name, compute in self.arguments.items()
            }
            return inputs, named | added

        with self.model.register_forward_pre_hook(add, with_kwargs=True):
            yield

    @property
    def packing(self) -> Packing:
        """How texts go through the model together; found out once, with a few passes."""
        with self._added_arguments():
            return passes.packing_support(self.model)

    def how_packed(self) -> HowPacked:
        """For people: what packs hold and how attention goes, as far as known."""
        return HowPacked(*passes.how_packed(self.model))

    def free_memory(self) -> None:
        """Free the weights' memory; what needs them next loads them again."""
        import torch

        if self.__dict__.pop("model", None) is not None:
            torch.cuda.empty_cache()  # does nothing where there is no GPU
