"""Comparisons to the instance-level JSON lines of the Every Eval Ever exchange format."""

import hashlib
import json
from collections.abc import Hashable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import files, tables
from rmlab.tables import DataError

__all__ = ["export_every_eval_ever"]

SCHEMA = "instance_level_eval_0.3.0"
_CREDIT = {"win": 1.0, "tie": 0.5, "loss": 0.0}


def export_every_eval_ever(
    pairs: pd.DataFrame, responses: pd.DataFrame, path: str | PathLike[str], *, evaluation_id: str | None = None
) -> int:
    """Write one JSON line per comparison in the instance-level schema 0.3.0; returns the number of lines.

    A line holds the prompt as input, the chosen answer as reference, both answers as choices, the answer the model
    preferred as output (none where it tied), and 1, 0.5 or 0 as score; a tie is not correct. Styles, level, margin
    and slots are metadata. Comparisons without an outcome are left out: the schema has no place for them.
    `evaluation_id` links to the aggregate file (default "<benchmark>/<model>"). A conversation is written as JSON.
    Raises DataError where a comparison has no text in `responses`. Schema: github.com/evaleval/every_eval_ever,
    `instance_level_eval.schema.json`.
    """
    pairs = tables.check_pairs(pairs)
    for label in tables.LABELS:
        side = pairs[[*tables.PROMPT, f"{label}_slot"]].rename(columns={f"{label}_slot": "slot"})
        tables.check_match(side.assign(label=label), responses)
    known = pairs[pairs["outcome"].notna()]
    if known.empty:
        raise DataError("pairs: no comparison has an outcome; there is nothing to export")
    lines = [
        json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in _lines(known, responses, evaluation_id)
    ]
    files.write(Path(path).expanduser(), "".join(lines))
    return len(lines)


def _lines(pairs: pd.DataFrame, responses: pd.DataFrame, evaluation_id: str | None) -> Iterator[dict[str, object]]:
    keys = zip(
        *(responses[name].astype("str") if name == "label" else responses[name] for name in tables.KEY), strict=True
    )
    texts = dict(zip(keys, zip(responses["prompt"], responses["response"], strict=True), strict=True))
    for pair in pairs.to_dict("records"):
        key = tuple(pair[name] for name in tables.PROMPT)
        prompt, chosen = texts[(*key, "chosen", pair["chosen_slot"])]
        rejected = texts[(*key, "rejected", pair["rejected_slot"])][1]
        yield _line(pair, prompt, chosen, rejected, evaluation_id)


def _line(
    pair: dict[Hashable, Any], prompt: object, chosen: str, rejected: str, evaluation_id: str | None
) -> dict[str, object]:
    raw = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
    preferred = {"win": chosen, "loss": rejected, "tie": ""}[pair["outcome"]]
    kept = ("domain", "subset", "chosen_slot", "rejected_slot", "chosen_style", "rejected_style", "level", "margin")
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation_id or f"{pair['benchmark']}/{pair['model']}",
        "model_id": pair["model"],
        "evaluation_name": f"{pair['benchmark']}: {pair['subset']}",
        "sample_id": f"{pair['domain']}/{pair['id']}/{pair['chosen_slot']}-{pair['rejected_slot']}",
        "sample_hash": hashlib.sha256((raw + chosen).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": raw, "reference": [chosen], "choices": [chosen, rejected]},
        "output": {"raw": [preferred] if preferred else []},
        "messages": None,
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": preferred,
                "extraction_method": "preferred_answer",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": _CREDIT[pair["outcome"]], "is_correct": pair["outcome"] == "win"},
        "metadata": {name: str(pair[name]) for name in kept if pd.notna(pair[name])},
    }
