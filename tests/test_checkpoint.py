"""What a checkpoint's files say: their bytes are its identity, its tokenizer file is
followed to the letter.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from served_models import oracle
from tokenizers import Tokenizer, processors

from rmlab import toy
from rmlab.inference.encoding import encode
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.checkpoints.tokenizer_file import (
    class_tokenizer,
    follows_file,
    load_tokenizer,
)
from rmlab.scorers.classifier import classifier
from rmlab.tables import DataError

# The identity: the bytes of every file that decides a score, wherever they lie, and
# nothing else.


@pytest.fixture
def folder(zoo, tmp_path):
    return Path(shutil.copytree(zoo(), tmp_path.resolve() / "m"))


def flip(path, place):
    """Change one byte of a file, and none of the rest."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def snapshot(folder, cache):
    """The files of a folder as the hub's client keeps them: links to blobs, large ones
    named by their SHA-256.
    """
    home = cache / "models--owner--model"
    place = home / "snapshots" / ("0123456789" * 4)
    place.mkdir(parents=True)
    (home / "blobs").mkdir()
    for path in folder.iterdir():
        kind = hashlib.sha256 if path.suffix == ".safetensors" else hashlib.sha1
        blob = kind(path.read_bytes()).hexdigest()
        shutil.copy(path, home / "blobs" / blob)
        (place / path.name).symlink_to(f"../../blobs/{blob}")
    return place


def test_a_copy_another_name_and_another_time_do_not_count(folder, tmp_path):
    content = find(folder).content
    copy = shutil.copytree(folder, tmp_path / "copy")
    moved = folder.rename(tmp_path / "a name before all others")
    os.utime(moved / "model.safetensors", (1, 1))
    (moved / "README.md").write_text("no weights")
    (tmp_path / "link").symlink_to(moved)
    places = [find(copy), find(moved), find(tmp_path / "link"), find(moved, base=copy)]
    assert {place.content for place in places} == {content}


def test_every_file_that_may_be_loaded_counts(folder):
    """Which of two files with the same weights is loaded is for transformers to say."""
    contents = [find(folder).content]
    for name in ("a.safetensors", "z.safetensors"):
        shutil.copy(folder / "model.safetensors", folder / name)
        contents.append(find(folder).content)
    flip(folder / "a.safetensors", -1)
    contents.append(find(folder).content)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    contents.append(find(folder).content)
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    contents.append(find(folder).content)
    assert len(set(contents)) == len(contents)


