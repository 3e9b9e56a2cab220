"""Which benchmarks there are, how one is loaded, and which one a table belongs to."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks import hub
from rmlab.benchmarks.benchmark import HALF, Benchmark
from rmlab.benchmarks.code_reward_bench import CODE_REWARD_BENCH
from rmlab.benchmarks.eval_bias_bench import EVAL_BIAS_BENCH
from rmlab.benchmarks.judge_bench import JUDGE_BENCH
from rmlab.benchmarks.layout import Layout, list_files
from rmlab.benchmarks.m_reward_bench import M_REWARD_BENCH
from rmlab.benchmarks.ppe import PPE_CORRECTNESS, PPE_PREFERENCE
from rmlab.benchmarks.reward_bench import REWARD_BENCH
from rmlab.benchmarks.reward_bench_2 import REWARD_BENCH_2
from rmlab.benchmarks.rm_bench import MINI, RM_BENCH
from rmlab.benchmarks.rmb import RMB
from rmlab.benchmarks.rows import read_responses
from rmlab.plug_ins import load_plug_ins
from rmlab.tables import PROMPT, DataError, nearest
from rmlab.text import short

GROUP = "rmlab.benchmarks"
"""Entry points of this group are benchmarks from other packages: objects of type
`Benchmark`.
"""

OWN = Benchmark(name="own", title="custom data", source="rmlab.load_preferences")
"""Any domains, with or without styles; all prompts count alike."""

_log = logging.getLogger(__name__)


@cache
def benchmarks_by_name() -> dict[str, Benchmark]:
    """Every benchmark by name.

    Returns
    -------
    dict
        rmlab's own benchmarks, then those of installed packages.
    """
    shipped = (
        RM_BENCH,
        MINI,
        REWARD_BENCH,
        REWARD_BENCH_2,
        M_REWARD_BENCH,
        JUDGE_BENCH,
        RMB,
        EVAL_BIAS_BENCH,
        PPE_PREFERENCE,
        PPE_CORRECTNESS,
        CODE_REWARD_BENCH,
    )
    benchmarks = {benchmark.name: benchmark for benchmark in shipped}

    def add(_: str, benchmark: object) -> None:
        if not isinstance(benchmark, Benchmark) or benchmark.name in benchmarks:
            raise TypeError("no Benchmark, or its name is taken")
        benchmarks[benchmark.name] = benchmark

    load_plug_ins(GROUP, add)
    return benchmarks


def load(
    name: str,
    *,
    path: str | Path | None = None,
    domains: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Load a benchmark as a responses table.

    Parameters
    ----------
    name : str
        "rm-bench", "reward-bench" or "reward-bench-2" (downloaded from the hub at a
        pinned revision and verified), "m-reward-bench", "judgebench", "ppe-preference",
        "ppe-correctness" or "code-reward-bench" (from the hub, not verified), "rmb"
        (needs `path`), "mini" and "evalbiasbench" (ship with rmlab), or a benchmark of
        an installed package.
    path : str or Path, optional
        A file or folder to read in place of the hub.
    domains : str or sequence of str, optional
        Keep these domains alone: a benchmark of its own, "rm-bench (chat, code)", whose
        overall score needs no other domain. Their order does not matter.

    Returns
    -------
    DataFrame
        One row per answer: benchmark, domain, id, label, slot, subset, style, prompt,
        response. RM-Bench also has `source` (where the prompt comes from) and, where
        its files have them, `note`, `error` and `error_key` (what is wrong with the
        rejected answer). A warning names the subsets that have no rows and that
        the overall score needs.

    Raises
    ------
    DataError
        If the name is unknown, a file is bad or the hub cannot be reached.

    Examples
    --------
    >>> load("mini")["style"].cat.categories.tolist()
    ['concise', 'plain', 'markdown']
    """
    benchmarks = benchmarks_by_name()
    if name not in benchmarks:
        problem = f"load: unknown benchmark {name!r}; {nearest(name, list(benchmarks))}"
        raise DataError(problem, "for own data use load_preferences")
    benchmark = benchmarks[name]
    layout = benchmark.layout
    if path is not None:
        files = list_files(records.expand_path(path), layout.files)
    elif layout.hub:
        files = hub.fetch_benchmark(layout)
    elif layout.shipped is not None:
        files = list_files(records.shipped(layout.shipped), layout.files)
    else:
        problem = f"load: {name!r} is not on the hub"
        raise TypeError(f"{problem}; pass path='<file or folder>'")

    responses = read_responses(benchmark, files)
    if path is None and layout.hub:
        _check_download(name, layout, responses)
    if domains is not None:
        benchmark = benchmark.only(domains)
        is_kept = responses["domain"].isin(benchmark.subsets.values())
        responses = responses[is_kept].reset_index(drop=True)
        responses["benchmark"] = benchmark.name
    absent = []
    for subset, domain in benchmark.subsets.items():
        if domain in benchmark.columns and subset not in set(responses["subset"]):
            absent.append(subset)
    if absent:
        consequence = "summaries over all domains will be missing"
        _log.warning("%s: no rows for %s; %s", name, ", ".join(absent), consequence)
    return responses


