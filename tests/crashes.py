"""Processes killed with kill -9 while they score."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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
