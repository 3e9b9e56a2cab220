"""The binary response matrix: a CSV with one row per model and one column per item."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.escapes import uncell
from rmlab.tables import OUTCOMES, DataError

__all__ = ["read", "votes", "wide"]

_AVERAGES = {"score", "overall", "average", "chat", "safety"}
_CREDIT = {"loss": 0.0, "tie": 0.5, "win": 1.0}


def read(path: Path, benchmark: str, subsets: Mapping[str, str] | None) -> pd.DataFrame:
    """Pairs of a response matrix: 1 win, 0.5 tie, 0 loss, empty where missing; model by model, items in file order."""
    rows = records.read_rows(path)
    columns = [uncell(name) for name in records.columns_of(rows)]
    if len(set(columns)) < len(columns):
        raise DataError(f"{path}: two columns have one heading once quotes and codes are undone; rename one of them")
    rows = [dict(zip(columns, row.values(), strict=True)) for row in rows]
    items = columns[1:]
    if columns[0] != "model" or not items:
        raise DataError(
            f"{path}: not a response matrix; the first column must be 'model', the others items; "
            f"found: {', '.join(columns[:6])}"
        )
    found = _subsets(path, items, subsets)
    values = np.array([[row[item] if row[item] is not None else "" for item in items] for row in rows], dtype=str)
    codes = _codes(path, rows, items, values)
    models = [_model(path, number, row) for number, row in enumerate(rows)]
    frame = pd.DataFrame(
        {
            "model": np.repeat(models, len(items)),
            "benchmark": benchmark,
            "domain": np.tile(found, len(models)),
            "id": np.tile(items, len(models)),
            "chosen_slot": 0,
            "rejected_slot": 0,
            "outcome": pd.Categorical.from_codes(codes.ravel(), dtype=tables.OUTCOME),
        }
    )
    return tables.check_pairs(frame)


def votes(pairs: pd.DataFrame) -> pd.DataFrame:
    """Scores that give each comparison's outcome back: 1 for the preferred answer, 0 for the other, 0.5 for both."""
    credit = pairs["outcome"].astype("str").map(_CREDIT).astype("float64")
    shared = pairs[["model", *tables.PROMPT, "subset"]].assign(slot=0)
    chosen = shared.assign(label="chosen", score=credit)
    rejected = shared.assign(label="rejected", score=1 - credit)
    return pd.concat([chosen, rejected]).sort_index(kind="stable").reset_index(drop=True)


def wide(pairs: pd.DataFrame) -> pd.DataFrame:
    """The matrix of a table of pairs: rows models, columns items, both in order of appearance."""
    pairs = tables.check_pairs(pairs)
    double = pairs.duplicated(["model", "id"])
    if double.any():
        first = pairs.loc[double, ["model", "domain", "id"]].iloc[0].to_dict()
        raise DataError(
            f"pairs: {int(double.sum())} rows repeat a model and id, first {first}; a response matrix holds one "
            "comparison per item: keep one benchmark, one chosen and one rejected answer per prompt"
        )
    credit = pairs["outcome"].astype("str").map(_CREDIT).astype("float64")
    table = pairs.assign(credit=credit).pivot(index="model", columns="id", values="credit")
    return table.loc[pairs["model"].unique(), pairs["id"].unique()]


def _model(path: Path, number: int, row: records.Row) -> str:
    if row["model"] is None:
        records.fail(path, number, row, "model", "a name", "name the model")
    return uncell(str(row["model"]))


def _subsets(path: Path, items: list[str], subsets: Mapping[str, str] | None) -> list[str]:
    found = [subset_of_item(item) if subsets is None else subsets.get(item) for item in items]
    strange = [item for item, subset in zip(items, found, strict=True) if subset is None]
    if strange:
        looks = (
            "; it looks like a leaderboard of averages, not of items: read it with pandas and pass it to reproduce(...)"
            if _AVERAGES & {item.strip().lower() for item in items}
            else ""
        )
        raise DataError(
            f"{path}: {len(strange)} of {len(items)} items have no subset, first {strange[0]!r}{looks}; "
            "pass subsets={item: subset}; without it items must be RewardBench 1 ids (0 to 2984)"
        )
    return [str(subset) for subset in found]


def _codes(path: Path, rows: list[records.Row], items: list[str], values: np.ndarray) -> np.ndarray:
    codes = np.full(values.shape, -2, dtype=np.int8)
    codes[values == ""] = -1
    for name, credit in _CREDIT.items():
        codes[np.isin(values, [f"{credit:g}", f"{credit:.1f}"])] = OUTCOMES.index(name)
    if (codes == -2).any():
        row, column = (int(index[0]) for index in np.nonzero(codes == -2))
        records.fail(path, row, rows[row], items[column], "1, 0.5, 0 or an empty cell", "repair the cell")
    return codes
