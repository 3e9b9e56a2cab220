"""What scoring needs beside the core, and one line on how to get it."""

from importlib.util import find_spec

__all__ = ["require_score"]

_NEEDED = ("torch", "transformers", "safetensors")


def require_score() -> None:
    """Raise ImportError with the command that installs what is missing; loads nothing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"scoring with a model needs {' and '.join(missing)}: pip install 'rmlab[score]'")
