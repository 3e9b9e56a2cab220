"""A benchmark's own columns for every model, and every number with its interval."""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.benchmarks.registry import benchmark_of, known
from rmlab.items.comparisons import Ties
from rmlab.items.grid import Codes
from rmlab.items.weighting import Average, Number
from rmlab.metrics.estimate import Estimate, estimate, values
from rmlab.metrics.numbers import Reading, numbers, read
from rmlab.tables import LEVELS, DataError, made_from

__all__ = [
    "Part",
    "counts",
    "estimates",
    "reward_bench",
    "reward_bench_2",
    "rm_bench",
    "stacked",
    "summary",
    "summary_of",
]

Part = dict[str, object]
"""Columns of some rows of a table, one value a model or one for all of them."""

_MOST_DOMAINS = 8
_RESERVED = ("model", "overall", "se", "low", "high", "n_prompts", "n_ties", "missing", "average", "reason")


def summary(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """The benchmark's own table, one row per model, in the order of the rows of `table` (scores or pairs).

    Columns: model; the benchmark's (RM-Bench: chat, math, code, safety, easy, normal, hard; RewardBench 1: chat,
    chat_hard, safety, reasoning, prior_sets; RewardBench 2: its six subsets; data of your own: up to eight domains,
    and the levels where answers have styles); overall; se, low, high (of overall, clustered by prompt); n_prompts,
    n_ties, missing (items without a score or verdict: counted, never lost); average; reason (why overall or its
    interval is not there).
    All are shares from 0 to 1 (Ties: -0.01 to 1.01). A number that lacks one of its parts is missing, never the mean
    of the rest.

    `average` combines the parts: "benchmark" (its own way), "domains" (all that are there alike), "prompts" (all alike)
    or a mapping of domains to weights. `ties`: what a tie earns, "loss", "half" or "drop"; RewardBench 2: "share",
    "loss" or "win"; default: the benchmark's rule. `common` keeps the items that all models have. Further options are
    the benchmark's: `safety="split"` (RM-Bench), `weights=`, `prior_sets=` (RewardBench 1), `overall=` (RewardBench 2).
    `estimates` has all numbers with intervals. Raises DataError for several benchmarks in one table, TypeError for an
    option that the benchmark does not have.
    """
    return made_from(table, summary_of(read(table, average, ties, common, options), confidence=confidence))


def summary_of(reading: Reading, *, confidence: float = 0.95) -> pd.DataFrame:
    """`summary` of a table that was read."""
    shown = _columns(reading, [(quantity, name) for quantity, name, _ in numbers(reading)])
    # Each number knows the pool of every item: those of thousands of domains are not held at once.
    kept = {*shown, ("overall", "overall")}
    found = {(quantity, name): one for quantity, name, one in numbers(reading) if (quantity, name) in kept}
    frame = pd.DataFrame({"model": pd.Series(reading.items.models, dtype="str")})
    for quantity, name in shown:
        column = f"domain {name}" if name in _RESERVED else name
        frame[column] = values(reading.items, found[quantity, name])[0]  # no interval is printed: none is worked out
    one = estimate(reading.items, found["overall", "overall"], confidence=confidence)
    frame = frame.assign(overall=one.value, **counts(one, reading))
    return frame.astype({"average": "str", "reason": "str"})


def estimates(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Every number with its interval: one row per model, quantity and name. The same options as `summary`.

    Quantities: overall, section (RewardBench 1), domain, subset, level (easy, normal, hard) and cell ("concise >
    markdown": chosen against rejected style); levels and cells where all answers have styles.
    Columns: model, quantity, name, value, se (clustered by prompt, CR2), low, high, n_prompts, n_pairs (items counted),
    n_ties, missing (items without a score or verdict), chance (what random scores earn; missing where it is not known),
    average, reason (why there is no value or no interval, else empty). Fewer than 5 prompts in a part that counts give
    no interval.
    Intervals: mid-p on the effective sample size of each stratum, joined by MOVER (Korn and Graubard 1998; Zou and
    Donner 2008); Miller (arXiv 2411.00640) for the clusters.
    """
    reading = read(table, average, ties, common, options)
    parts: list[Part] = []
    for quantity, name, number in numbers(reading):
        one = estimate(reading.items, number, confidence=confidence)
        behind = counts(one, reading, n_pairs=one.n_pairs)
        key = {"model": reading.items.models, "quantity": quantity, "name": name}
        parts.append({**key, "value": one.value, **behind, "chance": chance(reading, number)})
    frame = stacked(parts, len(reading.items.models))
    last = ["chance", "average", "reason"]
    return made_from(table, frame[[*(c for c in frame.columns if c not in last), *last]])


def stacked(parts: list[Part], size: int) -> pd.DataFrame:
    """One frame of parts whose columns hold `size` values (one a model) or one value: the rows of a model together.

    Built at once: a frame for each of thousands of domains would take most of the time.
    """
    made = {}
    for column in parts[0]:
        values = [np.broadcast_to(np.asarray(part[column]), size) for part in parts]
        made[column] = np.stack(values, axis=1).ravel()
    strings = {c: isinstance(v.flat[0], str) for c, v in made.items()}
    return pd.DataFrame({c: pd.Series(v, dtype="str" if strings[c] else None) for c, v in made.items()})


def counts(one: Estimate, reading: Reading, **further: Codes) -> dict[str, NDArray[np.generic]]:
    """The columns behind a value that all tables share: its error, its interval, what it was counted from."""
    return {
        "se": one.se,
        "low": one.low,
        "high": one.high,
        "n_prompts": one.n_prompts,
        **further,
        "n_ties": one.n_ties,
        "missing": one.missing,
        "average": np.array([reading.weighting.label] * len(one.value), dtype=object),
        "reason": np.array(one.reason, dtype=object),
    }


def chance(reading: Reading, number: Number) -> float:
    """What random scores earn: the chance of each pool's subset, with the weights of the first model."""
    counted = number.pool >= 0
    if not counted.any():
        return float("nan")
    subset = reading.items.cells["subset"].to_numpy()[reading.items.cell[counted]]
    pool, first = np.unique(number.pool[counted], return_index=True)
    each = np.array([reading.benchmark.chance_of(subset[row]) for row in first])
    weight = number.weight[0, pool]
    return float((weight * each)[weight > 0].sum() / weight.sum())


def rm_bench(
    table: pd.DataFrame, *, ties: Ties = "loss", safety: Literal["pooled", "split"] = "pooled", confidence: float = 0.95
) -> pd.DataFrame:
    """`summary` of RM-Bench: chat, math, code, safety | easy, normal, hard | overall.

    A domain's level is the mean of its cells, a domain's score the mean of its three levels; easy, normal, hard and
    overall are unweighted means over the four domains, so the mean of the domains equals the mean of the levels.
    `safety="pooled"` counts refuse and response prompts as one domain, as the released runner does; "split" averages
    the two files. RM-Bench (arXiv 2410.16184), section 3; `scripts/utils.py` of its repository.
    """
    return summary(_of(table, "rm-bench", "mini"), ties=ties, safety=safety, confidence=confidence)


def reward_bench(
    table: pd.DataFrame, *, weights: str = "published", ties: Ties = "loss", confidence: float = 0.95
) -> pd.DataFrame:
    """`summary` of RewardBench 1: chat, chat_hard, safety, reasoning | prior_sets | overall.

    A section is the mean of its subsets' accuracies with weights: "published" (the leaderboard's counts, math-prm
    counted as 984), "counts" (the prompts in `table`), "published-before-2024-09" (the two xstest counts swapped, as
    they then were), "alike". prior_sets is the plain mean of the four prior sets; overall the mean of the sections,
    prior sets at half weight, and without them where a model has none. RewardBench (arXiv 2403.13787), section 4;
    `rewardbench/constants.py`.
    """
    return summary(_of(table, "reward-bench"), weights=weights, ties=ties, confidence=confidence)


def reward_bench_2(scores: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """`summary` of RewardBench 2: factuality, precise_if, math, safety, focus, ties | overall.

    Five subsets are best of four with 1/k credit (`best_of`), Ties its weighted score (`ties_score`; a pair of prompts
    counts as one); overall is their unweighted mean. RewardBench 2 (arXiv 2506.01937), table 3; `rewardbench/utils.py`.
    """
    return summary(_of(scores, "reward-bench-2"), confidence=confidence)


def _of(table: pd.DataFrame, name: str, *others: str) -> pd.DataFrame:
    """`table` as one of the named benchmark, unless it is one of another."""
    found, wanted = benchmark_of(table), known()[name]
    if found.name in (name, *others):
        return table.assign(benchmark=found.name)
    if found.name in known():
        raise DataError(f"table: results of {found.title}, not of {wanted.title}; use rmlab.summary(table)")
    return table.assign(benchmark=name)


def _columns(reading: Reading, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The numbers that are columns of the summary, in the benchmark's order."""
    if not reading.benchmark.columns:
        domains = [key for key in found if key[0] == "domain"]
        return [*(domains if 1 < len(domains) <= _MOST_DOMAINS else []), *(key for key in found if key[0] == "level")]
    place = {name: (quantity, name) for quantity, name in reversed(found) if quantity not in ("cell", "overall")}
    place |= {name: ("level", name) for name in LEVELS if ("level", name) in found}
    return [place[name] for name in reading.benchmark.columns]
