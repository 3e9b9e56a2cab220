"""Every weight is used and every weight is there; damaged folders are refused in a
sentence, published ones are not.
"""

import json
import re
import shutil
import struct
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from pairwise_models import save
from safetensors.torch import load_file, save_file
from test_heads import named, publish

from rmlab import toy
from rmlab.scorers import classifier, implicit_reward, pairwise
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?", "Two and two?"]
RESPONSES = ["Paris.", "Four, as everybody knows."]
TEXTS = PROMPTS, RESPONSES


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
        make(folder, **options)(*TEXTS)
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


def test_a_model_of_which_half_is_used_is_refused_by_all(tmp_path):
    folder = configure(toy.save_model(tmp_path / "m"), num_hidden_layers=1)
    assert "used by nothing" in refused(folder)
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
        with_bias = classifier(folder)(*TEXTS)
        weights = load_file(folder / "model.safetensors")
        weights[f"{name}.bias"] += 2.0
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        np.testing.assert_allclose(
            classifier(folder)(*TEXTS), with_bias + 2.0, atol=1e-5
        )


def test_an_unknown_process_reward_model_is_refused_by_its_name(tmp_path):
    head = named(torch.nn.Linear(32, 2), "score.")
    settings = {"architectures": ["Llama31ForPRM"]}
    folder = publish(tmp_path / "m", head, settings=settings)
    assert "Llama31ForPRM" in refused(folder)


METHODS = {
    "bitsandbytes": ("bitsandbytes", {"load_in_4bit": True}),
    "gptq": ("optimum", {"bits": 4, "group_size": 32}),
    "awq": ("gptqmodel", {"bits": 4, "group_size": 32}),
    "torchao": ("torchao", {"quant_type": "int8_weight_only"}),
    "compressed-tensors": ("compressed-tensors", {"format": "int-quantized"}),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", ["classifier", "causal"])
def test_quantized_weights_name_the_package_that_they_need(tmp_path, method, task):
    package, options = METHODS[method]
    if find_spec(package.replace("-", "_")) is not None:
        pytest.skip("it is installed")
    folder = toy.save_model(tmp_path / "m", task=task)
    configure(folder, quantization_config={"quant_method": method, **options})
    message = refused(folder, classifier if task == "classifier" else implicit_reward)
    assert re.search(f"{package}.*quantized by {method}", message)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("task", ["classifier", "causal"])
@torch.no_grad()
def test_quantized_weights_score_as_in_transformers(tmp_path, bits, task):
    pytest.importorskip("bitsandbytes")
    is_classifier = task == "classifier"
    load = transformers.AutoModelForCausalLM.from_pretrained
    if is_classifier:
        load = transformers.AutoModelForSequenceClassification.from_pretrained
    sizes = {"hidden_size": 128, "intermediate_size": 128}
    source = toy.save_model(tmp_path / "m", task=task, **sizes)
    options = {"dtype": torch.float32, "device_map": {"": "cpu"}}
    quantization = transformers.BitsAndBytesConfig(
        **{f"load_in_{bits}bit": True}, bnb_4bit_compute_dtype=torch.float32
    )
    folder = tmp_path / "quantized"
    load(source, quantization_config=quantization, **options).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    model = load(folder, **options).eval()
    scorer = (classifier if is_classifier else implicit_reward)(folder, device="cpu")
    encoded = scorer.prepare(*TEXTS)
    expected = []
    for ids, start in zip(encoded.ids, encoded.response_start, strict=True):
        row = torch.tensor(ids[None].astype(int))
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
    assert np.isfinite(classifier(add(folder, carried))(*TEXTS)).all()


def test_a_second_copy_of_the_backbone_is_let_be(tmp_path):
    """As Starling's file has it under another prefix."""
    head = named(torch.nn.Linear(32, 1, bias=False), "v_head.")
    folder = publish(tmp_path / "m", head, prefix="transformer.")
    before = classifier(folder)(*TEXTS)
    copies = {"model.lm_head.weight": torch.zeros(500, 32)}
    for key, tensor in load_file(folder / "model.safetensors").items():
        if key.startswith("transformer."):
            copies[key.replace("transformer.", "model.model.")] = tensor.clone()
    after = classifier(add(folder, copies))(*TEXTS)
    np.testing.assert_array_equal(after, before)


def header(text):
    return struct.pack("<Q", len(text)) + text.encode()


DEEP = "[" * 100_000
DAMAGE = {
    "configuration null": ("config.json", b"null"),
    "configuration not JSON": ("config.json", b"{"),
    "configuration not UTF-8": ("config.json", b"\xff\xfe\x00"),
    "configuration deep": ("config.json", DEEP.encode()),
    "configuration without a type": ("config.json", b"{}"),
    "index null": ("model.safetensors.index.json", b"null"),
    "index of a missing file": (
        "model.safetensors.index.json",
        b'{"weight_map": {"a": "model-00002-of-00002.safetensors"}}',
    ),
    "header null": ("model.safetensors", header("null")),
    "header not JSON": ("model.safetensors", header("{")),
    "header deep": ("model.safetensors", header(DEEP)),
    "header too long": ("model.safetensors", struct.pack("<Q", 2**60) + b"{}"),
    "weights empty": ("model.safetensors", b""),
    "adapter null": ("adapter_config.json", b"null"),
    "tokenizer configuration null": ("tokenizer_config.json", b"null"),
    "tokenizer null": ("tokenizer.json", b"null"),
}
MESSAGES = {
    "configuration without a type": "architecture None",
    "index of a missing file": "model-00002-of-00002.safetensors",
    "tokenizer configuration null": "tokenizer",
    "tokenizer null": "tokenizer",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_folders_are_refused_in_one_sentence(tmp_path, name):
    file, content = DAMAGE[name]
    folder = toy.save_model(tmp_path / "m")
    if name.startswith("index"):
        shard = folder / "model-00001-of-00001.safetensors"
        (folder / "model.safetensors").rename(shard)
    (folder / file).write_bytes(content)
    assert MESSAGES.get(name, file) in refused(folder)


SETTINGS = [
    {"hidden_size": "wide"},
    {"hidden_size": -4},
    {"num_attention_heads": 0},
    {"num_attention_heads": 5},
    {"num_key_value_heads": 3},
    {"intermediate_size": 7},
    {"vocab_size": 3},
    {"vocab_size": None},
    {"num_labels": 0},
    {"id2label": {}},
    {"num_hidden_layers": "two"},
    {"num_hidden_layers": 2.5},
    {"model_type": 7},
    {"model_type": "bert"},
    {"architectures": [None]},
    {"auto_map": []},
    {"rope_parameters": {"rope_type": "unheard"}},
    {"torch_dtype": "float8_nothing"},
    {"max_position_embeddings": "long"},
    {"hidden_act": "nothing"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_nonsense_in_a_configuration_is_refused_or_changes_nothing(
    tmp_path, zoo, settings
):
    """No error but DataError, and no score but that of the model as it was saved."""
    is_former = transformers.__version__.startswith("4.")
    if "max_position_embeddings" in settings and is_former:
        pytest.skip("transformers before 5 does not look at the type of this setting")
    whole = classifier(zoo())(*TEXTS)
    folder = configure(shutil.copytree(zoo(), tmp_path / "m"), **settings)
    try:
        found = classifier(folder)(*TEXTS)
    except DataError:
        return
    np.testing.assert_allclose(found, whole, atol=1e-5)
