"""Implicit rewards against full logits of each text alone."""

import collections
import json

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from as_alone import EAGER
from fakes import responses

from rmlab import toy
from rmlab.scorers.base import Text
from rmlab.scorers.implicit import LanguageModel, implicit_reward
from rmlab.scorers.models import loading, vocabulary
from rmlab.scoring import score
from rmlab.store import Store
from rmlab.tables import DataError
from rmlab.widgets import token_rewards

PROMPTS = ["What is the capital of France?"] * 3 + ["Add two numbers."] * 2
RESPONSES = [
    "The capital of France is Paris, a city on the river Seine.",
    "The capital of France is Paris, a city on the river Rhone, which is wrong.",
    "I am sorry, no.",
    "```python\ndef add(a, b):\n    return a + b\n```",
    "7 + 8 = 15",
]


@pytest.fixture(scope="module")
def models(zoo):
    """Folders of a policy and a reference of the same architecture."""
    return tuple(
        str(zoo(task="causal", name=name, seed=i))
        for i, name in enumerate(["policy", "reference"])
    )


def log_probs(folder, prepared):
    """Log-probabilities of each response's tokens: full logits of each text alone."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, **EAGER).eval()
    found = []
    for ids, start in zip(prepared.ids, prepared.response_start, strict=True):
        tokens = torch.tensor(ids.astype(np.int64))
        with torch.no_grad():
            logits = model(input_ids=tokens[None]).logits[0].double()
        picked = logits.log_softmax(-1)[:-1].gather(1, tokens[1:, None])[:, 0]
        found.append(picked[start - 1 :].numpy())
    return found


WAYS = {"sum": np.sum, "mean": np.mean, "norm": lambda values: -np.linalg.norm(values)}


@pytest.mark.parametrize("mode", WAYS)
def test_without_a_reference(models, mode):
    reward = implicit_reward(models[0], mode=mode)
    prepared = reward.prepare(PROMPTS, RESPONSES)
    expected = [WAYS[mode](values) for values in log_probs(models[0], prepared)]
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, rtol=1e-5)


@pytest.fixture(params=[True, False])
def together(request):
    """Whether both models stay on the device."""
    return request.param


def make_reward(models, together):
    reward = implicit_reward(*models)
    for _, model in reward.terms:
        model.stays = together
    return reward


def test_policy_minus_reference(models, together):
    reward = make_reward(models, together)
    prepared = reward.prepare(PROMPTS, RESPONSES)
    policy, reference = (log_probs(folder, prepared) for folder in models)
    expected = np.array(
        [a.sum() - b.sum() for a, b in zip(policy, reference, strict=True)]
    )
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, atol=1e-4)
    texts = [Text(*text) for text in zip(PROMPTS, zip(RESPONSES), strict=True)]
    np.testing.assert_allclose(reward.score_alone(texts), expected, atol=1e-4)
    assert [model.loaded for _, model in reward.terms] == [together] * 2, (
        "one after the other leaves nothing behind"
    )


@pytest.fixture
def work(monkeypatch):
    """What is done from here on: ("load", folder) and ("forward", folder), counted; the
    latter by texts.
    """
    done = collections.Counter()
    load, forward = loading.load, LanguageModel.forward

    def counted_load(checkpoint, *args, **options):
        done["load", checkpoint.folder.name] += 1
        return load(checkpoint, *args, **options)

    def forwarding(self, prepared, wanted):
        for texts, values in forward(self, prepared, wanted):
            done["forward", self.checkpoint.folder.name] += len(texts)
            yield texts, values

    monkeypatch.setattr(loading, "load", counted_load)
    monkeypatch.setattr(LanguageModel, "forward", forwarding)
    return done


def test_a_run_loads_each_model_once_and_a_rerun_none(
    models, work, tmp_path, monkeypatch, together
):
    frame = responses(20)
    reward = make_reward(models, together)
    stored = score(frame, reward, store=tmp_path)
    assert work == {
        (what, name): n
        for what, n in (("load", 1), ("forward", 120))
        for name in ("policy", "reference")
    }
    assert [model.loaded for _, model in reward.terms] == [together] * 2
    direct = implicit_reward(*models)(
        frame["prompt"].tolist(), frame["response"].tolist()
    )
    np.testing.assert_allclose(stored["score"], direct, atol=1e-4)
    work.clear()
    again = score(frame, implicit_reward(*models), store=tmp_path)
    assert not work
    pd.testing.assert_frame_equal(again, stored, check_exact=True)
    score(frame, implicit_reward(*models))
    assert set(work.values()) == {1, 120}, "the same without a store"


def test_a_store_shares_what_a_model_says_of_the_same_tokens(models, work, tmp_path):
    frame = responses(6)
    n = len(frame)
    other = toy.save_model(tmp_path / "other", task="causal", seed=2)
    store = tmp_path / "scores"
    first = score(frame, implicit_reward(*models), store=store)
    work.clear()
    score(frame, implicit_reward(other, models[1], template="tulu"), store=store)
    assert work["forward", "reference"] == n, "other tokens are scored anew"
    score(frame, implicit_reward(other, models[1]), store=store)
    assert work["forward", "reference"] == n
    assert work["forward", "other"] == 2 * n
    policy = score(frame, implicit_reward(models[0], mode="sum"), store=store)
    reference = score(frame, implicit_reward(models[1], mode="sum"), store=store)
    assert work["forward", "reference"] == n
    assert ("forward", "policy") not in work
    np.testing.assert_array_equal(policy["score"] - reference["score"], first["score"])
    score(frame, implicit_reward(models[0], mode="mean"), store=store)
    score(frame, implicit_reward(*models, dtype="bfloat16"), store=store)
    assert len(Store(store).fingerprints()) == 8


LOGITS = {
    "gemma2": {"final_logit_softcapping": 3.0},
    "qwen3": {"tie_word_embeddings": True},
    "gpt_neox": {},
    "gpt2": {},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.3},
    "nanochat": {},
}


@pytest.mark.parametrize("architecture", LOGITS)
def test_logits_that_an_architecture_changes(zoo, monkeypatch, architecture):
    if architecture not in transformers.CONFIG_MAPPING:
        version = transformers.__version__
        pytest.skip(f"transformers {version} does not know {architecture}")
    sizes = toy.models.ARCHITECTURES.get(
        architecture, toy.models.ARCHITECTURES["llama"]
    )
    monkeypatch.setitem(toy.models.ARCHITECTURES, architecture, sizes)
    folder = zoo(architecture, task="causal", **LOGITS[architecture])
    reward = implicit_reward(folder, mode="sum")
    expected = np.array(
        [
            values.sum()
            for values in log_probs(folder, reward.prepare(PROMPTS, RESPONSES))
        ]
    )
    np.testing.assert_allclose(
        reward(PROMPTS, RESPONSES), expected, atol=2e-5 * expected.std()
    )


def test_logits_that_a_class_changes_in_its_own_way(models, monkeypatch):
    from transformers import LlamaForCausalLM

    whole = LlamaForCausalLM.forward

    def changed(self, *args, **options):
        out = whole(self, *args, **options)
        out.logits = out.logits**2
        return out

    monkeypatch.setattr(LlamaForCausalLM, "forward", changed)
    reward = implicit_reward(models[0], mode="sum", dtype="float32")
    expected = [
        values.sum()
        for values in log_probs(models[0], reward.prepare(PROMPTS, RESPONSES))
    ]
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, rtol=1e-5)


def save_architecture(folder, monkeypatch, architecture, **settings):
    sizes = toy.models.ARCHITECTURES["llama"] | settings
    monkeypatch.setitem(toy.models.ARCHITECTURES, architecture, sizes)
    return toy.save_model(folder, architecture, task="causal")


def test_the_backbone_of_llama_4_is_found(tmp_path, monkeypatch):
    """Its class names another module than it has."""
    settings = {"num_local_experts": 2, "intermediate_size_mlp": 48, "head_dim": 8}
    folder = save_architecture(tmp_path, monkeypatch, "llama4_text", **settings)
    reward = implicit_reward(folder, mode="sum")
    prepared = reward.prepare(PROMPTS, RESPONSES)
    expected = [values.sum() for values in log_probs(folder, prepared)]
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, rtol=1e-5)


def test_full_logits_never_exist(zoo, monkeypatch):
    """The largest tensor that any operation makes: 32 rows of a 20,000-token
    vocabulary, for 100 response tokens.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        values = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor):
                    self.values = max(self.values, tensor.numel())
            return out

    monkeypatch.setattr(vocabulary, "_CHUNK_BYTES", {"cpu": 32 * 20_000 * 4})
    reward = implicit_reward(zoo(task="causal", vocab_size=20_000))
    _ = reward.backbone
    with Largest() as largest:
        reward(PROMPTS, RESPONSES)
    assert largest.values <= 32 * 20_000


