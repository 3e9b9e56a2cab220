"""Toys: dials that like exactly what they are told to, tiny models, the lessons' server, and the demo of them all."""

import numpy as np
import pandas as pd
import pytest
from fakes import responses, toy_responses

import rmlab
from rmlab import toy
from rmlab.tables import DataError


def test_score_is_the_sum_of_what_it_likes():
    texts = responses(40)
    scores = toy.scorer(texts, skill=2.0, style=0.25, length=0.5, noise=0.0)(texts["prompt"], texts["response"])
    right = (texts["label"] == "chosen").to_numpy()
    expected = 2.0 * right + 0.25 * texts["slot"].to_numpy() + 0.5 * np.log2(texts["response"].str.len().to_numpy())
    np.testing.assert_allclose(scores, expected, rtol=1e-15)


def test_the_same_text_gets_the_same_score_in_any_company():
    texts = responses(40)
    together = toy.scorer(texts, seed=3)(texts["prompt"], texts["response"])
    shuffled = texts.sample(frac=1, random_state=0)
    apart = pd.Series(toy.scorer(shuffled, seed=3)(shuffled["prompt"], shuffled["response"]), index=shuffled.index)
    np.testing.assert_array_equal(together, apart.sort_index())
    assert not np.allclose(together, toy.scorer(texts, seed=4)(texts["prompt"], texts["response"]))


def test_noise_is_standard_normal():
    texts = responses(400)
    noise = toy.scorer(texts, skill=0, style=0, noise=1.0)(texts["prompt"], texts["response"])
    assert abs(noise.mean()) < 4 / np.sqrt(len(noise))
    assert abs(noise.std() - 1) < 0.05
    assert abs(np.corrcoef(noise[0::2], noise[1::2])[0, 1]) < 0.1


def test_texts_on_both_sides_unknown_texts_and_conversations():
    texts = responses(2).assign(response="the same")
    texts["prompt"] = [[{"role": "user", "content": id_}] for id_ in texts["id"]]
    dial = toy.scorer(texts, skill=1.0, style=1.0, noise=0.0, name="mine")
    assert dial.name == "mine"
    np.testing.assert_allclose(dial([texts["prompt"][0], "unknown"], ["the same", "the same"]), [0.5 + 1.0, 0.0])


def test_the_price_put_in_is_the_price_found():
    texts = rmlab.load("mini")
    dials = [toy.scorer(texts, style=0.5, length=0.25, seed=seed, name=f"dial {seed}") for seed in range(30)]
    features, scores = rmlab.styles.features(texts), rmlab.score(texts, dials)
    rates = rmlab.exchange_rate(scores, features, terms=["correct", "step", "characters"]).groupby("term")["rate"]
    for term, price in (("step", 0.5), ("characters", 0.25)):
        assert abs(rates.mean()[term] - price) < 3 * rates.sem()[term]
        assert rates.mean()[term] == pytest.approx(price, rel=0.2)


def test_a_seed_gives_its_weights_and_leaves_the_random_state_alone(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    folders = [toy.save_model(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(state, torch.random.get_rng_state())
    for option in ({"architecture": "lama"}, {"task": "clasifier"}):
        with pytest.raises(ValueError, match="|".join(option.values())):
            toy.save_model(tmp_path / "none", **option)
    assert not (tmp_path / "none").exists()


def test_a_served_model_has_the_local_scores_unless_told_otherwise(tmp_path):
    texts = toy_responses(prompts=4, slots=2)
    folder = toy.save_model(tmp_path / "model", initializer_range=0.5)
    local = rmlab.classifier(folder, device="cpu")
    scores = rmlab.score(texts, local)["score"]
    with toy.serve(folder) as server:
        remote = rmlab.remote(server.url, kind="vllm", weights=folder, send="text", name="served")
        np.testing.assert_allclose(rmlab.score(texts, remote)["score"], scores, atol=1e-5 * scores.std())
    with toy.serve(folder, sigmoid=True) as server, pytest.raises(DataError, match="sigmoid"):
        rmlab.remote(server.url, kind="vllm", tokenizer=folder)
    with toy.serve(folder, double_bos=True) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, name="served")
        rows = rmlab.parity(local, remote, texts).set_index("check")
    assert rows.loc["cause", "found"].startswith("double bos")
