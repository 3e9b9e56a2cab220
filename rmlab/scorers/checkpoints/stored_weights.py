"""The weights of a model in its files: which file holds each, and reading them."""

import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmlab.scorers.checkpoints.loading_errors import first_line
from rmlab.scorers.checkpoints.settings import read_object
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch

PICKLES = ("*.bin", "*.pt", "*.pth")
# Other files, and copies of weights in the form of Mistral's own runner.
_NOT_WEIGHTS = (
    "training_args",
    "optimizer",
    "scheduler",
    "rng_state",
    "consolidated",
)
# Second copies of safetensors.
_PICKLED_COPIES = ("pytorch_model", "adapter_model")
VALUE_HEAD = "value_head"
"""The file of the head that LLaMA-Factory and ms-swift save beside a model."""
# What wrappers of torch put before the names.
_WRAPPED = re.compile(r"^((module|_orig_mod)\.)+")


class StoredWeight(NamedTuple):
    """A weight in a file: the file, its name there, and its shape."""

    path: Path
    name: str
    shape: tuple[int, ...]


def index_weights(
    model: str, folder: Path, allow_pickle: bool
) -> dict[str, StoredWeight]:
    """The weights in a folder: safetensors first, then pickles if they are allowed.

    Names lose what DistributedDataParallel and torch.compile put before them.
    """
    safetensors = _list_files(folder, ["*.safetensors"])
    pickles = []
    if allow_pickle or not safetensors:
        pickles = _list_files(folder, PICKLES)
    elif folder / f"{VALUE_HEAD}.safetensors" not in safetensors:
        pickles = [*folder.glob(f"{VALUE_HEAD}.bin")]
    if pickles and not allow_pickle:
        names = [path.name for path in pickles[:3]]
        problem = f"model={model!r}: its weights are pickles ({', '.join(names)})"
        raise DataError(problem, "pass allow_pickle=True if you trust them")

    weights: dict[str, StoredWeight] = {}
    for path in sorted(safetensors, key=_is_beside):
        for name, shape in safetensors_shapes(path).items():
            stored = StoredWeight(path, name, shape)
            weights.setdefault(_WRAPPED.sub("", name), stored)
    for path in pickles:
        # Beside safetensors a pickle of its own name (regression_layer.pt) adds
        # weights; a second copy does not.
        if safetensors and path.name.startswith(_PICKLED_COPIES):
            continue
        prefix = ""
        if safetensors and path.stem != VALUE_HEAD:
            prefix = f"{path.stem}."
        for name, tensor in _unpickle(path).items():
            key = prefix + _WRAPPED.sub("", name)
            weights.setdefault(key, StoredWeight(path, name, tuple(tensor.shape)))

    if not weights:
        problem = f"model={model!r}: no weights in {folder}"
        raise DataError(problem, "download *.safetensors, or pass allow_pickle=True")
    return weights


def _is_beside(path: Path) -> bool:
    """Whether a file of safetensors adds weights to those of the model's own files."""
    return not path.name.startswith("model")


def _list_files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """The files of weights that belong to the model.

    Of its shards, and files that look like one, only those count that its index names,
    and none beside a whole file, as in transformers.
    """
    files = set()
    for pattern in patterns:
        for path in folder.glob(pattern):
            if not path.name.startswith(_NOT_WEIGHTS):
                files.add(path)

    for whole in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{whole}.index.json"
        shards = {path for path in files if path.match(f"{Path(whole).stem}*")}
        if folder / whole in files:
            files -= shards - {folder / whole}
        elif index.is_file() and Path(whole).suffix in {path.suffix for path in files}:
            named = _indexed_files(index)
            missing = sorted(path.name for path in named if not path.is_file())
            if missing or not named:
                problem = f"{index} names what is not there or not whole: {missing[:3]}"
                raise DataError(problem, "download the model again")
            files = (files - shards) | named
    return sorted(files)


def _indexed_files(index: Path) -> set[Path]:
    """The shards that an index names."""
    file_by_key = read_object(index).get("weight_map")
    if not isinstance(file_by_key, dict):
        return set()
    return {index.parent / str(name) for name in file_by_key.values()}


def read_file(path: Path, names: Iterable[str]) -> Iterator[tuple[str, "torch.Tensor"]]:
    """Name and values of weights in one file, each read when its turn comes."""
    from safetensors import safe_open

    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            for name in names:
                yield name, file.get_tensor(name)
        return
    tensors = _unpickle(path)
    for name in names:
        yield name, tensors[name]


def as_float32(
    tensors: Iterable[tuple[str, "torch.Tensor"]],
    device: "torch.device",
    rows: int | list[int] | None = None,
) -> dict[str, "torch.Tensor"]:
    """Weights (their first `rows` rows, or these) on a device, numbers in float32."""
    chosen = rows if isinstance(rows, list) else slice(rows)
    weights = {}
    for name, tensor in tensors:
        if tensor.ndim:
            tensor = tensor[chosen]
        if tensor.is_floating_point():
            tensor = tensor.float()
        weights[name] = tensor.to(device)
    return weights


def safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor; DataError for a file that is cut or damaged."""
    from safetensors import SafetensorError, safe_open

    shapes = {}
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118
                shapes[name] = tuple(file.get_slice(name).get_shape())
    except (SafetensorError, OSError) as error:
        problem = f"{path}: not a whole safetensors file"
        raise DataError(problem, "download it again") from error
    return shapes


def _unpickle(path: Path) -> dict[str, "torch.Tensor"]:
    """The weights of a pickle, read by torch's restricted unpickler.

    It reads tensors and plain containers only, and tensors not before they are used.
    """
    import pickle

    import torch

    is_zip = zipfile.is_zipfile(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        cause = first_line(error)
        problem = f"{path}: more than plain weights, or cut off ({cause})"
        raise DataError(problem, "it is not read") from error

    tensors = {}
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            tensors[key] = value
    return tensors
