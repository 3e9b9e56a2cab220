"""The course's world, annotators, trained models and policies: laws, formulas and transformers as oracle."""

import course
import numpy as np
import pytest

import rmlab
from rmlab import toy

torch = pytest.importorskip("torch")

FEW = 12
"""Steps: enough to move every weight."""


def test_right_claims_are_right_and_wrong_ones_wrong():
    table = course.world(300)
    concise = table[table["style"] == "concise"]
    for prompt, response, right in concise[["prompt", "response", "right"]].itertuples(index=False):
        claim = response.removeprefix("It is ").split(".")[0]
        assert (claim == _truth(prompt)) == right
    assert (table["right"] == (table["label"] == "chosen")).all()


def _truth(prompt):
    """Worked out from the question alone."""
    if prompt.startswith("What is"):
        return str(sum(int(number) for number in prompt[8:-1].split(" + ")))
    if prompt.startswith("Which is larger"):
        return max(prompt[17:-1].split(" or "), key=int)
    colour, crop = course.FACTS[prompt[:-1].split()[-1]]
    return colour if "flag" in prompt else crop


def _wide(pairs):
    return pairs.pivot(index="id", columns="label", values=["right", "worth", "style", "sure", "response"])


@pytest.mark.parametrize("dials", [{}, {"markdown": 0.5}, {"length": 0.7, "confidence": 0.2}])
def test_preferences_follow_the_difference_in_worth(dials):
    wide = _wide(course.preferences(3000, **dials))
    right_won = wide["right", "chosen"].to_numpy(dtype=bool)
    gain = (wide["worth", "chosen"] - wide["worth", "rejected"]).to_numpy(dtype=float)
    chance = 1 / (1 + np.exp(-course.SHARPNESS * np.where(right_won, gain, -gain)))
    spread = np.sqrt((chance * (1 - chance)).sum())
    assert abs(right_won.sum() - chance.sum()) < 4 * spread


@pytest.fixture(scope="module")
def pairs():
    return course.preferences(300, markdown=0.5)


def test_the_first_loss_is_the_formula(pairs, tmp_path, monkeypatch):
    """Before the first step the model is the random one: its loss on the first batch, computed by hand."""
    monkeypatch.setattr(course, "BATCH", len(pairs) // 2)
    history = course.train(pairs, tmp_path / "trained", steps=1).history
    words = course.train_tokenizer([*pairs["prompt"], *pairs["response"]])
    folder = toy.save_model(tmp_path / "random", words=words, seed=0, **course.SIZE)
    scored = rmlab.score(pairs, rmlab.classifier(folder)).pivot(index="id", columns="label", values="score")
    odds = (scored["chosen"] - scored["rejected"]).to_numpy()
    assert history["loss"][0] == pytest.approx(np.log1p(np.exp(-odds)).mean(), rel=1e-5)
    assert history["accuracy"][0] == pytest.approx((odds > 0).mean())


def test_what_cannot_be_learned_from(pairs, tmp_path):
    with pytest.raises(rmlab.DataError, match=r"50 comparisons.*200"):
        course.train(pairs.iloc[:100], tmp_path)
    for table in (course.world(300), pairs.iloc[1:], pairs[pairs["label"] == "chosen"]):
        with pytest.raises(rmlab.DataError, match="one chosen and one rejected"):
            course.train(table, tmp_path)
    assert not list(tmp_path.iterdir())
    for value in (-0.1, 1.5, float("nan")):
        with pytest.raises(rmlab.DataError, match="markdown"):
            course.preferences(10, markdown=value)


def likes_words(prompts, texts):
    return [float(np.log(len(text.split()))) for text in texts]


def test_reward_for_words_buys_words_and_costs_the_truth():
    for seed in range(5):
        table = course.optimize(likes_words, steps=200, seed=seed)
        assert table["proxy"].iloc[-1] > table["proxy"].iloc[0] + 0.5
        assert table["true"].iloc[-1] < table["true"].iloc[0] - 0.1
        assert table["kl"].is_monotonic_increasing or table["kl"].iloc[-1] > 0.5


def test_best_of_one_is_the_writer_and_more_is_better_liked():
    table = course.best_of_n(likes_words).set_index("size")
    right = np.mean(course.RIGHT)
    assert table["true"][1] == pytest.approx(right, abs=5 * np.sqrt(right * (1 - right) / (60 * 400)))
    assert table["proxy"].is_monotonic_increasing
    assert table["kl"][[1, 4, 16]].tolist() == pytest.approx([0, np.log(4) - 3 / 4, np.log(16) - 15 / 16])
    assert table["true"][[1, 4, 16]].is_monotonic_decreasing
