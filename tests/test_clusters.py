"""Scoring on clusters: an engine in this process for every kind of scorer, and Ray on
this machine.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fakes import BothOrders, Difference, Here, Streaming, responses
from faulty_server import FaultyServer
from judge_fakes import Respondent, longer, pair_judge, shown_answers
from served_models import Vllm, number

import rmlab
from rmlab.scorers.models import loading
from rmlab.scoring import prefer, score
from rmlab.store import Store
from rmlab.tables import DataError


@pytest.fixture(params=["nothing", "folder", "url"])
def store(request, tmp_path):
    """A store of each kind, or none."""
    return {
        "nothing": None,
        "folder": tmp_path / "scores",
        "url": (tmp_path / "scores").as_uri(),
    }[request.param]


def test_scores_and_margins_are_those_of_a_plain_run_and_blocks_hold_whole_prompts(
    store,
):
    frame, here = responses(40), Here()
    scores = score(frame, Streaming(), cluster=here, store=store)
    pd.testing.assert_frame_equal(scores, score(frame, Streaming()))
    prompts = [{text.prompt for text in block.texts} for block in here.given]
    assert 4 < len(prompts) <= 64
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 40
    again = Here()
    assert score(frame, Streaming(), cluster=again, store=store).equals(scores)
    assert store is None or again.given == []
    for run, scorer in [(score, Difference), (prefer, BothOrders)]:
        spread = run(frame, scorer(), cluster=Here(), store=store)
        pd.testing.assert_frame_equal(spread, run(frame, scorer()))


def _prefer_longer(question):
    return longer(*shown_answers(question.messages))


def test_a_judge_is_asked_on_the_cluster_and_read_here(store):
    # It can be pickled.
    judge = replace(pair_judge(longer), respondent=Respondent(_prefer_longer))
    ask = partial(prefer, responses(6, slots=1), judge, progress=False)
    plain = ask()
    pairs = ask(cluster=Here(), store=store)
    pd.testing.assert_frame_equal(pairs, plain)
    alone, spread = (table.attrs["provenance"]["judge"] for table in (plain, pairs))
    for name in ("scored", "asked", "questions", "failed", "answer_tokens"):
        assert spread[name] == alone[name]
    again = ask(cluster=Here(), store=store).attrs["provenance"]["judge"]
    assert again["scored"] == (12 if store is None else 0)


class Other(Streaming):
    """Its fingerprint changes on the way."""

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.fingerprint = "other"


def test_a_worker_with_another_model_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"scorer 'fake'.*worker"):
        score(responses(4), Other(), cluster=Here(), store=tmp_path)
    assert not list(tmp_path.glob("other/*"))


class OnAnotherDevice(Here):
    """Its workers choose another number type than the driver, where none is asked
    for.
    """

    def map(self, work, blocks):
        choose = loading.dtype
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                loading,
                "dtype",
                lambda requested, device: choose(requested or "bfloat16", device),
            )
            yield from super().map(work, blocks)


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (str, "bfloat16"),
        (rmlab.classifier, "bfloat16"),
        (partial(rmlab.classifier, dtype="float32"), "float32"),
    ],
)
def test_workers_make_models_on_their_devices_and_the_driver_knows_their_scores(
    make, dtype, zoo, tmp_path
):
    frame, store, scorer = responses(5), tmp_path / "scores", make(zoo())
    scores = score(frame, scorer, cluster=OnAnotherDevice(), store=store)
    plain = score(frame, zoo(), device="cpu", dtype=dtype)
    np.testing.assert_allclose(
        scores["score"], plain["score"], rtol=0, atol=1e-5 * plain["score"].std()
    )
    provenance = scores.attrs["provenance"]["m"]
    assert provenance["dtype"] == dtype
    assert Store(store).fingerprints() == [provenance["fingerprint"]]
    again = OnAnotherDevice()
    assert score(frame, scorer, cluster=again, store=store).equals(scores)
    assert again.given == [None], "who the model is was asked, and nothing else"


def test_a_served_model_is_asked_by_one_client_within_its_budget(zoo):
    frame, folder = responses(20), zoo()
    tokenizer = rmlab.classifier(folder, device="cpu").tokenizer
    options = {"kind": "vllm", "tokenizer": folder, "version": "1"}
    with FaultyServer(Vllm(number, tokenizer), delay=0.005) as server:
        connect = partial(rmlab.remote, server.url, concurrency=3, batch=4, **options)
        expected = score(frame, connect())
        n_before = len(server.log)
        scores = score(frame, connect(), cluster=Here())
        n_requests = len(server.log) - n_before
        with pytest.raises(DataError, match=f"max_requests={n_requests - 1}"):
            score(frame, connect(max_requests=n_requests - 1), cluster=Here())
    pd.testing.assert_frame_equal(scores, expected)
    assert scores.attrs["provenance"]["tiny"]["requests"] == n_requests
    assert server.most_open <= 3


HERE = Path(__file__).parent
BEGIN = """
import json, os, signal, sys, time
import ray
try:
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False,
             configure_logging=False, object_store_memory=200 * 2**20)
