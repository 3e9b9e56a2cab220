"""Pairwise models against hand-written forwards of tiny checkpoints in their published
layouts.
"""

import json

import numpy as np
import pytest
import torch
from as_alone import EAGER
from pairwise_models import MARKS, save, save_pairrm
from safetensors.torch import load_file

from rmlab import toy
from rmlab.scorers.pairwise import pairwise
from rmlab.tables import DataError

TURNS = [
    {"role": "user", "content": "Add two numbers."},
    {"role": "assistant", "content": "7 + 8 = 15"},
    {"role": "user", "content": "Why?"},
]
PROMPTS = ["What is the capital of France?", "What is the capital of France?", TURNS]
FIRST = ["Paris, a city on the river Seine.", "I am sorry, no.", "Because 7 + 8 = 15."]
SECOND = ["Rome.", "The capital of France is Paris.", "I cannot help with that."]
KINDS = ["pairrm", "letters"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def pairrm(tmp_path):
    return save_pairrm(tmp_path / "m")


@pytest.fixture(params=KINDS)
def model(request, tmp_path):
    """A model of each kind."""
    return pairwise(save(request.param, tmp_path / "m"))


def forwarded(model):
    """A list that fills with the shape of every pass."""
    shapes = []
    model.backbone.model.register_forward_pre_hook(
        lambda _, inputs, named: shapes.append(tuple(named["input_ids"].shape)),
        with_kwargs=True,
    )
    return shapes


def many():
    """Twelve comparisons."""
    return PROMPTS * 4, [f"{text} {i}" for i, text in enumerate(FIRST * 4)], SECOND * 4


def pairrm_logit(folder, head, words, source, first, second):
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder)
    backbone = AutoModel.from_config(config).eval()
    held = load_file(folder / "model.safetensors")
    prefix = "pretrained_model."
    backbone.load_state_dict(
        {k.removeprefix(prefix): t for k, t in held.items() if k.startswith(prefix)}
    )
    parts = [
        words.encode(mark + text)
        for mark, text in zip(MARKS, [source, first, second], strict=True)
    ]
    ids = torch.tensor([[token for part in parts for token in part]])
    with torch.no_grad():
        states = backbone(input_ids=ids).last_hidden_state[0]
        at = [
            states[(ids[0] == token).nonzero()[0, 0]]
            for token in words.convert_tokens_to_ids(MARKS)
        ]
        left, right = head(torch.cat([at[0], at[1]])), head(torch.cat([at[0], at[2]]))
    return (left - right).mean().item()


def pairrm_margin(pairrm, source, *answers):
    there, back = (
        pairrm_logit(*pairrm, source, *texts) for texts in (answers, answers[::-1])
    )
    return (there - back) / 2


def test_pairrm_is_half_the_difference_of_both_orders(pairrm):
    start = (
        "Finish the following coversation in each i-th turn by filling in <Response i> "
        "with your response."
    )
    one = f"{start}USER: {PROMPTS[0]}\nAssistant: <Response 1>"
    two = (
        f"{start}USER: Add two numbers.\nAssistant: <Response 1>\nUSER: Why?\n"
        "Assistant: <Response 2>"
    )
    begins = [
        "<Response 1>: ",
        "<Response 1>: ",
        "<Response 1>: 7 + 8 = 15\n<Response 2>: ",
    ]
    texts = zip([one, one, two], begins, FIRST, SECOND, strict=True)
    expected = [
        pairrm_margin(pairrm, source, begin + a, begin + b)
        for source, begin, a, b in texts
    ]
    model = pairwise(pairrm[0])
    found = model.prefer(PROMPTS, FIRST, SECOND)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found).min() > 1e-4
    np.testing.assert_allclose(model.prefer(PROMPTS, SECOND, FIRST), -found, atol=1e-6)


def test_pairrm_cuts_only_when_told(pairrm):
    model, long = pairwise(pairrm[0]), "Paris is a city. " * 1500
    named = (
        r"2 of 4 comparisons .*first number 1\) are longer than the model reads.*"
        r"'right'"
    )
    with pytest.raises(DataError, match=named):
        model.prefer(PROMPTS[:2], FIRST[:2], ["Rome.", long])
    cutting = pairwise(pairrm[0], truncate="right")
    prepared = cutting.prepare(PROMPTS[:2], FIRST[:2], ["Rome.", long])
    assert max(len(ids) for ids in prepared.ids) <= 2048
    assert cutting.provenance()["truncated"] == 1
    ids, reads = prepared.ids[1], prepared.reads[1]
    assert pairrm[2].convert_ids_to_tokens(ids[reads].tolist()) == MARKS


