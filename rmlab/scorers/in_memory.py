"""Models that somebody holds in memory, in training or not, in a checkpoint's place."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rmlab.scorers.checkpoints.adapters import refuse_kind
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.hashing import hash_tokenizer
from rmlab.scorers.checkpoints.stored_weights import StoredWeight
from rmlab.tables import DataError, require_text

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

# Modules of FSDP, and weights of torch's fully_shard, of which each process has a part.
_SHARDED = ("FullyShardedDataParallel", "DTensor")


class ModelInMemory:
    """A transformers model and its tokenizer, with what a `Checkpoint` tells of files.

    Nothing of the model is changed: weights, mode, configuration, hooks, device and
    number type stay. Weights may change between two runs.

    Parameters
    ----------
    model : PreTrainedModel
        Also one that peft, DistributedDataParallel or torch.compile has wrapped.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer, whose template writes the texts.
    fingerprint : str, optional
        Names the weights as they are now, such as "run-7-step-300". Without one the
        scores cannot be stored.

    Raises
    ------
    DataError
        For a model that is spread over processes.
    """

    revision = None
    trust_remote_code = False
    # What else the weights come from is not known.
    origin = Checkpoint.origin

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        fingerprint: str | None = None,
    ) -> None:
        if fingerprint is not None:
            require_text("fingerprint", fingerprint)
        _refuse_sharded(model)
        self.model = _unwrap(model)
        self.tokenizer = tokenizer
        self.content = fingerprint

    @property
    def name(self) -> str:
        """The folder or id that the model was loaded from, else its class."""
        return self.config.name_or_path or type(self.model).__name__

    @property
    def title(self) -> str:
        """The model's name in tables."""
        folder = Path(self.name)
        return folder.name if folder.is_absolute() else self.name

    @property
    def config(self) -> "PreTrainedConfig":
        """The transformers configuration."""
        return self.model.config

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as plain values; the class is the model's as it is now."""
        architectures = [type(self.model).__name__]
        return self.config.to_dict() | {"architectures": architectures}

    @property
    def weights(self) -> Mapping[str, StoredWeight]:
        """All weights; none has a file."""
        return {
            key: StoredWeight(Path(), key, tuple(tensor.shape))
            for key, tensor in self.model.state_dict().items()
        }

    @cached_property
    def tokenizer_content(self) -> str:
        """Hash of the files that the tokenizer saves."""
        with TemporaryDirectory() as folder:
            self.tokenizer.save_pretrained(folder)
            return hash_tokenizer(Path(folder))

    def tensors(self, keys: Iterable[str]) -> Iterator[tuple[str, "torch.Tensor"]]:
        """Yield name and values of the named weights."""
        state = self.model.state_dict()
        for key in keys:
            yield key, state[key].detach()

    def error(self, problem: str, remedy: str = "") -> DataError:
        """Return an error that names the model."""
        return DataError(f"model={self.name!r}: {problem}", remedy)

    def refuse_moves(self, **options: str | None) -> None:
        """Raise DataError where a device or a number type is asked for."""
        for option, value in options.items():
            if value is not None:
                problem = (
                    f"{option}={value!r}: the model is in memory and stays as it is"
                )
                raise DataError(problem, f"leave {option} out, or move the model")

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch the model to evaluation, module by module; each is afterwards as it
        was before.
        """
        modules = list(self.model.modules())
        was_training = [module.training for module in modules]
        self.model.eval()
        try:
            yield
        finally:
            for module, training in zip(modules, was_training, strict=True):
                module.training = training

    def require_language(self) -> None:
        """Raise DataError where the model gives no tokens probabilities."""
        if self.model.get_output_embeddings() is None:
            problem = f"model={self.name!r} is no language model"
            raise DataError(problem, "reward models go to rmlab.classifier")


# Where a model comes from.
Source = Checkpoint | ModelInMemory


def open_model(
    model: "str | Path | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    fingerprint: str | None = None,
    **options: Any,
) -> Source:
    """Return a model in memory, or the checkpoint of an id or a folder, found with
    `options`.

    Raises DataError where a model in memory has no tokenizer, and where `tokenizer` or
    `fingerprint` stand beside a checkpoint, which has its own.
    """
    is_stored = isinstance(model, str | Path)
    foreign: dict[str, Any] = options
    if is_stored:
        foreign = {"tokenizer": tokenizer, "fingerprint": fingerprint}
    for name, value in foreign.items():
        if value not in (None, False):
            where = "of a checkpoint" if is_stored else "of a model in memory"
            raise DataError(f"{name}: no option {where}", f"leave {name} out")
    if isinstance(model, str | Path):
        return find(model, **options)
    if tokenizer is None:
        problem = "tokenizer: not given for a model in memory"
        raise DataError(problem, "pass the tokenizer whose template writes its texts")
    return ModelInMemory(model, tokenizer, fingerprint)


def _unwrap(model: Any) -> "PreTrainedModel":
    """The transformers model inside wrappers of torch and peft, with its adapters.

    Raises DataError where an adapter is not in the model's layers.
    """
    from transformers import PreTrainedModel

    while not isinstance(model, PreTrainedModel):
        # DistributedDataParallel, torch.compile, and peft, which keeps adapters in the
        # model's layers.
        if hasattr(model, "get_base_model"):
            for config in getattr(model, "peft_config", {}).values():
                name = config.base_model_name_or_path or type(model).__name__
                refuse_kind(name, config)
            model = model.get_base_model()
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif hasattr(model, "module"):
            model = model.module
        else:
            problem = f"model: {type(model).__name__} is no model of transformers"
            raise DataError(problem, "pass a folder, a model id or a PreTrainedModel")
    return model


def _refuse_sharded(model: Any) -> None:
    """Raise DataError for a model of which this process holds a part."""
    from torch.nn import Module

    if not isinstance(model, Module):
        return
    for part in (*model.modules(), *model.parameters()):
        # DeepSpeed's stage 3 numbers what it spreads.
        if type(part).__name__ in _SHARDED or hasattr(part, "ds_id"):
            problem = "model: its weights are spread over processes (FSDP or DeepSpeed)"
            remedy = "save it, and score the folder; or gather it into one process"
            raise DataError(problem, remedy)
