"""The weights of a model in its files: which file holds each, and reading them."""

import zipfile
from collections.abc import Container, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmlab.scorers.checkpoints.loading_errors import first_line
from rmlab.scorers.checkpoints.settings import read_object
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch

PICKLES = ("*.bin", "*.pt", "*.pth")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state")
# Second copies of safetensors.
_PICKLED_COPIES = ("pytorch_model", "consolidated")


class WeightIndex(NamedTuple):
    """The file of each weight, and the number of values in all of them."""

    files: dict[str, Path]
    n_weights: int


def index_weights(model: str, folder: Path, allow_pickle: bool) -> WeightIndex:
    """The weights in a folder: safetensors first, then pickles if they are allowed."""
    copies = folder.glob("consolidated*")
    safetensors = sorted({*folder.glob("*.safetensors")}.difference(copies))
    pickles = []
    if allow_pickle or not safetensors:
        pickles = _list_pickles(folder)
    if pickles and not allow_pickle:
        names = [path.name for path in pickles[:3]]
        problem = f"model={model!r}: its weights are pickles ({', '.join(names)})"
        raise DataError(problem, "pass allow_pickle=True if you trust them")

    files: dict[str, Path] = {}
    sizes: dict[str, int] = {}
    for path in safetensors:
        stored_sizes = safetensors_sizes(path)
        files |= dict.fromkeys(stored_sizes, path)
        sizes |= stored_sizes

    for path in pickles:
        # Beside safetensors a pickle of its own name (regression_layer.pt) adds
        # weights; a second copy does not.
        if safetensors and path.name.startswith(_PICKLED_COPIES):
            continue
        prefix = f"{path.stem}." if safetensors else ""
        for key, tensor in _unpickle(path).items():
            files[prefix + key] = path
            sizes[prefix + key] = tensor.numel()

    if not files:
        problem = f"model={model!r}: no weights in {folder}"
        raise DataError(problem, "download *.safetensors, or pass allow_pickle=True")
    shard_index = folder / "model.safetensors.index.json"
    if shard_index.is_file():
        _refuse_missing_shards(shard_index, files)
    return WeightIndex(files, sum(sizes.values()))


def _list_pickles(folder: Path) -> list[Path]:
    pickles = []
    for pattern in PICKLES:
        for path in folder.glob(pattern):
            if not path.name.startswith(_NOT_WEIGHTS):
                pickles.append(path)
    return sorted(pickles)


def _refuse_missing_shards(index: Path, stored_keys: Container[str]) -> None:
    """Raise DataError where the index of shards names weights that are not there."""
    file_by_key = read_object(index).get("weight_map")
    missing = {"weight_map"}
    if isinstance(file_by_key, dict):
        missing = set()
        for key, file in file_by_key.items():
            if key not in stored_keys:
                missing.add(file)
    if missing:
        names = sorted(missing)[:3]
        problem = f"{index} names what is not there or not whole: {names}"
        raise DataError(problem, "download the model again")


def stored_tensors(
    path: Path, keys: Iterable[str]
) -> Iterator[tuple[str, "torch.Tensor"]]:
    """Name and values of weights in one file, each read when its turn comes."""
    from safetensors import safe_open

    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            for key in keys:
                yield key, file.get_tensor(key)
        return

    tensors = _unpickle(path)
    for key in keys:
        # Weights beside safetensors have the name of their file before their own.
        stored_key = key
        if key not in tensors:
            stored_key = key.removeprefix(f"{path.stem}.")
        yield key, tensors[stored_key]


def safetensors_sizes(path: Path) -> dict[str, int]:
    """Number of values of each tensor; DataError for a file that is cut or damaged."""
    from safetensors import SafetensorError, safe_open

    sizes = {}
    try:
        with safe_open(path, framework="np") as file:
            for key in file.keys():  # noqa: SIM118
                sizes[key] = prod(file.get_slice(key).get_shape())
    except (SafetensorError, OSError) as error:
        problem = f"{path}: not a whole safetensors file"
        raise DataError(problem, "download it again") from error
    return sizes


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
