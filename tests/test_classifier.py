"""Sequence classifiers against transformers' own forward, labels with weights, and everything that must be refused."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import rmlab
from rmlab import toy
from rmlab.inference.passes import packing_support
from rmlab.scorers.checkpoints import checkpoint
from rmlab.scorers.classifier import classifier
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.models import backbone
from rmlab.scorers.pairwise import pairwise
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?"] * 3 + ["Add two numbers."] * 2
PARIS = "Paris, a city on the river "
RESPONSES = [f"{PARIS}Seine.", f"{PARIS}Rhone.", "No.", "7 + 8 = 15", "I am sorry."]


@pytest.fixture
def llama(zoo):
    return zoo("llama", name="llama")


@pytest.fixture
def copy(llama, tmp_path):
    """A folder of the same model that a test may change."""
    return Path(shutil.copytree(llama, tmp_path / "copy"))


def configure(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


def own_logits(folder, scorer):
    """Logits of transformers' class, each text alone."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = scorer.prepare(PROMPTS, RESPONSES).ids
    with torch.no_grad():
        return np.array([model(input_ids=torch.tensor(one[None].astype(int))).logits[0].numpy() for one in ids])


def alone(scorer, prompts=PROMPTS, responses=RESPONSES):
    """Scores of the texts, each forwarded by itself."""
    return scorer.forward_alone(scorer.prepare(prompts, responses), np.arange(len(prompts)))


@pytest.mark.parametrize(
    ("architecture", "config"),
    [(name, {}) for name in toy.models.ARCHITECTURES] + [("modernbert", {"classifier_pooling": "mean"})],
)
def test_scores_are_the_raw_logits_of_transformers(zoo, architecture, config):
    folder = zoo(architecture, **config)
    scorer = classifier(folder)
    scores = scorer(PROMPTS, RESPONSES)
    np.testing.assert_allclose(scores, own_logits(folder, scorer)[:, 0], atol=1e-5 * scores.std() + 1e-6)
    np.testing.assert_allclose(alone(scorer), scores, atol=1e-5)
    assert scores.dtype == np.float64


def segment_words(pair):
    """A tokenizer that writes two segments by the pattern `pair`, and gives out which is which."""
    from tokenizers import processors

    words = toy.tokenizer(chat_template=None)
    words.cls_token, words.sep_token = words.bos_token, words.eos_token
    marks = [(words.cls_token, words.cls_token_id), (words.sep_token, words.sep_token_id)]
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair=pair, special_tokens=marks)
    words.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    words.init_kwargs["model_input_names"] = words.model_input_names
    return words


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
def test_two_segments_are_told_apart_as_the_tokenizer_does(tmp_path, architecture):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    words = segment_words("<|begin_of_text|>:0 $A:0 <|eot_id|>:0 $B:1 <|eot_id|>:1")
    folder = toy.save_model(tmp_path / "m", architecture, words=words)
    words, model = (kind.from_pretrained(folder) for kind in (AutoTokenizer, AutoModelForSequenceClassification))
    coded = [words(*texts, return_tensors="pt") for texts in zip(PROMPTS, RESPONSES, strict=True)]
    assert all(one["token_type_ids"].any() for one in coded)
    with torch.no_grad():
        own = [model.eval()(**one).logits.item() for one in coded]
    scorer = classifier(folder, template="raw")
    np.testing.assert_allclose(scorer(PROMPTS, RESPONSES), own, atol=1e-6)
    assert packing_support(scorer.backbone).packed == (architecture == "bert"), "a pack keeps each text's segments"
    np.testing.assert_allclose(alone(scorer), own, atol=1e-6)


def test_segments_marked_in_an_unknown_way_are_refused(tmp_path):
    words = segment_words("$A:1 <|eot_id|>:1 $B:0")
    scorer = classifier(toy.save_model(tmp_path / "m", "bert", words=words), template="raw")
    with pytest.raises(DataError, match=r"marks two segments as \[\[1, 1, 0\]\]"):
        scorer(PROMPTS, RESPONSES)


def test_pad_and_end_may_be_the_same_token(llama, copy):
    """The usual runners take the last token that is not a pad, and so read one token early."""
    words = toy.tokenizer()
    configure(copy, pad_token_id=words.eos_token_id)
    words.pad_token = words.eos_token
    words.save_pretrained(copy)
    np.testing.assert_allclose(classifier(copy)(PROMPTS, RESPONSES), classifier(llama)(PROMPTS, RESPONSES), atol=1e-6)


