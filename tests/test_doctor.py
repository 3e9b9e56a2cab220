"""Each check of the doctor made to pass and to fail, on tiny models."""

import hashlib

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import toy_responses
from safetensors.torch import load_file, save_file
from test_template import encoder_words

from rmlab import toy
from rmlab.checks import STATUS, doctor, findings
from rmlab.scorers.classifier import classifier
from rmlab.scorers.implicit import implicit_reward
from rmlab.tables import DataError

TEXT_CHECKS = ["template", "truncated", "bos", "read", "pad"]
CHECKS = ["head", "packs", "tokenizer", *TEXT_CHECKS, "nan", "alone", "dtype", "saturation"]


@pytest.fixture(scope="module")
def responses():
    return toy_responses(prompts=8, slots=3)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    torch.set_num_threads(1)
    return toy.save_model(tmp_path_factory.mktemp("models") / "healthy")


def model(folder, *, template="llama3", pad=None, nan=False, architecture="llama", **config):
    """A tiny reward model with another tokenizer, or with weights that are not numbers."""
    words = encoder_words(chat_template=template) if architecture == "bert" else toy.tokenizer(chat_template=template)
    if pad:
        words.pad_token = pad
    toy.save_model(folder, architecture, words=words, **config)
    if nan:
        path = folder / "model.safetensors"
        weights = load_file(path) | {"model.norm.weight": torch.full((32,), float("nan"))}
        save_file(weights, path, metadata={"format": "pt"})
    return folder


def found(report, check):
    return report.set_index("check").loc[check]


def test_a_healthy_model_passes_everything(healthy, responses):
    report = doctor(healthy, responses)
    assert report.columns.tolist() == ["check", "status", "found", "remedy"]
    assert report["check"].tolist() == CHECKS
    assert report["status"].dtype == STATUS
    assert report["status"].max() == "pass", report[report["status"] > "pass"].to_dict("records")
    assert (report["remedy"] == "").all()
    assert "score.weight" in found(report, "head")["found"]
    assert "<|eot_id|>" in found(report, "read")["found"]
    pd.testing.assert_frame_equal(report, doctor(str(healthy), responses))
    pd.testing.assert_frame_equal(report, doctor(classifier(healthy), responses))


def test_no_file_is_read_to_be_hashed(healthy, responses, monkeypatch):
    """The doctor is there before a long run; the hash of the weights takes minutes where they are large."""

    def hashed(file, kind):
        raise AssertionError(f"{file.name} was hashed")

    monkeypatch.setattr(hashlib, "file_digest", hashed)
    assert doctor(healthy, responses)["status"].max() == "pass"


