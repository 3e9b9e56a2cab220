"""Numbers that papers and leaderboards print, with their source, date and link."""

import pandas as pd

from rmlab.records import shipped
from rmlab.tables import DataError, nearest

SEVEN_BENCHMARKS = {
    "reward-bench": "reward_bench",
    "reward-bench-2": "reward_bench_2",
    "ppe-preference": "ppe_pref",
    "ppe-correctness": "ppe_corr",
    "rmb": "rmb",
    "rm-bench": "rm_bench",
    "judgebench": "judgebench",
}
"""The benchmarks that model cards print, and their columns in the printed table."""


def published(benchmark: str, table: str | None = None) -> pd.DataFrame:
    """Read one published table, as shares from 0 to 1 where the print is in percent.

    Parameters
    ----------
    benchmark : str
        "rm-bench" (tables leaderboard, paper, skywork-v2, matrix, length-only,
        statistics, perturbations), "reward-bench" (paper, leaderboard, reference-free,
        subsets; the leaderboard without the rows whose cut names repeat),
        "reward-bench-2" (paper, leaderboard, ppo-bon, training, correlations, between)
        or "seven-benchmarks" (skywork-v2).
    table : str, optional
        The name of the table; by default the first.

    Returns
    -------
    DataFrame
        One row per model (or as the table's own first columns say); the last columns
        are source, date and link. An empty cell is missing, never zero.

    Raises
    ------
    DataError
        For another benchmark or table.

    Examples
    --------
    >>> published("rm-bench").set_index("model")["hard"].head(1).to_dict()
    {'Skywork-Reward-V2-Llama-3.1-8B-40M': 0.935}
    """
    folder = shipped("published")
    tables = pd.read_csv(folder / "tables.csv", dtype="str").fillna({"percent": ""})
    files = tables[tables["benchmark"] == benchmark].set_index("table")
    if files.empty:
        problem = f"benchmark: no published tables of {benchmark!r}"
        raise DataError(problem, nearest(benchmark, [*tables["benchmark"].unique()]))
    if table is None:
        table = files.index[0]
    if table not in files.index:
        problem = f"table: {benchmark} has no published {table!r}"
        raise DataError(problem, nearest(table, list(files.index)))

    printed = files.loc[table]
    frame = pd.read_csv(folder / printed["file"], dtype={"model": "str"})
    percent = frame.columns.intersection(printed["percent"].split())
    frame[percent] = (frame[percent].astype("float64") / 100).round(6)
    if "model" in frame:
        frame = frame[["model", *frame.columns.drop("model")]]
    return frame
