"""Texts of one prompt as a trie of token ids, laid out depth-first in packs: a shared beginning is forwarded once.

Texts of a prompt are sorted, so that each text shares most with the one before it. A text then needs rows only for the
tokens that it does not share: its run. The rows of a pack are its runs, one behind the other, and the path of a text is
the rows that spell it.

A prompt whose trie is larger than a pack may be is cut anywhere, also within a text. Depth first, all that the rows
behind a cut still see of those before it is one path, the beginning of the text that stands at the cut: its keys and
values are kept for the next pack (kept.py). All functions are pure and know only numpy.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Layout", "Pack", "Run", "Segment", "distinct", "lay_out", "own_tokens", "pack", "trie_size"]

Ints = NDArray[np.intp]
Tokens = NDArray[np.integer]


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


class Run(NamedTuple):
    """The rows start..stop that one text has for itself, and the slices of earlier rows that come before them."""

    start: int
    stop: int
    before: tuple[tuple[int, int], ...]

    @property
    def offset(self) -> int:
        """How many tokens of the text come before the run."""
        return sum(stop - start for start, stop in self.before)


class Segment(NamedTuple):
    """The rows start..stop of one run, all of which are seen by each of the rows first..end of later runs."""

    start: int
    stop: int
    first: int
    end: int


@dataclass(frozen=True)
class Layout:
    """A pack written out. Row r holds token `ids[r]` at position `positions[r]` of its text.

    `runs`: one per text. `ends[r]`: the first row behind r whose text does not go through r, so that row q sees row k
    exactly when k <= q < ends[k]. Rows behind the last run, if any, only fill up: they see themselves. The first `kept`
    rows were forwarded by the pack before; `keep`: as of the pack.
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
    def segments(self) -> list[Segment]:
        """What rows see of runs before their own."""
        found = []
        # Rows whose subtrees end at one row are seen by the same later rows: a stretch between two edges is one
        # segment.
        edges = np.flatnonzero(np.diff(self.ends)) + 1
        own = [(0, self.kept), *((run.start, run.stop) for run in self.runs)]  # kept rows are looked at like a run
        for begin, behind in own:
            inside = edges[np.searchsorted(edges, begin, "right") : np.searchsorted(edges, behind, "left")].tolist()
            for start, stop in pairwise([begin, *inside, behind]):
                # From the end of the run to the end of the subtree: rows inside the run are its own, causal part.
                end = int(self.ends[start]) if stop > start else 0
                if end > behind:
                    found.append(Segment(start, stop, behind, end))
        return found

    @cached_property
    def carried(self) -> list[tuple[int, int]]:
        """The slices of rows that the next pack goes on from: the first `keep` tokens of the last text."""
        start, stop, before = self.runs[-1]
        slices, left = [], self.keep
        for first, last in (*before, (start, stop)):
            if left > 0:
                slices.append((first, min(last, first + left)))
            left -= last - first  # the path's slices in order, until `keep` tokens are there
        return slices

    def path(self, text: int) -> Ints:
        """The rows that spell the text, in order."""
        start, stop, before = self.runs[text]
        return np.concatenate([np.arange(first, last) for first, last in (*before, (start, stop))])

    @cached_property
    def paths(self) -> list[Ints]:
        """The path of every text."""
        return [self.path(text) for text in range(len(self.runs))]

    def rows(self, texts: Ints, positions: Ints) -> Ints:
        """The row of each position of a text, given as two arrays of one length."""
        offsets = np.array([run.offset for run in self.runs])[texts]
        # Right for positions in the text's own run.
        rows: Ints = positions - offsets + np.array([run.start for run in self.runs])[texts]
        # Most heads read behind what texts share, where no path need be written out.
        shared = positions < offsets
        for text in set(texts[shared].tolist()):
            here = shared & (texts == text)
            rows[here] = self.path(text)[positions[here]]
        return rows

    def filled(self, rows: int) -> "Layout":
        """The same with rows behind the last that fill it up to `rows` forwarded ones, each a text of one token."""
        if rows == self.forwarded:
            return self
        more = np.zeros(rows - self.forwarded, np.intp)
        ids, positions = (np.concatenate([values, more]) for values in (self.ids, self.positions))
        # Each filling row ends behind itself.
        ends = np.concatenate([self.ends, np.arange(len(self.ids), len(ids)) + 1])
        return replace(self, ids=ids, positions=positions, ends=ends)


