"""The transformer below a head: which device and number type it gets, and loading it
without a random weight.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rmlab.inference.backbone import Backbone
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, explain, first_line
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

_DTYPES = ("float32", "bfloat16", "float16")

# Constants that older versions wrote into checkpoints and newer ones compute.
_BUFFERS = re.compile(
    r"(^|\.)(inv_freq|position_ids|masked_bias|(attn|attention|self_attn)\.bias|num_batches_tracked)$"
)
# Output layers of pretraining, which a reward model carries along and never reads.
_LANGUAGE = re.compile(
    r"(^|\.)(lm_head|embed_out|cls|mtp|lm_predictions|lm_loss|mask_predictions|generator_(predictions|lm_head)|"
    r"discriminator_predictions|predictions|pooler|seq_relationship|pred_layer)(\.|$)|^decoder\.(bias|weight)$"
)


def device(requested: "str | torch.device | None" = None) -> "torch.device":
    """The device to score on: the one asked for, otherwise the GPU where there is one,
    otherwise the CPU.
    """
    import torch

    if requested is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(requested)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        options = "allowed: 'cpu', and where torch sees one 'cuda', 'cuda:0' ..., 'mps'"
        raise DataError(
            f"device={requested!r} cannot be used here ({first_line(error)}); {options}"
        ) from error
    return target


def dtype(
    requested: "str | torch.dtype | None", device: "torch.device"
) -> "torch.dtype":
    """The number type of the backbone: the one asked for, otherwise bfloat16 on a GPU
    that has it, else float32.
    """
    import torch

    if requested is None:
        # Before Ampere (T4, V100) bfloat16 is emulated, many times slower.
        is_fast = device.type == "cuda" and (
            torch.version.hip or torch.cuda.get_device_capability(device)[0] >= 8
        )
        return torch.bfloat16 if is_fast else torch.float32
    name = str(requested).removeprefix("torch.")
    if name not in _DTYPES:
        raise DataError(
            f"dtype={requested!r}; allowed: {', '.join(map(repr, _DTYPES))}"
        )
    return cast("torch.dtype", getattr(torch, name))


def window(config: "PreTrainedConfig") -> int | None:
    """The longest text, in tokens, that the model's positions allow; None where
    positions are only relative.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if getattr(text, "relative_attention", False) and not getattr(
        text, "position_biased_input", True
    ):
        return None
    longest = getattr(text, "max_position_embeddings", None) or getattr(
        text, "n_positions", None
    )
    longest = longest or getattr(
        text, "max_target_positions", None
    )  # of Whisper's decoder
    # XLNet says -1: its positions are relative.
    if (
        longest is None
        or longest < 1
        or getattr(text, "relative_attention_num_buckets", None)
    ):
        return None
    # RoBERTa counts positions from behind the padding index, so two of its embeddings
    # are never used.
    return int(longest) - (2 if "roberta" in text.model_type else 0)


