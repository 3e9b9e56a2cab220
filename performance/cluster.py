"""What a cluster costs where there is nothing to compute: 100,000 short texts, a plain
function, two actors of Ray.

The overhead of a text is the time of the cluster's run beyond the plain one's, over the
texts. Ray's start, and that of its actors (the time of 400 texts), are told apart: they
are paid once, whatever the number of texts. Each row is the median of the rounds by
overhead, whole, and the range of the overhead over all rounds.

    python performance/cluster.py
    python performance/cluster.py --texts 1000 --rounds 1     # to see that it runs
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

import rmlab
from rmlab.scoring import Ray

RESULTS = Path(__file__).parent / "results" / "cluster.csv"


def characters(prompts, texts):
    return [len(text) for text in texts]


characters.fingerprint = "characters-1"


def texts(n: int) -> pd.DataFrame:
    """Prompts with four answers of a few words."""
    rows = [
        (
            "short",
            "chat",
            str(i),
            label,
            slot,
            f"Question {i}?",
            f"{label} answer {slot} to {i}",
        )
        for i in range(n // 4)
        for label in ("chosen", "rejected")
        for slot in (0, 1)
    ]
    return pd.DataFrame(
        rows,
        columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"],
    )


def timed(frame: pd.DataFrame, **options) -> tuple[float, float]:
    """Seconds by the clock, and of this process's processor time."""
    start, own = time.perf_counter(), time.process_time()
    rmlab.score(frame, characters, progress=False, **options)
    return time.perf_counter() - start, time.process_time() - own


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    import ray

    start = time.perf_counter()
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    began = time.perf_counter() - start
    frame = texts(options.texts)
    rounds = pd.DataFrame(
        [
            one(frame, name)
            for _ in range(options.rounds)
            for name in ("none", "parts in a folder")
        ]
    ).sort_values("overhead_us")
    by = rounds.groupby("store")
    table = (
        by.nth((options.rounds - 1) // 2)
        .set_index("store")
        .assign(start_s=began, rounds=options.rounds)
    )
    table = (
        table.join(by["overhead_us"].agg(["min", "max"]).add_prefix("overhead_us_"))
        .reset_index()
        .round(2)
    )
    table.to_csv(RESULTS, index=False)
    print(table.to_string())


def one(frame: pd.DataFrame, name: str) -> dict[str, object]:
    """A round: few texts on the cluster, all without it, all on it."""
    two = Ray(workers=2)
    with TemporaryDirectory() as place:
        stored = name != "none"
        kept = [
            {"store": Path(place, word).as_uri()} if stored else {}
            for word in ("few", "plain", "cluster")
        ]
        few = timed(texts(400), cluster=two, **kept[0])
        plain, spread = timed(frame, **kept[1]), timed(frame, cluster=two, **kept[2])
    return (
        {
            "store": name,
            "texts": len(frame),
            "plain_s": plain[0],
            "cluster_s": spread[0],
            "few_s": few[0],
        }
        | {"overhead_us": 1e6 * (spread[0] - few[0] - plain[0]) / len(frame)}
        | {"driver_cpu_us": 1e6 * (spread[1] - few[1] - plain[1]) / len(frame)}
    )


if __name__ == "__main__":
    main()
