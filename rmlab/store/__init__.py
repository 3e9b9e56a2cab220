"""Scores that survive a crash: one folder, append-only files of self-checking lines, one file per writing process."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rmlab.store.ledger import Ledger
from rmlab.store.lines import SUFFIX, check_fingerprint
from rmlab.tables import DataError

__all__ = ["Ledger", "Store", "merge"]


class Store:
    """A folder of scores: one subfolder per fingerprint (all that decides a score), one file in it per writer.

    Processes never write to one another's files, so any number of them may share a folder.
    """

    def __init__(self, folder: str | Path) -> None:
        if not str(folder).strip():
            raise DataError(f"store: {folder!r} names no folder; give one, for example 'scores/', or leave it out")
        self.folder = Path(folder).expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"store: {self.folder} is a file; give a folder, for example 'scores/'")

    def fingerprints(self) -> list[str]:
        """Fingerprints that have scores here, sorted."""
        return sorted({path.parent.name for path in self.folder.glob(f"*/*{SUFFIX}")})

    def ledger(self, fingerprint: str, *, mend: bool = True) -> Ledger:
        """The scores of one fingerprint: letters, digits, '.', '_' and '-', at most 128 of them.

        `mend=False` leaves damaged files as they are, for stores of others.
        """
        return Ledger(self.folder / check_fingerprint(fingerprint), fingerprint, mend=mend)


def merge(folders: str | Path | Sequence[str | Path], into: str | Path) -> pd.DataFrame:
    """Copy the scores of several stores into one, for example those of shards scored on different machines.

    One row per source and fingerprint: fingerprint, model, source, texts (scores read there), added (new in `into`),
    conflicts (scores that differ from the one already there, which is kept) and max_difference (NaN without any).
    Merging again adds nothing, and nothing is written to a source. Raises DataError where a folder is not there, holds
    no scores, or holds what no store does: a link, a pipe, a note or a line that rmlab does not write.
    """
    target = Store(into)
    sources = [Store(folder) for folder in ([folders] if isinstance(folders, str | Path) else folders)]
    for source in sources:
        if not source.fingerprints():
            state = "holds no scores" if source.folder.is_dir() else "is not there"
            raise DataError(f"merge: {source.folder} {state}; give folders that rmlab.score(..., store=...) wrote")
    rows = [
        _merge_one(source, target, fingerprint)
        for source in sources
        if source.folder.resolve() != target.folder.resolve()
        for fingerprint in source.fingerprints()
    ]
    columns = ["fingerprint", "model", "source", "texts", "added", "conflicts", "max_difference"]
    return pd.DataFrame(rows, columns=columns)


def _merge_one(source: Store, target: Store, fingerprint: str) -> tuple[object, ...]:
    with source.ledger(fingerprint, mend=False) as old, target.ledger(fingerprint) as new:
        theirs, ours = dict(old.refresh()), dict(new.refresh())
        notes = old.notes()
        fresh = [key for key in theirs if key not in ours]
        new.adopt(notes)
        if fresh:
            new.append(fresh, [theirs[key] for key in fresh])
        gaps = [abs(theirs[key] - ours[key]) for key in theirs if key in ours and theirs[key] != ours[key]]
        model = next((str(note["name"]) for note in notes.values() if "name" in note), "")
        widest = max(gaps, default=float("nan"))
        return fingerprint, model, str(source.folder), len(theirs), len(fresh), len(gaps), widest
