"""The store: scores, and answers of judges, that survive a crash, in a folder or on
object storage.

A store has one folder per fingerprint, and each process writes files of its own there.
A file holds JSON lines: a header with the provenance of the run, then one record per
text, each line with a checksum.

    {"crc":"5d1f0c3a","key":"9b2ef0","value":1.25}

Not sqlite: on network file systems, where the processes of a cluster meet, its locks
cannot be relied on, and a damaged page can cost the whole file. Here no process
waits for another, and a damaged line costs that line.
"""

import json
import os
import re
import secrets
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmlab.records import expand_path, write_error, write_file
from rmlab.tables import DataError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

VERSION = 2
SUFFIX = ".records"
# Work that is lost with a process on object storage; a day of work then makes some
# thousand objects.
FLUSH_SECONDS = 20.0
# Objects that are fetched together: merged ones have some 10 MB each.
FILES_AT_ONCE = 16

# How a line begins.
_CHECKSUM = b'{"crc":"%08x",'
_CHECKSUM_BYTES = 18

# Finished tables, and the provenance beside them.
_TABLE = re.compile(r"\.csv(\.provenance\.json)?$")
_FINGERPRINT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
# File systems of fsspec that hold one file, or that nobody can write to.
_NO_STORES = {"data", "github", "git", "http", "https", "reference", "tar", "zip"}

# Provenance of the process that wrote a file, and `scored`, the number of its records.
WriterRun = dict[str, object]

# Lines by fingerprint, of addresses that could not be written to: the next store of the
# same address in this process writes them.
_UNWRITTEN: dict[str, dict[str, list[bytes]]] = {}


class Record(NamedTuple):
    """A stored value, and the process that wrote it."""

    writer: str
    key: str
    value: object


