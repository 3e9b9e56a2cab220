"""Every weight is used and every weight is there; damaged folders are refused in a
sentence, published ones are not.
"""

import json
import shutil
import struct
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from fakes import toy_responses
from pairwise_models import save, save_pairrm
from safetensors.torch import load_file, save_file
from test_heads import named, publish
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from rmlab import toy
from rmlab.checks import doctor
from rmlab.scorers import classifier, implicit_reward, pairwise
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?", "Two and two?"]
RESPONSES = ["Paris.", "Four, as everybody knows."]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def configure(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    return folder


def add(folder, weights):
    path = folder / "model.safetensors"
    save_file(load_file(path) | weights, path)
    return folder


def refused(folder, make=classifier, **options):
    """The message with which a model is refused, at once or when its first text is
    scored.
    """
    with pytest.raises(DataError) as caught:
        make(folder, **options)(PROMPTS, RESPONSES)
    return str(caught.value)


@pytest.mark.parametrize(
    "architecture", ["llama", "gpt_neox", "gpt2", "bert", "modernbert", "deberta-v2"]
)
@pytest.mark.parametrize("pickled", [False, True])
def test_more_layers_than_the_configuration_names(tmp_path, architecture, pickled):
    folder = toy.save_model(tmp_path / "m", architecture, num_labels=1)
    if pickled:
        torch.save(
            load_file(folder / "model.safetensors"), folder / "pytorch_model.bin"
        )
        (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    key = "n_layer" if "n_layer" in config else "num_hidden_layers"
    settings = {key: config[key] - 1}
    if config.get("layer_types"):
        settings["layer_types"] = config["layer_types"][:-1]
    message = refused(configure(folder, **settings), allow_pickle=pickled)
    assert "weights of the checkpoint are used by nothing" in message
    assert "num_hidden_layers" in message


def test_a_model_of_which_half_is_used_is_refused_by_all_and_failed_by_the_doctor(
    tmp_path,
):
    folder = configure(toy.save_model(tmp_path / "m"), num_hidden_layers=1)
    report = doctor(folder, toy_responses(prompts=3, slots=1))
    assert report["status"].tolist() == ["fail"]
    assert "used by nothing" in report.loc[0, "found"]
    policy = configure(
        toy.save_model(tmp_path / "policy", task="causal"), num_hidden_layers=1
    )
    assert "used by nothing" in refused(policy, implicit_reward)
    for kind in ("letters", "pairrm"):
        judge = pairwise(configure(save(kind, tmp_path / kind), num_hidden_layers=1))
        with pytest.raises(DataError, match=r"used by nothing .* num_hidden_layers"):
            judge.prefer(PROMPTS, RESPONSES, RESPONSES[::-1])


def test_a_head_s_bias_is_never_dropped(tmp_path):
    """transformers would drop score.bias; of the heads that rmlab knows, the bias is
    part or the model is refused.
    """
    assert "score.bias" in refused(
        add(toy.save_model(tmp_path / "labels"), {"score.bias": torch.ones(1)})
    )
    layer = torch.nn.Linear(32, 1)
    for name in ("v_head", "regression_head", "score_head"):
        folder = publish(tmp_path / name, named(layer, f"{name}."))
        with_bias = classifier(folder)(PROMPTS, RESPONSES)
        weights = load_file(folder / "model.safetensors")
        weights[f"{name}.bias"] += 2.0
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        np.testing.assert_allclose(
            classifier(folder)(PROMPTS, RESPONSES), with_bias + 2.0, atol=1e-5
        )


@pytest.mark.parametrize("make", [classifier, implicit_reward, pairwise])
def test_an_unknown_process_reward_model_is_refused_by_its_name(tmp_path, make):
    head = torch.nn.Linear(32, 2)
    settings = {"architectures": ["Llama31ForPRM"]}
    folder = publish(tmp_path / "m", named(head, "score."), settings=settings)
    policy = toy.save_model(tmp_path / "policy", task="causal")
    for load in (lambda: make(folder), lambda: implicit_reward(policy, folder)):
        with pytest.raises(DataError, match="Llama31ForPRM"):
            load()


METHODS = {
    "bitsandbytes": {"load_in_4bit": True},
    "gptq": {"bits": 4, "group_size": 32},
    "awq": {"bits": 4, "group_size": 32},
    "torchao": {"quant_type": "int8_weight_only"},
    "compressed-tensors": {
        "format": "int-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int"},
            }
        },
    },
}