def test_several_labels_need_weights(tmp_path, llama):
    names = {0: "helpfulness", 1: "correctness", 2: "verbosity"}
    folder = toy.save_model(tmp_path / "m", num_labels=3, id2label=names, label2id={v: k for k, v in names.items()})
    for model, weights, named in [
        (folder, None, "3 labels"),
        (folder, {"helpfullness": 1}, "'helpfulness'"),
        (folder, [1, 2], "2 .* 3 labels"),
        (llama, [1.0], "weights"),
    ]:
        with pytest.raises(DataError, match=named):
            classifier(model, weights=weights)
    scorer = classifier(folder, weights={"helpfulness": 0.65, "verbosity": -0.4})
    scores = scorer(PROMPTS, RESPONSES)
    np.testing.assert_allclose(scores, own_logits(folder, scorer) @ [0.65, 0, -0.4], atol=1e-5)
    np.testing.assert_allclose(classifier(folder, weights=[0.65, 0, -0.4])(PROMPTS, RESPONSES), scores)


def test_fingerprint_changes_with_what_decides_a_score_and_with_nothing_else(llama, zoo):
    first = classifier(llama).fingerprint
    assert classifier(llama, budget=99, name="other").fingerprint == first
    assert classifier(llama, dtype="bfloat16").fingerprint != first
    assert classifier(llama, dtype=torch.bfloat16).fingerprint == classifier(llama, dtype="bfloat16").fingerprint
    assert classifier(llama, template="tulu").fingerprint != first
    assert classifier(llama, max_length=64, truncate="left").fingerprint != first
    assert classifier(zoo(seed=1)).fingerprint != first
    assert classifier(zoo(seed=0)).fingerprint == first


def test_a_folder_is_called_by_its_own_name_from_inside_too(tmp_path, monkeypatch):
    folder = toy.save_model(tmp_path / "mine", task="causal")
    toy.save_model(tmp_path / "mine" / "reward")
    monkeypatch.chdir(folder / "reward")
    assert classifier(".").name == "reward"
    assert classifier(folder / "reward/").name == "reward"
    assert pairwise("..").name == "mine"
    assert [model.name for model in implicit_reward("..", "../").models] == ["mine", "mine"]
    (tmp_path / "link").symlink_to(folder)
    assert pairwise(tmp_path / "link").name == "link"


def test_an_adapter_alone_is_refused(copy):
    (copy / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "owner/base"}))
    assert classifier(copy).name == "copy"
    (copy / "model.safetensors").rename(copy / "adapter_model.safetensors")
    with pytest.raises(DataError, match="is an adapter of 'owner/base'"):
        classifier(copy)


def test_provenance_is_plain_and_complete(llama):
    scorer = classifier(llama, max_length=24, truncate="left")
    assert scorer.provenance()["packs"] is None, "nothing was forwarded yet"
    assert "parts" not in scorer.__dict__, "nothing is loaded before the first score"
    scorer(PROMPTS, RESPONSES)
    provenance = json.loads(json.dumps(scorer.provenance()))
    assert [provenance[name] for name in ("dtype", "head", "attention")] == ["float32", "labels", "sdpa"]
    assert provenance["truncated"] > 0
    assert provenance["versions"]["transformers"]
    assert {"revision", "template", "template_hash", "device"} <= set(provenance)


@pytest.mark.parametrize(
    ("architecture", "packs"), [("llama", "shared beginnings"), ("bert", "whole texts"), ("deberta-v2", "none: ")]
)
def test_provenance_says_how_texts_are_packed(zoo, architecture, packs):
    scorer = classifier(zoo(architecture), template="raw")
    scorer(PROMPTS, RESPONSES)
    assert packs in scorer.provenance()["packs"]


def test_nan_names_the_texts_or_counts_as_missing(copy):
    weights = load_file(copy / "model.safetensors")
    save_file(weights | {"score.weight": weights["score.weight"] * torch.nan}, copy / "model.safetensors")
    with pytest.raises(DataError, match=r"5 of 5 scores .* NaN .*text 0: 'Paris, a city"):
        classifier(copy)(PROMPTS, RESPONSES)
    scores = rmlab.score(rmlab.load("mini").head(6), copy, allow_missing=True)
    assert scores["score"].isna().all()
    assert scores.attrs["provenance"]["copy"]["missing"] == 6


