"""Probes: a planted taste is found again, controls are quiet, only what changed
counts.
"""

import numpy as np
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
