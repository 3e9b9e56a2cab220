"""RewardBench's conventions, asked for by name: what its runners hand to a model, and
what the model then says.
"""

import numpy as np
import pytest
import torch
from fakes import toy_responses
from test_heads import named, publish, same

from rmlab import toy
from rmlab.checks import doctor
from rmlab.scorers import classifier, implicit_reward
from rmlab.tables import DataError

PROMPTS = [
    "What is the capital of France?",
    [{"role": "user", "content": "Two and two?"}],
]
RESPONSES = ["The capital of France is Paris, a city on the river Seine.", "Four."]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def rendered(tokens):
    """Prompt and whole conversation as text, as RewardBench renders them."""
    found = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        chat = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        )
        whole = [*chat, {"role": "assistant", "content": response}]
        found.append(
            [
                tokens.apply_chat_template(turns, tokenize=False)
                for turns in (chat, whole)
            ]
        )
    return found


def backbone_of(folder, architecture="llama", words=None):
    """The backbone below the published heads beside `folder`."""
    from transformers import AutoModel

    bare = toy.save_model(
        folder.parent / "bare", architecture, task="backbone", seed=3, words=words
    )
    return AutoModel.from_pretrained(bare).eval()


def states(folder, rows, *model):
    """Last hidden states of each row of token ids, alone."""
    backbone = backbone_of(folder, *model)
    with torch.no_grad():
        return torch.stack(
            [backbone(torch.tensor([ids])).last_hidden_state[0, -1] for ids in rows]
        )


def published_head(model):
    """A head that has two BOS tokens under RewardBench: its weights, what it
    computes, and its settings.
    """
    if model == "GRM":
        head = torch.nn.Sequential(
            torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
        )
    else:
        head = torch.nn.Linear(32, 1, bias=False)
    prefixes = {"GRM": "v_head.summary.", "Starling": "v_head."}
    return named(head, prefixes[model]), head


@pytest.mark.parametrize("model", ["GRM", "Starling"])
def test_a_doubled_beginning_token_is_repeated_where_its_runner_doubles_it(
    tmp_path, model
):
    weights, head = published_head(model)
    folder = publish(tmp_path / "m", weights)
    scorer = classifier(folder, convention="reward-bench")
    words = scorer.tokenizer
    rows = [
        [words(text, add_special_tokens=added).input_ids for _, text in rendered(words)]
        for added in (True, False)
    ]
    with torch.no_grad():
        twice, once = (head(states(folder, ids)) for ids in rows)
    same(scorer(PROMPTS, RESPONSES), twice)
    same(classifier(folder)(PROMPTS, RESPONSES), once)
    assert (twice - once).abs().max() > 0.01 * once.std()
    assert scorer.provenance()["convention"] == "reward-bench-twice"
    assert scorer.fingerprint != classifier(folder).fingerprint


def test_the_default_pipeline_masks_the_second_beginning_token(tmp_path):
    folder = toy.save_model(tmp_path / "m")
    same_as = classifier(folder)(PROMPTS, RESPONSES)
    found = classifier(folder, convention="reward-bench")
    np.testing.assert_allclose(found(PROMPTS, RESPONSES), same_as, atol=1e-6)
    assert found.provenance()["convention"] == "reward-bench"


@pytest.mark.parametrize("mode", ["sum", "mean", "norm"])
def test_implicit_rewards_as_its_runner_counts_them(tmp_path, mode):
    """One beginning and one EOS token more, and the header counts as answer."""
    from transformers import AutoModelForCausalLM

    folder = toy.save_model(tmp_path / "m", task="causal")
    scorer = implicit_reward(folder, mode=mode, convention="reward-bench")
    words, model = scorer.tokenizer, AutoModelForCausalLM.from_pretrained(folder).eval()
    count = {
        "sum": torch.sum,
        "mean": torch.mean,
        "norm": lambda values: -torch.linalg.norm(values),
    }[mode]
    expected = []
    for prompt, whole in rendered(words):
        start = 1 + len(words(prompt, add_special_tokens=False)["input_ids"])
        body = words(prompt + whole.replace(prompt, ""), add_special_tokens=False)[
            "input_ids"
        ]
        ids = torch.tensor([words.bos_token_id, *body, words.eos_token_id])
        with torch.no_grad():
            logits = model(ids[None]).logits[0].double().log_softmax(-1)
        expected.append(
            count(logits[start - 1 : -1].gather(1, ids[start:, None])[:, 0])
        )
    same(scorer(PROMPTS, RESPONSES), torch.stack(expected))
    plain = implicit_reward(folder, mode=mode)
    assert np.abs(plain(PROMPTS, RESPONSES) - scorer(PROMPTS, RESPONSES)).max() > 0.1
    assert scorer.provenance()["convention"] == "reward-bench-dpo"
    assert plain.provenance()["convention"] is None


@pytest.mark.parametrize("model", ["Eurus", "InternLM2"])
def test_a_value_head_as_its_runner_asks_it(tmp_path, model):
    """Eurus-RM has two BOS tokens; InternLM2's own code adds the reward token and
    no special ones.
    """
    layer = torch.nn.Linear(32, 1, bias=False)
    prefix, settings, convention, ending = {
        "Eurus": (
            "regression_head.",
            {"architectures": ["EurusRewardModel"]},
            "reward-bench-twice",
            [],
        ),
        "InternLM2": (
            "v_head.",
            {"architectures": ["InternLM2ForRewardModel"], "reward_token_id": 5},
            None,
            [5],
        ),
    }[model]
    folder = publish(tmp_path / "m", named(layer, prefix), settings=settings)
    scorer = classifier(folder, convention="reward-bench")
    found, words = scorer(PROMPTS, RESPONSES), scorer.tokenizer
    rows = [
        words(whole, add_special_tokens=model == "Eurus").input_ids
        for _, whole in rendered(words)
    ]
    assert {ids.count(words.bos_token_id) for ids in rows} == {
        2 if model == "Eurus" else 1
    }
    with torch.no_grad():
        same(found, layer(states(folder, [[*ids, *ending] for ids in rows])))
    assert scorer.provenance()["convention"] == convention
    plain = classifier(folder)
    assert (plain.fingerprint == scorer.fingerprint) == (convention is None)
    plain(PROMPTS, RESPONSES)
    assert plain.provenance()["convention"] is None


def test_conventions_have_names(tmp_path):
    folder = toy.save_model(tmp_path / "m", task="causal")
    scoring = toy.save_model(tmp_path / "c")
    for make, model in (
        (classifier, scoring),
        (implicit_reward, folder),
    ):
        with pytest.raises(DataError, match="convention='reward-bench-2'"):
            make(model, convention="reward-bench-2")
    with pytest.raises(DataError, match="eos=True with convention"):
        implicit_reward(folder, convention="reward-bench", eos=True)


def test_the_doctor_does_not_mistake_a_convention_for_a_fault(tmp_path):
    folder = toy.save_model(tmp_path / "m", task="causal")
    frame = toy_responses(prompts=4, slots=1)
    report = doctor(
        implicit_reward(folder, convention="reward-bench"), frame
    ).set_index("check")
    assert report.loc[["bos", "read"], "status"].tolist() == ["warn", "warn"]
    assert "as convention='reward-bench' asks" in report.loc["bos", "remedy"]
    assert (
        doctor(implicit_reward(folder), frame).set_index("check").loc["bos", "status"]
        == "pass"
    )
