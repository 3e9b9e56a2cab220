"""Numbers that papers and leaderboards print, with their source, date and link."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rmlab.records import shipped
from rmlab.tables import LEVELS, STYLES, DataError, nearest

_DOMAINS = ("chat", "math", "code", "safety")


class PrintedTable(NamedTuple):
    """A file in data/published, and its columns that are printed in per cent."""

    file: str
    percent: Sequence[str] = ()


_AVERAGES = ("overall", "domain_avg", "difficulty_avg")
_RM_BENCH = (*_DOMAINS, *LEVELS, *_AVERAGES)
_CELLS = tuple(map("cell_{}{}".format, "111222333", "123" * 3))
_SECTIONS = ("chat", "chat_hard", "safety", "reasoning")
_DELTAS = tuple(f"delta_{section}" for section in _SECTIONS)
_SUBSETS_2 = ("factuality", "precise_if", "math", "safety", "focus", "ties")
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
_TRAINED_WITH = (
    "rb2_preprint",
    "ppo",
    "bon",
    "rb2_iclr",
    "rmbench",
    "ppe_human_pref",
    "ppe_correctness",
    "rewardbench1",
)
TABLES: Mapping[str, Mapping[str, PrintedTable]] = {
    "rm-bench": {
        "leaderboard": PrintedTable("rm_bench_leaderboard.csv", _RM_BENCH),
        "paper": PrintedTable("rm_bench_paper.csv", _RM_BENCH),
        "skywork-v2": PrintedTable("rm_bench_skywork_v2.csv", _RM_BENCH),
        "matrix": PrintedTable("rm_bench_matrix.csv", STYLES),
        "length-only": PrintedTable(
            "rm_bench_length_only.csv", (*_CELLS, *LEVELS, "overall")
        ),
        "statistics": PrintedTable("rm_bench_statistics.csv"),
        "perturbations": PrintedTable("reward_auditor.csv"),
    },
    "reward-bench": {
        "paper": PrintedTable(
            "reward_bench_paper.csv", (*_SECTIONS, "prior_sets", "overall")
        ),
        "leaderboard": PrintedTable("reward_bench_leaderboard.csv"),
        "reference-free": PrintedTable(
            "reward_bench_reference_free.csv",
            ("with_reference", "reference_free", "delta", *_DELTAS),
        ),
        "subsets": PrintedTable("reward_bench_subsets.csv"),
    },
    "reward-bench-2": {
        "paper": PrintedTable("reward_bench_2_paper.csv", (*_SUBSETS_2, "overall")),
        "leaderboard": PrintedTable("reward_bench_2_leaderboard.csv"),
        "ppo-bon": PrintedTable("reward_bench_2_ppo_bon.csv", _TRAINED_WITH),
        "training": PrintedTable(
            "reward_bench_2_training.csv", (*_SUBSETS_2, "overall")
        ),
        "correlations": PrintedTable("reward_bench_2_correlations.csv"),
        "between": PrintedTable("reward_bench_2_between.csv"),
    },
    "judgebench": {"skywork-v2": PrintedTable("judgebench.csv", ("overall",))},
    "rmb": {"skywork-v2": PrintedTable("rmb.csv", ("overall",))},
    "seven-benchmarks": {
        "skywork-v2": PrintedTable(
            "seven_benchmarks.csv", (*SEVEN_BENCHMARKS.values(), "overall")
        )
    },
}
"""Tables of numbers that are printed, by benchmark and name."""


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
    if benchmark not in TABLES:
        problem = f"benchmark: no published tables of {benchmark!r}"
        raise DataError(problem, nearest(benchmark, list(TABLES)))
    tables = TABLES[benchmark]
    if not table:
        table = next(iter(tables))
    if table not in tables:
        problem = f"table: {benchmark} has no published {table!r}"
        raise DataError(problem, nearest(table, list(tables)))

    printed = tables[table]
    frame = pd.read_csv(shipped("published") / printed.file, dtype={"model": "str"})
    percent = frame.columns.intersection(list(printed.percent))
    frame[percent] = (frame[percent].astype("float64") / 100).round(6)
    if "model" in frame:
        frame = frame[["model", *frame.columns.drop("model")]]
    return frame
