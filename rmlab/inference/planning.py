"""The order in which texts go through a model: packs of tries, packs of whole texts, or
padded batches.

Texts of a prompt are sorted, so that each text shares most with the one before it. A
text then needs rows only for the tokens that it does not share: its run. The rows of a
pack are the runs of its texts, one behind the other, and the path of a text is the rows
that spell it.

A prompt whose trie is larger than a pack may be is cut anywhere, also within a text.
Depth first, all that the rows behind a cut still see of those before it is one path,
the beginning of the text that stands at the cut: its keys and values are cached for the
next pack (attention.py), where they come first. All functions are pure and know only
numpy.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    `shares`: texts with a common prefix share its rows, since a token sees what
    comes before it and no more; otherwise packs hold whole texts. `pads`: where there
    are no packs, texts of different lengths can share a batch, since padding changes
    nothing.
    """

    refused: str | None
    shares: bool = True
    pads: bool = True

    def __str__(self) -> str:
        """What packs hold, or why there are none."""
        if self.refused:
            lengths = "" if self.pads else "; texts of one length go together"
            return f"none: {self.refused}{lengths}"
        return "texts with shared prefixes" if self.shares else "whole texts"


@dataclass(frozen=True)
class Part:
    """Texts that go through the model at once: a pack, which is one row, or a padded
    batch.

    `tokens`: how many are forwarded, padding included. In a pack, `texts[k]` shares its
    first `shared[k]` tokens with `texts[k - 1]`. `n_cached`: tokens of the first text
    that the pack before has forwarded. `n_to_cache`: tokens of the last text that the
    next pack goes on from. `is_cut`: the last text ends here after `n_to_cache` tokens;
    in the next pack it goes on.
    """

    texts: Ints
    tokens: int
    shared: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    n_cached: int = 0
    n_to_cache: int = 0
    is_cut: bool = False


_DECODER = Packing(None)
_TOKENS = attrgetter("tokens")


@dataclass(frozen=True)
class Plan:
    """Distinct sequences on their way through a model.

    `groups`: the prompt number of each. `copies[n]`: the texts that sequence n is.
    `budget`, `fill`: the most tokens of a pack or batch, and of a pack of several
    prompts (None: the budget).
    """

    sequences: Texts
    groups: Ints
    copies: list[Ints]
    budget: int
    fill: int | None
    packing: Packing

    @cached_property
    def parts(self) -> list[Part]:
        """The passes; they hold numbers of sequences."""
        return self.cut(np.arange(len(self.sequences)), self.budget)

    @property
    def tokens(self) -> int:
        """Tokens that are forwarded, padding included."""
        return sum(part.tokens for part in self.parts)

    def cut(self, numbers: Ints, budget: int) -> list[Part]:
        """Packs or batches of the sequences of these `numbers`."""
        if budget < 1:
            raise ValueError(f"budget={budget}; allowed: a positive number of tokens")
        chosen = [self.sequences[number] for number in numbers.tolist()]
        if self.packing.refused:
            waste = WASTE if self.packing.pads else 0.0
            parts = pad(count_tokens(chosen), budget, waste)
        elif self.packing.shares:
            parts = pack(chosen, self.groups[numbers], budget, fill=self.fill)
        else:
            # A text by itself shares nothing, and one that is longer than the budget is
            # a pack of its own.
            longest = max(map(len, chosen), default=1)
            fill = min(self.fill or budget, budget)
            parts = pack(chosen, numbers, max(budget, longest), fill=fill)
        return [replace(part, texts=numbers[part.texts]) for part in parts]


def plan(
    sequences: Texts,
    groups: Groups,
    *,
    budget: int = CPU_BUDGET,
    fill: int | None = FILL["cpu"],
    packing: Packing = _DECODER,
) -> Plan:
    """The passes in which token id sequences go through a model; equal ones once.

    `groups[i]`: the prompt number of text i.

    >>> texts = [np.arange(40), np.r_[np.arange(30), 7, 7], np.arange(40)]
    >>> passes = plan(texts, [0, 0, 0])
    >>> passes.tokens, [texts.tolist() for texts in passes.copies]
    (42, [[0, 2], [1]])
    """
    copies = distinct(sequences)
    first = [int(texts[0]) for texts in copies]
    unique = [sequences[text] for text in first]
    return Plan(unique, np.asarray(groups)[first], copies, budget, fill, packing)


