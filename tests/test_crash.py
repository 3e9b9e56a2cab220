"""Kill -9 at random moments: nothing lost, nothing doubled, the same scores."""

import collections
import json
import os
import warnings

import pytest
from crashes import list_stored, run_driver
from fakes import Difference, Streaming, responses

from rmlab.scoring import score

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

BATCH = 7
PROMPTS = 800
SCORERS = {"one model": Streaming, "policy and reference": Difference}
MODELS = {"one model": 1, "policy and reference": 2}
# Children are forked from a process that has imported rmlab once, so that they start at
# once and can be killed early.
DRIVER = f"""
import json, os, random, sys, time
from pathlib import Path
from crashes import kill, start
from fakes import Difference, Streaming, responses
from rmlab.scoring import score
assert "torch" not in sys.modules
store, log, kind = sys.argv[1:]
scorer = Difference if kind == "policy and reference" else Streaming
prompts = {PROMPTS} // {MODELS}[kind]

def work(pause, seed):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def before(keys):
        time.sleep(pause)
        os.write(file, (json.dumps([os.getpid(), keys]) + "\\n").encode())
    scorer_here = scorer(size={BATCH}, seed=seed, before=before)
    score(responses(prompts), scorer_here, store=store)

def logged():
    "Batches in the log: a line has about 260 bytes, with a model's name about 320."
    if not os.path.exists(log):
        return 0
    return os.path.getsize(log) // (320 if scorer is Difference else 260)

def read(path):
    return Path(path).read_bytes() if os.path.exists(path) else b""

score(responses(2), scorer())
chance = random.Random(0)
kills = 0
for number in range(20):
    before = logged()
    child = start(work, 0.003, number)
    # By turns: any time after the start, or some batches later; the batches are
    # bounded on slow machines too.
    least, pause = (0, 0.1) if number % 2 else (chance.randrange(1, 12), 0.01)
    last = time.perf_counter() + 30
    # Half of the kills are for the second model: the eleventh child may go on until
    # it has come that far.
    far = b"reference" if scorer is Difference and number == 10 else b""
    while logged() < before + least or far not in read(log):
        if time.perf_counter() >= last:
            break
        time.sleep(0.0005)
    end = time.perf_counter() + chance.uniform(0, pause)
    while time.perf_counter() < end and logged() < before + 20:
        time.sleep(0.0005)
    kills += kill(child)
print(kills)
"""


@pytest.mark.parametrize("kind", SCORERS)
def test_killed_twenty_times(tmp_path, kind):
    store, log = tmp_path / "scores", tmp_path / "log"
    kills = run_driver("-c", DRIVER, store, log, kind)
    batches = [json.loads(line) for line in log.read_text().splitlines()]
    assert kills == 20
    last = {process: keys[0].split()[0] for process, keys in batches}
    assert len(last) > 5, "most children were killed in the middle of their work"
    if kind == "policy and reference":
        counts = collections.Counter(last.values())
        assert min(counts["policy"], counts["reference"]) > 3

    # Finish the run here, then compare it with one that nobody disturbed.
    rest, frame = SCORERS[kind](size=BATCH), responses(PROMPTS // MODELS[kind])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="store: .* is damaged")
        scores = score(frame, rest, store=store)["score"].tolist()
    assert scores == score(frame, SCORERS[kind](size=BATCH))["score"].tolist()
    texts = zip(frame["prompt"], frame["response"], strict=True)
    assert scores == [rest.value(text) for text in texts]
    times = collections.Counter(key for _, keys in batches for key in keys)
    times += collections.Counter(rest.logged)
    assert len(times) == len(frame) * MODELS[kind]
    assert sum(times.values()) - len(times) <= kills * BATCH, "scored again"
    stored = list_stored(store)
    assert len(stored) == len(set(stored)) == PROMPTS * 6
