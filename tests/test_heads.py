"""Every head against a hand-written forward of a tiny checkpoint in its published
layout.
"""

import json

import numpy as np
import pytest
import torch
from as_alone import EAGER
from safetensors.torch import load_file, save_file
from torch import nn

from rmlab import toy
from rmlab.scorers.classifier import classifier
from rmlab.scorers.models.heads import choose
from rmlab.tables import DataError

HIDDEN = 32
TURNS = [("user", "Add two numbers."), ("assistant", "7 + 8 = 15"), ("user", "Why?")]
PROMPTS = ["What is the capital of France?"] * 2 + [
    [{"role": role, "content": text} for role, text in TURNS]
]
RESPONSES = [
    "Paris, a city on the river Seine.",
    "I am sorry, no.",
    "Because 7 + 8 = 15, and twice 15 is 30.",
]
TEXTS = PROMPTS, RESPONSES


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def publish(
    folder,
    head,
    *,
    architecture="llama",
    prefix="model.",
    settings=None,
    pickled=False,
    shards=1,
    words=None,
):
    """A checkpoint with the backbone's weights under `prefix`, beside them the weights
    of `head`.
    """
    toy.save_model(folder, architecture, task="backbone", seed=3, words=words)
    path = folder / "model.safetensors"
    weights = {f"{prefix}{key}": tensor for key, tensor in load_file(path).items()}
    weights |= head
    path.unlink()
    keys = sorted(weights)
    if pickled:
        torch.save(weights, folder / "model.pt")
    elif shards == 1:
        save_file(weights, path, metadata={"format": "pt"})
    else:
        index = {}
        for i in range(shards):
            name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            part = {key: weights[key] for key in keys[i::shards]}
            save_file(part, folder / name, metadata={"format": "pt"})
            index |= dict.fromkeys(part, name)
        content = json.dumps({"metadata": {}, "weight_map": index})
        (folder / "model.safetensors.index.json").write_text(content)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | (settings or {})))
    return folder


def named(module, prefix):
    """The weights of a torch module with random values under their published names."""
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.normal_(0, 0.3)
            if tensor.ndim == 1:
                tensor.abs_().add_(0.5)
    return {
        f"{prefix}{key}": tensor.clone() for key, tensor in module.state_dict().items()
    }


def chats():
    """Each conversation before its answer, and with it."""
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        chat = prompt
        if isinstance(prompt, str):
            chat = [{"role": "user", "content": prompt}]
        yield chat, [*chat, {"role": "assistant", "content": response}]


@torch.no_grad()
def walk(folder, backbone, find, end=None):
    """Hidden states of each conversation alone through the backbone, at the places of
    `find(words, ids, chat)`.
    """
    from transformers import PreTrainedTokenizerFast

    # AutoTokenizer makes a Qwen2Tokenizer for qwen2, which does not follow the file
    # (tests/test_checkpoint.py).
    words = PreTrainedTokenizerFast.from_pretrained(folder)
    found = []
    for chat, whole in chats():
        ids = words.apply_chat_template(whole, return_dict=False)
        places = find(words, ids, chat)
        if end is not None:
            ids = [*ids, end]
        rows = backbone(input_ids=torch.tensor([ids])).last_hidden_state[0]
        found.append(rows[places])
    return torch.stack(found)


def states(folder, architecture="llama", end=None, header=False):
    """Hidden states of the reference: last token, or prompt's last."""
    from transformers import AutoModel

    backbone = toy.save_model(
        folder.parent / "reference", architecture, task="backbone", seed=3
    )
    backbone = AutoModel.from_pretrained(backbone, **EAGER).eval()

    def find(words, ids, chat):
        if header:
            return len(words.apply_chat_template(chat, return_dict=False)) - 1
        return -1

    return walk(folder, backbone, find, end)


def scores(folder, **options):
    return classifier(folder, **options)(*TEXTS)