def test_a_missing_weight_is_an_error_not_a_score(zoo, copy):
    with pytest.raises(DataError, match=r"score\.weight"):
        classifier(zoo(task="causal", num_labels=1))
    weights = load_file(copy / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(DataError, match=r"layers\.1\.mlp\.up_proj"):
        classifier(copy)(PROMPTS, RESPONSES)


def test_folders_without_what_is_needed(tmp_path, copy):
    (tmp_path / "empty").mkdir()
    for folder, named in ((tmp_path / "nowhere", "nowhere"), (tmp_path / "empty", r"config\.json")):
        with pytest.raises(DataError, match=named):
            classifier(folder)
    index = {"metadata": {}, "weight_map": {"score.weight": "model-00002.safetensors", "x": "y"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"index\.json.*'y'"):
        classifier(copy)
    (copy / "model.safetensors.index.json").unlink()
    configure(copy, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    with pytest.raises(DataError, match="cannot load it"):
        classifier(copy, weights=[1, 1])(PROMPTS, RESPONSES)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).unlink()
    with pytest.raises(DataError, match="tokenizer"):
        classifier(copy, weights=[1, 1])(PROMPTS, RESPONSES)
    (copy / "model.safetensors").unlink()
    with pytest.raises(DataError, match="weights"):
        classifier(copy)


def test_configuration_and_tokenizer_from_elsewhere(tmp_path, llama):
    shutil.copy(llama / "model.safetensors", tmp_path)
    scores = classifier(tmp_path, base=llama)(PROMPTS, RESPONSES)
    np.testing.assert_allclose(scores, classifier(llama)(PROMPTS, RESPONSES))


def test_hub_troubles_name_the_model(monkeypatch):
    import httpx
    from huggingface_hub import errors

    response = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co"))
    for error, named in [
        (errors.GatedRepoError("x", response=response), "https://huggingface.co/a/b"),
        (errors.RepositoryNotFoundError("x", response=response), "a/b"),
        (errors.RevisionNotFoundError("x", response=response), "'v9'"),
        (errors.LocalEntryNotFoundError("x"), "a/b"),
    ]:
        monkeypatch.setattr("huggingface_hub.snapshot_download", Mock(side_effect=error))
        with pytest.raises(DataError, match=named):
            classifier("a/b", revision="v9")


def test_a_hub_model_is_read_from_its_snapshot(llama, monkeypatch):
    download = Mock(return_value=str(llama))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    scorer = classifier("owner/name")
    assert scorer.name == "owner/name"
    assert scorer.provenance()["revision"] == "llama"
    assert not {"*.bin", "*.py"} & set(download.call_args.kwargs["allow_patterns"])


def test_devices_and_types(llama):
    if not torch.cuda.is_available():
        with pytest.raises(DataError, match="device='cuda'"):
            classifier(llama, device="cuda")
        assert backbone.device().type == "cpu"
    for option, value in (("device", "gpu"), ("dtype", "fp16")):
        with pytest.raises(DataError, match=f"{option}='{value}'"):
            classifier(llama, **{option: value})
    assert backbone.dtype(None, torch.device("cpu")) == torch.float32


def test_a_model_larger_than_the_gpu_is_spread_by_accelerate(llama, monkeypatch):
    model, target = checkpoint.find(llama), torch.device("cuda")
    n_bytes = 4 * model.n_weights
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2 * n_bytes, 2 * n_bytes))
    assert backbone.fits(model, target, torch.float32)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (n_bytes, n_bytes))
    assert not backbone.fits(model, target, torch.float32)
    assert backbone.fits(model, target, torch.bfloat16)
    from_pretrained = Mock(side_effect=OSError("stop here"))
    monkeypatch.setattr("transformers.AutoModelForSequenceClassification.from_pretrained", from_pretrained)
    with pytest.raises(DataError, match="stop here"):
        backbone.load(model, "AutoModelForSequenceClassification", device=target, dtype=torch.float32)
    options = from_pretrained.call_args.kwargs
    assert (options["device_map"], options["use_safetensors"], options["trust_remote_code"]) == ("auto", True, False)


def test_a_text_longer_than_the_window(zoo):
    folder = zoo(max_position_embeddings=40)
    with pytest.raises(DataError, match="longer than max_length=40"):
        classifier(folder)(["What?"], ["Paris " * 60])
    with pytest.raises(DataError, match="are empty"):
        classifier(folder)(["What?"], [" "])


def test_the_runner_of_reward_bench_masks_a_beginning_token_that_gpt2_counts(zoo):
    """Two beginning tokens, the first one masked: learned positions begin at 1 all the same."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = zoo("gpt2")
    words = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    prompts, responses = ["What is it?", "Why?", "Two and two?"], ["Paris, a city on the river.", "No.", "Add them."]
    reference = []
    for prompt, response in zip(prompts, responses, strict=True):
        chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        row = words(words.apply_chat_template(chat, tokenize=False), return_tensors="pt")
        assert row["input_ids"][0, :2].tolist() == [words.bos_token_id] * 2
        row["attention_mask"][0, 0] = 0
        with torch.no_grad():
            reference.append(model(input_ids=row["input_ids"], attention_mask=row["attention_mask"]).logits.item())
    scorer = classifier(folder, convention="reward-bench")
    assert np.abs(scorer(prompts, responses) - reference).max() <= 1e-5 * np.std(reference)
    assert np.abs(alone(scorer, prompts, responses) - reference).max() <= 1e-5 * np.std(reference)
    assert scorer.longest == model.config.n_positions - 1
    assert np.abs(classifier(folder)(prompts, responses) - reference).max() > 1e-3 * np.std(reference)