OPEN_END = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
TWO_ENDS = toy.models.CHAT_TEMPLATES["llama3"] + "{{ eos_token }}"
# The model, the doctor's options, the check, its status, words of what is found and of the remedy, and whether it ends.
FAULTS = {
    "no head": ({"task": "causal"}, {}, "head", "fail", "score.weight", "trained reward model", True),
    "no template": ({"template": None}, {}, "template", "fail", "", "'zephyr'", True),
    "a template": ({"template": None}, {"template": "zephyr"}, "template", "pass", "'zephyr', as you", "", False),
    "no end": ({"template": OPEN_END}, {}, "read", "warn", "different tokens", "eos=True", False),
    "an end": ({"template": OPEN_END}, {"eos": True}, "read", "pass", "", "", False),
    "two ends": ({"template": TWO_ENDS}, {}, "read", "fail", "2 times", "eos=True", False),
    "one of two ends": ({"template": TWO_ENDS}, {"eos": True}, "read", "pass", "", "", False),
    "pad is end": ({"pad": "<|eot_id|>"}, {}, "pad", "warn", "24 of 24 texts", "pad token", False),
    "too long": ({"max_position_embeddings": 60}, {}, "truncated", "fail", "60 tokens", "truncate='left'", False),
    "cut": (
        {"max_position_embeddings": 60},
        {"max_length": 60, "truncate": "left"},
        *("truncated", "warn", "cut at the left", "", False),
    ),
    "all too long": ({"max_position_embeddings": 4}, {}, "truncated", "fail", "", "", True),
    "nan": ({"nan": True}, {}, "nan", "fail", "24 of 24", "float32", True),
    "an encoder": ({"architecture": "bert", "template": "chatml"}, {}, "read", "pass", "the first token", "", False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_what_to_do(tmp_path, responses, fault):
    config, options, check, status, detail, remedy, ends = FAULTS[fault]
    report = doctor(model(tmp_path / "m", **config), responses, **options)
    row = found(report, check)
    assert row["status"] == status
    assert detail in row["found"]
    assert remedy in row["remedy"]
    assert (report["check"].iloc[-1] == check) == ends
    if not ends:
        assert found(report, "alone")["status"] == "pass", "the texts that fit are examined all the same"


@pytest.mark.parametrize("written", ["", "{{ cls_token }}"])
def test_an_encoder_s_first_token_is_checked_whether_or_not_its_template_writes_it(tmp_path, responses, written):
    words = encoder_words(chat_template=written + toy.models.CHAT_TEMPLATES["chatml"])
    folder = toy.save_model(tmp_path / "m", "bert", words=words)
    row = found(doctor(folder, responses), "bos")
    assert row["status"] == "pass"
    assert row["found"].startswith(f"'[CLS]' ({words.cls_token_id}) at the beginning: once in")
    for ids in ([50, 60], [words.cls_token_id] * 2):
        assert findings.check_bos(words, [np.array(ids, np.int32)]).status == "fail"


def test_bfloat16_is_compared_with_float32(healthy, responses):
    report = doctor(healthy, responses, dtype="bfloat16")
    row = found(report, "dtype")
    assert row["status"] == "pass"
    assert row["found"].startswith("bfloat16 is at most 0.")
    assert "0 of 36 comparisons flip" in row["found"]
    assert found(doctor(healthy, responses), "dtype")["found"].startswith("float32")


def sample(*scores, prompts=2):
    n = len(scores) // prompts
    rows = pd.DataFrame(
        {"benchmark": "b", "domain": "d", "id": np.repeat(np.arange(prompts), n).astype(str)}
        | {"label": (["chosen"] * (n // 2) + ["rejected"] * (n // 2)) * prompts, "slot": [0, 1, 0, 1] * prompts}
    )
    return findings.Sample(rows, np.array(scores, float), np.array(scores, float))


def test_flips_ties_and_distances():
    same = sample(4, 3, 2, 1, 8, 7, 6, 5)
    assert same.flips(same.alone, same.alone)[:2] == (0, 8)
    assert same.flips(same.alone, -same.alone)[:2] == (8, 8)
    assert findings.check_company(same, 1e-4).status == "pass"
    assert findings.check_company(same._replace(together=same.alone + 0.001), 1e-4).status == "warn"
    assert findings.check_company(same._replace(together=-same.alone), 1e-4).status == "fail"
    assert findings.check_precision(same, same.alone, "bfloat16").status == "pass"
    one_flip = same.alone + np.array([0, -1.5, 0, 0, 0, 0, 0, 0])
    assert findings.check_precision(same, one_flip, "bfloat16").status == "warn"
    assert "1 of 8" in findings.check_precision(same, one_flip, "bfloat16").detail
    assert findings.check_precision(same, -same.alone, "bfloat16").status == "fail"
    keys = list("abcdefgh")
    assert findings.check_saturation(same, keys).status == "pass"
    assert findings.check_saturation(sample(1, 1, 1, 2, 3, 4, 5, 6), keys).status == "warn"
    assert "2 tied comparisons" in findings.check_saturation(sample(1, 1, 1, 2, 3, 4, 5, 6), keys).detail
    assert findings.check_saturation(sample(*[1] * 8), keys).status == "fail"
    assert findings.check_saturation(sample(*[1] * 8), ["one"] * 8).status == "pass"


def test_a_forward_pass_that_mixes_texts_up(healthy, responses):
    scorer = classifier(healthy)
    honest = scorer.forward_alone
    scorer.forward_alone = lambda prepared, wanted: honest(prepared, wanted)[::-1]
    assert found(doctor(scorer, responses), "alone")["status"] == "fail"


def test_implicit_rewards(tmp_path, responses):
    policy, reference = (toy.save_model(tmp_path / name, task="causal", seed=i) for i, name in enumerate("ab"))
    report = doctor(implicit_reward(policy, reference), responses)
    assert report["status"].max() == "pass", report[report["status"] > "pass"].to_dict("records")
    assert "policy and reference" in found(report, "head")["found"]
    half = doctor(implicit_reward(policy, dtype="bfloat16"), responses)
    assert found(half, "dtype")["found"].startswith("bfloat16")


def test_what_cannot_be_examined(tmp_path, responses, healthy):
    with pytest.raises(TypeError, match="len"):
        doctor(len, responses)
    with pytest.raises(DataError, match=r"config\.json"):
        doctor(tmp_path, responses)
    with pytest.raises(DataError, match="head='nonsense'"):
        doctor(healthy, responses, head="nonsense")
    with pytest.raises(DataError, match="dtype"):
        doctor(classifier(healthy), responses, dtype="bfloat16")
    with pytest.raises(ValueError, match="sample=0"):
        doctor(healthy, responses, sample=0)


def test_command_line(tmp_path, healthy, main):
    code, out, _ = main("doctor", healthy)
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (0, [["pass", check] for check in CHECKS])
    code, out, _ = main("doctor", toy.save_model(tmp_path / "m", task="causal"), "mini")
    assert code == 1
    first, second = out.splitlines()
    assert first.startswith("fail  head")
    assert second.strip().startswith("-> ")
