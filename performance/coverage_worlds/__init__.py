"""Worlds with known true values, by name: each is one function that counts what holds
in them.

    @world("point: none of 25 prompts differ")
    def none_differ(draws: int, rng: np.random.Generator) -> Iterator[Measure]:
        ...
        yield coverage("difference", low, high, true)
        yield false_alarms("compare", p < 0.05)

Every module of this folder is imported by `coverage.py`, so a file with worlds is all
it takes to add some.
"""

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

NAN = float("nan")
MEAN_FLOOR = 0.93  # coverage of nominal 95 %: the numbers of a kind on average
WORST_FLOOR = 0.91  # and the worst of them
DERIVED_FLOOR = 0.92  # of derived measures
GIVEN_FLOOR = 0.95  # share of draws in which a derived measure is a number
RANK_FLOOR = 0.94
ALARM_CEILING = 0.06


class Measure(NamedTuple):
    """One line of the table: the share of `draws` in which something held, and the
    bound of that share.
    """

    what: str
    share: float
    draws: int
    at_least: float = NAN
    at_most: float = NAN
    worst: float = (
        NAN  # lowest share of a single number, where several are counted together
    )
    worst_at_least: float = NAN
    width: float = NAN
    plain: float = NAN  # the same of the plain clustered t
    plain_width: float = NAN


Run = Callable[[int, np.random.Generator], Iterator[Measure]]


WORLDS: dict[str, Run] = {}


def world(name: str) -> Callable[[Run], Run]:
    """Register a function `(draws, rng) -> measures` under a name."""

    def register(run: Run) -> Run:
        if name in WORLDS:
            raise ValueError(f"name: {name!r} is taken")
        WORLDS[name] = run
        return run

    return register


def coverage(
    what: str,
    low: np.ndarray,
    high: np.ndarray,
    true: float | np.ndarray,
    *,
    at_least: float = MEAN_FLOOR,
) -> Measure:
    """How many of the intervals (draws,) hold the true value, and their mean width; NaN
    limits do not count.
    """
    given = ~np.isnan(low)
    inside = (low <= true + 1e-12) & (true - 1e-12 <= high)
    width = float(np.mean((high - low)[given]))
    return Measure(
        what,
        float(inside[given].mean()),
        int(given.sum()),
        at_least=at_least,
        width=width,
    )


def given(what: str, value: np.ndarray, *, at_least: float = NAN) -> Measure:
    """In how many draws (draws,) there is a number at all."""
    return Measure(
        what, float(np.mean(~np.isnan(value))), len(value), at_least=at_least
    )


def false_alarms(
    what: str, rejected: np.ndarray, *, at_most: float = ALARM_CEILING
) -> Measure:
    """How many tests (draws,) reject what is true."""
    return Measure(what, float(np.mean(rejected)), len(rejected), at_most=at_most)


def seed_of(name: str) -> int:
    """A seed of the name, so that a world alone gives what it gives among others."""
    return zlib.crc32(name.encode())


def load() -> dict[str, Run]:
    """All worlds, those of every module of this folder."""
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"{__name__}.{path.stem}")
    return WORLDS
