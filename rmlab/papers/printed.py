"""Numbers that papers and leaderboards print, each row with its source, date and link."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab.benchmarks import known
from rmlab.records import shipped
from rmlab.tables import LEVELS, DataError, nearest

__all__ = ["audit_leaderboard", "published"]

_RM = known()["rm-bench"]
_DOMAINS = list(dict.fromkeys(_RM.subsets.values()))
_RM_BENCH = [*_RM.columns, "overall", "domain_avg", "difficulty_avg"]
_SEVEN = ["reward_bench", "reward_bench_2", "ppe_pref", "ppe_corr", "rmb", "rm_bench", "judgebench", "overall"]


def files() -> dict[str, dict[str, tuple[str, Sequence[str]]]]:
    """Benchmark -> table -> (file, columns printed in per cent)."""
    own = {b.name: dict(b.published) for b in known().values() if b.published}
    return own | {"seven-benchmarks": {"skywork-v2": ("seven_benchmarks.csv", _SEVEN)}}


def published(benchmark: str, table: str | None = None) -> pd.DataFrame:
    """One published table as printed, in shares from 0 to 1 where the print is in percent.

    `benchmark`: "rm-bench" (tables leaderboard, paper, skywork-v2, matrix, length-only, statistics, perturbations),
    "reward-bench" (paper, leaderboard, reference-free, subsets; the leaderboard without the rows whose cut names
    repeat), "reward-bench-2" (paper, leaderboard, ppo-bon, training, correlations, between), "seven-benchmarks"
    (skywork-v2). `table` defaults to the first named. One row per model (or as the table's own
    first columns say); the last columns are source, date and link. An empty cell is missing, never zero.

    >>> published("rm-bench").set_index("model")["hard"].head(1).to_dict()
    {'Skywork-Reward-V2-Llama-3.1-8B-40M': 0.935}
    """
    there = files()
    if benchmark not in there:
        raise DataError(f"benchmark: no published tables of {benchmark!r}; {nearest(benchmark, list(there))}")
    tables = there[benchmark]
    table = table or next(iter(tables))
    if table not in tables:
        raise DataError(f"table: {benchmark} has no published table {table!r}; {nearest(table, list(tables))}")
    name, percent = tables[table]
    frame = pd.read_csv(shipped("published") / name, dtype={"model": "str"})
    present = [column for column in percent if column in frame.columns]
    shares = (frame[present].astype("float64") / 100).round(6)
    first = [c for c in ("model",) if c in frame.columns]
    return frame.assign(**{c: shares[c] for c in present})[[*first, *(c for c in frame.columns if c not in first)]]


def audit_leaderboard(table: pd.DataFrame, *, tolerance: float = 0.0015) -> pd.DataFrame:
    """Rows of an RM-Bench leaderboard that contradict themselves or their source: one row per finding.

    Columns: model, check, printed, expected, difference, note. Checks: "domain mean is not the level mean" (the two
    are equal by definition), "overall is neither mean", "contradicts its source" (rows whose own paper prints other
    values). A mean over columns that are not all printed is not checked. Differences within `tolerance` are rounding.
    Raises DataError where a column is missing, or holds anything but shares.
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table: a leaderboard such as rmlab.papers.published('rm-bench'), not {type(table).__name__}")
    missing = [c for c in ("model", *_DOMAINS, *LEVELS, "overall") if c not in table.columns]
    if missing:
        raise DataError(
            f"table: no column {missing[0]!r}; a leaderboard has model, {', '.join(_DOMAINS)}, {', '.join(LEVELS)} "
            f"and overall; found: {', '.join(map(str, table.columns))[:200]}; "
            "start from rmlab.papers.published('rm-bench')"
        )
    table = table.assign(**_shares(table))
    domain = table[_DOMAINS].mean(axis=1, skipna=False)
    level = table[list(LEVELS)].mean(axis=1, skipna=False)
    means = _findings(table, domain, level, "domain mean is not the level mean", tolerance)
    nearer = level.where((table["overall"] - level).abs() < (table["overall"] - domain).abs(), domain).fillna(level)
    overall = _findings(table, table["overall"], nearer, "overall is neither mean", tolerance)
    return pd.concat([means, overall, _contradictions(table)], ignore_index=True)


def _shares(table: pd.DataFrame) -> dict[str, pd.Series]:
    """The columns that are checked, as floats; raises DataError for anything but shares from 0 to 1."""
    made = {}
    for column in (name for name in _RM_BENCH if name in table.columns):
        try:
            made[column] = table[column].astype("float64")
        except (TypeError, ValueError) as error:
            raise DataError(f"table: column {column!r} has no numbers ({error}); leave missing cells empty") from None
        if (made[column].abs() > 1.5).any():
            raise DataError(
                f"table: {made[column].max():g} in column {column!r} is not a share; divide by 100 if it is in percent"
            )
    return made


def _findings(
    table: pd.DataFrame, printed: pd.Series, expected: pd.Series, check: str, tolerance: float
) -> pd.DataFrame:
    frame = pd.DataFrame({"model": table["model"], "check": check, "printed": printed, "expected": expected})
    frame = frame.assign(
        difference=printed - expected, note=table["note"].fillna("") if "note" in table.columns else ""
    )
    return frame[frame["difference"].abs() > tolerance]


# What the source of a row prints, as far as it is known: (model, column, value, source).
_SOURCES = (
    ("DeepSeek R1", "math", 0.9359, "RM-Bench README prints Math 93.59 and Code 72.66: the two are swapped"),
    ("DeepSeek R1", "code", 0.7266, "RM-Bench README prints Math 93.59 and Code 72.66: the two are swapped"),
    ("DeepSeek R1", "difficulty_avg", 0.8528, "RM-Bench README prints All 85.28; 80.2 is Hard alone"),
    ("RM-R1-Qwen-Instruct-32B", "math", 0.802, "RM-R1 paper: 80.2; printed is RM-R1-DeepSeek-Distilled-Qwen-7B's"),
    ("RM-R1-Qwen-Instruct-32B", "code", 0.668, "RM-R1 paper: 66.8; printed is RM-R1-DeepSeek-Distilled-Qwen-7B's"),
)


def _contradictions(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for model, column, expected, note in _SOURCES:
        values = table.loc[table["model"] == model].get(column, pd.Series(dtype="float64"))
        for printed in values:
            if not np.isnan(printed) and abs(printed - expected) > 0.0006:
                rows.append(
                    (model, "contradicts its source", printed, expected, printed - expected, f"{column}: {note}")
                )
    return pd.DataFrame(rows, columns=["model", "check", "printed", "expected", "difference", "note"])
