"""Kill -9 of four writers on one store, round after round: a judge, a served model and
a scorer on this machine.
"""

import json
import os
import time
import warnings

import numpy as np
import pytest
from crashes import list_stored, run_driver
from fakes import Streaming, truth
from fakes import responses as fake_responses
from faulty_server import FaultyServer
from judge_fakes import respond, responses
from served_models import Vllm, number

import rmlab
from rmlab.servers import scorer as scorer_module
from rmlab.servers.examination import LONG_LINES, known_texts

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

WRITERS, ROUNDS, BATCH = 4, 15, 4
# Texts or questions of a round before the kill: more than twice of what all writers may
# lose.
LOGGED = {"judge": 100, "served": 400, "local": 100}
# A request that is open, one that is answered and not stored, each of a batch; a judge
# stores eight answers at once, and scores of a server are stored when a check has
# passed, here after every ten requests.
MOST_LOST = {"judge": 2 + 8, "served": 12 * BATCH, "local": BATCH}
DRIVER = f"""
import json, os, random, sys, time
from pathlib import Path
import rmlab
from crashes import kill, list_stored, start
from test_crash_writers import run
home, kind, url, seed = Path(sys.argv[1]), *sys.argv[2:]
chance = random.Random(int(seed))

def count_logged():
    return (home / "log").read_bytes().count(b"\\n")

def work(writer):
    run(home, kind, url, shard=f"{{writer + 1}}/{WRITERS}", pause=0.005)

run(home, kind, url, n=2, store=home / "warm")  # what a first run imports
print(f"[[0, {{count_logged()}}, 0],")
for number in range({ROUNDS}):
    begun = count_logged()
    children = [start(work, writer) for writer in range({WRITERS})]
    last = time.monotonic() + 30
    while count_logged() < begun + {LOGGED}[kind] and time.monotonic() < last:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    n_killed = sum([kill(child) for child in children])
    time.sleep(0.1)  # requests on their way are logged when they are answered
    n_stored = len(list_stored(home / "scores"))
    print(json.dumps([n_killed, count_logged(), n_stored]), end=",\\n")
print("null]")
"""


def table(kind, n):
    return responses(n or 1200) if kind == "judge" else fake_responses(n or 1200)


def log(home, items):
    """Append a line for each text or question that is worked on."""
    lines = "".join(json.dumps(item) + "\n" for item in items)
    file = os.open(home / "log", os.O_WRONLY | os.O_APPEND)
    os.write(file, lines.encode())
    os.close(file)


def run(home, kind, url, *, n=None, store=None, pause=0.0, **options):
    """The table of a run, or of a shard of it."""
    options |= {"store": store or home / "scores", "progress": False}
    if kind == "judge":
        judge = rmlab.judge("m", url, concurrency=1, name="judge")
        return rmlab.prefer(table(kind, n), judge, **options)
    if kind == "served":
        scorer_module.RECHECK_SECONDS = 0
        scorer_module.RECHECK_REQUESTS = 10
        served = rmlab.remote(
            url,
            kind="vllm",
            tokenizer=home / "m",
            batch=BATCH,
            concurrency=1,
            name="served",
        )
        return rmlab.score(table(kind, n), served, **options)

    def before(keys):
        time.sleep(pause)
        log(home, keys)

    scorer = Streaming(size=BATCH, before=before)
    return rmlab.score(table(kind, n), scorer, **options)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("judge", marks=pytest.mark.long),
        pytest.param("served", marks=pytest.mark.long),
        "local",
    ],
)
def test_four_writers_killed_fifteen_times_lose_a_batch_each(zoo, tmp_path, kind):
    (tmp_path / "m").symlink_to(zoo(initializer_range=0.5))
    (tmp_path / "log").touch()
    served = Vllm(number, None)
    known = set()

    def answer(path, body, headers):
        """Log each text or question that is worked on."""
        if kind == "judge":
            log(tmp_path, [body["messages"]])
            return respond(path, body, headers)
        if body and not known.issuperset(map(tuple, body["input"])):
            log(tmp_path, body["input"])
        return served(path, body, headers)

    with FaultyServer(answer, delay=0.005) as server:
        if kind == "served":
            writer = open_served(tmp_path, server.url).writer
            for n_lines in LONG_LINES:
                known |= set(map(tuple, writer.write(*known_texts(n_lines)).texts))
        (_, n_logged, _), *rounds, _ = run_driver(
            "-c", DRIVER, tmp_path, kind, server.url, 0
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="store: .* is damaged")
            found = run(tmp_path, kind, server.url)

    assert len(rounds) == ROUNDS
    for number_of_round, (n_killed, n_logged_now, n_stored) in enumerate(rounds, 1):
        # Counted from the start: on a busy machine a request of a killed writer is
        # logged in the next round.
        n_worked_on = n_logged_now - n_logged
        assert n_killed == WRITERS
        assert n_worked_on >= number_of_round * LOGGED[kind]
        assert n_worked_on - n_stored <= number_of_round * WRITERS * MOST_LOST[kind]
    assert len({*list_stored(tmp_path / "scores")}) == len(
        list_stored(tmp_path / "scores")
    ), "nothing is doubled"

    provenance = found.attrs["provenance"]["fake" if kind == "local" else kind]
    if kind == "judge":
        assert set(found["verdict"]) == {"win"}
        assert provenance["asked"] == 2 * len(found) - n_stored
    else:
        assert provenance["scored"] == len(found) - n_stored
        expected = scores_of(tmp_path, kind, server.url)
        np.testing.assert_array_equal(found["score"], expected)


def scores_of(home, kind, url):
    """The scores of the whole table."""
    prompts, answers = (
        table(kind, None)[column].tolist() for column in ("prompt", "response")
    )
    if kind == "local":
        return [truth(*text) for text in zip(prompts, answers, strict=True)]
    writer = open_served(home, url).writer
    return [number(tuple(ids)) for ids in writer.write(prompts, answers).texts]


def open_served(home, url):
    """The scorer of the server, which is not asked."""
    options = {"kind": "vllm", "model": "m", "tokenizer": home / "m"}
    return rmlab.remote(url, **options, examine=False)
