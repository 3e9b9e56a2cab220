"""Scoring on a cluster: with an engine of this process for every kind of scorer, and with Ray on loopback."""

import pickle
from dataclasses import replace
from itertools import cycle

import numpy as np
import pandas as pd
import pytest
from fakes import BothOrders, Difference, Streaming, responses
from judge_fakes import Speaker, both, longer, pair_judge

import rmlab
from rmlab import toy
from rmlab.clusters import engine
from rmlab.scoring import prefer, score, spread
from rmlab.store import Store
from rmlab.tables import DataError


class Here:
    """An engine of two workers in this process; what goes to them and comes back travels as bytes."""

    def __init__(self, dies_at=None, gpus=False):
        self.dies_at, self.gpus = dies_at, gpus
        self.given, self.alone = [], None

    def has_gpus(self):
        return self.gpus

    def map(self, make, blocks, *, alone=False):
        self.alone = alone
        workers = cycle([pickle.loads(pickle.dumps(make))() for _ in range(1 if alone else 2)])
        for number, block in enumerate(blocks):
            if number == self.dies_at:
                raise KeyboardInterrupt
            self.given.append(block)
            yield pickle.loads(pickle.dumps(next(workers)(pickle.loads(pickle.dumps(block)))))


@pytest.fixture(params=["nothing", "folder", "url"])
def store(request, tmp_path):
    """A store of each kind, or none."""
    return {"nothing": None, "folder": tmp_path / "scores", "url": (tmp_path / "scores").as_uri()}[request.param]


def test_scores_are_those_of_a_plain_run_and_blocks_hold_whole_prompts(store):
    frame, here = responses(40), Here()
    found = score(frame, Streaming(), cluster=here, store=store)
    pd.testing.assert_frame_equal(found, score(frame, Streaming()))
    prompts = [{*block.texts.prompts} for block in here.given]
    assert len(prompts) > 4
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 40
    assert found.attrs["provenance"]["fake"]["scored"] == len(frame)
    if store is not None:
        again = Here()
        assert score(frame, Streaming(), cluster=again, store=store).equals(found)
        assert again.given == []
    if isinstance(store, str):
        written = Store(store).bucket.found("fake-1")
        assert sum(name.endswith(".scores") for name in written) == len(here.given), "a block is a part"


def test_terms_columns_and_orders(store):
    frame = responses(12)
    assert score(frame, Difference(), cluster=Here(), store=store).equals(score(frame, Difference()))
    found = prefer(frame, BothOrders(), cluster=Here(), store=store)
    pd.testing.assert_frame_equal(found, prefer(frame, BothOrders()))


def _prefers_length(question):
    return longer(*both(question))


def travelling_judge():
    return replace(pair_judge(longer), speaker=Speaker(_prefers_length))


def test_a_judge_is_asked_on_the_cluster_and_read_here(store):
    frame = responses(6, slots=1)
    plain = prefer(frame, travelling_judge(), progress=False)
    found = prefer(frame, travelling_judge(), cluster=Here(), store=store, progress=False)
    pd.testing.assert_frame_equal(found, plain)
    assert found.attrs["provenance"][travelling_judge().name]["asked"] == 0, "every answer was there already"


def test_a_plain_function_needs_no_fingerprint_without_a_store():
    frame = responses(20)
    assert score(frame, _length, cluster=Here())["score"].tolist() == frame["response"].str.len().tolist()


def _length(prompts, texts):
    return [len(text) for text in texts]


def test_a_driver_that_ends_leaves_the_blocks_that_were_done(tmp_path):
    frame, here = responses(60), Here(dies_at=4)
    with pytest.raises(KeyboardInterrupt):
        score(frame, Streaming(), cluster=here, store=tmp_path)
    rest = Streaming()
    assert score(frame, rest, store=tmp_path).equals(score(frame, Streaming()))
    done = sum(len(block.keys) for block in here.given)
    assert len(rest.forwarded) == len(frame) - done


def test_missing_scores_are_refused_or_counted():
    frame = responses(12)
    lost = frame["response"].iloc[5]
    with pytest.raises(DataError, match=r"1 of .* scores are not finite"):
        score(frame, Streaming(nan=[lost]), cluster=Here())
    found = score(frame, Streaming(nan=[lost]), cluster=Here(), allow_missing=True)
    assert np.flatnonzero(found["score"].isna()).tolist() == [5]


class Other(Streaming):
    """Its fingerprint changes on the way."""

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.fingerprint = "other"


class OtherWords(Streaming):
    """It reads texts as other tokens there."""

    there = False

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.there = True

    def prepare(self, *columns):
        return super().prepare(*[[f"{text} " if self.there else text for text in column] for column in columns])


@pytest.mark.parametrize(("scorer", "what"), [(Other, "weights or settings"), (OtherWords, "tokens")])
def test_a_worker_with_another_model_is_refused(scorer, what, tmp_path):
    with pytest.raises(DataError, match=f"a worker of the cluster has other {what} than the driver"):
        score(responses(4), scorer(), cluster=Here(), store=tmp_path)
    assert not list(tmp_path.glob("other/*"))


@pytest.mark.usefixtures("one_thread")
def test_models_by_name_are_made_by_the_workers_on_their_devices(tmp_path):
    toy.save_model(tmp_path / "m")
    frame = responses(5)
    plain = score(frame, tmp_path / "m", device="cpu", dtype="float32")
    found = score(frame, tmp_path / "m", cluster=Here())
    np.testing.assert_allclose(found["score"], plain["score"], rtol=0, atol=1e-5 * plain["score"].std())
    made = []

    class Looks(Here):
        def map(self, make, blocks, *, alone=False):
            made.append(make.make.args[1])
            return iter(())

    with pytest.raises(DataError, match="no score for 30 of 30"):
        score(frame, tmp_path / "m", cluster=Looks(gpus=True))
    assert made == [{"device": "cuda", "dtype": "bfloat16"}]


def test_whoever_asks_a_server_is_one_worker():
    here = Here()
    judge = travelling_judge()
    prefer(responses(2, slots=1), judge, cluster=here, progress=False)
    assert here.alone is False
    object.__setattr__(judge.speaker, "client", "a budget")
    prefer(responses(2, slots=1), judge, cluster=here, progress=False)
    assert here.alone is True


def test_blocks_are_neither_tiny_nor_the_whole():
    for n in (1, 31, 300, 5000, 200_000):
        groups = np.arange(n) // 3
        sizes = [len(part) for part in spread._cut(np.arange(n), groups)]
        assert sum(sizes) == n
        assert max(sizes) <= 1026
        assert len(sizes) <= max(64, n / 1000) + 1


@pytest.mark.parametrize("word", ["slurm", "ray:/head", ""])
def test_other_engines_are_named(word):
    with pytest.raises(DataError, match=r"allowed: 'ray', 'ray://host:port', or a rmlab\.clusters\.Ray"):
        score(responses(1), "longest", cluster=word)
    assert engine("ray://head:10001") == rmlab.clusters.Ray("ray://head:10001")
