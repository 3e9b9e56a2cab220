"""Implicit rewards against full logits of each text alone."""

import json

import numpy as np
import pytest
import torch

from rmlab import toy
from rmlab.scorers.implicit import implicit_reward
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?"] * 3 + ["Add two numbers."] * 2
RESPONSES = [
    "The capital of France is Paris, a city on the river Seine.",
    "The capital of France is Paris, a city on the river Rhone, which is wrong.",
    "I am sorry, no.",
    "```python\ndef add(a, b):\n    return a + b\n```",
    "7 + 8 = 15",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a policy and a reference of the same architecture."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    return tuple(
        str(toy.save_model(root / name, task="causal", seed=i)) for i, name in enumerate(["policy", "reference"])
    )


def log_probs(folder, prepared):
    """Log-probabilities of each response's tokens: full logits of each text alone."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    found = []
    for ids, start in zip(prepared.encoded.ids, prepared.encoded.response_start, strict=True):
        tokens = torch.tensor(ids.astype(np.int64))
        with torch.no_grad():
            logits = model(input_ids=tokens[None]).logits[0].double()
        picked = logits.log_softmax(-1)[:-1].gather(1, tokens[1:, None])[:, 0]
        found.append(picked[start - 1 :].numpy())
    return found


WAYS = {"sum": np.sum, "mean": np.mean, "norm": lambda values: -np.linalg.norm(values)}


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("chunk", [None, 7])
def test_without_a_reference(models, mode, chunk):
    reward = implicit_reward(models[0], mode=mode, chunk=chunk)
    prepared = reward.prepare(PROMPTS, RESPONSES)
    expected = [WAYS[mode](values) for values in log_probs(models[0], prepared)]
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, rtol=1e-5)


@pytest.mark.parametrize("together", [True, False])
def test_policy_minus_reference(models, together):
    reward = implicit_reward(*models, together=together)
    prepared = reward.prepare(PROMPTS, RESPONSES)
    policy, reference = (log_probs(folder, prepared) for folder in models)
    expected = np.array([a.sum() - b.sum() for a, b in zip(policy, reference, strict=True)])
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, atol=1e-4)
    np.testing.assert_allclose(reward.alone(prepared, np.arange(5)), expected, atol=1e-4)
    assert len(reward._loaded) == (2 if together else 0), "one after the other leaves nothing behind"


def test_blocks_hold_each_wanted_text_once(models):
    reward = implicit_reward(*models, budget=64, together=True)
    prompts = [f"Question {i // 4}?" for i in range(80)]
    prepared = reward.prepare(prompts, [f"answer {i} " * 6 for i in range(80)])
    wanted = np.arange(1, 80, 2)
    streamed = list(reward.stream(prepared, wanted))
    assert len(streamed) > 2
    assert sorted(np.concatenate([texts for texts, _ in streamed])) == wanted.tolist()
    whole = implicit_reward(*models)(prompts, prepared.responses)
    for texts, values in streamed:
        np.testing.assert_allclose(values, whole[texts], atol=1e-4)


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("gemma2", {"final_logit_softcapping": 3.0}),
        ("gpt_neox", {}),
        ("qwen3", {"tie_word_embeddings": True}),
        ("gpt2", {}),
    ],
)
def test_logits_that_an_architecture_changes(tmp_path, architecture, settings):
    folder = toy.save_model(tmp_path / "m", architecture, task="causal", **settings)
    reward = implicit_reward(folder, mode="sum")
    expected = [values.sum() for values in log_probs(folder, reward.prepare(PROMPTS, RESPONSES))]
    np.testing.assert_allclose(reward(PROMPTS, RESPONSES), expected, rtol=1e-5)


def test_an_unknown_change_of_the_logits_is_refused(models, monkeypatch):
    from transformers import LlamaForCausalLM

    whole = LlamaForCausalLM.forward

    def changed(self, *args, **options):
        out = whole(self, *args, **options)
        out.logits = out.logits**2
        return out

    monkeypatch.setattr(LlamaForCausalLM, "forward", changed)
    with pytest.raises(DataError, match="changes logits behind the output layer"):
        implicit_reward(models[0])(PROMPTS, RESPONSES)


def test_half_precision_sums_are_not_rounded(models):
    """A sum in bfloat16 steps by 16 near -4000; this one is as fine as its float32 parts."""
    reward = implicit_reward(models[0], mode="sum", dtype="bfloat16")
    found = reward(PROMPTS, [text * 30 for text in RESPONSES])
    assert found.min() < -2000
    assert (np.abs(found - np.round(found)) > 1e-3).any()
    exact = implicit_reward(models[0], mode="sum")(PROMPTS, [text * 30 for text in RESPONSES])
    assert np.abs(found - exact).max() < 0.01 * np.abs(exact).max()


def test_full_logits_never_exist(tmp_path):
    """The largest tensor that any operation makes: 32 rows of a 20,000-token vocabulary, for 100 response tokens."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        values = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor):
                    self.values = max(self.values, tensor.numel())
            return out

    folder = toy.save_model(tmp_path / "m", task="causal", vocab_size=20_000)
    reward = implicit_reward(folder, chunk=32)
    reward._model(0)
    with Largest() as largest:
        reward(PROMPTS, RESPONSES)
    assert largest.values <= 32 * 20_000


def test_a_reference_with_other_tokens_is_refused(models, tmp_path):
    words = toy.tokenizer(["quite other words zebra quagga okapi"], vocab_size=400)
    other = toy.save_model(tmp_path / "other", task="causal", words=words)
    with pytest.raises(DataError, match="do not share a vocabulary"):
        implicit_reward(models[0], other)(PROMPTS, RESPONSES)


def test_options_that_contradict_each_other(models):
    with pytest.raises(DataError, match=r"mode='avg'; allowed: 'sum', 'mean', 'norm'"):
        implicit_reward(models[0], mode="avg")
    with pytest.raises(DataError, match=r"mode='norm' with a reference"):
        implicit_reward(*models, mode="norm")


def test_a_classifier_is_no_policy(tmp_path):
    folder = toy.save_model(tmp_path / "m")
    with pytest.raises(DataError, match=r"lm_head\.weight.*would be random"):
        implicit_reward(folder)(PROMPTS, RESPONSES)


def test_fingerprint_and_provenance(models):
    both, alone, mean = implicit_reward(*models), implicit_reward(models[0], mode="sum"), implicit_reward(models[0])
    assert len({both.fingerprint, alone.fingerprint, mean.fingerprint}) == 3
    assert implicit_reward(*models, together=False, chunk=3).fingerprint == both.fingerprint
    both(PROMPTS, RESPONSES)
    about = json.loads(json.dumps(both.provenance()))
    assert about["reference"] == models[1]
    assert about["truncated"] == 0
    assert about["template"] == "tokenizer"
    assert both.name == "policy"
