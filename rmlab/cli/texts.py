"""The benchmark's texts that a command names."""

from pathlib import Path
from typing import Any

__all__ = ["load_texts"]


def load_texts(benchmark: str, path: Path | None) -> Any:
    """Responses of a benchmark by its name, or of a file of pairs."""
    from rmlab.benchmarks import known, load, load_pairs
    from rmlab.records import SUFFIXES
    from rmlab.tables import DataError

    if path is None and (Path(benchmark).is_file() or Path(benchmark).suffix.lower() in SUFFIXES):
        return load_pairs(benchmark)
    if benchmark not in known():
        raise DataError(_unknown(benchmark, list(known())))
    return load(benchmark, path=path)


def _unknown(benchmark: str, names: list[str]) -> str:
    """In the words of the shell: no function of Python to call instead."""
    from difflib import get_close_matches

    likely = get_close_matches(benchmark, names, n=1)
    hint = f" Did you mean {likely[0]!r}?" if likely else ""
    return f"Unknown benchmark {benchmark!r}.{hint} Choose {', '.join(names)}, or give a file of pairs."
