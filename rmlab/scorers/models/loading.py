"""transformers models made of checkpoints: device and number type, loading, and what is
refused.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rmlab.scorers.checkpoints.adapters import (
    PREFIX,
    Adapted,
    plain_name,
    read_config,
)
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.checkpoints.loading_errors import explain, first_line
from rmlab.scorers.in_memory import ModelInMemory, Source
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedConfig, PreTrainedModel

_DTYPES = ("float32", "bfloat16", "float16")

# Settings that hold the longest text; the last is MPT's.
_WINDOWS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
)

# RoBERTa and its like count positions from behind the index of the padding token.
_PADDED_POSITIONS = re.compile(
    "roberta|camembert|xmod|ibert|mpnet|longformer|data2vec-text|luke"
)

# Constants that older versions wrote into checkpoints and newer ones compute.
_BUFFERS = re.compile(
    r"(^|\.)(inv_freq|position_ids|masked_bias|(attn|attention|self_attn)\.bias|"
    r"num_batches_tracked)$"
)
# Output layers of pretraining, which a reward model carries along and never reads.
_LANGUAGE = re.compile(
    r"(^|\.)(lm_head|embed_out|cls|mtp|lm_predictions|lm_loss|mask_predictions|"
    r"generator_(predictions|lm_head)|discriminator_predictions|predictions|pooler|"
    r"seq_relationship|pred_layer)(\.|$)|^decoder\.(bias|weight)$"
)


def device(requested: "str | torch.device | None" = None) -> "torch.device":
    """The device to score on: as requested, or else a GPU, or else the CPU."""
    import torch

    if requested is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(requested)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        problem = f"device={requested!r} cannot be used here ({first_line(error)})"
        remedy = "allowed: 'cpu', and where torch sees one 'cuda', 'cuda:0' ..., 'mps'"
        raise DataError(problem, remedy) from error
    return target


def dtype(
    requested: "str | torch.dtype | None", device: "torch.device"
) -> "torch.dtype":
    """The number type of the backbone: as requested, or else the best for the device.

    This is bfloat16 on a GPU that has it, and float32 elsewhere.
    """
    import torch

    if requested is not None:
        name = str(requested).removeprefix("torch.")
        if name not in _DTYPES:
            allowed = ", ".join(map(repr, _DTYPES))
            raise DataError(f"dtype={requested!r}", f"allowed: {allowed}")
        return cast("torch.dtype", getattr(torch, name))

    if device.type != "cuda":
        return torch.float32
    # Before Ampere (T4, V100) bfloat16 is emulated, many times slower.
    if torch.version.hip or torch.cuda.get_device_capability(device)[0] >= 8:
        return torch.bfloat16
    return torch.float32


def window(config: "PreTrainedConfig") -> int | None:
    """The longest text, in tokens, that the model's positions allow.

    None where positions are only relative.
    """
    text = config.get_text_config()
    has_biased_input = getattr(text, "position_biased_input", True)
    if getattr(text, "relative_attention", False) and not has_biased_input:
        return None
    # MPNet has positions of both kinds.
    is_padded = _PADDED_POSITIONS.search(text.model_type) is not None
    if getattr(text, "relative_attention_num_buckets", None) and not is_padded:
        return None

    longest = None
    for name in _WINDOWS:
        longest = longest or getattr(text, name, None)
    # XLNet says -1: its positions are relative.
    if longest is None or longest < 1:
        return None
    # Positions behind the padding index: the embeddings up to it are never used.
    if is_padded:
        pad = getattr(text, "pad_token_id", None)
        longest -= 2 if pad is None else pad + 1
    return int(longest)


def vocabulary_size(model: "PreTrainedModel") -> int:
    """The number of embeddings; Canine, which has none, reads code points."""
    try:
        embeddings: Any = model.get_input_embeddings()
    except NotImplementedError:
        return sys.maxunicode + 1
    return len(embeddings.weight)


def encodes(config: "PreTrainedConfig") -> bool:
    """Whether a model of this kind reads texts in both directions.

    Such texts cannot share a beginning. Guessed from model_type before loading; affects
    order only.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def load(
    checkpoint: Source,
    loader: str,
    *,
    device: "torch.device",
    dtype: "torch.dtype",
    head: Iterable[str] = (),
    adapter: Adapted | None = None,
) -> "PreTrainedModel":
    """The model that transformers' `loader` (such as "AutoModel") makes of the files,
    with its adapter in it; of one in memory the model itself.

    It is ready to score. A model that does not fit on one GPU is spread over the
    devices by accelerate. `head`: weights of the checkpoint that are read apart from
    it. `adapter`: what is put on this base afterwards. Raises DataError where any
    weight of either is not in the checkpoint, as it would be random, and where any
    weight of the checkpoint is used by nothing.
    """
    if isinstance(checkpoint, ModelInMemory):
        return checkpoint.model
    if isinstance(checkpoint, Adapted):
        adapted = load_adapted(
            checkpoint, loader, device=device, dtype=dtype, head=head
        )
        return cast("PreTrainedModel", adapted.get_base_model())

    model, report = _read_weights(checkpoint, loader, device, dtype, adapter)
    replaced = () if adapter is None else adapter.own_keys
    new_keys = {*report["missing_keys"]}
    for key, *_ in report["mismatched_keys"]:
        new_keys.add(key)
    if loader == "AutoModel":
        # A pooler is above the states, which a head that is read apart takes.
        new_keys = {key for key in new_keys if not key.startswith("pooler.")}
    new_keys |= {*head}.difference(checkpoint.weights)
    refuse_new_weights(checkpoint.name, sorted(new_keys.difference(replaced)))
    read_keys = {*model.state_dict(), *head}
    refuse_unused_weights(checkpoint.name, report["unexpected_keys"], read_keys)

    model.eval().requires_grad_(False)
    if not hasattr(model, "hf_device_map"):
        model.to(device)
    return cast("PreTrainedModel", model)


