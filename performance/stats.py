"""Speed of the statistics on the real RewardBench matrix, as ratios to plain numpy in
the same run.

    python performance/stats.py [--data ../shared/data] [--rounds 5] [--out
    performance/results/stats.csv]

149 models x 2,985 items. The yardstick is what a script would do with the same matrix
and nothing else: weighted subset means, and the t statistic of every pair from one
product of the centred matrix; no strings, no clusters, no intervals. Processor time,
median of interleaved rounds.
"""

import argparse
import resource
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

import rmlab
from rmlab import stats

Row = dict[str, object]


def numpy_pairs(credit: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """t of every pair of models from a whole matrix (models, items) and the weight of
    each item.
    """
    value = credit @ weight
    u = (credit - value[:, None]) * weight
    product = u @ u.T
    own = np.diag(product)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (value[:, None] - value) / np.sqrt(own[:, None] + own - 2 * product)


def timed(ways: dict[str, Callable[[], object]], rounds: int) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.process_time()
            run()
            taken[name].append(time.process_time() - start)
    seconds = {name: float(np.median(values)) for name, values in taken.items()}
    plain = seconds["plain numpy: t of every pair"]
    return [
        {"what": name, "seconds": s, "times plain numpy": s / plain}
        for name, s in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    path = options.data / "rewardbench/response_matrix.torch_measure.csv"
    pairs = rmlab.read_pairs(path, benchmark="reward-bench")
    wide = pd.read_csv(path, index_col="model").to_numpy(float)
    whole = wide[~np.isnan(wide).any(axis=1)]
    weight = np.full(wide.shape[1], 1 / wide.shape[1])
    stats.rank(pairs)  # imports and caches
    rows = timed(
        {
            "plain numpy: t of every pair": lambda: numpy_pairs(whole, weight),
            "rank": lambda: stats.rank(pairs),
            "summary": lambda: rmlab.summary(pairs),
            "power, one pair": lambda: stats.power(pairs, *pairs["model"].unique()[:2]),
        },
        options.rounds,
    )
    rows += [
        {
            "what": "peak memory of the process, GiB",
            "seconds": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
    ]
    table = (
        pd.DataFrame(rows)
        .round(3)
        .assign(date=date.today().isoformat(), machine="2 CPU cores, shared")
    )
    print(table.drop(columns=["date", "machine"]).to_string(index=False))
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
