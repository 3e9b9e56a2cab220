"""The bias dial: it likes exactly what it is told to like."""

import numpy as np
import pandas as pd
import pytest

from rmlab import benchmarks, styles, toy
from rmlab.bias import exchange_rate
from rmlab.tables import KEY


def _responses(n=40):
    styles = ("concise", "plain", "markdown")
    rows = [
        (
            "b",
            "chat",
            str(i),
            label,
            slot,
            style,
            f"question {i}",
            f"{label} {style} {i} " + "x" * (7 * i % 50 + 9 * slot),
        )
        for i in range(n)
        for label in ("chosen", "rejected")
        for slot, style in enumerate(styles)
    ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "style", "prompt", "response"])


def test_score_is_the_sum_of_what_it_likes():
    texts = _responses()
    found = toy.scorer(texts, skill=2.0, style=0.25, length=0.5, noise=0.0)(texts["prompt"], texts["response"])
    right = (texts["label"] == "chosen").to_numpy()
    expected = 2.0 * right + 0.25 * texts["slot"].to_numpy() + 0.5 * np.log2(texts["response"].str.len().to_numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_the_same_text_gets_the_same_score_in_any_company():
    texts = _responses()
    scorer = toy.scorer(texts, seed=3)
    together = scorer(texts["prompt"], texts["response"])
    shuffled = texts.sample(frac=1, random_state=0)
    apart = pd.Series(scorer(shuffled["prompt"], shuffled["response"]), index=shuffled.index).sort_index()
    np.testing.assert_array_equal(together, apart)
    again = toy.scorer(shuffled, seed=3)(texts["prompt"], texts["response"])
    np.testing.assert_array_equal(together, again)
    assert not np.allclose(together, toy.scorer(texts, seed=4)(texts["prompt"], texts["response"]))


def test_noise_is_standard_normal():
    texts = _responses(400)
    noise = toy.scorer(texts, skill=0, style=0, noise=1.0)(texts["prompt"], texts["response"])
    assert abs(noise.mean()) < 4 / np.sqrt(len(noise))
    assert abs(noise.std() - 1) < 0.05
    assert abs(np.corrcoef(noise[0::2], noise[1::2])[0, 1]) < 0.1


def test_texts_on_both_sides_and_unknown_texts():
    texts = _responses(2)
    texts.loc[:, "response"] = "the same"
    dial = toy.scorer(texts, skill=1.0, style=1.0, noise=0.0)
    np.testing.assert_allclose(dial(["question 0", "question 9"], ["the same", "the same"]), [0.5 + 1.0, 0.0])


def test_conversations_are_known_too():
    texts = _responses(3)
    texts["prompt"] = [[{"role": "user", "content": prompt}] for prompt in texts["prompt"]]
    dial = toy.scorer(texts, skill=1.0, style=0.0, noise=0.0, name="mine")
    assert dial.name == "mine"
    np.testing.assert_array_equal(dial(list(texts["prompt"]), texts["response"]), texts["label"] == "chosen")


def test_the_price_put_in_is_the_price_found():
    texts = benchmarks.load("mini")
    features = styles.features(texts)
    keys = texts[[*KEY, "subset", "style"]]
    dials = [toy.scorer(texts, style=0.5, length=0.25, seed=seed, name=f"dial {seed}") for seed in range(30)]
    scores = pd.concat(keys.assign(model=dial.name, score=dial(texts["prompt"], texts["response"])) for dial in dials)
    rates = exchange_rate(scores, features, terms=["correct", "step", "characters"]).groupby("term")["rate"]
    for term, price in (("step", 0.5), ("characters", 0.25)):
        assert abs(rates.mean()[term] - price) < 3 * rates.sem()[term]
        assert rates.mean()[term] == pytest.approx(price, rel=0.2)
