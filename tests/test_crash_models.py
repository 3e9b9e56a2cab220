"""Kill -9 of real models: policy and reference one after the other, and what is forwarded again is one batch."""

import collections
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from fakes import responses

from rmlab import toy
from rmlab.scorers.implicit import implicit_reward
from rmlab.scoring import score

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PROMPTS = 24
MODELS = ("policy", "reference")
# Children are forked from a process that has scored once, so that they start at once and are killed while they score.
DRIVER = f"""
import hashlib, json, os, random, signal, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from fakes import responses
from rmlab.inference import forward
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.language_model import LanguageModel
from rmlab.scoring import score, work
home, job, seed = sys.argv[1:]
torch.set_num_threads(1)
work._SPAN = 36
log = os.open(home + "/log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
once, stream, now = forward._forward, LanguageModel.stream, []

def streaming(self, prepared, wanted):
    now[:] = [self.checkpoint.folder.name]
    yield from stream(self, prepared, wanted)

def forwarding(backbone, part, kept, *rest):
    texts = [hashlib.blake2b(kept[n].tobytes(), digest_size=16).hexdigest() for n in part.texts]
    os.write(log, (json.dumps([os.getpid(), now[0], texts]) + "\\n").encode())
    time.sleep(0.01)
    return once(backbone, part, kept, *rest)

def reward():
    return implicit_reward(home + "/policy", home + "/reference", together=False, budget=150, device="cpu")

def start():
    child = os.fork()
    if child == 0:
        try:
            score(responses({PROMPTS}), reward(), store=home + "/scores")
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child

def logged():
    return os.pread(log, 1 << 24, 0).count(b"\\n")

def kill(child, batches):
    "Kill -9 when so many more batches have begun, and a moment later."
    until, last = logged() + batches, time.perf_counter() + 60
    while logged() < until and time.perf_counter() < last:
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.012))
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

score(responses(2), reward())
LanguageModel.stream, forward._forward = streaming, forwarding
chance, killed = random.Random(int(seed)), []
if job == "kill":
    for number in range(8):
        child = start()
        killed += [child] * kill(child, chance.randrange(3, 7))
else:
    children = [start(), start()]
    killed += [children[0]] * kill(children[0], 12)
    assert os.waitpid(children[1], 0)[1] == 0
print(json.dumps(killed))
"""


@pytest.fixture
def home(tmp_path):
    """A folder with a policy and a reference."""
    for seed, name in enumerate(MODELS):
        toy.save_model(tmp_path / name, task="causal", seed=seed)
    return tmp_path


def drive(home, job, seed=0):
    """Processes killed, and batches begun as (process, model, texts)."""
    command = [sys.executable, "-c", DRIVER, str(home), job, str(seed)]
    calm = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=calm)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), [tuple(json.loads(line)) for line in (home / "log").read_text().splitlines()]


def check_against_undisturbed(home, killed, batches):
    """Finish the run, and compare: scores, texts forwarded again, lines in the store."""
    frame = responses(PROMPTS)
    models = [home / name for name in MODELS]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="store: .* was damaged")
        found = score(frame, implicit_reward(*models, together=False, budget=150, device="cpu"), store=home / "scores")
    whole = score(frame, implicit_reward(*models, device="cpu"))["score"]
    assert (found["score"] - whole).abs().max() <= 1e-5 * whole.std()
    about = found.attrs["provenance"]["policy"]
    rest = {term["name"]: term["scored"] for term in about["terms"]}
    times = collections.Counter((model, text) for _, model, texts in batches for text in texts)
    for model in MODELS:
        assert sum(name == model for name, _ in times) >= len(frame) - rest[model], "nothing is lost"
    last = {process: (model, texts) for process, model, texts in batches}
    lost = collections.Counter((model, text) for model, texts in map(last.get, killed) for text in texts)
    again = {text: n - 1 for text, n in times.items() if n > 1}
    assert all(n <= lost[text] for text, n in again.items()), "only the batch in which a process was killed"
    stored = [
        (path.parent.name, line.split("\t")[0])
        for path in (home / "scores").glob("*/*.scores")
        for line in path.read_text().splitlines()[1:]
    ]
    assert len(stored) == len(set(stored)) == 2 * len(frame), "nothing is doubled"
    return sum(again.values()), max(len(texts) for _, _, texts in batches)


def test_policy_and_reference_killed_eight_times(home):
    killed, batches = drive(home, "kill")
    assert len(killed) == 8
    again, batch = check_against_undisturbed(home, killed, batches)
    assert again <= 8 * batch
    last = {process: model for process, model, _ in batches}
    assert set(last.values()) == set(MODELS), "killed in the turn of either"
    assert len(batches) >= 24


def test_one_of_two_processes_dies_and_the_other_finishes(home):
    killed, batches = drive(home, "two")
    assert len({process for process, _, _ in batches}) == 2
    assert len({(model, text) for _, model, texts in batches for text in texts}) == 2 * 6 * PROMPTS
    check_against_undisturbed(home, killed, batches)
