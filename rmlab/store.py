"""The store: scores, and answers of judges, that survive a crash, in a folder or on
object storage.

A store has one folder per fingerprint, and each process writes files of its own there.
A file holds JSON lines: a header that tells the run, then one record per text, each
line with a checksum.

    {"crc":"5d1f0c3a","key":"9b2ef0","value":1.25}

Not sqlite: on network file systems, where the processes of a cluster meet, its locks
cannot be relied on, and a damaged page can cost the whole file. Here nobody waits for
anybody, and a damaged line costs that line.
"""

import json
import os
import re
import secrets
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmlab.records import expand_path, is_shallow, write_file, write_remedy
from rmlab.tables import DataError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

VERSION = 2
SUFFIX = ".records"
SUFFIXES_OF_VERSION_1 = (".scores", ".answers")
# Work that is lost with a process on object storage; a day of work then makes some
# thousand objects.
FLUSH_SECONDS = 20.0
# Objects that are fetched together: merged ones have some 10 MB each.
FILES_AT_ONCE = 16

_FINGERPRINT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")

# Provenance of the process that wrote a file, and `scored`, the number of its records.
Run = dict[str, object]


class Record(NamedTuple):
    """A whole line of a file, and the process that wrote it."""

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

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Store(folder).append("model-v1", {"text-1": 0.5, "text-2": -1.0})
    ...     Store(folder).read("model-v1", ["text-1", "text-3"])
    {'text-1': 0.5}
    """

    def __init__(self, address: str | Path) -> None:
        if not str(address).strip() or "\0" in str(address):
            raise DataError(
                f"store: {address!r} names no folder. Give one, for example 'scores/', or leave it out."
            )
        from fsspec.implementations.local import LocalFileSystem

        if isinstance(address, str) and "://" in address:
            self.fs, self.root = _open_url(address)
            self.address = address.rstrip("/")
        else:
            self.fs, self.root = LocalFileSystem(), str(expand_path(address).absolute())
            self.address = self.root
        self._title = str(address)
        self.is_local = isinstance(self.fs, LocalFileSystem)
        if self.is_local and os.path.isfile(self.root):
            raise DataError(
                f"store: {address} is a file. Give a folder, for example 'scores/'."
            )
        # Files sort by the start of their writers.
        self.writer = (
            f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(8)}"
        )
        self._parts: Counter[str] = Counter()
        self._runs: dict[str, dict[str, Run]] = {}
        self._notes: dict[str, Run] = {}
        self._waiting: dict[str, list[bytes]] = {}
        self._written_at = time.monotonic()

    def __str__(self) -> str:
        return self._title

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        # Each process that gets a copy writes files of its own.
        return Store, (self.address,)

    def read(
        self, fingerprint: str, keys: Iterable[str] | None = None
    ) -> dict[str, object]:
        """Values of these keys, or of all, as far as the store has them.

        Damaged lines, and half a line at the end of a file, are skipped and counted in
        a warning.
        """
        key_set = None if keys is None else frozenset(keys)
        values: dict[str, object] = {}
        for record in self.records(fingerprint):
            if key_set is None or record.key in key_set:
                values.setdefault(record.key, record.value)
        return values

    def records(self, fingerprint: str) -> Iterator[Record]:
        """All records of a fingerprint; the first record of a key counts."""
        runs: dict[str, Run] = {}
        n_records: Counter[str] = Counter()
        for name, lines in self._open_files(fingerprint):
            writer, n_damaged = name.partition(".")[0], 0
            runs.setdefault(writer, {})
            for line in lines:
                content = decode_line(line, fingerprint)
                if content is None:
                    n_damaged += 1
                elif "rmlab_store" in content:
                    if content["rmlab_store"] != VERSION:
                        raise self._layout_error(
                            f"{fingerprint}/{name}", content["rmlab_store"]
                        )
                    runs[writer] = dict(content.get("run", {}))  # type: ignore[call-overload]
                else:
                    n_records[writer] += 1
                    yield Record(writer, str(content["key"]), content["value"])
            if n_damaged:
                warnings.warn(
                    f"store: {self}/{fingerprint}/{name} is damaged: {n_damaged} unreadable lines skipped, "
                    f"{n_records[writer]} records of this writer kept. Texts without a record are scored again.",
                    stacklevel=4,
                )
        self._runs[fingerprint] = {
            writer: run | {"scored": n_records[writer]} for writer, run in runs.items()
        }

    def runs(self, fingerprint: str) -> dict[str, Run]:
        """Provenance of each process that wrote, as of the last reading; `scored`
        counts its records.
        """
        return self._runs.get(fingerprint, {})

    def note(self, fingerprint: str, run: Mapping[str, object]) -> None:
        """Say what this process is: the header of each file that it begins from now on."""
        self._notes[fingerprint] = dict(run)

    def append(self, fingerprint: str, records: Mapping[str, object]) -> None:
        """Keep values by key: finite numbers, lists of these, or whatever else JSON
        holds.

        Raises DataError for a number that is not finite, and OSError where the disk is
        full; the records then wait for the next call.
        """
        try:
            lines = [
                encode_line({"key": key, "value": value}, fingerprint)
                for key, value in records.items()
            ]
        except ValueError as error:
            raise DataError(
                f"store: values must be finite numbers or texts, got {str(records)[:200]}"
            ) from error
        self._waiting.setdefault(fingerprint, []).extend(lines)
        if self.is_local or time.monotonic() - self._written_at > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the records that still wait."""
        for fingerprint, lines in self._waiting.items():
            if lines:
                name = f"{self.writer}.{self._parts[fingerprint]:06d}{SUFFIX}"
                self._write(fingerprint, name, lines, self._notes.get(fingerprint, {}))
                lines.clear()

    def withdraw(self, fingerprint: str, keys: Collection[str]) -> None:
        """Take back what this process has appended under these keys."""
        self.flush()
        for name in self._list_records(fingerprint):
            if not name.startswith(self.writer):
                continue
            path = f"{self.root}/{fingerprint}/{name}"
            lines = self.fs.cat_file(path).splitlines(keepends=True)
            contents = [decode_line(line, fingerprint) or {} for line in lines]
            kept = [
                line
                for line, content in zip(lines, contents, strict=True)
                if content.get("key") not in keys
            ]
            self._replace(path, b"".join(kept))

    def adopt(
        self, fingerprint: str, writer: str, records: Mapping[str, object], run: Run
    ) -> None:
        """Write records of another store as one file, which names their first writer."""
        lines = [
            encode_line({"key": key, "value": value}, fingerprint)
            for key, value in records.items()
        ]
        self._write(
            fingerprint, f"{writer}.merged-{secrets.token_hex(4)}{SUFFIX}", lines, run
        )

    def fingerprints(self) -> list[str]:
        """Fingerprints with records, sorted."""
        entries = self.list_files("")
        folders = [
            name
            for name in entries
            if entries[name]["type"] != "file" or entries[name].get("islink")
        ]
        return [
            name
            for name in folders
            if _FINGERPRINT.fullmatch(name) and self._list_records(name)
        ]

    def tables(self) -> list[str]:
        """Names of the finished tables, and of the provenance beside them."""
        return [
            name
            for name in self.list_files("")
            if re.search(r"\.csv(\.provenance\.json)?$", name)
        ]

    def read_table(self, name: str) -> bytes:
        """The bytes of a finished table; DataError for a link, a pipe or a folder in
        its place.
        """
        files = self.list_files("")
        if name not in files:  # another process writes it anew
            raise FileNotFoundError(f"{self.root}/{name}")
        self._require_file(name, files[name])
        content: bytes = self.fs.cat_file(f"{self.root}/{name}")
        return content

    def write_table(self, name: str, content: bytes) -> None:
        """Put a finished table, or the provenance beside it, whole."""
        self._replace(f"{self.root}/{name}", content)

    def _replace(self, path: str, content: bytes) -> None:
        if self.is_local:
            write_file(Path(path), content)
        else:
            self.fs.pipe_file(path, content)

    def _write(self, fingerprint: str, name: str, lines: list[bytes], run: Run) -> None:
        """Append lines to a file, or put a new object; a new file begins with a header."""
        path = f"{self._folder(fingerprint)}/{name}"
        if not (self.is_local and os.path.exists(path)):
            lines = [
                encode_line({"rmlab_store": VERSION, "run": run}, fingerprint),
                *lines,
            ]
        try:
            if self.is_local:
                self.fs.makedirs(os.path.dirname(path), exist_ok=True)
                with self.fs.open(path, "ab") as file:
                    file.write(b"".join(lines))
            else:
                self.fs.pipe_file(path, b"".join(lines))
                self._parts[fingerprint] += 1
                self._written_at = time.monotonic()
        except OSError as error:
            # The file may end with half a line: the next one is written to another
            # file.
            self._parts[fingerprint] += 1
            message = (
                f"store: cannot write ({error.strerror or error}). Scores stored before are kept; "
                f"{write_remedy(error)}, and run the same again to go on from there"
            )
            raise OSError(error.errno, message, str(self)) from error

    def _folder(self, fingerprint: str) -> str:
        if not _FINGERPRINT.fullmatch(fingerprint):
            allowed = "up to 128 letters, digits, '.', '_', '-'"
            raise DataError(
                f"fingerprint: {fingerprint!r} cannot name a folder. Allowed: {allowed}."
            )
        folder = f"{self.root}/{fingerprint}"
        if self.is_local and os.path.islink(folder):
            raise DataError(
                f"store: {folder} is a link, and nothing inside a store may lead elsewhere. Delete it."
            )
        return folder

    def list_files(self, folder: str) -> dict[str, Mapping[str, object]]:
        """Files and folders by name, sorted, as they are now."""
        self.fs.invalidate_cache()
        try:
            entries = self.fs.ls(f"{self.root}/{folder}".rstrip("/"), detail=True)
        except FileNotFoundError:
            return {}
        names = {
            entry["name"].rstrip("/").rpartition("/")[2]: entry for entry in entries
        }
        return {name: names[name] for name in sorted(names)}

    def _list_records(self, fingerprint: str) -> list[str]:
        self._folder(fingerprint)
        files = self.list_files(fingerprint)
        if old := [name for name in files if name.endswith(SUFFIXES_OF_VERSION_1)]:
            raise self._layout_error(f"{fingerprint}/{old[0]}", 1)
        names = [name for name in files if name.endswith(SUFFIX)]
        for name in names:
            self._require_file(f"{fingerprint}/{name}", files[name])
        return names

    def _layout_error(self, name: str, layout: object) -> DataError:
        remedy = "Give store= a new folder, or use the rmlab that wrote this one"
        return DataError(
            f"store: {self}/{name} has layout {layout}, and this rmlab reads layout {VERSION}. {remedy}."
        )

    def _require_file(self, name: str, entry: Mapping[str, object]) -> None:
        if entry["type"] != "file" or entry.get("islink"):
            kind = "link" if entry.get("islink") else "pipe, a device or a folder"
            raise DataError(
                f"store: {self}/{name} is a {kind}. A store holds plain files only; delete it."
            )

    def _open_files(self, fingerprint: str) -> Iterator[tuple[str, Iterable[bytes]]]:
        names = self._list_records(fingerprint)
        paths = [f"{self.root}/{fingerprint}/{name}" for name in names]
        if self.is_local:
            for name, path in zip(names, paths, strict=True):
                with self.fs.open(path, "rb") as file:
                    yield name, file
            return
        for start in range(0, len(paths), FILES_AT_ONCE):
            contents = self.fs.cat(paths[start : start + FILES_AT_ONCE])
            for path, content in contents.items():
                yield path.rpartition("/")[2], content.splitlines(keepends=True)


