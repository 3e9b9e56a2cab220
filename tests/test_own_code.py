"""A model's own code decides its scores, so that a change of it is a change of the fingerprint."""

import json

import pytest

from rmlab import toy
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.classifier import classifier
from rmlab.tables import DataError


@pytest.fixture
def folder(tmp_path):
    return toy.save_model(tmp_path / "m")


def ask_for(folder, reference="own.Model", file="config.json", key="AutoModel"):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {key: reference}}))


def content(folder):
    return find(folder, trust_remote_code=True).content


def test_each_change_of_trusted_code_is_seen(folder):
    ask_for(folder)
    found = []
    for name, text in [("own.py", "a = 1"), ("own.py", "a = 2"), ("part.py", "a = 2"), ("part.py", "")]:
        (folder / name).write_text(text)
        found.append(content(folder))
    assert len(set(found)) == 4
    (folder / "part.py").unlink()
    assert content(folder) == found[1]
    (folder / "README.md").write_text("not code")
    assert content(folder) == found[1]


def test_a_tokenizer_s_own_code_counts(folder):
    ask_for(folder, file="tokenizer_config.json", key="AutoTokenizer", reference=["own.Words", None])
    (folder / "own.py").write_text("a = 1")
    first = content(folder)
    (folder / "own.py").write_text("a = 2")
    assert content(folder) != first


def test_code_that_is_not_run_does_not_count(folder):
    plain = find(folder).content
    assert content(folder) == plain
    (folder / "train.py").write_text("a = 1")
    assert content(folder) == plain  # no file asks for it, so transformers never runs it
    assert classifier(folder, trust_remote_code=True).fingerprint == classifier(folder).fingerprint
    ask_for(folder)
    untrusted = find(folder).content
    assert untrusted != content(folder)
    (folder / "train.py").write_text("a = 2")
    assert find(folder).content == untrusted


def test_code_beside_the_configuration_counts(folder, tmp_path):
    base = toy.save_model(tmp_path / "base", seed=1)
    ask_for(base)
    (base / "own.py").write_text("a = 1")
    first = find(folder, base=base, trust_remote_code=True).content
    (base / "own.py").write_text("a = 2")
    assert find(folder, base=base, trust_remote_code=True).content != first
    (folder / "own.py").write_text("a = 1")
    beside_weights = find(folder, base=base, trust_remote_code=True).content
    (folder / "own.py").write_text("a = 2")
    (base / "own.py").write_text("a = 1")
    assert find(folder, base=base, trust_remote_code=True).content != beside_weights, "which of the two is run counts"


def test_code_in_another_folder_counts(folder, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text("a = 1")
    ask_for(folder, f"{tmp_path / 'code'}--own.Model")
    first = content(folder)
    assert content(folder) == first
    (tmp_path / "code" / "own.py").write_text("a = 2")
    assert content(folder) != first


def test_code_of_another_repository_counts_by_its_commit(folder, tmp_path, monkeypatch):
    ask_for(folder, "owner/code--own.Model")
    asked = []

    def at(commit):
        return lambda repository, file: asked.append((repository, file)) or str(tmp_path / commit / file)

    monkeypatch.setattr("transformers.utils.hub.cached_file", at("first"))
    first = content(folder)
    assert asked == [("owner/code", "own.py")]
    assert content(folder) == first
    monkeypatch.setattr("transformers.utils.hub.cached_file", at("second"))
    assert content(folder) != first

    def unreachable(*_):
        raise OSError("no network")

    monkeypatch.setattr("transformers.utils.hub.cached_file", unreachable)
    with pytest.raises(DataError, match="its code lies in 'owner/code', which cannot be had; connect"):
        content(folder)


def test_a_damaged_tokenizer_file_is_left_to_the_tokenizer(folder):
    before = content(folder)
    (folder / "tokenizer_config.json").write_text("{")
    assert content(folder) == before
