"""Numbers that papers and leaderboards print, each row with its source, date and link."""

from collections.abc import Sequence

import pandas as pd

from rmlab.benchmarks import benchmarks_by_name
from rmlab.records import shipped
from rmlab.tables import LEVELS, DataError, nearest, require_columns

_DOMAINS = ("chat", "math", "code", "safety")
_SEVEN = [
    "reward_bench",
    "reward_bench_2",
    "ppe_pref",
    "ppe_corr",
    "rmb",
    "rm_bench",
    "judgebench",
    "overall",
]
_SWAPPED = "RM-Bench README prints Math 93.59 and Code 72.66: the two are swapped"
_OTHER_MODEL = "printed is RM-R1-DeepSeek-Distilled-Qwen-7B's"
_SOURCE_TOLERANCE = 0.0006  # the sources print two decimals of a percentage
# What the source of a row prints, as far as it is known.
_SOURCES = pd.DataFrame(
    [
        ("DeepSeek R1", "math", 0.9359, _SWAPPED),
        ("DeepSeek R1", "code", 0.7266, _SWAPPED),
        (
            "DeepSeek R1",
            "difficulty_avg",
            0.8528,
            "RM-Bench README prints All 85.28; 80.2 is Hard alone",
        ),
        (
            "RM-R1-Qwen-Instruct-32B",
            "math",
            0.802,
            f"RM-R1 paper: 80.2; {_OTHER_MODEL}",
        ),
        (
            "RM-R1-Qwen-Instruct-32B",
            "code",
            0.668,
            f"RM-R1 paper: 66.8; {_OTHER_MODEL}",
        ),
    ],
    columns=["model", "quantity", "expected", "note"],
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
    files: dict[str, dict[str, tuple[str, Sequence[str]]]] = {
        **{
            b.name: dict(b.published)
            for b in benchmarks_by_name().values()
            if b.published
        },
        "seven-benchmarks": {"skywork-v2": ("seven_benchmarks.csv", _SEVEN)},
    }
    if benchmark not in files:
        raise DataError(
            f"benchmark: no published tables of {benchmark!r}; {nearest(benchmark, list(files))}"
        )
    table = table or next(iter(files[benchmark]))
    if table not in files[benchmark]:
        raise DataError(
            f"table: {benchmark} has no published {table!r}; {nearest(table, list(files[benchmark]))}"
        )
    name, percent = files[benchmark][table]
    frame = pd.read_csv(shipped("published") / name, dtype={"model": "str"})
    present = [column for column in percent if column in frame.columns]
    frame[present] = (frame[present].astype("float64") / 100).round(6)
    return frame[["model", *frame.columns.drop("model")]] if "model" in frame else frame


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
        One row per finding: model, check, quantity, printed, expected, difference,
        note. Checks: "domain mean is not the level mean" (the two are equal by
        definition), "overall is neither mean", "contradicts its source" (the row's own
        paper prints another value). `quantity` names the column that is in doubt. Where
        the two means differ, this is domain_avg, computed from the row, although a
        level may be the one that is wrong. A mean over columns that are not all printed
        is not checked.

    Raises
    ------
    DataError
        Where a column is missing, or holds anything but shares.
    """
    require_columns(table, ["model", *_DOMAINS, *LEVELS, "overall"], "table")
    averages = [
        column for column in ("domain_avg", "difficulty_avg") if column in table.columns
    ]
    shares = read_shares(table, [*_DOMAINS, *LEVELS, "overall", *averages], "table")
    domain, level = (
        shares[list(columns)].mean(axis=1, skipna=False)
        for columns in (_DOMAINS, LEVELS)
    )
    overall = shares["overall"]
    nearer = level.where(
        (overall - level).abs() < (overall - domain).abs(), domain
    ).fillna(level)
    models = pd.DataFrame(
        {
            "model": table["model"],
            "note": table["note"].fillna("") if "note" in table else "",
        }
    )
    cells = shares.assign(model=table["model"]).melt(
        "model", var_name="quantity", value_name="printed"
    )
    sources = _SOURCES.merge(cells, on=["model", "quantity"])
    unequal, neither = "domain mean is not the level mean", "overall is neither mean"
    findings = pd.concat(
        [
            models.assign(
                check=unequal, quantity="domain_avg", printed=domain, expected=level
            ),
            models.assign(
                check=neither, quantity="overall", printed=overall, expected=nearer
            ),
            sources.assign(check="contradicts its source"),
        ]
    )
    findings["difference"] = findings["printed"] - findings["expected"]
    allowed = (
        findings["check"]
        .map({"contradicts its source": _SOURCE_TOLERANCE})
        .fillna(tolerance)
    )
    findings = findings[findings["difference"].abs() > allowed].reset_index(drop=True)
    return findings[
        ["model", "check", "quantity", "printed", "expected", "difference", "note"]
    ]


def read_shares(
    table: pd.DataFrame, columns: Sequence[str], argument: str
) -> pd.DataFrame:
    """These columns as floats; DataError, naming the argument, for anything but shares
    from 0 to 1.
    """
    try:
        shares = table[list(columns)].astype("float64")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{argument}: not all cells are numbers ({error}); leave missing cells empty"
        ) from None
    if (shares.abs() > 1.5).any(axis=None):
        column = (shares.abs() > 1.5).any().idxmax()
        raise DataError(
            f"{argument}: {shares[column].abs().max():g} in column {column!r} is not a share; divide percent by 100"
        )
    return shares
