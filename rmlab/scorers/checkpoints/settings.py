"""The configuration file of a model: read, and refused where it cannot be scored."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmlab.tables import DataError

# Classes of models that score the steps of an answer.
_STEPWISE = re.compile(r"ForTokenClassification|ForProcessReward|PRM|ForPrm")

_LAYERS = re.compile(
    r"num_(hidden_|decoder_|encoder_)?layers|n_layers?|(encoder|decoder)_layers"
)
_PARTS = re.compile(
    r"num_(local_)?experts|n_routed_experts|num_attention_heads|n_head|num_labels"
)
# The fewest and the most of something that any model has. Dense models say that they
# have 0 experts.
_LIMITS = {_LAYERS: (1, 1000), _PARTS: (0, 100_000)}


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


def refuse_settings(name: str, settings: Mapping[str, object]) -> None:
    """Raise DataError for a configuration of another kind of model, or of a wrong size.

    A model of a million layers would be built before anything failed. Models that score
    the steps of an answer have no score of the whole, and a Reformer draws its
    attention at random.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            refuse_settings(name, value)
        elif type(value) is int:
            _refuse_size(name, key, value)

    architectures = settings.get("architectures")
    for kind in architectures if isinstance(architectures, list) else []:
        if _STEPWISE.search(str(kind)):
            problem = (
                f"model={name!r} is a {kind}: "
                "token classification, as process reward models have it"
            )
            raise DataError(problem, "use an outcome reward model")

    if settings.get("model_type") == "reformer":
        problem = f"model={name!r}: a Reformer draws its attention at random"
        raise DataError(problem, "use another architecture")


def _refuse_size(name: str, key: str, value: int) -> None:
    for pattern, (minimum, maximum) in _LIMITS.items():
        if pattern.fullmatch(key) and not minimum <= value <= maximum:
            problem = (
                f"model={name!r}: its configuration says {key}={value}; "
                f"allowed: 1 to {maximum}"
            )
            remedy = "use the configuration that was published with the weights"
            raise DataError(problem, remedy)
