"""A store shared with a process that has stopped, and what an interrupted run says of itself."""

import os
import signal

import numpy as np
import pytest
from fakes import Streaming, responses

from rmlab import io, scoring
from rmlab.scoring import score, work
from rmlab.scoring.finished import file_name
from rmlab.store import Store
from rmlab.tables import DataError


def stopped_process(before):
    """A forked process that has run `before` and then does nothing, holding what it holds."""
    ready, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before(lambda: os.write(said, b"1"))
        finally:
            os._exit(0)
    assert os.read(ready, 1) == b"1"
    os.kill(child, signal.SIGSTOP)
    os.close(ready)
    os.close(said)
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_stopped_process_is_not_waited_for_without_end(tmp_path, monkeypatch):
    texts = responses(3)

    def hang(tell):
        def before(keys):
            tell()
            signal.pause()

        score(texts, Streaming(before=before), store=tmp_path)

    child = stopped_process(hang)
    try:
        monkeypatch.setattr(work, "PATIENCE", 0.1)
        with pytest.warns(
            UserWarning, match=r"another process holds texts in .* no score for 0 seconds; it may be stopped"
        ):
            found = score(texts, Streaming(), store=tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    np.testing.assert_array_equal(found["score"], score(texts, Streaming())["score"])


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("how", ["raised", "killed"])
def test_an_interrupted_run_has_scored_what_is_in_the_store(tmp_path, how):
    texts = responses(20)
    n = len(texts)

    def run(end):
        calls = iter(range(100))

        def before(keys):
            if next(calls) == 4:
                end()

        score(texts, Streaming(size=7, before=before), store=tmp_path)

    def fail():
        raise Interrupted

    if how == "raised":
        with pytest.raises(Interrupted):
            run(fail)
    elif not hasattr(os, "fork"):
        pytest.skip("needs fork")
    else:
        child = os.fork()
        if child == 0:
            run(lambda: os._exit(9))
        os.waitpid(child, 0)
    runs = score(texts, Streaming(), store=tmp_path).attrs["provenance"]["fake"]["runs"]
    assert sorted(run["scored"] for run in runs) == [28, n - 28]


@pytest.mark.parametrize("folder", ["", " "])
def test_a_store_without_a_name_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (lambda: Store(folder), lambda: score(responses(2), "longest", store=folder)):
        with pytest.raises(DataError, match=r"store: '\s?' names no folder; give one, for example 'scores/'"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_whose_name_ends_in_pairs_reads_back(tmp_path):
    texts = responses(4).assign(benchmark="mine.pairs")
    scores = score(texts, Streaming(), store=tmp_path)
    assert (tmp_path / file_name("fake", "mine.pairs")).is_file()
    assert io.read_scores(tmp_path)["score"].tolist() == scores["score"].tolist()
    assert scoring.merge(tmp_path, tmp_path / "copy")["added"].sum() == len(texts)
