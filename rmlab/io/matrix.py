"""Response matrices: outcomes of models by items, one in each cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.benchmarks.roles import SCORE_COLUMNS
from rmlab.records import refuse_rows
from rmlab.tables import DataError
from rmlab.text import short

_NO_ITEMS = {"id", "prompt", "label", "outcome", "margin"} | SCORE_COLUMNS
_ITEM_COLUMNS = ("item", "id", "item_id", "prompt_id", "prompt")
_OUTCOMES = {
    "1": "win",
    "1.0": "win",
    "0.5": "tie",
    "0": "loss",
    "0.0": "loss",
    "": None,
}


def is_matrix(header: Sequence[str]) -> bool:
    """Whether the columns of a CSV file are those of a row per model and a column per
    item, or the other way round.
    """
    is_first = header[0] == "model" or header[0] in _ITEM_COLUMNS
    names = {name.lower() for name in header[1:]}
    return is_first and bool(names) and names.isdisjoint(_NO_ITEMS)


def read_matrix(
    path: Path, benchmark: str, subsets: Mapping[str, str] | None
) -> pd.DataFrame:
    """Comparisons of a response matrix, not checked yet: model by model, items in the
    order of the file.
    """
    header, lines = records.read_csv_lines(path)
    if header[0] in _ITEM_COLUMNS:
        columns = [list(column) for column in zip(header, *lines, strict=True)]
        header = ["model", *columns[0][1:]]
        lines = columns[1:]
    if header[0] != "model" or len(header) < 2:
        problem = f"{path}: not a matrix of models by items; found: {short(header)}"
        raise DataError(problem, "name the first column 'model', the others items")
    matrix = pd.DataFrame(lines, columns=header)
    items = header[1:]

    subset_of = {item: subset_of_item(item) for item in items}
    if subsets is not None:
        subset_of = {item: subsets.get(item) for item in items}
    elif not any(subset_of.values()):
        # Items of custom data.
        benchmark = path.stem
        subset_of = dict.fromkeys(items, path.stem)
    without_subset = [item for item in items if subset_of[item] is None]
    if without_subset:
        counts = f"{len(without_subset)} of {len(items)} items have no subset"
        problem = f"{path}: {counts}, first {short(without_subset[0])}"
        raise DataError(problem, "pass subsets={item: subset}")

    for item in items:
        is_wrong = ~matrix[item].isin(list(_OUTCOMES))
        refuse_rows(path, matrix[item], is_wrong, "1, 0.5, 0 or an empty cell")
    pairs = matrix.melt("model", var_name="id", ignore_index=False)
    pairs = pairs.sort_index(kind="stable", ignore_index=True)
    outcome = pairs.pop("value").map(_OUTCOMES)
    return pairs.assign(
        model=pairs["model"].replace("", None),
        benchmark=benchmark,
        domain=pairs["id"].map(subset_of),
        chosen_slot=0,
        rejected_slot=0,
        outcome=outcome,
    )
