"""Ray on loopback: an actor is killed, a model fails; scores are those of a plain run, each once.

Ray runs in processes of its own, with its warnings.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fakes import Streaming, responses

from rmlab.scoring import score

pytestmark = pytest.mark.skipif(find_spec("ray") is None or os.name == "nt", reason="needs ray, the extra of this name")

ROOT = Path(__file__).parents[1]
BEGIN = """
import json, os, signal, sys, time
import ray
try:
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
             object_store_memory=200 * 2**20)
except Exception:
    sys.exit(77)  # it gives its own processes 15 seconds, too few where many others run
from fakes import Streaming, responses
from rmlab import DataError
from rmlab.scoring import Ray, score
store, frame = sys.argv[1], responses(160)

class Kills(Streaming):
    "Says which process scored what; the first that is in the middle of its third block ends."
    def __setstate__(self, state):
        self.__dict__.update(state)
        self.before = self.log
    def log(self, keys):
        with open(store + ".log", "a") as log:
            log.write(json.dumps([os.getpid(), keys]) + chr(10))
        time.sleep(0.02)
        if len(self.forwarded) > 70 and self.name == "kills":
            try:
                os.close(os.open(store + ".killed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

class Fails(Streaming):
    fingerprint = "fails-1"
    def stream(self, texts):
        raise ZeroDivisionError("no such layer")

two = Ray(workers=2, gpus=0)
"""
ACTOR = (
    BEGIN
    + """
killed = score(frame, Kills("kills"), cluster=two, store=store).equals(score(frame, Streaming("kills")))
try:
    score(frame, Fails("broken"), cluster=two)
except DataError as error:
    failure = str(error)
from rmlab import toy
toy.save_model(store + "-m")
by_name, plain = (score(frame.head(60), store + "-m", **where)["score"] for where in ({"cluster": two}, {}))

def gpu(prompts, texts):
    time.sleep(0.05)
    return [float(os.environ["CUDA_VISIBLE_DEVICES"])] * len(texts)
gpus = sorted(set(score(frame, gpu, cluster=Ray())["score"]))  # as many workers as Ray was told of GPUs
try:
    score(frame, gpu, cluster=Ray(cpus=8, gpus=0))
except DataError as error:
    full = str(error)
print(json.dumps([failure, killed, (by_name - plain).abs().max() / plain.std(), gpus, full]))
"""
)
FAILURE = ("scorer 'broken'", "ZeroDivisionError: no such layer", "in stream")
OUTSIDE = """
import json, sys
from fakes import Streaming, responses
from rmlab.scoring import Ray, score

frame = responses(60)
scores = score(frame, Streaming(), cluster=Ray(sys.argv[2], workers=2, gpus=0), store=sys.argv[1])
print(json.dumps(["outside", scores.equals(score(frame, Streaming()))]))
"""
CLIENT = (
    BEGIN
    + f"""
import socket, subprocess
from ray.util.client.server import server
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
serving = server.serve("127.0.0.1", port)
outside = [sys.executable, "-c", {OUTSIDE!r}, store, f"ray://127.0.0.1:{{port}}"]
sys.exit(subprocess.run(outside, check=False).returncode)
"""
)


def start(code, store):
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "RAY_raylet_start_wait_time_s": "300",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else it writes a token into the home folder
    }
    return subprocess.Popen(
        [sys.executable, "-c", code, str(store)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def skip_without_ray(process):
    if process.returncode == 77:
        pytest.skip("Ray does not start here within the time that it gives itself")


def logged(store):
    """What each process scored, batch by batch, as [process, keys]."""
    path = Path(f"{store}.log")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def finish(process):
    """What the driver printed last: a JSON list. Ray prints, too."""
    out, err = process.communicate()
    skip_without_ray(process)
    assert process.returncode == 0, err[-4000:]
    return json.loads(next(line for line in out.splitlines() if line.startswith('["')))


def test_an_actor_is_killed_and_a_model_fails(tmp_path):
    failure, killed, distance, gpus, full = finish(start(ACTOR, tmp_path / "scores"))
    assert killed
    assert (tmp_path / "scores.killed").exists()
    batches = logged(tmp_path / "scores")
    assert len({process for process, _ in batches}) == 3, "two actors, and one in the killed one's place"
    assert 0 <= sum(len(keys) for _, keys in batches) - 960 <= 36 + 7, "a block of the killed actor"
    assert all(words in failure for words in FAILURE)
    assert distance < 1e-5
    assert gpus == [0, 1], "a worker for each, which sees no other"
    assert "4 CPUs and 2 GPUs" in full


@pytest.mark.long
@pytest.mark.skipif(find_spec("grpc") is None, reason="needs ray[client]")
def test_a_driver_outside_the_cluster(tmp_path):
    assert finish(start(CLIENT, tmp_path / "scores")) == ["outside", True]
    rest = Streaming()
    score(responses(60), rest, store=tmp_path / "scores")
    assert rest.forwarded == []
