"""Chasing a reward: what is free and liked is taken, and checking is given up where sentences are liked more."""

import numpy as np
import pytest

import rmlab
from rmlab import toy
from rmlab.toy.optimizing import ACTIONS, RIGHT


def likes_words(prompts, texts):
    return [float(np.log(len(text.split()))) for text in texts]


def likes_markdown(prompts, texts):
    return [float("##" in text) for text in texts]


def test_the_first_policy_takes_all_ways_alike():
    first = toy.optimize(likes_words, steps=1).iloc[0]
    assert first["true"] == pytest.approx(np.mean(RIGHT))
    assert first["proxy"] == pytest.approx(0, abs=1e-12)
    assert first["kl"] == pytest.approx(0, abs=1e-12)
    assert first["markdown"] == first["sure"] == 0.5


def test_reward_for_words_buys_words_and_costs_the_truth():
    for seed in range(5):
        table = toy.optimize(likes_words, steps=200, seed=seed)
        assert table["proxy"].iloc[-1] > table["proxy"].iloc[0] + 0.5
        assert table["true"].iloc[-1] < table["true"].iloc[0] - 0.1
        assert table["kl"].is_monotonic_increasing or table["kl"].iloc[-1] > 0.5


def test_a_strong_rein_holds_the_policy():
    loose, held = (toy.optimize(likes_markdown, steps=200, kl=kl)["kl"].iloc[-1] for kl in (0.0, 5.0))
    assert held < 0.1 * loose


def test_best_of_one_is_the_writer_and_more_is_better_liked():
    table = toy.best_of_n(likes_words, [1, 4, 16])
    assert abs(table["true"][0] - np.mean(RIGHT)) < 5 * table["true_se"][0] + 0.01
    assert table["proxy"].is_monotonic_increasing
    assert table["kl"].tolist() == pytest.approx([0, np.log(4) - 3 / 4, np.log(16) - 15 / 16])
    assert table["true"].is_monotonic_decreasing


def test_best_of_two_by_counting():
    """A reward for Markdown alone: the better of two has it unless both lack it, three times in four."""
    table = toy.best_of_n(likes_markdown, [2], n=40)
    assert table["markdown"][0] == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / (40 * 400)))


def test_what_cannot_be_chased():
    with pytest.raises(rmlab.DataError, match="finite scores"):
        toy.optimize(lambda prompts, texts: [1.0])
    with pytest.raises(rmlab.DataError, match="same score"):
        toy.best_of_n(lambda prompts, texts: [1.0] * len(texts))
    for wrong in ({"steps": 0}, {"kl": -1}, {"learning_rate": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            toy.optimize(likes_words, **wrong)
    with pytest.raises(ValueError, match="sizes"):
        toy.best_of_n(likes_words, [0, 1])
    assert len(ACTIONS) == 16