class Store:
    """Scores, or answers of a judge, by fingerprint and key.

    Any number of processes may share a store, since none writes to the files of
    another. Where two of them stored the same key, all readers take the record in the
    file whose name sorts first.

    Parameters
    ----------
    address : str or Path
        A folder, or a URL that fsspec knows, such as "s3://bucket/scores". In a folder
        each `append` is written at once; on object storage the records of some 20
        seconds make one object.

    Attributes
    ----------
    address : str
        Makes the same store in another process.
    root : str
        Where it is, without the scheme of a URL.
    writer : str
        The start of the names of this process's files.
    is_local : bool
        Whether lines can be appended to a file; object storage takes whole objects.

    Raises
    ------
    DataError
        For an address that cannot be a store, and by every method where object storage
        cannot be reached: records that are not written yet then wait in this process
        for the next `Store` of the same address.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Store(folder).append("model-v1", {"text-1": 0.5, "text-2": -1.0})
    ...     Store(folder).read("model-v1", ["text-1", "text-3"])
    {'text-1': 0.5}
    """

    def __init__(self, address: str | Path) -> None:
        from fsspec.implementations.local import LocalFileSystem

        # Scripts with Windows' line ends pass it on.
        place = str(address).rstrip("\r")
        if isinstance(address, str) and "://" in address:
            self.fs, self.root = _open_url(place)
            self.address = place
        else:
            self.fs = LocalFileSystem()
            self.root = str(expand_path(place).absolute())
            self.address = self.root
        self.is_local = isinstance(self.fs, LocalFileSystem)
        is_file = self.is_local and os.path.isfile(self.root)
        if is_file or not place.strip():
            problem = f"store: {str(address)!r} is not a folder"
            raise DataError(problem, "pass one, for example 'scores/'")

        # Files sort by the start of their writers.
        start = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self.writer = f"{start}-{secrets.token_hex(8)}"
        self._n_files: Counter[str] = Counter()
        self._runs: dict[str, dict[str, WriterRun]] = {}
        self._notes: dict[str, WriterRun] = {}
        self._waiting = _UNWRITTEN.get(self.address, {})
        self._written_at = time.monotonic()

    def __str__(self) -> str:
        return self.address

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        # Each process that gets a copy writes files of its own.
        return type(self), (self.address,)

    def read(
        self, fingerprint: str, keys: Iterable[str] | None = None
    ) -> dict[str, object]:
        """Values of these keys, or of all, as far as the store has them."""
        values: dict[str, object] = {}
        for record in self.records(fingerprint):
            values.setdefault(record.key, record.value)
        if keys is None:
            return values
        return {key: values[key] for key in keys if key in values}

    def records(self, fingerprint: str) -> Iterator[Record]:
        """All records of a fingerprint; the first record of a key counts.

        Damaged ones are skipped and counted in a warning.
        """
        self.flush()
        runs: dict[str, WriterRun] = {}
        n_records: Counter[str] = Counter()
        for name, lines in self._read_files(fingerprint):
            writer = name.partition(".")[0]
            runs.setdefault(writer, {})
            n_damaged = 0
            for line in lines:
                content = decode_line(line, fingerprint)
                if content is None:
                    n_damaged += 1
                elif "rmlab_store" in content:
                    runs[writer] = dict(content["run"])  # type: ignore[call-overload]
                else:
                    n_records[writer] += 1
                    yield Record(writer, str(content["key"]), content["value"])
            if n_damaged:
                path = f"{self}/{fingerprint}/{name}"
                _warn_of_damage(path, n_damaged, n_records[writer])

        self._runs[fingerprint] = {}
        for writer, run in runs.items():
            self._runs[fingerprint][writer] = run | {"scored": n_records[writer]}

    def runs(self, fingerprint: str) -> dict[str, WriterRun]:
        """Provenance of each process that wrote, as of the last reading; `scored`
        counts its records.
        """
        return self._runs.get(fingerprint, {})

    def note(self, fingerprint: str, run: Mapping[str, object]) -> None:
        """Note the provenance of this process, for whoever reads its records."""
        self._notes[fingerprint] = dict(run)

    def append(self, fingerprint: str, records: Mapping[str, object]) -> None:
        """Store values by key: finite numbers, lists of these, or whatever else JSON
        holds.

        Raises DataError for a number that is not finite, and OSError where the disk is
        full; the records then wait for the next call.
        """
        lines = _encode_records(records, fingerprint)
        self._waiting.setdefault(fingerprint, []).extend(lines)
        if self.is_local or time.monotonic() - self._written_at > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the records that still wait."""
        for fingerprint, lines in self._waiting.items():
            if lines:
                name = f"{self.writer}.{self._n_files[fingerprint]:06d}{SUFFIX}"
                run = self._notes.get(fingerprint, {})
                self._write(fingerprint, name, lines, run)
                lines.clear()

    def adopt(
        self,
        fingerprint: str,
        writer: str,
        records: Mapping[str, object],
        run: WriterRun,
    ) -> None:
        """Store records of a writer of another store, with their writer and its run."""
        name = f"{writer}.merged-{secrets.token_hex(4)}{SUFFIX}"
        lines = _encode_records(records, fingerprint)
        self._write(fingerprint, name, lines, run)

    def fingerprints(self) -> list[str]:
        """Fingerprints with records, sorted."""
        return [name for name in self.list_files("") if self._list_records(name)]

    def tables(self) -> list[str]:
        """Names of the finished tables, and of the provenance beside them."""
        return [name for name in self.list_files("") if _TABLE.search(name)]

    def read_table(self, name: str) -> bytes:
        """The bytes of a finished table; FileNotFoundError where it is not there."""
        with self._explain_errors():
            content: bytes = self.fs.cat_file(f"{self.root}/{name}")
        return content

    def write_table(self, name: str, content: bytes) -> None:
        """Write a finished table, or the provenance beside it, as a whole."""
        path = f"{self.root}/{name}"
        if self.is_local:
            write_file(Path(path), content)
        else:
            with self._explain_errors():
                self.fs.pipe_file(path, content)

    def list_files(self, folder: str) -> list[str]:
        """Names of files and folders, sorted, as they are now."""
        self.fs.invalidate_cache()
        path = f"{self.root}/{folder}".rstrip("/")
        paths: list[str] = []
        with self._explain_errors(), suppress(FileNotFoundError, NotADirectoryError):
            paths = self.fs.ls(path, detail=False)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Errors of object storage, whose clients have classes of their own, as
        DataError.
        """
        try:
            yield
        except Exception as error:
            if self.is_local or isinstance(error, FileNotFoundError):
                raise
            cause = f"{type(error).__name__}: {error}"
            problem = f"store: {self} cannot be reached ({cause})"
            remedy = "run the same again once it answers; this process keeps what waits"
            raise DataError(problem, remedy) from error

    def _write(
        self, fingerprint: str, name: str, lines: list[bytes], run: WriterRun
    ) -> None:
        """Append lines to a file, or put a new object; new ones begin with a header."""
        if not _FINGERPRINT.fullmatch(fingerprint):
            problem = f"fingerprint: {fingerprint!r} cannot name a folder"
            allowed = "allowed: up to 128 letters, digits, '.', '_', '-'"
            raise DataError(problem, allowed)
        path = f"{self.root}/{fingerprint}/{name}"
        content = b"".join(lines)
        if not (self.is_local and os.path.exists(path)):
            header = {"rmlab_store": VERSION, "run": run}
            content = encode_line(header, fingerprint) + content
        if not self.is_local:
            _UNWRITTEN[self.address] = self._waiting
            with self._explain_errors():
                self.fs.pipe_file(path, content)
            del _UNWRITTEN[self.address]
            self._n_files[fingerprint] += 1
            self._written_at = time.monotonic()
            return
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "ab") as file:
                file.write(content)
        except OSError as error:
            # The file may end with half a line: the next one is written to another
            # file.
            self._n_files[fingerprint] += 1
            raise write_error(error, Path(path)) from error

    def _read_files(self, fingerprint: str) -> Iterator[tuple[str, list[bytes]]]:
        """Names of the files with records, and their lines."""
        names = self._list_records(fingerprint)
        paths = [f"{self.root}/{fingerprint}/{name}" for name in names]
        for start in range(0, len(paths), FILES_AT_ONCE):
            part = slice(start, start + FILES_AT_ONCE)
            with self._explain_errors():
                # Object storage fetches them together.
                contents = self.fs.cat_ranges(paths[part], None, None, on_error="raise")
            for name, content in zip(names[part], contents, strict=True):
                yield name, content.splitlines(keepends=True)

    def _list_records(self, fingerprint: str) -> list[str]:
        """Names of the files with records."""
        names = self.list_files(fingerprint)
        return [name for name in names if name.endswith(SUFFIX)]


