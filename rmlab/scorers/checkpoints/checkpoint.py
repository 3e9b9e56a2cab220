"""A published model's files: where they lie, which file holds which weight, and reading weights by key."""

import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmlab.scorers.checkpoints.content import content_hash
from rmlab.scorers.checkpoints.gguf import from_gguf
from rmlab.scorers.checkpoints.loading import (
    first_line,
    json_object,
    quiet,
    refuse_impossible,
    refuse_other_tasks,
    require_score,
)
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

_PICKLES = ("*.bin", "*.pt", "*.pth")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state")
_LOADED = ("*.safetensors", "*.safetensors.index.json", "adapter_config.json")
_TOKENIZER = ["*.json", "*.model", "*.txt", "*.jinja"]
_BASES = {"gpt_neox_reward_model": "gpt_neox"}
"""Reward models with a model type of their own, and the architecture below their head."""
_MODEL_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True)
class Checkpoint:
    """The files of one model.

    `name`: as the user gave it. `folder`: where the weights lie. `base`: where configuration and tokenizer lie (the
    same folder unless `base=` named another). `revision`: the commit on the hub, None for a folder. `files`: the file
    of each weight. `sizes`: the number of values of each weight.
    """

    name: str
    folder: Path
    base: Path
    revision: str | None
    files: Mapping[str, Path]
    sizes: Mapping[str, int]
    trust_remote_code: bool = False

    @property
    def title(self) -> str:
        """The model's name in tables: the model id, or the name of the folder, also of one given as "."."""
        if self.revision is not None:
            return self.name
        folder = Path(self.name)
        return folder.name if folder.name not in ("", "..") else folder.resolve().name

    @cached_property
    def config(self) -> "PreTrainedConfig":
        """The transformers configuration; code that comes with the model runs only where the user trusts it."""
        from transformers import AutoConfig

        refuse_impossible(self.name, self.settings)
        kind = self.settings.get("model_type")
        try:
            if kind in _BASES:
                settings = {key: value for key, value in self.settings.items() if key != "model_type"}
                return AutoConfig.for_model(_BASES[kind], **settings)
            with quiet():
                config: PreTrainedConfig = AutoConfig.from_pretrained(
                    self.base, trust_remote_code=self.trust_remote_code
                )
                return config
        except Exception as error:  # the file is somebody's; whatever is wrong with it is said in one sentence
            reason = f"transformers does not know its architecture {kind!r} ({first_line(error)})"
            if "auto_map" in self.settings and not self.trust_remote_code:
                reason = (
                    f"its architecture {kind!r} is not part of transformers and comes as code with the model; read "
                    "that code, then pass trust_remote_code=True to run it"
                )
            raise DataError(f"model={self.name!r}: {reason}") from error

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration file as it was published, keys that transformers does not know included."""
        return json_object(self.base / "config.json")

    @cached_property
    def content(self) -> str:
        """Hash of the names and the bytes of all files that decide a score: configuration, weights and trusted code."""
        # Transformers chooses among the files of weights by rules of its own, so all that it may take count.
        weights = {path for pattern in _LOADED for path in self.folder.glob(pattern)} | set(self.files.values())
        return content_hash(self.name, self.folder, self.base, weights, with_code=self.trust_remote_code)

    def read(self, keys: Iterable[str], *, rows: int | None = None) -> dict[str, "torch.Tensor"]:
        """The named weights (their first `rows` rows) as float32 tensors on the CPU; only their files are opened."""
        keys_by_file: dict[Path, list[str]] = {}
        for key in keys:
            keys_by_file.setdefault(self.files[key], []).append(key)
        tensors = {key: t for path, names in keys_by_file.items() for key, t in _read_file(path, names, rows).items()}
        return {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in tensors.items()}

    @property
    def pickled(self) -> bool:
        """Whether all weights lie in pickles."""
        return all(path.suffix != ".safetensors" for path in self.files.values())


def find(
    model: str | Path,
    *,
    base: str | Path | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Checkpoint:
    """The checkpoint of a model id on the hub, of a folder or of a GGUF file; no weight is loaded yet.

    `base`: folder or id that gives configuration and tokenizer where the checkpoint has none. Pickled weights are read
    only with `allow_pickle`, and then by torch's restricted unpickler. Raises DataError for an unknown, gated or
    unreachable model, a folder without weights or configuration, an adapter, a model of another task, and pickles that
    were not allowed.
    """
    require_score()
    settings = [*_TOKENIZER, *(["*.py"] if trust_remote_code else [])]
    weights = ["*.safetensors", *(_PICKLES if allow_pickle else ())]
    folder, commit = _find_folder("model", model, revision, settings + weights)
    _refuse_adapter(str(model), folder)
    home = folder if base is None else _find_folder("base", base, None, settings)[0]
    if not (home / "config.json").is_file():
        raise DataError(
            f"model={str(model)!r}: no config.json in {home}; pass the folder that has one, or base=, a folder or "
            "model id with the configuration and the tokenizer of this checkpoint"
        )
    index = _index_weights(str(model), folder, allow_pickle)
    files = {key: path for key, (path, _) in index.items()}
    sizes = {key: size for key, (_, size) in index.items()}
    checkpoint = Checkpoint(str(model), folder, home, commit, files, sizes, trust_remote_code)
    refuse_other_tasks(checkpoint.name, checkpoint.settings)
    return checkpoint


def find_tokenizer(source: str | Path) -> Checkpoint:
    """A folder or hub id with a configuration and a tokenizer; its weights are neither asked for nor downloaded."""
    require_score()
    folder, _ = _find_folder("tokenizer", source, None, _TOKENIZER)
    if not (folder / "config.json").is_file():
        raise DataError(f"tokenizer={str(source)!r}: no config.json in {folder}; pass the folder of the whole model")
    return Checkpoint(str(source), folder, folder, None, {}, {})


def _find_folder(
    argument: str, model: str | Path, revision: str | None, patterns: list[str]
) -> tuple[Path, str | None]:
    """The folder on this machine, and the commit of a hub model; each way to fail becomes a sentence on what to do."""
    from huggingface_hub import errors, snapshot_download

    where = f"{argument}={str(model)!r}"
    if Path(model).is_dir():
        return Path(model), None
    if Path(model).suffix.lower() == ".gguf":
        return from_gguf(model), None
    if isinstance(model, Path) or not _MODEL_ID.fullmatch(model):
        raise DataError(f"{where}: no such folder; pass an existing folder or a model id 'owner/name'")
    try:
        folder = Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, ConnectionError) as error:
        raise DataError(f"{where} {_hub_remedy(model, revision, error)}") from error
    return folder, folder.name


def _hub_remedy(model: str, revision: str | None, error: Exception) -> str:
    """What the hub's error means, and the next step."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return f"is gated: accept its terms at https://huggingface.co/{model}, then run `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"has no revision {revision!r}; pass a commit, tag or branch of the model"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "is no folder here and no such model on the hub; check the spelling; private ones need `hf auth login`"
    return f"needs the hub, which cannot be reached; run `hf download {model}` elsewhere and pass the folder"


