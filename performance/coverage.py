"""How often intervals hold the true value, tests give false alarms and ranks hold, in
simulated worlds.

    python performance/coverage.py [--draws 2000] [--only NAME] [--jobs 2] [--out
    performance/results/coverage.csv]

Every interval, test and rank is the one that rmlab's functions give; the true values
are known. The worlds are the functions of the folder `coverage_worlds`. A bound counts
as missed if the share lies beyond it by more than two simulation errors; the script
then ends with exit code 1.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from keep_rows import keep_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import coverage_worlds


def run_world(name: str, draws: int) -> pd.DataFrame:
    """One row per measure of a world, with simulation errors and whether its bounds are
    kept.
    """
    run = coverage_worlds.load()[name]
    start = time.perf_counter()
    rng = np.random.default_rng(coverage_worlds.seed_of(name))
    measures = list(run(draws, rng))
    table = pd.DataFrame(measures, columns=list(coverage_worlds.Measure._fields))

    error = np.sqrt(table["share"] * (1 - table["share"]) / table["draws"])
    worst_error = np.sqrt(table["worst"] * (1 - table["worst"]) / table["draws"])
    missed = table["share"] + 2 * error < table["at_least"]
    missed |= table["share"] - 2 * error > table["at_most"]
    missed |= table["worst"] + 2 * worst_error < table["worst_at_least"]

    table.insert(0, "world", name)
    table.insert(3, "error", error)
    table["kept"] = np.where(missed, "missed", "yes")
    table["seconds"] = time.perf_counter() - start
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="only worlds whose name holds this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    start = time.perf_counter()
    names = [name for name in coverage_worlds.load() if options.only in name]
    tables = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for table in pool.map(run_world, names, [options.draws] * len(names)):
            tables.append(table.round(4))
            shown = tables[-1].dropna(axis="columns", how="all").drop(columns="seconds")
            print(
                shown.to_string(index=False),
                f"{table['seconds'].iloc[0]:.1f} s",
                sep="\n",
                flush=True,
            )

    table = pd.concat(tables, ignore_index=True)
    missed = table[table["kept"] == "missed"]
    print(
        f"\n{time.perf_counter() - start:.0f} s, {len(names)} worlds, {len(table)} "
        f"shares; missed: {len(missed)}"
    )
    if len(missed):
        print(
            missed[
                ["world", "what", "share", "error", "at_least", "at_most", "worst"]
            ].to_string(index=False)
        )
    if options.out:
        keep_rows(table.drop(columns="seconds"), options.out, ["world", "what"])
    return int(len(missed) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
