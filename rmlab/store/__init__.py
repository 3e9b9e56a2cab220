"""Scores, and answers of judges, that survive a crash: append-only files of self-checking lines, one per writer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from rmlab.store.ledger import Ledger
from rmlab.store.lines import ANSWERS, SCORES, Format, check_fingerprint, column_key, texts
from rmlab.tables import DataError

__all__ = ["ANSWERS", "Format", "Ledger", "Store", "column_key", "merge"]

V = TypeVar("V")


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
        """Fingerprints that have scores or answers here, sorted."""
        return sorted({fingerprint for form in (SCORES, ANSWERS) for fingerprint in self.holding(form)})

    def holding(self, form: Format[Any]) -> list[str]:
        """Fingerprints that have records of one kind here, sorted."""
        return sorted({path.parent.name for path in self.folder.glob(f"*/*{form.suffix}")})

    def ledger(self, fingerprint: str, *, mend: bool = True) -> Ledger[float]:
        """The scores of one fingerprint: letters, digits, '.', '_' and '-', at most 128 of them.

        `mend=False` leaves damaged files as they are, for stores of others.
        """
        return self._open(fingerprint, SCORES, mend)

    def answers(self, fingerprint: str, form: Format[V]) -> Ledger[V]:
        """The answers of one fingerprint; `form` says what is made of the line of text that each of them is."""
        return self._open(fingerprint, form, True)

    def _open(self, fingerprint: str, form: Format[V], mend: bool) -> Ledger[V]:
        return Ledger(self.folder / check_fingerprint(fingerprint), fingerprint, form, mend=mend)


def merge(folders: str | Path | Sequence[str | Path], into: str | Path) -> pd.DataFrame:
    """Copy the scores of several stores into one, for example those of shards scored on different machines.

    One row per source and fingerprint: fingerprint, model, source, texts (scores read there, or answers of a judge),
    added (new in `into`), conflicts (those that differ from the one already there, which is kept) and max_difference
    (of scores; NaN without any).
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
        _merge_one(source, target, fingerprint, form)
        for source in sources
        if source.folder.resolve() != target.folder.resolve()
        for form in (SCORES, ANSWERS)
        for fingerprint in source.holding(form)
    ]
    columns = ["fingerprint", "model", "source", "texts", "added", "conflicts", "max_difference"]
    return pd.DataFrame(rows, columns=columns)


def _merge_one(source: Store, target: Store, fingerprint: str, form: Format[Any]) -> tuple[object, ...]:
    with source._open(fingerprint, form, False) as old, target._open(fingerprint, form, True) as new:
        theirs, ours = dict(old.refresh()), dict(new.refresh())
        notes = old.notes()
        fresh = [key for key in theirs if key not in ours]
        new.adopt(notes)
        if fresh:
            new.append(fresh, [theirs[key] for key in fresh])
        differ = [key for key in theirs if key in ours and theirs[key] != ours[key]]
        gaps = [abs(theirs[key] - ours[key]) for key in differ] if form is SCORES else []
        model = next((str(note["name"]) for note in notes.values() if "name" in note), "")
        widest = max(gaps, default=float("nan"))
        return fingerprint, model, str(source.folder), texts(theirs), texts(fresh), len(differ), widest
