"""Tiny reward models: the same weights again, scores as transformers computes them, losses by the formula."""

import numpy as np
import pytest

import rmlab
from rmlab import toy
from rmlab.toy.training import encoded

torch = pytest.importorskip("torch")

FEW = 12
"""Steps: enough to move every weight."""


@pytest.fixture(scope="module")
def pairs():
    return toy.preferences(300, markdown=0.5)


@pytest.fixture(scope="module")
def trained(pairs, tmp_path_factory):
    return toy.train(pairs, tmp_path_factory.mktemp("rm") / "model", steps=FEW, progress=False)


def test_the_same_arguments_give_the_same_weights_and_other_seeds_others(pairs, trained, tmp_path):
    again = toy.train(pairs, tmp_path / "again", steps=FEW, progress=False)
    other = toy.train(pairs, tmp_path / "other", steps=FEW, seed=1, progress=False)
    weights = [(made.folder / "model.safetensors").read_bytes() for made in (trained, again, other)]
    assert weights[0] == weights[1] != weights[2]
    assert trained.history.equals(again.history)


def test_rmlab_scores_it_as_transformers_does(trained):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    table = toy.world(6)
    scores = rmlab.score(table, rmlab.classifier(trained.folder))["score"].to_numpy()
    model = AutoModelForSequenceClassification.from_pretrained(trained.folder)
    words = AutoTokenizer.from_pretrained(trained.folder)
    with torch.no_grad():
        texts = encoded(words, table["prompt"], table["response"])
        expected = np.array([model(input_ids=torch.tensor([text])).logits.item() for text in texts])
    np.testing.assert_allclose(scores, expected, atol=1e-5 * expected.std())


def test_the_first_loss_is_the_formula(pairs, tmp_path):
    """Before the first step the model is the random one: its loss on the first batch, computed by hand."""
    plain = toy.train(pairs, tmp_path / "a", steps=1, batch=300, progress=False).history["loss"][0]
    smooth = toy.train(pairs, tmp_path / "b", steps=1, batch=300, label_smoothing=0.2, progress=False).history["loss"][
        0
    ]
    margin = toy.train(pairs, tmp_path / "c", steps=1, batch=300, margin=1.0, progress=False).history["loss"][0]
    folder = toy.save_model(tmp_path / "random", words=_words(pairs), seed=0, **toy.training.SIZE)
    scored = rmlab.score(pairs, rmlab.classifier(folder)).pivot(index="id", columns="label", values="score")
    odds = (scored["chosen"] - scored["rejected"]).to_numpy()
    loss = np.log1p(np.exp(-odds)).mean()
    turned = np.log1p(np.exp(odds)).mean()
    assert plain == pytest.approx(loss, rel=1e-5)
    assert smooth == pytest.approx(0.8 * loss + 0.2 * turned, rel=1e-5)
    assert margin == pytest.approx(np.log1p(np.exp(1.0 - odds)).mean(), rel=1e-5)


def test_it_learns(tmp_path):
    """One easy topic: 250 steps are enough to tell right from wrong and not to care for Markdown."""
    pairs = toy.preferences(1500, topics=["facts"])
    made = toy.train(pairs, tmp_path / "m", steps=250, progress=False)
    numbers = rmlab.summary(rmlab.score(toy.world(60, topics=["facts"], seed=9), rmlab.classifier(made.folder)))
    assert made.history["accuracy"].tail(20).mean() > 0.8
    assert numbers["overall"].iloc[0] > 0.8


def test_threads_and_random_state_of_torch_are_left_alone(pairs, tmp_path):
    torch.manual_seed(5)
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    toy.train(pairs, tmp_path / "m", steps=1, progress=False)
    assert torch.equal(before, torch.random.get_rng_state())
    assert threads == torch.get_num_threads()


def test_what_cannot_be_learned_from(pairs, tmp_path):
    with pytest.raises(rmlab.DataError, match=r"50 comparisons are too few.*200"):
        toy.train(pairs.iloc[:100], tmp_path, progress=False)
    with pytest.raises(rmlab.DataError, match="one chosen and one rejected"):
        toy.train(toy.world(300), tmp_path, progress=False)
    turned = pairs.iloc[:2].assign(id="turned", label=["rejected", "chosen"])
    with pytest.raises(rmlab.DataError, match="opposite answers"):
        toy.train(rmlab.tables.check_responses(_joined(pairs, turned)), tmp_path, progress=False)
    with pytest.raises(rmlab.DataError, match=r"diverged.*learning_rate"):
        toy.train(pairs, tmp_path, steps=200, learning_rate=50.0, progress=False)
    with pytest.raises(rmlab.DataError, match="batch=301 is more than the 300 comparisons"):
        toy.train(pairs, tmp_path, batch=301, progress=False)
    assert not list(tmp_path.iterdir()), "a training that failed leaves no untrained model behind"
    for wrong in ({"steps": 0}, {"label_smoothing": 0.5}, {"margin": -1}, {"learning_rate": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            toy.train(pairs, tmp_path, progress=False, **wrong)


def _joined(*frames):
    import pandas as pd

    return pd.concat(frames, ignore_index=True)


def _words(pairs):
    from rmlab.toy.training import vocabulary

    return vocabulary([*pairs["prompt"], *pairs["response"]])
