"""Changes of style: they change style only, a planted taste is found again, and controls are quiet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmlab import baselines
from rmlab.benchmarks import load
from rmlab.bias.probe import probe
from rmlab.styles import TRANSFORMS, Transform
from rmlab.styles.counts import features_of
from rmlab.tables import DataError
from rmlab.toy import dial

TEXT = (
    "Dr. Smith walked to the large house. He bought 3.5 litres of milk, e.g. for tea. Often he sings.\n\n"
    "```python\nlarge = 1. often\n```\n\nThe second paragraph starts here. It ends."
)
NULLS = [name for name, made in TRANSFORMS.items() if made.null]


@pytest.fixture(scope="module")
def responses():
    return load("mini")


def luck(prompt, text):
    return dial.text_noise(0, prompt, text)


@pytest.mark.parametrize("made", TRANSFORMS.values(), ids=TRANSFORMS)
def test_no_steps_no_change_and_code_is_never_touched(made, responses):
    assert made(TEXT, 0) == TEXT
    code = "```python\nlarge = 1. often\n```"
    if made.name != "strip_markdown":
        assert code in made(TEXT)
    assert made(code, 0) == code
    for text in responses["response"]:
        assert isinstance(made(text), str)


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("headings", "headings"),
        ("bold", "bold"),
        ("bullets", "list_items"),
        ("emoji", "emoji"),
        ("padding", "sentences"),
    ],
)
def test_each_step_adds_its_feature(name, feature):
    counts = [features_of(TRANSFORMS[name](TEXT, step))[feature] for step in range(3)]
    assert counts[0] < counts[1] <= counts[2]


def test_an_address_is_no_word_to_mark():
    text = "See https://example.org/a or example.org. Ask me@example.org!"
    assert TRANSFORMS["bold"](text) == text


@given(st.text(alphabet="aB. !?\n*#`-|_1", min_size=1, max_size=80), st.sampled_from(sorted(TRANSFORMS)))
def test_any_text_survives_every_change(text, name):
    assert TRANSFORMS[name](text)
    assert TRANSFORMS[name](text, 0) == text


def test_synonyms_are_their_own_inverse():
    swap = TRANSFORMS["synonyms"]
    assert "big house" in swap(TEXT)
    assert swap(swap(TEXT)) == TEXT


def test_a_planted_taste_is_recovered(responses):
    def scorer(prompts, texts):
        return [
            0.3 * features_of(text)["bold"] + luck(prompt, text) for prompt, text in zip(prompts, texts, strict=True)
        ]

    table = probe(responses, scorer, by="transform").set_index("transform")
    before, after = (
        [features_of(change(text))["bold"] for text in responses["response"]]
        for change in (lambda text: text, TRANSFORMS["bold"])
    )
    added = np.subtract(after, before)
    bold = table.loc["bold"]
    assert bold["low"] < 0.3 * added[added > 0].mean() < bold["high"]
    assert bold["p_holm"] < 1e-6
    assert table.loc[NULLS, "p_holm"].isna().all()


def test_controls_are_quiet_at_the_nominal_rate(responses):
    some = responses[responses["domain"] == "chat"]
    p = []
    for seed in range(60):

        def scorer(prompts, texts, seed=seed):
            return [dial.text_noise(seed, prompt, text) for prompt, text in zip(prompts, texts, strict=True)]

        p += probe(some, scorer, ["final_newline", "spacing", "synonyms"], by="transform")["p"].tolist()
    rate = np.mean(np.array(p) < 0.05)
    # 180 tests, six answers of a prompt changed independently: 5 % give or take three standard errors.
    assert rate < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p))


def test_an_indifferent_scorer_changes_nothing(responses):
    table = probe(responses, baselines.constant)
    assert (table["change"] == 0).all()
    assert (table["p"] == 1).all()
    assert table["standardised"].isna().all()
    assert set(table["domain"]) == {"chat", "math", "code", "safety"}


def test_only_altered_answers_count_and_each_text_is_scored_once(responses):
    asked = []

    def scorer(prompts, texts):
        asked.extend(zip(prompts, texts, strict=True))
        return np.zeros(len(texts))

    changes = probe(responses, scorer, ["strip_markdown", lambda text: text], by="transform")
    assert len(asked) == len(set(asked))
    assert sorted(changes["n"]) == [0, 128]
    table = probe(responses, scorer, ["strip_markdown"], by=["transform", "style"]).set_index("style")
    assert table["n"].tolist() == [0, 0, 128]
    assert table.loc["plain", "reason"] == "no answer was altered"


def test_bad_input(responses):
    for error, message, transforms in (
        (DataError, "'bald'", ["bald"]),
        (DataError, "'bold'", "bold"),
        (DataError, "3", [3]),
        (DataError, "repeats a name", ["bold", "bold"]),
        (DataError, "gone", [Transform("gone", lambda text, steps: "")]),
    ):
        with pytest.raises(error, match=f"transforms: .*{message}"):
            probe(responses, baselines.longest, transforms)
    with pytest.raises(TypeError, match="scorer: 'longest'"):
        probe(responses, "longest", ["bold"])
    with pytest.raises(DataError, match="scorer"):
        probe(responses, lambda prompts, texts: [1.0], ["bold"])
    with pytest.raises(DataError, match="'model'"):
        probe(responses, baselines.longest, ["bold"], by="model")
