"""Probes: a planted taste is found again, controls are quiet, only what changed
counts.
"""

import numpy as np
import pandas as pd
import pytest

from rmlab import baselines, probe
from rmlab.benchmarks import load
from rmlab.styles.counts import features_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import DataError
from rmlab.toy import dial


@pytest.fixture(scope="module")
def responses():
    return load("mini")


def noisy(seed, bold=0.0):
    """A scorer of noise that likes bold text."""

    def scorer(prompts, texts):
        pairs = zip(prompts, texts, strict=True)
        return [
            bold * features_of(text)["bold"] + dial.text_noise(seed, prompt, text)
            for prompt, text in pairs
        ]

    return scorer


def test_a_planted_taste_is_recovered(responses):
    table = probe(responses, noisy(0, bold=0.3), by="transform").set_index("transform")
    texts = responses["response"]
    n_added = np.array(
        [
            features_of(TRANSFORMS["bold"](t))["bold"] - features_of(t)["bold"]
            for t in texts
        ]
    )
    bold = table.loc["bold"]
    assert bold["low"] < 0.3 * n_added[n_added > 0].mean() < bold["high"]
    assert bold["p_holm"] < 1e-6
    assert (
        table.loc[
            [name for name, change in TRANSFORMS.items() if change.null], "p_holm"
        ]
        .isna()
        .all()
    )


def test_controls_are_quiet_at_the_nominal_rate(responses):
    chat, p = responses[responses["domain"] == "chat"], []
    for seed in range(25):
        p += probe(
            chat, noisy(seed), ["final_newline", "spacing", "synonyms"], by="transform"
        )["p"].tolist()
    # 75 tests, six answers of a prompt changed independently: 5 % give or take three
    # standard errors.
    assert np.mean(np.array(p) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p))


def test_only_altered_answers_count_and_each_text_is_scored_once(responses):
    texts_scored = []

    def scorer(prompts, texts):
        texts_scored.extend(zip(prompts, texts, strict=True))
        return np.zeros(len(texts))

    table = probe(
        responses,
        scorer,
        ["strip_markdown", lambda text: text],
        by=["transform", "style"],
    )
    assert len(texts_scored) == len(set(texts_scored))
    assert table["n"].tolist() == [0, 0, 128, 0, 0, 0]
    assert (table["reason"] == "").tolist() == [False, False, True, False, False, False]


def test_families_of_prompts_widen_a_change(responses):
    """The taste for a final newline is a family's, not an answer's."""
    family = pd.factorize(responses["domain"] + responses["id"])[0] // 4
    responses = responses.assign(template=family)
    family_of = dict(zip(responses["prompt"].map(repr), family, strict=True))
    taste = np.random.default_rng(0).normal(size=family.max() + 1)

    def scorer(prompts, texts):
        return [
            taste[family_of[repr(p)]] * t.endswith("\n")
            for p, t in zip(prompts, texts, strict=True)
        ]

    apart = probe(responses, scorer, ["final_newline"], by="transform").iloc[0]
    together = probe(
        responses, scorer, ["final_newline"], by="transform", cluster="template"
    ).iloc[0]
    assert together["change"] == pytest.approx(apart["change"])
    assert together["se"] > 1.3 * apart["se"]
    with pytest.raises(DataError, match="famly"):
        probe(responses, scorer, ["final_newline"], cluster="famly")


def test_bad_input(responses):
    for transforms, scorer, options, error, named in [
        (["bald"], baselines.longest, {}, DataError, "transforms: .*'bald'"),
        (
            [Transform("gone", lambda text: "")],
            baselines.longest,
            {},
            DataError,
            "transforms: .*gone",
        ),
        (["bold"], "longest", {}, TypeError, "not a scorer"),
        (["bold"], baselines.longest, {"by": "model"}, DataError, "'model'"),
    ]:
        with pytest.raises(error, match=named):
            probe(responses, scorer, transforms, **options)
