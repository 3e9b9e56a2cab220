"""LoRA adapters: scored as peft merges them, and refused where their head or their base
is not theirs.
"""

import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import rmlab
from rmlab import toy
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.tables import DataError

peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`"),
]

PROMPTS = ["What is the capital of France?"] * 2 + ["Why?", "How many?"]
RESPONSES = ["Paris, a city.", "I am sorry, no.", "Because 7 + 8 = 15.", "Three."]
TEXTS = PROMPTS, RESPONSES
CPU = {"device": "cpu", "dtype": "float32"}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}!{% endfor %}"
LINEAR = ["q_proj", "v_proj", "down_proj"]
CLASSES = {
    "SEQ_CLS": AutoModelForSequenceClassification,
    "CAUSAL_LM": AutoModelForCausalLM,
}


def load(folder, task, n_labels=1):
    model_class = CLASSES[task or "SEQ_CLS"]
    options = {}
    if model_class is CLASSES["SEQ_CLS"]:
        options = {"num_labels": n_labels, "ignore_mismatched_sizes": True}
    return model_class.from_pretrained(folder, dtype=torch.float32, **options)


def train(base, folder, *, task="SEQ_CLS", n_tokens=None, kind="LoraConfig", **options):
    """Save an adapter of `base` whose every weight is random, as if it was trained."""
    if kind == "LoraConfig":
        sizes = {"r": 4, "lora_alpha": 8, "init_lora_weights": False}
        options = sizes | {"target_modules": LINEAR} | options
    model = load(base, task, options.pop("n_labels", 1))
    if n_tokens is not None:
        model.resize_token_embeddings(n_tokens, mean_resizing=False)
    config = getattr(peft, kind)(task_type=task, **options)
    model = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                noise = torch.randn(weight.shape, generator=generator)
                is_magnitude = "magnitude" in name
                weight.copy_(weight + 0.3 * noise.abs() if is_magnitude else noise / 3)
    model.save_pretrained(folder)
    return folder


def unmerged(base, adapter, task, *, n_tokens=None, n_labels=1):
    """The model as peft itself loads it."""
    model = load(base, task, n_labels)
    if n_tokens is not None:
        model.resize_token_embeddings(n_tokens, mean_resizing=False)
    return peft.PeftModel.from_pretrained(model, adapter).eval()


def rows(scorer):
    """The ids of each text, as a batch of one."""
    encoded = scorer.prepare(*TEXTS)
    return [torch.tensor(ids[None].astype(int)) for ids in encoded.ids]


@torch.no_grad()
def oracle(scorer, model, weights=(1.0,)):
    """The whole model on one text at a time."""
    rewards = []
    for row in rows(scorer):
        logits = model(input_ids=row).logits[0].double()
        rewards.append(float(logits @ torch.tensor(weights).double()))
    return np.array(rewards)


@torch.no_grad()
def log_probs(scorer, model):
    """The sum of the answer's log-probabilities, one text at a time."""
    starts = scorer.prepare(*TEXTS).response_start
    sums = []
    for row, start in zip(rows(scorer), starts, strict=True):
        logits = model(input_ids=row).logits[0].double().log_softmax(-1)
        values = logits[:-1].gather(1, row[0, 1:, None])[start - 1 :]
        sums.append(values.sum().item())
    return np.array(sums)


def assert_close(found, expected):
    assert expected.std() > 1e-2
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * expected.std())


KINDS = {
    "query and value": {"target_modules": ["q_proj", "v_proj"]},
    "all layers": {"target_modules": "all-linear"},
    "alpha": {"r": 3, "lora_alpha": 17},
    "rslora": {"use_rslora": True},
    "rank patterns": {
        "rank_pattern": {"layers.0.self_attn.q_proj": 2},
        "alpha_pattern": {"down_proj": 5},
    },
    "dora": {"use_dora": True},
    "dora of all layers": {"use_dora": True, "target_modules": "all-linear"},
    "bias": {"bias": "all"},
    "bias of the factors": {"lora_bias": True},
    "embedding": {"target_modules": ["embed_tokens", "q_proj"]},
    "embedding saved": {"modules_to_save": ["embed_tokens"]},
    "norm saved": {"modules_to_save": ["norm"]},
    "layer saved": {"modules_to_save": ["o_proj"]},
    "tokens": {"trainable_token_indices": {"embed_tokens": [7, 8, 9]}},
    "more tokens": {"n_tokens": 700},
    "more tokens saved": {"n_tokens": 700, "modules_to_save": ["embed_tokens"]},
    "replicated": {"layer_replication": [(0, 2), (1, 2)]},
    "ia3": {
        "kind": "IA3Config",
        "target_modules": ["k_proj", "v_proj", "down_proj"],
        "feedforward_modules": ["down_proj"],
    },
}
OUTPUT_KINDS = {
    "output layer": {"target_modules": ["lm_head", "q_proj"]},
    "both ends": {"target_modules": ["lm_head", "embed_tokens"]},
    "dora of both ends": {
        "use_dora": True,
        "target_modules": ["lm_head", "embed_tokens"],
    },
    "output layer saved": {"modules_to_save": ["lm_head"]},
    "both ends saved": {"modules_to_save": ["lm_head", "embed_tokens"]},
    "ends kept tied": {
        "modules_to_save": ["embed_tokens"],
        "ensure_weight_tying": True,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_scores_as_pefts_unmerged_model(zoo, tmp_path, kind):
    base = zoo(task="causal", attention_bias=True)
    options = KINDS[kind]
    folder = train(base, tmp_path / "adapter", **options)
    scorer = rmlab.classifier(folder, **CPU)
    n_tokens = options.get("n_tokens")
    model = unmerged(base, folder, "SEQ_CLS", n_tokens=n_tokens)
    expected = oracle(scorer, model)
    assert_close(scorer(*TEXTS), expected)
    if "saved" not in kind:
        with model.disable_adapter():
            assert np.abs(oracle(scorer, model) - expected).max() > 1e-2


def test_an_adapter_is_read_where_pefts_model_reads(zoo, tmp_path):
    """Before the pad token, where it is the EOS token and ends the texts."""
    end = toy.tokenizer().eos_token_id
    base = zoo(task="causal", attention_bias=True, pad_token_id=end)
    folder = train(base, tmp_path / "adapter")
    scorer = rmlab.classifier(folder, **CPU)
    assert {ids[-1] for ids in scorer.prepare(*TEXTS).ids} == {end}
    assert_close(scorer(*TEXTS), oracle(scorer, unmerged(base, folder, "SEQ_CLS")))


@pytest.mark.filterwarnings("ignore:Careful, disabling adapter layers with bias")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS | OUTPUT_KINDS)
def test_a_policy_and_its_base_score_as_pefts_unmerged_model(zoo, tmp_path, kind, tied):
    options = (KINDS | OUTPUT_KINDS)[kind]
    if kind == "ends kept tied" and not tied:
        pytest.skip("they are not tied")
    base = zoo(task="causal", attention_bias=True, tie_word_embeddings=tied)
    folder = train(base, tmp_path / "adapter", task="CAUSAL_LM", **options)
    scorer = rmlab.implicit_reward(folder, **CPU)
    n_tokens = options.get("n_tokens")
    model = unmerged(base, folder, "CAUSAL_LM", n_tokens=n_tokens)
    of_policy = log_probs(scorer, model)
    # Its other rows would be random in peft's disabled model.
    if kind in ("bias", "more tokens"):
        of_base = log_probs(scorer, load(base, "CAUSAL_LM").eval())
    else:
        with model.disable_adapter():
            of_base = log_probs(scorer, model)
    assert np.abs(of_policy - of_base).max() > 1e-2
    found = scorer(*TEXTS)
    tolerance = 1e-5 * np.std(of_policy)
    np.testing.assert_allclose(found, of_policy - of_base, rtol=0, atol=tolerance)
    alone = rmlab.implicit_reward(folder, mode="mean", **CPU)
    n_tokens = alone(*TEXTS) / of_policy
    np.testing.assert_allclose(1 / n_tokens, np.round(1 / n_tokens), atol=1e-3)


@pytest.mark.parametrize("tied", [False, True])
def test_a_policy_in_memory_has_the_factors_of_its_output_layer(zoo, tmp_path, tied):
    base = zoo(task="causal", attention_bias=True, tie_word_embeddings=tied)
    options = OUTPUT_KINDS["dora of both ends"]
    folder = train(base, tmp_path / "adapter", task="CAUSAL_LM", **options)
    model = unmerged(base, folder, "CAUSAL_LM")
    tokenizer = AutoTokenizer.from_pretrained(base)
    scorer = rmlab.implicit_reward(model, tokenizer=tokenizer, mode="sum")
    assert_close(scorer(*TEXTS), log_probs(scorer, model))


@pytest.mark.parametrize("targets", [["q_proj", "score"], LINEAR])
def test_the_head_of_a_base_is_used_with_its_factors(zoo, tmp_path, targets):
    """And without a task in the adapter's configuration."""
    base = zoo()
    options = {"target_modules": targets, "task": None}
    folder = train(base, tmp_path / "adapter", **options)
    scorer = rmlab.classifier(folder, **CPU)
    expected = oracle(scorer, unmerged(base, folder, None))
    assert_close(scorer(*TEXTS), expected)
    with pytest.raises(DataError, match=r"score\.weight"):
        rmlab.classifier(folder, base=zoo(task="causal"))(*TEXTS)


def test_a_head_of_several_labels_is_counted_by_its_weight(zoo, tmp_path):
    base = zoo(task="causal")
    folder = train(base, tmp_path / "adapter", n_labels=3)
    weights = [0.5, 2.0, -1.0]
    scorer = rmlab.classifier(folder, weights=weights, **CPU)
    model = unmerged(base, folder, "SEQ_CLS", n_labels=3)
    assert_close(scorer(*TEXTS), oracle(scorer, model, weights))


@pytest.mark.parametrize("file", ["value_head.safetensors", "value_head.bin"])
def test_a_value_head_beside_an_adapter_is_read_from_its_file(zoo, tmp_path, file):
    """As LLaMA-Factory and ms-swift save reward models."""
    base = zoo(task="causal")
    folder = train(base, tmp_path / "adapter", task="CAUSAL_LM")
    generator = torch.Generator().manual_seed(1)
    head = {
        "v_head.summary.weight": torch.randn(1, 32, generator=generator),
        "v_head.summary.bias": torch.randn(1, generator=generator),
    }
    if file.endswith(".bin"):
        torch.save(head, folder / file)
        with pytest.raises(DataError, match="allow_pickle"):
            rmlab.classifier(folder)
    else:
        save_file(head, folder / file)
    scorer = rmlab.classifier(folder, **CPU, allow_pickle=True)
    model = unmerged(base, folder, "CAUSAL_LM")
    expected = []
    for row in rows(scorer):
        with torch.no_grad():
            states = model(input_ids=row, output_hidden_states=True).hidden_states[-1]
        value = states[0, -1] @ head["v_head.summary.weight"][0]
        expected.append(float(value + head["v_head.summary.bias"]))
    assert_close(scorer(*TEXTS), np.array(expected))


def test_tokens_that_were_added_in_training_have_their_embeddings(tmp_path):
    base = toy.save_model(tmp_path / "base", task="causal")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(["Paris", "<|more|>"])
    n_tokens = len(tokenizer)
    folder = train(
        base,
        tmp_path / "adapter",
        n_tokens=n_tokens,
        modules_to_save=["embed_tokens"],
    )
    tokenizer.save_pretrained(folder)
    scorer = rmlab.classifier(folder, **CPU)
    assert any(n_tokens - 2 in ids for ids in scorer.prepare(*TEXTS).ids)
    model = unmerged(base, folder, "SEQ_CLS", n_tokens=n_tokens)
    assert_close(scorer(*TEXTS), oracle(scorer, model))
    assert scorer.provenance()["tokenizer"] == "adapter"


def test_the_head_is_float32_in_half_precision(zoo, tmp_path):
    folder = train(zoo(task="causal"), tmp_path / "adapter")
    scorer = rmlab.classifier(folder, device="cpu", dtype="bfloat16")
    assert scorer.backbone.model.dtype == torch.bfloat16
    stored = load_file(folder / "adapter_model.safetensors")
    weight = stored["base_model.model.score.weight"]
    outputs = scorer.readout.head(torch.eye(32)[:, None])
    torch.testing.assert_close(outputs, weight.T, rtol=0, atol=0)


def test_an_adapter_without_a_head_names_the_remedy(zoo, tmp_path):
    folder = train(zoo(task="causal"), tmp_path / "adapter")
    path = folder / "adapter_model.safetensors"
    stored = load_file(path)
    tensors = {name: stored[name] for name in stored if "score" not in name}
    save_file(tensors, path)
    with pytest.raises(DataError, match=r"modules_to_save=\['score'\]"):
        rmlab.classifier(folder)


@pytest.mark.parametrize("change", [{"hidden_size": 64}, {"num_hidden_layers": 3}])
def test_another_base_is_refused(zoo, tmp_path, change):
    folder = train(zoo(task="causal"), tmp_path / "adapter")
    other = zoo(task="causal", **change)
    with pytest.raises(DataError, match="base="):
        rmlab.classifier(folder, base=other)(*TEXTS)


@pytest.mark.parametrize("task", CLASSES)
def test_an_adapter_of_another_task_is_sent_on(zoo, tmp_path, task):
    folder = train(zoo(task="causal"), tmp_path / "adapter", task=task)
    makers = [rmlab.classifier]
    if task == "SEQ_CLS":
        makers = [rmlab.implicit_reward, rmlab.judge, rmlab.pairwise]
    for make in makers:
        with pytest.raises(DataError, match=f"{task}.* go to rmlab"):
            make(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"peft_type": "PREFIX_TUNING"},
        {"peft_type": "CPT"},
        {"peft_type": "XLORA"},
        {"alora_invocation_tokens": [5]},
        {"task_type": "TOKEN_CLS"},
        {"init_lora_weights": "pissa"},
        {"base_model_name_or_path": "no/such-base"},
    ],
    ids=str,
)
def test_adapters_that_cannot_be_scored_are_refused_by_name(zoo, tmp_path, change):
    folder = train(zoo(task="causal"), tmp_path / "adapter", task="CAUSAL_LM")
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    (value,) = change.values()
    with pytest.raises(DataError, match="aLoRA" if value == [5] else value):
        rmlab.implicit_reward(folder)


def test_a_policy_and_its_base_are_one_model_in_memory(zoo, tmp_path):
    base = zoo(task="causal")
    folder = train(base, tmp_path / "policy", task="CAUSAL_LM")
    other = train(base, tmp_path / "other", task="CAUSAL_LM", r=2)
    scorer = rmlab.implicit_reward(folder, **CPU)
    same = rmlab.implicit_reward(folder, base, **CPU)
    found = scorer(*TEXTS)
    np.testing.assert_array_equal(same(*TEXTS), found)
    policy, of_base = scorer.policy, scorer.reference
    assert policy.backbone.model is of_base.backbone.model
    # A store finds the base's sums whoever asks for them.
    of_other = rmlab.implicit_reward(other, **CPU).reference
    assert of_base.fingerprint == of_other.fingerprint
    scorer.free_memory()
    assert not policy.loaded
    np.testing.assert_allclose(scorer(*TEXTS), found)


def test_base_and_adapter_decide_the_fingerprint(zoo, tmp_path):
    base = zoo(task="causal")
    folder = train(base, tmp_path / "one")
    second = train(base, tmp_path / "two", r=2)
    fingerprint = rmlab.classifier(folder).fingerprint
    assert rmlab.classifier(folder, base=base).fingerprint == fingerprint
    other = rmlab.classifier(folder, base=zoo(task="causal", seed=1)).fingerprint
    of_second = rmlab.classifier(second).fingerprint
    assert len({fingerprint, other, of_second}) == 3


def test_the_tokenizer_is_the_adapters_or_the_bases(zoo, tmp_path):
    base = zoo(task="causal")
    folder = train(base, tmp_path / "adapter")
    plain = rmlab.classifier(folder)
    assert plain.provenance()["tokenizer"] == "base"
    assert plain.provenance()["base"] == str(base)

    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    changed = rmlab.classifier(folder)
    assert changed.provenance()["tokenizer"] == "adapter"
    assert changed.tokenizer.chat_template == TEMPLATE
    assert changed.fingerprint != plain.fingerprint


def test_the_plan_needs_no_weights_of_an_adapter(zoo, tmp_path, main):
    base = zoo(task="causal")
    folder = train(base, tmp_path / "adapter")
    (folder / "adapter_model.safetensors").unlink()
    plans = []
    for model in (base, folder):
        code, out, err = main("score", "mini", model, "--dry-run")
        assert code == 0, err
        plans.append(pd.read_csv(io.StringIO(out)).iloc[0])
    of_base, of_adapter = plans
    columns = ["texts", "tokens"]
    assert of_adapter[columns].equals(of_base[columns])
    assert of_adapter["model"] == "adapter"


def test_an_adapter_of_a_policy_judges_as_its_merged_model_does(zoo, tmp_path):
    """Its answers end where those of the base do, which has a file for that."""
    base = shutil.copytree(zoo(task="causal"), tmp_path / "base")
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    folder = train(base, tmp_path / "adapter", task="CAUSAL_LM")
    whole = tmp_path / "whole"
    unmerged(base, folder, "CAUSAL_LM").merge_and_unload().save_pretrained(whole)
    AutoTokenizer.from_pretrained(base).save_pretrained(whole)
    options = CPU | {"mode": "logprob", "name": "m"}
    judges = [rmlab.judge(path, **options) for path in (folder, whole)]
    responses = rmlab.load("mini").head(6)
    margins = [rmlab.prefer(responses, judge)["margin"] for judge in judges]
    np.testing.assert_allclose(*margins, rtol=0, atol=1e-5)
    local = judges[0].respondent
    assert {*local._ends} >= {2, 7}
    assert local.provenance()["base"] == str(base)


def test_lone_weights_take_configuration_and_tokenizer_from_their_base(zoo, tmp_path):
    whole = zoo(task="causal")
    lone = tmp_path / "lone"
    lone.mkdir()
    shutil.copy(whole / "model.safetensors", lone)
    rewards = rmlab.implicit_reward(lone, base=whole, **CPU)(*TEXTS)
    expected = rmlab.implicit_reward(whole, **CPU)(*TEXTS)
    np.testing.assert_array_equal(rewards, expected)


def test_an_adapter_beside_a_tokenizer_of_its_own_is_one_for_a_server(zoo, tmp_path):
    """Its weights are another machine's; its base need not be here."""
    base = tmp_path / "base"
    shutil.copytree(zoo(task="causal"), base)
    folder = train(base, tmp_path / "adapter")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, folder)
    shutil.rmtree(base)
    assert find(folder, with_weights=False).base == folder


def test_an_adapter_of_an_adapter_is_refused(zoo, tmp_path):
    """The lower one would be lost."""
    base = zoo(task="causal")
    lower = train(base, tmp_path / "lower", task="CAUSAL_LM")
    upper = train(base, tmp_path / "upper", task="CAUSAL_LM", r=2)
    with pytest.raises(DataError, match="merge_and_unload"):
        rmlab.implicit_reward(upper, base=lower)


@pytest.mark.parametrize("tied", [False, True])
def test_the_base_of_resized_embeddings_is_read_from_its_own_file(zoo, tmp_path, tied):
    """Where the adapter has the new rows alone, its base has random ones beside it."""
    base = zoo(task="causal", tie_word_embeddings=tied)
    folder = train(base, tmp_path / "adapter", task="CAUSAL_LM", n_tokens=700)
    path = folder / "adapter_model.safetensors"
    tensors = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in load_file(path).items()
        if ".original_module." not in name
    }
    save_file(tensors, path)
    scorer = rmlab.implicit_reward(folder, **CPU)
    model = unmerged(base, folder, "CAUSAL_LM", n_tokens=700)
    of_policy = log_probs(scorer, model)
    of_base = log_probs(scorer, load(base, "CAUSAL_LM").eval())
    expected = of_policy - of_base
    assert_close(scorer(*TEXTS), expected)


def test_a_policy_that_is_its_own_reference_is_refused(zoo, tmp_path):
    """Every reward would be 0."""
    base = zoo(task="causal")
    folder = train(base, tmp_path / "adapter", task="CAUSAL_LM")
    with pytest.raises(DataError, match="the policy itself"):
        rmlab.implicit_reward(folder, folder)
    model = unmerged(base, folder, "CAUSAL_LM")
    tokenizer = AutoTokenizer.from_pretrained(base)
    for reference in (model, model.get_base_model()):
        with pytest.raises(DataError, match="the policy itself"):
            rmlab.implicit_reward(model, reference, tokenizer=tokenizer)
    anew = load(base, "CAUSAL_LM")
    scorer = rmlab.implicit_reward(model, anew, tokenizer=tokenizer)
    expected = log_probs(scorer, model) - log_probs(scorer, anew.eval())
    assert_close(scorer(*TEXTS), expected)
