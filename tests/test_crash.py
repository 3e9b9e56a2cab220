"""Kill -9 at random moments, and two processes on one store: nothing lost, nothing
doubled, the same scores.
"""

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
PROMPTS = {"kill": 800, "two": 250, "two, one killed": 250}
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
store, log, job, kind, seed = sys.argv[1:]
scorer = Difference if kind == "policy and reference" else Streaming
prompts = {PROMPTS}[job] // {MODELS}[kind]

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
chance = random.Random(int(seed))
kills = 0
if job == "kill":
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
else:
    children = [start(work, 0.003, number) for number in range(2)]
    if job == "two, one killed":
        time.sleep(0.25)
        kills += kill(children.pop())
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
print(kills)
"""


def drive(folder, job, kind, seed=0):
    """Kills done, batches logged as [process, keys]."""
    kills = run_driver("-c", DRIVER, folder / "scores", folder / "log", job, kind, seed)
    return kills, [
        json.loads(line) for line in (folder / "log").read_text().splitlines()
    ]


def frame_of(job, kind):
    return responses(PROMPTS[job] // MODELS[kind])


def check_against_undisturbed(folder, job, kind, kills, batches, shares=False):
    """Finish the run here, then compare it with one that nobody disturbed."""
    rest, frame = SCORERS[kind](size=BATCH), frame_of(job, kind)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="store: .* is damaged")
        scores = score(frame, rest, store=folder / "scores")
    assert (
        scores["score"].tolist()
        == score(frame, SCORERS[kind](size=BATCH))["score"].tolist()
    )
    texts = zip(frame["prompt"], frame["response"], strict=True)
    assert scores["score"].tolist() == [rest.value(text) for text in texts]
    times = collections.Counter(
        key for _, keys in batches for key in keys
    ) + collections.Counter(rest.logged)
    assert len(times) == len(frame) * MODELS[kind]
    again = sum(times.values()) - len(times)
    assert shares or again <= kills * BATCH, (
        f"{again} texts scored again after {kills} kills"
    )


@pytest.mark.parametrize("kind", SCORERS)
def test_killed_twenty_times(tmp_path, kind):
    kills, batches = drive(tmp_path, "kill", kind)
    assert kills == 20
    last = {process: keys[0].split()[0] for process, keys in batches}
    assert len(last) > 5, "most children were killed in the middle of their work"
    if kind == "policy and reference":
        assert (
            min(
                collections.Counter(last.values())[model]
                for model in ("policy", "reference")
            )
            > 3
        )
    check_against_undisturbed(tmp_path, "kill", kind, kills, batches)
    stored = list_stored(tmp_path / "scores")
    assert len(stored) == len(set(stored)) == PROMPTS["kill"] * 6


@pytest.mark.parametrize("kind", SCORERS)
@pytest.mark.parametrize("job", ["two", "two, one killed"])
def test_two_processes_without_shards_leave_nothing_undone_and_are_never_wrong(
    tmp_path, kind, job
):
    kills, batches = drive(tmp_path, job, kind)
    check_against_undisturbed(tmp_path, job, kind, kills, batches, shares=True)
    assert len({key for _, keys in batches for key in keys}) == PROMPTS[job] * 6
    if job == "two":
        assert len({process for process, _ in batches}) == 2
        assert len(set(list_stored(tmp_path / "scores"))) == PROMPTS[job] * 6
