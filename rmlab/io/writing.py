"""Tables to files of scores and of comparisons."""

import json
from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import escapes, files, tables
from rmlab.io import native, response_matrix, reward_bench, rm_bench
from rmlab.io.reading import FORMATS
from rmlab.tables import DataError, nearest

__all__ = ["check_target", "write_pairs", "write_scores"]


def write_scores(
    scores: pd.DataFrame,
    path: str | PathLike[str],
    *,
    format: str | None = None,
    responses: pd.DataFrame | None = None,
) -> Path:
    r"""Write scores to one file and return its path; `read_scores` gives the same table back, float for float.

    `format` is "rmlab" (default; .csv, .parquet or .jsonl), "rm-bench", "reward-bench", "reward-bench-2" (.json, one
    model a file; `responses` adds the texts), or "response-matrix" (.csv; which answer won, not the scores).
    `attrs["provenance"]`, if there, goes to `<path>.provenance.json` with the file's checksum.
    A file is written whole or not at all. In CSV a text that a spreadsheet would run as a formula gets a quote before
    it, and a control character is written as \u001b, say; `read_scores` undoes both (see `rmlab.escapes.cell`).
    Missing scores are empty cells in CSV and null in JSON. Raises DataError for a bad table, an unknown `format` or
    file type, and scores that the format cannot hold (it names which).
    """
    scores = tables.check_scores(scores, allow_missing=True)
    native.check_provenance(scores)
    target, kind = Path(path).expanduser(), _format(format)
    if responses is not None:
        tables.check_match(scores, responses)
    if kind == "rmlab":
        native.write(scores, target)
    elif kind == "response-matrix":
        _write_matrix(response_matrix.wide(_outcomes(scores)), target)
    else:
        _require_one(scores, kind)
        made = rm_bench.rows(scores, responses) if kind == "rm-bench" else reward_bench.content(scores, kind, responses)
        _write_json(made, target)
    native.write_sidecar(scores, target)
    return target


def check_target(path: str | PathLike[str], *, format: str | None = None, models: int = 1, pairs: bool = False) -> None:
    """Raise where `write_scores` (`write_pairs`) could not write so many models to this path: ask before a long run."""
    target, kind = Path(path).expanduser(), _format(format)
    if kind == "rmlab":
        native.check_suffix(target)
    elif pairs:
        _require_for_pairs(kind)
    elif kind != "response-matrix" and models > 1:
        raise DataError(
            f"format: a {kind} file holds one model, got {models}; write one file for each, or leave it out"
        )


def write_pairs(pairs: pd.DataFrame, path: str | PathLike[str], *, format: str | None = None) -> Path:
    """Write comparisons to one file and return its path; `read_pairs` gives the same table back.

    `format` is "rmlab" (default; .csv, .parquet or .jsonl) or "response-matrix" (.csv: rows models, columns items,
    1 win, 0.5 tie, 0 loss, empty where missing; one comparison per item). Provenance as in `write_scores`.
    """
    pairs = tables.check_pairs(pairs)
    native.check_provenance(pairs)
    target, kind = Path(path).expanduser(), _format(format)
    if kind == "rmlab":
        native.write(pairs, target)
    else:
        _require_for_pairs(kind)
        _write_matrix(response_matrix.wide(pairs), target)
    native.write_sidecar(pairs, target)
    return target


def _require_for_pairs(kind: str) -> None:
    if kind not in ("rmlab", "response-matrix"):
        raise DataError(f"format: {kind!r} holds scores, not comparisons; use 'rmlab' or 'response-matrix'")


def _format(format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise DataError(f"format: {format!r} is unknown; {nearest(format, FORMATS)}")
    return format or "rmlab"


def _require_one(scores: pd.DataFrame, kind: str) -> None:
    for column in ("model", "benchmark"):
        names = scores[column].unique()
        if len(names) != 1:
            raise DataError(
                f"scores: {len(names)} {column}s ({', '.join(names[:5])}); a {kind} file holds one: "
                f"write one file for each of scores.groupby({column!r})"
            )


def _outcomes(scores: pd.DataFrame) -> pd.DataFrame:
    key = ["model", *tables.PROMPT, "subset"]
    sides = {label: scores[scores["label"] == label] for label in tables.LABELS}
    if any(side.duplicated(key).any() for side in sides.values()):
        raise DataError("scores: a response matrix holds one chosen and one rejected answer per prompt; found several")
    both = sides["chosen"].merge(sides["rejected"], on=key, how="outer", suffixes=("_chosen", "_rejected"))
    margin = both["score_chosen"] - both["score_rejected"]
    order = scores[key].drop_duplicates()
    return order.merge(both[key].assign(margin=margin, chosen_slot=0, rejected_slot=0), on=key)


def _write_matrix(matrix: pd.DataFrame, path: Path) -> None:
    files.write(path, escapes.csv(matrix.reset_index()))


def _write_json(content: object, path: Path) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files.write(path, text)
