"""Files are written whole or not at all, and nothing is written through what somebody left in the way."""

import errno
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

import rmlab
from rmlab import io, report, toy
from rmlab.metrics import pairs
from rmlab.scoring import score, stores
from rmlab.store import Store

PACKAGE = Path(rmlab.__file__).parent


@pytest.fixture(scope="module")
def mini():
    return rmlab.load("mini").head(60)


@pytest.fixture(scope="module")
def scores(mini):
    return score(mini, [toy.scorer(mini, skill=2.0, style=0.0, name="toy"), "longest"], progress=False)


# Every function that writes a file for people: what it writes, by the name of that file.
WRITERS = {
    "figure.png": lambda path, scores, mini: report.save_figure(plt.figure(), path),
    "figure.pdf": lambda path, scores, mini: report.save_figure(plt.figure(), path),
    "figure.svg": lambda path, scores, mini: report.save_figure(plt.figure(), path),
    "figure.csv": lambda path, scores, mini: report.save_figure(
        plt.figure(), path.with_suffix(""), pd.DataFrame({"n": [1]}), formats=()
    ),
    "board.csv": lambda path, scores, mini: report.to_csv(report.leaderboard(scores), path),
    "report.html": lambda path, scores, mini: report.write_report(scores, path),
    "scores.csv": lambda path, scores, mini: io.write_scores(scores, path),
    "scores.jsonl": lambda path, scores, mini: io.write_scores(scores, path),
    "scores.parquet": lambda path, scores, mini: io.write_scores(scores, path),
    "pairs.csv": lambda path, scores, mini: io.write_pairs(pairs(scores), path),
    "longest.mini.csv": lambda path, scores, mini: stores.write_tables(
        scores[scores["model"] == "longest"], Store(path.parent)
    ),
}


def fail(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", [(Path, "write_bytes"), (os, "replace")], ids=["write", "replace"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file(name, step, tmp_path, monkeypatch, scores, mini):
    path = tmp_path / name
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(*step, fail)
        with pytest.raises(OSError, match=r"cannot write \(No space left on device\)") as caught:
            WRITERS[name](path, scores, mini)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.filename) == str(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == [name]
    WRITERS[name](path, scores, mini)
    assert path.read_bytes() != b"old"


@pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="needs links")
@pytest.mark.parametrize("name", WRITERS)
def test_a_link_in_the_way_is_replaced_not_followed(name, tmp_path, scores, mini):
    (tmp_path / "out").mkdir()
    (tmp_path / "mine").write_text("mine")
    path = tmp_path / "out" / name
    path.symlink_to(tmp_path / "mine")
    WRITERS[name](path, scores, mini)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not path.is_symlink()


# Who may call what could write or show unescaped text: the one place for it, or a file of no data of others.
