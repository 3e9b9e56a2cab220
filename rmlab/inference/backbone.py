"""A transformers model that is forwarded: its lock, how it packs, its kernels."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from rmlab.inference import flex, trial
from rmlab.inference.forward import Batch, Walk
from rmlab.inference.memory import model_budget
from rmlab.inference.passes import Passes, position_scales
from rmlab.inference.planning import (
    FILL,
    Groups,
    Packing,
    Texts,
    Tokens,
    count_tokens,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

    from rmlab.inference.passes import Argument


class Backbone:
    """A transformers base model (what AutoModel gives), and all that is known of it.

    `arguments`: what the model's class needs in every pass beside ids and positions, by
    the name of the argument, computed from the ids and positions of the pass. `passes`:
    the model's forward passes.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        self.model = model
        self.arguments: dict[str, Argument] = {}
        self.passes = Passes(model, self.arguments)
        self._can_cache: bool | None = None

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
        the model (memory.py); running out of memory halves it. The largest part comes
        first, so that a budget that is too large shows at once. On a GPU a batch is
        given out while it is still computed: launch what follows before reading it.
        """
        # Texts that the model gives the same position scale go together; it is 0 for
        # all texts of most models.
        scales = position_scales(self.model.config, count_tokens(ids))
        walks = []
        for scale in np.unique(scales):
            walk = Walk(
                self.passes,
                # The scale of a pass is that of its last position, and a beginning
                # ends too early for the scale of its text.
                replace(self.packing, caches=scale == 0),
                ids,
                reads,
                np.asarray(groups),
                budget or model_budget(self.model),
                FILL.get(self.model.device.type),
            )
            texts = np.flatnonzero(scales == scale)
            walks.append(walk.batches(texts, self.can_cache))
        return chain.from_iterable(walks)

    def alone(self, ids: Tokens, reads: Tokens) -> "Tensor":
        """Hidden states of one text forwarded by itself with the model's own attention:
        (reads, hidden) float32.

        The reference that packs and batches are compared with.
        """
        return self.passes.alone(ids, reads)

    @cached_property
    def packing(self) -> Packing:
        """How texts go through the model together; found once, with a few passes."""
        return trial.find_packing(self.passes)

    def can_cache(self) -> bool:
        """Can a prompt that is larger than a pack go through in several? Found out
        once, with a few passes.
        """
        if self._can_cache is None:
            is_packed = self.packing.refused is None
            self._can_cache = is_packed and trial.can_cache(self.passes)
        return self._can_cache

    @property
    def way(self) -> str | None:
        """For people: what packs hold and how attention goes; None before it is
        known.
        """
        packing = self.__dict__.get("packing")
        if packing is None:
            return None
        if packing.refused or self.model.device.type in flex.WITHOUT_KERNELS:
            return str(packing)
        return f"{packing}; {self.passes.kernels}"
