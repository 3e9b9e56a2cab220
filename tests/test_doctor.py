"""Each check of the doctor made to pass and to fail, on tiny models."""

import hashlib

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import toy_responses
from safetensors.torch import load_file, save_file
from test_template import encoder_words
from typer.testing import CliRunner

from rmlab import cli, toy
from rmlab.checks import STATUS, doctor, findings, models
from rmlab.scorers.classifier import classifier
from rmlab.scorers.implicit import implicit_reward
from rmlab.tables import DataError

CHECKS = [
    "head",
    "memory",
    "packs",
    "tokenizer",
    "template",
    "truncated",
    "bos",
    "read",
    "pad",
    "nan",
    "alone",
    "dtype",
    "saturation",
]


@pytest.fixture(scope="module")
def responses():
    return toy_responses(prompts=8, slots=3)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    torch.set_num_threads(1)
    return toy.save_model(tmp_path_factory.mktemp("models") / "healthy")


def model(folder, *, template="llama3", pad=None, architecture="llama", **config):
    """A tiny reward model with another tokenizer."""
    words = toy.tokenizer(chat_template=template)
    if pad:
        words.pad_token = pad
    return toy.save_model(folder, architecture, words=words, **config)


def change(folder, **weights):
    """Exchange weights of a saved model."""
    path = folder / "model.safetensors"
    save_file(load_file(path) | weights, path, metadata={"format": "pt"})
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


def test_a_missing_head_fails_and_ends_the_examination(tmp_path, responses):
    report = doctor(toy.save_model(tmp_path / "m", task="causal"), responses)
    assert report["check"].tolist() == ["head"]
    assert report["status"].tolist() == ["fail"]
    assert "score.weight" in report["found"][0]
    assert "trained reward model" in report["remedy"][0]


def test_the_template(tmp_path, responses):
    folder = model(tmp_path / "m", template=None)
    report = doctor(folder, responses)
    assert report["check"].tolist()[-1] == "template"
    assert found(report, "template")["status"] == "fail"
    assert "'zephyr'" in found(report, "template")["remedy"]
    report = doctor(folder, responses, template="zephyr")
    assert found(report, "template")["status"] == "pass"
    assert "'zephyr', as you asked" in found(report, "template")["found"]


@pytest.mark.parametrize("written", ["", "{{ cls_token }}"])
def test_an_encoder_s_first_token_is_checked_whether_or_not_its_template_writes_it(tmp_path, responses, written):
    words = encoder_words(chat_template=written + toy.models.CHAT_TEMPLATES["chatml"])
    folder = toy.save_model(tmp_path / "m", "bert", words=words)
    row = found(doctor(folder, responses), "bos")
    assert row["status"] == "pass"
    assert row["found"].startswith(f"'[CLS]' ({words.cls_token_id}) at the beginning: once in")
    bare = [np.array([50, 60], np.int32)] * 2
    assert findings.check_bos(words, bare).status == "fail"
    assert "not at all in 2 texts" in findings.check_bos(words, bare).detail
    assert findings.check_bos(words, [np.array([words.cls_token_id] * 2, np.int32)]).status == "fail"
    words.backend_tokenizer.post_processor = None
    assert "no beginning token" in findings.check_bos(words, bare).detail


def test_the_token_that_is_read(tmp_path, responses):
    open_end = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
    folder = model(tmp_path / "m", template=open_end)
    report = doctor(folder, responses)
    assert found(report, "read")["status"] == "warn"
    assert "eos=True" in found(report, "read")["remedy"]
    assert found(doctor(folder, responses, eos=True), "read")["status"] == "pass"
    twice = toy.models.CHAT_TEMPLATES["llama3"] + "{{ eos_token }}"
    report = doctor(model(tmp_path / "twice", template=twice), responses)
    assert found(report, "read")["status"] == "fail"
    assert "2 times" in found(report, "read")["found"]
    assert found(doctor(tmp_path / "twice", responses, eos=True), "read")["status"] == "pass"


