"""Fixtures that several test files share."""

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

SHARED = Path(__file__).parents[2] / "shared" / "data"


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


@pytest.fixture(scope="module")
def one_thread():
    """Tiny models are fastest on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def load_backbone(tmp_path_factory):
    """A tiny backbone of an architecture, read from its folder."""
    import torch
    from transformers import AutoModel

    from rmlab import toy

    def load(architecture, dtype=torch.float32, **config):
        folder = tmp_path_factory.mktemp(architecture)
        toy.save_model(folder, architecture, task="backbone", **config)
        return AutoModel.from_pretrained(folder, dtype=dtype)

    return load


@pytest.fixture
def main(monkeypatch, capsys):
    """Exit code, stdout and stderr of `rmlab <words>` as the shell would see them."""

    from rmlab import cli

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["rmlab", *map(str, words)])
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
        sizes = sizes or {"chat": 5, "math": 4, "code": 3, "safety-refuse": 4, "safety-response": 2}
        rows = [
            (model, "rm-bench", name.split("-")[0], f"{name}/{i}", label, slot, name, style)
            for model in models
            for name, n in sizes.items()
            for i in range(n)
            for label in ("chosen", "rejected")
            for slot, style in enumerate(("concise", "plain", "markdown"))
        ]
        columns = ["model", "benchmark", "domain", "id", "label", "slot", "subset", "style"]
        return pd.DataFrame(rows, columns=columns).assign(score=rng.integers(0, levels, len(rows)).astype(float))

    return make