def same(found, expected):
    expected = expected.detach().double().flatten().numpy()
    assert expected.std() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


GATING = ["regression_layer.weight", "gating.layers.0.weight"]
KEYS = {
    "labels": ["model.norm.weight", "score.weight"],
    "score_stack": ["score.0.weight", "score.2.weight"],
    "value_stack": ["v_head.summary.0.weight"],
    "gating": [*GATING, "reward_transform_matrix"],
}


@pytest.mark.parametrize("name", KEYS)
def test_a_published_head_is_found_by_its_keys(name):
    assert choose(KEYS[name], {}).name == name
    # A language model alone is not a reward model.
    assert choose(["lm_head.weight"], {}).name == "labels"
    assert choose(GATING, {"num_quantiles": 19}).name == "quantiles"


def test_an_unknown_head_and_one_that_is_not_there_are_refused():
    for name, message in {"valu": "did you mean 'value'", "value": "v_head"}.items():
        with pytest.raises(DataError, match=message):
            choose(["score.weight"], {}, name)


EURUS = {"architectures": ["EurusRewardModel"]}
INTERNLM = {"architectures": ["InternLM2ForRewardModel"], "reward_token_id": 5}


@pytest.mark.parametrize(
    ("head", "architecture", "end", "options"),
    [
        ("regression_head", "mistral", None, {"settings": EURUS}),
        ("regression_head", "mistral", None, {"settings": EURUS, "shards": 3}),
        ("value_head", "llama", None, {}),
        ("reward_head", "qwen2", None, {}),
        ("v_head", "llama", None, {"prefix": "transformer."}),
        ("v_head", "llama", 5, {"settings": INTERNLM}),
    ],
    ids=[
        "Eurus and UltraRM",
        "in shards",
        "OpenRLHF",
        "OpenRLHF by another name",
        "Starling with another prefix",
        "InternLM2 appends its reward token",
    ],
)
def test_a_linear_head(tmp_path, head, architecture, end, options):
    layer = nn.Linear(HIDDEN, 1, bias=False)
    folder = publish(
        tmp_path / "m", named(layer, f"{head}."), architecture=architecture, **options
    )
    same(scores(folder), layer(states(folder, architecture, end=end)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["v_head", "score"])
def test_shards_that_the_index_does_not_name_are_not_read(tmp_path, name, dtype):
    layer = nn.Linear(HIDDEN, 1, bias=False)
    stale = tmp_path / "m" / "model-00009-of-00009.safetensors"
    settings = {"id2label": {"0": "score"}}
    folder = publish(
        tmp_path / "m", named(layer, f"{name}."), shards=3, settings=settings
    )
    expected = scores(folder, dtype=dtype)
    # Of the same head, and of one that would come first.
    for key in (f"{name}.weight", "v_head.weight"):
        save_file({key: torch.ones(1, HIDDEN)}, stale)
        np.testing.assert_array_equal(scores(folder, dtype=dtype), expected)


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("name", ["v_head", "score"])
def test_names_that_wrappers_of_torch_have_changed(tmp_path, name, wrapper):
    """As torch saves what DistributedDataParallel or torch.compile has wrapped; the
    configuration says nothing of labels.
    """
    layer = nn.Linear(HIDDEN, 1, bias=False)
    folder = publish(
        tmp_path / "m", named(layer, f"{wrapper}{name}."), prefix=f"{wrapper}model."
    )
    same(scores(folder), layer(states(folder)))


HEADS_OF_SEVERAL = {
    "v_head": nn.Linear(HIDDEN, 5, bias=False),
    "regression_head": nn.Linear(HIDDEN, 3, bias=False),
    "v_head.summary": nn.Sequential(nn.Linear(HIDDEN, 16), nn.ReLU(), nn.Linear(16, 2)),
}


@pytest.mark.parametrize("name", HEADS_OF_SEVERAL)
def test_several_outputs_need_weights(tmp_path, name):
    head = HEADS_OF_SEVERAL[name]
    folder = publish(tmp_path / "m", named(head, f"{name}."))
    with pytest.raises(DataError, match="weighted sum"):
        classifier(folder)
    outputs = head(states(folder))
    weights = [1.0, -0.5, 2.0, 0.0, 0.25][: outputs.shape[1]]
    same(scores(folder, weights=weights), outputs @ torch.tensor(weights))
    same(scores(folder, weights={"1": 1.0}), outputs[:, 1])
    with pytest.raises(DataError, match="give one for each"):
        classifier(folder, weights=[1.0] * 9)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "bert"])
