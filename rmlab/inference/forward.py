"""Hidden states of many texts at recorded positions: nothing padded, no shared
beginning forwarded twice.

Decoders get packs of tries, encoders packs of whole texts (planning.py, attention.py);
models whose texts would see each other in a pack get length-sorted batches. A prompt
that is larger than a pack goes through in several, which hand keys and values on. All
give what each text alone gives (`passes.alone`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from rmlab.inference.attention import Kept
from rmlab.inference.memory import model_budget, until_it_fits, upload
from rmlab.inference.passes import (
    packed_rows,
    packing_support,
    padded_rows,
    position_scales,
    supports_prefix_cache,
)
from rmlab.inference.planning import (
    FILL,
    Groups,
    Ints,
    Part,
    Texts,
    Tokens,
    cut,
    lay_out,
    plan,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


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
        return self.rows[_index(self.rows, np.stack(self.where))]

    def means(self) -> "Tensor":
        """The mean state of each text, (texts, hidden)."""
        import torch

        # embedding_bag averages stretches of different lengths in one kernel, without a
        # table filled up to the longest.
        flat = np.concatenate(self.where)
        starts = np.cumsum([0, *(len(positions) for positions in self.where[:-1])])
        uploaded = upload({"flat": flat, "starts": starts}, self.rows.device)
        return torch.nn.functional.embedding_bag(
            uploaded["flat"], self.rows, uploaded["starts"], mode="mean"
        )


def hidden(
    backbone: "PreTrainedModel",
    sequences: Texts,
    reads: Texts,
    *,
    groups: Groups,
    budget: int | None = None,
) -> Iterator[Batch]:
    """Last hidden states of each sequence at the positions it wants, in float32, batch
    by batch.

    `backbone`: a transformers base model (what AutoModel gives). `sequences[i]`: token
    ids of text i; `reads[i]`: positions in it; `groups[i]`: its prompt number.
    `budget`: tokens at once, by default what suits the device and the model
    (memory.py); running out of memory halves it. The largest part comes first, so that
    a budget that is too large shows at once. On a GPU a batch is given out while it is
    still computed: launch what follows before reading it. Raises ValueError for an
    empty sequence or a position outside it.
    """
    if not len(sequences) == len(reads) == len(groups):
        raise ValueError(
            f"{len(sequences)} sequences, {len(reads)} reads and {len(groups)} groups; give one per text"
        )
    for text, (ids, positions) in enumerate(zip(sequences, reads, strict=True)):
        n_tokens = len(ids)
        if not n_tokens:
            raise ValueError(
                f"sequences[{text}] is empty; a text needs at least one token"
            )
        if (
            len(positions)
            and not 0 <= np.min(positions) <= np.max(positions) < n_tokens
        ):
            at = f"reads[{text}]={list(positions)} of a text of {n_tokens} tokens"
            raise ValueError(f"{at}; allowed: 0 to {n_tokens - 1}")
    arrays, fill = (
        [np.asarray(ids) for ids in sequences],
        FILL.get(backbone.device.type),
    )
    run = _Run(
        backbone,
        arrays,
        reads,
        np.asarray(groups),
        budget or model_budget(backbone),
        fill,
    )
    # Texts that the model gives the same position scale go together; it is 0 for all
    # texts of most models. The scale of a pass is that of its last position, and a
    # beginning ends too early for the scale of its text.
    scales = position_scales(backbone, np.array([len(ids) for ids in sequences]))
    runs = (
        run.batches(np.flatnonzero(scales == scale), keeps=bool(scale == 0))
        for scale in np.unique(scales)
    )
    return chain.from_iterable(runs)


@dataclass
class _Run:
    """Texts on their way through a model: the parts that they go in, and what a pack
    has left for the next.

    Equal sequences are forwarded once, under the number of their first text; `copies`
    holds all texts of each.
    """

    backbone: "PreTrainedModel"
    sequences: list[Tokens]
    reads: Texts
    groups: Ints
    budget: int
    fill: int | None

    def batches(self, texts: Ints, *, keeps: bool) -> Iterator[Batch]:
        """The states of some texts, batch by batch; a pack in which no text ends gives
        none.

        `keeps`: a prompt that is larger than a pack may go on from what the pack before
        has left.
        """
        packing = packing_support(self.backbone)
        self.packing, self.prefix = (
            replace(packing, keeps=packing.keeps and keeps),
            Kept(),
        )
        sequences = [self.sequences[text] for text in texts.tolist()]
        plan_texts = partial(
            plan, sequences, self.groups[texts], budget=self.budget, fill=self.fill
        )
        passes = plan_texts(packing=self.packing)
        # Tried only now that a prompt needs it, as it takes passes of its own.
        if passes.kept and not supports_prefix_cache(self.backbone):
            self.packing = replace(packing, keeps=False)
            passes = plan_texts(packing=self.packing)
        first = texts[[copies[0] for copies in passes.copies]]
        self.copies = {
            text: texts[copies]
            for text, copies in zip(first.tolist(), passes.copies, strict=True)
        }
        parts = [replace(part, texts=first[part.texts]) for part in passes.parts]
        return (
            batch
            for batch in until_it_fits(parts, self._forward, self._cut)
            if len(batch.texts)
        )

    def _cut(self, texts: Ints, budget: int) -> list[Part]:
        sequences = [self.sequences[text] for text in texts.tolist()]
        return cut(
            sequences, self.groups[texts], texts, budget, self.fill, self.packing
        )

    def _forward(self, part: Part) -> Batch:
        """Launch one part; what it gives out is read later."""
        copies = [self.copies[n] for n in part.finished.tolist()]
        texts = np.concatenate([np.zeros(0, np.intp), *copies])
        # Copies read at positions of their own, from the rows of one forwarded
        # sequence.
        number = np.repeat(np.arange(len(copies)), [len(texts) for texts in copies])
        reads = [self.reads[text] for text in texts.tolist()]
        counts = [len(positions) for positions in reads]
        owner = np.repeat(
            number, counts
        )  # (positions read,): which finished text each belongs to
        positions = np.concatenate([np.zeros(0, np.intp), *reads]).astype(
            np.intp, copy=False
        )
        if self.packing.packed:
            rows, where = self._packed(part, owner, positions)
        else:
            # A cell of the padded batch as one number: text times its width plus
            # position.
            longest = part.tokens // len(part.texts)
            cells, where = np.unique(owner * longest + positions, return_inverse=True)
            sequences = [self.sequences[n] for n in part.texts]
            rows = padded_rows(self.backbone, sequences, *np.divmod(cells, longest))
        bounds = pairwise(np.cumsum([0, *counts]).tolist())
        return Batch(texts, rows, [where[start:stop] for start, stop in bounds])

    def _packed(
        self, part: Part, owner: Ints, positions: Ints
    ) -> "tuple[Tensor, Ints]":
        """States of a pack and which of them are the `positions` of its texts number
        `owner`.
        """
        import torch

        layout = lay_out(part, self.sequences)
        cells, where = np.unique(layout.rows(owner, positions), return_inverse=True)
        if (
            not part.kept
        ):  # the first pack of a prompt: what another prompt has left is of no use
            self.prefix = Kept()
        rows = cells
        if part.keep:
            # What later packs read of this one lies on the path that they go on from,
            # that of the last text.
            later = self._prefix_reads(part)
            rows = np.concatenate([cells, layout.path(len(part.texts) - 1)[later]])
        # Kept rows were forwarded before, row by position.
        before, is_new = self.prefix.positions, rows >= layout.kept
        states, _ = packed_rows(
            self.backbone, layout, rows[is_new], self.packing.views, self.prefix
        )
        if self.prefix.states is not None:
            states = torch.cat([self.prefix.states, states])
        places = np.where(
            is_new, len(before) + np.cumsum(is_new) - 1, np.searchsorted(before, rows)
        )
        if part.keep:
            self.prefix.positions, self.prefix.states = (
                later,
                states[_index(states, places[len(cells) :])],
            )
        else:  # the prompt is done: its keys and values are freed
            self.prefix = Kept()
        return states, places[: len(cells)][where]

    def _prefix_reads(self, part: Part) -> Ints:
        """Where texts of the prompt are read in the beginning that the next pack goes
        on from, ascending.
        """
        texts = np.flatnonzero(self.groups == self.groups[part.texts[-1]])
        positions = np.unique(
            np.concatenate([self.reads[text] for text in texts.tolist()])
        ).astype(np.intp)
        return positions[positions < part.keep]


def _index(owner: "Tensor", rows: Ints) -> "Tensor":
    return upload({"rows": rows}, owner.device)["rows"]
