"""Time of a whole report: many models on three benchmarks, from tables of scores to one
HTML file.

Random scores in the real benchmarks' sizes: RM-Bench 1,327 prompts x 6 answers,
RewardBench 1 2,985 pairs, RewardBench 2 1,763 prompts x 4 answers and 51 pairs of Ties
prompts. Reports seconds by part, median of the runs. With --opening: seconds until
Chromium has opened a page of 2,000 RM-Bench prompts from a file, without a network,
until a number's prompts are listed, and until an answer is shown (each in a fresh
page).

    python performance/report.py [--models 200] [--repeats 3] [--out
    performance/results/report.csv] [--opening]
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd

from rmlab.benchmarks.reward_bench import ITEMS, subset_of_item
from rmlab.report.leaderboard import leaderboard
from rmlab.report.page import write_report
from rmlab.tables import check_scores

RM_BENCH = {
    "chat": 129,
    "math": 529,
    "code": 228,
    "safety-refuse": 284,
    "safety-response": 157,
}
REWARD_BENCH_2 = {
    "Factuality": 475,
    "Precise IF": 160,
    "Math": 183,
    "Safety": 450,
    "Focus": 495,
}
STYLES = ("concise", "plain", "markdown")


def rm_bench() -> pd.DataFrame:
    rows = [
        ("rm-bench", name.split("-")[0], f"{name}/{i}", label, slot, name, style)
        for name, n in RM_BENCH.items()
        for i in range(n)
        for label in ("chosen", "rejected")
        for slot, style in enumerate(STYLES)
    ]
    return pd.DataFrame(
        rows, columns=["benchmark", "domain", "id", "label", "slot", "subset", "style"]
    )


def reward_bench() -> pd.DataFrame:
    rows = [
        ("reward-bench", subset_of_item(str(i)), str(i), label, 0)
        for i in range(ITEMS)
        for label in ("chosen", "rejected")
    ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot"])


def reward_bench_2() -> pd.DataFrame:
    rows = [
        ("reward-bench-2", name, str(i), label, slot)
        for name, n in REWARD_BENCH_2.items()
        for i in range(n)
        for label, slot in (
            ("chosen", 0),
            ("rejected", 0),
            ("rejected", 1),
            ("rejected", 2),
        )
    ]
    for i in range(51):
        for kind, right in (("ref", 1), ("tied", 10)):
            rows += [
                ("reward-bench-2", "Ties", f"{kind}:{i}", "chosen", slot)
                for slot in range(right)
            ]
            rows += [
                ("reward-bench-2", "Ties", f"{kind}:{i}", "rejected", slot)
                for slot in range(12)
            ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot"])


def scored(items: pd.DataFrame, models: int, seed: int) -> pd.DataFrame:
    """Scores of models whose skill grows with their number."""
    rng = np.random.default_rng(seed)
    right = (items["label"] == "chosen").to_numpy()
    parts = [
        items.assign(
            model=f"owner/model-{m:03d}",
            score=2 * m / models * right + rng.normal(size=len(items)),
        )
        for m in range(models)
    ]
    return check_scores(pd.concat(parts, ignore_index=True))


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time, which does not count what other
    programs take.
    """
    wall, own = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - own


def measure(tables: list[pd.DataFrame], folder: Path) -> dict[str, tuple[float, float]]:
    parts = {
        f"leaderboard: {t['benchmark'].iloc[0]}": timed(partial(leaderboard, t))
        for t in tables
    }
    whole = pd.concat(tables, ignore_index=True)
    return parts | {
        "whole report": timed(lambda: write_report(whole, folder / "report.html"))
    }


def opening(path: Path, model: str) -> dict[str, float]:
    """Seconds of one page in Chromium: opened, the prompts behind a number listed, one
    prompt shown.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as run:
        browser = run.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        tab = browser.new_context(offline=True).new_page()
        start = time.perf_counter()
        tab.goto(path.as_uri())
        opened = time.perf_counter()
        tab.evaluate(
            "address => { location.hash = address }",
            f"b=rm-bench&models={quote(model, safe='')}&level=hard",
        )
        tab.wait_for_selector(".rmlab-option")
        listed = time.perf_counter()
        tab.locator(".rmlab-option").nth(1).click()
        tab.wait_for_selector(".rmlab-option:nth-child(2)[aria-selected=true]")
        shown = time.perf_counter()
        browser.close()
    return {
        "page opened": opened - start,
        "prompts listed": listed - opened,
        "prompt shown": shown - listed,
    }


def measure_opening(models: int, repeats: int) -> pd.DataFrame:
    """A page of `models` models and 2,000 prompts, written once and opened `repeats`
    times.
    """
    items = rm_bench()
    times = -(-2000 // items["id"].nunique())
    more = pd.concat(
        [items.assign(id=items["id"] + f"-{k}") for k in range(times)],
        ignore_index=True,
    )
    kept = more["id"].isin(more["id"].drop_duplicates().sample(2000, random_state=0))
    table = scored(more[kept], models, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = write_report(table, Path(folder) / "report.html")
        runs = [opening(path, str(table["model"].iloc[0])) for _ in range(repeats)]
        size = path.stat().st_size / 2**20
    return pd.DataFrame(
        {
            "part": list(runs[0]),
            "seconds": [
                round(statistics.median(r[p] for r in runs), 2) for p in runs[0]
            ],
        }
    ).assign(models=models, prompts=2000, runs=repeats, report_mib=round(size, 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path("performance/results/report.csv")
    )
    parser.add_argument(
        "--opening",
        action="store_true",
        help="how fast Chromium opens a page, nothing else",
    )
    options = parser.parse_args()
    if options.opening:
        print(measure_opening(options.models, options.repeats).to_string(index=False))
        return
    tables = [
        scored(items(), options.models, seed)
        for seed, items in enumerate((rm_bench, reward_bench, reward_bench_2))
    ]
    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(tables, Path(folder)) for _ in range(options.repeats)]
        size = (Path(folder) / "report.html").stat().st_size / 2**20
    parts = list(runs[0])
    wall, own = (
        [round(statistics.median(run[p][i] for run in runs), 2) for p in parts]
        for i in (0, 1)
    )
    table = pd.DataFrame(
        {"part": parts, "seconds": wall, "processor_seconds": own}
    ).assign(models=options.models, runs=options.repeats, report_mib=round(size, 2))
    print(table.to_string(index=False))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
