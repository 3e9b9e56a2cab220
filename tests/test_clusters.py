"""Scoring on a cluster: with an engine of this process for every kind of scorer, and with Ray on loopback."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import BothOrders, Difference, Here, Streaming, responses
from faulty_server import FaultyServer
from judge_fakes import Respondent, longer, pair_judge, shown_answers
from served_models import Vllm, number

import rmlab
from rmlab import toy
from rmlab.scoring import prefer, score
from rmlab.store import Store
from rmlab.tables import DataError


@pytest.fixture(params=["nothing", "folder", "url"])
def store(request, tmp_path):
    """A store of each kind, or none."""
    return {"nothing": None, "folder": tmp_path / "scores", "url": (tmp_path / "scores").as_uri()}[request.param]


def test_scores_are_those_of_a_plain_run_and_blocks_hold_whole_prompts(store):
    frame, here = responses(40), Here()
    scores = score(frame, Streaming(), cluster=here, store=store)
    pd.testing.assert_frame_equal(scores, score(frame, Streaming()))
    prompts = [{text.prompt for text in block.texts} for block in here.given]
    assert 4 < len(prompts) <= 64
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 40
    assert scores.attrs["provenance"]["fake"]["scored"] == len(frame)
    if store is not None:
        again = Here()
        assert score(frame, Streaming(), cluster=again, store=store).equals(scores)
        assert again.given == []
    if isinstance(store, str):
        written = Store(store).list_files("fake-1")
        assert sum(name.endswith(".records") for name in written) == 2, "a file for each worker"


def test_terms_columns_and_orders(store):
    frame = responses(12)
    assert score(frame, Difference(), cluster=Here(), store=store).equals(score(frame, Difference()))
    pairs = prefer(frame, BothOrders(), cluster=Here(), store=store)
    pd.testing.assert_frame_equal(pairs, prefer(frame, BothOrders()))


def _prefers_length(question):
    return longer(*shown_answers(question.messages))


def travelling_judge():
    return replace(pair_judge(longer), respondent=Respondent(_prefers_length))


def test_a_judge_is_asked_on_the_cluster_and_read_here(store):
    frame = responses(6, slots=1)
    plain = prefer(frame, travelling_judge(), progress=False)
    pairs = prefer(frame, travelling_judge(), cluster=Here(), store=store, progress=False)
    pd.testing.assert_frame_equal(pairs, plain)
    provenance = pairs.attrs["provenance"]["judge"]
    assert provenance["asked"] == provenance["questions"] == plain.attrs["provenance"]["judge"]["asked"]
    if store is not None:
        again = prefer(frame, travelling_judge(), cluster=Here(), store=store, progress=False)
        assert again.attrs["provenance"]["judge"]["asked"] == 0, "every answer was there already"


def test_a_driver_that_ends_leaves_the_blocks_that_were_done(tmp_path):
    frame, here = responses(60), Here(dies_at=4)
    with pytest.raises(KeyboardInterrupt):
        score(frame, Streaming(), cluster=here, store=tmp_path)
    rest = Streaming()
    assert score(frame, rest, store=tmp_path).equals(score(frame, Streaming()))
    done = sum(len(block.texts) for block in here.given)
    assert len(rest.forwarded) == len(frame) - done


class Other(Streaming):
    """Its fingerprint changes on the way."""

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.fingerprint = "other"


def test_a_worker_with_another_model_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"scorer 'fake'.*worker"):
        score(responses(4), Other(), cluster=Here(), store=tmp_path)
    assert not list(tmp_path.glob("other/*"))


def test_models_by_name_are_made_by_the_workers_on_their_devices(tmp_path):
    toy.save_model(tmp_path / "m")
    frame = responses(5)
    plain = score(frame, tmp_path / "m", device="cpu", dtype="float32")
    options = []

    class Recording(Here):
        def map(self, work, blocks):
            options.append(work.args[0].remake.keywords)
            return super().map(work, blocks)

    scores = score(frame, tmp_path / "m", cluster=Recording())
    np.testing.assert_allclose(scores["score"], plain["score"], rtol=0, atol=1e-5 * plain["score"].std())
    rmlab.score(frame, rmlab.classifier(str(tmp_path / "m"), budget=99), cluster=Recording())
    assert options == [{}] * 2 + [{"budget": 99}] * 2, "the device is the worker's choice, and so is its number type"


class OnAnotherDevice(Here):
    """Its workers would choose another number type than the driver."""

    def map(self, work, blocks):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rmlab.scorers.models.backbone.dtype", lambda requested, device: torch.bfloat16)
            yield from super().map(work, blocks)


@pytest.mark.parametrize("named", [True, False])
def test_a_driver_without_the_workers_device_knows_their_scores(named, tmp_path):
    toy.save_model(tmp_path / "m")
    frame, store = responses(5), tmp_path / "scores"
    scorer = tmp_path / "m" if named else rmlab.classifier(tmp_path / "m")
    scores = score(frame, scorer, cluster=OnAnotherDevice(), store=store)
    provenance = scores.attrs["provenance"]["m"]
    assert provenance["dtype"] == "bfloat16"
    assert Store(store).fingerprints() == [provenance["fingerprint"]]
    again = OnAnotherDevice()
    assert score(frame, scorer, cluster=again, store=store).equals(scores)
    assert again.given == [None], "who the model is was asked, and nothing else"


def test_a_served_model_is_asked_by_one_client_within_its_budget(tmp_path):
    folder = toy.save_model(tmp_path / "m", words=toy.tokenizer())
    frame, tokenizer = responses(20), rmlab.classifier(folder, device="cpu").tokenizer
    with FaultyServer(Vllm(number, tokenizer), delay=0.005) as server:
        connect = partial(rmlab.remote, server.url, kind="vllm", tokenizer=folder, version="1", concurrency=3, batch=4)
        expected = score(frame, connect())
        n_before = len(server.log)
        scores = score(frame, connect(), cluster=Here())
        n_requests = len(server.log) - n_before
        capped = connect(max_requests=n_requests - 1)
        with pytest.raises(DataError, match=f"max_requests={n_requests - 1}"):
            score(frame, capped, cluster=Here())
        assert len(server.log) - n_before == 2 * n_requests - 1
    pd.testing.assert_frame_equal(scores, expected)
    assert scores.attrs["provenance"]["tiny"]["requests"] == n_requests
    assert server.most_open <= 3
