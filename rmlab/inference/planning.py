"""The order in which texts go through a model: packs of tries, packs of whole texts, or
padded batches.

Texts of a prompt are sorted, so that each text shares most with the one before it. A
text then needs rows only for the tokens that it does not share: its run. The rows of a
pack are the runs of its texts, one behind the other, and the path of a text is the rows
that spell it.

A prompt whose trie is larger than a pack may be is cut anywhere, also within a text.
Depth first, all that the rows behind a cut still see of those before it is one path,
the beginning of the text that stands at the cut: its keys and values are kept for the
next pack (attention.py), where they come first. All functions are pure and know only
numpy.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rmlab.inference.flex import View

# Tokens at once on a CPU: more no longer fits into its caches.
CPU_BUDGET = 4096

# Tokens up to which prompts are put together, elsewhere the budget: more at once is
# faster on a GPU only.
FILL = {"cpu": 1024}

# A batch holds at most this share of padding by default.
WASTE = 0.01

# Powers of four, from 1,024. Numbers of rows that kernels are compiled for; few,
# because each takes seconds to compile.
SIZES: tuple[int, ...] = tuple(1024 << power for power in range(0, 24, 2))

Ints = NDArray[np.intp]
Tokens = NDArray[np.integer]
Texts = Sequence[Tokens]
Groups = Sequence[int] | Ints


@dataclass(frozen=True)
class Packing:
    """How texts go through a model together.

    `refused`: why they cannot share a pack, as half a sentence; None where they can.
    `causal`: a token sees what comes before it and no more, so that texts with a common
    beginning share its rows. `views`: what the layers let a row see. `pads`: where
    there are no packs, texts of different lengths can share a batch, since padding
    changes nothing. `half_differs`: on a GPU, in half precision, texts in a pack are
    rounded otherwise than texts alone. `keeps`: a prompt that is larger than a pack can
    be forwarded in several, which hand keys and values on; assumed until
    `passes.supports_prefix_cache` tests it at the first such prompt.
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
            return content + (
                ", rounded otherwise than alone" if self.half_differs else ""
            )
        return f"none: {self.refused}" + (
            "" if self.pads else "; texts of one length go together"
        )


@dataclass(frozen=True)
class Part:
    """Texts that go through the model at once: a pack, which is one row, or a padded
    batch.

    `tokens`: how many are forwarded, padding included. In a pack, `texts[k]` shares its
    first `shared[k]` tokens with `texts[k - 1]`. `kept`: tokens of the first text that
    the pack before has forwarded. `keep`: tokens of the last text that the next pack
    goes on from. `cut`: the last text ends here after `keep` tokens; in the next pack
    it goes on.
    """

    texts: Ints
    tokens: int
    shared: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    kept: int = 0
    keep: int = 0
    cut: bool = False

    @property
    def finished(self) -> Ints:
        """The texts whose last token is forwarded by now."""
        return self.texts[: len(self.texts) - self.cut]


@dataclass(frozen=True)
class Plan:
    """The passes of a run. Parts hold numbers of distinct sequences; `copies[n]` are
    the texts that sequence n is.

    `tokens`: tokens forwarded, padding included. `minimum`: the fewest that give the
    same states: the nodes of one trie per prompt for a decoder's packs, else the tokens
    of the distinct texts. `kept`: the most tokens whose keys and values are kept at
    once, for prompts larger than the budget.
    """

    parts: list[Part]
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
    order = np.argsort(
        sequence_of, kind="stable"
    )  # copies of a sequence side by side, in the order of texts
    copies = (
        np.split(order, np.flatnonzero(np.diff(sequence_of[order])) + 1)
        if len(order)
        else []
    )
    unique, unique_groups = (
        [sequences[text] for text in first],
        np.asarray(groups)[first],
    )
    parts = cut(unique, unique_groups, np.arange(len(first)), budget, fill, packing)
    # Encoders share no rows, so the distinct texts are what they need at least.
    shares = packing.packed and packing.causal
    minimum = trie_size(unique, unique_groups) if shares else sum(map(len, unique))
    longest = max((part.keep for part in parts), default=0)
    return Plan(parts, copies, sum(part.tokens for part in parts), minimum, longest)


def cut(
    sequences: Texts,
    groups: Ints,
    numbers: Ints,
    budget: int,
    fill: int | None,
    packing: Packing,
) -> list[Part]:
    """Packs or batches of the sequences, which are called by `numbers`."""
    if packing.packed:
        # Only a decoder's texts share rows, and only those of one prompt.
        prompts = groups if packing.causal else np.arange(len(sequences))
        parts = pack(
            sequences,
            prompts,
            budget,
            fill=fill,
            keeps=packing.keeps and packing.causal,
        )
    else:
        parts = pad(
            [len(ids) for ids in sequences], budget, WASTE if packing.pads else 0
        )
    return [replace(part, texts=numbers[part.texts]) for part in parts]


