"""A published model's files: where they lie, their configuration, weights and hash."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from math import prod
from os.path import abspath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rmlab.records import install_command
from rmlab.scorers.base import hash_parts
from rmlab.scorers.checkpoints.gguf import from_gguf
from rmlab.scorers.checkpoints.hashing import digests, hash_tokenizer
from rmlab.scorers.checkpoints.loading_errors import explain, first_line
from rmlab.scorers.checkpoints.stored_weights import (
    PICKLES,
    StoredWeight,
    index_weights,
    read_file,
    read_object,
)
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

# The file that makes a folder an adapter.
ADAPTER = "adapter_config.json"
# Second copies of weights, in folders (fp8/, checkpoint-500/) or in the form of
# Mistral's own runner.
_COPIES = ["*/*", "consolidated*.safetensors"]
_SETTINGS = ["*.json", "*.model", "*.txt", "*.jinja"]
# Transformers chooses among these files by rules of its own, so that all of them count
# in the hash.
_LOADED = ("*.safetensors", "*.safetensors.index.json")
_MODEL_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?(@[\w./-]+)?")


@dataclass(frozen=True)
class Checkpoint:
    """The files of one model.

    `name`: as the user gave it. `folder`: where the weights lie. `base`: where
    configuration and tokenizer lie (the same folder unless `base=` named another).
    `revision`: the commit on the hub, None for a folder. `weights`: where each weight
    is stored. `settings`: the configuration file as published, with keys unknown to
    transformers.
    """

    name: str
    folder: Path
    base: Path
    revision: str | None
    weights: Mapping[str, StoredWeight]
    settings: Mapping[str, Any]
    trust_remote_code: bool = False

    # For provenance: what else the weights come from; an adapter's from its base.
    origin: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    # Around a pass; what is loaded for scoring is in evaluation already.
    evaluating = nullcontext

    @property
    def is_plain(self) -> bool:
        """Whether transformers can read the weights from the folder by itself."""
        return all(
            stored.name == key and stored.path.suffix == ".safetensors"
            for key, stored in self.weights.items()
        )

    @property
    def n_weights(self) -> int:
        """The number of values in all weights."""
        return sum(prod(stored.shape) for stored in self.weights.values())

    @property
    def quantization(self) -> str | None:
        """How the weights are quantized, such as "bitsandbytes"."""
        quantization = self.settings.get("quantization_config")
        if not isinstance(quantization, dict):
            return None
        return str(quantization.get("quant_method", "bitsandbytes"))

    @property
    def title(self) -> str:
        """The model's name in tables: the model id, or the name of the folder."""
        if self.revision is not None:
            return self.name
        # The folder may be given as ".".
        return Path(abspath(self.name)).name

    @cached_property
    def config(self) -> "PreTrainedConfig":
        """The transformers configuration.

        Code that comes with the model runs only where the user trusts it.
        """
        import transformers
        from transformers import AutoConfig

        kind = self.settings.get("model_type")
        remedy = "use the configuration that was published with the weights"
        if "auto_map" in self.settings and not self.trust_remote_code:
            remedy = (
                "it comes as code with the model: read that code, "
                "then pass trust_remote_code=True to run it"
            )
        with explain(self.name, f"take its architecture {kind!r}", remedy):
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                self.base, trust_remote_code=self.trust_remote_code
            )
        # Transformers 4 would go on with its default.
        rope = getattr(config.get_text_config(), "rope_parameters", None)
        if rope and transformers.__version__.startswith("4."):
            problem = "transformers 4 does not read its rope_parameters"
            raise self.error(problem, "install transformers 5, which wrote it")
        return config

    @cached_property
    def content(self) -> str:
        """Hash of the names and the bytes of all files that decide a score.

        They are the configuration, the weights and trusted code.
        """
        files = {stored.path for stored in self.weights.values()}
        for pattern in _LOADED:
            files |= set(self.folder.glob(pattern))
        parts = digests("configuration", [self.base / "config.json"])
        parts += digests("weights", files)
        if self.trust_remote_code:
            code = {*self.folder.glob("*.py"), *self.base.glob("*.py")}
            parts += digests("code", code)
        return hash_parts(parts)

    @property
    def model_folder(self) -> Path:
        """Where the whole model's files lie: of an adapter, those of its base."""
        return self.folder

    @property
    def generation_file(self) -> Path | None:
        """The settings of generation beside the weights."""
        file = self.model_folder / "generation_config.json"
        return file if file.is_file() else None

    @cached_property
    def tokenizer_content(self) -> str:
        """Hash of the names and the bytes of all files that decide a text's tokens.

        They are the tokenizer and trusted code.
        """
        return hash_tokenizer(self.base, with_code=self.trust_remote_code)

    def tensors(self, keys: Iterable[str]) -> Iterator[tuple[str, "torch.Tensor"]]:
        """Name and values of the named weights, as stored, one at a time on the CPU.

        Each file is opened once, and only files that hold one of them.
        """
        keys_by_file: dict[Path, dict[str, str]] = defaultdict(dict)
        for key in keys:
            stored = self.weights[key]
            keys_by_file[stored.path][stored.name] = key
        for path, key_by_name in keys_by_file.items():
            for name, tensor in read_file(path, key_by_name):
                yield key_by_name[name], tensor

    def error(self, problem: str, remedy: str = "") -> DataError:
        """An error that names the model."""
        return DataError(f"model={self.name!r}: {problem}", remedy)


class Snapshot(NamedTuple):
    """A folder on this machine, and the commit of a hub model."""

    folder: Path
    commit: str | None


