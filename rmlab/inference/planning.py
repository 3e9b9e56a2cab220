"""The order in which texts go through a model: packs of tries, packs of whole texts, or padded batches.

Texts of a prompt are sorted, so that each text shares most with the one before it. A text then needs rows only for the
tokens that it does not share; layout.py writes these rows out.

A prompt whose trie is larger than a pack may be is cut anywhere, also within a text. Depth first, all that the rows
behind a cut still see of those before it is one path, the beginning of the text that stands at the cut: its keys and
values are kept for the next pack (attention.py). All functions are pure and know only numpy.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rmlab.inference.flex import View

CPU_BUDGET = 4096
"""Tokens at once on a CPU: more no longer fits into its caches."""

FILL = {"cpu": 1024}
"""Tokens up to which prompts are put together, elsewhere the budget: more at once is faster on a GPU only."""

WASTE = 0.01
"""A batch holds at most this share of padding by default."""

Ints = NDArray[np.intp]
Tokens = NDArray[np.integer]
Texts = Sequence[Tokens]
Groups = Sequence[int] | Ints


@dataclass(frozen=True)
class Packing:
    """How texts go through a model together.

    `refused`: why they cannot share a pack, as half a sentence; None where they can. `causal`: a token sees what comes
    before it and no more, so that texts with a common beginning share its rows. `views`: what the layers let a row see.
    `pads`: where there are no packs, texts of different lengths can share a batch, since padding changes nothing.
    `half_differs`: on a GPU, in half precision, texts in a pack are rounded otherwise than texts alone. `keeps`: a
    prompt that is larger than a pack can be forwarded in several, which hand keys and values on; assumed until
    `packing.supports_prefix_cache` tests it at the first such prompt.
    """

    refused: str | None
    causal: bool = True
    views: frozenset["View"] = frozenset()
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
            content = "texts with shared beginnings" if self.causal else "whole texts"
            return content + (", rounded otherwise than alone" if self.half_differs else "")
        return f"none: {self.refused}" + ("" if self.pads else "; texts of one length go together")


@dataclass(frozen=True)
class Pack:
    """Texts that go through the model as a row; `texts[k]` shares its first `shared[k]` tokens with `texts[k - 1]`.

    `tokens`: how many are forwarded. `kept`: tokens of the first text that the pack before has forwarded. `keep`:
    tokens of the last text that the next pack goes on from. `cut`: the last text ends here after `keep` tokens, and in
    the next pack it goes on.
    """

    texts: Ints
    shared: Ints
    tokens: int
    kept: int = 0
    keep: int = 0
    cut: bool = False

    @property
    def finished(self) -> Ints:
        """The texts whose last token is forwarded by now."""
        return self.texts[: len(self.texts) - self.cut]


@dataclass(frozen=True)
class Padded:
    """Texts that go through the model as one batch, and how many tokens that is with the padding."""

    texts: Ints
    tokens: int

    @property
    def finished(self) -> Ints:
        """The texts whose last token is forwarded by now: all of them."""
        return self.texts


@dataclass(frozen=True)
class Plan:
    """The passes of a run. Parts hold numbers of distinct sequences; `copies[n]` are the texts that sequence n is.

    `tokens`: tokens forwarded, padding included. `minimum`: the fewest that give the same states: the nodes of one trie
    per prompt for a decoder's packs, else the tokens of the distinct texts. `kept`: the most tokens whose keys and
    values are kept at once, for prompts larger than the budget (`budget.kept_bytes` says what one takes).
    """

    parts: list[Pack | Padded]
    copies: list[Ints]
    tokens: int
    minimum: int
    kept: int = 0


_DECODER = Packing(None)


def plan(
    sequences: Texts,
    groups: Groups,
    *,
    budget: int = CPU_BUDGET,
    fill: int | None = FILL["cpu"],
    packing: Packing = _DECODER,
) -> Plan:
    """Plan the forward passes for token id sequences.

    Identical sequences are forwarded once.

    Parameters
    ----------
    sequences : sequence of integer arrays
        The token ids of each text.
    groups : sequence of int
        The prompt number of each text.
    budget : int
        The most tokens of a pack or batch.
    fill : int, optional
        The most tokens of a pack of several prompts; None: `budget`.
    packing : Packing
        How texts go through the model together.

    Returns
    -------
    Plan

    Examples
    --------
    >>> passes = plan([np.arange(40), np.r_[np.arange(30), 7, 7], np.arange(40)], [0, 0, 0])
    >>> passes.tokens, passes.minimum, [texts.tolist() for texts in passes.copies]
    (42, 42, [[0, 2], [1]])
    """
    first, sequence_of = distinct(sequences)
    order = np.argsort(sequence_of, kind="stable")  # copies of a sequence side by side, in the order of texts
    copies = np.split(order, np.flatnonzero(np.diff(sequence_of[order])) + 1) if len(order) else []
    unique, unique_groups = [sequences[text] for text in first], np.asarray(groups)[first]
    parts = cut(unique, unique_groups, np.arange(len(first)), budget, fill, packing)
    # Encoders share no rows, so the distinct texts are what they need at least.
    shares = packing.packed and packing.causal
    minimum = trie_size(unique, unique_groups) if shares else sum(map(len, unique))
    longest_kept = max((part.keep for part in parts if isinstance(part, Pack)), default=0)
    return Plan(parts, copies, sum(part.tokens for part in parts), minimum, longest_kept)


def cut(
    sequences: Texts, groups: Ints, numbers: Ints, budget: int, fill: int | None, packing: Packing
) -> list[Pack | Padded]:
    """Packs or batches of the sequences, which are called by `numbers`."""
    if packing.packed:
        # Only a decoder's texts share rows, and only those of one prompt.
        shared = groups if packing.causal else np.arange(len(sequences))
        packs = pack(sequences, shared, budget, fill=fill, keeps=packing.keeps and packing.causal)
        return [replace(part, texts=numbers[part.texts]) for part in packs]
    batches = pad([len(ids) for ids in sequences], budget, WASTE if packing.pads else 0)
    return [Padded(numbers[part.texts], part.tokens) for part in batches]


def pad(lengths: Sequence[int], budget: int, waste: float = WASTE) -> list[Padded]:
    """Batches of at most `budget` tokens with the padding, longest texts first, every text once.

    Texts are sorted by length; a batch ends where the next text would make more than `waste` of it padding; 0: texts of
    one length only. A text that is longer than the budget is a batch of its own.

    >>> [(part.texts.tolist(), part.tokens) for part in pad([3, 5, 3], budget=8)]
    [([1], 5), ([0, 2], 6)]
    """
    _check_budget(budget)
    sizes = np.asarray(lengths, np.intp)
    # Longest first: if memory runs out, it does so at once.
    order = np.argsort(-sizes, kind="stable")
    bounds, n_tokens = [0], 0  # of the batches; tokens of the last one without padding
    for k, size in enumerate(sizes[order].tolist()):
        padded = int(sizes[order[bounds[-1]]]) * (k + 1 - bounds[-1])  # the first is the longest of its batch
        # A batch holds one text at least, however long it is.
        if k > bounds[-1] and (padded > budget or padded - n_tokens - size > waste * padded):
            bounds.append(k)
            n_tokens = 0
        n_tokens += size
    batches = np.split(order, bounds[1:]) if len(order) else []
    return [Padded(texts, int(sizes[texts].max()) * len(texts)) for texts in batches]


def distinct(sequences: Texts) -> tuple[Ints, Ints]:
    """First text number of each distinct sequence, and for each text the index of its sequence among those.

    >>> first, sequence_of = distinct([np.array([1, 2]), np.array([3]), np.array([1, 2])])
    >>> first.tolist(), sequence_of.tolist()
    ([0, 1], [0, 1, 0])
    """
    # By their bytes, all as int32: lists of ids of different dtypes are equal where their numbers are.
    numbers: dict[bytes, int] = {}
    sequence_of = [numbers.setdefault(np.asarray(ids, np.int32).tobytes(), len(numbers)) for ids in sequences]
    _, first = np.unique(sequence_of, return_index=True)
    return first.astype(np.intp), np.asarray(sequence_of, np.intp)


def trie_size(sequences: Texts, groups: Groups) -> int:
    """The fewest tokens that give every text of each group its path: the nodes of one trie per group."""
    return int(own_tokens(sequences, groups).sum())


def own_tokens(sequences: Texts, groups: Groups) -> Ints:
    """How many tokens each text has that it shares with no text sorted before it in its group; together `trie_size`.

    >>> own_tokens([np.array([1, 2, 3]), np.array([1, 2, 4, 5])], [0, 0]).tolist()
    [3, 2]
    """
    counts = np.zeros(len(sequences), np.intp)
    for texts, lengths, shared in _sorted_groups(sequences, groups):
        counts[texts] = lengths - shared
    return counts


def pack(sequences: Texts, groups: Groups, budget: int, *, fill: int | None = None, keeps: bool = True) -> list[Pack]:
    """Packs of at most `budget` tokens that hold every text of `sequences` once; the largest comes first.

    `groups[i]`: the number of text i's prompt; only texts of one prompt share rows. A prompt whose trie is larger than
    the budget is cut, and its packs follow one another, each going on from what the one before keeps. Where the model
    does not allow that (`keeps`), it is cut between texts, and each pack forwards their common beginning again; a
    single text that is longer than the budget is then a pack of its own. Other prompts are put together up to `fill`
    tokens, by default the budget.
    """
    _check_budget(budget)
    whole: list[Pack] = []  # prompts that fit into a pack
    prompts: list[list[Pack]] = []
    for texts, lengths, shared in _sorted_groups(sequences, groups):
        pieces = list(_cut_trie(texts, lengths, shared, budget, keeps=keeps))
        if len(pieces) == 1:
            whole += pieces
        else:
            # Packs that go on from one another keep their order; pieces that do not begin with the largest.
            prompts.append(pieces if keeps else sorted(pieces, key=lambda piece: -piece.tokens))
    for pieces in _bins(whole, budget if fill is None else min(fill, budget)):
        texts, shared = (np.concatenate(arrays) for arrays in zip(*((p.texts, p.shared) for p in pieces), strict=True))
        prompts.append([Pack(texts, shared, sum(piece.tokens for piece in pieces))])
    # The largest first, so that a budget that is too large shows at once; a prompt's packs stay together.
    return [part for packs in sorted(prompts, key=lambda packs: -packs[0].tokens) for part in packs]


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise ValueError(f"budget={budget}; allowed: a positive number of tokens")


def _sorted_groups(sequences: Texts, groups: Groups) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Per group: its texts with common beginnings side by side, their lengths, what each shares with the last."""
    members: dict[int, list[int]] = {}
    for text, group in enumerate(np.asarray(groups).tolist()):
        members.setdefault(group, []).append(text)
    spelled = [np.ascontiguousarray(ids, np.int32) for ids in sequences]
    for texts in members.values():
        # Bytes sort otherwise than numbers, but what begins alike stands together in either order.
        texts.sort(key=lambda text: spelled[text].tobytes())
        lengths = np.array([len(spelled[text]) for text in texts], np.intp)
        shared = [0] + [common_length(spelled[a], spelled[b]) for a, b in pairwise(texts)]
        yield np.array(texts, np.intp), lengths, np.array(shared, np.intp)


