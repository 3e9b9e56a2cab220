"""Speed and memory of the statistics: shared resamples against a loop, and the real RewardBench response matrix.

    python benchmarks/stats.py [--data ../shared/data] [--models 200] [--out benchmarks/results/stats.csv]

Resamples: 10,000 cluster resamples of RM-Bench's 1,327 prompts, stratified by domain, all models sharing them; the loop
draws and averages one resample at a time for one model (a part of them, scaled up). The matrix: 149 models x
2,985 items with blanks, `compare_all` and `rank`; McNemar's p of every pair of models against statsmodels.
"""

import argparse
import resource
import time
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import intervals, stats, tables

SIZES = (129, 529, 228, 441)
Row = dict[str, object]


def resamples(models: int, repeats: int = 5, looped: int = 300) -> list[Row]:
    rng = np.random.default_rng(0)
    strata = np.repeat(np.arange(4), SIZES)
    values = rng.integers(0, 10, (models, len(strata))) / 9
    weights = np.full(4, 0.25)
    where = [np.flatnonzero(strata == s) for s in range(4)]
    ours, loop = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        mean = intervals.weighted_mean(values, strata, weights, np.arange(len(strata)), len(strata))
        drawn = intervals.bootstrap(mean, strata)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(looped):
            np.mean([values[0, rng.choice(members, len(members))].mean() for members in where])
        loop.append((time.perf_counter() - start) / looped * len(drawn) * models)
    assert np.allclose(drawn.std(axis=0), intervals.stratified_error(mean.influence, strata)[0], rtol=0.05)
    fast, slow = np.median(ours), np.median(loop)
    name = f"10,000 resamples, {models} models"
    return [
        {"what": name, "way": "shared resamples", "seconds": fast, "ratio": slow / fast},
        {"what": name, "way": f"one by one ({looped} timed, scaled)", "seconds": slow, "ratio": 1.0},
    ]


def response_matrix(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The real matrix as pairs, one comparison per item, and as it stands."""
    wide = pd.read_csv(folder / "rewardbench/response_matrix.torch_measure.csv", index_col="model")
    content = pd.read_csv(folder / "rewardbench/item_content.torch_measure.csv", dtype={"item_id": str})
    subset = content.set_index("item_id")["content"].str.extract(r"^\[([^\]]+)\]", expand=False)
    long = wide.copy().reset_index().melt("model", var_name="id", value_name="won")
    outcome = long["won"].map({1.0: "win", 0.0: "loss"})
    long = long.assign(outcome=outcome, domain=long["id"].map(subset), benchmark="reward-bench")
    return tables.check_pairs(long.assign(chosen_slot=0, rejected_slot=0).drop(columns="won")), wide


def matrix(folder: Path) -> list[Row]:
    pairs, wide = response_matrix(folder)
    rows: list[Row] = []
    for name, run in {
        "compare_all, McNemar": lambda: stats.compare_all(pairs),
        "compare_all, sign flips over 23 subsets": lambda: stats.compare_all(pairs, average="domains"),
        "rank": lambda: stats.rank(pairs),
        "items": lambda: stats.item_difficulty(pairs),
    }.items():
        start, worked = time.perf_counter(), time.process_time()
        found = run()
        seconds, processor = time.perf_counter() - start, time.process_time() - worked
        rows.append(
            {
                "what": f"response matrix: {name}",
                "way": f"{len(found)} rows",
                "seconds": seconds,
                "processor": processor,
            }
        )
        if name == "compare_all, McNemar":
            rows.append(against_statsmodels(found, wide))
        if name == "rank":
            blanks = wide.isna().sum(axis=1)
            assert (found.set_index("model")["missing"] == blanks[found["model"]]).all()
            assert np.allclose(found.set_index("model")["value"], wide.mean(axis=1)[found["model"]])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [*rows, {"what": "response matrix: peak memory of the process", "way": f"{peak:.2f} GiB"}]


def against_statsmodels(contests: pd.DataFrame, wide: pd.DataFrame) -> Row:
    from statsmodels.stats.contingency_tables import mcnemar

    values = dict(zip(wide.index, wide.to_numpy(), strict=True))
    worst = 0.0
    for row in contests.itertuples():
        a, b = values[row.model_a], values[row.model_b]
        table = [[0, ((a == 1) & (b == 0)).sum()], [((a == 0) & (b == 1)).sum(), 0]]
        worst = max(worst, abs(mcnemar(table, exact=True).pvalue - row.p))
    assert worst < 1e-12
    return {"what": "response matrix: McNemar p against statsmodels", "way": f"largest difference {worst:.1e}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = resamples(options.models)
    if options.data.is_dir():
        rows += matrix(options.data)
    table = pd.DataFrame(rows).round(3).assign(date=date.today().isoformat(), machine="2 CPU cores, shared")
    print(table.drop(columns=["date", "machine"]).to_string(index=False))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