def test_a_reference_with_other_tokens_is_refused(models, tmp_path):
    words = toy.tokenizer(["quite other words zebra quagga okapi"], vocab_size=400)
    other = toy.save_model(tmp_path / "other", task="causal", words=words)
    with pytest.raises(DataError, match=r"reference=.*token"):
        implicit_reward(models[0], other)(PROMPTS, RESPONSES)


def test_options_that_contradict_each_other(models):
    with pytest.raises(DataError, match=r"mode='avg'; allowed: 'sum', 'mean', 'norm'"):
        implicit_reward(models[0], mode="avg")
    with pytest.raises(DataError, match=r"mode='norm' with a reference"):
        implicit_reward(*models, mode="norm")


def test_fingerprint_and_provenance(models):
    both, alone, mean = (
        implicit_reward(*models),
        implicit_reward(models[0], mode="sum"),
        implicit_reward(models[0]),
    )
    turned = implicit_reward(*models[::-1])
    kinds = (both, alone, mean, turned)
    assert len({scorer.fingerprint for scorer in kinds}) == len(kinds)
    both(PROMPTS, RESPONSES)
    about = json.loads(json.dumps(both.provenance()))
    assert about["reference"] == models[1]
    assert about["truncated"] == 0
    assert about["template"] == "tokenizer"
    assert both.name == "policy"


