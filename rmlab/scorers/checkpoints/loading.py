"""Loading a published model with care: what must be installed, and configurations or weights that cannot be right."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rmlab.tables import DataError

_NEEDED = ("torch", "transformers", "safetensors")
_LAYERS = re.compile(r"^(num_(hidden_|decoder_|encoder_)?layers|n_layers?|(encoder|decoder)_layers)$")
_PARTS = re.compile(r"^(num_(local_)?experts|n_routed_experts|num_attention_heads|n_head|num_labels)$")
_MOST_LAYERS, _MOST_PARTS = 1000, 100_000
_STEPWISE = re.compile(r"ForTokenClassification|ForProcessReward|PRM|ForPrm")
"""Classes of models that score the steps of an answer."""
_BUFFERS = re.compile(
    r"(^|\.)(inv_freq|position_ids|masked_bias|(attn|attention|self_attn)\.bias|num_batches_tracked)$"
)
"""Constants that older versions wrote into checkpoints and newer ones compute."""
_LANGUAGE = re.compile(
    r"(^|\.)(lm_head|embed_out|cls|mtp|lm_predictions|lm_loss|mask_predictions|generator_(predictions|lm_head)|"
    r"discriminator_predictions|predictions|pooler|seq_relationship|pred_layer)(\.|$)|^decoder\.(bias|weight)$"
)
"""Output layers of pretraining, which a reward model carries along and never reads."""


def require_score() -> None:
    """Raise ImportError with the command that installs what is missing; loads nothing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"a model needs {' and '.join(missing)}: run pip install -e '.[score]' in the clone")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' warnings, progress bars and tables of weights: rmlab raises what matters as an error."""
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


def first_line(error: Exception, longest: int = 200) -> str:
    """The first line of another library's message, short enough for a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:longest]


def json_object(path: Path) -> dict[str, object]:
    """A JSON file that holds an object; DataError for any other."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({first_line(error)}); download it again") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds {type(content).__name__} and no object; download it again")
    return content


def refuse_impossible(name: str, settings: Mapping[str, object]) -> None:
    """Raise DataError for more layers, experts, heads or labels than any model has, before so many are built."""
    for key, value in settings.items():
        if isinstance(value, dict):
            refuse_impossible(name, value)
        limit = _MOST_LAYERS if _LAYERS.match(key) else _MOST_PARTS if _PARTS.match(key) else None
        if limit is None or not isinstance(value, int) or isinstance(value, bool):
            continue
        least = 1 if limit == _MOST_LAYERS else 0  # dense models say that they have 0 experts
        if not least <= value <= limit:
            raise DataError(
                f"model={name!r}: its configuration says {key}={value}; allowed: 1 to {limit}; use the configuration "
                "that was published with the weights"
            )


def refuse_other_tasks(name: str, settings: Mapping[str, object]) -> None:
    """Raise DataError for a model that scores the steps of an answer, and for one that draws its attention."""
    named = settings.get("architectures")
    stepwise = [kind for kind in named if _STEPWISE.search(str(kind))] if isinstance(named, list) else []
    if stepwise:
        raise DataError(
            f"model={name!r} is a {stepwise[0]}: token classification, as process reward models have it, which scores "
            "every step of an answer; use an outcome reward model"
        )
    if settings.get("model_type") == "reformer":
        raise DataError(
            f"model={name!r}: a Reformer draws its attention at random, so a text has another score each time; use a "
            "model of another architecture"
        )


def refuse_new_weights(name: str, missing: list[str]) -> None:
    """Raise DataError where weights of the model are not in the checkpoint."""
    if missing:
        raise DataError(
            f"model={name!r}: {len(missing)} weights are not in the checkpoint ({_shorten(missing)}); they would be "
            "random, and so would the scores: use a trained reward model, or name the head it has with head="
        )


def refuse_unused_weights(name: str, stored: Iterable[str], read: Iterable[str]) -> None:
    """Raise DataError where `stored` weights of the checkpoint are not among those that are `read`.

    A configuration that names fewer layers than there are would otherwise score through half a model, and a head's
    bias would be dropped. Remains of pretraining, and copies of used weights under another prefix, may stay.
    """
    read_keys = set(read)
    unused = sorted(key for key in stored if key not in read_keys and not _is_harmless(key, read_keys))
    if unused:
        raise DataError(
            f"model={name!r}: {len(unused)} weights of the checkpoint are used by nothing ({_shorten(unused)}); its "
            "configuration belongs to another model (compare num_hidden_layers), or its head is unknown: use the "
            "configuration that was published with the weights, or name the head with head="
        )


def _is_harmless(key: str, read_keys: set[str]) -> bool:
    parts = key.split(".")
    is_layer = any(part.isdigit() for part in parts)
    is_pretraining = bool(_LANGUAGE.search(key)) and not is_layer
    return bool(_BUFFERS.search(key)) or is_pretraining or any(".".join(parts[i:]) in read_keys for i in range(1, 5))


def _shorten(keys: list[str]) -> str:
    return ", ".join(keys[:4]) + (" ..." if len(keys) > 4 else "")