def distinct(sequences: Sequence[Tokens]) -> tuple[Ints, Ints]:
    """First text number of each distinct sequence, and for each text the index of its sequence among those.

    >>> first, which = distinct([np.array([1, 2]), np.array([3]), np.array([1, 2])])
    >>> first.tolist(), which.tolist()
    ([0, 1], [0, 1, 0])
    """
    # By their bytes, all as int32: lists of ids of different dtypes are equal where their numbers are.
    seen: dict[bytes, int] = {}
    which = [seen.setdefault(np.asarray(ids, np.int32).tobytes(), len(seen)) for ids in sequences]
    _, first = np.unique(which, return_index=True)
    return first.astype(np.intp), np.asarray(which, np.intp)


def trie_size(sequences: Sequence[Tokens], groups: Sequence[int] | Ints) -> int:
    """The fewest tokens that give every text of each group its path: the nodes of one trie per group."""
    return int(own_tokens(sequences, groups).sum())


def own_tokens(sequences: Sequence[Tokens], groups: Sequence[int] | Ints) -> Ints:
    """How many tokens each text has that it shares with no text sorted before it in its group; together `trie_size`.

    >>> own_tokens([np.array([1, 2, 3]), np.array([1, 2, 4, 5])], [0, 0]).tolist()
    [3, 2]
    """
    own = np.zeros(len(sequences), np.intp)
    for texts, lengths, shared in _sorted_groups(sequences, groups):
        own[texts] = lengths - shared
    return own


def pack(
    sequences: Sequence[Tokens],
    groups: Sequence[int] | Ints,
    budget: int,
    *,
    fill: int | None = None,
    keeps: bool = True,
) -> list[Pack]:
    """Packs of at most `budget` tokens that hold every text of `sequences` once; the largest comes first.

    `groups[i]`: the number of text i's prompt; only texts of one prompt share rows. A prompt whose trie is larger than
    the budget is cut, and its packs follow one another, each going on from what the one before keeps. Where the model
    does not allow that (`keeps`), it is cut between texts, and each pack forwards their common beginning again; a
    single text that is longer than the budget is then a pack of its own. Other prompts are put together up to `fill`
    tokens, by default the budget.
    """
    if budget < 1:
        raise ValueError(f"budget={budget}; allowed: a positive number of tokens")
    fill = budget if fill is None else min(fill, budget)
    whole: list[Pack] = []
    turns: list[list[Pack]] = []
    for texts, lengths, shared in _sorted_groups(sequences, groups):
        pieces = list((_chain if keeps else _pieces)(texts, lengths, shared, budget))
        if len(pieces) == 1:
            whole += pieces
        else:
            # Packs that go on from one another keep their order; pieces that do not begin with the largest.
            turns.append(pieces if keeps else sorted(pieces, key=_size, reverse=True))
    turns += [[_joined(bin_)] for bin_ in _bins(whole, fill)]
    # The largest first, so that a budget that is too large shows at once; a prompt's packs stay together.
    return [part for turn in sorted(turns, key=lambda turn: -turn[0].tokens) for part in turn]


def lay_out(part: Pack, sequences: Sequence[Tokens]) -> Layout:
    """The rows of a pack: token ids, positions, each text's run, and where each row's subtree ends."""
    kept, rows = part.kept, part.kept + part.tokens
    ends = np.full(rows, rows, np.intp)  # until a later text leaves the path, a subtree goes to the end
    runs: list[Run] = []
    path = [(0, kept)] if kept else []
    start = kept
    pieces = [sequences[text][shared:] for text, shared in zip(part.texts.tolist(), part.shared.tolist(), strict=True)]
    if part.cut:
        pieces[-1] = pieces[-1][: part.keep - int(part.shared[-1])]
    for piece, shared in zip(pieces, part.shared.tolist(), strict=True):
        _cut_path(path, shared, ends, start)
        stop = start + len(piece)
        runs.append(Run(start, stop, tuple(path)))
        # A run that goes on where the path ends makes that slice longer: few slices, few copies.
        if path and path[-1][1] == start:
            path[-1] = (path[-1][0], stop)
        elif stop > start:
            path.append((start, stop))
        start = stop
    begun = [sequences[part.texts[0]][:kept]] if kept else []
    ids = np.concatenate([*begun, *pieces]).astype(np.intp, copy=False)
    starts = np.array([run.start for run in runs])
    lengths = np.diff(starts, append=start)
    # A row's position is its distance from the run's start plus what the text shares.
    positions = np.arange(start) - np.concatenate([np.zeros(kept, np.intp), np.repeat(starts - part.shared, lengths)])
    return Layout(ids, positions, runs, ends, kept, part.keep)


