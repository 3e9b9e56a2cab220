"""What a scorer is: functions, objects and subclasses, and the how-to for a scorer of one's own."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from fakes import Streaming, responses
from faulty_server import FaultyServer

import rmlab
from rmlab import toy
from rmlab.scorers import PairScorer, Scorer
from rmlab.scoring import score

ROOT = Path(__file__).parents[1]


def characters(prompts, answers):
    return [len(answer) for answer in answers]


class Characters:
    """The same numbers, by a name and a call."""

    name, fingerprint = "object", "v1"

    def __call__(self, prompts, answers):
        return characters(prompts, answers)


class StreamedCharacters(Scorer):
    name, fingerprint = "streamed", "v1"

    def stream(self, texts):
        for part in np.array_split(np.arange(len(texts)), 3):
            yield part, np.array([float(len(texts[i].answers[0])) for i in part])


class Shorter(PairScorer):
    name, fingerprint = "shorter", "v1"

    def stream(self, texts):
        yield range(len(texts)), np.array([len(text.answers[1]) - len(text.answers[0]) for text in texts])


class ShorterByName:
    """The same margins, by a name and `prefer`."""

    name = "object"

    def prefer(self, prompts, first, second):
        return [len(b) - len(a) for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize("stored", [False, True])
def test_functions_objects_and_subclasses_score_alike(tmp_path, stored):
    frame = responses(4)
    models = [Characters(), StreamedCharacters()] + ([] if stored else [characters])
    for model in models:  # one by one: two of them share a fingerprint, and rightly
        scores = score(frame, model, store=tmp_path / str(model.name) if stored else None)
        assert scores["score"].tolist() == frame["response"].str.len().tolist()


def test_comparisons_by_inheritance_and_by_a_method_are_alike():
    frame = responses(4)
    pairs = rmlab.prefer(frame, [Shorter(), ShorterByName()])
    assert pairs["model"].unique().tolist() == ["shorter", "object"]
    assert Shorter().prefer(["p"], ["long"], ["s"]).tolist() == [-3.0]
    margins = pairs["margin"].to_numpy().reshape(2, -1)
    assert (margins[0] == margins[1]).all()
    with pytest.raises(TypeError, match="has no prefer"):
        rmlab.prefer(frame, characters)
    with pytest.raises(TypeError, match=r"use rmlab\.prefer"):
        score(frame, Shorter())


def test_the_same_model_in_float32_is_another_one(tmp_path):
    policy = toy.save_model(tmp_path / "p", task="causal")
    for make in (rmlab.implicit_reward, rmlab.pairwise):
        half = make(policy, dtype="bfloat16")
        fingerprint, twin = half.fingerprint, half.in_float32()
        assert str(half.backbone.dtype) == "torch.bfloat16"
        assert str(twin.backbone.dtype) == "torch.float32"
        assert str(half.in_float32().backbone.dtype) == "torch.float32"
        assert half.fingerprint == fingerprint != twin.fingerprint
        assert twin.provenance()["dtype"] == "float32"


def test_two_names_for_one_fingerprint_are_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="'first' and 'second' have the same fingerprint") as caught:
        scores = score(responses(3), [Streaming("first"), Streaming("second")], store=tmp_path)
    assert [warning.filename for warning in caught] == [__file__], "the line of the caller is shown"
    assert scores["model"].unique().tolist() == ["first", "second"]


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the how-to is not part of this copy")
def test_the_http_scorer_of_the_how_to_tries_again(tmp_path):
    found = importlib.util.spec_from_file_location("http_scorer", ROOT / "docs" / "http_scorer.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    statuses, frame = [503, 200, 429], responses(5)

    def respond(path, body, headers):
        status = statuses.pop(0) if statuses else 200
        return status, {}, {"scores": [float(len(text)) for text in body["responses"]]}

    with FaultyServer(respond) as server:
        url = f"{server.url}/score"
        for n_requests in (4, 4):  # the second time all of it is in the store
            scorer = module.HttpScorer(url, name="served", version="1", pause=0.001)
            scores = score(frame, scorer, store=tmp_path)
            assert scores["score"].tolist() == frame["response"].str.len().tolist()
            assert len(server.log) == n_requests
    provenance = scores.attrs["provenance"]["served"]
    assert (provenance["url"], provenance["version"]) == (url, "1")