def _open_url(url: str) -> tuple["AbstractFileSystem", str]:
    from fsspec.core import url_to_fs

    if "::" in url:
        raise DataError(
            f"store: {url!r} goes through a cache, which would hide the files of others. Leave it out."
        )
    try:
        fs, path = url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise DataError(
            f"store: {url!r} cannot be used ({error}). Give a folder, or s3://bucket/folder."
        ) from error
    root = str(path).rstrip("/")
    if not root or any(sign in root for sign in "*?["):
        raise DataError(
            f"store: {url!r} names no single folder. Give one, for example s3://bucket/scores."
        )
    return fs, root


def encode_line(content: Mapping[str, object], fingerprint: str) -> bytes:
    """A line. The checksum begins from the fingerprint's, so that a line in the wrong
    folder is refused.
    """
    body = json.dumps(content, separators=(",", ":"), allow_nan=False)[1:].encode()
    return (
        b'{"crc":"%08x",' % zlib.crc32(body, zlib.crc32(fingerprint.encode()))
        + body
        + b"\n"
    )


def decode_line(line: bytes, fingerprint: str) -> dict[str, object] | None:
    """The content of a line, a header or a record; None for a damaged one."""
    checksum = zlib.crc32(line[18:-1], zlib.crc32(fingerprint.encode()))
    if line[:18] != b'{"crc":"%08x",' % checksum or line[-1:] != b"\n":
        return None
    try:
        content: dict[str, object] = json.loads(line)
    except (RecursionError, ValueError):
        return None
    run = content.get("run", {})
    is_header = "rmlab_store" in content and isinstance(run, dict) and is_shallow(run)
    is_record = isinstance(content.get("key"), str) and "value" in content
    return content if is_header or is_record else None
