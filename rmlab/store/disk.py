"""Bytes that reach the disk, whole files or none, and locks that end with their process."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["append", "byte_lock", "create", "replace", "try_lock", "write"]


def write(file: int, data: bytes) -> None:
    """Append all the data to an open file and wait for the disk; where that fails, the file is as it was."""
    end = os.lseek(file, 0, os.SEEK_END)
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    except BaseException:
        # Without this, the next line would be glued to half a line.
        with suppress(OSError):
            os.ftruncate(file, end)
        raise


def create(path: Path, data: bytes) -> int:
    """Create a file that must not exist, lock it for as long as it is open, and begin it with the data."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
    try:
        try_lock(file)
        write(file, data)
        _sync_folder(path.parent)
    except BaseException:
        os.close(file)
        with suppress(OSError):
            path.unlink()
        raise
    return file


def append(path: Path, data: bytes) -> None:
    """Append to a file, made where it is not there."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        write(file, data)
    finally:
        os.close(file)


def replace(path: Path, data: bytes) -> None:
    """Write aside, then rename: the path holds the old bytes or the new ones, never half."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(3)}.tmp")
    try:
        append(aside, data)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    _sync_folder(path.parent)


def try_lock(file: int) -> bool:
    """Lock an open file unless somebody else holds it; the lock ends when the file is closed. True without locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def byte_lock(file: int, position: int) -> Iterator[bool]:
    """Whether no other process holds this byte of a file; held until the block ends. True without locks."""
    try:
        import fcntl
    except ImportError:
        yield True
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, position)
    except (BlockingIOError, PermissionError):
        yield False
        return
    except OSError:
        yield True
        return
    try:
        yield True
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, position)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
