"""Fixtures that several test files share."""

import faulthandler
import os
import signal
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
# torch reads it once: tiny models are fastest on one thread. Other numbers of threads
# have a variable of their own (other_machines.py), whatever the shell has set.
os.environ["OMP_NUM_THREADS"] = os.environ.get("RMLAB_TEST_THREADS", "1")

SHARED = Path(__file__).parents[2] / "shared" / "data"


DEADLINE = {"ordinary": 600, "long": 3600}  # seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test that does not end fails, with its fixtures; if it cannot even fail, its
    process ends.
    """
    if not hasattr(signal, "setitimer"):
        return (yield)
    kind = "long" if item.get_closest_marker("long") else "ordinary"
    seconds = DEADLINE[kind]

    def fail(*_):
        pytest.fail(f"{item.nodeid} has not ended in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    # Again, where the end of the test does not end either.
    signal.setitimer(signal.ITIMER_REAL, seconds, 60)
    faulthandler.dump_traceback_later(seconds + 300, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real benchmark files that are not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("the real benchmark files are not on this machine")
    return SHARED


@pytest.fixture(scope="session")
def mini():
    """The bundled benchmark: 64 prompts with six answers each."""
    from rmlab import load

    return load("mini")


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """Folder of a tiny model with the options of `toy.save_model`, written once a
    session: read it, never write.
    """
    from rmlab import toy

    folders = {}

    def folder(architecture="llama", *, name="m", **options):
        key = repr((architecture, name, sorted(options.items())))
        if key not in folders:
            folders[key] = toy.save_model(
                tmp_path_factory.mktemp("zoo") / name, architecture, **options
            )
        return folders[key]

    return folder


@pytest.fixture(scope="session")
def load_backbone(zoo):
    """A tiny backbone of an architecture, read from its folder."""
    import torch
    from as_alone import EAGER
    from transformers import AutoModel

    from rmlab.inference.backbone import Backbone

    def load(architecture, dtype=torch.float32, **config):
        options = EAGER if architecture == "gemma2" else {}
        folder = zoo(architecture, task="backbone", **config)
        return Backbone(AutoModel.from_pretrained(folder, dtype=dtype, **options))

    return load


@pytest.fixture(scope="session")
def world():
    """Six prompts with four answers each; answers share openings, two are equal;
    lengths from 8 to about 300.
    """
    rng = np.random.default_rng(5)
    texts, groups = [], []
    for group in range(6):
        prompt = rng.integers(8, 490, rng.integers(4, 80))
        opening = rng.integers(8, 490, rng.integers(1, 60))
        for answer in range(4):
            middle = opening if answer % 2 else opening[:0]
            texts.append(
                np.r_[prompt, middle, rng.integers(8, 490, rng.integers(1, 160))]
            )
            groups.append(group)
    return [*texts, texts[3].copy()], np.array([*groups, 0])


@pytest.fixture
def main(monkeypatch, capsys):
    """Exit code, stdout and stderr of `rmlab <words>` as the shell would see them."""

    from rmlab import cli

    def call(*words, program="rmlab"):
        monkeypatch.setattr(sys, "argv", [str(program), *map(str, words)])
        monkeypatch.setattr("warnings.showwarning", None)
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def make_scores():
    """Random scores in RM-Bench's shape, on a coarse grid so that ties happen."""

    def make(sizes=None, models=("a", "b"), seed=0, levels=4):
        rng = np.random.default_rng(seed)
        sizes = sizes or {
            "chat": 5,
            "math": 4,
            "code": 3,
            "safety-refuse": 4,
            "safety-response": 2,
        }
        rows = [
            (
                model,
                "rm-bench",
                name.split("-")[0],
                f"{name}/{i}",
                label,
                slot,
                name,
                style,
            )
            for model in models
            for name, n in sizes.items()
            for i in range(n)
            for label in ("chosen", "rejected")
            for slot, style in enumerate(("concise", "plain", "markdown"))
        ]
        columns = [
            "model",
            "benchmark",
            "domain",
            "id",
            "label",
            "slot",
            "subset",
            "style",
        ]
        return pd.DataFrame(rows, columns=columns).assign(
            score=rng.integers(0, levels, len(rows)).astype(float)
        )

    return make
