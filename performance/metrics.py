"""Speed of the RM-Bench metrics against the plain nested loops, in one run.

Processor times, interleaved, median of several. The loops are those the tests use as
oracle (tests/oracles.py). Two layers of rmlab are timed: arrays (`win_matrix`) and
tables (`rmlab.matrix`, `rmlab.summary` on a pairs frame).

    OMP_NUM_THREADS=1 python performance/metrics.py [--repeats 7] [--out
    performance/results/metrics.csv]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import oracles

from rmlab import metrics

SIZES = {
    "chat": 129,
    "math": 529,
    "code": 228,
    "safety-refuse": 284,
    "safety-response": 157,
}
STYLES = ("concise", "plain", "markdown")


def win_matrix(chosen: np.ndarray, rejected: np.ndarray) -> np.ndarray:
    """Share of prompts with chosen > rejected for every pair of slots, as arrays:
    (models, prompts, n) each.
    """
    chosen, rejected = (
        np.ascontiguousarray(np.swapaxes(scores, -1, -2))
        for scores in (chosen, rejected)
    )
    wins = np.packbits(chosen[..., :, None, :] > rejected[..., None, :, :], axis=-1)
    return np.bitwise_count(wins).sum(axis=-1, dtype=np.int64) / chosen.shape[-1]


def random_scores(models: int, seed: int = 0) -> np.ndarray:
    """Scores (models, prompts, 6): chosen in three styles, then rejected, with ties."""
    return (
        np.random.default_rng(seed)
        .integers(0, 50, (models, sum(SIZES.values()), 6))
        .astype(float)
    )


def as_table(values: np.ndarray) -> pd.DataFrame:
    models, prompts, _ = values.shape
    names = [name for name, n in SIZES.items() for _ in range(n)]
    one = pd.DataFrame(
        {
            "benchmark": "rm-bench",
            "domain": np.repeat([n.split("-")[0] for n in names], 6),
            "id": np.repeat([f"{name}/{i}" for i, name in enumerate(names)], 6),
            "label": np.tile(["chosen"] * 3 + ["rejected"] * 3, prompts),
            "slot": np.tile([0, 1, 2] * 2, prompts),
            "subset": np.repeat(names, 6),
            "style": np.tile(STYLES * 2, prompts),
        }
    )
    return pd.concat(
        [one.assign(model=f"model {m}", score=values[m].ravel()) for m in range(models)]
    )


def as_rows(values: np.ndarray) -> list[list[dict]]:
    """The same scores as each model's result file: rows with score_chosen and
    score_rejected.
    """
    names = [name for name, n in SIZES.items() for _ in range(n)]
    return [
        [
            {"id": f"{name}/{i}", "score_chosen": row[:3], "score_rejected": row[3:]}
            for i, (name, row) in enumerate(zip(names, model, strict=True))
        ]
        for model in values.tolist()
    ]


def timed(run: Callable[[], object], inner: int) -> float:
    start = time.process_time()
    for _ in range(inner):
        run()
    return (time.process_time() - start) / inner


def measure(models: int, repeats: int) -> dict[str, float]:
    values = random_scores(models)
    rows, pairs = as_rows(values), metrics.pairs(as_table(values))
    chosen, rejected = values[..., :3], values[..., 3:]
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "loops: nine cells": (lambda: [oracles.matrix(model) for model in rows], 1),
        "arrays: nine cells": (
            lambda: win_matrix(chosen, rejected),
            50 if models == 1 else 3,
        ),
        "loops: summary": (lambda: [oracles.rm_bench(model) for model in rows], 1),
        "table: summary with intervals": (lambda: metrics.summary(pairs), 1),
    }
    if models == 1:
        ways["table: nine cells"] = (lambda: metrics.matrix(pairs), 3)
    assert np.allclose(
        ways["arrays: nine cells"][0](),
        np.array(ways["loops: nine cells"][0]()),
        atol=1e-12,
    )
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, (run, inner) in ways.items():
            seconds[way].append(timed(run, inner))
    return {way: statistics.median(times) for way, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for models in (1, 50):
        seconds = measure(models, options.repeats)
        rows += [
            {
                "models": models,
                "way": way,
                "ms": 1000 * s,
                "times faster than loops": seconds[
                    "loops: summary" if "summary" in way else "loops: nine cells"
                ]
                / s,
            }
            for way, s in seconds.items()
        ]
    many = random_scores(1000)
    ms = 1000 * statistics.median(
        timed(lambda: win_matrix(many[..., :3], many[..., 3:]), 1)
        for _ in range(options.repeats)
    )
    rows.append(
        {
            "models": 1000,
            "way": "arrays: nine cells",
            "ms": ms,
            "times faster than loops": float("nan"),
        }
    )
    table = pd.DataFrame(rows).round(3)
    print(table.to_string(index=False))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
