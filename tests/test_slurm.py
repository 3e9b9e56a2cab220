"""The job script of the docs: an array of parts, one killed and started again, and the table at the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import Streaming

import rmlab
from rmlab.scoring import score

SCRIPT = Path(__file__).parents[1] / "docs" / "how_to" / "slurm.sh"
# What stands for the command on a node: a model without weights, which logs what it forwards and may be killed.
COMMAND = f"""#!{sys.executable}
import os, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(rmlab.__file__).parents[1])!r}]
from fakes import Streaming
from rmlab import cli, scorers

def before(keys):
    if os.environ.get("DIES_AT") == str(len(scorer.forwarded) // 7):
        os.kill(os.getpid(), 9)
    with open(os.environ["LOG"], "a") as log:
        log.writelines(key + "\\n" for key in keys)

scorer = Streaming(before=before)
scorers.classifier = lambda model, **options: scorer
cli.main()
"""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs bash")


@pytest.fixture
def task(tmp_path):
    """Run one task of the array, as Slurm would; its exit code."""
    command = tmp_path / "bin" / "rmlab"
    command.parent.mkdir()
    command.write_text(COMMAND)
    command.chmod(0o755)
    log = tmp_path / "log"
    log.touch()
    common = {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "MODEL": "owner/name",
        "BENCHMARK": "mini",
        "PARTS": "3",
    }
    common |= {"STORE": (tmp_path / "scores").as_uri(), "LOG": str(log)}

    def run(number, **variables):
        env = os.environ | common | {"SLURM_ARRAY_TASK_ID": str(number)} | variables
        return subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, check=False).returncode

    run.log, run.store = log, common["STORE"]
    return run


def test_an_array_with_a_task_that_dies(task):
    mini = rmlab.load("mini")
    assert task(1) == 0
    assert task(2, DIES_AT="4") != 0
    assert task(3) == 0
    assert task(2) == 0
    forwarded = task.log.read_text().split()
    assert len(set(forwarded)) == len(mini), "the mini benchmark has no text twice"
    assert len(forwarded) - len(mini) <= 4 * 7, "the dead task's last part"
    scorer = Streaming()
    scores = score(mini, scorer, store=task.store)
    assert scorer.forwarded == []
    assert scores["score"].tolist() == score(mini, Streaming())["score"].tolist()
