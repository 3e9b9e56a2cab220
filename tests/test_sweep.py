"""Every architecture that transformers can classify with, in float32: each text as
transformers scores it alone.
"""

import copy
import json

import numpy as np
import pytest
import torch
from as_alone import EAGER
from test_template import encoder_words

from rmlab import toy
from rmlab.scorers import classifier
from rmlab.tables import DataError

TOLERANCE = 1e-5
"""Of the scores' standard deviation."""

_WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_LONG = {"max_position_embeddings": 4096}
_ENCODER = _WIDTH | _LONG | {"intermediate_size": 48}
_DECODER = _ENCODER | {"num_key_value_heads": 2}
_HEADS, _WINDOW, _SCALE = (
    {"head_dim": 8},
    {"sliding_window": 16},
    {"query_pre_attn_scalar": 8},
)
_EXPERTS = {
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 4096}
_RELATIVE = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": 64,
}
_LOCAL = {
    "local_attention": 16,
    "global_attn_every_n_layers": 2,
    "num_hidden_layers": 4,
}
_MAMBA = {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "mamba_d_state": 4,
}
_MAMBA |= {"mamba_dt_rank": 4, "use_mamba_kernels": False}
_CHUNKS = {"lsh_attn_chunk_length": 16, "local_attn_chunk_length": 16, "num_buckets": 4}
_LAYERS = {"num_layers": 2, "num_heads": 4}
_D_MODEL = {"d_model": 32, "n_head": 4, "d_inner": 48}


def _by_name(*groups):
    """The sizes of each architecture; those of a group have the same."""
    return {
        architecture: sizes for names, sizes in groups for architecture in names.split()
    }