def log_odds(p):
    return np.log(p) - np.log1p(-p)


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_letters_give_the_log_odds_of_the_mean_probability(tmp_path, architecture):
    from transformers import AutoModelForCausalLM

    folder = toy.save_model(tmp_path / "m", architecture, task="causal")
    words = toy.tokenizer()
    model = AutoModelForCausalLM.from_pretrained(folder, **EAGER).eval()
    plain = toy.tokenizer(
        chat_template=(
            "\n{% for message in messages %}{% if loop.index0 % 2 == 0 %}\n\n<turn> "
            "user\n {{ message['content'] }}"
            "{% else %}\n\n<turn> assistant\n {{ message['content'] }}{% endif %}{% "
            "endfor %}\n\n\n"
        )
    )
    pair = [words.encode(letter, add_special_tokens=False)[0] for letter in "AB"]
    expected = []
    for prompt, a, b in zip(PROMPTS, FIRST, SECOND, strict=True):
        chat = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        )
        context = plain.apply_chat_template(chat, tokenize=False)
        odds = []
        for x, y in ((a, b), (b, a)):
            asked = f"[CONTEXT] {context} [RESPONSE A] {x} [RESPONSE B] {y} \n"
            text = words.apply_chat_template(
                [{"role": "user", "content": asked}], tokenize=False
            )
            ids = words.encode(
                text.replace(words.bos_token, ""), add_special_tokens=False
            )
            with torch.no_grad():
                odds.append(
                    model(input_ids=torch.tensor([ids]))
                    .logits[0, -1, pair]
                    .double()
                    .softmax(0)
                    .numpy()
                )
        expected.append(log_odds((odds[0][0] + odds[1][1]) / 2))
    model = pairwise(folder)
    assert model.form.name == "letters"
    found = model.prefer(PROMPTS, FIRST, SECOND)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(model.prefer(PROMPTS, SECOND, FIRST), -found, atol=1e-6)


def test_a_text_is_a_comparison_in_one_order(model):
    """The margins are the averages of logits that each order has by itself, in whatever
    company it is asked.
    """
    every = np.arange(3)
    there, back = (
        model.forward_alone(model.prepare(PROMPTS, *pair), every)
        for pair in ((FIRST, SECOND), (SECOND, FIRST))
    )
    np.testing.assert_allclose(
        model.prefer(PROMPTS, FIRST, SECOND), model.average(there, back), atol=1e-5
    )
    assert np.abs(there + back).max() > 1e-4  # a random model does mind the place
    both = model.prepare(PROMPTS * 2, FIRST + SECOND, SECOND + FIRST)
    assert len({tuple(ids) for ids in both.ids}) == 6
    np.testing.assert_allclose(
        model.forward_alone(both, np.arange(6)), np.r_[there, back], atol=1e-6
    )
    exact = pairwise(model.checkpoint.folder, dtype="bfloat16").remake(dtype="float32")
    np.testing.assert_allclose(
        exact.forward_alone(exact.prepare(PROMPTS, FIRST, SECOND), every),
        there,
        atol=1e-6,
    )


def test_an_average_changes_its_sign_with_the_answers_and_misses_what_is_missing(model):
    there, back = np.array([3.0, -2.0, 700.0]), np.array([-1.0, 4.0, -900.0])
    expected = (there - back) / 2
    if model.form.name == "letters":
        p = (1 / (1 + np.exp(-there[:2])) + 1 / (1 + np.exp(back[:2]))) / 2
        # Of two ways to be wrong the less unlikely one is left.
        expected = np.r_[log_odds(p), 700 + np.log(2)]
    margins = model.average(there, back)
    np.testing.assert_allclose(margins, expected, rtol=1e-12)
    np.testing.assert_array_equal(model.average(back, there), -margins)
    assert np.isnan(model.average(there * np.nan, back)).all()


def test_what_is_no_pairwise_model(zoo):
    folder = zoo()
    with pytest.raises(DataError, match="is not a pairwise model"):
        pairwise(folder)
    with pytest.raises(
        DataError, match=r"form='pair-rm'; allowed.*did you mean 'pairrm'"
    ):
        pairwise(folder, form="pair-rm")
    with pytest.raises(DataError, match="truncate='left'"):
        pairwise(folder, truncate="left")


def test_fingerprint_and_provenance(zoo):
    folder = zoo(task="causal")
    model = pairwise(folder, name="mine")
    assert model.fingerprint != pairwise(folder, dtype="bfloat16").fingerprint
    assert json.loads(json.dumps(model.provenance()))["form"] == "letters"
    assert model.name == "mine"
    with pytest.raises(ValueError, match="2 prompts, 1 and 3 answers"):
        model.prefer(PROMPTS[:2], FIRST[:1], SECOND)
    with pytest.raises(
        DataError,
        match=r"comparison 0: the answer ' ' is no text",
    ):
        model.prepare(PROMPTS[:1], [" "], ["Rome."])


def test_messages_that_a_form_does_not_write_are_refused(model):
    tool = [{"role": "user", "content": "2 + 2?"}, {"role": "tool", "content": "4"}]
    with pytest.raises(DataError, match="role 'tool'"):
        model.prefer([tool], ["4."], ["5."])
    call = {"role": "assistant", "content": "", "tool_calls": []}
    with pytest.raises(DataError, match="no text"):
        model.prefer(["2 + 2?"], ["4."], [call])
