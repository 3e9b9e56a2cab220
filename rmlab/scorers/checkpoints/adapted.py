"""A LoRA adapter over its base: the base's files, changed layer by layer as they are
read.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmlab.records import install_command
from rmlab.scorers.base import hash_parts
from rmlab.scorers.checkpoints.checkpoint import ADAPTER, Checkpoint, Snapshot
from rmlab.scorers.checkpoints.hashing import Digest, digests, hash_tokenizer
from rmlab.scorers.checkpoints.loading_errors import explain
from rmlab.scorers.checkpoints.settings import read_object
from rmlab.scorers.checkpoints.stored_weights import safetensors_sizes, stored_tensors
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_WRAPPERS = re.compile(r"\.(base_layer|modules_to_save)\.")
_HEADS = ("score.", "classifier.")
_CLASSES = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
}
# Ways to begin that leave the base as it is. The others (PiSSA, OLoRA ...) change it
# when training starts.
_STARTS = (True, False, "gaussian", "eva", "orthogonal")
# Changes of more than the weights of single layers.
_BEYOND = (
    "alora_invocation_tokens",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
)
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TOKENIZERS = ("tokenizer.json", _TOKENIZER_CONFIG, "tokenizer.model")
_MERGE = "merge the two (peft: merge_and_unload) and pass the result"


@dataclass(frozen=True, kw_only=True)
class Adapted(Checkpoint):
    """The files of an adapter, and the model that it changes.

    `base_model`: the model. `base`: where the tokenizer lies, which is the adapter's
    where it has one. `class_title`: transformers' class for its task. `stored_names`:
    each weight's name in transformers' class, and its name in its file.
    """

    base_model: Checkpoint
    class_title: str
    stored_names: Mapping[str, str]

    @property
    def adapter(self) -> dict[str, Any]:
        """The adapter's configuration file."""
        return read_object(self.folder / ADAPTER)

    @cached_property
    def config(self) -> "PreTrainedConfig":
        """The base's configuration, with the adapter's numbers of labels and tokens."""
        config = copy.deepcopy(self.base_model.config)
        if not self.own_keys:
            return config
        state = _build(self, config, self.class_title).state_dict()
        for key, tensor in self.tensors(self.own_keys):
            if key not in state or tensor.shape == state[key].shape:
                continue
            if key.startswith(_HEADS):
                config.num_labels = len(tensor)
            else:
                config.get_text_config().vocab_size = len(tensor)
        return config

    @cached_property
    def content(self) -> str:
        """Hash of the base's content, and of the adapter's files."""
        own = [self.folder / ADAPTER, self.folder / _WEIGHTS]
        base = Digest("base", "", self.base_model.content)
        return hash_parts([base, *digests("adapter", own)])

    @cached_property
    def tokenizer_content(self) -> str:
        """Hash of the files that decide a text's tokens, with those of the base."""
        own = Digest("adapter", "", hash_tokenizer(self.folder))
        base = Digest("base", "", self.base_model.tokenizer_content)
        return hash_parts([own, base])

    @property
    def model_folder(self) -> Path:
        """Where the base's files lie."""
        return self.base_model.folder

    @property
    def origin(self) -> dict[str, Any]:  # type: ignore[override]
        """For provenance: the base, and whose tokenizer and template it has."""
        return {
            "base": self.base_model.name,
            "base_revision": self.base_model.revision,
            "tokenizer": "adapter" if self.base == self.folder else "base",
            "tokenizer_template": "adapter" if self.has_template else "base",
        }

    @property
    def template_file(self) -> Path:
        """Where the adapter has a template, with a tokenizer or without."""
        return self.folder / "chat_template.jinja"

    @property
    def has_template(self) -> bool:
        """Whether the adapter has a template: in its file, or in its tokenizer's
        settings, where former releases of transformers put it.
        """
        if self.template_file.is_file():
            return True
        settings = self.folder / _TOKENIZER_CONFIG
        return settings.is_file() and bool(read_object(settings).get("chat_template"))

    @property
    def own_keys(self) -> list[str]:
        """Weights that the adapter has whole, such as the head."""
        own = self.folder / _WEIGHTS
        return [key for key, path in self.files.items() if path == own]

    @property
    def changed_keys(self) -> list[str]:
        """Weights that are not as the base has them."""
        return [*self.own_keys, *self._layers]

    @property
    def is_resized(self) -> bool:
        """Whether it has other tokens than its base."""
        text = self.config.get_text_config()
        base_text = self.base_model.config.get_text_config()
        return bool(text.vocab_size != base_text.vocab_size)

    def describe(self) -> str:
        """The adapter in a sentence, for people."""
        kind = "DoRA" if self.adapter.get("use_dora") else "LoRA"
        head = "its head is the base's, untrained by it"
        if any(key.startswith(_HEADS) for key in self.own_keys):
            head = "its trained head is in the adapter"
        layers = f"{len(self._layers)} layers of {self.base_model.name}"
        return f"{kind} of rank {self.adapter.get('r')} over {layers}; {head}"

    def refuse_task(self, *tasks: str) -> None:
        """Raise DataError for an adapter that was trained for none of the tasks."""
        task = self.adapter.get("task_type")
        if task is None or task in tasks:
            return
        remedy = "language models go to rmlab.implicit_reward"
        if task == "SEQ_CLS":
            remedy = "reward models go to rmlab.classifier"
        raise self.error(f"it is an adapter for {task}", remedy)

    def refuse_missing_head(self, missing: list[str]) -> None:
        """Raise DataError where neither the adapter nor its base has a head."""
        if missing:
            self.refuse_task("SEQ_CLS")
            module = missing[0].partition(".")[0]
            problem = f"the trained head is not in the adapter ({missing[0]})"
            raise self.error(problem, f"train with modules_to_save=[{module!r}]")

    def tensors(self, keys: Iterable[str]) -> Iterator[tuple[str, "torch.Tensor"]]:
        """Name and values of the named weights, one at a time; changed layers are
        float32.
        """
        for key in keys:
            # Each in a mapping of its own, so that no page of a changed layer stays.
            path = self.files[key]
            ((_, tensor),) = stored_tensors(path, [self.stored_names[key]])
            is_own = path == self.folder / _WEIGHTS
            if not is_own and key in self._layers:
                tensor = _merge(self._layers[key], tensor)
            yield key, tensor

    @cached_property
    def _layers(self) -> dict[str, Any]:
        """peft's layers by the name of the weight that each changes; their base weights
        are empty.
        """
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.tuners_utils import BaseTunerLayer

        model = _build(self, self.config, self.class_title)
        remedy = f"pass base=, the model that it was trained on; or {_MERGE}"
        with explain(self.name, "put the adapter on its base", remedy):
            config = LoraConfig.from_pretrained(str(self.folder))
            # Weights that the adapter has whole are read as they are.
            config.modules_to_save = None
            config.init_lora_weights = False
            inject_adapter_in_model(config, model, low_cpu_mem_usage=True)
            _assign_factors(model, self.folder / _WEIGHTS)

        layers = {}
        for name, module in model.named_modules():
            if isinstance(module, BaseTunerLayer):
                key = f"{name}.weight"
                if self.files.get(key) is None:
                    problem = (
                        f"the adapter changes {key}, which no file of its base has"
                    )
                    raise self.error(problem, _MERGE)
                layers[key] = module
        return layers