def load_adapted(
    checkpoint: Adapted,
    loader: str,
    *,
    device: "torch.device",
    dtype: "torch.dtype",
    head: Iterable[str] = (),
) -> "PeftModel":
    """The base with the adapter in it, as peft loads it; arguments as of `load`.

    Nothing is merged: peft's merge changes both ends of tied embeddings, and rounds in
    half precision.
    """
    from peft import get_peft_model

    if loader == "AutoModel":
        # Its layers have the names of the class that was trained.
        loader = checkpoint.loader
    model = load(
        checkpoint.base_model,
        loader,
        device=device,
        dtype=dtype,
        head=head,
        adapter=checkpoint,
    )
    _resize(model, checkpoint)
    config = read_config(checkpoint.name, checkpoint.folder)
    config.inference_mode = True
    remedy = "pass base=, the model that it was trained on"
    with explain(checkpoint.name, "put the adapter on its base", remedy):
        adapted = get_peft_model(model, config)
        result = adapted.load_adapter(str(checkpoint.folder), "default")
        known_names = {plain_name(f"{PREFIX}{key}") for key in model.state_dict()}
        mismatches = list(result.missing_keys)
        for key in result.unexpected_keys:
            if plain_name(key) not in known_names:
                mismatches.append(key)
        if mismatches:
            raise ValueError(f"{mismatches[0]} is in one of the two only")
    adapted.eval().requires_grad_(False)
    return cast("PeftModel", adapted)


def _resize(model: "PreTrainedModel", checkpoint: Adapted) -> None:
    """Give the base as many tokens as the adapter's own embeddings have."""
    embeddings = model.get_input_embeddings()
    for name, module in model.named_modules():
        key = f"{name}.weight"
        if module is embeddings and key in checkpoint.own_keys:
            n_tokens = checkpoint.weights[key].shape[0]
            if n_tokens != len(embeddings.weight):
                model.resize_token_embeddings(n_tokens, mean_resizing=False)


