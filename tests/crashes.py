"""Processes killed with kill -9 while they score. As a script: the driver that kills
those of real models.
"""

import collections
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from fakes import responses

from rmlab import toy

BUDGET = 150
DEADLINE = 400  # seconds, of a driver; its children have as much


def start(work, *arguments):
    """A child that does the work; forked from a process that has done some, it starts
    at once. It ends, whatever it waits for.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(DEADLINE)
        try:
            work(*arguments)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def kill(child):
    """Whether it was still at work."""
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def run_driver(*command, quiet=False):
    """What a Python command prints, read as JSON; `quiet`: and nothing else."""
    calm = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, *map(str, command)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=calm,
        cwd=Path(__file__).parent,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr), done.stderr
    return json.loads(done.stdout)


def list_stored(store):
    """Fingerprint and key of each line in the store's files."""
    lines = [
        (path.parent.name, line)
        for path in store.glob("*/*.records")
        for line in path.read_text().splitlines()[1:]
    ]
    return [(fingerprint, json.loads(line)["key"]) for fingerprint, line in lines]


@dataclass(frozen=True)
class Kind:
    """A way to use models: their folders' names, and how many texts of each a prompt of
    the table has.

    `words`: in front of every prompt; with many of them a prompt alone is larger than
    the budget.
    """

    models: tuple[str, ...]
    prompts: int
    texts: int
    column: str
    words: int = 0

    def save(self, home):
        """The models, in their folders."""
        for seed, name in enumerate(self.models):
            toy.save_model(home / name, task="causal", seed=seed)

    def run(self, home, prompts=None, budget=BUDGET, **options):
        """The table of scores or pairs."""
        from rmlab.scorers import implicit_reward, pairwise
        from rmlab.scoring import prefer, score

        frame = responses(prompts or self.prompts)
        begin = " ".join((" ".join(toy.models.TEXTS).split() * 9)[: self.words])
        frame["prompt"] = [f"{prompt} {begin}".strip() for prompt in frame["prompt"]]
        folders = [Path(home) / name for name in self.models]
        if self.column == "margin":
            return prefer(
                frame,
                pairwise(*folders, max_batch_tokens=budget, device="cpu"),
                **options,
            )
        return score(
            frame,
            implicit_reward(*folders, max_batch_tokens=budget, device="cpu"),
            **options,
        )


KINDS = {
    "policy and reference": Kind(
        ("policy", "reference"), prompts=24, texts=6, column="score"
    ),
    "both orders": Kind(("judge",), prompts=24, texts=18, column="margin"),
    "long prompts": Kind(("policy",), prompts=16, texts=6, column="score", words=200),
}


def drive_models(home, kind, job, seed):
    """Kill children that score with real models; print which. Each batch begun is
    logged as [process, model, texts].

    Each begins so many batches and no more: it is killed in the last one, or while it
    keeps or waits, on a machine of any speed.
    """
    import torch

    from rmlab.inference import forward
    from rmlab.scorers.implicit import LanguageModel
    from rmlab.scorers.pairwise import Pairwise
    from rmlab.scoring import run as scoring_run

    torch.set_num_threads(1)
    scoring_run.LONG = 1 << 30  # the texts of a self-check would be logged as batches
    KINDS[kind].run(home, prompts=2)
    log = os.open(f"{home}/log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    chance, lay_out, model = random.Random(seed), forward.lay_out, [""]

    def name_model(forward):
        def forwarding(self, prepared, numbers):
            model[:] = [self.checkpoint.folder.name]
            yield from forward(self, prepared, numbers)

        return forwarding

    def work(batches):
        def lay_out_and_log(part, sequences):
            """The first step of a batch."""
            nonlocal batches
            if batches == 0:
                time.sleep(3600)
            batches -= 1
            texts = [
                hashlib.blake2b(sequences[n].tobytes(), digest_size=16).hexdigest()
                for n in part.texts[: len(part.texts) - part.is_cut]
            ]
            os.write(log, (json.dumps([os.getpid(), *model, texts]) + "\n").encode())
            time.sleep(0.01)
            return lay_out(part, sequences)

        forward.lay_out = lay_out_and_log
        KINDS[kind].run(home, store=f"{home}/scores")

    def await_batches(child, batches):
        """Wait until it has begun so many, or has ended."""
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if os.pread(log, 1 << 24, 0).count(b"[%d," % child) >= batches:
                return
            time.sleep(0.0005)

    def kill_after(child, batches):
        await_batches(child, batches)
        time.sleep(chance.uniform(0, 0.012))
        return [child] * kill(child)

    LanguageModel.forward, Pairwise.forward = (
        name_model(LanguageModel.forward),
        name_model(Pairwise.forward),
    )
    killed = []
    if job == "kill":
        for batches in [
            chance.randrange(3, 6) for _ in range(8)
        ]:  # of 36 or more: no child comes to the end
            killed += kill_after(start(work, batches), batches)
    else:
        dies = start(work, 3)
        await_batches(dies, 1)
        stays = start(work, -1)
        await_batches(stays, 1)
        killed += kill_after(dies, 3)
        assert os.waitpid(stays, 0)[1] == 0
    print(json.dumps(killed))


def drive(home, kind, job, seed=0):
    """Processes killed, and batches begun as (process, model, texts)."""
    killed = run_driver(__file__, home, kind, job, seed)
    return killed, [
        tuple(json.loads(line)) for line in (home / "log").read_text().splitlines()
    ]


def check_against_undisturbed(home, kind, killed, batches, shares=False):
    """Finish the run, and compare: scores, texts forwarded again, lines in the store.

    `shares`: several processes ran at the same time, without shards, and may score the
    same texts. Returns how many texts were forwarded again before, and the size of the
    largest batch.
    """
    kind = KINDS[kind]
    total = kind.prompts * kind.texts
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="store: .* is damaged")
        found = kind.run(home, store=home / "scores")
    whole = kind.run(home, budget=None)[kind.column]
    # A margin is a difference of log-probabilities, which round by as much and lie
    # closer together.
    close = {"score": 1e-5, "margin": 5e-5}[kind.column]
    assert (found[kind.column] - whole).abs().max() <= close * whole.std()
    about = found.attrs["provenance"][kind.models[0]]
    rest = {
        term["name"]: term["scored"]
        for term in about.get("terms", [{"name": kind.models[0]} | about])
    }
    times = collections.Counter(
        (model, text) for _, model, texts in batches for text in texts
    )
    last = {process: (model, texts) for process, model, texts in batches}
    lost = collections.Counter(
        (model, text) for model, texts in map(last.get, killed) for text in texts
    )
    for model in kind.models:
        known, gone = (
            {text for name, text in counts if name == model} for counts in (times, lost)
        )
        assert 0 <= rest[model] - (total - len(known)) <= len(gone), (
            "nothing else is lost, and nothing came of nothing"
        )
    again = {text: n - 1 for text, n in times.items() if n > 1}
    assert shares or all(n <= lost[text] for text, n in again.items()), (
        "only the batch in which a process was killed"
    )
    stored = list_stored(home / "scores")
    assert len(set(stored)) == len(kind.models) * total
    assert len(stored) == len(set(stored)) or shares, "nothing is doubled"
    return sum(again.values()), max(len(texts) for _, _, texts in batches)


if __name__ == "__main__":
    drive_models(*sys.argv[1:4], seed=int(sys.argv[4]))
