"""Changes of a prompt: what they leave alone, controls that do nothing, and a taste for
greetings that was planted.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.benchmarks import load
from rmlab.styles.wording import PROMPT_TRANSFORMS
from rmlab.tables import DataError, check_responses
from rmlab.toy import dial

CONTROLS = ("again", "neutral_sentence")
# Each text holds a piece that no change may touch.
UNTOUCHED = {
    "inline code": "`some inline  code`",
    "fence": "```python\nfirst letter\n\nof  every word\n```",
    "indented": "\n    indented code  here\n",
    "source": "\ndef function(argument):\n\treturn argument\n",
    "asy": '[asy]\nlabel("every word",(2,5));\n\ndraw(circle);\n[/asy]',
    "dollars": r"$alpha + \$beta  gamma$",
    "brackets": r"\[ frac alpha  \]",
    "environment": "\\begin{align*}\nalpha  &= bravo\n\\end{align*}",
    "quoted": '"every word  here"',
    "address": "https://example.org/every/wordhere",
}
BESIDE = ("Please explain {} in other words.", "{}", "What about {}")


@pytest.mark.parametrize("change", PROMPT_TRANSFORMS.values(), ids=lambda c: c.name)
@pytest.mark.parametrize("piece", UNTOUCHED.values(), ids=list(UNTOUCHED))
def test_code_formulas_and_quoted_text_stay(change, piece):
    for frame in BESIDE:
        text = frame.format(piece)
        changed = change(text)
        assert piece in changed
        assert change(text) == changed, "seeds are fixed"


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("straight_quotes", "It’s “good”", 'It\'s "good"'),
        ("spaces", "a b  c\n d", "a  b  c\n d"),
        ("first_letter", "What?", "what?"),
        ("first_letter", '"What?"', '"What?"'),
        ("typo", "no fine set", "no fine set"),
    ],
)
def test_a_change_does_what_its_name_says(name, text, changed):
    assert PROMPT_TRANSFORMS[name](text) == changed


@pytest.fixture(scope="module")
def responses():
    return load("mini").query("domain == 'chat'").reset_index(drop=True)


def two_answers(n=40):
    """One right and one wrong answer to each of n prompts."""
    rows = []
    for number, label in product(range(n), ("chosen", "rejected")):
        row = {"benchmark": "own", "domain": "d", "id": str(number), "label": label}
        row |= {"slot": 0, "prompt": f"Question {number}?", "response": label}
        rows.append(row)
    return check_responses(pd.DataFrame(rows))


def greeted(prompt):
    return prompt.startswith("Hello")


def test_answers_and_keys_stay_and_the_numbers_are_those_of_a_plain_loop(responses):
    calls = []

    def scorer(prompts, texts):
        calls.append(list(zip(prompts, texts, strict=True)))
        return [dial.text_noise(0, p, t) for p, t in calls[-1]]

    before = responses.copy(deep=True)
    table = rmlab.probe(
        responses, scorer, ["greeting", "again"], target="prompt", by="transform"
    )
    pd.testing.assert_frame_equal(responses, before)
    (first, again) = calls
    assert len(first) == len(set(first)) == 2 * len(responses)
    assert again == first[: len(responses)]
    assert {text for _, text in first} == set(responses["response"])

    change = PROMPT_TRANSFORMS["greeting"]
    margins, won, flips = [], [], []
    for _, prompt in responses.groupby("id"):
        for right, wrong in product(
            prompt.query("label == 'chosen'").itertuples(),
            prompt.query("label == 'rejected'").itertuples(),
        ):
            old, new = (
                dial.text_noise(0, text, right.response)
                - dial.text_noise(0, text, wrong.response)
                for text in (right.prompt, change(right.prompt))
            )
            margins.append(new - old)
            won.append((new > 0) - (old > 0))
            flips.append(np.sign(new) != np.sign(old))
    greeting, control = table.to_dict("records")
    assert greeting["change"] == pytest.approx(np.mean(margins))
    assert greeting["accuracy_change"] == pytest.approx(np.mean(won))
    assert greeting["flips"] == pytest.approx(np.mean(flips))
    assert greeting["n"] == len(margins)
    zero = [control[name] for name in ("change", "low", "high", "flips")]
    assert zero == [0, 0, 0, 0], "the same text has the same score"
    assert np.isnan(control["p_holm"])


@pytest.mark.parametrize("control", CONTROLS)
def test_a_null_control_holds_zero_as_often_as_its_interval_says(control):
    """200 draws of a scorer with noise, 40 prompts each."""
    responses = two_answers(200 * 40)
    responses["draw"] = responses["id"].astype(int) // 40
    rng = np.random.default_rng(0)

    def scorer(prompts, texts):
        return rng.normal(size=len(texts)) + [text == "chosen" for text in texts]

    options = {"target": "prompt", "by": ["transform", "draw"]}
    table = rmlab.probe(responses, scorer, [control], **options)
    assert len(table) == 200
    for held in (
        table.eval("low <= 0 <= high"),
        table.eval("accuracy_change_low <= 0 <= accuracy_change_high"),
    ):
        assert 0.91 <= held.mean() <= 0.99
    assert table["flips"].mean() > 0.1, "noise alone turns comparisons over"


def test_a_planted_taste_for_greetings_is_found_with_its_size(responses):
    """Of wrong answers: a worth that all answers share moves no comparison."""
    wrong = set(responses.loc[responses["label"] == "rejected", "response"])

    def scorer(prompts, texts):
        pairs = zip(prompts, texts, strict=True)
        return [
            dial.text_noise(1, "", text)
            + 0.5 * (text not in wrong)
            + 0.8 * (text in wrong and greeted(prompt))
            for prompt, text in pairs
        ]

    table = rmlab.probe(responses, scorer, target="prompt", by="transform")
    table = table.set_index("transform")
    greeting = table.loc["greeting"]
    assert greeting["change"] == pytest.approx(-0.8)
    assert greeting["accuracy_change_high"] < 0
    assert greeting["flips"] == pytest.approx(-greeting["accuracy_change"])
    rest = table.drop(index="greeting").query("n > 0")
    assert rest["change"].abs().max() < 1e-12
    assert table["null"][lambda null: null].index.tolist() == list(CONTROLS)


def test_prompts_without_a_place_count_nowhere_and_conversations_change_at_their_end():
    plain = two_answers(8)
    prompts = plain["prompt"].where(plain.index % 4 < 2, "It’s Q" + plain["id"] + "?")
    seen = []

    def scorer(prompts, texts):
        seen.extend(prompts)
        return np.zeros(len(texts))

    options = {"target": "prompt", "by": "transform"}
    row = rmlab.probe(
        plain.assign(prompt=prompts), scorer, ["straight_quotes"], **options
    ).iloc[0]
    assert (row["n"], row["untouched"], row["n_prompts"]) == (4, 4, 4)

    talk = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "last"},
    ]
    chats = plain.assign(prompt=[talk] * len(plain))
    seen.clear()
    rmlab.probe(chats, scorer, ["first_letter"], **options)
    contents = [[turn["content"] for turn in prompt] for prompt in seen]
    assert contents[-1] == ["first", "answer", "Last"]
    assert contents[0] == ["first", "answer", "last"]


def test_bad_input(responses):
    longest = rmlab.baselines.longest
    for transforms, target, error, named in [
        (["bold"], "prompt", DataError, "transforms: 'bold'"),
        (["typo"], "response", DataError, "transforms: 'typo'"),
        (["typo"], "answer", ValueError, "target: 'answer'"),
    ]:
        with pytest.raises(error, match=named):
            rmlab.probe(responses, longest, transforms, target=target)
    with pytest.raises(DataError, match="'flips'"):
        rmlab.probe(responses.assign(flips="a"), longest, target="prompt", by="flips")