except Exception:
    sys.exit(77)  # it gives its own processes 15 seconds, too few where many others run
from fakes import Streaming, responses
from rmlab import DataError
from rmlab.scoring import Ray, score
store, frame = sys.argv[1], responses(60)

class Logged(Streaming):
    "Says which process scored what."
    def __setstate__(self, state):
        self.__dict__.update(state)
        self.before = self.log
    def log(self, keys):
        with open(store + ".log", "a") as log:
            log.write(json.dumps([os.getpid(), keys]) + chr(10))
        time.sleep(0.02)

class Kills(Logged):
    "The first that is in the middle of its third block ends."
    def log(self, keys):
        super().log(keys)
        if len(self.forwarded) > 70:
            try:
                os.close(os.open(store + ".killed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

class Fails(Streaming):
    fingerprint = "fails-1"
    def stream(self, texts):
        raise ZeroDivisionError("no such layer")

one, two = Ray(workers=1, gpus=0), Ray(workers=2, gpus=0)
"""
ACTOR = """
expected = score(frame, Streaming("kills"))
killed = score(frame, Kills("kills"), cluster=two, store=store).equals(expected)
try:
    score(frame.head(6), Fails("broken"), cluster=one)
except DataError as error:
    failure = str(error)
from rmlab import toy
by_name, plain = (
    score(frame.head(12), toy.save_model(store + "-m"), **on)["score"]
    for on in ({"cluster": one}, {})
)

def gpu(prompts, texts):
    time.sleep(0.05)
    return [float(os.environ["CUDA_VISIBLE_DEVICES"])] * len(texts)
# As many workers as Ray was told of GPUs.
gpus = sorted(set(score(frame.head(120), gpu, cluster=Ray())["score"]))
print(json.dumps([failure, killed, (by_name - plain).abs().max() / plain.std(), gpus]))
"""
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None or os.name == "nt",
    reason="needs ray, the extra of this name",
)


def run_ray(code, store):
    """What a driver prints; Ray in processes of its own, with its warnings."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]),
        "RAY_raylet_start_wait_time_s": "300",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else it writes a token into the home folder
    }
    command = [sys.executable, "-c", BEGIN + code, str(store)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=500
    )
    if done.returncode == 77:
        pytest.skip("Ray does not start here within the time that it gives itself")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def logged(store):
    """What each process scored, batch by batch, as [process, keys]."""
    path = Path(f"{store}.log")
    return (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


@needs_ray
def test_an_actor_is_killed_and_a_model_fails(tmp_path):
    printed = run_ray(ACTOR, tmp_path / "scores")
    # Ray prints, too.
    failure, killed, distance, gpus = json.loads(
        next(s for s in printed.splitlines() if s.startswith('["'))
    )
    assert killed
    assert (tmp_path / "scores.killed").exists()
    batches = logged(tmp_path / "scores")
    assert len({process for process, _ in batches}) == 3, (
        "two actors, and one in the killed one's place"
    )
    assert 0 <= sum(len(keys) for _, keys in batches) - 360 <= 36 + 7, (
        "a block of the killed actor"
    )
    assert all(
        words in failure
        for words in (
            "scorer 'broken'",
            "ZeroDivisionError: no such layer",
            "in stream",
        )
    )
    assert distance < 1e-5
    assert gpus == [0, 1], "a worker for each, which sees no other"


# What stands for the command on a node: a model without weights, which logs what it
# forwards and may be killed.
