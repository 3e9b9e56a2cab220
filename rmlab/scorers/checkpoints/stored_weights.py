"""The weights of a model in its files: which file holds each, and reading them."""

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmlab.scorers.checkpoints.loading_errors import first_line
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
    """The weights in a folder: safetensors, or else pickles if they are allowed.

    Names lose what DistributedDataParallel and torch.compile put before them.
    """
    files = _list_files(folder, ["*.safetensors"], "model.safetensors")
    pickles = []
    if not files:
        pickles = _list_files(folder, PICKLES, "pytorch_model.bin")
    elif not (folder / f"{VALUE_HEAD}.safetensors").is_file():
        pickles = [*folder.glob(f"{VALUE_HEAD}.bin")]
    if pickles and not allow_pickle:
        names = ", ".join(path.name for path in pickles[:3])
        problem = f"model={model!r}: its weights are pickles ({names})"
        raise DataError(problem, "pass allow_pickle=True if you trust them")

    weights: dict[str, StoredWeight] = {}
    for path in files + pickles:
        for name, shape in _read_shapes(path).items():
            stored = StoredWeight(path, name, shape)
            weights.setdefault(_WRAPPED.sub("", name), stored)
    if not weights:
        problem = f"model={model!r}: no weights in {folder}"
        raise DataError(problem, "download *.safetensors, or pass allow_pickle=True")
    return weights


def _list_files(folder: Path, patterns: Iterable[str], whole: str) -> list[Path]:
    """The files of weights: `whole`, or the shards that its index names, as in
    transformers, and then files that are no shards; all where there is neither.
    """
    files: set[Path] = set()
    for pattern in patterns:
        for path in folder.glob(pattern):
            if not path.name.startswith(_NOT_WEIGHTS):
                files.add(path)

    index = folder / f"{whole}.index.json"
    own = {folder / whole}
    if folder / whole not in files:
        if not files or not index.is_file():
            return sorted(files)
        file_by_key = read_object(index).get("weight_map") or {}
        own = {folder / name for name in file_by_key.values()}
    shards = {path for path in files if path.match(f"{Path(whole).stem}*")}
    return sorted(own) + sorted(files - own - shards)


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


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor in a file; DataError for one that is cut or damaged."""
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors":
        return {name: tuple(tensor.shape) for name, tensor in _unpickle(path).items()}
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
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        cause = first_line(error)
        problem = f"{path}: more than plain weights, or cut off ({cause})"
        raise DataError(problem, "it is not read") from error

    tensors = {}
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            tensors[key] = value
    return tensors


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object; DataError for any other."""
    remedy = "download it again"
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error})", remedy) from None
    if not isinstance(content, dict):
        problem = f"{path} holds {type(content).__name__} and no object"
        raise DataError(problem, remedy)
    return content