def test_a_token_classifier_of_one_label_is_read_at_the_last_token(
    tmp_path, architecture
):
    """One of two labels is a process reward model, and said to be one."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    folder = toy.save_model(tmp_path / "m", architecture, task="backbone")
    words = AutoTokenizer.from_pretrained(folder)
    load = AutoModelForTokenClassification.from_pretrained
    two = toy.models.write_model(load(folder, num_labels=2), words, tmp_path / "two")
    with pytest.raises(DataError, match="process reward models"):
        classifier(two, weights=[1.0, 0.0])

    model = load(folder, num_labels=1).eval()
    head = model.score if architecture == "llama" else model.classifier
    for weight in head.parameters():
        weight.data.normal_()
    scorer = classifier(toy.models.write_model(model, words, tmp_path / "one"))
    logits = []
    for ids in scorer.prepare(*TEXTS).ids:
        row = torch.tensor(ids[None].astype(int))
        logits.append(model(input_ids=row).logits[0, -1, 0])
    same(scorer(*TEXTS), torch.stack(logits))
    same(classifier(model, words)(*TEXTS), torch.stack(logits))


def test_starling_as_a_pickle_is_read_only_when_allowed(tmp_path):
    layer = nn.Linear(HIDDEN, 1, bias=False)
    folder = publish(
        tmp_path / "m",
        named(layer, "v_head."),
        prefix="transformer.",
        pickled=True,
    )
    with pytest.raises(DataError, match=r"pickles \(model.pt\).*allow_pickle=True"):
        classifier(folder)
    same(scores(folder, allow_pickle=True), layer(states(folder)))


def test_a_pickle_with_more_than_weights_is_refused(tmp_path):
    folder = publish(tmp_path / "m", {})
    (folder / "model.safetensors").unlink()
    torch.save(
        {"v_head.weight": torch.ones(1, HIDDEN), "run": print},
        folder / "pytorch_model.bin",
    )
    with pytest.raises(DataError, match="more than plain weights"):
        classifier(folder, allow_pickle=True)


CODE = """
from transformers import LlamaConfig, LlamaModel, PreTrainedModel
from torch import nn

class StandInConfig(LlamaConfig):
    model_type = "internlm2"

class StandInForRewardModel(PreTrainedModel):
    config_class = StandInConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.v_head = nn.Linear(config.hidden_size, 1, bias=False)
        self.post_init()