def test_base_weights_with_an_adapter_beside_them_are_refused(folder):
    """transformers adds the adapter where peft is installed, and says nothing where it
    is not.
    """
    adapter = {
        "base_model_name_or_path": "owner/base",
        "peft_type": "LORA",
        "r": 2,
        "target_modules": ["q_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(DataError, match="adapter of 'owner/base'"):
        classifier(folder)


TOKENIZER_FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "qwen.tiktoken",
]


def test_every_file_of_a_tokenizer_counts_and_no_other(folder):
    contents = [find(folder).tokenizer_content]
    for name in TOKENIZER_FILES:
        with (folder / name).open("a") as file:
            file.write(" ")
        contents.append(find(folder).tokenizer_content)
    assert len(set(contents)) == 1 + len(TOKENIZER_FILES)
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    for name in ("README.md", "trainer_state.json", "generation_config.json", "own.py"):
        (folder / name).write_text("{}")
    assert find(folder).tokenizer_content == contents[-1]
    assert find(folder, trust_remote_code=True).tokenizer_content != contents[-1]


def test_a_snapshot_of_the_hub_is_what_its_copy_is(folder, tmp_path, monkeypatch):
    """Large files are not read: the names of their blobs are their hashes."""
    place = snapshot(folder, tmp_path / "hub")
    files_read = []
    digest = hashlib.file_digest

    def note(file, kind):
        files_read.append(Path(file.name).name)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", note)
    content = find(place).content
    assert files_read == ["config.json"], "git's is no SHA-256"
    assert find(folder).content == content


def test_trusted_code_counts_and_other_code_does_not(folder, tmp_path):
    base, plain = shutil.copytree(folder, tmp_path / "base"), find(folder).content
    contents = {plain, find(folder, trust_remote_code=True).content}
    for home, name, code in [
        (folder, "a.py", "1"),
        (folder, "a.py", "2"),
        (folder, "b.py", ""),
        (base, "c.py", ""),
    ]:
        (home / name).write_text(code)
        contents.add(find(folder, base=base, trust_remote_code=True).content)
    assert len(contents) == 5
    assert find(folder).content == plain
    assert (
        classifier(folder, trust_remote_code=True).fingerprint
        != classifier(folder).fingerprint
    )


# The tokenizer file is followed, where transformers' class for the architecture would
# not.

PROMPTS = ["What is the capital of France?"] * 3
RESPONSES = [
    "It is  Paris, 12345 km away.",
    "def add(a, b):\n    return  a + b",
    "Naïve café, Привет.",
]


@pytest.mark.parametrize(
    ("architecture", "class_name"),
    [
        ("qwen2", "TokenizersBackend"),
        ("gemma2", "GemmaTokenizer"),
        ("llama", "CohereTokenizer"),
    ],
)
@pytest.mark.skipif(
    transformers.__version__.startswith("4."),
    reason="transformers before 5: its classes follow the file, or are not there yet",
)
def test_a_foreign_tokenizer_is_read_as_its_file_says(
    tmp_path, architecture, class_name
):
    """Transformers builds a tokenizer of its own by model type or class and takes only
    the vocabulary from the file.
    """
    folder = toy.save_model(tmp_path / "m", architecture)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config | {"tokenizer_class": class_name})
    )
    checkpoint, scorer = find(folder), classifier(folder)
    assert not follows_file(class_tokenizer(checkpoint), folder)
    assert follows_file(scorer.tokenizer, folder)
    ids = encode(toy.tokenizer(), PROMPTS, RESPONSES).ids
    expected_ids = [text_ids.tolist() for text_ids in ids]
    found = scorer.prepare(PROMPTS, RESPONSES).ids
    assert [text_ids.tolist() for text_ids in found] == expected_ids
    logits = [*map(oracle(folder), expected_ids)]
    np.testing.assert_allclose(scorer(PROMPTS, RESPONSES), np.ravel(logits), atol=2e-5)


@pytest.mark.parametrize("error", [None, ValueError("no fast tokenizer")])
def test_a_file_that_cannot_be_followed_is_refused(zoo, monkeypatch, error):
    """Where the second way to read the file gives other tokens, too, or fails, no text
    is scored.
    """
    foreign = Mock(
        return_value=toy.tokenizer(["another text, and other merges"] * 9),
        side_effect=error,
    )
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.from_pretrained", foreign)
    with pytest.raises(DataError, match=r"tokenizer.*base="):
        classifier(zoo("qwen2"))(PROMPTS, RESPONSES)


def test_special_tokens_come_from_the_file(tmp_path):
    folder = toy.save_model(tmp_path / "m", "qwen2")
    words = load_tokenizer(find(folder))
    assert words("ab")["input_ids"][0] == words.bos_token_id
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.post_processor = processors.ByteLevel()
    core.save(str(folder / "tokenizer.json"))
    assert load_tokenizer(find(folder))("ab")["input_ids"][0] != words.bos_token_id


# Weights by name.


def test_weights_come_as_they_are_stored(folder):
    extra = {"extra.weight": torch.ones(2, dtype=torch.bfloat16)}
    (folder / "model.safetensors").rename(folder / "b.safetensors")
    save_file(extra, folder / "a.safetensors")
    stored = load_file(folder / "b.safetensors") | extra
    checkpoint = find(folder)
    assert checkpoint.weights.keys() == stored.keys()
    for key, tensor in checkpoint.tensors(stored):
        assert tensor.dtype == stored[key].dtype
        assert tensor.equal(stored[key])
