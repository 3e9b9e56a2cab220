"""What goes through a model in which order: packs of tries, packs of whole texts, or padded batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.batches import WASTE, Padded, pad
from rmlab.inference.budget import CPU_BUDGET
from rmlab.inference.packing import Packing
from rmlab.inference.trie import Pack, Tokens, distinct, pack, trie_size

__all__ = ["FILL", "Plan", "cut", "plan"]

FILL = {"cpu": 1024}
"""Tokens up to which prompts are put together, elsewhere the budget: more at once is faster on a GPU only."""

_DECODER = Packing(None)

Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Plan:
    """What will be forwarded. Parts hold numbers of distinct sequences; `copies[n]` are the texts that sequence n is.

    `tokens`: tokens forwarded, padding included. `minimum`: the fewest that give the same states: the nodes of one trie
    per prompt for a decoder's packs, else the tokens of the distinct texts. `kept`: the most tokens whose keys and
    values are kept at once, for prompts larger than the budget (`budget.kept_bytes` says what one takes).
    """

    parts: list[Pack | Padded]
    copies: list[Ints]
    tokens: int
    minimum: int
    kept: int = 0


def plan(
    sequences: Sequence[Tokens],
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
    order = np.argsort(which, kind="stable")  # copies of a sequence side by side, in the order of texts
    copies = np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(order) else []
    kept, group = [sequences[text] for text in first], np.asarray(groups)[first]
    parts = cut(kept, group, np.arange(len(first)), budget, fill, packing)
    # Encoders share no rows, so the distinct texts are what they need at least.
    minimum = trie_size(kept, group) if packing.packed and packing.causal else sum(map(len, kept))
    most = max((part.keep for part in parts if isinstance(part, Pack)), default=0)
    return Plan(parts, copies, sum(part.tokens for part in parts), minimum, most)


def cut(
    sequences: Sequence[Tokens], groups: Ints, numbers: Ints, budget: int, fill: int | None, packing: Packing
) -> list[Pack | Padded]:
    """Packs or batches of the sequences, which are called by `numbers`."""
    if packing.packed:
        # Only a decoder's texts share rows, and only those of one prompt.
        shared = groups if packing.causal else np.arange(len(sequences))
        made = pack(sequences, shared, budget, fill=fill, keeps=packing.keeps and packing.causal)
        return [replace(part, texts=numbers[part.texts]) for part in made]
    batches = pad([len(ids) for ids in sequences], budget, WASTE if packing.pads else 0)
    return [Padded(numbers[part.texts], part.tokens) for part in batches]
