"""Finished tables beside the store's ledgers, for people and for reports: one CSV per model and benchmark."""

import re
from pathlib import Path

import pandas as pd

from rmlab.score_files import write_scores

__all__ = ["keep"]


def keep(scores: pd.DataFrame, folder: str | Path) -> list[Path]:
    """Write each model's table of each benchmark into `folder`, replacing that of an earlier run.

    The ledgers hold scores by text, not by row, and lose nothing when a table is replaced.
    """
    files = []
    about = scores.attrs.get("provenance", {})
    for (model, benchmark), part in scores.groupby(["model", "benchmark"], sort=False):
        part.attrs = {"provenance": {model: about[model]}} if model in about else {}
        files.append(write_scores(part, Path(folder) / f"{_plain(model)}.{_plain(benchmark)}.csv"))
    return files


def _plain(name: str) -> str:
    """A name as part of a file name: the hub's slash becomes two hyphens, anything unusual one underscore."""
    return re.sub(r"[^\w.\- ]", "_", name.replace("/", "--")).strip(". ") or "model"
