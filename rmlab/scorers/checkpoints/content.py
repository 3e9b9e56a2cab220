"""The identity of a checkpoint: a hash of the bytes of every file that decides a score, wherever the files lie."""

import hashlib
import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmlab.tables import DataError

Part = tuple[str, str, str]
"""Role, name and SHA-256 of a file."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def content_hash(model: str, folder: Path, base: Path, weights: Iterable[Path], *, with_code: bool) -> str:
    """Hash of the names and the bytes of configuration, weights and, `with_code`, the code that transformers runs.

    The same files have the same hash wherever they lie, in a folder or in the hub's cache; any other byte, and the
    same weights in other files, have another.
    """
    parts = digests("configuration", [base / "config.json"]) + digests("weights", weights)
    if with_code:
        parts += _code_digests(model, folder, base)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def digests(role: str, paths: Iterable[Path]) -> list[Part]:
    """Role, name and SHA-256 of each file, sorted; several files are read at once. OSError for a missing file."""
    files = list(paths)
    with ThreadPoolExecutor() as pool:
        hashes = pool.map(_sha256, files)
        return sorted((role, path.name, digest) for path, digest in zip(files, hashes, strict=True))


def _sha256(path: Path) -> str:
    """The hub's cache names a large file by its SHA-256: the name is used, and the file is not read."""
    if path.is_symlink() and path.exists():
        # The first link alone says it: a blob may be a link too, into a store whose names are hashes of another kind.
        folder = path.parent.resolve()
        blob = folder / path.readlink()
        blobs = blob.parent.resolve()
        if blobs.name == "blobs" and blobs.parent / "snapshots" in folder.parents and _SHA256.fullmatch(blob.name):
            return blob.name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _code_digests(model: str, folder: Path, base: Path) -> list[Part]:
    """Digests of the model's own `*.py` files, and the commits of others' repositories that it names.

    Empty where neither configuration nor tokenizer names a class of its own: transformers then runs none of the code.
    """
    classes = {name for file in ("config.json", "tokenizer_config.json") for name in _own_classes(base / file)}
    if not classes:
        return []
    parts = digests("code", folder.glob("*.py")) + digests("code of the configuration", base.glob("*.py"))
    for name in sorted(classes):
        repository, separator, reference = name.partition("--")
        if separator:
            parts += _repository_digests(model, repository, f"{reference.split('.')[0]}.py")
    return parts


def _own_classes(path: Path) -> list[str]:
    """The classes that a file's `auto_map` names, as `module.Class` or `owner/name--module.Class`."""
    try:
        classes = json.loads(path.read_text("utf-8")).get("auto_map", {}).values()
    except (OSError, ValueError, AttributeError):
        return []  # loading the configuration or the tokenizer says what is wrong with the file
    # Transformers takes two classes for a tokenizer, the second of which may be missing.
    return [name for value in classes for name in (value if isinstance(value, list) else [value]) if name]


def _repository_digests(model: str, repository: str, file: str) -> list[Part]:
    """The commit of a repository on the hub, or the digests of a folder's files."""
    from transformers.utils.hub import cached_file

    if Path(repository).is_dir():
        return digests(f"code of {repository}", Path(repository).glob("*.py"))
    try:
        return [("commit", repository, Path(str(cached_file(repository, file))).parent.name)]
    except OSError as error:
        raise DataError(
            f"model={model!r}: its code lies in {repository!r}, which cannot be had; connect, or download it first"
        ) from error
