"""Response matrices: outcomes of models by items, one in each cell."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.benchmarks.roles import SCORE_COLUMNS
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


def read_matrix(path: Path, benchmark: str) -> pd.DataFrame:
    """Comparisons of a response matrix, not checked yet: model by model, items in the
    order of the file.
    """
    header, lines = records.read_csv_lines(path)
    matrix = pd.DataFrame(lines, columns=header)
    if header[0] in _ITEM_COLUMNS:
        matrix = matrix.set_index(header[0]).T.rename_axis("model").reset_index()
    if matrix.columns[0] != "model" or len(matrix.columns) < 2:
        problem = f"{path}: not a matrix of models by items; found: {short(header)}"
        raise DataError(problem, "name the first column 'model', the others items")

    pairs = matrix.melt("model", var_name="id", ignore_index=False)
    pairs = pairs.rename_axis("row").sort_index(kind="stable").reset_index()
    is_wrong = ~pairs["value"].isin(list(_OUTCOMES))
    if is_wrong.any():
        row, _, item, value = pairs[is_wrong].iloc[0]
        allowed = "1, 0.5, 0 or an empty cell"
        records.fail(path, row, {item: value}, item, allowed, "repair the row")
    subset = pairs["id"].map(subset_of_item)
    if subset.isna().any():
        # Items of custom data.
        benchmark = path.stem
        subset = pd.Series(path.stem, pairs.index)

    outcome = pairs["value"].map(_OUTCOMES)
    return pairs.drop(columns=["row", "value"]).assign(
        model=pairs["model"].replace("", None),
        benchmark=benchmark,
        domain=subset,
        chosen_slot=0,
        rejected_slot=0,
        outcome=outcome,
    )
