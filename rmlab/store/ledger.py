"""The scores of one fingerprint: read from every writer's file, appended to a file of one's own."""

import json
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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmlab.store import disk, lines
from rmlab.tables import DataError

__all__ = ["Ledger"]


class Ledger:
    """The stored scores of one fingerprint, and this process's pen. A context manager: leaving closes the files.

    Where a key was written twice, the file that sorts first (the writer that started first) is believed, so every
    reader sees the same score. `scores` maps each key to its score, as of the last `refresh` or `append`.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.scores: dict[str, float] = {}
        self._parts: dict[str, _Part] = {}
        self._name = _writer()
        self._file: int | None = None
        self._claims: int | None = None

    def __enter__(self) -> "Ledger":
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

    def refresh(self) -> dict[str, float]:
        """Read what was appended since the last call, by anybody; key -> score.

        A damaged line in the file of a process that no longer runs is moved to a file with the ending `.damaged` and
        warned about; the rest stays. Raises DataError for a file of another format version or fingerprint.
        """
        paths = sorted(self.folder.glob(f"*{lines.SUFFIX}"))
        if [path for path in paths if self._read(path)]:
            self.scores = {}
            for path in reversed(paths):
                self.scores.update(self._parts[path.name].scores)
        return self.scores

    def append(self, keys: Sequence[str], scores: ArrayLike) -> None:
        """Append finite scores and wait until they are on the disk.

        Raises OSError where the disk is full or cannot be written; everything appended before is kept.
        """
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != (len(keys),) or not np.isfinite(values).all():
            raise DataError(f"store: expected {len(keys)} finite scores, one per key, got {values!r:.200}")
        new = dict(zip(keys, values.tolist(), strict=True))
        data = b"".join(lines.line(self.fingerprint, key, value) for key, value in new.items())
        with self._writing():
            if self._file is None:
                path = self.folder / f"{self._name}{lines.SUFFIX}"
                self._file = disk.create(path, lines.header(self.fingerprint))
            disk.write(self._file, data)
        for key, value in new.items():
            self.scores.setdefault(key, value)

    def note(self, run: dict[str, Any]) -> None:
        """Write what this process did (JSON-able) beside its scores, aside and renamed; a later call replaces it."""
        text = json.dumps(run, indent=1, sort_keys=True, ensure_ascii=False)
        with self._writing():
            disk.replace(self.folder / f"{self._name}.json", text.encode())

    def runs(self) -> list[dict[str, Any]]:
        """What each process wrote with `note`, in the order of their starts."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(json.loads(path.read_bytes()))
            except ValueError:
                warnings.warn(f"store: {path} is not JSON; its provenance is left out", stacklevel=2)
        return found

    def adopt(self, other: "Ledger") -> None:
        """Copy another ledger's notes here, unless they are here already."""
        for path in sorted(other.folder.glob("*.json")):
            if not (self.folder / path.name).exists():
                with self._writing():
                    disk.replace(self.folder / path.name, path.read_bytes())

    @contextmanager
    def claim(self, keys: Iterable[str]) -> Iterator[bool]:
        """Whether this process may score these keys: no other living process has claimed just these.

        The claim ends with the block, or with the process, however it ends. Where the system has no such locks, every
        claim is granted: texts may then be scored twice, and the file that sorts first is believed.
        """
        if self._claims is None:
            with self._writing():
                self._claims = os.open(self.folder / "claims", os.O_RDWR | os.O_CREAT, 0o666)
        position = int.from_bytes(blake2b("\n".join(keys).encode(), digest_size=7).digest())
        with disk.byte_lock(self._claims, position) as mine:
            yield mine

    def _read(self, path: Path) -> bool:
        """Read the new lines of one file; whether there were any."""
        part = self._parts.setdefault(path.name, _Part())
        data = part.new_bytes(path)
        if not data:
            return False
        parsed = lines.parse(path, data, self.fingerprint, from_start=part.offset == 0)
        if (parsed.bad or parsed.torn) and self._repair(path):
            return self._read(path)
        # A living writer may be in the middle of its last line: come back to it.
        part.offset += len(data) - len(parsed.torn)
        for key, value in parsed.good.items():
            part.scores.setdefault(key, value)
        return True

    def _repair(self, path: Path) -> bool:
        """Set the bad part of a dead process's file aside; whether the file was rewritten."""
        aside = path.with_suffix(".damaged")
        try:
            file = os.open(path, os.O_RDWR)
            try:
                if not disk.try_lock(file) or os.fstat(file).st_ino != path.stat().st_ino:
                    return False
                good, bad, torn = lines.parse(path, path.read_bytes(), self.fingerprint, from_start=True)
                bad = [*bad, torn] if torn else bad
                disk.append(aside, b"\n".join(bad) + b"\n")
                rest = b"".join(lines.line(self.fingerprint, key, value) for key, value in good.items())
                disk.replace(path, lines.header(self.fingerprint) + rest)
            finally:
                os.close(file)
        except OSError as error:
            warnings.warn(f"store: {path} is damaged and cannot be mended ({error.strerror})", stacklevel=4)
            return False
        warnings.warn(
            f"store: {path} was damaged: {len(good)} scores kept, {len(bad)} unreadable lines set aside in {aside}; "
            "what is missing will be scored again",
            stacklevel=4,
        )
        return True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the folder; say what is kept and what to do where the disk refuses."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            message = (
                f"store: cannot write ({error.strerror}); the {len(self.scores)} scores stored before are kept; "
                "free the disk or choose another store=, and run the same again to go on from there"
            )
            raise OSError(error.errno, message, str(self.folder)) from error


class _Part:
    """What was read of one file so far."""

    def __init__(self) -> None:
        self.inode = -1
        self.offset = 0
        self.scores: dict[str, float] = {}

    def new_bytes(self, path: Path) -> bytes:
        """Bytes behind the last whole line read; all of them where the file was replaced meanwhile."""
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_ino != self.inode or state.st_size < self.offset:
                self.inode, self.offset, self.scores = state.st_ino, 0, {}
            file.seek(self.offset)
            return file.read()


def _writer() -> str:
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())[:40]
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{host}-{os.getpid()}-{secrets.token_hex(3)}"
