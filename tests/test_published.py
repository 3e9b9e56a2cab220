"""The table of published models: every row's layout, tiny and with random weights, is
read as the row says, or refused.
"""

import csv
import json
from collections import Counter

import numpy as np
import pytest
import torch
from as_alone import EAGER
from pairwise_models import save as save_pairwise
from recorded_scores import HEAD_WEIGHTS, fill
from safetensors.torch import load_file, save_file
from test_readers import READINGS, judge_of, read
from test_steps import KINDS

import rmlab
from rmlab import records, toy
from rmlab.judges.kinds import PairJudge
from rmlab.tables import DataError

with records.shipped("models.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))
PROMPTS = ["What is the capital of France?"] * 2 + ["Why?"]
RESPONSES = ["Paris, on the Seine.", "I am sorry, no.", "Because 7 + 8 = 15."]
# Backbones that come as code, and what stands for them.
STAND_INS = {"internlm2": "llama"}
SETTINGS = {
    "internlm/internlm2-7b-reward": {"reward_token_id": 5},
    "PKU-Alignment/beaver-7b-v1.0-reward": {"score_type": "reward"},
    "PKU-Alignment/beaver-7b-v1.0-cost": {"score_type": "cost"},
}
LOADING = ("trust_remote_code", "allow_pickle", "reference")


def rows_of(call):
    return [pytest.param(row, id=row["model"]) for row in ROWS if row["call"] == call]


def options_of(row):
    """The options of a row but those that say where files are, and which are read."""
    options = eval(f"dict({row['options']})")
    return {name: value for name, value in options.items() if name not in LOADING}


def save(folder, row):
    """A tiny checkpoint in the layout of a row."""
    backbone = STAND_INS.get(row["backbone"], row["backbone"])
    has_template = "template" not in row["options"]
    words = toy.tokenizer(chat_template="llama3" if has_template else None)
    if row["head"] == "labels":
        return toy.save_model(folder, backbone, words=words, seed=1)
    toy.save_model(folder, backbone, task="backbone", words=words)
    path = folder / "model.safetensors"
    tensors = {f"model.{key}": tensor for key, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    shapes = {"lm_head.weight": (len(words), 32)}
    settings = {}
    if row["head"] in HEAD_WEIGHTS:
        shapes, settings = HEAD_WEIGHTS[row["head"]]
    settings = settings | SETTINGS.get(row["model"], {})
    settings["architectures"] = [row["architecture"]]
    if row["model"] == "nicolinho/QRM-Gemma-2-27B":
        # Its checkpoint has no matrix, and its configuration no temperature.
        settings["gating_temperature"] = 10
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    fill(folder, shapes)
    return folder


@pytest.mark.parametrize(
    "row", [row for row in rows_of("classifier") if row.values[0]["head"] not in KINDS]
)
def test_a_classifier_has_the_head_of_its_row(tmp_path, row):
    """tests/test_heads.py holds a forward of each head; the class's own is here."""
    from transformers import AutoModelForSequenceClassification

    folder = save(tmp_path / "m", row)
    scorer = rmlab.classifier(folder, **options_of(row))
    assert scorer.head.name == row["head"]
    scores = scorer(PROMPTS, RESPONSES)
    assert np.std(scores) > 1e-3 * np.abs(scores).max()
    if row["head"] != "labels":
        return
    model = AutoModelForSequenceClassification.from_pretrained(folder, **EAGER).eval()
    expected = []
    for ids in scorer.prepare(PROMPTS, RESPONSES).ids:
        with torch.no_grad():
            logits = model(torch.tensor(ids[None].astype(int))).logits
        expected.append(float(logits[0, 0]))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)


def test_the_process_models_of_the_table_are_those_of_the_steps_tests():
    step_rows = {row["head"]: row for row in ROWS if row["head"] in KINDS}
    assert step_rows.keys() | {"step_labels"} == KINDS.keys()
    for head, row in step_rows.items():
        assert row["architecture"] == KINDS[head]
        assert ("head" in options_of(row)) == (head == "step_verdicts")


@pytest.mark.parametrize("row", rows_of("implicit_reward"))
def test_an_implicit_reward_is_the_difference_of_log_probabilities(tmp_path, row):
    from transformers import AutoModelForCausalLM

    folders = []
    for seed, name in enumerate(["policy", "reference"]):
        folder = toy.save_model(
            tmp_path / name, row["backbone"], task="causal", seed=seed
        )
        folders.append(folder)
    scorer = rmlab.implicit_reward(*folders, **options_of(row))
    encoded = scorer.prepare(PROMPTS, RESPONSES)
    expected = np.zeros(len(PROMPTS))
    for sign, folder in zip((1, -1), folders, strict=True):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        for text, ids in enumerate(encoded.ids):
            row_ids = torch.tensor(ids.astype(int))
            with torch.no_grad():
                log_probs = model(row_ids[None]).logits[0].log_softmax(-1)
            start = encoded.response_start[text]
            chosen = log_probs[start - 1 : -1].gather(1, row_ids[start:, None])
            expected[text] += sign * float(chosen.sum())
    np.testing.assert_allclose(scorer(PROMPTS, RESPONSES), expected, rtol=1e-4)


@pytest.mark.parametrize("row", rows_of("pairwise"))
def test_a_pairwise_model_has_the_form_of_its_row(tmp_path, row):
    # tests/test_pairwise.py holds a forward of each form.
    model = rmlab.pairwise(save_pairwise(row["head"], tmp_path / "m"))
    assert model.form.name == row["head"]
    margins = model.prefer(PROMPTS, RESPONSES, RESPONSES[::-1])
    assert np.isfinite(margins).all()
    exchanged = model.prefer(PROMPTS, RESPONSES[::-1], RESPONSES)
    np.testing.assert_allclose(margins, -exchanged, atol=1e-6)


@pytest.mark.parametrize("row", rows_of("judge"))
def test_a_judges_replies_are_read_as_its_row_says(row):
    options = options_of(row)
    scale = options.get("scale", (1, 10))
    template = {"pairwise": "two", "rating": "rating"}[options["mode"]]
    judge = judge_of(template, "", options["reader"], scale)
    assert isinstance(judge, PairJudge) == (options["mode"] == "pairwise")
    readings = [
        values
        for (name, reader, *_), values in READINGS
        if (name, reader) == (template, options["reader"])
    ]
    for value, replies in readings[0].items():
        assert [read(judge, reply) for reply in replies] == [value] * len(replies)


@pytest.mark.parametrize("row", rows_of("refused"))
def test_what_the_table_refuses_is_refused(tmp_path, row, mini):
    name = row["model"].rpartition("/")[2]
    folder = toy.save_model(tmp_path / name, row["backbone"], task="causal")
    with pytest.raises(DataError):
        rmlab.classifier(folder)
    checks = rmlab.doctor(str(folder), mini)
    assert checks["check"].tolist() == ["published", "head"]
    assert row["model"] in checks["found"][0]
    assert checks["status"][1] == "fail"


def test_the_doctor_names_the_row_and_only_where_there_is_one(tmp_path, mini):
    row = next(row for row in ROWS if row["head"] == "regression")
    name = row["model"].rpartition("/")[2]
    folder = save(tmp_path / name, row)
    checks = rmlab.doctor(rmlab.classifier(folder), mini, sample=6)
    assert checks["check"][0] == "published"
    assert row["model"] in checks["found"][0]
    folder.rename(tmp_path / "mine")
    assert "published" not in set(rmlab.doctor(str(tmp_path / "mine"), mini)["check"])


def test_the_table_is_whole():
    assert len(ROWS) >= 40
    assert len({row["model"] for row in ROWS}) == len(ROWS)
    assert {row["source"] for row in ROWS} == {"code", "memory"}
    counts = Counter(row["call"] for row in ROWS)
    calls = {"classifier", "implicit_reward", "pairwise", "judge", "refused"}
    assert counts.keys() == calls


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gemma_2_keeps_its_cap_in_the_doctors_check(tmp_path, mini, dtype):
    # The shapes of Gemma 2 2B's attention, in two layers.
    settings = {"attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256}
    settings |= {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    settings |= {"hidden_size": 2304, "sliding_window": 4096}
    folder = toy.save_model(tmp_path / "m", "gemma2", **settings)
    checks = rmlab.doctor(str(folder), mini, dtype=dtype, sample=6).set_index("check")
    assert checks["status"]["alone"] == "pass"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gemma_3_keeps_its_windows_in_the_doctors_check(tmp_path, mini, dtype):
    from transformers import Gemma3TextConfig, Gemma3TextForSequenceClassification

    words = toy.tokenizer(chat_template="chatml")
    # The shapes of Gemma 3 1B's attention, and its pattern of layers once.
    config = Gemma3TextConfig(
        vocab_size=len(words),
        hidden_size=1152,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        query_pre_attn_scalar=256,
        sliding_window=512,
        num_labels=1,
        pad_token_id=words.pad_token_id,
    )
    torch.manual_seed(0)
    Gemma3TextForSequenceClassification(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    long = mini.head(6)
    long = long.assign(prompt=long["prompt"] * 20)  # longer than the window
    checks = rmlab.doctor(str(tmp_path), long, dtype=dtype, sample=6).set_index("check")
    assert checks["status"]["alone"] == "pass"
