"""The ways in which a benchmark's numbers are counted, each with the words that name it."""

from collections.abc import Mapping

import pandas as pd

from rmlab.benchmarks import Benchmark
from rmlab.metrics import summary

__all__ = ["counted", "quantities", "rules"]


def quantities(benchmark: Benchmark) -> list[str]:
    """The numbers that a leaderboard of the benchmark prints."""
    means = ["domain_avg", "difficulty_avg"] if benchmark.styles else []
    return [*benchmark.columns, "overall", *means]


def rules(benchmark: Benchmark) -> dict[str, Mapping[str, str]]:
    """Options of `summary` by the words that name them; "" is the benchmark's own way."""
    return {"": {}, **benchmark.variants}


def counted(table: pd.DataFrame, benchmark: Benchmark, options: Mapping[str, str]) -> pd.DataFrame:
    """The benchmark's numbers by one rule, one row per model (index)."""
    found = summary(table, **options).set_index("model")  # type: ignore[arg-type]
    if benchmark.styles:
        found = found.assign(domain_avg=found["overall"], difficulty_avg=found["overall"])
    return found.reindex(columns=quantities(benchmark))
