"""A published model's files: where they lie, which file holds which weight, reading
weights by key, and their hash.
"""

import hashlib
import json
import re
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from math import prod
from os.path import abspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmlab.records import install_command, read_json
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

_PICKLES = ("*.bin", "*.pt", "*.pth")
# Second copies of weights, in folders (fp8/, checkpoint-500/) or in the form of
# Mistral's own runner.
_COPIES = ["*/*", "consolidated*.safetensors"]
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state")
_SETTINGS = ["*.json", "*.model", "*.txt", "*.jinja"]
# Transformers chooses among these files by rules of its own, so that all of them count
# in the hash.
_LOADED = ("*.safetensors", "*.safetensors.index.json")
# Names of all files that a tokenizer of transformers may be read from.
_TOKENIZER = re.compile(
    r"tokenizer|vocab|merges|tokens|chat_template|tekken|\.(jinja|model|spm|codes|tiktoken)$|"
    r"^(dict\.txt|(emoji|byte_maps|word_shape|word_pronunciation)\.json)$"
)
_MODEL_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
# Reward models with a model type of their own, and the architecture below their head.
_BASES = {"gpt_neox_reward_model": "gpt_neox"}
# Classes of models that score the steps of an answer.
_STEPWISE = re.compile(r"ForTokenClassification|ForProcessReward|PRM|ForPrm")
# The fewest and the most of something that any model has. Dense models say that they
# have 0 experts.
_LIMITS = {
    re.compile(
        r"num_(hidden_|decoder_|encoder_)?layers|n_layers?|(encoder|decoder)_layers"
    ): (1, 1000),
    re.compile(
        r"num_(local_)?experts|n_routed_experts|num_attention_heads|n_head|num_labels"
    ): (0, 100_000),
}


