"""Process reward models: the published code on each prefix alone."""

import numpy as np
import pandas as pd
import pytest
import torch
from test_heads import HIDDEN, named, publish
from tokenizers import AddedToken
from torch import nn

import rmlab
from rmlab import toy
from rmlab.scorers.classifier import Classifier, classifier
from rmlab.tables import DataError

PROMPTS = ["What is 7 + 8?", "What is 7 + 8?", "Is 3 prime?"]
STEPS = [
    ["Seven is five and two.", "Two and eight are ten.", "So it is 15."],
    ["Seven is five and two.", "So it is 14."],
    ["Yes."],
]
KINDS = {
    "steps": "Qwen2ForProcessRewardModel",
    "step_values": "Qwen2ForPrmModel",
    "step_labels": "Qwen2ForTokenClassification",
    "step_verdicts": "MistralForCausalLM",
}


def make_tokenizer():
    words = toy.tokenizer(chat_template="chatml")
    # Of the published tokenizers these are one token each.
    marks = [AddedToken("<extra_0>", special=True), "ки", "+", "-"]
    words.add_tokens(marks)
    return words


def save(folder, kind, **options):
    """A tiny model in the layout of a kind, its tokenizer, and its head."""
    torch.manual_seed(0)
    words = make_tokenizer()
    if kind == "steps":
        head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
        weights = named(head, "score.")
    elif kind == "step_values":
        head = nn.Linear(HIDDEN, 1)
        weights = named(head, "v_head.summary.")
    elif kind == "step_labels":
        head = nn.Linear(HIDDEN, 2)
        weights = named(head, "score.")
    else:
        head = nn.Linear(HIDDEN, len(words), bias=False)
        weights = named(head, "lm_head.")
    publish(
        folder,
        weights,
        architecture="mistral" if kind == "step_verdicts" else "qwen2",
        settings={"architectures": [KINDS[kind]]},
        words=words,
    )
    return words, head


def prefix_ids(words, kind, prompt, steps):
    """The tokens of a prompt and some steps, as the model's published code has them."""
    if kind == "steps":
        answer = "<extra_0>".join(steps) + "<extra_0>"
        chat = [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": answer},
        ]
        text = words.apply_chat_template(chat, tokenize=False)
        return words.encode(words.bos_token + text, add_special_tokens=False)
    if kind == "step_verdicts":
        answer = " ки\n".join(steps) + " ки"
        return words.encode(f"{prompt} {answer}")
    encode = words.backend_tokenizer.encode
    opening = prompt + "\n" if kind == "step_values" else prompt
    ids = words.encode(words.bos_token + opening, add_special_tokens=False)
    for step in steps:
        ids += encode(step, add_special_tokens=False).ids
        ids += encode("\n", add_special_tokens=False).ids
    return ids


def score_alone(folder, words, head, kind):
    """The score behind the last step of every prefix, each forwarded alone."""
    from transformers import AutoModel

    config = {"attn_implementation": "eager"}
    backbone = AutoModel.from_pretrained(folder.parent / "backbone", **config).eval()
    rewards = []
    for prompt, steps in zip(PROMPTS, STEPS, strict=True):
        of_answer = []
        for n in range(1, len(steps) + 1):
            ids = prefix_ids(words, kind, prompt, steps[:n])
            place = -1
            if kind == "steps":
                mark = words.convert_tokens_to_ids("<extra_0>")
                place = len(ids) - 1 - ids[::-1].index(mark)
            with torch.no_grad():
                states = backbone(torch.tensor([ids])).last_hidden_state[0, place]
                outputs = head(states)
            if kind == "step_values":
                reward = outputs.sigmoid()[0]
            elif kind == "step_verdicts":
                good, bad = words.convert_tokens_to_ids(["+", "-"])
                reward = outputs[[good, bad]].softmax(0)[0]
            else:
                reward = outputs.softmax(0)[1]
            of_answer.append(float(reward))
        rewards.append(of_answer)
    return rewards


RESPONSES = pd.DataFrame(
    {
        "benchmark": "b",
        "domain": "math",
        "id": ["0", "0", "1"],
        "label": ["chosen", "rejected", "chosen"],
        "slot": 0,
        "prompt": PROMPTS,
        "response": STEPS,
    }
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_has_the_score_of_its_prefix_alone(tmp_path, kind):
    words, head = save(tmp_path / "m", kind)
    architecture = "mistral" if kind == "step_verdicts" else "qwen2"
    toy.save_model(
        tmp_path / "backbone", architecture, task="backbone", seed=3, words=words
    )
    expected = score_alone(tmp_path / "m", words, head, kind)
    assert np.std(np.concatenate(expected)) > 0.01

    name = kind if kind in ("step_labels", "step_verdicts") else None
    scorer = classifier(tmp_path / "m", head=name)
    assert scorer.head.name == kind
    table = rmlab.score(RESPONSES, scorer)
    for steps, alone in zip(table["steps"], expected, strict=True):
        np.testing.assert_allclose(steps, alone, atol=1e-5)
    np.testing.assert_allclose(table["score"], [row[-1] for row in expected], atol=1e-5)

    gap = "\n" if kind in ("step_values", "step_labels") else "\n\n"
    texts = RESPONSES.assign(response=[gap.join(steps) for steps in STEPS])
    np.testing.assert_array_equal(rmlab.score(texts, scorer)["score"], table["score"])
    # In packs as alone.
    statuses = {name: finding.status for name, finding in scorer.checks(RESPONSES)}
    assert "fail" not in statuses.values()
    assert {"alone", "read"} <= statuses.keys()


def test_rules_change_without_the_model(tmp_path):
    save(tmp_path / "m", "steps")
    last = rmlab.score(RESPONSES, classifier(tmp_path / "m"))
    for rule in ("min", "mean", "product"):
        scorer = classifier(tmp_path / "m", combine=rule)
        table = rmlab.score(RESPONSES, scorer)
        changed = rmlab.metrics.combine_steps(last["steps"], rule)
        np.testing.assert_allclose(table["score"], changed, atol=1e-6)
        assert table.attrs["provenance"]["m"]["combine"] == rule
    with pytest.raises(ValueError, match="combine"):
        classifier(tmp_path / "m", combine="max")
    outcome = toy.save_model(tmp_path / "outcome")
    with pytest.raises(DataError, match="combine"):
        classifier(outcome, combine="min")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_steps_survive_store_and_file(tmp_path, suffix, monkeypatch):
    save(tmp_path / "m", "steps")
    scorers = {"m": classifier(tmp_path / "m"), "longest": "longest"}
    table = rmlab.score(RESPONSES, scorers, store=tmp_path / "s")
    monkeypatch.setattr(Classifier, "load", None)
    scorers = {"m": classifier(tmp_path / "m"), "longest": "longest"}
    again = rmlab.score(RESPONSES, scorers, store=tmp_path / "s")
    pd.testing.assert_frame_equal(table, again)

    path = tmp_path / f"scores.{suffix}"
    rmlab.write_scores(table, path)
    steps = rmlab.read_scores(path)["steps"]
    assert [list(row) for row in steps[:3]] == table["steps"].tolist()[:3]
    assert steps[3:].isna().all()


def test_a_mark_inside_an_answer_is_refused(tmp_path):
    save(tmp_path / "m", "steps")
    scorer = classifier(tmp_path / "m")
    with pytest.raises(DataError, match="2 marks"):
        scorer(["Why?"], [["So <extra_0> it is."]])
    with pytest.raises(DataError, match="steps"):
        classifier(toy.save_model(tmp_path / "outcome"))(["Why?"], [["One.", "Two."]])
