"""Time and memory of the analysis against its size: read, pairs, summary, rank and
report of up to 24 million scores.

20 models score 6 answers to each of n prompts, as RM-Bench has them: 3 styles right, 3
wrong, so 9 comparisons a prompt. The scores lie in one Parquet file a model, as a run
leaves them. Every size is a process of its own; its peak is the most memory that it
ever held (`ru_maxrss`). The scores are let go once they are paired, the pairs once they
are ranked; the report reads the files again, as `rmlab report` does.

    python performance/scale.py [--prompts 2000 10000 50000 200000] [--out FILE]
    python performance/scale.py --part models
    python performance/scale.py --part domains

models: pairs() of 1,000 models x 1,327 prompts, from a fresh table; domains: one model
on 2,000 domains of four prompts.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rmlab

MODELS = 20
DOMAINS = ("chat", "math", "code", "safety-refuse", "safety-response")
STYLES = ("concise", "plain", "markdown")
STEPS = ("read", "pairs", "summary", "rank", "report")
MODELS_BY_PROMPTS = (1000, 1327)
Row = dict[str, object]


def keys(prompts: int) -> pd.DataFrame:
    """One row per answer of RM-Bench with so many prompts, dealt out to its files."""
    file = np.array(DOMAINS, object)[np.arange(prompts) % len(DOMAINS)]
    ids = np.arange(prompts).astype(str)
    frame = pd.DataFrame(
        {"domain": [name.split("-")[0] for name in file], "id": ids, "subset": file}
    )
    frame = frame.loc[np.repeat(np.arange(prompts), 6)].reset_index(drop=True)
    return frame.assign(
        benchmark="rm-bench",
        label=np.tile(np.repeat(["chosen", "rejected"], 3), prompts),
        slot=np.tile(np.arange(3), 2 * prompts),
        style=np.tile(STYLES, 2 * prompts),
    )


def scored(frame: pd.DataFrame, model: int, rng: np.random.Generator) -> pd.DataFrame:
    """A model's scores; its skill grows with its number, its preference for style does
    not.
    """
    right = (frame["label"] == "chosen").to_numpy()
    step = frame["slot"].to_numpy()
    prompt = np.repeat(rng.normal(size=len(frame) // 6), 6)
    score = (
        (0.5 + model / MODELS + 0.5 * prompt) * right
        + 0.4 * step
        + rng.normal(size=len(frame))
    )
    return frame.assign(model=f"owner/model-{model:02d}", score=score)


def write(prompts: int, folder: Path) -> None:
    rng, frame = np.random.default_rng(0), keys(prompts)
    for model in range(MODELS):
        rmlab.write_scores(
            scored(frame, model, rng), folder / f"model-{model:02d}.parquet"
        )


def peak() -> float:
    """The most memory that this process has held so far, in GB (10^9 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def walk(prompts: int, folder: Path) -> None:
    """The five steps on the files of `folder`, in this process; each is printed as soon
    as it is done.
    """

    def step(name: str, run: Callable[..., object], *arguments: object) -> object:
        wall, own = time.perf_counter(), time.process_time()
        found = run(*arguments)
        taken = {
            "seconds": time.perf_counter() - wall,
            "processor_seconds": time.process_time() - own,
        }
        row = {
            "prompts": prompts,
            "scores": prompts * 6 * MODELS,
            "step": name,
            **taken,
            "peak_gb": peak(),
        }
        print(json.dumps(row), flush=True)
        return found

    held = {"table": step("read", rmlab.read_scores, folder)}
    held["table"] = step("pairs", rmlab.pairs, held["table"])
    step("summary", rmlab.summary, held["table"])
    step("rank", rmlab.rank, held["table"])
    held.clear()
    step("report", rmlab.write_report, folder, folder / "report.html")


def sizes(prompts: list[int]) -> pd.DataFrame:
    rows: list[Row] = []
    for n in prompts:
        with tempfile.TemporaryDirectory() as folder:
            for part in ("write", "walk"):
                command = [
                    sys.executable,
                    __file__,
                    "--part",
                    part,
                    "--prompts",
                    str(n),
                    "--folder",
                    folder,
                ]
                with subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True
                ) as process:
                    for line in process.stdout or ():
                        print(line, end="", flush=True)
                        rows.append(json.loads(line))
                if process.returncode:
                    raise SystemExit(f"{n} prompts, {part}: {process.returncode}")
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """Processor time of each step, and the peak, against the number of scores; both
    axes logarithmic.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 3.1), layout="constrained")
    whole = table.groupby("scores")["processor_seconds"].sum()
    marks = dict(zip(STEPS, ("o", "s", "^", "D", "v"), strict=True))
    greys = dict(zip(STEPS, ("0.1", "0.3", "0.45", "0.6", "0.7"), strict=True))
    for name in STEPS:
        one = table[table["step"] == name]
        left.plot(
            one["scores"],
            one["processor_seconds"],
            marks[name],
            ls="-",
            color=greys[name],
            ms=4,
            lw=1,
            label=name,
        )
    left.plot(whole.index, whole, "k-", lw=2, label="all five")
    n = np.geomspace(whole.index[0], whole.index[-1], 50)
    left.plot(
        n,
        whole.iloc[-1] * n * np.log(n) / (n[-1] * np.log(n[-1])),
        ":",
        color="C0",
        label="n log n",
    )
    left.set(
        xscale="log", yscale="log", xlabel="scores", ylabel="processor time, seconds"
    )
    left.legend(fontsize=7, frameon=False)
    most = table.groupby("scores")["peak_gb"].max()
    right.plot(most.index, most, "ko-", ms=4, lw=2, label="peak of the process")
    right.axhline(8, ls="--", color="C3", lw=1)
    right.annotate(
        "8 GB",
        (most.index[0], 8),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8,
        color="C3",
    )
    right.set(
        xscale="log", yscale="log", xlabel="scores", ylabel="memory, GB", ylim=(0.1, 12)
    )
    for ax in (left, right):
        ax.grid(alpha=0.3, lw=0.5)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=200)


def many_models(rounds: int = 3) -> None:
    """`pairs` of many models: a table as a script makes it (plain strings), and one
    that was read or scored before.
    """
    models, prompts = MODELS_BY_PROMPTS
    frame, rng = keys(prompts), np.random.default_rng(0)
    parts = [
        scored(frame, m, rng).assign(model=f"owner/model-{m:04d}")
        for m in range(models)
    ]
    scores = pd.concat(parts, ignore_index=True)
    for name in ("plain strings", "checked"):
        table = scores if name == "plain strings" else rmlab.tables.check_scores(scores)
        taken = []
        for _ in range(rounds):
            fresh = (
                pd.concat([table, table.iloc[:0]], ignore_index=True)
                if name == "plain strings"
                else table
            )
            wall, own = time.perf_counter(), time.process_time()
            rows = len(rmlab.pairs(fresh))
            taken.append((time.perf_counter() - wall, time.process_time() - own))
        wall, own = np.median(taken, axis=0)
        print(
            f"{models:,} models x {prompts:,} prompts, {rows:,} pairs, {name}: "
            f"{wall:.2f} s, {own:.2f} s processor time"
        )


def many_domains(domains: int = 2000, rounds: int = 5) -> None:
    frame = (
        scored(keys(4 * domains), 3, np.random.default_rng(0))
        .query("slot == 0")
        .reset_index(drop=True)
    )
    frame = frame.assign(
        benchmark="own", domain=[f"domain {i // 8}" for i in range(len(frame))]
    )
    pairs = rmlab.pairs(frame.drop(columns=["subset", "style"]))
    for name, run in (
        ("estimates", rmlab.estimates),
        ("leaderboard", rmlab.leaderboard),
    ):
        taken = []
        for _ in range(rounds):
            own = time.process_time()
            run(pairs)
            taken.append(time.process_time() - own)
        print(
            f"{domains:,} domains, {len(pairs):,} pairs, {name}: "
            f"{np.median(taken):.2f} s processor time"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part",
        choices=["sizes", "models", "domains", "write", "walk"],
        default="sizes",
    )
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[2000, 10_000, 50_000, 200_000]
    )
    parser.add_argument("--folder", type=Path, help="of --part write and walk")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.part == "write":
        write(options.prompts[0], options.folder)
    elif options.part == "walk":
        walk(options.prompts[0], options.folder)
    elif options.part == "models":
        many_models()
    elif options.part == "domains":
        many_domains()
    else:
        table = sizes(options.prompts)
        if options.out:
            table.round(3).to_csv(options.out, index=False)
            draw(table, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
