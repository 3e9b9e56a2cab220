"""The records of one fingerprint: read from every writer's files, appended to files of one's own."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmlab.store import lines, names, notes
from rmlab.store.place import Piece, Place
from rmlab.tables import DataError

__all__ = ["Ledger"]

V = TypeVar("V")
Floats = NDArray[np.float64]


class Ledger(Generic[V]):
    """The stored scores, or answers, of one fingerprint, and this process's pen. A context manager: leaving closes it.

    Where a key was written twice, the file that sorts first (the writer that started first) is believed, so every
    reader sees the same value. `values` maps each key to its value, as of the last `refresh` or `append`; with `only`,
    those of these keys, so that a store may be larger than the memory. `format` says what the records hold, `name` is
    the beginning of the names of this process's files.

    The place may come from a stranger: a link, a pipe or a device in it raises DataError and is not opened, and so
    does somebody else's file where everybody may write.
    """

    def __init__(
        self, place: Place, fingerprint: str, format: lines.Format[V], *, only: Collection[str] | None = None
    ) -> None:
        self.place = place
        self.fingerprint = fingerprint
        self.format = format
        self.values: dict[str, V] = {}
        self._only = None if only is None else frozenset(only)
        self._parts: dict[str, dict[str, V]] = {}
        self.name = names.writer()

    def __enter__(self) -> "Ledger[V]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files, which gives up their locks."""
        self.place.close()

    def refresh(self) -> dict[str, V]:
        """Read what others have written since the last call; key -> value.

        A damaged line in the file of a process that no longer runs is moved to a file with the ending `.damaged` and
        warned about; the rest stays. Raises DataError for a file of another format version or fingerprint, and for
        one with content that no rmlab writes.
        """
        # One's own records are known; to read them again would take longer with every call.
        others = [name for name in self.place.names(self.format.suffix) if not name.startswith(self.name)]
        if [piece.name for piece in self.place.news(others) if self._take(piece)]:
            self.values = {}
            for name in sorted([*others, self.name], reverse=True):
                self.values.update(self._parts.get(name, {}))
        return self.values

    def append(self, keys: Sequence[str], values: Sequence[V] | Floats, *, wait: bool = True) -> None:
        """Append values (finite ones, if they are scores) and wait until they are on the disk.

        Without `wait` they are in a file with the operating system, which keeps them whatever becomes of this process,
        but not if the machine stops; where files are written whole, they are in none before the next `wait` or `note`.
        Raises OSError where the disk is full or cannot be written; everything appended before is kept.
        """
        new = {key: self.format.write(value) for key, value in zip(keys, self._checked(keys, values), strict=True)}
        data = b"".join(lines.line(self.fingerprint, key, text) for key, text in new.items())
        with self._writing():
            header = lines.header(self.fingerprint, self.format)
            self.place.append(self.name, self.format.suffix, header, data, wait=wait)
        own = self._parts.setdefault(self.name, {})
        for key in filter(self._wants, new):
            # What is read in it, which may be far smaller than what was written.
            self.values.setdefault(key, own.setdefault(key, self.format.read(key, new[key])))

    def note(self, run: dict[str, object]) -> None:
        """Write what this process did (JSON-able) beside its scores, whole; a later call replaces it."""
        with self._writing():
            self.place.flush()
            self.place.put(f"{self.name}.json", notes.text(run))

    def notes(self) -> dict[str, dict[str, object]]:
        """What each process wrote with `note`, by the name of its file, in the order of their starts."""
        found = {}
        for name in self.place.names(".json"):
            note = notes.parse(Path(self.place.where) / name, self.place.read(name, notes.LONGEST + 1))
            if note is not None:
                found[name] = note
        return found

    def runs(self) -> list[dict[str, object]]:
        """What each process wrote with `note`, in the order of their starts.

        A process that was killed could not note its last scores: `scored` is at least what its file holds.
        """
        return [self._counted(name, note) for name, note in self.notes().items()]

    def _counted(self, name: str, note: dict[str, object]) -> dict[str, object]:
        writer = name.removesuffix(".json")
        parts = [part for file, part in self._parts.items() if file.partition(".")[0] == writer]
        scored, missing = note.get("scored"), note.get("missing", 0)
        if not parts or not isinstance(scored, int) or not isinstance(missing, int):
            return note
        return note | {"scored": max(scored, sum(map(lines.texts, parts)) + missing)}

    def others(self) -> list[dict[str, object]]:
        """Files with scores that belong to another user: owner, ledger (the file's name) and texts."""
        owners = ((name, part, self.place.owner(name)) for name, part in sorted(self._parts.items()))
        return [{"owner": owner, "ledger": name, "texts": lines.texts(part)} for name, part, owner in owners if owner]

    def adopt(self, found: dict[str, dict[str, object]]) -> None:
        """Keep another ledger's notes here, unless they are here already."""
        for name, note in found.items():
            if not self.place.has(name):
                with self._writing():
                    self.place.put(name, notes.text(note))

    @contextmanager
    def claim(self, keys: Iterable[str]) -> Iterator[bool]:
        """Whether this process may score these keys: no other living process has claimed just these.

        The claim ends with the block, or with the process, however it ends. Where there are no locks, every claim is
        granted: texts may then be scored twice, and the file that sorts first is believed.
        """
        position = int.from_bytes(blake2b("\n".join(keys).encode(), digest_size=7).digest())
        with self._writing():
            claimed = self.place.claim(position)
        with claimed as mine:
            yield mine

    def _checked(self, keys: Sequence[str], values: Sequence[V] | Floats) -> Sequence[V]:
        if self.format.suffix != lines.SUFFIX:
            return list(values)
        scores = np.asarray(values, dtype=np.float64)
        if scores.shape != (len(keys),) or not np.isfinite(scores).all():
            raise DataError(f"store: expected {len(keys)} finite scores, one per key, got {scores!r:.200}")
        plain: list[V] = scores.tolist()
        return plain

    def _take(self, piece: Piece) -> bool:
        """Take the lines of a piece; whether there were any."""
        path = Path(self.place.where) / piece.name
        parsed = lines.parse(path, piece.data, self.fingerprint, from_start=piece.first, format=self.format)
        endless = len(parsed.torn) == len(piece.data)
        damaged = parsed.bad or (parsed.torn and (piece.last or endless))
        if damaged and self.place.mend(piece.name, self.fingerprint, self.format):
            return False  # it comes again, from its start
        # A living writer may be in the middle of its last line: come back to it.
        self.place.used(piece.name, len(piece.data) - len(parsed.torn))
        part = {} if piece.first else self._parts.get(piece.name, {})
        self._parts[piece.name] = part
        for key in filter(self._wants, parsed.good):
            part.setdefault(key, parsed.good[key])
        return True

    def _wants(self, key: str) -> bool:
        return self._only is None or lines.text_key(key) in self._only

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say what is kept and what to do where the disk refuses."""
        try:
            yield
        except OSError as error:
            message = (
                f"store: cannot write ({error.strerror or error}); the {len(self.values)} {self.format.noun} stored "
                "before are kept; free the disk or choose another store=, and run the same again to go on from there"
            )
            raise OSError(error.errno, message, self.place.where) from error
