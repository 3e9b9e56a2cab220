"""A transformers model that is forwarded: hidden states of many texts at recorded
positions, nothing padded, no shared prefix forwarded twice.

Decoders get packs of tries, encoders packs of whole texts (planning.py, attention.py);
models whose texts would see each other in a pack get length-sorted batches. A prompt
that is larger than a pack goes through in several, which hand keys and values on. All
give what each text alone gives (`Backbone.alone`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmlab.inference import flex, trial
from rmlab.inference.attention import PrefixCache
from rmlab.inference.memory import model_budget, until_it_fits, upload
from rmlab.inference.passes import Passes, position_scales
from rmlab.inference.planning import (
    FILL,
    Groups,
    Ints,
    Packing,
    Part,
    Plan,
    Texts,
    Tokens,
    count_tokens,
    lay_out,
    plan,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from rmlab.inference.passes import Argument


class Batch(NamedTuple):
    """Hidden states of some texts: `rows[where[k]]` are the wanted positions of text
    number `texts[k]`, in order.

    `rows`: (n, hidden) float32 on the model's device, where they may still be computed:
    reading a number waits for them. Texts that share a position share its row.
    """

    texts: Ints
    rows: "Tensor"
    where: list[Ints]


@dataclass
class _Walk:
    """Texts on their way through a model, in packs or batches.

    `reads`: where each of them is read. `cache`: what a pack has left for the next one.
    """

    passes: Passes
    plan: Plan
    reads: Texts
    cache: PrefixCache = field(default_factory=PrefixCache)

    def batches(self) -> Iterator[Batch]:
        """The states of the texts, batch by batch; a pack in which no text ends gives
        none.
        """
        plan = self.plan
        for batch in until_it_fits(plan.parts, self._forward, plan.cut):
            if len(batch.texts):
                yield batch

    def _forward(self, part: Part) -> Batch:
        """Launch one part; what it gives out is read later."""
        # A text that is cut is read in the pack that finishes it.
        n_finished = len(part.texts) - part.is_cut
        # Copies are read at positions of their own, from the rows of one forwarded
        # sequence: `numbers` says which finished text each is.
        texts: list[int] = []
        numbers: list[int] = []
        reads: list[Ints] = []
        for number, sequence in enumerate(part.texts[:n_finished].tolist()):
            for text in self.plan.copies[sequence].tolist():
                texts.append(text)
                numbers.append(number)
                reads.append(np.asarray(self.reads[text], np.intp))

        counts = count_tokens(reads)
        owner = np.repeat(np.array(numbers, np.intp), counts)
        positions = np.concatenate([np.zeros(0, np.intp), *reads])
        if self.plan.packing.refused:
            rows, where = self._padded(part, owner, positions)
        else:
            rows, where = self._packed(part, owner, positions)

        by_text = np.split(where, np.cumsum(counts)[:-1])
        return Batch(np.array(texts, np.intp), rows, by_text)

    def _padded(self, part: Part, owner: Ints, positions: Ints) -> "_PartStates":
        """States of a batch at the `positions` of its texts number `owner`."""
        # A cell of the padded batch as one number: text times its width plus position.
        width = part.tokens // len(part.texts)
        cells, where = np.unique(owner * width + positions, return_inverse=True)
        sequences = [self.plan.sequences[text] for text in part.texts]
        texts, reads = np.divmod(cells, width)
        return _PartStates(self.passes.padded_rows(sequences, texts, reads), where)

    def _packed(self, part: Part, owner: Ints, positions: Ints) -> "_PartStates":
        """The same of a pack."""
        import torch

        layout = lay_out(part, self.plan.sequences)
        if not part.n_cached:
            # The first pack of a prompt: what another has left is of no use.
            self.cache = PrefixCache()
        rows, where = np.unique(layout.rows(owner, positions), return_inverse=True)
        n_rows = len(rows)
        later = np.zeros(0, np.intp)
        if part.n_to_cache:
            # What later packs read of this one lies on the path that they go on from,
            # that of the last text.
            later = self._later_reads(part)
            rows = np.concatenate([rows, layout.path(len(part.texts) - 1)[later]])

        # Cached rows were forwarded before, row by position.
        before = self.cache.positions
        is_new = rows >= layout.n_cached
        states = self.passes.packed_rows(layout, rows[is_new], self.cache).rows
        if self.cache.states is not None:
            states = torch.cat([self.cache.states, states])
        new_place = len(before) + np.cumsum(is_new) - 1
        place = np.where(is_new, new_place, np.searchsorted(before, rows))

        if part.n_to_cache:
            self.cache.positions = later
            self.cache.states = _take(states, place[n_rows:])
        else:
            # The prompt is done: its keys and values are freed.
            self.cache = PrefixCache()
        return _PartStates(states, place[:n_rows][where])

    def _later_reads(self, part: Part) -> Ints:
        """Where texts of the prompt are read in the beginning that the next pack goes
        on from, ascending.
        """
        groups = self.plan.groups
        in_prompt = np.flatnonzero(groups == groups[part.texts[-1]])
        texts = np.concatenate([self.plan.copies[number] for number in in_prompt])
        reads = np.concatenate([self.reads[text] for text in texts.tolist()])
        positions = np.unique(reads).astype(np.intp)
        return positions[positions < part.n_to_cache]


class _PartStates(NamedTuple):
    """States (n, hidden), and which of them each position reads."""

    rows: "Tensor"
    where: Ints


def _take(states: "Tensor", rows: Ints) -> "Tensor":
    return states[upload({"rows": rows}, states.device)["rows"]]


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
        fill = FILL.get(self.model.device.type)
        walks = []
        for scale in np.unique(scales):
            packing = self.packing
            if scale:
                # The scale of a pass is that of its last position, and a beginning
                # ends too early for the scale of its text.
                packing = replace(packing, shares=False)
            texts = np.flatnonzero(scales == scale)
            passes = plan(
                [ids[text] for text in texts.tolist()],
                np.asarray(groups)[texts],
                budget=budget or model_budget(self.model),
                fill=fill,
                packing=packing,
            )
            copies = [texts[equal] for equal in passes.copies]
            walk = _Walk(self.passes, replace(passes, copies=copies), reads)
            walks.append(walk.batches())
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