def pad(lengths: Sequence[int], budget: int, waste: float = WASTE) -> list[Part]:
    """Batches of at most `budget` tokens with the padding, longest texts first, every
    text once.

    Texts are sorted by length; a batch ends where the next text would make more than
    `waste` of it padding; 0: texts of one length only. A text that is longer than the
    budget is a batch of its own.

    >>> [(part.texts.tolist(), part.tokens) for part in pad([3, 5, 3], budget=8)]
    [([1], 5), ([0, 2], 6)]
    """
    if budget < 1:
        raise ValueError(f"budget={budget}; allowed: a positive number of tokens")
    sizes = np.asarray(lengths, np.intp)
    # Longest first: if memory runs out, it does so at once.
    order = np.argsort(-sizes, kind="stable")
    bounds, n_tokens = [0], 0  # of the batches; tokens of the last one without padding
    for k, size in enumerate(sizes[order].tolist()):
        padded = int(sizes[order[bounds[-1]]]) * (
            k + 1 - bounds[-1]
        )  # the first is the longest of its batch
        # A batch holds one text at least, however long it is.
        if k > bounds[-1] and (
            padded > budget or padded - n_tokens - size > waste * padded
        ):
            bounds.append(k)
            n_tokens = 0
        n_tokens += size
    batches = np.split(order, bounds[1:]) if len(order) else []
    return [Part(texts, int(sizes[texts].max()) * len(texts)) for texts in batches]


def distinct(sequences: Texts) -> tuple[Ints, Ints]:
    """First text number of each distinct sequence, and for each text the index of its
    sequence among those.

    >>> first, sequence_of = distinct([np.array([1, 2]), np.array([3]), np.array([1, 2])])
    >>> first.tolist(), sequence_of.tolist()
    ([0, 1], [0, 1, 0])
    """
    # By their bytes, all as int32: lists of ids of different dtypes are equal where
    # their numbers are.
    numbers: dict[bytes, int] = {}
    sequence_of = [
        numbers.setdefault(np.asarray(ids, np.int32).tobytes(), len(numbers))
        for ids in sequences
    ]
    _, first = np.unique(sequence_of, return_index=True)
    return first.astype(np.intp), np.asarray(sequence_of, np.intp)


def trie_size(sequences: Texts, groups: Groups) -> int:
    """The fewest tokens that give every text of each group its path: the nodes of one
    trie per group.

    >>> trie_size([np.array([1, 2, 3]), np.array([1, 2, 4, 5])], [0, 0])
    5
    """
    return sum(
        int((lengths - shared).sum())
        for _, lengths, shared in _sorted_groups(sequences, groups)
    )


def pack(
    sequences: Texts,
    groups: Groups,
    budget: int,
    *,
    fill: int | None = None,
    keeps: bool = True,
) -> list[Part]:
    """Packs of at most `budget` tokens that hold every text of `sequences` once; the
    largest comes first.

    `groups[i]`: the number of text i's prompt; only texts of one prompt share rows. A
    prompt whose trie is larger than the budget is cut, and its packs follow one
    another, each going on from what the one before keeps. Where the model does not
    allow that (`keeps`), it is cut between texts, and each pack forwards their common
    beginning again; a single text that is longer than the budget is then a pack of its
    own. Other prompts are put together up to `fill` tokens, by default the budget.
    """
    if budget < 1:
        raise ValueError(f"budget={budget}; allowed: a positive number of tokens")
    small: list[Part] = []  # packs of prompts that fit into one
    prompts: list[list[Part]] = []
    for texts, lengths, shared in _sorted_groups(sequences, groups):
        pieces = list(_cut_trie(texts, lengths, shared, budget, keeps=keeps))
        if len(pieces) == 1:
            small += pieces
        else:
            # The largest first; packs that go on from one another are full but for the
            # last, and keep their order.
            prompts.append(sorted(pieces, key=lambda piece: -piece.tokens))
    for pieces in _bins(small, budget if fill is None else min(fill, budget)):
        texts, shared = (
            np.concatenate(arrays)
            for arrays in zip(*((p.texts, p.shared) for p in pieces), strict=True)
        )
        prompts.append([Part(texts, sum(piece.tokens for piece in pieces), shared)])
    # The largest first, so that a budget that is too large shows at once; a prompt's
    # packs stay together.
    return [
        part
        for packs in sorted(prompts, key=lambda packs: -packs[0].tokens)
        for part in packs
    ]