def _read_weights(
    checkpoint: Checkpoint,
    loader: str,
    device: "torch.device",
    dtype: "torch.dtype",
    adapter: Adapted | None,
) -> tuple[Any, dict[str, Any]]:
    """The model with the checkpoint's weights, and transformers' report of those that
    are missing or left over.
    """
    import torch
    import transformers

    config = (adapter or checkpoint).config
    empty = empty_model(checkpoint, getattr(transformers, loader), config)
    options: dict[str, Any] = {"config": config, "dtype": dtype}
    if getattr(config.get_text_config(), "attn_logit_softcapping", None):
        # Releases of transformers up to 5.17 take torch's attention by default, which
        # drops the cap of Gemma 2.
        options["attn_implementation"] = "eager"
    if device.type == "cuda" or checkpoint.quantization is not None:
        options["device_map"] = {"": device}
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        if checkpoint.n_weights * dtype.itemsize > 0.85 * free_bytes:
            options["device_map"] = "auto"
    if adapter is not None:
        options["ignore_mismatched_sizes"] = True

    prefix = ""
    if loader == "AutoModel":
        prefix = _stored_prefix(checkpoint, empty)
    # The prefix of its class transformers takes off itself, and must find.
    if prefix not in ("", f"{empty.base_model_prefix}."):
        options["key_mapping"] = {f"^{re.escape(prefix)}": ""}
    folder: Path | None = None
    if checkpoint.is_plain:
        folder = checkpoint.folder
        options["use_safetensors"] = True
    else:
        options["state_dict"] = dict(checkpoint.tensors(checkpoint.weights))
    if folder != checkpoint.base:
        # Transformers would look for a file of them beside the weights.
        settings = transformers.GenerationConfig.from_model_config(config)
        options["generation_config"] = settings

    remedy = (
        "check that the folder is complete "
        "and that its configuration belongs to its weights"
    )
    method = checkpoint.quantization
    if method is not None:
        remedy = f"its weights are quantized by {method}: install what that needs"
    model_class: Any = type(empty)
    with explain(checkpoint.name, f"load it with {loader}", remedy):
        model, report = model_class.from_pretrained(
            folder, output_loading_info=True, **options
        )
    return model, report


def _stored_prefix(checkpoint: Checkpoint, empty: "PreTrainedModel") -> str:
    """The checkpoint's addition to the names of the backbone, as "transformer."."""
    name = next(iter(empty.state_dict()))
    prefixes = []
    for key in checkpoint.weights:
        if key == name or key.endswith(f".{name}"):
            prefixes.append(key.removesuffix(name))
    return min(prefixes, key=len, default="")


def refuse_new_weights(
    name: str,
    missing: list[str],
    remedy: str = "use a trained reward model, or name its head with head=",
) -> None:
    """Raise DataError where weights of the model are not in the checkpoint."""
    if missing:
        keys = ", ".join(missing[:4])
        problem = (
            f"model={name!r}: {len(missing)} weights are not in the checkpoint "
            f"({keys}) and would be random"
        )
        raise DataError(problem, remedy)


def refuse_unused_weights(
    name: str, stored: Iterable[str], read: Iterable[str]
) -> None:
    """Raise DataError where `stored` weights are not among those that are `read`.

    A configuration that names fewer layers than there are would otherwise score through
    half a model, and a head's bias would be dropped. Remains of pretraining, and copies
    of used weights under another prefix, may stay.
    """
    read_keys = set(read)
    unused = [key for key in stored if not _is_read_or_harmless(key, read_keys)]
    if unused:
        keys = ", ".join(sorted(unused)[:4])
        problem = (
            f"model={name!r}: {len(unused)} weights of the checkpoint are used by "
            f"nothing ({keys})"
        )
        remedy = (
            "compare num_hidden_layers with the published configuration, "
            "or name the head with head="
        )
        raise DataError(problem, remedy)


def _is_read_or_harmless(key: str, read_keys: set[str]) -> bool:
    if _BUFFERS.search(key):
        return True
    parts = key.split(".")
    is_layer = any(part.isdigit() for part in parts)
    if _LANGUAGE.search(key) and not is_layer:
        return True
    # The weight itself, or a copy of it under another prefix, as "model.".
    return any(".".join(parts[i:]) in read_keys for i in range(5))


def base_model(model: "PreTrainedModel") -> "PreTrainedModel":
    """The transformer below the head, which transformers annotates as any module."""
    backbone: Any = model.base_model
    # Llama 4 names another module than it has.
    if backbone is model and model.get_output_embeddings() is not None:
        backbone = getattr(model, "model", backbone)
    return cast("PreTrainedModel", backbone)


def empty_model(
    checkpoint: Checkpoint, auto_class: Any, config: "PreTrainedConfig | None" = None
) -> "PreTrainedModel":
    """The model that an Auto class makes of a configuration (the checkpoint's), without
    weights.

    Raises DataError where it makes none.
    """
    import torch

    task = f"build {auto_class.__name__} of its configuration"
    remedy = (
        "use the configuration that was published with the weights, "
        "or name its head with head="
    )
    with explain(checkpoint.name, task, remedy), torch.device("meta"):
        model = auto_class.from_config(
            config or checkpoint.config, trust_remote_code=checkpoint.trust_remote_code
        )
    return cast("PreTrainedModel", model)
