"""How fast a judge behind a server is asked: throughput against the ideal, processor
time and memory.

    python performance/judges.py [--judgements 2000] [--concurrency 64] [--delay 0.05]
    [--rounds 5]

A server in a process of its own answers every request after `delay` seconds. Ideal is
questions x delay / concurrency: every slot always busy. Prints CSV and keeps it in
results/judges.csv: round, judgements, questions, seconds, ideal, share (ideal /
seconds), milliseconds of this process's processor time per question, its largest memory
in MiB, and how much that grew from a tenth of the time on: before, it is the table and
the questions that take room.
"""

import argparse
import asyncio
import json
import re
import resource
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import date
from multiprocessing import Pipe, Process
from pathlib import Path
from threading import Event, Thread

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Answering(asyncio.Protocol):
    """One connection: every request, once it is whole, gets the same reply after
    `delay` seconds.
    """

    def __init__(self, reply, delay):
        self.reply, self.delay, self.data = reply, delay, bytearray()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        head, blank, content = self.data.partition(b"\r\n\r\n")
        size = LENGTH.search(head)
        if blank and len(content) >= int(size[1]):
            self.data.clear()
            asyncio.get_running_loop().call_later(
                self.delay, self.transport.write, self.reply
            )


def serve(pipe, delay):
    """The server's process: tells its address, ends when told to. It does next to
    nothing, as the cores are shared.
    """
    from judge_fakes import completion

    content = json.dumps(
        completion("Both are short; the first one is right.\n[[A>B]]")
    ).encode()
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        f"{len(content)}\r\n\r\n"
    )

    async def run():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Answering(head.encode() + content, delay), "127.0.0.1", 0
        )
        pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await loop.run_in_executor(None, pipe.recv)

    asyncio.run(run())


def responses(n):
    words = "A sentence of some length that stands for an answer. " * 20
    rows = [
        (
            "bench",
            "chat",
            str(i),
            label,
            0,
            f"Question {i}?",
            f"{label} answer {i}. {words}",
        )
        for i in range(n)
        for label in ("chosen", "rejected")
    ]
    return pd.DataFrame(
        rows,
        columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"],
    )


@contextmanager
def memory():
    """MiB in use, twenty times a second, while the block runs."""
    seen, end = [], Event()

    def watch():
        while not end.wait(0.05):
            seen.append(
                int(Path("/proc/self/statm").read_text().split()[1])
                * resource.getpagesize()
                / 2**20
            )

    watching = Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        end.set()
        watching.join()


def measure(url, judgements, concurrency, delay):
    import rmlab

    judge = rmlab.judge("m", f"{url}/v1", concurrency=concurrency, name="bench")
    table = responses(judgements)
    with tempfile.TemporaryDirectory() as store, memory() as seen:
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
        "grown_mib": round(max(seen) - seen[len(seen) // 10]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judgements", type=int, nargs="+", default=[200, 2000, 8000])
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    here, there = Pipe()
    server = Process(target=serve, args=(there, asked.delay), daemon=True)
    server.start()
    url = here.recv()
    rows = [
        {"round": turn} | measure(url, n, asked.concurrency, asked.delay)
        for turn in range(1, asked.rounds + 1)
        for n in asked.judgements
    ]
    here.send("done")
    server.join(10)
    table = pd.DataFrame(rows).assign(
        concurrency=asked.concurrency, delay=asked.delay, date=date.today().isoformat()
    )
    table.to_csv(Path(__file__).parent / "results" / "judges.csv", index=False)
    print(table.to_csv(index=False), end="")


if __name__ == "__main__":
    main()
