"""Which binomial interval for nearly perfect cells: coverage of RM-Bench's nine cells by five well-known ones.

A cell has one comparison a prompt, so a domain's share is binomial; a cell is the mean of four domains, whose intervals
combine by MOVER. rmlab uses mid-p, and takes the wider of this and of one interval for the whole sum (`coverage.py`).

    python benchmarks/edges.py [--draws 20000] [--out benchmarks/results/edges.csv]
"""

import argparse
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from coverage import SIZES, WORLDS
from scipy.special import betaincinv, stdtrit
from scipy.stats import binom

Limits = tuple[np.ndarray, np.ndarray]
PROMPTS = np.array(list(SIZES.values()))
DESIGNS = {name: world.design for name, world in WORLDS.items() if world.sizes == SIZES}


def wilson(x: np.ndarray, n: int) -> Limits:
    t, share = stdtrit(n - 1, 0.975), x / n
    size = np.where((x > 0) & (x < n), n - 1.0, n)  # the sample size that the clustered error implies
    centre = (share + t**2 / (2 * size)) / (1 + t**2 / size)
    half = t / (1 + t**2 / size) * np.sqrt(share * (1 - share) / size + t**2 / (4 * size**2))
    return centre - half, centre + half


def agresti_coull(x: np.ndarray, n: int) -> Limits:
    t = stdtrit(n - 1, 0.975)
    centre = (x + t**2 / 2) / (n + t**2)
    half = t * np.sqrt(centre * (1 - centre) / (n + t**2))
    return centre - half, centre + half


def clopper_pearson(x: np.ndarray, n: int) -> Limits:
    low = betaincinv(np.maximum(x, 1), n - np.maximum(x, 1) + 1, 0.025)
    high = betaincinv(np.minimum(x, n - 1) + 1, n - np.minimum(x, n - 1), 0.975)
    return np.where(x == 0, 0, low), np.where(x == n, 1, high)


def jeffreys(x: np.ndarray, n: int) -> Limits:
    low, high = (betaincinv(x + 0.5, n - x + 0.5, tail) for tail in (0.025, 0.975))
    return np.where(x == 0, 0, low), np.where(x == n, 1, high)


def mid_p(x: np.ndarray, n: int) -> Limits:
    def solve(tail: float) -> np.ndarray:
        low, high = np.zeros(len(x)), np.ones(len(x))
        for _ in range(50):
            middle = (low + high) / 2
            below = (binom.cdf(x, n, middle) + binom.cdf(x - 1, n, middle)) / 2 > tail
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return low

    return np.where(x == 0, 0, solve(0.975)), np.where(x == n, 1, solve(0.025))


METHODS = {
    "Wilson": wilson,
    "Jeffreys": jeffreys,
    "mid-p (rmlab)": mid_p,
    "Agresti-Coull": agresti_coull,
    "Clopper-Pearson": clopper_pearson,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    limits = {name: [method(np.arange(n + 1.0), n) for n in PROMPTS] for name, method in METHODS.items()}
    rows = []
    for number, (design, model) in enumerate(DESIGNS.items()):
        rng, held, width = np.random.default_rng(number), {name: [] for name in METHODS}, {name: [] for name in METHODS}
        for true in model.cells().T:
            won = rng.binomial(PROMPTS, true, (options.draws, 4))
            share = won / PROMPTS
            for name, tables in limits.items():
                low, high = (np.stack([t[end][won[:, i]] for i, t in enumerate(tables)], 1) for end in (0, 1))
                down = np.sqrt(((share - np.minimum(low, share)) ** 2).sum(axis=1)) / 4
                up = np.sqrt(((np.maximum(high, share) - share) ** 2).sum(axis=1)) / 4
                gap = true.mean() - share.mean(axis=1)
                held[name].append(((-down <= gap) & (gap <= up)).mean())
                width[name].append((down + up).mean())
        short = np.mean(width["mid-p (rmlab)"])
        rows += [
            {"design": design, "interval": name, "cells": np.mean(found), "worst": min(found),
             "width": np.mean(width[name]), "width / mid-p": np.mean(width[name]) / short, "draws": options.draws}
            for name, found in held.items()
        ]  # fmt: skip
    table = pd.DataFrame(rows).round(4).assign(date=date.today().isoformat())
    print(table.drop(columns="date").to_string(index=False))
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
