"""The tokenizer file is followed, where transformers' class for the architecture would not."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fakes import toy_responses
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rmlab import toy
from rmlab.checks import doctor
from rmlab.inference.template import encode
from rmlab.scorers import classifier
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.checkpoints.tokenizer_file import PROBES, class_tokenizer, count_deviations, load_tokenizer
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?"] * 3
RESPONSES = ["It is  Paris, 12345 km away.", "def add(a, b):\n    return  a + b", "Naïve café, Привет."]


def byte_level():
    """As Qwen 2 has it, which takes digits one by one."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    byte_pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"), byte_pieces])
    core.decoder = decoders.ByteLevel()
    return core, trainers.BpeTrainer, {"special_tokens": ["<|end|>"], "initial_alphabet": byte_pieces.alphabet()}


def sentence_piece():
    """As Llama 2 has it: spaces become a mark, unknown characters bytes."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return core, trainers.BpeTrainer, {"special_tokens": special}


def unigram():
    """As DeBERTa-v3 has it."""
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    core.pre_tokenizer, core.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    return core, trainers.UnigramTrainer, {"unk_token": "[UNK]", "special_tokens": special}


# As published: the architecture, the tokenizer class that tokenizer_config.json names, the file, special tokens.
PUBLISHED = {
    "Qwen 2": ("qwen2", "Qwen2Tokenizer", byte_level, {"eos_token": "<|end|>"}),
    "Llama 2": ("llama", "LlamaTokenizer", sentence_piece, {"bos_token": "<s>", "eos_token": "</s>"}),
    "DeBERTa v3": ("deberta-v2", "DebertaV2Tokenizer", unigram, {"cls_token": "[CLS]", "sep_token": "[SEP]"}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layouts_load_with_the_tokens_of_their_file(tmp_path, name):
    architecture, class_name, make, special = PUBLISHED[name]
    core, trainer, options = make()
    core.train_from_iterator([*toy.models.TEXTS, *PROBES], trainer(vocab_size=700, show_progress=False, **options))
    folder = toy.save_model(tmp_path / "m", architecture, vocab_size=max(core.get_vocab_size(), 520))
    core.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": class_name, "chat_template": toy.models.CHAT_TEMPLATES["chatml"], **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for file in ("chat_template.jinja", "special_tokens_map.json"):
        (folder / file).unlink(missing_ok=True)
    words = load_tokenizer(find(folder))
    for text in PROBES:
        assert words(text, add_special_tokens=False)["input_ids"] == core.encode(text, add_special_tokens=False).ids
    assert words.eos_token == special.get("eos_token", words.eos_token)
    assert np.isfinite(classifier(folder)(PROMPTS, RESPONSES)).all()


@pytest.mark.parametrize(
    ("architecture", "class_name"),
    [("qwen2", "TokenizersBackend"), ("gemma2", "GemmaTokenizer"), ("llama", "CohereTokenizer")],
)
def test_a_foreign_tokenizer_is_read_as_its_file_says(tmp_path, architecture, class_name):
    """Transformers builds a tokenizer of its own by model type or class and takes only the vocabulary from the file."""
    from transformers import AutoModelForSequenceClassification

    folder = toy.save_model(tmp_path / "m", architecture)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": class_name}))
    checkpoint, scorer = find(folder), classifier(folder)
    assert count_deviations(class_tokenizer(checkpoint), checkpoint) > 0, "the class alone does not follow the file"
    assert count_deviations(scorer.tokenizer, checkpoint) == 0
    encoded = encode(toy.tokenizer(), PROMPTS, RESPONSES)
    prepared = scorer.prepare(PROMPTS, RESPONSES)
    assert [ids.tolist() for ids in prepared.ids] == [ids.tolist() for ids in encoded.ids]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = [model(torch.tensor([ids.tolist()])).logits[0, 0].item() for ids in encoded.ids]
    np.testing.assert_allclose(scorer(PROMPTS, RESPONSES), logits, atol=2e-5)


def test_the_doctor_names_the_class_that_does_not_follow_the_file(zoo):
    frame = toy_responses(prompts=3, slots=1)
    rows = [doctor(zoo(name), frame).set_index("check").loc["tokenizer"] for name in ("qwen2", "llama")]
    assert [row["status"] for row in rows] == ["warn", "pass"]
    assert "Qwen2Tokenizer" in rows[0]["found"]


@pytest.mark.parametrize("failure", ["other tokens", "error"])
def test_a_file_that_cannot_be_followed_is_refused(zoo, monkeypatch, failure):
    """Where the second way to read the file gives other tokens, too, or fails, no text is scored."""
    foreign = Mock(return_value=toy.tokenizer(["another text, and other merges"] * 9))
    if failure == "error":
        foreign.side_effect = ValueError("no fast tokenizer")
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.from_pretrained", foreign)
    with pytest.raises(DataError, match=r"tokenizer.*base="):
        classifier(zoo("qwen2"))(PROMPTS, RESPONSES)


def test_special_tokens_come_from_the_file_and_a_damaged_file_is_refused(tmp_path):
    folder = toy.save_model(tmp_path / "m", "qwen2")
    words = load_tokenizer(find(folder))
    assert words("ab")["input_ids"][0] == words.bos_token_id
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.post_processor = processors.ByteLevel()
    core.save(str(folder / "tokenizer.json"))
    assert load_tokenizer(find(folder))("ab")["input_ids"][0] != words.bos_token_id
    for damage in ("{", "[]", '{"model": null}'):
        (folder / "tokenizer.json").write_text(damage)
        with pytest.raises(DataError, match="tokenizer"):
            load_tokenizer(find(folder))