"""


def test_an_architecture_that_comes_as_code_runs_only_when_trusted(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    layer = nn.Linear(HIDDEN, 1, bias=False)
    settings = {
        "model_type": "internlm2",
        "architectures": ["StandInForRewardModel"],
        "reward_token_id": 5,
        "auto_map": {
            "AutoConfig": "stand_in.StandInConfig",
            "AutoModel": "stand_in.StandInForRewardModel",
        },
    }
    folder = publish(tmp_path / "m", named(layer, "v_head."), settings=settings)
    (folder / "stand_in.py").write_text(CODE)
    with pytest.raises(DataError, match=r"'internlm2'.*trust_remote_code=True"):
        scores(folder)
    # The reference's tokenizer would ask for the code too; the same weights lie in a
    # plain Llama folder.
    plain = publish(tmp_path / "plain", {}, settings={})
    same(scores(folder, trust_remote_code=True), layer(states(plain, end=5)))


MOMENTS = {"mean": 0.7, "var": 2.5}


@pytest.mark.parametrize("kind", ["reward", "cost"])
@pytest.mark.parametrize("place", [None, "weights", "configuration"])
def test_beaver(tmp_path, kind, place):
    """Normalised by nothing, or by moments in either place."""
    layer = nn.Linear(HIDDEN, 1, bias=True)
    head = named(layer, "score_head.")
    settings = {"architectures": ["LlamaForScore"], "score_type": kind}
    settings["do_normalize"] = place is not None
    if place == "configuration":
        settings |= {name: [value] for name, value in MOMENTS.items()}
    else:
        for name, value in MOMENTS.items():
            head[f"normalizer.{name}"] = torch.tensor([value])
        head["normalizer.count"] = torch.tensor([9])
    folder = publish(tmp_path / "m", head, settings=settings)
    expected = layer(states(folder))
    if place and kind == "reward":
        expected = expected - MOMENTS["mean"]
    if place:
        expected = expected / MOMENTS["var"] ** 0.5
    same(scores(folder), -expected if kind == "cost" else expected)


def stack(depth):
    parts = []
    for width in [HIDDEN, 16][:depth]:
        parts += [nn.Linear(width, 16), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(16, 1)) if depth else nn.Linear(HIDDEN, 1)


@pytest.mark.parametrize(
    ("name", "depth", "architecture"),
    [
        ("v_head.summary.", 0, "gemma2"),
        ("v_head.summary.", 1, "gemma2"),
        ("v_head.summary.", 2, "llama"),
        ("score.", 1, "llama"),
        ("score.", 1, "qwen2"),
    ],
)
def test_grm_inf_orm_and_world_pm(tmp_path, name, depth, architecture):
    head = stack(depth)
    folder = publish(tmp_path / "m", named(head, name), architecture=architecture)
    same(scores(folder), head(states(folder, architecture)))


def gating_layers(norm, dropout=None):
    """ArmoRM: a list of linear layers. QRM: linear without bias, ReLU, batch norm,
    three times, then linear.
    """
    if not norm:
        return nn.ModuleList(
            [nn.Linear(HIDDEN, 24), nn.Linear(24, 24), nn.Linear(24, 5)]
        ).eval()
    between = [] if dropout is None else [nn.Dropout(dropout)]
    blocks = [
        (nn.Linear(n, 24, bias=False), nn.ReLU(), nn.BatchNorm1d(24), *between)
        for n in (HIDDEN, 24, 24)
    ]
    wide = [part for block in blocks for part in block][: 11 if between else 9]
    return nn.ModuleList([*wide, nn.Linear(24, 5)]).eval()


@pytest.mark.parametrize("quantiles", [None, 4])
def test_armo_rm_and_qrm(tmp_path, quantiles):
    gate, regression = (
        gating_layers(quantiles is not None),
        nn.Linear(HIDDEN, 5 * (quantiles or 1), bias=False),
    )
    head = named(gate, "gating.layers.") | named(regression, "regression_layer.")
    transform = torch.randn(5, 5)
    head |= {
        "reward_transform_matrix": transform,
        "gating.logit_scale": torch.tensor([1.5]),
    }
    settings = {"num_objectives": 5, "gating_temperature": 10} | (
        {"num_quantiles": quantiles} if quantiles else {}
    )
    folder = publish(tmp_path / "m", head, settings=settings)
    x = states(folder, header=True)
    for i, part in enumerate(gate):
        x = part(x)
        if quantiles is None and i < len(gate) - 1:
            x = torch.relu(x)
    mix = torch.softmax(x / 10, 1) * 1.5
    objectives = regression(states(folder))
    if quantiles:
        objectives = objectives.reshape(3, 5, quantiles).mean(2)
    same(scores(folder), (mix * (objectives @ transform)).sum(1))


GEMMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + (m['role'] if "
    "m['role'] == 'user' else 'model') }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def test_qrm_gemma_reads_its_gate_where_the_turn_ends(tmp_path):
    """Its template writes a line break behind the end of a turn. No matrix, dropouts in
    the gate, temperature 1.
    """
    from transformers import AutoModel

    words = toy.tokenizer(chat_template=GEMMA)
    words.add_special_tokens(
        {"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]}
    )
    gate = nn.Sequential(
        *gating_layers(norm=True, dropout=0.2)
    ).eval()  # linear 0, 4, 8, 11; norm 2, 6, 10
    regression = nn.Linear(HIDDEN, 5 * 4, bias=False)
    head = named(gate, "gating.layers.") | named(regression, "regression_layer.")
    folder = publish(
        tmp_path / "m",
        head,
        settings={"num_objectives": 5, "num_quantiles": 4},
        words=words,
    )

    def gate_and_last(words, ids, chat):
        """Where the last header begins, and the end of the text."""
        header = words.encode(
            "<end_of_turn>\n<start_of_turn>model\n", add_special_tokens=False
        )
        return [
            max(i for i in range(len(ids)) if ids[i : i + len(header)] == header),
            -1,
        ]

    at_gate, last = walk(
        folder, AutoModel.from_pretrained(folder).eval(), gate_and_last
    ).unbind(1)
    objectives = regression(last).reshape(3, 5, 4).mean(2)
    same(scores(folder), (torch.softmax(gate(at_gate), 1) * objectives).sum(1))


def test_a_gating_head_needs_the_header_it_reads_before(tmp_path):
    gate, regression = gating_layers(False), nn.Linear(HIDDEN, 5, bias=False)
    head = named(gate, "gating.layers.") | named(regression, "regression_layer.")
    folder = publish(tmp_path / "m", head | {"reward_transform_matrix": torch.eye(5)})
    with pytest.raises(DataError, match="leave template out"):
        scores(folder, template="raw")


@pytest.mark.parametrize("gated", [False, True])
def test_urm(tmp_path, gated):
    score = nn.Linear(HIDDEN, 10)
    gate = nn.Sequential(
        nn.Linear(HIDDEN, HIDDEN),
        nn.SELU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.SELU(),
        nn.Linear(HIDDEN, 5),
    )
    head = named(score, "score.") | (named(gate, "weights.fc.") if gated else {})
    folder = publish(
        tmp_path / "m",
        head,
        settings={"architectures": ["LlamaForSequenceClassification"]},
    )
    x = states(folder)
    means = score(x)[:, :5]
    expected = (means * gate(x)).sum(1) if gated else means.mean(1)
    same(scores(folder, head=None if gated else "attribute_means"), expected)


def test_nemotron_reads_the_first_logit_of_the_next_token(tmp_path):
    from transformers import AutoModelForCausalLM

    options = {"task": "causal", "seed": 3, "tie_word_embeddings": False}
    folder = toy.save_model(tmp_path / "m", "llama", **options)
    scorer = classifier(folder, head="first_logit")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    logits = []
    for ids in scorer.prepare(*TEXTS).ids:
        row = torch.tensor(ids[None].astype(int))
        logits.append(model(row).logits[0, -1, 0])
    same(scorer(*TEXTS), torch.stack(logits))


@pytest.mark.parametrize("prefix", ["regression_head.", "score."])
def test_a_head_stored_in_float32_is_not_rounded_by_a_half_precision_backbone(
    tmp_path, prefix
):
    """Read apart from the class, or by the class itself."""
    layer = nn.Linear(HIDDEN, 1, bias=False)
    settings = {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}
    folder = publish(tmp_path / "m", named(layer, prefix), settings=settings)
    head = classifier(folder, dtype="bfloat16")
    run = head.readout.head
    rows = torch.randn(4, 1, HIDDEN)
    assert head.backbone.model.dtype == torch.bfloat16
    assert run(rows).dtype == torch.float32
    torch.testing.assert_close(run(rows), layer(rows[:, 0]))