def encodes(config: "PreTrainedConfig") -> bool:
    """Whether a model of this kind reads texts in both directions, so that they cannot
    share what they begin with.

    Guessed from model_type before loading; affects order only.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def load(
    checkpoint: Checkpoint,
    loader: str,
    *,
    device: "torch.device",
    dtype: "torch.dtype",
    head: Iterable[str] = (),
) -> "PreTrainedModel":
    """The model that transformers' `loader` (such as "AutoModel") makes of the
    checkpoint, ready to score.

    A model that does not fit on one GPU is spread over the devices by accelerate.
    `head`: weights of the checkpoint that are read apart from it. Raises DataError
    where any weight of the model is not in the checkpoint, as it would be random, and
    where any weight of the checkpoint is used by nothing.
    """
    import transformers

    auto_class = getattr(transformers, loader)
    empty = empty_model(checkpoint, auto_class)
    name = next(iter(empty.state_dict()))
    # What stands before the backbone's own names in the checkpoint, such as
    # "transformer."; often nothing.
    stored_names = (
        key for key in checkpoint.files if key == name or key.endswith(f".{name}")
    )
    prefix = (
        min(stored_names, key=len, default=name).removesuffix(name)
        if loader == "AutoModel"
        else ""
    )
    options: dict[str, Any] = {"dtype": dtype}
    if device.type == "cuda":
        options["device_map"] = (
            {"": device} if fits(checkpoint, device, dtype) else "auto"
        )
    if all(path.suffix != ".safetensors" for path in checkpoint.files.values()):
        # An Auto class wants a folder even where it is given the weights; the class it
        # stands for does not.
        weights = checkpoint.read(
            key for key in checkpoint.files if key.startswith(prefix)
        )
        auto_class, folder = type(empty), None
        options["state_dict"] = {
            key.removeprefix(prefix): weights[key] for key in weights
        }
    else:
        folder = checkpoint.folder
        options |= {
            "use_safetensors": True,
            "trust_remote_code": checkpoint.trust_remote_code,
        }
        options |= {"key_mapping": {f"^{re.escape(prefix)}": ""}} if prefix else {}
    options |= {
        "config": checkpoint.config,
        "output_loading_info": True,
    }  # the latter adds a report to the model
    remedy = "check that the folder is complete and that its configuration belongs to its weights"
    with explain(checkpoint.name, f"load it with {loader}", remedy):
        model, report = auto_class.from_pretrained(folder, **options)
    refuse_new_weights(checkpoint.name, sorted(report["missing_keys"]))
    refuse_unused_weights(
        checkpoint.name, report["unexpected_keys"], {*model.state_dict(), *head}
    )
    model.eval().requires_grad_(False)
    if "device_map" not in options:
        model.to(device)
    if not getattr(model.config, "is_encoder_decoder", False):
        _try_backbone(model, checkpoint, loader, str(dtype).removeprefix("torch."))
    return cast("PreTrainedModel", model)


def refuse_new_weights(name: str, missing: list[str]) -> None:
    """Raise DataError where weights of the model are not in the checkpoint."""
    if missing:
        where = f"model={name!r}: {len(missing)} weights are not in the checkpoint ({', '.join(missing[:4])})"
        raise DataError(
            f"{where} and would be random; use a trained reward model, or name its head with head="
        )


def refuse_unused_weights(
    name: str, stored: Iterable[str], read: Iterable[str]
) -> None:
    """Raise DataError where `stored` weights of the checkpoint are not among those that
    are `read`.

    A configuration that names fewer layers than there are would otherwise score through
    half a model, and a head's bias would be dropped. Remains of pretraining, and copies
    of used weights under another prefix, may stay.
    """
    read_keys = set(read)
    unused = sorted(
        key
        for key in stored
        if key not in read_keys and not _is_harmless(key, read_keys)
    )
    if unused:
        where = f"model={name!r}: {len(unused)} weights of the checkpoint are used by nothing ({', '.join(unused[:4])})"
        remedy = "compare num_hidden_layers with the published configuration, or name the head with head="
        raise DataError(f"{where}; {remedy}")


def _is_harmless(key: str, read_keys: set[str]) -> bool:
    parts = key.split(".")
    is_layer = any(part.isdigit() for part in parts)
    is_pretraining = bool(_LANGUAGE.search(key)) and not is_layer
    return (
        bool(_BUFFERS.search(key))
        or is_pretraining
        or any(".".join(parts[i:]) in read_keys for i in range(1, 5))
    )


def base_model(model: "PreTrainedModel") -> "PreTrainedModel":
    """The transformer below the head, which transformers annotates as any module."""
    return cast("PreTrainedModel", model.base_model)


def _try_backbone(
    model: "PreTrainedModel", checkpoint: Checkpoint, loader: str, dtype: str
) -> None:
    """One short pass: raise DataError for an architecture that does not run in half
    precision (DeBERTa v1).
    """
    where, backbone = (
        f"its architecture {checkpoint.config.model_type!r}",
        getattr(model, model.base_model_prefix, model),
    )
    if loader != "AutoModel" and backbone is model:
        raise checkpoint.error(
            f"{where} cannot be scored: {type(model).__name__} does not name the backbone"
        )
    remedy = (
        "score with dtype='float32'"
        if dtype != "float32"
        else "rmlab forwards token ids and nothing else"
    )
    with explain(
        checkpoint.name, f"forward it: {where} does not run in {dtype}", remedy
    ):
        Backbone(backbone).alone(
            np.arange(5, 13) % model.config.get_text_config().vocab_size,
            np.array([0]),
        )


def fits(
    checkpoint: Checkpoint,
    device: "torch.device",
    dtype: "torch.dtype",
    *,
    share: float = 0.85,
) -> bool:
    """Whether the weights fill at most `share` of the memory that is free on a GPU;
    always true on other devices.
    """
    import torch

    if device.type != "cuda":
        return True
    return bool(
        checkpoint.n_weights * dtype.itemsize
        <= share * torch.cuda.mem_get_info(device)[0]
    )


def empty_model(checkpoint: Checkpoint, auto_class: Any) -> "PreTrainedModel":
    """The model that an Auto class makes of the configuration, without weights;
    DataError where it makes none.
    """
    import torch

    task, options = (
        f"build {auto_class.__name__} of its configuration",
        {"trust_remote_code": checkpoint.trust_remote_code},
    )
    remedy = "use the configuration that was published with the weights, or name its head with head="
    with explain(checkpoint.name, task, remedy), torch.device("meta"):
        return cast(
            "PreTrainedModel", auto_class.from_config(checkpoint.config, **options)
        )


def count_weights(checkpoint: Checkpoint, *, implicit: bool) -> int:
    """How many weights the model has that transformers makes of the configuration;
    nothing of it is built in memory.
    """
    import transformers

    auto_class = (
        transformers.AutoModelForCausalLM if implicit else transformers.AutoModel
    )
    return sum(
        weight.numel() for weight in empty_model(checkpoint, auto_class).parameters()
    )
