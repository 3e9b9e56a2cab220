"""Hashes of a model's files: which bytes decide a score, and which a text's tokens."""

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rmlab.scorers.base import hash_parts

# Names of all files that a tokenizer of transformers may be read from.
_TOKENIZER = re.compile(
    r"tokenizer|vocab|merges|tokens|chat_template|tekken|"
    r"\.(jinja|model|spm|codes|tiktoken)$|"
    r"^(dict\.txt|(emoji|byte_maps|word_shape|word_pronunciation)\.json)$"
)


class Digest(NamedTuple):
    """The role of a file ("weights", "code" ...), its name and its SHA-256."""

    role: str
    file_name: str
    sha256: str


def digests(role: str, paths: Iterable[Path]) -> list[Digest]:
    """The digest of each file, sorted; several files are read at once."""
    files = list(paths)
    with ThreadPoolExecutor() as pool:
        hashes = list(pool.map(_sha256, files))
    rows = zip(files, hashes, strict=True)
    return sorted(Digest(role, path.name, sha256) for path, sha256 in rows)


def hash_tokenizer(folder: Path, *, with_code: bool = False) -> str:
    """Hash of all files in a folder that a tokenizer may be read from.

    Names and bytes count; `with_code`: those of Python files too.
    """
    files = [*folder.glob("*"), *folder.glob("additional_chat_templates/*")]
    named = [path for path in files if path.is_file() and _TOKENIZER.search(path.name)]
    parts = digests("tokenizer", named)
    if with_code:
        parts += digests("code", folder.glob("*.py"))
    return hash_parts(parts)


def _sha256(path: Path) -> str:
    """The hash of a file.

    In the hub's cache it is the name of a large file, which is then not read.
    """
    if path.is_symlink():
        # The first link alone says it: a blob may be a link too, into a store whose
        # names are hashes of another kind.
        blob = path.readlink()
        # Small files are named by git's hash, which is shorter.
        if blob.parent.name == "blobs" and len(blob.name) == 64:
            return blob.name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