def find(
    model: str | Path,
    *,
    base: str | Path | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    with_weights: bool = True,
) -> Checkpoint:
    """The checkpoint of a hub id, a folder or a GGUF file; no weight is loaded yet.

    `base`: folder or id that gives configuration and tokenizer where the checkpoint has
    none; of an adapter, the model that it changes. Pickled weights are read only with
    `allow_pickle`, and then by torch's restricted unpickler. `with_weights`: whether
    they are asked for and downloaded, beside configuration and tokenizer. Raises
    DataError for an unknown, gated or unreachable model, a folder without weights or
    configuration, an adapter without its base or of another adapter, a model of another
    task, and pickles that were not allowed.
    """
    name = str(model)
    setting_files = list(_SETTINGS)
    if trust_remote_code:
        setting_files.append("*.py")
    weight_files = []
    if with_weights:
        weight_files += ["*.safetensors", *(PICKLES if allow_pickle else ())]
    argument = "model" if with_weights else "tokenizer"
    snapshot = _find_folder(argument, model, revision, setting_files + weight_files)

    weights: dict[str, StoredWeight] = {}
    if with_weights:
        weights = index_weights(name, snapshot.folder, allow_pickle)
    adapter_file = snapshot.folder / ADAPTER
    adapter = read_object(adapter_file) if adapter_file.is_file() else None
    has_configuration = (snapshot.folder / "config.json").is_file()
    # A tokenizer beside a configuration needs no base.
    is_complete = has_configuration and base is None and not with_weights
    if adapter is not None and not is_complete:
        from rmlab.scorers.checkpoints.adapters import Adapted, find_adapter

        options: dict[str, Any] = {
            "allow_pickle": allow_pickle,
            "trust_remote_code": trust_remote_code,
            "with_weights": with_weights,
        }
        base_model = _find_base(name, snapshot.folder, adapter, base, options)
        if isinstance(base_model, Adapted):
            problem = f"model={name!r}: an adapter's base is an adapter itself"
            remedy = f"merge {base_model.name!r} into its base (peft: merge_and_unload)"
            raise DataError(problem, remedy)
        return find_adapter(name, snapshot, adapter, base_model, weights)

    home = snapshot.folder
    if base is not None:
        home = _find_folder("base", base, None, setting_files).folder
    if not (home / "config.json").is_file():
        problem = f"model={name!r}: no config.json in {home}"
        remedy = (
            "pass base=, a folder or model id with the configuration and the tokenizer"
        )
        raise DataError(problem, remedy)

    return Checkpoint(
        name=name,
        folder=snapshot.folder,
        base=home,
        revision=snapshot.commit,
        weights=weights,
        settings=read_object(home / "config.json"),
        trust_remote_code=trust_remote_code,
    )


def _find_base(
    name: str,
    folder: Path,
    adapter: Mapping[str, Any],
    base: str | Path | None,
    options: dict[str, Any],
) -> Checkpoint:
    """The model that an adapter changes: `base`, or the one that it names.

    Raises DataError where it cannot be loaded, and where whole weights lie beside the
    adapter.
    """
    named = adapter.get("base_model_name_or_path")
    problem = f"model={name!r} holds an adapter of {named!r}"
    if (folder / "config.json").is_file() and any(folder.glob("model*.safetensors")):
        remedy = "keep the adapter and the model in two folders"
        raise DataError(f"{problem} beside a whole model", remedy)
    if base is not None:
        return find(base, **options)
    try:
        return find(str(named), revision=adapter.get("revision"), **options)
    except DataError as error:
        problem = f"{problem}, which could not be loaded ({error.problem})"
        remedy = "pass base= (of a server tokenizer=), the folder or id of that model"
        raise DataError(problem, remedy) from error


def _find_folder(
    argument: str, model: str | Path, revision: str | None, patterns: list[str]
) -> Snapshot:
    """The folder on this machine that an `argument` names, downloaded if need be."""
    libraries = ("torch", "transformers", "safetensors")
    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        command = install_command("score")
        raise ImportError(f"a model needs {' and '.join(missing)}: run {command}")
    if Path(model).is_dir():
        return Snapshot(Path(model), None)
    if Path(model).suffix.lower() == ".gguf":
        return Snapshot(from_gguf(model), None)
    if isinstance(model, Path) or not _MODEL_ID.fullmatch(model):
        problem = f"{argument}={str(model)!r}: no such folder"
        raise DataError(problem, "pass an existing folder or a model id 'owner/name'")
    repository, _, named_revision = model.partition("@")
    if named_revision and revision not in (None, named_revision):
        problem = f"{argument}={model!r} and revision={revision!r} differ"
        raise DataError(problem, "name the revision once")
    return _download(argument, repository, named_revision or revision, patterns)


def _download(
    argument: str, model: str, revision: str | None, patterns: list[str]
) -> Snapshot:
    from huggingface_hub import errors, snapshot_download

    refusals = (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, ConnectionError)
    try:
        path = snapshot_download(
            model,
            revision=revision,
            allow_patterns=patterns,
            ignore_patterns=_COPIES,
        )
    except refusals as error:
        problem = (
            f"{argument}={model!r}, revision={revision!r}: "
            f"the download from the Hub failed ({first_line(error)})"
        )
        remedy = (
            f"see https://huggingface.co/{model}, accept its terms "
            "and run `hf auth login`, or pass a folder"
        )
        if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError):
            remedy = "check the network, or pass a folder"
        raise DataError(problem, remedy) from error
    folder = Path(path)
    return Snapshot(folder, folder.name)
