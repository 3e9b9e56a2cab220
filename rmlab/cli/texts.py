"""The benchmark's texts that a command names."""

from pathlib import Path
from typing import Any

__all__ = ["load_texts"]


def load_texts(benchmark: str, path: Path | None) -> Any:
    """Responses of a benchmark by its name, or of a file of pairs."""
    from rmlab.benchmarks import load, load_pairs
    from rmlab.records import SUFFIXES

    if path is None and (Path(benchmark).is_file() or Path(benchmark).suffix.lower() in SUFFIXES):
        return load_pairs(benchmark)
    return load(benchmark, path=path)
