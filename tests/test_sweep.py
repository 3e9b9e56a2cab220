"""Every architecture that transformers can classify with, in float32: each text as transformers scores it alone."""

import copy

import numpy as np
import pytest
import torch

from rmlab import toy
from rmlab.scorers import classifier
from rmlab.tables import DataError

TOLERANCE = 2.5e-5
"""Of the scores' standard deviation."""

_WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_ENCODER = _WIDTH | {"intermediate_size": 48, "max_position_embeddings": 4096}
_DECODER = _ENCODER | {"num_key_value_heads": 2}
_HEADS, _WINDOW, _SCALE = {"head_dim": 8}, {"sliding_window": 16}, {"query_pre_attn_scalar": 8}
_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 4096}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 64}
_LOCAL = {"local_attention": 16, "global_attn_every_n_layers": 2, "num_hidden_layers": 4}
_XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 4096}

DECODERS = {
    "llama": _DECODER,
    "arcee": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER | _HEADS,
    "mistral": _DECODER | _HEADS | _WINDOW,
    "ministral": _DECODER | _HEADS | _WINDOW,
    "mixtral": _DECODER | _EXPERTS,
    "qwen3_moe": _DECODER | _HEADS | _EXPERTS,
    "gemma": _DECODER | _HEADS,
    "gemma2": _DECODER | _HEADS | _SCALE | _WINDOW,
    "gemma3_text": _DECODER | _HEADS | _SCALE | _WINDOW,
    "phi": _DECODER,
    "phi3": _DECODER,
    "glm4": _DECODER | _HEADS,
    "olmo2": _DECODER,
    "olmo3": _DECODER | _WINDOW,
    "starcoder2": _DECODER | _WINDOW,
    "stablelm": _DECODER,
    "persimmon": _ENCODER,
    "nemotron": _DECODER,
    "smollm3": _DECODER,
    "seed_oss": _DECODER | _HEADS,
    "helium": _DECODER | _HEADS,
    "diffllama": _DECODER,
    "gpt_oss": _DECODER | _HEADS | _EXPERTS | _WINDOW,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neo": _WIDTH
    | {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 16}
    | {"max_position_embeddings": 4096},
    "gpt_neox": _ENCODER,
    "gptj": _GPT2 | {"rotary_dim": 4},
    "opt": _WIDTH | {"ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 4096},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "falcon": _WIDTH,
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4},
    "ctrl": _GPT2 | {"dff": 48},
    "biogpt": _ENCODER,
    "modernbert-decoder": _DECODER | _LOCAL,
    "jamba": _DECODER
    | {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2}
    | {"num_experts": 2, "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False},
}
ENCODERS = {
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "xlm-roberta": _ENCODER,
    "electra": _ENCODER | {"embedding_size": 32},
    "deberta": _ENCODER | _RELATIVE,
    "deberta-v2": _ENCODER | _RELATIVE | {"position_buckets": 32, "max_relative_positions": -1},
    "modernbert": _ENCODER | _LOCAL | {"reference_compile": False},
    "albert": _ENCODER | {"embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 4096},
    "mpnet": _ENCODER,
    "convbert": _ENCODER | {"embedding_size": 32},
    "fnet": _ENCODER,
    "funnel": {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1]},
    "longformer": _ENCODER | {"attention_window": 16, "max_position_embeddings": 4098},
    "big_bird": _ENCODER | {"attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 1},
    "rembert": _ENCODER | {"input_embedding_size": 32, "output_embedding_size": 32},
    "roformer": _ENCODER | {"embedding_size": 32},
    "nomic_bert": _ENCODER,
    "eurobert": _DECODER,
    "xlm": _XLM,
    "canine": _ENCODER | {"downsampling_rate": 4, "num_hash_buckets": 64, "local_transformer_stride": 16},
    "reformer": _ENCODER
    | {"attention_head_size": 8, "attn_layers": ["local", "lsh"], "feed_forward_size": 48, "axial_pos_embds": False}
    | {"lsh_attn_chunk_length": 16, "local_attn_chunk_length": 16, "num_buckets": 4},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
}
REFUSED = {
    "albert": "reads neither the first nor the last token",
    "eurobert": "reads neither the first nor the last token",
    "canine": r"CanineForSequenceClassification gives short texts other logits .* standard deviations",
    "reformer": "draws its attention at random",
}
"""With a sentence, since what their classes read is not known here, or not what their backbones give out."""


@pytest.fixture(autouse=True)
def _quiet(one_thread):
    pass


def conversations():
    """Texts of 3 to 140 words behind a short and a long prompt, one of them with turns."""
    words = " ".join(toy.models.TEXTS).split()
    rng = np.random.default_rng(0)
    turns = [("user", "Two and two?"), ("assistant", "Four."), ("user", "And three and three?")]
    turns = [{"role": role, "content": content} for role, content in turns]
    prompts = ["What is it?"] * 3 + ["Why " * 40 + "?"] * 3 + [turns]
    return prompts, [" ".join(rng.choice(words, n)) for n in (3, 20, 60, 5, 90, 140, 9)]


def encoder_words(order):
    """A tokenizer with a chat template that writes [CLS] and [SEP] around plain text, as encoders' do."""
    from tokenizers import processors

    words = toy.tokenizer(chat_template="chatml")
    words.bos_token = None
    words.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    marks = [("[CLS]", words.cls_token_id), ("[SEP]", words.sep_token_id)]
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=order, pair=f"{order} $B [SEP]", special_tokens=marks
    )
    return words


def one_by_one(folder, words, *, special):
    """Logits of transformers, each text alone through a model that has seen no other."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for prompt, response in zip(*conversations(), strict=True):
        chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        text = words.apply_chat_template([*chat, {"role": "assistant", "content": response}], tokenize=False)
        ids = words(text, add_special_tokens=special)["input_ids"]
        with torch.no_grad():
            found.append(copy.deepcopy(model)(torch.tensor([ids])).logits[0, 0].item())
    return np.array(found)


@pytest.mark.parametrize("architecture", [*DECODERS, *ENCODERS])
def test_scores_are_those_of_transformers_one_by_one(tmp_path, monkeypatch, architecture):
    encodes = architecture in ENCODERS
    order = "$A [SEP] [CLS]" if architecture == "xlnet" else "[CLS] $A [SEP]"
    words = encoder_words(order) if encodes else toy.tokenizer()
    monkeypatch.setitem(toy.models.ARCHITECTURES, architecture, (DECODERS | ENCODERS)[architecture])
    folder = toy.save_model(tmp_path / architecture, architecture, words=words)
    if architecture in REFUSED:
        with pytest.raises(DataError, match=REFUSED[architecture]):
            classifier(folder)(*conversations())
        return
    scorer = classifier(folder)
    reference = one_by_one(folder, words, special=encodes)
    found = scorer(*conversations())
    assert reference.std() > 1e-2
    assert np.abs(found - reference).max() <= TOLERANCE * reference.std()
    again = scorer(*(part[::-1] for part in conversations()))[::-1]
    assert np.abs(again - reference).max() <= TOLERANCE * reference.std(), "in another order"
    scorer.budget = 50
    pieces = scorer(*conversations())
    assert np.abs(pieces - reference).max() <= TOLERANCE * reference.std(), "in packs smaller than a text"


def test_the_sweep_is_wide():
    assert len({*DECODERS, *ENCODERS} - set(REFUSED)) >= 55


@pytest.mark.parametrize("architecture", ["t5", "bart"])
def test_an_encoder_with_a_decoder_is_refused(tmp_path, monkeypatch, architecture):
    sizes = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 48, "encoder_layers": 2}
    monkeypatch.setitem(toy.models.ARCHITECTURES, architecture, sizes | {"decoder_layers": 2})
    with pytest.raises(DataError, match="has an encoder and a decoder"):
        classifier(toy.save_model(tmp_path / architecture, architecture))


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Saves a tiny encoder of the sweep."""

    def save(architecture, **settings):
        monkeypatch.setitem(toy.models.ARCHITECTURES, architecture, ENCODERS[architecture] | settings)
        words = encoder_words("[CLS] $A [SEP]")
        return toy.save_model(tmp_path / architecture, architecture, words=words), words

    return save


@pytest.mark.parametrize("attention_type", ["block_sparse", "original_full"])
def test_a_short_text_does_not_change_what_long_ones_get(save, attention_type):
    """BigBird goes over to full attention for good when a short text comes; here it comes back."""
    folder, words = save("big_bird", attention_type=attention_type)
    prompts, responses = conversations()
    reference = one_by_one(folder, words, special=True)
    scorer = classifier(folder)
    for order in (np.arange(len(prompts)), np.arange(len(prompts))[::-1]):
        scores = scorer([prompts[i] for i in order], [responses[i] for i in order])
        assert np.abs(scores - reference[order]).max() <= TOLERANCE * reference.std()
    alone = scorer.forward_alone(scorer.prepare(prompts, responses), np.arange(len(prompts)))
    assert np.abs(alone - reference).max() <= TOLERANCE * reference.std()
    assert scorer.backbone.attention_type == attention_type


@pytest.mark.parametrize("architecture", ["deberta", "xlnet"])
def test_architectures_that_do_not_run_in_half_precision_say_so(save, architecture):
    folder, _ = save(architecture)
    with pytest.raises(DataError, match=r"does not run in bfloat16 .*score with dtype='float32'"):
        classifier(folder, dtype="bfloat16")(*conversations())
    assert np.isfinite(classifier(folder, dtype="float32")(*conversations())).all()


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "modernbert", "longformer", "big_bird"])
def test_architectures_that_run_in_half_precision_do(save, architecture):
    folder, _ = save(architecture)
    exact = classifier(folder)(*conversations())
    half = classifier(folder, dtype="bfloat16")(*conversations())
    assert np.abs(half - exact).max() < exact.std()
