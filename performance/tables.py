"""Time of tables of numbers: RM-Bench (1,327 prompts) by models, beside plain loops.

Processor time, median of interleaved rounds. The loops are those that the tests use as
oracle (tests/oracles.py).

    OMP_NUM_THREADS=1 python performance/tables.py [--models 1 50] [--rounds 5]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

import rmlab

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import oracles

SIZES = {
    "chat": 129,
    "math": 529,
    "code": 228,
    "safety-refuse": 284,
    "safety-response": 157,
}
STYLES = ("concise", "plain", "markdown")


def draw_scores(n_models: int) -> pd.DataFrame:
    """Scores of each model on 1,327 prompts of six answers, with ties."""
    subsets = np.repeat(list(SIZES), list(SIZES.values()))
    n = len(subsets)
    answers = pd.DataFrame(
        {
            "benchmark": "rm-bench",
            "domain": np.repeat([name.split("-")[0] for name in subsets], 6),
            "id": np.repeat([f"{name}/{i}" for i, name in enumerate(subsets)], 6),
            "label": np.tile(["chosen"] * 3 + ["rejected"] * 3, n),
            "slot": np.tile([0, 1, 2] * 2, n),
            "subset": np.repeat(subsets, 6),
            "style": np.tile(STYLES * 2, n),
        }
    )
    rng = np.random.default_rng(0)
    tables = [
        answers.assign(model=f"model {m}", score=rng.integers(0, 50, 6 * n) / 1)
        for m in range(n_models)
    ]
    return pd.concat(tables, ignore_index=True)


def list_rows(scores: pd.DataFrame) -> list[list[dict]]:
    """The same as each model's result file: what the loops take."""
    models = []
    for _, of_model in scores.groupby("model", sort=False):
        values = of_model["score"].to_numpy().reshape(-1, 6).tolist()
        ids = of_model["id"].iloc[::6]
        rows = [
            {"id": key, "score_chosen": row[:3], "score_rejected": row[3:]}
            for key, row in zip(ids, values, strict=True)
        ]
        models.append(rows)
    return models


def measure(n_models: int, n_rounds: int) -> pd.DataFrame:
    scores = draw_scores(n_models)
    pairs, rows = rmlab.pairs(scores), list_rows(scores)
    ways = {
        "loops": lambda: [oracles.rm_bench(model) for model in rows],
        "pairs": lambda: rmlab.pairs(scores),
        "summary": lambda: rmlab.summary(pairs),
        "accuracy by level": lambda: rmlab.accuracy(pairs, by=["model", "level"]),
    }
    if n_models > 1:
        ways["rank"] = lambda: rmlab.rank(pairs)
    seconds = {way: [] for way in ways}
    for _ in range(n_rounds):
        for way, run in ways.items():
            start = time.process_time()
            run()
            seconds[way].append(time.process_time() - start)
    medians = {way: statistics.median(taken) for way, taken in seconds.items()}
    table = pd.Series(medians, name="s").rename_axis("way").reset_index()
    table["over loops"] = table["s"] / medians["loops"]
    return table.assign(models=n_models)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for n_models in options.models:
        print(measure(n_models, options.rounds).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
