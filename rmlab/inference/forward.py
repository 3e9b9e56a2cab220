"""Hidden states of many texts at recorded positions: nothing padded, no shared beginning forwarded twice.

Decoders get packs of tries, encoders packs of whole texts (trie.py, attention.py); models whose texts would see each
other in a pack get length-sorted batches (batches.py). All give what each text alone gives; `alone` is that reference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.batches import WASTE, Padded, pad
from rmlab.inference.budget import CPU_BUDGET, of_model
from rmlab.inference.fitting import until_it_fits
from rmlab.inference.passes import alone, packed_rows, padded_rows, position_scales
from rmlab.inference.probe import Packing, cached_packing, packing_support
from rmlab.inference.transfers import upload
from rmlab.inference.trie import Pack, distinct, lay_out, pack, trie_size

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Batch", "Packing", "Plan", "alone", "cached_packing", "hidden", "packing_support", "plan"]

FILL = {"cpu": 1024}
"""Tokens up to which prompts are put together, elsewhere the budget: more at once is faster on a GPU only."""

_DECODER = Packing(None)

Ints = NDArray[np.intp]


class Batch(NamedTuple):
    """Hidden states of some texts: `rows[where[k]]` are the wanted positions of text number `texts[k]`, in order.

    `rows`: (n, hidden) float32 on the model's device, where they may still be computed: reading a number waits for
    them. Texts that share a position share its row.
    """

    texts: Ints
    rows: "torch.Tensor"
    where: list[Ints]

    def stacked(self) -> "torch.Tensor":
        """The states of texts that want equally many positions, (texts, positions, hidden)."""
        if self._in_order:
            return self.rows.unflatten(0, (len(self.where), -1))
        return self.rows[upload({"where": np.stack(self.where)}, self.rows.device)["where"]]

    def means(self) -> "torch.Tensor":
        """The mean state of each text, (texts, hidden)."""
        import torch

        flat = np.concatenate(self.where)
        starts = np.cumsum([0, *(len(positions) for positions in self.where[:-1])])
        sent = upload({"flat": flat, "starts": starts}, self.rows.device)
        return torch.nn.functional.embedding_bag(sent["flat"], self.rows, sent["starts"], mode="mean")

    @property
    def _in_order(self) -> bool:
        """Are the rows the positions of the first text, then of the second, and so on?"""
        flat = np.concatenate(self.where)
        return len(flat) == len(self.rows) and bool((flat == np.arange(len(flat))).all())


@dataclass(frozen=True)
class Plan:
    """What will be forwarded. Parts hold numbers of distinct sequences; `copies[n]` are the texts that sequence n is.

    `tokens`: tokens forwarded, padding included. `minimum`: the fewest that give the same states: the nodes of one trie
    per prompt for a decoder's packs, else the tokens of the distinct texts.
    """

    parts: list[Pack | Padded]
    copies: list[Ints]
    tokens: int
    minimum: int


def plan(
    sequences: Sequence[NDArray[np.integer]],
    groups: Sequence[int] | Ints,
    *,
    budget: int = CPU_BUDGET,
    fill: int | None = FILL["cpu"],
    packing: Packing = _DECODER,
) -> Plan:
    """Plan the forward passes for token id sequences: packs or batches of at most `budget` tokens, as `packing` says.

    `groups[i]`: prompt number of text i. Identical sequences are forwarded once. Packs of several prompts hold at most
    `fill` tokens, None: `budget`.

    >>> made = plan([np.arange(40), np.r_[np.arange(30), 7, 7], np.arange(40)], [0, 0, 0])
    >>> made.tokens, made.minimum, [copy.tolist() for copy in made.copies]
    (42, 42, [[0, 2], [1]])
    """
    first, which = distinct(sequences)
    order = np.argsort(which, kind="stable")
    copies = np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(order) else []
    kept, group = [sequences[text] for text in first], np.asarray(groups)[first]
    parts = _parts(kept, group, np.arange(len(first)), budget, fill, packing)
    minimum = trie_size(kept, group) if packing.packed and packing.causal else sum(map(len, kept))
    return Plan(parts, copies, sum(part.tokens for part in parts), minimum)


def hidden(
    backbone: "PreTrainedModel",
    sequences: Sequence[NDArray[np.integer]],
    reads: Sequence[NDArray[np.integer]],
    *,
    groups: Sequence[int] | Ints,
    budget: int | None = None,
) -> Iterator[Batch]:
    """Last hidden states of each sequence at the positions it wants, in float32, batch by batch.

    `backbone`: a transformers base model (what AutoModel gives). `sequences[i]`: token ids of text i; `reads[i]`:
    positions in it; `groups[i]`: its prompt number. `budget`: tokens at once, by default what suits the device and the
    model (budget.py); running out of memory halves it. The largest part comes first, so that a budget that is too large
    shows at once. On a GPU a batch is given out while it is still computed: launch what follows before reading it.
    Raises ValueError for an empty sequence or a position outside it.
    """
    _check(sequences, reads, groups)
    budget = budget or of_model(backbone)
    return _by_scale(backbone, sequences, reads, np.asarray(groups), budget)


def _by_scale(
    backbone: "PreTrainedModel", sequences: Sequence[Any], reads: Sequence[Any], groups: Ints, budget: int
) -> Iterator[Batch]:
    """Texts that the model gives the same position scale go together."""
    scales = position_scales(backbone, np.array([len(ids) for ids in sequences]))
    for scale in np.unique(scales):
        texts = np.flatnonzero(scales == scale)
        part = [sequences[i] for i in texts.tolist()], [reads[i] for i in texts.tolist()], groups[texts]
        for batch in _batches(backbone, *part, budget):
            yield batch._replace(texts=texts[batch.texts])


def _batches(
    backbone: "PreTrainedModel",
    sequences: Sequence[Any],
    reads: Sequence[Any],
    groups: Sequence[int] | Ints,
    budget: int,
) -> Iterator[Batch]:
    packing = packing_support(backbone)
    fill = FILL.get(backbone.device.type)
    made = plan(sequences, groups, budget=budget, fill=fill, packing=packing)
    kept = [np.asarray(sequences[copies[0]]) for copies in made.copies]
    group = np.array([groups[copies[0]] for copies in made.copies])

    def forward(part: Pack | Padded) -> Batch:
        return _forward(backbone, part, kept, reads, made.copies, packing)

    def cut(left: Ints, budget: int) -> list[Pack | Padded]:
        return _parts([kept[n] for n in left], group[left], left, budget, fill, packing)

    return until_it_fits(made.parts, forward, cut, lambda n: int(made.copies[n][0]))


def _parts(
    sequences: Sequence[Any], groups: Any, numbers: Ints, budget: int, fill: int | None, packing: Packing
) -> list[Pack | Padded]:
    """Packs or batches of the sequences, which are called by `numbers`."""
    if packing.packed:
        # Only a decoder's texts share rows, and only those of one prompt.
        made = pack(sequences, groups if packing.causal else range(len(sequences)), budget, fill=fill)
        return [Pack(numbers[part.texts], part.shared, part.tokens) for part in made]
    batches = pad([len(ids) for ids in sequences], budget, WASTE if packing.pads else 0)
    return [Padded(numbers[part.texts], part.tokens) for part in batches]


def _forward(
    backbone: "PreTrainedModel",
    part: "Pack | Padded",
    kept: Sequence[Any],
    reads: Sequence[Any],
    copies: list[Ints],
    packing: Packing,
) -> Batch:
    """Launch one part; what it gives out is read later."""
    texts = np.concatenate([copies[n] for n in part.texts])
    number = np.repeat(np.arange(len(part.texts)), [len(copies[n]) for n in part.texts])
    wanted = [reads[text] for text in texts.tolist()]
    counts = [len(positions) for positions in wanted]
    owner, positions = np.repeat(number, counts), np.concatenate(wanted).astype(np.intp, copy=False)
    if isinstance(part, Pack):
        layout = lay_out(part, kept)
        cells, where = _distinct(layout.rows(owner, positions))
        rows, _ = packed_rows(backbone, layout, cells, packing.shape)
    else:
        longest = part.tokens // len(part.texts)
        cells, where = _distinct(owner * longest + positions)
        rows = padded_rows(backbone, [kept[n] for n in part.texts], *np.divmod(cells, longest))
    bounds = pairwise(np.cumsum([0, *counts]).tolist())
    return Batch(texts, rows, [where[start:stop] for start, stop in bounds])


def _distinct(cells: Ints) -> tuple[Ints, Ints]:
    """All cells, each once, and where each stands among those; in their own order where they are different anyway."""
    unique, where = np.unique(cells, return_inverse=True)
    return (cells, np.arange(len(cells))) if len(unique) == len(cells) else (unique, where)


def _check(sequences: Sequence[Any], reads: Sequence[Any], groups: Sequence[int] | Ints) -> None:
    if not len(sequences) == len(reads) == len(groups):
        raise ValueError(f"{len(sequences)} sequences, {len(reads)} reads and {len(groups)} groups; give one per text")
    lengths, counts = (np.array([len(values) for values in lists], np.intp) for lists in (sequences, reads))
    if not lengths.all():
        raise ValueError(f"sequences[{int(lengths.argmin())}] is empty; a text needs at least one token")
    owner = np.repeat(np.arange(len(reads)), counts)
    positions = np.concatenate([*reads, np.zeros(0, np.intp)])
    outside = np.flatnonzero((positions < 0) | (positions >= lengths[owner]))
    if len(outside):
        text = owner[outside[0]]
        raise ValueError(
            f"reads[{text}]={list(reads[text])} of a text of {lengths[text]} tokens; allowed: 0 to {lengths[text] - 1}"
        )
