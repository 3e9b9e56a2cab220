"""Scores, and answers of judges, that survive a crash: files of self-checking lines, each with one writer.

Not sqlite: on network file systems, where the processes of a cluster meet, its locks cannot be relied on, it has one
writer at a time, and a damaged page can cost the whole file. Here nobody waits for anybody, a damaged line costs that
line, and merging two stores is copying files.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from rmlab.store import disk
from rmlab.store.ledger import Ledger
from rmlab.store.lines import ANSWERS, SCORES, Format, check_fingerprint, column_key, texts
from rmlab.store.parts import Bucket, Parts, is_url
from rmlab.store.place import Folder
from rmlab.tables import DataError

__all__ = ["ANSWERS", "Bucket", "Format", "Ledger", "Store", "column_key", "is_url", "merge"]

V = TypeVar("V")

_MOST = 100_000
"""Records that `merge` writes at once."""


class Store:
    """A place for scores: one subfolder per fingerprint (all that decides a score), in it files of one writer each.

    Processes never write to one another's files, so any number of them may share a store. A folder: each writer
    appends to a file of its own, under a lock. A URL that fsspec knows (s3://bucket/scores, file:///nfs/scores), or a
    folder on a file system without locks: each writer puts immutable parts there. Both read what the other wrote.
    """

    def __init__(self, folder: str | Path) -> None:
        if not str(folder).strip():
            raise DataError(f"store: {folder!r} names no folder; give one, for example 'scores/', or leave it out")
        self.folder: Path | None = None
        self.bucket: Bucket | None = None
        if is_url(folder):
            self.bucket = Bucket(str(folder))
        else:
            self.folder = Path(folder).expanduser()
            if self.folder.exists() and not self.folder.is_dir():
                raise DataError(f"store: {self.folder} is a file; give a folder, for example 'scores/'")
            if not disk.has_locks(self.folder):
                self.bucket = Bucket(self.folder.absolute().as_uri())

    def __str__(self) -> str:
        return str(self.folder or (self.bucket and self.bucket.url))

    def fingerprints(self) -> list[str]:
        """Fingerprints that have scores or answers here, sorted."""
        return sorted({fingerprint for format in (SCORES, ANSWERS) for fingerprint in self.holding(format)})

    def holding(self, format: Format[float] | Format[str]) -> list[str]:
        """Fingerprints that have records of one kind here, sorted."""
        if self.folder is not None:
            return sorted({path.parent.name for path in self.folder.glob(f"*/*{format.suffix}")})
        assert self.bucket is not None
        inside = {name: self.bucket.found(name) for name in self.bucket.folders()}
        return [name for name, found in inside.items() if any(file.endswith(format.suffix) for file in found)]

    def ledger(self, fingerprint: str, *, mend: bool = True, only: Collection[str] | None = None) -> Ledger[float]:
        """The scores of one fingerprint: letters, digits, '.', '_' and '-', at most 128 of them.

        `mend=False` leaves damaged files as they are, for stores of others. `only`: the keys of the texts that are
        asked for; no others are kept in memory.
        """
        return self._open(fingerprint, SCORES, mend, only)

    def answers(self, fingerprint: str, format: Format[V], *, only: Collection[str] | None = None) -> Ledger[V]:
        """The answers of one fingerprint; `format` says what is made of the line of text that each of them is."""
        return self._open(fingerprint, format, True, only)

    def _open(self, fingerprint: str, format: Format[V], mend: bool, only: Collection[str] | None = None) -> Ledger[V]:
        name = check_fingerprint(fingerprint)
        if self.bucket is not None:
            return Ledger(Parts(self.bucket, name), fingerprint, format, only=only)
        assert self.folder is not None
        return Ledger(Folder(self.folder / name, mend=mend), fingerprint, format, only=only)

    def same(self, other: "Store") -> bool:
        """Whether both are one place."""
        if self.folder is None or other.folder is None:
            return str(self) == str(other)
        return self.folder.resolve() == other.folder.resolve()


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
            gone = source.folder is not None and not source.folder.is_dir()
            state = "is not there" if gone else "holds no scores"
            raise DataError(f"merge: {source} {state}; give folders that rmlab.score(..., store=...) wrote")
    rows = [
        _merge_one(source, target, fingerprint, format)
        for source in sources
        if not source.same(target)
        for format in (SCORES, ANSWERS)
        for fingerprint in source.holding(format)
    ]
    columns = ["fingerprint", "model", "source", "texts", "added", "conflicts", "max_difference"]
    return pd.DataFrame(rows, columns=columns)


def _merge_one(source: Store, target: Store, fingerprint: str, format: Format[Any]) -> tuple[object, ...]:
    with source._open(fingerprint, format, False) as old, target._open(fingerprint, format, True) as new:
        theirs, ours = dict(old.refresh()), dict(new.refresh())
        notes = old.notes()
        fresh = [key for key in theirs if key not in ours]
        new.adopt(notes)
        for start in range(0, len(fresh), _MOST):
            some = fresh[start : start + _MOST]
            new.append(some, [theirs[key] for key in some])
        differ = [key for key in theirs if key in ours and theirs[key] != ours[key]]
        gaps = [abs(theirs[key] - ours[key]) for key in differ] if format is SCORES else []
        model = next((str(note["name"]) for note in notes.values() if "name" in note), "")
        widest = max(gaps, default=float("nan"))
        return fingerprint, model, str(source), texts(theirs), texts(fresh), len(differ), widest