@pytest.mark.parametrize("mode", WAYS)
def test_the_reward_after_each_token_is_that_of_the_answer_so_far(models, mode):
    reward = implicit_reward(models[0], mode=mode)
    prepared = reward.prepare(PROMPTS, RESPONSES)
    for text, each in enumerate(log_probs(models[0], prepared)):
        ids, found = reward.token_rewards(prepared, text)
        assert ids.tolist() == prepared.ids[text][-len(each) :].tolist()
        np.testing.assert_allclose(
            found, [WAYS[mode](each[:k]) for k in range(1, len(each) + 1)], atol=1e-4
        )


def test_token_rewards_of_a_policy_less_its_reference(models):
    reward = implicit_reward(*models)
    table = token_rewards(reward, PROMPTS[0], RESPONSES[0])
    assert table["reward"].iloc[-1] == pytest.approx(
        reward(PROMPTS[:1], RESPONSES[:1])[0], abs=1e-4
    )
    assert "".join(table["text"]).startswith(RESPONSES[0])
    assert set(table["method"]) == {"token"}


def test_texts_are_counted_as_cut_where_only_the_reference_is_new(models, tmp_path):
    frame = responses(4)
    frame.loc[::2, "response"] += " It goes on and on and on." * 5

    def cut(*models, store=None):
        scorer = implicit_reward(
            *models, mode="sum", max_length=60, truncate="left", name="m"
        )
        table = score(frame, scorer, store=store)
        return table.attrs["provenance"]["m"]["truncated"]

    assert cut(models[0], store=tmp_path) == 12
    assert cut(*models, store=tmp_path) == cut(*models) == 12