def _cut_path(path: list[tuple[int, int]], length: int, ends: Ints, row: int) -> None:
    """Cut the path, slices of rows, down to its first `length` rows; those cut off end at `row`."""
    over = sum(stop - start for start, stop in path) - length
    # From the back: those rows are on no later text's path, so their subtrees end here.
    while over > 0:
        start, stop = path.pop()
        cut = max(stop - over, start)
        ends[cut:stop] = row
        over -= stop - cut
        if cut > start:
            path.append((start, cut))


def _sorted_groups(sequences: Sequence[Tokens], groups: Sequence[int] | Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Per group: its texts with common beginnings side by side, their lengths, what each shares with the last."""
    members: dict[int, list[int]] = {}
    for text, group in enumerate(np.asarray(groups).tolist()):
        members.setdefault(group, []).append(text)
    spelled = [np.ascontiguousarray(ids, np.int32) for ids in sequences]
    for texts in members.values():
        # Bytes sort otherwise than numbers, but what begins alike stands together in either order.
        texts.sort(key=lambda text: spelled[text].tobytes())
        lengths = np.array([len(spelled[text]) for text in texts], np.intp)
        shared = [0] + [_common(spelled[a], spelled[b]) for a, b in pairwise(texts)]
        yield np.array(texts, np.intp), lengths, np.array(shared, np.intp)


def _common(left: NDArray[np.int32], right: NDArray[np.int32]) -> int:
    """Length of the common beginning of two sequences."""
    n = min(len(left), len(right))
    differ = left[:n] != right[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n


def _chain(texts: Ints, lengths: Ints, shared: Ints, budget: int) -> Iterator[Pack]:
    """The trie of one prompt, cut wherever a pack is full; each pack goes on where the one before it ends."""
    begin, kept, used = 0, 0, 0
    shared = shared.copy()
    for k, length in enumerate(lengths.tolist()):
        while used + length - int(shared[k]) > budget:
            keep = int(shared[k]) + budget - used  # of the text: what it shares, and what still fits
            # A pack that is full already where the text begins does not hold it.
            cut = used < budget
            yield Pack(texts[begin : k + cut], shared[begin : k + cut].copy(), budget, kept, keep, cut)
            # The next pack begins with the rest of this text, and finds its first `keep` tokens kept.
            begin, kept, used = k, keep, 0
            shared[k] = keep
        used += length - int(shared[k])
    yield Pack(texts[begin:], shared[begin:], used, kept)


def _pieces(texts: Ints, lengths: Ints, shared: Ints, budget: int) -> Iterator[Pack]:
    """The trie of one prompt, cut between texts where it is larger than the budget."""
    begin, used = 0, 0
    shared = shared.copy()
    for k, (length, common) in enumerate(zip(lengths.tolist(), shared.tolist(), strict=True)):
        if k > begin and used + length - common > budget:
            yield Pack(texts[begin:k], shared[begin:k], used)
            begin, used, common = k, 0, 0
            shared[k] = 0  # the first text of a piece shares with nobody
        used += length - common
    yield Pack(texts[begin:], shared[begin:], used)


def _bins(pieces: list[Pack], fill: int) -> list[list[Pack]]:
    """Best fit, largest piece first: each piece goes where the least room is left, larger ones than `fill` alone."""
    bins: list[list[Pack]] = []
    room: list[tuple[int, int]] = []
    for piece in sorted(pieces, key=_size, reverse=True):
        at = bisect_left(room, (piece.tokens, -1))  # -1 is below every bin's number: bins with just this room count
        if at < len(room):
            left, number = room.pop(at)
            bins[number].append(piece)
        else:
            left, number = max(fill, piece.tokens), len(bins)
            bins.append([piece])
        insort(room, (left - piece.tokens, number))
    return bins


def _size(part: Pack) -> int:
    return part.tokens


def _joined(pieces: list[Pack]) -> Pack:
    texts = np.concatenate([piece.texts for piece in pieces])
    return Pack(texts, np.concatenate([piece.shared for piece in pieces]), sum(piece.tokens for piece in pieces))
