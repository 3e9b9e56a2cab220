"""Sequence classifiers against transformers' own forward, labels with weights, and
everything that must be refused.
"""

import json
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers
from as_alone import EAGER
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file

import rmlab
from rmlab import toy
from rmlab.scorers.classifier import classifier
from rmlab.scorers.models import loading
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?"] * 3 + ["Add two numbers."] * 2
PARIS = "Paris, a city on the river "
RESPONSES = [f"{PARIS}Seine.", f"{PARIS}Rhone.", "No.", "7 + 8 = 15", "I am sorry."]
TEXTS = PROMPTS, RESPONSES


@pytest.fixture
def llama(zoo):
    return zoo(name="llama")


@pytest.fixture
def copy(llama, tmp_path):
    """A folder of the same model that a test may change."""
    return Path(shutil.copytree(llama, tmp_path / "copy"))


def configure(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


def change_weights(folder, **tensors):
    """The file of weights with other tensors; None leaves one out."""
    weights = load_file(folder / "model.safetensors") | tensors
    save_file(
        {name: t for name, t in weights.items() if t is not None},
        folder / "model.safetensors",
    )


def own_logits(folder, rows):
    """Logits of transformers' class for inputs of one text each."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder, **EAGER).eval()
    with torch.no_grad():
        return np.array([model(**row).logits[0].numpy() for row in rows])


def inputs(scorer):
    return [
        {"input_ids": torch.tensor(ids[None].astype(int))}
        for ids in scorer.prepare(*TEXTS).ids
    ]


def alone(scorer):
    """Scores of the texts, each forwarded by itself."""
    return scorer.forward_alone(scorer.prepare(*TEXTS), np.arange(len(PROMPTS)))


@pytest.mark.parametrize(
    ("architecture", "config"),
    [(name, {}) for name in toy.models.ARCHITECTURES]
    + [("modernbert", {"classifier_pooling": "mean"})],
)
def test_scores_are_the_raw_logits_of_transformers(zoo, architecture, config):
    folder = zoo(architecture, **config)
    scorer = classifier(folder)
    scores = scorer(*TEXTS)
    np.testing.assert_allclose(
        scores,
        own_logits(folder, inputs(scorer))[:, 0],
        atol=1e-5 * scores.std() + 1e-6,
    )
    np.testing.assert_allclose(alone(scorer), scores, atol=1e-5)
    assert scores.dtype == np.float64


def test_rotary_settings_of_a_later_transformers_are_not_dropped(zoo, monkeypatch):
    """Its default would score a model with another base of its positions, silently."""
    rope = {"rope_type": "default", "rope_theta": 1e6}
    folder = zoo(rope_parameters=rope)
    # transformers puts another object in its own place.
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    with pytest.raises(DataError, match=r"rope_parameters.*transformers 5"):
        classifier(folder)(*TEXTS)


def segment_words(pair):
    """A tokenizer that writes two segments by the pattern `pair`, and gives out which
    is which.
    """
    from tokenizers import processors

    words = toy.tokenizer(chat_template=None)
    words.cls_token, words.sep_token = words.bos_token, words.eos_token
    marks = [
        (words.cls_token, words.cls_token_id),
        (words.sep_token, words.sep_token_id),
    ]
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair=pair, special_tokens=marks
    )
    words.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    words.init_kwargs["model_input_names"] = words.model_input_names
    return words


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
def test_two_segments_are_told_apart_as_the_tokenizer_does(tmp_path, architecture):
    words = segment_words("<|begin_of_text|>:0 $A:0 <|eot_id|>:0 $B:1 <|eot_id|>:1")
    folder = toy.save_model(tmp_path / "m", architecture, words=words)
    scorer = classifier(folder, template="raw")
    rows = [
        scorer.tokenizer(*texts, return_tensors="pt")
        for texts in zip(*TEXTS, strict=True)
    ]
    assert all(row["token_type_ids"].any() for row in rows)
    logits = own_logits(folder, rows)[:, 0]
    np.testing.assert_allclose(scorer(*TEXTS), logits, atol=1e-6)
    np.testing.assert_allclose(alone(scorer), logits, atol=1e-6)
    # transformers 4 has an attention of BERT's own, which is slower and no less right.
    packs = architecture == "bert" and not transformers.__version__.startswith("4.")
    assert (scorer.backbone.packing.refused is None) == packs, (
        "a pack keeps each text's segments"
    )


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_text_that_ends_with_the_pad_token_is_read_where_the_class_reads(
    zoo, tmp_path, architecture, dtype
):
    """As TRL trains a model whose tokenizer had no pad token: pad = eos."""
    folder = zoo(architecture, pad_token_id=toy.tokenizer().eos_token_id)
    scorer = classifier(folder, dtype=dtype)
    reference = own_logits(folder, inputs(scorer))[:, 0]
    tolerance = {"float32": 1e-5, "bfloat16": 0.1}[dtype] * reference.std()
    in_memory = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=getattr(torch, dtype)
    )
    for made in (scorer, classifier(in_memory, toy.tokenizer())):
        np.testing.assert_allclose(made(*TEXTS), reference, atol=tolerance)
        np.testing.assert_allclose(alone(made), reference, atol=tolerance)

    # vLLM and others read the EOS token.
    without = Path(shutil.copytree(folder, tmp_path / "without"))
    configure(without, pad_token_id=None)
    last = classifier(without, dtype=dtype)(*TEXTS)
    read_last = classifier(folder, dtype=dtype, pooling="last")
    np.testing.assert_allclose(read_last(*TEXTS), last, atol=tolerance)
    assert np.abs(last - reference).max() > reference.std()
    assert read_last.fingerprint != scorer.fingerprint


def test_pooling_switches_where_the_configuration_has_no_pad_token(llama, copy):
    """The usual state of a base whose adapter TRL has trained."""
    words = toy.tokenizer()
    words.pad_token = words.eos_token
    words.save_pretrained(copy)
    configure(copy, pad_token_id=None)
    np.testing.assert_allclose(
        classifier(copy)(*TEXTS), classifier(llama)(*TEXTS), atol=1e-6
    )
    scorer = classifier(copy, pooling="before_pad")
    scores = scorer(*TEXTS)
    configure(copy, pad_token_id=words.eos_token_id)
    np.testing.assert_allclose(
        scores, own_logits(copy, inputs(scorer))[:, 0], atol=1e-5
    )
    prepared = scorer.prepare(*TEXTS)
    _, rewards = scorer.token_rewards(prepared, 0)
    np.testing.assert_allclose(rewards[-2:], scores[[0, 0]], atol=1e-5)


class BeforeFirstPad(transformers.LlamaForSequenceClassification):
    """As transformers' classes and their copies beside models read up to 4.50."""

    def forward(self, input_ids, attention_mask=None):
        states = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        is_pad = torch.eq(input_ids, self.config.pad_token_id).int()
        last = (is_pad.argmax(-1) - 1) % input_ids.shape[-1]
        logits = self.score(states)[torch.arange(len(last)), last]
        return transformers.modeling_outputs.SequenceClassifierOutputWithPast(
            logits=logits
        )


@pytest.mark.parametrize("pad", ["<|eot_id|>", "<|begin_of_text|>", ","])
def test_a_class_that_reads_before_the_first_pad_token_is_read_there(zoo, pad):
    words = toy.tokenizer()
    (token,) = words.encode(pad, add_special_tokens=False)
    folder = zoo(pad_token_id=token)
    model = BeforeFirstPad.from_pretrained(folder, dtype=torch.float32).eval()
    scorer = classifier(model, words)
    rows = inputs(scorer)
    with torch.no_grad():
        reference = np.array([model(**row).logits.item() for row in rows])
    np.testing.assert_allclose(scorer(*TEXTS), reference, atol=1e-5)
    np.testing.assert_allclose(alone(scorer), reference, atol=1e-5)
    prepared = scorer.prepare(*TEXTS)
    rewards = scorer.token_rewards(prepared, 0)[1]
    np.testing.assert_allclose(rewards[-1], reference[0], atol=1e-5)
    if pad != "<|begin_of_text|>":
        assert np.abs(reference - own_logits(folder, rows)[:, 0]).max() > 1e-3


@pytest.mark.parametrize("task", ["classifier", "causal"])
def test_tokens_beyond_the_embedding_are_refused(zoo, tmp_path, task):
    folder = Path(shutil.copytree(zoo(task=task), tmp_path / "m"))
    words = toy.tokenizer()
    n_tokens = len(words)
    words.add_tokens(["Seine"])
    words.save_pretrained(folder)
    make = classifier if task == "classifier" else rmlab.implicit_reward
    message = f"{n_tokens + 1} tokens.* {n_tokens} embeddings"
    with pytest.raises(DataError, match=message):
        make(folder)(*TEXTS)
    with pytest.raises(DataError, match=message):
        alone(make(folder))


def runner_rows(words, texts=TEXTS, **options):
    """RewardBench's tokens, of two BOS tokens the first one masked."""
    rows = []
    for prompt, response in zip(*texts, strict=True):
        chat = [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": response},
        ]
        text = words.apply_chat_template(chat, tokenize=False)
        row = words(text, return_tensors="pt", return_token_type_ids=False, **options)
        if row["input_ids"][0, :2].tolist() == [words.bos_token_id] * 2:
            row["attention_mask"][0, 0] = 0
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("tokenizer_pad", "model_pad", "used"),
    [(None, 5, "eos"), (None, None, "eos"), ("eos", None, "eos"), ("eos", 5, 5)],
)
def test_the_runner_of_reward_bench_sets_the_pad_token(
    copy, tokenizer_pad, model_pad, used
):
    words = toy.tokenizer()
    words.pad_token = words.eos_token if tokenizer_pad else None
    words.save_pretrained(copy)
    configure(copy, pad_token_id=model_pad)
    scores = classifier(copy, convention="reward-bench")(*TEXTS)
    configure(copy, pad_token_id=words.eos_token_id if used == "eos" else used)
    reference = own_logits(copy, runner_rows(words))[:, 0]
    np.testing.assert_allclose(scores, reference, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_runner_of_reward_bench_cuts_with_its_doubled_beginning_token(llama, side):
    words = toy.tokenizer()
    words.truncation_side = side
    texts = PROMPTS, [f"{response} And so on, to the end." for response in RESPONSES]
    n_tokens = min(len(row["input_ids"][0]) for row in runner_rows(words, texts)) - 3
    scorer = classifier(
        llama, convention="reward-bench", truncate=side, max_length=n_tokens
    )
    rows = runner_rows(words, texts, truncation=True, max_length=n_tokens)
    reference = own_logits(llama, rows)[:, 0]
    np.testing.assert_allclose(scorer(*texts), reference, atol=1e-5)


def test_misuse_of_a_call_is_named(llama):
    scorer = classifier(llama)
    with pytest.raises(TypeError, match="'What\\?' is one text"):
        scorer("What?", "This.")
    with pytest.raises(ValueError, match="2 prompts, 1 answers"):
        scorer(["What?", "Why?"], ["This."])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(llama)
    with pytest.raises(TypeError, match=r"rmlab\.classifier\(model, tokenizer\)"):
        rmlab.score(rmlab.load("mini"), model)


def test_several_labels_need_weights(tmp_path, llama):
    names = {0: "helpfulness", 1: "correctness", 2: "verbosity"}
    folder = toy.save_model(
        tmp_path / "m",
        num_labels=3,
        id2label=names,
        label2id={v: k for k, v in names.items()},
    )
    for model, weights, named in [
        (folder, None, "3 labels"),
        (folder, {"helpfullness": 1}, "'helpfulness'"),
        (folder, [1, 2], "2 .* 3 labels"),
        (llama, [1.0], "weights"),
    ]:
        with pytest.raises(DataError, match=named):
            classifier(model, weights=weights)
    scorer = classifier(folder, weights={"helpfulness": 0.65, "verbosity": -0.4})
    scores = scorer(*TEXTS)
    np.testing.assert_allclose(
        scores, own_logits(folder, inputs(scorer)) @ [0.65, 0, -0.4], atol=1e-5
    )
    np.testing.assert_allclose(
        classifier(folder, weights=[0.65, 0, -0.4])(*TEXTS), scores
    )


def test_the_fingerprint_changes_with_what_decides_a_score_and_with_nothing_else(
    llama, zoo
):
    first = classifier(llama).fingerprint
    assert (
        classifier(llama, max_batch_tokens=99, name="other").fingerprint
        == classifier(zoo(seed=0)).fingerprint
        == first
    )
    changes = [
        {"dtype": "bfloat16"},
        {"template": "tulu"},
        {"max_length": 64, "truncate": "left"},
    ]
    changed = {classifier(llama, **change).fingerprint for change in changes}
    assert len({first, classifier(zoo(seed=1)).fingerprint, *changed}) == 5
    assert classifier(llama, dtype=torch.bfloat16).fingerprint in changed


def test_nan_names_the_texts_or_counts_as_missing(copy):
    change_weights(copy, **{"score.weight": torch.full((1, 32), torch.nan)})
    with pytest.raises(DataError, match=r"5 of 5 scores .*text 0: 'Paris, a city"):
        classifier(copy)(*TEXTS)
    scores = rmlab.score(rmlab.load("mini").head(6), copy, allow_missing=True)
    assert scores["score"].isna().all()
    assert scores.attrs["provenance"]["copy"]["missing"] == 6


def test_configuration_and_tokenizer_from_elsewhere(tmp_path, llama):
    shutil.copy(llama / "model.safetensors", tmp_path)
    np.testing.assert_allclose(
        classifier(tmp_path, base=llama)(*TEXTS), classifier(llama)(*TEXTS)
    )


def test_a_hub_model_is_read_from_its_snapshot_and_troubles_name_it(llama, monkeypatch):
    download = Mock(return_value=str(llama))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    scorer = classifier("owner/name")
    assert (scorer.name, scorer.provenance()["revision"]) == ("owner/name", "llama")
    patterns = {
        name: download.call_args.kwargs[name]
        for name in ("allow_patterns", "ignore_patterns")
    }
    assert not {"*.bin", "*.py"} & set(patterns["allow_patterns"])
    copies = [
        "fp8/model.safetensors",
        "checkpoint-500/model.safetensors",
        "consolidated.safetensors",
    ]
    names = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "regression_layer.safetensors",
    ]
    assert [*filter_repo_objects([*names, *copies], **patterns)] == names
    download.side_effect = errors.LocalEntryNotFoundError("no connection")
    with pytest.raises(DataError, match="check the network"):
        classifier("a/b@main")
    assert download.call_args.args == ("a/b",)
    assert download.call_args.kwargs["revision"] == "main"


def test_devices_and_types(llama):
    assert loading.dtype(None, torch.device("cpu")) == torch.float32
    absent = [] if torch.cuda.is_available() else [("device", "cuda")]
    for option, value in [("device", "gpu"), ("dtype", "fp16"), *absent]:
        with pytest.raises(DataError, match=f"{option}='{value}'"):
            classifier(llama, **{option: value})


def test_a_text_longer_than_the_window_or_empty_is_refused(zoo):
    scorer = classifier(zoo(max_position_embeddings=40))
    for response, named in (("Paris " * 60, "max_length=40"), (" ", "are empty")):
        with pytest.raises(DataError, match=named):
            scorer(["What?"], [response])


@pytest.mark.parametrize(
    "kind", ["roberta", "camembert", "xmod", "mpnet", "longformer", "luke", "ibert"]
)
def test_positions_behind_the_padding_token_are_fewer(kind):
    """The longest text that the class itself has positions for."""
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=99,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=34,
        pad_token_id=1,
    )
    assert loading.window(config) == 32
