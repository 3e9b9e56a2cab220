"""What is estimated: overall, a domain, a level, a cell, as weighted sums of the means of cells of comparisons."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmlab import tables
from rmlab.intervals import FEWEST
from rmlab.stats.grid import Codes, Floats, Grid, allowed
from rmlab.tables import LEVELS, DataError

__all__ = ["Average", "Scheme", "Target", "groups", "overall", "scheme", "styled", "target_of", "too_few"]

Average = Literal["benchmark", "domains", "prompts"] | Mapping[str, float]
Mask = NDArray[np.bool_]

DOMAINS = ("chat", "math", "code", "safety")  # of RM-Bench: overall is their plain mean
_GROUPS = ("domain", "subset", "level", "chosen_style", "rejected_style")


class Target(NamedTuple):
    """A number to estimate: a weighted sum of the means of cells of comparisons."""

    cells: Codes  # cell of each comparison
    weights: Floats  # weight of each cell
    strata: Codes  # stratum of each prompt, for its error
    names: list[str]  # of the strata
    absent: str = ""  # why the number does not exist, if it does not


class Scheme(NamedTuple):
    """How domains combine: which strata they form, and what each weighs."""

    stratum: Codes  # of each domain
    weights: Floats  # of each stratum, together 1
    names: list[str]
    absent: str = ""


def scheme(grid: Grid, average: Average) -> Scheme:
    """Strata and weights of the domains; says what is absent where the average does not exist."""
    if isinstance(average, str):
        allowed("average", average, ("benchmark", "domains", "prompts"))
        if average == "prompts" or (average == "benchmark" and not _of_rm_bench(grid)):
            return Scheme(np.zeros(len(grid.domains), np.intp), np.ones(1), ["all prompts"])
        average = dict.fromkeys(DOMAINS if average == "benchmark" else grid.domains, 1.0)
    strange = [d for d in grid.domains if d not in average]
    if strange:
        raise DataError(
            f"average: no weight for domain {strange[0]!r}; {tables.nearest(strange[0], list(average))}; "
            "give every domain a weight (0 leaves it out), or use average='domains' or 'prompts'"
        )
    weights = np.array([float(average[d]) for d in grid.domains])
    if (weights < 0).any() or weights.sum() <= 0:
        raise ValueError(f"average: weights {dict(average)}; they must not be negative and not all zero")
    absent = [d for d, weight in average.items() if weight and d not in grid.domains]
    reason = f"no comparisons in {', '.join(absent)}" if absent else ""
    return Scheme(np.arange(len(grid.domains)), weights / weights.sum(), grid.domains, reason)


def _of_rm_bench(grid: Grid) -> bool:
    """Whether the domains are RM-Bench's: own data with styles may have any."""
    return styled(grid) and not set(grid.domains).isdisjoint(DOMAINS)


def styled(grid: Grid) -> bool:
    """Whether every comparison has a level, as in RM-Bench."""
    return bool(grid.items["level"].notna().all())


def overall(grid: Grid, average: Average) -> Target:
    """The overall score: mean over domains of the mean over levels, as far as the benchmark has them."""
    rule = scheme(grid, average)
    strata = rule.stratum[grid.domain]
    cells, weights = strata[grid.prompt], rule.weights
    if styled(grid):
        cells = len(LEVELS) * cells + grid.items["level"].cat.codes.to_numpy()
        weights = np.repeat(weights, len(LEVELS)) / len(LEVELS)
    return Target(cells, weights, strata, rule.names, rule.absent)


def groups(table: Grid, by: list[str], average: Average) -> Iterator[tuple[dict[str, object], Mask, Target]]:
    """Key, comparisons and target of each row of `compare`; closed columns come on their full grid."""
    strange = [c for c in by if c not in _GROUPS]
    if strange:
        raise DataError(f"by: {strange[0]!r}; {tables.nearest(strange[0], _GROUPS)}")
    blank = [c for c in by if table.items[c].isna().any()]
    if blank:
        raise DataError(f"by: {blank[0]!r} is missing in some comparisons; group by domain or subset")
    target = target_of(table, by, average)
    open_ = [c for c in by if c in ("domain", "subset")]
    closed = [c for c in by if c not in open_]
    found = table.items[open_].sort_index().drop_duplicates()
    seen = found.itertuples(index=False, name=None) if open_ else [()]
    for names, kinds in product(seen, product(*(table.items[c].cat.categories for c in closed))):
        key = dict(zip([*open_, *closed], [*names, *kinds], strict=True))
        chosen = np.ones(len(table.prompt), bool)
        for column, value in key.items():
            chosen &= (table.items[column] == value).to_numpy()
        yield {c: key[c] for c in by}, chosen, target


def target_of(table: Grid, by: list[str], average: Average) -> Target:
    """What a row estimates: its domains averaged, unless it lies inside one, and levels alike, unless it is one."""
    inside = {"domain", "subset"} & set(by) or (average == "benchmark" and len(table.domains) == 1)
    rule: Average = "prompts" if inside else average
    target = overall(table, rule)
    if target.absent:
        raise DataError(
            f"pairs: {target.absent}, so the overall score does not exist; average='domains' averages the domains "
            "there are, average='prompts' counts all prompts alike, by='domain' compares one by one"
        )
    if not set(by) <= {"domain", "subset"} and styled(table):
        shared = scheme(table, rule)
        target = target._replace(cells=target.strata[table.prompt], weights=shared.weights)
    return target


def too_few(influence: Floats, target: Target) -> list[str]:
    """For each row of influence, the strata that count with fewer than 5 prompts, as a reason; else empty."""
    member = (target.strata[:, None] == np.arange(len(target.names))).astype(float)
    n = (~np.isnan(influence)).astype(float) @ member
    few = f"fewer than {FEWEST} prompts"
    reasons = [few] if len(target.names) == 1 else [f"{name}: {few}" for name in target.names]
    return ["; ".join(r for r, k in zip(reasons, row, strict=True) if 0 < k < FEWEST) for row in n]
