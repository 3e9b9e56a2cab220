"""Whose a file of a store is: scores are believed, so a file that anybody may have planted is not read."""

import os
import stat
from pathlib import Path

from rmlab.tables import DataError

__all__ = ["check", "foreign"]

_ROOT = 0


def foreign(state: os.stat_result) -> str | None:
    """Name of a file's owner, None where that is this user or root, or where the system has no owners."""
    if not hasattr(os, "geteuid") or state.st_uid in (os.geteuid(), _ROOT):
        return None
    import pwd

    try:
        return pwd.getpwuid(state.st_uid).pw_name
    except KeyError:
        return str(state.st_uid)


def check(path: Path, state: os.stat_result) -> str | None:
    """Owner as of `foreign`; raises DataError where the file is somebody else's and anybody could have put it there."""
    owner = foreign(state)
    if owner is None:
        return None
    for folder in (path.parent, path.parent.parent):
        if os.stat(folder).st_mode & stat.S_IWOTH:
            raise DataError(
                f"store: {path} belongs to {owner!r}, and {folder} can be written by everybody, so anybody may have "
                f"put it there; share a store by a group (chmod o-w {folder}), or copy what you trust to a folder of "
                "your own"
            )
    return owner