def common_length(left: Tokens, right: Tokens) -> int:
    """Length of the common beginning of two sequences."""
    n = min(len(left), len(right))
    differ = np.flatnonzero(left[:n] != right[:n])
    return int(differ[0]) if len(differ) else n


def _cut_trie(texts: Ints, lengths: Ints, shared: Ints, budget: int, *, keeps: bool) -> Iterator[Pack]:
    """The trie of one prompt, cut wherever a pack is full; with `keeps`, each pack goes on where the last one ends."""
    begin, before, size = 0, 0, 0  # the pack's first text, the tokens of it that are forwarded before, its tokens
    shared = shared.copy()
    for k, length in enumerate(lengths.tolist()):
        while size + length - int(shared[k]) > budget and (keeps or k > begin):
            keep = int(shared[k]) + budget - size if keeps else 0  # of the text: what it shares, and what still fits
            # A pack that is full already where the text begins does not hold it.
            is_cut = keeps and size < budget
            stop = k + is_cut
            yield Pack(texts[begin:stop], shared[begin:stop].copy(), budget if keeps else size, before, keep, is_cut)
            # The next pack begins with the rest of this text, and finds its first `keep` tokens kept.
            begin, before, size = k, keep, 0
            shared[k] = keep
        size += length - int(shared[k])
    yield Pack(texts[begin:], shared[begin:], size, before)


def _bins(pieces: list[Pack], fill: int) -> list[list[Pack]]:
    """Best fit, largest piece first: each piece goes where the least room is left, larger ones than `fill` alone."""
    bins: list[list[Pack]] = []
    room: list[tuple[int, int]] = []  # left in each bin, ascending, with the bin's number
    for piece in sorted(pieces, key=lambda piece: -piece.tokens):
        at = bisect_left(room, (piece.tokens, -1))  # -1 is below every bin's number: bins with just this room count
        if at < len(room):
            left, number = room.pop(at)
            bins[number].append(piece)
        else:
            left, number = max(fill, piece.tokens), len(bins)
            bins.append([piece])
        insort(room, (left - piece.tokens, number))
    return bins