DECODERS = _by_name(
    ("llama arcee qwen2 phi phi3 olmo2 stablelm nemotron smollm3 diffllama", _DECODER),
    ("qwen3 gemma glm4 seed_oss helium", _DECODER | _HEADS),
    ("mistral ministral", _DECODER | _HEADS | _WINDOW),
    ("mixtral", _DECODER | _EXPERTS),
    ("qwen3_moe", _DECODER | _HEADS | _EXPERTS),
    ("gemma2 gemma3_text", _DECODER | _HEADS | _SCALE | _WINDOW),
    ("olmo3 starcoder2", _DECODER | _WINDOW),
    ("gpt_oss", _DECODER | _HEADS | _EXPERTS | _WINDOW),
    ("persimmon gpt_neox biogpt", _ENCODER),
    ("gpt2 gpt_bigcode", _GPT2),
    ("gptj", _GPT2 | {"rotary_dim": 4}),
    ("ctrl", _GPT2 | {"dff": 48}),
    (
        "gpt_neo",
        _WIDTH
        | _LONG
        | _LAYERS
        | {"attention_types": [[["global", "local"], 1]], "window_size": 16},
    ),
    ("opt", _WIDTH | _LONG | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    ("falcon", _WIDTH),
    ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}),
    ("modernbert-decoder", _DECODER | _LOCAL),
    ("jamba", _DECODER | _MAMBA | {"num_hidden_layers": 4, "num_experts": 2}),
)
ENCODERS = _by_name(
    ("bert roberta xlm-roberta mpnet fnet nomic_bert", _ENCODER),
    ("electra convbert roformer", _ENCODER | {"embedding_size": 32}),
    ("albert", _ENCODER | {"embedding_size": 16}),
    ("deberta", _ENCODER | _RELATIVE),
    (
        "deberta-v2",
        _ENCODER | _RELATIVE | {"position_buckets": 32, "max_relative_positions": -1},
    ),
    ("modernbert", _ENCODER | _LOCAL | {"reference_compile": False}),
    ("distilbert", _LONG | {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    ("funnel", _D_MODEL | {"d_head": 8, "block_sizes": [1, 1]}),
    (
        "longformer",
        _ENCODER | {"attention_window": 16, "max_position_embeddings": 4098},
    ),
    (
        "big_bird",
        _ENCODER
        | {"attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 1},
    ),
    ("rembert", _ENCODER | {"input_embedding_size": 32, "output_embedding_size": 32}),
    ("eurobert", _DECODER),
    ("xlm", _LONG | {"emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    (
        "canine",
        _ENCODER
        | {
            "downsampling_rate": 4,
            "num_hash_buckets": 64,
            "local_transformer_stride": 16,
        },
    ),
    ("xlnet", _D_MODEL | {"n_layer": 2}),
)
QUICK = ["llama", "gpt2", "gemma2", "qwen3", "modernbert", "jamba"]
"""The most different ways of positions, windows, directions and state; `make test-long`
runs all of them.
"""
REFUSED = {
    "albert": "reads neither the first nor the last token",
    "eurobert": "reads neither the first nor the last token",
    "canine": (
        r"CanineForSequenceClassification gives short texts other logits .* standard "
        r"deviations"
    ),
}
"""With a sentence, since what their classes read is not known here, or not what their
backbones give out.
"""


def conversations(n_rounds=1):
    """Texts of 3 to 140 words behind a short and a long prompt, one of them with
    turns; `n_rounds` times, with other words.
    """
    words = " ".join(toy.models.TEXTS).split()
    rng = np.random.default_rng(0)
    turns = [
        ("user", "Two and two?"),
        ("assistant", "Four."),
        ("user", "And three and three?"),
    ]
    turns = [{"role": role, "content": content} for role, content in turns]
    prompts = ["What is it?"] * 3 + ["Why " * 40 + "?"] * 3 + [turns]
    lengths = [3, 20, 60, 5, 90, 140, 9] * n_rounds
    return prompts * n_rounds, [" ".join(rng.choice(words, n)) for n in lengths]


def one_by_one(folder, words, *, special, dtype=torch.float32, n_rounds=1):
    """Logits of transformers, each text alone through a model that has seen no
    other.
    """
    from transformers import AutoModelForSequenceClassification

    is_gemma = (
        json.loads((folder / "config.json").read_text())["model_type"] == "gemma2"
    )
    options = EAGER if is_gemma else {}
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=dtype, **options
    ).eval()
    logits = []
    for prompt, response in zip(*conversations(n_rounds), strict=True):
        chat = prompt
        if isinstance(prompt, str):
            chat = [{"role": "user", "content": prompt}]
        chat = [*chat, {"role": "assistant", "content": response}]
        text = words.apply_chat_template(chat, tokenize=False)
        ids = torch.tensor([words(text, add_special_tokens=special)["input_ids"]])
        with torch.no_grad():
            logits.append(copy.deepcopy(model)(ids).logits[0, 0].item())
    return np.array(logits)


def assert_close(scores, reference):
    assert reference.std() > 1e-2
    assert np.abs(scores - reference).max() <= TOLERANCE * reference.std()


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Saves a tiny model of the sweep; gives its folder and its tokenizer."""

    def save(architecture, **settings):
        order = "xlnet" if architecture == "xlnet" else "bert"
        words = encoder_words(order) if architecture in ENCODERS else toy.tokenizer()
        monkeypatch.setitem(
            toy.models.ARCHITECTURES,
            architecture,
            (DECODERS | ENCODERS)[architecture] | settings,
        )
        return toy.save_model(tmp_path / architecture, architecture, words=words), words

    return save


def sweep():
    names = [*DECODERS, *ENCODERS]
    return [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.long)
        for name in names
    ]


@pytest.mark.parametrize("architecture", sweep())
def test_scores_are_those_of_transformers_one_by_one(save, architecture):
    folder, words = save(architecture)
    if architecture in REFUSED:
        with pytest.raises(DataError, match=REFUSED[architecture]):
            classifier(folder)(*conversations())
        return
    scorer = classifier(folder)
    reference = one_by_one(folder, words, special=architecture in ENCODERS)
    assert_close(scorer(*conversations()), reference)
    assert_close(scorer(*(part[::-1] for part in conversations()))[::-1], reference)
    scorer.max_batch_tokens = 50  # packs smaller than a text
    assert_close(scorer(*conversations()), reference)


def test_the_states_of_opt_may_be_narrower_than_its_layers(save):
    folder, words = save("opt", word_embed_proj_dim=16)
    reference = one_by_one(folder, words, special=False)
    assert_close(classifier(folder)(*conversations()), reference)


def test_texts_beyond_the_window_of_mpt_are_refused(save):
    folder, _ = save("mpt", max_seq_len=64)
    with pytest.raises(DataError, match="64"):
        classifier(folder)(*conversations())


@pytest.mark.parametrize("pad", [0, None])
def test_a_composite_configuration_has_the_pad_token_of_its_text(tmp_path, pad):
    """Qwen 3.5 reads its text's configuration, whatever stands above it."""
    transformers = pytest.importorskip("transformers", minversion="5.10")
    words = toy.tokenizer()
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
    linear |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    text = _DECODER | _HEADS | linear | {"vocab_size": len(words), "pad_token_id": pad}
    text["layer_types"] = ["linear_attention", "full_attention"]
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2}
    config = transformers.AutoConfig.for_model(
        "qwen3_5", text_config=text, vision_config=vision, num_labels=1
    )
    torch.manual_seed(0)
    model_class = transformers.AutoModelForSequenceClassification
    model = model_class.from_config(config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    folder = toy.models.write_model(model, words, tmp_path / "m")
    reference = one_by_one(folder, words, special=False)
    assert_close(classifier(folder)(*conversations()), reference)


def test_the_sweep_is_wide():
    assert len({*DECODERS, *ENCODERS} - set(REFUSED)) >= 55


@pytest.mark.parametrize("architecture", ["t5", "bart"])
def test_an_encoder_with_a_decoder_is_refused(tmp_path, monkeypatch, architecture):
    sizes = _LAYERS | {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
    }
    monkeypatch.setitem(toy.models.ARCHITECTURES, architecture, sizes)
    with pytest.raises(DataError, match="has an encoder and a decoder"):
        classifier(toy.save_model(tmp_path / architecture, architecture))


@pytest.mark.parametrize("attention_type", ["block_sparse", "original_full"])
def test_a_short_text_does_not_change_what_long_ones_get(save, attention_type):
    """BigBird goes over to full attention for good when a short text comes; here it
    comes back.
    """
    folder, words = save("big_bird", attention_type=attention_type)
    texts = conversations()
    reference = one_by_one(folder, words, special=True)
    scorer = classifier(folder)
    assert_close(scorer(*texts), reference)
    assert_close(scorer(*(part[::-1] for part in texts))[::-1], reference)
    alone = scorer.forward_alone(scorer.prepare(*texts), np.arange(len(reference)))
    assert_close(alone, reference)
    assert scorer.backbone.model.attention_type == attention_type


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "architecture",
    [
        "llama",
        "gemma2",
        "modernbert",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("qwen3", "gpt2", "bert", "deberta-v2", "longformer")
        ),
    ],
)
def test_half_precision_is_that_of_the_class(save, architecture, dtype):
    """As near to the class as rounding brings that from float32; the head here does not
    round.
    """
    folder, words = save(architecture)
    special = architecture in ENCODERS
    # The noise of few texts may be small by chance.
    options = {"special": special, "n_rounds": 6}
    exact = one_by_one(folder, words, **options)
    reference = one_by_one(folder, words, dtype=dtype, **options)
    noise = np.sqrt(np.mean((reference - exact) ** 2))
    assert 0 < noise < exact.std()
    scores = classifier(folder, dtype=str(dtype))(*conversations(6))
    assert np.sqrt(np.mean((scores - reference) ** 2)) <= 1.5 * noise
    assert np.sqrt(np.mean((scores - exact) ** 2)) <= 1.5 * noise


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["deberta", "xlnet"])
def test_an_architecture_that_does_not_run_in_half_precision_says_so(
    save, architecture
):
    folder, _ = save(architecture)
    with pytest.raises(
        DataError, match=r"does not run in bfloat16 .*score with dtype='float32'"
    ):
        classifier(folder, dtype="bfloat16")(*conversations())
