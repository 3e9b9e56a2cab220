"""Files that are written whole or not at all, and files from strangers that are opened without being led astray."""

import errno
import glob
import os
import secrets
import stat
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from rmlab.tables import DataError

__all__ = [
    "matches",
    "open_plain",
    "read_plain",
    "replace",
    "require_inside",
    "require_no_link",
    "require_plain",
    "sync_folder",
    "write",
]

# Absent on Windows, where a link needs rights of its own.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
# What some network drives say of a folder.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def write(path: Path, content: str | bytes) -> Path:
    """Write a whole file; folders are made as needed. Where that fails, the old file is as it was.

    A link at `path` is replaced, never written through. Raises DataError where something else than a file
    stands there, OSError where the disk refuses.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, data)
    except OSError as error:
        reason = f"cannot write ({error.strerror}); what was there before is as it was; free the disk or choose"
        raise OSError(error.errno, f"{reason} another place", str(path)) from error
    return path


def replace(path: Path, data: bytes) -> None:
    """Write aside in the same folder, wait for the disk, then rename: `path` holds the old bytes or the new ones."""
    before = _there(path)
    if before is not None and not (stat.S_ISREG(before.st_mode) or stat.S_ISLNK(before.st_mode)):
        raise DataError(f"{path}: is {_kind(before.st_mode)}, which cannot be replaced by a file; choose another name")
    aside = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        _write_new(aside, data, before)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_folder(path.parent)


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file by itself: DataError for a link, a pipe, a device or a folder in its place."""
    require_plain(path)
    # Between the look and the opening it may have been exchanged: the flags refuse a link and do not wait on a pipe.
    file = os.open(path, flags | _NO_LINK | _NO_WAIT, 0o666)
    try:
        _require_plain(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def read_plain(path: Path, most: int | None = None) -> bytes:
    """Bytes of a plain file, at most `most` where given; DataError for a link, a pipe, a device or a folder."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        return file.read() if most is None else file.read(most)


def require_plain(path: Path) -> None:
    """Raise DataError where something stands at `path` that is not a plain file: a link, a pipe, a device, a folder."""
    there = _there(path)
    if there is not None:
        _require_plain(path, there)


def require_no_link(folder: Path) -> None:
    """Raise DataError where the folder is a link; a path that leads to it through one is fine."""
    if folder.is_symlink():
        raise DataError(f"{folder}: is a link, and nothing inside a store may lead elsewhere; delete it")


def require_inside(path: Path, folder: Path) -> Path:
    """Return a path that was found in `folder`; raise DataError where it is a link that leads out of it."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{path}: is a link that leads out of {folder}; delete it, or name the file that it leads to")
    return path


def matches(pattern: str) -> list[Path]:
    """Plain files that a glob finds, sorted; DataError for a link that leads out of where the pattern begins."""
    fixed = takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts)
    start = Path(*fixed)
    found = sorted(Path(name) for name in glob.glob(pattern, recursive=True))
    return [require_inside(path, start) for path in found if path.is_file()]


def sync_folder(folder: Path) -> None:
    """Wait until the disk knows the names in a folder."""
    if os.name == "nt":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(file)


def _write_new(path: Path, data: bytes, like: os.stat_result | None) -> None:
    """Create a file that must not exist, with the rights of the file that it replaces."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666)
    try:
        if like is not None and stat.S_ISREG(like.st_mode) and hasattr(os, "fchmod"):
            os.fchmod(file, stat.S_IMODE(like.st_mode))
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def _there(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _require_plain(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise DataError(f"{path}: is {_kind(state.st_mode)}; a store holds plain files only: delete it")


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    return "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"
