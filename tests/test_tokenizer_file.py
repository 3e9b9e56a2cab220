"""The tokenizer file is followed, where transformers' class for the architecture would not."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rmlab import toy
from rmlab.checks import doctor
from rmlab.inference.template import encode
from rmlab.scorers import classifier
from rmlab.scorers.checkpoints import checkpoint
from rmlab.scorers.checkpoints.tokenizer_file import PROBES, class_tokenizer, count_deviations, load_tokenizer
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?"] * 3
RESPONSES = ["It is  Paris, 12345 km away.", "def add(a, b):\n    return  a + b", "Naïve café, Привет."]


@pytest.fixture(autouse=True)
def _quiet(one_thread):
    pass


def train(core, kind=trainers.BpeTrainer, **options):
    trainer = kind(vocab_size=700, show_progress=False, **options)
    core.train_from_iterator([*toy.models.TEXTS, *PROBES], trainer)
    return core


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(digits):
    """As Llama 3 (digits in threes) and Qwen 2 (one by one) have it."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC() if digits == "one" else None
    pattern = LLAMA3 if digits == "three" else LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    return train(core, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|end|>"])


def sentence_piece(normalizer):
    """As Llama 2 and Gemma have it: spaces become a mark, unknown characters bytes."""
    alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    core.normalizer = normalizer
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return train(core, special_tokens=["<unk>", "<s>", "</s>", "<|end|>", *alphabet])


def unigram():
    """As DeBERTa-v3 has it."""
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    return train(core, trainers.UnigramTrainer, unk_token="[UNK]", special_tokens=special)


def word_piece():
    """As BERT has it."""
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    return train(core, trainers.WordPieceTrainer, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


LLAMA2 = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
# As published: the architecture, the tokenizer class that tokenizer_config.json names, the file, special tokens.
BYTES = {"eos_token": "<|end|>"}
SENTENCES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
SEGMENTS = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
MARKS = normalizers.Replace(" ", "▁")
PUBLISHED = {
    "Llama 3": ("llama", "PreTrainedTokenizerFast", lambda: byte_level("three"), BYTES),
    "Qwen 2": ("qwen2", "Qwen2Tokenizer", lambda: byte_level("one"), BYTES),
    "Llama 2": ("llama", "LlamaTokenizer", lambda: sentence_piece(LLAMA2), SENTENCES),
    "Gemma 2": ("gemma2", "GemmaTokenizer", lambda: sentence_piece(MARKS), SENTENCES | {"pad_token": "<|end|>"}),
    "DeBERTa v3": ("deberta-v2", "DebertaV2Tokenizer", unigram, SEGMENTS),
    "BERT": ("bert", "BertTokenizer", word_piece, SEGMENTS),
}


def publish(folder, architecture, named, core, special):
    toy.save_model(folder, architecture, vocab_size=max(core.get_vocab_size(), 520))
    core.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": named, "chat_template": toy.models.CHAT_TEMPLATES["chatml"], **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name in ("chat_template.jinja", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    return folder


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layouts_load_with_the_tokens_of_their_file(tmp_path, name):
    architecture, named, make, special = PUBLISHED[name]
    core = make()
    folder = publish(tmp_path / "m", architecture, named, core, special)
    words = load_tokenizer(checkpoint.find(folder))
    for text in PROBES:
        assert words(text, add_special_tokens=False)["input_ids"] == core.encode(text, add_special_tokens=False).ids
    assert words.eos_token == special.get("eos_token", words.eos_token)
    assert np.isfinite(classifier(folder)(PROMPTS, RESPONSES)).all()


@pytest.mark.parametrize(
    ("architecture", "named"),
    [("qwen2", "TokenizersBackend"), ("gemma2", "GemmaTokenizer"), ("llama", "CohereTokenizer")],
)
def test_a_foreign_tokenizer_is_read_as_its_file_says(tmp_path, architecture, named):
    """Transformers builds a tokenizer of its own by model type or class and takes only the vocabulary from the file."""
    from transformers import AutoModelForSequenceClassification

    folder = toy.save_model(tmp_path / "m", architecture)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": named}))
    model_files = checkpoint.find(folder)
    assert count_deviations(class_tokenizer(model_files), model_files) > 0, "the class alone does not follow the file"
    scorer = classifier(folder)
    assert count_deviations(scorer.tokenizer, model_files) == 0
    encoded = encode(toy.tokenizer(), PROMPTS, RESPONSES)
    prepared = scorer.prepare(PROMPTS, RESPONSES)
    assert [ids.tolist() for ids in prepared.ids] == [ids.tolist() for ids in encoded.ids]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = [model(torch.tensor([ids.tolist()])).logits[0, 0].item() for ids in encoded.ids]
    np.testing.assert_allclose(scorer(PROMPTS, RESPONSES), logits, atol=2e-5)


def test_the_doctor_names_the_class_that_does_not_follow_the_file(tmp_path):
    from fakes import toy_responses

    frame = toy_responses(prompts=3, slots=1)
    report = doctor(toy.save_model(tmp_path / "q", "qwen2"), frame).set_index("check")
    assert report.loc["tokenizer", "status"] == "warn"
    assert "Qwen2Tokenizer" in report.loc["tokenizer", "found"]
    assert "tokenizer.json" in report.loc["tokenizer", "found"]
    report = doctor(toy.save_model(tmp_path / "l", "llama"), frame).set_index("check")
    assert report.loc["tokenizer", "status"] == "pass"


def test_a_damaged_file_is_refused(tmp_path):
    folder = toy.save_model(tmp_path / "m", "qwen2")
    for damage in ("{", "[]", '{"model": null}'):
        (folder / "tokenizer.json").write_text(damage)
        with pytest.raises(DataError, match="tokenizer"):
            load_tokenizer(checkpoint.find(folder))


@pytest.mark.parametrize("failure", ["other tokens", "error"])
def test_a_file_that_cannot_be_followed_is_refused(tmp_path, monkeypatch, failure):
    """Where the second way to read the file gives other tokens, too, or fails, no text is scored."""
    folder = toy.save_model(tmp_path / "m", "qwen2")
    foreign = Mock(return_value=toy.tokenizer(["another text, and other merges"] * 9))
    if failure == "error":
        foreign.side_effect = ValueError("no fast tokenizer")
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.from_pretrained", foreign)
    with pytest.raises(DataError, match=r"tokenizer.*base="):
        classifier(folder)(PROMPTS, RESPONSES)


def test_special_tokens_come_from_the_file_too(tmp_path):
    folder = toy.save_model(tmp_path / "m", "qwen2")
    words = load_tokenizer(checkpoint.find(folder))
    assert words("ab")["input_ids"][0] == words.bos_token_id
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.post_processor = processors.ByteLevel()
    core.save(str(folder / "tokenizer.json"))
    assert load_tokenizer(checkpoint.find(folder))("ab")["input_ids"][0] != words.bos_token_id