PACKAGES = {"gptq": "optimum", "awq": "gptqmodel"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", ["classifier", "causal"])
def test_quantized_weights_name_the_package_that_they_need(tmp_path, method, task):
    package = PACKAGES.get(method, method)
    if find_spec(package.replace("-", "_")) is not None:
        pytest.skip("it is installed")
    folder = toy.save_model(tmp_path / "m", task=task)
    settings = {"quant_method": method, **METHODS[method]}
    configure(folder, quantization_config=settings)
    make = classifier if task == "classifier" else implicit_reward
    with pytest.raises(DataError, match=f"{package}.*quantized by {method}"):
        make(folder)(PROMPTS, RESPONSES)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("task", ["classifier", "causal"])
def test_quantized_weights_score_as_in_transformers(tmp_path, bits, task):
    pytest.importorskip("bitsandbytes")
    from transformers import BitsAndBytesConfig

    is_classifier = task == "classifier"
    model_class = AutoModelForCausalLM
    if is_classifier:
        model_class = AutoModelForSequenceClassification
    sizes = {"hidden_size": 128, "intermediate_size": 128}
    source = toy.save_model(tmp_path / "m", task=task, **sizes)
    options = {"dtype": torch.float32, "device_map": {"": "cpu"}}
    quantization = BitsAndBytesConfig(
        **{f"load_in_{bits}bit": True}, bnb_4bit_compute_dtype=torch.float32
    )
    model = model_class.from_pretrained(
        source, quantization_config=quantization, **options
    )
    folder = tmp_path / "quantized"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    model = model_class.from_pretrained(folder, **options).eval()
    scorer = (classifier if is_classifier else implicit_reward)(folder, device="cpu")
    encoded = scorer.prepare(PROMPTS, RESPONSES)
    expected = []
    for ids, start in zip(encoded.ids, encoded.response_start, strict=True):
        row = torch.tensor(ids[None].astype(int))
        with torch.no_grad():
            logits = model(input_ids=row).logits[0]
        if not is_classifier:
            log_probs = logits.log_softmax(-1)[:-1].gather(1, row[0, 1:, None])
            logits = log_probs[start - 1 :].mean()
        expected.append(logits.item())
    found = scorer.forward_alone(encoded, np.arange(len(PROMPTS)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.std(expected))


EMBEDDING = {"lm_head.weight": (500, 32)}
ROTARY = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": (4,) for i in range(2)}
# What published checkpoints carry along beside the weights that are read: the shapes of
# further weights.
CARRIED = {
    "Beaver's age: rotary buffers and a language model's head": (
        "llama",
        ROTARY | EMBEDDING,
    ),
    "Pythia: masks as buffers": (
        "gpt_neox",
        {
            "gpt_neox.layers.0.attention.bias": (1, 1, 8, 8),
            "gpt_neox.layers.0.attention.masked_bias": (1,),
        }
        | {
            "gpt_neox.layers.1.attention.rotary_emb.inv_freq": (4,),
            "embed_out.weight": (500, 32),
        },
    ),
    "BERT: position ids and the heads of pretraining": (
        "bert",
        {
            "bert.embeddings.position_ids": (1, 9),
            "cls.predictions.bias": (9,),
            "cls.seq_relationship.bias": (2,),
        },
    ),
    "DeBERTa v3: positions and the heads of pretraining": (
        "deberta-v2",
        {
            "deberta.embeddings.position_embeddings.weight": (9, 32),
            "mask_predictions.dense.bias": (9,),
        }
        | {"lm_predictions.lm_head.bias": (9,)},
    ),
    "ModernBERT: the bias of pretraining": ("modernbert", {"decoder.bias": (9,)}),
    "GPT-2: masks as buffers": (
        "gpt2",
        {
            "transformer.h.0.attn.bias": (1, 1, 8, 8),
            "transformer.h.1.attn.masked_bias": (1,),
        }
        | EMBEDDING,
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_published_checkpoints_carry_along_is_let_be(tmp_path, name):
    architecture, shapes = CARRIED[name]
    settings = {"position_biased_input": False} if architecture == "deberta-v2" else {}
    folder = toy.save_model(tmp_path / "m", architecture, **settings)
    carried = {key: torch.ones(shape) for key, shape in shapes.items()}
    assert np.isfinite(classifier(add(folder, carried))(PROMPTS, RESPONSES)).all()


def test_what_published_heads_carry_along_is_let_be(tmp_path):
    linear = torch.nn.Linear(32, 1, bias=False)
    grm = torch.nn.Sequential(
        torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    embedding = torch.zeros(500, 32)
    starling = publish(
        tmp_path / "starling", named(linear, "v_head."), prefix="transformer."
    )
    backbone = {
        key: tensor
        for key, tensor in load_file(starling / "model.safetensors").items()
        if "v_head" not in key
    }
    copies = {
        key.replace("transformer.", "model.model."): tensor.clone()
        for key, tensor in backbone.items()
    }
    folders = [
        add(starling, copies | {"model.lm_head.weight": embedding})
    ]  # the backbone twice
    folders.append(
        add(
            publish(tmp_path / "grm", named(grm, "v_head.summary.")),
            {"lm_head.weight": embedding},
        )
    )
    for folder in folders:
        assert np.isfinite(classifier(folder)(PROMPTS, RESPONSES)).all(), folder.name
    folder, _, _ = save_pairrm(tmp_path / "pairrm")
    assert np.isfinite(
        pairwise(folder).prefer(PROMPTS, RESPONSES, ["No.", "Five."])
    ).all()
    policy = add(
        toy.save_model(tmp_path / "dpo", task="causal"),
        {"model.rotary_emb.inv_freq": torch.ones(4)},
    )
    assert np.isfinite(implicit_reward(policy)(PROMPTS, RESPONSES)).all()


def header(text):
    return struct.pack("<Q", len(text)) + text.encode()


CONFIGURATIONS = {
    "null": b"null",
    "list": b"[1]",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe\x00",
}
CONFIGURATIONS |= {"deep": b"[" * 100_000}
HEADERS = {
    "list": "[]",
    "null": "null",
    "numbers": '{"a": 1}',
    "not JSON": "{",
    "deep": "[" * 100_000,
}
HEADERS |= {
    "no shape": '{"a": {"data_offsets": [0, 0]}}',
    "words": '{"a": {"shape": ["x"], "data_offsets": [0, 0]}}',
}
DAMAGE = {
    **{
        f"configuration {kind}": ("config.json", content, "config.json")
        for kind, content in CONFIGURATIONS.items()
    },
    "configuration without a type": ("config.json", b"{}", "architecture None"),
    **{
        f"index {kind}": ("model.safetensors.index.json", kind.encode(), "index.json")
        for kind in ("{}", "null")
    },
    "index of a list": (
        "model.safetensors.index.json",
        b'{"weight_map": []}',
        "index.json",
    ),
    **{
        f"header {kind}": ("model.safetensors", header(text), "model.safetensors")
        for kind, text in HEADERS.items()
    },
    "header too long": (
        "model.safetensors",
        struct.pack("<Q", 2**60) + b"{}",
        "model.safetensors",
    ),
    "weights empty": ("model.safetensors", b"", "model.safetensors"),
    "adapter null": ("adapter_config.json", b"null", "adapter_config"),
    "tokenizer configuration null": ("tokenizer_config.json", b"null", "tokenizer"),
    "tokenizer null": ("tokenizer.json", b"null", "tokenizer"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_folders_are_refused_in_one_sentence(tmp_path, name):
    file, content, message = DAMAGE[name]
    folder = toy.save_model(tmp_path / "m")
    if name.startswith("index"):
        shard = folder / "model-00001-of-00001.safetensors"
        (folder / "model.safetensors").rename(shard)
    (folder / file).write_bytes(content)
    assert message in refused(folder)


NONSENSE = {
    "hidden_size": ["wide", -4],
    "num_attention_heads": [0, 10**9, 5],
    "vocab_size": [3, None],
}
NONSENSE |= {
    "num_labels": [0],
    "num_hidden_layers": ["two", 2.5, None],
    "id2label": [{}],
    "model_type": [7, "bert"],
}
NONSENSE |= {
    "architectures": ["LlamaModel", [None], 3],
    "auto_map": [[], "x"],
    "num_key_value_heads": [3],
}
NONSENSE |= {
    "rope_parameters": [{"rope_type": "unheard"}],
    "intermediate_size": [7],
    "torch_dtype": ["float8_nothing"],
}
NONSENSE |= {"max_position_embeddings": ["long"], "hidden_act": ["nothing"]}
SETTINGS = [{key: value} for key, values in NONSENSE.items() for value in values]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_nonsense_in_a_configuration_is_refused_or_changes_nothing(
    tmp_path, zoo, settings
):
    """No error but DataError, and no score but that of the model as it was saved."""
    is_former = transformers.__version__.startswith("4.")
    if "max_position_embeddings" in settings and is_former:
        pytest.skip("transformers before 5 does not look at the type of this setting")
    whole = classifier(zoo())(PROMPTS, RESPONSES)
    folder = configure(shutil.copytree(zoo(), tmp_path / "m"), **settings)
    try:
        found = classifier(folder)(PROMPTS, RESPONSES)
    except DataError:
        return
    np.testing.assert_allclose(found, whole, atol=1e-5)


PUBLISHED_CLASSES = [
    *(f"{name}ForRewardModel" for name in ("InternLM2", "Qwen2")),
    *(f"{name}ForSequenceClassification" for name in ("INFORM", "DebertaV2")),
    *(
        "LlamaForRewardModelWithGating",
        "LlamaForScore",
        "GPTNeoXRewardModel",
        "LlamaForCausalLM",
    ),
]


@pytest.mark.parametrize("name", PUBLISHED_CLASSES)
def test_published_reward_models_are_not_taken_for_process_reward_models(
    tmp_path, name
):
    assert (
        classifier(configure(toy.save_model(tmp_path / "m"), architectures=[name])).name
        == "m"
    )
