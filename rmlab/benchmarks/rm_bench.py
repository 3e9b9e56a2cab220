"""RM-Bench files to a responses table: per-domain files, the total file, or a folder with any of them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks import kinds
from rmlab.subsets import RM_BENCH as SUBSETS
from rmlab.tables import STYLES, DataError, nearest

__all__ = ["EXTRA", "TOTAL", "file_names", "from_rows", "load_path"]

TOTAL = "total_dataset.json"
EXTRA = ("note", "error", "error_key")

_FILE = re.compile(rf"({'|'.join(SUBSETS)})(_filtered)?$")


def file_names() -> list[str]:
    """Names of the files that a folder may hold."""
    return [f"{subset}_filtered.json" for subset in SUBSETS] + [TOTAL]


def load_path(path: Path, *, benchmark: str = "rm-bench") -> pd.DataFrame:
    """Responses of one RM-Bench file, or of every known file of a folder.

    In a folder, `total_dataset.json` is read if it is there, otherwise the per-domain files that are there.
    A file whose rows have no `domain` must be named after its domain (`chat_filtered.json`).
    """
    files = _files(path) if path.is_dir() else [path]
    return from_rows(((file, records.read_rows(file)) for file in files), benchmark=benchmark)


def from_rows(files: Iterable[tuple[Path, list[dict[str, Any]]]], *, benchmark: str = "rm-bench") -> pd.DataFrame:
    """Responses of RM-Bench rows: three chosen and three rejected answers per prompt, concise, plain, markdown.

    Domains that no row has are named in `attrs["missing_domains"]`.
    """
    prompts = [_prompt(file, number, row) for file, rows in files for number, row in enumerate(rows)]
    _refuse_repeats(prompts)
    prompts.sort(key=lambda prompt: (SUBSETS.index(prompt["subset"]), _natural(prompt["id"])))
    extra = ["source", *(name for name in EXTRA if any(name in prompt for prompt in prompts))]
    frame = pd.DataFrame([answer for prompt in prompts for answer in _answers(prompt, benchmark, extra)])
    frame = tables.check_responses(frame)
    frame = frame.assign(**{name: frame[name].astype("str").where(frame[name].notna()) for name in extra})
    present = set(frame["subset"])
    frame.attrs["missing_domains"] = [subset for subset in SUBSETS if subset not in present]
    return frame


def _files(folder: Path) -> list[Path]:
    if (folder / TOTAL).is_file():
        return [folder / TOTAL]
    found = [folder / name for name in file_names() if (folder / name).is_file()]
    if not found:
        there = ", ".join(sorted(p.name for p in folder.iterdir())[:10]) or "nothing"
        raise DataError(f"{folder}: none of {', '.join(file_names())} in this folder; found: {there}")
    return found


def _prompt(file: Path, number: int, row: dict[str, Any]) -> dict[str, Any]:
    """One checked row: subset, id, prompt, chosen, rejected, source and the extra fields it has."""
    kinds.refuse_other(file, row, "rm-bench")
    subset = _subset(file, number, row)
    name = kinds.row_id(file, number, row)
    name = name.split("/", 1)[-1] if "domain" in row else name
    if not isinstance(row.get("prompt"), str):
        records.fail(file, number, row, "prompt", "a string", "repair the row or drop it")
    for label in tables.LABELS:
        answers = row.get(label)
        if not isinstance(answers, list) or len(answers) != len(STYLES):
            allowed = f"a list of three strings ({', '.join(STYLES)})"
            count = f" (it has {len(answers)})" if isinstance(answers, list) else ""
            records.fail(file, number, row, label, allowed + count, "repair the row or drop it")
        kinds.check_answers(file, number, row, label, answers)
    kept = {name: row[name] for name in EXTRA if row.get(name) is not None}
    return {**kept, "file": file, "number": number, "subset": subset, "id": name, "source": row.get("subset"),
            "prompt": row["prompt"], "chosen": row["chosen"], "rejected": row["rejected"]}  # fmt: skip


def _subset(file: Path, number: int, row: dict[str, Any]) -> str:
    if "domain" in row:
        if row["domain"] in SUBSETS:
            return str(row["domain"])
        records.fail(file, number, row, "domain", "a domain of RM-Bench", nearest(str(row["domain"]), SUBSETS))
    match = _FILE.match(file.stem)
    if match is None:
        raise DataError(
            f"{file}: neither the file name nor a field 'domain' says which domain this is; "
            f"name the file one of {', '.join(file_names()[:-1])}"
        )
    return match[1]


def _refuse_repeats(prompts: list[dict[str, Any]]) -> None:
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for prompt in prompts:
        key = (prompt["subset"].split("-")[0], prompt["id"])
        if key in seen:
            first = seen[key]
            raise DataError(
                f"{prompt['file']}: row {prompt['number']}: 'id' {prompt['id']!r} is already row {first['number']} "
                f"of {first['file']}; ids must be unique within the domain {key[0]!r}: give one of them another id"
            )
        seen[key] = prompt


def _answers(prompt: dict[str, Any], benchmark: str, extra: list[str]) -> Iterable[dict[str, Any]]:
    shared = {"benchmark": benchmark, "domain": prompt["subset"].split("-")[0], "id": prompt["id"]}
    for label in tables.LABELS:
        for slot, (style, text) in enumerate(zip(STYLES, prompt[label], strict=True)):
            yield {
                **shared,
                "label": label,
                "slot": slot,
                "subset": prompt["subset"],
                "style": style,
                "prompt": prompt["prompt"],
                "response": text,
                **{name: prompt.get(name) for name in extra},
            }


def _natural(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (-1, name)