def overlay(name: str, snapshot: Snapshot, base_model: Checkpoint) -> Adapted:
    """The checkpoint of a LoRA adapter and its base; DataError for another adapter."""
    if find_spec("peft") is None:
        raise ImportError(f"an adapter needs peft: run {install_command('adapters')}")
    model = outline(name, snapshot, base_model)
    path = snapshot.folder / _WEIGHTS
    if not path.is_file():
        problem = f"model={name!r}: an adapter without {_WEIGHTS}"
        raise DataError(problem, "save it anew, with safetensors")

    own_names = {}
    n_own = 0
    for stored_name, size in safetensors_sizes(path).items():
        # Of resized embeddings peft may save the base's too.
        if ".lora_" not in stored_name and ".original_module." not in stored_name:
            key = _WRAPPERS.sub(".", stored_name.removeprefix(_PREFIX))
            own_names[key] = stored_name
            n_own += size

    title = model.class_title
    if any(key.startswith(_HEADS) for key in own_names):
        title = _CLASSES["SEQ_CLS"]
    base_names = _name_weights(base_model, _build(base_model, base_model.config, title))
    files = {key: base_model.files[stored] for key, stored in base_names.items()}
    return replace(
        model,
        files=files | dict.fromkeys(own_names, path),
        n_weights=base_model.n_weights + n_own,
        class_title=title,
        stored_names=base_names | own_names,
    )


