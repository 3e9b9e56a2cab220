"""The files of an adapter and of the model that it changes; peft loads the two."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rmlab.records import install_command
from rmlab.scorers.base import hash_parts
from rmlab.scorers.checkpoints.checkpoint import ADAPTER, Checkpoint, Snapshot
from rmlab.scorers.checkpoints.hashing import Digest, digests
from rmlab.scorers.checkpoints.loading_errors import explain
from rmlab.scorers.checkpoints.stored_weights import VALUE_HEAD, StoredWeight
from rmlab.tables import DataError

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedConfig

PREFIX = "base_model.model."
"""What peft puts before the names of an adapted model's weights."""
_WRAPPERS = re.compile(r"\.(base_layer|modules_to_save(\.default)?)(?=\.)")
# Weights that an adapter has whole have none of these in their names.
_FACTORS = re.compile(r"\.(lora|ia3|hada|lokr|oft|boft|vera|hra|fourierft|shira)_")
_HEADS = ("score.", "classifier.")
_CLASSES = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "CAUSAL_LM": "AutoModelForCausalLM",
}
# Ways to begin that change the base when the adapter is put on it.
_CHANGED_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")
# Kinds that change all texts in the same layers.
_KINDS = (
    "LORA",
    "ADALORA",
    "IA3",
    "LOHA",
    "LOKR",
    "OFT",
    "BOFT",
    "VERA",
    "HRA",
    "FOURIERFT",
    "SHIRA",
)
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


@dataclass(frozen=True, kw_only=True)
class Adapted(Checkpoint):
    """The files of an adapter, and the model that it changes.

    `base_model`: the model. `base`: where the tokenizer lies, which is the adapter's
    where it has one. `adapter`: its configuration file. `own_keys`: weights that it has
    whole, such as the head. `has_base_weights`: whether those of the base stand beside
    them.
    """

    base_model: Checkpoint
    adapter: dict[str, Any]
    own_keys: tuple[str, ...]
    has_base_weights: bool = False

    @cached_property
    def config(self) -> "PreTrainedConfig":
        """The base's configuration, which may get the adapter's number of labels."""
        return copy.deepcopy(self.base_model.config)

    @cached_property
    def content(self) -> str:
        """Hash of the base's content, and of the adapter's files."""
        own = [*self.folder.glob("adapter_model.*"), *self.folder.glob("value_head.*")]
        base = Digest("base", "", self.base_model.content)
        return hash_parts([base, *digests("adapter", [self.folder / ADAPTER, *own])])

    @property
    def model_folder(self) -> Path:
        """Where the base's files lie."""
        return self.base_model.folder

    @property
    def origin(self) -> dict[str, Any]:  # type: ignore[override]
        """For provenance: the base, and whose tokenizer it has."""
        return {
            "base": self.base_model.name,
            "base_revision": self.base_model.revision,
            "tokenizer": "adapter" if self.base == self.folder else "base",
        }

    @property
    def loader(self) -> str:
        """The name of transformers' class on which the adapter was trained."""
        task = self.adapter.get("task_type")
        if task is None:
            has_head = any(key.startswith(_HEADS) for key in self.weights)
            task = "SEQ_CLS" if has_head else "CAUSAL_LM"
        return _CLASSES[task]

    def refuse_task(self, *tasks: str) -> None:
        """Raise DataError for an adapter that was trained for none of the tasks."""
        task = self.adapter.get("task_type")
        if task is None or task in tasks:
            return
        remedy = "language models go to rmlab.implicit_reward"
        if task == "SEQ_CLS":
            remedy = "reward models go to rmlab.classifier"
        raise self.error(f"it is an adapter for {task}", remedy)


def plain_name(key: str) -> str:
    """A weight's name without what peft puts into it.

    >>> plain_name("score.modules_to_save.default.weight")
    'score.weight'
    """
    return _WRAPPERS.sub("", key)


def find_adapter(
    name: str,
    snapshot: Snapshot,
    adapter: dict[str, Any],
    base_model: Checkpoint,
    weights: Mapping[str, StoredWeight],
) -> Adapted:
    """The checkpoint of an adapter and its base; DataError for one that cannot be
    scored. `weights`: those of its folder, none where they are not asked for.
    """
    if weights:
        if find_spec("peft") is None:
            command = install_command("adapters")
            raise ImportError(f"an adapter needs peft: run {command}")
        config = read_config(name, snapshot.folder)
        refuse_kind(name, config)
        task = config.task_type
        if task is not None and task not in _CLASSES:
            problem = f"model={name!r} is an adapter for {task}"
            raise DataError(problem, f"allowed: {', '.join(_CLASSES)}")
        start = str(adapter.get("init_lora_weights"))
        if start.startswith(_CHANGED_BASE):
            problem = f"model={name!r}: init_lora_weights={start!r} changes its base"
            remedy = "merge the two (peft: merge_and_unload) and pass the result"
            raise DataError(problem, remedy)
    own: dict[str, StoredWeight] = {}
    has_base_weights = False
    for stored in weights.values():
        # Of resized embeddings peft may save the base's too.
        if ".original_module." in stored.name or ".base_layer." in stored.name:
            has_base_weights = True
        is_factor = _FACTORS.search(stored.name) or ".original_module." in stored.name
        if stored.path.stem == VALUE_HEAD or not is_factor:
            own[plain_name(stored.name.removeprefix(PREFIX))] = stored
    folder = snapshot.folder
    has_tokenizer = any((folder / file).is_file() for file in _TOKENIZERS)
    return Adapted(
        name=name,
        folder=folder,
        base=folder if has_tokenizer else base_model.base,
        revision=snapshot.commit,
        weights={**base_model.weights, **own},
        settings=base_model.settings,
        trust_remote_code=base_model.trust_remote_code,
        base_model=base_model,
        adapter=adapter,
        own_keys=tuple(own),
        has_base_weights=has_base_weights,
    )


def read_config(name: str, folder: Path) -> "PeftConfig":
    """The configuration of an adapter, as peft reads it."""
    from peft import PeftConfig

    with explain(name, "read its adapter", "use the files that peft saved"):
        return cast("PeftConfig", PeftConfig.from_pretrained(str(folder)))


def refuse_kind(name: str, config: "PeftConfig") -> None:
    """Raise DataError for an adapter that does not change all texts in the same
    layers.
    """
    kind = getattr(config.peft_type, "value", config.peft_type)
    # It acts behind tokens of its own alone.
    if getattr(config, "alora_invocation_tokens", None):
        kind = "aLoRA"
    if kind not in _KINDS:
        problem = f"model={name!r}: an adapter of the kind {kind} is not known here"
        raise DataError(problem, f"allowed: {', '.join(_KINDS)}")