@dataclass(frozen=True)
class Checkpoint:
    """The files of one model.

    `name`: as the user gave it. `folder`: where the weights lie. `base`: where
    configuration and tokenizer lie (the same folder unless `base=` named another).
    `revision`: the commit on the hub, None for a folder. `files`: the file of each
    weight. `n_weights`: the number of values in all weights.
    """

    name: str
    folder: Path
    base: Path
    revision: str | None
    files: Mapping[str, Path]
    n_weights: int
    trust_remote_code: bool = False

    @property
    def title(self) -> str:
        """The model's name in tables: the model id, or the name of the folder, also of
        one given as ".".
        """
        return self.name if self.revision is not None else Path(abspath(self.name)).name

    @cached_property
    def config(self) -> "PreTrainedConfig":
        """The transformers configuration; code that comes with the model runs only
        where the user trusts it.
        """
        from transformers import AutoConfig

        kind, remedy = (
            self.settings.get("model_type"),
            "use the configuration that was published with the weights",
        )
        if "auto_map" in self.settings and not self.trust_remote_code:
            remedy = "it comes as code with the model: read that code, then pass trust_remote_code=True to run it"
        with explain(self.name, f"take its architecture {kind!r}", remedy):
            if kind in _BASES:
                settings = {
                    key: value
                    for key, value in self.settings.items()
                    if key != "model_type"
                }
                return AutoConfig.for_model(_BASES[kind], **settings)
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                self.base, trust_remote_code=self.trust_remote_code
            )
        return config

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration file as it was published, keys that transformers does not
        know included.
        """
        return _read_object(self.base / "config.json")

    @cached_property
    def content(self) -> str:
        """Hash of the names and the bytes of all files that decide a score:
        configuration, weights and trusted code.
        """
        weights = {
            path for pattern in _LOADED for path in self.folder.glob(pattern)
        } | set(self.files.values())
        parts = digests("configuration", [self.base / "config.json"]) + digests(
            "weights", weights
        )
        if self.trust_remote_code:
            parts += digests(
                "code", {*self.folder.glob("*.py"), *self.base.glob("*.py")}
            )
        return _hash_digests(parts)

    @cached_property
    def tokenizer_content(self) -> str:
        """Hash of the names and the bytes of all files that decide a text's tokens: the
        tokenizer and trusted code.
        """
        return hash_tokenizer(self.base, with_code=self.trust_remote_code)

    def read(
        self, keys: Iterable[str], *, rows: int | None = None
    ) -> dict[str, "torch.Tensor"]:
        """The named weights (their first `rows` rows) as float32 tensors on the CPU;
        only their files are opened.
        """
        from safetensors import safe_open

        keys_by_file = defaultdict(list)
        for key in keys:
            keys_by_file[self.files[key]].append(key)
        tensors: dict[str, torch.Tensor] = {}
        for path, names in keys_by_file.items():
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    tensors |= {key: file.get_tensor(key) for key in names}
            else:
                weights = _unpickle(path)
                tensors |= {
                    key: weights[
                        key if key in weights else key.removeprefix(f"{path.stem}.")
                    ]
                    for key in names
                }
        tensors = {
            key: tensor[:rows] if tensor.ndim else tensor
            for key, tensor in tensors.items()
        }
        return {
            key: tensor.float() if tensor.is_floating_point() else tensor
            for key, tensor in tensors.items()
        }

    def error(self, message: str) -> DataError:
        """An error that names the model."""
        return DataError(f"model={self.name!r}: {message}")


def find(
    model: str | Path,
    *,
    base: str | Path | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Checkpoint:
    """The checkpoint of a model id on the hub, of a folder or of a GGUF file; no weight
    is loaded yet.

    `base`: folder or id that gives configuration and tokenizer where the checkpoint has
    none. Pickled weights are read only with `allow_pickle`, and then by torch's
    restricted unpickler. Raises DataError for an unknown, gated or unreachable model, a
    folder without weights or configuration, an adapter, a model of another task, and
    pickles that were not allowed.
    """
    settings = [*_SETTINGS, *(["*.py"] if trust_remote_code else [])]
    weights = ["*.safetensors", *(_PICKLES if allow_pickle else ())]
    folder, commit = _find_folder("model", model, revision, settings + weights)
    home = folder if base is None else _find_folder("base", base, None, settings)[0]
    if not (home / "config.json").is_file():
        where = f"model={str(model)!r}: no config.json in {home}"
        raise DataError(
            f"{where}; pass base=, a folder or model id with the configuration and the tokenizer"
        )
    files, n_weights = _index_weights(str(model), folder, allow_pickle)
    checkpoint = Checkpoint(
        str(model), folder, home, commit, files, n_weights, trust_remote_code
    )
    refuse_settings(checkpoint.name, checkpoint.settings)
    return checkpoint


def find_tokenizer(source: str | Path) -> Checkpoint:
    """A folder or hub id with a configuration and a tokenizer; its weights are neither
    asked for nor downloaded.
    """
    folder, _ = _find_folder("tokenizer", source, None, _SETTINGS)
    return Checkpoint(str(source), folder, folder, None, {}, 0)


def _find_folder(
    argument: str, model: str | Path, revision: str | None, patterns: list[str]
) -> tuple[Path, str | None]:
    """The folder on this machine, and the commit of a hub model."""
    missing = [
        name
        for name in ("torch", "transformers", "safetensors")
        if find_spec(name) is None
    ]
    if missing:
        raise ImportError(
            f"a model needs {' and '.join(missing)}: run {install_command('score')}"
        )
    from huggingface_hub import errors, snapshot_download

    where = f"{argument}={str(model)!r}"
    if Path(model).is_dir():
        return Path(model), None
    if Path(model).suffix.lower() == ".gguf":
        from rmlab.scorers.checkpoints.gguf import from_gguf

        return from_gguf(model), None
    if isinstance(model, Path) or not _MODEL_ID.fullmatch(model):
        raise DataError(
            f"{where}: no such folder; pass an existing folder or a model id 'owner/name'"
        )
    try:
        folder = Path(
            snapshot_download(
                model,
                revision=revision,
                allow_patterns=patterns,
                ignore_patterns=_COPIES,
            )
        )
    except (
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        ConnectionError,
    ) as error:
        where = f"{where}, revision={revision!r}: the hub does not give it ({first_line(error)})"
        remedy = f"see https://huggingface.co/{model}, accept its terms and run `hf auth login`, or pass a folder"
        raise DataError(f"{where}; {remedy}") from error
    return folder, folder.name


def _index_weights(
    model: str, folder: Path, allow_pickle: bool
) -> tuple[dict[str, Path], int]:
    """The file of each weight, and the number of values: safetensors first, then
    pickles where they are allowed.
    """
    safetensors = sorted(
        path
        for path in folder.glob("*.safetensors")
        if not path.name.startswith("consolidated")
    )
    pickles = sorted(path for pattern in _PICKLES for path in folder.glob(pattern))
    pickles = [path for path in pickles if not path.name.startswith(_NOT_WEIGHTS)]
    adapter_file = folder / "adapter_config.json"
    adapter = read_json(adapter_file) if adapter_file.is_file() else None
    if isinstance(adapter, dict):
        # Beside base weights, too: transformers would add it to them where peft is
        # installed, and nowhere else.
        base = adapter.get("base_model_name_or_path")
        raise DataError(
            f"model={model!r} holds an adapter of {base!r}; merge the two (peft: merge_and_unload)"
        )
    if pickles and not safetensors and not allow_pickle:
        names = ", ".join(path.name for path in pickles[:3])
        raise DataError(
            f"model={model!r}: its weights are pickles ({names}); pass allow_pickle=True if you trust them"
        )
    index = {
        key: (path, size)
        for path in safetensors
        for key, size in _safetensors_sizes(path).items()
    }
    for path in pickles if allow_pickle else []:
        # Beside safetensors a pickle of its own name (regression_layer.pt) adds
        # weights; a second copy does not.
        if not (
            safetensors and path.name.startswith(("pytorch_model", "consolidated"))
        ):
            prefix = f"{path.stem}." if safetensors else ""
            index |= {
                f"{prefix}{key}": (path, tensor.numel())
                for key, tensor in _unpickle(path).items()
            }
    if not index:
        raise DataError(
            f"model={model!r}: no weights in {folder}; download *.safetensors, or pass allow_pickle=True"
        )
    shards = folder / "model.safetensors.index.json"
    if shards.is_file():
        file_of_key = _read_object(shards).get("weight_map")
        mapping = file_of_key if isinstance(file_of_key, dict) else {"": "weight_map"}
        if missing := sorted(
            {file for key, file in mapping.items() if key not in index}
        ):
            raise DataError(
                f"{shards} names what is not there or not whole: {missing[:3]}; download the model again"
            )
    return {key: path for key, (path, _) in index.items()}, sum(
        size for _, size in index.values()
    )


def refuse_settings(name: str, settings: Mapping[str, object]) -> None:
    """Raise DataError for a configuration of another kind of model, or of a size that
    no model has.

    A model of a million layers would be built before anything failed. Models that score
    the steps of an answer have no score of the whole, and a Reformer draws its
    attention at random.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            refuse_settings(name, value)
        for pattern, (least, most) in _LIMITS.items():
            if (
                pattern.fullmatch(key)
                and type(value) is int
                and not least <= value <= most
            ):
                where = f"model={name!r}: its configuration says {key}={value}; allowed: 1 to {most}"
                raise DataError(
                    f"{where}; use the configuration that was published with the weights"
                )
    named = settings.get("architectures")
    for kind in named if isinstance(named, list) else []:
        if _STEPWISE.search(str(kind)):
            task = "token classification, as process reward models have it"
            raise DataError(
                f"model={name!r} is a {kind}: {task}; use an outcome reward model"
            )
    if settings.get("model_type") == "reformer":
        raise DataError(
            f"model={name!r}: a Reformer draws its attention at random; use another architecture"
        )


