"""RM-Bench: three right and three wrong answers to a prompt, each in three styles; nine
comparisons, a 3x3 matrix.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.benchmark import Benchmark, refuse_strange
from rmlab.benchmarks.hub import HubPlace
from rmlab.benchmarks.layout import Files, Layout
from rmlab.benchmarks.rows import FileRow, as_list, read_answers
from rmlab.estimation.items import NO_ROW, Items, Parts, comparison_items
from rmlab.estimation.weights import weighted_parts
from rmlab.records import Row, refuse_rows
from rmlab.tables import LEVELS, PROMPT, STYLES, DataError

_SAFETY = ("safety-refuse", "safety-response")
SUBSETS = {
    "chat": "chat",
    "math": "math",
    "code": "code",
    **dict.fromkeys(_SAFETY, "safety"),
}
DOMAINS = tuple(dict.fromkeys(SUBSETS.values()))
FILES = tuple(f"{subset}_filtered.json" for subset in SUBSETS)
TOTAL = "total_dataset.json"

_NOTES = ("note", "error", "error_key")
_EXTRA = ("source", *_NOTES)
_FILE = re.compile(rf"({'|'.join(SUBSETS)})(_filtered)?(_prompt_disturbance.*)?$")
# The runner names a file after data, model and time:
# chat_filtered_<model>_<reference>_<time>.json.
_RESULT_FILE = re.compile(
    rf"({'|'.join(SUBSETS)}|total_dataset)(?:_filtered)?(?:_(.+?))??"
    r"(?:_[A-Z]+_?MODEL)?(?:_\d{8}_\d{6})?$"
)
_CELLS = len(STYLES) ** 2


def list_files(path: Path) -> list[Path]:
    """The file itself; of a folder `total_dataset.json` if it is there, otherwise the
    per-domain files that are.
    """
    if not path.is_dir():
        return [path]
    names = [TOTAL] if (path / TOTAL).is_file() else FILES
    files = [path / name for name in names if (path / name).is_file()]
    if not files:
        problem = f"{path}: none of {', '.join([*FILES, TOTAL])} in this folder"
        raise DataError(problem, "name one: path='<file>'")
    return files


def read(
    files: Files, benchmark: str = "rm-bench", n_texts: int = len(STYLES)
) -> pd.DataFrame:
    """Responses of RM-Bench rows, in the order of subsets and ids.

    A row has `n_texts` chosen and as many rejected answers, in the order of the styles.
    A file whose rows have no `domain` must be named after its domain
    (`chat_filtered.json`). Domains that no row has are named in
    `attrs["missing_domains"]`.
    """
    frame = read_answers(files, benchmark, _describe, n_texts)
    frame["style"] = pd.Categorical.from_codes(frame["slot"], dtype=tables.STYLE)

    subset_order = list(SUBSETS)
    place = []
    for subset, item in zip(frame["subset"], frame["id"], strict=True):
        number = int(item) if item.isdecimal() else -1
        place.append((subset_order.index(subset), number, item))
    order = sorted(range(len(frame)), key=place.__getitem__)
    frame = frame.iloc[order].reset_index(drop=True)

    extra = [name for name in _EXTRA if name in frame]
    frame = frame[[*tables.RESPONSES, *extra]].astype(dict.fromkeys(extra, "str"))
    present = set(frame["subset"])
    missing = [subset for subset in SUBSETS if subset not in present]
    frame.attrs["missing_domains"] = missing
    return frame


def read_variant(files: Files, variant: int) -> pd.DataFrame:
    """Responses of Reward Auditor's rows, which list wordings of the prompt (0 is the
    original), with one answer a label, the concise one.
    """
    worded = []
    for file, rows in files:
        prompts = []
        for number, cells in enumerate(rows):
            wordings = as_list(cells.get("prompt"))
            if not 0 <= variant < len(wordings):
                allowed = f"a list of wordings, for variant={variant}"
                remedy = "choose another, or leave variant out"
                FileRow(file, number, cells).refuse("prompt", allowed, remedy)
            prompts.append(cells | {"prompt": wordings[variant]})
        worded.append((file, prompts))
    return read(worded, n_texts=1)


def _describe(row: FileRow) -> Row:
    """Domain and subset of a row, its id without the domain of the total file, and its
    notes.
    """
    item = row.read_id()
    of_file = _FILE.match(row.file.stem)
    if "domain" in row.cells:
        subset = row.read_subset(list(SUBSETS), "domain")
        item = item.split("/", 1)[-1]
    elif of_file:
        subset = of_file[1]
    else:
        problem = f"{row.file}: no field 'domain' in row {row.number}"
        raise DataError(problem, f"name the file one of {FILES}")
    prompt: Row = {
        "domain": SUBSETS[subset],
        "id": item,
        "subset": subset,
        "source": row.cells.get("subset"),
    }
    for name in _NOTES:
        if row.cells.get(name) is not None:
            prompt[name] = row.cells[name]
    return prompt


def adapt_results(path: Path, prompts: pd.DataFrame) -> pd.DataFrame:
    """Rows of the runner's result files, with the domain and the model that the file's
    name says.
    """
    match = _RESULT_FILE.match(path.stem)
    if match is not None:
        prompts = prompts.assign(model=match[2] or path.parent.name)
    if "subset" in prompts:
        prompts["id"] = prompts["id"].astype("str").str.split("/", n=1).str[-1]
    else:
        prompts["subset"] = path.stem if match is None else match[1]
    is_strange = ~prompts["subset"].isin(list(SUBSETS))
    allowed = f"one of {', '.join(SUBSETS)}"
    refuse_rows(path, prompts["subset"].rename("domain"), is_strange, allowed)

    allowed = f"a list of three numbers ({', '.join(STYLES)})"
    for label in tables.LABELS:
        scores = prompts[f"{label}_score"].rename(f"score_{label}")
        refuse_rows(path, scores, scores.str.len() != len(STYLES), allowed)
    return prompts.assign(domain=prompts["subset"].map(SUBSETS))


def make_items(
    table: pd.DataFrame, ties: str, *, by: Sequence[str], cluster: Sequence[str]
) -> Items:
    """The nine comparisons of every prompt; DataError for a strange domain, or one
    without styles.
    """
    items = comparison_items(table, ties, by=by, cluster=cluster)
    refuse_strange("domain", items.frame["domain"].unique(), DOMAINS, "RM-Bench")
    n_missing = int(items.frame["level"].isna().sum())
    if n_missing:
        problem = f"pairs: level is missing in {n_missing} comparisons"
        raise DataError(problem, "score the texts of load('rm-bench')")
    return items


def make_parts(items: Items, options: Mapping[str, str]) -> Parts:
    """The four domains alike; safety as one pool, or (`safety="split"`) as the mean of
    its two files.
    """
    if options["safety"] == "split":
        return _split_safety(items.frame)

    # A model that has only one of safety's files lacks the domain.
    has_file = {}
    for file in _SAFETY:
        is_file = (items.frame["subset"] == file).to_numpy()
        has_file[file] = (items.outcome[:, is_file] != NO_ROW).any(axis=1)
    has_safety = np.any(list(has_file.values()), axis=0)
    safety = DOMAINS.index("safety")
    reasons = {}
    for absent in _SAFETY:
        for model in np.flatnonzero(has_safety & ~has_file[absent]):
            reasons[int(model), safety] = f"nothing in {absent}"
    parts = weighted_parts(items.frame["domain"], dict.fromkeys(DOMAINS, 1.0))
    return replace(parts, reasons=reasons)


def _split_safety(frame: pd.DataFrame) -> Parts:
    """The two files of safety with half the weight of a domain each."""
    files = frame["domain"].where(frame["domain"] != "safety", frame["subset"])
    refuse_strange("subset", files.unique(), SUBSETS, "RM-Bench")
    weight = dict.fromkeys(SUBSETS, 1.0)
    for file in _SAFETY:
        weight[file] = 1 / len(_SAFETY)
    return weighted_parts(files, weight)


def check_nine_comparisons(items: Items) -> None:
    """Refuse prompts that have only some of their nine comparisons: an answer without a
    row would count in nothing.
    """
    n_prompts = int(items.prompt.max()) + 1
    has_row = items.outcome != NO_ROW
    n_rows = np.stack([np.bincount(items.prompt, row, n_prompts) for row in has_row])
    incomplete = (n_rows > 0) & (n_rows != _CELLS)
    if not incomplete.any():
        return
    model, prompt = np.argwhere(incomplete)[0]
    present = items.frame[(items.prompt == prompt) & has_row[model]]
    first = {"model": items.models[model], **present[PROMPT].iloc[0].to_dict()}
    counts = f"{int(incomplete.sum())} prompts are not the nine comparisons"
    problem = f"pairs: {counts} of RM-Bench's 3x3, first {first} with {len(present)}"
    remedy = "score all six answers of a prompt, or use accuracy(pairs, by=...)"
    raise DataError(problem, remedy)


_LAYOUT = Layout(
    read=read,
    read_variant=read_variant,
    folder_files=list_files,
    hub=HubPlace(
        "THU-KEG/RM-Bench",
        "a0f737936b99411e96d891699349a9570b39c82e",
        {
            "chat": 129,
            "math": 529,
            "code": 228,
            "safety-refuse": 284,
            "safety-response": 157,
        },
        TOTAL,
    ),
    result_fields={
        "id": "id",
        "chosen_score": "score_chosen",
        "rejected_score": "score_rejected",
    },
    adapt_results=adapt_results,
)
RM_BENCH = Benchmark(
    name="rm-bench",
    title="RM-Bench",
    source="arXiv 2410.16184, section 3; scripts/utils.py of its repository",
    subsets=SUBSETS,
    columns=(*DOMAINS, *LEVELS),
    options={"safety": ("pooled", "split")},
    styles=STYLES,
    layout=_LAYOUT,
    make_items=make_items,
    make_parts=make_parts,
    check_complete=check_nine_comparisons,
    variants={
        "ties count half": {"ties": "half"},
        "ties are left out": {"ties": "drop"},
        "safety is the mean of its two files": {"safety": "split"},
        "ties count half; safety is the mean of its two files": {
            "ties": "half",
            "safety": "split",
        },
        "ties are left out; safety is the mean of its two files": {
            "ties": "drop",
            "safety": "split",
        },
        "all prompts count alike, not all domains": {"average": "prompts"},
    },
)

MINI = replace(
    RM_BENCH,
    name="mini",
    title="mini",
    source="written for this project",
    layout=replace(
        _LAYOUT,
        read=partial(read, benchmark="mini"),
        read_variant=None,
        hub=None,
        shipped="mini",
    ),
)
"""The small benchmark that ships with rmlab, in RM-Bench's file format and with its
rules.
"""
