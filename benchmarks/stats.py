"""Speed of the statistics on the real RewardBench matrix, as ratios to plain numpy in the same run.

    python benchmarks/stats.py [--data ../shared/data] [--rounds 5] [--out benchmarks/results/stats.csv]

149 models x 2,985 items. The yardstick is what a script would do with the same matrix and nothing else: weighted subset
means, and the t statistic of every pair from one product of the centred matrix; no strings, no clusters, no intervals.
Beside it McNemar's p of every pair of models against statsmodels. Processor time, median of interleaved rounds.
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
from rmlab.stats.mcnemar import mcnemar
from rmlab.stats.simultaneous import DRAWS

Row = dict[str, object]


def numpy_pairs(credit: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """t of every pair of models from a whole matrix (models, items) and the weight of each item."""
    value = credit @ weight
    u = (credit - value[:, None]) * weight
    product = u @ u.T
    own = np.diag(product)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (value[:, None] - value) / np.sqrt(own[:, None] + own - 2 * product)


def numpy_max_t(credit: np.ndarray, weight: np.ndarray) -> float:
    """Critical value of the largest |t| of all pairs, by as many Gaussian draws as `rank` takes, pair by pair."""
    u = (credit - (credit @ weight)[:, None]) * weight
    drawn = np.random.default_rng(0).standard_normal((DRAWS, u.shape[1]), dtype=np.float32) @ u.T.astype(np.float32)
    a, b = np.triu_indices(len(u), 1)
    se = np.sqrt(((u[a] - u[b]) ** 2).sum(axis=1)).astype(np.float32)
    return float(np.quantile((np.abs(drawn[:, a] - drawn[:, b]) / se).max(axis=1), 0.95))


def timed(ways: dict[str, Callable[[], object]], rounds: int) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.process_time()
            run()
            taken[name].append(time.process_time() - start)
    seconds = {name: float(np.median(values)) for name, values in taken.items()}
    plain = seconds["plain numpy: t of every pair"] + seconds["plain numpy: max-t over all pairs"]
    return [{"what": name, "seconds": s, "times plain numpy": s / plain} for name, s in seconds.items()]


def against_statsmodels(credit: np.ndarray) -> Row:
    from statsmodels.stats.contingency_tables import mcnemar as theirs

    a, b = np.triu_indices(len(credit), 1)
    only_a, only_b = (((credit[x] == 1) & (credit[y] == 0)).sum(axis=1) for x, y in ((a, b), (b, a)))
    ours = mcnemar(only_a, only_b)
    expected = [theirs([[0, x], [y, 0]], exact=True).pvalue for x, y in zip(only_a, only_b, strict=True)]
    worst = float(np.abs(ours - expected).max())
    assert worst < 1e-12
    return {"what": f"McNemar's p of {len(a)} pairs against statsmodels: largest difference {worst:.1e}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            "plain numpy: max-t over all pairs": lambda: numpy_max_t(whole, weight),
            "rank": lambda: stats.rank(pairs),
            "compare_all": lambda: stats.compare_all(pairs),
            "rank, family='model'": lambda: stats.rank(pairs, family="model"),
            "compare_best": lambda: stats.compare_best(pairs),
            "summary": lambda: rmlab.summary(pairs),
            "power, one pair": lambda: stats.power(pairs, *pairs["model"].unique()[:2]),
        },
        options.rounds,
    )
    rows += [against_statsmodels(whole)]
    rows += [
        {
            "what": "peak memory of the process, GiB",
            "seconds": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
    ]
    table = pd.DataFrame(rows).round(3).assign(date=date.today().isoformat(), machine="2 CPU cores, shared")
    print(table.drop(columns=["date", "machine"]).to_string(index=False))
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