def _safetensors_sizes(path: Path) -> dict[str, int]:
    """Number of values of each tensor; DataError for a file that is cut off or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return {key: prod(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path}: not a whole safetensors file; download it again"
        ) from error


def _unpickle(path: Path) -> dict[str, "torch.Tensor"]:
    """The weights of a pickle, read by torch's restricted unpickler: tensors and plain
    containers only.
    """
    import pickle

    import torch

    try:
        content = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise DataError(
            f"{path}: more than plain weights, or cut off ({first_line(error)}); it is not read"
        ) from error
    return {
        key: tensor
        for key, tensor in content.items()
        if isinstance(tensor, torch.Tensor)
    }


def digests(role: str, paths: Iterable[Path]) -> list[tuple[str, str, str]]:
    """Role, name and SHA-256 of each file, sorted; several files are read at once."""
    files = list(paths)
    with ThreadPoolExecutor() as pool:
        return sorted(
            (role, path.name, digest)
            for path, digest in zip(files, pool.map(_sha256, files), strict=True)
        )


def hash_tokenizer(folder: Path, *, with_code: bool = False) -> str:
    """Hash of the names and the bytes of all files in a folder that a tokenizer may be
    read from.
    """
    files = [*folder.glob("*"), *folder.glob("additional_chat_templates/*")]
    named = [path for path in files if path.is_file() and _TOKENIZER.search(path.name)]
    code = folder.glob("*.py") if with_code else ()
    return _hash_digests(digests("tokenizer", named) + digests("code", code))


def _hash_digests(parts: list[tuple[str, str, str]]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _sha256(path: Path) -> str:
    """The hash of a file; in the hub's cache it is the name of a large file, which is
    then not read.
    """
    # The first link alone says it: a blob may be a link too, into a store whose names
    # are hashes of another kind.
    blob, snapshots = (
        path.parent / path.readlink() if path.is_symlink() else path,
        path.parent.parent,
    )
    is_blob = (
        snapshots.name == "snapshots"
        and blob.parent.resolve() == snapshots.parent.resolve() / "blobs"
    )
    if is_blob and len(blob.name) == 64:  # the others have git's hash
        return blob.name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object; DataError for any other."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(
            f"{path} holds {type(content).__name__} and no object; download it again"
        )
    return content


@contextmanager
def explain(model: str | Path, task: str, remedy: str) -> Iterator[None]:
    """Turn whatever transformers raises at a `task` into one sentence, and silence its
    warnings, bars and tables.
    """
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (
        Exception
    ) as error:  # the files are somebody's: it may raise whatever it likes
        raise DataError(
            f"model={str(model)!r}: transformers cannot {task} ({first_line(error)}); {remedy}"
        ) from error
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


def first_line(error: Exception, longest: int = 200) -> str:
    """The first line of another library's message, short enough for a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:longest]
