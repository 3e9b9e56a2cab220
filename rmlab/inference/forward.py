"""Hidden states of many texts at recorded positions: nothing padded, no shared
beginning forwarded twice.

Decoders get packs of tries, encoders packs of whole texts (planning.py, attention.py);
models whose texts would see each other in a pack get length-sorted batches. A prompt
that is larger than a pack goes through in several, which hand keys and values on. All
give what each text alone gives (`Passes.alone`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from rmlab.inference.attention import PrefixCache
from rmlab.inference.memory import until_it_fits, upload
from rmlab.inference.passes import Passes
from rmlab.inference.planning import (
    Ints,
    Packing,
    Part,
    Texts,
    count_tokens,
    cut,
    distinct,
    lay_out,
)

if TYPE_CHECKING:
    from torch import Tensor


class Batch(NamedTuple):
    """Hidden states of some texts: `rows[where[k]]` are the wanted positions of text
    number `texts[k]`, in order.

    `rows`: (n, hidden) float32 on the model's device, where they may still be computed:
    reading a number waits for them. Texts that share a position share its row.
    """

    texts: Ints
    rows: "Tensor"
    where: list[Ints]

    def stacked(self) -> "Tensor":
        """The states of texts that want equally many positions, (texts, positions,
        hidden).
        """
        flat = np.concatenate(self.where)
        # The usual case, one state a text in the texts' order: looking at the rows
        # another way copies nothing.
        if np.array_equal(flat, np.arange(len(self.rows))):
            return cast("Tensor", self.rows.unflatten(0, (len(self.where), -1)))
        return _take(self.rows, np.stack(self.where))


@dataclass
class Walk:
    """Some texts on their way through a model, in packs or batches.

    Equal sequences are forwarded once, under the number of their first text; `copies`
    holds all texts of each. `cache`: what a pack has left for the next one.
    """

    passes: Passes
    packing: Packing
    sequences: Texts
    reads: Texts
    groups: Ints
    budget: int
    fill: int | None
    copies: dict[int, Ints] = field(default_factory=dict)
    cache: PrefixCache = field(default_factory=PrefixCache)

    def batches(self, texts: Ints, can_cache: Callable[[], bool]) -> Iterator[Batch]:
        """The states of the texts, batch by batch; a pack in which no text ends gives
        none.

        `can_cache`: asked only where a prompt is larger than a pack, as it takes passes
        of its own.
        """
        sequences = [self.sequences[text] for text in texts.tolist()]
        for equal in distinct(sequences):
            copies = texts[equal]
            first = int(copies[0])
            self.copies[first] = copies
        distinct_texts = np.array(list(self.copies), np.intp)

        cut_texts = partial(cut, self.sequences, self.groups, fill=self.fill)
        parts = cut_texts(distinct_texts, self.budget, packing=self.packing)
        uses_cache = any(part.n_to_cache for part in parts)
        if uses_cache and not can_cache():
            self.packing = replace(self.packing, caches=False)
            parts = cut_texts(distinct_texts, self.budget, packing=self.packing)

        cut_again = partial(cut_texts, packing=self.packing)
        for batch in until_it_fits(parts, self._forward, cut_again):
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
            for text in self.copies[sequence].tolist():
                texts.append(text)
                numbers.append(number)
                reads.append(np.asarray(self.reads[text], np.intp))

        counts = count_tokens(reads)
        owner = np.repeat(np.array(numbers, np.intp), counts)
        positions = np.concatenate([np.zeros(0, np.intp), *reads])
        if self.packing.refused:
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
        sequences = [self.sequences[text] for text in part.texts]
        texts, reads = np.divmod(cells, width)
        return _PartStates(self.passes.padded_rows(sequences, texts, reads), where)

    def _packed(self, part: Part, owner: Ints, positions: Ints) -> "_PartStates":
        """The same of a pack."""
        import torch

        layout = lay_out(part, self.sequences)
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
        texts = np.flatnonzero(self.groups == self.groups[part.texts[-1]])
        reads = np.concatenate([self.reads[text] for text in texts.tolist()])
        positions = np.unique(reads).astype(np.intp)
        return positions[positions < part.n_to_cache]


class _PartStates(NamedTuple):
    """States (n, hidden), and which of them each position reads."""

    rows: "Tensor"
    where: Ints


def _take(states: "Tensor", rows: Ints) -> "Tensor":
    return states[upload({"rows": rows}, states.device)["rows"]]
