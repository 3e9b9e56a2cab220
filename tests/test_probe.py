"""Probes: a planted taste is found again, controls are quiet, only what changed
counts.
"""

import numpy as np
import pandas as pd
import pytest

from rmlab import baselines, probe
from rmlab.styles.counts import features_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import DataError
from rmlab.toy import dial


def noisy(seed, bold=0.0):
    """A scorer of noise that likes bold text."""

    def scorer(prompts, texts):
        rewards = []
        for prompt, text in zip(prompts, texts, strict=True):
            noise = dial.text_noise(seed, prompt, text)
            rewards.append(bold * features_of(text)["bold"] + noise)
        return rewards

    return scorer


def test_a_planted_taste_is_recovered(mini):
    table = probe(mini, noisy(0, bold=0.3), by="transform").set_index("transform")
    added = []
    for text in mini["response"]:
        changed = TRANSFORMS["bold"](text)
        if changed != text:
            added.append(features_of(changed)["bold"] - features_of(text)["bold"])
    bold = table.loc["bold"]
    assert bold["n"] == len(added)
    assert bold["low"] < 0.3 * np.mean(added) < bold["high"]
    assert bold["p_holm"] < 1e-6
    assert table["p_holm"].isna().equals(table["null"])
    assert [*table.index[table["null"]]] == ["synonyms", "spacing", "final_newline"]


def test_controls_are_quiet_at_the_nominal_rate(mini):
    chat = mini[mini["domain"] == "chat"]
    controls = ["final_newline", "spacing", "synonyms"]
    p = []
    for seed in range(25):
        p += probe(chat, noisy(seed), controls, by="transform")["p"].tolist()
    # 75 tests, six answers of a prompt changed independently: 5 % give or take three
    # standard errors.
    assert np.mean(np.array(p) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p))


def test_only_altered_answers_count_and_each_text_is_scored_once(mini):
    """Prompts may be lists of messages."""
    talks = mini["prompt"].map(lambda prompt: [{"role": "user", "content": prompt}])
    scored = []

    def scorer(prompts, texts):
        scored.extend(zip(map(repr, prompts), texts, strict=True))
        return np.zeros(len(texts))

    changes = ["strip_markdown", lambda text: text]
    by = ["transform", "style"]
    table = probe(mini.assign(prompt=talks), scorer, changes, by=by)
    assert len(scored) == len(set(scored))
    assert table["n"].tolist() == [0, 0, 128, 0, 0, 0]
    assert table["untouched"].tolist() == [128, 128, 0, 128, 128, 128]
    assert (table["reason"] == "").tolist() == [False, False, True, False, False, False]
    assert table["p"].iloc[2] == 1


def test_families_of_prompts_widen_a_change(mini):
    """The taste for a final newline is a family's, not an answer's."""
    family = pd.factorize(mini["domain"] + mini["id"])[0] // 4
    mini = mini.assign(template=family)
    family_of = dict(zip(mini["prompt"], family, strict=True))
    taste = np.random.default_rng(0).normal(size=family.max() + 1)

    def scorer(prompts, texts):
        tastes = [taste[family_of[prompt]] for prompt in prompts]
        return [
            liked * text.endswith("\n")
            for liked, text in zip(tastes, texts, strict=True)
        ]

    apart = probe(mini, scorer, "final_newline", by="transform")
    together = probe(mini, scorer, "final_newline", by="transform", cluster="template")
    assert together["se"].item() > 1.3 * apart["se"].item()
    same = ["change", "n_prompts"]
    pd.testing.assert_frame_equal(together[same], apart[same])


@pytest.mark.parametrize(
    ("transforms", "scorer", "options", "error", "named"),
    [
        (["bald"], baselines.longest, {}, DataError, "transforms: .*'bald'"),
        (
            [Transform("gone", lambda text: "")],
            baselines.longest,
            {},
            DataError,
            "gone",
        ),
        (["bold"], "longest", {}, TypeError, "not a scorer"),
        (["bold"], baselines.longest, {"by": "model"}, DataError, "'model'"),
        (["bold"], baselines.longest, {"cluster": "famly"}, DataError, "famly"),
    ],
)
def test_bad_input_is_named(mini, transforms, scorer, options, error, named):
    with pytest.raises(error, match=named):
        probe(mini, scorer, transforms, **options)