def _check_download(name: str, layout: Layout, responses: pd.DataFrame) -> None:
    """Raise DataError for a wrong number of prompts; warn of files without a pin."""
    n_prompts = len(responses.drop_duplicates(PROMPT))
    if layout.n_prompts not in (None, n_prompts):
        counts = f"{n_prompts} prompts, expected {layout.n_prompts}"
        problem = f"{name}: {layout.hub} at {layout.revision} holds {counts}"
        raise DataError(problem, "download the released files and pass path=")
    if layout.revision == "main":
        reason = "no revision of them is known to be right"
        _log.warning("%s: the hub's files are not verified: %s", name, reason)


def benchmark_of(table: pd.DataFrame) -> Benchmark:
    """The benchmark of a table by its column `benchmark`. Any other name, or none, is
    that of custom data.

    Parameters
    ----------
    table : DataFrame
        Responses, scores or pairs.

    Returns
    -------
    Benchmark

    Raises
    ------
    DataError
        If the column `benchmark` has missing values or several benchmarks.
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            "table: expected scores or pairs, a pandas DataFrame, "
            f"got {type(table).__name__}"
        )
    if "benchmark" not in table.columns or table.empty:
        return OWN

    column = table["benchmark"]
    n_missing = int(column.isna().sum())
    if n_missing:
        problem = f"table: benchmark is missing in {n_missing} of {len(column)} rows"
        raise DataError(problem, "fill it in")
    names = sorted(map(str, column.unique()))
    if len(names) > 1:
        problem = f"table: {len(names)} benchmarks {short(names, 200)}"
        raise DataError(problem, "keep one of them")
    return _find_benchmark(names[0])


@cache
def _find_benchmark(name: str) -> Benchmark:
    """The benchmark of a name, or of a name with its domains in brackets; that of
    custom data for other names.
    """
    benchmarks = benchmarks_by_name()
    whole, _, domains = name.removesuffix(")").partition(" (")
    if domains and whole in benchmarks:
        with suppress(DataError):
            return benchmarks[whole].only(domains.split(", "))
    return benchmarks.get(name, OWN)


def adopt_name(texts: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Texts of custom data, or their features, under the benchmark's name in `table`.

    Custom data are named after files, and texts and scores may lie in two of them.
    """
    names = [*texts["benchmark"].unique(), *table["benchmark"].unique()]
    if len(names) != 2 or set(names) & benchmarks_by_name().keys():
        return texts
    old_name, new_name = names
    columns = ["benchmark", "domain", "subset"]
    return texts.replace({column: {old_name: new_name} for column in columns})


def chance_of_columns(columns: Iterable[str]) -> float | None:
    """What random scores earn where a summary has these columns; None where it differs
    between subsets, or between the benchmarks that the columns may be of.

    >>> chance_of_columns(["model", "chat", "code", "easy", "overall"])
    0.5
    """
    benchmarks = benchmarks_by_name().values()
    known = set[str]().union(*(benchmark.columns for benchmark in benchmarks))
    present = known.intersection(columns)
    for benchmark in benchmarks:
        if benchmark.chance and present and present.issubset(benchmark.columns):
            return None
    return HALF