def outline(name: str, snapshot: Snapshot, base_model: Checkpoint) -> Adapted:
    """The same without weights; DataError for an adapter of another kind."""
    folder = snapshot.folder
    adapter = read_object(folder / ADAPTER)
    _refuse_kind(name, adapter)
    has_tokenizer = any((folder / file).is_file() for file in _TOKENIZERS)
    return Adapted(
        name=name,
        folder=folder,
        base=folder if has_tokenizer else base_model.base,
        revision=snapshot.commit,
        files={},
        n_weights=0,
        settings=base_model.settings,
        trust_remote_code=base_model.trust_remote_code,
        base_model=base_model,
        class_title=_CLASSES.get(str(adapter.get("task_type")), _CLASSES["CAUSAL_LM"]),
        stored_names={},
    )


def _refuse_kind(name: str, adapter: Mapping[str, Any]) -> None:
    """Raise DataError for an adapter that is more than changes of single layers."""
    kind = adapter.get("peft_type")
    if kind != "LORA":
        raise DataError(f"model={name!r} is an adapter of the kind {kind}", _MERGE)
    task = adapter.get("task_type")
    if task is not None and task not in _CLASSES:
        problem = f"model={name!r} is an adapter for {task}"
        raise DataError(problem, f"allowed: {', '.join(_CLASSES)}")

    start = adapter.get("init_lora_weights", True)
    if start not in _STARTS:
        problem = f"model={name!r}: init_lora_weights={start!r} changes the base too"
        raise DataError(problem, _MERGE)
    for setting in _BEYOND:
        if adapter.get(setting):
            problem = f"model={name!r}: an adapter with {setting}"
            raise DataError(problem, _MERGE)


def _build(
    checkpoint: Checkpoint, config: "PreTrainedConfig", title: str
) -> "PreTrainedModel":
    """The model of a configuration, by the name of its Auto class, without weights."""
    import torch
    import transformers

    auto_class = getattr(transformers, title)
    remedy = f"pass the base that it was trained on, or {_MERGE}"
    with explain(checkpoint.name, f"build {title}", remedy), torch.device("meta"):
        model: PreTrainedModel = auto_class.from_config(
            config, trust_remote_code=checkpoint.trust_remote_code
        )
    return model


def _name_weights(checkpoint: Checkpoint, model: "PreTrainedModel") -> dict[str, str]:
    """The stored name of each weight, by its name in the model where that has it.

    Files may hold the backbone alone, whose names lack its prefix.
    """
    keys = model.state_dict().keys()
    prefix = f"{model.base_model_prefix}."
    names = {}
    for stored in checkpoint.files:
        key = stored
        if f"{prefix}{stored}" in keys:
            key = f"{prefix}{stored}"
        names[key] = stored
    return names


def _assign_factors(model: "PreTrainedModel", path: Path) -> None:
    """Give peft's layers the factors in an adapter's file; ValueError unless both have
    the same.
    """
    tensors = {}
    for stored_name, tensor in stored_tensors(path, safetensors_sizes(path)):
        if ".lora_" in stored_name:
            tensors[stored_name.removeprefix(_PREFIX)] = tensor.float()

    state = {}
    for key in model.state_dict():
        if ".lora_" in key:
            stored_name = key.replace(".default", "")
            if ".lora_magnitude_vector" in key:
                stored_name = stored_name.removesuffix(".weight")
            if stored_name not in tensors:
                raise ValueError(f"the adapter has no {stored_name}")
            state[key] = tensors.pop(stored_name)
    if tensors:
        raise ValueError(f"the base has no place for {min(tensors)}")
    model.load_state_dict(state, strict=False, assign=True)


def _merge(layer: Any, tensor: "torch.Tensor") -> "torch.Tensor":
    """A layer's weight with the change added by peft, in float32."""
    import torch

    base_layer = layer.get_base_layer()
    empty = base_layer.weight
    weight = tensor.to(torch.float32, copy=True)
    base_layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    with torch.no_grad():
        layer.merge()
    merged: torch.Tensor = base_layer.weight.data
    base_layer.weight = empty
    layer.merged_adapters.clear()
    return merged
