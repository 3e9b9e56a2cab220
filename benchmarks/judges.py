"""How fast a judge behind a server is asked: throughput against the ideal, processor time and memory.

    python benchmarks/judges.py [--judgements 2000] [--concurrency 64] [--delay 0.05]

A server in a process of its own answers every request after `delay` seconds. Ideal is questions x delay / concurrency:
every slot always busy. Prints CSV: judgements, questions, seconds, ideal, share (ideal / seconds), milliseconds of this
process's processor time per question, and its largest memory in MiB.
"""

import argparse
import resource
import sys
import tempfile
import time
from multiprocessing import Pipe, Process
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def serve(pipe, delay):
    """The server's process: tells its address, ends when told to."""
    from faulty_server import FaultyServer
    from judge_fakes import completion

    answer = completion("Both are short; the first one is right.\n[[A>B]]")
    with FaultyServer(lambda *_: answer, delay=delay) as server:
        pipe.send(server.url)
        pipe.recv()


def responses(n):
    words = "A sentence of some length that stands for an answer. " * 20
    rows = [
        ("bench", "chat", str(i), label, 0, f"Question {i}?", f"{label} answer {i}. {words}")
        for i in range(n)
        for label in ("chosen", "rejected")
    ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"])


def measure(url, judgements, concurrency, delay):
    import rmlab

    judge = rmlab.judge("m", f"{url}/v1", concurrency=concurrency, name="bench")
    table = responses(judgements)
    with tempfile.TemporaryDirectory() as store:
        wall, own = time.perf_counter(), time.process_time()
        pairs = rmlab.prefer(table, judge, store=store, progress=False)
        wall, own = time.perf_counter() - wall, time.process_time() - own
    questions = pairs.attrs["provenance"]["bench"]["asked"]
    ideal = questions * delay / concurrency
    return {
        "judgements": judgements,
        "questions": questions,
        "seconds": round(wall, 2),
        "ideal": round(ideal, 2),
        "share": round(ideal / wall, 3),
        "cpu_ms_per_question": round(1000 * own / questions, 2),
        "memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judgements", type=int, nargs="+", default=[200, 2000, 8000])
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.05)
    asked = parser.parse_args()
    here, there = Pipe()
    server = Process(target=serve, args=(there, asked.delay), daemon=True)
    server.start()
    url = here.recv()
    rows = [measure(url, n, asked.concurrency, asked.delay) for n in asked.judgements]
    here.send("done")
    server.join(10)
    print(pd.DataFrame(rows).to_csv(index=False), end="")


if __name__ == "__main__":
    main()
