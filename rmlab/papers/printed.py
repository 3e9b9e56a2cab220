"""Numbers that papers and leaderboards print, with their source, date and link."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rmlab.records import shipped
from rmlab.tables import LEVELS, STYLES, DataError, nearest, require_columns

_DOMAINS = ("chat", "math", "code", "safety")
_FINDING = ["model", "check", "quantity", "printed", "expected", "difference", "note"]
_SOURCE_TOLERANCE = 0.0006  # the sources print two decimals of a percentage


class PrintedTable(NamedTuple):
    """A file in data/published, and its columns that are printed in per cent."""

    file: str
    percent: Sequence[str] = ()


_AVERAGES = ("overall", "domain_avg", "difficulty_avg")
_RM_BENCH = (*_DOMAINS, *LEVELS, *_AVERAGES)
_CELLS = tuple(f"cell_{row}{column}" for row in "123" for column in "123")
_SECTIONS = ("chat", "chat_hard", "safety", "reasoning")
_DELTAS = tuple(f"delta_{section}" for section in _SECTIONS)
_SUBSETS_2 = ("factuality", "precise_if", "math", "safety", "focus", "ties")
_SEVEN_BENCHMARKS = (
    "reward_bench",
    "reward_bench_2",
    "ppe_pref",
    "ppe_corr",
    "rmb",
    "rm_bench",
    "judgebench",
    "overall",
)
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
        "skywork-v2": PrintedTable("seven_benchmarks.csv", _SEVEN_BENCHMARKS)
    },
}
"""Tables of numbers that are printed, by benchmark and name."""


class _SourceValue(NamedTuple):
    """What the source of a leaderboard's row prints."""

    model: str
    quantity: str
    expected: float
    note: str


_SWAPPED = "RM-Bench README prints Math 93.59 and Code 72.66: the two are swapped"
_HARD_ALONE = "RM-Bench README prints All 85.28; 80.2 is Hard alone"
_OTHER_MODEL = "printed is RM-R1-DeepSeek-Distilled-Qwen-7B's"
_RM_R1 = "RM-R1-Qwen-Instruct-32B"
_SOURCE_VALUES = (
    _SourceValue("DeepSeek R1", "math", 0.9359, _SWAPPED),
    _SourceValue("DeepSeek R1", "code", 0.7266, _SWAPPED),
    _SourceValue("DeepSeek R1", "difficulty_avg", 0.8528, _HARD_ALONE),
    _SourceValue(_RM_R1, "math", 0.802, f"RM-R1 paper: 80.2; {_OTHER_MODEL}"),
    _SourceValue(_RM_R1, "code", 0.668, f"RM-R1 paper: 66.8; {_OTHER_MODEL}"),
)


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


def audit_leaderboard(
    table: pd.DataFrame, *, tolerance: float = 0.0015
) -> pd.DataFrame:
    """Find rows of an RM-Bench leaderboard that contradict themselves or their source.

    Parameters
    ----------
    table : DataFrame
        A leaderboard with model, chat, math, code, safety, easy, normal, hard and
        overall, in shares.
    tolerance : float
        Differences up to this are rounding.

    Returns
    -------
    DataFrame
        One row per finding. Columns:

        - model
        - check
        - quantity: the column that is in doubt
        - printed, expected, difference
        - note

        Checks: "domain mean is not the level mean" (the two are equal by definition),
        "overall is neither mean", "contradicts its source" (the row's own paper prints
        another value). Where the two means differ, `quantity` is domain_avg, computed
        from the row, although a level may be the one that is wrong. A mean over columns
        that are not all printed is not checked.

    Raises
    ------
    DataError
        Where a column is missing, or holds anything but shares.
    """
    require_columns(table, ["model", *_DOMAINS, *LEVELS, "overall"], "table")
    averages = [name for name in ("domain_avg", "difficulty_avg") if name in table]
    shares = read_shares(table, [*_DOMAINS, *LEVELS, "overall", *averages], "table")
    domain_mean = shares[list(_DOMAINS)].mean(axis=1, skipna=False)
    level_mean = shares[list(LEVELS)].mean(axis=1, skipna=False)
    overall = shares["overall"]
    level_is_nearer = (overall - level_mean).abs() < (overall - domain_mean).abs()
    nearer_mean = level_mean.where(level_is_nearer, domain_mean)

    notes: pd.Series[str] | str = ""
    if "note" in table:
        notes = table["note"].fillna("")
    unequal_means = pd.DataFrame(
        {
            "model": table["model"],
            "check": "domain mean is not the level mean",
            "quantity": "domain_avg",
            "printed": domain_mean,
            "expected": level_mean,
            "tolerance": tolerance,
            "note": notes,
        }
    )
    neither_mean = pd.DataFrame(
        {
            "model": table["model"],
            "check": "overall is neither mean",
            "quantity": "overall",
            "printed": overall,
            "expected": nearer_mean.fillna(level_mean),
            "tolerance": tolerance,
            "note": notes,
        }
    )
    contradictions = _compare_sources(table["model"], shares)

    findings = pd.concat([unequal_means, neither_mean, contradictions])
    findings["difference"] = findings["printed"] - findings["expected"]
    is_large = findings["difference"].abs() > findings["tolerance"]
    return findings.loc[is_large, _FINDING].reset_index(drop=True)


def _compare_sources(models: "pd.Series[str]", shares: pd.DataFrame) -> pd.DataFrame:
    """Numbers of a leaderboard beside those that their sources print."""
    printed = shares.assign(model=models).melt(
        "model", var_name="quantity", value_name="printed"
    )
    sources = pd.DataFrame(_SOURCE_VALUES).merge(printed, on=["model", "quantity"])
    sources["check"] = "contradicts its source"
    sources["tolerance"] = _SOURCE_TOLERANCE
    return sources


def read_shares(
    table: pd.DataFrame, columns: Sequence[str], argument: str
) -> pd.DataFrame:
    """These columns as floats.

    DataError, naming the argument, for anything but shares from 0 to 1.
    """
    try:
        shares = table[list(columns)].astype("float64")
    except (TypeError, ValueError) as error:
        problem = f"{argument}: not all cells are numbers ({error})"
        raise DataError(problem, "leave missing cells empty") from None

    largest = shares.abs().max()
    too_large = largest[largest > 1.5]
    if not too_large.empty:
        column = too_large.index[0]
        problem = (
            f"{argument}: {too_large[column]:g} in column {column!r} is not a share"
        )
        raise DataError(problem, "divide percent by 100")
    return shares
