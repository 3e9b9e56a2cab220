"""Finished tables beside the store's ledgers, for people and for reports: one CSV per model and benchmark."""

import re
from pathlib import Path

import pandas as pd

from rmlab.io import write_pairs, write_scores
from rmlab.io.own import PAIRS

__all__ = ["keep"]


def keep(table: pd.DataFrame, folder: str | Path) -> list[Path]:
    """Write each model's scores or pairs of each benchmark into `folder`, replacing those of an earlier run.

    The ledgers hold scores by text, not by row, and lose nothing when a table is replaced.
    """
    files = []
    about = table.attrs.get("provenance", {})
    write, kind = (write_scores, "") if "score" in table.columns else (write_pairs, PAIRS)
    for (model, benchmark), part in table.groupby(["model", "benchmark"], sort=False):
        part.attrs = {"provenance": {model: about[model]}} if model in about else {}
        files.append(write(part, Path(folder) / f"{_plain(model)}.{_plain(benchmark)}{kind}.csv"))
    return files


def _plain(name: str) -> str:
    """A name as part of a file name: the hub's slash becomes two hyphens, anything unusual one underscore."""
    return re.sub(r"[^\w.\- ]", "_", name.replace("/", "--")).strip(". ") or "model"