def test_pad_is_eos(tmp_path, responses):
    report = doctor(model(tmp_path / "m", pad="<|eot_id|>"), responses)
    assert found(report, "pad")["status"] == "warn"
    n = found(report, "pad")["found"]
    assert "24 of 24 texts end with it" in n
    assert found(report, "alone")["status"] == "pass"
    words = toy.tokenizer()
    words.pad_token = None
    assert findings.check_pad(words, []).status == "pass"


def test_texts_beyond_the_window(tmp_path, responses):
    folder = model(tmp_path / "m", max_position_embeddings=60)
    report = doctor(folder, responses)
    assert found(report, "truncated")["status"] == "fail"
    assert "truncate='left'" in found(report, "truncated")["remedy"]
    assert found(report, "alone")["status"] == "pass"  # the texts that fit are examined all the same
    report = doctor(folder, responses, max_length=60, truncate="left")
    assert found(report, "truncated")["status"] == "warn"
    assert "cut at the left" in found(report, "truncated")["found"]
    report = doctor(model(tmp_path / "tiny", max_position_embeddings=4), responses)
    assert report["check"].tolist()[-1] == "truncated"


def test_nan_weights(tmp_path, responses):
    folder = change(toy.save_model(tmp_path / "m"), **{"model.norm.weight": torch.full((32,), float("nan"))})
    report = doctor(folder, responses)
    assert found(report, "nan")["status"] == "fail"
    assert report["check"].tolist()[-1] == "nan"
    assert "float32" in found(report, "nan")["remedy"]


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


def test_memory(healthy, monkeypatch):
    scorer = classifier(healthy)
    weights, activations = models.memory_need(scorer)
    held = sum(tensor.numel() for tensor in load_file(healthy / "model.safetensors").values())
    assert weights == 4 * held
    assert models.memory_need(classifier(healthy, budget=8192))[1] == 2 * activations
    assert models.memory_need(classifier(healthy, dtype="bfloat16")) == (weights / 2, activations / 2)
    for have, status in [(1e12, "pass"), ((weights + activations) * 1.05, "warn"), (1e3, "fail"), (None, "warn")]:
        monkeypatch.setattr(models, "memory_size", lambda place, have=have: have)
        assert models.check_memory(scorer).status == status


def test_implicit_rewards(tmp_path, responses):
    policy, reference = (toy.save_model(tmp_path / name, task="causal", seed=i) for i, name in enumerate("ab"))
    report = doctor(implicit_reward(policy, reference), responses)
    assert report["status"].max() == "pass", report[report["status"] > "pass"].to_dict("records")
    assert "policy and reference" in found(report, "head")["found"]
    both = models.memory_need(implicit_reward(policy, reference, together=True))[0]
    assert both == 2 * models.memory_need(implicit_reward(policy, reference, together=False))[0]
    half = doctor(implicit_reward(policy, dtype="bfloat16"), responses)
    assert found(half, "dtype")["found"].startswith("bfloat16")


def test_the_sample_is_whole_prompts_from_short_to_long():
    groups = np.repeat(np.arange(100), 6)
    lengths = np.random.default_rng(0).permutation(100)[groups] * 10 + np.tile(np.arange(6), 100)
    rows = findings.spread(lengths, groups, 24)
    assert np.bincount(groups[rows])[np.unique(groups[rows])].tolist() == [6] * 4
    rank = np.sort(lengths[rows] // 10)[::6]
    assert rank.tolist() == [12, 37, 62, 87]
    assert len(findings.spread(lengths[:6], groups[:6], 1)) == 6


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


def test_command_line(tmp_path, healthy):
    done = CliRunner().invoke(cli.app, ["doctor", str(healthy)])
    assert done.exit_code == 0
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["pass", check] for check in CHECKS]
    headless = toy.save_model(tmp_path / "m", task="causal")
    done = CliRunner().invoke(cli.app, ["doctor", str(headless), "mini"])
    assert done.exit_code == 1
    first, second = done.stdout.splitlines()
    assert first.startswith("fail  head")
    assert second.strip().startswith("-> ")
    assert "rmlab doctor ./my-model" in CliRunner().invoke(cli.app, ["doctor", "--help"]).stdout
