"""A pack written out in rows: which token a row holds, on which texts' paths it lies, and which rows it is seen by.

The rows of a pack are the runs of its texts, one behind the other: a text needs rows only for the tokens that it does
not share with the text before it (planning.py). The path of a text is the rows that spell it. What the pack before has
forwarded of a long prompt (attention.py) comes first. All functions are pure and know only numpy.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmlab.inference.planning import Ints, Pack, Texts


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
        segments = []
        # Rows whose subtrees end at one row are seen by the same later rows: a stretch between two edges is one
        # segment.
        edges = np.flatnonzero(np.diff(self.ends)) + 1
        # Kept rows are looked at like a run.
        for begin, behind in [(0, self.kept), *((run.start, run.stop) for run in self.runs)]:
            inside = edges[np.searchsorted(edges, begin, "right") : np.searchsorted(edges, behind, "left")].tolist()
            for start, stop in pairwise([begin, *inside, behind]):
                # From the end of the run to the end of the subtree: rows inside the run are its own, causal part.
                end = int(self.ends[start]) if stop > start else 0
                if end > behind:
                    segments.append(Segment(start, stop, behind, end))
        return segments

    @cached_property
    def carried(self) -> list[tuple[int, int]]:
        """The slices of rows that the next pack goes on from: the first `keep` tokens of the last text."""
        slices, left = [], self.keep
        for first, last in self._slices(len(self.runs) - 1):
            if left > 0:
                slices.append((first, min(last, first + left)))
            left -= last - first  # the path's slices in order, until `keep` tokens are there
        return slices

    def _slices(self, text: int) -> tuple[tuple[int, int], ...]:
        start, stop, before = self.runs[text]
        return *before, (start, stop)

    def path(self, text: int) -> Ints:
        """The rows that spell the text, in order."""
        return np.concatenate([np.arange(first, last) for first, last in self._slices(text)])

    def rows(self, texts: Ints, positions: Ints) -> Ints:
        """The row of each position of a text, given as two arrays of one length."""
        offsets = np.array([run.offset for run in self.runs])[texts]
        # Right for positions in the text's own run.
        rows: Ints = positions - offsets + np.array([run.start for run in self.runs])[texts]
        # Most heads read behind what texts share, where no path need be written out.
        is_shared = positions < offsets
        for text in set(texts[is_shared].tolist()):
            cells = is_shared & (texts == text)
            rows[cells] = self.path(text)[positions[cells]]
        return rows

    def filled(self, rows: int) -> "Layout":
        """The same with rows behind the last that fill it up to `rows` forwarded ones, each a text of one token."""
        if rows == self.forwarded:
            return self
        filling = np.zeros(rows - self.forwarded, np.intp)
        ids, positions = (np.concatenate([values, filling]) for values in (self.ids, self.positions))
        # Each filling row ends behind itself.
        ends = np.concatenate([self.ends, np.arange(len(self.ids), len(ids)) + 1])
        return replace(self, ids=ids, positions=positions, ends=ends)


def lay_out(part: Pack, sequences: Texts) -> Layout:
    """The rows of a pack: token ids, positions, each text's run, and where each row's subtree ends."""
    pieces = [sequences[text][begin:] for text, begin in zip(part.texts, part.shared, strict=True)]
    if part.cut:
        pieces[-1] = pieces[-1][: part.keep - part.shared[-1]]
    lengths = np.array([len(piece) for piece in pieces], np.intp)
    stops = part.kept + np.cumsum(lengths)
    ids = np.concatenate([sequences[part.texts[0]][: part.kept], *pieces]).astype(np.intp, copy=False)
    positions = np.arange(part.kept + part.tokens)
    # A row's position is its distance from the run's start plus what the text shares.
    positions[part.kept :] -= np.repeat(stops - lengths - part.shared, lengths)
    return Layout(ids, positions, *_runs(part, stops.tolist()), part.kept, part.keep)


def _runs(part: Pack, stops: list[int]) -> tuple[list[Run], Ints]:
    """Each text's run, which ends at its number of `stops`, and where each row's subtree ends."""
    rows = part.kept + part.tokens
    ends = np.full(rows, rows, np.intp)  # until a later text leaves the path, a subtree goes to the end
    runs: list[Run] = []
    path = [(0, part.kept)] if part.kept else []
    start = n_spelled = part.kept  # where the next run begins; how many rows are on the path
    for stop, shared in zip(stops, part.shared.tolist(), strict=True):
        _cut_off(path, n_spelled - shared, ends, start)
        runs.append(Run(start, stop, tuple(path)))
        # A run that goes on where the path ends makes that slice longer: few slices, few copies.
        if path and path[-1][1] == start:
            path[-1] = (path[-1][0], stop)
        elif stop > start:
            path.append((start, stop))
        start, n_spelled = stop, shared + stop - start
    return runs, ends


def _cut_off(path: list[tuple[int, int]], excess: int, ends: Ints, row: int) -> None:
    """Cut the last `excess` rows off the path, slices of rows; they end at `row`."""
    # From the back: those rows are on no later text's path, so their subtrees end here.
    while excess > 0:
        start, stop = path.pop()
        cut = max(stop - excess, start)
        ends[cut:stop] = row
        excess -= stop - cut
        if cut > start:
            path.append((start, cut))