def _refuse_adapter(model: str, folder: Path) -> None:
    """Raise DataError where a folder holds an adapter and no whole model."""
    settings_file = folder / "adapter_config.json"
    weights = [path for pattern in ("*.safetensors", *_PICKLES) for path in folder.glob(pattern)]
    if settings_file.is_file() and all(path.name.startswith(("adapter", *_NOT_WEIGHTS)) for path in weights):
        raise DataError(
            f"model={model!r} is an adapter of {json_object(settings_file).get('base_model_name_or_path')!r}; merge "
            "the two (peft: merge_and_unload), save the result with its tokenizer and pass that folder"
        )


def _index_weights(model: str, folder: Path, allow_pickle: bool) -> dict[str, tuple[Path, int]]:
    """File and size of each weight: safetensors first, then pickles where they are allowed."""
    index = {
        key: (path, n) for path in sorted(folder.glob("*.safetensors")) for key, n in _safetensors_sizes(path).items()
    }
    pickles = [path for pattern in _PICKLES for path in sorted(folder.glob(pattern))]
    pickles = [path for path in pickles if not path.name.startswith(_NOT_WEIGHTS)]
    has_safetensors = bool(index)
    if pickles and not has_safetensors and not allow_pickle:
        raise DataError(
            f"model={model!r}: its weights are pickles ({', '.join(path.name for path in pickles[:3])}), which can run "
            "code when they are read; pass allow_pickle=True if you trust them, or convert them to safetensors"
        )
    for path in pickles if allow_pickle else []:
        # Beside safetensors a pickle of its own name (regression_layer.pt) adds weights; a second copy does not.
        if not (has_safetensors and path.name.startswith(("pytorch_model", "consolidated"))):
            prefix = f"{path.stem}." if has_safetensors else ""
            index |= {f"{prefix}{key}": (path, tensor.numel()) for key, tensor in _unpickle(path).items()}
    if not index:
        raise DataError(f"model={model!r}: no weights in {folder}; download *.safetensors, or pass allow_pickle=True")
    _require_shards(folder, index)
    return index


def _require_shards(folder: Path, index: Iterable[str]) -> None:
    """Raise DataError where the index of a sharded checkpoint names weights whose file is not there."""
    path = folder / "model.safetensors.index.json"
    if not path.is_file():
        return
    file_of_key = json_object(path).get("weight_map")
    if not isinstance(file_of_key, dict):
        raise DataError(f"{path} has no weight_map, so it is not the index of a sharded checkpoint; download it again")
    missing = sorted({file for key, file in file_of_key.items() if key not in index})
    if missing:
        raise DataError(f"{path} names files that are not there or not whole: {missing[:3]}; download them again")


def _safetensors_sizes(path: Path) -> dict[str, int]:
    """Number of values of each tensor; DataError for a file that is cut off or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return {key: prod(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a whole safetensors file; download it again") from error


def _read_file(path: Path, keys: list[str], rows: int | None) -> dict[str, "torch.Tensor"]:
    if path.suffix != ".safetensors":
        weights = _unpickle(path)
        tensors = {key: weights[key if key in weights else key.removeprefix(f"{path.stem}.")] for key in keys}
        return {key: tensor[:rows] if tensor.ndim else tensor for key, tensor in tensors.items()}
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) if rows is None else file.get_slice(key)[:rows] for key in keys}


def _unpickle(path: Path) -> dict[str, "torch.Tensor"]:
    """The weights of a pickle, read by torch's restricted unpickler: tensors and plain containers only."""
    import pickle

    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise DataError(f"{path}: more than plain weights, or cut off ({first_line(error)}); it is not read") from error
    return {key: tensor for key, tensor in content.items() if isinstance(tensor, torch.Tensor)}
