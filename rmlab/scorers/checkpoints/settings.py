"""The configuration file of a model: read, and refused where it cannot be scored."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmlab.tables import DataError

# Classes of models that score the steps of an answer in a way that is not known here.
_STEPWISE = re.compile(r"PRM")


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
    """Raise DataError for a model that scores the steps of an answer."""
    architectures = settings.get("architectures")
    for kind in architectures if isinstance(architectures, list) else []:
        if _STEPWISE.search(str(kind)):
            problem = f"model={name!r} is a {kind}, a process reward model"
            raise DataError(problem, "use an outcome reward model")