def _sorted_groups(
    sequences: Texts, groups: Groups
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Per group: its texts with common beginnings side by side, their lengths, what
    each shares with the last.
    """
    members: dict[int, list[int]] = {}
    for text, group in enumerate(np.asarray(groups).tolist()):
        members.setdefault(group, []).append(text)
    spelled = [np.ascontiguousarray(ids, np.int32) for ids in sequences]
    for texts in members.values():
        # Bytes sort otherwise than numbers, but what begins alike stands together in
        # either order.
        texts.sort(key=lambda text: spelled[text].tobytes())
        lengths = np.array([len(spelled[text]) for text in texts], np.intp)
        shared = [0] + [
            common_length(spelled[a], spelled[b]) for a, b in pairwise(texts)
        ]
        yield np.array(texts, np.intp), lengths, np.array(shared, np.intp)


def common_length(left: Tokens, right: Tokens) -> int:
    """Length of the common beginning of two sequences."""
    n = min(len(left), len(right))
    differ = np.flatnonzero(left[:n] != right[:n])
    return int(differ[0]) if len(differ) else n


def _cut_trie(
    texts: Ints, lengths: Ints, shared: Ints, budget: int, *, keeps: bool
) -> Iterator[Part]:
    """The trie of one prompt, cut wherever a pack is full; with `keeps`, each pack goes
    on where the last one ends.
    """
    begin, before, size = (
        0,
        0,
        0,
    )  # the pack's first text, the tokens of it that are forwarded before, its tokens
    shared = shared.copy()
    for k, length in enumerate(lengths.tolist()):
        while size + length - int(shared[k]) > budget and (keeps or k > begin):
            keep = (
                int(shared[k]) + budget - size if keeps else 0
            )  # of the text: what it shares, and what still fits
            # A pack that is full already where the text begins does not hold it.
            is_cut = keeps and size < budget
            stop = k + is_cut
            yield Part(
                texts[begin:stop],
                budget if keeps else size,
                shared[begin:stop].copy(),
                before,
                keep,
                is_cut,
            )
            # The next pack begins with the rest of this text, and finds its first
            # `keep` tokens kept.
            begin, before, size = k, keep, 0
            shared[k] = keep
        size += length - int(shared[k])
    yield Part(texts[begin:], size, shared[begin:], before)


def _bins(pieces: list[Part], fill: int) -> list[list[Part]]:
    """Best fit, largest piece first: each piece goes where the least room is left,
    larger ones than `fill` alone.
    """
    bins: list[list[Part]] = []
    room: list[
        tuple[int, int]
    ] = []  # left in each bin, ascending, with the bin's number
    for piece in sorted(pieces, key=lambda piece: -piece.tokens):
        at = bisect_left(
            room, (piece.tokens, -1)
        )  # -1 is below every bin's number: bins with just this room count
        if at < len(room):
            left, number = room.pop(at)
            bins[number].append(piece)
        else:
            left, number = max(fill, piece.tokens), len(bins)
            bins.append([piece])
        insort(room, (left - piece.tokens, number))
    return bins


def filled(rows: int) -> int:
    """The number of rows that a pack is filled up to: 1,024, 4,096, 16,384 and so on.

    Filling costs memory for queries, keys and values, and next to no time: filled
    blocks meet no other block.

    >>> filled(700), filled(1024), filled(16000)
    (1024, 1024, 16384)
    """
    return SIZES[bisect_left(SIZES, rows)]


class Run(NamedTuple):
    """The rows start..stop that one text has for itself, and the slices of earlier rows
    that come before them.

    `offset`: how many tokens of the text come before the run.
    """

    start: int
    stop: int
    before: tuple[tuple[int, int], ...]
    offset: int


@dataclass(frozen=True)
class Layout:
    """A pack written out. Row r holds token `ids[r]` at position `positions[r]` of its
    text.

    `runs`: one per text. `ends[r]`: the first row behind r whose text does not go
    through r, so that row q sees row k exactly when k <= q < ends[k]. Rows behind the
    last run, if any, only fill up: they see themselves. The first `kept` rows were
    forwarded by the pack before; `keep`: as of the pack.
    """

    ids: Ints
    positions: Ints
    runs: list[Run]
    ends: Ints
    kept: int = 0
    keep: int = 0

    @property
    def forwarded(self) -> int:
        """How many rows go through the model."""
        return len(self.ids) - self.kept

    @cached_property
    def segments(self) -> list[tuple[int, int, int, int]]:
        """The rows start..stop of runs, all of which are seen by each of the rows
        first..end of later runs.
        """
        segments = []
        # Rows whose subtrees end at one row are seen by the same later rows: a stretch
        # between two edges is one segment.
        edges = np.flatnonzero(np.diff(self.ends)) + 1
        # Kept rows are looked at like a run.
        for begin, behind in [
            (0, self.kept),
            *((run.start, run.stop) for run in self.runs),
        ]:
            inside = edges[
                np.searchsorted(edges, begin, "right") : np.searchsorted(
                    edges, behind, "left"
                )
            ].tolist()
            for start, stop in pairwise([begin, *inside, behind]):
                # From the end of the run to the end of the subtree: rows inside the run
                # are its own, causal part.
                end = int(self.ends[start]) if stop > start else 0
                if end > behind:
                    segments.append((start, stop, behind, end))
        return segments

    @cached_property
    def carried(self) -> list[tuple[int, int]]:
        """The slices of rows that the next pack goes on from: the first `keep` tokens
        of the last text.
        """
        slices, left = [], self.keep
        for first, last in self._slices(len(self.runs) - 1):
            if left > 0:
                slices.append((first, min(last, first + left)))
            left -= (
                last - first
            )  # the path's slices in order, until `keep` tokens are there
        return slices

    def _slices(self, text: int) -> tuple[tuple[int, int], ...]:
        start, stop, before, _ = self.runs[text]
        return *before, (start, stop)

    def path(self, text: int) -> Ints:
        """The rows that spell the text, in order."""
        return np.concatenate(
            [np.arange(first, last) for first, last in self._slices(text)]
        )

    def rows(self, texts: Ints, positions: Ints) -> Ints:
        """The row of each position of a text, given as two arrays of one length."""
        offsets = np.array([run.offset for run in self.runs])[texts]
        # Right for positions in the text's own run.
        rows: Ints = (
            positions - offsets + np.array([run.start for run in self.runs])[texts]
        )
        # Most heads read behind what texts share, where no path need be written out.
        is_shared = positions < offsets
        for text in set(texts[is_shared].tolist()):
            cells = is_shared & (texts == text)
            rows[cells] = self.path(text)[positions[cells]]
        return rows

    def filled(self, rows: int) -> "Layout":
        """The same with rows behind the last that fill it up to `rows` forwarded ones,
        each a text of one token.
        """
        if rows == self.forwarded:
            return self
        filling = np.zeros(rows - self.forwarded, np.intp)
        ids, positions = (
            np.concatenate([values, filling]) for values in (self.ids, self.positions)
        )
        # Each filling row ends behind itself.
        ends = np.concatenate([self.ends, np.arange(len(self.ids), len(ids)) + 1])
        return replace(self, ids=ids, positions=positions, ends=ends)


def lay_out(part: Part, sequences: Texts) -> Layout:
    """The rows of a pack: token ids, positions, each text's run, and where each row's
    subtree ends.
    """
    pieces = [
        sequences[text][begin:]
        for text, begin in zip(part.texts, part.shared, strict=True)
    ]
    if part.cut:
        pieces[-1] = pieces[-1][: part.keep - part.shared[-1]]
    lengths = np.array([len(piece) for piece in pieces], np.intp)
    stops = part.kept + np.cumsum(lengths)
    ids = np.concatenate([sequences[part.texts[0]][: part.kept], *pieces]).astype(
        np.intp
    )
    positions = np.arange(part.kept + part.tokens)
    # A row's position is its distance from the run's start plus what the text shares.
    positions[part.kept :] -= np.repeat(stops - lengths - part.shared, lengths)
    ends = np.full(
        len(ids), len(ids), np.intp
    )  # until a later text leaves the path, a subtree goes to the end
    runs: list[Run] = []
    path = [(0, part.kept)] if part.kept else []
    start = n_spelled = (
        part.kept
    )  # where the next run begins; how many rows are on the path
    for stop, shared in zip(stops.tolist(), part.shared.tolist(), strict=True):
        # From the back: rows that are not shared are on no later text's path, so their
        # subtrees end here.
        while n_spelled > shared:
            first, last = path.pop()
            cut_row = max(last - (n_spelled - shared), first)
            ends[cut_row:last] = start
            n_spelled -= last - cut_row
            if cut_row > first:
                path.append((first, cut_row))
        runs.append(Run(start, stop, tuple(path), shared))
        # A run that goes on where the path ends makes that slice longer: few slices,
        # few copies.
        if path and path[-1][1] == start:
            path[-1] = (path[-1][0], stop)
        elif stop > start:
            path.append((start, stop))
        start, n_spelled = stop, shared + stop - start
    return Layout(ids, positions, runs, ends, part.kept, part.keep)
