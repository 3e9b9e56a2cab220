"""The code that comes with a model and that transformers runs where it is trusted: what decides its scores too."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from rmlab.tables import DataError

__all__ = ["own_code"]


def own_code(model: str, folder: Path, base: Path) -> Iterator[bytes]:
    """What stands for a model's own code: its `*.py` files, and the commits of other repositories that it names.

    Nothing where neither configuration nor tokenizer names a class of its own: transformers then runs none of it.
    """
    names = sorted({name for file in ("config.json", "tokenizer_config.json") for name in _classes(base / file)})
    if not names:
        return
    for path in sorted({path for place in (folder, base) for path in place.glob("*.py")}):
        yield path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest()
    for name in names:
        repository, elsewhere, reference = name.partition("--")
        if elsewhere:
            yield f"{repository} {_commit(model, repository, reference)}".encode()


def _classes(path: Path) -> list[str]:
    """The classes that a file's `auto_map` names, as `module.Class` or `owner/name--module.Class`."""
    try:
        named = json.loads(path.read_text("utf-8")).get("auto_map") or {}
    except (OSError, ValueError):
        return []  # who loads the configuration or the tokenizer says what is wrong with it
    # Transformers takes two classes for a tokenizer, the second of which may be missing.
    listed = [value if isinstance(value, list) else [value] for value in named.values()]
    return [name for value in listed for name in value if name]


def _commit(model: str, repository: str, reference: str) -> str:
    """The commit of another repository whose code the model runs."""
    from transformers.utils import cached_file

    try:
        return Path(str(cached_file(repository, f"{reference.split('.')[0]}.py"))).parent.name
    except OSError as error:
        raise DataError(
            f"model={model!r}: its code lies in {repository!r}, which cannot be had; connect, or download it first"
        ) from error
