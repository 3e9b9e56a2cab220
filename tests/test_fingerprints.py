"""Fingerprints: whatever changes a score changes the name under which a store keeps
it.
"""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from tokenizers import Tokenizer, normalizers
from transformers import AutoModelForSequenceClassification

import rmlab
from rmlab import toy
from rmlab.scorers.checkpoints.checkpoint import find


def exchange(words, left, right):
    """The tokenizer with the ids of two tokens exchanged."""
    state = json.loads(words.backend_tokenizer.to_str())
    ids = state["model"]["vocab"]
    ids[left], ids[right] = ids[right], ids[left]
    words._tokenizer = Tokenizer.from_str(json.dumps(state))


# Few texts show the second exchange, and none of ten the third: two pieces of rare
# texts.
CHANGES = {
    "ids": lambda words: exchange(words, "e", "a"),
    "ids of capital letters": lambda words: exchange(words, "Q", "Z"),
    "ids of control characters": lambda words: exchange(words, "ā", "Ă"),
    "a special token": lambda words: words.add_special_tokens(
        {"additional_special_tokens": ["<tool_call>"]}
    ),
    "a normaliser": lambda words: setattr(
        words.backend_tokenizer, "normalizer", normalizers.Lowercase()
    ),
    "a template": lambda words: setattr(
        words, "chat_template", f"{words.chat_template} "
    ),
}


MAKERS = {
    "classifier": rmlab.classifier,
    "implicit": rmlab.implicit_reward,
    "pairwise": rmlab.pairwise,
    "judge": partial(rmlab.judge, name="j", device="cpu"),
    "remote": lambda folder: rmlab.remote(
        "http://127.0.0.1:8000",
        kind="vllm",
        model="m",
        tokenizer=folder,
        version="1",
        examine=False,
    ),
}
TASKS = {"classifier": "classifier", "remote": "classifier"}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", MAKERS)
def test_another_tokenizer_is_another_fingerprint(zoo, tmp_path, change, kind):
    words, task, make = toy.tokenizer(), TASKS.get(kind, "causal"), MAKERS[kind]
    before = zoo(task=task)
    CHANGES[change](words)
    after = toy.save_model(
        tmp_path / "b", task=task, words=words, vocab_size=len(toy.tokenizer())
    )
    assert find(after).content == find(before).content
    assert make(after).fingerprint != make(before).fingerprint
    copy = Path(shutil.copytree(after, tmp_path / "copy"))
    assert make(copy).fingerprint == make(after).fingerprint


def test_a_reference_is_known_by_the_policy_s_tokenizer(zoo, tmp_path):
    """The policy's tokenizer and template make the tokens of both."""
    words, reference = toy.tokenizer(), zoo(task="causal", seed=1)
    CHANGES["a template"](words)
    other = toy.save_model(tmp_path / "m", task="causal", words=words)
    first = rmlab.implicit_reward(zoo(task="causal"), reference).reference
    second = rmlab.implicit_reward(other, reference).reference
    assert first.checkpoint.content == second.checkpoint.content
    assert first.fingerprint != second.fingerprint


def test_a_tokenizer_in_memory_is_known_by_what_it_holds(zoo):
    model = AutoModelForSequenceClassification.from_pretrained(zoo())

    def name(words):
        return rmlab.classifier(model, words, fingerprint="step-1").fingerprint

    words = toy.tokenizer()
    before = name(words)
    assert name(toy.tokenizer()) == before
    exchange(words, "Q", "Z")
    assert name(words) != before


@pytest.mark.parametrize("kind", MAKERS)
def test_another_version_of_the_code_is_another_fingerprint(zoo, monkeypatch, kind):
    folder, make = zoo(task=TASKS.get(kind, "causal")), MAKERS[kind]
    before = make(folder).fingerprint
    assert make(folder).fingerprint == before
    for module in ("scorers.local", "judges.local_model", "servers.scorer"):
        monkeypatch.setattr(f"rmlab.{module}.SCORING_VERSION", -1)
    assert make(folder).fingerprint != before