def _open_url(url: str) -> tuple["AbstractFileSystem", str]:
    """The file system of a URL, and the path in it."""
    from fsspec.core import url_to_fs

    remedy = "pass a folder, or s3://bucket/folder"
    if "::" in url or url.partition("://")[0] in _NO_STORES:
        raise DataError(f"store: {url!r} cannot be a store", remedy)
    try:
        fs, path = url_to_fs(url)
    # Clients ask for credentials, and raise errors of their own.
    except Exception as error:
        raise DataError(f"store: {url!r} cannot be used ({error})", remedy) from error
    root = str(path).rstrip("/")
    if not root or set("*?[") & set(root):
        raise DataError(f"store: {url!r} names no single folder", remedy)
    return fs, root


def _warn_of_damage(path: str, n_damaged: int, n_records: int) -> None:
    counts = f"{n_damaged} unreadable lines skipped, {n_records} records read"
    remedy = "texts without a record are scored again"
    warnings.warn(f"store: {path} is damaged: {counts}; {remedy}", stacklevel=5)


def _encode_records(records: Mapping[str, object], fingerprint: str) -> list[bytes]:
    """A line for each value; DataError for one that JSON does not hold."""
    lines = []
    for key, value in records.items():
        try:
            lines.append(encode_line({"key": key, "value": value}, fingerprint))
        except ValueError as error:
            problem = f"store: {str(value)[:200]} is not a finite number or a text"
            raise DataError(problem) from error
    return lines


def encode_line(content: Mapping[str, object], fingerprint: str) -> bytes:
    """A line. The checksum begins from the fingerprint's, so that a line in the wrong
    folder is refused.
    """
    # Without the opening brace, which the checksum's field follows.
    body = json.dumps(content, separators=(",", ":"), allow_nan=False)[1:].encode()
    checksum = zlib.crc32(body, zlib.crc32(fingerprint.encode()))
    return _CHECKSUM % checksum + body + b"\n"


def decode_line(line: bytes, fingerprint: str) -> dict[str, object] | None:
    """The content of a line, a header or a record; None for a damaged one.

    A copy of the file may have Windows' line ends.
    """
    body = line.rstrip(b"\r\n")[_CHECKSUM_BYTES:]
    checksum = zlib.crc32(body, zlib.crc32(fingerprint.encode()))
    if not (line.endswith(b"\n") and line.startswith(_CHECKSUM % checksum)):
        return None
    content: dict[str, object] = json.loads(line)
    return content
