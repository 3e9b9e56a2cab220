"""What an interrupted run says of itself, and names of stores and benchmarks."""

import os

import pytest
from fakes import Streaming, responses

from rmlab import io, scoring
from rmlab.scoring import score
from rmlab.scoring.stores import file_name
from rmlab.store import Store
from rmlab.tables import DataError


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
        with pytest.raises(DataError, match=r"store: '\s?' names no folder"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_whose_name_ends_in_pairs_reads_back(tmp_path):
    texts = responses(4).assign(benchmark="mine.pairs")
    scores = score(texts, Streaming(), store=tmp_path)
    assert (tmp_path / file_name("fake", "mine.pairs")).is_file()
    assert io.read_scores(tmp_path)["score"].tolist() == scores["score"].tolist()
    assert scoring.merge(tmp_path, tmp_path / "copy")["added"].sum() == len(texts)