def pad(lengths: Sequence[int] | Ints, budget: int, waste: float = WASTE) -> list[Part]:
    """Batches of at most `budget` tokens with the padding, longest texts first, every
    text once.

    Texts are sorted by length; a batch ends where the next text would make more than
    `waste` of it padding; 0: texts of one length only. A text that is longer than the
    budget is a batch of its own.

    >>> [(part.texts.tolist(), part.tokens) for part in pad([3, 5, 3], budget=8)]
    [([1], 5), ([0, 2], 6)]
    """
    sizes = np.asarray(lengths, np.intp)
    # Longest first: if memory runs out, it does so at once.
    order = np.argsort(-sizes, kind="stable")

    parts = []
    begin = 0
    while begin < len(order):
        longest = int(sizes[order[begin]])
        n_texts = max(budget // longest, 1)
        batch = order[begin : begin + n_texts]
        # The tokens of the batch up to each of its texts, with the padding and without.
        padded = longest * np.arange(1, len(batch) + 1)
        is_wasteful = padded - np.cumsum(sizes[batch]) > waste * padded
        if is_wasteful.any():
            batch = batch[: int(is_wasteful.argmax())]
        parts.append(Part(batch, longest * len(batch)))
        begin += len(batch)
    return parts


def count_tokens(sequences: Texts) -> Ints:
    """The length of each sequence."""
    return np.array([len(ids) for ids in sequences], np.intp)


def distinct(sequences: Texts) -> list[Ints]:
    """The texts that each distinct sequence is, ascending.

    >>> texts = [np.array([1, 2]), np.array([3]), np.array([1, 2])]
    >>> [copies.tolist() for copies in distinct(texts)]
    [[0, 2], [1]]
    """
    # By their bytes, all as int32: lists of ids of different dtypes are equal where
    # their numbers are.
    copies: dict[bytes, list[int]] = {}
    for text, ids in enumerate(sequences):
        spelled = np.asarray(ids, np.int32).tobytes()
        copies.setdefault(spelled, []).append(text)
    return [np.array(texts, np.intp) for texts in copies.values()]


class _PromptTexts(NamedTuple):
    """Texts of one prompt with common prefixes side by side.

    `shared`: how many tokens each shares with the one before it.
    """

    texts: Ints
    lengths: Ints
    shared: Ints


def pack(
    sequences: Texts,
    groups: Groups,
    budget: int,
    *,
    fill: int | None = None,
) -> list[Part]:
    """Packs of at most `budget` tokens that hold every text of `sequences` once; the
    largest comes first.

    `groups[i]`: the number of text i's prompt; only texts of one prompt share rows. A
    prompt whose trie is larger than the budget is cut, and its packs follow one
    another, each going on from what the one before has cached. Pieces that stand alone
    are put together up to `fill` tokens, by default the budget.
    """
    # What fits into one pack, and the packs of prompts that do not.
    small: list[Part] = []
    chains: list[list[Part]] = []
    for prompt in _prompts(sequences, groups):
        pieces = list(_cut_trie(prompt, budget))
        if len(pieces) == 1:
            small += pieces
        else:
            # All are full but the last.
            chains.append(pieces)

    if fill is None:
        fill = budget
    for pieces in _bins(small, min(fill, budget)):
        texts = np.concatenate([piece.texts for piece in pieces])
        shared = np.concatenate([piece.shared for piece in pieces])
        chains.append([Part(texts, sum(piece.tokens for piece in pieces), shared)])

    # The largest first, so that a budget that is too large shows at once; a prompt's
    # packs stay together.
    chains.sort(key=lambda parts: parts[0].tokens, reverse=True)
    return list(chain.from_iterable(chains))


def _prompts(sequences: Texts, groups: Groups) -> Iterator[_PromptTexts]:
    """The texts of each group."""
    members: dict[int, list[int]] = {}
    for text, group in enumerate(np.asarray(groups).tolist()):
        members.setdefault(group, []).append(text)
    spelled = [np.ascontiguousarray(ids, np.int32) for ids in sequences]
    lengths = count_tokens(spelled)
    for texts in members.values():
        # Bytes sort otherwise than numbers, but what begins alike stands together in
        # either order.
        texts.sort(key=lambda text: spelled[text].tobytes())
        shared = [0]
        for before, text in pairwise(texts):
            shared.append(common_length(spelled[before], spelled[text]))
        yield _PromptTexts(
            np.array(texts, np.intp), lengths[texts], np.array(shared, np.intp)
        )


def common_length(left: Tokens, right: Tokens) -> int:
    """Length of the common prefix of two sequences."""
    n = min(len(left), len(right))
    # Equal here and everywhere before.
    is_common = np.logical_and.accumulate(left[:n] == right[:n])
    return int(is_common.sum())


def _cut_trie(prompt: _PromptTexts, budget: int) -> Iterator[Part]:
    """The trie of one prompt, cut wherever a pack is full; each pack goes on where the
    one before ends.
    """
    texts, lengths, shared = prompt
    shared = shared.copy()
    # Of the pack: its first text, how much of that is cached, its tokens so far.
    begin = 0
    n_cached = 0
    size = 0
    for k, length in enumerate(lengths.tolist()):
        while size + length - int(shared[k]) > budget:
            # What the text shares is there already, and some of the rest still fits.
            n_to_cache = int(shared[k]) + budget - size
            # A pack that is full already where the text begins does not hold it.
            is_cut = size < budget
            span = slice(begin, k + is_cut)
            yield Part(
                texts[span], budget, shared[span].copy(), n_cached, n_to_cache, is_cut
            )
            # The next pack begins with the rest of this text.
            begin = k
            n_cached = n_to_cache
            shared[k] = n_to_cache
            size = 0
        size += length - int(shared[k])
    yield Part(texts[begin:], size, shared[begin:], n_cached)


def _bins(pieces: list[Part], fill: int) -> list[list[Part]]:
    """Best fit, largest piece first: each piece goes where the least room is left,
    larger ones than `fill` alone.
    """
    bins: list[list[Part]] = []
    # What is left in each bin, ascending, with the bin's number.
    room: list[tuple[int, int]] = []
    for piece in sorted(pieces, key=_TOKENS, reverse=True):
        # -1 is below every bin's number: bins with just this room count.
        place = bisect_left(room, (piece.tokens, -1))
        if place < len(room):
            left, number = room.pop(place)
            bins[number].append(piece)
        else:
            left = max(fill, piece.tokens)
            number = len(bins)
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


class Rows(NamedTuple):
    """The rows start..stop of a pack."""

    start: int
    stop: int


class Run(NamedTuple):
    """The rows start..stop that one text has for itself, and the earlier rows that come
    before them.

    `offset`: how many tokens of the text come before the run.
    """

    start: int
    stop: int
    before: tuple[Rows, ...]
    offset: int

    @property
    def path(self) -> tuple[Rows, ...]:
        """The rows that spell the text."""
        return *self.before, Rows(self.start, self.stop)


class Segment(NamedTuple):
    """The rows start..stop, all of which are seen by each of the rows first..end."""

    start: int
    stop: int
    first: int
    end: int


@dataclass(frozen=True)
class Layout:
    """A pack written out. Row r holds token `ids[r]` at position `positions[r]` of its
    text.

    `runs`: one per text. `ends[r]`: the first row behind r whose text does not go
    through r, so that row q sees row k exactly when k <= q < ends[k]. The first
    `n_cached` rows were forwarded by the pack before, the other `forwarded` go through
    the model; `n_to_cache`: as of the part.
    """

    ids: Ints
    positions: Ints
    runs: list[Run]
    ends: Ints
    n_cached: int
    n_to_cache: int
    forwarded: int

    @cached_property
    def segments(self) -> list[Segment]:
        """Rows of runs that later runs see as a whole."""
        # Rows whose subtrees end at one row are seen by the same later rows: a stretch
        # between two edges is one segment.
        edges = np.flatnonzero(np.diff(self.ends)) + 1
        # Cached rows are looked at like a run.
        cached = Run(0, self.n_cached, (), 0)

        segments = []
        for begin, behind, *_ in [cached, *self.runs]:
            first_edge = np.searchsorted(edges, begin, "right")
            last_edge = np.searchsorted(edges, behind, "left")
            inside = edges[first_edge:last_edge].tolist()
            for start, stop in pairwise([begin, *inside, behind]):
                # From the end of the run to the end of the subtree: rows inside the run
                # are its own, causal part.
                if stop > start and self.ends[start] > behind:
                    segments.append(Segment(start, stop, behind, int(self.ends[start])))
        return segments

    @cached_property
    def to_cache(self) -> list[Rows]:
        """The rows that the next pack goes on from: the first `n_to_cache` tokens of
        the last text.
        """
        rows = []
        left = self.n_to_cache
        for start, stop in self.runs[-1].path:
            if left > 0:
                rows.append(Rows(start, min(stop, start + left)))
            left -= stop - start
        return rows

    def path(self, text: int) -> Ints:
        """The rows that spell the text, in order."""
        return np.concatenate([np.arange(*rows) for rows in self.runs[text].path])

    def rows(self, texts: Ints, positions: Ints) -> Ints:
        """The row of each position of a text, given as two arrays of one length."""
        runs = np.array([(run.start, run.offset) for run in self.runs])
        starts, offsets = runs[texts].T
        # Right for positions in the text's own run.
        rows: Ints = positions - offsets + starts
        # Most heads read behind what texts share, where no path need be written out.
        is_shared = positions < offsets
        for text in set(texts[is_shared].tolist()):
            cells = is_shared & (texts == text)
            rows[cells] = self.path(text)[positions[cells]]
        return rows


def lay_out(part: Part, sequences: Texts) -> Layout:
    """The rows of a pack: token ids, positions, each text's run, and where each row's
    subtree ends.
    """
    n_cached = part.n_cached
    pieces = []
    for text, begin in zip(part.texts, part.shared, strict=True):
        pieces.append(sequences[text][begin:])
    if part.is_cut:
        pieces[-1] = pieces[-1][: part.n_to_cache - part.shared[-1]]
    cached = sequences[part.texts[0]][:n_cached]
    ids = np.concatenate([cached, *pieces]).astype(np.intp)

    lengths = count_tokens(pieces)
    forwarded = int(lengths.sum())
    stops = n_cached + np.cumsum(lengths)
    positions = np.arange(len(ids))
    # A row's position is its distance from the run's start plus what the text shares.
    positions[n_cached:] -= np.repeat(stops - lengths - part.shared, lengths)

    # Until a later text leaves the path, a subtree goes to the end.
    ends = np.full(len(ids), len(ids), np.intp)
    runs: list[Run] = []
    path = [Rows(0, n_cached)] if n_cached else []
    start = n_cached
    # Of the text before.
    length = n_cached
    for stop, shared in zip(stops.tolist(), part.shared.tolist(), strict=True):
        _leave(path, length - shared, start, ends)
        runs.append(Run(start, stop, tuple(path), shared))
        # A run that goes on where the path ends makes that slice longer: few slices,
        # few copies.
        if path and path[-1].stop == start:
            path[-1] = path[-1]._replace(stop=stop)
        elif stop > start:
            path.append(Rows(start, stop))
        length = shared + stop - start
        start = stop
    return Layout(ids, positions, runs, ends, n_cached, part.n_to_cache, forwarded)


def _leave(path: list[Rows], n_left: int, row: int, ends: Ints) -> None:
    """Take the last `n_left` rows off the path: they are on no later text's path, so
    that their subtrees end at `row`.
    """
    while n_left > 0:
        start, stop = path.pop()
        cut_row = max(stop - n_left, start)
        ends[cut_row:stop] = row
        n_left -= stop - cut_row
        if cut_row > start:
            path.append(Rows(start, cut_row))
