"""The records of one fingerprint: read from every writer's file, appended to a file of one's own."""

import os
import re
import secrets
import socket
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmlab import files
from rmlab.store import disk, lines, notes, owners
from rmlab.tables import DataError

__all__ = ["Ledger"]

V = TypeVar("V")
Floats = NDArray[np.float64]


class Ledger(Generic[V]):
    """The stored scores, or answers, of one fingerprint, and this process's pen. A context manager: leaving closes it.

    Where a key was written twice, the file that sorts first (the writer that started first) is believed, so every
    reader sees the same value. `values` maps each key to its value, as of the last `refresh` or `append`. With
    `mend=False` nothing is written unless asked for: damage is left as it is. `form` says what the records hold.

    The folder may come from a stranger: a link, a pipe or a device in it raises DataError and is not opened, and so
    does somebody else's file where everybody may write.
    """

    def __init__(self, folder: Path, fingerprint: str, form: lines.Format[V], *, mend: bool = True) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.form = form
        self.mend = mend
        self.values: dict[str, V] = {}
        self._parts: dict[str, _Part[V]] = {}
        self._name = _writer()
        self._file: int | None = None
        self._claims: int | None = None

    def __enter__(self) -> "Ledger[V]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files, which gives up their locks."""
        for file in (self._file, self._claims):
            if file is not None:
                os.close(file)
        self._file = self._claims = None

    def refresh(self) -> dict[str, V]:
        """Read what was appended since the last call, by anybody; key -> value.

        A damaged line in the file of a process that no longer runs is moved to a file with the ending `.damaged` and
        warned about; the rest stays. Raises DataError for a file of another format version or fingerprint, and for
        one with content that no rmlab writes.
        """
        paths = self._files(self.form.suffix)
        if [path for path in paths if self._read(path)]:
            self.values = {}
            for path in reversed(paths):
                self.values.update(self._parts[path.name].values)
        return self.values

    def append(self, keys: Sequence[str], values: Sequence[V] | Floats, *, wait: bool = True) -> None:
        """Append values (finite ones, if they are scores) and wait until they are on the disk.

        Without `wait` they are with the operating system, which keeps them whatever becomes of this process, but not
        if the machine stops. Raises OSError where the disk is full or cannot be written; everything appended before is
        kept.
        """
        new = dict(zip(keys, self._checked(keys, values), strict=True))
        data = b"".join(lines.line(self.fingerprint, key, value, self.form) for key, value in new.items())
        with self._writing():
            if self._file is None:
                path = self.folder / f"{self._name}{self.form.suffix}"
                self._file = disk.create(path, lines.header(self.fingerprint, self.form))
            disk.write(self._file, data, wait=wait)
        for key, value in new.items():
            self.values.setdefault(key, value)

    def note(self, run: dict[str, object]) -> None:
        """Write what this process did (JSON-able) beside its scores, aside and renamed; a later call replaces it."""
        with self._writing():
            files.replace(self.folder / f"{self._name}.json", notes.text(run))

    def notes(self) -> dict[str, dict[str, object]]:
        """What each process wrote with `note`, by the name of its file, in the order of their starts."""
        found = {}
        for path in self._files(".json"):
            with os.fdopen(files.open_plain(path, os.O_RDONLY), "rb") as file:
                owners.check(path, os.fstat(file.fileno()))
                note = notes.parse(path, file.read(notes.LONGEST + 1))
            if note is not None:
                found[path.name] = note
        return found

    def runs(self) -> list[dict[str, object]]:
        """What each process wrote with `note`, in the order of their starts.

        A process that was killed could not note its last scores: `scored` is at least what its file holds.
        """
        return [self._counted(name, note) for name, note in self.notes().items()]

    def _counted(self, name: str, note: dict[str, object]) -> dict[str, object]:
        part = self._parts.get(f"{name.removesuffix('.json')}{self.form.suffix}")
        scored, missing = note.get("scored"), note.get("missing", 0)
        if part is None or not isinstance(scored, int) or not isinstance(missing, int):
            return note
        return note | {"scored": max(scored, lines.texts(part.values) + missing)}

    def others(self) -> list[dict[str, object]]:
        """Files with scores that belong to another user: owner, ledger (the file's name) and texts."""
        return [
            {"owner": part.owner, "ledger": name, "texts": lines.texts(part.values)}
            for name, part in sorted(self._parts.items())
            if part.owner is not None
        ]

    def adopt(self, found: dict[str, dict[str, object]]) -> None:
        """Keep another ledger's notes here, unless they are here already."""
        for name, note in found.items():
            if not (self.folder / name).exists():
                with self._writing():
                    files.replace(self.folder / name, notes.text(note))

    @contextmanager
    def claim(self, keys: Iterable[str]) -> Iterator[bool]:
        """Whether this process may score these keys: no other living process has claimed just these.

        The claim ends with the block, or with the process, however it ends. Where the system has no such locks, every
        claim is granted: texts may then be scored twice, and the file that sorts first is believed.
        """
        if self._claims is None:
            with self._writing():
                self._claims = files.open_plain(self.folder / "claims", os.O_RDWR | os.O_CREAT)
        position = int.from_bytes(blake2b("\n".join(keys).encode(), digest_size=7).digest())
        with disk.byte_lock(self._claims, position) as mine:
            yield mine

    def _checked(self, keys: Sequence[str], values: Sequence[V] | Floats) -> Sequence[V]:
        if self.form.suffix != lines.SUFFIX:
            return list(values)
        scores = np.asarray(values, dtype=np.float64)
        if scores.shape != (len(keys),) or not np.isfinite(scores).all():
            raise DataError(f"store: expected {len(keys)} finite scores, one per key, got {scores!r:.200}")
        plain: list[V] = scores.tolist()
        return plain

    def _read(self, path: Path) -> bool:
        """Read the new lines of one file; whether there were any."""
        part = self._parts.setdefault(path.name, _Part())
        data = part.new_bytes(path)
        if not data:
            return False
        parsed = lines.parse(path, data, self.fingerprint, from_start=part.offset == 0, form=self.form)
        if (parsed.bad or parsed.torn) and self._repair(path):
            return self._read(path)
        # A living writer may be in the middle of its last line: come back to it.
        part.offset += len(data) - len(parsed.torn)
        for key, value in parsed.good.items():
            part.values.setdefault(key, value)
        return True

    def _repair(self, path: Path) -> bool:
        """Set the bad part of a dead process's file aside; whether the file was rewritten."""
        aside = path.with_suffix(".damaged")
        try:
            with os.fdopen(files.open_plain(path, os.O_RDWR if self.mend else os.O_RDONLY), "rb") as file:
                ended = disk.try_lock(file.fileno()) and os.fstat(file.fileno()).st_ino == path.stat().st_ino
                good, bad, torn, held = lines.parse(
                    path, file.read(), self.fingerprint, from_start=True, form=self.form
                )
                bad = [*bad, torn] if torn and ended else bad
                if not bad or (self.mend and not ended):
                    return False
                if self.mend:
                    disk.append(aside, b"\n".join(bad) + b"\n")
                    rest = b"".join(row + b"\n" for row in held.values())
                    files.replace(path, lines.header(self.fingerprint, self.form) + rest)
        except OSError as error:
            warnings.warn(f"store: {path} is damaged and cannot be mended ({error.strerror})", stacklevel=4)
            return False
        again = "scored" if self.form.suffix == lines.SUFFIX else "asked"
        done = f"set aside in {aside}; what is missing will be {again} again" if self.mend else "left out"
        warnings.warn(
            f"store: {path} was damaged: {len(good)} {self.form.noun} kept, {len(bad)} unreadable lines {done}",
            stacklevel=4,
        )
        return self.mend

    def _files(self, suffix: str) -> list[Path]:
        """Files of one kind, those of the first writer first."""
        files.require_no_link(self.folder)
        return sorted(self.folder.glob(f"*{suffix}"))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the folder; say what is kept and what to do where the disk refuses."""
        files.require_no_link(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            message = (
                f"store: cannot write ({error.strerror}); the {len(self.values)} {self.form.noun} stored before are "
                "kept; free the disk or choose another store=, and run the same again to go on from there"
            )
            raise OSError(error.errno, message, str(self.folder)) from error


class _Part(Generic[V]):
    """What was read of one file so far."""

    def __init__(self) -> None:
        self.inode = -1
        self.offset = 0
        self.owner: str | None = None
        self.values: dict[str, V] = {}

    def new_bytes(self, path: Path) -> bytes:
        """Bytes behind the last whole line read; all of them where the file was replaced meanwhile."""
        with os.fdopen(files.open_plain(path, os.O_RDONLY), "rb") as file:
            state = os.fstat(file.fileno())
            self.owner = owners.check(path, state)
            if state.st_ino != self.inode or state.st_size < self.offset:
                self.inode, self.offset, self.values = state.st_ino, 0, {}
            file.seek(self.offset)
            return file.read()


def _writer() -> str:
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())[:40]
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{host}-{os.getpid()}-{secrets.token_hex(3)}"
